"""Q-learning agents in every sampler: the same rows, noise of the networks, the range of atoms, recurrent states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    AtariCatDqnAgent,
    CatDqnAgent,
    CategoricalPgAgent,
    DqnAgent,
    IqnAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCatDqnAgent,
    RecurrentIqnAgent,
    RecurrentQrDqnAgent,
)
from rlpyt.algos import DQN, IQN, QRDQN, R2D1, CategoricalDQN
from rlpyt.models import NoisyLinear
from rlpyt.spaces import EnvSpaces
from tests.agents.agent_kinds import Sampled
from tests.algos.small_problems import RandomEnv, set_up
from tests.samplers.sampler_kit import assert_equal_batches, collect, running

B = 4
NOISY: dict[str, Any] = dict(hidden_sizes=8, noisy=True)
RNN: dict[str, Any] = dict(hidden_sizes=8, rnn_size=6)
EPSILON: dict[str, Any] = dict(eps_init=0.6, eps_final=0.5, eps_final_min=0.01)
AGENTS: dict[str, Any] = {
    "noisy": lambda: DqnAgent(model_kwargs=NOISY, **EPSILON),
    "categorical": lambda: CatDqnAgent(n_atoms=5, model_kwargs=dict(hidden_sizes=8), **EPSILON),
    "rainbow LSTM": lambda: RecurrentCatDqnAgent(n_atoms=5, model_kwargs=dict(**RNN, noisy=True), **EPSILON),
    "quantiles GRU": lambda: RecurrentQrDqnAgent(n_quantiles=4, model_kwargs=dict(**RNN, recurrent="gru"), **EPSILON),
    "implicit": lambda: IqnAgent(model_kwargs=dict(hidden_sizes=8, n_acting_tau=4), **EPSILON),
    "implicit noisy LSTM": lambda: RecurrentIqnAgent(model_kwargs=dict(**RNN, noisy=True), **EPSILON),
    "R2D1": lambda: R2d1Agent(model_kwargs=dict(**RNN, dueling=True), **EPSILON),
}


def collected(kind: str, sampler_kind: str, n_batches: int = 3, **options: Any) -> list[Any]:
    """Batches of an agent whose exploration, and range of atoms, are set after the workers have started."""
    torch.manual_seed(0)
    agent = AGENTS[kind]()
    with running(sampler_kind, agent, RandomEnv, T=6, B=B, **options) as sampler:
        first = collect(sampler, 1)
        agent.anneal_exploration(0.7)
        if isinstance(agent, CatDqnAgent):
            agent.give_V_min_max(-2.0, 3.0)
        return first + collect(sampler, n_batches - 1, first=1)


@pytest.mark.parametrize("kind", AGENTS)
def test_every_sampler_gives_the_same_rows(kind):
    expected = collected(kind, "serial")
    explored = torch.stack([s.agent.action != s.agent.agent_info.q.argmax(-1) for s, _ in expected[1:]])
    assert explored.any()
    for sampler_kind in ("cpu2", "gpu2", "alternating2"):
        # Kernels for other numbers of rows round otherwise.
        here: dict[str, Any] = {} if kind == "R2D1" else dict(start_method="here")
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


def test_the_range_of_atoms_belongs_to_the_state():
    agent, other = make(CatDqnAgent, n_atoms=3), make(CatDqnAgent, n_atoms=3)
    agent.give_V_min_max(-1.0, 4.0)
    other.load_state_dict(agent.state_dict())
    assert other.z.tolist() == [-1.0, 1.5, 4.0]


@pytest.mark.parametrize("sampler_kind", ["serial", "cpu2", "alternating2"])
def test_recurrent_states_are_zero_at_the_start_of_every_episode(sampler_kind):
    seen = 0
    for before, after in zip(batches := collected("R2D1", sampler_kind), batches[1:], strict=False):
        rows = [torch.cat([s.env.valid for s, _ in (before, after)])]
        rows += [torch.cat([leaf(s) for s, _ in (before, after)]) for leaf in (lambda s: hidden(s), lambda s: cells(s))]
        valid, h, c = rows
        starts = torch.zeros_like(valid)
        starts[1:] = valid[1:] & ~valid[:-1]
        starts[0] = before is batches[0]
        assert not h[starts].any()
        assert not c[starts].any()
        assert h[1:][~starts[1:]].any(-1).all()
        seen += int(starts[1:].sum())
    assert seen > 4


def hidden(samples: Any) -> torch.Tensor:
    return samples.agent.agent_info.prev_rnn_state.h


def cells(samples: Any) -> torch.Tensor:
    return samples.agent.agent_info.prev_rnn_state.c


LEARNERS: dict[str, Any] = {
    "DQN": DQN,
    "R2D1": R2D1,
    "CategoricalDQN": CategoricalDQN,
    "QRDQN": QRDQN,
    "IQN": IQN,
}
KINDS: dict[str, Any] = {
    "q": (DqnAgent, R2d1Agent),
    "categorical": (CatDqnAgent, RecurrentCatDqnAgent),
    "quantiles": (QrDqnAgent, RecurrentQrDqnAgent),
    "implicit quantiles": (IqnAgent, RecurrentIqnAgent),
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recurrent", [False, True])
def test_an_algorithm_takes_the_agents_of_its_kind_and_refuses_others(name, kind, recurrent):
    h: dict[str, Any] = dict(min_steps_learn=100, replay_size=1000, replay_ratio=8)
    sizes = dict(batch_T=4, batch_B=2, warmup_T=0, store_rnn_state_interval=4)
    algo = LEARNERS[name](
        **{**h, **(sizes if recurrent else {}), **({} if recurrent else dict(batch_T=None, batch_B=None))}
    )
    AgentCls = KINDS[kind][recurrent]
    agent = AgentCls(model_kwargs=RNN if recurrent else dict(hidden_sizes=8))
    if kind == algo.agent_kind:
        set_up(algo, agent, RandomEnv, n_itr=50)
        return
    message = (
        rf"{name}: the agent, a {AgentCls.__name__}, is one whose network gives {kind}; expected one whose network "
        rf"gives {algo.agent_kind}\. .*CatDqnAgent.*QrDqnAgent.*IqnAgent"
    )
    with pytest.raises(TypeError, match=message):
        set_up(algo, agent, RandomEnv, n_itr=50)


@pytest.mark.parametrize("name", LEARNERS)
def test_an_agent_without_q_values_is_refused(name):
    with pytest.raises(TypeError, match=rf"{name}: the agent, a CategoricalPgAgent, is no Q-learner; expected one"):
        set_up(LEARNERS[name](), CategoricalPgAgent(), RandomEnv)


@pytest.mark.parametrize(
    ("AgentCls", "kwargs", "message"),
    [
        (CatDqnAgent, dict(n_atoms=1), "CatDqnAgent: n_atoms is 1; expected a whole number from 2"),
        (CatDqnAgent, dict(model_kwargs=dict(n_atoms=21)), "n_atoms is 51, and 21 in model_kwargs; expected the same"),
        (AtariCatDqnAgent, dict(n_atoms=0), "AtariCatDqnAgent: n_atoms is 0; expected a whole number from 2"),
        (QrDqnAgent, dict(n_quantiles=0), "QrDqnAgent: n_quantiles is 0; expected a whole number from 1"),
        (RecurrentQrDqnAgent, dict(n_quantiles=-1), "RecurrentQrDqnAgent: n_quantiles is -1"),
    ],
)
def test_distributions_that_cannot_be_are_refused(AgentCls, kwargs, message):
    with pytest.raises(ValueError, match=message):
        AgentCls(**kwargs)
