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
from rlpyt.core import example_inputs
from rlpyt.models import QModel, draw_randomness
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.arrays import buffer_leaves

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


def expected(agent: Any, scale: Callable[[spaces.Box], float]) -> list[torch.Tensor]:
    """Return the outputs of the same weights for the floats that the observations stand for."""
    plain = copy.deepcopy(agent)
    for network in plain.networks.modules():
        for layer in network.modules():
            if "divisor" in layer._buffers:
                layer.divisor = None
    return outputs(plain, rows_of(agent.env_spaces.observation, scale))


@pytest.mark.parametrize(("name", "make", "action", "space"), CASES, ids=[f"{c[0]} {i}" for i, c in enumerate(CASES)])
def test_images_are_divided_by_their_bound_and_other_uint8_by_nothing(
    name: str, make: Any, action: Any, space: Any
) -> None:
    agent, rows = agent_of(make, space, action), rows_of(space)
    wanted, by_255 = expected(agent, new_scale), expected(agent, lambda _: 255.0)
    torch.testing.assert_close(outputs(agent, rows), wanted, rtol=1e-4, atol=1e-5)
    assert not all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(wanted, by_255, strict=True))


def test_files_carry_the_scale(tmp_path: Any) -> None:
    agent = agent_of(AGENTS["dqn"][0], PLANES, DISCRETE)
    want = expected(agent, new_scale)
    other = agent_of(AGENTS["dqn"][0], PLANES, DISCRETE)
    load_weights(other, save_weights(agent, tmp_path / "weights.safetensors"))
    torch.testing.assert_close(outputs(other, rows_of(PLANES)), want, rtol=1e-4, atol=1e-5)
    program = torch.export.load(export_policy(agent, tmp_path / "policy.pt2")).module()
    assert torch.equal(program(rows_of(PLANES)), want[0].argmax(-1))


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


@pytest.mark.parametrize("space", [PICTURE, PLANES])
@pytest.mark.parametrize("Net", [Divided, InABox])
def test_a_scale_of_one_s_own_stays(Net: Any, space: Any) -> None:
    assert (
        agent_of(lambda: DqnAgent(ModelCls=Net), space, DISCRETE).networks.input_description() == "image divided by 10"
    )


class Pretrained(QModel):
    def __init__(self, observation_space: Any, action_space: Any, weights: Any) -> None:
        super().__init__(spaces.Box(0, 10, observation_space.shape, np.uint8), action_space, **LAYERS)
        self.load_state_dict(weights)


def test_weights_that_a_model_loads_itself_keep_their_scale() -> None:
    agent = agent_of(lambda: DqnAgent(ModelCls=InABox), PICTURE, DISCRETE)
    weights = copy.deepcopy(agent.model.state_dict())
    other = agent_of(lambda: DqnAgent(ModelCls=Pretrained, model_kwargs=dict(weights=weights)), PICTURE, DISCRETE)
    torch.testing.assert_close(outputs(other, rows_of(PICTURE)), outputs(agent, rows_of(PICTURE)))


@pytest.mark.parametrize(("trained", "there", "scales"), [(PLANES, PICTURE, (1, 255)), (PICTURE, PLANES, (255, 1))])
def test_weights_of_another_scale_are_refused(trained: Any, there: Any, scales: Any) -> None:
    state = agent_of(AGENTS["dqn"][0], trained, DISCRETE).state_dict()
    with pytest.raises(RuntimeError, match=r"conv.0.divisor is {}, .* would divide by {}; expected".format(*scales)):
        agent_of(AGENTS["dqn"][0], there, DISCRETE).load_state_dict(state)


def test_a_state_of_an_encoder_of_uint8_that_notes_its_scale_loads() -> None:
    agent = agent_of(AGENTS["dqn"][0], IDS, DISCRETE)
    agent.model.load_state_dict({**agent.model.state_dict(), "encoder.divisor": torch.tensor(1.0)})


class OwnModel(torch.nn.Module):
    def forward(self, observation: Any, *others: Any) -> Any:
        return torch.zeros(len(observation), 3), torch.zeros(len(observation))
