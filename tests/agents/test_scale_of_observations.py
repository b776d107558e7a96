"""What a uint8 observation means to the default models: a number, or a share of an image's upper bound."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    AtariDqnAgent,
    AtariFfAgent,
    BaseAgent,
    CatDqnAgent,
    DqnAgent,
    IqnAgent,
    MujocoFfAgent,
    MujocoLstmAgent,
    PgAgent,
    PopulationAgent,
    SacAgent,
    export_policy,
    load_weights,
    save_weights,
)
from rlpyt.algos import A2C
from rlpyt.core import example_inputs
from rlpyt.logging import logger_context
from rlpyt.models import AtariDqnModel, QModel, draw_randomness
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler
from rlpyt.spaces import EnvSpaces
from rlpyt.types import StateDict
from rlpyt.utils.arrays import buffer_leaves
from tests.agents.acting_copies import Elsewhere

IDS = spaces.Box(0, 10, (6,), np.uint8)
PLANES = spaces.Box(0, 1, (3, 12, 12), np.uint8)
PICTURE = spaces.Box(0, 255, (3, 12, 12), np.uint8)
SMALL: dict[str, Any] = dict(channels=(4,), kernel_sizes=(3,), strides=(2,), paddings=(0,), fc_sizes=8)
LAYERS: dict[str, Any] = {**SMALL, "hidden_sizes": 8}
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
AGENTS: dict[str, tuple[Callable[[], BaseAgent], gymnasium.Space[Any]]] = {
    "pg": (lambda: PgAgent(model_kwargs=LAYERS), DISCRETE),
    "population": (lambda: PopulationAgent(model_kwargs=LAYERS, population_size=2), DISCRETE),
    "dqn": (lambda: DqnAgent(model_kwargs=LAYERS), DISCRETE),
    "c51": (lambda: CatDqnAgent(model_kwargs=LAYERS), DISCRETE),
    "iqn": (lambda: IqnAgent(model_kwargs={**LAYERS, "hidden_sizes": (8, 8)}), DISCRETE),
    "sac": (lambda: SacAgent(feature_kwargs=SMALL), BOX),
}
OF_IMAGES = {
    "atari ff": (lambda: AtariFfAgent(model_kwargs=SMALL), DISCRETE),
    "atari dqn": (lambda: AtariDqnAgent(model_kwargs=SMALL), DISCRETE),
}
OF_VECTORS: Any = {
    "mujoco ff": (lambda: MujocoFfAgent(model_kwargs=dict(hidden_sizes=8)), BOX),
    "mujoco lstm": (lambda: MujocoLstmAgent(model_kwargs=dict(hidden_sizes=8, lstm_size=8)), BOX),
}
CASES = [
    *((name, make, action, IDS) for name, (make, action) in {**AGENTS, **OF_VECTORS}.items()),
    *((name, make, action, PLANES) for name, (make, action) in {**AGENTS, **OF_IMAGES}.items()),
    ("in a Dict", *AGENTS["dqn"], spaces.Dict({"ids": IDS, "pair": spaces.Tuple([PLANES, PICTURE])})),
]


def agent_of(make: Callable[[], BaseAgent], observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> Any:
    agent = make()
    torch.manual_seed(0)
    agent.initialize(EnvSpaces(observation, action))
    agent.model.eval()
    draw_randomness(agent.model, None)
    return agent


def outputs(agent: Any, observation: Any) -> list[torch.Tensor]:
    """Return all that the networks, targets among them, give for rows."""
    _, *previous = example_inputs(agent.env_spaces, 4)
    with torch.no_grad():
        found = buffer_leaves(agent(observation, *previous))
        if "target" in agent.learning:
            target = agent.target_features if hasattr(agent, "target_features") else agent.target
            draw_randomness(agent.target_model, None)
            found += buffer_leaves(target(observation, *previous))
    return [x for x in found if x is not None]


def rows_of(space: gymnasium.Space[Any], scale: Callable[[spaces.Box], float] | None = None) -> Any:
    """Return 4 rows; as float32, divided by the scale of their space, if one is given."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return tuple(rows_of(part, scale) for part in parts)
    high = int(space.high.max())  # type: ignore[attr-defined]
    rows = torch.randint(high + 1, (4, *space.shape), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)  # type: ignore[misc]
    return rows if scale is None else rows / scale(space)  # type: ignore[arg-type]


def new_scale(space: spaces.Box) -> float:
    return float(space.high.max()) if len(space.shape) == 3 else 1.0


def without_divisor(state: StateDict) -> StateDict:
    """Return an agent's state as it was saved when all uint8 was divided by 255."""
    return {k: without_divisor(x) if isinstance(x, dict) else x for k, x in state.items() if not k.endswith("divisor")}


def expected(agent: Any, scale: Callable[[spaces.Box], float]) -> list[torch.Tensor]:
    """Return the outputs of the same weights for the floats that the observations stand for."""
    plain = copy.deepcopy(agent)
    for network in plain.networks.modules():
        for layer in network.modules():
            if "divisor" in layer._buffers:
                layer.divisor = None
    return outputs(plain, rows_of(agent.env_spaces.observation, scale))


@pytest.mark.parametrize(("name", "make", "action", "space"), CASES, ids=[f"{c[0]} {i}" for i, c in enumerate(CASES)])
def test_uint8_is_read_by_one_rule_and_as_before_by_weights_from_before(
    name: str, make: Any, action: Any, space: Any
) -> None:
    agent, rows = agent_of(make, space, action), rows_of(space)
    new, old = expected(agent, new_scale), expected(agent, lambda _: 255.0)
    torch.testing.assert_close(outputs(agent, rows), new, rtol=1e-4, atol=1e-5)
    assert not all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(new, old, strict=True))

    state = agent.state_dict()
    assert len(without_divisor(state)["model"]) < len(state["model"])
    other = agent_of(make, space, action)
    other.load_state_dict(without_divisor(state))
    torch.testing.assert_close(outputs(other, rows), old, rtol=1e-4, atol=1e-5)

    third = agent_of(make, space, action)
    third.load_state_dict(other.state_dict())  # saved again, it stays what it is
    for got, want in zip(outputs(third, rows), outputs(other, rows), strict=True):
        assert torch.equal(got, want)


def test_pictures_and_floats_have_no_entry_in_the_state() -> None:
    for space in (PICTURE, spaces.Box(-1, 1, (6,), np.float32), spaces.Box(0, 1, (6,), np.int8)):
        state = agent_of(AGENTS["dqn"][0], space, DISCRETE).state_dict()
        assert len(without_divisor(state)["model"]) == len(state["model"])


@pytest.mark.parametrize("space", [IDS, PLANES])
def test_weights_to_start_from_keep_their_scale(space: Any) -> None:
    before = without_divisor(agent_of(AGENTS["dqn"][0], space, DISCRETE).state_dict())
    agent = DqnAgent(model_kwargs=LAYERS, initial_model_state_dict=before["model"])
    agent.initialize(EnvSpaces(space, DISCRETE))
    agent.model.eval()
    torch.testing.assert_close(outputs(agent, rows_of(space)), expected(agent, lambda _: 255.0), rtol=1e-4, atol=1e-5)
    other = Elsewhere(agent_of(AGENTS["pg"][0], space, DISCRETE))  # a copy that acts, and is sent what was loaded later
    other.master.load_state_dict(without_divisor(other.master.state_dict()))
    other.publish()
    other.take()
    assert {x.item() for name, x in other.agent.model.named_buffers() if name.endswith("divisor")} == {255}


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("space", [IDS, PLANES])
def test_files_carry_the_scale(space: Any, old: bool, tmp_path: Any) -> None:
    agent = agent_of(AGENTS["dqn"][0], space, DISCRETE)
    if old:
        agent.load_state_dict(without_divisor(agent.state_dict()))
    want = expected(agent, (lambda _: 255.0) if old else new_scale)
    other = agent_of(AGENTS["dqn"][0], space, DISCRETE)
    load_weights(other, save_weights(agent, tmp_path / "weights.safetensors"))
    torch.testing.assert_close(outputs(other, rows_of(space)), want, rtol=1e-4, atol=1e-5)
    program = torch.export.load(export_policy(agent, tmp_path / "policy.pt2")).module()
    assert torch.equal(program(rows_of(space)), want[0].argmax(-1))


@pytest.mark.parametrize(
    ("make", "action", "space", "said"),
    [
        (lambda: PgAgent(), DISCRETE, IDS, "6 numbers"),
        (lambda: PgAgent(model_kwargs={**SMALL, "normalize_observation": True}), DISCRETE, IDS, "6 numbers normalised"),
        (AGENTS["sac"][0], BOX, PLANES, "image divided by 1"),
        (OF_IMAGES["atari ff"][0], DISCRETE, PICTURE, "image divided by 255"),
        (OF_IMAGES["atari ff"][0], DISCRETE, spaces.Box(0, 1, (3, 12, 12), np.float32), "image"),
        (AGENTS["dqn"][0], DISCRETE, spaces.Dict({"a": PICTURE, "b": DISCRETE}), "a: image divided by 255; b: 3 one-h"),
        (lambda: PgAgent(ModelCls=OwnModel), DISCRETE, IDS, ""),
    ],
)
def test_an_agent_says_how_it_reads_observations(make: Any, action: Any, space: Any, said: str) -> None:
    found = agent_of(make, space, action).networks.input_description()
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert found == "image" or said != "image"  # floats are used as they are


class Divided(QModel):
    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__(observation_space, action_space, **LAYERS)
        encoder: Any = self.encoder
        encoder.net.conv[0].divide_by(10)


class InABox(QModel):
    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__(spaces.Box(0, 10, observation_space.shape, np.uint8), action_space, **LAYERS)


class Pretrained(QModel):
    def __init__(self, observation_space: Any, action_space: Any, weights: Any) -> None:
        super().__init__(observation_space, action_space, **LAYERS)
        self.load_state_dict(weights)


class PretrainedPreset(AtariDqnModel):
    def __init__(self, image_shape: Any, output_size: int, weights: Any) -> None:
        super().__init__(image_shape, output_size, **SMALL)
        self.load_state_dict(weights)


@pytest.mark.parametrize("space", [PICTURE, PLANES])
@pytest.mark.parametrize("Net", [Divided, InABox])
def test_a_scale_of_one_s_own_stays(Net: Any, space: Any) -> None:
    assert (
        agent_of(lambda: DqnAgent(ModelCls=Net), space, DISCRETE).networks.input_description() == "image divided by 10"
    )


@pytest.mark.parametrize(
    ("make", "Net", "space"),
    [
        (AGENTS["dqn"][0], Pretrained, PLANES),
        (AGENTS["dqn"][0], Pretrained, IDS),
        (OF_IMAGES["atari dqn"][0], PretrainedPreset, PLANES),
    ],
)
def test_weights_that_a_model_loads_itself_keep_their_scale(make: Any, Net: Any, space: Any) -> None:
    agent = agent_of(make, space, DISCRETE)
    state = copy.deepcopy(agent.state_dict())
    # A preset is told no bounds, and refuses weights of images of others.
    for given in [without_divisor(state), *([] if Net is PretrainedPreset else [state])]:
        other = type(agent)(ModelCls=Net, model_kwargs=dict(weights=given["model"]))
        other.initialize(EnvSpaces(space, DISCRETE))
        other.model.eval()
        agent.load_state_dict(given)
        torch.testing.assert_close(outputs(other, rows_of(space)), outputs(agent, rows_of(space)))


def test_weights_of_another_scale_are_refused_where_the_scale_is_not_kept() -> None:
    state, ids = (agent_of(AGENTS["dqn"][0], space, DISCRETE).state_dict() for space in (PLANES, IDS))
    with pytest.raises(RuntimeError, match=r"conv.0.divisor is 1, .* would divide by 255; expected the same. Declare"):
        agent_of(AGENTS["dqn"][0], PICTURE, DISCRETE).load_state_dict(state)
    floats = agent_of(AGENTS["dqn"][0], spaces.Box(0, 10, (6,), np.float32), DISCRETE)
    floats.load_state_dict(ids)  # of the same scale
    before = agent_of(AGENTS["dqn"][0], IDS, DISCRETE)
    before.load_state_dict(without_divisor(ids))
    with pytest.raises(RuntimeError, match=r"encoder.divisor is 255"):
        floats.load_state_dict(before.state_dict())


class OwnModel(torch.nn.Module):
    def forward(self, observation: Any, *others: Any) -> Any:
        return torch.zeros(len(observation), 3), torch.zeros(len(observation))


class Ids(gymnasium.Env[Any, Any]):
    observation_space: Any = IDS
    action_space: Any = DISCRETE

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(6, np.uint8), {}

    def step(self, action: Any) -> Any:
        return self.np_random.integers(11, size=6, dtype=np.uint8), 1.0, False, False, {}


def test_a_run_that_goes_on_with_weights_from_before_says_how_they_read(tmp_path: Any) -> None:
    before = without_divisor(agent_of(AGENTS["pg"][0], IDS, DISCRETE).state_dict())["model"]
    for n_steps, given in ((16, before), (32, None)):
        sampler = SerialSampler(Ids, {}, batch_T=8, batch_B=1, max_decorrelation_steps=0)
        agent = PgAgent(model_kwargs=LAYERS, initial_model_state_dict=given)
        steps: dict[str, Any] = dict(n_steps=n_steps, log_interval_steps=8, checkpoint_interval_steps=8)
        with logger_context(tmp_path, name="x", run_ID=0, resume=given is None, verbosity="quiet") as logger:
            MinibatchRl(A2C(), agent, sampler, seed=0, **steps).train()
        assert agent.networks.input_description() == "6 numbers divided by 255"
    assert logger.directory is not None
    assert "trained on: observation 6 numbers divided by 255" in (logger.directory / "debug.log").read_text()
