"""A lost worker is replaced: the run goes on, and every row of it is one that can be told in advance."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.logging import logger_context
from rlpyt.samplers.base import specs_of
from rlpyt.samplers.fleet_spec import FleetRole
from rlpyt.types import Run
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.processes import WorkerError
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.seeds import Role, stream_seed
from tests.runners.runner_kit import (
    make_algo,
    make_sampler,
    nightly,
    run,
)
from tests.samplers.row_reference import Stream, assert_row
from tests.samplers.sampler_kit import Watched, assert_equal_batches, collect, counting_agent, random_agent, running
from tests.toy_envs import CountingEnv, CountingModel, FaultyEnv, RecordingTrajInfo
from tests.vector_toy_envs import FaultyVectorEnv

SEED, DISCOUNT = 7, 0.5
PARALLEL = ("cpu2", "gpu2", "alternating2", "no_overlap2")
OF_EACH_SORT = ("gpu2", *(nightly(kind) for kind in PARALLEL if kind != "gpu2"))
"""One sampler whose workers act, and one whose master does; those that alternate are two of the latter."""


pytestmark = pytest.mark.usefixtures("nothing_is_left", "workers_end_soon")


def env_seed(rank: int, restart: int = 0, B: int = 4) -> int:
    """Return the seed of an environment: those of a restart come after all that the run began with."""
    return stream_seed(SEED, Role.ENV, rank + restart * B)


# ---- where a fault is to happen ----


class Place(NamedTuple):
    """A row, counted over all batches, and the step or reset since the seeding that takes place there."""

    row: int
    at: int


def place(seed: int, begun: int, T: int, t: int, situation: str, first_batch: int = 1) -> Place:
    """Return the first row t of a batch in which an environment is in a situation.

    Args:
        seed: of the environment.
        begun: the row in which it took its first step.
        T: rows of a batch.
        t: the row of its batch.
        situation: "inside" an episode, its "first" step, or the "reset" after its end.
        first_batch: to look at.
    """
    stream = new_stream(seed, recurrent=False)
    n_steps, n_resets = 0, 1
    for row in range(begun, begun + 100 * T):
        now = "reset" if stream.ended else "inside" if stream.trajectory else "first"
        n_steps, n_resets = n_steps + (now != "reset"), n_resets + (now == "reset")
        if row % T == t and row >= first_batch * T and now == situation:
            return Place(row, n_resets if situation == "reset" else n_steps)
        stream.next_row(DISCOUNT)
    raise AssertionError(f"no row {t} with {situation}")


def new_stream(seed: int, recurrent: bool, rests: Any = "never") -> Stream:
    env = CountingEnv()
    return Stream(env, env.reset(seed=seed)[0], recurrent, rests=rests)


def faulty(faults: Mapping[int, tuple[str, int]], flag: Path | None = None, on_flag: Any = Path.unlink) -> Any:
    """Return a class of environments that go wrong at a step (or reset) after a seed.

    Args:
        faults: by seed, the fault and when.
        flag: is made just before a fault.
        on_flag: called with the flag by a constructor that finds it.
    """
    faults = dict(faults)

    class Planned(FaultyEnv):
        def __init__(self) -> None:
            super().__init__("none")
            if flag is not None and flag.exists():
                on_flag(flag)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            if seed is not None and seed in faults:
                (self.fault, self.at), self.bad_seed = faults[seed], seed
            return super().reset(seed=seed)

        def go_wrong(self, observation: Any, reward: float) -> tuple[Any, float]:
            if flag is not None and self.fault != "none":
                flag.touch()
            return super().go_wrong(observation, reward)

    return Planned


# ---- what the rows must be ----


class Loss(NamedTuple):
    """The row in which the episode of an environment was lost, and which restart of a worker that was."""

    row: int
    restart: int
    b: int


class Checker:
    """Compares every row with the reference, finds the losses, and holds what they leave behind to what is promised.

    In the lost column all rows before the loss are as ever; the last one is truncated, unless it ended its episode
    anyway or is of another batch. The row of the loss holds the last observation, and is not valid; the next row
    begins an episode with the seed of the restart.

    Args:
        kind: of the sampler, and of how many action servers, as in "gpu2 x2".
        batches: what `collect` returned; at least one row must follow a loss.
        recurrent: whether the agent is.
        with_info: whether env_info was recorded.
        rests: see `Stream`.
    """

    def __init__(
        self,
        kind: str,
        batches: Sequence[Any],
        recurrent: bool = False,
        with_info: bool = False,
        rests: Literal["never", "still"] = "never",
    ) -> None:
        self.samples = [samples for samples, _ in batches]
        self.acts_in_workers = kind.startswith("cpu") or " x" in kind  # or in the servers, which are lost with them
        self.kind, self.recurrent, self.with_info, self.rests = kind, recurrent, with_info, rests
        self.T, self.B = self.samples[0].env.reward.shape
        self.losses: list[Loss] = []
        self.gone_until: dict[tuple[int, int], int] = {}  # by batch and environment, the row up to which it was lost
        self.trajs: list[tuple[int, int, dict[str, float]]] = []  # row, environment, statistics
        for b in range(self.B):
            self.check_column(b)
        self.losses.sort()
        self.check_trajectories([infos for _, infos in batches])

    def check_column(self, b: int) -> None:
        stream, restart = new_stream(env_seed(b, B=self.B), self.recurrent, self.rests), 0
        if not self.at(0, b).env.valid and not self.at(0, b).env.observation.any():
            stream.observation = np.zeros(3, np.float32)  # lost before its first reset
        for row in range(self.T * len(self.samples)):
            if self.was_lost_at_rest(row, b, stream) or self.is_loss(row, b, stream):
                at_rest = bool(self.at(row, b).env.valid)
                restart = self.restart_of(row + (not at_rest), b, restart)
                self.losses.append(Loss(row, restart, b))
                self.gone_until[row // self.T, b] = row - at_rest
                lost, stream = stream, new_stream(env_seed(b, restart, self.B), self.recurrent, self.rests)
                if not at_rest:
                    self.check_loss(row, b, lost)
                    continue
            self.check_row(row, b, stream)

    def check_row(self, row: int, b: int, stream: Stream) -> None:
        expected = stream.next_row(DISCOUNT)
        if expected["valid"] and self.is_cut(row, b, stream):
            expected["truncated"] = expected["truncated"] or not expected["terminated"]
        self.check(row, b, expected)
        self.trajs += [(row, b, info) for info in stream.trajectories]
        stream.trajectories.clear()
        if row % self.T == self.T - 1:
            value = self.samples[row // self.T].agent.bootstrap_value
            assert value is None or value[0, b].item() == stream.agent_row()["value"]
            stream.end_batch()

    def was_lost_at_rest(self, row: int, b: int, stream: Stream) -> bool:
        """Return whether the environment was reset between two batches, and is another one."""
        at = self.at(row, b).env
        between = self.rests == "still" and row % self.T == 0 and row > 0
        return bool(between and at.valid and at.observation[0] != stream.env.number)

    def is_loss(self, row: int, b: int, stream: Stream) -> bool:
        if self.at(row, b).env.valid:
            return False
        if not stream.ended:
            return True
        if self.rests == "still":
            return False
        # A loss in the reset looks like any reset, but for what comes after it.
        last = row == self.T * len(self.samples) - 1
        return not last and self.at(row + 1, b).env.observation[0] != stream.env.number

    def is_cut(self, row: int, b: int, stream: Stream) -> bool:
        """Return whether the next row is that of a loss, and in the same batch."""
        return row % self.T < self.T - 1 and not stream.ended and not self.at(row + 1, b).env.valid

    def restart_of(self, row: int, b: int, last: int) -> int:
        number = self.at(row, b).env.observation[0].item()
        known = {env_seed(b, k, self.B) % 1024: k for k in range(20, last, -1)}
        assert number in known, f"row {row} of environment {b} has number {number}, which is that of no restart"
        return known[int(number)]

    def check_loss(self, row: int, b: int, stream: Stream) -> None:
        if self.acts_in_workers:
            stream.h = 0  # the new worker acts in this row, and knows nothing of the episode
        expected = stream.agent_row()
        expected.update(action=0, reward=0.0, terminated=False, truncated=False, valid=False, info={})
        self.check(row, b, expected)

    def check(self, row: int, b: int, expected: dict[str, Any]) -> None:
        assert_row(self.samples[row // self.T], row % self.T, b, expected, self.recurrent, self.with_info)

    def at(self, row: int, b: int) -> Any:
        samples = self.samples[row // self.T]
        return samples._replace(agent=samples.agent._replace(bootstrap_value=None))[row % self.T, b]

    def check_trajectories(self, got: Sequence[Sequence[Mapping[str, float]] | None]) -> None:
        """Compare statistics; those of CpuSampler that were complete in the batch of a loss went with the worker."""
        for itr, infos in enumerate(got):
            if infos is None:
                continue
            rows = range(itr * self.T, (itr + 1) * self.T)
            trajs = [t for t in self.trajs if t[0] in rows]
            if self.acts_in_workers:
                trajs = [t for t in trajs if t[0] > self.gone_until.get((itr, t[1]), -1)]
            assert sorted(sorted(x.items()) for x in infos) == sorted(sorted(t[2].items()) for t in trajs), itr
            if self.kind in ("gpu2", "gpu3") and not any(loss.row in rows for loss in self.losses):
                assert [list(x.values()) for x in infos] == [list(t[2].values()) for t in sorted(trajs, key=_by_row)]


def _by_row(traj: tuple[int, int, Any]) -> tuple[int, int]:
    return traj[:2]


@contextmanager
def restarting(kind: str, agent: Any, EnvCls: Any, T: int = 4, B: int = 4, **kwargs: Any) -> Iterator[Any]:
    options: dict[str, Any] = dict(restart_workers=9, bootstrap_value=True, traj_info_kwargs={"discount": DISCOUNT})
    options["start_method"] = "forkserver"
    kind, _, n_servers = kind.partition(" x")
    options |= {"servers": int(n_servers)} if n_servers else {}
    with running(kind, agent, EnvCls, T, B, SEED, **{**options, **kwargs}) as sampler:
        yield sampler


def train_ranks(sampler: Any) -> list[list[int]]:
    """Return the training environments of every worker."""
    return [specs[FleetRole.TRAIN].env_ranks for specs in sampler._workers.specs]


def losses_of(sampler: Any, rows: Sequence[tuple[int, int]]) -> list[Loss]:
    """Return the losses that are to be seen, from (row, environment) of the faults in the order in which they come."""
    losses = []
    for restart, (row, rank) in enumerate(rows, 1):
        (ranks,) = [ranks for ranks in train_ranks(sampler) if rank in ranks]
        losses += [Loss(row, restart, b) for b in ranks]
    return sorted(losses)


# ---- faults of environments ----

FAULTS = {"inside": ("kill", "raise", "exit", "nan"), "first": ("shape", "kill"), "reset": ("reset",)}
SIZES = {"T4": (4, 4, 2, 3), "T1": (1, 3, 3, 1), "T3": (3, 5, 2, 2)}
"""T, B, workers, and places of the ring."""


@pytest.mark.parametrize(
    ("kind", "size"),
    [("cpu", "T4"), ("gpu", "T1"), ("no_overlap", "T3"), ("gpu x2", "T4")]
    + [nightly("cpu", "T1"), nightly("gpu", "T3"), nightly("alternating", "T4")]
    + [nightly("cpu", "T3"), nightly("gpu", "T4"), nightly("alternating", "T1")],
)
def test_rows_around_a_loss_are_as_promised(kind, size):
    """Losses in the first, a middle and the last row of a batch, of two workers by turns, one after the other."""
    T, B, n_workers, n_batches = SIZES[size]
    recurrent = size != "T3"
    faults: dict[int, tuple[str, int]] = {}
    rows: list[tuple[int, int]] = []
    seeds, begun = {rank: env_seed(rank, B=B) for rank in (1, B - 1)}, {1: 0, B - 1: 0}
    wanted = [(t, situation) for t in sorted({0, T // 2, T - 1}) for situation in FAULTS]
    for i, (t, situation) in enumerate(wanted):
        rank = (1, B - 1)[i % 2]
        batch = rows[-1][0] // T + 1 if rows else 1
        row, at = place(seeds[rank], begun[rank], T, t, situation, batch)
        faults[seeds[rank]] = FAULTS[situation][i % len(FAULTS[situation])], at
        rows.append((row, rank))
        # Who goes on in this column is a new environment, and so is its neighbour's.
        seeds[rank], begun[rank] = env_seed(rank, i + 1, B), row + 1
    options: dict[str, Any] = dict(env_info_keys=["t", "vector"], n_batches=n_batches)
    name, _, servers = kind.partition(" ")
    kind = f"{name}{n_workers} {servers}".strip()
    with restarting(kind, counting_agent(recurrent), faulty(faults), T, B, **options) as sampler:
        batches = collect(Watched(sampler), rows[-1][0] // T + 3)
        expected = losses_of(sampler, rows)
        assert sampler.diagnostics()["WorkerRestarts"] == len(wanted)
    assert Checker(kind, batches, recurrent, with_info=True).losses == expected


@pytest.mark.parametrize("kind", OF_EACH_SORT)
def test_a_worker_that_stands_still_is_replaced(kind):
    row, at = place(env_seed(2), 0, 4, 2, "inside")
    with restarting(kind, counting_agent(True), faulty({env_seed(2): ("hang", at)}), worker_timeout=1.0) as sampler:
        start = time.monotonic()
        batches = collect(sampler, 4)
        assert time.monotonic() - start < 6
        assert Checker(kind, batches, recurrent=True).losses == losses_of(sampler, [(row, 2)])


def kill(sampler: Any, rank: int) -> None:
    """Kill a worker from outside, and wait until it is dead."""
    worker = sampler._workers.pool.workers[rank]
    os.kill(worker.pid, signal.SIGKILL)
    worker._process.join(10)


@pytest.mark.parametrize("kind", [nightly("cpu3"), nightly("gpu3"), "alternating3", nightly("no_overlap3"), "gpu3 x3"])
def test_a_worker_killed_between_batches_costs_row_0_of_the_next(kind):
    with restarting(kind, counting_agent(True), CountingEnv, T=3, B=5, n_batches=2) as sampler:
        watched = Watched(sampler)
        batches = collect(watched, 2)
        kill(sampler, 2)
        batches += collect(watched, 2, first=2)
        kill(sampler, 0)
        kill(sampler, 1)
        batches += collect(watched, 2, first=4)
        losses = Checker(kind, batches, recurrent=True).losses
        assert losses == losses_of(sampler, [(6, 4), (12, 0), (12, train_ranks(sampler)[1][0])])
        for row, _, b in losses:
            assert not batches[row // 3 - 1][0].env.truncated[-1, b] or batches[row // 3 - 1][0].env.valid[-1, b]


@pytest.mark.parametrize("kind", [*OF_EACH_SORT, "alternating4 x2"])
def test_workers_killed_at_any_moment_leave_consistent_rows(kind):
    """Where the worker stood cannot be told, so the rows only have to be right around wherever the loss is seen."""
    rng = np.random.default_rng(0)
    options: dict[str, Any] = dict(T=16, env_info_keys=["t", "vector"], restart_workers=20)
    with restarting(kind, counting_agent(True), CountingEnv, **options) as sampler:
        batches: list[Any] = []
        for n_kills in range(1, 5):
            victim = sampler._workers.pool.workers[int(rng.integers(2))]
            timer = threading.Timer(rng.uniform(0, 0.01), os.kill, (victim.pid, signal.SIGKILL))
            timer.start()
            while sampler._workers.pool.n_restarts < n_kills:
                batches += collect(sampler, 1, first=len(batches))
            batches += collect(sampler, 2, first=len(batches))
        losses = Checker(kind, batches, recurrent=True, with_info=True).losses
        assert sorted({loss.restart for loss in losses}) == [1, 2, 3, 4]
        for restart in range(1, 5):
            (row,) = {loss.row for loss in losses if loss.restart == restart}
            assert [loss.b for loss in losses if loss.restart == restart] in ([0, 1], [2, 3]), (restart, row)


# ---- the rest of the run ----


@pytest.mark.parametrize("kind", ["cpu2", nightly("gpu2"), nightly("alternating2"), nightly("no_overlap2")])
def test_a_run_with_a_loss_repeats_and_other_workers_do_not_notice(kind):
    batches = []
    for faults in ({env_seed(2): ("kill", 17)}, {env_seed(2): ("kill", 17)}, {}):
        with restarting(kind, random_agent(True), faulty(faults), T=6, max_decorrelation_steps=5) as sampler:
            batches.append(collect(sampler, 6))
            assert sampler.diagnostics()["WorkerRestarts"] == len(faults)
    assert_equal_batches(batches[0], batches[1])
    for (lossy, _), (clean, _) in zip(batches[0], batches[2], strict=True):
        for x, y in zip(buffer_leaves(lossy), buffer_leaves(clean), strict=True):
            assert torch.equal(x[:, :2], y[:, :2])
    assert not all(torch.equal(a[0].env.valid[:, 2:], b[0].env.valid[:, 2:]) for a, b in zip(*batches[1:], strict=True))


@pytest.mark.parametrize("kind", OF_EACH_SORT)
def test_the_loss_after_the_last_restart_ends_the_run(kind):
    # The environment of the check takes 40 steps; each of the others dies at its 46th.
    EnvCls, env_kwargs = FaultyEnv, {"fault": "kill", "at": 46}
    with restarting(kind, counting_agent(), EnvCls, env_kwargs=env_kwargs, restart_workers=2) as sampler:
        batches: list[Any] = []
        message = r"Worker \d \(pid \d+\), last seen at environment [0-3], step \d+, was killed by SIGKILL"
        with pytest.raises(WorkerError, match=message):
            batches.extend(collect(sampler, 1, first=itr)[0] for itr in range(1000))
        assert 1 <= len(batches) < 40
        assert sampler.diagnostics()["WorkerRestarts"] == 2
        assert {loss.restart for loss in Checker(kind, batches[:-1]).losses} <= {1, 2}


@pytest.mark.parametrize("kind", ["cpu2", nightly("gpu2")])
def test_a_loss_is_in_the_log(kind, tmp_path):
    with (
        logger_context(tmp_path, run_ID=0),
        restarting(kind, counting_agent(), faulty({env_seed(2): ("raise", 9)}), restart_workers=3) as sampler,
    ):
        collect(sampler, 5)
    log = (tmp_path / "run_0" / "debug.log").read_text()
    for text in (
        r"Worker 1 \(pid \d+\), last seen at environment 2, step \d+, raised EnvError: Planned \(rank 2, seed "
        rf"{env_seed(2)}\), its step \d+: step with action .*ZeroDivisionError: the toy broke in step",
        "in go_wrong",
        r"Worker 1 was replaced \(2 restarts left\); its environments 2, 3 begin new episodes",
    ):
        assert re.search(text, log, re.DOTALL), text
    assert log.count("was replaced") == 1


def test_seeds_of_a_restart_are_new_whichever_worker_and_replica_it_is():
    samplers = [make_sampler("cpu2", B=4, eval_n_envs=3, eval_max_trajectories=3) for _ in range(2)]
    runs = [Run(batch_spec=samplers[0].batch_spec, seed=SEED, replicas=Replicas(rank, 2)) for rank in range(2)]
    replicas = [specs_of(sampler, run) for sampler, run in zip(samplers, runs, strict=True)]
    for role, n_envs in ((FleetRole.TRAIN, 8), (FleetRole.EVAL, 3)):
        dealt = [s for specs in replicas for s in specs[role].deal(2)]
        seeds = [x for s in dealt for k in range(1, 30) for x in replace(s, restarts=k).restart_seeds()]
        seeds += [x for s in dealt for itr in range(1 if role is FleetRole.TRAIN else 30) for x in s.seeds(itr)]
        assert len(set(seeds)) == len(seeds) == n_envs * (30 if role is FleetRole.TRAIN else 59)


# ---- losses before the first batch ----


def no_licence(flag: Path) -> None:
    flag.unlink()
    raise OSError("no licence")


@pytest.mark.parametrize(
    ("kind", "fault"),
    [nightly("cpu2", "reset"), ("cpu2", "kill"), ("gpu2", "reset")]
    + [nightly("alternating2", "kill"), nightly("no_overlap2", "reset")],
)
def test_a_loss_in_the_first_reset_or_the_random_steps_is_recovered(kind, fault):
    options: dict[str, Any] = {"max_decorrelation_steps": 5} if fault == "kill" else {}
    EnvCls = faulty({env_seed(2): (fault, 1)})
    with restarting(kind, counting_agent(), EnvCls, env_info_keys=["t", "vector"], **options) as sampler:
        batches = collect(sampler, 3)
        env = batches[0][0].env
        assert env.valid[:, 2].tolist()[:2] == [False, True]
        assert env.observation[1, 2:].tolist() == [[env_seed(b, 1) % 1024, 0, 0] for b in (2, 3)]
        if fault == "reset":
            assert Checker(kind, batches, with_info=True).losses == losses_of(sampler, [(0, 2)])


@pytest.mark.parametrize("kind", ["cpu2", nightly("gpu2")])
def test_a_worker_killed_before_the_first_batch_is_replaced(kind):
    with restarting(kind, counting_agent(), CountingEnv) as sampler:
        kill(sampler, 1)
        assert Checker(kind, collect(sampler, 3)).losses == losses_of(sampler, [(0, 2)])


# ---- losses of replacements, and while acting ----


@pytest.mark.parametrize("kind", ["cpu2", nightly("gpu2"), nightly("alternating2")])
def test_a_replacement_that_cannot_be_built_costs_no_more_rows(kind, tmp_path):
    row, at = place(env_seed(2), 0, 4, 2, "inside")
    EnvCls = faulty({env_seed(2): ("kill", at)}, tmp_path / "flag", no_licence)
    with restarting(kind, counting_agent(True), EnvCls) as sampler:
        batches = collect(sampler, 4)
        assert sampler.diagnostics()["WorkerRestarts"] == 2
    assert Checker(kind, batches, recurrent=True).losses == [Loss(row, 2, 2), Loss(row, 2, 3)]


class MortalModel(CountingModel):
    """Kills its process where it is shown an observation, once for every flag that lies there.

    Args:
        at: the observation.
        flags: files; each is taken away by one death.
    """

    def __init__(self, observation_space: Any, action_space: Any, at: Sequence[float], flags: Sequence[Path]) -> None:
        super().__init__(observation_space, action_space)
        self.at, self.flags = list(at), list(flags)

    def forward(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        if any(row.tolist() == self.at for row in observation):
            for flag in self.flags:
                if flag.exists():
                    flag.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(observation, *args, **kwargs)


@pytest.mark.parametrize(
    ("kind", "t", "valued", "loss", "deaths"),
    [
        ("cpu2", 2, True, -1, 1),
        nightly("cpu2", 3, True, -1, 1),
        ("cpu2", 0, True, -1, 1),  # dies of the last row of the batch before: it values what comes after it
        nightly("cpu2", 0, False, 0, 1),
        ("cpu2", 0, False, 0, 2),  # and so does its replacement
        ("gpu2 x2", 0, True, -1, 1),
        ("gpu2 x2", 0, False, 0, 1),
    ],
)
def test_a_worker_that_dies_while_it_acts_goes_on_from_the_row_before(kind, t, valued, loss, deaths, tmp_path):
    """Which row is at hand is noted when its actions are taken; before row 0 the batch begins again.

    It dies of what the row shows: as the value of the batch before, or when it has carried the row over.
    """
    row, _ = place(env_seed(2), 0, 4, t, "inside", first_batch=3)
    flags = [tmp_path / str(i) for i in range(deaths)]
    for flag in flags:
        flag.touch()
    agent = mortal_agent(observation_at(row), flags)
    with restarting(kind, agent, CountingEnv, bootstrap_value=valued, n_batches=1 + (t == 0)) as sampler:
        batches = collect(Watched(sampler), row // 4 + 3)
        assert sampler.diagnostics()["WorkerRestarts"] == deaths
    assert Checker(kind, batches).losses == [Loss(row + loss, deaths, b) for b in (2, 3)]


def observation_at(row: int) -> Any:
    """Return what environment 2 shows in a row."""
    stream = new_stream(env_seed(2), recurrent=False)
    for _ in range(row):
        stream.next_row(DISCOUNT)
    return stream.observation


def mortal_agent(observation: Any, flags: Sequence[Path]) -> Any:
    return CategoricalPgAgent(ModelCls=MortalModel, model_kwargs={"at": observation.tolist(), "flags": flags})


# ---- evaluation, resets in the background, vector environments ----


def eval_seed(rank: int, itr: int) -> int:
    return stream_seed(SEED, Role.EVAL_ENV, rank, itr)


def restart_seed(rank: int) -> int:
    """Return the seed of an evaluation environment that was lost once."""
    return stream_seed(SEED, Role.EVAL_ENV, rank + 2)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("cpu2", "kill"), nightly("cpu2", "reset"), nightly("gpu2", "kill"), ("alternating2", "reset")]
    + [nightly("no_overlap2", "kill")],
)
def test_a_loss_in_evaluation_leaves_the_quota_and_costs_a_row_of_training(kind, fault):
    EnvCls = faulty({eval_seed(1, itr=1): (fault, 6 if fault == "kill" else 1)})
    options: dict[str, Any] = dict(eval_n_envs=2, eval_max_trajectories=9, TrajInfoCls=RecordingTrajInfo)
    results = []
    for _ in range(2):
        with restarting(kind, counting_agent(True), EnvCls, T=3, **options) as sampler:
            batches = collect(sampler, 2)
            first = sampler.evaluate_agent(1)
            assert sampler.diagnostics()["WorkerRestarts"] == 1
            batches += collect(sampler, 2, first=2)
            second = sampler.evaluate_agent(2)
            batches += collect(sampler, 1, first=4)
        trajs = [whole_episodes(result) for result in (first, second)]
        assert [len(t) for t in trajs] == [9, 9]
        # What the lost one had completed is counted where the master knows of it. The next evaluation has the seeds
        # that it would have had without a loss.
        numbers = [[number for number, _ in episodes] for episodes in trajs]
        counted = kind != "cpu2" and fault == "kill"
        seeds = [eval_seed(0, itr=1), restart_seed(1), eval_seed(1, itr=1)][: 2 + counted]
        assert set(numbers[0]) == {seed % 1024 for seed in seeds}
        assert set(numbers[1]) == {eval_seed(rank, itr=2) % 1024 for rank in range(2)}
        assert [n.count(eval_seed(0, itr) % 1024) for itr, n in enumerate(numbers, 1)] == [5, 5]
        checker = Checker(kind, [(samples, None) for samples, _ in batches], recurrent=True)
        assert checker.losses == [Loss(6, 1, 2), Loss(6, 1, 3)]
        results.append((trajs, first.steps, second.steps, first.unfinished + second.unfinished))
    assert results[0] == results[1]
    assert results[0][3] == 0


def whole_episodes(result: Any) -> list[tuple[int, int]]:
    """Return number and episode of the environments of trajectories, each from its first step to its end."""
    episodes = []
    for info in result.traj_infos:
        seen = vars(info)["_seen"]
        number, _, episode = (int(x) for x in seen[0][0])
        length = CountingEnv().lengths[(number + episode) % 4]
        assert [step[0].tolist() for step in seen] == [[number, i, episode] for i in range(length)]
        assert [step[3] for step in seen] == [False] * (length - 1) + [True]
        episodes.append((number, episode))
    return sorted(episodes)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("cpu2", "reset"), nightly("cpu2", "kill"), ("cpu2", "wake"), nightly("gpu2", "reset"), ("gpu2", "kill")]
    + [nightly("gpu2", "wake"), nightly("alternating2", "reset"), nightly("no_overlap2", "kill")],
)
def test_a_loss_where_environments_rest_until_the_batch_is_over(kind, fault):
    """In a step, in a reset in the background, or while all rest."""
    seed = env_seed(2)
    faults = {"reset": {seed: ("reset", 3)}, "kill": {seed: ("kill", 8)}, "wake": {}}[fault]
    with restarting(kind, counting_agent(), faulty(faults), T=7, mid_batch_reset=False, n_batches=2) as sampler:
        watched = Watched(sampler)
        batches = collect(watched, 3)
        if fault == "wake":
            kill(sampler, 1)
        batches += collect(watched, 5, first=3)
        assert sampler.diagnostics()["WorkerRestarts"] == 1
    checker = Checker(kind, batches, rests="still")
    assert [loss.b for loss in checker.losses] == [2, 3]
    if fault != "kill":
        assert {loss.row % 7 for loss in checker.losses} == {0}
    assert any((samples.env.valid.sum(0) < 6).any() for samples, _ in batches), "none rested"


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("cpu2", "kill"), nightly("cpu2", "reset"), ("gpu2", "raise"), nightly("alternating2", "kill")],
)
def test_rows_around_the_loss_of_a_vector_environment_are_as_promised(kind, fault):
    row, at = place(env_seed(2), 0, 4, 2, "reset" if fault == "reset" else "inside")
    env_kwargs = {"fault": fault, "at": at, "bad_seed": env_seed(2)}
    options: dict[str, Any] = dict(env_kwargs=env_kwargs, env_info_keys=["t"])
    with restarting(kind, counting_agent(True), FaultyVectorEnv, **options) as sampler:
        batches = collect(sampler, row // 4 + 3)
        assert Checker(kind, batches, recurrent=True).losses == losses_of(sampler, [(row, 2)])
    for samples, _ in batches:
        assert not samples.env.env_info["t"][~samples.env.valid].any()


# ---- whole runs ----


@pytest.mark.parametrize(("kind", "t"), [("cpu2", 2), ("gpu2", 0), nightly("cpu2", 0), nightly("alternating2", 0)])
def test_a_replay_bootstraps_over_a_loss(kind, t, tmp_path):
    """A loss inside a batch is marked by the sampler, and one between two batches by the replay."""
    T, n = 5, 3
    row, at = place(env_seed(2), 0, T, t, "inside", first_batch=3)
    sampler = make_sampler(kind, faulty({env_seed(2): ("kill", at)}), T=T, restart_workers=1)
    runner = run(tmp_path, make_algo("dqn", n_step_return=n), sampler, n_steps=300, seed=SEED)
    replay = runner.algo.replay  # type: ignore[attr-defined]
    assert replay.check_valid() == (True, "")
    rows = replay.storage.rows
    assert rows.valid[row - 1 : row + 2, 2].tolist() == [True, False, True]
    assert rows.truncated[row - 1, 2]
    assert replay.storage.observation(row + 1, 2).tolist() == [env_seed(2, 1) % 1024, 0, 0]
    batch = replay.extract_batch(np.array([row - 1]), np.array([2]))
    assert batch.return_.item() == rows.reward[row - 1, 2]
    assert batch.bootstrap_discount.item() == pytest.approx(replay.discount)
    assert not batch.terminated.item()
    assert batch.target_inputs.observation[0].tolist() == replay.storage.observation(row, 2).tolist()
    assert batch.target_inputs.observation[0].tolist() == observation_at(row).tolist()


# ---- state ----


class StateOfAnEpisodeEnv(CountingEnv):
    """Environment that has no state before its first reset."""

    began = False

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.began = True
        return super().reset(**kwargs)

    def state_dict(self) -> dict[str, Any]:
        assert self.began
        return super().state_dict()


@pytest.mark.parametrize("kind", ["cpu2", nightly("gpu2")])
def test_a_state_saved_or_loaded_right_after_a_loss_goes_on_as_the_run_does(kind):
    with restarting(kind, random_agent(True), StateOfAnEpisodeEnv) as sampler:
        collect(sampler, 2)
        kill(sampler, 1)
        state = sampler.state_dict()
        expected = collect(sampler, 5, first=2)
    with restarting(kind, random_agent(True), StateOfAnEpisodeEnv) as sampler:
        sampler.load_state_dict(state)
        assert_equal_batches(collect(sampler, 5, first=2), expected)
        kill(sampler, 1)
        sampler.load_state_dict(state)
        assert_equal_batches(collect(sampler, 5, first=2), expected)
