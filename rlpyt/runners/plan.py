"""Plan of a run as a text, and where there are several replicas: what it says of one of them, and what of all."""

from __future__ import annotations

from collections.abc import Mapping

from rlpyt.types import BatchSpec

_OF_EACH = ("batch", "rows an update", "replay rows", "replay bytes", "workers")


def plan_of_replicas(
    plan: Mapping[str, object], n_replicas: int, batch_spec: BatchSpec, rows_per_update: int
) -> dict[str, object]:
    """Return a plan with the number of replicas, and with names that say what is of each of them.

    Args:
        plan: of this replica.
        n_replicas: how many there are.
        batch_spec: of this replica.
        rows_per_update: rows that an update consumes in this replica.
    """
    T, B = batch_spec
    named = {f"{name} of each replica" if name in _OF_EACH else name: value for name, value in plan.items()}
    of_all = {"batch of all": f"T {T} x B {B * n_replicas}", "rows an update of all": rows_per_update * n_replicas}
    return {"replicas": n_replicas, **of_all, **named}


def plan_text(plan: Mapping[str, object]) -> str:
    """Return a plan as a line of the log."""
    texts = {k: f"{v:,}" if type(v) is int and k != "seed" else v for k, v in plan.items()}
    return "plan: " + ", ".join(f"{k} {v}" for k, v in texts.items())
