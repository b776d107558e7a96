"""Figures of learning, as papers show them: studies over seeds, run over as many sittings as it takes.

    make figures                                              (all of them, in many sittings)
    make figures ARGS="cartpole pendulum --hours 2"           (these, or what two hours are enough for)
    python -m experiments.figures --list
    python -m experiments.figures --report                    (the page and pictures of what there is)

Each line of a figure is a grid of `rlpyt launch`, whose runs have a core each. The same command goes on with runs that
were stopped or killed, from their newest checkpoints, and leaves out those that have finished. At the end, and with
`--report`, docs/notes/figures.md is written: of each line the mean over seeds with its interval, the command, and what
another source reports at these steps; and a picture of the curves of each figure, which docs/start/gallery.md has too.

The evaluations of finished runs are kept in docs/notes/figures, a file for each figure, so that later sittings and
other machines add to them. A line that has all its seeds there is not run again; delete its rows to have it run.
"""

from __future__ import annotations

import argparse
import csv
import math
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np

from experiments import gallery
from rlpyt.results import RunGroup, RunResult, Study, find_runs, mean_interval, plot_curves
from rlpyt.results.study import RETURN
from rlpyt.run_records import STEPS

ROOT = Path(__file__).resolve().parent.parent
DATA, NOTES = ROOT / "data/figures", ROOT / "docs/notes"
PAGE, PICTURES = NOTES / "figures.md", NOTES / "figures"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


TWO_CORES = "--runs-at-once 1 "  # of two, for runs of two processes
SPARSE = "--log-interval-steps 5000"  # an evaluation takes as long as a thousand steps
TWO_FRAMES = f"--env-kwargs action_repeat=2 --compile {SPARSE}"
HIDDEN = "--env-kwargs hidden=true"
BIT_FLIP = (
    "--algo.n-step-return 1 --algo.no-prioritized-replay --algo.batch-size 128 --algo.replay-ratio 16 "
    "--algo.target-update-interval 1 --algo.target-update-tau 0.02 --algo.double-dqn --algo.discount 0.98 "
    "--algo.learning-rate 1e-3 --agent.eps-final 0.05 --agent.model-kwargs hidden_sizes=256"
)
MUNCHAUSEN = "--algo.munchausen 0.9"
REPLAY_OF_BTR = "--algo.n-step-return 3 --algo.prioritized-replay --algo.pri-alpha 0.2 --algo.pri-beta-steps 3e5"
MINATAR = "experiments.tasks:minatar_breakout"
LARGE_BATCHES = (  # eight times as large and as rare as by default, which a GPU computes in the time of the small ones
    "--sampler-type gpu --sampler.batch-B 32 --algo.batch-size 256 --algo.learning-rate 4e-4 "
    "--algo.target-update-interval 125 --algo.eps-steps 1e5 --algo.replay-size 500000 --log-interval-steps 125000 "
    "--sampler.eval-n-envs 10"
)

Curves: TypeAlias = dict[str, dict[int, list[tuple[float, float]]]]
"""Method -> seed -> steps and returns of its evaluations."""


@dataclass(frozen=True)
class Line:
    """A method on a task: an algorithm of `rlpyt launch`, and what others report of it."""

    algo: str
    options: str = ""
    """Further options of the command."""
    reference: str = ""
    """Return that another source reports after these steps, and which; empty where none is known."""
    label: str = ""
    """Name in the table and of the folder; empty is that of the algorithm."""
    is_peer: bool = False
    """Whether it is another library's of `experiments.peers`, which is run by hand, in an environment of its own."""

    @property
    def name(self) -> str:
        """Name in the table and of the folder."""
        return self.label or (f"sb3_{self.algo}" if self.is_peer else self.algo)


@dataclass(frozen=True)
class Figure:
    """Methods on one task, with so many steps and seeds."""

    env: str
    n_steps: float
    lines: tuple[Line, ...]
    seeds: int = 3
    options: str = ""
    """Further options of all commands."""
    about: str = ""
    """A sentence of the page, such as which package the task needs."""

    def command(self, key: str, line: Line, runs_at_once: int | None = None) -> list[str]:
        """Return the arguments of `rlpyt`, or of `python`, for a line of the figure of a key."""
        if line.is_peer:
            steps = f"{self.n_steps:.0f}"
            return ["-m", "experiments.peers", line.algo, self.env, "--n-steps", steps, "--figure", key, "--seed", "0"]
        at_once = [] if runs_at_once is None or TWO_CORES in line.options else ["--runs-at-once", str(runs_at_once)]
        return [
            *("launch", line.algo, self.env, "--n-steps", f"{self.n_steps:.0f}", "--seeds", str(self.seeds)),
            *("--evaluate", "--checkpoint-interval-minutes", "5", "--title", line.name),
            *("--data-dir", str((DATA / key).relative_to(ROOT))),
            *shlex.split(f"{self.options} {line.options}"),
            *at_once,
        ]


def of_mujoco(task: str, seeds: int = 3) -> dict[str, Figure]:
    """Return the figures of a task of MuJoCo: the Q family for 200,000 steps, PPO for a million."""
    key = task.lower()
    q_family = tuple(map(Line, ("ddpg", "td3", "sac")))
    return {
        f"{key}_q": Figure(f"{task}-v5", 200_000, q_family, seeds),
        f"{key}_ppo": Figure(f"{task}-v5", 1_000_000, (Line("ppo"),), seeds),
    }


def of_atari(game: str) -> dict[str, Figure]:
    """Return the figures of a game of Atari: policy gradients, and the family of DQN."""
    actors = (
        Line("a2c"),
        Line("a2c_lstm"),
        Line("a2c", TWO_CORES + "--replicas 2", label="a2c_two_replicas"),
        Line("ppo"),
    )
    learners = tuple(Line(algo, LARGE_BATCHES) for algo in ("dqn", "double_dqn", "c51", "qrdqn", "iqn", "rainbow"))
    about = "Four frames to a step. On a GPU add `--device cuda:0 --algo.replay-on-device`."
    key = game.lower()
    return {
        f"{key}_pg": Figure(f"ALE/{game}-v5", 10_000_000, actors, seeds=2),
        f"{key}_dqn": Figure(f"ALE/{game}-v5", 2_000_000, (*learners, Line("r2d1")), seeds=2, about=about),
    }


FIGURES: dict[str, Figure] = {
    "cartpole": Figure(
        "CartPole-v1", 100_000, (Line("ppo"), Line("a2c"), Line("dqn"), Line("discrete_sac"), Line("cmaes"))
    ),
    "cartpole_pqn": Figure("CartPole-v1", 500_000, (Line("pqn", reference="495, its authors"),)),
    "pendulum": Figure("Pendulum-v1", 20_000, (Line("sac"), Line("td3"), Line("ddpg"), Line("crossq"))),
    "halfcheetah_100k": Figure(
        "HalfCheetah-v5",
        100_000,
        (
            Line("sac"),
            Line("crossq", reference="8,112 with 2,048 units, XQC's authors"),
            Line("crossq", is_peer=True),
            Line(
                "crossq",
                "--agent.q-model-kwargs layers=batch_norm hidden_sizes=[512,512]",
                "8,112 with 2,048 units, XQC's authors",
                label="crossq_512",
            ),
            Line("xqc", reference="8,597 with 512 units, its authors"),
            Line("simba"),
            Line("simbav2", reference="7,328 with 512 units, its authors"),
        ),
        options="--compile",
    ),
    "dog_stand": Figure(
        "dm_control/dog-stand",
        50_000,
        (
            Line("sac", reference="31, SimbaV2's authors"),
            Line("simba", reference="144, SimbaV2's authors"),
            Line("simbav2", reference="260, SimbaV2's authors"),
            Line("simbav2", "--agent.n-q 2", label="simbav2_two_values"),
        ),
        options=TWO_FRAMES,
        about="Two steps of the task to one of a run; the references are at 100,000 of the task's.",
    ),
    "cheetah_run": Figure(
        "dm_control/cheetah-run",
        50_000,
        (
            Line("sac", reference="178, SimbaV2's authors"),
            Line("simba", "--algo.replay-ratio 256", "492 with 512 units, SimbaV2's authors"),
            Line("simbav2", "--algo.replay-ratio 256", "666 with 512 units, its authors"),
            Line("simbav2", "--algo.replay-ratio 256 --agent.n-q 2", label="simbav2_two_values"),
        ),
        options=TWO_FRAMES,
        about="One update a step, and two steps of the task; the references are at 100,000 of the task's.",
    ),
    "minatar_pqn": Figure(MINATAR, 10_000_000, (Line("pqn"),), about="It needs `pip install minatar`."),
    "pong_pqn": Figure(
        "ALE/Pong-v5",
        2_500_000,
        (Line("pqn", reference="20.5 after 10,000,000, CleanRL"),),
        options="--log-interval-steps 250000",
        about="Four frames to a step.",
    ),
    "minatar_iqn": Figure(
        MINATAR,
        300_000,
        (
            Line("iqn"),
            Line("iqn", MUNCHAUSEN, label="iqn_munchausen"),
            Line("iqn", REPLAY_OF_BTR, label="iqn_replay_of_btr"),
            Line("iqn", f"{MUNCHAUSEN} {REPLAY_OF_BTR}", label="iqn_parts_of_btr"),
        ),
        options="--algo.eps-steps 1e5 "
        "--agent.model-kwargs n_tau=8 channels=[16] kernel_sizes=[3] strides=[1] fc_sizes=128",
        about="It needs `pip install minatar`.",
    ),
    "masks": Figure(
        "experiments.tasks:LegalActions",
        50_000,
        (
            *(Line("ppo", reference="20, the most"), Line("dqn", reference="20, the most")),
            Line("ppo_lstm", HIDDEN, "20, the most", label="ppo_lstm_hidden"),
            Line(
                "r2d1",
                f"{HIDDEN} --algo.replay-ratio 48 --algo.discount 0.9 --algo.learning-rate lin_1e-3",
                "20, the most",
                label="r2d1_hidden",
            ),
            Line("ppo", HIDDEN, label="ppo_hidden"),
        ),
        about="Three of six actions are legal, others in each step; an illegal one would end the run with an error. "
        "`hidden`: which one is best must be remembered from the first row of an episode.",
    ),
    "bit_flip": Figure(
        "examples.bit_flip:BitFlip",
        30_000,
        (
            Line("dqn", BIT_FLIP),
            Line("dqn", f"{BIT_FLIP} --algo.hindsight future", label="dqn_hindsight"),
            Line("discrete_sac"),
        ),
        about="15 bits. -15 is never to reach the goal; about -6.5 is the most there is.",
    ),
    "fetch_reach": Figure(
        "gymnasium_robotics:FetchReach-v4",
        20_000,
        (Line("sac"), Line("sac", "--algo.hindsight future", label="sac_hindsight")),
        about="0 is the most there is, -50 never to reach. It needs `pip install gymnasium-robotics mujoco==3.3.0`.",
    ),
    **{
        key: Figure(
            f"popgym:popgym-{task}Easy-v0",
            500_000,
            (
                *(Line("ppo_lstm"), Line("recurrent_ppo", is_peer=True), Line("pqn_lstm"), Line("r2d1")),
                Line("ppo", label="ppo_without_memory"),
            ),
            about="1 is the most there is. It needs `pip install popgym`.",
        )
        for key, task in (("repeat_previous", "RepeatPrevious"), ("count_recall", "CountRecall"))
    },
    "asynchronous": Figure(
        "Pendulum-v1",
        20_000,
        (
            Line("sac"),
            Line("sac", TWO_CORES + "--lag 1", label="sac_lag_1"),
            Line("sac", TWO_CORES + "--lag free", label="sac_lag_free"),
        ),
    ),
    **{key: x for task in ("HalfCheetah", "Hopper", "Walker2d", "Ant") for key, x in of_mujoco(task).items()},
    **{key: x for game in ("Pong", "Breakout") for key, x in of_atari(game).items()},
}


def run(keys: Iterable[str], hours: float, runs_at_once: int | None) -> bool:
    """Run the lines of figures one after another; return whether all runs have finished."""
    end, complete = time.monotonic() + 3600 * hours, True
    for key in keys:
        kept = read_curves(key)
        for line in FIGURES[key].lines:
            if line.is_peer or len(kept.get(line.name, {})) >= FIGURES[key].seeds:
                continue
            left = end - time.monotonic()
            command = FIGURES[key].command(key, line, runs_at_once)
            if left <= 0 or not finishes([sys.executable, "-m", "rlpyt", *command], left):
                complete = False
    return complete


def finishes(command: list[str], seconds: float) -> bool:
    """Run a command; after so many seconds let it stop in order. Return whether it has come to its end without that."""
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        return process.wait(None if math.isinf(seconds) else seconds) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait()


def report(keys: Iterable[str]) -> None:
    """Write the page and the pictures of the figures that have runs; those of the others stay as they are."""
    text = PAGE.read_text()
    parts = text.partition(BEGIN)[2].partition(END)[0].split("\n## ")[1:]
    blocks = {part.partition("\n")[0]: part for part in parts}
    for key in keys:
        if curves := keep_curves(key):
            blocks[key] = "\n".join([key, "", *table(key, curves), ""])
            picture(key, curves)
    body = "".join(f"\n## {blocks[key].strip()}\n" for key in FIGURES if key in blocks)
    PAGE.write_text(text.partition(BEGIN)[0] + BEGIN + "\n" + body + "\n" + END + text.partition(END)[2])


def read_curves(key: str) -> Curves:
    """Return the curves of a figure that are kept in its file."""
    if not curves_file(key).exists():
        return {}
    with curves_file(key).open(newline="") as file:
        rows = [(method, int(seed), float(step), float(x)) for method, seed, step, x in list(csv.reader(file))[1:]]
    curves: Curves = {}
    for (method, seed), points in groupby(rows, lambda row: row[:2]):
        curves.setdefault(method, {})[seed] = [point[2:] for point in points]
    return curves


def keep_curves(key: str) -> Curves:
    """Add the finished runs of a figure to its file; return all curves that it has now, in the order of the lines."""
    kept = read_curves(key)
    curves: Curves = {}
    for line in FIGURES[key].lines:
        own = dict(kept.pop(line.name, {}))
        for one in finished(DATA / key / line.name):
            assert isinstance(one.seed, int)
            own[one.seed] = list(zip(*(x.tolist() for x in one.curve(RETURN)), strict=True))
        if own:
            curves[line.name] = dict(sorted(own.items()))
    if curves:
        PICTURES.mkdir(exist_ok=True)
        with curves_file(key).open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["method", "seed", "step", "return"])
            for method, seeds in curves.items():
                for seed, points in seeds.items():
                    writer.writerows([method, seed, f"{step:.0f}", f"{x:.5g}"] for step, x in points)
    return curves


def curves_file(key: str) -> Path:
    """Return the file of the curves of a figure."""
    return PICTURES / f"{key}.csv"


def finished(folder: Path) -> list[RunResult]:
    """Return the finished runs of a line."""
    return [one for one in find_runs(folder) if one.finished] if folder.exists() else []


def table(key: str, curves: Curves) -> list[str]:
    """Return the lines of a figure's part of the page."""
    figure = FIGURES[key]
    where = [f"![curves](figures/{key}.png)", f"The points are in [{key}.csv](figures/{key}.csv)."]
    rows = ["| method | return | seeds | reference | command |", "|---|---|---|---|---|"]
    for line in figure.lines:
        if line.name in curves:
            runs = runs_of(curves[line.name])
            rows.append(
                f"| {line.name} | {score(runs)} | {len(runs)} | {line.reference} | `{command_text(key, line)}` |"
            )
    about = [f"{figure.env}, {figure.n_steps:,.0f} steps.", *filter(None, [figure.about]), *where]
    return [*textwrap.wrap(" ".join(about), 100, break_long_words=False, break_on_hyphens=False), "", *rows]


def command_text(key: str, line: Line) -> str:
    """Return the command of a line; of a peer that of its first seed."""
    return shlex.join(["python" if line.is_peer else "rlpyt", *FIGURES[key].command(key, line)])


def runs_of(seeds: dict[int, list[tuple[float, float]]]) -> list[RunResult]:
    """Return curves as results of runs."""
    found = []
    for seed, points in seeds.items():
        columns = dict(zip((STEPS, RETURN), np.array(points).T, strict=True))
        found.append(RunResult(Path(), str(seed), "finished", "", {}, {"seed": seed}, columns))
    return found


def score(runs: Sequence[RunResult]) -> str:
    """Return the mean over runs of their evaluations in the last tenth, with its interval."""
    mean, low, high = (float(x[0]) for x in mean_interval([[one.final(RETURN)] for one in runs]))
    return f"{mean:,.4g}" + ("" if math.isnan(low) else f" ({low:,.4g} to {high:,.4g})")


def picture(key: str, curves: Curves) -> None:
    """Draw the curves of a figure."""
    groups = [RunGroup(method, FIGURES[key].env, tuple(runs_of(seeds))) for method, seeds in curves.items()]
    runs = tuple(one for group in groups for one in group.runs)
    study = Study(runs, tuple(groups), y=RETURN, x=STEPS, scale=RETURN, scores={}, remarks=())
    plot_curves(study).savefig(PICTURES / f"{key}.png", dpi=80)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, run, report; return 0 if all runs have finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="those of --list; all of them without one")
    parser.add_argument("--list", action="store_true", help="print the figures with their commands")
    parser.add_argument("--hours", type=float, default=math.inf, help="after which runs are stopped, to go on later")
    parser.add_argument("--runs-at-once", type=int, help="one for each core otherwise")
    parser.add_argument("--report", action="store_true", help="run nothing, and write the page")
    args = parser.parse_args(arguments)
    keys = args.figures or list(FIGURES)
    if unknown := [key for key in keys if key not in FIGURES]:
        parser.error(f"there is no figure {', '.join(unknown)}; expected some of {', '.join(FIGURES)}.")
    if args.list:
        for key in keys:
            for line in FIGURES[key].lines:
                print(f"{key:<18} {command_text(key, line)}")
        return 0
    complete = args.report or run(keys, args.hours, args.runs_at_once)
    report(keys)
    gallery.write_page()
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
