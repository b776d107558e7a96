"""Implicit quantile networks: the fractions, the embedding against a loop, shapes of what comes back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from rlpyt.models import IqnModel, NoisyLinear, Quantiles, TauSource, draw_randomness
from tests.random_kit import seeded

VECTOR = Box(-1, 1, (3,))
IMAGE = Box(0, 255, (4, 84, 84), np.uint8)


def inputs(*lead: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = seeded(9)
    return torch.randn(*lead, 3, generator=g), torch.rand(*lead, 4, generator=g), torch.rand(lead, generator=g)


def small(**kwargs: Any) -> IqnModel:
    settings: dict[str, Any] = dict(hidden_sizes=(8, 6), n_tau=5, n_acting_tau=7, n_cosines=9, rnn_size=10)
    return IqnModel(VECTOR, Discrete(4), **settings | kwargs)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
class TestTauSource:
    def test_midpoints_without_a_generator(self, lead: tuple[int, ...]) -> None:
        taus = TauSource(5, 4)
        tau = taus(torch.zeros(lead))
        assert tau.shape == (*lead, 4)
        assert tau.dtype == torch.float32
        assert (tau == torch.tensor([0.125, 0.375, 0.625, 0.875])).all()
        taus.draw(seeded())
        taus.draw(None)
        assert torch.equal(taus(torch.zeros(lead)), tau)

    def test_fresh_uniform_fractions_with_one(self, lead: tuple[int, ...]) -> None:
        taus = TauSource(4000, 4)
        taus.draw(seeded())
        tau, again = taus(torch.zeros(lead)), taus(torch.zeros(lead))
        assert tau.shape == (*lead, 4000)
        assert tau.dtype == torch.float32
        assert not torch.equal(tau, again)
        assert len(tau.unique()) > 0.99 * tau.numel()
        assert ((tau >= 0) & (tau < 1)).all()
        flat = tau.flatten().sort().values.double()
        assert (flat - torch.linspace(0, 1, len(flat), dtype=torch.float64)).abs().max() < 1.95 / math.sqrt(len(flat))
        taus.draw(seeded())
        assert torch.equal(taus(torch.zeros(lead)), tau)


def test_stratified_fractions_lie_one_in_each_part() -> None:
    """Uniformly there, so that all together are as evenly spread as free ones."""
    taus = TauSource(5, 4, stratified=True)
    taus.draw(seeded())
    tau = taus(torch.zeros(2, 1000)).double()
    places = 5 * tau - torch.arange(5)
    assert places.min() > -1e-5
    assert places.max() < 1 + 1e-5
    assert places.mean((0, 1)) == pytest.approx(torch.full((5,), 0.5), abs=6 / math.sqrt(12 * 2000))
    assert places.std((0, 1)) == pytest.approx(torch.full((5,), 1 / math.sqrt(12)), abs=0.02)
    correlations = torch.corrcoef(places.reshape(-1, 5).T) - torch.eye(5)
    assert correlations.abs().max() < 5 / math.sqrt(2000)
    assert (taus(torch.zeros(2, 1000)) != tau).any()
    assert torch.equal(TauSource(5, 4, stratified=True)(torch.zeros(2)), TauSource(5, 4)(torch.zeros(2)))


@pytest.mark.parametrize(("n_tau", "n_midpoints"), [(0, 1), (1, 0), (-1, 4)])
def test_refuses_no_fractions(n_tau: int, n_midpoints: int) -> None:
    with pytest.raises(ValueError, match=rf"got {n_tau} random fractions and {n_midpoints} midpoints; expected"):
        TauSource(n_tau, n_midpoints)


def by_loops(model: IqnModel, x: torch.Tensor, tau: torch.Tensor) -> list[list[float]]:
    """Return the quantiles [A][N] of one row of features, one fraction at a time, as the paper writes them."""
    layer = model.embedding[0]
    assert isinstance(layer, nn.Linear)
    columns = []
    for fraction in tau.tolist():
        phi = []
        for j in range(model.feature_size):
            total = layer.bias[j].item()
            for i in range(layer.in_features):
                total += math.cos(math.pi * i * fraction) * layer.weight[j, i].item()
            phi.append(max(total, 0.0))
        columns.append(model.head(x * torch.tensor(phi)).tolist())
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("recurrent", [None, "lstm", "gru"])
@pytest.mark.parametrize("random", [False, True])
@torch.no_grad()
def test_quantiles_against_a_loop(dueling: bool, recurrent: str | None, random: bool) -> None:
    model = small(dueling=dueling, recurrent=recurrent)
    if random:
        draw_randomness(model, seeded())
    rows = inputs(2, 3)
    output = model(*rows)
    quantiles = output if recurrent is None else output[0]
    assert isinstance(quantiles, Quantiles)
    assert quantiles.value.shape == (2, 3, 4, 5 if random else 7)
    assert quantiles.tau.shape == (2, 3, 5 if random else 7)
    x, state = model.features(*rows)
    for t, b in np.ndindex(2, 3):
        expected = torch.tensor(by_loops(model, x[t, b], quantiles.tau[t, b]))
        torch.testing.assert_close(quantiles.value[t, b], expected, rtol=1e-4, atol=1e-5)
    if state is not None:
        assert all(torch.equal(a, b) for a, b in zip(output[1], state, strict=True) if a is not None)


def test_noise_and_fractions_are_drawn_from_one_generator() -> None:
    model, rows = small(noisy=True), inputs(3)
    plain = model(*rows).value
    draw_randomness(model, seeded())
    assert all(layer.input_noise.any() for layer in model.modules() if isinstance(layer, NoisyLinear))
    assert model(*rows).value.shape == (3, 4, 5)
    draw_randomness(model, None)
    assert torch.equal(model(*rows).value, plain)


def test_the_networks_of_the_paper() -> None:
    model = IqnModel(IMAGE, Discrete(6))
    sizes = [tuple(m.weight.shape) for m in model.modules() if isinstance(m, nn.Linear)]
    assert sizes == [(512, 3136), (6, 512), (3136, 64)]
    assert (model.taus.n_tau, model.taus.n_midpoints) == (64, 32)
    assert not [name for name in model.state_dict() if "frequencies" in name or "taus" in name]


def test_refuses_atoms_and_other_actions() -> None:
    with pytest.raises(TypeError, match=r"expected Discrete"):
        IqnModel(VECTOR, VECTOR)
    with pytest.raises(TypeError, match="n_atoms"):
        small(n_atoms=51)
