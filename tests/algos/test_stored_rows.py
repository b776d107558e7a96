"""Algorithms that begin with stored data: in their replay or beside it, resumed, and refused; cloned policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    CatDqnAgent,
    CategoricalPgAgent,
    DdpgAgent,
    DiscreteSacAgent,
    DqnAgent,
    GaussianPgAgent,
    R2d1Agent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import DQN, R2D1, SAC, CategoricalDQN, clone_behavior
from rlpyt.replays import MixedReplay, RecordEpisodes, StoredData
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.projection import projections_of
from tests.algos.small_problems import RandomEnv, batches, learn_from, optimize, set_up
from tests.algos.test_hindsight import Flip
from tests.replays.replay_kit import assert_same_batches
from tests.replays.test_stored_data import all_transitions

BOX = spaces.Box(-2, 2, (2,))
SMALL: dict[str, Any] = dict(batch_size=16, replay_ratio=2.0, min_steps_learn=32, replay_size=400, n_step_return=2)


def recorded(env: Any, n: int = 8, seed: int = 0) -> StoredData:
    """Episodes of random actions."""
    env = RecordEpisodes(env)
    env.action_space.seed(seed)
    for i in range(n):
        env.reset(seed=seed + i)
        while True:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                break
    return env.data()


def numbers_of(agent: Any) -> torch.Tensor:
    return torch.cat([x.detach().ravel() for x in agent.parameters()])


@pytest.mark.parametrize("fraction", [None, 0.5])
@pytest.mark.parametrize(("AlgoCls", "AgentCls", "space"), [(CategoricalDQN, CatDqnAgent, None), (SAC, SacAgent, BOX)])
def test_algorithms_learn_from_it(AlgoCls: Any, AgentCls: Any, space: Any, fraction: float | None) -> None:
    data = recorded(RandomEnv(space))
    algo, agent = AlgoCls(stored_data=data, stored_fraction=fraction, prioritized_replay=True, **SMALL), AgentCls()
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=space), n_itr=3)
    assert isinstance(algo.replay, MixedReplay) == (fraction is not None)
    learn_from(algo, sampler, 3)
    assert algo.update_counter == 12
    assert numbers_of(agent).isfinite().all()


def test_a_filled_replay_has_every_stored_step_and_the_new_rows_after_it() -> None:
    data = recorded(RandomEnv(), 11)
    algo = DQN(stored_data=data, **{**SMALL, "min_steps_learn": 0, "n_step_return": 1})
    sampler = set_up(algo, DqnAgent(), RandomEnv, T=2, B=4)
    assert algo.replay.check_valid() == (True, "")
    optimize(algo, 0, sampler.obtain_samples(0)[0])
    assert algo.update_counter == 1  # as there was enough to draw
    assert algo.replay.check_valid() == (True, "")
    came = all_transitions(algo.replay)
    stored = {tuple(x) for x in data.rows.observation[data.rows.valid].tolist()}
    found = [tuple(x) for x in came.agent_inputs.observation.tolist()]
    assert len(found) == len(set(found))
    assert stored < set(found)


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_a_run_goes_on_exactly(fraction: float | None) -> None:
    settings: Any = dict(prioritized_replay=True, stored_data=recorded(RandomEnv()), stored_fraction=fraction, **SMALL)
    samples: list[Any] = []
    algos = [DQN(**settings), DQN(**settings)]
    for algo, seed in zip(algos, (0, 7), strict=True):
        sampler = set_up(algo, DqnAgent(), RandomEnv, seed=seed)
        samples = samples or batches(sampler, 5)
    for itr in range(3):
        optimize(algos[0], itr, samples[itr])
    algos[1].agent.load_state_dict(algos[0].agent.state_dict())
    algos[1].load_state_dict(algos[0].state_dict())
    for itr in range(3, 5):
        for algo in algos:
            optimize(algo, itr, samples[itr])
    assert torch.equal(numbers_of(algos[0].agent), numbers_of(algos[1].agent))
    assert_same_batches(algos[0].replay.sample_batch(8), algos[1].replay.sample_batch(8))


def test_a_file_is_read_where_the_run_begins(tmp_path: Path) -> None:
    recorded(RandomEnv()).save(tmp_path / "data.npz")
    algo = DQN(stored_data=str(tmp_path / "data.npz"), stored_fraction=1.0, **SMALL)
    set_up(algo, DqnAgent(), RandomEnv)
    assert (algo.replay.sample_batch(32).places.env >= 4).all()


def test_normalisers_take_it_in() -> None:
    data = recorded(RandomEnv())
    for fraction in (None, 0.5):
        agent = DqnAgent(model_kwargs=dict(normalize_observation=True))
        set_up(DQN(stored_data=data, stored_fraction=fraction, **SMALL), agent, RandomEnv)
        counts = [x.item() for name, x in agent.model.named_buffers() if name.endswith("count")]
        assert counts == [data.n_steps]


@pytest.mark.parametrize("fraction", [None, 1.0])
def test_stored_steps_get_goals_in_hindsight(fraction: float | None) -> None:
    settings: dict[str, Any] = {**SMALL, "n_step_return": 1}
    algo = DQN(stored_data=recorded(Flip()), stored_fraction=fraction, hindsight="final", **settings)
    algo.append(0, set_up(algo, DqnAgent(), Flip).obtain_samples(0)[0])
    batch = algo.replay.sample_batch(500)
    seen = batch.target_inputs.observation
    reached = (seen.desired_goal == seen.achieved_goal).all(-1)
    assert reached.float().mean() > 0.2  # by chance hardly ever
    assert torch.equal(batch.reward, reached.float() - 1.0)


# ---- what is refused ----


def test_runs_that_are_refused() -> None:
    data = recorded(RandomEnv(), 40)
    with pytest.raises(
        ValueError, match=r"room for 10 rows of each environment; expected at least \d+, for StoredData"
    ):
        set_up(DQN(stored_data=data, **{**SMALL, "replay_size": 40}), DqnAgent(), RandomEnv)
    with pytest.raises(ValueError, match="the observation space is"):
        set_up(DQN(stored_data=data, **SMALL), DqnAgent(), Flip)
    sequences: Any = dict(batch_T=4, batch_B=2, warmup_T=0, store_rnn_state_interval=4)
    recurrent = dict(**sequences, min_steps_learn=64, replay_size=400, stored_data=data)
    with pytest.raises(
        TypeError, match="R2d1Agent is a recurrent agent, and the replay is a ReplayBuffer; expected a feed-forward"
    ):
        set_up(R2D1(**recurrent, prioritized_replay=False, input_priorities=False), R2d1Agent(), RandomEnv)


# ---- cloned policies ----


def single_steps(env_spaces: EnvSpaces, x: np.ndarray, actions: np.ndarray) -> StoredData:
    """Episodes of one step each."""
    ends = np.ones(len(x), bool)
    flags: dict[str, Any] = dict(rewards=np.zeros(len(x)), terminated=ends, truncated=~ends, next_observations=x)
    return StoredData.from_arrays(env_spaces, observations=x, actions=actions, **flags)


@pytest.mark.parametrize("AgentCls", [CategoricalPgAgent, DiscreteSacAgent])
def test_a_categorical_policy_takes_on_the_frequencies_of_the_actions(AgentCls: Any) -> None:
    n = 400
    env_spaces = EnvSpaces(spaces.Discrete(2), spaces.Discrete(3))
    rng = np.random.default_rng(0)
    state = np.arange(n) % 2
    actions = np.where(state == 0, rng.choice(3, n, p=[0.7, 0.2, 0.1]), 2)
    data = single_steps(env_spaces, state, actions)
    agent = AgentCls(model_kwargs=dict(hidden_sizes=[16]))
    clone_behavior(agent, data, n_updates=150, batch_size=400, learning_rate=2e-2)
    inputs = torch.tensor([0, 1]), torch.zeros(2, dtype=torch.int64), torch.zeros(2)
    is_pg = isinstance(agent, CategoricalPgAgent)
    logits = agent(*inputs)[0].logits if is_pg else agent.pi(agent.features(*inputs))
    prob = logits.softmax(-1)
    frequency = np.bincount(actions[state == 0], minlength=3) / (n // 2)
    assert prob[0].tolist() == pytest.approx(frequency, abs=0.06)
    assert prob[1, 2] > 0.95


@pytest.mark.parametrize("AgentCls", [SacAgent, DdpgAgent, Td3Agent, GaussianPgAgent])
def test_a_continuous_policy_learns_the_action_of_an_observation(AgentCls: Any) -> None:
    n = 256
    env_spaces = EnvSpaces(spaces.Box(-1, 1, (1,)), spaces.Box(-2, 4, (1,)))
    x = np.linspace(-1, 1, n, dtype=np.float32)[:, None]
    data = single_steps(env_spaces, x, 1 + 2 * x)
    kwargs = dict(model_kwargs=dict(hidden_sizes=[32]))
    weights = clone_behavior(AgentCls(**kwargs), data, n_updates=200, batch_size=32, learning_rate=1e-2)
    agent = AgentCls(initial_model_state_dict=weights, **kwargs)
    agent.initialize(env_spaces)
    agent.eval_mode(0, deterministic=True)
    actions = agent.step(torch.from_numpy(x[::16]), None, None).action
    assert torch.allclose(actions, torch.from_numpy(1 + 2 * x[::16]), atol=0.4)


@pytest.mark.parametrize("AgentCls", [CategoricalPgAgent, DiscreteSacAgent])
def test_a_policy_is_cloned_from_legal_actions_alone(AgentCls: Any) -> None:
    masks = np.array([[1, 1, 0], [0, 1, 1]] * 50, np.int8)
    space = spaces.Dict(observation=spaces.Box(-1, 1, (1,)), action_mask=spaces.MultiBinary(3))
    x = dict(observation=np.zeros((100, 1), np.float32), action_mask=masks)
    ends = np.ones(100, bool)
    data = StoredData.from_arrays(
        EnvSpaces(space, spaces.Discrete(3)),
        observations=x,
        actions=masks.argmax(1),  # the first legal one: the networks do not see the masks
        rewards=np.zeros(100),
        terminated=ends,
        truncated=~ends,
        next_observations=x,
    )
    agent = AgentCls(model_kwargs=dict(hidden_sizes=[8]))
    clone_behavior(agent, data, n_updates=200, batch_size=100, learning_rate=3e-2)
    agent.eval_mode(0, deterministic=True)
    observation = type(data.rows.observation)(torch.zeros(2, 1), torch.from_numpy(masks[:2]))
    actions = agent.step(observation, torch.zeros(2, dtype=torch.int64), torch.zeros(2)).action
    assert actions.tolist() == [0, 1]


@pytest.mark.parametrize("layers", ["simbav2", "xqc"])
def test_weights_of_norm_1_are_cloned_as_such(layers: str) -> None:
    agent = SacAgent(model_kwargs=dict(layers=layers, hidden_sizes=[16]))
    clone_behavior(agent, recorded(RandomEnv(BOX)), n_updates=20, learning_rate=1e-2)
    projected = projections_of(agent.networks.modules(), agent.parameters())
    before = [x.clone() for x in agent.parameters()]
    with torch.no_grad():
        for layer in projected:
            layer.project()
    assert projected
    assert all(torch.allclose(x, y, atol=1e-6) for x, y in zip(before, agent.parameters(), strict=True))


def test_a_cloned_policy_follows_from_the_seed_and_what_it_cannot_be() -> None:
    data = recorded(RandomEnv(BOX))
    first, again, other = (clone_behavior(SacAgent(), data, n_updates=2, seed=seed)["model"] for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    with pytest.raises(TypeError, match="DqnAgent, has no policy"):
        clone_behavior(DqnAgent(), data)
    narrow = StoredData(data.rows, data.spaces._replace(action=spaces.Box(-1, 1, (2,))))
    with pytest.raises(ValueError, match="expected them within the bounds"):
        clone_behavior(SacAgent(), narrow)
    agent = SacAgent()
    clone_behavior(agent, data, n_updates=1)
    with pytest.raises(RuntimeError, match="initialize was called again"):
        agent.initialize(data.spaces)
