"""What every full model promises, over every model, leading dimensions, autocast and memory format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rlpyt.models import (
    ActorModel,
    AtariCatDqnModel,
    AtariDqnModel,
    AtariFfModel,
    AtariLstmModel,
    AtariR2d1Model,
    FeatureModel,
    IqnModel,
    Model,
    MujocoFfModel,
    MujocoLstmModel,
    MuMlpModel,
    PgModel,
    PolicyModel,
    QModel,
    draw_randomness,
    encoded_action_size,
)
from rlpyt.spaces import EnvSpaces
from rlpyt.testing import check_model
from rlpyt.utils.arrays import buffer_leaves
from tests.pairs import others_nightly
from tests.random_kit import random_rows

Space = gymnasium.Space[Any]

IMAGE = Box(0, 255, (2, 36, 36), np.uint8)
VECTOR = Box(-1, 1, (3,))
OBSERVATIONS: dict[str, Space] = {
    "vector": VECTOR,
    "image": IMAGE,
    "discrete": Discrete(5),
    "dict": Dict({"image": IMAGE, "ale.lives": Discrete(6), "inner": Tuple([VECTOR, MultiBinary(2)])}),
}
ACTIONS: dict[str, Space] = {
    "discrete": Discrete(4),
    "multi_discrete": MultiDiscrete([2, 3]),
    "multi_binary": MultiBinary(3),
    "box": Box(-2, 2, (2,)),
}
SMALL: dict[str, Any] = dict(channels=(4, 8), kernel_sizes=(8, 4), strides=(4, 2), paddings=(0, 1))


class Case:
    """A model, the spaces it is for, and the shapes of a row of what comes before the recurrent state."""

    def __init__(
        self,
        make: Callable[[], Model],
        observation: Space,
        action: Space,
        *shapes: tuple[int, ...],
        noisy: bool = False,
    ) -> None:
        self._make, self.observation, self.action, self.noisy = make, observation, action, noisy
        self.action_size = encoded_action_size(action)
        policy = [(self.action_size,)] * (2 if isinstance(action, Box) else 1)
        self.shapes = list(shapes) or [*policy, ()]

    def make(self) -> Model:
        """Return a new model; a noisy one with noise, the same every time."""
        model = self._make()
        if self.noisy:
            draw_randomness(model, torch.Generator().manual_seed(0))
        return model

    def inputs(self, lead: tuple[int, ...]) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """Return observation, encoded previous action and previous reward with leading dimensions."""
        g = torch.Generator().manual_seed(0)
        observation = random_rows(self.observation, *lead)
        return observation, torch.rand(lead + (self.action_size,), generator=g), torch.rand(lead, generator=g)


def q_case(observation: str, **kwargs: Any) -> Case:
    o, a = OBSERVATIONS[observation], ACTIONS["discrete"]
    shape = (4, kwargs["n_atoms"]) if "n_atoms" in kwargs else (4,)
    kwargs = dict(fc_sizes=32, hidden_sizes=(16, 32), rnn_size=16, **SMALL) | kwargs
    return Case(lambda: QModel(o, a, **kwargs), o, a, shape, noisy=kwargs.get("noisy", False))


def iqn_case(observation: str, **kwargs: Any) -> Case:
    o, a = OBSERVATIONS[observation], ACTIONS["discrete"]
    kwargs = dict(fc_sizes=32, hidden_sizes=(16, 32), rnn_size=16, n_acting_tau=6, n_cosines=8, **SMALL) | kwargs
    return Case(lambda: IqnModel(o, a, **kwargs), o, a, (4, 6), (6,))


def atari_case(make: Callable[[], Model], *shapes: tuple[int, ...]) -> Case:
    return Case(make, IMAGE, ACTIONS["discrete"], *shapes)


def pg_case(observation: str, action: str, **kwargs: Any) -> Case:
    o, a = OBSERVATIONS[observation], ACTIONS[action]
    kwargs = dict(fc_sizes=32, rnn_size=16, **SMALL) | kwargs
    return Case(lambda: PgModel(o, a, **kwargs), o, a)


def feature_case(observation: str, **kwargs: Any) -> Case:
    o, a = OBSERVATIONS[observation], ACTIONS["box"]
    kwargs = dict(rnn_size=16, image_feature_size=7, fc_sizes=None, **SMALL) | kwargs
    return Case(lambda: FeatureModel(o, 2, **kwargs), o, a, (FeatureModel(o, 2, **kwargs).output_size,))


def actor_case(**kwargs: Any) -> Case:
    def make() -> Any:
        body = FeatureModel(VECTOR, 2, hidden_sizes=5, rnn_size=16, **kwargs)
        return ActorModel(body, MuMlpModel((body.output_size,), 8, 2))

    return Case(make, VECTOR, ACTIONS["box"], (2,))


def policy_case(observation: str, action: str, **kwargs: Any) -> Case:
    o, a = OBSERVATIONS[observation], ACTIONS[action]
    kwargs = dict(fc_sizes=32, **SMALL) | kwargs
    return Case(lambda: PolicyModel(o, a, **kwargs), o, a, (encoded_action_size(a),))


CASES: dict[str, Case] = {
    "pg-vector": pg_case("vector", "multi_binary"),
    "pg-image": pg_case("image", "box"),
    "pg-discrete": pg_case("discrete", "multi_discrete"),
    "pg-dict": pg_case("dict", "discrete"),
    "pg-image-lstm": pg_case("image", "discrete", recurrent="lstm"),
    "pg-dict-lstm": pg_case("dict", "multi_discrete", recurrent="lstm"),
    "pg-gru": pg_case("vector", "box", recurrent="gru"),
    "pg-normalized": pg_case("dict", "box", normalize_observation=True),
    "pg-shared-vector": pg_case("vector", "discrete", share_trunk=True),
    "pg-separate-image": pg_case("image", "discrete", share_trunk=False),
    "pg-separate-recurrent": pg_case("vector", "discrete", recurrent="lstm", share_trunk=False),
    "pg-maxpool": pg_case("image", "discrete", use_maxpool=True),
    "policy-image": policy_case("image", "box"),
    "policy-dict-normalized": policy_case("dict", "discrete", normalize_observation=True),
    "features-image": feature_case("image"),
    "features-dict-gru": feature_case("dict", recurrent="gru"),
    "features-vector-normalized": feature_case("vector", recurrent="lstm", normalize_observation=True),
    "actor": actor_case(),
    "q-dict": q_case("dict"),
    "q-dict-lstm": q_case("dict", recurrent="lstm"),
    "q-dueling-vector": q_case("vector", dueling=True, normalize_observation=True),
    "q-dueling-recurrent": q_case("image", dueling=True, recurrent="gru"),
    "q-head": q_case("vector", head_sizes=(8, 8)),
    "q-head-recurrent": q_case("vector", head_sizes=8, recurrent="lstm", dueling=True),
    "q-atoms": q_case("vector", n_atoms=5),
    "q-noisy-recurrent": q_case("dict", noisy=True, recurrent="gru"),
    "q-rainbow": q_case("image", n_atoms=5, dueling=True, noisy=True),
    "q-rainbow-recurrent": q_case("vector", n_atoms=5, dueling=True, noisy=True, recurrent="lstm"),
    "iqn-image": iqn_case("image"),
    "iqn-dueling": iqn_case("dict", dueling=True),
    "iqn-recurrent": iqn_case("vector", recurrent="lstm"),
    "atari-ff": atari_case(lambda: AtariFfModel(IMAGE.shape, 4, fc_sizes=32)),
    "atari-lstm": atari_case(lambda: AtariLstmModel(IMAGE.shape, 4, fc_sizes=32, lstm_size=16)),
    "atari-dueling": atari_case(lambda: AtariDqnModel(IMAGE.shape, 4, 32, dueling=True), (4,)),
    "atari-cat": atari_case(lambda: AtariCatDqnModel(IMAGE.shape, 4, 5, 32), (4, 5)),
    "atari-r2d1-dueling": atari_case(lambda: AtariR2d1Model(IMAGE.shape, 4, 32, 16, 24, True), (4,)),
    "mujoco-ff": Case(lambda: MujocoFfModel((3,), 2, normalize_observation=True), VECTOR, ACTIONS["box"]),
    "mujoco-lstm": Case(
        lambda: MujocoLstmModel((3,), 2, hidden_sizes=32, lstm_size=16, normalize_observation=True),
        VECTOR,
        ACTIONS["box"],
    ),
}
ACTORS = ("actor",)  # networks that agents put together, which have no state of their own to start from
MODELS = [name for name in CASES if name not in ACTORS]
RECURRENT = [name for name in MODELS if CASES[name].make().recurrent]


def outputs_of(model: Model, *inputs: Any) -> list[torch.Tensor]:
    """Return what the model returns as a flat list, the recurrent state included."""
    result = model(*inputs)
    return buffer_leaves(result if isinstance(result, tuple) else (result,))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", others_nightly(CASES, list(CASES)[::3]))
def test_the_contract_of_users_is_kept(name: str) -> None:
    case = CASES[name]
    check_model(
        case.make,
        EnvSpaces(case.observation, case.action),
        recurrent=name in RECURRENT,
        output_shapes=case.shapes,
        leading_dims=[(), (1,), (4,), (3, 4), (1, 1)],
        autocast="features" not in name,  # of which the layers over them make float32
    )


@pytest.mark.parametrize("name", CASES)
def test_channels_last_is_close(name: str) -> None:
    case = CASES[name]
    model = case.make()
    inputs = case.inputs((2, 4))
    expected = outputs_of(model, *inputs)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for output, reference in zip(outputs_of(model, *inputs), expected, strict=True):
        torch.testing.assert_close(output, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_normaliser_is_frozen_unless_updated(name: str) -> None:
    case = CASES[name]
    model = case.make()
    inputs = case.inputs((3, 4))
    # Those of the state_dict: noise is a buffer too.
    statistics = [b for buffer, b in model.named_buffers() if buffer in model.state_dict()]
    before = [b.clone() for b in statistics]
    model.train()(*inputs)
    assert all(torch.equal(a, b) for a, b in zip(before, statistics, strict=True))
    model.update_obs_rms(inputs[0])
    assert bool(before) == any(word in name for word in ("normalized", "mujoco", "q-dueling-vector"))
    assert all(not torch.equal(a, b) for a, b in zip(before, statistics, strict=True))


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("which", [1, 2])
def test_the_core_is_given_previous_action_and_reward(name: str, which: int) -> None:
    case = CASES[name]
    model = case.make()
    inputs = list(case.inputs((4,)))
    before = outputs_of(model, *inputs)[0]
    inputs[which] = inputs[which] + 1
    assert not torch.equal(outputs_of(model, *inputs)[0], before)
