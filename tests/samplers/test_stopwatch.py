"""Where the time of collecting went, and the torch threads that collect."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.samplers.collector import ACTIVITIES, Stopwatch, mean_of
from rlpyt.utils.seeds import Role, stream_seed
from tests.samplers.sampler_kit import EACH, ONE_OF_EACH, TWO_OF_EACH, counting_agent, running, with_either
from tests.toy_envs import CountingEnv, CountingModel

SEED = 7
COLUMNS = ["EnvironmentsTime", "NetworkTime", "WaitingTime", "CopyingTime"]
N_PROCESSES = {"serial": 1, "halves": 1, "cpu2": 2, "gpu2": 3, "alternating2": 3, "no_overlap2": 3}
STEP, FORWARD = 0.005, 0.01
TIMED: dict[str, Any] = {"time_breakdown": True, "start_method": "forkserver"}


class SleepingEnv(CountingEnv):
    """Sleeps in the steps of some environments of training, which are those with these numbers."""

    def __init__(self, seconds: float, numbers: Sequence[int]) -> None:
        super().__init__()
        self.seconds, self.numbers = seconds, numbers

    def step(self, action: Any) -> Any:
        if self.number in self.numbers:
            time.sleep(self.seconds)
        return super().step(action)


class SleepingModel(CountingModel):
    def forward(self, *args: Any) -> tuple[Any, ...]:
        time.sleep(FORWARD)
        return super().forward(*args)


def sleeping(seconds: float, *ranks: int) -> dict[str, Any]:
    """Return sampler options with environments of which some sleep; those of the check at the start are others."""
    numbers = tuple(stream_seed(SEED, Role.ENV, rank) % 1024 for rank in ranks)
    return dict(EnvCls=SleepingEnv, seed=SEED, env_kwargs={"seconds": seconds, "numbers": numbers}, **TIMED)


def measure(sampler: Any, n: int, slow: Sequence[int] = ()) -> tuple[dict[str, float], int]:
    """Return the columns of some batches, and how many steps slow environments took in them.

    A first batch is left out. Nothing is counted twice or for nothing: the columns are never more than the time that
    it took. So a lower bound for a column, which a sleep gives however busy the machine is, says where the time went.
    """
    sampler.obtain_samples(0)
    sampler.diagnostics()
    start = time.perf_counter()
    steps = sum(int(sampler.obtain_samples(itr + 1)[0].env.valid[:, slow].sum()) for itr in range(n))
    seconds = time.perf_counter() - start
    times = dict(sampler.diagnostics())
    assert list(times) == COLUMNS
    assert all(type(value) is float and value >= 0 for value in times.values())
    assert 0.7 * seconds - 0.01 < sum(times.values()) <= seconds + 1e-3
    return times, steps


# ---- by hand ----


def test_laps_are_counted_for_what_was_done(monkeypatch):
    now = iter([0.0, 10.0, 11.0, 13.0, 20.0, 24.0])
    monkeypatch.setattr("rlpyt.samplers.collector.perf_counter", lambda: next(now))
    stopwatch = Stopwatch()
    stopwatch.start()
    stopwatch.lap("network")
    stopwatch.lap("environments")
    stopwatch.start()
    stopwatch.lap("network")
    assert stopwatch.take() == {"environments": 2.0, "network": 5.0, "waiting": 0.0, "copying": 0.0}
    assert stopwatch.take() == dict.fromkeys(ACTIVITIES, 0.0)


def test_the_mean_over_processes_adds_up_to_the_whole():
    one = {"environments": 4.0, "network": 2.0, "waiting": 0.0, "copying": 0.0}
    other = {"environments": 2.0, "network": 2.0, "waiting": 0.0, "copying": 1.0}
    assert mean_of([one, other], 7.0) == {"environments": 3.0, "network": 2.0, "waiting": 1.5, "copying": 0.5}


# ---- through the samplers ----


@pytest.mark.parametrize("kind", ["serial", "cpu2", "gpu2"])
def test_nothing_is_reported_unless_asked_nor_of_an_evaluation(kind):
    evaluation: dict[str, Any] = dict(eval_n_envs=2, eval_max_trajectories=4)
    for timed, expected in ((False, {}), (True, dict.fromkeys(COLUMNS, 0.0))):
        with running(kind, counting_agent(), time_breakdown=timed, **evaluation) as sampler:
            assert dict(sampler.diagnostics()) == expected
            sampler.obtain_samples(0)
            sampler.diagnostics()
            assert sampler.evaluate_agent(0).steps > 6
            assert dict(sampler.diagnostics()) == expected


@pytest.mark.parametrize(("kind", "mid_batch_reset"), with_either(ONE_OF_EACH, True, False))
def test_slow_environments_show_and_what_is_reported_is_new(kind, mid_batch_reset):
    options = sleeping(2 * STEP, 0, 1)
    with running(kind, counting_agent(), T=4, B=2, mid_batch_reset=mid_batch_reset, **options) as sampler:
        times, steps = measure(sampler, 2, slow=[0, 1])
        assert times["EnvironmentsTime"] >= 2 * STEP * steps / N_PROCESSES[kind]
        assert N_PROCESSES[kind] > 1 or times["WaitingTime"] == 0
        start = time.perf_counter()
        sampler.obtain_samples(9)
        seconds = time.perf_counter() - start
        again = dict(sampler.diagnostics())
        assert sum(again.values()) <= seconds + 1e-3, "what was reported is reported again"


@pytest.mark.parametrize("kind", EACH)
def test_a_slow_network_shows(kind):
    T, n = 4, 2
    agent = CategoricalPgAgent(ModelCls=SleepingModel)
    with running(kind, agent, T=T, B=2, bootstrap_value=True, **TIMED) as sampler:
        times, _ = measure(sampler, n)
    # One for each row in each process, or half, that acts, and one for the bootstrap value.
    n_passes = (T + 1) * n * (1 if kind in ("serial", "gpu2") else 2)
    assert times["NetworkTime"] >= FORWARD * n_passes / N_PROCESSES[kind]


# ---- threads ----


class ThreadsModel(CountingModel):
    """Notes the torch threads in the value; may break."""

    breaks = False

    def forward(self, *args: Any) -> tuple[Any, ...]:
        logits, value, *state = super().forward(*args)
        if self.breaks:
            raise ZeroDivisionError("the model broke")
        return logits, torch.full_like(value, torch.get_num_threads()), *state


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(
    ("kind", "asked"), [("serial", 1), *with_either(TWO_OF_EACH, None, 2), ("cpu2", None), ("gpu2", 2)]
)
def test_a_forward_pass_has_the_threads_that_were_asked_for(kind, asked):
    agent = CategoricalPgAgent(ModelCls=ThreadsModel)
    options: dict[str, Any] = dict(acting_threads=asked, eval_n_envs=2, eval_max_trajectories=2, bootstrap_value=True)
    options["start_method"] = "forkserver"
    if asked is None:
        expected = {"serial": 3, "gpu2": 3}.get(kind, 1)  # the run's; one where environments step beside the network
    else:
        expected = 1 if kind == "cpu2" else asked  # its workers have one core each
    with running(kind, agent, T=2, B=2, **options) as sampler:
        samples, _ = sampler.obtain_samples(0)
        assert samples.agent.agent_info.value.unique().tolist() == [expected]
        assert samples.agent.bootstrap_value.unique().tolist() == [expected]
        assert torch.get_num_threads() == 3
        sampler.evaluate_agent(0)
        assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("kind", ["serial", "halves", "gpu2", "alternating2"])
def test_threads_are_given_back_after_an_error(kind):
    agent: Any = CategoricalPgAgent(ModelCls=ThreadsModel)
    with running(kind, agent, T=2, B=2, acting_threads=2, eval_n_envs=2, eval_max_trajectories=2) as sampler:
        agent.model.breaks = True
        for work in (sampler.obtain_samples, sampler.evaluate_agent):
            with pytest.raises(ZeroDivisionError, match="the model broke"):
                work(0)
            assert torch.get_num_threads() == 3
