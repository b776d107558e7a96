"""The sampler with workers that each step some environments and run the network for them, on their own core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collector import Collector, start_collector
from rlpyt.samplers.evaluator import Evaluator, start_evaluator
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole
from rlpyt.samplers.parallel import ParallelSampler
from rlpyt.samplers.parts import CompletedTraj
from rlpyt.samplers.server import FleetServer, Reply, Request
from rlpyt.samplers.stopwatch import mean_of
from rlpyt.types import StateDict
from rlpyt.utils.progress import Progress
from rlpyt.utils.worker_pool import Message


class CollectorServer(FleetServer):
    """Server of a worker that acts: a collector and an evaluator that answer the master's requests."""

    _agent: Agent
    _rows: Rows
    _collector: Collector
    _evaluator: Evaluator | None = None

    def __call__(self, request: Request) -> Reply:
        """Answer one request: its name, and its arguments."""
        match request:
            case ("start", check, agent, rows):
                return self._start(check, agent, rows)
            case ("collect", itr, first_t):
                return self._collect(itr, first_t)
            case ("wake",):
                return self._collector.wake()
            case ("evaluate", itr, deterministic, after_loss):
                return self._evaluate(itr, deterministic, after_loss)
            case ("times",):
                return self._collector.stopwatch.take()
            case ("state_dict",):
                return self._collector.state_dict()
            case ("load_state_dict", state_dict):
                return self._collector.load_state_dict(state_dict)
        return super().__call__(request)

    def _start(self, check: Check, agent: Agent, rows: dict[FleetRole, Rows]) -> None:
        agent.attach_shared_memory()
        self._agent, self._rows = agent, rows[FleetRole.TRAIN]
        parts = self.started_parts(check, rows)
        self._collector = start_collector(self.specs[FleetRole.TRAIN], agent, [parts[FleetRole.TRAIN]])
        if FleetRole.EVAL in parts:
            self._evaluator = start_evaluator(self.specs[FleetRole.EVAL], agent, parts[FleetRole.EVAL])

    def _collect(self, itr: int, first_t: int | None) -> list[CompletedTraj]:
        self._agent.attach_shared_memory()
        if first_t is not None:
            self._rows.turn_to(itr)
            self._rows.truncate(first_t)
        return self._collector.collect_batch(itr, first_t)

    def _evaluate(self, itr: int, deterministic: bool, after_loss: bool) -> EvalResult:
        def note(done: int) -> None:
            self.progress.episodes = done

        if self._evaluator is None:
            return EvalResult([], 0, 0)
        spec = self.specs[FleetRole.EVAL]
        self._agent.attach_shared_memory()
        # A lost worker may have died of its seeds.
        self._evaluator.start(spec.restart_seeds() if after_loss else spec.seeds(itr))
        return self._evaluator.evaluate(itr, note, deterministic)


@dataclass(kw_only=True, eq=False)
class CpuSampler(ParallelSampler):
    """Sampler that deals the environments to workers, each of which acts with a copy of the agent.

    Weights and batch lie in shared memory. Every worker writes its own columns of the batch, so one message a batch
    goes each way. The rows are the same for any number of workers. Where EnvCls makes a vector environment, each worker
    has one.
    """

    acts_here: ClassVar[bool] = False
    server: ClassVar[Callable[..., Any]] = CollectorServer

    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> None:
        """Keep what the workers are given with the first request that acts."""
        self._agent, self._check, self._worker_rows = agent, check, self._rows_of_workers(rows)
        self._seconds, self._started = 0.0, False

    def collect(self, itr: int) -> list[CompletedTraj]:
        """Let the workers fill their columns of the batch."""
        pool = self.pool
        start = perf_counter()
        self._share_agent()
        for worker in pool.workers:
            worker.progress.row = None
        completed = self._ask_all("collect", itr, None)
        if not self.mid_batch_reset:
            pool.post(dict.fromkeys(range(len(self._worker_specs)), Message.of(("wake",))))
        self._seconds += perf_counter() - start
        return [traj for some in completed for traj in some]

    def run_evaluation(self, itr: int, on_progress: Callable[[int], None], deterministic: bool) -> EvalResult:
        """Let the workers run their shares of the quota."""
        self._share_agent()
        workers = self.pool.workers
        for worker in workers:
            worker.progress.episodes = 0
        requests = dict.fromkeys(range(len(workers)), ("evaluate", itr, deterministic, False))
        return EvalResult.merge(self.pool.ask(requests, lambda: on_progress(sum(w.progress.episodes for w in workers))))

    def collector_states(self) -> list[StateDict]:
        """Return the state of every worker's collector."""
        self._share_agent()
        return self._ask_all("state_dict")

    def load_collector_states(self, states: Sequence[StateDict]) -> None:
        """Take over what `collector_states` returned, with the same number of workers."""
        if len(states) != len(self._worker_specs):
            raise ValueError(
                f"{type(self).__name__}: the state is that of {len(states)} workers, and {len(self._worker_specs)} are "
                f"running; give n_workers={len(states)}."
            )
        self._share_agent()
        self.pool.ask({rank: ("load_state_dict", s) for rank, s in enumerate(states)})

    @staticmethod
    def on_loss(progress: Progress, request: Request) -> Request:
        """Go on with the batch from the row that the lost worker was at; begin its share of an evaluation again."""
        match request:
            case ("collect", itr, _) if progress.row is not None:
                return "collect", itr, progress.row
            case ("evaluate", itr, deterministic, _):
                return "evaluate", itr, deterministic, True
        return request

    def _share_agent(self) -> None:
        """Let the workers have the agent's weights as they are now; with the first call, the agent itself.

        Only then has the runner placed the model, in its precision and memory format.
        """
        if not self._started:
            copy = self._agent.worker_copy()
            self._start_work([("start", self._check, copy, rows) for rows in self._worker_rows])
            self._started = True
        self._agent.sync_shared_memory()

    def _times(self) -> dict[str, float]:
        self._share_agent()
        seconds, self._seconds = self._seconds, 0.0
        return mean_of(self._ask_all("times"), seconds)


AsyncCpuSampler = CpuSampler
"""Its name in asynchronous runs of rlpyt 0.1."""
