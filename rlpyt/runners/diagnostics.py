"""Rows of the log of a run: counters, speeds, and statistics of trajectories and metrics since the last row."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import torch

from rlpyt.core import Agent, Algorithm, Metrics, Sampler, hyper_parameters, rows_consumed, rows_per_update
from rlpyt.logging import Logger, ProgBarCounter, plot_progress
from rlpyt.runners.agreement import Agreement, TrainingDiverged
from rlpyt.runners.checkpointing import RunCheckpoints
from rlpyt.runners.columns import (
    MetricWindow,
    all_finite,
    as_metrics,
    check_names,
    check_values,
    merged_metrics,
    merged_numbers,
)
from rlpyt.runners.hints import divergence_hints
from rlpyt.settings import Settings
from rlpyt.types import StateDict, TrajInfo
from rlpyt.utils.compute import ComputeSettings, compilations
from rlpyt.utils.replicas import Replicas


class LoggedRun(Settings):
    """Run of an algorithm, an agent and a sampler, as far as its log is concerned."""

    algo: Algorithm[Agent]
    agent: Agent
    sampler: Sampler
    logger: Logger
    agreement: Agreement
    replicas: Replicas
    compute: ComputeSettings
    checkpoints: RunCheckpoints | None
    log_interval_itrs: int

    @abstractmethod
    def train(self) -> None:
        """Train to the end."""

    @property
    @abstractmethod
    def steps_per_itr(self) -> int:
        """Environment steps of one iteration, all replicas counted."""

    def initialize_logging(self) -> None:
        """Start the clocks and the window of statistics; refuse trajectories that collide with metrics."""
        check_names(self.sampler.new_traj_info(), self.algo.opt_info_fields)
        self._metrics = MetricWindow()
        self._cum_completed_trajs = 0  # of this replica
        self._start_time = self._last_time = time.monotonic()
        self._last_steps = self._last_update_counter = self._last_rows = 0
        self._compilations_before = compilations()
        self.pbar = ProgBarCounter(self.log_interval_itrs)

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Keep what the next row of the log is made of.

        Args:
            itr: the iteration.
            traj_infos: trajectories completed in it.
            metrics: metrics of its updates, a dictionary or named tuple of tensors, numbers, or lists of them.
        """
        if traj_infos and not self._cum_completed_trajs:
            check_values(traj_infos[0])  # not only at the first row, which may be hours away
        self._cum_completed_trajs += len(traj_infos)
        self._metrics.add(as_metrics(metrics, f"{type(self.algo).__name__}.optimize_agent"))
        self.pbar.update(itr % self.log_interval_itrs + 1)
        self.logger.show_steps((itr + 1) * self.steps_per_itr)

    def check_finite(self, itr: int) -> None:
        """Raise `TrainingDiverged` if a metric stored last is not finite: one synchronisation an iteration."""
        if not all_finite(self._metrics.newest):
            bad = [name for name, values in self._metrics.newest.items() if not values.isfinite().all()]
            raise self._diverged(itr, ", ".join(bad))

    def check_weights(self, itr: int) -> None:
        """Raise `TrainingDiverged` if a weight is not finite, which the metrics of the last update do not show."""
        if not all(parameter.isfinite().all() for parameter in self.agent.parameters()):
            raise self._diverged(itr, "the agent's weights")

    def _diverged(self, itr: int, what: str) -> TrainingDiverged:
        step = (itr + 1) * self.steps_per_itr
        saved = self.checkpoints.newest_step if self.checkpoints else None
        newest = f" The newest checkpoint is of step {saved:,}." if saved is not None else ""
        hyper = vars(self.algo.hyper(itr * self.steps_per_itr))
        hints = divergence_hints(hyper_parameters(self.algo), hyper, self.compute.precision)
        return TrainingDiverged(
            f"Iteration {itr} (step {step:,}, update {self.algo.update_counter:,}) of {type(self.algo).__name__}: "
            f"{what} not finite; expected finite numbers. Worth changing: {'; '.join(hints)}. "
            f"The hyper-parameters were: {', '.join(f'{k} {v}' for k, v in hyper.items()) or 'no schedules'}. "
            f"Snapshots, if any, are from before.{newest}"
        )

    def log_diagnostics(self, itr: int) -> None:
        """Write one row of the log, and a snapshot."""
        self.pbar.stop()
        self.check_weights(itr)
        self.agreement.check_weights(self.agent, self.algo)
        self.save_itr_snapshot(itr)
        self.log_row(itr + 1)
        self.pbar = ProgBarCounter(self.log_interval_itrs)

    @abstractmethod
    def log_row(self, n_done: int) -> None:
        """Write one row of the log after `n_done` iterations."""

    def score(self, n_done: int) -> float | None:
        """Return how good the agent is after `n_done` iterations, higher is better; None where that is not known."""
        return None

    def log_counters(self, n_done: int, new_time: float) -> None:
        """Record the counters and speeds since the last row."""
        steps = n_done * self.steps_per_itr
        updates = self.algo.update_counter
        collected = self.steps_collected(n_done)
        new_steps, new_updates = collected - self._last_steps, updates - self._last_update_counter
        rows = rows_consumed(self.algo) * self.replicas.world_size
        nan = float("nan")
        trajs, diagnostics, warnings = zip(
            *self.agreement.gather(
                (self._cum_completed_trajs, self.sampler.diagnostics(), self.logger.take_warnings())
            ),
            strict=True,
        )
        for rank, text in ((rank, text) for rank, texts in enumerate(warnings) for text in texts):
            self.logger.warn(f"Replica {rank}: {text}")
        for key, value in {
            "Iteration": n_done,
            "CumTime (s)": time.monotonic() - self._start_time,
            "CumSteps": steps,
            "CumCompletedTrajs": sum(trajs),
            "CumUpdates": updates,
            "StepsPerSecond": new_steps / new_time if new_time > 0 else nan,
            "UpdatesPerSecond": new_updates / new_time if new_time > 0 else nan,
            "ReplayRatio": (rows - self._last_rows) / new_steps if new_steps else nan,
            "CumReplayRatio": rows / collected if collected else nan,
            **self.algo.row_numbers(n_done),
            **({"Compilations": compilations() - self._compilations_before} if self.compute.compile else {}),
            **merged_numbers(diagnostics),
        }.items():
            self.logger.record_tabular(key, value)
        self._last_steps, self._last_update_counter, self._last_rows = collected, updates, rows

    def steps_collected(self, n_done: int) -> int:
        """Return the environment steps collected after `n_done` iterations, by which speed and ratio are counted."""
        return n_done * self.steps_per_itr

    def _log_infos(self, traj_infos: Sequence[TrajInfo]) -> None:
        """Record statistics of trajectories and of the metrics since the last row."""
        self._log_trajs(traj_infos)
        metrics = self._take_metrics()
        for name in dict.fromkeys([*self.algo.opt_info_fields, *metrics]):
            self.logger.record_tabular_misc_stat(name, metrics.get(name, []))

    def _log_trajs(self, traj_infos: Sequence[TrajInfo]) -> None:
        """Record statistics of trajectories."""
        statistics = [info.statistics() for info in traj_infos]
        # The same columns in the same order, whatever single trajectories have, or before there are any.
        for name in dict.fromkeys(name for s in (self.sampler.new_traj_info().statistics(), *statistics) for name in s):
            self.logger.record_tabular_misc_stat(name, [s[name] for s in statistics if name in s])

    def _take_metrics(self) -> dict[str, torch.Tensor]:
        """Return the metrics of all replicas since the last row."""
        own = self._metrics.take()
        if self.replicas.world_size == 1:
            return own
        on_cpu = {name: values.cpu() for name, values in own.items()}
        return merged_metrics(*zip(*self.agreement.gather((on_cpu, self._metrics.of_rows)), strict=True))

    def plot(self, y: str = "ReturnAverage", x: str = "Diagnostics/CumSteps", file: str = "learning_curve.png") -> Path:
        """Draw a column of the run's log over another, and return the picture; see `rlpyt.logging.plot_progress`."""
        return plot_progress(self.logger.directory, x, y, file)

    # ---- snapshots ----

    def get_itr_snapshot(self, itr: int) -> StateDict:
        """Return what a snapshot holds."""
        return {
            "itr": itr,
            "cum_steps": (itr + 1) * self.steps_per_itr,
            "agent_state_dict": self.agent.state_dict(),
            "optimizer_state_dict": self.algo.optim_state_dict(),
        }

    def save_itr_snapshot(self, itr: int) -> None:
        """Save a snapshot as the logger's mode says; before the first update that of the first row alone."""
        if not self.algo.min_itr_learn >= itr + 1 > self.log_interval_itrs:
            self.logger.save_itr_params(itr, self.get_itr_snapshot(itr))

    # ---- state ----

    def progress_state(self) -> StateDict:
        """Return where the log stands between two rows."""
        now = time.monotonic()
        return {
            "metrics": self._metrics.state_dict(),
            "cum_completed_trajs": self._cum_completed_trajs,
            "seconds": now - self._start_time,
            "seconds_since_row": now - self._last_time,
            "last_steps": self._last_steps,
            "last_update_counter": self._last_update_counter,
            "last_rows": self._last_rows,
        }

    def load_progress_state(self, state: StateDict) -> None:
        """Take over what `progress_state` returned."""
        now = time.monotonic()
        self._metrics.load_state_dict(state["metrics"])
        self._cum_completed_trajs = state["cum_completed_trajs"]
        self._start_time, self._last_time = now - state["seconds"], now - state["seconds_since_row"]
        self._last_steps, self._last_update_counter = state["last_steps"], state["last_update_counter"]
        rows = self._last_update_counter * rows_per_update(self.algo) * self.replicas.world_size
        self._last_rows = state.get("last_rows", rows)  # not in a checkpoint of an earlier version
