"""Functions of the logger of the current run, as the module `logger` of rlpyt 0.1 had them.

    from rlpyt.logging import logger

    logger.log("text")
    logger.record_tabular_misc_stat("Force", forces)

Each is the method of that name of `current_logger()`: of the enclosing `logger_context`, or of a logger of the console
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Literal, NoReturn

from rlpyt.logging.context import current_logger
from rlpyt.logging.snapshots import SnapshotMode, check_snapshot_settings

__all__ = [
    "log",
    "prefix",
    "push_prefix",
    "pop_prefix",
    "tabular_prefix",
    "push_tabular_prefix",
    "pop_tabular_prefix",
    "record_tabular",
    "record_tabular_misc_stat",
    "dump_tabular",
    "set_iteration",
    "save_itr_params",
    "get_snapshot_dir",
    "get_snapshot_mode",
    "set_snapshot_mode",
    "get_snapshot_gap",
    "set_snapshot_gap",
]


def log(s: str, with_prefix: bool = True, with_timestamp: bool = True, color: str | None = None) -> None:
    """Print text, and append it to `debug.log`.

    Args:
        s: the text.
        with_prefix: whether the prefixes come before every line.
        with_timestamp: no effect; accepted for scripts of rlpyt 0.1. `debug.log` has the time, the console does not.
        color: no effect; accepted for scripts of rlpyt 0.1.
    """
    current_logger().log(s, with_prefix)


def prefix(key: str) -> AbstractContextManager[None]:
    """Put `key` before every line of text while the block runs; blocks nest."""
    return current_logger().prefix(key)


def push_prefix(prefix: str) -> None:
    """Put a prefix before every line of text until `pop_prefix`."""
    current_logger().prefixes.append(prefix)


def pop_prefix() -> None:
    """Undo the last `push_prefix`."""
    current_logger().prefixes.pop()


def tabular_prefix(key: str) -> AbstractContextManager[None]:
    """Put `key` before every column name recorded while the block runs; blocks nest."""
    return current_logger().tabular_prefix(key)


def push_tabular_prefix(key: str) -> None:
    """Put a prefix before every column name recorded until `pop_tabular_prefix`."""
    current_logger().tabular_prefixes.append(key)


def pop_tabular_prefix() -> None:
    """Undo the last `push_tabular_prefix`."""
    current_logger().tabular_prefixes.pop()


def record_tabular(key: str, val: object) -> None:
    """Put a value into the next row; see `Logger.record_tabular`."""
    current_logger().record_tabular(key, val)


def record_tabular_misc_stat(key: str, values: object, placement: Literal["front", "back"] = "back") -> None:
    """Put Average, Std, Median, Min and Max of some values into the next row."""
    current_logger().record_tabular_misc_stat(key, values, placement)


def dump_tabular(with_prefix: bool = True) -> None:
    """Write the values recorded since the last call as one row, at the step of `set_iteration`.

    Args:
        with_prefix: no effect; accepted for scripts of rlpyt 0.1. Only `log` has prefixes.
    """
    current_logger().dump_tabular()


def set_iteration(iteration: int) -> None:
    """Set the step of the rows that `dump_tabular` writes."""
    current_logger().set_iteration(iteration)


def save_itr_params(itr: int, params: Mapping[str, object]) -> None:
    """Save the snapshot of an iteration, by the snapshot mode."""
    current_logger().save_itr_params(itr, params)


def get_snapshot_dir() -> str | None:
    """Return the directory of the run; None if it has none."""
    directory = current_logger().directory
    return None if directory is None else str(directory)


def get_snapshot_mode() -> SnapshotMode:
    """Return the snapshot mode."""
    return current_logger().snapshot_mode


def set_snapshot_mode(mode: SnapshotMode) -> None:
    """Set the snapshot mode: none, last, all, gap or last+gap."""
    check_snapshot_settings(mode, get_snapshot_gap())
    current_logger().snapshot_mode = mode


def get_snapshot_gap() -> int:
    """Return the iterations between snapshots of the modes with gap."""
    return current_logger().snapshot_gap


def set_snapshot_gap(gap: int) -> None:
    """Set the iterations between snapshots of the modes with gap."""
    check_snapshot_settings(get_snapshot_mode(), gap)
    current_logger().snapshot_gap = gap


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"rlpyt.logging.logger has no {name!r}; it has {', '.join(__all__)}. Other functions of rlpyt 0.1 are now an "
        "argument of logger_context (sinks, snapshot_mode, use_summary_writer), or a method of current_logger()."
    )
