"""Arguments of a script that `run_experiments` starts."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rlpyt.launching.affinity import AnyAffinity, affinity_from_code
from rlpyt.launching.variants import Variant, load_variant

_SLOT = re.compile(r"\d+slt_.*")


@dataclass(frozen=True)
class LaunchedRun:
    """Run that `run_experiments` has started this script for."""

    affinity: AnyAffinity
    """Cores and devices, for the runner."""
    log_dir: str
    """Folder of the variant, for `logger_context`."""
    run_ID: int
    """Number of the run among those of its variant: a seed, if nothing else is one."""
    variant: Variant
    """Changes of the configuration, for `update_config`."""
    args: tuple[str, ...] = ()
    """Further arguments."""


def launched_run(argv: Sequence[str] | None = None) -> LaunchedRun | None:
    """Return the run that this process was started for; None if a user has started the script.

    Args:
        argv: arguments of the script; None are those of this process.

    Raises:
        ValueError: if the arguments begin as those of a launched run, and go on otherwise.
        FileNotFoundError: if the folder of the variant has none.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    if not given or not _SLOT.fullmatch(given[0]):
        return None
    if len(given) < 3 or not given[2].isdigit():
        raise ValueError(
            f"launched_run: got the arguments {given}; expected an affinity code, a folder and a run_ID, as "
            "run_experiments gives them."
        )
    code, log_dir, run_ID, *args = given
    return LaunchedRun(affinity_from_code(code), log_dir, int(run_ID), load_variant(log_dir), tuple(args))
