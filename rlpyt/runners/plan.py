"""Plan of a run as a table, and where there are several replicas: what it says of one of them, and what of all."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from rlpyt.core import Remark, discount_at_start, hyper_parameters, rows_per_update
from rlpyt.runners.training import Training
from rlpyt.utils.processes import available_cores
from rlpyt.utils.slurm_job import job_name, visible_gpus

if TYPE_CHECKING:
    from rich.console import RenderableType

_OF_EACH = ("batch", "rows an update", "replay rows", "replay bytes", "workers", "cores")
_WIDTH = 100  # of a line of the text


def plan_of_job(device: str) -> dict[str, object]:
    """Return what the plan says of the cores and GPUs that a job system has given to this process, if one has."""
    job, gpus = job_name(), visible_gpus()
    if not job:
        return {}
    unused = ", which this run does not learn on" if device == "cpu" else ""
    given = f"{len(gpus)}, CUDA_VISIBLE_DEVICES={','.join(gpus)} ({job}){unused}"
    return {"cores": f"{available_cores()} ({job})", **({"GPUs": given} if gpus else {})}


def log_plan(training: Training, seed: int, evaluation: Mapping[str, object]) -> None:
    """Log what will be done, before it is done: the plan, cautions below it, and warnings; keep it in params.json."""
    algo, agent, sampler = training.algo, training.agent, training.sampler
    of_algo = algo.plan()
    warnings = cast(list[str], of_algo.pop("warnings", []))
    plan: dict[str, object] = {
        "seed": seed,
        "iterations": training.n_itr,
        "steps": training.n_itr * training.steps_per_itr,
        "batch": "T {} x B {}".format(*sampler.batch_spec),
        "discount": discount_at_start(algo),
        **of_algo,
        **sampler.plan(),
        **evaluation,
        **({"observation": reading} if (reading := agent.networks.input_description()) else {}),
        "parameters": sum(p.numel() for p in agent.parameters()),
        **training.compute.as_dict(),
        **plan_of_job(training.compute.device),
    }
    if (n := training.agreement.replicas.world_size) > 1:
        T, B = sampler.batch_spec
        of_all = {"batch of all": f"T {T} x B {B * n}", "rows an update of all": rows_per_update(algo) * n}
        named = {f"{name} of each replica" if name in _OF_EACH else name: value for name, value in plan.items()}
        plan = {"replicas": n, **of_all, **named}
    table = PlanTable(plan, {name: text for name, text in of_algo.items() if isinstance(text, Remark)})
    training.logger.log_drawn(table.text(), table.drawn)
    for warning in warnings:
        training.logger.warn_once(warning, warning)
    given = {"class": type(algo).__name__, **hyper_parameters(algo)}
    training.logger.record_params({"plan": plan, "algo": given, "compute": training.compute.as_dict()})
    if (of_lag := training.collecting.warning(training.n_itr)) is not None:
        training.logger.warn_once("lag", of_lag)


class PlanTable:
    """Table of a plan, with cautions below it: as plain text, and as rich draws it in a terminal.

    Args:
        plan: by name; what is False or None is not shown.
        cautions: entries of the plan that are cautions, by name. Those with one text are told together.
    """

    def __init__(self, plan: Mapping[str, object], cautions: Mapping[str, str]) -> None:
        shown = {k: v for k, v in plan.items() if k not in cautions and v is not None and v is not False}
        self._rows = {k: f"{v:,}" if type(v) is int and k != "seed" else str(v) for k, v in shown.items()}
        names = {text: [name for name in cautions if cautions[name] == text] for text in cautions.values()}
        self._cautions = [f"{', '.join(names)}: {text}" for text, names in names.items()]

    def text(self) -> str:
        """Return the lines."""
        width = max(map(len, self._rows)) + 2
        lines = [f"  {name:<{width}}{value}" for name, value in self._rows.items()]
        wrapped = [_wrapped(line, 2 + width) for line in lines]
        cautions = [_wrapped(f"  {caution}", 4) for caution in self._cautions]
        return "\n".join(["plan:", *wrapped, *(["cautions:", *cautions] if cautions else [])])

    def drawn(self) -> RenderableType:
        """Return what rich draws."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2, 0, 0))
        for name, value in self._rows.items():
            table.add_row(Text(f"  {name}", "cyan"), Text(value))
        cautions = Table.grid(padding=(0, 0, 0, 2), pad_edge=True)
        for caution in self._cautions:
            cautions.add_row(Text(caution, "yellow"))
        below: list[RenderableType] = [Text("cautions:", "bold yellow"), cautions] if self._cautions else []
        return Group(Text("plan:", "bold"), table, *below)


def _wrapped(line: str, indent: int) -> str:
    return textwrap.fill(line, _WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
