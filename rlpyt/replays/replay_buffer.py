"""The replay buffer, put together from a storage that keeps rows and an index that draws among them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import numpy as np

from rlpyt.core import Replay
from rlpyt.functional.returns import n_step_return as window_return
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.replays.index import UniformIndex
from rlpyt.replays.storage import SamplesToBuffer, TransitionStorage
from rlpyt.types import AgentInputs
from rlpyt.utils.arrays import buffer_from_example, torchify_buffer


class SamplesFromReplay(NamedArrayTuple):
    """A batch of n-step transitions, [M] CPU tensors of their own.

    The target of a transition is return_ + bootstrap_discount * (value or Q at target_inputs).
    """

    agent_inputs: AgentInputs
    action: Any
    return_: Any
    """float32, the discounted sum of the rewards up to and including the first end of an episode."""
    terminated: Any
    """bool, the transition ended in termination: bootstrap_discount is 0."""
    bootstrap_discount: Any
    """float32, discount ** (steps summed), or 0."""
    target_inputs: AgentInputs
    """Of the row that the last of the actions led to: the episode's final one where it ended."""


class ReplayBuffer(Replay):
    """Keeps rows and gives back n-step transitions.

    A row can be drawn if it is valid and the ring holds the row before it (its prev_action) and the n_step_return
    rows after it. The oldest row is never drawn, even while nothing has been overwritten: what went before it is not
    known, as environments may have been stepped before the first batch (`max_decorrelation_steps`).

    Args:
        storage: where the rows lie.
        index: draws among them.
        n_step_return: rewards summed in a return, n.
        discount: gamma in [0, 1].

    Raises:
        ValueError: if n_step_return or discount is out of range, or the storage too small for any row to be drawn.
    """

    def __init__(self, storage: TransitionStorage, index: UniformIndex, *, n_step_return: int, discount: float) -> None:
        if n_step_return < 1 or not 0 <= discount <= 1:
            raise ValueError(
                f"Building a replay: got n_step_return={n_step_return} and discount={discount}; expected at least 1 "
                "step and a discount in [0, 1]. Correct the setting."
            )
        least = storage.rows_before + 1 + n_step_return
        if least > storage.T:
            raise ValueError(
                f"Building a replay: got room for {storage.T} rows of each of {storage.B} environments; expected at "
                f"least {least} for n_step_return={n_step_return}. Raise replay_size to {least * storage.B} or more."
            )
        self.storage, self.index = storage, index
        self.n_step_return, self.discount = n_step_return, discount

    @classmethod
    def uniform(
        cls,
        example: SamplesToBuffer,
        *,
        size: int,
        B: int,
        n_step_return: int,
        discount: float,
        rng: np.random.Generator,
        share_memory: bool = False,
    ) -> Self:
        """Build a replay of whole transitions, drawn uniformly.

        Args:
            example: one row, no leading dimensions.
            size: rows to keep, over all environments; rounded up to a multiple of B.
            B: environments.
            n_step_return: rewards summed in a return.
            discount: gamma in [0, 1].
            rng: the stream to draw from, the replay's own.
            share_memory: whether the rows lie in memory that other processes of the run can be given.

        Raises:
            ValueError: if size is too small, or n_step_return or discount out of range.
        """
        allocate = partial(buffer_from_example, share_memory=share_memory)
        storage = TransitionStorage(example, T=math.ceil(size / B), B=B, allocate=allocate)
        return cls(storage, UniformIndex(rng), n_step_return=n_step_return, discount=discount)

    def __len__(self) -> int:
        """Return the rows held, over all environments."""
        return self.storage.held * self.storage.B

    @property
    def size(self) -> int:
        """Rows that it can hold, over all environments."""
        return self.storage.T * self.storage.B

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, filled or not."""
        return self.storage.nbytes

    def append_samples(self, samples: SamplesToBuffer) -> None:
        """Write [T, B] rows at the cursor, over the oldest ones when full; see `TransitionStorage.write`."""
        self.storage.write(samples)

    def sample_batch(self, batch_size: int) -> SamplesFromReplay:
        """Draw transitions, [batch_size].

        Raises:
            ValueError: if batch_size is below 1.
            RuntimeError: if there is no row yet that can be drawn.
        """
        storage = self.storage
        count = storage.held - storage.rows_before - self.n_step_return
        if count < 1:
            raise RuntimeError(
                f"Sampling from a replay: got {storage.held} rows of each of {storage.B} environments; expected at "
                f"least {storage.held - count + 1} for n_step_return={self.n_step_return}. Append more samples first "
                "(raise min_steps_learn)."
            )
        first = (storage.oldest + storage.rows_before) % storage.T
        return self.extract_batch(*self.index.draw(batch_size, storage.rows.valid, first, count))

    def extract_batch(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> SamplesFromReplay:
        """Return the transitions that begin at given rows, [M]; the rows must be ones that can be drawn."""
        storage, rows = self.storage, self.storage.rows
        window = (T_idxs + np.arange(self.n_step_return)[:, None]) % storage.T, B_idxs
        n_step = window_return(
            rows.reward[window], rows.terminated[window], rows.truncated[window], discount=self.discount
        )
        transitions = SamplesFromReplay(
            agent_inputs=storage.agent_inputs(T_idxs, B_idxs),
            action=rows.action[T_idxs, B_idxs],
            return_=n_step.return_,
            terminated=n_step.terminated_n,
            bootstrap_discount=n_step.bootstrap_discount,
            target_inputs=storage.agent_inputs((T_idxs + n_step.steps) % storage.T, B_idxs),
        )
        return torchify_buffer(transitions)

    def check_valid(self) -> tuple[bool, str]:
        """Return whether the rows held are as the row convention says, and where they are not."""
        return self.storage.check_valid()

    def state_dict(self) -> dict[str, Any]:
        """Return rows held (tensors that share the replay's memory), cursor, and random stream."""
        return {"storage": self.storage.state_dict(), "index": self.index.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            ValueError: if it comes from a replay of another size or with other fields.
        """
        self.storage.load_state_dict(state_dict["storage"])
        self.index.load_state_dict(state_dict["index"])
