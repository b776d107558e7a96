"""Small functions for models: sizes, initialisation, target updates, scaled gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlpyt.models.layers import weights_and_buffers


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


@torch.no_grad()
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
    # By order and not by name: building two state_dicts takes longer than updating a small network.
    (own, own_buffers), (new, new_buffers) = (weights_and_buffers(module) for module in (target, model))
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
