"""Plan of a run as a table, and where there are several replicas: what it says of one of them, and what of all."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import cast

from rlpyt.core import Remark, discount_at_start, hyper_parameters, rows_per_update
from rlpyt.runners.training import Training
from rlpyt.utils.processes import available_cores
from rlpyt.utils.slurm_job import job_name, visible_gpus

_OF_EACH = ("batch", "rows an update", "replay rows", "replay bytes", "workers", "cores")
_WIDTH = 79  # of a line, for the narrowest terminals that are common


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
    training.logger.log(plan_text(plan, {name: text for name, text in of_algo.items() if isinstance(text, Remark)}))
    for warning in warnings:
        training.logger.warn_once(warning, warning)
    given = {"class": type(algo).__name__, **hyper_parameters(algo)}
    training.logger.record_params({"plan": plan, "algo": given, "compute": training.compute.as_dict()})
    if (of_lag := training.collecting.warning(training.n_itr)) is not None:
        training.logger.warn_once("lag", of_lag)


def plan_text(plan: Mapping[str, object], cautions: Mapping[str, str]) -> str:
    """Return a plan as a table, with cautions below it.

    Args:
        plan: by name; what is False or None is not shown.
        cautions: entries of the plan that are cautions, by name. Those with one text are told together.
    """
    shown = {k: v for k, v in plan.items() if k not in cautions and v is not None and v is not False}
    rows = {k: f"{v:,}" if type(v) is int and k != "seed" else str(v) for k, v in shown.items()}
    width = max(map(len, rows)) + 2
    lines = [_wrapped(f"  {name:<{width}}{value}", 2 + width) for name, value in rows.items()]
    names = {text: [name for name in cautions if cautions[name] == text] for text in cautions.values()}
    of_cautions = [_wrapped(f"  {', '.join(names)}: {text}", 4) for text, names in names.items()]
    return "\n".join(["plan:", *lines, *(["cautions:", *of_cautions] if of_cautions else [])])


def _wrapped(line: str, indent: int) -> str:
    return textwrap.fill(line, _WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
