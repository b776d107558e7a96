"""Command `rlpyt algos`."""

from __future__ import annotations

from rlpyt.cli.algorithms import ALGORITHMS, ANY
from rlpyt.cli.text import columns


def algos() -> int:
    """List the algorithms, and the actions that they take."""
    rows = [
        (name, "any" if entry.actions == ANY else ", ".join(entry.actions), entry.about)
        for name, entry in ALGORITHMS.items()
    ]
    print(columns([("algorithm", "actions", ""), *rows]))
    print("\nThe settings of one: rlpyt train ALGO ENV --help")
    return 0
