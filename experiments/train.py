"""Training script of all studies: one run of one configuration.

    python -m experiments.train atari_dqn double --env breakout --seed 0 --log_dir data/dqn
    python -m experiments.train atari_dqn --list

The run is data/dqn/run_0. With --run_ID the same command goes on with a run that was killed. `run_experiments` starts
it too, with an affinity code, a folder and a run_ID before the study; see experiments/launch.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__" and not __package__:  # started by its path, as a launcher does
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from experiments.configuration import replaced, with_environment, with_n_envs
from experiments.smoke import smoke
from experiments.studies import RENAMED, STUDIES, make
from rlpyt.launching import LaunchedRun, launched_run, update_config
from rlpyt.launching.affinity import AnyAffinity
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlBase, SyncRl


def runner_of(options: argparse.Namespace) -> MinibatchRlBase:
    """Return the runner that the options ask for."""
    runner = make(options.study, options.config)
    if options.env is not None:
        runner = with_environment(runner, options.env)
    runner = with_n_envs(runner, options.n_envs, options.eval_n_envs)
    given = {name: getattr(options, name) for name in ("seed", "n_steps", "affinity")}
    runner = replaced(runner, {name: value for name, value in given.items() if value is not None})
    return smoke(runner) if options.smoke else runner


def affinity_of(runner: MinibatchRlBase, launched: LaunchedRun) -> AnyAffinity:
    """Return the affinity of a launched run; replicas share the cores of one slot, to which the process is pinned."""
    given = launched.affinity
    if isinstance(runner, SyncRl) and isinstance(given, dict):
        return {name: given[name] for name in ("cuda_idx", "set_affinity")}
    return given


def listing(study: str) -> str:
    """Return the configurations of a study, a line each."""
    old = [f"{name}: now {entry.now}, because {entry.why}" for name, entry in RENAMED[study].items()]
    return "\n".join([*STUDIES[study], *old])


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("study", choices=list(STUDIES))
    p.add_argument("config", nargs="?", help="configuration of the study")
    p.add_argument("--list", action="store_true", help="print the configurations of the study and end")
    p.add_argument("--env", help="game of Atari, or id of gymnasium, for training and evaluation")
    p.add_argument("--n_envs", type=int, help="environments to train in")
    p.add_argument("--eval_n_envs", type=int, help="environments of an evaluation; its limits grow in proportion")
    p.add_argument("--seed", type=int)
    p.add_argument("--n_steps", type=float)
    p.add_argument("--affinity", type=json.loads, metavar="JSON", help="""cores and devices, as '{"cuda_idx": 0}'""")
    p.add_argument("--log_dir", help="default: data/STUDY/CONFIG")
    p.add_argument("--run_ID", help="name of the run, which goes on when it is started again")
    p.add_argument("--smoke", action="store_true", help="a few seconds only")
    return p


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options and train."""
    p, launched = parser(), launched_run(arguments)
    options = p.parse_args(arguments if launched is None else launched.args)
    if options.list or options.config is None:
        print(listing(options.study))
        return
    try:
        runner = runner_of(options)
        if launched is not None:
            options.log_dir, options.run_ID = launched.log_dir, str(launched.run_ID)
            seed = launched.run_ID if options.seed is None else options.seed
            runner = replaced(runner, {"affinity": affinity_of(runner, launched), "seed": seed})
            runner = update_config(runner, launched.variant)
    except ValueError as error:
        p.error(str(error))
    log_dir = options.log_dir or f"data/{options.study}/{options.config}"
    name = f"{options.study}_{options.config}"
    with logger_context(log_dir, options.run_ID, name, vars(options), resume="auto" if options.run_ID else False):
        runner.train()


if __name__ == "__main__":
    main()
