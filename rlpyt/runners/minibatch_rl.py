"""Runners of one process: with the statistics of training's own trajectories, or with evaluations apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Self

from rlpyt.core import EvalResult
from rlpyt.runners.base import MinibatchRlBase
from rlpyt.runners.rows import Rows, RowsOfEvaluations, RowsOfTraining


@dataclass(eq=False)
class MinibatchRl(MinibatchRlBase):
    """Runner that logs the statistics of the trajectories that training itself completes."""

    log_traj_window: int = field(default=100, kw_only=True)
    """Number of the last trajectories that the statistics are taken over."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Raise TypeError for a number in the place of the algorithm, where rlpyt 0.1 had `log_traj_window`."""
        if args and isinstance(args[0], Real):
            raise TypeError(
                f"{cls.__name__}: got {args[0]!r} without a name; expected algo, agent, sampler and n_steps in this "
                f"order. Write log_traj_window={args[0]!r}, which was the first argument in rlpyt 0.1."
            )
        return super().__new__(cls, *args, **kwargs)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("log_traj_window", lambda x: x >= 1, "a number of trajectories from 1")

    def _make_rows(self) -> Rows:
        return RowsOfTraining(self.training, self._log_infos, int(self.log_traj_window))


@dataclass(eq=False)
class MinibatchRlEval(MinibatchRlBase):
    """Runner that evaluates the agent before the first iteration and at every row of the log.

    The statistics are those of the evaluation's trajectories. Rows before the first update have none, as the agent is
    still the one of the first evaluation.

    Raises:
        ValueError: if the sampler has no evaluation environments.
    """

    eval_deterministic: bool = field(default=False, kw_only=True)
    """Whether evaluations take the most probable action instead of a sampled one."""
    eval_beside: bool = field(default=False, kw_only=True)
    """Whether a process of its own evaluates the agent of every row while learning goes on. It needs a core that is
    free, and acts on the CPU. A row is written when its evaluation is done, with the counters of the agent that it
    judges; before the next row the run waits for it, at most the sampler's worker_timeout without progress."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampler.eval_n_envs < 1:
            raise ValueError(
                f"{type(self).__name__}: the sampler's eval_n_envs is {self.sampler.eval_n_envs}; expected at least 1. "
                "Set it and eval_max_trajectories, or use the runner without Eval, which logs training's trajectories."
            )

    def _make_rows(self) -> Rows:
        self._evaluated = RowsOfEvaluations(
            self.training,
            self._log_infos,
            self.evaluate_agent,
            self._hook_calls.on_evaluation,
            self.eval_deterministic,
            self.eval_beside,
        )
        return self._evaluated

    def evaluate_agent(self, itr: int) -> EvalResult:
        """Run an evaluation, or this replica's share of it; with `eval_beside` begin it, and return no episodes."""
        return self._evaluated.evaluate(itr)
