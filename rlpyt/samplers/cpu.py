"""The sampler with workers that each step some environments and run the network for them, on their own core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collecting import Collects
from rlpyt.samplers.collector import Collector, start_collector
from rlpyt.samplers.dealt_states import Loaded
from rlpyt.samplers.evaluator import Evaluator, start_evaluator
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole
from rlpyt.samplers.parallel import ParallelSampler
from rlpyt.samplers.parts import CompletedTraj
from rlpyt.samplers.remote_collectors import RemoteCollectors
from rlpyt.samplers.server import FleetServer
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import StateDict


class CollectorServer(FleetServer, Collects):
    """Server of a worker that acts: a collector and an evaluator."""

    _agent: Agent
    _weights: WeightStore
    _rows: Rows
    _collector: Collector
    _evaluator: Evaluator | None = None

    def start(self, check: Check, agent: Agent, weights: WeightStore, rows: Mapping[FleetRole, Rows]) -> None:
        """Put agent, environments and rows together; see `Collects.start`."""
        weights.take(agent)
        self._agent, self._weights, self._rows = agent, weights, rows[FleetRole.TRAIN]
        parts = self.started_parts(check, rows)
        self._collector = start_collector(self.specs[FleetRole.TRAIN], agent, [parts[FleetRole.TRAIN]])
        if FleetRole.EVAL in parts:
            self._evaluator = start_evaluator(self.specs[FleetRole.EVAL], agent, parts[FleetRole.EVAL])

    def collect(self, itr: int, first_t: int | None) -> list[CompletedTraj]:
        """Fill the rows of a batch; see `Collects.collect`."""
        self._weights.take(self._agent)
        if first_t is not None:
            self._rows.turn_to(itr)
            self._rows.truncate(first_t)
        # A loop of the user's may lack the argument, and needs none where no worker is lost.
        return self._collector.collect_batch(itr, *(() if first_t is None else (first_t,)))

    def wake(self) -> None:
        """Reset the environments that rest."""
        self._collector.wake()

    def evaluate(self, itr: int, deterministic: bool, after_loss: bool) -> EvalResult:
        """Run this worker's quota of episodes; see `Collects.evaluate`."""

        def note(done: int) -> None:
            self.progress.episodes = done

        if self._evaluator is None:
            return EvalResult([], 0, 0)
        spec = self.specs[FleetRole.EVAL]
        self._weights.take(self._agent)
        # A lost worker may have died of its seeds.
        self._evaluator.start(spec.restart_seeds() if after_loss else spec.seeds(itr))
        return self._evaluator.evaluate(itr, note, deterministic)

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call."""
        return self._collector.stopwatch.take()

    def state_dict(self) -> StateDict:
        """Return where the training environments and this process's generators stand."""
        return self.with_streams(self._collector.state_dict())

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over what `state_dict` returned."""
        return self.loaded(self._collector.load_state_dict(state_dict), state_dict)

    def why_no_state(self) -> str | None:
        """Return why an environment has no state; None if all have one."""
        return self._collector.why_no_state()


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
        """Let the workers collect and evaluate."""
        self.serve(agent, check, rows, wake=not self.mid_batch_reset)

    on_loss = staticmethod(RemoteCollectors.on_loss)


AsyncCpuSampler = CpuSampler
"""Its name in asynchronous runs of rlpyt 0.1."""
