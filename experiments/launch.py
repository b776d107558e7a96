"""Runs of several configurations and environments of a study, in slots of this machine.

    python -m experiments.launch atari_dqn double dueling --games pong breakout --runs_per_setting 2 --affinity auto
    python -m experiments.launch mujoco_sac sac_1M_serial --games Hopper-v5 --affinity 4cpu_2cpr

The runs are data/STUDY/CONFIG/GAME/run_0 and on; the number is the seed. The same command goes on with a grid that was
stopped. The exit code is 0 if all runs have finished.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from experiments.studies import STUDIES, make
from rlpyt.launching import quick_affinity_code, run_experiments

SCRIPT = Path(__file__).with_name("train.py")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options and run the grid; return the exit code."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("study", choices=list(STUDIES))
    p.add_argument("configs", nargs="+", help="configurations of the study")
    p.add_argument("--games", nargs="+", required=True, help="games of Atari, or ids of gymnasium")
    p.add_argument("--runs_per_setting", type=int, default=1)
    p.add_argument("--affinity", default="auto", help="affinity code of the machine; auto reads what may be used")
    p.add_argument("--data_dir", default="data")
    p.add_argument("--n_steps", type=float)
    p.add_argument("--smoke", action="store_true", help="a few seconds each")
    options = p.parse_args(arguments)
    settings = list(product(options.configs, options.games))
    common = ["--smoke"] if options.smoke else []
    common += [] if options.n_steps is None else ["--n_steps", str(options.n_steps)]
    try:
        for config in options.configs:
            make(options.study, config)
        return run_experiments(
            SCRIPT,
            quick_affinity_code() if options.affinity == "auto" else options.affinity,
            experiment_title=options.study,
            runs_per_setting=options.runs_per_setting,
            variants=[{}] * len(settings),
            log_dirs=[f"{config}/{game}".replace("ALE/", "") for config, game in settings],
            common_args=common,
            runs_args=[(options.study, config, "--env", game) for config, game in settings],
            data_dir=options.data_dir,
        )
    except ValueError as error:
        p.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
