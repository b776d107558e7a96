"""The sampler with workers that each step some environments and run the network for them, on their own core."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import psutil

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.base import BaseSampler, Plan, in_order, make_envs, merge, start_collector, start_evaluator
from rlpyt.samplers.buffer import allocate_rows, samples_of
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.evaluator import Evaluator
from rlpyt.types import Samples, TrajInfo
from rlpyt.utils.processes import Worker, available_cpus, receive_all, stop_workers

_START_TIMEOUT = 600.0  # seconds until an environment is built: simulators compile, licences are fetched


class CpuSampler(BaseSampler):
    """Deals the environments to worker processes; each acts with a copy of the agent whose weights it shares.

    The batch lies in shared memory and every worker writes its own columns of it, so one message a batch goes each
    way. The rows are the same for any number of workers.

    Args:
        n_workers: worker processes; None is one for every core that this process may use, or for every entry of
            `affinity["workers_cpus"]` where the runner is given one.
        worker_timeout: seconds that a worker may go without finishing a step or reset before the run is ended.
        start_method: "forkserver", "spawn" or "fork".
        *args: see `BaseSampler`.
        **kwargs: see `BaseSampler`.
    """

    def __init__(
        self,
        *args: Any,
        n_workers: int | None = None,
        worker_timeout: float = 300.0,
        start_method: str = "forkserver",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if n_workers is not None and not 1 <= n_workers <= self.batch_spec.B:
            raise ValueError(
                f"{type(self).__name__}: n_workers is {n_workers}; expected 1 to batch_B, {self.batch_spec.B}: "
                "every worker needs an environment."
            )
        self.n_workers = n_workers
        self.worker_timeout = worker_timeout
        self.start_method = start_method
        self._workers: list[Worker] = []

    def initialize(
        self,
        agent: Agent,
        affinity: Mapping[str, Any] | None = None,
        seed: int = 0,
        bootstrap_value: bool = False,
        traj_info_kwargs: Mapping[str, Any] | None = None,
        world_size: int = 1,
        rank: int = 0,
    ) -> Samples:
        """Start workers, which build and check environments; initialise the agent; allocate the batch."""
        plan = self.make_plan(seed, traj_info_kwargs, world_size, rank)
        cpus = self._worker_cpus(affinity or {})
        plans = _deal(plan, len(cpus))
        for i, (worker_plan, worker_cpus) in enumerate(zip(plans, cpus, strict=True)):
            self._workers.append(Worker(i, CollectorServer, (worker_plan, worker_cpus), self.start_method))
        examples = self._ask_all([("examples",)] * len(plans), _START_TIMEOUT)[0]
        example = self.make_example(agent, examples, plan)
        rows = allocate_rows(example, *self.batch_spec, bootstrap_value, share_memory=True)
        self._samples = samples_of(rows)
        self._agent = agent
        self._agent_sent = False
        bounds = np.cumsum([0] + [len(p.env_ranks) for p in plans])
        self._worker_rows = [rows[:, lo:hi] for lo, hi in pairwise(bounds)]
        return example

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Collect one batch; see `rlpyt.core.Sampler.obtain_samples`."""
        return self._samples, in_order(self._ask_agents(("collect", itr)))

    def evaluate_agent(self, itr: int) -> EvalResult:
        """Run whole episodes in the evaluation environments."""
        if self.eval_n_envs == 0:
            raise RuntimeError(
                f"{type(self).__name__}: evaluation was asked for, but eval_n_envs is 0; set it above 0."
            )
        return merge(self._ask_agents(("evaluate", itr)))

    def plan(self) -> dict[str, Any]:
        """Return where the work runs."""
        return {**super().plan(), "workers": len(self._workers)}

    def shutdown(self) -> None:
        """Stop the workers, which close their environments."""
        workers, self._workers = self._workers, []
        stop_workers(workers)

    def state_dict(self) -> dict[str, Any]:
        """Return where environments, streams and recurrent states of all workers stand."""
        return {"collectors": self._ask_agents(("state_dict",))}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, with the same number of workers."""
        self._check_running(self._workers)
        saved = state_dict["collectors"]
        if len(saved) != len(self._workers):
            raise ValueError(
                f"{type(self).__name__}: the state is that of {len(saved)} workers, and {len(self._workers)} are "
                f"running; give n_workers={len(saved)}."
            )
        self._send_agent()
        self._ask_all([("load_state_dict", s) for s in saved], self.worker_timeout)

    def _ask_agents(self, request: tuple[Any, ...]) -> list[Any]:
        """Ask all workers for what takes the agent's weights as they are now."""
        self._check_running(self._workers)
        self._send_agent()
        self._agent.sync_shared_memory()  # type: ignore[attr-defined]
        return self._ask_all([request] * len(self._workers), self.worker_timeout)

    def _send_agent(self) -> None:
        # Only now, with the first request: the runner has placed the model, in its precision and memory format.
        if not self._agent_sent:
            copy = self._agent.worker_copy()  # type: ignore[attr-defined]
            self._ask_all([("start", copy, rows) for rows in self._worker_rows], _START_TIMEOUT)
            self._agent_sent = True

    def _ask_all(self, requests: list[tuple[Any, ...]], timeout: float) -> list[Any]:
        for worker, request in zip(self._workers, requests, strict=True):
            worker.send(request)
        return receive_all(self._workers, timeout)

    def _worker_cpus(self, affinity: Mapping[str, Any]) -> list[list[int] | None]:
        """Return the cores of every worker, None where it is not pinned; cores that are not allowed are left out."""
        pinned: list[Any] = list(affinity.get("workers_cpus", []))
        n_workers = self.n_workers or len(pinned) or min(len(available_cpus()), self.batch_spec.B)
        if n_workers > self.batch_spec.B:
            raise ValueError(
                f"{type(self).__name__}: affinity names cores for {n_workers} workers; batch_B is only "
                f"{self.batch_spec.B}, and every worker needs an environment."
            )
        if not pinned or not affinity.get("set_affinity", True):
            return [None] * n_workers
        allowed = set(available_cpus())
        cpus = [[c] if isinstance(c, int) else list(c) for c in (pinned[i % len(pinned)] for i in range(n_workers))]
        return [[c for c in cs if c in allowed] or None for cs in cpus]


class CollectorServer:
    """What runs in a worker: a collector and an evaluator that answer the master's requests."""

    def __init__(self, rank: int, progress: np.ndarray, plan: Plan, cpus: list[int] | None) -> None:
        if cpus is not None:
            psutil.Process().cpu_affinity(cpus)
        self._plan, self._progress = plan, progress
        progress[0] = plan.env_ranks[0]
        self._env_set = make_envs(plan)
        self._collector: Collector
        self._evaluator: Evaluator | None

    def __call__(self, request: tuple[Any, ...]) -> Any:
        """Answer one request: its name, and its arguments."""
        match request:
            case ("examples",):
                return self._env_set.examples
            case ("start", agent, rows):
                agent.attach_shared_memory()
                self._collector = start_collector(self._plan, self._env_set, agent, rows, self._progress)
                self._evaluator = start_evaluator(self._plan, self._env_set, agent, self._progress)
                return None
            case ("collect", itr):
                return self._collector.collect_batch(itr)
            case ("evaluate", itr):
                return self._evaluator.evaluate(itr) if self._evaluator is not None else EvalResult([], 0, 0)
            case ("state_dict",):
                return self._collector.state_dict()
            case ("load_state_dict", state_dict):
                return self._collector.load_state_dict(state_dict)
        raise ValueError(f"A collector was sent the request {request!r}, which it does not know.")

    def close(self) -> None:
        """Close the environments."""
        self._env_set.close()


def _deal(plan: Plan, n_workers: int) -> list[Plan]:
    """Deal environments and evaluation environments to workers, in order, as evenly as they go."""

    def share(items: list[Any], i: int) -> list[Any]:
        chunk = np.array_split(np.arange(len(items)), n_workers)[i]
        return [items[j] for j in chunk]

    return [
        plan._replace(
            env_ranks=share(plan.env_ranks, i),
            eval_env_ranks=share(plan.eval_env_ranks, i),
            eval_quotas=share(plan.eval_quotas, i),
        )
        for i in range(n_workers)
    ]
