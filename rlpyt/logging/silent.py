"""Logger of a replica that is not the first: replica 0 writes for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Literal

from rlpyt.logging.run_logger import Logger


class SilentLogger(Logger):
    """Logger that writes nothing; it keeps warnings, which replica 0 writes with its next row."""

    is_silent: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._warnings: list[str] = []

    def log(self, text: str, with_prefix: bool = True) -> None:
        """Do nothing."""

    def notice(self, text: str) -> None:
        """Do nothing."""

    def log_drawn(self, text: str, draw: Callable[[], object]) -> None:
        """Do nothing."""

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self._warnings.append(text)

    def warn_once(self, key: str, text: str) -> None:
        """Do nothing: what is said once is found by all replicas."""

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def record_tabular(self, key: str, value: object) -> None:
        """Do nothing."""

    def record_tabular_misc_stat(self, key: str, values: object, placement: Literal["front", "back"] = "back") -> None:
        """Do nothing."""

    def save_itr_params(self, itr: int, params: Mapping[str, object]) -> list[Path]:
        """Do nothing."""
        return []
