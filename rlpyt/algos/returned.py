"""Checks of what the methods of a user's own algorithm returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from rlpyt.algos.base import Numbers


def part_of(algo: object, method: str, returned: Any, Kind: type[Any]) -> Any:
    """Return a part of the replay that a method or a class of the user gave.

    Raises:
        TypeError: if it gave something else.
    """
    if not isinstance(returned, Kind):
        home = "rlpyt.core" if Kind.__module__.startswith("rlpyt.core") else "rlpyt.replays"
        _refuse(algo, method, returned, f"an {home}.{Kind.__name__} (docs/replay.md)")
    return returned


def loss_and_metrics(algo: object, returned: Any) -> tuple[torch.Tensor, Numbers]:
    """Return the loss and the metrics that `loss` of a policy-gradient algorithm gave.

    Raises:
        TypeError: if it gave something else.
    """
    parts = _parts(returned)
    if len(parts) != 2 or not isinstance(parts[0], torch.Tensor) or not isinstance(parts[1], Mapping):
        _refuse(algo, "loss", returned, "the loss, a tensor, and a dictionary of metrics by name")
    return parts[0], dict(parts[1])


def loss_and_errors(algo: object, method: str, returned: Any) -> tuple[torch.Tensor, torch.Tensor, Numbers]:
    """Return the loss, absolute TD errors and further metrics that `loss` or `td_loss` of Q-learning gave.

    Raises:
        TypeError: if it gave something else.
    """
    parts = _parts(returned)
    own = parts[2] if len(parts) == 3 else {}
    if len(parts) not in (2, 3) or not isinstance(own, Mapping) or not _all_tensors(parts[:2]):
        _refuse(algo, method, returned, "the loss and absolute TD errors, tensors, and a dictionary of metrics if any")
    loss, errors = parts[:2]
    if method == "td_loss" and loss.shape != errors.shape:
        _refuse(algo, method, returned, "a loss and an absolute TD error of every row, of the same shape")
    return loss, errors, dict(own)


def losses_and_values(algo: object, returned: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Numbers]:
    """Return the losses, action values, targets and further metrics that `q_losses` gave.

    Raises:
        TypeError: if it gave something else.
    """
    parts = _parts(returned)
    own = parts[3] if len(parts) == 4 else {}
    if len(parts) not in (3, 4) or not isinstance(own, Mapping) or not _all_tensors(parts[:3]):
        _refuse(algo, "q_losses", returned, "losses, action values and targets, tensors, and a dictionary if any")
    return parts[0], parts[1], parts[2], dict(own)


def update_metrics(algo: object, method: str, returned: Any) -> Numbers:
    """Return the metrics that a step of a policy or of action values gave.

    Raises:
        TypeError: if it gave something else.
    """
    if not isinstance(returned, Mapping):
        _refuse(algo, method, returned, "a dictionary of metrics by name")
    return dict(returned)


def _parts(returned: Any) -> list[Any]:
    return list(returned) if isinstance(returned, tuple | list) else []


def _all_tensors(parts: list[Any]) -> bool:
    return all(isinstance(part, torch.Tensor) for part in parts)


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
