"""One check for all processes: of an environment that is thrown away, and against which all others are held."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import weakref
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces

from rlpyt.envs import EnvError
from rlpyt.utils.processes import WorkerError
from tests.samplers.sampler_kit import assert_equal_batches, collect, counting_agent, running
from tests.toy_envs import CountingEnv
from tests.vector_toy_envs import ToyVectorEnv


class OddOneOut(CountingEnv):
    """Is another environment in the second worker, or as the third to be made in a process.

    Args:
        oddity: what is other: "observation", "action" or "info".
    """

    n_made: ClassVar[int] = 0

    def __init__(self, oddity: str) -> None:
        super().__init__()
        OddOneOut.n_made += 1
        process = multiprocessing.current_process().name
        self.odd = process == "rlpyt-worker-1" or (process == "MainProcess" and OddOneOut.n_made >= 3)
        self.oddity = oddity
        if self.odd and oddity == "observation":
            self.observation_space = spaces.Box(0, 2**20, (1,), np.float32)
        if self.odd and oddity == "action":
            self.action_space = spaces.Discrete(2)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"x": 1.75 if self.odd and self.oddity == "info" else 1}


@pytest.mark.parametrize("oddity", ["observation", "action"])
@pytest.mark.parametrize("kind", ["halves", "cpu2", "gpu2"])
def test_environments_of_all_processes_and_parts_have_the_same_spaces(kind, oddity):
    OddOneOut.n_made = 0
    message = r"\(environment of rank 1\): its spaces are .*; expected those of the run's first environment"
    with (
        pytest.raises(EnvError, match=message),
        running(kind, counting_agent(), OddOneOut, B=2, env_kwargs={"oddity": oddity}),
    ):
        pass


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_info_of_a_larger_kind_in_another_process_is_refused_and_not_cut(kind):
    options: dict[str, Any] = dict(env_kwargs={"oddity": "info"}, env_info_keys=["x"])
    with (
        running(kind, counting_agent(), OddOneOut, B=2, **options) as sampler,
        pytest.raises(WorkerError, match=r"Recording 'x' .* got 1.75.*Give an example of its largest kind"),
    ):
        sampler.obtain_samples(0)


class OtherAfterDeath(CountingEnv):
    """Kills its worker once; what is made after that has other actions.

    Args:
        marker: file that says that it was so.
    """

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self.marker, self.is_other = marker, marker.exists()
        if self.is_other:
            self.action_space = spaces.Discrete(2)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if not self.is_other and multiprocessing.current_process().name == "rlpyt-worker-1":
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_environments_of_a_worker_that_replaces_another_have_the_same_spaces(kind, tmp_path):
    options: dict[str, Any] = dict(env_kwargs={"marker": tmp_path / "marker"}, restart_workers=1)
    with (
        running(kind, counting_agent(), OtherAfterDeath, B=2, **options) as sampler,
        pytest.raises(EnvError, match=r"\(environment of rank 1\): its spaces are .*Discrete\(2\)"),
    ):
        sampler.obtain_samples(0)


class Remembering(CountingEnv):
    """Shows how many episodes it has begun since it was made."""

    n_made: ClassVar[int] = 0
    closed: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        self.n_begun = 0
        self.place = Remembering.n_made
        Remembering.n_made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.n_begun += 1
        return super().reset(seed=seed)

    def observe(self) -> Any:
        return np.array([self.number, self.t, self.n_begun], np.float32)

    def close(self) -> None:
        Remembering.closed.append(self.place)


class RememberingVector(ToyVectorEnv):
    """n of `Remembering`."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Remembering() for _ in range(num_envs)], {"t": 0})

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            env.close()


@pytest.mark.filterwarnings("ignore:.*two resets with .*seed")
def test_the_check_leaves_no_trace_in_any_environment_for_any_number_of_workers():
    batches = {}
    for kind in ("serial", "cpu1", "cpu2", "cpu4", "gpu2"):
        with running(kind, counting_agent(), Remembering, B=4) as sampler:
            batches[kind] = collect(sampler, 2)
    for kind in ("serial", "halves", "cpu2", "gpu2"):
        with running(kind, counting_agent(), RememberingVector, B=4) as sampler:
            batches[kind + " vector"] = collect(sampler, 2)
    samples, _ = batches["serial"][0]
    assert samples.env.observation[0, :, 2].tolist() == [1, 1, 1, 1]
    for others in batches.values():
        for (a, _), (b, _) in zip(others, batches["serial"], strict=True):
            assert_equal_batches([(a.env.observation, [])], [(b.env.observation, [])])


@pytest.mark.filterwarnings("ignore:.*two resets with .*seed")
def test_the_environment_that_is_checked_is_closed_before_others_are_made():
    Remembering.n_made, Remembering.closed = 0, []

    class Watched(Remembering):
        def __init__(self) -> None:
            super().__init__()
            assert self.place == 0 or Remembering.closed == [0]

    with running("serial", counting_agent(), Watched, B=2, eval_n_envs=1, eval_max_trajectories=1):
        assert Remembering.n_made == 4
    assert sorted(Remembering.closed) == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:.*two resets with .*seed")
def test_the_vector_environment_that_is_checked_is_closed_before_others_are_made():
    Remembering.n_made, Remembering.closed = 0, []

    class Watched(RememberingVector):
        def __init__(self, num_envs: int) -> None:
            assert Remembering.closed == [0, 1][: Remembering.n_made]
            super().__init__(num_envs)

    with running("serial", counting_agent(), Watched, B=2, eval_n_envs=1, eval_max_trajectories=1):
        assert Remembering.n_made == 5
    assert sorted(Remembering.closed) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["serial", "cpu1", "gpu1"])
def test_a_sampler_that_was_shut_down_is_gone_with_its_last_reference(kind):
    gc.collect()
    gc.disable()
    try:
        with running(kind, counting_agent(), B=1, eval_n_envs=1, eval_max_trajectories=1) as sampler:
            sampler.obtain_samples(0)
        gone = weakref.ref(sampler)
        del sampler
        assert gone() is None
    finally:
        gc.enable()
