"""Evaluation beside learning: a process that evaluates the agent of one moment while the run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from rlpyt.core import Agent, EvalResult, EvaluatorBeside
from rlpyt.samplers.background import ProcessSettings
from rlpyt.samplers.buffer import allocate_rows
from rlpyt.samplers.evaluator import Evaluator, start_evaluator
from rlpyt.samplers.fleet import FleetServer
from rlpyt.samplers.fleet_spec import FleetRole, FleetSpec
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import Kwargs, Run, Samples
from rlpyt.utils.calls import Call, R, call
from rlpyt.utils.processes import Watch, Worker, allowed_cpus, available_cpus, receive_all, stop_workers
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role
from rlpyt.utils.shared_memory import reserve_descriptors, shared_array

_START_SECONDS = 600.0  # without progress while environments are built: simulators compile, licences are fetched
_FILES = 16  # pipes, the memory of progress, weights and numbers


class _RunIsOver(Exception):
    """Error that ends an evaluation whose result nobody waits for."""


class EvaluatorServer(FleetServer):
    """Server of the process that evaluates: all evaluation environments, and a copy of the agent that acts in them.

    The array `run_is_over`, bool [1] in shared memory, is set by the master when it waits for no result.
    """

    stream = Role.EVALUATOR
    _agent: Agent
    _weights: WeightStore
    _evaluator: Evaluator

    def __init__(
        self, rank: int, progress: Progress, spec: FleetSpec, cpus: list[int] | None, run_is_over: np.ndarray
    ) -> None:
        super().__init__(rank, progress, {FleetRole.EVAL: spec}, cpus)
        self._run_is_over = run_is_over

    def start(self, agent: Agent, weights: WeightStore, example: Samples) -> None:
        """Take the agent that acts here, the weights that it acts by, and rows like an example."""
        spec, self._agent, self._weights = self.specs[FleetRole.EVAL], agent, weights
        rows = allocate_rows(example, 1, len(spec.env_ranks), bootstrap_value=False)
        part = self._fleets[FleetRole.EVAL].part(rows, progress=self.progress)
        self._evaluator = start_evaluator(spec, agent, part)

    def evaluate(self, itr: int, deterministic: bool) -> tuple[EvalResult, float] | None:
        """Return the episodes and the seconds that they took; None if the run ended meanwhile."""

        def note(done: int) -> None:
            self.progress.episodes = done
            if self._run_is_over[0]:
                raise _RunIsOver

        start = perf_counter()
        self._weights.take(self._agent)
        self._evaluator.start(self.specs[FleetRole.EVAL].seeds(itr))
        try:
            return self._evaluator.evaluate(itr, note, deterministic), perf_counter() - start
        except _RunIsOver:
            return None


class EvaluatorProcess(EvaluatorBeside):
    """Evaluator whose environments are in one process, with one thread, and with weights and numbers of their own.

    Args:
        agent: initialised; it is sent with the first evaluation, when the runner has placed it.
        spec: of all evaluation environments.
        run: with the example of a row.
        settings: of the process.

    Raises:
        WorkerError: if an environment cannot be built.
        EnvError: if it has other spaces than those of training.
    """

    def __init__(self, agent: Agent, spec: FleetSpec, run: Run, settings: ProcessSettings) -> None:
        assert run.example is not None, "the sampler is initialised before"
        self._agent, self._timeout = agent, settings.stall_seconds
        self._example = run.example._replace(env=run.example.env._replace(env_info=None))
        self._weights: WeightStore | None = None
        self._watch: Watch | None = None  # over the evaluation under way
        self._run_is_over = shared_array(1, np.bool_)
        reserve_descriptors(_FILES)
        args = (spec, evaluator_cpus(run.affinity), self._run_is_over)
        self._workers = [Worker(run.rank, EvaluatorServer, args, settings.start_method, role="Evaluator")]
        try:
            for one in self._ask(call(EvaluatorServer.build), _START_SECONDS):
                one.check_spaces(agent.env_spaces)
        except BaseException:
            self.shutdown()
            raise

    def start(self, itr: int, deterministic: bool = False) -> None:
        """Hand over the agent of now, and begin an evaluation; see `rlpyt.core.EvaluatorBeside.start`."""
        assert self._watch is None, "one evaluation at a time"
        if self._weights is None:
            copy = self._agent.acting_copy()
            self._weights = WeightStore(copy)
            self._ask(call(EvaluatorServer.start, copy, self._weights, self._example), self._timeout)
        self._weights.publish(self._agent)
        self._workers[0].send(call(EvaluatorServer.evaluate, itr, deterministic))
        self._watch = Watch(self._workers, self._timeout)

    def result(self, wait: bool) -> tuple[EvalResult, float] | None:
        """Return what the evaluation under way gave; see `rlpyt.core.EvaluatorBeside.result`."""
        if self._watch is None:
            raise RuntimeError(
                "The evaluator was asked for a result, and no evaluation is under way; call start first."
            )
        ready = self._watch.wait() if wait else self._watch.look()
        if not ready:
            return None
        result: tuple[EvalResult, float] = ready[0].receive(self._timeout)
        self._watch = None
        return result

    def shutdown(self) -> None:
        """End the process: an evaluation under way ends with its next step."""
        self._run_is_over[0] = True
        workers, self._workers, self._watch, self._weights = self._workers, [], None, None
        stop_workers(workers)

    def _ask(self, request: Call[EvaluatorServer, R], timeout: float) -> R:
        self._workers[0].send(request)
        reply: R = receive_all(self._workers, timeout)[0]
        return reply


def evaluator_cpus(affinity: Kwargs) -> list[int] | None:
    """Return the cores of the process: those named for it, or those of all workers; None leaves them to the system.

    Args:
        affinity: of a run in one process, or with a part `sampler` for each action server.
    """
    parts: Sequence[Kwargs] = affinity.get("sampler", [affinity])
    if not all(part.get("set_affinity", True) for part in parts):
        return None
    for name in ("evaluator_cpus", "workers_cpus"):
        named = [cpus for part in parts for cpus in part.get(name) or ()]
        if named:
            return allowed_cpus(np.unique(np.hstack(named)).tolist(), f"affinity's {name}") or None
    # The process would inherit the cores of the master.
    return available_cpus() if any(part.get("master_cpus") for part in parts) else None
