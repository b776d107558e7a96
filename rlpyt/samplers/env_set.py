"""What one process needs to collect and evaluate: the plan, and the environments built from it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rlpyt.core import EvalResult
from rlpyt.envs import (
    EnvAdapter,
    EnvError,
    EnvExamples,
    VectorEnvAdapter,
    check_env,
    check_vector_env,
    info_recorder,
    make_env,
    make_vector_env,
    makes_vector_env,
)
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.env_batch import CompletedTraj, EnvBatch, EnvList, LocalEnvs
from rlpyt.samplers.evaluator import Evaluator
from rlpyt.samplers.native_envs import NativeEnvs
from rlpyt.spaces import EnvSpaces, same_rows
from rlpyt.types import TrajInfo
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
    mid_batch_reset: bool
    seed: int
    global_B: int
    env_ranks: list[int]
    """Global ranks of the environments of this process."""
    eval_global_B: int
    eval_env_ranks: list[int]
    eval_quotas: list[int | None]
    eval_max_T: int
    restarts: int = 0
    """Which restart of a lost worker this is, counted over all workers; 0 for one that was there from the start."""

    def seeds(self, evaluation: bool = False) -> list[int]:
        """Return the seeds of the environments' first resets: other ones after every restart, never used before."""
        if evaluation:
            offset = self.restarts * self.eval_global_B
            return [stream_seed(self.seed, Role.EVAL_ENV, rank + offset) for rank in self.eval_env_ranks]
        return [stream_seed(self.seed, Role.ENV, rank + self.restarts * self.global_B) for rank in self.env_ranks]

    def deal(self, n: int) -> list[Plan]:
        """Deal environments and evaluation environments to n workers, in order, as evenly as they go."""

        def share(items: list[Any], i: int) -> list[Any]:
            return [items[j] for j in np.array_split(np.arange(len(items)), n)[i]]

        return [
            self._replace(
                env_ranks=share(self.env_ranks, i),
                eval_env_ranks=share(self.eval_env_ranks, i),
                eval_quotas=share(self.eval_quotas, i),
            )
            for i in range(n)
        ]


class Check(NamedTuple):
    """Result of the check at the start, one for all processes of a run: their rows are made from it."""

    examples: EnvExamples
    can_reset_some: bool = True
    """Whether a vector environment can reset a part of itself."""


def check_one(plan: Plan) -> Check:
    """Build and check an environment, and close it again.

    An environment may remember what it has seen: random numbers drawn, episodes behind it. So none that was checked is
    used; it is closed before others are built, which may need its licence, port or memory.

    Raises:
        EnvError: if it cannot be built, or does not keep to its spaces.
    """
    seed = stream_seed(plan.seed, Role.ENV_CHECK)
    if makes_vector_env(plan.EnvCls):
        vector_env = make_vector_env(plan.EnvCls, plan.env_kwargs, plan.env_ranks)
        try:
            return Check(check_vector_env(vector_env, seed), vector_env.can_reset_some)
        finally:
            _close(vector_env)
    env = make_env(plan.EnvCls, plan.env_kwargs, plan.env_ranks[0])
    try:
        return Check(check_env(env, seed))
    finally:
        _close(env)


class Built(NamedTuple):
    """Environments with the same spaces, for messages."""

    name: str
    what: str
    ranks: list[int]
    spaces: EnvSpaces

    def check_spaces(self, expected: EnvSpaces) -> None:
        """Refuse spaces whose rows are not those expected: numpy would broadcast a small one in silence."""
        if not (same_rows(self.spaces.observation, expected.observation) and self.spaces.action == expected.action):
            raise EnvError(
                f"{self.name} ({self.what} of rank {', '.join(map(str, self.ranks))}): its spaces are "
                f"{tuple(self.spaces)}; expected those of the run's first environment, {tuple(expected)}. One agent "
                "acts in all of them: pad or scale them alike."
            )


class EnvSet:
    """The environments of one process, all with the same spaces.

    Args:
        plan: says what to build.

    Raises:
        EnvError: if an environment cannot be built, or has other spaces; those built before are closed.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.envs: list[Any] = []  # EnvAdapters, or one VectorEnvAdapter
        self.eval_envs: list[Any] = []
        self.built: Built
        try:
            self._build("environment", plan.env_ranks, plan.env_kwargs, self.envs)
            self._build("evaluation environment", plan.eval_env_ranks, plan.eval_env_kwargs, self.eval_envs)
        except BaseException:
            self.close()
            raise

    def _build(self, what: str, ranks: list[int], env_kwargs: dict[str, Any], envs: list[Any]) -> None:
        EnvCls = self.plan.EnvCls
        is_vector = makes_vector_env(EnvCls)
        for group in [ranks] if is_vector and ranks else [[rank] for rank in ranks]:
            env = make_vector_env(EnvCls, env_kwargs, group) if is_vector else make_env(EnvCls, env_kwargs, group[0])
            envs.append(env)
            built = Built(env.name, what, group, env.spaces)
            if len(self.envs) + len(self.eval_envs) == 1:
                self.built = built._replace(ranks=ranks)
            built.check_spaces(self.built.spaces)

    def training_envs(self, rows: Rows, check: Check, progress: np.ndarray | None = None) -> LocalEnvs:
        """Return the environments of training as a batch that fills these rows."""
        names, env = list(self.plan.env_info_keys), self.envs[0]
        recorder = info_recorder(self.plan.env_info_keys, check.examples.info)
        common = {**self._common(progress), "wait_reset": not self.plan.mid_batch_reset}
        if isinstance(env, VectorEnvAdapter):
            env.can_reset_some = check.can_reset_some
            return NativeEnvs(env, rows, {name: recorder.example[name] for name in names}, **common)
        return EnvList(self.envs, rows, recorder.record if names else None, **common)

    def evaluation_envs(self, rows: Rows, progress: np.ndarray | None = None) -> LocalEnvs:
        """Return the environments of evaluation as a batch that fills these rows."""
        env, common = self.eval_envs[0], self._common(progress)
        if isinstance(env, VectorEnvAdapter):
            return NativeEnvs(env, rows, **common)
        return EnvList(self.eval_envs, rows, **common)

    def _common(self, progress: np.ndarray | None) -> dict[str, Any]:
        plan = self.plan
        return dict(TrajInfoCls=plan.TrajInfoCls, traj_info_kwargs=plan.traj_info_kwargs, progress=progress)

    def close(self) -> None:
        """Close all; what one of them raises keeps no other open, and hides no error that ended the run."""
        for env in [*self.envs, *self.eval_envs]:
            _close(env)


def _close(env: EnvAdapter | VectorEnvAdapter) -> None:
    try:
        env.close()
    except Exception as error:
        ranks = env.ranks if isinstance(env, VectorEnvAdapter) else env.rank
        warnings.warn(f"{env.name} (rank {ranks}) was not closed: {type(error).__name__}: {error}", stacklevel=2)


def columns_of(rows: Rows, plans: Sequence[Plan]) -> list[Rows]:
    """Return the rows' columns of the environments that each plan has."""
    bounds = np.cumsum([0] + [len(plan.env_ranks) for plan in plans])
    return [rows[:, lo:hi] for lo, hi in pairwise(bounds)]


def start_envs(plan: Plan, envs: LocalEnvs) -> None:
    """Bring training environments to their first row: seeded, and by random steps away from each other."""
    if plan.restarts:
        envs.begin_after_loss(plan.seeds())
        return
    envs.reset(plan.seeds())
    if plan.max_decorrelation_steps > 0:
        rngs = [numpy_generator(plan.seed, Role.DECORRELATION, rank) for rank in plan.env_ranks]
        envs.decorrelate(plan.max_decorrelation_steps, rngs)


def start_collector(plan: Plan, agent: Any, parts: Sequence[EnvBatch], overlap: bool = True) -> Collector:
    """Put a collector together over environments that were started."""
    actors = [agent.actor(envs.ranks, plan.global_B, plan.seed, restarts=plan.restarts) for envs in parts]
    return plan.CollectorCls(agent, list(zip(parts, actors, strict=True)), overlap)


def start_evaluator(plan: Plan, agent: Any, envs: EnvBatch) -> Evaluator:
    """Put an evaluator together."""
    actor = agent.actor(envs.ranks, plan.eval_global_B, plan.seed, evaluation=True)
    evaluator = plan.EvaluatorCls(agent, envs, actor, plan.eval_quotas, plan.eval_max_T)
    evaluator.start(plan.seeds(evaluation=True))
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
