"""A state is taken over by other workers, streams of processes go on, and what cannot be restored is told."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pytest
import torch

from rlpyt.logging import load_snapshot, save_snapshot
from rlpyt.samplers.fleet import FleetServer
from rlpyt.samplers.fleet_spec import FleetRole, FleetSpec
from rlpyt.samplers.states import Loaded, joined, piece
from rlpyt.samplers.work import StateKeeper
from rlpyt.types import Run, TrajInfo
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.progress import Progress
from rlpyt.utils.replicas import Replicas
from tests.pairs import crossed
from tests.runners.runner_kit import nightly
from tests.samplers.sampler_kit import assert_equal_batches, collect, make, random_agent, running
from tests.toy_envs import CountingEnv, LifeEnv
from tests.vector_toy_envs import CountingVectorEnv

OPTIONS: dict[str, Any] = dict(
    T=4, B=4, max_decorrelation_steps=3, bootstrap_value=True, traj_info_kwargs={"discount": 0.5}
)


@contextmanager
def beside(kind: str, EnvCls: Any, **env_kwargs: Any) -> Iterator[Any]:
    """Yield a sampler that collects one batch ahead, in a process of its own."""
    sampler = make(kind, EnvCls, 5, 2, env_kwargs=env_kwargs, max_decorrelation_steps=0).in_background(1)
    agent = random_agent()
    try:
        sampler.initialize(agent, Run(batch_spec=sampler.batch_spec, seed=7, n_itr=9))
        yield sampler
    finally:
        sampler.shutdown()


@pytest.mark.parametrize(
    ("kind", "other"),
    [("cpu3", "serial"), ("alternating2", "cpu3"), ("serial", "gpu3")]
    + [nightly("cpu1", "cpu2"), nightly("halves", "alternating3")],
)
def test_other_workers_go_on_to_the_same_rows(kind, other, tmp_path):
    with running(kind, random_agent(True), LifeEnv, **OPTIONS) as sampler:
        collect(sampler, 3)
        save_snapshot(tmp_path / "state.pkl", sampler.state_dict())
        expected = collect(sampler, 4, first=3)
    with running(other, random_agent(True), LifeEnv, **OPTIONS) as sampler:
        sampler.load_state_dict(load_snapshot(tmp_path / "state.pkl"))
        # A mean over another number of rows has other rounding.
        assert_equal_batches(collect(sampler, 4, first=3), expected, rtol=1e-6)
        assert sampler.n_cut_episodes == 0


def test_the_environments_of_replicas_are_dealt_to_another_number_of_them():
    def on_replica(rank: int, n: int) -> Any:
        return running("serial", random_agent(True), **{**OPTIONS, "B": 4 // n}, replicas=Replicas(rank, n))

    with on_replica(0, 1) as sampler:
        collect(sampler, 2)
        state = sampler.state_dict()
        expected = collect(sampler, 2, first=2)
    states = []
    for rank in range(2):
        with on_replica(rank, 2) as sampler:
            sampler.load_state_dict(state)
            states.append(sampler.state_dict())
            for (came, _), (whole, _) in zip(collect(sampler, 2, first=2), expected, strict=True):
                mine = whole.env[:, 2 * rank : 2 * rank + 2]
                assert all(map(torch.equal, buffer_leaves(came.env), buffer_leaves(mine)))
    with on_replica(0, 1) as sampler:
        sampler.load_state_dict({**states[0], **joined(states)})
        assert_equal_batches(collect(sampler, 2, first=2), expected)


def test_a_state_of_other_environments_is_refused_with_both_numbers():
    with running("cpu2", random_agent(), **OPTIONS) as sampler:
        state = sampler.state_dict()
    with (
        running("serial", random_agent(), **{**OPTIONS, "B": 3}) as sampler,
        pytest.raises(ValueError, match=r"SerialSampler.*of 4 environments; expected one of 3.*batch_B=4"),
    ):
        sampler.load_state_dict(state)


class Drawing(CountingEnv):
    """Draws a part of its observation from the global generators of its process."""

    def observe(self) -> Any:
        drawn = np.array([random.randrange(512), np.random.randint(512), torch.randint(512, ()).item()], np.float32)
        return super().observe() + drawn


@pytest.mark.parametrize(
    "kind",
    ["cpu2", "servers", "background", *(nightly(kind) for kind in ("gpu2", "alternating2", "background gpu2"))],
)
def test_environments_that_draw_from_the_global_generators_go_on(kind, tmp_path):
    options: dict[str, Any] = {**OPTIONS, "B": 2, "start_method": "forkserver"}
    if kind == "servers":
        kind, options = "gpu2", {**options, "servers": 2}

    def started() -> Any:
        if not kind.startswith("background"):
            return running(kind, random_agent(), Drawing, **options)
        return beside(kind.removeprefix("background").strip() or "serial", Drawing)

    with started() as sampler:
        collect(sampler, 2)
        save_snapshot(tmp_path / "state.pkl", sampler.state_dict())
        expected = collect(sampler, 2, first=2)
    with started() as sampler:
        sampler.load_state_dict(load_snapshot(tmp_path / "state.pkl"))
        assert_equal_batches(collect(sampler, 2, first=2), expected)


class Failing(CountingEnv):
    """Has a `state_dict` that raises from the second call on: not yet when the run asks at its start."""

    calls = 0

    def state_dict(self) -> dict[str, Any]:
        self.calls += 1
        if self.calls > 1:
            raise OSError("the emulator is gone")
        return super().state_dict()


class LateMaker(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Makes an object in the first step, of a class that a fresh environment does not know."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(CountingEnv(**kwargs))
        self.helper: Namespace | None = None

    def step(self, action: Any) -> Any:
        self.helper = self.helper or Namespace()
        return super().step(action)


class SomeUnreadable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cannot be read where the number of the environment is odd."""

    numbers: Any = None

    def __init__(self) -> None:
        super().__init__(CountingEnv())

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed)
        self.numbers = iter(()) if observation[0] % 2 else None
        return observation, info


@pytest.mark.parametrize(
    ("kind", "EnvCls"),
    crossed(["serial", "cpu2", "gpu2", "background"], [CountingVectorEnv, Failing, LateMaker], strength=1),
)
def test_an_episode_that_cannot_go_on_is_truncated_in_the_data_and_counted(kind, EnvCls, capsys):
    options: dict[str, Any] = {**OPTIONS, "B": 2, "max_decorrelation_steps": 0}
    options["start_method"] = "forkserver" if EnvCls is Failing else "here"

    def started() -> Any:
        if kind == "background":
            return beside("serial", EnvCls, lengths=[50])
        return running(kind, random_agent(), EnvCls, **options, env_kwargs={"lengths": [50]})

    first = 2 - (kind == "background")  # of which the state has one batch ahead
    with started() as sampler:
        why = sampler.why_no_state()
        assert (why is not None) == (EnvCls is CountingVectorEnv)
        before = collect(sampler, first)
        state = sampler.state_dict()
        expected = collect(sampler, 1, first)
    with started() as sampler:
        sampler.load_state_dict(state)
        if kind == "background":
            before = collect(sampler, 1, first)
            assert_equal_batches(before, expected)
            first += 1
        [(samples, _)] = collect(sampler, 1, first)
        n_cut = sampler.n_cut_episodes
    last = before[-1][0].env
    open_ones = last.valid[-1] & ~last.terminated[-1] & ~last.truncated[-1]
    assert n_cut == int(open_ones.sum()) == 2
    env = samples.env
    # The row that is not valid, after one that did not end the episode, is the mark of a lost episode.
    assert not env.valid[0].any()
    assert env.valid[1].all()
    assert not env.reward[0].any()
    numbers, steps = env.observation[1, :, 0], env.observation[1, :, 1]
    assert not steps.any()
    # An environment seeded as at the start would play the same episodes again.
    assert not set(numbers.tolist()) & set(last.observation[..., 0].flatten().tolist())
    assert capsys.readouterr().out.count("2 open episodes end here, truncated in the data") == 1


def test_what_has_no_state_is_said_once(capsys):
    with running("serial", random_agent(), SomeUnreadable, **OPTIONS) as sampler:
        numbers = sampler.obtain_samples(0)[0].env.observation[0, :, 0]
        assert (numbers % 2 == 1).any()
        for _ in range(3):
            state = sampler.state_dict()
    lost = [not env for one in state["parts"] for env in one["state"]["envs"]]
    assert lost == (numbers % 2 == 1).tolist()
    assert capsys.readouterr().out.count("numbers is a builtins.tuple_iterator") == 1


@pytest.mark.parametrize("kind", ["serial", "cpu2", "gpu2"])
def test_statistics_of_any_kind_have_a_state_and_keep_their_types(kind, tmp_path):
    env_kwargs = dict(lengths=np.array([3, 2, 4]))
    with running(kind, random_agent(True), LifeEnv, **OPTIONS, TrajInfoCls=Histogram, env_kwargs=env_kwargs) as sampler:
        infos = [info for itr in range(6) for info in sampler.obtain_samples(itr)[1]]
        save_snapshot(tmp_path / "state.pkl", sampler.state_dict())
        expected = collect(sampler, 3, first=6)
        states, fresh = sampler.traj_states, sampler.new_traj_info
        restored = states.restored(states.saved(infos), fresh)
        assert [info["_counts"].tolist() for info in restored] == [info["_counts"].tolist() for info in infos]
        ends = [info.ended_at or (0, 0, 0) for info in restored]
        assert ends == [info.ended_at for info in infos] == sorted(ends)
        assert len({itr for itr, _, _ in ends}) > 1
        # As a checkpoint of an earlier version.
        old = [{name: x for name, x in one.items() if name != "ended_at"} for one in states.saved(infos)]
        assert [info.ended_at for info in states.restored(old, fresh)] == [None] * len(infos)
        assert sampler.why_no_state() is None
    with running(kind, random_agent(True), LifeEnv, **OPTIONS, TrajInfoCls=Histogram, env_kwargs=env_kwargs) as sampler:
        sampler.load_state_dict(load_snapshot(tmp_path / "state.pkl"))
        assert_equal_batches(collect(sampler, 3, first=6), expected)


class Histogram(TrajInfo):
    """Has statistics in float32, and in an array."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.Sum, self._counts = np.float32(0), np.zeros(3, np.int64)

    def step(self, observation: Any, action: Any, reward: Any, done: Any, agent_info: Any, env_info: Any) -> None:
        super().step(observation, action, reward, done, agent_info, env_info)
        self.Sum = self.Sum + np.float32(reward) / np.float32(3)
        np.add.at(self._counts, int(action), 1)


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_workers_lost_before_are_counted(kind):
    with running(kind, random_agent(), restart_workers=3) as sampler:
        assert sampler._workers is not None
        sampler._workers.pool.count_restarts(2)
        state = sampler.state_dict()
    with running(kind, random_agent(), restart_workers=3) as sampler:
        assert sampler._workers is not None
        sampler.load_state_dict(state)
        assert (sampler._workers.pool.n_restarts, sampler._workers.pool.restarts_left) == (2, 1)
        assert sampler.diagnostics()["WorkerRestarts"] == 2


SPEC = FleetSpec(
    role=FleetRole.TRAIN, EnvCls=object, env_kwargs=None, env_ranks=[0, 1], global_B=2, seed=3, LoopCls=object
)


def test_environments_that_begin_anew_have_other_seeds_at_every_resume():
    pieces = {"parts": [piece([0, 1], {})], "actors": [], "streams": []}
    seeds: list[dict[int, int]] = []

    def load(state: Any) -> Loaded:
        seeds.append(state["new_seeds"])
        return Loaded()

    work = mock.Mock(load_state_dict=load)
    for itr in (0, 1, 2, 9):
        keeper = StateKeeper("sampler", SPEC)
        assert keeper.load({**pieces, "global_B": 2, "itr": itr}, work) == 0
        assert keeper.next_itr == itr
    # A run that was stopped before its first batch takes the seeds of iteration 1.
    assert seeds[0] == seeds[1]
    assert len({seed for of_itr in seeds[1:] for seed in of_itr.values()}) == 6


def test_global_generators_go_on_in_the_same_kind_of_process_only():
    class OtherServer(FleetServer):
        process = "server"

    worker, other = (cls(0, Progress(), {FleetRole.TRAIN: SPEC}, None) for cls in (FleetServer, OtherServer))
    worker.training = other.training = mock.Mock(state_dict=dict, load_state_dict=lambda state: None)
    state = worker.state_dict()
    expected = random.random()
    assert other.load_state_dict(state) == Loaded(n_without_stream=1)
    assert random.random() != expected
    assert worker.load_state_dict(state) == Loaded(n_streams=1)
    assert random.random() == expected
