"""Command line `rlpyt`: train, go on, launch grids, and see what was trained."""

from rlpyt.cli.main import main

__all__ = ["main"]
