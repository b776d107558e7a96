"""Info of environments, whose fields are recorded in the samples, and the flags of their steps.

Buffers hold numbers of a fixed shape. info may hold anything, and other fields at other steps. The fields that are
named and can be stored are recorded. The others reach the classes that see each step (TrajInfo), and one notice names
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from rlpyt.namedarraytuple import Buffer, NamedArrayTuple, namedarraytuple
from rlpyt.spaces import MASK
from rlpyt.types import SUCCESS_KEYS, Info

FINAL_KEYS = {
    "final_observation": "final_info",
    "final_obs": "final_info",
    "terminal_observation": "terminal_info",
    "closing_observation": "closing_info",
}
"""Names by which environments that reset themselves give the final observation of an episode, and those of its info."""
SEVERAL_AGENTS = "one policy can play them all by rlpyt.envs.players_make_vec, see docs/howto/several_players.md"
RESERVED = ("traj_done", "game_score", *SUCCESS_KEYS)
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
    keys: Iterable[str] | Mapping[str, Any],
    info_example: Info,
    ignored: Iterable[str] = (),
    heeded: Iterable[str] = (),
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
        heeded: names of fields that are a part of the observation, of which the notice is silent.

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
    read = {*names, *RESERVED, *heeded, *FINAL_KEYS, *FINAL_KEYS.values()}
    left_out = [key for key in [*info_example, *ignored] if key not in read]
    notice = f"Not recorded from the environment's info: {', '.join(left_out)}." if left_out else ""
    masks = [key for key in left_out if "mask" in key.lower()]
    if masks:
        notice += (
            f" No agent heeds {' or '.join(masks)}: a mask of legal actions is the key {MASK!r} of a Dict observation, "
            "or of info from the first reset on (docs/howto/own_environment.md, Masks of actions)."
        )
    if not names:
        return InfoRecorder(None, lambda info: None, notice)
    nulls = [(key, _null(key, examples[key])) for key in names]
    EnvInfo = namedarraytuple("EnvInfo", names)

    def record(info: Info) -> NamedArrayTuple:
        return EnvInfo(
            *[null if (value := info.get(key)) is None else as_recorded(key, value, null) for key, null in nulls]
        )

    return InfoRecorder(EnvInfo(*[null for _, null in nulls]), record, notice)


def as_recorded(key: str, value: object, like: np.ndarray) -> np.ndarray:
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
        or (like.dtype.kind in "iu" and (array.astype(like.dtype) != array).any())
    ):
        raise ValueError(
            f"Recording {key!r} of the environment's info: got {value!r:.100}, {array.dtype} {list(array.shape)}; "
            f"expected {like.dtype} {list(like.shape)}, as it was seen at first. Give an example of its largest kind "
            f"instead of the name alone: env_info_keys={{{key!r}: 0.0}}, say."
        )
    return array


def final_key(info: Info) -> str | None:
    """Return the name by which info has the final observation of an episode; None where it has none."""
    return next((key for key in FINAL_KEYS if info.get(key) is not None), None)


def vector_info(info: object, n: int) -> dict[str, Buffer]:
    """Return the info of a vector environment in gymnasium's form, from that or one dictionary for each environment.

    Args:
        info: a dictionary of arrays [n, ...] by name, a list of n dictionaries as in Stable-Baselines3, or None.
        n: number of environments.

    Returns:
        Arrays [n, ...] by name. Of a list, each name has a mask "_name" too, bool [n], which is True where an
        environment gave it; values that make no array of numbers are an array of objects.

    Raises:
        TypeError: if it is something else.
    """
    if type(info) is dict:
        return info
    if isinstance(info, Mapping):
        return dict(info)
    if info is None:
        return {}
    if isinstance(info, list | tuple) and len(info) == n and all(isinstance(one, Mapping) for one in info):
        found: dict[str, Buffer] = {}
        for key in dict.fromkeys(key for one in info for key in one):
            given = np.array([key in one and one[key] is not None for one in info])
            found[key], found[f"_{key}"] = _stacked([one.get(key) for one in info], given), given
        return found
    raise TypeError(
        f"info: expected a dictionary of arrays [{n}, ...], or a list of {n} dictionaries, got {type(info).__name__} "
        f"{info!r:.100}."
    )


def info_at(info: Info, b: int, n: int | None = None) -> dict[str, Any]:
    """Return the part of one environment in the info of a vector environment.

    It leaves out three kinds of fields: those that this environment did not give, by the mask of gymnasium ("_key",
    bool [B]), the masks themselves, and values that are not arrays with a leading dimension B.

    Args:
        info: arrays [B, ...], or dictionaries of them, by name.
        b: place of the environment in the batch.
        n: B; without it every array that is long enough counts as having that dimension.
    """
    one: dict[str, Any] = {}
    for key, value in info.items():
        mask = info.get(f"_{key}")
        if is_mask_in(info, key) or (is_mask_in(info, f"_{key}") and not cast(np.ndarray, mask)[b]):
            continue
        if isinstance(value, Mapping):
            one[key] = info_at(value, b, n)
        elif isinstance(value, np.ndarray) and value.ndim > 0 and (len(value) > b if n is None else len(value) == n):
            one[key] = value[b]
    return one


def _stacked(values: list[Buffer], given: np.ndarray) -> np.ndarray:
    """Return values as an array of numbers if they have one shape, else as an array of objects."""
    arrays = [as_array(value) if is_given else None for value, is_given in zip(values, given, strict=True)]
    known = [array for array in arrays if array is not None and array.dtype.kind in _RECORDED_FROM]
    if known and len(known) == given.sum() and len({array.shape for array in known}) == 1:
        null = np.zeros_like(known[0])
        return np.stack([null if array is None else array for array in arrays])
    objects = np.empty(len(values), object)
    for b, value in enumerate(values):
        objects[b] = value
    return objects


def as_array(value: object) -> np.ndarray | None:
    """Return a value as an array; None for what has no array, such as lists of unequal lengths."""
    try:
        return np.asarray(value)
    except Exception:  # each library refuses in its own way
        return None


def numeric(value: object) -> np.ndarray | None:
    """Return a value of any kind of number and any shape as an array of bool, int64 or float32; else None."""
    array = as_array(value)
    if array is None:
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


def is_mask_in(info: Info, key: str) -> bool:
    """Return whether a key is gymnasium's mask of another one, bool [B]."""
    mask = info.get(key)
    return key.startswith("_") and key[1:] in info and isinstance(mask, np.ndarray) and mask.dtype == bool


# ---- flags ----


def as_flag(value: object, name: str) -> bool:
    """Return one flag as a bool: a bool of Python or numpy, 0 or 1, or an array or tensor of one such element.

    Raises:
        TypeError: for everything else. `bool` would take the text "False", a list and a dictionary for True.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, list | tuple | Mapping | str | bytes):
        array = as_array(value)
        if array is not None and array.size == 1 and array.dtype.kind in _RECORDED_FROM and array.item() in (0, 1):
            return bool(array.item())
    raise TypeError(f"{name}: expected True or False, got {type(value).__name__} {value!r:.100}.{_hint(value, name)}")


def as_flags(value: object, name: str, n: int) -> np.ndarray:
    """Return the flags of a vector environment, each as in `as_flag`, as bool [n].

    Raises:
        TypeError: if they are no flags.
        ValueError: if they are not n.
    """
    if type(value) is np.ndarray and value.dtype == np.bool_ and value.shape == (n,):
        return value
    array = None if value is None or isinstance(value, Mapping | str | bytes) else as_array(value)
    if array is None or array.dtype.kind not in _RECORDED_FROM:
        raise TypeError(
            f"{name}: expected an array of {n} bools, got {type(value).__name__} {value!r:.100}.{_hint(value, name)}"
        )
    if array.shape != (n,):
        raise ValueError(f"{name}: expected shape {(n,)}, got {array.shape}.")
    if array.dtype.kind != "b" and not ((array == 0) | (array == 1)).all():
        raise TypeError(f"{name}: expected an array of {n} bools, got the numbers {array}.")
    return array.astype(np.bool_)


def _hint(value: object, name: str) -> str:
    if name == "truncated" and isinstance(value, Mapping):
        return " Is it the info? The five are observation, reward, terminated, truncated, info."
    if isinstance(value, Mapping):
        return f" One value for each of several agents is not supported; {SEVERAL_AGENTS}."
    return ""
