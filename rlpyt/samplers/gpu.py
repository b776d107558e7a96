"""Samplers whose environments step in workers while this process selects all actions, on the agent's device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rlpyt.core import Agent
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collector import start_collector
from rlpyt.samplers.evaluator import start_evaluator
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole, FleetSpec
from rlpyt.samplers.parallel import ParallelSampler
from rlpyt.samplers.remote_part import EnvServer, RemotePart
from rlpyt.samplers.server import Request
from rlpyt.samplers.stopwatch import mean_of
from rlpyt.utils.progress import Progress


@dataclass(kw_only=True, eq=False)
class GpuSampler(ParallelSampler):
    """Sampler that steps the environments in workers, and selects all actions in one forward pass, on a GPU or the CPU.

    The batch lies in shared memory; one message a row goes each way.
    """

    server: ClassVar[Callable[..., Any]] = EnvServer
    n_parts: ClassVar[int] = 1
    overlap: ClassVar[bool] = True

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> None:
        """Start the environments, and put collector and evaluator together."""
        self._start_work([("start", check, some) for some in self._rows_of_workers(rows)])
        shares = [share.tolist() for share in np.array_split(np.arange(len(self._worker_specs)), self.n_parts)]
        parts = self._remote_parts(FleetRole.TRAIN, shares, rows[FleetRole.TRAIN], check)
        self._collector = start_collector(self._specs[FleetRole.TRAIN], agent, parts, self.overlap)
        if FleetRole.EVAL in rows:
            everyone = list(range(len(self._worker_specs)))
            [part] = self._remote_parts(FleetRole.EVAL, [everyone], rows[FleetRole.EVAL], check)
            self._evaluator = start_evaluator(self._specs[FleetRole.EVAL], agent, part)

    def _remote_parts(self, role: FleetRole, shares: list[list[int]], rows: Rows, check: Check) -> list[RemotePart]:
        """Return one part for each share of the workers."""
        ranks = [
            {w: self._worker_specs[w][role].env_ranks for w in workers if role in self._worker_specs[w]}
            for workers in shares
        ]
        columns = rows.deal([sum(map(len, ranks_of.values())) for ranks_of in ranks])
        null_action = check.examples.action
        return [RemotePart(self.pool, x, some, role, null_action) for x, some in zip(ranks, columns, strict=True)]

    @staticmethod
    def on_loss(progress: Progress, request: Request) -> Request:
        """Take the same step again, which begins new episodes; reset with other seeds than those of the lost worker."""
        match request:
            case ("step", role, place, t):
                return "resume", role, place, t
            case ("reset", role, _):
                return "reset", role, None
        return request

    def _times(self) -> dict[str, float]:
        master = self._collector.stopwatch.take()
        return mean_of([master, *self._ask_all("times")], sum(master.values()))


@dataclass(kw_only=True, eq=False)
class AlternatingSampler(GpuSampler):
    """`GpuSampler` with two halves of workers: one steps its environments while the other gets actions."""

    least_workers: ClassVar[int] = 2
    n_parts: ClassVar[int] = 2
    # A team of threads beside workers that step is many times slower than one thread.
    default_acting_threads: ClassVar[int | None] = 1

    def deal(self, spec: FleetSpec, n_workers: int) -> list[FleetSpec]:
        """Deal half of the training environments to half of the workers; those of the evaluation to all."""
        if spec.role is FleetRole.EVAL:
            return super().deal(spec, n_workers)
        first, second = spec.deal(2)
        return first.deal((n_workers + 1) // 2) + second.deal(n_workers // 2)


@dataclass(kw_only=True, eq=False)
class NoOverlapAlternatingSampler(AlternatingSampler):
    """`AlternatingSampler` in which never both halves step at once: only one, beside the network."""

    overlap: ClassVar[bool] = False


AsyncGpuSampler = GpuSampler
AsyncAlternatingSampler = AlternatingSampler
AsyncNoOverlapAlternatingSampler = NoOverlapAlternatingSampler
"""Their names in asynchronous runs of rlpyt 0.1."""
