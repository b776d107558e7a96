"""The memory of a sampler's batches: allocated once, shared by environments (numpy) and agent (torch) without a copy.

It is a ring of places, one batch in each. The batch of iteration itr is in place itr % n_places.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch

from rlpyt.core import Agent
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces, null_action, null_value
from rlpyt.types import AgentInputs, AgentSamples, EnvSamples, Samples
from rlpyt.utils.arrays import buffer_from_example, buffer_func, buffer_leaves, numpify_buffer


class RowMemory(NamedArrayTuple):
    """Arrays that are written while batches are collected, each with leading dimensions [n_places, T or T + 1, B].

    `inputs` has one row more than the batch. Its row t is what the agent sees at row t: an observation, and the action
    and reward that came before it. So `prev_action` and `action` are the same memory, one row apart.
    """

    inputs: AgentInputs
    """[n_places, T + 1, B]; the last row is the one after the batch."""
    terminated: Buffer
    truncated: Buffer
    valid: Buffer
    env_info: Buffer
    agent_info: Buffer
    bootstrap_value: Buffer
    """[n_places, 1, B] float32, or None."""
    bootstrap_inputs: AgentInputs | None
    """[n_places, 1, B], or None."""
    resting: Buffer
    """[1, 1, B] bool, the same for all places."""
    last_place: Buffer
    """[1, 1, B] int64, the place of the last whole batch. A new worker reads here where a lost one stopped."""


class Rows:
    """Views of the batch at hand, in which row t of every field belongs to row t; of all columns, or some."""

    def __init__(self, memory: RowMemory) -> None:
        self.memory = memory
        n_places, self.T, self.B = memory.terminated.shape
        self.resting = memory.resting[0, 0]
        """[B] bool, True while an environment is not stepped: its rows are null and not valid."""
        self._last_place = memory.last_place[0, 0]
        of_places = memory._replace(resting=None, last_place=None)
        self.places: list[RowMemory] = [of_places[i] for i in range(n_places)]
        """Memory of every place, leading dimensions [T or T + 1, B]."""
        self.turn_to(int(self._last_place.max(initial=0)))

    def turn_to(self, itr: int) -> None:
        """Show the rows of the batch of an iteration."""
        self.place = itr % len(self.places)
        memory = self.places[self.place]
        self.inputs: AgentInputs = memory.inputs
        """[T + 1, B], what the agent sees at every row and after the last."""
        self.first: AgentInputs = memory.inputs[0]
        """[B], what the agent sees at the first row."""
        self.after: AgentInputs = memory.inputs[-1]
        """[B], what it sees at the row after the batch."""
        self.observation, self.next_observation = memory.inputs.observation[:-1], memory.inputs.observation[1:]
        self.action, self.reward = memory.inputs.prev_action[1:], memory.inputs.prev_reward[1:]
        self.terminated, self.truncated, self.valid = memory.terminated, memory.truncated, memory.valid
        self.env_info, self.agent_info = memory.env_info, memory.agent_info
        self.bootstrap_value, self.bootstrap_inputs = memory.bootstrap_value, memory.bootstrap_inputs
        self._first_leaves, self._after_leaves = buffer_leaves(self.first), buffer_leaves(self.after)

    def begin(self, itr: int = 0) -> None:
        """Turn the row after the last batch into the first of that of an iteration."""
        last = self._after_leaves
        if len(self.places) > 1:
            self.turn_to(itr)
        for first, after in zip(self._first_leaves, last, strict=True):
            first[...] = after

    def end(self) -> None:
        """Note that the batch is whole: the next one begins with the row after it."""
        self._last_place[:] = self.place

    def truncate(self, t: int) -> None:
        """Mark that the episodes stop short of row t, which holds their final observation.

        Where row t is the first of its batch, nothing is marked: a row that is not valid, after one that did not end
        the episode, is the mark.
        """
        if t > 0:
            self.truncated[t - 1] |= self.valid[t - 1] & ~self.terminated[t - 1]

    def deal(self, sizes: Sequence[int]) -> list[Rows]:
        """Return the columns of parts with these numbers of environments, in order."""
        return [Rows(self.memory[:, :, lo:hi]) for lo, hi in pairwise(accumulate(sizes, initial=0))]

    def __reduce__(self) -> tuple[object, ...]:
        return Rows, (self.memory,)


def allocate_rows(
    example: Samples,
    T: int,
    B: int,
    *,
    bootstrap_value: bool = False,
    bootstrap_inputs: bool = False,
    share_memory: bool = False,
    n_places: int = 1,
) -> Rows:
    """Allocate the rows of some batches, zero at first, like an example of one row without leading dimensions.

    There may be a place for the value after the last row, and one for what the agent sees there. Memory that is shared
    other processes can write and read.
    """

    def allocate(leaf: Buffer, length: int, n_places: int = n_places) -> Buffer:
        return buffer_from_example(leaf, (n_places, length, B), share_memory)

    inputs = AgentInputs(example.env.observation, example.agent.action, example.env.reward)
    return Rows(
        RowMemory(
            inputs=allocate(inputs, T + 1),
            terminated=allocate(example.env.terminated, T),
            truncated=allocate(example.env.truncated, T),
            valid=allocate(example.env.valid, T),
            env_info=allocate(example.env.env_info, T),
            agent_info=allocate(example.agent.agent_info, T),
            bootstrap_value=allocate(np.float32(0), 1) if bootstrap_value else None,
            bootstrap_inputs=allocate(inputs, 1) if bootstrap_inputs else None,
            resting=allocate(np.bool_(False), 1, 1),
            last_place=allocate(np.int64(0), 1, 1),
        )
    )


def example_of(agent: Agent, spaces: EnvSpaces, env_info: Buffer) -> Samples:
    """Return one row of what the agent, initialised for the spaces, and an environment give, as numpy.

    Rows are allocated from it. `env_info` is an example of what is recorded of the environment's info, or None.
    """
    actor = agent.actor([0], 1, seed=0)
    actor.begin(0)
    observation = null_value(spaces.observation)
    inputs = buffer_func(
        (observation, null_action(spaces.action), np.float32(0)), lambda x: torch.as_tensor(np.asarray(x)[None])
    )
    # An own agent may give a plain pair.
    action, agent_info = actor.step(*inputs)
    if action is None:
        raise TypeError(
            f"{type(agent).__name__}: no action was returned for one row; expected a tensor [1, ...]. Let step or act "
            "of the agent, or the action of its exploration, return the actions."
        )
    action, agent_info = _first_row(agent, "the action", action), _first_row(agent, "the agent_info", agent_info)
    actor.reset()  # an own agent may keep what it saw; training begins as if this row had not been
    flag, reward = np.bool_(False), np.float32(0)
    return Samples(
        agent=AgentSamples(action, action, agent_info, np.float32(0)),
        env=EnvSamples(
            observation=observation,
            reward=reward,
            prev_reward=reward,
            terminated=flag,
            truncated=flag,
            valid=flag,
            env_info=env_info,
        ),
    )


def _first_row(agent: Agent, name: str, buffer: Buffer) -> Buffer:
    """Return the result of an agent's `step` for the one row of an example."""
    buffer = numpify_buffer(buffer)
    for leaf in buffer_leaves(buffer):
        if np.ndim(leaf) == 0 or len(leaf) != 1:
            raise ValueError(
                f"{type(agent).__name__}.step was given one row, tensors [B, ...] with B = 1, and gave {name} "
                f"with the shape {list(np.shape(leaf))}; expected [1, ...]. Return a value for each row, with the "
                "leading dimension B."
            )
    return buffer_func(buffer, lambda x: x[0])


def samples_of(memory: RowMemory) -> Samples:
    """Return the batch of a place as the algorithm sees it, as numpy views."""
    before, after = memory.inputs[:-1], memory.inputs[1:]
    return Samples(
        agent=AgentSamples(
            action=after.prev_action,
            prev_action=before.prev_action,
            agent_info=memory.agent_info,
            bootstrap_value=memory.bootstrap_value,
            bootstrap_inputs=memory.bootstrap_inputs,
        ),
        env=EnvSamples(
            observation=before.observation,
            reward=after.prev_reward,
            prev_reward=before.prev_reward,
            terminated=memory.terminated,
            truncated=memory.truncated,
            valid=memory.valid,
            env_info=memory.env_info,
        ),
    )
