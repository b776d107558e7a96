"""Checks of the settings of a replay against each other, the agent and the run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlpyt.core import Agent, Replay
from rlpyt.functional import CountLike
from rlpyt.namedarraytuple import Buffer
from rlpyt.utils.arrays import buffer_func, build_array
from rlpyt.utils.shared_memory import free_memory, total_memory


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


def check_sequences(name: str, agent: Agent, batch_T: int | None, batch_B: CountLike | None) -> None:
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


def nominal(example: Buffer, leading_dims: int | Sequence[int]) -> Buffer:
    """Return arrays of the size of those that `buffer_from_example` makes, which take no memory; to read alone."""
    lead = (leading_dims,) if isinstance(leading_dims, int) else tuple(leading_dims)

    def array(x: Buffer) -> np.ndarray:
        one = build_array(x, ())
        return np.broadcast_to(one, lead + one.shape)

    return buffer_func(example, array)


def check_memory(
    n_bytes: int, n_filled: int, who: str, ways_out: str, n_here: int = 1, is_shared: bool = False
) -> None:
    """Refuse a replay that is larger than the memory of the machine or container; warn of one larger than is free.

    Memory that is private is taken when rows are written, so that a run would be killed in the middle. Shared memory is
    taken at the start.

    Args:
        n_bytes: of all rows.
        n_filled: of the rows that the run will have written in the end.
        who: what has the replay, for messages.
        ways_out: what to do about it.
        n_here: replays of this size on the machine.
        is_shared: whether the memory is shared with other processes.

    Raises:
        ValueError: if it cannot be.
    """
    needed, free, total = n_here * (n_bytes if is_shared else n_filled), free_memory(), total_memory()
    if needed <= free:
        return
    many = f", in {n_here} replicas on this machine," if n_here > 1 else ""
    text = f"{who} needs {needed:,} bytes of memory{many} and this process can have {{:,}}{{}}. {ways_out}"
    if is_shared or needed > total:
        raise ValueError(text.format(free if is_shared else total, " at most"))
    warnings.warn(text.format(free, " now: the run may be killed when the replay fills up"), stacklevel=2)


def ways_to_less_memory(example: Sequence[np.ndarray], stacks_frames: bool, n_rows: int, run_rows: int) -> str:
    """Return what makes a replay smaller, as a sentence.

    Args:
        example: arrays of one observation.
        stacks_frames: whether each frame of a stack is kept once.
        n_rows: that the replay holds.
        run_rows: that the run collects.
    """
    size = "Lower replay_size"
    if run_rows < n_rows:
        size += f" (the run has {run_rows:,} rows)"
    stacks = [x.shape[0] for x in example if x.ndim >= 3 and x.shape[0] > 1]
    frames = ""
    if stacks and not stacks_frames:
        n = stacks[0]
        frames = f", give frame_stack={n}, to keep each frame once, if the observation is a stack of {n} frames"
    return f"{size}{frames}, or give replay_folder, to keep the replay in a file."
