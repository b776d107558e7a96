"""What the samplers with workers share: how many there are and where they run, and what happens when one is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from rlpyt.envs import EnvExamples
from rlpyt.logging import current_logger
from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.env_set import Check, Plan
from rlpyt.utils.processes import WorkerError, allowed_cpus, available_cores, available_cpus
from rlpyt.utils.worker_pool import WorkerPool


class ParallelSampler(BaseSampler):
    """Arguments of the samplers with workers.

    Args:
        n_workers: worker processes; None is one for every core that this process may use, or for every entry of
            `affinity["workers_cpus"]` where the runner is given one.
        worker_timeout: seconds that a worker may go without finishing a step or reset before it counts as lost.
        start_method: "forkserver", "spawn" or "fork".
        restart_workers: lost workers (dead, raising or standing still) that are replaced, all together, before a loss
            ends the run. The new worker's environments begin new episodes with seeds of their own; in the data the
            lost episodes are truncated where they stood, and their statistics are dropped.
        *args: see `BaseSampler`.
        **kwargs: see `BaseSampler`.
    """

    least_workers = 1
    server: Callable[..., Any]
    """What answers requests in a worker; made with rank, progress, plan and cores."""

    def __init__(
        self,
        *args: Any,
        n_workers: int | None = None,
        worker_timeout: float = 300.0,
        start_method: str = "forkserver",
        restart_workers: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        expected = f"{self.least_workers} to batch_B, {self.batch_spec.B}: every worker needs an environment"
        self.n_workers = None if n_workers is None else self._whole("n_workers", n_workers, 1, expected)
        self._check_n_workers(self.n_workers, "n_workers is")
        if not worker_timeout > 0:
            raise ValueError(
                f"{type(self).__name__}: worker_timeout is {worker_timeout}; expected a number of seconds above 0."
            )
        self.worker_timeout = worker_timeout
        self.start_method = start_method
        self.restart_workers = self._whole("restart_workers", restart_workers, 0)
        self._pool: WorkerPool | None = None

    def _check_n_workers(self, n_workers: int | None, what: str) -> None:
        if n_workers is not None and not self.least_workers <= n_workers <= self.batch_spec.B:
            raise ValueError(
                f"{type(self).__name__}: {what} {n_workers}; expected {self.least_workers} to batch_B, "
                f"{self.batch_spec.B}: every worker needs an environment."
            )

    @property
    def pool(self) -> WorkerPool:
        """The running workers."""
        self._check_running(self._pool)
        assert self._pool is not None
        return self._pool

    def deal(self, plan: Plan, n_workers: int) -> list[Plan]:
        """Return every worker's plan."""
        return plan.deal(n_workers)

    def start_workers(self, plan: Plan, affinity: Mapping[str, Any]) -> EnvExamples:
        """Start workers, which build environments, after the first has checked one; return examples of what it gave."""
        cpus = self._worker_cpus(affinity)
        self._plans = self.deal(plan, len(cpus))
        self._started = False  # whether the workers have got their rows
        self._pool = WorkerPool(
            self.server,
            lambda rank, restarts: (self._plans[rank]._replace(restarts=restarts), cpus[rank]),
            len(cpus),
            self.start_method,
            self.restart_workers,
            self._recover,
        )
        replies = self.pool.ask({rank: ("build", rank == 0) for rank in range(len(cpus))})
        self._check: Check = replies[0][0]
        for _, built in replies:
            built.check_spaces(self._check.examples.spaces)
        return self._check.examples

    def _ask_all(self, *request: Any) -> list[Any]:
        return self.pool.ask(dict.fromkeys(range(len(self._plans)), request))

    def _eval_columns(self, eval_rows: Rows | None) -> list[Rows | None]:
        """Return every worker's part of the evaluation's rows, None where it has none."""
        bounds = np.cumsum([0] + [len(plan.eval_env_ranks) for plan in self._plans])
        return [eval_rows[:, lo:hi] if eval_rows is not None and hi > lo else None for lo, hi in pairwise(bounds)]

    def _start(self, requests: list[Any]) -> None:
        """Give the workers their rows; from now on a lost one can be replaced in the middle of the work."""
        self._start_requests = requests
        self.pool.ask(dict(enumerate(requests)))
        self._started = True
        self.pool.timeout = self.worker_timeout

    # ---- losses ----

    def _recover(self, rank: int, progress: np.ndarray, error: WorkerError, request: Any) -> Any:
        """Bring a new worker to where the lost one stood; return the request that it takes up."""
        assert self._pool is not None
        env_ranks, left = ", ".join(map(str, self._plans[rank].env_ranks)), self._pool.restarts_left
        current_logger().log(
            f"{error}\nWorker {rank} was replaced ({left} restarts left); its environments {env_ranks} begin new "
            "episodes, and the lost ones are truncated where they stood."
        )
        if request[0] == "build":
            return request
        [(_, built)] = self._pool.ask({rank: ("build", False)})
        built.check_spaces(self._check.examples.spaces)
        if not self._started:
            return request
        self._pool.ask({rank: self._start_requests[rank]})
        return self.resume(rank, progress, request)

    def resume(self, rank: int, progress: np.ndarray, request: Any) -> Any:
        """Mark the loss in the rows; return the request that the new worker takes up."""
        return request

    @staticmethod
    def truncate(rows: Rows, t: int) -> None:
        """Mark that the episodes stop short of row t, which holds their final observation.

        Where row t is the first of its batch, nothing is marked: a row that is not valid, after one that did not end
        the episode, is the mark.
        """
        if t > 0:
            rows.truncated[t - 1] |= rows.valid[t - 1] & ~rows.terminated[t - 1]

    def diagnostics(self) -> dict[str, float]:
        """Return what is to be logged of the collection since the last call, by column."""
        restarts = {"WorkerRestarts": self.pool.n_restarts} if self.restart_workers else {}
        return {**super().diagnostics(), **restarts}

    # ---- where and how many ----

    def plan(self) -> dict[str, Any]:
        """Return where the work runs."""
        return {**super().plan(), "workers": len(self._plans)}

    def shutdown(self) -> None:
        """Stop the workers, which close their environments."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()

    def _worker_cpus(self, affinity: Mapping[str, Any]) -> list[list[int] | None]:
        """Return the cores of every worker, None where it is not pinned; cores that are not allowed are left out."""
        pinned: list[Any] = list(affinity.get("workers_cpus", []))
        n_workers = self.n_workers or len(pinned) or max(self.least_workers, min(available_cores(), self.batch_spec.B))
        self._check_n_workers(n_workers, "affinity names cores for workers, in number" if pinned else "n_workers is")
        if not affinity.get("set_affinity", True):
            return [None] * n_workers
        if not pinned:
            # A worker started later in place of a lost one would inherit the master's cores.
            return [available_cpus() if affinity.get("master_cpus") else None] * n_workers
        return [allowed_cpus(pinned[i % len(pinned)], "affinity's workers_cpus") or None for i in range(n_workers)]
