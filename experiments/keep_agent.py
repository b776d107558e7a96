"""A trained agent, kept in few small files: from the directory of a run to a folder of the repository.

    python -m experiments.train classic_control cartpole_ppo --seed 0 --log_dir data/ppo
    python -m experiments.keep_agent data/ppo/run_0 experiments/trained/cartpole_ppo
    python examples/render.py experiments/trained/cartpole_ppo

The settings of the run, its rows and the weights of the agent stay. The optimiser's state, the text of the log, and all
that names the machine go.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch

from rlpyt.logging import load_snapshot

KEPT = ("versions", "runner", "spaces")
"""Entries of params.json that `load_agent` and examples/render.py read."""
LARGEST = 200_000
"""Bytes of a file."""


def keep(run: Path, folder: Path) -> None:
    """Write what an agent needs to act.

    Raises:
        ValueError: if the weights are too large for the repository.
    """
    params = json.loads((run / "params.json").read_text())
    snapshot = load_snapshot(run / "params.pkl")
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / "params.pkl"
    torch.save({name: snapshot[name] for name in ("itr", "cum_steps", "agent_state_dict")}, weights)
    if weights.stat().st_size > LARGEST:
        raise ValueError(
            f"{weights} has {weights.stat().st_size} bytes; expected {LARGEST} at most. Make the networks smaller."
        )
    (folder / "params.json").write_text(json.dumps({name: params[name] for name in KEPT}, indent=1) + "\n")
    shutil.copy(run / "progress.csv", folder)


def main() -> None:
    """Read the options and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="directory of the run")
    parser.add_argument("folder", type=Path, help="where the agent is kept")
    options = parser.parse_args()
    keep(options.run, options.folder)


if __name__ == "__main__":
    main()
