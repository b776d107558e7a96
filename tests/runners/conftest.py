"""Fixtures that check what a test leaves behind."""

from tests.runners.runner_kit import _forkserver, no_memory_is_left, nothing_is_left, workers_end_soon

__all__ = ["_forkserver", "no_memory_is_left", "nothing_is_left", "workers_end_soon"]
