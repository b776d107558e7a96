"""Value heads: how the outputs of a network stand for a value, which target they are trained on, and by which loss.

A value is usually one output, trained by its squared error. It may also be the mean of a distribution that several
outputs describe. The distribution has a range or a number of outputs, which belong to the head and to nothing else. One
head serves the action values of DQN, those of DDPG, TD3 and SAC, and the values of A2C, PPO and V-trace.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar, NamedTuple

import torch

from rlpyt.functional.distributional import (
    categorical_loss,
    categorical_projection,
    entropy_of,
    hl_gauss,
    midpoints,
    quantile_huber_loss,
    two_hot,
)
from rlpyt.functional.indexing import select_at_indexes
from rlpyt.functional.losses import clipped_double_q, huber_loss

Backup = Callable[[torch.Tensor], torch.Tensor]
"""Function from next values, [...] or [..., N] atoms of them, to targets y of the same shape."""


TARGETS_OUTSIDE = "targetsOutside"
"""Name of the metric that is the share of the targets outside of a head's range."""


class ValueTarget(NamedTuple):
    """Target of the outputs for some rows [...], without gradient."""

    value: torch.Tensor
    """[...] float, its mean."""
    content: torch.Tensor
    """What `ValueHead.loss` compares outputs with: the value itself [...], probabilities [..., N], or samples of the
    return [..., M]."""
    outside: torch.Tensor | None = None
    """[...] float in [0, 1], the share of it that lies outside of the head's range; None without a range."""

    def metrics(self, mean: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the share outside by name, as a mean over the rows; nothing without a range."""
        return {} if self.outside is None else {TARGETS_OUTSIDE: mean(self.outside)}


class ValueHead(ABC):
    """Rule by which outputs of a network [..., *outputs] stand for values [...]."""

    follows_returns: ClassVar[bool] = False
    """Whether `bootstrap` follows the distribution of one action's return, and not its mean alone."""

    @property
    @abstractmethod
    def n_outputs(self) -> int | None:
        """Number of outputs for a value; None is one output without a dimension of its own."""

    @abstractmethod
    def mean(self, output: torch.Tensor) -> torch.Tensor:
        """Return the values [...] that outputs stand for, with gradient."""

    @abstractmethod
    def encode(self, y: torch.Tensor) -> ValueTarget:
        """Return the target that stands for numbers y [...], such as returns."""

    @abstractmethod
    def loss(
        self, output: torch.Tensor, target: ValueTarget, delta_clip: float | torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the loss [...] of outputs against a target that is broadcast to them, not averaged.

        Args:
            output: of the network in training.
            target: of `encode` or `bootstrap`; receives no gradient.
            delta_clip: of the Huber loss, for heads that have one; None is the squared error, or the absolute one of
                quantiles.
        """

    def bootstrap(self, next_output: torch.Tensor, backup: Backup) -> ValueTarget:
        """Return the target that follows from the outputs at the rows that are bootstrapped from."""
        with torch.no_grad():
            return self.encode(backup(self.mean(next_output)))

    def td_error(self, output: torch.Tensor, target: ValueTarget, loss: torch.Tensor) -> torch.Tensor:
        """Return the absolute TD error [...] of outputs, which are of one network, by their loss if need be."""
        return (target.value - self.mean(output)).abs()

    def lowest(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return, for each row, those of the outputs [n, ..., N] of n networks whose mean is the smallest, [..., N]."""
        return select_at_indexes(self.mean(outputs).argmin(0), outputs.movedim(0, -2))


@dataclass(frozen=True)
class Expectation(ValueHead):
    """Value as one number, trained by its squared error or its Huber loss."""

    @property
    def n_outputs(self) -> None:
        """None: the output has no dimension of its own."""
        return None

    def mean(self, output: torch.Tensor) -> torch.Tensor:
        """Return the output."""
        return output

    def encode(self, y: torch.Tensor) -> ValueTarget:
        """Return y."""
        return ValueTarget(y.detach(), y.detach())

    def loss(
        self, output: torch.Tensor, target: ValueTarget, delta_clip: float | torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return huber(y - output), or with `delta_clip` None half the squared error."""
        return huber_loss(target.content - output, delta_clip)

    def lowest(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the smallest values."""
        return clipped_double_q(outputs)


@dataclass(frozen=True)
class TwoHot(ValueHead):
    """Value as the mean of probabilities over fixed places, trained by cross-entropy with its two neighbours.

    The target is the number y, of which the two places next to it have all the probability; see `two_hot`. The outputs
    are logits. A y outside of the range is moved to its end.

    Source: Schrittwieser et al. 2020, arXiv:1911.08265, appendix F.
    """

    V_min: float
    """Lower end of the range of values, in units of the return."""
    V_max: float
    """Upper end."""
    n_bins: int = 101
    """Number of outputs, from 2."""

    def __post_init__(self) -> None:
        who = type(self).__name__
        if not -math.inf < self.V_min < self.V_max < math.inf:
            raise ValueError(
                f"{who}: V_min is {self.V_min!r} and V_max {self.V_max!r}; expected finite numbers, V_min below "
                "V_max: the range that the discounted returns of the environment have. Correct them."
            )
        if self.n_bins < 2 or self.n_bins % 1:
            raise ValueError(f"{who}: n_bins is {self.n_bins!r}; expected a whole number from 2. Correct it.")

    @property
    def n_outputs(self) -> int:
        """Number of bins."""
        return int(self.n_bins)

    def places(self, like: torch.Tensor) -> torch.Tensor:
        """Return the values [n_bins] that outputs stand for, of their device and dtype, but float32 for half of it."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        return torch.linspace(self.V_min, self.V_max, self.n_outputs, dtype=dtype, device=like.device)

    def mean(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of the distribution, which lies in the range."""
        # No matrix product: under autocast one would round probabilities and places to bfloat16.
        return (output.softmax(-1) * self.places(output)).sum(-1)

    @torch.no_grad()
    def encode(self, y: torch.Tensor) -> ValueTarget:
        """Return the probabilities that stand for y."""
        return ValueTarget(y.detach(), self.probabilities(y), self.is_outside(y).float())

    def probabilities(self, y: torch.Tensor) -> torch.Tensor:
        """Return the distribution [..., n_bins] that stands for y [...]."""
        return two_hot(y, self.V_min, self.V_max, self.n_outputs)

    def is_outside(self, y: torch.Tensor) -> torch.Tensor:
        """Return where y lies outside of the range."""
        return (y < self.V_min) | (y > self.V_max)

    def loss(
        self, output: torch.Tensor, target: ValueTarget, delta_clip: float | torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the cross-entropy of logits with the target's probabilities."""
        return categorical_loss(output, target.content.expand_as(output))


@dataclass(frozen=True)
class C51(TwoHot):
    """Value as the mean of a distribution over fixed atoms, trained on the projected distribution of the next row.

    A target that is bootstrapped is the target network's whole distribution, moved and projected onto the atoms; see
    `categorical_projection`. A return without a distribution, as PPO has it, is two-hot.

    Sources: Bellemare et al. 2017, arXiv:1707.06887; with a continuous action Barth-Maron et al. 2018,
    arXiv:1804.08617.
    """

    follows_returns: ClassVar[bool] = True

    n_bins: int = 51
    by_divergence: bool = False
    """Whether the TD error of a row, as its priority is made of it, is the divergence KL(target || output), as Rainbow
    has it (Hessel et al. 2018, arXiv:1710.02298), in the place of the difference of the means."""

    @torch.no_grad()
    def bootstrap(self, next_output: torch.Tensor, backup: Backup) -> ValueTarget:
        """Return the projection of the distribution whose atoms are the targets of the atoms."""
        p = next_output.softmax(-1)
        y = backup(self.places(p).expand_as(p))
        projected = categorical_projection(y, p, self.V_min, self.V_max)
        return ValueTarget((p * y).sum(-1), projected, (p * self.is_outside(y)).sum(-1))

    def td_error(self, output: torch.Tensor, target: ValueTarget, loss: torch.Tensor) -> torch.Tensor:
        """Return the difference of the means, or the divergence."""
        if not self.by_divergence:
            return super().td_error(output, target, loss)
        return (loss.detach() - entropy_of(target.content)).clamp(min=0)


@dataclass(frozen=True)
class HLGauss(TwoHot):
    """Value as the mean of probabilities of bins, trained by cross-entropy with those of a Gaussian around y.

    The bins divide the range into equal parts, and an output stands for the middle of its bin; see `hl_gauss`. Close to
    an end of the range the Gaussian is cut off, so the range should be wider than the values by a few bins.

    Sources: Imani and White 2018, arXiv:1806.04613; Farebrother et al. 2024, arXiv:2403.03950.
    """

    sigma_ratio: float = 0.75
    """Standard deviation of the Gaussian in widths of a bin, above 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.sigma_ratio < math.inf:
            raise ValueError(
                f"HLGauss: sigma_ratio is {self.sigma_ratio!r}; expected a number above 0, in widths of a bin, such "
                "as 0.75. Correct it."
            )

    def places(self, like: torch.Tensor) -> torch.Tensor:
        """Return the middles of the bins."""
        middles = midpoints(self.n_outputs, like.device)
        return self.V_min + (self.V_max - self.V_min) * middles.to(torch.promote_types(like.dtype, middles.dtype))

    def probabilities(self, y: torch.Tensor) -> torch.Tensor:
        """Return the probability of each bin under the Gaussian."""
        return hl_gauss(y, self.V_min, self.V_max, self.n_outputs, self.sigma_ratio)


@dataclass(frozen=True)
class QuantileRegression(ValueHead):
    """Value as the mean of quantiles at the midpoints of equal fractions, trained by quantile regression.

    It has no range. A target that is bootstrapped is made of the target network's quantiles; a return, as PPO has it,
    is one sample.

    Source: Dabney et al. 2018, arXiv:1710.10044.
    """

    follows_returns: ClassVar[bool] = True

    n_quantiles: int = 32
    """Number of outputs, from 1."""

    def __post_init__(self) -> None:
        if self.n_quantiles < 1 or self.n_quantiles % 1:
            raise ValueError(
                f"QuantileRegression: n_quantiles is {self.n_quantiles!r}; expected a whole number from 1. Correct it."
            )

    @property
    def n_outputs(self) -> int:
        """Number of quantiles."""
        return int(self.n_quantiles)

    def mean(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of the quantiles."""
        return output.mean(-1)

    def encode(self, y: torch.Tensor) -> ValueTarget:
        """Return y as the only sample."""
        return ValueTarget(y.detach(), y.detach().unsqueeze(-1))

    @torch.no_grad()
    def bootstrap(self, next_output: torch.Tensor, backup: Backup) -> ValueTarget:
        """Return the targets of the quantiles, as samples."""
        y = backup(next_output)
        return ValueTarget(y.mean(-1), y)

    def loss(
        self, output: torch.Tensor, target: ValueTarget, delta_clip: float | torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the quantile regression loss."""
        samples = target.content.expand(*output.shape[:-1], -1)
        return quantile_huber_loss(output, midpoints(self.n_outputs, output.device), samples, delta_clip)


_HEADS: dict[str, type[ValueHead]] = {
    "expectation": Expectation,
    "c51": C51,
    "two_hot": TwoHot,
    "hl_gauss": HLGauss,
    "quantiles": QuantileRegression,
}


def as_value_head(given: ValueHead | str, name: str = "value_head") -> ValueHead:
    """Return a value head that was given as an object, or as a text.

        "expectation"    "hl_gauss:-10,10"    "two_hot:-10,10,51"    "c51:0,200,101"    "quantiles:32"

    Args:
        given: a text has the arguments of the class in order.
        name: of the setting, the first word of messages.

    Raises:
        TypeError: if it is neither.
        ValueError: if the text stands for no head.
    """
    if isinstance(given, ValueHead):
        return given
    expected = (
        'expected "expectation", "quantiles:32", or one of c51, two_hot and hl_gauss with the range of the values'
    )
    advice = 'such as "hl_gauss:-10,10" or HLGauss(V_min=-10, V_max=10) of rlpyt.functional'
    if not isinstance(given, str):
        raise TypeError(f"{name}: got {given!r:.100} of type {type(given).__name__}; {expected}, {advice}.")
    kind, _, rest = given.partition(":")
    Head = _HEADS.get(kind)
    try:
        numbers = [float(word) for word in rest.split(",")] if rest else []
    except ValueError:
        Head = None
    taken = fields(Head) if Head is not None else ()  # type: ignore[arg-type]
    needed = [f for f in taken if f.default is MISSING]
    if Head is None or not len(needed) <= len(numbers) <= len(taken):
        raise ValueError(f"{name}: got {given!r}; {expected}, {advice}.")
    whole = [int(x) if x.is_integer() and f.type == "int" else x for x, f in zip(numbers, taken, strict=False)]
    return Head(*whole)
