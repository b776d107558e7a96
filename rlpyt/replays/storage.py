"""Where a replay keeps its rows: a ring of time steps, the same for all environments.

The rows lie as the sampler gave them, [T, B], final observations of episodes included, so the state that a row's
action led to is always in the next row of the ring, across the border of two batches too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from rlpyt.functional.checks import check_bool
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.types import AgentInputs
from rlpyt.utils.arrays import buffer_from_example, buffer_nbytes, numpify_buffer

Allocate = Callable[[Any, tuple[int, int]], Any]
"""Makes zeroed numpy arrays from an example of one row and [T, B]; decides where they live."""


class SamplesToBuffer(NamedArrayTuple):
    """What a replay keeps of the samples, [T, B]; see `rlpyt.types` for the fields."""

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    valid: Any


class TransitionStorage:
    """A ring of T x B whole rows; each holds its observation as the agent saw it.

    Args:
        example: one row, no leading dimensions.
        T: time steps to keep.
        B: environments.
        allocate: makes the arrays; `buffer_from_example` keeps them private to the process.

    Raises:
        ValueError: if T or B is below 1.
        TypeError: if a flag of the example is not boolean.
    """

    rows_before = 1
    """Rows that must be held before a row for its agent inputs to be read: one, for prev_action and prev_reward."""

    def __init__(self, example: SamplesToBuffer, T: int, B: int, allocate: Allocate = buffer_from_example) -> None:
        if T < 1 or B < 1:
            raise ValueError(
                f"Building a replay storage: got T={T} time steps of B={B} environments; expected at least 1 of each. "
                "Raise replay_size or batch_B."
            )
        self.T, self.B = T, B
        self.rows: SamplesToBuffer = allocate(example, (T, B))
        """The arrays, [T, B], in ring order."""
        rows = self.rows
        check_bool("A replay's example", terminated=rows.terminated, truncated=rows.truncated, valid=rows.valid)
        self._written = 0  # time steps ever, so that it gives the cursor and whether the ring is full

    @property
    def cursor(self) -> int:
        """The time index that is written next."""
        return self._written % self.T

    @property
    def held(self) -> int:
        """Time steps held, at most T."""
        return min(self._written, self.T)

    @property
    def oldest(self) -> int:
        """The time index of the oldest step held."""
        return (self._written - self.held) % self.T

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return buffer_nbytes(self.rows)

    def write(self, rows: SamplesToBuffer) -> None:
        """Write rows at the cursor, over the oldest ones when full; of more than T time steps the newest T stay.

        Where the first of them is not valid and the row before it goes on, an environment was lost between them (its
        worker died, or it could not be put back when a run was resumed): the row before is marked as truncated.

        Args:
            rows: [t, B] arrays or CPU tensors, any t.

        Raises:
            ValueError: if the fields, B or a shape differ from the example's.
            TypeError: if a dtype cannot be stored as the example's.
        """
        rows = numpify_buffer(rows)
        t = self._check(rows)
        if self.held and t:
            last = (self._written - 1) % self.T
            self.rows.truncated[last] |= self.rows.valid[last] & ~self.rows.terminated[last] & ~rows.valid[0]
        skipped = max(t - self.T, 0)
        self.rows[(self._written + np.arange(skipped, t)) % self.T] = rows[skipped:]
        self._written += t

    def agent_inputs(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> AgentInputs:
        """Return what the agent was given at rows, [M]; the row before each must be held.

        At an episode's start the row before is a final one, whose action is null and whose reward is zero, as
        prev_action and prev_reward must be there. Fancy indexing over two dimensions copies images as fast as
        `numpy.take` on flat views does (98 us for 32 x 4 x 84 x 84 bytes).
        """
        before = (T_idxs - 1) % self.T
        rows = self.rows
        return AgentInputs(rows.observation[T_idxs, B_idxs], rows.action[before, B_idxs], rows.reward[before, B_idxs])

    def state_dict(self) -> dict[str, Any]:
        """Return the rows held, as tensors that share the arrays' memory, and the count of steps written."""
        arrays = {name: torch.from_numpy(leaf[: self.held]) for name, leaf in _named_leaves(self.rows).items()}
        return {"T": self.T, "written": self._written, "arrays": arrays}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            ValueError: if it comes from a storage of another size or with other fields.
        """
        leaves = _named_leaves(self.rows)
        arrays = {name: numpify_buffer(array) for name, array in state_dict["arrays"].items()}
        held = min(state_dict["written"], self.T)
        came = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
        fits = {name: ((held, *leaf.shape[1:]), str(leaf.dtype)) for name, leaf in leaves.items()}
        if state_dict["T"] != self.T or came != fits:
            raise ValueError(
                f"Loading a replay: got T={state_dict['T']} with {came}; expected T={self.T} with {fits}. Build the "
                "algorithm with the replay_size, batch_B and environment of the run that saved it."
            )
        for name, leaf in leaves.items():
            leaf[:held] = arrays[name]
        self._written = state_dict["written"]

    def check_valid(self) -> tuple[bool, str]:
        """Return whether the rows held are as the row convention says, and where they are not."""
        order = (self.oldest + np.arange(self.held)) % self.T
        reward, terminated, truncated, valid = (
            x[order] for x in (self.rows.reward, self.rows.terminated, self.rows.truncated, self.rows.valid)
        )
        done = terminated | truncated
        broken = {
            "is valid, after a row that ended an episode": valid[1:] & done[:-1],
            "is not valid but ends an episode": ~valid & done,
            "is not valid but has a reward": ~valid & (reward != 0),
        }
        for what, where in broken.items():
            if where.any():
                age, b = np.argwhere(where)[0] + (len(valid) - len(where), 0)
                return False, f"Row [{order[age]}, {b}] {what}."
        return True, ""

    def _check(self, rows: SamplesToBuffer) -> int:
        """Refuse rows unlike the example; return how many time steps they are."""
        came, leaves = _named_leaves(rows), _named_leaves(self.rows)
        shapes = {name: leaf.shape for name, leaf in came.items()}
        t = shapes.get("reward", ())[:1]
        if shapes != {name: (*t, *leaf.shape[1:]) for name, leaf in leaves.items()}:
            expected = {name: ("T", *leaf.shape[1:]) for name, leaf in leaves.items()}
            raise ValueError(
                f"Appending to a replay of {self.B} environments: got {shapes}; expected {expected}, as its example. "
                "Was the replay built for another batch_B or another environment?"
            )
        for name, leaf in leaves.items():
            if not np.can_cast(came[name].dtype, leaf.dtype, "same_kind"):
                raise TypeError(
                    f"Appending to a replay: got {name} of dtype {came[name].dtype}; expected {leaf.dtype}, the "
                    "example's. Convert it, or build the replay from a row of these samples."
                )
        return t[0]


def _named_leaves(buffer: Any, name: str = "") -> dict[str, np.ndarray]:
    """Return the arrays of a buffer under their paths, such as "observation.image"; None is left out."""
    if buffer is None:
        return {}
    if not isinstance(buffer, tuple):
        return {name: buffer}
    children = buffer.items() if isinstance(buffer, NamedArrayTuple) else enumerate(buffer)
    prefix = f"{name}." if name else ""
    return {path: leaf for key, child in children for path, leaf in _named_leaves(child, f"{prefix}{key}").items()}
