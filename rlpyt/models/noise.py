"""Networks that are random on purpose: what draws their randomness, noisy linear layers, and dropout."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import nn


class RandomModule(nn.Module, ABC):
    """A module whose output depends on random numbers that are drawn from outside, all at a known time."""

    @abstractmethod
    def draw(self, generator: torch.Generator | None) -> None:
        """Draw from a CPU generator for the next forward passes; None makes them the same every time."""


def draw_randomness(module: nn.Module, generator: torch.Generator | None) -> None:
    """Let all random modules inside a network draw; see `RandomModule.draw`."""
    for part in module.modules():
        if isinstance(part, RandomModule):
            part.draw(generator)


class Dropout(RandomModule):
    """Dropout by a random stream of its own, which every draw starts anew: a resumed run has the same masks.

        y = x * mask / (1 - p),    mask ~ Bernoulli(1 - p)

    Until the first draw it is `torch.nn.Dropout`, by torch's global stream. After `draw(None)`, and in evaluation mode,
    it is y = x.

    Args:
        p: probability that an entry is set to zero, in [0, 1).

    Raises:
        ValueError: if p is out of range.

    Source: Srivastava et al. 2014, Journal of Machine Learning Research 15.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"Dropout: got p={p}; expected a probability in [0, 1). Correct it.")
        self.p = p
        self._drops = True
        self._seed: int | None = None
        self._generator: torch.Generator | None = None  # on the device of x, as masks of the CPU would have to move

    def draw(self, generator: torch.Generator | None) -> None:
        """Start the stream of the masks of the next forward passes; None is no dropout."""
        self._drops = generator is not None
        if generator is not None:
            self._seed = int(torch.randint(2**62, (), generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y, the shape of x."""
        if not (self.training and self._drops and self.p):
            return x
        if self._seed is not None:
            self._generator, self._seed = torch.Generator(x.device).manual_seed(self._seed), None
        return x * torch.empty_like(x).bernoulli_(1 - self.p, generator=self._generator).div_(1 - self.p)


class NoisyLinear(RandomModule):
    """A linear layer whose weights have Gaussian noise of learned size.

        y = (mu_w + sigma_w * f(e_out) f(e_in)^T) x + mu_b + sigma_b * f(e_out),    f(e) = sign(e) sqrt(|e|)

    Until noise is drawn, and after `draw(None)`, it is mu_w x + mu_b. The noise is no part of the state_dict.

    Args:
        in_features: size of x.
        out_features: size of y.
        sigma_init: sigma at the start, times sqrt(in_features).
        keep_float32: whether to compute in float32 under autocast too, as an output layer does.

    Source: Fortunato et al. 2018, arXiv:1706.10295, section 3, factorised noise.
    """

    input_noise: torch.Tensor
    output_noise: torch.Tensor

    def __init__(
        self, in_features: int, out_features: int, sigma_init: float = 0.5, keep_float32: bool = False
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.keep_float32 = in_features, out_features, keep_float32
        bound, sigma = 1 / math.sqrt(in_features), sigma_init / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma))
        self.register_buffer("input_noise", torch.zeros(in_features), persistent=False)
        self.register_buffer("output_noise", torch.zeros(out_features), persistent=False)
        self._noisy = False

    def draw(self, generator: torch.Generator | None) -> None:
        """Draw the noise of the next forward passes; None is none."""
        self._noisy = generator is not None
        if generator is None:
            return
        noise = torch.randn(self.in_features + self.out_features, generator=generator)
        noise = noise.sign() * noise.abs().sqrt()
        # New tensors, as a backward pass may still need the old ones.
        self.input_noise, self.output_noise = (
            x.to(self.weight.device, non_blocking=True) for x in noise.split([self.in_features, self.out_features])
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y [..., out_features]."""
        if not (self.keep_float32 and torch.is_autocast_enabled(x.device.type)):
            return self._linear(x)
        with torch.autocast(x.device.type, enabled=False):
            return self._linear(x.float())

    def _linear(self, x: torch.Tensor) -> torch.Tensor:
        mean = F.linear(x, self.weight, self.bias)
        if not self._noisy:
            return mean
        # Two products with small rows cost less than building the noisy weights, whose size is that of the layer.
        return mean + self.output_noise * F.linear(x * self.input_noise, self.weight_sigma, self.bias_sigma)
