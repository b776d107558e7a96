"""Workers of a sampler: how many there are, which environments each has, and what happens when one is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self

import numpy as np

from rlpyt.core import Sampler
from rlpyt.logging import current_logger
from rlpyt.samplers.background import ProcessSettings
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet import Built, Check, FleetServer
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.settings import Settings
from rlpyt.types import Kwargs
from rlpyt.utils.calls import AnyCall, Call, R, S, call
from rlpyt.utils.checks import share_of, whole_number
from rlpyt.utils.processes import WorkerError, allowed_cpus, available_cores, available_cpus
from rlpyt.utils.progress import Progress
from rlpyt.utils.worker_pool import HERE, AnyKind, AnyPool, WorkerPool, local_workers
from rlpyt.utils.workers_here import Server


@dataclass(kw_only=True, eq=False)
class WorkerSettings(Settings, Sampler):
    """Settings of the samplers with workers."""

    n_parts: ClassVar[int] = 1
    """Shares of the workers, and so the fewest workers; while one steps, the other gets its actions."""
    overlap: ClassVar[bool] = True
    """Whether two of them may step at the same time."""
    acts_here: ClassVar[bool] = True
    """Whether the process of the sampler runs the network, and not workers alone."""
    server: ClassVar[Callable[..., Any]]
    """What answers calls in a worker; made with rank, progress, specs and cores."""

    n_workers: int | None = None
    """Worker processes; None is one for every core that this process may use, or for every entry of
    `affinity["workers_cpus"]` where the runner is given one."""
    worker_timeout: float = 300.0
    """Seconds that a worker may go without finishing a step or reset before it counts as lost."""
    start_method: str = "forkserver"
    """"forkserver", "spawn" or "fork". "here" is for debugging: the workers are in this process and take turns, so that
    breakpoints stop in an environment. The rows are the same."""
    restart_workers: int = 0
    """Lost workers (dead, raising or standing still) that are replaced, all together, before a loss ends the run. The
    new worker's environments begin new episodes with seeds of their own; in the data the lost episodes are truncated
    where they stood, and their statistics are dropped."""
    restart_seconds: float | None = None
    """Seconds in which at most `restart_workers` losses may come; older ones no longer count. None is the whole run."""
    worker_kind: Callable[[Callable[..., Server]], AnyKind] | None = None
    """Workers of one's own: called with what makes the server of a worker, it returns a
    `rlpyt.utils.worker_pool.WorkerKind`. None is processes of this machine. `start_method` then counts for other
    processes of the run alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        name, B = type(self).__name__, self.batch_spec.B
        if self.n_workers is not None:
            expected = f"{self.n_parts} to batch_B, {B}: every worker needs an environment"
            n_workers = whole_number(name, "n_workers", self.n_workers, 1, expected)
            check_n_workers(self, n_workers, B, "n_workers is")
        if not self.worker_timeout > 0:
            raise ValueError(f"{name}: worker_timeout is {self.worker_timeout}; expected a number of seconds above 0.")
        whole_number(name, "restart_workers", self.restart_workers, 0)
        if self.restart_seconds is not None and not self.restart_seconds > 0:
            raise ValueError(
                f"{name}: restart_seconds is {self.restart_seconds}; expected a number of seconds above 0, or None to "
                "count the losses of the whole run."
            )
        kind = self.worker_kind
        if not (kind is None or callable(kind)):
            raise TypeError(
                f"{name}: worker_kind is {kind!r:.100}; expected a class of workers, or None for processes."
            )
        if kind is not None and self.start_method == HERE:
            raise ValueError(
                f"{name}: worker_kind is {kind!r:.100} and start_method is {HERE!r}; expected one of them, as both say "
                "where the workers are."
            )

    @property
    def process(self) -> ProcessSettings:
        """How a process with this sampler is started and watched: as the workers are, if these have processes."""
        start_method = "forkserver" if self.start_method == HERE else self.start_method
        return ProcessSettings(start_method, self.worker_timeout, self.acts_here)

    def share(self, n_replicas: int) -> Self:
        """Return a sampler for one of some replicas, with its share of the workers, too."""
        batch_B = share_of(type(self).__name__, "batch_B", self.batch_spec.B, n_replicas)
        n_workers = self.n_workers and max(self.n_parts, self.n_workers // n_replicas)
        return self.replace(batch_B=batch_B, n_workers=n_workers)


def check_n_workers(settings: WorkerSettings, n_workers: int, B: int, what: str) -> None:
    """Check that there is an environment for each worker, and enough workers."""
    if not settings.n_parts <= n_workers <= B:
        raise ValueError(
            f"{type(settings).__name__}: {what} {n_workers}; expected {settings.n_parts} to batch_B, {B}: every "
            "worker needs an environment."
        )


def worker_cpus(settings: WorkerSettings, affinity: Kwargs) -> list[list[int] | None]:
    """Return the cores of every worker, None where it is not pinned; cores that are not allowed are left out.

    The affinity of the run says how many workers there are, where the settings do not.
    """
    B = settings.batch_spec.B
    pinned: list[Any] = list(affinity.get("workers_cpus", []))
    given = None if settings.n_workers is None else int(settings.n_workers)
    n_workers = given or len(pinned) or max(settings.n_parts, min(available_cores(), B))
    what = "affinity names cores for workers, in number" if pinned else "n_workers is"
    check_n_workers(settings, n_workers, B, what)
    is_pinned = settings.start_method != HERE and settings.worker_kind is None  # else this process is not theirs to pin
    if not is_pinned or not affinity.get("set_affinity", True):
        return [None] * n_workers
    if not pinned:
        # A worker started later in place of a lost one would inherit the master's cores.
        return [available_cpus() if affinity.get("master_cpus") else None] * n_workers
    return [allowed_cpus(pinned[i % len(pinned)], "affinity's workers_cpus") or None for i in range(n_workers)]


class Workers(Generic[S]):
    """Running workers of a sampler.

    Args:
        sampler: says how long a worker may be silent, and how many are replaced; the episodes that a loss cuts are
            counted there.
        kind, on_loss, on_wait: see `WorkerPool`.
        specs: the fleets to deal to them, as evenly as they go.
        args: for each worker, the arguments of its server after rank, progress and its share of the fleets.
        n_parts: shares of the workers, each of which gets a share of the training environments.
        role: noun of the workers in messages.
    """

    def __init__(
        self,
        sampler: WorkerSettings,
        kind: AnyKind,
        specs: Specs,
        args: Sequence[tuple[object, ...]],
        on_loss: Callable[[Progress, AnyCall[S]], AnyCall[S]],
        n_parts: int = 1,
        role: str = "Worker",
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        def tell(error: WorkerError, restarts_left: int) -> None:
            lost = self.ranks[error.rank]
            sampler.n_cut_episodes += len(lost)
            current_logger().warn(
                f"{error}\n{role} {error.rank} was replaced ({restarts_left} restarts left); its environments "
                f"{', '.join(map(str, lost))} begin new episodes, and the lost ones are truncated where they stood."
            )

        n, before = len(args), specs[FleetRole.TRAIN].restarts
        dealt = {role: spec.deal(n) for role, spec in specs.items()}
        train = zip(specs[FleetRole.TRAIN].deal(n_parts), np.array_split(np.arange(n), n_parts), strict=True)
        dealt[FleetRole.TRAIN] = [one for part, some in train for one in part.deal(len(some))]
        # A worker without environments of a role has no fleet of it.
        self.specs: list[Specs] = [
            {role: of_role[rank] for role, of_role in dealt.items() if of_role[rank].env_ranks} for rank in range(n)
        ]
        self._sampler, of_each = sampler, self.specs

        def args_of(rank: int, restarts: int) -> tuple[object, ...]:
            mine = {role: replace(spec, restarts=before + restarts) for role, spec in of_each[rank].items()}
            return mine, *args[rank]

        self.pool: AnyPool = WorkerPool(
            kind,
            args_of,
            n,
            int(sampler.restart_workers),
            math.inf if sampler.restart_seconds is None else sampler.restart_seconds,
            on_loss,
            tell,
            on_wait,
        )

    @property
    def ranks(self) -> list[list[int]]:
        """Global ranks of every worker's training environments."""
        return [specs[FleetRole.TRAIN].env_ranks for specs in self.specs]

    def check_and_build(self) -> Check:
        """Check an environment in the first worker, then build all, like it; return the result of the check."""
        check = self.check()
        self.build(check.accept)
        return check

    def check(self) -> Check:
        """Build, try and close one environment in the first worker; return the result of the check."""
        return self.pool.ask({0: call(FleetServer.check)})[0]

    def build(self, accept: Callable[[list[Built]], None] = lambda built: None) -> list[Built]:
        """Build all environments and return their fleets; `accept` checks these, and those of later workers too."""
        calls = dict.fromkeys(range(len(self.specs)), call(FleetServer.build))
        return [built for some in self.pool.set_up(calls, accept) for built in some]

    def begin(self, requests: Sequence[AnyCall[S]]) -> None:
        """Give the workers what they work on; from now on they may take as long as a step or a reset may."""
        self.pool.set_up(dict(enumerate(requests)))
        self.pool.timeout = self._sampler.worker_timeout

    def ask_all(self, request: Call[S, R]) -> list[R]:
        """Send all the same call, and return the replies."""
        return self.pool.ask(dict.fromkeys(range(len(self.specs)), request))

    def rows_of_each(self, rows: Mapping[FleetRole, Rows]) -> list[dict[FleetRole, Rows]]:
        """Return every worker's columns of the rows of its fleets."""
        dealt: list[dict[FleetRole, Rows]] = [{} for _ in self.specs]
        for role, all_rows in rows.items():
            sizes = [len(specs[role].env_ranks) if role in specs else 0 for specs in self.specs]
            for mine, size, columns in zip(dealt, sizes, all_rows.deal(sizes), strict=True):
                if size:
                    mine[role] = columns
        return dealt

    def columns(self) -> dict[str, int]:
        """Return numbers of the workers for the log, by column."""
        return {"WorkerRestarts": self.pool.n_restarts} if self._sampler.restart_workers else {}


def env_workers(
    sampler: WorkerSettings,
    specs: Specs,
    affinity: Kwargs,
    on_loss: Callable[[Progress, AnyCall[S]], AnyCall[S]],
    on_wait: Callable[[], None] = lambda: None,
) -> Workers[S]:
    """Start the workers that have the environments of a sampler, on the cores that the affinity of the run names."""
    if sampler.worker_kind is not None:
        kind = sampler.worker_kind(sampler.server)
    else:
        kind = local_workers(sampler.server, sampler.start_method)
    args = [(cpus, kind.own_generators) for cpus in worker_cpus(sampler, affinity)]
    return Workers(sampler, kind, specs, args, on_loss, sampler.n_parts, on_wait=on_wait)
