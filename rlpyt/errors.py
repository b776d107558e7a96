"""Errors that explain themselves. This module imports nothing, so that the command line can know them at no cost."""

from __future__ import annotations


class ToldError(RuntimeError):
    """Error whose message says all that its reader needs: the command line prints it without a traceback."""

    is_told = True
    """False for one that needs its traceback after all."""
