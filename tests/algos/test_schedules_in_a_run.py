"""How often a run updates, on what and by which numbers: settings, schedules, and values that are set in the run."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, DqnAgent, R2d1Agent, Td3Agent
from rlpyt.algos import DQN, PPO, R2D1, TD3
from rlpyt.algos.replay_feed import ReplayFeed
from rlpyt.core import rows_consumed, rows_per_update
from rlpyt.functional import Piecewise
from tests.algos.small_problems import RandomEnv, build, learn_from, optimize, set_up

STEPS = 32  # of an iteration: 8 time steps of 4 environments
REPLAY: dict[str, Any] = dict(min_steps_learn=2 * STEPS, replay_size=600, batch_size=8)
SMALL: dict[str, Any] = dict(hidden_sizes=8)
BOX: dict[str, Any] = dict(action_space=spaces.Box(-1, 1, (2,)))


def at(*values: float) -> Piecewise:
    """Return a schedule whose first value holds until iteration 2, and each other one for one iteration."""
    return Piecewise([0, *(STEPS * (2 + i) for i in range(1, len(values)))], values, interpolation="step")


def counts(algo: Any, agent: Any, n_itr: int, env_kwargs: Any = None) -> list[int]:
    """Return the updates of each iteration."""
    sampler = set_up(algo, agent, RandomEnv, env_kwargs)
    made = []
    for itr in range(n_itr):
        before = algo.update_counter
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
        made.append(algo.update_counter - before)
    return made


def q_agent(**kwargs: Any) -> DqnAgent:
    return DqnAgent(model_kwargs=SMALL, **kwargs)


# ---- number of updates ----


def test_the_replay_ratio_is_rounded_to_whole_updates_in_each_iteration() -> None:
    # 32 rows an iteration over 8 rows an update: 4 updates at ratio 1, and 1.6, 0.4 and 2.4 are rounded.
    algo = DQN(**REPLAY, replay_ratio=at(1.0, 1.0, 0.4, 0.1, 0.6))
    assert counts(algo, q_agent(), 7) == [0, 4, 4, 4, 2, 0, 2]


@pytest.mark.parametrize(("replay_ratio", "batch_size", "updates"), [(8, 32, 8), (4, 16, 8), (0.5, 8, 2), (2, 24, 3)])
def test_the_replay_ratio_is_rows_consumed_by_rows_collected(replay_ratio: Any, batch_size: int, updates: int) -> None:
    algo = DQN(**{**REPLAY, "min_steps_learn": 5 * STEPS, "batch_size": batch_size}, replay_ratio=replay_ratio)
    assert counts(algo, q_agent(), 8) == [0] * 4 + [updates] * 4
    assert algo.plan()["updates an iteration"] == updates
    assert updates == 3 or updates * batch_size / STEPS == replay_ratio


@pytest.mark.parametrize(("steps", "first"), [(0, 1), (STEPS, 1), (STEPS + 1, 2), (5.5 * STEPS, 6), (7 * STEPS, 7)])
def test_the_first_update_waits_for_so_many_steps(steps: float, first: int) -> None:
    algo = DQN(**{**REPLAY, "min_steps_learn": steps}, replay_ratio=2)
    assert [n > 0 for n in counts(algo, q_agent(), 7)] == [itr + 1 >= first for itr in range(7)]
    assert algo.plan()["first update at step"] == first * STEPS >= steps


def test_a_replay_ratio_without_an_update_in_the_whole_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"replay_ratio 0.091 are 2.912 rows to consume, which is no update"):
        set_up(DQN(**REPLAY, replay_ratio="lin_0.1_0.01"), q_agent(), RandomEnv)
    set_up(DQN(**REPLAY, replay_ratio="lin_0.01_1"), q_agent(), RandomEnv)


def test_epochs_are_rounded_and_one_at_least() -> None:
    algo = PPO(minibatches=2, epochs=Piecewise([0, STEPS, 2 * STEPS, 3 * STEPS], [3, 1.6, 1.4, 0.2], "step"))
    assert counts(algo, CategoricalPgAgent(model_kwargs=SMALL), 5) == [6, 4, 2, 2, 2]
    assert algo.plan()["updates an iteration"] == 6


# ---- size of an update ----


def shapes_of(algo: Any, agent: Any) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return the shapes of the batches in a run of 6 iterations, and the updates of each iteration."""
    shapes, given = list[tuple[int, ...]](), algo.update

    def update(batch: Any, hyper: Any) -> Any:
        shapes.append(tuple(batch.return_.shape))
        return given(batch, hyper)

    algo.update = update
    return shapes, counts(algo, agent, 6, dict(p_end=0.0))


def test_the_batch_size_follows_a_schedule() -> None:
    algo = DQN(**{**REPLAY, "batch_size": at(8, 8, 16, 31.6, 0.2)}, replay_ratio=1)
    shapes, made = shapes_of(algo, q_agent())
    # the replay ratio counts rows, so that larger batches are fewer
    assert made == [0, 4, 4, 4, 2, 1]
    assert shapes == [(8,)] * 12 + [(16,)] * 2 + [(32,)]
    assert rows_consumed(algo) == 12 * 8 + 2 * 16 + 32 == 5 * STEPS
    assert rows_per_update(algo) == 32
    assert algo.plan()["rows an update"] == "8 at first, 1 at the end"
    assert algo.optimizer.defaults["eps"] == 0.01 / 8


def test_the_number_of_sequences_follows_a_schedule() -> None:
    sequences: dict[str, Any] = dict(batch_T=4, warmup_T=4, store_rnn_state_interval=4, n_step_return=1)
    algo = DQN(**REPLAY, **sequences, replay_ratio=1, batch_B=at(4, 4, 1, 2))
    shapes, made = shapes_of(algo, R2d1Agent(model_kwargs=dict(**SMALL, rnn_size=4)))
    assert made == [0, 1, 1, 1, 4, 2]
    assert shapes == [(4, 4)] * 3 + [(4, 1)] * 4 + [(4, 2)] * 2
    assert rows_consumed(algo) == 5 * STEPS
    assert algo.plan()["rows an update"] == "32 at first, 16 at the end"


@pytest.mark.parametrize("prefetch", [False, True])
def test_batches_are_those_of_runs_with_that_size(prefetch: bool) -> None:
    def losses(batch_size: Any) -> Any:
        torch.manual_seed(0)
        algo = DQN(**{**REPLAY, "batch_size": batch_size}, prefetch=prefetch, replay_ratio=1)
        sampler = set_up(algo, DqnAgent(model_kwargs=SMALL, eps_final=1.0), RandomEnv)
        return [optimize(algo, itr, sampler.obtain_samples(itr)[0]).get("loss") for itr in range(4)]

    one, other = losses(8), losses(at(8, 8, 16))
    assert torch.equal(one[2], other[2])
    assert not torch.equal(one[3][:2], other[3])


# ---- intervals ----


def due(algo: Any, agent: Any, n_itr: int, env_kwargs: Any = None) -> dict[str, list[int]]:
    """Return after which updates the targets moved and, of an algorithm that has one, the policy was updated."""
    found: dict[str, list[int]] = {"target": [], "policy": []}
    given = ReplayFeed.is_due

    def is_due(feed: ReplayFeed, what: str, interval: float, n_updates: int) -> bool:
        answer = given(feed, what, interval, n_updates)
        if answer:
            found[what].append(n_updates)
        return answer

    with patch.object(ReplayFeed, "is_due", is_due):
        counts(algo, agent, n_itr, env_kwargs)
    return found


def test_the_intervals_of_target_and_policy_follow_their_schedules() -> None:
    # 4 updates an iteration, from the second on; an interval of 3, then of 5, of 1.4 and of 0
    algo: Any = DQN(**REPLAY, replay_ratio=1, target_update_interval=at(3, 3, 5, 1.4, 0))
    assert due(algo, q_agent(), 7)["target"] == [3, 6, 9, 12, *range(17, 25)]
    algo = TD3(**REPLAY, replay_ratio=1, target_update_interval=7, policy_update_interval="const_2")
    found = due(algo, build(Td3Agent, model_kwargs=SMALL, q_model_kwargs=SMALL), 5, BOX)
    assert found == {"target": [7, 14], "policy": list(range(2, 17, 2))}


def test_a_checkpoint_of_an_earlier_version_goes_on_with_the_same_updates() -> None:
    algo = DQN(**REPLAY, replay_ratio=1, target_update_interval=3)
    counts(algo, q_agent(), 3)
    assert algo.update_counter == 8
    state = algo.state_dict()
    del state["last_done"], state["rows_consumed"]
    other = DQN(**REPLAY, replay_ratio=1, target_update_interval=3)
    set_up(other, q_agent(), RandomEnv)
    other.load_state_dict(state)
    assert rows_consumed(other) == rows_consumed(algo) == 64
    for one in (algo, other):
        assert one.feed.is_due("target", 3, one.update_counter + 1)


# ---- numbers in the updates ----


LINE: dict[str, Any] = dict(pri_beta_init=0.2, pri_beta_final=0.6, pri_beta_steps=4 * STEPS)


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        (dict(pri_alpha=at(0.9, 0.8, 0.3)), "alpha", [0.9, 0.9, 0.9, 0.8, 0.3]),
        (dict(pri_beta=at(0.9, 0.8, 0.3)), "beta", [0.9, 0.9, 0.9, 0.8, 0.3]),
        (dict(pri_eta=at(0.9, 0.8, 0.3)), "eta", [0.9, 0.9, 0.9, 0.8, 0.3]),
        (dict(discount=at(0.9, 0.8, 0.3)), "discount", [0.9, 0.9, 0.9, 0.8, 0.3]),
        (LINE, "beta", [0.2, 0.3, 0.4, 0.5, 0.6]),
        (dict(LINE, pri_beta=0.7), "beta", [0.7] * 5),
    ],
)
def test_numbers_of_the_replay_follow_their_schedules(settings: Any, name: str, expected: list[float]) -> None:
    """The same to append, which computes the priorities of new rows, and to learn."""
    algo = DQN(**REPLAY, replay_ratio=0.25, prioritized_replay=True, **settings)
    sampler = set_up(algo, q_agent(), RandomEnv)
    replay: Any = algo.replay
    seen: list[float] = []

    def watched(call: Any) -> Any:
        def watching(*args: Any) -> Any:
            seen.append(getattr(replay.index if name in ("alpha", "beta") else replay, name))
            return call(*args)

        return watching

    replay.append_samples, replay.sample_batch = map(watched, (replay.append_samples, replay.sample_batch))
    learn_from(algo, sampler, 5)
    assert seen == pytest.approx([expected[0], *(x for x in expected[1:] for _ in range(2))])


def test_a_script_learns_without_a_new_batch_by_the_settings_of_now() -> None:
    """From the replay of another algorithm too, which has a discount of its own."""
    settings: dict[str, Any] = dict(**REPLAY, replay_ratio=0.25, prioritized_replay=True, pri_beta="lin_0_1")
    algos = [DQN(**settings, discount=discount) for discount in (0.9, 0.7)]
    samplers = [set_up(algo, q_agent(), RandomEnv) for algo in algos]
    first, second = algos
    for itr in range(4):
        optimize(first, itr, samplers[0].obtain_samples(itr)[0])
    replay: Any = first.replay
    second.replay = replay
    for algo, itr, discount in ((second, 4, 0.7), (first, 5, 0.9), (first, 6, 0.5)):
        algo.discount = discount
        algo.learn(itr)
        assert (replay.discount, replay.index.beta) == (discount, algo.hyper(itr * STEPS).pri_beta)


def test_the_priority_of_a_sequence_follows_pri_eta() -> None:
    algo = R2D1(
        batch_T=4, batch_B=2, warmup_T=0, store_rnn_state_interval=4, min_steps_learn=2 * STEPS, replay_size=600,
        n_step_return=1, replay_ratio=0.25, pri_eta="lin_1_0",
    )  # fmt: skip
    sampler = set_up(algo, R2d1Agent(model_kwargs=dict(**SMALL, rnn_size=4)), RandomEnv, dict(p_end=0.0))
    learn_from(algo, sampler, 3)
    batch = algo.feed.sample_batch()
    errors = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 0.0], [0.0, 8.0]])
    found = [
        algo.feed.update_priorities(batch, errors, algo.hyper(step)).tolist() for step in (0, 5 * STEPS, 10 * STEPS)
    ]
    assert found == [pytest.approx(x) for x in ([3.0, 8.0], [2.0, 5.0], [1.0, 2.0])]


EPSILONS: list[tuple[dict[str, Any], dict[str, Any], list[float]]] = [
    (dict(eps_schedule=at(0.25, 0.5, 1.0)), dict(eps_init=1.0, eps_final=0.0), [0.75, 0.75, 0.75, 0.5, 0.0]),
    ({}, dict(eps_train=lambda step: 0.25 if step % (2 * STEPS) else 0.75), [0.75, 0.25, 0.75, 0.25, 0.75]),
]


@pytest.mark.parametrize(("settings", "of_agent", "expected"), EPSILONS)
def test_exploration_follows_a_schedule_of_its_own(settings: Any, of_agent: Any, expected: list[float]) -> None:
    algo, agent = DQN(**REPLAY, **settings), q_agent(**of_agent)
    sampler = set_up(algo, agent, RandomEnv)
    seen, logged = [], []
    for itr in range(5):
        sampler.obtain_samples(itr)
        seen.append(agent.epsilon().item())
        logged.append(algo.row_numbers(itr)["Epsilon"])
        agent.train_mode(itr)
    assert seen == logged == expected
    plan: dict[str, Any] = algo.plan()
    assert "eps_steps" not in plan
    assert not any("eps_steps" in warning for warning in plan["warnings"])
