"""Script of the runs of `rlpyt launch ALGO ENV`: trains one of them, with the changes of its variant."""

from __future__ import annotations

import sys
from dataclasses import replace

from rlpyt.settings import all_settings

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # Python has put the folder of this file there, whose modules have names such as "train"

from rlpyt.cli.named import with_hooks
from rlpyt.cli.train import Start, logging_of, start_of, updated
from rlpyt.cli.values import Values
from rlpyt.launching import launched_run
from rlpyt.launching.affinity import AnyAffinity
from rlpyt.launching.smoke import smoke
from rlpyt.runners import AsyncRl, AsyncRlEval, MinibatchRlBase, SyncRl, SyncRlEval
from rlpyt.utils import ComputeSettings
from rlpyt.utils.affinity import Affinity, optimizer_parts


def main() -> int:
    """Train the run that `run_experiments` has started this script for."""
    run = launched_run()
    if run is None:
        raise SystemExit("rlpyt/cli/launched.py is started by rlpyt launch; expected its arguments.")
    start = start_of(run.args)
    runner = runner_of(start, run.run_ID, run.variant)
    # Cores and devices are those of the slot, unless a device was named.
    if start.choices.device is None:
        runner = on_slot(runner, run.affinity)
    runner = with_hooks(runner, start.choices.hooks)  # again, in the environment of the variant
    with logging_of(start, run.log_dir, run.run_ID, "auto"):
        runner.train()
    return 0


def runner_of(start: Start, run_ID: int, variant: Values) -> MinibatchRlBase:
    """Return the runner of a run of a grid, before it has a slot."""
    # The seed first: a variant may be a seed, too.
    runner = updated(start.runner.replace(seed=run_ID), variant)
    return smoke(runner) if start.choices.smoke else runner


def on_slot(runner: MinibatchRlBase, affinity: AnyAffinity) -> MinibatchRlBase:
    """Return the runner with the cores and devices of its slot, which several replicas deal to each other."""
    n_replicas = all_settings(runner).get("n_replicas", 1)
    is_sync = isinstance(runner, SyncRl | SyncRlEval)
    several = is_sync or (n_replicas and isinstance(runner, AsyncRl | AsyncRlEval))
    n_learners = n_replicas or (None if is_sync else 1)  # SyncRl without a number takes one for each dictionary
    if isinstance(affinity, list) and n_learners not in (None, len(affinity)):
        raise ValueError(
            f"rlpyt launch: this run has {len(affinity)} GPUs and {n_learners} replicas; expected a GPU for each. Give "
            f"--replicas {len(affinity)}, or ask for as many GPUs as replicas, such as gpus_per_node=1."
        )
    if several and n_replicas != 1 and isinstance(affinity, dict) and "sampler" not in affinity:
        # All would be pinned to the cores that are named. The process has those of the slot, whose share each takes.
        affinity = {name: affinity[name] for name in ("cuda_idx", "set_affinity")}
    runner, settings = runner.replace(affinity=affinity), all_settings(runner)["settings"]
    if isinstance(settings, ComputeSettings) and isinstance(affinity, dict):
        # Given settings count more than an affinity, and theirs is the device of a run that is alone.
        device = Affinity.from_mapping(optimizer_parts(affinity)[0]).device
        runner = runner.replace(settings=replace(settings, device=device))
    return runner


if __name__ == "__main__":
    sys.exit(main())
