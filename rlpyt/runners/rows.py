"""Rows of the log, by what their statistics are of: the trajectories of training, or evaluations apart."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from operator import itemgetter
from statistics import fmean
from typing import TypeAlias

import torch

from rlpyt.core import EvalResult, EvaluatorBeside
from rlpyt.logging import HeldRow
from rlpyt.runners.run_log import RunLog
from rlpyt.runners.training import Training
from rlpyt.types import Run, StateDict, TrajInfo

RecordInfos: TypeAlias = Callable[[Sequence[TrajInfo]], None]
"""Records statistics of trajectories, and of the metrics since the last row: `_log_infos` of a runner."""

NO_EVALUATION = EvalResult([], 0, 0)
"""Result where nothing was evaluated."""


class Rows(ABC):
    """Rows of the log of one training, whose parts may not be initialised yet."""

    log: RunLog
    """Known after `begin`."""
    first: bool = False
    """Whether there is a row before the first iteration."""
    beside: bool = False
    """Whether a process of its own evaluates."""

    def __init__(self, training: Training, record_infos: RecordInfos) -> None:
        self._training, self._record_infos = training, record_infos
        self._row_metrics: Mapping[str, torch.Tensor] = {}  # of the row that is written, or was begun

    def plan(self) -> dict[str, object]:
        """Return what the plan says of evaluations."""
        return {}

    def start(self, run: Run, undo: ExitStack) -> None:  # noqa: B027
        """Start what needs the example of a row; `undo` gets what ends it."""

    def begin(self, log: RunLog) -> None:
        """Begin with the log, whose clocks have started."""
        self.log = log

    def add(self, itr: int, traj_infos: Sequence[TrajInfo]) -> None:  # noqa: B027
        """Take in the trajectories that training has completed in an iteration."""

    @abstractmethod
    def write(self, n_done: int) -> None:
        """Write one row after `n_done` iterations, or begin it."""

    def record_infos(self, traj_infos: Sequence[TrajInfo]) -> None:
        """Record statistics of trajectories, and of the metrics of the row: what `_log_infos` does."""
        self.log.record_infos(traj_infos, self._row_metrics)

    def complete(self) -> None:  # noqa: B027
        """Write the row that was begun, if there is one, when it can be ended."""

    def score(self, n_done: int) -> float | None:
        """Return how good the agent is after `n_done` iterations, higher is better; None where that is not known."""
        return None

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return where the statistics stand between two rows; it may write a row that was begun."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned."""


class RowsOfTraining(Rows):
    """Rows with statistics of the last trajectories that training itself has completed, at most `window` of them."""

    def __init__(self, training: Training, record_infos: RecordInfos, window: int) -> None:
        super().__init__(training, record_infos)
        self._window = window

    def begin(self, log: RunLog) -> None:
        """Begin with an empty window."""
        super().begin(log)
        self._last: deque[tuple[int, TrajInfo]] = deque(maxlen=self._window)  # with their iterations
        self._new_completed_trajs = 0

    def add(self, itr: int, traj_infos: Sequence[TrajInfo]) -> None:
        """Keep the last trajectories."""
        self._new_completed_trajs += len(traj_infos)
        # Those of a device are made when they are looked at, and thousands end in a batch.
        self._last.extend((itr, info) for info in traj_infos[-self._window :])

    def write(self, n_done: int) -> None:
        """Write one row."""
        logger, log = self._training.logger, self.log
        new_time = log.seconds_since_row
        n_new, traj_infos = self._gathered()
        with logger.tabular_prefix("Diagnostics/"):
            logger.record_tabular("NewCompletedTrajs", n_new)
            logger.record_tabular("StepsInTrajWindow", sum(info.Length for info in traj_infos))
            log.record_counters(n_done, new_time)
        self._row_metrics = log.take_metrics()
        self._record_infos(traj_infos)
        logger.dump_tabular(n_done * self._training.steps_per_itr)
        self._new_completed_trajs = 0
        log.end_row()

    def _gathered(self) -> tuple[int, list[TrajInfo]]:
        """Return how many trajectories all replicas have completed since the last row, and the last of the run."""
        # In the order of one process that has all environments. An own sampler may not say where a trajectory ended.
        own = [(info.ended_at or (itr, 0, 0), info) for itr, info in self._last]
        n_new, windows = zip(*self._training.agreement.gather((self._new_completed_trajs, own)), strict=True)
        if len(windows) == 1:
            return self._new_completed_trajs, [info for _, info in self._last]
        traj_infos = [info for _, info in sorted(chain.from_iterable(windows), key=itemgetter(0))]
        return sum(n_new), traj_infos[-self._window :]

    def state_dict(self) -> StateDict:
        """Return the last trajectories."""
        return {
            "traj_infos": self._training.sampler.traj_states.saved([info for _, info in self._last]),
            "traj_itrs": [itr for itr, _ in self._last],
            "new_completed_trajs": self._new_completed_trajs,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned."""
        sampler = self._training.sampler
        for itr, saved in zip(state["traj_itrs"], state["traj_infos"], strict=True):
            # None, if a class of the user's has no state.
            self._last.extend((itr, x) for x in sampler.traj_states.restored([saved], sampler.new_traj_info))
        self._new_completed_trajs = state["new_completed_trajs"]


class RowsOfEvaluations(Rows):
    """Rows with statistics of an evaluation, in the run before the row is written, or in a process of its own.

    Rows before the first update have none, as the agent is still the one of the first evaluation. With `beside` a row
    is begun with the counters and metrics of its step, and ended when its evaluation is done. At most one is under
    way. Replica 0 has the only process, which runs the whole quota.

    Args:
        training: of which the rows are.
        record_infos: see `RecordInfos`.
        evaluate: `evaluate_agent` of the runner, which calls `evaluate` unless a subclass replaces it.
        on_evaluation: is given each evaluation, that of all replicas, and the step of its agent.
        deterministic: whether the most probable action is taken instead of a sampled one.
        beside: whether a process of its own evaluates.
    """

    first = True
    evaluator: EvaluatorBeside | None = None
    """Of replica 0, where it evaluates beside; known after `start`."""
    under_way: HeldRow | None = None
    """Row that was begun, whose evaluation goes on."""
    _begun = False  # whether the evaluation of a row was only begun

    def __init__(
        self,
        training: Training,
        record_infos: RecordInfos,
        evaluate: Callable[[int], EvalResult],
        on_evaluation: Callable[[EvalResult, int], None],
        deterministic: bool,
        beside: bool,
    ) -> None:
        super().__init__(training, record_infos)
        self._evaluate, self._on_evaluation, self._deterministic = evaluate, on_evaluation, deterministic
        self.beside = beside

    def plan(self) -> dict[str, object]:
        """Return where evaluations run."""
        where = "beside learning" if self.beside else "in the run"
        return {"evaluation": f"{where}, in {self._training.sampler.eval_n_envs} environments"}

    def start(self, run: Run, undo: ExitStack) -> None:
        """Start the process that evaluates, if there is to be one."""
        if self.beside and run.rank == 0:
            self.evaluator = self._training.sampler.evaluator_beside(self._training.agent, run)
            undo.callback(self.evaluator.shutdown)
            undo.callback(self._end_early)

    def begin(self, log: RunLog) -> None:
        """Begin to count the time of evaluations."""
        super().begin(log)
        self._cum_eval_time = self._cum_eval_wait_time = 0.0
        self._last_score = -1, 0.0  # iterations done, and mean return

    def add(self, itr: int, traj_infos: Sequence[TrajInfo]) -> None:
        """Write the row under way as soon as its evaluation is done."""
        if self.under_way is not None and self._end(wait=False):
            self.log.end_bar()  # a table was printed
            self.log.show_bar()

    # ---- evaluations ----

    def evaluate(self, itr: int) -> EvalResult:
        """Run an evaluation, or this replica's share of it; one beside is only begun, and has no episodes yet."""
        if self.beside:
            self._begun = True
            if self.evaluator is not None:
                self.evaluator.start(itr, self._deterministic)
            return NO_EVALUATION
        start, sampler = time.monotonic(), self._training.sampler
        # An own sampler's method may have no such argument, and needs none where nothing is asked of it.
        options = {"deterministic": True} if self._deterministic else {}
        result = sampler.evaluate_agent(itr, **options)
        if not isinstance(result, EvalResult):  # of an own sampler
            raise TypeError(
                f"{type(sampler).__name__}.evaluate_agent returned {result!r:.100}; expected "
                "rlpyt.core.EvalResult(traj_infos, steps, unfinished): the whole episodes, steps taken, and episodes "
                "that were cut off. Return one."
            )
        self._cum_eval_time += time.monotonic() - start
        return result

    def _evaluate_together(self, n_done: int) -> EvalResult:
        """Return the evaluation of all replicas; the wait for the slowest is part of it."""
        own = self._evaluate(n_done)
        if self._begun:
            if own is not NO_EVALUATION:
                raise TypeError(
                    "evaluate_agent of the runner has changed what super().evaluate_agent returned, which with "
                    "eval_beside has no episodes yet; expected it as it is. Override _log_infos, which is given the "
                    "episodes, or leave eval_beside out."
                )
            return own
        start = time.monotonic()
        result = EvalResult.merge(self._training.agreement.gather(own))
        self._cum_eval_time += time.monotonic() - start
        self._tell(result, n_done * self._training.steps_per_itr)
        if result.traj_infos:
            self._last_score = n_done, fmean(info.Return for info in result.traj_infos)
        return result

    def _tell(self, result: EvalResult, step: int) -> None:
        """Warn of episodes that were cut off, and hand the evaluation on."""
        if result.unfinished:
            self._training.logger.warn_once(
                "unfinished evaluation",
                f"{result.unfinished} episodes of the evaluation's quota were cut off by eval_max_steps and are not in "
                "its statistics, which favours short ones. Raise eval_max_steps or lower eval_max_trajectories.",
            )
        self._on_evaluation(result, step)

    def score(self, n_done: int) -> float | None:
        """Return the mean return of the evaluation after `n_done` iterations, if there was one in the run."""
        evaluated, score = self._last_score
        return score if evaluated == n_done else None

    # ---- rows ----

    def write(self, n_done: int) -> None:
        """Evaluate and write one row, or begin both."""
        training, logger, log = self._training, self._training.logger, self.log
        step, train_time = n_done * training.steps_per_itr, log.seconds_since_row
        self.complete()  # rows stay in order
        self._begun = False
        unchanged = 0 < n_done <= training.algo.min_itr_learn
        if unchanged and n_done == training.log_interval_itrs:
            logger.log("The agent is the one evaluated at step 0 until the first update; it is not evaluated again.")
        result = NO_EVALUATION if unchanged else self._evaluate_together(n_done)
        self._record_evaluation(result)
        with logger.tabular_prefix("Diagnostics/"):
            not_training = self._cum_eval_wait_time if self.beside else self._cum_eval_time
            logger.record_tabular("CumTrainTime", log.seconds - not_training)
            log.record_counters(n_done, train_time)
        self._row_metrics = log.take_metrics()
        self._record_infos(result.traj_infos)
        if self._begun and self.evaluator is not None:
            self.under_way = logger.hold_tabular(step)
        else:
            logger.dump_tabular(step)
        if n_done == training.n_itr:
            self.complete()
        log.end_row()

    def _record_evaluation(self, result: EvalResult) -> None:
        logger = self._training.logger
        with logger.tabular_prefix("Diagnostics/"):
            logger.record_tabular("StepsInEval", result.steps)
            logger.record_tabular("TrajsInEval", len(result.traj_infos))
            logger.record_tabular("TrajsUnfinishedInEval", result.unfinished)
            logger.record_tabular("CumEvalTime", self._cum_eval_time)
            if self.beside:
                logger.record_tabular("CumEvalWaitTime", self._cum_eval_wait_time)

    def complete(self) -> None:
        """Write the row under way when its evaluation is done."""
        # Other replicas have no row under way. They wait along in steps, as a call of theirs has a time limit.
        while self.beside and self._training.agreement.broadcast(self.under_way is not None):
            self._end(wait=True)

    def _end(self, wait: bool) -> bool:
        """Write the row under way if its evaluation is done, or is within half a second; return whether it was."""
        if self.under_way is None or self.evaluator is None:
            return False
        start = time.monotonic()
        ended = self.evaluator.result(wait)
        if wait:
            self._cum_eval_wait_time += time.monotonic() - start
        if ended is None:
            return False
        result, seconds = ended
        self._cum_eval_time += seconds
        self._tell(result, self.under_way.step)
        self._write_under_way(result)
        return True

    def _write_under_way(self, result: EvalResult) -> None:
        row, self.under_way = self.under_way, None
        assert row is not None

        def record() -> None:
            self._record_evaluation(result)
            self._record_infos(result.traj_infos)

        self._training.logger.dump_held(row, record)

    def _end_early(self) -> None:
        """Write the row under way when a run ends early: without its evaluation, if that is not done."""
        with suppress(RuntimeError):  # of an evaluator that has failed, which is what ended the run
            self._end(wait=False)
        if self.under_way is not None:
            step = self.under_way.step
            self._write_under_way(NO_EVALUATION)
            self._training.logger.log(f"The row of step {step:,} has no evaluation: the run ended before it was done.")

    def state_dict(self) -> StateDict:
        """Return the time of evaluations."""
        return {"cum_eval_time": self._cum_eval_time, "cum_eval_wait_time": self._cum_eval_wait_time}

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned."""
        self._cum_eval_time, self._cum_eval_wait_time = state["cum_eval_time"], state["cum_eval_wait_time"]
