"""Walks over the layers of a network, for what is done at every step of a run. Those of torch take longer."""

from __future__ import annotations

import torch
from torch import nn


def layers(network: nn.Module) -> list[nn.Module]:
    """Return all layers, each once, as `network.modules()` does."""
    found: dict[nn.Module, None] = {}
    rest = [network]
    while rest:
        layer = rest.pop()
        if layer not in found:
            found[layer] = None
            rest += [child for child in reversed(layer._modules.values()) if child is not None]
    return list(found)


def weights_and_buffers(network: nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return parameters and buffers, each once, as `network.parameters()` and `network.buffers()` do."""
    parts = layers(network)
    weights = {id(x): x for layer in parts for x in layer._parameters.values() if x is not None}
    buffers = {id(x): x for layer in parts for x in layer._buffers.values() if x is not None}
    return list(weights.values()), list(buffers.values())


def set_training(network: nn.Module, training: bool) -> None:
    """Do what `network.train(training)` does. Layers that do more than note their mode are asked for it."""
    kind = type(network)
    if kind not in _only_notes:
        _only_notes[kind] = _does_no_more(kind)
    if not _only_notes[kind] or "train" in vars(network):  # set by hand, to freeze a layer
        network.train(training)
        return
    network.__dict__["training"] = training
    for child in network._modules.values():
        if child is not None:
            set_training(child, training)


_only_notes: dict[type, bool] = {}
"""Whether a layer of a class sets an attribute when its mode changes, and does nothing else."""


def _does_no_more(kind: type) -> bool:
    def same_as(base: type) -> bool:
        return all(getattr(kind, name) is getattr(base, name) for name in ("train", "eval", "__setattr__"))

    return (same_as(nn.Module) or same_as(nn.RNNBase)) and "training" not in dir(kind)
