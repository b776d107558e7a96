"""Work of a sampler that is initialised: what collects its batches and evaluates, here or in a server of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.evaluator import Evaluator, start_evaluator
from rlpyt.samplers.fleet import Builds, Check
from rlpyt.samplers.fleet_spec import FleetRole, Specs
from rlpyt.samplers.parts import CompletedTraj, Part
from rlpyt.samplers.states import Loaded, why_no_state
from rlpyt.samplers.stopwatch import mean_of
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import StateDict
from rlpyt.utils.compute import torch_threads


class Work(ABC):
    """Collector of a sampler's batches, and its evaluator, wherever they run; `BaseSampler.build` makes it."""

    @abstractmethod
    def collect(self, itr: int, first_t: int | None = None) -> list[CompletedTraj]:
        """Fill the rows of a batch, and let environments that rest be reset; see `Collector.collect_batch`."""

    @abstractmethod
    def evaluate(self, itr: int, on_progress: Callable[[int], None], deterministic: bool) -> EvalResult:
        """Run every environment's quota of episodes, seeded by the iteration; see `Evaluator.evaluate`."""

    @abstractmethod
    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call; see `rlpyt.samplers.stopwatch`."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return the states of training environments and their actors, as pieces (see `states`)."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over pieces, dealt to these environments."""

    def why_no_state(self) -> str | None:
        """Return why an environment has no state; None if all have one."""
        return why_no_state(self.state_dict())


class WorkHere(Work):
    """Collector and evaluator in this process.

    Args:
        agent: acts.
        specs: of the fleets.
        parts: those of training, and that of evaluation where there is one, which stand at their first rows.
        overlap: whether the environments of two parts may step at the same time.
        n_threads: torch threads of this process meanwhile; None leaves them as the run has set them.
        wakes: whether environments that rest are reset right after the batch.
        times_of_others: returns the seconds of every activity in the processes that step the environments.
    """

    def __init__(
        self,
        agent: Agent,
        specs: Specs,
        parts: Mapping[FleetRole, Sequence[Part]],
        overlap: bool = True,
        n_threads: int | None = None,
        wakes: bool = True,
        times_of_others: Callable[[], Sequence[dict[str, float]]] = list,
    ) -> None:
        self._specs, self._n_threads, self._times_of_others = specs, n_threads, times_of_others
        spec, ours = specs[FleetRole.TRAIN], parts[FleetRole.TRAIN]
        actors = [agent.actor(part.ranks, spec.global_B, spec.seed, restarts=spec.restarts) for part in ours]
        for actor in actors:
            actor.reset()  # an own agent that keeps state of its own begins with `reset`, and then `sample_mode`
        self.collector: Collector = spec.LoopCls(agent, list(zip(ours, actors, strict=True)), overlap)
        self._wakes = wakes and not spec.mid_batch_reset
        self.evaluator: Evaluator | None = None
        if FleetRole.EVAL in parts:
            [part] = parts[FleetRole.EVAL]
            self.evaluator = start_evaluator(specs[FleetRole.EVAL], agent, part)

    def collect(self, itr: int, first_t: int | None = None) -> list[CompletedTraj]:
        """Fill the rows of a batch, and let environments that rest be reset."""
        with torch_threads(self._n_threads):
            # A loop of the user's may lack the argument, and needs none where no batch is resumed.
            completed = self.collector.collect_batch(itr, *(() if first_t is None else (first_t,)))
        if self._wakes:
            self.collector.wake()
            self.collector.stopwatch.lap(self.collector.parts[0].envs.waits_for)
        return completed

    def evaluate(
        self, itr: int, on_progress: Callable[[int], None], deterministic: bool, after_loss: bool = False
    ) -> EvalResult:
        """Run every environment's quota of episodes, none where there are no environments; see `Collects.evaluate`."""
        if self.evaluator is None:
            return EvalResult([], 0, 0)
        spec = self._specs[FleetRole.EVAL]
        with torch_threads(self._n_threads):
            self.evaluator.start(spec.restart_seeds() if after_loss else spec.seeds(itr))
            return self.evaluator.evaluate(itr, on_progress, deterministic)

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call, as the mean over the processes."""
        here = self.collector.stopwatch.take()
        others = self._times_of_others()
        return mean_of([here, *others], sum(here.values())) if others else here

    def state_dict(self) -> StateDict:
        """Return where training environments and actors stand."""
        return self.collector.state_dict()

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over what `state_dict` returned."""
        return self.collector.load_state_dict(state_dict)

    def why_no_state(self) -> str | None:
        """Return why an environment has no state; None if all have one."""
        return self.collector.why_no_state()


class Collects(Builds):
    """Server of a process that collects and evaluates."""

    _agent: Agent
    _weights: WeightStore
    _rows: Rows
    _work: WorkHere

    @abstractmethod
    def work(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> WorkHere:
        """Return collector and evaluator over the environments of this process; see `BaseSampler.build`."""

    def start(self, check: Check, agent: Agent, weights: WeightStore, rows: Mapping[FleetRole, Rows]) -> None:
        """Put a copy of the agent, the weights that it acts by, environments and their shared rows together."""
        weights.take(agent)
        self._agent, self._weights, self._rows = agent, weights, rows[FleetRole.TRAIN]
        self._work = self.work(agent, check, rows)
        self.training = self._work.collector

    def collect(self, itr: int, first_t: int | None) -> list[CompletedTraj]:
        """Fill the rows of a batch with the weights of now; `first_t` is the row where another process was lost."""
        self._weights.take(self._agent)
        if first_t is not None:
            self._rows.turn_to(itr)
            self._rows.truncate(first_t)
        return self._work.collect(itr, first_t)

    def evaluate(self, itr: int, deterministic: bool, after_loss: bool) -> EvalResult:
        """Run this process's quota of episodes; after the loss of a process, perhaps by its seeds, with others."""

        def note(done: int) -> None:
            self.progress.episodes = done

        self._weights.take(self._agent)
        return self._work.evaluate(itr, note, deterministic, after_loss)

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call."""
        return self._work.times()
