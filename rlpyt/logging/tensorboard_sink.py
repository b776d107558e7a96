"""Sink of TensorBoard, and the rule from columns to its tags."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rlpyt.logging.sinks import STATISTICS, Row, RunSink
from rlpyt.logging.tracker_sink import NamesApart
from rlpyt.utils.packages import optional_package

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_OF_TIME = ("Time", "PerSecond")


def tag_of(column: str) -> str:
    """Return the tag of a column: its group, as TensorBoard shows it, then its name.

    `ReturnAverage` is Return/Average, `valueLossAverage` Loss/valueLoss/Average, `gradNormMax` Gradient/gradNorm/Max.
    `Diagnostics/CumTime (s)` and all speeds are in Time. Other columns keep their names.
    """
    group, _, name = column.rpartition("/")
    if group == "Diagnostics" and any(word in name for word in _OF_TIME):
        return f"Time/{name}"
    statistic = next((x for x in STATISTICS if name.endswith(x) and name != x), None)
    if statistic is None or group == "Diagnostics":
        return column
    name = name.removesuffix(statistic)
    found = [word for word, part in (("Loss", "loss"), ("Gradient", "gradnorm")) if part in name.lower()]
    return "/".join([*([group] if group else []), *found, name, statistic])


class TensorBoardSink(RunSink):
    """Sink that writes each number of a row as a TensorBoard scalar, in the groups of `tag_of`.

    After a resume, the events behind the checkpoint are purged: TensorBoard shows each row once. Where two columns
    would have one tag, the later one gets a number.

    Args:
        directory: for the event file; the run directory, for `tensorboard --logdir`.

    Raises:
        ImportError: if tensorboard is not installed.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._package = optional_package("torch.utils.tensorboard", "TensorBoardSink", "tensorboard")
        self._directory = str(directory)
        self._purge_step: int | None = None
        self._writer: SummaryWriter | None = None
        self._tags = NamesApart(tag_of, longest=1000)

    def rewind(self, step: int) -> None:
        """Purge what was written of later steps."""
        self._purge_step = step + 1

    def write(self, row: Row, step: int) -> None:
        """Add the row at `step`; text values become text summaries."""
        if self._writer is None:
            self._writer = self._package.SummaryWriter(self._directory, purge_step=self._purge_step)
        tags = self._tags.of(row)
        for column, value in row.items():
            if isinstance(value, str):
                self._writer.add_text(tags[column], value, step)
            else:
                self._writer.add_scalar(tags[column], value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
