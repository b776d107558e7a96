"""A batch of environments in worker processes, stepped on the master's word, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.env_batch import CompletedTraj, EnvBatch, LocalEnvs
from rlpyt.samplers.env_set import Check, Plan, start_envs
from rlpyt.samplers.server import PlanServer
from rlpyt.samplers.stopwatch import Stopwatch
from rlpyt.utils.worker_pool import Message, WorkerPool


class EnvServer(PlanServer):
    """Server of a worker that does not act: environments that answer the master's requests."""

    def __init__(self, rank: int, progress: np.ndarray, plan: Plan, cpus: list[int] | None) -> None:
        super().__init__(rank, progress, plan, cpus)
        self._envs: dict[str, LocalEnvs] = {}
        self._stopwatches = {"train": Stopwatch(), "eval": Stopwatch()}

    def __call__(self, request: tuple[Any, ...]) -> Any:
        """Answer one request: its name, and its arguments."""
        match request:
            case ("step", kind, t):
                return self._step(kind, t)
            case ("reset", kind, seeds):
                # Environments that replaced lost ones have seeds of their own, which await their first reset.
                return self._envs[kind].reset(None if self.plan.restarts else seeds)
            case ("wake", kind):
                return self._envs[kind].wake()
            case ("build", with_check):
                return self.build(with_check)
            case ("start", check, rows, eval_rows):
                return self._start(check, rows, eval_rows)
            case ("times",):
                return self._stopwatches["train"].take()
            case ("state_dict", kind):
                return self._envs[kind].state_dict()
            case ("load_state_dict", kind, state_dict):
                return self._envs[kind].load_state_dict(state_dict)
        raise ValueError(f"A batch of environments was sent the request {request!r}, which it does not know.")

    def _start(self, check: Check, rows: Rows, eval_rows: Rows | None) -> None:
        self._envs["train"] = self.env_set.training_envs(rows, check, self.progress)
        start_envs(self.plan, self._envs["train"])
        if eval_rows is not None:
            self._envs["eval"] = self.env_set.evaluation_envs(eval_rows, self.progress)
            if self.plan.restarts:  # an evaluation may be under way; it goes on with new episodes
                self._envs["eval"].begin_after_loss(self.plan.seeds(evaluation=True))

    def _step(self, kind: str, t: int) -> list[CompletedTraj] | None:
        envs, stopwatch = self._envs[kind], self._stopwatches[kind]
        stopwatch.start()
        envs.send(t)
        completed = envs.recv(t)
        stopwatch.lap(envs.waits_for)
        return completed or None


class RemoteEnvs(EnvBatch):
    """Environments dealt to workers, which write their columns of the rows.

    Args:
        pool: the workers.
        ranks_of: for each worker with environments of this batch, their global ranks, in the order of the columns.
        rows: the memory of all these environments, shared.
        kind: "train" or "eval".
        null_action: see `EnvBatch`.
    """

    waits_for = "waiting"

    def __init__(
        self, pool: WorkerPool, ranks_of: Mapping[int, Sequence[int]], rows: Rows, kind: str, null_action: Any
    ) -> None:
        self.rows, self.null_action = rows, null_action
        self.ranks = [rank for ranks in ranks_of.values() for rank in ranks]
        self._pool, self._kind = pool, kind
        self._workers = list(ranks_of)
        self._bounds = np.cumsum([0] + [len(ranks) for ranks in ranks_of.values()]).tolist()
        # Made once: pickling costs more than a hand-over.
        self._steps = [self._to_all("step", kind, t) for t in range(len(rows.terminated))]

    def _to_all(self, *request: Any) -> dict[int, Message]:
        return dict.fromkeys(self._workers, Message.of(request))

    def reset(self, seeds: Sequence[int] | None = None) -> None:
        """Begin a new episode everywhere."""
        parts = zip(self._workers, self._bounds[:-1], self._bounds[1:], strict=True)
        self._pool.ask({w: ("reset", self._kind, None if seeds is None else seeds[lo:hi]) for w, lo, hi in parts})

    def send(self, t: int) -> None:
        """Let the workers take the actions of row t."""
        self._pool.post(self._steps[t])

    def recv(self, t: int) -> list[CompletedTraj]:
        """Wait until all workers have completed row t."""
        replies = self._pool.receive(self._workers)
        return [completed for reply in replies if reply for completed in reply]

    def wake(self) -> None:
        """Let the workers reset the environments that rest, while this process goes on."""
        self._pool.post(self._to_all("wake", self._kind))

    def ready(self) -> None:
        """Wait until the workers have reset what was woken."""
        self._pool.settle(self._workers)

    def state_dict(self) -> dict[str, Any]:
        """Return where the environments of every worker stand."""
        return {"workers": self._pool.ask(dict.fromkeys(self._workers, ("state_dict", self._kind)))}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, with the same number of workers."""
        saved = state_dict["workers"]
        if len(saved) != len(self._workers):
            raise ValueError(
                f"Loading the state of environments: it is that of {len(saved)} workers, and {len(self._workers)} are "
                "running; give the sampler the n_workers that it was saved with."
            )
        requests = {w: ("load_state_dict", self._kind, s) for w, s in zip(self._workers, saved, strict=True)}
        self._pool.ask(requests)
