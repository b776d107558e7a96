"""A replay's state is taken over whole or not at all, and what comes after it follows it or begins anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent, R2d1Agent
from rlpyt.algos import DQN, R2D1
from rlpyt.replays import (
    PrioritizedIndex,
    Reading,
    ReplayBuffer,
    RowStorage,
    SamplesToBuffer,
    Sequences,
    Transitions,
    UniformIndex,
)
from rlpyt.samplers import SerialSampler
from rlpyt.types import Run
from rlpyt.utils.compute import ComputeSettings
from tests.algos.small_problems import RandomEnv, set_up
from tests.replays.replay_kit import make_run, saved_and_loaded


def build(
    rows: SamplesToBuffer,
    reading: Reading,
    index: str = "uniform",
    alpha: float = 0.6,
    n_frames: int = 1,
    T: int = 40,
    device: torch.device | None = None,
) -> ReplayBuffer:
    rng = np.random.default_rng(0)
    input_priorities = index == "input"
    return ReplayBuffer(
        RowStorage(rows[0, 0], T, rows.reward.shape[1], n_frames=n_frames, device=device),
        UniformIndex(rng) if index == "uniform" else PrioritizedIndex(rng, alpha),
        reading,
        discount=0.9,
        input_priorities=input_priorities,
    )


def everything(replay: ReplayBuffer) -> list[np.ndarray]:
    assert isinstance(replay.storage, RowStorage)
    arrays = [*replay.storage._arrays().values(), np.array([replay.storage.written, replay.index.end])]
    return [array.copy() for array in arrays]


@pytest.mark.parametrize(
    ("saved", "loaded", "message"),
    [
        ((Transitions(1),), (Transitions(5),), r"n_step_return 1, expected 5; rows_after 1, expected 5\. Build"),
        ((Sequences(2, 0, 1, 0),), (Sequences(10, 5, 1, 0),), "warmup_T 0, expected 5; batch_T 2, expected 10; rows_a"),
        ((Sequences(4, 0, 1, 0),), (Sequences(4, 0, 1, 2),), "interval 1, expected 2"),
        ((Sequences(1, 0, 1, 0),), (Transitions(1),), "reading 'Sequences', expected 'Transitions'"),
        ((Transitions(1),), (Transitions(1), "prioritised"), "index 'UniformIndex', expected 'PrioritizedIndex'; pri_"),
        ((Transitions(1), "prioritised"), (Transitions(1),), "'PrioritizedIndex', expected 'UniformIndex'; pri_alpha"),
        ((Transitions(1), "prioritised", 0.6), (Transitions(1), "prioritised", 0.9), "pri_alpha 0.6, expected 0.9"),
        ((Transitions(1), "prioritised"), (Transitions(1), "input"), "input_priorities False, expected True"),
    ],
)
def test_another_way_of_reading_or_drawing_is_refused_and_nothing_changes(saved, loaded, message):
    run = make_run(0, 2, 60)
    first, second = build(run.rows, *saved), build(run.rows, *loaded)
    first.append_samples(run.rows)
    rows = run.rows[:30]
    second.append_samples(rows, *([np.ones((30, 2))] if loaded[1:] == ("input",) else []))
    before = everything(second)
    with pytest.raises(ValueError, match=f"Loading a replay: the state has .*{message}"):
        second.load_state_dict(saved_and_loaded(first)[0])
    assert all(np.array_equal(a, b) for a, b in zip(before, everything(second), strict=True))


def test_an_algorithm_that_refuses_a_replay_is_as_it_was():
    kwargs: dict[str, Any] = dict(replay_size=200, min_steps_learn=50)
    first, second = DQN(**kwargs), DQN(n_step_return=3, **kwargs)
    for algo in (first, second):
        set_up(algo, DqnAgent(model_kwargs=dict(hidden_sizes=8)), RandomEnv)
    first.update_counter = 7
    with pytest.raises(ValueError, match="n_step_return 1, expected 3"):
        second.load_state_dict(first.state_dict())
    assert second.update_counter == 0


# ---- what comes after a state ----


def with_previous(rows: SamplesToBuffer, null: int = 0) -> SamplesToBuffer:
    """Rows with what went before, as a sampler gives it; the first ones follow nothing."""
    action, reward = (np.concatenate([x[:1] * 0, x[:-1]]) for x in (rows.action, rows.reward))
    action[0] = null
    return rows._replace(prev_action=action, prev_reward=reward)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("n_frames", [1, 4])
@pytest.mark.parametrize("held", [2, 23, 40, 65])
def test_rows_that_follow_are_as_if_nothing_had_been(n, n_frames, held):
    run = make_run(3, 4, 90, n_frames=n_frames, starts=("black", "repeat"))
    rows = with_previous(run.rows)
    whole, second = (build(rows, Transitions(n), n_frames=n_frames) for _ in range(2))
    whole.append_samples(rows[:held])
    second.load_state_dict(saved_and_loaded(whole)[0])
    for replay in (whole, second):
        replay.append_samples(rows[held:])
    assert all(np.array_equal(a, b) for a, b in zip(everything(whole), everything(second), strict=True))


@pytest.mark.parametrize(
    "reading", [Transitions(1), Transitions(3), Sequences(4, 2, 3, 0)], ids=["1", "3", "sequences"]
)
@pytest.mark.parametrize("held", range(30, 46))
def test_nothing_leads_from_held_rows_to_new_ones_that_do_not_follow(reading, held):
    """Whatever the last row is: a step, an end of an episode, or a final row; also where the ring wraps."""
    run, other = make_run(held, 4, held), make_run(100 + held, 4, 30)
    # Observations, actions of the two are told apart: those of the second run are from 10,000 on.
    new = other.rows._replace(observation=other.rows.observation + 10_000, action=other.rows.action + 10_000)
    first, second = build(run.rows, reading), build(run.rows, reading)
    first.append_samples(with_previous(run.rows))
    second.load_state_dict(saved_and_loaded(first)[0])
    second.append_samples(with_previous(new))
    assert second.check_valid() == (True, "")

    batch: Any = second.sample_batch(3000)
    if isinstance(reading, Transitions):
        old, target = (x.observation[:, 0, 0, 0] < 10_000 for x in (batch.agent_inputs, batch.target_inputs))
        assert torch.equal(old, target)
        assert old.any()
        assert not old.all()
        prev = batch.agent_inputs.prev_action
        assert ((prev < 10_000) == (old | (prev == 0))).all()
        return
    is_old = batch.all_inputs.observation[:, :, 0, 0, 0] < 10_000
    crossing = is_old[0] & ~is_old[-1]
    assert crossing.any()
    begins = is_old[:-1] & ~is_old[1:]
    assert batch.episode_start[1:][begins].all()
    assert not batch.all_inputs.prev_action[1:][begins].any()
    t, m = np.nonzero(is_old[2:-3].numpy() & batch.valid.numpy())
    assert is_old[2 + t + batch.steps.numpy()[t, m], m].all()


def test_a_null_action_without_reward_in_one_environment_hides_nothing():
    """It may be what the last row was, so the others decide: either all environments were put back or none."""
    run = make_run(1, 2, 30)
    run.rows.valid[-2:], run.rows.truncated[-2:], run.rows.terminated[-2:] = True, False, False
    run.rows.action[-1], run.rows.reward[-1] = (7, 5), (0.0, 1.5)
    replay = build(run.rows, Transitions(1))
    replay.append_samples(run.rows)
    replay.load_state_dict(replay.state_dict())
    replay.append_samples(with_previous(make_run(2, 2, 5).rows, null=7))
    assert replay.storage.rows.action[29].tolist() == [7, 7]
    assert not replay.storage.rows.valid[29].any()
    assert replay.storage.rows.truncated[28].all()


@pytest.mark.parametrize("device", [None, torch.device("cpu")])
def test_older_frames_of_a_stack_tell_what_a_null_action_does_not(device):
    run = make_run(1, 1, 30, n_frames=4)
    run.rows.valid[-2:], run.rows.truncated[-2:], run.rows.terminated[-2:] = True, False, False
    run.rows.action[-1], run.rows.reward[-1] = 0, 0.0
    replay = build(run.rows, Transitions(1), n_frames=4, device=device)
    replay.append_samples(run.rows)
    replay.load_state_dict(replay.state_dict())
    replay.append_samples(with_previous(make_run(2, 1, 5, n_frames=4).rows))
    assert not replay.storage.rows.valid[29].any()


@pytest.mark.parametrize("held", [3, 23, 40, 65])
def test_stacks_that_follow_nothing_may_begin_in_the_middle_of_an_episode(held):
    """So the first ones of a sampler are, that has taken random steps before (max_decorrelation_steps)."""
    run = make_run(1, 2, held, n_frames=4, starts=("black", "repeat"))
    one_long = make_run(2, 2, 40, n_frames=4, starts=("goes_on",)).rows  # its first stack is from amidst
    new = with_previous(one_long[10:])._replace(prev_action=one_long.action[9:-1] + 500)
    replay = build(run.rows, Transitions(1), n_frames=4)
    replay.append_samples(with_previous(run.rows))
    replay.load_state_dict(saved_and_loaded(replay)[0])
    replay.append_samples(new)
    read = replay.storage.observation((held + np.arange(30))[:, None] % 40, np.arange(2))
    assert np.array_equal(read[3:], new.observation[3:])
    for t in range(3):
        assert np.array_equal(read[t, :, 3 - t :], new.observation[t, :, 3 - t :])
        assert not read[t, :, : 3 - t].any()


class Count:
    """Its observation says which environment of all ever made this is, and the step."""

    observation_space = spaces.Box(0, 1e6, (), np.float32)
    action_space = spaces.Discrete(2)
    made = 0

    def reset(self, seed: int | None = None) -> tuple[np.float32, dict[str, Any]]:
        Count.made += 1
        self.number, self.t = 1000 * Count.made, 0
        return np.float32(self.number), {}

    def step(self, action: int) -> tuple[np.float32, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.float32(self.number + self.t), 1.0, False, self.t >= 500, {}


@pytest.mark.filterwarnings("ignore:Count. two resets")
@pytest.mark.parametrize("recurrent", [False, True])
def test_an_algorithm_that_goes_on_with_fresh_environments_learns_from_no_transition_between_episodes(recurrent):
    def learner() -> tuple[Any, Any]:
        kwargs: dict[str, Any] = dict(replay_size=400, min_steps_learn=100, replay_ratio=2, n_step_return=2)
        model_kwargs: dict[str, Any] = dict(hidden_sizes=8)
        if recurrent:
            kwargs |= dict(batch_T=4, batch_B=2, warmup_T=2, store_rnn_state_interval=2)
            model_kwargs |= dict(rnn_size=8)
        algo: Any = (R2D1 if recurrent else DQN)(**kwargs)
        agent = (R2d1Agent if recurrent else DqnAgent)(model_kwargs=model_kwargs)
        sampler = SerialSampler(Count, {}, batch_T=8, batch_B=2, max_decorrelation_steps=0)
        run = Run(batch_spec=sampler.batch_spec, n_itr=20)
        run = replace(run, example=sampler.initialize(agent, run))
        agent.to_device(ComputeSettings())
        algo.initialize(agent, run)
        return algo, sampler

    first, second = learner(), learner()
    for itr in range(5):
        first[0].append(itr, first[1].obtain_samples(itr)[0])
    second[0].load_state_dict(first[0].state_dict())
    for itr in range(5, 10):
        second[0].append(itr, second[1].obtain_samples(itr)[0])
    batch = second[0].replay.sample_batch(2000)
    if not recurrent:
        episode = batch.agent_inputs.observation // 1000
        assert torch.equal(episode, batch.target_inputs.observation // 1000)
        assert episode.unique().numel() == 4
        return
    episode = batch.all_inputs.observation // 1000
    t, m = np.nonzero(batch.valid.numpy())
    assert torch.equal(episode[2 + t, m], episode[2 + t + batch.steps.numpy()[t, m], m])
    assert torch.equal(batch.episode_start[1:], episode[1:] != episode[:-1])
    assert batch.episode_start[1:].any()
