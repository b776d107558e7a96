"""Honest evaluation: a fixed quota of whole episodes for every environment, so that short episodes are not favoured.

It happens in a run, without one (`evaluate`), or in a process of its own while the run goes on (`EvaluatorProcess`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch

from rlpyt.core import Actor, Agent, EvalResult, EvaluatorBeside, example_inputs
from rlpyt.logging import current_logger
from rlpyt.samplers.background import ProcessSettings
from rlpyt.samplers.buffer import allocate_rows, example_of
from rlpyt.samplers.collector import ActingPart, Stopwatch
from rlpyt.samplers.fleet import Fleet, FleetServer
from rlpyt.samplers.fleet_spec import NO_LIMIT, FleetRole, FleetSpec, quotas
from rlpyt.samplers.parts import Part
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.spaces import has_mask
from rlpyt.types import Kwargs, Run, Samples, TrajInfo
from rlpyt.utils.arguments import named_arguments
from rlpyt.utils.calls import Call, R, call
from rlpyt.utils.checks import whole_number
from rlpyt.utils.compute import have_images, torch_threads
from rlpyt.utils.processes import (
    Worker,
    allowed_cpus,
    available_cpus,
    available_threads,
    receive_all,
    replied,
    stop_workers,
)
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role
from rlpyt.utils.shared_memory import reserve_descriptors, shared_array
from rlpyt.utils.watched import LOOK_SECONDS, Stalls

_PATIENCE = 1_000_000
"""Steps without the end of an episode, all environments together, after which an evaluation without a limit says so."""
_START_SECONDS = 600.0  # without progress while environments are built: simulators compile, licences are fetched
_FILES = 16  # pipes, the memory of progress, weights and numbers


class Evaluator:
    """Loop that runs an agent in evaluation environments of its own; one that has run its quota rests.

    Args:
        agent: acts.
        envs: the environments as one part, with rows of T = 1.
        actor: of these environments.
        env_quotas: episodes of every environment; None runs on until `max_T`.
        max_T: steps that each environment takes at most.
    """

    def __init__(self, agent: Agent, envs: Part, actor: Actor, env_quotas: Sequence[int | None], max_T: int) -> None:
        self.agent = agent
        self.envs = envs
        self._part = ActingPart(agent, envs, actor, Stopwatch())
        self._quotas = np.array([NO_LIMIT if quota is None else quota for quota in env_quotas])
        self._max_T = max_T
        self._limited = self._quotas < NO_LIMIT
        self._seeds: Sequence[int] | None = None
        self._is_patient = max_T == NO_LIMIT  # until it has warned

    def start(self, seeds: Sequence[int]) -> None:
        """Set the seeds that the next evaluation resets its environments with."""
        self._seeds = list(seeds)

    @torch.no_grad()
    def evaluate(
        self, itr: int, on_progress: Callable[[int], None] = lambda done: None, deterministic: bool = False
    ) -> EvalResult:
        """Run every environment's quota of episodes; `start` comes before it.

        Args:
            itr: the iteration, which picks the stream of the actions.
            on_progress: told after every step how many episodes are done, or steps where only they are limited.
            deterministic: whether the agent takes the most probable action instead of a sampled one.
        """
        part, rows = self._part, self.envs.rows
        resting = rows.resting
        row_of = {rank: b for b, rank in enumerate(self.envs.ranks)}
        left, steps = self._quotas.copy(), np.zeros(len(self._quotas), np.int64)
        completed: list[TrajInfo] = []
        steps_at_last_end = 0
        part.actor.begin(itr, deterministic)
        resting[:] = False
        self.envs.reset(self._seeds)
        self._seeds = None
        resting[:] = left == 0
        with self.agent.compute.autocast(self.agent.device):
            while not resting.all():
                rows.begin()
                part.act(0)
                self.envs.send(0)
                for _, rank, traj_info in part.recv(0):
                    completed.append(traj_info)
                    left[row_of[rank]] -= 1
                    steps_at_last_end = int(steps.sum())
                steps += rows.valid[0]
                if self._is_patient and int(steps.sum()) - steps_at_last_end >= _PATIENCE:
                    self._warn_of_no_end(len(completed))
                resting[:] = (left == 0) | (steps >= self._max_T)
                on_progress(len(completed) if self._limited.all() else int(steps.sum()))
        return EvalResult(completed, int(steps.sum()), int(left[self._limited].sum() + (~self._limited).sum()))

    def _warn_of_no_end(self, n_completed: int) -> None:
        self._is_patient = False
        current_logger().warn(
            f"Evaluation: no episode has ended for {_PATIENCE:,} steps, and {n_completed} of {self._quotas.sum()} have "
            "in all; it goes on until all have. Where an environment does not end its episodes, give the sampler "
            "eval_max_steps (rlpyt.samplers.evaluate: max_steps), or the environment a time limit "
            "(gymnasium.wrappers.TimeLimit)."
        )


def start_evaluator(spec: FleetSpec, agent: Agent, part: Part) -> Evaluator:
    """Return the evaluator of a fleet."""
    actor = agent.actor(part.ranks, spec.global_B, spec.seed, evaluation=True)
    return spec.LoopCls(agent, part, actor, spec.quotas, spec.max_T)


SerialEvalCollector = CpuEvalCollector = GpuEvalCollector = Evaluator
"""Its names in rlpyt 0.1."""


# ---- without a sampler ----


@named_arguments
def evaluate(
    agent: Agent,
    EnvCls: Callable[..., Any],
    env_kwargs: Kwargs | None = None,
    *,
    n_trajectories: int = 100,
    n_envs: int = 10,
    TrajInfoCls: Callable[..., TrajInfo] = TrajInfo,
    discount: float = 1.0,
    seed: int = 0,
    deterministic: bool = False,
    max_steps: int | None = None,
) -> EvalResult:
    """Run whole episodes of an agent that was trained or loaded, without a sampler.

        agent.initialize(make_env(EnvCls, env_kwargs).spaces)
        agent.load_state_dict(load_snapshot(path)["agent_state_dict"])
        evaluate(agent, EnvCls, env_kwargs)

    Args:
        agent: initialised for the environment's spaces; an agent in a run goes on there as without the evaluation.
        EnvCls: as a sampler's.
        env_kwargs: its arguments.
        n_trajectories: episodes, dealt evenly to the environments.
        n_envs: environments, all in this process.
        TrajInfoCls: the statistics of an episode.
        discount: of the trajectories' `DiscountedReturn`.
        seed: of environments and actions.
        deterministic: whether the agent takes the most probable action instead of a sampled one.
        max_steps: at most, all environments together; an episode that it cuts off is counted in `unfinished`. None is
            no limit.

    Returns:
        `traj_infos`, of whole episodes; `steps` taken; and `unfinished` episodes, which `max_steps` cut off.

    Raises:
        ValueError: if there is nothing to run.
    """
    n_trajectories = whole_number("evaluate", "n_trajectories", n_trajectories, 1)
    n_envs = min(whole_number("evaluate", "n_envs", n_envs, 1), n_trajectories)
    max_T = NO_LIMIT if max_steps is None else whole_number("evaluate", "max_steps", max_steps, n_envs) // n_envs
    spec = FleetSpec(
        role=FleetRole.EVAL,
        EnvCls=EnvCls,
        env_kwargs=env_kwargs,
        env_ranks=list(range(n_envs)),
        global_B=n_envs,
        seed=seed,
        LoopCls=Evaluator,
        TrajInfoCls=TrajInfoCls,
        traj_info_kwargs={"discount": discount},
        quotas=quotas(n_envs, n_trajectories),
        max_T=max_T,
    )
    fleet = Fleet(spec, was_checked=False)
    try:
        # Those of the agent have the mask of legal actions, where it was trained with one of info.
        spaces = agent.env_spaces if has_mask(agent.env_spaces) else fleet.built.spaces
        rows = allocate_rows(example_of(agent, spaces, None), 1, n_envs)
        evaluator = start_evaluator(spec, agent, fleet.part(rows))
        evaluator.start(spec.seeds(itr=1))
        # Torch begins with a thread for each core of the machine, also where this process was given fewer.
        most = min(torch.get_num_threads(), available_threads())
        with torch_threads(most if have_images(example_inputs(agent.env_spaces)[0]) else 1):
            return evaluator.evaluate(itr=1, deterministic=deterministic)
    finally:
        fleet.close()


# ---- beside learning ----


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

    See `rlpyt.core.Sampler.evaluator_beside`.

    Raises:
        WorkerError: if an environment cannot be built.
        EnvError: if it has other spaces than those of training.
    """

    def __init__(self, agent: Agent, spec: FleetSpec, run: Run, settings: ProcessSettings) -> None:
        assert run.example is not None, "the sampler is initialised before"
        self._agent, self._timeout = agent, settings.stall_seconds
        self._example = run.example._replace(env=run.example.env._replace(env_info=None))
        self._weights: WeightStore | None = None
        self._stalls: Stalls | None = None  # of the evaluation under way
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
        """Hand over the agent of now, and begin an evaluation."""
        assert self._stalls is None, "one evaluation at a time"
        if self._weights is None:
            copy = self._agent.acting_copy()
            self._weights = WeightStore(copy)
            self._ask(call(EvaluatorServer.start, copy, self._weights, self._example), self._timeout)
        self._weights.publish(self._agent)
        self._workers[0].send(call(EvaluatorServer.evaluate, itr, deterministic))
        self._stalls = Stalls(self._timeout)

    def result(self, wait: bool) -> tuple[EvalResult, float] | None:
        """Return the result of the evaluation under way, or None."""
        if self._stalls is None:
            raise RuntimeError(
                "The evaluator was asked for a result, and no evaluation is under way; call start first."
            )
        ready = replied(self._workers, min(LOOK_SECONDS, self._timeout) if wait else 0.0)
        if not ready:
            self._stalls.check(self._workers)
            return None
        result: tuple[EvalResult, float] = ready[0].receive(self._timeout)
        self._stalls = None
        return result

    def shutdown(self) -> None:
        """End the process: an evaluation under way ends with its next step."""
        self._run_is_over[0] = True
        workers, self._workers, self._stalls, self._weights = self._workers, [], None, None
        stop_workers(workers)

    def _ask(self, request: Call[EvaluatorServer, R], timeout: float) -> R:
        self._workers[0].send(request)
        reply: R = receive_all(self._workers, timeout)[0]
        return reply


def evaluator_cpus(affinity: Kwargs) -> list[int] | None:
    """Return the cores of the process: those named for it, or those of all workers; None leaves them to the system."""
    parts: Sequence[Kwargs] = affinity.get("sampler", [affinity])  # one of each action server
    if not all(part.get("set_affinity", True) for part in parts):
        return None
    for name in ("evaluator_cpus", "workers_cpus"):
        named = [cpus for part in parts for cpus in part.get(name) or ()]
        if named:
            return allowed_cpus(np.unique(np.hstack(named)).tolist(), f"affinity's {name}") or None
    # The process would inherit the cores of the master.
    return available_cpus() if any(part.get("master_cpus") for part in parts) else None
