"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from rlpyt.models.noise import NoisyLinear
from rlpyt.models.utils import as_sizes

Nonlinearity = Callable[[], nn.Module]


class OutputLinear(nn.Linear):
    """Last layer of a network, which computes in float32, under autocast too.

    With logits and values rounded to bfloat16, a PPO ratio would change by more than an update changes it.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return input @ weight.T + bias, [..., output_size] float32."""
        device_type = input.device.type
        if not torch.is_autocast_enabled(device_type):
            return F.linear(input, self.weight, self.bias)
        with torch.autocast(device_type, enabled=False):
            return F.linear(input.float(), self.weight, self.bias)


def output_layer(input_size: int, output_size: int, noisy: bool = False, bias: bool = True) -> nn.Module:
    """Return the last layer of a network, with float32 outputs. A noisy layer always has a bias."""
    if noisy:
        return NoisyLinear(input_size, output_size, keep_float32=True)
    return OutputLinear(input_size, output_size, bias=bias)


class MlpModel(nn.Sequential):
    """Linear layers with a nonlinearity after each hidden layer, for any leading dimensions.

    Args:
        input_size: number of input features.
        hidden_sizes: one number is one layer. Without hidden layers the model is linear, and without `output_size` too
            it is the identity.
        output_size: number of outputs of a last linear layer, in float32; None leaves this layer out.
        nonlinearity: called once per hidden layer.
        noisy: whether the layers are `NoisyLinear`.
        layer_norm: whether hidden layers are normalised, before the nonlinearity (Ba et al. 2016).
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: int | Sequence[int] | None,
        output_size: int | None = None,
        nonlinearity: Nonlinearity = nn.ReLU,
        noisy: bool = False,
        layer_norm: bool = False,
    ) -> None:
        sizes = [input_size, *as_sizes(hidden_sizes)]
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes):
            layers.append(NoisyLinear(n_in, n_out) if noisy else nn.Linear(n_in, n_out))
            layers += [nn.LayerNorm(n_out), nonlinearity()] if layer_norm else [nonlinearity()]
        if output_size is not None:
            layers.append(output_layer(sizes[-1], output_size, noisy=noisy))
        super().__init__(*layers)
        self.output_size = sizes[-1] if output_size is None else output_size
