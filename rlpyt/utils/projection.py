"""Weights that are projected back onto a set after every step of an optimiser."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from torch import nn


class Projection(nn.Module, ABC):
    """Base of layers that change their own weights after every step of the optimiser that has them.

    The algorithm calls `project`, in compiled updates too, so it consists of torch functions that write in place.
    """

    @abstractmethod
    def project(self) -> None:
        """Project the weights, in place; it is called without gradients."""


def projections_of(networks: Iterable[nn.Module], parameters: Iterable[nn.Parameter]) -> list[Projection]:
    """Return the layers of networks that project weights among the parameters, each once."""
    stepped = {id(parameter) for parameter in parameters}
    layers = {id(layer): layer for network in networks for layer in network.modules() if isinstance(layer, Projection)}
    return [layer for layer in layers.values() if any(id(x) in stepped for x in layer.parameters(recurse=False))]
