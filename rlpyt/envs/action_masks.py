"""Masks of legal actions, in the observations of an environment or in its info, which become a part of every row.

PettingZoo and its like give a Dict with the keys "observation" and "action_mask"; gymnasium's Taxi gives
`info["action_mask"]`. Either way a row has the mask, and so do batches, replays, checkpoints and final observations.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Dict, MultiBinary

from rlpyt.namedarraytuple import Buffer, namedarraytuple
from rlpyt.spaces import (
    MASK,
    EnvSpaces,
    check_mask,
    choice_sizes,
    has_mask,
    leaf_spaces,
    subspaces,
    to_rows,
    with_mask,
)
from rlpyt.types import Info
from rlpyt.utils.arrays import buffer_func

_INFO = f"info[{MASK!r}]"


class MaskError(ValueError):
    """Error of a mask that is missing or forbids everything, of environment `b` of a batch, or the only one (None)."""

    def __init__(self, text: str, b: int | None) -> None:
        super().__init__(text)
        self.b = b


class EnvMasks:
    """Masks of the legal actions of an environment, or of a vector environment of B.

    A mask is one number for each action, not 0 where it is legal. Those of several choices (`MultiDiscrete`, and
    `MultiBinary`, which has two actions a choice, and the discrete parts of a Dict or Tuple) stand one after the other,
    or are a tuple.

    Whether the masks are in info, the info of the first reset tells, unless `take_from_info` was called before.

    Args:
        own: spaces of the environment.
        name: of the environment, for messages.
        B: environments of a vector environment; None for a single one, whose values have no leading dimension.

    Raises:
        TypeError, ValueError: if the observation has a mask that does not fit the actions.
    """

    def __init__(self, own: EnvSpaces, name: str, B: int | None = None) -> None:
        check_mask(own, name)
        self.own = self.spaces = own
        """Spaces of the environment, and those of its rows."""
        self.in_rows = has_mask(own)
        """Whether rows have a mask."""
        self._of_info, self._B = False, B
        self._sizes = choice_sizes(own.action)
        self._n_of_leaves = [len(choice_sizes(leaf)) for leaf in leaf_spaces(own.action)]
        self._starts = np.cumsum([0, *self._sizes[:-1]])
        self._is_open = bool(self._sizes) and not self.in_rows
        self.newest: np.ndarray | None = None
        """Mask of the newest observation, [sum(sizes)] or [B, sum(sizes)]; None before the first one."""

    def take_from_info(self, whether: bool) -> None:
        """Let the mask in info become a part of the observations, or leave it where it is."""
        if has_mask(self.own) or not self._sizes:
            return
        self._is_open, self.in_rows, self._of_info = False, whether, whether
        self.spaces = with_mask(self.own) if whether else self.own
        if not whether:
            return
        n, lead = sum(self._sizes), () if self._B is None else (self._B,)
        self._Row = namedarraytuple("Dict", [key for key, _ in subspaces(self.spaces.observation)])
        self._mask_to_row, self._all = to_rows(MultiBinary((*lead, n)), _INFO), np.ones((*lead, n), np.int8)
        self._one_to_row = to_rows(MultiBinary(n), _INFO)

    def first_reset(self, info: Info) -> None:
        """Find out whether the mask is in info, if that is not known."""
        if self._is_open:
            self.take_from_info(MASK in info)

    def observed(self, row: Buffer, info: Info, goes_on: bool | np.ndarray) -> Buffer:
        """Return an observation in row form, with the mask in info if it has that, and check its mask.

        Args:
            row: what the environment observes, in row form.
            info: of the same step or reset; of a vector environment in gymnasium's form.
            goes_on: bool, or [B], whether an action follows; after the last step of an episode any mask will do.

        Raises:
            TypeError, ValueError: if the mask in info has another form.
            MaskError: if a mask is missing, or allows nothing in one of its choices.
        """
        if self._of_info:
            mask = self._in_info(info, goes_on) if self._B is None else self._in_infos(info, goes_on)
            row = self._Row(*row, mask) if isinstance(self.own.observation, Dict) else self._Row(row, mask)
        mask = row[MASK]
        flat = np.concatenate(list(mask), -1) if isinstance(mask, tuple) else mask
        may_act = np.logical_or.reduceat(flat, self._starts, -1).all(-1)
        if not (may_act | ~np.asarray(goes_on)).all():
            b = None if self._B is None else int(np.flatnonzero(~may_act & goes_on)[0])
            forbids = "all actions of a choice" if len(self._sizes) > 1 else "all actions"
            raise MaskError(
                f"{MASK}: {(flat if b is None else flat[b]).tolist()} forbids {forbids}; expected a legal one at every "
                "step. Where nothing can be done, end the episode in the step before (terminated), or allow a pass.",
                b,
            )
        if self.newest is None or self._B is None:
            self.newest = np.array(flat)
        else:
            np.copyto(self.newest, flat, where=np.asarray(goes_on)[:, None])  # a reset of some tells nothing of others
        return row

    def legal(self, action: Buffer, where: np.ndarray | None = None) -> Buffer:
        """Return an action in row form, with a legal one in place of each that the newest mask forbids.

        For random and null actions, which know no mask. Of a vector environment they are [B, ...], and those `where`
        [B] is False stay as they are.
        """
        if self.newest is None:
            return action
        if self._B is None:
            return self._legal(action, self.newest)
        action = buffer_func(action, np.copy)
        for b in np.flatnonzero(np.ones(self._B, bool) if where is None else where).tolist():
            action[b] = self._legal(action[b], self.newest[b])
        return action

    def _legal(self, action: Buffer, mask: np.ndarray) -> Buffer:
        masks, counts = iter(np.split(mask != 0, self._starts[1:])), iter(self._n_of_leaves)

        def legal(leaf: Buffer) -> Buffer:
            array = np.asarray(leaf)
            choices = array.flatten()
            for i in range(next(counts)):
                allowed = next(masks)
                if allowed.any() and not allowed[choices[i]]:
                    choices[i] = np.flatnonzero(allowed)[choices[i] % allowed.sum()]
            return choices.reshape(array.shape)[()]

        return buffer_func(action, legal)

    def _in_info(self, info: Info, goes_on: bool | np.ndarray, b: int | None = None) -> np.ndarray:
        value: Buffer = info.get(MASK)
        if value is None:
            if not goes_on:
                return self._all if self._B is None else self._all[0]
            raise MaskError(
                f"{_INFO} is not there; expected the mask of the legal actions at every step and reset, as the first "
                "reset has given it, but for the last step of an episode. Let info have it each time.",
                b,
            )
        if isinstance(value, tuple | list) and len(value) == len(self._sizes) and np.ndim(value[0]) == 1:
            value = np.concatenate(value)  # the form of `MultiDiscrete.sample(mask=...)`
        mask: np.ndarray = self._one_to_row(value)
        return mask

    def _in_infos(self, info: Info, goes_on: bool | np.ndarray) -> np.ndarray:
        """Return the masks in the info of a vector environment, [B, n]."""
        value = np.asarray(info.get(MASK))
        given: np.ndarray = np.asarray(info.get(f"_{MASK}", np.full(self._all.shape[0], value.ndim > 0)))
        if given.all() and value.dtype != object:
            masks: np.ndarray = self._mask_to_row(value)
            return masks
        acts = np.broadcast_to(goes_on, given.shape)
        return np.stack([self._in_info({MASK: value[b]} if there else {}, acts[b], b) for b, there in enumerate(given)])
