"""Agents whose observations have a mask: what models see, which actions are taken, and the numbers by hand."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import (
    CatDqnAgent,
    CategoricalPgAgent,
    DiscreteSacAgent,
    DqnAgent,
    IqnAgent,
    PgAgent,
    PopulationAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    export_policy,
)
from rlpyt.core import example_inputs
from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.samplers import evaluate
from rlpyt.spaces import EnvSpaces
from tests.masked_envs import MaskedEnv
from tests.pairs import others_nightly

BOX = spaces.Box(-1, 1, (2,), np.float32)
SMALL: dict[str, Any] = {"hidden_sizes": 8}
RECURRENT: dict[str, Any] = {**SMALL, "rnn_size": 8}
AGENTS: dict[str, Any] = {
    "policy": lambda: CategoricalPgAgent(model_kwargs=SMALL),
    "LSTM policy": lambda: RecurrentCategoricalPgAgent(model_kwargs=RECURRENT),
    "DQN": lambda: DqnAgent(model_kwargs={**SMALL, "dueling": True}),
    "C51": lambda: CatDqnAgent(model_kwargs=SMALL, n_atoms=5),
    "QR": lambda: QrDqnAgent(model_kwargs=SMALL, n_quantiles=4),
    "IQN": lambda: IqnAgent(model_kwargs=SMALL),
    "discrete SAC": lambda: DiscreteSacAgent(model_kwargs=SMALL, q_model_kwargs=SMALL),
    "R2D1": lambda: R2d1Agent(model_kwargs=RECURRENT),
    "population": lambda: PopulationAgent(model_kwargs=SMALL, population_size=2),
}


def spaces_of(action: Any, mask: Any, **others: Any) -> EnvSpaces:
    return EnvSpaces(spaces.Dict([*(others or {"observation": BOX}).items(), ("action_mask", mask)]), action)


def initialized(agent: Any, env_spaces: EnvSpaces) -> Any:
    torch.manual_seed(0)
    agent.initialize(env_spaces)
    if isinstance(agent, CatDqnAgent):
        agent.give_V_min_max(-1, 1)
    return agent


def rows(env_spaces: EnvSpaces, mask: Any) -> tuple[Any, Any, Any]:
    """Random observations with the masks [B, n], and null actions and rewards."""
    mask = torch.as_tensor(mask)
    observation, action, reward = example_inputs(env_spaces, len(mask))
    return observation._replace(observation=torch.randn(len(mask), 2), action_mask=mask), action, reward


FIVE = spaces_of(spaces.Discrete(5), spaces.Box(0, 1, (5,), np.int8))
TWO_CHOICES = spaces_of(spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(5))


class Seen(nn.Module):
    """Keeps what it was called with."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.space, self.observation = observation_space, None
        self.weight = nn.Parameter(torch.zeros(5))

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        self.observation = observation
        first = observation if isinstance(observation, torch.Tensor) else observation.get(0)
        return self.weight.expand(*first.shape[:-1], 5), first[..., 0]


def test_a_model_sees_the_observation_without_its_mask() -> None:
    agent = initialized(PgAgent(ModelCls=Seen), FIVE)
    inputs = rows(FIVE, [[1, 0, 0, 0, 1]] * 3)
    agent(*inputs)
    assert agent.model.space == BOX
    assert torch.equal(agent.model.observation, inputs[0].observation)
    assert list(agent.state_dict()["model"]) == ["weight"], "the hook is no part of the state"
    copy.deepcopy(agent.model)(*inputs)
    of_two = spaces_of(spaces.Discrete(5), spaces.MultiBinary(5), **{"z.z": BOX, "a": BOX})
    agent = initialized(PgAgent(ModelCls=Seen), of_two)
    assert list(agent.model.space) == ["z.z", "a"]
    assert agent.model.observation._fields == ("z.z", "a")


def test_the_distribution_of_a_policy_by_hand() -> None:
    agent = initialized(PgAgent(ModelCls=Seen), FIVE)
    with torch.no_grad():
        agent.model.weight.copy_(torch.tensor([0.0, 9.0, math.log(3), 9.0, 9.0]))
    inputs = rows(FIVE, [[1, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
    (dist_info, _), distribution = agent(*inputs), agent.distribution
    torch.testing.assert_close(dist_info.prob[0], torch.tensor([0.25, 0.0, 0.75, 0.0, 0.0]))
    assert dist_info.prob[1].tolist() == [0, 0, 0, 0, 1]
    assert torch.isfinite(dist_info.logits[2]).all(), "after the end any mask will do"
    log_prob, entropy = distribution.log_prob_and_entropy(torch.tensor([2, 4, 0]), dist_info)
    assert log_prob[0].item() == pytest.approx(math.log(0.75))
    assert log_prob[1].item() == 0
    assert entropy[0].item() == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    assert entropy[1].item() == 0
    uniform = type(dist_info)(torch.where(dist_info.logits == -torch.inf, -torch.inf, 0.0))
    assert distribution.kl(dist_info, uniform)[0].item() == pytest.approx(math.log(2) - entropy[0].item())
    total = log_prob.sum() + entropy.sum() + distribution.kl(dist_info, uniform).sum()
    (slope,) = torch.autograd.grad(total, agent.model.weight)
    assert torch.isfinite(slope).all()


def test_the_choices_of_a_policy_have_their_masks() -> None:
    agent = initialized(PgAgent(ModelCls=Seen), TWO_CHOICES)
    inputs = rows(TWO_CHOICES, [[1, 1, 0, 1, 1]])
    dist_info, _ = agent(*inputs)
    assert agent.distribution.entropy(dist_info).item() == pytest.approx(2 * math.log(2))
    assert agent.distribution.log_prob(torch.tensor([[0, 2]]), dist_info).item() == pytest.approx(-2 * math.log(2))
    agent.sample_mode(0)
    actions = torch.stack([agent.step(*inputs).action[0] for _ in range(60)])
    assert sorted(set(map(tuple, actions.tolist()))) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    of_tuple = spaces_of(TWO_CHOICES.action, spaces.Tuple([spaces.MultiBinary(2), spaces.MultiBinary(3)]))
    other, mask = initialized(PgAgent(ModelCls=Seen), of_tuple), namedarraytuple("Tuple", ["0", "1"])
    parts = mask(*inputs[0].action_mask.split([2, 3], -1))
    again, _ = other(inputs[0]._replace(action_mask=parts), *inputs[1:])
    assert torch.equal(again.logits, dist_info.logits)


@pytest.mark.parametrize("name", AGENTS)
def test_all_ways_to_act_take_legal_actions_and_every_one_in_exploration(name: str) -> None:
    agent = initialized(AGENTS[name](), FIVE)
    mask = torch.tensor([[1, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0, 1, 1, 1, 0]], dtype=torch.int8)
    inputs, seen = rows(FIVE, mask), set()
    for mode in (lambda: agent.sample_mode(0), lambda: agent.eval_mode(0), lambda: agent.eval_mode(1, True)):
        mode()
        for _ in range(40):
            action = agent.step(*inputs).action
            assert (mask.gather(-1, action[:, None]) == 1).all()
            seen |= set(enumerate(action.tolist()))
    everything = {(b, a) for b, row in enumerate(mask.tolist()) for a, legal in enumerate(row) if legal}
    assert seen == everything or name == "population"


@pytest.mark.parametrize("name", others_nightly(["policy", "discrete SAC", "R2D1"], ["R2D1"]))
def test_an_exported_policy_takes_legal_actions(name: str, tmp_path: Path) -> None:
    agent = initialized(AGENTS[name](), FIVE)
    path = export_policy(agent, tmp_path / "policy.pt2")
    policy = torch.export.load(path).module()
    inputs = rows(FIVE, torch.eye(5, dtype=torch.int8))
    previous = inputs[1:] if name == "R2D1" else ()
    state = [torch.zeros(5, 1, 8)] * 2 if name == "R2D1" else []
    given = policy({"observation": inputs[0].observation, "action_mask": inputs[0].action_mask}, *previous, *state)
    assert (given[0] if isinstance(given, tuple) else given).tolist() == [0, 1, 2, 3, 4]


def test_whole_episodes_by_hand_and_in_an_evaluation() -> None:
    """Also where the mask is in info: whether it is a part of the observation, the agent tells."""
    own = MaskedEnv(of_info=True)
    agent = initialized(DqnAgent(model_kwargs=SMALL), spaces_of(own.action_space, spaces.MultiBinary(4),
                                                                observation=own.observation_space))  # fmt: skip
    assert len(agent.play(own, 3, deterministic=False)) == 3
    assert len(evaluate(agent, MaskedEnv, dict(of_info=True), n_trajectories=4, n_envs=2).traj_infos) == 4
    before = initialized(DqnAgent(model_kwargs=SMALL), EnvSpaces(own.observation_space, own.action_space))
    taxi = initialized(DqnAgent(model_kwargs=SMALL), EnvSpaces(spaces.Discrete(500), spaces.Discrete(6)))
    assert evaluate(taxi, gymnasium.make, dict(id="Taxi-v4"), n_trajectories=1, max_steps=20).steps == 20
    with pytest.raises(Exception, match="the illegal action"):
        before.play(own, 9)


def test_normalisers_take_in_no_mask() -> None:
    agent = initialized(PgAgent(model_kwargs={**SMALL, "normalize_observation": True}), FIVE)
    inputs = rows(FIVE, torch.ones(8, 5, dtype=torch.int8))
    agent.networks.update_obs_rms(inputs[0])
    assert agent.networks.input_description().endswith("action_mask: the legal actions")


def test_what_cannot_heed_a_mask_is_told() -> None:
    class Actions(Seen):
        def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
            return observation[:, 0].long()

    agent = initialized(PopulationAgent(ModelCls=Actions, population_size=2), FIVE)
    with pytest.raises(TypeError, match=r"ChoiceHead: has no rule for masks of actions; expected one.*restrict"):
        agent.step(*rows(FIVE, [[1, 1, 1, 1, 1]]))
    with pytest.raises(ValueError, match=r"CategoricalPgAgent: observation\['action_mask'\] is MultiBinary\(4\)"):
        CategoricalPgAgent().initialize(spaces_of(spaces.Discrete(5), spaces.MultiBinary(4)))
