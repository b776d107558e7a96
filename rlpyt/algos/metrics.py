"""Metrics of updates, on their way to a runner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlpyt.core import AgentT, Algorithm

Numbers = dict[str, Any]
"""Metrics of one update by name: detached tensors of any shape, or numbers."""


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


def own_and_named_metrics(
    algo: Algorithm[AgentT], values: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return of the metrics of one update those named in `opt_info_fields`, and all that a subclass's loss gave.

    Raises:
        ValueError: if a name was given by none.
    """
    own = {name: x.detach() if isinstance(x, torch.Tensor) else x for name, x in (own or {}).items()}
    missing = [name for name in algo.opt_info_fields if name not in values and name not in own]
    if missing:
        raise ValueError(
            f"{type(algo).__name__}: opt_info_fields has {', '.join(map(repr, missing))}, but an update gave only "
            f"{', '.join([*values, *own])}; expected all. Let `td_loss` or `loss` return the others as a third value, "
            "a dictionary of metrics by name."
        )
    return {**{name: values[name] for name in algo.opt_info_fields if name in values}, **own}


def stack_metrics(metrics: Mapping[str, list[Any]]) -> OptInfo:
    """Return lists of numbers or tensors, one an update, as one tensor each, on one device.

    Those of one shape are stacked, others one after the other.

    Raises:
        TypeError: if a metric is no number.
    """
    device = next((x.device for values in metrics.values() for x in values if isinstance(x, torch.Tensor)), None)
    return OptInfo({name: _stacked(name, values, device) for name, values in metrics.items() if values})


def _stacked(name: str, values: list[Any], device: torch.device | None) -> torch.Tensor:
    try:
        tensors = [torch.as_tensor(x, device=device).detach() for x in values]
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"The metric {name} is {values[0]!r:.100} of type {type(values[0]).__name__} ({error}); expected a number "
            "or a tensor. Convert it, or leave it out."
        ) from error
    same = all(x.shape == tensors[0].shape for x in tensors)
    return torch.stack(tensors) if same else torch.cat([x.flatten() for x in tensors])
