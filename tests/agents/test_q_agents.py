"""Q-learning agents, and those of DDPG, TD3 and SAC, in every sampler; noise of networks, epsilon, masked actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import (
    CatDqnAgent,
    DdpgAgent,
    DqnAgent,
    EpsilonGreedyExploration,
    IqnAgent,
    QpgAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCatDqnAgent,
    RecurrentIqnAgent,
    RecurrentQrDqnAgent,
    RecurrentSacAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import DQN, QRDQN
from rlpyt.models import NoisyLinear, QModel
from rlpyt.spaces import EnvSpaces
from tests.agents.acting_copies import Elsewhere
from tests.agents.agent_kinds import Sampled
from tests.algos.reference import encode
from tests.algos.small_problems import RandomEnv, optimize, set_up
from tests.pairs import others_nightly
from tests.samplers.sampler_kit import assert_equal_batches, collect, running

B = 4
NOISY: dict[str, Any] = dict(hidden_sizes=8, noisy=True)
RNN: dict[str, Any] = dict(hidden_sizes=8, rnn_size=6)
EPSILON: dict[str, Any] = dict(eps_init=0.6, eps_final=0.5, eps_final_min=0.01)
SMALL: dict[str, Any] = dict(hidden_sizes=8)
MU: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)
BOX = spaces.Box(np.array([-0.1, -2, 0], np.float32), np.array([3, 5, 0.01], np.float32))
AGENTS: dict[str, Any] = {
    "noisy": lambda: DqnAgent(model_kwargs=NOISY, **EPSILON),
    "categorical": lambda: CatDqnAgent(n_atoms=5, model_kwargs=SMALL, **EPSILON),
    "rainbow LSTM": lambda: RecurrentCatDqnAgent(n_atoms=5, model_kwargs=dict(**RNN, noisy=True), **EPSILON),
    "quantiles GRU": lambda: RecurrentQrDqnAgent(n_quantiles=4, model_kwargs=dict(**RNN, recurrent="gru"), **EPSILON),
    "implicit": lambda: IqnAgent(model_kwargs=dict(hidden_sizes=8, n_acting_tau=4), **EPSILON),
    "R2D1": lambda: R2d1Agent(model_kwargs=dict(**RNN, dueling=True), **EPSILON),
    "DDPG correlated": lambda: DdpgAgent(**MU, action_std=0.3, action_noise_correlation=0.7),
    "TD3": lambda: Td3Agent(**MU, action_std=0.3, action_noise_clip=0.4),
    "recurrent SAC": lambda: RecurrentSacAgent(**MU, feature_kwargs=dict(rnn_size=6), pretrain_std=0.3),
}


def collected(kind: str, sampler_kind: str, n_batches: int = 3, **options: Any) -> list[Any]:
    """Batches of an agent whose exploration, and range of atoms, are set after the workers have started."""
    torch.manual_seed(0)
    agent = AGENTS[kind]()
    env_kwargs = dict(action_space=BOX) if isinstance(agent, QpgAgent) else {}
    with running(sampler_kind, agent, RandomEnv, T=6, B=B, env_kwargs=env_kwargs, **options) as sampler:
        first = collect(sampler, 1)
        agent.anneal_exploration(1.0 if env_kwargs else 0.7)
        if isinstance(agent, CatDqnAgent):
            agent.give_V_min_max(-2.0, 3.0)
        return first + collect(sampler, n_batches - 1, first=1)


def explored(samples: Any) -> torch.Tensor:
    """Return how far actions are from the best, at valid rows; of a policy in units of the bounds."""
    info, action, valid = samples.agent.agent_info, samples.agent.action, samples.env.valid
    if "q" in info._fields:
        return (action != info.q.argmax(-1))[valid].float()
    best = info.mu if "mu" in info._fields else info.dist_info.mean.tanh()
    return (encode(action, BOX) - best.double())[valid].abs()


@pytest.mark.parametrize(
    "kind", others_nightly(AGENTS, ("noisy", "rainbow LSTM", "implicit", "R2D1", "DDPG correlated", "recurrent SAC"))
)
def test_every_sampler_gives_the_same_rows(kind):
    """With the recurrent states before them; exploration is as it is set, in workers too."""
    expected = collected(kind, "serial")
    first, *others = (explored(samples).mean() for samples, _ in expected)
    assert all(0 < share < (0.5 * first if kind in ("TD3", "DDPG correlated") else 1) for share in others)
    for sampler_kind in ("cpu2", "gpu2", "alternating2"):
        # Kernels for other numbers of rows round otherwise.
        here: dict[str, Any] = {} if kind in ("R2D1", "TD3") else dict(start_method="here")
        assert_equal_batches(collected(kind, sampler_kind, **here), expected, rtol=1e-4)


def make(AgentCls: Any = DqnAgent, B: int = B, ranks: Any = None, seed: int = 0, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    agent = AgentCls(**kwargs)
    agent.initialize(EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)))
    sampled = Sampled(agent, B, ranks, seed)
    sampled.begin(0)
    return sampled


def inputs_of(B: int = B) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    observation = torch.randn(B, 3, generator=torch.Generator().manual_seed(0))
    return observation, torch.zeros(B, dtype=torch.int64), torch.zeros(B)


def test_noise_changes_at_every_step_and_is_the_same_in_all_environments():
    agent, inputs = make(model_kwargs=NOISY), inputs_of()
    inputs[0][1:] = inputs[0][0]
    q = torch.stack([agent.step(*inputs).agent_info.q for _ in range(5)])
    torch.testing.assert_close(q, q[:, :1].expand_as(q))
    assert len({tuple(x) for x in q[:, 0].tolist()}) == 5
    agent.begin(1)
    assert not torch.equal(agent.step(*inputs).agent_info.q, q[-1])


def test_noise_is_off_in_evaluation_and_on_again_after_it():
    agent, inputs = make(model_kwargs=NOISY, eps_eval=0.0), inputs_of(2)
    quiet = torch.nn.Sequential(agent.model.trunk, agent.model.head)(inputs[0])  # nothing was drawn yet
    training = inputs_of()
    agent.step(*training)
    agent.begin_evaluation(1)
    for _ in range(3):
        torch.testing.assert_close(agent.step(*inputs).agent_info.q, quiet.detach())
    agent.begin(1)
    assert not torch.equal(agent.step(*training).agent_info.q, agent.step(*training).agent_info.q)
    agent.networks.draw_randomness(torch.Generator())
    agent.begin_evaluation(2)  # after an update
    torch.testing.assert_close(agent.step(*inputs).agent_info.q, quiet.detach())


def test_an_update_draws_noise_anew_and_other_noise_for_the_target():
    agent, inputs = make(model_kwargs=NOISY), inputs_of()
    generator, seen = torch.Generator().manual_seed(0), []
    for _ in range(3):
        agent.networks.draw_randomness(generator)
        online, target = agent(*inputs), agent.target(*inputs)
        assert torch.equal(agent(*inputs), online)
        assert not torch.allclose(online, target)
        layers = [m for network in agent.networks.modules() for m in network.modules() if isinstance(m, NoisyLinear)]
        assert len({layer.input_noise[0].item() for layer in layers}) == len(layers) == 4
        seen.append(online.detach())
    assert not torch.equal(seen[0], seen[1])
    agent.networks.draw_randomness(None)
    assert torch.equal(agent(*inputs), agent.target(*inputs))


def test_the_noise_of_an_update_does_not_reach_the_actors():
    """Nor does evaluation: what is drawn in acting comes of the actors' own stream."""
    inputs, acted = inputs_of(), []
    for between in (False, True):
        agent = make(model_kwargs=NOISY)
        for itr in range(3):
            agent.begin(itr)
            acted.append(agent.step(*inputs).agent_info.q)
            if between:
                agent.train_mode(itr)
                agent.networks.draw_randomness(torch.Generator().manual_seed(itr))
                agent.begin_evaluation(itr)
                agent.step(*inputs_of(2))
    assert all(map(torch.equal, acted[:3], acted[3:]))


@pytest.mark.parametrize("AgentCls", [IqnAgent, RecurrentIqnAgent])
def test_implicit_quantiles_act_the_same_twice_and_learn_by_fractions_at_random(AgentCls):
    agent, inputs = make(AgentCls, model_kwargs=dict(hidden_sizes=8, n_tau=5, n_acting_tau=4)), inputs_of()
    first = agent.step(*inputs).agent_info.q
    agent.reset()
    assert torch.equal(agent.step(*inputs).agent_info.q, first)
    agent.networks.draw_randomness(torch.Generator())
    rows = [x[None] for x in inputs] if agent.recurrent else inputs
    tau, target_tau = agent(*rows).tau, agent.target(*rows).tau
    assert tau.unique().numel() == target_tau.unique().numel() == 5 * B
    assert not torch.equal(tau, target_tau)
    agent.reset()
    agent.begin(1)
    assert torch.equal(agent.step(*inputs).agent_info.q, first)


@pytest.mark.parametrize(
    ("AgentCls", "n"), [(CatDqnAgent, 51), (QrDqnAgent, 200), (RecurrentCatDqnAgent, 51), (RecurrentQrDqnAgent, 200)]
)
def test_q_is_the_mean_of_the_distribution(AgentCls, n):
    agent, inputs = make(AgentCls, model_kwargs=dict(hidden_sizes=8)), inputs_of()
    if AgentCls in (CatDqnAgent, RecurrentCatDqnAgent):
        agent.give_V_min_max(-1.0, 4.0)
    rows = [x[None] for x in inputs] if agent.recurrent else inputs
    output = agent(*rows).detach().reshape(B, 3, n).double()
    if AgentCls in (CatDqnAgent, RecurrentCatDqnAgent):
        z = [-1 + 5 * i / 50 for i in range(51)]
        q = torch.tensor([[sum(p * x for p, x in zip(a.softmax(-1), z, strict=True)) for a in row] for row in output])
    else:
        q = output.mean(-1)
    torch.testing.assert_close(agent.step(*inputs).agent_info.q.double(), q.double(), rtol=1e-4, atol=1e-5)


# ---- epsilon ----


def random_share(agent: Any, B: int, n: int = 3000) -> torch.Tensor:
    """Return how often every environment's action was not the greedy one, times what corrects for chance hits."""
    inputs = torch.rand(B, 3), torch.zeros(B, dtype=torch.int64), torch.zeros(B)
    greedy = agent(*inputs).argmax(-1)
    other = sum((agent.step(*inputs).action != greedy).float() for _ in range(n))
    return other / n * 3 / 2


ONE: dict[str, Any] = dict(eps_init=0.8, eps_final=0.2)
OWN: dict[str, Any] = dict(eps_init=1.0, eps_final=0.5, eps_final_min=0.0005)


@pytest.mark.parametrize(
    ("settings", "ranks", "progress", "expected"),
    [
        (ONE, None, 0.0, [0.8]),
        (ONE, None, 0.5, [0.5]),
        (ONE, None, 1.0, [0.2]),
        (OWN, None, 1.0, [0.0005, 0.005, 0.05, 0.5]),
        (OWN, None, 0.0, [1.0] * 4),
        (OWN, None, 0.5, [0.50025, 0.5025, 0.525, 0.75]),
        (OWN, [2, 3], 1.0, [0.05, 0.5]),  # of a worker
    ],
)
def test_epsilon_goes_from_the_first_value_to_the_last_of_every_environment(settings, ranks, progress, expected):
    agent = make(ranks=ranks, model_kwargs=SMALL, **settings)
    agent.anneal_exploration(progress)
    assert agent.epsilon(agent.actors[False]).tolist() == pytest.approx(expected, rel=1e-4)


def test_the_actions_are_random_as_often_as_epsilon_says():
    agent = make(model_kwargs=SMALL, eps_final=0.5, eps_final_min=0.0005)
    assert random_share(agent, 4).tolist() == pytest.approx([1.0] * 4, abs=0.06)
    agent.anneal_exploration(1.0)
    agent.begin(1)
    share = random_share(agent, 4).tolist()
    assert share == pytest.approx([0.0005, 0.005, 0.05, 0.5], abs=0.05)
    assert share[0] < share[2] < share[3]


def test_evaluation_has_an_epsilon_of_its_own():
    agent = make(model_kwargs=SMALL, eps_eval=0.0)
    agent.begin_evaluation(1)
    assert random_share(agent, 2, 300).tolist() == [0.0, 0.0]
    # Before anything was learned the greedy policy is one action: better to show what chance reaches.
    agent.begin_evaluation(0)
    assert random_share(agent, 2, 1000).tolist() == pytest.approx([1.0, 1.0], abs=0.1)
    agent.begin(1)
    assert agent.epsilon(agent.actors[False]).tolist() == [1.0]


def test_given_weights_are_evaluated_as_they_are_before_the_first_iteration_too():
    agent = make(model_kwargs=SMALL, eps_eval=0.0, initial_model_state_dict=make(model_kwargs=SMALL).model.state_dict())
    agent.begin_evaluation(0)
    assert random_share(agent, 2, 300).tolist() == [0.0, 0.0]


def test_a_worker_follows_the_exploration_of_the_master():
    agent = make(model_kwargs=SMALL, **OWN)
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
    sampler = set_up(algo, agent, lambda: Masked(taken), T=8, B=2)
    taken.clear()  # the check at the start acts at random
    for itr in range(10):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    assert algo.update_counter > 0
    assert all(taken)
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


class Counting(QModel):
    """Q model that counts its calls, and puts a new tensor in the place of one of its own statistics."""

    calls = 0
    seen: torch.Tensor
    kept: torch.Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, normalize_observation=True)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("kept", torch.zeros(()))

    def update_obs_rms(self, observation: Any, valid: torch.Tensor | None = None) -> None:
        """Count."""
        super().update_obs_rms(observation, valid)
        type(self).calls += 1
        self.seen = self.seen + 1


def test_statistics_of_observations_are_computed_once_and_the_target_has_them_too() -> None:
    agent = DqnAgent(Counting, model_kwargs=SMALL)
    agent.initialize(EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)))
    agent.model.get_buffer("kept").add_(1)  # which no update of the statistics changes: it waits for that of the target
    x = torch.randn(5, 2, 3)
    for n in range(3):
        agent.update_obs_rms(x[n:], torch.rand(5 - n, 2) < 0.7)
    assert Counting.calls == agent.model.get_buffer("seen") == 3
    own, of_target = (dict(network.named_buffers()) for network in (agent.model, agent.target_model))
    assert of_target.pop("kept") != own.pop("kept")
    assert {"seen", "encoder.rms.mean", "encoder.rms.var", "encoder.rms.count"} <= own.keys()
    assert all(torch.equal(x, of_target[name]) and x is not of_target[name] for name, x in own.items())
    assert own["encoder.rms.count"] > 5
