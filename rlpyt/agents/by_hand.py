"""Acting without a sampler: one observation at a time, or a batch, as a script that renders or deploys has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np
import torch

from rlpyt.agents.env_group import EnvGroup
from rlpyt.spaces import EnvSpaces, Space, null_action, null_value, subspaces
from rlpyt.utils.arrays import buffer_func, buffer_leaves

NOBODY = EnvGroup(0, [], torch.Generator(), by_hand=True)
"""The environments of an agent that is in charge of none."""


def one_or_many(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of an agent, which takes rows [B, ...], take one without B where no sampler is in charge.

    Args:
        method: called with the agent, observation, previous action and previous reward.
    """

    @wraps(method)
    def called(agent: Any, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        if not agent._group.by_hand:
            return method(agent, observation, prev_action, prev_reward)
        inputs, is_one = rows_of(agent.env_spaces, observation, prev_action, prev_reward)
        agent.charge_rows(len(inputs[2]))
        outputs = method(agent, *inputs)
        return buffer_func(outputs, lambda x: x[0]) if is_one else outputs

    return called


def rows_of(env_spaces: EnvSpaces, observation: Any, prev_action: Any, prev_reward: Any) -> tuple[Any, bool]:
    """Return what an agent is given as tensors [B, ...], and whether it was one row without B.

    Args:
        env_spaces: of the environment.
        observation: in row form but for its dtypes, tensors or arrays, [...] or [B, ...]; of a Dict a dictionary too.
        prev_action: likewise; None is the null action.
        prev_reward: [] or [B]; None is 0.

    Raises:
        ValueError: if shapes are others, or the three do not go together.
    """
    example = (null_value(env_spaces.observation), null_action(env_spaces.action), np.float32(0))
    given = [_tensors(env_spaces.observation, observation, example[0], "observation")]
    is_one = _is_one(given[0], example[0])
    B = () if is_one else (len(buffer_leaves(given[0])[0]),)
    for name, value, null in (("prev_action", prev_action, example[1]), ("prev_reward", prev_reward, example[2])):
        space = env_spaces.action if name == "prev_action" else None
        if value is None:
            value = buffer_func(null, lambda x: np.tile(x, (*B, *(1,) * np.ndim(x))))
        given.append(_tensors(space, value, null, name))
    for name, value, null in zip(("observation", "prev_action", "prev_reward"), given, example, strict=True):
        for leaf, row in zip(buffer_leaves(value), buffer_leaves(null), strict=True):
            if tuple(leaf.shape) != (*B, *np.shape(row)):
                raise ValueError(
                    f"Acting by hand: {name} has the shape {list(leaf.shape)}; expected {[*B, *np.shape(row)]}. Give "
                    "one row of observation, previous action and previous reward, or B rows of each."
                )
    return (buffer_func(tuple(given), lambda x: x[None]) if is_one else tuple(given)), is_one


def _is_one(value: Any, row: Any) -> bool:
    return buffer_leaves(value)[0].dim() == np.ndim(buffer_leaves(row)[0])


def _tensors(space: Space | None, value: Any, row: Any, name: str) -> Any:
    """Return a value as tensors of the dtypes of a row."""
    parts = subspaces(space) if space is not None else []
    if not parts:
        array = value if isinstance(value, torch.Tensor) else torch.as_tensor(_array(value, name))
        return array.to(torch.as_tensor(row).dtype)
    values = [value[key] for key, _ in parts] if isinstance(value, Mapping) else list(value)
    return type(row)(*[_tensors(s, v, r, name) for (_, s), v, r in zip(parts, values, row, strict=True)])


def _array(value: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"Acting by hand: {name} is a {type(value).__name__}, {value!r:.100}; expected one array. Of what "
            "env.reset() of gymnasium returns give the first, and of what env.step(action) returns likewise."
        ) from error
