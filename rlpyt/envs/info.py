"""Fields of the info of an environment that are recorded in the samples.

Buffers hold numbers of a fixed shape. info may hold anything, and other fields at other steps. The fields that are
named and can be stored are recorded. The others reach the classes that see each step (TrajInfo), and one notice names
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlpyt.namedarraytuple import Buffer, NamedArrayTuple, namedarraytuple
from rlpyt.types import Info

RESERVED = ("traj_done", "game_score")
"""Fields that samplers and TrajInfo read by themselves."""
_RECORDED_FROM = {"f": "fiub", "i": "iub", "u": "iub", "b": "b"}
"""Which kinds of number may be recorded as which, without losing what they say."""


class InfoRecorder(NamedTuple):
    """Record of info in rows.

    `example` is a row of zeros to allocate buffers from, or None if nothing is recorded. `record` converts an info to a
    row. `notice` is a text to show once about the fields that are not recorded, or empty.
    """

    example: Buffer
    record: Callable[[Info], Buffer]
    notice: str


def info_recorder(
    keys: Iterable[str] | Mapping[str, Any], info_example: Info, ignored: Iterable[str] = ()
) -> InfoRecorder:
    """Return the recorder of some fields of info.

    A field that is missing from an info, or None there, is recorded as zeros.

    Args:
        keys: names of the fields to record, any strings; or a mapping from name to an example, for fields without an
            example in `info_example` (such as those given once in an episode). A numpy example sets the dtype, such as
            `np.float64(0)` for clocks. A Python number, and a field without an example, is recorded as bool, int64 or
            float32.
        info_example: numeric fields that the environment gave (see `check_env`), by name.
        ignored: names of further fields that it gave and that are not numbers, for the notice.

    Raises:
        ValueError: if a key has no example, or its example is not a number or array of numbers.
    """
    examples = {**info_example, **(keys if isinstance(keys, Mapping) else {})}
    names = list(keys)
    unknown = [key for key in names if key not in examples]
    if unknown:
        raise ValueError(
            f"info_recorder: no example of the fields {unknown} was seen; the numeric ones seen are "
            f"{list(info_example)}, not numeric {list(ignored)}. Give a mapping from name to example instead of names."
        )
    left_out = [key for key in [*info_example, *ignored] if key not in [*names, *RESERVED]]
    notice = f"Not recorded from the environment's info: {', '.join(left_out)}." if left_out else ""
    if not names:
        return InfoRecorder(None, lambda info: None, notice)
    nulls = [(key, _null(key, examples[key])) for key in names]
    EnvInfo = namedarraytuple("EnvInfo", names)

    def record(info: Info) -> NamedArrayTuple:
        return EnvInfo(
            *[null if (value := info.get(key)) is None else as_recorded(key, value, null) for key, null in nulls]
        )

    return InfoRecorder(EnvInfo(*[null for _, null in nulls]), record, notice)


def as_recorded(key: str, value: Any, like: np.ndarray) -> np.ndarray:
    """Return a field of info as an array.

    Args:
        key: its name.
        value: given by an environment, or a vector of environments.
        like: an array of the shape and dtype of the record.

    Raises:
        ValueError: if the value has another shape, or does not fit into the dtype.
    """
    array = np.asarray(value)
    if (
        array.shape != like.shape
        or array.dtype.kind not in _RECORDED_FROM[like.dtype.kind]
        or (like.dtype.kind in "iu" and _is_out_of_range(array, like.dtype))
    ):
        raise ValueError(
            f"Recording {key!r} of the environment's info: got {value!r:.100}, {array.dtype} {list(array.shape)}; "
            f"expected {like.dtype} {list(like.shape)}, as it was seen at first. Give an example of its largest kind "
            f"instead of the name alone: env_info_keys={{{key!r}: 0.0}}, say."
        )
    return array


def _is_out_of_range(array: np.ndarray, dtype: np.dtype) -> bool:
    """Return whether an integer dtype is too small for some of these integers."""
    return not np.can_cast(array.dtype, dtype) and bool((array.astype(dtype) != array).any())


def numeric(value: Any) -> np.ndarray | None:
    """Return a value of any kind of number and any shape as an array of bool, int64 or float32; else None."""
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    return array if array.dtype.kind == "b" else None


def _null(key: str, example: Buffer) -> np.ndarray:
    if isinstance(example, np.ndarray | np.generic) and example.dtype.kind in _RECORDED_FROM:
        return np.zeros(example.shape, example.dtype)
    array = numeric(example)
    if array is None:
        raise ValueError(
            f"info_recorder: the example of {key!r} is {example!r:.100}, expected a number or an array of numbers."
        )
    return np.zeros_like(array)
