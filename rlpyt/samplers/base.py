"""What all samplers share: their arguments, the checks before anything starts, and how the parts are put together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from gymnasium.spaces import Box

from rlpyt.core import Agent, EvalResult, Sampler
from rlpyt.envs import EnvExamples, info_recorder
from rlpyt.logging import ProgBarCounter, current_logger
from rlpyt.samplers.buffer import Rows, allocate_rows, example_of, samples_of
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.env_set import Plan
from rlpyt.samplers.evaluator import NO_LIMIT, Evaluator, quotas
from rlpyt.samplers.stopwatch import PARTS
from rlpyt.types import BatchSpec, Run, Samples, TrajInfo, traj_info_maker
from rlpyt.utils.arguments import NamedArguments
from rlpyt.utils.checks import whole_number


class BaseSampler(Sampler, metaclass=NamedArguments):
    """Arguments of all samplers.

    Args:
        EnvCls: any callable that returns an environment (see `rlpyt.envs`), `gymnasium.make` among them.
        env_kwargs: its arguments.
        batch_T: time steps of a batch.
        batch_B: environments.
        CollectorCls: the loop that fills a batch; None is the default.
        max_decorrelation_steps: random steps that every environment takes at most before the first batch; 0 for none.
        TrajInfoCls: the statistics of a trajectory.
        eval_n_envs: evaluation environments; 0 for no evaluation.
        eval_CollectorCls: the loop of an evaluation; None is the default.
        eval_env_kwargs: arguments of the evaluation environments; None is those of training.
        eval_max_steps: steps of one evaluation at most, all environments together.
        eval_max_trajectories: episodes of one evaluation, dealt evenly to the environments.
        env_info_keys: names of numbers in the environments' info that are recorded in `samples.env.env_info`; or a
            mapping from name to an example, for those that only some steps give.
        mid_batch_reset: whether an environment goes on with a new episode inside a batch; False lets it rest until the
            batch is over, and resets it while the algorithm learns, for resets that take long.
        acting_threads: torch threads of this process while it collects; None picks. The workers of `CpuSampler`, which
            act themselves, have one each.
        time_breakdown: log how the time of collecting was spent: columns EnvironmentsTime, NetworkTime, WaitingTime and
            CopyingTime, seconds since the last row of the log, as the mean over the processes that collect.

    Raises:
        ValueError: if the sizes do not go together.
        TypeError: if EnvCls cannot be called.
    """

    default_acting_threads: int | None = None
    """Torch threads while collecting where none were given; None leaves them as the run has set them."""

    def __init__(
        self,
        EnvCls: Callable[..., Any],
        env_kwargs: Mapping[str, Any] | None,
        batch_T: int,
        batch_B: int,
        CollectorCls: Callable[..., Collector] | None = Collector,
        max_decorrelation_steps: int = 100,
        TrajInfoCls: Callable[..., TrajInfo] = TrajInfo,
        eval_n_envs: int = 0,
        eval_CollectorCls: Callable[..., Evaluator] | None = Evaluator,
        eval_env_kwargs: Mapping[str, Any] | None = None,
        eval_max_steps: int | None = None,
        eval_max_trajectories: int | None = None,
        env_info_keys: Sequence[str] | Mapping[str, Any] = (),
        mid_batch_reset: bool = True,
        acting_threads: int | None = None,
        time_breakdown: bool = False,
    ) -> None:
        if not callable(EnvCls):
            raise TypeError(
                f"{type(self).__name__}: EnvCls is {EnvCls!r}; expected a callable that returns an environment."
            )
        self.batch_spec = BatchSpec(self._whole("batch_T", batch_T), self._whole("batch_B", batch_B))
        self.EnvCls = EnvCls
        self.env_kwargs = dict(env_kwargs or {})
        CollectorCls = CollectorCls or Collector
        self.CollectorCls = CollectorCls
        self.TrajInfoCls = TrajInfoCls
        self.max_decorrelation_steps = self._whole("max_decorrelation_steps", max_decorrelation_steps, 0)
        self.eval_CollectorCls = eval_CollectorCls or Evaluator
        self.eval_env_kwargs = self.env_kwargs if eval_env_kwargs is None else dict(eval_env_kwargs)
        self._set_evaluation(eval_n_envs, eval_max_steps, eval_max_trajectories)
        self.env_info_keys = env_info_keys
        self.mid_batch_reset = mid_batch_reset and CollectorCls.mid_batch_reset  # type: ignore[union-attr]
        given = None if acting_threads is None else self._whole("acting_threads", acting_threads)
        self.acting_threads = given or self.default_acting_threads
        self.time_breakdown = time_breakdown
        self._gives_score = False
        self._traj_info_kwargs: dict[str, Any] = {}

    def _whole(self, name: str, value: Any, least: int = 1, expected: str | None = None) -> int:
        return whole_number(type(self).__name__, name, value, least, expected)

    def _set_evaluation(self, n_envs: Any, max_steps: Any, max_trajectories: Any) -> None:
        """Check and keep how much an evaluation runs; environments that would have no episode are left out."""
        n_envs = self._whole("eval_n_envs", n_envs, 0)
        expected = "the number of episodes of one evaluation, from 1, or None for as many as eval_max_steps allows"
        if max_trajectories is not None:
            max_trajectories = self._whole("eval_max_trajectories", max_trajectories, 1, expected)
        if max_steps is not None:
            max_steps = self._whole("eval_max_steps", max_steps, 0, "a whole number of steps, or None for no limit")
        if n_envs > 0 and not max_steps and max_trajectories is None:
            raise ValueError(
                f"{type(self).__name__}: eval_n_envs is {n_envs}, but neither eval_max_trajectories nor "
                "eval_max_steps says when an evaluation ends. Give eval_max_trajectories, for example 100."
            )
        least = min(n_envs, max_trajectories or n_envs)
        if n_envs > 0 and max_steps and max_steps < least:
            raise ValueError(
                f"{type(self).__name__}: eval_max_steps is {max_steps}, shared by {least} evaluation environments; "
                "expected at least one step for each, and better enough for whole episodes. Raise it, or lower "
                "eval_n_envs."
            )
        self.eval_n_envs: int = least
        self.eval_max_steps: int | None = max_steps
        self.eval_max_trajectories: int | None = max_trajectories

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return self.batch_spec.size

    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun."""
        traj_info = traj_info_maker(self.TrajInfoCls, self._traj_info_kwargs)()
        if self._gives_score:
            traj_info.GameScore = 0.0
        return traj_info

    def plan(self) -> dict[str, Any]:
        """Return where the work will run."""
        return {"sampler": type(self).__name__}

    def diagnostics(self) -> dict[str, float]:
        """Return what is to be logged of the collection since the last call, by column."""
        if not self.time_breakdown:
            return {}
        times = self._times()
        return {f"{part.capitalize()}Time": times[part] for part in PARTS}

    @abstractmethod
    def _times(self) -> dict[str, float]:
        """Return the seconds of every part of the work since the last call; see `rlpyt.samplers.stopwatch`."""

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Collect with as many torch threads as were chosen for it, and give back the run's."""
        threads = torch.get_num_threads()
        torch.set_num_threads(self.acting_threads or threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def _check_evaluates(self) -> None:
        if self.eval_n_envs == 0:
            raise RuntimeError(
                f"{type(self).__name__}: evaluation was asked for, but eval_n_envs is 0; set it above 0."
            )

    def _run_evaluation(self, evaluator: Evaluator, itr: int, deterministic: bool) -> EvalResult:
        """Evaluate in this process, with a progress bar."""
        bar = ProgBarCounter(evaluator.size)
        try:
            with self._threads():
                return evaluator.evaluate(itr, bar.update, deterministic)
        finally:
            bar.stop()

    def _allocate(self, example: Samples, bootstrap_value: bool, share_memory: bool) -> tuple[Rows, Rows | None]:
        """Allocate the rows of a batch, and those of an evaluation, and keep the algorithm's view of the first."""
        rows = allocate_rows(example, *self.batch_spec, bootstrap_value, share_memory)
        self._samples = samples_of(rows)
        if not self.eval_n_envs:
            return rows, None
        without_info = example._replace(env=example.env._replace(env_info=None))
        return rows, allocate_rows(without_info, 1, self.eval_n_envs, False, share_memory)

    def _check_running(self, parts: Any) -> None:
        """Raise RuntimeError unless there is something that works."""
        if not parts:
            raise RuntimeError(
                f"{type(self).__name__}: it was asked for work, but it is not running; call initialize first, and "
                "shutdown last."
            )

    def make_plan(self, run: Run) -> Plan:
        """Return the plan of all environments of this replica."""
        B, n = self.batch_spec.B, self.eval_n_envs
        self._traj_info_kwargs = dict(run.traj_info_kwargs)
        max_T = self.eval_max_steps // n if n and self.eval_max_steps else NO_LIMIT
        return Plan(
            EnvCls=self.EnvCls,
            env_kwargs=self.env_kwargs,
            eval_env_kwargs=self.eval_env_kwargs,
            CollectorCls=self.CollectorCls,
            EvaluatorCls=self.eval_CollectorCls,
            TrajInfoCls=self.TrajInfoCls,
            traj_info_kwargs=self._traj_info_kwargs,
            env_info_keys=self.env_info_keys,
            max_decorrelation_steps=self.max_decorrelation_steps,
            mid_batch_reset=self.mid_batch_reset,
            seed=run.seed,
            global_B=B * run.world_size,
            env_ranks=list(range(run.rank * B, (run.rank + 1) * B)),
            eval_global_B=n,
            eval_env_ranks=list(range(n)),
            eval_quotas=quotas(n, self.eval_max_trajectories) if n else [],
            eval_max_T=max_T,
        )

    def make_example(self, agent: Agent, env: EnvExamples, plan: Plan) -> Samples:
        """Initialise the agent for the spaces, and return one row of the samples."""
        self._gives_score = "game_score" in env.info
        agent.initialize(env.spaces)
        recorder = info_recorder(plan.env_info_keys, env.info, env.ignored_info)
        if recorder.notice:
            current_logger().log(f"{recorder.notice} Name what is wanted in env_info_keys.")
        action = env.spaces.action
        if isinstance(action, Box) and not ((action.low == -1).all() and (action.high == 1).all()):
            text = f"Agents of rlpyt scale actions to the bounds of {action}: an environment must not scale them again."
            current_logger().log(text)
        return example_of(agent, env.spaces, recorder.example)
