"""The models of DDPG, TD3 and SAC: sizes as rlpyt 0.1 had them, shapes, and features of every kind of observation."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.models import (
    ActorModel,
    FeatureModel,
    Model,
    MuMlpModel,
    PiMlpModel,
    QModel,
    QofMuMlpModel,
    takes_n_models,
    uses_prev_action,
)
from tests.random_kit import random_rows

LEADS: list[tuple[int, ...]] = [(), (4,), (3, 4)]
A = 2
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 40, 36), np.uint8)
SPACES: dict[str, Any] = {
    "vector": VECTOR,
    "image": IMAGE,
    "dict": spaces.Dict({"goal": spaces.Box(-1, 1, (2,), np.float64), "image": IMAGE}),
    "goal": spaces.Dict({name: spaces.Box(-1, 1, (n,)) for name, n in (("achieved", 2), ("desired", 2), ("state", 5))}),
}


def rows(space: Any, lead: tuple[int, ...]) -> tuple[Any, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return random_rows(space, *lead), torch.randn((*lead, A), generator=g), torch.randn(lead, generator=g)


def linear(*sizes: int) -> int:
    """Weights and biases of fully connected layers."""
    return sum((n_in + 1) * n_out for n_in, n_out in pairwise(sizes))


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("hidden_sizes", [7, (7, 5), (400, 300)])
@pytest.mark.parametrize("observation_shape", [(11,), (3, 4)])
def test_sizes_are_those_of_rlpyt_0_1(hidden_sizes, observation_shape):
    """Observation (with the action) in, hidden layers, mu, mean and log_std, or one value out."""
    hidden = (hidden_sizes,) if isinstance(hidden_sizes, int) else hidden_sizes
    size = math.prod(observation_shape)
    assert count(MuMlpModel(observation_shape, hidden_sizes, 3)) == linear(size, *hidden, 3)
    assert count(PiMlpModel(observation_shape, hidden_sizes, 3)) == linear(size, *hidden, 6)
    assert count(QofMuMlpModel(observation_shape, hidden_sizes, 3)) == linear(size + 3, *hidden, 1)
    assert count(QofMuMlpModel(observation_shape, hidden_sizes, 3, n_models=5)) == 5 * linear(size + 3, *hidden, 1)


def test_policies_and_values_by_hand():
    """One hidden unit with weights that can be added up."""
    x, nothing = torch.tensor([[1.0, 2.0]]), torch.zeros(1)
    mu, pi, q = MuMlpModel((2,), 1, 1, output_max=3.0), PiMlpModel((2,), 1, 1), QofMuMlpModel((2,), 1, 1, n_models=2)
    with torch.no_grad():
        for model in (mu, pi, q):
            for parameter in model.parameters():
                parameter.fill_(0.1)
        # The second network is twice as large in its last layer.
        list(q.parameters())[-2][1] = 0.2
    hidden = 0.1 + 0.1 * 1 + 0.1 * 2
    assert mu(x, nothing, nothing).item() == pytest.approx(3 * math.tanh(0.1 + 0.1 * hidden))
    list(pi.parameters())[-1].data[..., 1] = 0.5  # of the second half of the outputs
    assert [y.item() for y in pi(x, nothing, nothing)] == pytest.approx([0.1 + 0.1 * hidden, 0.5 + 0.1 * hidden])
    values = q(x, nothing, nothing, torch.tensor([[-5.0]]))  # the hidden unit is below 0 with this action
    assert values[:, 0].tolist() == pytest.approx([0.1, 0.1])
    values = q(x, nothing, nothing, torch.tensor([[5.0]]))
    assert values[:, 0].tolist() == pytest.approx([0.1 + 0.1 * (hidden + 0.5), 0.1 + 0.2 * (hidden + 0.5)])


# ---- features ----


def features_of(name: str, **kwargs: Any) -> FeatureModel:
    torch.manual_seed(0)
    return FeatureModel(SPACES[name], A, **kwargs)


@pytest.mark.parametrize("lead", LEADS)
def test_a_vector_is_its_own_features_and_nothing_is_shared(lead):
    model, inputs = features_of("vector"), rows(VECTOR, lead)
    assert count(model) == 0
    assert model.output_size == 3
    assert not model.uses_prev_action
    assert torch.equal(model(*inputs), inputs[0])
    goal = features_of("goal")
    observation = rows(SPACES["goal"], lead)[0]
    assert count(goal) == 0
    assert torch.equal(goal(*rows(SPACES["goal"], lead)), torch.cat(list(observation), -1))


def test_image_features_are_those_of_drq():
    """Four convolutions of 32 channels of 3 x 3, the first with stride 2; 50 features, normalised, within (-1, 1)."""
    space = spaces.Box(0, 255, (9, 84, 84), np.uint8)
    model = FeatureModel(space, A)
    convolutions = (9 * 9 + 1) * 32 + 3 * (32 * 9 + 1) * 32
    assert count(model) == convolutions + linear(32 * 35 * 35, 50) + 2 * 50
    small = features_of("image")
    x = small(*rows(IMAGE, (4,)))
    assert x.shape == (4, 50)
    assert x.abs().max() < 1
    # Before the tanh each row has mean 0 and variance 1, as the normalisation has weights of 1 and 0 at first.
    normal = x.atanh()
    torch.testing.assert_close(normal.mean(-1), torch.zeros(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(normal.var(-1, correction=0), torch.ones(4), atol=0.1, rtol=0)


@pytest.mark.parametrize("recurrent", [None, "lstm"])
def test_an_actor_is_its_policy_over_its_features(recurrent):
    body = features_of("vector", hidden_sizes=5, recurrent=recurrent, rnn_size=6)
    actor = ActorModel(body, MuMlpModel((body.output_size,), 8, A))
    inputs = rows(VECTOR, (3, 4))
    output = actor(*inputs)
    mu, x = (output[0], body(*inputs)[0]) if recurrent else (output, body(*inputs))
    torch.testing.assert_close(mu, actor.pi(x, None, None))
    if recurrent:
        state = output[1]
        starts = torch.tensor([[True] * 4, [False] * 4, [False] * 4])
        torch.testing.assert_close(actor(*inputs, state, starts)[0], mu)
        assert not torch.allclose(actor(*inputs, state, torch.zeros_like(starts))[0], mu)


# ---- what models declare ----


class OwnForward(QofMuMlpModel):
    def forward(self, *args: Any) -> torch.Tensor:
        return super().forward(*args)


class Declared(QofMuMlpModel):
    uses_prev_action = False
    takes_n_models = True

    def forward(self, *args: Any) -> torch.Tensor:
        return super().forward(*args)


class OwnSize(QofMuMlpModel):
    pass


class LooksBack(Model):
    uses_prev_action = True


@pytest.mark.parametrize(
    ("make", "prev_action", "n_models"),
    [
        (partial(MuMlpModel, (3,), 8, A), False, False),
        (partial(PiMlpModel, (3,), 8, A), False, False),
        (partial(QofMuMlpModel, (3,), 8, A), False, True),
        (partial(OwnForward, (3,), 8, A), True, False),
        (partial(Declared, (3,), 8, A), False, True),
        (partial(OwnSize, (3,), 8, A), False, True),
        (Model, False, False),
        (LooksBack, True, False),
        (partial(QModel, VECTOR, spaces.Discrete(2)), False, False),
        (partial(QModel, VECTOR, spaces.Discrete(2), recurrent="gru"), True, False),
        (partial(FeatureModel, VECTOR, A), False, False),
        (partial(FeatureModel, VECTOR, A, recurrent="lstm"), True, False),
        (partial(torch.nn.Linear, 3, 2), True, False),
    ],
    ids=str,
)
def test_models_declare_what_they_use(make: Any, prev_action: bool, n_models: bool) -> None:
    model = make()
    assert uses_prev_action(model) == prev_action
    assert takes_n_models(model) == n_models


@pytest.mark.parametrize("Cls", [MuMlpModel, PiMlpModel, QofMuMlpModel])
def test_what_does_not_use_the_previous_action_gives_the_same_without(Cls: Any) -> None:
    model, (x, prev_action, prev_reward) = Cls((3,), 8, A), rows(VECTOR, (4,))
    action = [torch.zeros(4, A)] if Cls is QofMuMlpModel else []
    given, without = (model(x, p, prev_reward, *action) for p in (prev_action, prev_action * float("nan")))
    torch.testing.assert_close(given, without, rtol=0, atol=0)
