"""What all samplers share: their arguments, the checks before anything starts, and how the parts are put together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.core import Agent, EvalResult, Sampler
from rlpyt.envs import EnvAdapter, EnvError, EnvExamples, check_env, info_recorder, make_env
from rlpyt.logging import current_logger
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collector import Collector, CompletedTraj
from rlpyt.samplers.evaluator import NO_LIMIT, Evaluator, quotas
from rlpyt.spaces import EnvSpaces, same_rows
from rlpyt.types import AgentSamples, BatchSpec, EnvSamples, Samples, TrajInfo
from rlpyt.utils.arrays import buffer_func, numpify_buffer
from rlpyt.utils.seeds import Role, numpy_generator, stream_seed


class Plan(NamedTuple):
    """What one process needs to know to collect and evaluate; plain values, sent to workers as they are."""

    EnvCls: Callable[..., Any]
    env_kwargs: dict[str, Any]
    eval_env_kwargs: dict[str, Any]
    CollectorCls: Callable[..., Collector]
    EvaluatorCls: Callable[..., Evaluator]
    TrajInfoCls: Callable[..., TrajInfo]
    traj_info_kwargs: dict[str, Any]
    env_info_keys: Sequence[str] | Mapping[str, Any]
    max_decorrelation_steps: int
    seed: int
    global_B: int
    env_ranks: list[int]
    """Global ranks of the environments of this process."""
    eval_global_B: int
    eval_env_ranks: list[int]
    eval_quotas: list[int | None]
    eval_max_T: int


class BaseSampler(Sampler):
    """Arguments of all samplers.

    Args:
        EnvCls: any callable that returns an environment (see `rlpyt.envs`), `gymnasium.make` among them.
        env_kwargs: its arguments.
        batch_T: time steps of a batch.
        batch_B: environments.
        CollectorCls: the loop that fills a batch.
        max_decorrelation_steps: random steps that every environment takes at most before the first batch; 0 for none.
        TrajInfoCls: the statistics of a trajectory.
        eval_n_envs: evaluation environments; 0 for no evaluation.
        eval_CollectorCls: the loop of an evaluation.
        eval_env_kwargs: arguments of the evaluation environments; None is those of training.
        eval_max_steps: steps of one evaluation at most, all environments together.
        eval_max_trajectories: episodes of one evaluation, dealt evenly to the environments.
        env_info_keys: names of numbers in the environments' info that are recorded in `samples.env.env_info`; or a
            mapping from name to an example, for those that only some steps give.

    Raises:
        ValueError: if the sizes do not go together.
        TypeError: if EnvCls cannot be called.
    """

    mid_batch_reset = True

    def __init__(
        self,
        EnvCls: Callable[..., Any],
        env_kwargs: Mapping[str, Any] | None,
        batch_T: int,
        batch_B: int,
        CollectorCls: Callable[..., Collector] = Collector,
        max_decorrelation_steps: int = 100,
        TrajInfoCls: Callable[..., TrajInfo] = TrajInfo,
        eval_n_envs: int = 0,
        eval_CollectorCls: Callable[..., Evaluator] = Evaluator,
        eval_env_kwargs: Mapping[str, Any] | None = None,
        eval_max_steps: int | None = None,
        eval_max_trajectories: int | None = None,
        env_info_keys: Sequence[str] | Mapping[str, Any] = (),
    ) -> None:
        if not callable(EnvCls):
            raise TypeError(
                f"{type(self).__name__}: EnvCls is {EnvCls!r}; expected a callable that returns an environment."
            )
        for name, size, least in (
            ("batch_T", batch_T, 1),
            ("batch_B", batch_B, 1),
            ("max_decorrelation_steps", max_decorrelation_steps, 0),
            ("eval_n_envs", eval_n_envs, 0),
        ):
            if int(size) != size or size < least:
                raise ValueError(f"{type(self).__name__}: {name} is {size!r}; expected a whole number from {least}.")
        self._check_evaluation(eval_n_envs, eval_max_steps, eval_max_trajectories)
        self.batch_spec = BatchSpec(int(batch_T), int(batch_B))
        self.EnvCls = EnvCls
        self.env_kwargs = dict(env_kwargs or {})
        self.CollectorCls = CollectorCls
        self.TrajInfoCls = TrajInfoCls
        self.max_decorrelation_steps = int(max_decorrelation_steps)
        self.eval_n_envs: int = min(int(eval_n_envs), eval_max_trajectories or int(eval_n_envs))
        self.eval_CollectorCls = eval_CollectorCls
        self.eval_env_kwargs = self.env_kwargs if eval_env_kwargs is None else dict(eval_env_kwargs)
        self.eval_max_steps = eval_max_steps
        self.eval_max_trajectories = eval_max_trajectories
        self.env_info_keys = env_info_keys
        self._gives_score = False

    def _check_evaluation(self, n_envs: int, max_steps: int | None, max_trajectories: int | None) -> None:
        if n_envs > 0 and not max_steps and not max_trajectories:
            raise ValueError(
                f"{type(self).__name__}: eval_n_envs is {n_envs}, but neither eval_max_trajectories nor "
                "eval_max_steps says when an evaluation ends. Give eval_max_trajectories, for example 100."
            )
        if max_trajectories is not None and max_trajectories < 0:
            raise ValueError(
                f"{type(self).__name__}: eval_max_trajectories is {max_trajectories}; expected the number of episodes "
                "of one evaluation, or None for as many as eval_max_steps allows."
            )
        least = min(n_envs, max_trajectories or n_envs)
        if n_envs > 0 and max_steps and max_steps < least:
            raise ValueError(
                f"{type(self).__name__}: eval_max_steps is {max_steps}, shared by {least} evaluation environments; "
                "expected at least one step for each, and better enough for whole episodes. Raise it, or lower "
                "eval_n_envs."
            )

    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun."""
        traj_info = self.TrajInfoCls()
        if self._gives_score:
            traj_info.GameScore = 0.0
        return traj_info

    def plan(self) -> dict[str, Any]:
        """Return where the work will run."""
        return {"sampler": type(self).__name__}

    def _check_running(self, parts: Any) -> None:
        """Raise RuntimeError unless there is something that works."""
        if not parts:
            raise RuntimeError(
                f"{type(self).__name__}: it was asked for work, but it is not running; call initialize first, and "
                "shutdown last."
            )

    def make_plan(self, seed: int, traj_info_kwargs: Mapping[str, Any] | None, world_size: int, rank: int) -> Plan:
        """Return the plan of all environments of this replica."""
        B, n = self.batch_spec.B, self.eval_n_envs
        max_T = int(self.eval_max_steps // n) if n and self.eval_max_steps else NO_LIMIT
        return Plan(
            EnvCls=self.EnvCls,
            env_kwargs=self.env_kwargs,
            eval_env_kwargs=self.eval_env_kwargs,
            CollectorCls=self.CollectorCls,
            EvaluatorCls=self.eval_CollectorCls,
            TrajInfoCls=self.TrajInfoCls,
            traj_info_kwargs=dict(traj_info_kwargs or {}),
            env_info_keys=self.env_info_keys,
            max_decorrelation_steps=self.max_decorrelation_steps,
            seed=seed,
            global_B=B * world_size,
            env_ranks=list(range(rank * B, (rank + 1) * B)),
            eval_global_B=n,
            eval_env_ranks=list(range(n)),
            eval_quotas=quotas(n, self.eval_max_trajectories) if n else [],
            eval_max_T=max_T,
        )

    def make_example(self, agent: Agent, env: EnvExamples, plan: Plan) -> Samples:
        """Initialise the agent for the spaces, and return one row of the samples."""
        self._gives_score = "game_score" in env.info
        agent.initialize(env.spaces, global_B=plan.global_B, env_ranks=plan.env_ranks)
        agent.collector_initialize(1, [0], plan.seed)
        agent.sample_mode(0)
        inputs = buffer_func(
            (env.observation, env.action, np.float32(0)), lambda x: torch.as_tensor(np.asarray(x)[None])
        )
        step = buffer_func(numpify_buffer(agent.step(*inputs)), lambda x: x[0])
        flag, reward = np.bool_(False), np.float32(0)
        recorder = info_recorder(plan.env_info_keys, env.info, env.ignored_info)
        if recorder.notice:
            current_logger().log(f"{recorder.notice} Name what is wanted in env_info_keys.")
        return Samples(
            agent=AgentSamples(step.action, step.action, step.agent_info, np.float32(0)),
            env=EnvSamples(
                observation=env.observation,
                reward=reward,
                prev_reward=reward,
                terminated=flag,
                truncated=flag,
                valid=flag,
                env_info=recorder.example,
            ),
        )


class EnvSet(NamedTuple):
    """The environments of one process."""

    envs: list[EnvAdapter]
    eval_envs: list[EnvAdapter]
    examples: EnvExamples

    def close(self) -> None:
        """Close them all."""
        _close(self.envs + self.eval_envs)


def make_envs(plan: Plan) -> EnvSet:
    """Build the environments of one process and check them, before anything else is started."""
    envs: list[EnvAdapter] = []
    n = len(plan.env_ranks)
    try:
        for rank in plan.env_ranks:
            envs.append(make_env(plan.EnvCls, plan.env_kwargs, rank))
        examples = check_env(envs[0], stream_seed(plan.seed, Role.ENV_CHECK))
        for rank in plan.eval_env_ranks:
            envs.append(make_env(plan.EnvCls, plan.eval_env_kwargs, rank))
        for i, env in enumerate(envs):
            _check_spaces(env, examples.spaces, "environment" if i < n else "evaluation environment")
    except BaseException:
        _close(envs)
        raise
    return EnvSet(envs[:n], envs[n:], examples)


def _check_spaces(env: EnvAdapter, expected: EnvSpaces, what: str) -> None:
    """Refuse an environment whose rows are not those of the first: numpy would broadcast a small one in silence."""
    same = same_rows(env.observation_space, expected.observation) and env.action_space == expected.action
    if not same:
        raise EnvError(
            f"{env.name} ({what} of rank {env.rank}): its spaces are {tuple(env.spaces)}; expected those of the run's "
            f"first environment, {tuple(expected)}. One agent acts in all of them: pad or scale them alike."
        )


def _close(envs: Sequence[EnvAdapter]) -> None:
    """Close environments; what one of them raises keeps no other open, and hides no error that ended the run."""
    for env in envs:
        try:
            env.close()
        except Exception as error:
            warnings.warn(f"{env.name} (rank {env.rank}) was not closed: {type(error).__name__}: {error}", stacklevel=2)


def start_collector(
    plan: Plan, env_set: EnvSet, agent: Any, rows: Rows, progress: np.ndarray | None = None
) -> Collector:
    """Put a collector together, and bring its environments to their first observation."""
    agent.collector_initialize(plan.global_B, plan.env_ranks, plan.seed)
    record_info = info_recorder(plan.env_info_keys, env_set.examples.info).record if plan.env_info_keys else None
    collector = plan.CollectorCls(
        env_set.envs, agent, rows, plan.TrajInfoCls, plan.traj_info_kwargs, record_info, progress
    )
    collector.start(
        [stream_seed(plan.seed, Role.ENV, rank) for rank in plan.env_ranks],
        plan.max_decorrelation_steps,
        [numpy_generator(plan.seed, Role.DECORRELATION, rank) for rank in plan.env_ranks],
    )
    return collector


def start_evaluator(plan: Plan, env_set: EnvSet, agent: Any, progress: np.ndarray | None = None) -> Evaluator | None:
    """Put an evaluator together, or return None where this process has no evaluation environments."""
    if not plan.eval_env_ranks:
        return None
    agent.collector_initialize(plan.eval_global_B, plan.eval_env_ranks, plan.seed, evaluation=True)
    evaluator = plan.EvaluatorCls(
        env_set.eval_envs,
        agent,
        plan.eval_quotas,
        plan.eval_max_T,
        plan.TrajInfoCls,
        plan.traj_info_kwargs,
        progress,
    )
    evaluator.start([stream_seed(plan.seed, Role.EVAL_ENV, rank) for rank in plan.eval_env_ranks])
    return evaluator


def in_order(completed: Sequence[Sequence[CompletedTraj]]) -> list[TrajInfo]:
    """Return the trajectories of several processes in the order in which they ended."""
    return [c.traj_info for c in sorted((c for part in completed for c in part), key=lambda c: (c.t, c.rank))]


def merge(results: Sequence[EvalResult]) -> EvalResult:
    """Return the evaluations of several processes as one."""
    return EvalResult(
        [info for result in results for info in result.traj_infos],
        sum(result.steps for result in results),
        sum(result.unfinished for result in results),
    )
