"""Script of the runs of `rlpyt launch ALGO ENV`: trains one of them, with the changes of its variant."""

from __future__ import annotations

import os
import sys

if (
    __name__ == "__main__"
    and not __package__
    and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__))
):
    del sys.path[0]  # Python has put the folder of this file there, whose modules have names such as "train"

from rlpyt.cli.train import start_of, updated
from rlpyt.launching import launched_run
from rlpyt.launching.smoke import smoke
from rlpyt.logging import logger_context


def main() -> int:
    """Train the run that `run_experiments` has started this script for."""
    run = launched_run()
    if run is None:
        raise SystemExit("rlpyt/cli/launched.py is started by rlpyt launch; expected its arguments.")
    start = start_of(run.args)
    # The seed first: a variant may be a seed, too.
    runner = updated(start.runner.replace(seed=run.run_ID), run.variant)
    # Cores and devices are those of the slot, unless a device was named.
    if start.choices.device is None:
        runner = runner.replace(affinity=run.affinity)
    if start.choices.smoke:
        runner = smoke(runner)
    with logger_context(run.log_dir, run.run_ID, start.name, resume="auto"):
        runner.train()
    return 0


if __name__ == "__main__":
    sys.exit(main())
