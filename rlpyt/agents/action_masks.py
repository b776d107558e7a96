"""Masks of legal actions in observations, as an agent reads them: its models see the rest of an observation."""

from __future__ import annotations

import torch
from torch import nn

from rlpyt.functional import legal_choices
from rlpyt.namedarraytuple import Buffer, namedarraytuple
from rlpyt.spaces import MASK, EnvSpaces, check_mask, choice_sizes, has_mask, subspaces, without_mask


class ActionMasks:
    """Masks in the observations of an agent.

    Args:
        env_spaces: of its environments; their observations have a mask (`rlpyt.spaces.has_mask`).
        who: names the agent in messages.

    Raises:
        TypeError, ValueError: if the mask does not fit the actions.
    """

    def __init__(self, env_spaces: EnvSpaces, who: str) -> None:
        check_mask(env_spaces, who)
        self.sizes = choice_sizes(env_spaces.action)
        self.of_models = without_mask(env_spaces)
        """Spaces as models see them."""
        keys = [key for key, _ in subspaces(env_spaces.observation)]
        self._place, rest = keys.index(MASK), [key for key in keys if key != MASK]
        self._Rest = None if rest == ["observation"] else namedarraytuple("Dict", rest)

    def legal(self, observation: Buffer) -> torch.Tensor:
        """Return which actions of observations [...] may be taken, bool [..., n], of several choices concatenated.

        All may where none is legal, as in a final observation, after which there is no action.
        """
        mask = observation.action_mask  # an attribute, as torch can compile
        return legal_choices(torch.cat(tuple(mask), -1) if isinstance(mask, tuple) else mask, self.sizes)

    def hidden(self, observation: Buffer) -> Buffer:
        """Return observations without the mask."""
        rest = [part for place, part in enumerate(observation) if place != self._place]
        return rest[0] if self._Rest is None else self._Rest(*rest)

    def hide_from(self, model: nn.Module) -> None:
        """Give a model observations without the mask, by a hook of torch, which leaves the names of its weights."""
        model.register_forward_pre_hook(self._hook)

    def _hook(self, model: nn.Module, inputs: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return self.hidden(inputs[0]), *inputs[1:]


def masks_of(env_spaces: EnvSpaces, who: str) -> ActionMasks | None:
    """Return the masks in the observations of environments; None where they have none."""
    return ActionMasks(env_spaces, who) if has_mask(env_spaces) else None
