"""Product of distributions over the parts of an action, and the distribution that goes with a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import torch
from gymnasium import spaces

from rlpyt.distributions.base import Distribution
from rlpyt.distributions.categorical import DistInfoLogits, categorical_of
from rlpyt.distributions.gaussian import Gaussian
from rlpyt.functional import mask_illegal
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple, namedarraytuple
from rlpyt.spaces import Space, subspaces

AnyDistribution: TypeAlias = Distribution[Any]


class Composite(Distribution[NamedArrayTuple]):
    """Product of independent distributions, one for each part of an action (Dict, Tuple); a part may be a product too.

        log p(a) = sum_i log p_i(a_i),    H(p) = sum_i H(p_i),    KL(p || q) = sum_i KL(p_i || q_i)

    An action is a named array tuple of the parts' actions, as `rlpyt.spaces` has it in rows, and so is the noise.
    `encode` puts the parts one after the other. A model gives the parameters of all parts in their order, each an
    output of its own: the fields of `DistInfo`, such as "aim_mean" of the part "aim".

    Args:
        parts: distribution of each part, by its key in a Dict, or by "0", "1", ... in a Tuple.

    Raises:
        ValueError: if there is no part.
    """

    def __init__(self, parts: Mapping[str, AnyDistribution]) -> None:
        if not parts:
            raise ValueError("Composite: got no parts; expected a distribution for each part of the action space.")
        self.parts = dict(parts)
        self._Row = namedarraytuple("Action", parts)
        fields = {key: part.DistInfo._fields for key, part in parts.items()}
        self.DistInfo = namedarraytuple("DistInfo", [f"{key}_{name}" for key in fields for name in fields[key]])
        self._sizes = [len(names) for names in fields.values()]
        kinds = [part.DistInfo for part in self.leaves() for _ in part.DistInfo._fields]
        self._logits = [place for place, kind in enumerate(kinds) if kind is DistInfoLogits]

    def leaves(self) -> list[AnyDistribution]:
        """Return the distributions that are no products, at any depth, in the order of their parameters."""
        return [leaf for part in self.parts.values() for leaf in leaf_distributions(part)]

    def split(self, dist_info: NamedArrayTuple) -> list[NamedArrayTuple]:
        """Return the parameters of every part."""
        fields = iter(tuple(dist_info))
        pairs = zip(self.parts.values(), self._sizes, strict=True)
        return [part.DistInfo(*[next(fields) for _ in range(size)]) for part, size in pairs]

    def restrict(self, dist_info: NamedArrayTuple, legal: torch.Tensor) -> NamedArrayTuple:
        """Return the parameters with logits of minus infinity for illegal actions.

        Args:
            dist_info: parameters.
            legal: [..., A] bool, of the actions of all discrete parts one after the other.

        Raises:
            TypeError: if a discrete part has a distribution without logits.
        """
        fields = list(tuple(dist_info))
        for place in self._logits:
            n = fields[place].shape[-1]
            fields[place], legal = mask_illegal(fields[place], legal[..., :n]), legal[..., n:]
        if legal.shape[-1]:
            raise TypeError(
                f"Composite: a mask forbids actions of a part without logits; its parts are {self.parts}. Expected "
                "DistInfoLogits as DistInfo of every discrete part. Give it one, or rename the key action_mask."
            )
        return self.DistInfo(*fields)

    def encode(self, action: Buffer) -> torch.Tensor:
        """Return the encoded parts one after the other, float32 [..., A]."""
        return torch.cat([part.encode(x) for part, x in zip(self.parts.values(), action, strict=True)], -1)

    def draw_noise(self, batch_size: int, generator: torch.Generator) -> Buffer:
        """Return the noise of every part, [batch_size, ...] each."""
        return self._Row(*[part.draw_noise(batch_size, generator) for part in self.parts.values()])

    def sample(self, dist_info: NamedArrayTuple, noise: Buffer) -> Buffer:
        """Return the actions of all parts that the noise selects."""
        return self._Row(*[part.sample(info, x) for part, info, x in self._with(dist_info, noise)])

    def mode(self, dist_info: NamedArrayTuple) -> Buffer:
        """Return the most probable action of every part, which together are the most probable ones."""
        pairs = zip(self.parts.values(), self.split(dist_info), strict=True)
        return self._Row(*[part.mode(info) for part, info in pairs])

    def log_prob(self, action: Buffer, dist_info: NamedArrayTuple) -> torch.Tensor:
        """Return log p(action), the sum over the parts, [...]."""
        return _sum([part.log_prob(x, info) for part, info, x in self._with(dist_info, action)])

    def entropy(self, dist_info: NamedArrayTuple) -> torch.Tensor:
        """Return the entropy, the sum over the parts, [...] in nats; that of a Gaussian part may be negative."""
        return _sum([part.entropy(x) for part, x in zip(self.parts.values(), self.split(dist_info), strict=True)])

    def log_prob_and_entropy(self, action: Buffer, dist_info: NamedArrayTuple) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log p(action) and entropy, [...] each; every part shares its work."""
        pairs = [part.log_prob_and_entropy(x, info) for part, info, x in self._with(dist_info, action)]
        return _sum([log_prob for log_prob, _ in pairs]), _sum([entropy for _, entropy in pairs])

    def kl(self, old: NamedArrayTuple, new: NamedArrayTuple) -> torch.Tensor:
        """Return KL(old || new), the sum over the parts, [...]."""
        return _sum([part.kl(x, y) for part, x, y in self._with(old, self.split(new))])

    def _with(
        self, dist_info: NamedArrayTuple, values: Sequence[Buffer]
    ) -> list[tuple[AnyDistribution, NamedArrayTuple, Buffer]]:
        """Return every part with its parameters and its value."""
        return list(zip(self.parts.values(), self.split(dist_info), values, strict=True))


def leaf_distributions(distribution: AnyDistribution) -> list[AnyDistribution]:
    """Return the parts of a product at any depth that are none; of any other distribution it alone."""
    return distribution.leaves() if isinstance(distribution, Composite) else [distribution]


def distribution_of(space: Space, name: str) -> AnyDistribution:
    """Return the distribution of a policy gradient over a space of actions.

    Discrete, MultiDiscrete and MultiBinary have a categorical one, a Box has a Gaussian, a Dict or Tuple the product
    of those of its parts.

    Args:
        space: of the actions.
        name: of the space, for messages.

    Raises:
        TypeError: if there is none for the space, or a part of it.
        ValueError: if a Box has infinite bounds.
    """
    if parts := subspaces(space):
        return Composite({key: distribution_of(part, f"{name}[{key!r}]") for key, part in parts})
    if (choices := categorical_of(space)) is not None:
        return choices
    if not isinstance(space, spaces.Box):
        raise TypeError(
            f"{name} is {space}; expected Discrete, MultiDiscrete, MultiBinary, Box, or Dict or Tuple of these. For "
            "another space return a distribution of your own from make_distribution (docs/howto/own_agent.md)."
        )
    try:
        return Gaussian.from_space(space)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _sum(terms: list[torch.Tensor]) -> torch.Tensor:
    return reduce(add, terms)
