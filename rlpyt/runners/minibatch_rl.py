"""Runners of one process: with the statistics of training's own trajectories, or with evaluations apart."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from statistics import fmean
from typing import Any, Self

from rlpyt.core import EvalResult, EvaluatorBeside, Metrics
from rlpyt.logging import HeldRow, ProgBarCounter
from rlpyt.runners.arguments import check_evaluation, check_positions
from rlpyt.runners.base import MinibatchRlBase
from rlpyt.types import Run, StateDict, TrajInfo

NO_EVALUATION = EvalResult([], 0, 0)
"""Result where nothing was evaluated."""


@dataclass(eq=False)
class MinibatchRl(MinibatchRlBase):
    """Runner that logs the statistics of the trajectories that training itself completes."""

    log_traj_window: int = field(default=100, kw_only=True)
    """Number of the last trajectories that the statistics are taken over."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse the first argument of rlpyt 0.1 in the place of the algorithm."""
        check_positions(cls.__name__, args)
        return super().__new__(cls, *args, **kwargs)

    def __post_init__(self) -> None:
        """Refuse an empty window."""
        super().__post_init__()
        if not self.log_traj_window >= 1:
            raise ValueError(
                f"{type(self).__name__}: log_traj_window is {self.log_traj_window!r}; expected a number of "
                "trajectories from 1."
            )

    def initialize_logging(self) -> None:
        """Start the clocks and the window of trajectories."""
        super().initialize_logging()
        self._traj_infos: deque[TrajInfo] = deque(maxlen=int(self.log_traj_window))
        self._traj_itrs: deque[int] = deque(maxlen=int(self.log_traj_window))
        self._new_completed_trajs = 0

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Keep the last trajectories."""
        self._new_completed_trajs += len(traj_infos)
        self._traj_infos.extend(traj_infos)
        self._traj_itrs.extend([itr] * len(traj_infos))
        super().store_diagnostics(itr, traj_infos, metrics)

    def log_row(self, n_done: int) -> None:
        """Write one row of the log."""
        now = time.monotonic()
        n_new, traj_infos = self._gather_trajs()
        with self.logger.tabular_prefix("Diagnostics/"):
            self.logger.record_tabular("NewCompletedTrajs", n_new)
            self.logger.record_tabular("StepsInTrajWindow", sum(info.Length for info in traj_infos))
            self.log_counters(n_done, now - self._last_time)
        self._log_infos(traj_infos)
        self.logger.dump_tabular(n_done * self.steps_per_itr)
        self._new_completed_trajs = 0
        self._last_time = time.monotonic()

    def progress_state(self) -> StateDict:
        """Return where the log stands between two rows, with the last trajectories."""
        return {
            **super().progress_state(),
            "traj_infos": self.sampler.traj_states.saved(self._traj_infos),
            "traj_itrs": list(self._traj_itrs),
            "new_completed_trajs": self._new_completed_trajs,
        }

    def load_progress_state(self, state: StateDict) -> None:
        """Take over what `progress_state` returned."""
        super().load_progress_state(state)
        for itr, saved in zip(state["traj_itrs"], state["traj_infos"], strict=True):
            # None, if a class of the user's has no state.
            restored = self.sampler.traj_states.restored([saved], self.sampler.new_traj_info)
            self._traj_infos.extend(restored)
            self._traj_itrs.extend([itr] * len(restored))
        self._new_completed_trajs = state["new_completed_trajs"]

    def _gather_trajs(self) -> tuple[int, list[TrajInfo]]:
        """Return how many trajectories all replicas have completed since the last row, and the last of the run."""
        # In the order of one process that has all environments. An own sampler may not say where a trajectory ended.
        own = [
            (info.ended_at or (itr, 0, 0), info) for itr, info in zip(self._traj_itrs, self._traj_infos, strict=True)
        ]
        n_new, windows = zip(*self.agreement.gather((self._new_completed_trajs, own)), strict=True)
        if len(windows) == 1:
            return self._new_completed_trajs, list(self._traj_infos)
        traj_infos = [info for _, info in sorted(chain.from_iterable(windows), key=itemgetter(0))]
        return sum(n_new), traj_infos[-int(self.log_traj_window) :]


@dataclass(eq=False)
class MinibatchRlEval(MinibatchRlBase):
    """Runner that evaluates the agent before the first iteration and at every row of the log.

    The statistics are those of the evaluation's trajectories. Rows before the first update have none, as the agent is
    still the one of the first evaluation.

    Raises:
        ValueError: if the sampler has no evaluation environments.
        TypeError: if a subclass evaluates or logs by methods of its own, and eval_beside is True.
    """

    eval_deterministic: bool = field(default=False, kw_only=True)
    """Whether evaluations take the most probable action instead of a sampled one."""
    eval_beside: bool = field(default=False, kw_only=True)
    """Whether a process of its own evaluates the agent of every row while learning goes on. It needs a core that is
    free, and acts on the CPU. A row is written when its evaluation is done, with the counters of the agent that it
    judges; before the next row the run waits for it, at most the sampler's worker_timeout without progress."""

    def __post_init__(self) -> None:
        """Refuse a sampler without evaluation environments, and methods that an evaluation beside would not call."""
        super().__post_init__()
        if self.sampler.eval_n_envs < 1:
            raise ValueError(
                f"{type(self).__name__}: the sampler's eval_n_envs is {self.sampler.eval_n_envs}; expected at least 1. "
                "Set it and eval_max_trajectories, or use the runner without Eval, which logs training's trajectories."
            )
        for name in ("evaluate_agent", "_log_infos"):
            if self.eval_beside and getattr(type(self), name) is not getattr(MinibatchRlEval, name):
                raise TypeError(
                    f"{type(self).__name__}: eval_beside is True, and {name} is a method of its own, which would not "
                    "see the evaluations of the process beside; expected the one of MinibatchRlEval. Leave eval_beside "
                    "out, or give the sampler a TrajInfoCls with the statistics."
                )
        self._evaluator: EvaluatorBeside | None = None
        self._row_under_way: HeldRow | None = None  # of the log, whose evaluation goes on beside learning

    def startup(self) -> int:
        """Build everything, and evaluate the agent as it starts."""
        n_itr = super().startup()
        if self.first_itr:
            return n_itr  # the row of the start is there
        self.pbar.stop()  # the evaluation shows a bar of its own
        self.log_row(0)
        self.pbar = ProgBarCounter(self.log_interval_itrs)
        return n_itr

    def plan(self) -> dict[str, object]:
        """Return where evaluations run."""
        where = "beside learning" if self.eval_beside else "in the run"
        return {**super().plan(), "evaluation": f"{where}, in {self.sampler.eval_n_envs} environments"}

    @property
    def evaluates_beside(self) -> bool:
        """Whether evaluations run in a process of their own."""
        return self.eval_beside

    def start_evaluator(self, run: Run) -> None:
        """Start the process that evaluates; replica 0 has the only one, which runs the whole quota."""
        self._evaluator = self._row_under_way = None  # of an earlier run
        if self.eval_beside and run.rank == 0:
            self._evaluator = self.sampler.evaluator_beside(self.agent, run)
            self._to_give_back.callback(self._evaluator.shutdown)
            self._to_give_back.callback(self._end_row_under_way)

    def initialize_logging(self) -> None:
        """Start the clocks."""
        super().initialize_logging()
        self._cum_eval_time = self._cum_eval_wait_time = 0.0
        self._last_score = -1, 0.0  # iterations done, and mean return

    def progress_state(self) -> StateDict:
        """Return where the log stands between two rows, with the time of evaluations."""
        if self.eval_beside:
            self._wait_for_evaluation()
        times = {"cum_eval_time": self._cum_eval_time, "cum_eval_wait_time": self._cum_eval_wait_time}
        return {**super().progress_state(), **times}

    def load_progress_state(self, state: StateDict) -> None:
        """Take over what `progress_state` returned."""
        super().load_progress_state(state)
        self._cum_eval_time, self._cum_eval_wait_time = state["cum_eval_time"], state["cum_eval_wait_time"]

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Keep what the next row is made of, and write the last one as soon as its evaluation is done."""
        if self._row_under_way is not None and self._end_evaluation(wait=False):
            self.pbar.stop()  # a table was printed
            self.pbar = ProgBarCounter(self.log_interval_itrs)
        super().store_diagnostics(itr, traj_infos, metrics)

    def evaluate_agent(self, itr: int) -> EvalResult:
        """Run an evaluation, or this replica's share of it, and count its time."""
        start = time.monotonic()
        # An own sampler's method may have no such argument, and needs none where nothing is asked of it.
        options = {"deterministic": True} if self.eval_deterministic else {}
        result = self.sampler.evaluate_agent(itr, **options)
        check_evaluation(f"{type(self.sampler).__name__}.evaluate_agent", result)
        self._cum_eval_time += time.monotonic() - start
        return result

    def _evaluate_together(self, itr: int) -> EvalResult:
        """Return the evaluation of all replicas; the wait for the slowest is part of it."""
        own = self.evaluate_agent(itr)
        start = time.monotonic()
        result = EvalResult.merge(self.agreement.gather(own))
        self._cum_eval_time += time.monotonic() - start
        self._warn_of_unfinished(result)
        self.evaluation_done(result, itr * self.steps_per_itr)
        return result

    def _warn_of_unfinished(self, result: EvalResult) -> None:
        if result.unfinished:
            self.logger.warn_once(
                "unfinished evaluation",
                f"{result.unfinished} episodes of the evaluation's quota were cut off by eval_max_steps and are not in "
                "its statistics, which favours short ones. Raise eval_max_steps or lower eval_max_trajectories.",
            )

    def log_row(self, n_done: int) -> None:
        """Evaluate, and write one row of the log; or begin the evaluation beside learning, which ends the row."""
        train_time = time.monotonic() - self._last_time
        if self.eval_beside:
            self._wait_for_evaluation()  # rows stay in order
        unchanged = 0 < n_done <= self.algo.min_itr_learn
        if unchanged and n_done == self.log_interval_itrs:
            self.logger.log(
                "The agent is the one evaluated at step 0 until the first update; it is not evaluated again."
            )
        result = NO_EVALUATION if unchanged or self.eval_beside else self._evaluate_together(n_done)
        if result.traj_infos:
            self._last_score = n_done, fmean(info.Return for info in result.traj_infos)
        self._record_evaluation(result)
        with self.logger.tabular_prefix("Diagnostics/"):
            waited = self._cum_eval_wait_time if self.eval_beside else self._cum_eval_time
            self.logger.record_tabular("CumTrainTime", time.monotonic() - self._start_time - waited)
            self.log_counters(n_done, train_time)
        self._log_infos(result.traj_infos)
        if self._evaluator is None or unchanged:
            self.logger.dump_tabular(n_done * self.steps_per_itr)
        else:
            self._row_under_way = self.logger.hold_tabular(n_done * self.steps_per_itr)
            self._evaluator.start(n_done, self.eval_deterministic)
        if self.eval_beside and n_done == self.n_itr:
            self._wait_for_evaluation()
        self._last_time = time.monotonic()

    def score(self, n_done: int) -> float | None:
        """Return the mean return of the evaluation after `n_done` iterations, if there was one in the run."""
        evaluated, score = self._last_score
        return score if evaluated == n_done else None

    def _record_evaluation(self, result: EvalResult) -> None:
        with self.logger.tabular_prefix("Diagnostics/"):
            self.logger.record_tabular("StepsInEval", result.steps)
            self.logger.record_tabular("TrajsInEval", len(result.traj_infos))
            self.logger.record_tabular("TrajsUnfinishedInEval", result.unfinished)
            self.logger.record_tabular("CumEvalTime", self._cum_eval_time)
            if self.eval_beside:
                self.logger.record_tabular("CumEvalWaitTime", self._cum_eval_wait_time)

    # ---- evaluation beside learning ----

    def complete_rows(self) -> None:
        """Write the row whose evaluation goes on beside learning."""
        if self.eval_beside:
            self._wait_for_evaluation()

    def _wait_for_evaluation(self) -> None:
        """Write the row under way when its evaluation is done."""
        # Other replicas have no row under way. They wait along in steps, as a call of theirs has a time limit.
        while self.agreement.broadcast(self._row_under_way is not None):
            self._end_evaluation(wait=True)

    def _end_evaluation(self, wait: bool) -> bool:
        """Write the row under way if its evaluation is done; return whether a row was written.

        Args:
            wait: whether to wait for it, for half a second.
        """
        if self._row_under_way is None or self._evaluator is None:
            return False
        start = time.monotonic()
        ended = self._evaluator.result(wait)
        if wait:
            self._cum_eval_wait_time += time.monotonic() - start
        if ended is None:
            return False
        result, seconds = ended
        self._cum_eval_time += seconds
        self._warn_of_unfinished(result)
        self.evaluation_done(result, self._row_under_way.step)
        self._write_row_under_way(result)
        return True

    def _write_row_under_way(self, result: EvalResult) -> None:
        row, self._row_under_way = self._row_under_way, None
        assert row is not None

        def record() -> None:
            self._record_evaluation(result)
            self._log_trajs(result.traj_infos)

        self.logger.dump_held(row, record)

    def _end_row_under_way(self) -> None:
        """Write the row under way when a run ends early: without its evaluation, if that is not done."""
        with suppress(RuntimeError):  # of an evaluator that has failed, which is what ended the run
            self._end_evaluation(wait=False)
        if self._row_under_way is not None:
            step = self._row_under_way.step
            self._write_row_under_way(NO_EVALUATION)
            self.logger.log(f"The row of step {step:,} has no evaluation: the run ended before it was done.")
