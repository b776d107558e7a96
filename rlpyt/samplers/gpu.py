"""Samplers whose environments step in workers while this process selects all actions, on the agent's device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.env_batch import EnvBatch
from rlpyt.samplers.env_set import Plan, columns_of, in_order, start_collector, start_evaluator
from rlpyt.samplers.parallel import ParallelSampler
from rlpyt.samplers.remote_envs import EnvServer, RemoteEnvs
from rlpyt.samplers.stopwatch import mean_of
from rlpyt.types import Run, Samples, TrajInfo


class GpuSampler(ParallelSampler):
    """Steps the environments in workers, and selects the actions of all in one forward pass, on a GPU or the CPU.

    Args:
        *args: see `ParallelSampler` and `BaseSampler`.
        **kwargs: likewise.
    """

    server = EnvServer
    n_parts = 1
    overlap = True

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Start workers, which build and check environments; initialise the agent; allocate the batch."""
        run = run or Run(batch_spec=self.batch_spec)
        plan = self.make_plan(run)
        example = self.make_example(agent, self.start_workers(plan, run.affinity), plan)
        rows, eval_rows = self._allocate(example, run.bootstrap_value, share_memory=True)
        self._worker_rows = columns_of(rows, self._plans)
        columns = zip(self._worker_rows, self._eval_columns(eval_rows), strict=True)
        self._start([("start", self._check, train, evaluation) for train, evaluation in columns])
        null_action = self._check.examples.action
        parts: list[EnvBatch] = []
        lo = 0
        for workers in np.array_split(np.arange(len(self._plans)), self.n_parts):
            ranks_of = {int(w): self._plans[w].env_ranks for w in workers}
            hi = lo + sum(map(len, ranks_of.values()))
            parts.append(RemoteEnvs(self.pool, ranks_of, rows[:, lo:hi], "train", null_action))
            lo = hi
        self._collector: Collector = start_collector(plan, agent, parts, self.overlap)
        if eval_rows is not None:
            ranks_of = {w: p.eval_env_ranks for w, p in enumerate(self._plans) if p.eval_env_ranks}
            self._evaluator = start_evaluator(
                plan, agent, RemoteEnvs(self.pool, ranks_of, eval_rows, "eval", null_action)
            )
        return example

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Collect one batch; see `rlpyt.core.Sampler.obtain_samples`."""
        self._check_running(self._pool)
        with self._threads():
            completed = self._collector.collect_batch(itr)
        if not self.mid_batch_reset:
            self._collector.wake()
        return self._samples, in_order([completed])

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the evaluation environments; see `rlpyt.core.Sampler.evaluate_agent`."""
        self._check_running(self._pool)
        self._check_evaluates()
        return self._run_evaluation(self._evaluator, itr, deterministic)

    def resume(self, rank: int, progress: np.ndarray, request: Any) -> Any:
        """Mark where the lost episodes stood, and take the same step again, which begins new ones."""
        match request:
            case ("step", "train", t):
                self.truncate(self._worker_rows[rank], t)
        return request

    def state_dict(self) -> dict[str, Any]:
        """Return where environments, streams and recurrent states stand."""
        self._check_running(self._pool)
        return {"collectors": [self._collector.state_dict()]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, with the same number of workers."""
        self._check_running(self._pool)
        self._collector.load_state_dict(state_dict["collectors"][0])

    def _times(self) -> dict[str, float]:
        master = self._collector.stopwatch.take()
        return mean_of([master, *self._ask_all("times")], sum(master.values()))


class AlternatingSampler(GpuSampler):
    """`GpuSampler` with two halves of workers: one steps its environments while the other gets actions."""

    least_workers = 2
    n_parts = 2
    default_acting_threads = 1  # a team of threads beside workers that step is many times slower than one thread

    def deal(self, plan: Plan, n_workers: int) -> list[Plan]:
        """Deal half of the environments to half of the workers; those of the evaluation to all."""
        first, second = plan.deal(2)
        halves = first.deal((n_workers + 1) // 2) + second.deal(n_workers // 2)
        return [p._replace(env_ranks=h.env_ranks) for p, h in zip(plan.deal(n_workers), halves, strict=True)]


class NoOverlapAlternatingSampler(AlternatingSampler):
    """`AlternatingSampler` in which never both halves step at once: only one, beside the network."""

    overlap = False
