"""Epsilon-greedy exploration, in every process that acts, and the target network."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import DqnAgent, EpsilonGreedyExploration, QrDqnAgent, SacAgent
from rlpyt.algos import DQN, QRDQN
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler
from rlpyt.spaces import EnvSpaces
from tests.agents.acting_copies import Elsewhere
from tests.agents.agent_kinds import Sampled
from tests.algos.small_problems import RandomEnv, set_up

N = 5
SPACES = EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(N))


def make(global_B: int = 4, ranks: Any = None, **kwargs: Any) -> Any:
    agent = DqnAgent(model_kwargs={"hidden_sizes": 8}, **kwargs)
    agent.initialize(SPACES)
    sampled = Sampled(agent, global_B, ranks)
    sampled.begin(0)
    return sampled


def random_share(agent: Any, B: int, n: int = 3000) -> torch.Tensor:
    """Return how often every environment's action was not the greedy one, times what corrects for chance hits."""
    inputs = torch.rand(B, 3), torch.zeros(B, dtype=torch.int64), torch.zeros(B)
    greedy = agent(*inputs).argmax(-1)
    other = sum((agent.step(*inputs).action != greedy).float() for _ in range(n))
    return other / n * N / (N - 1)


def test_epsilon_goes_from_first_to_last_value():
    agent = make(eps_init=0.8, eps_final=0.2)
    for progress, expected in [(0.0, 0.8), (0.5, 0.5), (1.0, 0.2)]:
        agent.anneal_exploration(progress)
        assert agent.epsilon(agent.actors[False]).tolist() == pytest.approx([expected])


def test_every_environment_has_its_own_final_epsilon():
    agent = make(global_B=4, eps_init=1.0, eps_final=0.5, eps_final_min=0.0005)
    agent.anneal_exploration(1.0)
    assert agent.epsilon(agent.actors[False]).tolist() == pytest.approx([0.0005, 0.005, 0.05, 0.5], rel=1e-4)
    agent.anneal_exploration(0.0)
    assert agent.epsilon(agent.actors[False]).tolist() == pytest.approx([1.0] * 4)
    agent.anneal_exploration(0.5)
    assert agent.epsilon(agent.actors[False]).tolist() == pytest.approx([0.50025, 0.5025, 0.525, 0.75], rel=1e-4)


def test_a_worker_has_the_epsilons_of_its_own_environments():
    agent = make(global_B=4, ranks=[2, 3], eps_final=0.5, eps_final_min=0.0005)
    agent.anneal_exploration(1.0)
    assert agent.epsilon(agent.actors[False]).tolist() == pytest.approx([0.05, 0.5], rel=1e-4)


def test_the_actions_are_random_as_often_as_epsilon_says():
    agent = make(global_B=4, eps_final=0.5, eps_final_min=0.0005)
    assert random_share(agent, 4).tolist() == pytest.approx([1.0] * 4, abs=0.06)
    agent.anneal_exploration(1.0)
    agent.begin(1)
    share = random_share(agent, 4).tolist()
    assert share == pytest.approx([0.0005, 0.005, 0.05, 0.5], abs=0.05)
    assert share[0] < share[2] < share[3]


def test_random_actions_are_uniform():
    agent = make(global_B=2)
    inputs = torch.rand(2, 3), torch.zeros(2, dtype=torch.int64), torch.zeros(2)
    actions = torch.stack([agent.step(*inputs).action for _ in range(4000)])
    shares = torch.bincount(actions.flatten(), minlength=N) / actions.numel()
    assert shares.tolist() == pytest.approx([1 / N] * N, abs=0.03)


def test_without_exploration_the_best_action_is_taken():
    agent = make(eps_init=0.0, eps_final=0.0)
    inputs = torch.rand(4, 3), torch.zeros(4, dtype=torch.int64), torch.zeros(4)
    action, info = agent.step(*inputs)
    assert torch.equal(action, info.q.argmax(-1))
    torch.testing.assert_close(info.q, agent(*inputs).detach())


def test_evaluation_has_an_epsilon_of_its_own():
    agent = make(eps_eval=0.0)
    agent.begin_evaluation(1)
    assert random_share(agent, 2, 300).tolist() == [0.0, 0.0]
    # Before anything was learned the greedy policy is one action: better to show what chance reaches.
    agent.begin_evaluation(0)
    assert random_share(agent, 2, 1000).tolist() == pytest.approx([1.0, 1.0], abs=0.1)
    agent.begin(1)
    assert agent.epsilon(agent.actors[False]).tolist() == [1.0]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"eps_init": 1.5}, r"eps_init is 1.5; expected a probability"),
        ({"eps_final": -0.1}, "eps_final is -0.1"),
        ({"eps_eval": 2}, "eps_eval is 2"),
        (
            {"eps_final": 0.1, "eps_final_min": 0.2},
            "eps_final_min is 0.2; expected more than 0 and at most eps_final, 0.1",
        ),
        ({"eps_final_min": 0.0}, "eps_final_min is 0.0"),
    ],
)
def test_what_is_no_probability_is_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        DqnAgent(**setting)


def test_a_worker_follows_the_exploration_of_the_master():
    agent = make(eps_final=0.5, eps_final_min=0.0005)
    other = Elsewhere(agent)
    worker = other.agent
    actor = worker.actor([3], 4, seed=0)
    agent.anneal_exploration(1.0)
    other.publish()
    other.take()
    actor.begin(0)
    assert actor.exploration.tolist() == worker.epsilon(actor).tolist() == pytest.approx([0.5])
    agent.load_state_dict({**agent.state_dict(), "annealed": 0.0})
    other.publish()
    other.take()
    assert actor.exploration.tolist() == pytest.approx([0.5]), "the batch goes on as it began"
    actor.begin(1)
    assert actor.exploration.tolist() == pytest.approx([1.0])


def test_the_state_says_how_far_exploration_has_come():
    agent = make()
    agent.anneal_exploration(0.25)
    other = make()
    other.load_state_dict(agent.state_dict())
    assert other.epsilon(other.actors[False]).tolist() == agent.epsilon(agent.actors[False]).tolist()


def test_the_target_starts_as_a_copy_and_moves_only_when_told():
    agent = make()
    inputs = torch.rand(4, 3), torch.zeros(4, dtype=torch.int64), torch.zeros(4)
    start = agent(*inputs).detach()
    assert torch.equal(agent.target(*inputs), start)
    assert not any(p.requires_grad for p in agent.target_model.parameters())
    assert not {id(p) for p in agent.target_model.parameters()} & {id(p) for p in agent.parameters()}
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(1.0)
    assert torch.equal(agent.target(*inputs), start)
    before = [p.clone() for p in agent.target_model.parameters()]
    agent.update_target(tau=0.25)
    for p, old, new in zip(agent.target_model.parameters(), before, agent.parameters(), strict=True):
        torch.testing.assert_close(p, 0.75 * old + 0.25 * new.detach())
    agent.update_target()
    assert torch.equal(agent.target(*inputs), agent(*inputs).detach())


MASKED_RUN: dict[str, Any] = dict(min_steps_learn=48, replay_size=400, eps_steps=100, batch_size=16, replay_ratio=8)


class Masked(gymnasium.Env[Any, Any]):
    """Allows two of four actions in every step; its final observation allows none."""

    observation_space: Any = spaces.Dict(mask=spaces.MultiBinary(4), x=spaces.Box(-1, 1, (3,), np.float32))
    action_space: Any = spaces.Discrete(4)

    def __init__(self, taken: list[bool]) -> None:
        self.taken = taken

    def see(self) -> Any:
        self.mask = np.zeros(4, np.int8)
        self.mask[self.np_random.choice(4, 2, replace=False)] = self.t < 5
        return dict(mask=self.mask, x=self.np_random.uniform(-1, 1, 3).astype(np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.see(), {}

    def step(self, action: Any) -> Any:
        self.taken.append(bool(self.mask[action]))
        self.t += 1
        return self.see(), float(action), self.t == 5, False, {}


class MaskingNet(nn.Module):
    def __init__(self, n_quantiles: int | None) -> None:
        super().__init__()
        self.net, self.n_quantiles = nn.Linear(3, 4 * (n_quantiles or 1)), n_quantiles

    def forward(self, observation: Any, *others: Any) -> Any:
        q = self.net(observation.x).unflatten(-1, (4, -1)).masked_fill(observation.mask[..., None] == 0, -torch.inf)
        return q.squeeze(-1) if self.n_quantiles is None else q


@pytest.mark.parametrize(
    ("algo", "agent", "n_quantiles"),
    [
        (DQN(**MASKED_RUN), DqnAgent, None),
        (DQN(**MASKED_RUN, double_dqn=True, prioritized_replay=True, n_step_return=3), DqnAgent, None),
        (QRDQN(**MASKED_RUN), QrDqnAgent, 3),
    ],
)
def test_a_model_may_mask_illegal_actions(algo: Any, agent: Any, n_quantiles: int | None) -> None:
    taken: list[bool] = []
    agent = agent(ModelCls=MaskingNet, model_kwargs=dict(n_quantiles=n_quantiles))
    sampler = SerialSampler(lambda: Masked(taken), {}, batch_T=8, batch_B=2, max_decorrelation_steps=0)
    MinibatchRl(algo, agent, sampler, n_steps=160, log_interval_steps=160, seed=0).train()
    assert algo.update_counter > 0
    assert all(taken[20:])  # the check at the start acts at random
    assert len(taken) > 100


class SaysNothing(EpsilonGreedyExploration):
    def action(self, output, actor):
        super().action(output, actor)  # without return


@pytest.mark.parametrize(
    ("name", "given"), [("HeadCls", EpsilonGreedyExploration), ("HeadCls", 3), ("ExplorationCls", object)]
)
def test_a_part_of_another_kind_is_refused(name, given):
    with pytest.raises(TypeError, match=f"Mine: {name} is .*; expected a class that derives from rlpyt.agents."):
        type("Mine", (DqnAgent,), {name: given})()


def test_a_rule_that_returns_no_action_is_told_so():
    agent = type("Mine", (DqnAgent,), {"ExplorationCls": SaysNothing})()
    with pytest.raises(TypeError, match=r"^Mine: no action was returned for one row; expected a tensor \[1, \.\.\.\]"):
        set_up(DQN(min_steps_learn=0), agent, RandomEnv)


@pytest.mark.parametrize("AgentCls", [DqnAgent, SacAgent])
def test_what_an_agent_lacks_before_initialize_is_told(AgentCls):
    agent = AgentCls()
    with pytest.raises(RuntimeError, match=f"{AgentCls.__name__}: is not initialised"):
        agent.update_target()
    with pytest.raises(AttributeError, match=f"{AgentCls.__name__} has no network '(model|target)': it is not init"):
        agent.q_parameters() if AgentCls is SacAgent else agent.target_model
