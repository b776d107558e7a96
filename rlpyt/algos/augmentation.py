"""Random changes of the observations of a batch, made once an update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from rlpyt.algos.feed_part import FeedPart
from rlpyt.algos.replay_rows import is_of_sequences
from rlpyt.functional import random_shift
from rlpyt.namedarraytuple import Buffer
from rlpyt.utils.arrays import buffer_func, buffer_leaves

Augmentation = Callable[[Buffer, int, torch.Generator], Buffer]
"""Changes observations: called with [M, ...] or [T, M, ...] leaves, their leading dimensions (1 or 2), and a generator
on the CPU; returns the same structure. Rows of one sequence must be changed alike."""


@dataclass(frozen=True)
class RandomShift:
    """Random shift of the images among observations, by up to `pad` pixels; other parts stay as they are.

    An image is uint8 [C, height, width]. All rows of a sequence are shifted alike, so that motion is preserved. Used
    once an update it is DrQ with K = M = 1 (Yarats et al. 2021, arXiv:2004.13649).
    """

    pad: int

    def __call__(self, observation: Buffer, n_leading: int, generator: torch.Generator) -> Buffer:
        """Return the observations with shifted images."""
        return buffer_func(
            observation, lambda x: random_shift(x, self.pad, generator) if _is_image(x, n_leading) else x
        )


class Augmented(FeedPart):
    """Change of the observations of each batch of a replay.

    Args:
        change: made once an update.
        generator: on the CPU.
    """

    def __init__(self, change: Augmentation, generator: torch.Generator) -> None:
        self.change, self._generator = change, generator

    def prepare(self, batch: Buffer) -> Buffer:
        """Return a batch with changed observations, those that are bootstrapped from too."""
        names, n_leading = (("all_inputs",), 2) if is_of_sequences(batch) else (("agent_inputs", "target_inputs"), 1)
        changed = {name: self.change(batch[name].observation, n_leading, self._generator) for name in names}
        return batch._replace(**{name: batch[name]._replace(observation=x) for name, x in changed.items()})


def check_images(who: str, pad: int, observation: Buffer) -> None:
    """Check that observations [1, ...] have an image to shift."""
    if not any(_is_image(x, 1) for x in buffer_leaves(observation)):
        raise ValueError(
            f"{who}: random_shift is {pad}, but no part of the observations is an image; expected uint8 "
            "[C, height, width]. Leave random_shift out, or wrap the environment."
        )


def _is_image(x: torch.Tensor, n_leading: int) -> bool:
    return x.dtype == torch.uint8 and x.dim() == n_leading + 3
