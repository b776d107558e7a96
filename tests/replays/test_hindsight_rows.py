from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.replays import (
    Hindsight,
    HindsightTransitions,
    PrioritizedIndex,
    ReplayBuffer,
    RowStorage,
    SamplesToBuffer,
    UniformIndex,
)
from rlpyt.replays.hindsight import rows_to_invalid
from tests.replays.replay_kit import (
    Row,
    Run,
    assert_frequencies,
    assert_goes_on_alike,
    assert_same_batches,
    expected_transition,
    make_run,
    places_in_reach,
)

GoalObservation = namedarraytuple("GoalObservation", ["observation", "achieved_goal", "desired_goal"])
SET = -7.0  # the goal that every episode was given


def reward_of(achieved: Any, desired: Any, info: Any) -> Any:
    """Pay more the nearer two numbers of observations are."""
    return -abs(achieved - desired)[..., 0] / 64


def terminated_of(achieved: Any, desired: Any, info: Any) -> Any:
    return (achieved == desired)[..., 0]


def with_goals(run: Run) -> SamplesToBuffer:
    """Return rows whose achieved goal is the number of the observation, which no two observations share."""
    number = np.array([[row.step.number for row in column] for column in run.lists], np.float32).T[..., None]
    return run.rows._replace(observation=GoalObservation(number * 2, number, np.full_like(number, SET)))


def goal_replay(
    rows: SamplesToBuffer, T: int, hindsight: Hindsight, n: int = 1, seed: int = 0, index: Any = None
) -> ReplayBuffer:
    rng = np.random.default_rng(seed)
    storage = RowStorage(rows[0, 0], T, rows.reward.shape[1])
    reading = HindsightTransitions(n, hindsight.fitting(rows.observation[0, 0]), rng)
    return ReplayBuffer(storage, index(rng) if index else UniformIndex(rng), reading, discount=0.9)


def goals_of(row: Row, run: Run, held: range, strategy: str) -> list[float]:
    """Return the goals that a row may get, by a search of the episode's rows that are held."""
    of_episode = [x for x in run.lists[row.b] if x.episode is row.episode and x.t in held and x.i >= -1]
    match strategy:
        case "future":
            of_episode = [x for x in of_episode if x.t > row.t]
        case "final":
            of_episode = of_episode[-1:]
    return [x.step.number for x in of_episode]


def expected_with_goal(row: Row, n: int, goal: float, terminates: bool) -> dict[str, float]:
    """Return the transition that begins at a row, for a goal, step by step."""
    steps, i = row.episode.steps, row.i
    return_, k, ended, reward, first = 0.0, 0, False, 0.0, 0.0
    while k < n and not ended and i + k < len(steps) - 1:
        k += 1
        reward = -abs(steps[i + k].number - goal) / 64
        first = reward if k == 1 else first
        return_ += 0.9 ** (k - 1) * reward
        ended = terminates and steps[i + k].number == goal
    ended = ended if terminates else i + k == len(steps) - 1 and row.episode.terminated
    return {
        "return_": return_,
        "terminated": ended,
        "bootstrap_discount": 0.0 if ended else 0.9**k,
        "reward": first,
        "agent_inputs.prev_reward": -abs(steps[i].number - goal) / 64 if i else 0.0,
        "target_inputs.prev_reward": reward,
        "agent_inputs.observation.achieved_goal": steps[i].number,
        "agent_inputs.observation.desired_goal": goal,
        "target_inputs.observation.achieved_goal": steps[i + k].number,
        "target_inputs.observation.desired_goal": goal,
        "action": row.step.action or 0.0,
    }


def value_of(batch: Any, path: str, m: int) -> float:
    for name in path.split("."):
        batch = getattr(batch, name)
    return float(np.reshape(batch[m], ()))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    B=st.integers(1, 3),
    n=st.integers(1, 4),
    T=st.integers(12, 40),
    written=st.integers(10, 90),
    strategy=st.sampled_from(["future", "final", "episode"]),
    terminates=st.booleans(),
    padding=st.sampled_from([0, 2]),
)
def test_every_transition_equals_that_of_a_search(seed, B, n, T, written, strategy, terminates, padding):
    run = make_run(seed, B, 90, padding=padding)
    rows = with_goals(run)
    hindsight = Hindsight(
        strategy=strategy, compute_reward=reward_of, compute_terminated=terminated_of if terminates else None
    )
    replay = goal_replay(rows, T, hindsight, n)
    for first in range(0, written, 7):
        replay.append_samples(rows[first : min(first + 7, written)])
    held = range(max(0, written - T), written)
    places = [(t, b) for t in places_in_reach(written, T, 1, n) for b in range(B) if run.lists[b][t].i >= 0]
    if not places:
        return
    t, b = np.array(places * 4).T
    batch = replay.reading.read(replay.storage, t % T, b, 0.9)
    for m in range(len(t)):
        row, goal = run.lists[b[m]][t[m]], value_of(batch, "agent_inputs.observation.desired_goal", m)
        if goal == SET:
            as_it_was = expected_transition(row, n, 0.9)
            assert value_of(batch, "return_", m) == pytest.approx(as_it_was["return_"], abs=1e-5)
            assert value_of(batch, "target_inputs.observation.achieved_goal", m) == as_it_was["target"].number
            continue
        assert goal in goals_of(row, run, held, strategy)
        for name, expected in expected_with_goal(row, n, goal, terminates).items():
            assert value_of(batch, name, m) == pytest.approx(float(expected), abs=1e-4), name


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_drawn_evenly_from_all_that_may_be(strategy: Any) -> None:
    run = make_run(3, 2, 60)
    rows = with_goals(run)
    replay = goal_replay(rows, 25, Hindsight(strategy=strategy, n_goals=3, compute_reward=reward_of))
    replay.append_samples(rows)
    held = range(35, 60)
    row = max((r for r in run.lists[1] if r.t in held[1:-1]), key=lambda r: len(goals_of(r, run, held, strategy)))
    t, b = np.full(4000, row.t % 25), np.ones(4000, int)
    batch: Any = replay.reading.read(replay.storage, t, b, 0.9)
    goals = batch.agent_inputs.observation.desired_goal[:, 0]
    may_be = goals_of(row, run, held, strategy)
    assert len(may_be) > 3 or strategy == "final"
    counts = np.array([(goals == goal).sum() for goal in [SET, *may_be]])
    assert counts.sum() == 4000
    assert_frequencies(counts, np.array([0.25] + [0.75 / len(may_be)] * len(may_be)))


def test_ends_are_found_in_long_episodes_around_the_ring() -> None:
    rng = np.random.default_rng(0)
    valid = rng.random((700, 3)) > 0.005
    T_idxs, B_idxs, most = rng.integers(700, size=500), rng.integers(3, size=500), rng.integers(400, size=500)
    for direction in (1, -1):
        found = rows_to_invalid(valid, T_idxs, B_idxs, most, direction)
        for t, b, m, x in zip(T_idxs, B_idxs, most, found, strict=True):
            ends = (k for k in range(1, m + 1) if not valid[(t + direction * k) % 700, b])
            assert x == next(ends, m + 1)
    assert (found > 96).any()


def test_a_state_goes_on_alike_with_priorities_too() -> None:
    rows = with_goals(make_run(1, 2, 80))
    for index in (None, PrioritizedIndex):
        one, other = (goal_replay(rows, 30, Hindsight(compute_reward=reward_of), seed=i, index=index) for i in (0, 1))
        one.append_samples(rows[:50])
        one.sample_batch(5)
        assert_goes_on_alike(one, other, rows[50:])


def test_the_rows_stay_as_they_were_and_a_deep_copy_shares_the_functions() -> None:
    rows = with_goals(make_run(1, 2, 40))
    replay = goal_replay(rows, 40, Hindsight(compute_reward=reward_of))
    replay.append_samples(rows)
    replay.sample_batch(200)
    np.testing.assert_array_equal(replay.storage.rows.reward, rows.reward)
    assert (replay.storage.field("desired_goal", np.arange(40), np.zeros(40, int)) == SET).all()
    other = copy.deepcopy(replay)
    assert isinstance(replay.reading, HindsightTransitions)
    assert copy.deepcopy(replay.reading).hindsight is replay.reading.hindsight
    assert_same_batches(other.sample_batch(20), replay.sample_batch(20))


def scalar(achieved: Any, desired: Any, info: Any) -> Any:
    return -np.linalg.norm(achieved - desired)


def raises(achieved: Any, desired: Any, info: Any) -> Any:
    return float((achieved == desired)[:, 0])


GOAL = np.zeros(1, np.float32)
FITTING = GoalObservation(GOAL, GOAL, GOAL)


@pytest.mark.parametrize(
    ("given", "observation", "error", "text"),
    [
        (dict(strategy="last"), None, ValueError, "'last'; expected one of future, final, episode"),
        (dict(n_goals=0), None, ValueError, "n_goals is 0; expected a number above 0"),
        (dict(compute_reward=3), None, TypeError, "compute_reward is 3; expected a function"),
        (dict(), FITTING, TypeError, "no compute_reward, and the environment has no method"),
        (dict(), GOAL, TypeError, "is no dictionary; expected one with achieved_goal and desired_goal"),
        (dict(), namedarraytuple("O", ["goal"])(GOAL), TypeError, "is a dictionary of goal; expected one with"),
        (dict(), FITTING._replace(desired_goal=np.zeros(2)), ValueError, r"shape \[1\] and desired_goal \[2\]"),
        (dict(compute_reward=scalar), FITTING, ValueError, "expected 3 numbers, one for each. Give Hindsight"),
        (dict(compute_reward=raises), FITTING, ValueError, "raised TypeError: .*Give Hindsight"),
        (
            dict(compute_reward=reward_of, compute_terminated=lambda a, d, info: bool((a == d).all())),
            FITTING,
            ValueError,
            "compute_terminated was called with 3 .* returned .*True",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(given: Any, observation: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        Hindsight(**given).fitting(observation)


def test_a_termination_that_does_not_depend_on_goals_stays_as_it_was() -> None:
    hindsight = Hindsight(compute_reward=reward_of, compute_terminated=lambda a, d, info: False)
    assert hindsight.fitting(FITTING).compute_terminated is None


def test_a_function_that_gives_another_number_later_is_refused() -> None:
    rows = with_goals(make_run(1, 2, 40))
    replay = goal_replay(rows, 40, Hindsight(compute_reward=lambda a, d, info: np.zeros(3)))
    replay.append_samples(rows)
    with pytest.raises(ValueError, match=r"returned an array of shape \[3\]; expected \["):
        replay.sample_batch(100)
