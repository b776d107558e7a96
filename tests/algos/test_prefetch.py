"""Batches that a thread draws ahead: the same numbers, in the same order, and no thread that is left."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN, RandomShift
from rlpyt.algos.replay_feed import ReplayFeed
from rlpyt.logging import current_logger
from rlpyt.logging.context import silent_context
from rlpyt.replays import ReplayBuffer, UniformIndex
from rlpyt.types import Run
from rlpyt.utils.arrays import buffer_leaves
from tests.algos.small_problems import (
    RandomEnv,
    Spot,
    batches,
    check_parameters,
    optimize,
    parameters64,
    set_up,
)
from tests.algos.test_algo_state import CASES, SMALL, learn, started
from tests.pairs import others_nightly
from tests.replica_kit import run_replicas

UNIFORM = ("DQN", "DQN n-step soft", "IQN", "IQN GRU", "DDPG", "SAC", "SAC LSTM", "DroQ")
PRIORITISED = ("DQN input priorities", "Rainbow", "QRDQN", "R2D1", "TD3")
KWARGS: dict[str, Any] = dict(batch_size=8, replay_size=600, replay_ratio=1, min_steps_learn=64)
N = 6


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def learned(algo: Any, agent: Any, *env: Any) -> tuple[Any, Any, list[Any]]:
    """Return algorithm, agent and the metrics of some iterations of several updates."""
    sampler = set_up(algo, agent, *env, n_itr=N) if env else started(algo, agent, n_itr=N)
    metrics = learn(algo, batches(sampler, N), range(N))
    assert algo.update_counter > 2 * (N - algo.min_itr_learn - 1)
    return algo, agent, metrics


def assert_same(one: tuple[Any, Any, list[Any]], other: tuple[Any, Any, list[Any]]) -> None:
    """Compare to the bit: metrics, weights, and what decides all that comes."""
    torch.testing.assert_close(one[2], other[2], rtol=0, atol=0)
    check_parameters(other[1], parameters64(one[1]), rtol=0, atol=0)
    assert str(one[0].replay.state_dict()["index"]) == str(other[0].replay.state_dict()["index"])
    assert torch.equal(one[0].generator.get_state(), other[0].generator.get_state())


def made(case: str, **changes: Any) -> tuple[Any, Any]:
    algo, agent = CASES[case]()
    return algo.replace(**changes), agent


@pytest.mark.parametrize(
    "case", [*others_nightly(UNIFORM, ("DQN n-step soft", "IQN GRU", "SAC", "DroQ")), *PRIORITISED]
)
def test_batches_drawn_ahead_are_those_drawn_in_time(case):
    """Priorities that are not to be late are waited for."""
    expected = learned(*made(case))
    assert not expected[0].feed.draws.may_be_ahead
    drawn = learned(*made(case, prefetch=True))
    assert drawn[0].feed.draws.may_be_ahead == (case in UNIFORM)
    assert_same(expected, drawn)


def test_augmentation_stays_in_the_learners_thread():
    threads = set()

    class Watched(RandomShift):
        def __call__(self, observation: Any, n_leading: int, generator: Any) -> Any:
            threads.add(threading.current_thread())
            return super().__call__(observation, n_leading, generator)

    convolutions = dict(channels=(2,), kernel_sizes=(4,), strides=(4,), paddings=(0,), fc_sizes=8)
    one, other = (
        learned(DQN(**KWARGS, augment=Watched(3), prefetch=prefetch), DqnAgent(model_kwargs=convolutions), Spot)
        for prefetch in (False, True)
    )
    assert_same(one, other)
    assert threads == {threading.main_thread()}


class NotingReplay(ReplayBuffer):
    """Replay that notes its calls and their threads; `fail` is the name of one that fails, and its number."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[str] = []
        self.threads: list[threading.Thread] = []
        self.torch_threads: list[int] = []
        self.fail: tuple[str, int] = "", 0
        self.second_draw = threading.Event()

    def sample_batch(self, batch_size: int) -> Any:
        self.note("draw")
        return super().sample_batch(batch_size)

    def update_priorities(self, places: Any, priorities: torch.Tensor) -> None:
        self.note("set")
        super().update_priorities(places, priorities)

    def note(self, what: str) -> None:
        self.calls.append(what)
        self.threads.append(threading.current_thread())
        self.torch_threads.append(torch.get_num_threads())
        if self.calls.count("draw") == 2:
            self.second_draw.set()
        if self.fail == (what, self.calls.count(what)):
            raise OSError(f"{what} failed")


def noting(**settings: Any) -> tuple[Any, Any]:
    """Return an algorithm with four updates an iteration, in its first one with updates, and the batch for it."""
    algo, agent = DQN(**KWARGS, ReplayCls=NotingReplay, prefetch=True, **settings), DqnAgent(model_kwargs=SMALL)
    collected = batches(set_up(algo, agent, RandomEnv), 3)
    algo.append(0, collected[0])
    return algo, collected[1]


LATE: dict[str, Any] = dict(prioritized_replay=True, late_priorities=True)


@pytest.mark.parametrize("case", ["Rainbow", "R2D1"])
def test_late_priorities_are_one_update_old_whichever_thread_is_faster(case):
    algo, samples = noting(**LATE)
    optimize(algo, 1, samples)
    assert algo.replay.calls == ["draw", "draw", "set", "draw", "set", "draw", "set", "set"]
    assert threading.main_thread() not in algo.replay.threads
    assert len(set(algo.replay.threads)) == 1
    one, other = (learned(*made(case, prefetch=True, late_priorities=True)) for _ in range(2))
    assert one[0].feed.draws.may_be_ahead
    assert_same(one, other)
    assert not torch.equal(one[2][-1]["loss"], learned(*made(case))[2][-1]["loss"])


def test_the_next_batch_is_drawn_while_an_update_computes():
    algo, samples = noting()
    update = algo.update

    def waiting(batch: Any, hyper: Any) -> Any:
        assert algo.replay.second_draw.wait(60)
        return update(batch, hyper)

    algo.update = waiting
    optimize(algo, 1, samples)
    assert algo.replay.calls == ["draw"] * 4


def torch_threads_of_both() -> tuple[int, int]:
    """Return the number of torch threads of this thread, and of a new one."""
    of_new_thread: list[int] = []
    thread = threading.Thread(target=lambda: of_new_thread.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return torch.get_num_threads(), of_new_thread[0]


def test_the_thread_has_one_thread_of_torch_and_the_others_keep_theirs(monkeypatch):
    shutdown = ThreadPoolExecutor.shutdown

    def interrupted(pool: ThreadPoolExecutor, **kwargs: Any) -> None:
        shutdown(pool, **kwargs)
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        algo, samples = noting()
        optimize(algo, 1, samples)
        assert set(algo.replay.torch_threads) == {1}
        assert torch_threads_of_both() == (2, 2)
        monkeypatch.setattr(ThreadPoolExecutor, "shutdown", interrupted)
        with pytest.raises(KeyboardInterrupt):
            optimize(algo, 2, samples)
        assert torch_threads_of_both() == (2, 2)
    finally:
        torch.set_num_threads(before)


# ---- errors ----


@pytest.mark.parametrize(("what", "number"), [("draw", 1), ("draw", 3), ("draw", 4), ("set", 1), ("set", 4)])
def test_what_fails_in_the_thread_fails_in_the_learner(what, number):
    algo, samples = noting(**LATE)
    algo.replay.fail = what, number
    with pytest.raises(OSError, match=f"{what} failed") as caught:
        optimize(algo, 1, samples)
    assert "in note" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert algo.replay.calls.count(what) >= number
    assert algo.replay.calls.count("draw") < number + 3  # soon, not at the end of the iteration
    algo.replay.fail = "", 0
    optimize(algo, 2, samples)


def test_an_update_that_fails_ends_the_thread():
    algo, samples = noting()
    update = algo.update

    def failing(batch: Any, hyper: Any) -> Any:
        assert algo.replay.second_draw.wait(60)
        raise ArithmeticError("no update")

    algo.update = failing
    with pytest.raises(ArithmeticError, match="no update"):
        optimize(algo, 1, samples)
    assert algo.replay.calls == ["draw", "draw"]
    algo.update = update
    algo.feed.sample_batch()  # outside of an iteration: drawn here
    assert algo.replay.threads[-1] is threading.main_thread()


# ---- replicas ----


@pytest.mark.parametrize(("case", "late"), [("SAC LSTM", {}), ("Rainbow", dict(late_priorities=True))])
def test_replicas_weigh_their_draws_together_in_the_learners_threads(case, late):
    def learned_by_two(prefetch: bool) -> list[tuple[Any, Any, list[Any]]]:
        parts = []
        for rank in range(2):
            ahead = dict(prefetch=True, **late) if prefetch else {}
            algo, agent = made(case, min_steps_learn=128, **ahead)
            parts.append((algo, agent, batches(started(algo, agent, n_itr=N, seed=rank), N)))
            agent.load_state_dict(parts[0][1].state_dict())

        def work(replicas: Any) -> tuple[Any, Any, list[Any]]:
            algo, agent, collected = parts[replicas.rank]
            run = Run(batch_spec=algo.batch_spec, n_itr=N, seed=0, example=collected[0][0, 0], replicas=replicas)
            algo.initialize(agent, run)
            return algo, agent, learn(algo, collected, range(N))

        return run_replicas(2, work)

    plain, ahead, again = map(learned_by_two, (False, True, True))
    for one, other in zip(ahead, again if late else plain, strict=True):
        assert one[0].feed.draws.may_be_ahead
        assert_same(one, other)


# ---- parts of one's own, copies, settings ----


class HalvedFeed(ReplayFeed):
    """Gives each batch to two updates."""

    def sample_batch(self) -> Any:
        self.kept = vars(self).get("kept", ()) or (super().sample_batch(),)
        batch, self.kept = self.kept[0], () if self.algo.update_counter % 2 else self.kept
        return batch


class Halved(DQN):
    def initialize(self, agent: Any, run: Any) -> None:
        super().initialize(agent, run)
        self.feed = HalvedFeed(self, run)


def test_an_algorithm_that_takes_fewer_batches_is_refused():
    learned(Halved(**KWARGS), DqnAgent(model_kwargs=SMALL), RandomEnv)
    with pytest.raises(RuntimeError, match=r"4 updates took 2 batches, and one more .*; expected a batch or more"):
        learned(Halved(**KWARGS, prefetch=True), DqnAgent(model_kwargs=SMALL), RandomEnv)


def test_an_algorithm_can_be_copied_between_iterations_and_not_in_an_update():
    algo, samples = noting()
    update = algo.update

    def copying(batch: Any, hyper: Any) -> Any:
        for copy in (deepcopy, cloudpickle.dumps):
            with pytest.raises(TypeError, match=r"an update is under way, .*; expected a copy between two iterations"):
                copy(algo)
        return update(batch, hyper)

    algo.update = copying
    optimize(algo, 1, samples)
    del algo.update
    algo, _, _ = learned(*made("DQN", prefetch=True))
    drawn = [buffer_leaves(copy.feed.sample_batch()) for copy in (deepcopy(algo), algo)]
    assert all(map(torch.equal, *drawn))


def test_the_thread_has_the_learners_logger_and_floating_point_errors():
    class Watched(UniformIndex):
        def draw_places(self, size: int) -> Any:
            seen.append((threading.current_thread(), current_logger(), np.geterr()["over"]))
            return super().draw_places(size)

    seen: list[Any] = []
    with silent_context() as logger, np.errstate(over="raise"):
        learned(DQN(**KWARGS, IndexCls=Watched, prefetch=True), DqnAgent(model_kwargs=SMALL), RandomEnv)
    assert threading.main_thread() not in {thread for thread, *_ in seen}
    assert {(was, over) for _, was, over in seen} == {(logger, "raise")}
