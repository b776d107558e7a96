"""Memory of several batches: iteration itr fills place itr % n_batches, and the other places can still be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.logging import load_snapshot, save_snapshot
from rlpyt.types import Samples
from rlpyt.utils.arrays import buffer_func, buffer_leaves, torchify_buffer
from rlpyt.utils.processes import Worker, receive_all, stop_workers
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role, stream_seed
from tests.runners.runner_kit import nightly
from tests.samplers.row_reference import Stream, assert_batches
from tests.samplers.sampler_kit import (
    SAMPLERS,
    TWO_OF_EACH,
    assert_equal_batches,
    collect,
    counting_agent,
    random_agent,
    running,
)
from tests.samplers.test_worker_restarts import (
    Checker,
    Loss,
    env_seed,
    faulty,
    kill,
    losses_of,
    mortal_agent,
    observation_at,
    restarting,
)
from tests.samplers.test_worker_restarts import (
    place as place_of,
)
from tests.toy_envs import CountingEnv, DictCountingEnv
from tests.vector_toy_envs import CountingVectorEnv

SEED, DISCOUNT = 7, 0.5
OPTIONS: dict[str, Any] = dict(bootstrap_value=True, bootstrap_inputs=True, traj_info_kwargs={"discount": DISCOUNT})


def streams_of(EnvCls: Any, B: int, recurrent: bool, rests: Any) -> list[Stream]:
    envs = [EnvCls() for _ in range(B)]
    firsts = [env.reset(seed=stream_seed(SEED, Role.ENV, rank))[0] for rank, env in enumerate(envs)]
    return [Stream(env, first, recurrent, rests=rests) for env, first in zip(envs, firsts, strict=True)]


class _Watched:
    """Sampler whose other places are compared, after every batch, with copies made when they were filled."""

    def __init__(self, sampler: Any, n_batches: int) -> None:
        self.sampler, self.n_batches, self.batch_spec = sampler, n_batches, sampler.batch_spec
        self.places = [torchify_buffer(samples) for samples in sampler.batches]
        self.copies = [buffer_func(samples, torch.clone) for samples in self.places]
        assert len(self.places) == n_batches

    def obtain_samples(self, itr: int) -> Any:
        samples, traj_infos = self.sampler.obtain_samples(itr)
        self.check(itr)
        return samples, traj_infos

    def check(self, itr: int) -> None:
        at = itr % self.n_batches
        for i, (held, copy) in enumerate(zip(self.places, self.copies, strict=True)):
            if i != at:
                assert all(torch.equal(x, y) for x, y in zip(buffer_leaves(held), buffer_leaves(copy), strict=True))
        self.copies[at] = buffer_func(self.places[at], torch.clone)


def watched_places(sampler: Any, n_batches: int) -> Any:
    return _Watched(sampler, n_batches)


# ---- rows ----


@pytest.mark.parametrize(
    ("kind", "K", "T", "wait"),
    [
        *(("serial", K, T, wait) for K in (1, 2, 3) for T in (1, 4) for wait in (False, True)),
        *(
            (kind, (3, 2)[i % 2], (4, 1, 3)[i % 3], wait)
            for wait in (False, True)
            for i, kind in enumerate(SAMPLERS[1:], wait)
        ),
    ],
)
def test_rows_are_the_reference_and_no_other_place_is_touched(kind, K, T, wait):
    B, recurrent = 4, kind != "cpu1"
    EnvCls = DictCountingEnv if T == 3 else CountingEnv
    evaluates = dict(eval_n_envs=1, eval_max_trajectories=1) if T == 4 else {}
    options: dict[str, Any] = {**OPTIONS, "n_batches": K, "mid_batch_reset": not wait, **evaluates}
    with running(kind, counting_agent(recurrent), EnvCls, T, B, SEED, env_info_keys=["t", "vector"], **options) as s:
        watched, streams = watched_places(s, K), streams_of(EnvCls, B, recurrent, "still" if wait else "never")
        for itr in range(12 if T == 1 else 5):
            assert_batches(watched, streams, 1, discount=DISCOUNT, first=itr)
            if evaluates:
                s.evaluate_agent(itr)
                watched.check(itr)


@pytest.mark.parametrize(("kind", "wait"), [("serial", True), ("halves", False), ("cpu2", True), ("gpu2", False)])
def test_rows_of_native_environments_are_those_of_one_place(kind, wait):
    options: dict[str, Any] = {**OPTIONS, "mid_batch_reset": not wait, "max_decorrelation_steps": 4}
    with running(kind, random_agent(True), CountingVectorEnv, 3, 4, **options) as sampler:
        expected = collect(sampler, 7)
    with running(kind, random_agent(True), CountingVectorEnv, 3, 4, n_batches=3, **options) as sampler:
        assert_equal_batches(collect(watched_places(sampler, 3), 7), expected)


@pytest.mark.parametrize("kind", TWO_OF_EACH)
def test_a_batch_is_views_of_its_place(kind):
    with running(kind, counting_agent(), n_batches=3, **OPTIONS) as sampler:
        batches = [sampler.obtain_samples(itr)[0] for itr in range(5)]
        for itr, samples in enumerate(batches):
            for leaf, array in zip(buffer_leaves(samples), buffer_leaves(sampler.batches[itr % 3]), strict=True):
                assert leaf.data_ptr() == array.__array_interface__["data"][0]
        starts = {samples.env.reward.data_ptr() for samples in batches}
        assert len(starts) == 3


@pytest.mark.parametrize("kind", TWO_OF_EACH)
def test_a_loaded_sampler_goes_on_from_any_place_to_the_same_rows(kind, tmp_path):
    options: dict[str, Any] = {**OPTIONS, "n_batches": 3, "max_decorrelation_steps": 3}
    with running(kind, random_agent(True), **options) as sampler:
        collect(sampler, 4)
        save_snapshot(tmp_path / "state.pkl", sampler.state_dict())
        expected = collect(sampler, 4, first=4)
        # Back again, from another place.
        sampler.load_state_dict(load_snapshot(tmp_path / "state.pkl"))
        assert_equal_batches(collect(sampler, 4, first=4), expected)
    with running(kind, random_agent(True), **options) as sampler:
        sampler.load_state_dict(load_snapshot(tmp_path / "state.pkl"))
        assert_equal_batches(collect(sampler, 4, first=4), expected)


# ---- other processes ----


class Reader:
    """Server that returns what it sees in a place."""

    def __init__(self, rank: int, progress: Progress, batches: list[Samples]) -> None:
        self.batches = batches

    def __call__(self, place: int) -> Any:
        return buffer_func(self.batches[place], np.array)

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(("kind", "start_method"), [("serial", "here"), ("cpu2", "forkserver"), ("gpu2", "here")])
def test_another_process_reads_what_was_collected_while_the_next_batches_are(kind, start_method):
    options = {**OPTIONS, "n_batches": 2, "share_memory": True, "start_method": start_method}
    with running(kind, random_agent(True), DictCountingEnv, **options) as sampler:
        reader = Worker(0, Reader, (sampler.batches,), "forkserver")
        try:
            for itr in range(4):
                [(expected, _)] = collect(sampler, 1, first=itr)
                sampler.obtain_samples(itr + 1)
                reader.send(itr % 2)
                [seen] = receive_all([reader], timeout=30)
                for x, y in zip(buffer_leaves(seen), buffer_leaves(expected), strict=True):
                    assert np.array_equal(x, y.numpy())
        finally:
            stop_workers([reader])


# ---- lost workers ----


@pytest.mark.parametrize(
    ("kind", "t"), [("cpu2", 0), nightly("cpu2", 3), nightly("gpu2", 0), ("gpu2", 2), ("alternating2", 3)]
)
def test_rows_around_a_loss_are_as_promised(kind, t):
    row, at = place_of(env_seed(2), 0, 4, t, "inside", first_batch=2)
    EnvCls = faulty({env_seed(2): ("kill", at)})
    with restarting(kind, counting_agent(True), EnvCls, n_batches=3) as sampler:
        batches = collect(watched_places(sampler, 3), row // 4 + 5)
        assert Checker(kind, batches, recurrent=True).losses == losses_of(sampler, [(row, 2)])


@pytest.mark.parametrize("kind", [nightly("cpu3"), "gpu3", nightly("alternating3")])
def test_a_worker_killed_between_batches_costs_row_0_of_the_next(kind):
    with restarting(kind, counting_agent(True), CountingEnv, T=3, B=5, n_batches=2) as sampler:
        watched = watched_places(sampler, 2)
        batches = collect(watched, 2)
        kill(sampler, 2)
        batches += collect(watched, 3, first=2)
        assert Checker(kind, batches, recurrent=True).losses == losses_of(sampler, [(6, 4)])


@pytest.mark.parametrize(("valued", "loss", "deaths"), [(True, -1, 1), (False, 0, 2)])
def test_a_worker_that_dies_before_its_first_row_begins_from_the_last_place(valued, loss, deaths, tmp_path):
    """It dies of what the row shows: as the value of the batch before, or when it has carried the row over."""
    row, _ = place_of(env_seed(2), 0, 4, 0, "inside", first_batch=3)
    flags = [tmp_path / str(i) for i in range(deaths)]
    for flag in flags:
        flag.touch()
    agent = mortal_agent(observation_at(row), flags)
    with restarting("cpu2", agent, CountingEnv, bootstrap_value=valued, n_batches=2) as sampler:
        batches = collect(watched_places(sampler, 2), row // 4 + 3)
        assert sampler.diagnostics()["WorkerRestarts"] == deaths
    assert Checker("cpu2", batches).losses == [Loss(row + loss, deaths, b) for b in (2, 3)]


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_a_worker_lost_while_its_environments_are_woken_wakes_those_of_the_last_place(kind):
    with restarting(kind, counting_agent(), CountingEnv, T=7, mid_batch_reset=False, n_batches=2) as sampler:
        watched = watched_places(sampler, 2)
        batches = collect(watched, 3)
        kill(sampler, 1)
        batches += collect(watched, 3, first=3)
        assert [loss.b for loss in Checker(kind, batches, rests="still").losses] == [2, 3]
