"""The sampler with workers that each step some environments and run the network for them, on their own core."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch

from rlpyt.core import Agent, EvalResult
from rlpyt.logging import ProgBarCounter
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.env_set import (
    Check,
    Plan,
    columns_of,
    in_order,
    merge,
    start_collector,
    start_envs,
    start_evaluator,
)
from rlpyt.samplers.evaluator import Evaluator
from rlpyt.samplers.parallel import ParallelSampler
from rlpyt.samplers.server import PlanServer
from rlpyt.samplers.stopwatch import mean_of
from rlpyt.types import Run, Samples, TrajInfo
from rlpyt.utils.worker_pool import Message

_NOT_BEGUN = -1


class CollectorServer(PlanServer):
    """Server of a worker that acts: a collector and an evaluator that answer the master's requests."""

    def __init__(self, rank: int, progress: np.ndarray, plan: Plan, cpus: list[int] | None) -> None:
        super().__init__(rank, progress, plan, cpus)
        progress[2] = _NOT_BEGUN
        self._agent: Any
        self._collector: Collector
        self._evaluator: Evaluator | None = None

    def __call__(self, request: tuple[Any, ...]) -> Any:
        """Answer one request: its name, and its arguments."""
        match request:
            case ("build", with_check):
                return self.build(with_check)
            case ("start", check, agent, rows, eval_rows):
                return self._start(check, agent, rows, eval_rows)
            case ("collect", itr, first_t):
                self._agent.attach_shared_memory()
                return self._collector.collect_batch(itr, first_t)
            case ("wake",):
                return self._collector.wake()
            case ("evaluate", itr, deterministic):
                return self._evaluate(itr, deterministic)
            case ("times",):
                return self._collector.stopwatch.take()
            case ("state_dict",):
                return self._collector.state_dict()
            case ("load_state_dict", state_dict):
                return self._collector.load_state_dict(state_dict)
        raise ValueError(f"A collector was sent the request {request!r}, which it does not know.")

    def _start(self, check: Check, agent: Any, rows: Any, eval_rows: Any) -> None:
        agent.attach_shared_memory()
        self._agent = agent
        envs = self.env_set.training_envs(rows, check, self.progress)
        start_envs(self.plan, envs)
        self._collector = start_collector(self.plan, agent, [envs])
        if eval_rows is not None:
            eval_envs = self.env_set.evaluation_envs(eval_rows, self.progress)
            self._evaluator = start_evaluator(self.plan, agent, eval_envs)

    def _evaluate(self, itr: int, deterministic: bool) -> EvalResult:
        def note(done: int) -> None:
            self.progress[3] = done

        if self._evaluator is None:
            return EvalResult([], 0, 0)
        self._agent.attach_shared_memory()
        return self._evaluator.evaluate(itr, note, deterministic)


class CpuSampler(ParallelSampler):
    """Deals the environments to worker processes; each acts with a copy of the agent whose weights it shares.

    The batch lies in shared memory and every worker writes its own columns of it, so one message a batch goes each
    way. The rows are the same for any number of workers. Where EnvCls makes a vector environment, each worker has one.

    Args:
        *args: see `ParallelSampler` and `BaseSampler`.
        **kwargs: likewise.
    """

    server = CollectorServer

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Start workers, which build and check environments; initialise the agent; allocate the batch."""
        run = run or Run(batch_spec=self.batch_spec)
        plan = self.make_plan(run)
        example = self.make_example(agent, self.start_workers(plan, run.affinity), plan)
        rows, eval_rows = self._allocate(example, run.bootstrap_value, share_memory=True)
        self._agent: Any = agent
        self._worker_rows, self._worker_eval_rows = columns_of(rows, self._plans), self._eval_columns(eval_rows)
        self._seconds = 0.0
        return example

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Collect one batch; see `rlpyt.core.Sampler.obtain_samples`."""
        pool = self.pool
        start = perf_counter()
        self._share_agent()
        for worker in pool.workers:
            worker.progress[2] = _NOT_BEGUN
        completed = self._ask_all("collect", itr, None)
        if not self.mid_batch_reset:
            pool.post(dict.fromkeys(range(len(self._plans)), Message.of(("wake",))))
        self._seconds += perf_counter() - start
        return self._samples, in_order(completed)

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the evaluation environments; see `rlpyt.core.Sampler.evaluate_agent`."""
        self._check_running(self._pool)
        self._check_evaluates()
        self._share_agent()
        workers = self.pool.workers
        for worker in workers:
            worker.progress[3] = 0
        bar = ProgBarCounter(self._evaluation_size)
        try:
            requests = dict.fromkeys(range(len(workers)), ("evaluate", itr, deterministic))
            return merge(self.pool.ask(requests, lambda: bar.update(sum(int(w.progress[3]) for w in workers))))
        finally:
            bar.stop()

    @property
    def _evaluation_size(self) -> int:
        return self.eval_max_trajectories or sum(len(p.eval_env_ranks) * p.eval_max_T for p in self._plans)

    def state_dict(self) -> dict[str, Any]:
        """Return where environments, streams and recurrent states of all workers stand."""
        self._check_running(self._pool)
        self._share_agent()
        return {"collectors": self._ask_all("state_dict")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, with the same number of workers."""
        self._check_running(self._pool)
        saved = state_dict["collectors"]
        if len(saved) != len(self._plans):
            raise ValueError(
                f"{type(self).__name__}: the state is that of {len(saved)} workers, and {len(self._plans)} are "
                f"running; give n_workers={len(saved)}."
            )
        self._share_agent()
        self.pool.ask({rank: ("load_state_dict", s) for rank, s in enumerate(saved)})

    def resume(self, rank: int, progress: np.ndarray, request: Any) -> Any:
        """Go on with the batch from the row that the lost worker was at."""
        match request:
            case ("collect", itr, _) if progress[2] != _NOT_BEGUN:
                t = int(progress[2])
                self.truncate(self._worker_rows[rank], t)
                return "collect", itr, t
        return request

    def _share_agent(self) -> None:
        """Let the workers have the agent's weights as they are now; with the first call, the agent itself.

        Only then has the runner placed the model, in its precision and memory format.
        """
        if not self._started:
            copy = self._agent.worker_copy()
            self._warn_of_stale_networks(copy)
            columns = zip(self._worker_rows, self._worker_eval_rows, strict=True)
            self._start([("start", self._check, copy, rows, eval_rows) for rows, eval_rows in columns])
        self._agent.sync_shared_memory()

    def _warn_of_stale_networks(self, copy: Any) -> None:
        """Warn of networks that are sent to the workers once, and would act there with the weights of the start."""
        own = vars(self._agent)
        names = [k for k, x in vars(copy).items() if isinstance(x, torch.nn.Module) and x is own.get(k)]
        if names:
            warnings.warn(
                f"{type(self._agent).__name__}: the workers get its {', '.join(names)} once, and what is learned later "
                "reaches the networks in `acting` alone. Put a network that acts into agent.acting, and one that only "
                "learns into agent.learning (docs/own_agent.md).",
                stacklevel=2,
            )

    def _times(self) -> dict[str, float]:
        self._share_agent()
        seconds, self._seconds = self._seconds, 0.0
        return mean_of(self._ask_all("times"), seconds)
