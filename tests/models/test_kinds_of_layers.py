"""Kinds of hidden layers: each against the formulas of its paper, network by network and number by number."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.models import (
    LAYERS,
    BatchNormModel,
    EnsembleBatchNorm,
    EnsembleModel,
    MuMlpModel,
    PgModel,
    PiMlpModel,
    PolicyModel,
    QModel,
    QofMuMlpModel,
    SimbaModel,
    SimbaV2Model,
    SpectralLinear,
    UnitLinear,
    join_replicas,
)
from rlpyt.utils.projection import projections_of
from rlpyt.utils.replicas import Replicas

N, M = 3, 6
SIZES = dict.fromkeys(LAYERS, (4, 4))


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make(kind: Any, n_models: int = N, output_size: int | None = 2) -> Any:
    """Networks whose parameters are all drawn, so that none is a neutral 0 or 1."""
    torch.manual_seed(0)
    model: EnsembleModel = LAYERS[kind](n_models, 5, SIZES[kind], output_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for layer in projections_of([model], model.parameters()):
            layer.project()
    return model


def alone(model: Any, i: int) -> Any:
    """Network i as an ensemble of one."""
    one = copy.deepcopy(model)
    one.n_models = 1
    for layer in one.modules():
        for tensors in (layer._parameters, layer._buffers):
            for name, x in tensors.items():
                if x is not None and x.dim():
                    part = x.detach()[i : i + 1].clone()
                    tensors[name] = nn.Parameter(part) if isinstance(x, nn.Parameter) else part
    return one


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_an_ensemble_is_its_networks(kind: str, training: bool) -> None:
    model = make(kind).train(training)
    one_by_one = [alone(model, i) for i in range(N)]
    x = rows(2, M, 5).requires_grad_()
    y, expected = model(x), torch.cat([one(x) for one in one_by_one])
    assert y.shape == (N, 2, M, 2)
    torch.testing.assert_close(y, expected)
    weight = rows(N, 2, M, 2, seed=1)
    torch.testing.assert_close(
        torch.autograd.grad((y * weight).sum(), x), torch.autograd.grad((expected * weight).sum(), x)
    )
    for i, one in enumerate(one_by_one):
        for name, buffer in one.named_buffers():
            torch.testing.assert_close(buffer, dict(model.named_buffers())[name][i : i + 1] if buffer.dim() else buffer)


@pytest.mark.parametrize("kind", LAYERS)
def test_the_first_networks_alone(kind: str) -> None:
    model = make(kind).eval()
    torch.testing.assert_close(model(rows(M, 5), 2), model(rows(M, 5))[:2])


@pytest.mark.parametrize("kind", LAYERS)
def test_policies_and_values_take_every_kind(kind: str) -> None:
    settings: dict[str, Any] = dict(observation_shape=(5,), hidden_sizes=SIZES[kind], action_size=2, layers=kind)
    x, nothing = rows(4, M, 5), torch.zeros(4, M)
    mean, log_std = PiMlpModel(**settings)(x, nothing, nothing)
    assert mean.shape == log_std.shape == MuMlpModel(**settings)(x, nothing, nothing).shape == (4, M, 2)
    q = QofMuMlpModel(**settings, n_models=3)
    assert q(x, nothing, nothing, mean).shape == (3, 4, M)
    assert q.eval()(x, nothing, nothing, mean, n_models=1).shape == (1, 4, M)


def test_a_class_is_a_kind_too() -> None:
    pi = PiMlpModel((5,), 8, 2, layers=partial(BatchNormModel, momentum=0.5))
    assert {layer.momentum for layer in pi.modules() if isinstance(layer, EnsembleBatchNorm)} == {0.5}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(layers="simba3"), r"layers is 'simba3'; expected one of 'mlp', 'batch_norm'"),
        (dict(layers="simba", dropout=0.1), r"layers is 'simba', with dropout=0.1; expected those with layers=\"mlp\""),
        (
            dict(layers="simba", hidden_sizes=(8, 4)),
            r"SimbaModel: hidden_sizes is \(8, 4\); expected one size for each",
        ),
        (dict(layers="simbav2", hidden_sizes=()), r"SimbaV2Model: hidden_sizes is \(\); expected one size for each"),
    ],
)
def test_refusals(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QofMuMlpModel(**{"observation_shape": (5,), "hidden_sizes": (8, 8), "action_size": 2, **settings})


# ---- batch normalisation ----


def test_batch_normalisation_by_hand() -> None:
    norm = EnsembleBatchNorm(1, 1, momentum=0.5, eps=1e-12, warmup=None)
    with torch.no_grad():
        norm.weight.fill_(2.0)
        norm.bias.fill_(1.0)
    y = norm(torch.tensor([[[1.0], [3.0]]]))  # mean 2, variance 1
    torch.testing.assert_close(y, torch.tensor([[[-1.0], [3.0]]]))
    assert (norm.mean.item(), norm.var.item(), norm.n_passes.item()) == (1.0, 1.0, 1)
    norm(torch.tensor([[[1.0], [7.0]]]))  # mean 4, variance 9
    assert (norm.mean.item(), norm.var.item()) == (2.5, 5.0)
    y = norm.eval()(torch.tensor([[[2.5 + math.sqrt(5)]]]))
    assert y.item() == pytest.approx(3.0)
    assert (norm.mean.item(), norm.n_passes.item()) == (2.5, 2)


def test_plain_batch_normalisation_is_torchs() -> None:
    ours = EnsembleBatchNorm(2, 4, momentum=0.1, eps=1e-5, warmup=None)
    theirs = [nn.BatchNorm1d(4, momentum=None) for _ in range(2)]
    for seed in range(3):
        x = rows(2, M, 4, seed=seed).requires_grad_()
        y, expected = ours(x), torch.stack([norm(part) for norm, part in zip(theirs, x, strict=True)])
        torch.testing.assert_close(y, expected)
        w = rows(2, M, 4, seed=9)
        torch.testing.assert_close(*(torch.autograd.grad((z * w).sum(), x)[0] for z in (y, expected)))


def test_renormalisation_equals_the_formulas() -> None:
    norm = EnsembleBatchNorm(2, 3, momentum=0.1, warmup=2, r_max=1.5, d_max=0.5)
    mean, var = torch.zeros(2, 3, dtype=torch.float64), torch.ones(2, 3, dtype=torch.float64)
    bounded = set()
    for step in range(6):
        x = (
            3 * rows(2, M, 3, seed=step) * torch.tensor([0.1, 0.4, 2.0]) + torch.tensor([0.0, 0.3, 3.0])
        ).requires_grad_()
        z = x.detach().double().requires_grad_()
        mean_B, std_B = z.mean(1), (z.var(1, correction=0) + norm.eps).sqrt()
        std = (var + norm.eps).sqrt()
        r, d = torch.ones(2, 3), torch.zeros(2, 3)
        if step >= 2:
            free = (std_B / std).detach(), ((mean_B - mean) / std).detach()
            r, d = free[0].clamp(1 / 1.5, 1.5), free[1].clamp(-0.5, 0.5)
            bounded |= {(a == b).item() for a, b in zip(r.flatten(), free[0].flatten(), strict=True)}
        expected = (z - mean_B[:, None]) / std_B[:, None] * r[:, None] + d[:, None]
        y, w = norm(x), rows(2, M, 3, seed=50 + step)
        torch.testing.assert_close(y, expected.float(), rtol=1e-4, atol=1e-5)
        grad, grad_expected = torch.autograd.grad((y * w).sum(), x)[0], torch.autograd.grad((expected * w).sum(), z)[0]
        torch.testing.assert_close(grad, grad_expected.float(), rtol=1e-4, atol=1e-4)
        mean = mean + 0.1 * (z.detach().mean(1) - mean)
        var = var + 0.1 * (z.detach().var(1, correction=0) - var)
        torch.testing.assert_close(norm.mean, mean.float())
        torch.testing.assert_close(norm.var, var.float())
    assert bounded == {True, False}


def test_one_row_has_no_variance() -> None:
    model = make("batch_norm")
    with pytest.raises(
        ValueError, match="EnsembleBatchNorm: was given one row in training mode; expected at least two"
    ):
        model(rows(1, 5))
    model.eval()(rows(1, 5))


def test_it_is_refused_among_replicas() -> None:
    with pytest.raises(
        TypeError, match=r"'layers\.0' of BatchNormModel, a EnsembleBatchNorm, takes statistics of each"
    ):
        join_replicas(BatchNormModel(2, 5, 4, 1), Replicas(0, 2))
    for kind in set(LAYERS) - {"batch_norm", "xqc"}:
        join_replicas(make(kind), Replicas(0, 2))


# ---- residual blocks ----


def test_simba_equals_the_formulas() -> None:
    model, x = make("simba", n_models=1), rows(M, 5)
    p = {name: value.detach().double()[0] for name, value in model.named_parameters()}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return (
            centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * p[f"{name}.weight"] + p[f"{name}.bias"]
        )

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    y = linear(x.double(), "layers.0")
    for block in ("layers.1.layers", "layers.2.layers"):
        y = y + linear(linear(norm(y, f"{block}.0"), f"{block}.1").relu(), f"{block}.3")
    torch.testing.assert_close(model(x)[0], linear(norm(y, "layers.3"), "layers.4").float(), rtol=1e-4, atol=1e-5)
    assert p["layers.1.layers.1.weight"].shape == (4, 16)


def test_simba_starts_as_the_paper_says() -> None:
    torch.manual_seed(0)
    model: Any = SimbaModel(2, 3, (64, 64), 5)
    for layer in (model.layers[0], model.layers[-1]):
        for w in layer.weight.detach():
            small = w if len(w) < len(w.T) else w.T
            torch.testing.assert_close(small @ small.T, torch.eye(len(small)), rtol=0, atol=1e-5)
    assert model.layers[1].layers[1].weight.std().item() == pytest.approx(math.sqrt(2 / 64), rel=0.05)
    assert model.layers[1].layers[3].weight.std().item() == pytest.approx(math.sqrt(2 / 256), rel=0.05)


# ---- the sphere ----


def test_simbav2_equals_the_formulas() -> None:
    model, x = make("simbav2", n_models=1), rows(M, 5)
    p = {name: value.detach().double()[0] for name, value in model.named_parameters()}

    def unit(x: torch.Tensor) -> torch.Tensor:
        return x / x.square().sum(-1, keepdim=True).sqrt()

    y = torch.cat([x.double(), torch.full((M, 1), 3.0).double()], -1)
    y = unit(p["layers.0.layers.1.weight"] * (unit(y) @ p["layers.0.layers.0.weight"]))
    for i in (1, 2):
        hidden = (p[f"layers.{i}.scaler.weight"] * (y @ p[f"layers.{i}.up.weight"])).relu() + 1e-8
        # The factor begins as 1 / 3 of two blocks, and its parameter as 1 / sqrt(4).
        alpha = p[f"layers.{i}.alpha.weight"] * (1 / 3) / 0.5
        y = unit(y + alpha * (unit(hidden @ p[f"layers.{i}.down.weight"]) - y))
    y = (p["layers.3.scaler.weight"] * (y @ p["layers.3.hidden.weight"])) @ p["layers.3.last.weight"] + p[
        "layers.3.bias"
    ]
    torch.testing.assert_close(model(x)[0], y.float(), rtol=1e-4, atol=1e-5)


def test_simbav2_starts_as_the_paper_says() -> None:
    model: Any = SimbaV2Model(2, 5, (8, 8, 8), 1)
    block = model.layers[1]
    start = math.sqrt(2 / 32)
    torch.testing.assert_close(block.scaler.weight, torch.full((2, 1, 32), start))
    torch.testing.assert_close(block.scaler(torch.ones(2, 1, 32)), torch.full((2, 1, 32), start))
    torch.testing.assert_close(block.alpha.weight, torch.full((2, 1, 8), 1 / math.sqrt(8)))
    torch.testing.assert_close(block.alpha(torch.ones(2, 1, 8)), torch.full((2, 1, 8), 1 / 4))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_features_stay_on_the_sphere_and_tell_lengths_apart(scale: float) -> None:
    model = make("simbav2", output_size=None)
    y = model(scale * rows(M, 5))
    torch.testing.assert_close(y.norm(dim=-1), torch.ones(N, M))
    assert not torch.allclose(y, model(2 * scale * rows(M, 5)), rtol=0, atol=1e-5) or scale > 1


# ---- projection ----


def test_projection_by_hand() -> None:
    layer = UnitLinear(1, 2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[3.0, 0.0], [4.0, -2.0]]]))
        layer.project()
    torch.testing.assert_close(layer.weight.detach(), torch.tensor([[[0.6, 0.0], [0.8, -1.0]]]))
    torch.testing.assert_close(layer(torch.tensor([[[1.0, 2.0]]])), torch.tensor([[[2.2, -2.0]]]))


def test_projections_are_those_of_the_parameters() -> None:
    one, other = make("simbav2"), make("simbav2")
    found = projections_of([nn.ModuleList([one, other]), one], one.parameters())
    assert len(found) == 7
    assert {id(layer) for layer in found} == {id(layer) for layer in one.modules() if isinstance(layer, UnitLinear)}


# ---- spectral norm ----


def test_sigma_is_computed_in_float32_whatever_the_layer_computes_in() -> None:
    torch.manual_seed(0)
    layer = SpectralLinear(2, 5, 4)
    other = copy.deepcopy(layer)
    x = rows(2, M, 5)
    for _ in range(20):
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
        expected = other(x)
    assert y.dtype is torch.bfloat16
    assert torch.equal(layer.v, other.v)
    torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=2e-2)


def test_the_gradient_of_sigma_is_that_of_torchs() -> None:
    torch.manual_seed(0)
    ours = SpectralLinear(1, 5, 4)
    theirs: Any = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4))
    theirs.parametrizations.weight.original.data.copy_(ours.weight[0].T.detach())
    theirs.bias.data.copy_(ours.bias[0, 0].detach())
    x, w = rows(1, M, 5), rows(1, M, 4, seed=1)
    for _ in range(200):
        y, expected = ours(x), theirs(x)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    v = ours.v.clone()
    torch.testing.assert_close(ours.eval()(x), y)
    assert torch.equal(ours.v, v), "in evaluation it stays"
    (grad,) = torch.autograd.grad((y * w).sum(), ours.weight)
    (grad_expected,) = torch.autograd.grad((expected * w).sum(), theirs.parametrizations.weight.original)
    torch.testing.assert_close(grad[0].T, grad_expected, rtol=1e-3, atol=1e-4)


# ---- models of the other agents ----


def test_policies_with_values_and_q_models_take_every_kind_but_batch_normalisation() -> None:
    space, nothing = spaces.Box(-1, 1, (5,)), torch.zeros(4, M)
    for kind in sorted(set(LAYERS) - {"batch_norm", "xqc"}):
        settings: dict[str, Any] = dict(hidden_sizes=(8, 8), layers=kind)
        for share in (True, False):
            model = PgModel(space, spaces.Discrete(3), **settings, share_trunk=share)
            logits, value = model(rows(4, M, 5), nothing, nothing)
            assert (logits.shape, value.shape) == ((4, M, 3), (4, M))
            last: Any = model.policy[-1]
            assert last.weight.norm(dim=1).tolist() == pytest.approx([0.01] * 3)
        for dueling in (True, False):
            q = QModel(space, spaces.Discrete(3), **settings, dueling=dueling)(rows(4, M, 5), nothing, nothing)
            assert q.shape == (4, M, 3)
        assert PolicyModel(space, spaces.Discrete(3), **settings)(rows(4, M, 5), nothing, nothing).shape == (4, M, 3)
    for Model in (PgModel, QModel, PolicyModel):
        for layers in ("batch_norm", partial(BatchNormModel, momentum=0.1)):
            with pytest.raises(ValueError, match="which acts by other statistics than those"):
                Model(space, spaces.Discrete(3), layers=layers)
