"""Checks of the settings of a replay against each other, the agent and the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlpyt.core import Agent, Replay


def check_parts(name: str, parts: dict[str, Callable[..., Any] | None], unused: list[str]) -> None:
    """Refuse parts of a replay that cannot be made, and settings that an index of one's own is not given.

    Args:
        name: of the algorithm's class, for messages.
        parts: ReplayCls and IndexCls by name, as they were given.
        unused: names of the settings that only the library's own index takes, where they are set.

    Raises:
        TypeError: if a part is not callable.
        ValueError: if there are such settings beside IndexCls.
    """
    for field, part in parts.items():
        if part is not None and not callable(part):
            raise TypeError(
                f"{name}: {field} is {part!r:.100}; expected a class, or a function that makes one (docs/replay.md). "
                "Give the class itself."
            )
    if parts["IndexCls"] is not None and unused:
        raise ValueError(
            f"{name}: {', '.join(unused)} and IndexCls are set; expected one or the other, as IndexCls is called with "
            "the random stream alone. Give IndexCls=functools.partial(MyIndex, ...) what it needs."
        )


def check_sequences(name: str, agent: Agent, batch_T: int | None, batch_B: int | None) -> None:
    """Refuse sequences for a feed-forward agent, and a recurrent agent without them.

    Raises:
        ValueError: if they do not go together.
    """
    what = f"{name}: batch_T is {batch_T}, batch_B is {batch_B}"
    if agent.recurrent and (batch_T is None or batch_B is None):
        raise ValueError(
            f"{what}, and the agent, a {type(agent).__name__}, is recurrent: it learns from sequences; expected "
            "both. Give batch_T=40, batch_B=32, warmup_T=20, store_rnn_state_interval=20, say."
        )
    if not agent.recurrent and (batch_T is not None or batch_B is not None):
        raise ValueError(
            f"{what}, and the agent, a {type(agent).__name__}, is feed-forward: it learns from transitions, "
            "batch_size of them an update; expected neither. Set both to None, or use a recurrent agent."
        )


def check_unique_draws(name: str, replay: Replay, B: int, held: int, batch_size: int) -> None:
    """Refuse batches of different places where the first update finds too few of them.

    Args:
        name: of the algorithm's class, for messages.
        replay: draws without repetition.
        B: environments.
        held: rows of each environment in the replay at the first update.
        batch_size: places that an update draws.

    Raises:
        ValueError: if there are fewer places.
    """
    held, least, interval = min(held, replay.size // B), replay.least_rows, replay.interval
    places = ((held - least) // interval + 1) * B
    if batch_size > places:
        rows = least + (math.ceil(batch_size / B) - 1) * interval
        raise ValueError(
            f"{name}: unique_draws is True, and an update draws {batch_size} different places of "
            f"the replay; expected at most the {places} that {held} rows of each of {B} environments have at the "
            f"first one. Raise min_steps_learn and replay_size to {rows * B:,} or more, so that {rows} rows of "
            "each are held, or leave unique_draws out."
        )
