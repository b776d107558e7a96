"""Option `--slurm` of `rlpyt launch`: what each job of a grid asks SLURM for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

from rlpyt.cli.text import did_you_mean
from rlpyt.cli.values import entries, kinds_of, list_of, value_of
from rlpyt.utils.packages import optional_package

if TYPE_CHECKING:
    import submitit


def executor_of(texts: Sequence[str], folder: Path) -> submitit.AutoExecutor:
    """Return what submits jobs to SLURM that ask for what texts say; all nodes see the folder of their files."""
    package = optional_package("submitit", "--slurm", "cluster")
    asked = requests_of(texts)
    if shutil.which("srun") is None:
        raise ValueError(
            "--slurm: there is no srun in the PATH, so this is no machine of a SLURM cluster. Launch on its login "
            "node, or without --slurm on the cores of this machine."
        )
    executor: submitit.AutoExecutor = package.AutoExecutor(folder, cluster="slurm")
    executor.parameters["time"] = None  # a job has the time of its partition, and not the five minutes of submitit
    executor.update_parameters(**asked)
    return executor


def requests_of(texts: Sequence[str]) -> dict[str, object]:
    """Return the parameters of submitit's AutoExecutor that texts such as "partition=gpu,mem-gb=16" stand for."""
    from submitit import AutoExecutor, SlurmExecutor
    from submitit.slurm.slurm import _make_sbatch_string  # its arguments are the options of sbatch

    shared = AutoExecutor._typed_parameters()
    hints = get_type_hints(_make_sbatch_string)
    # The hint of time is the number of minutes; sbatch takes 4:00:00 and 1-12 too.
    own = {name: str if name == "time" else hints[name] for name in SlurmExecutor._valid_parameters()}
    found: dict[str, object] = {}
    for given, text in _pairs(texts):
        name = given.replace("-", "_")
        if name not in shared and name not in own:
            known = sorted({*shared, *own})
            hint = did_you_mean(name, known, f"; expected one of {', '.join(known)}.", n=1)
            raise ValueError(
                f"--slurm: got {given!r}{hint} Another option of sbatch is an entry of additional_parameters: "
                'additional_parameters={"reservation": "mine"}.'
            )
        try:
            value = _value(text, shared.get(name, own.get(name)))
        except ValueError as error:
            raise ValueError(f"--slurm {given}: {error}") from None
        key = name if name in shared else f"slurm_{name}"
        if key in found:
            raise ValueError(f"--slurm: got {given} twice; expected one value.")
        found[key] = value
    return found


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return names and values, such as those of exclude=n1,n2."""
    found = [pair for text in texts for pair in entries(text.rstrip(", "), r"[A-Za-z][\w-]*")]
    for name, value in found:
        if not value or not name.replace("-", "_").isidentifier():
            raise ValueError(f"--slurm: got {name!r} without a value; expected such as partition=gpu,mem_gb=16.")
    if not found:
        raise ValueError("--slurm: got no values; expected what a job asks for, such as partition=gpu,mem_gb=16.")
    return found


def _value(text: str, hint: object) -> object:
    """Return the value for a parameter of submitit; a list that sbatch takes as a text has its commas there."""
    kinds = kinds_of(hint) - {type(None)}
    if list in kinds:
        return [*list_of(text, _text)]
    if str in kinds and text.startswith(("[", "(")):
        return ",".join(map(str, list_of(text, _text)))
    return value_of(text, kinds)


def _text(text: str) -> str:
    return str(value_of(text, frozenset([str])))
