"""The base of the samplers with workers: how many there are, where they run, and what happens when one is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from rlpyt.core import Agent, EvalResult, EvaluatorBeside
from rlpyt.logging import current_logger
from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.evaluator_process import EvaluatorProcess
from rlpyt.samplers.fleet import Builds, Check
from rlpyt.samplers.fleet_spec import FleetRole, FleetSpec, Specs, by_process, restarted
from rlpyt.samplers.parts import CompletedTraj
from rlpyt.samplers.remote_collectors import RemoteCollectors
from rlpyt.samplers.state_keeper import StateHolder
from rlpyt.types import Kwargs, Run, StateDict
from rlpyt.utils.calls import AnyCall, Call, R, S, call
from rlpyt.utils.processes import WorkerError, allowed_cpus, available_cores, available_cpus
from rlpyt.utils.progress import Progress
from rlpyt.utils.watched import Picklable
from rlpyt.utils.worker_pool import HERE, AnyKind, AnyPool, WorkerPool, local_workers
from rlpyt.utils.workers_here import Server


@dataclass(kw_only=True, eq=False)
class ParallelSampler(BaseSampler):
    """Sampler whose environments are in worker processes."""

    least_workers: ClassVar[int] = 1
    shares_memory: ClassVar[bool] = True
    server: ClassVar[Callable[..., Any]]
    """What answers requests in a worker; made with rank, progress, specs and cores."""

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
        """Refuse workers without an environment, and times that are none."""
        super().__post_init__()
        if self.n_workers is not None:
            expected = f"{self.least_workers} to batch_B, {self.batch_spec.B}: every worker needs an environment"
            self._check_n_workers(self._whole("n_workers", 1, expected), "n_workers is")
        if not self.worker_timeout > 0:
            raise ValueError(
                f"{type(self).__name__}: worker_timeout is {self.worker_timeout}; expected a number of seconds above 0."
            )
        self._whole("restart_workers", 0)
        if self.restart_seconds is not None and not self.restart_seconds > 0:
            raise ValueError(
                f"{type(self).__name__}: restart_seconds is {self.restart_seconds}; expected a number of seconds above "
                "0, or None to count the losses of the whole run."
            )
        self._check_kind("worker_kind", lambda x: x is None or callable(x), "a class of workers, or None for processes")
        if self.worker_kind is not None and self.start_method == HERE:
            raise ValueError(
                f"{type(self).__name__}: worker_kind is {self.worker_kind!r:.100} and start_method is {HERE!r}; "
                "expected one of them, as both say where the workers are."
            )
        self._pool: AnyPool | None = None
        self._worker_specs: list[Specs] = []
        self._remote: RemoteCollectors | None = None  # where the collectors are in the processes of the pool
        self._role = "Worker"  # of the pool, in messages
        self._progress: Progress | None = None

    def _check_n_workers(self, n_workers: int, what: str) -> None:
        if not self.least_workers <= n_workers <= self.batch_spec.B:
            raise ValueError(
                f"{type(self).__name__}: {what} {n_workers}; expected {self.least_workers} to batch_B, "
                f"{self.batch_spec.B}: every worker needs an environment."
            )

    def share(self, n_replicas: int) -> Self:
        """Return a sampler for one of some replicas, with its share of the workers, too."""
        n_workers = self.n_workers and max(self.least_workers, self.n_workers // n_replicas)
        share = self.replace(n_workers=n_workers)  # first, as there must be an environment for every worker
        return super(ParallelSampler, share).share(n_replicas)

    @property
    def process_start_method(self) -> str:
        """How the process is started, as the workers are if these have processes."""
        return "forkserver" if self.start_method == HERE else self.start_method

    @property
    def stall_seconds(self) -> float:
        """Seconds without progress after which the process counts as lost, as a worker does."""
        return self.worker_timeout

    @property
    def running(self) -> bool:
        """Whether there are workers."""
        return self._pool is not None

    @property
    def pool(self) -> AnyPool:
        """The running workers."""
        self._check_running()
        assert self._pool is not None
        return self._pool

    def deal(self, spec: FleetSpec, n_workers: int) -> list[FleetSpec]:
        """Return every worker's share of a fleet."""
        return spec.deal(n_workers)

    def start(self, specs: Specs, affinity: Kwargs) -> Check:
        """Start workers, which build environments, after the first has checked one; return the result of the check."""
        self.start_pool(specs, affinity)
        check = self.pool.ask({0: call(Builds.check)})[0]
        self.pool.set_up(dict.fromkeys(range(len(self._worker_specs)), call(Builds.build)), check.accept)
        return check

    def start_pool(self, specs: Specs, affinity: Kwargs, progress: Progress | None = None) -> None:
        """Start the workers.

        Args:
            specs: the fleets to deal to them.
            affinity: see `start`.
            progress: of this process, where it is itself a worker.
        """
        cpus = self._worker_cpus(affinity)
        if self.start_method == HERE or self.worker_kind is not None:
            cpus = [None] * len(cpus)  # this process is not theirs to pin
        worker_specs = by_process({role: self.deal(spec, len(cpus)) for role, spec in specs.items()})
        self._specs, self._worker_specs, self._progress = specs, worker_specs, progress
        before = specs[FleetRole.TRAIN].restarts
        kind = self.kind_of_workers(len(cpus))
        self._pool = WorkerPool(
            kind,
            lambda rank, restarts: (restarted(worker_specs[rank], before + restarts), cpus[rank], kind.own_generators),
            len(cpus),
            self._whole("restart_workers", 0),
            self._restart_seconds,
            self.on_loss,
            self._log_loss,
            (progress or Progress()).beat,
        )

    def _envs_of_process(self) -> int:
        return max(len(specs[FleetRole.TRAIN].env_ranks) for specs in self._worker_specs)

    def kind_of_workers(self, n_workers: int) -> AnyKind:
        """Return the way to run the workers."""
        if self.worker_kind is not None:
            return self.worker_kind(self.server)
        return local_workers(self.server, self.start_method)

    def _ask_all(self, request: Call[S, R]) -> list[R]:
        return self.pool.ask(dict.fromkeys(range(len(self._worker_specs)), request))

    def _rows_of_workers(self, rows: Mapping[FleetRole, Rows]) -> list[dict[FleetRole, Rows]]:
        """Return every worker's columns of the rows of its fleets."""
        dealt: list[dict[FleetRole, Rows]] = [{} for _ in self._worker_specs]
        for role, all_rows in rows.items():
            sizes = [len(specs[role].env_ranks) if role in specs else 0 for specs in self._worker_specs]
            for mine, size, columns in zip(dealt, sizes, all_rows.deal(sizes), strict=True):
                if size:
                    mine[role] = columns
        return dealt

    def evaluator_beside(self, agent: Agent, run: Run) -> EvaluatorBeside:
        """Start a process that evaluates while the run goes on, as the workers are started and watched."""
        return EvaluatorProcess(agent, self._whole_evaluation(run), run, self.process_start_method, self.worker_timeout)

    def _start_work(self, requests: list[AnyCall[S]]) -> None:
        """Give the workers their rows; from now on they may take as long as a step or a reset may."""
        self.pool.set_up(dict(enumerate(requests)))
        self.pool.timeout = self.worker_timeout

    # ---- collectors in the processes of the pool ----

    def serve(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows], wake: bool) -> None:
        """Let the processes of the pool collect and evaluate; see `RemoteCollectors`."""
        dealt = self._rows_of_workers(rows)
        ranks = [specs[FleetRole.TRAIN].env_ranks for specs in self._worker_specs]
        self._remote = RemoteCollectors(self.pool, agent, check, dealt, ranks, self.worker_timeout, wake)

    def collect(self, itr: int, first_t: int | None = None) -> list[CompletedTraj]:
        """Fill the rows of the batch; see `BaseSampler.collect`."""
        return super().collect(itr, first_t) if self._remote is None else self._remote.collect(itr, first_t)

    def run_evaluation(
        self, itr: int, on_progress: Callable[[int], None], deterministic: bool, after_loss: bool = False
    ) -> EvalResult:
        """Run every environment's quota of episodes; see `BaseSampler.run_evaluation`."""
        if self._remote is None:
            return super().run_evaluation(itr, on_progress, deterministic, after_loss)
        return self._remote.evaluate(itr, on_progress, deterministic)

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call."""
        return super().times() if self._remote is None else self._remote.times()

    def state_dict(self) -> StateDict:
        """Return the state of the sampler, and how many workers were lost: the seeds of the next depend on it."""
        return {**super().state_dict(), "restarts": self.pool.n_restarts}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, with any number of workers."""
        super().load_state_dict(state_dict)
        self.pool.count_restarts(state_dict.get("restarts", 0))

    @property
    def holder(self) -> StateHolder:
        """What holds the state of the training environments."""
        return self._remote or super().holder

    # ---- losses ----

    @property
    def _restart_seconds(self) -> float:
        return math.inf if self.restart_seconds is None else self.restart_seconds

    @staticmethod
    def on_loss(progress: Progress, request: AnyCall[Picklable]) -> AnyCall[Picklable]:
        """Return the call that a new worker takes up, from that of the lost one and the progress it had made."""
        return request

    def _log_loss(self, error: WorkerError, restarts_left: int) -> None:
        lost = self._worker_specs[error.rank][FleetRole.TRAIN].env_ranks
        self.n_cut_episodes += len(lost)
        env_ranks = ", ".join(map(str, lost))
        current_logger().warn(
            f"{error}\n{self._role} {error.rank} was replaced ({restarts_left} restarts left); its environments "
            f"{env_ranks} begin new episodes, and the lost ones are truncated where they stood."
        )

    def diagnostics(self) -> dict[str, float]:
        """Return what is to be logged of the collection since the last call, by column."""
        restarts = {"WorkerRestarts": self.pool.n_restarts} if self.restart_workers else {}
        return {**super().diagnostics(), **restarts}

    # ---- where and how many ----

    def plan(self) -> dict[str, object]:
        """Return where the work runs."""
        return {**super().plan(), "workers": len(self._worker_specs)}

    def shutdown(self) -> None:
        """Stop the workers, which close their environments."""
        pool, self._pool, self._remote = self._pool, None, None
        if pool is not None:
            pool.stop()

    def _worker_cpus(self, affinity: Kwargs) -> list[list[int] | None]:
        """Return the cores of every worker, None where it is not pinned; cores that are not allowed are left out."""
        pinned: list[Any] = list(affinity.get("workers_cpus", []))
        given = None if self.n_workers is None else self._whole("n_workers")
        n_workers = given or len(pinned) or max(self.least_workers, min(available_cores(), self.batch_spec.B))
        self._check_n_workers(n_workers, "affinity names cores for workers, in number" if pinned else "n_workers is")
        if not affinity.get("set_affinity", True):
            return [None] * n_workers
        if not pinned:
            # A worker started later in place of a lost one would inherit the master's cores.
            return [available_cpus() if affinity.get("master_cpus") else None] * n_workers
        return [allowed_cpus(pinned[i % len(pinned)], "affinity's workers_cpus") or None for i in range(n_workers)]
