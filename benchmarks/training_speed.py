"""Speed of a whole training run, by the rows of its log: the same for all runners."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlBase


def training_speed(runner: MinibatchRlBase, warm_up: int, columns: Sequence[str] = ()) -> float:
    """Train, and return steps per second from the first row of the log at `warm_up` steps to the last.

    Args:
        runner: its `log_interval_steps` gives a row at `warm_up`.
        warm_up: steps that do not count.
        columns: of the log, whose means over these rows are printed; a column of seconds as a share of the time.
    """
    with tempfile.TemporaryDirectory() as directory:
        with logger_context(directory, run_ID=0, name="benchmark", snapshot_mode="none"):
            runner.train()
        with open(Path(directory) / "run_0" / "progress.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    first, *rest = [row for row in rows if float(row["Diagnostics/CumSteps"]) >= warm_up]
    steps, seconds = (
        float(rest[-1][f"Diagnostics/{name}"]) - float(first[f"Diagnostics/{name}"])
        for name in ("CumSteps", "CumTime (s)")
    )
    for column in columns:
        numbers = [float(row[f"Diagnostics/{column}"]) for row in rest if row.get(f"Diagnostics/{column}")]
        if not numbers:
            continue
        is_time = column.endswith("Time")
        value = f"{sum(numbers) / seconds:.1%}" if is_time else f"{sum(numbers) / len(numbers):.4g}"
        print(f"NOTE {column} {value}")
    return steps / seconds
