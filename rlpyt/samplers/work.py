"""Work of a sampler that is initialised: what collects its batches and evaluates, here or in other processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TypeAlias

from rlpyt.core import Agent, EvalResult
from rlpyt.logging import current_logger
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collector import Collector, mean_of
from rlpyt.samplers.evaluator import Evaluator, start_evaluator
from rlpyt.samplers.fleet import Check, FleetServer
from rlpyt.samplers.fleet_spec import FleetRole, FleetSpec, Specs
from rlpyt.samplers.parts import CompletedTraj, Environments, Part
from rlpyt.samplers.states import Loaded, joined, selected, why_no_state
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.samplers.workers import Workers
from rlpyt.types import StateDict
from rlpyt.utils.calls import AnyCall, call
from rlpyt.utils.compute import torch_threads
from rlpyt.utils.progress import Progress
from rlpyt.utils.worker_pool import Message


class WorkHere(Environments):
    """Collector and evaluator in this process.

    Args:
        agent: acts.
        specs: of the fleets.
        parts: those of training, and that of evaluation where there is one, which stand at their first rows.
        overlap: see `Collector`.
        n_threads: torch threads of this process meanwhile; None leaves them as the run has set them, but for one where
            environments step beside the network.
        times_of_others: returns the seconds of every activity in the processes that step the environments.
    """

    def __init__(
        self,
        agent: Agent,
        specs: Specs,
        parts: Mapping[FleetRole, Sequence[Part]],
        overlap: bool = True,
        n_threads: int | None = None,
        times_of_others: Callable[[], Sequence[dict[str, float]]] = list,
    ) -> None:
        self._specs, self._times_of_others = specs, times_of_others
        spec, ours = specs[FleetRole.TRAIN], parts[FleetRole.TRAIN]
        # A team of threads beside environments that step is many times slower than one thread.
        self._n_threads = n_threads or (1 if len(ours) > 1 else None)
        actors = [agent.actor(part.ranks, spec.global_B, spec.seed, restarts=spec.restarts) for part in ours]
        for actor in actors:
            actor.reset()  # an own agent that keeps state of its own begins with `reset`, and then `sample_mode`
        self.collector: Collector = spec.LoopCls(agent, list(zip(ours, actors, strict=True)), overlap)
        self.evaluator: Evaluator | None = None
        if FleetRole.EVAL in parts:
            [part] = parts[FleetRole.EVAL]
            self.evaluator = start_evaluator(specs[FleetRole.EVAL], agent, part)

    def collect(self, itr: int, first_t: int | None = None) -> list[CompletedTraj]:
        """Fill the rows of a batch; see `Collector.collect_batch`."""
        with torch_threads(self._n_threads):
            # A loop of the user's may lack the argument, and needs none where no batch is resumed.
            return self.collector.collect_batch(itr, *(() if first_t is None else (first_t,)))

    def wake(self) -> None:
        """Begin to reset the environments that rest, right after a batch."""
        self.collector.wake()
        self.collector.stopwatch.lap(self.collector.parts[0].envs.waits_for)

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
        """Return the states of training environments and their actors, as pieces (see `states`)."""
        return self.collector.state_dict()

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over pieces, dealt to these environments."""
        return self.collector.load_state_dict(state_dict)

    def why_no_state(self) -> str | None:
        """Return why an environment has no state; None if all have one."""
        return self.collector.why_no_state()


class Collects(FleetServer):
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


class RemoteCollectors(Environments):
    """Collectors and evaluators in the processes of a pool, each of which fills its columns of the rows.

    One message a batch goes each way.
    """

    def __init__(self, workers: Workers[Collects], agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> None:
        self._workers, self._pool, self._agent = workers, workers.pool, agent
        self._check, self._rows = check, workers.rows_of_each(rows)
        self._seconds = 0.0
        self._weights: WeightStore | None = None  # once the processes have the agent

    def collect(self, itr: int, first_t: int | None = None) -> list[CompletedTraj]:
        """Fill the columns of the batch in all processes; return the completed trajectories."""
        start = perf_counter()
        self._start(publish=True)
        for worker in self._pool.workers:
            worker.progress.row = None
        completed = self._workers.ask_all(call(Collects.collect, itr, first_t=first_t))
        self._seconds += perf_counter() - start
        return [traj for some in completed for traj in some]

    def wake(self) -> None:
        """Reset the environments that rest in the processes, while this one goes on."""
        self._pool.post(dict.fromkeys(range(len(self._rows)), Message.of(call(Collects.wake))))

    def evaluate(self, itr: int, on_progress: Callable[[int], None], deterministic: bool) -> EvalResult:
        """Run the quota in shares of the processes."""
        self._start(publish=True)
        workers = self._pool.workers
        for worker in workers:
            worker.progress.episodes = 0
        requests = dict.fromkeys(range(len(workers)), call(Collects.evaluate, itr, deterministic, after_loss=False))
        replies = self._pool.ask(requests, lambda: on_progress(sum(w.progress.episodes for w in workers)))
        return EvalResult.merge(replies)

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call, as the mean over the processes."""
        self._start()
        seconds, self._seconds = self._seconds, 0.0
        return mean_of(self._workers.ask_all(call(Collects.times)), seconds)

    def state_dict(self) -> StateDict:
        """Return the states of the collectors of all processes as one."""
        self._start()
        return joined(self._workers.ask_all(call(Collects.state_dict)))

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Load the result of `state_dict`, of any number of processes."""
        self._start()
        states = [selected(state_dict, some) for some in self._workers.ranks]
        return Loaded.merge(self._pool.ask({rank: call(Collects.load_state_dict, s) for rank, s in enumerate(states)}))

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
        if self._weights is None:
            copy = self._agent.acting_copy()
            weights = WeightStore(copy)
            weights.publish(self._agent)
            self._workers.begin([call(Collects.start, self._check, copy, weights, rows) for rows in self._rows])
            self._weights = weights
        elif publish:
            self._weights.publish(self._agent)


Work: TypeAlias = WorkHere | RemoteCollectors
"""What collects a sampler's batches and evaluates, wherever that is; `BaseSampler.build` makes it."""


class StateKeeper:
    """Keeper of the state of one sampler: what is checked and told where it is saved or loaded."""

    def __init__(self, name: str, spec: FleetSpec) -> None:
        self._name, self._spec = name, spec
        self.next_itr = 0
        """The iteration after the last batch."""
        self._said = False

    def noted(self, why: str | None) -> str | None:
        """Return why an environment has no state, which the caller says."""
        self._said = self._said or why is not None
        return why

    def saved(self, pieces: StateDict) -> StateDict:
        """Return the state made of pieces; say once why an environment in it has no state."""
        was_said = self._said
        if self.noted(why := why_no_state(pieces)) and not was_said:
            current_logger().warn(f"{why} Its open episode ends where the run is resumed.")
        return {**pieces, "global_B": self._spec.global_B, "itr": self.next_itr}

    def load(self, state: StateDict, work: Environments) -> int:
        """Load a state, and say what does not go on where it stood; return how many episodes end by that."""
        ranks, global_B = self._spec.env_ranks, self._spec.global_B
        if state["global_B"] != global_B:
            raise ValueError(
                f"{self._name}: loading a state: it is that of {state['global_B']} environments; expected one of "
                f"{global_B}. Give the sampler batch_B={state['global_B']}, the environments of all replicas "
                "together, or start a new run."
            )
        saved = {rank for one in state["parts"] for rank in one["ranks"]}
        if missing := sorted(set(ranks) - saved):
            raise ValueError(
                f"Loading the state of environments: it has {len(saved)}, without those of rank "
                f"{', '.join(map(str, missing))}; expected the {len(ranks)} of this sampler. Give it the batch_B "
                "that it was saved with."
            )
        self.next_itr, streams, logger = state["itr"], state["streams"], current_logger()
        # For those that cannot be restored: a fresh one would play the episodes from the start of the run again.
        seeds = self._spec.seeds(max(1, self.next_itr))
        loaded = work.load_state_dict({**state, "new_seeds": dict(zip(ranks, seeds, strict=True))}) or Loaded()
        if loaded.reasons:
            logger.warn(
                f"{loaded.n_cut} open episodes end here, truncated in the data, as their environments could not be "
                f"restored. {loaded.reasons[0]}"
            )
        if loaded.n_without_stream or loaded.n_streams < len(streams):
            logger.log(
                f"{self._name}: the state is that of other processes, {len(streams)} with global generators of their "
                f"own (random, numpy, torch), and here are {loaded.n_streams + loaded.n_without_stream}. The "
                "generators stay as they were seeded, which matters to environments that draw from them."
            )
        return loaded.n_cut
