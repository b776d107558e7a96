"""Metrics of updates on their way to a runner, and checks of what the methods of a user's own algorithm returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from rlpyt.core import AgentT, Algorithm
from rlpyt.old_rlpyt import check_class
from rlpyt.utils.checks import described

Numbers = dict[str, Any]
"""Metrics of one update by name: detached tensors of any shape, or numbers."""
_RETURNED = {
    0: "a dictionary of metrics by name",
    1: "the loss, a tensor, and a dictionary of metrics by name",
    2: "the loss and absolute TD errors, tensors, and a dictionary of metrics if any",
    3: "losses, action values and targets, tensors, and a dictionary of metrics if any",
}  # by the number of tensors


class OptInfo(dict[str, torch.Tensor]):
    """Metrics of the updates of one iteration by name; answers by attribute, too, as the named tuple of rlpyt 0.1."""

    @property
    def _fields(self) -> tuple[str, ...]:
        return tuple(self)

    def _asdict(self) -> dict[str, torch.Tensor]:
        return dict(self)

    if not TYPE_CHECKING:  # to a type checker a mapping has no such attributes

        def __getattr__(self, name: str) -> torch.Tensor:
            """Return a metric."""
            try:
                return self[name]
            except KeyError:
                raise AttributeError(f"No metric is {name!r} in this iteration; they are {list(self)}.") from None


def own_and_named_metrics(algo: Algorithm[AgentT], values: Numbers, own: Numbers) -> Numbers:
    """Return of the metrics of one update those named in `opt_info_fields`, and all that a subclass's loss gave."""
    own = {name: x.detach() if isinstance(x, torch.Tensor) else x for name, x in own.items()}
    missing = [name for name in algo.opt_info_fields if name not in values and name not in own]
    if missing:
        raise ValueError(
            f"{type(algo).__name__}: opt_info_fields has {', '.join(map(repr, missing))}, but an update gave only "
            f"{', '.join([*values, *own])}; expected all. Let `td_loss` or `loss` return the others as a third value, "
            "a dictionary of metrics by name."
        )
    return {**{name: values[name] for name in algo.opt_info_fields if name in values}, **own}


def stack_metrics(metrics: Mapping[str, list[Any]]) -> OptInfo:
    """Return lists of numbers or tensors, one an update, as one tensor each: stacked where all have one shape."""
    device = next((x.device for values in metrics.values() for x in values if isinstance(x, torch.Tensor)), None)
    return OptInfo({name: _stacked(name, values, device) for name, values in metrics.items() if values})


def _stacked(name: str, values: list[Any], device: torch.device | None) -> torch.Tensor:
    if all(type(x) is float for x in values):  # one by one, each would wait for the device
        return torch.tensor(values).to(device, non_blocking=True)
    try:
        tensors = [torch.as_tensor(x, device=device).detach() for x in values]
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"The metric {name} is {values[0]!r:.100} of type {type(values[0]).__name__} ({error}); expected a number "
            "or a tensor. Convert it, or leave it out."
        ) from error
    same = all(x.shape == tensors[0].shape for x in tensors)
    return torch.stack(tensors) if same else torch.cat([x.flatten() for x in tensors])


# ---- what a user's own methods returned ----


def tensors_and_metrics(algo: object, method: str, returned: object, n: int) -> list[Any]:
    """Return the n tensors that a method gave, and a dictionary of the metrics after them; 2 and 3 may have none."""
    parts: list[Any] = list(returned) if isinstance(returned, tuple | list) and n else [returned]
    *tensors, own = [*parts, {}] if n > 1 and len(parts) == n else parts or [None]
    if len(tensors) != n or not isinstance(own, Mapping) or not all(map(torch.is_tensor, tensors)):
        _refuse(algo, method, returned, _RETURNED[n])
    if method == "td_loss" and tensors[0].shape != tensors[1].shape:
        _refuse(algo, method, returned, "a loss and an absolute TD error of every row, of the same shape")
    if method == "q_losses":
        losses, q, y = tensors
        if losses.shape != q.shape[:1] or y.shape not in (q.shape[1:], q.shape):  # which arithmetic would broadcast
            shapes = f"losses {[len(q)]} and targets {list(q.shape[1:])} of action values {list(q.shape)}"
            _refuse(algo, method, returned, f"{shapes}. What q_target returns has no dimension more")
    return [*tensors, dict(own)]


def part_of(algo: object, method: str, returned: Any, Kind: type[Any]) -> Any:
    """Return a part of the replay that a method or a class of the user gave."""
    if not isinstance(returned, Kind):
        home = "rlpyt.core" if Kind.__module__.startswith("rlpyt.core") else "rlpyt.replays"
        _refuse(algo, method, returned, f"an {home}.{Kind.__name__} (docs/howto/replay.md)")
    check_class(type(returned))
    return returned


def _refuse(algo: object, method: str, returned: object, expected: str) -> NoReturn:
    raise TypeError(
        f"{type(algo).__name__}.{method} returned {described(returned)}; expected {expected}. Let it return that."
    )
