"""Small functions for models: sizes, initialisation, target updates, scaled gradients, and walks over layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeVar, cast

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def as_sizes(sizes: int | Sequence[int] | None) -> list[int]:
    """Return layer sizes as a list; one number is one layer, None is no layer."""
    if sizes is None:
        return []
    return [sizes] if isinstance(sizes, int) else list(sizes)


def conv2d_output_shape(
    h: int,
    w: int,
    kernel_size: int | tuple[int, ...] = 1,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
) -> tuple[int, int]:
    """Return height and width after a convolution or a pooling.

    floor((size + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1, not below 0
    """
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = (
        (x, x) if isinstance(x, int) else x for x in (kernel_size, stride, padding, dilation)
    )
    h = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    w = (w + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    return max(h, 0), max(w, 0)


def init_orthogonal(module: nn.Module, gain: float = 2**0.5) -> None:
    """Make weights orthogonal, with `gain` in linear and convolutional layers and 1 in recurrent ones; biases are 0.

    Source: Saxe et al. 2014, arXiv:1312.6120.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.RNNBase):
            for parameter in layer.parameters(recurse=False):
                if parameter.dim() == 1:
                    nn.init.zeros_(parameter)
                else:
                    nn.init.orthogonal_(parameter, 1.0 if isinstance(layer, nn.RNNBase) else gain)


def update_target(target: nn.Module, model: nn.Module, tau: float = 1.0) -> None:
    """Move the weights of a target network by the fraction tau towards those of another network, in place.

        w_target <- (1 - tau) * w_target + tau * w

    Buffers, such as running statistics and counts, are copied for every tau.

    Args:
        target: network to change.
        model: network with the same layers.
        tau: in [0, 1]; 1 copies.

    Raises:
        ValueError: if tau is out of range, or the numbers of weights or buffers differ.
    """
    move_weights(layers(target), layers(model), tau)


@torch.no_grad()
def move_weights(target: Sequence[nn.Module], model: Sequence[nn.Module], tau: float) -> None:
    """Do what `update_target` does, with the layers of two networks."""
    # By order and not by name: building two state_dicts takes longer than updating a small network.
    (own, own_buffers), (new, new_buffers) = (weights_and_buffers(network) for network in (target, model))
    if not 0.0 <= tau <= 1.0 or len(own) != len(new) or len(own_buffers) != len(new_buffers):
        raise ValueError(
            f"update_target: got tau {tau}, {len(own)} weights and {len(own_buffers)} buffers to move to {len(new)} "
            f"and {len(new_buffers)}; expected tau in [0, 1] and networks with the same layers."
        )
    if tau == 1.0:
        own_buffers, new_buffers = own + own_buffers, new + new_buffers
    elif own:
        torch._foreach_lerp_(own, new, tau)
    for x, y in zip(own_buffers, new_buffers, strict=True):
        x.copy_(y)


class _ScaleGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0] * ctx.scale, None


def scale_grad(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Return x; its gradient is multiplied by `scale` in the backward pass."""
    return _ScaleGrad.apply(x, scale)


# ---- walks over layers, for what is done at every step of a run: those of torch take longer ----


def layers(network: nn.Module) -> list[nn.Module]:
    """Return all layers, each once, as `network.modules()` does."""
    found: dict[nn.Module, None] = {}
    rest: list[nn.Module | None] = [network]
    while rest:
        layer = rest.pop()
        if layer is not None and layer not in found:
            found[layer] = None
            if children := layer._modules:
                rest += reversed(children.values())
    return list(found)


class LayerFinder:
    """Layers of networks, found once, and again when a layer of the network has got another part or lost one.

    To look whether that is so takes a third of the time of a walk. The networks are kept as long as the finder is.
    """

    def __init__(self) -> None:
        self._known: dict[nn.Module, _Known] = {}

    def of(self, network: nn.Module, Kind: type[M]) -> list[M]:
        """Return the layers of a network that are of a kind, each once, in the order of `network.modules()`."""
        by_kind = self._now(network).by_kind
        if Kind not in by_kind:
            by_kind[Kind] = [layer for layer in by_kind[nn.Module] if isinstance(layer, Kind)]
        return cast(list[M], by_kind[Kind])

    def set_training(self, network: nn.Module, training: bool) -> None:
        """Do what `network.train(training)` does, at once where all layers do no more than note their mode."""
        known = self._now(network)
        states = [layer.__dict__ for layer in known.by_kind[nn.Module]]
        if not known.only_note or any("train" in state for state in states):  # set by hand, to freeze a layer
            network.train(training)
            return
        for state in states:
            state["training"] = training

    def buffers(self, network: nn.Module) -> list[torch.Tensor]:
        """Return the buffers of a network, each once, in the order of `network.buffers()`."""
        return _each_once(self._now(network).buffers)

    def _now(self, network: nn.Module) -> _Known:
        known = self._known.get(network)
        if known is None or known.children() != known.found:
            known = self._known[network] = _Known(network)
        return known


class _Known:
    """Layers of a network, and the parts by which it is seen whether they are still its layers."""

    def __init__(self, network: nn.Module) -> None:
        found = layers(network)
        self.by_kind: dict[type[nn.Module], list[nn.Module]] = {nn.Module: found}
        self.only_note = all(_only_notes(type(layer)) for layer in found)
        self.buffers = [layer._buffers for layer in found]
        self._parts = [layer._modules for layer in found]
        self.found = self.children()

    def children(self) -> list[nn.Module | None]:
        return [*chain.from_iterable(map(dict.values, self._parts))]


def weights_and_buffers(parts: Sequence[nn.Module]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the parameters and the buffers of all layers of a network, each once, in the order of torch's methods."""
    return _each_once([layer._parameters for layer in parts]), _each_once([layer._buffers for layer in parts])


def _each_once(of_layers: Sequence[Mapping[str, torch.Tensor | None]]) -> list[torch.Tensor]:
    return list({id(x): x for of_layer in of_layers for x in of_layer.values() if x is not None}.values())


def _does_no_more(kind: type) -> bool:
    """Return whether a layer of a class sets an attribute when its mode changes, and does nothing else."""

    def same_as(base: type) -> bool:
        return all(getattr(kind, name) is getattr(base, name) for name in ("train", "eval", "__setattr__"))

    return (same_as(nn.Module) or same_as(nn.RNNBase)) and "training" not in dir(kind)


_only_notes = cast(Callable[[type], bool], cache(_does_no_more))
