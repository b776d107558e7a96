"""Metrics and trajectories on their way to the columns of the log: their checks, and the window between two rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from numbers import Real

import numpy as np
import torch

from rlpyt.core import Metrics
from rlpyt.logging import to_numbers
from rlpyt.types import StateDict, TrajInfo

_ITRS = 1000  # a tensor takes 500 bytes beside its numbers: 200 MB at 1e5 iterations from one row to the next


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
    """Window of the metrics of all updates since the last row of the log; each metric stays on its device.

    After some iterations their tensors are joined into one, so that small tensors do not fill the memory.
    """

    def __init__(self) -> None:
        self.newest: Metrics = {}
        self.of_rows: set[str] = set()
        """Names of the metrics that have numbers of single rows, and not one number an update."""
        self._recent: dict[str, list[torch.Tensor]] = defaultdict(list)
        self._older: dict[str, list[torch.Tensor]] = defaultdict(list)

    def add(self, metrics: Metrics) -> None:
        """Take in the metrics of an iteration, which are then the `newest`."""
        self.newest = metrics
        for name, values in metrics.items():
            recent = self._recent[name]
            recent.append(values.flatten())
            if values.dim() > 1:
                self.of_rows.add(name)
            if len(recent) == _ITRS:
                self._older[name].append(torch.cat(recent))
                recent.clear()

    def take(self) -> dict[str, torch.Tensor]:
        """Return all numbers by name, [n], and empty the window."""
        metrics = self._numbers()
        self._recent.clear()
        self._older.clear()
        return metrics

    def _numbers(self) -> dict[str, torch.Tensor]:
        return {name: torch.cat([*self._older[name], *recent]) for name, recent in self._recent.items()}

    def state_dict(self) -> StateDict:
        """Return what the next row of the log will be made of."""
        return {"metrics": self._numbers(), "of_rows": sorted(self.of_rows)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""
        self.of_rows = set(state_dict["of_rows"])
        for name, values in state_dict["metrics"].items():
            self._older[name], self._recent[name] = [values], []


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
    """Return numbers of several replicas by column: sums of counts, which are integers, and means of all else."""
    merged: dict[str, float] = {}
    for name in dict.fromkeys(name for own in numbers for name in own):
        values = [own[name] for own in numbers if name in own]
        are_counts = all(isinstance(x, int) for x in values)
        merged[name] = sum(values) if are_counts else sum(values) / len(values)
    return merged


def all_finite(metrics: Metrics) -> bool:
    """Return whether all metrics are finite: one synchronisation for each device that they are on."""
    by_device: dict[torch.device, list[torch.Tensor]] = defaultdict(list)
    for values in metrics.values():
        by_device[values.device].append(values.flatten())
    # A sum is not finite if one of its terms is not. It may be infinite though all terms are finite, if they are large.
    if all(torch.cat(values).sum().isfinite() for values in by_device.values()):
        return True
    return all(bool(values.isfinite().all()) for values in metrics.values())


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
