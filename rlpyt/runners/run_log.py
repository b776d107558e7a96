"""Contents of a row of the log: counters, speeds, metrics and trajectories, with their checks and their merging."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from numbers import Real

import numpy as np
import torch

from rlpyt.core import Metrics, hyper_parameters, rows_consumed, rows_per_update
from rlpyt.functional import TARGETS_OUTSIDE
from rlpyt.logging import ProgBarCounter, to_numbers
from rlpyt.runners.agreement import TrainingDiverged
from rlpyt.runners.training import Training
from rlpyt.types import StateDict, TrajInfo
from rlpyt.utils.compute import compilations

_ITRS = 1000  # then tensors are joined: one takes 500 bytes beside its numbers, 200 MB at 1e5 iterations of a row
_MOST_OUTSIDE = 0.05  # of the targets of values that a head's range may leave out: unlearned atoms at its ends move out
_UNBOUNDED = {
    "clip_grad_norm": "which clips no gradient: try 1",
    "q_target_clip": "which bounds no target: try the largest return that is possible",
}
"""Settings that bound something, and what infinity means there."""


class RunLog:
    """Counters, clocks and metrics of one replica, from which a row of the log is recorded; and the progress bar."""

    def __init__(self, training: Training) -> None:
        check_names(training.sampler.new_traj_info(), training.algo.opt_info_fields)
        self._training = training
        self._metrics = MetricWindow()
        self._cum_completed_trajs = 0  # of this replica
        self._start_time = self._last_time = time.monotonic()
        self._last_steps = self._last_update_counter = self._last_rows = 0
        self._compilations_before = compilations()
        self.show_bar()

    # ---- clocks, and the bar between two rows ----

    @property
    def seconds(self) -> float:
        """Time since the start of the run."""
        return time.monotonic() - self._start_time

    @property
    def seconds_since_row(self) -> float:
        """Time since the last row was written."""
        return time.monotonic() - self._last_time

    def show_bar(self) -> None:
        """Begin a progress bar of the iterations up to the next row."""
        self._bar = ProgBarCounter(self._training.log_interval_itrs)

    def end_bar(self) -> None:
        """End the progress bar, as something else is printed."""
        self._bar.stop()

    # ---- iterations ----

    def add(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Keep what the next row is made of; see `MinibatchRlBase.store_diagnostics`."""
        training = self._training
        if traj_infos and not self._cum_completed_trajs:
            check_values(traj_infos[0])  # not only at the first row, which may be hours away
        self._cum_completed_trajs += len(traj_infos)
        self._metrics.add(as_metrics(metrics, f"{type(training.algo).__name__}.optimize_agent"))
        self._bar.update(itr % training.log_interval_itrs + 1)
        training.logger.live.show_steps((itr + 1) * training.steps_per_itr)

    def check_finite(self, itr: int) -> None:
        """Raise `TrainingDiverged` if a metric added last is not finite: one synchronisation an iteration."""
        if bad := not_finite(self._metrics.newest):
            raise self._diverged(itr, ", ".join(bad))

    def check_weights(self, itr: int) -> None:
        """Raise `TrainingDiverged` if a weight is not finite, which the metrics of the last update do not show."""
        if not all(parameter.isfinite().all() for parameter in self._training.agent.parameters()):
            raise self._diverged(itr, "the agent's weights")

    def _diverged(self, itr: int, what: str) -> TrainingDiverged:
        training = self._training
        algo, step = training.algo, (itr + 1) * training.steps_per_itr
        saved = training.saved_step
        newest = f" The newest checkpoint is of step {saved:,}." if saved is not None else ""
        hyper = vars(algo.hyper(itr * training.steps_per_itr))
        hints = divergence_hints(hyper_parameters(algo), hyper, training.compute.precision)
        return TrainingDiverged(
            f"Iteration {itr} (step {step:,}, update {algo.update_counter:,}) of {type(algo).__name__}: "
            f"{what} not finite; expected finite numbers. Worth changing: {'; '.join(hints)}. "
            f"The hyper-parameters were: {', '.join(f'{k} {v}' for k, v in hyper.items()) or 'no schedules'}. "
            f"Snapshots, if any, are from before.{newest}"
        )

    # ---- a row ----

    def record_counters(self, n_done: int, new_time: float) -> None:
        """Record the counters after `n_done` iterations, and the speeds over `new_time` seconds since the last row."""
        training = self._training
        algo, logger = training.algo, training.logger
        updates, rows = algo.update_counter, rows_consumed(algo) * training.agreement.replicas.world_size
        collected = training.collecting.steps_collected(n_done, training.steps_per_itr)
        new_steps, new_updates = collected - self._last_steps, updates - self._last_update_counter
        nan = float("nan")
        trajs, diagnostics, warnings = zip(
            *training.agreement.gather(
                (self._cum_completed_trajs, training.sampler.diagnostics(), logger.take_warnings())
            ),
            strict=True,
        )
        for rank, text in ((rank, text) for rank, texts in enumerate(warnings) for text in texts):
            logger.warn(f"Replica {rank}: {text}")
        for key, value in {
            "Iteration": n_done,
            "CumTime (s)": self.seconds,
            "CumSteps": n_done * training.steps_per_itr,
            "CumCompletedTrajs": sum(trajs),
            "CumUpdates": updates,
            "StepsPerSecond": new_steps / new_time if new_time > 0 else nan,
            "UpdatesPerSecond": new_updates / new_time if new_time > 0 else nan,
            "ReplayRatio": (rows - self._last_rows) / new_steps if new_steps else nan,
            "CumReplayRatio": rows / collected if collected else nan,
            **algo.row_numbers(n_done),
            **({"Compilations": compilations() - self._compilations_before} if training.compute.compile else {}),
            **merged_numbers(diagnostics),
        }.items():
            logger.record_tabular(key, value)
        self._last_steps, self._last_update_counter, self._last_rows = collected, updates, rows

    def record_infos(self, traj_infos: Sequence[TrajInfo], metrics: Mapping[str, torch.Tensor]) -> None:
        """Record statistics of trajectories and metrics."""
        training, record = self._training, self._training.logger.record_tabular_misc_stat
        statistics = [info.statistics() for info in traj_infos]
        every = (training.sampler.new_traj_info().statistics(), *statistics)
        # The same columns in the same order, whatever single trajectories have, or before there are any.
        for name in dict.fromkeys(name for s in every for name in s):
            record(name, [s[name] for s in statistics if name in s])
        for name in dict.fromkeys([*training.algo.opt_info_fields, *metrics]):
            record(name, metrics.get(name, []))
        self._warn_of_range(metrics.get(TARGETS_OUTSIDE))

    def _warn_of_range(self, outside: torch.Tensor | None) -> None:
        """Warn once of a value head whose range many targets leave."""
        share = 0.0 if outside is None or not len(outside) else outside.mean().item()
        if share > _MOST_OUTSIDE:
            head = self._training.agent.values
            self._training.logger.warn_once(
                TARGETS_OUTSIDE,
                f"{share:.1%} of the targets of values are outside of the range of {head}, and are moved to its ends, "
                f"so larger returns look alike ({TARGETS_OUTSIDE}). Give value_head, or CategoricalDQN "
                "by V_min and V_max, a wider range, of all discounted returns that are possible; or make the rewards "
                "smaller.",
            )

    def take_metrics(self) -> dict[str, torch.Tensor]:
        """Return the metrics of all replicas since the last row, by name, [n]."""
        agreement, own = self._training.agreement, self._metrics.take()
        if agreement.replicas.world_size == 1:
            return own
        on_cpu = {name: values.cpu() for name, values in own.items()}
        return merged_metrics(*zip(*agreement.gather((on_cpu, self._metrics.of_rows)), strict=True))

    def end_row(self) -> None:
        """Note that a row was written, from which the next one counts its time."""
        self._last_time = time.monotonic()

    # ---- state ----

    def state_dict(self) -> StateDict:
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

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned."""
        training, now = self._training, time.monotonic()
        self._metrics.load_state_dict(state["metrics"])
        self._cum_completed_trajs = state["cum_completed_trajs"]
        self._start_time, self._last_time = now - state["seconds"], now - state["seconds_since_row"]
        self._last_steps, self._last_update_counter = state["last_steps"], state["last_update_counter"]
        rows = self._last_update_counter * rows_per_update(training.algo) * training.agreement.replicas.world_size
        self._last_rows = state.get("last_rows", rows)  # not in a checkpoint of an earlier version


# ---- metrics ----


def as_metrics(metrics: object, source: str) -> Metrics:
    """Return the metrics of an algorithm's `optimize_agent` as detached tensors by name; `source` is for messages."""
    if isinstance(metrics, tuple) and hasattr(metrics, "_fields"):
        metrics = dict(zip(metrics._fields, metrics, strict=True))
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"{source} returned {metrics!r:.100}; expected a dictionary, or a named tuple, of the metrics of its "
            "updates: tensors, numbers, or lists of them. Return {} where there is nothing to log."
        )
    return {name: _as_tensor(f"{source}: the metric {name}", value) for name, value in metrics.items()}


def _as_tensor(what: str, value: object) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, list | tuple) and not all(isinstance(x, Real) for x in value):
        return torch.cat([_as_tensor(what, x).flatten() for x in value])
    try:
        if value is None or isinstance(value, str):
            raise TypeError("it is no number")
        return torch.from_numpy(np.array(value, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{what} is {value!r:.100} of type {type(value).__name__} ({error}); expected a tensor, a number, or a "
            "list of them. Convert it, or leave it out."
        ) from error


class MetricWindow:
    """Window of the metrics of all updates since the last row of the log; each metric stays on its device."""

    def __init__(self) -> None:
        self.newest: Metrics = {}
        self.of_rows: set[str] = set()
        """Names of the metrics that have numbers of single rows, and not one number an update."""
        self._values: dict[str, list[torch.Tensor]] = defaultdict(list)

    def add(self, metrics: Metrics) -> None:
        """Take in the metrics of an iteration, which are then the `newest`."""
        self.newest = metrics
        for name, values in metrics.items():
            self._values[name].append(values.flatten())
            if values.dim() > 1:
                self.of_rows.add(name)
            if len(self._values[name]) > _ITRS:
                self._values[name] = [torch.cat(self._values[name])]

    def take(self) -> dict[str, torch.Tensor]:
        """Return all numbers by name, [n], and empty the window."""
        metrics = self._numbers()
        self._values.clear()
        return metrics

    def _numbers(self) -> dict[str, torch.Tensor]:
        return {name: torch.cat(values) for name, values in self._values.items()}

    def state_dict(self) -> StateDict:
        """Return what the next row of the log will be made of."""
        return {"metrics": self._numbers(), "of_rows": sorted(self.of_rows)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""
        self.of_rows = set(state_dict["of_rows"])
        self._values |= {name: [values] for name, values in state_dict["metrics"].items()}


def merged_metrics(
    windows: Sequence[Mapping[str, torch.Tensor]], of_rows: Sequence[Collection[str]]
) -> dict[str, torch.Tensor]:
    """Return the metrics of several replicas as those of one process with all their rows.

    Numbers of updates are averaged, update by update. Those of rows, which `of_rows` names for each replica, are
    joined, as are those of a metric that some replicas have more often than others.
    """
    merged: dict[str, torch.Tensor] = {}
    for name in dict.fromkeys(name for window in windows for name in window):
        values = [window[name] for window in windows if name in window]
        aligned = len({len(x) for x in values}) == 1 and not any(name in names for names in of_rows)
        merged[name] = torch.stack(values).double().mean(0) if aligned else torch.cat(values)
    return merged


def merged_numbers(numbers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return numbers of several replicas by column: sums of counts, which are integers, and means of all else.

    A replica that has NaN knows no number, as a simulator that logs at resets alone.
    """
    merged: dict[str, float] = {}
    for name in dict.fromkeys(name for own in numbers for name in own):
        values = [own[name] for own in numbers if name in own]
        are_counts = all(isinstance(x, int) for x in values)
        known = [x for x in values if not math.isnan(x)] or values
        merged[name] = sum(values) if are_counts else sum(known) / len(known)
    return merged


def not_finite(metrics: Metrics) -> list[str]:
    """Return the names of the metrics that are not finite: one synchronisation for each device where all are."""
    by_device: dict[torch.device, list[torch.Tensor]] = defaultdict(list)
    for values in metrics.values():
        by_device[values.device].append(values.flatten())
    # A sum is not finite if one of its terms is not. It may be infinite though all terms are finite, if they are large.
    if all(math.isfinite(torch.cat(values).sum()) for values in by_device.values()):
        return []
    return [name for name, values in metrics.items() if not values.isfinite().all()]


def divergence_hints(settings: Mapping[str, object], hyper: Mapping[str, object], precision: str) -> list[str]:
    """Return what to change first, where an algorithm has some settings, and its schedules stand at `hyper`."""
    unused = () if settings.get("fixed_alpha") is None else ("alpha_learning_rate",)
    hints = [
        f"{name} was {value:g}: try {value / 10:g}"
        for name, value in hyper.items()
        if name.endswith("learning_rate") and name not in unused and isinstance(value, float | int) and value
    ]
    hints += [f"{name} was inf, {why}" for name, why in _UNBOUNDED.items() if hyper.get(name) == math.inf]
    if isinstance(clip := hyper.get("clip_grad_norm"), float | int) and 1 < clip < math.inf:
        hints.append(f"clip_grad_norm was {clip:g}: try 1")
    if settings.get("normalize_reward") is False:
        hints.append("rewards were as they came: try normalize_reward=True, or rewards of about 1")
    if precision != "float32":
        hints.append(f"the networks computed in {precision}: try settings=ComputeSettings(precision='float32')")
    if "double_dqn" in settings:
        hints.append("a model that gives illegal actions -inf must leave one legal action where an episode goes on")
    return [*hints, "look at the largest observations and rewards, and normalise them"]


# ---- trajectories ----


def check_names(traj_info: TrajInfo, opt_info_fields: Sequence[str]) -> None:
    """Raise ValueError for a statistic of trajectories with the name of a metric: both would be one column."""
    for name in traj_info.statistics():
        if name in opt_info_fields:
            raise ValueError(
                f"{type(traj_info).__name__}: its attribute {name} has the name of a metric of the algorithm; expected "
                f"another, as both would be column {name}Average. Rename it, or begin it with _ to keep it out of the "
                "log."
            )


def check_values(traj_info: TrajInfo) -> None:
    """Raise TypeError for a finished trajectory whose statistics are no numbers."""
    for name, value in traj_info.statistics().items():
        try:
            to_numbers(name, [value])
        except TypeError as error:
            raise TypeError(
                f"{type(traj_info).__name__}: {error} An attribute that is not for the log begins with _."
            ) from error
