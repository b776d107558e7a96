"""Collectors and evaluators in other processes, on the master's side: one message a batch goes each way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole
from rlpyt.samplers.parts import CompletedTraj
from rlpyt.samplers.states import Loaded, joined, selected
from rlpyt.samplers.stopwatch import mean_of
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.samplers.work import Collects, Work
from rlpyt.samplers.workers import Workers
from rlpyt.types import StateDict
from rlpyt.utils.calls import AnyCall, call
from rlpyt.utils.progress import Progress
from rlpyt.utils.worker_pool import Message


class RemoteCollectors(Work):
    """Collectors and evaluators in the processes of a pool, each of which fills its columns of the rows.

    With `wake` a process lets environments that rest be reset only when it is told to.
    """

    def __init__(
        self, workers: Workers[Collects], agent: Agent, check: Check, rows: Mapping[FleetRole, Rows], wake: bool
    ) -> None:
        self._workers, self._pool, self._agent, self._check = workers, workers.pool, agent, check
        self._rows, self._wake = workers.rows_of_each(rows), wake
        self._seconds, self._started = 0.0, False
        self._weights: WeightStore

    def collect(self, itr: int, first_t: int | None = None) -> list[CompletedTraj]:
        """Let the processes fill their columns of the batch; return the completed trajectories."""
        start = perf_counter()
        self._start(publish=True)
        for worker in self._pool.workers:
            worker.progress.row = None
        completed = self._workers.ask_all(call(Collects.collect, itr, first_t=first_t))
        if self._wake:
            self._pool.post(dict.fromkeys(range(len(self._rows)), Message.of(call(Collects.wake))))
        self._seconds += perf_counter() - start
        return [traj for some in completed for traj in some]

    def evaluate(self, itr: int, on_progress: Callable[[int], None], deterministic: bool) -> EvalResult:
        """Let the processes run their shares of the quota."""
        self._start(publish=True)
        workers = self._pool.workers
        for worker in workers:
            worker.progress.episodes = 0
        requests = dict.fromkeys(range(len(workers)), call(Collects.evaluate, itr, deterministic, after_loss=False))
        replies = self._pool.ask(requests, lambda: on_progress(sum(w.progress.episodes for w in workers)))
        return EvalResult.merge(replies)

    def state_dict(self) -> StateDict:
        """Return the states of the collectors of all processes as one."""
        self._start()
        return joined(self._workers.ask_all(call(Collects.state_dict)))

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over what `state_dict` returned, of any number of processes."""
        self._start()
        states = [selected(state_dict, some) for some in self._workers.ranks]
        return Loaded.merge(self._pool.ask({rank: call(Collects.load_state_dict, s) for rank, s in enumerate(states)}))

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call, as the mean over the processes."""
        self._start()
        seconds, self._seconds = self._seconds, 0.0
        return mean_of(self._workers.ask_all(call(Collects.times)), seconds)

    @staticmethod
    def on_loss(progress: Progress, request: AnyCall[Collects]) -> AnyCall[Collects]:
        """Go on with the batch from the row that the lost process was at; begin its share of an evaluation again."""
        if request.is_of(Collects.collect) and progress.row is not None:
            return request.but(first_t=progress.row)
        return request.but(after_loss=True) if request.is_of(Collects.evaluate) else request

    def _start(self, publish: bool = False) -> None:
        """Send the agent, with its weights, unless that was done; else publish those of now where that is asked for.

        Not earlier: only for the first call has the runner placed the model, in its precision and memory format.
        """
        if not self._started:
            copy = self._agent.acting_copy()
            self._weights = WeightStore(copy)
            self._publish()
            self._begin(copy)
            self._started = True
        elif publish:
            self._publish()

    def _publish(self) -> None:
        """Write the weights of now to where the processes take them."""
        self._weights.publish(self._agent)

    def _begin(self, copy: Agent) -> None:
        """Let the processes begin to work, with a copy of the agent."""
        self._workers.begin([call(Collects.start, self._check, copy, self._weights, rows) for rows in self._rows])
