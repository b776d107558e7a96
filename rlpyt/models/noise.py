"""Random networks: the interface that draws their random numbers, dropout, and noisy linear layers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import nn

from rlpyt.models.utils import layers

Stream = tuple[int | None, torch.Generator | None]
"""Random stream of a module: the seed of one that begins with the next forward pass, and the one at hand."""


class RandomModule(nn.Module, ABC):
    """Base of modules whose output depends on random numbers, drawn by a call from outside."""

    @abstractmethod
    def draw(self, generator: torch.Generator | None) -> None:
        """Draw from a CPU generator for the next forward passes; None makes all of them deterministic."""

    def copy_stream(self) -> Stream:
        """Return a copy of the random stream that the module has of its own, if it has one."""
        return None, None

    def set_stream(self, stream: Stream) -> None:
        """Set the stream to the state of a copy."""


def draw_randomness(module: nn.Module, generator: torch.Generator | None) -> None:
    """Call `RandomModule.draw` of all random modules of a network."""
    for part in layers(module):
        if isinstance(part, RandomModule):
            part.draw(generator)


class Dropout(RandomModule):
    """Dropout with its own random stream, which every draw seeds again, so that a resumed run has the same masks.

        y = x * mask / (1 - p),    mask ~ Bernoulli(1 - p)

    Until the first draw it uses torch's global stream, as `torch.nn.Dropout` does. After `draw(None)`, and in
    evaluation mode, y = x.

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
        self._generator: torch.Generator | None = None  # on the device of x: a mask from the CPU would be a copy

    def draw(self, generator: torch.Generator | None) -> None:
        """Seed the stream of masks of the next forward passes; None turns dropout off."""
        self._drops = generator is not None
        if generator is not None:
            self._seed = int(torch.randint(2**62, (), generator=generator))

    def copy_stream(self) -> Stream:
        """Return seed and stream of the masks."""
        return self._seed, None if self._generator is None else self._generator.clone_state()

    def set_stream(self, stream: Stream) -> None:
        """Go on with the masks of a copy."""
        self._seed, generator = stream
        self._generator = None if generator is None else generator.clone_state()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y, of the shape of x."""
        if not (self.training and self._drops and self.p):
            return x
        if self._seed is not None:
            self._generator, self._seed = torch.Generator(x.device).manual_seed(self._seed), None
        return x * torch.empty_like(x).bernoulli_(1 - self.p, generator=self._generator).div_(1 - self.p)


class NoisyLinear(RandomModule):
    """Linear layer whose weights have Gaussian noise of learned size.

        y = (mu_w + sigma_w * f(e_out) f(e_in)^T) x + mu_b + sigma_b * f(e_out),    f(e) = sign(e) sqrt(|e|)

    Until noise is drawn, and after `draw(None)`, y = mu_w x + mu_b. The state_dict does not contain the noise.

    Args:
        in_features: size of x.
        out_features: size of y.
        sigma_init: initial sigma times sqrt(in_features).
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
        """Draw the noise of the next forward passes; None turns it off."""
        self._noisy = generator is not None
        if generator is None:
            return
        noise = torch.randn(self.in_features + self.out_features, generator=generator, device=generator.device)
        noise = noise.sign() * noise.abs().sqrt()
        # New tensors, because a backward pass may still need the old ones.
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
        # A second product costs less than building noisy weights of the size of the layer.
        return mean + self.output_noise * F.linear(x * self.input_noise, self.weight_sigma, self.bias_sigma)
