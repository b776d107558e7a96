"""Checks of what the methods of a user's own algorithm returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from rlpyt.algos.metrics import Numbers


def part_of(algo: object, method: str, returned: Any, Kind: type[Any]) -> Any:
    """Return a part of the replay that a method or a class of the user gave.

    Raises:
        TypeError: if it gave something else.
    """
    if not isinstance(returned, Kind):
        home = "rlpyt.core" if Kind.__module__.startswith("rlpyt.core") else "rlpyt.replays"
        _refuse(algo, method, returned, f"an {home}.{Kind.__name__} (docs/replay.md)")
    return returned


def tensors_and_metrics(
    algo: object, method: str, returned: Any, n: int, expected: str, needs_metrics: bool = False
) -> tuple[list[torch.Tensor], Numbers]:
    """Return the n tensors, and the metrics after them, that a loss gave.

    Args:
        algo: whose loss it is.
        method: its name.
        returned: what it gave.
        n: tensors that it is to give.
        expected: these, in words.
        needs_metrics: whether metrics have to follow.

    Raises:
        TypeError: if it gave something else.
    """
    parts = list(returned) if isinstance(returned, tuple | list) else []
    own = parts[n] if len(parts) == n + 1 else {}
    lengths = (n + 1,) if needs_metrics else (n, n + 1)
    tensors = parts[:n]
    if len(parts) not in lengths or not isinstance(own, Mapping) or not all(map(torch.is_tensor, tensors)):
        _refuse(algo, method, returned, expected)
    return tensors, dict(own)


def loss_and_metrics(algo: object, returned: Any) -> tuple[torch.Tensor, Numbers]:
    """Return the loss and the metrics that `loss` of a policy-gradient algorithm gave; see `tensors_and_metrics`."""
    expected = "the loss, a tensor, and a dictionary of metrics by name"
    (loss,), metrics = tensors_and_metrics(algo, "loss", returned, 1, expected, needs_metrics=True)
    return loss, metrics


def loss_and_errors(algo: object, method: str, returned: Any) -> tuple[torch.Tensor, torch.Tensor, Numbers]:
    """Return loss, absolute TD errors and further metrics that `loss` or `td_loss` gave; see `tensors_and_metrics`."""
    expected = "the loss and absolute TD errors, tensors, and a dictionary of metrics if any"
    (loss, errors), own = tensors_and_metrics(algo, method, returned, 2, expected)
    if method == "td_loss" and loss.shape != errors.shape:
        _refuse(algo, method, returned, "a loss and an absolute TD error of every row, of the same shape")
    return loss, errors, own


def losses_and_values(algo: object, returned: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Numbers]:
    """Return losses, action values, targets and further metrics that `q_losses` gave; see `tensors_and_metrics`."""
    expected = "losses, action values and targets, tensors, and a dictionary of metrics if any"
    (losses, q, y), own = tensors_and_metrics(algo, "q_losses", returned, 3, expected)
    if losses.shape != q.shape[:1] or y.shape not in (q.shape[1:], q.shape):  # which arithmetic would broadcast
        shapes = f"losses {[len(q)]} and targets {list(q.shape[1:])} of action values {list(q.shape)}"
        _refuse(algo, "q_losses", returned, f"{shapes}. What q_target returns has no dimension more")
    return losses, q, y, own


def update_metrics(algo: object, method: str, returned: Any) -> Numbers:
    """Return the metrics that an update, or a step of a policy, gave; refuse something else with a TypeError."""
    if not isinstance(returned, Mapping):
        _refuse(algo, method, returned, "a dictionary of metrics by name")
    return dict(returned)


def _refuse(algo: object, method: str, returned: Any, expected: str) -> NoReturn:
    raise TypeError(
        f"{type(algo).__name__}.{method} returned {_described(returned)}; expected {expected}. Let it return that."
    )


def _described(x: Any) -> str:
    if isinstance(x, torch.Tensor):
        return f"a tensor {list(x.shape)}"
    if isinstance(x, tuple | list):
        return f"a {type(x).__name__} of {len(x)}: {', '.join(map(_described, x))}"
    return "None" if x is None else f"the class {x.__name__}" if isinstance(x, type) else f"a {type(x).__name__}"
