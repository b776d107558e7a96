"""Interface of the distributions over actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import torch

from rlpyt.functional import valid_mean
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.old_rlpyt import tells_old_attributes
from rlpyt.utils.arguments import SuggestsArguments

Info = TypeVar("Info", bound=NamedArrayTuple)


@tells_old_attributes
class Distribution(SuggestsArguments, ABC, Generic[Info]):
    """Distribution over actions, as pure functions of the parameters `dist_info` that a model gives.

    The leading dimensions [...] are any. Actions and noise are tensors, or named array tuples of tensors. No call
    changes the object. Randomness is an argument too: the caller draws the noise first, from a stream of its own, and
    hands it to `sample`.
    """

    DistInfo: type[NamedArrayTuple]
    """Type of the parameters. Its fields have the order of the model's outputs."""

    @abstractmethod
    def encode(self, action: Buffer) -> torch.Tensor:
        """Return actions as float32 [..., A], the form in which a model takes `prev_action`."""

    @abstractmethod
    def draw_noise(self, batch_size: int, generator: torch.Generator) -> Buffer:
        """Return the noise of `sample`, [batch_size, ...] float32, on the generator's device."""

    @abstractmethod
    def sample(self, dist_info: Info, noise: Buffer) -> Buffer:
        """Return the actions that the noise selects, in the dtype and shape of the action space's rows."""

    @abstractmethod
    def mode(self, dist_info: Info) -> Buffer:
        """Return the most probable actions."""

    @abstractmethod
    def log_prob(self, action: Buffer, dist_info: Info) -> torch.Tensor:
        """Return log p(action), [...]; densities are in the action's own units."""

    @abstractmethod
    def entropy(self, dist_info: Info) -> torch.Tensor:
        """Return H(p) = -E log p, [...], in nats."""

    @abstractmethod
    def kl(self, old: Info, new: Info) -> torch.Tensor:
        """Return KL(old || new) = E_old [log old - log new], [...]."""

    def log_prob_and_entropy(self, action: Buffer, dist_info: Info) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log p(action) and H(p), [...] each; a subclass may share work between the two."""
        return self.log_prob(action, dist_info), self.entropy(dist_info)

    def mean_kl(self, old: Info, new: Info, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Return the mean of KL(old || new) over the valid rows, a scalar, for losses with a KL penalty."""
        return valid_mean(self.kl(old, new), valid)


def flatten_action(action: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return actions [..., *shape] as [..., A]."""
    return action if len(shape) == 1 else action.reshape(*action.shape[: action.dim() - len(shape)], -1)


def shape_action(action: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return actions [..., A] as [..., *shape]."""
    return action if len(shape) == 1 else action.reshape(action.shape[:-1] + shape)
