"""A sampler that is saved and loaded goes on to the same rows; one that is shut down can start again."""

from __future__ import annotations

import threading
from copy import copy, deepcopy
from typing import Any, ClassVar

import cloudpickle
import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

from rlpyt.envs import AtariEnv, EnvError
from rlpyt.logging import load_snapshot, save_snapshot
from rlpyt.samplers import CpuSampler, workers
from rlpyt.samplers.base import work_of
from rlpyt.samplers.workers import worker_cpus
from rlpyt.types import Run
from rlpyt.utils import processes
from rlpyt.utils.processes import WorkerError, available_cpus
from tests.samplers.sampler_kit import (
    EACH,
    TWO_OF_EACH,
    assert_equal_batches,
    collect,
    counting_agent,
    random_agent,
    running,
    start_and_stop,
    with_either,
)
from tests.toy_envs import CountingEnv, DictCountingEnv, LifeEnv

OPTIONS: dict[str, Any] = dict(
    T=4, B=3, max_decorrelation_steps=3, bootstrap_value=True, traj_info_kwargs={"discount": 0.5}
)


WAIT: dict[str, Any] = {"mid_batch_reset": False}
SERVERS: dict[str, Any] = {"servers": 2, "B": 4}


@pytest.mark.parametrize(
    ("kind", "EnvCls", "options"),
    [
        *((kind, EnvCls, {}) for kind, EnvCls in with_either(TWO_OF_EACH, LifeEnv, CountingEnv)),
        *((kind, EnvCls, WAIT) for kind, EnvCls in with_either(("serial", "gpu2"), CountingEnv, LifeEnv)),
        *((kind, CountingEnv, {"n_batches": 3}) for kind in ("serial", "cpu2", "no_overlap2")),
        ("serial", DictCountingEnv, {}),
        ("alternating4", CountingEnv, SERVERS),
    ],
)
def test_a_loaded_sampler_goes_on_to_the_same_rows(kind, EnvCls, options, tmp_path):
    options = {**OPTIONS, **options}
    with running(kind, random_agent(True), EnvCls, **options) as sampler:
        batches = collect(sampler, 2)
        earlier = sampler.state_dict()
        batches += collect(sampler, 2, first=2)
        rests = [not samples.env.valid.all() for samples, _ in batches]
        assert any(rests), "nothing ends here, which makes the test one of nothing"
        # Through a file that holds plain data, as a checkpoint does.
        save_snapshot(tmp_path / "state.pkl", sampler.state_dict())
        expected = collect(sampler, 4, first=4)
    state = load_snapshot(tmp_path / "state.pkl")
    with running(kind, random_agent(True), EnvCls, **options) as sampler:
        sampler.load_state_dict(state)
        assert_equal_batches(collect(sampler, 4, first=4), expected)
        # And back again, from where it stands now, and to another place. Resets that are under way must not come in.
        sampler.load_state_dict(state)
        assert_equal_batches(collect(sampler, 4, first=4), expected)
        sampler.load_state_dict(earlier)
        assert_equal_batches(collect(sampler, 6, first=2)[2:], expected)


def test_atari_games_go_on_where_they_stood(tmp_path):
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    options: dict[str, Any] = {
        **OPTIONS,
        "T": 40,
        "B": 2,
        "env_kwargs": {"game": "breakout", "image_size": 10, "repeat_action_probability": 0.25},
    }
    with running("serial", random_agent(), AtariEnv, **options) as sampler:
        collect(sampler, 2)
        save_snapshot(tmp_path / "state.pkl", sampler.state_dict())
        expected = collect(sampler, 3, first=2)
    assert any(samples.env.terminated.any() for samples, _ in expected)
    with running("serial", random_agent(), AtariEnv, **options) as sampler:
        sampler.load_state_dict(load_snapshot(tmp_path / "state.pkl"))
        assert_equal_batches(collect(sampler, 3, first=2), expected)


@pytest.mark.parametrize("kind", ["serial", "cpu2", "gpu2"])
@pytest.mark.parametrize("copy_of", [copy, deepcopy, cloudpickle.dumps])
def test_a_sampler_is_copied_only_while_it_does_not_run(kind, copy_of):
    """A copy would return the same batch again and again: its environments step in other memory."""
    with running(kind, random_agent(), CountingEnv, **OPTIONS) as sampler:
        collect(sampler, 1)
        with pytest.raises(TypeError, match="it was to be copied or pickled while it runs; expected that before init"):
            copy_of(sampler)
        collect(sampler, 1, first=1)
    copy_of(sampler)
    assert not deepcopy(sampler.replace()).running


class Simulated(gymnasium.Env[Any, Any]):
    """Shows the time of a simulation that is elsewhere; all that it has itself is a number, which can be read.

    Args:
        where: "handle" of a library's memory, in which every environment has a place; "global", in which all share one;
            or "numpy", whose global generator is drawn from.
    """

    library: ClassVar[dict[int, float]] = {}
    opened: ClassVar[list[Any]] = []
    made = 0

    def __init__(self, where: str = "handle", at_most: int = 1000) -> None:
        self.observation_space = spaces.Box(-1000, 1000, (1,), np.float64)
        self.action_space = spaces.Discrete(2)
        if len(self.opened) >= at_most:
            raise OSError("the simulator is in use")
        self.opened.append(self)
        Simulated.made += 1
        self.where = where
        self.client = len(self.library) if where == "handle" else 0
        self.library[self.client] = 0.0
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.library[self.client] = 0.0
        self.t = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.library[self.client] += 1 + action
        self.t += 1
        return self.observe(), 1.0, False, self.t == 4, {}

    def close(self) -> None:
        self.opened.remove(self)
        if self.where == "handle":
            del self.library[self.client]

    def observe(self) -> Any:
        return np.array([np.random.random() if self.where == "numpy" else self.library[self.client]])


@pytest.fixture
def simulated():
    Simulated.library, Simulated.opened = {}, []
    return Simulated


@pytest.mark.parametrize(
    ("where", "kind"),
    [(where, "serial") for where in ("handle", "global", "numpy")] + [("handle", "cpu1"), ("handle", "gpu1")],
)
def test_half_of_a_state_is_no_state(where, kind, simulated):
    """It can be read, and would be loaded over a fresh simulation without a word."""
    options: dict[str, Any] = {"env_kwargs": {"where": where}, "B": 1, "T": 6}
    with running(kind, random_agent(), simulated, **options) as sampler:
        why = sampler.why_no_state()
        collect(sampler, 2)
        state = sampler.state_dict()
        sampler.load_state_dict(state)
        [(samples, _)] = collect(sampler, 1, first=2)
    assert (state["parts"][0]["state"]["envs"] == [{}]) == (why is not None)
    if where == "numpy":  # the generators of the process are in the state of the sampler
        assert why is None
        return
    assert "Simulated (rank 0) cannot be restored: its state was loaded into another one, as a trial, and" in str(why)
    assert not samples.env.valid[0].any()
    assert samples.env.observation[1].item() == 0
    assert simulated.opened == []


def test_a_state_that_an_earlier_version_has_saved_is_not_loaded_by_half(simulated):
    options: dict[str, Any] = {"B": 1, "T": 6}
    with running("serial", random_agent(), simulated, **options) as sampler:
        collect(sampler, 1)
        work: Any = work_of(sampler)
        work.collector.parts[0].envs.why_lost = None
        state = sampler.state_dict()
    assert state["parts"][0]["state"]["envs"] != [{}]
    with running("serial", random_agent(), simulated, **options) as sampler:
        sampler.load_state_dict(state)
        assert sampler.n_cut_episodes == 1


def test_an_environment_of_which_only_one_can_be_open_runs_without_a_state(simulated):
    with running("serial", random_agent(), simulated, B=1, env_kwargs={"at_most": 1}) as sampler:
        why = str(sampler.why_no_state())
        assert "a second one could not be made to try its state out: Making environment 0" in why
        collect(sampler, 2)


def test_the_trial_of_a_state_changes_nothing_and_is_made_where_states_are_saved(simulated):
    batches, n_made = [], []
    for saves_state in (True, False):
        simulated.made = 0
        options: dict[str, Any] = dict(env_kwargs={"where": "numpy"}, B=2, saves_state=saves_state)
        np.random.seed(3)
        with running("serial", random_agent(), simulated, **options) as sampler:
            batches.append(collect(sampler, 2))
        n_made.append(simulated.made)
    assert_equal_batches(batches[0], batches[1])
    assert n_made == [4, 3]  # one is checked, and another one tried


@pytest.mark.parametrize("kind", EACH)
def test_saving_changes_nothing(kind):
    batches: list[list[Any]] = [[], []]
    for saves, seen in enumerate(batches):
        with running(kind, random_agent(True), **OPTIONS) as sampler:
            for itr in range(4):
                _ = sampler.state_dict() if saves else None
                seen += collect(sampler, 1, first=itr)
    assert_equal_batches(batches[0], batches[1])


@pytest.mark.parametrize("kind", EACH)
def test_a_sampler_that_is_shut_down_says_so_and_can_be_initialised_again(kind):
    with running(kind, random_agent(), **OPTIONS) as sampler:
        first = collect(sampler, 2)
        sampler.shutdown()
        sampler.shutdown()
        for ask in (lambda: sampler.obtain_samples(1), lambda: sampler.evaluate_agent(1), sampler.state_dict):
            with pytest.raises(RuntimeError, match="initialize"):
                ask()
        run = Run(batch_spec=sampler.batch_spec, seed=7, bootstrap_value=True, traj_info_kwargs={"discount": 0.5})
        sampler.initialize(random_agent(), run)
        assert_equal_batches(collect(sampler, 2), first)
        before = sampler._workers
        sampler.initialize(random_agent(), run)  # it closes what it had
        assert before is None or not before.pool.workers
        assert_equal_batches(collect(sampler, 2), first)


class Closing(CountingEnv):
    """Notes in a class attribute (of one process) which environments are open; may break while being built."""

    opened: ClassVar[list[int]] = []
    closed: ClassVar[list[int]] = []

    def __init__(self, breaks_at: int | None = None, breaks_in_close: bool = False) -> None:
        super().__init__()
        self.index, self.breaks_in_close = len(self.opened), breaks_in_close
        if self.index == breaks_at:
            raise OSError("no more licences")
        self.opened.append(self.index)

    def close(self) -> None:
        self.closed.append(self.index)
        if self.breaks_in_close:
            raise OSError("the window is gone already")


@pytest.fixture
def closing():
    Closing.opened, Closing.closed = [], []
    return Closing


def test_serial_shutdown_closes_every_environment(closing):
    with running("serial", counting_agent(), closing, B=3, eval_n_envs=2, eval_max_trajectories=2) as sampler:
        sampler.obtain_samples(0)
        assert closing.closed == [0]  # which was only checked
    assert sorted(closing.closed) == closing.opened == [0, 1, 2, 3, 4, 5]


def test_environments_built_before_one_that_fails_are_closed(closing):
    with pytest.raises(EnvError, match="no more licences"):
        start_and_stop("serial", counting_agent(), closing, B=4, env_kwargs={"breaks_at": 2})
    assert closing.closed == closing.opened == [0, 1]


def test_an_error_in_close_keeps_no_other_environment_open(closing, capsys):
    start_and_stop("serial", counting_agent(), closing, B=3, env_kwargs={"breaks_in_close": True})
    assert "Closing (rank 2) was not closed: OSError: the window is gone" in capsys.readouterr().out
    assert sorted(closing.closed) == [0, 1, 2, 3]


# ---- what is refused ----


def test_an_unknown_start_method_is_refused():
    with pytest.raises(ValueError, match=r"start_method is 'thread'.*forkserver"):
        start_and_stop("cpu1", counting_agent(), start_method="thread")


@pytest.mark.parametrize("kind", EACH)
def test_an_info_that_no_step_gave_is_refused(kind):
    with pytest.raises((ValueError, WorkerError), match=r"'lives'.*'vector'"):
        start_and_stop(kind, counting_agent(), env_info_keys=["t", "lives"])


def test_arguments_that_cannot_be_sent_leave_no_worker_behind():
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(TypeError, match=r"Starting worker 0: .*cannot pickle.*lock.*plain arguments") as info:
        CpuSampler(CountingEnv, {"lengths": threading.Lock()}, batch_T=1, batch_B=2).initialize(counting_agent())
    assert info.value is not None  # its traceback keeps everything alive that the frames refer to
    assert {child.pid for child in psutil.Process().children()} <= before


# ---- where workers run ----


def test_workers_are_pinned_to_allowed_cores_only():
    sampler = CpuSampler(CountingEnv, {}, batch_T=1, batch_B=3)
    with pytest.warns(UserWarning, match=r"workers_cpus: this process may not run on the cores \[9999\]"):
        assert worker_cpus(sampler, {"workers_cpus": [0, [0, 9999], 9999]}) == [[0], [0], None]
    assert worker_cpus(sampler, {"workers_cpus": [0, 0], "set_affinity": False}) == [None, None]
    two = CpuSampler(CountingEnv, {}, batch_T=1, batch_B=3, n_workers=2)
    assert worker_cpus(two, {"workers_cpus": [0]}) == [[0], [0]]
    with pytest.raises(ValueError, match="affinity names cores for workers, in number 4; expected 1 to batch_B, 3"):
        worker_cpus(sampler, {"workers_cpus": [0, 1, 2, 3]})


def test_a_worker_runs_on_its_cores():
    core = available_cpus()[-1]
    sampler: Any = CpuSampler(CountingEnv, {}, batch_T=1, batch_B=1)
    try:
        run = Run(batch_spec=sampler.batch_spec, affinity={"workers_cpus": [core]})
        sampler.initialize(counting_agent(), run)
        assert [psutil.Process(worker.pid).cpu_affinity() for worker in sampler._workers.pool.workers] == [[core]]
    finally:
        sampler.shutdown()


def test_there_are_no_more_workers_than_the_quota_of_a_container_has_cores_for(monkeypatch):
    monkeypatch.setattr(processes, "available_cpus", lambda: list(range(64)))
    monkeypatch.setattr(processes, "cpu_quota", lambda: 2.0)
    monkeypatch.setattr(workers, "available_cpus", processes.available_cpus)
    sampler = CpuSampler(CountingEnv, {}, batch_T=1, batch_B=8)
    assert len(worker_cpus(sampler, {})) == 2
