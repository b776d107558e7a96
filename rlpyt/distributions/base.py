"""What every distribution over actions can do."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

import torch

from rlpyt.functional import valid_mean
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.old_methods import CheckedSubclasses
from rlpyt.utils.arguments import NamedArguments

Info = TypeVar("Info", bound=NamedArrayTuple)


class Distribution(CheckedSubclasses, Generic[Info], metaclass=NamedArguments):
    """Pure functions of the parameters that a model gives, `dist_info`, under any leading dimensions [...].

    Nothing is kept from call to call. Randomness is an argument too: whoever samples draws the noise first, from the
    stream of its choice.

    The ratio, the perplexity and the means over valid rows are for losses of one's own, by the names of rlpyt 0.1.
    """

    DistInfo: ClassVar[type[NamedArrayTuple]]
    """Type of the parameters; its fields are in the order of the model's outputs."""

    @abstractmethod
    def encode(self, action: torch.Tensor) -> torch.Tensor:
        """Return actions as float32 [..., A], as a model takes its `prev_action`."""

    @abstractmethod
    def draw_noise(self, batch_size: int, generator: torch.Generator) -> torch.Tensor:
        """Return what `sample` needs of chance, [batch_size, ...], on the generator's device."""

    @abstractmethod
    def sample(self, dist_info: Info, noise: torch.Tensor) -> torch.Tensor:
        """Return the actions that the noise selects."""

    @abstractmethod
    def mode(self, dist_info: Info) -> torch.Tensor:
        """Return the most probable actions."""

    @abstractmethod
    def log_prob(self, action: torch.Tensor, dist_info: Info) -> torch.Tensor:
        """Return log p(action), [...]: of densities, that in the action's own units."""

    @abstractmethod
    def entropy(self, dist_info: Info) -> torch.Tensor:
        """Return H(p) = -E log p, [...], in nats."""

    @abstractmethod
    def kl(self, old: Info, new: Info) -> torch.Tensor:
        """Return KL(old || new) = E_old [log old - log new], [...]."""

    def evaluate(self, action: torch.Tensor, dist_info: Info) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log p(action) and H(p), [...] each; cheaper than both apart where they share work."""
        return self.log_prob(action, dist_info), self.entropy(dist_info)

    def likelihood_ratio(self, action: torch.Tensor, old: Info, new: Info) -> torch.Tensor:
        """Return new(action) / old(action), [...]."""
        return torch.exp(self.log_prob(action, new) - self.log_prob(action, old))

    def perplexity(self, dist_info: Info) -> torch.Tensor:
        """Return exp H(p), [...]: how many equally likely actions have the same entropy."""
        return torch.exp(self.entropy(dist_info))

    def mean_entropy(self, dist_info: Info, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Return the mean of the entropy over the valid rows, a scalar."""
        return valid_mean(self.entropy(dist_info), valid)

    def mean_perplexity(self, dist_info: Info, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Return the mean of the perplexity over the valid rows, a scalar."""
        return valid_mean(self.perplexity(dist_info), valid)

    def mean_kl(self, old: Info, new: Info, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Return the mean of KL(old || new) over the valid rows, a scalar."""
        return valid_mean(self.kl(old, new), valid)


def flatten_action(action: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return actions [..., *shape] as [..., A]."""
    return action if len(shape) == 1 else action.reshape(*action.shape[: action.dim() - len(shape)], -1)


def shape_action(action: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return actions [..., A] as [..., *shape]."""
    return action if len(shape) == 1 else action.reshape(action.shape[:-1] + shape)
