"""Acting without a sampler: one observation at a time, or a batch, as a script that renders or deploys has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rlpyt.agents.actor import ModelActor, of_its_kind
from rlpyt.core import Agent, example_inputs
from rlpyt.envs import EnvAdapter
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, has_mask, null_value, same_rows, subspaces
from rlpyt.utils.arrays import buffer_func, buffer_leaves


class ByHand:
    """Acting of an agent in environments of a script, without a sampler; the agent's methods of this kind call it.

    `eval_mode` and `sample_mode` begin an episode in evaluation or in training; without either the first `step` acts as
    after `eval_mode(0)`. The noise follows torch's global seed.

    It makes actors for as many rows as a script gives; or it is given that of a sampler, for which an agent whose class
    has a `step` of its own acts (see `rlpyt.compat.steps`).
    """

    def __init__(self, agent: Agent, actor: ModelActor | None = None) -> None:
        self._agent = of_its_kind(agent)
        self._actor = actor
        self._in_training: ModelActor | None = None
        self._of_sampler = actor is not None
        self.mode: str | None = None
        """Which mode method was called last in this process: "train", "sample" or "eval"; None before."""

    @property
    def actor(self) -> ModelActor:
        """Actor of the rows that were given last."""
        if self._actor is None:
            self._agent.eval_mode(0)
        assert self._actor is not None
        return self._actor

    def _new_actor(self, n_rows: int, evaluation: bool) -> ModelActor:
        self._agent.networks.check_built()
        seed = int(torch.randint(2**31 - 1, ()))
        return self._agent.ActorCls(self._agent, range(n_rows), n_rows, seed, evaluation=evaluation, by_hand=True)

    def sample_mode(self, itr: int) -> None:
        """Make ready to act as in training, where the episodes stand."""
        self.mode = "sample"
        if not self._of_sampler:
            self._in_training = self._in_training or self._new_actor(1, evaluation=False)
            self._actor = self._in_training
        self.actor.begin(itr)

    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        """Make ready to act as in evaluation, from fresh episodes; see `rlpyt.core.Agent`."""
        self.mode = "eval"
        if not self._of_sampler:
            self._actor = self._new_actor(1, evaluation=True)
        self.actor.begin(itr, deterministic)
        if not self._of_sampler:
            self._agent.reset()  # an agent may keep a state of its own

    def of_rows(self, method: Callable[..., Any], *row: Buffer) -> Buffer:
        """Return the result of a method of the actor for rows [B, ...], or for one row without B; see `rows_of`."""
        actor = self.actor
        if self._of_sampler:
            return method(actor, *row)
        inputs, is_one = rows_of(self._agent.env_spaces, *row)
        n_rows = len(inputs[2])
        if n_rows != len(actor.env_ranks):
            before, actor = actor, self._new_actor(n_rows, actor.evaluation)
            actor.begin(before.itr, before.deterministic)
            self._actor = actor
            if not actor.evaluation:
                self._in_training = actor
        outputs = method(actor, *inputs)
        return buffer_func(outputs, lambda x: x[0]) if is_one else outputs

    # ---- for an agent's own `step` ----

    @property
    def deterministic(self) -> bool:
        """Whether an evaluation asks for the most probable action."""
        return self._actor is not None and self._actor.deterministic

    def draw_noise(self) -> torch.Tensor:
        """Return the noise [B, ...] that the distribution's `sample` takes, once a step."""
        return self.actor.draw(self._agent.distribution.draw_noise)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Make the agent's methods use the actor of a sampler, which calls them, while the context is open."""
        before, self._agent.by_hand = self._agent.by_hand, self
        self.mode = before.mode  # an agent has one mode, by which its own methods know what was before
        try:
            yield
        finally:
            before.mode = self.mode
            self._agent.by_hand = before


def rows_of(
    env_spaces: EnvSpaces, observation: Buffer, prev_action: Buffer, prev_reward: Buffer
) -> tuple[Buffer, bool]:
    """Return the inputs of an agent as tensors [B, ...], and whether they were one row without B.

    All three are in row form but for their dtypes, tensors or arrays, [...] or [B, ...]; of a Dict a dictionary too. A
    previous action or reward that is None is the null one. Other shapes are refused.
    """
    space, null = env_spaces.observation, null_value(env_spaces.observation)
    rows = as_tensors(space, observation, null, "observation")
    first = buffer_leaves(rows)[0]
    is_one = first.dim() == np.ndim(buffer_leaves(null)[0])
    _, null_actions, null_rewards = nulls = example_inputs(env_spaces, 1 if is_one else len(first))
    action = None if prev_action is None else as_tensors(env_spaces.action, prev_action, null_actions, "prev_action")
    reward = None if prev_reward is None else as_tensors(None, prev_reward, null_rewards, "prev_reward")
    given = buffer_func((rows, action, reward), lambda x: x[None]) if is_one else (rows, action, reward)
    inputs = tuple(null if x is None else x for x, null in zip(given, nulls, strict=True))
    for name, value, expected in zip(("observation", "prev_action", "prev_reward"), inputs, nulls, strict=True):
        for x, null in zip(buffer_leaves(value), buffer_leaves(expected), strict=True):
            if x.shape != null.shape:
                raise ValueError(
                    f"Acting by hand: {name} has the shape {list(x.shape[is_one:])}; expected "
                    f"{list(null.shape[is_one:])}. Give one row of observation, previous action and previous reward, "
                    "or B rows of each."
                )
    return inputs, is_one


def check_spaces(expected: EnvSpaces, env: EnvAdapter) -> None:
    """Check that an environment has the agent's spaces; bounds of observations may differ.

    The mask of legal actions becomes a part of its observations where the agent was trained with that.
    """
    env.masks.take_from_info(has_mask(expected))
    if not (same_rows(env.spaces.observation, expected.observation) and env.spaces.action == expected.action):
        raise ValueError(
            f"Playing in {env.name}: its spaces are {env.spaces}; expected those of the agent, {expected}. Make the "
            "environment with the class and arguments that the agent was trained with."
        )


def as_tensors(space: Space | None, value: Buffer, like: Buffer, name: str) -> Buffer:
    """Return a value, of a Dict a dictionary too, as tensors of the dtypes of a row."""
    if parts := subspaces(space) if space is not None else []:
        values = [value[key] for key, _ in parts] if isinstance(value, Mapping) else list(value)
        return type(like)(*[as_tensors(s, v, x, name) for (_, s), v, x in zip(parts, values, like, strict=True)])
    like = torch.as_tensor(like)
    if isinstance(value, torch.Tensor):
        return value.to(like.dtype)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths, or a tuple with an info
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"Acting by hand: {name} is a {type(value).__name__}, {value!r:.100}; expected one array. Of what "
            "env.reset() of gymnasium returns give the first, and of what env.step(action) returns likewise."
        )
    # A copy, as torch takes no flipped views and warns of arrays that are read-only.
    return torch.from_numpy(np.array(array, like.numpy().dtype, order="C", subok=False))
