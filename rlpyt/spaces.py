"""Spaces, and the conversion of values between an environment and rows.

An environment uses the values of gymnasium: dictionaries, tuples, float64, indices with any start. Agents and buffers
use rows: numpy arrays and named array tuples of them, float32, indices from 0. `to_rows` and `to_env` inspect a space
once and return a function that converts each value. So a step does only the work that its space needs.

| space | row form |
|---|---|
| Box | array of the space's shape; float64 becomes float32, every other dtype is kept, in native byte order |
| Discrete | int64 scalar, `value - start` |
| MultiDiscrete | int64 array, `value - start` |
| MultiBinary | int8 array |
| one of your own, with a shape and a dtype of numbers | array, as of a Box without bounds |
| Dict, Tuple | named array tuple; its fields are the keys in the space's order, or "0", "1", ... |
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from numpy.typing import ArrayLike, DTypeLike

from rlpyt.namedarraytuple import Buffer, NamedArrayTuple, namedarraytuple
from rlpyt.utils.arguments import named_arguments

Space: TypeAlias = "gymnasium.Space[Any]"
Converter: TypeAlias = Callable[[Any], Any]

_SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
# Kinds of numbers that may be stored as each kind without loss.
_STORED_FROM = {"f": "fiub", "i": "iub", "u": "iub", "b": "biu"}
# From this size on OpenBLAS starts threads for a dot product. On busy cores they cost far more than they save.
_BLAS_THREADS_FROM = 10_000


class EnvSpaces(NamedTuple):
    """Observation space and action space of one environment."""

    observation: Space
    action: Space


MASK = "action_mask"
"""Key of a Dict observation, or of info, whose value says which actions are legal."""


def to_rows(space: Space, name: str = "observation") -> Converter:
    """Return a function that checks values of an environment and converts them to row form.

    The function raises TypeError for a value of the wrong kind: None, a float for an integer space, a list for a Dict.
    It raises ValueError for a wrong shape, wrong keys, an index out of range, and NaN or infinity. Values that have
    the row form already are returned as they are, without a copy.

    Args:
        space: of the values.
        name: of the values, for messages.

    Raises:
        TypeError: if the space is not in the table above.
    """
    match space:
        case Discrete():
            return _discrete_to_row(space, name)
        case MultiDiscrete():
            return _multi_discrete_to_row(space, name)
        case MultiBinary():
            return _binary_to_row(space, name)
        case Dict():
            return _dict_to_row(space, name)
        case Tuple():
            return _tuple_to_row(space, name)
        case _ if _is_array(space):
            return _array_to_row(space, name)
    _refuse(space, name)


def to_env(space: Space, name: str = "action") -> Converter:
    """Return the inverse of `to_rows` for actions: from the row form of an agent to the values of an environment.

    Box actions are clipped to [low, high] in each dimension, and rounded if the space holds integers. They have the
    shape and dtype of the space. Those of a space of your own are not clipped. Discrete actions are Python integers.
    The function raises ValueError for NaN and for an index out of range, on which native environments may hang.

    Args:
        space: the action space of the environment.
        name: of the actions, for messages.

    Raises:
        TypeError: if the space is not in the table above.
    """
    match space:
        case Discrete():
            return _discrete_to_env(space, name)
        case MultiDiscrete():
            return _multi_discrete_to_env(space, name)
        case MultiBinary():
            return lambda row: np.asarray(row, np.int8).reshape(space.shape)
        case Dict():
            parts = {key: to_env(s, f"{name}[{key!r}]") for key, s in subspaces(space)}
            return lambda row: {key: part(row[key]) for key, part in parts.items()}
        case Tuple():
            places = [to_env(s, f"{name}[{key}]") for key, s in subspaces(space)]
            return lambda row: tuple(part(x) for part, x in zip(places, row, strict=True))
        case _ if _is_array(space):
            return _box_to_env(space, name)
    _refuse(space, name)


def arrays_to_rows(space: Space, values: Buffer, n: int, name: str) -> Buffer:
    """Return many values of a space as rows [n, ...], checked as those of `to_rows` are; always copies.

    Args:
        space: of the values.
        values: array [n, ...]; of a Dict a mapping and of a Tuple a sequence of such arrays.
        n: how many.
        name: of the values, for messages.

    Raises:
        TypeError: if they are of another kind, such as floats of a Discrete.
        ValueError: if they have another shape, other keys, an index out of range, NaN or infinity.
    """
    if parts := subspaces(space):
        of_key = (
            values
            if isinstance(values, Mapping)
            else dict(enumerate(values))
            if isinstance(values, tuple | list)
            else None
        )
        if of_key is None or {str(key) for key in of_key} != {key for key, _ in parts}:
            got = f"a {type(values).__name__}" if of_key is None else list(of_key)
            raise ValueError(f"{name}: expected the parts {[key for key, _ in parts]} of {space}, got {got}.")
        by_name = {str(key): value for key, value in of_key.items()}
        return _row_type(space)(*[arrays_to_rows(s, by_name[key], n, f"{name}[{key!r}]") for key, s in parts])
    rows = _cast(values, (n, *(space.shape or ())), _row_dtype(space), name)
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise ValueError(f"{name}: expected finite numbers, got {np.count_nonzero(~np.isfinite(rows))} others.")
    if isinstance(space, Discrete | MultiDiscrete):
        rows -= np.asarray(space.start, np.int64)
    sizes = space.nvec if isinstance(space, MultiDiscrete) else (choice_sizes(space) or [0])[0]
    if np.any(sizes) and ((rows < 0) | (rows >= sizes)).any():
        raise ValueError(f"{name}: values from {np.min(values)} to {np.max(values)} are none of {space}.")
    return rows


def rows_to_arrays(space: Space, rows: Buffer) -> Buffer:
    """Return the inverse of `arrays_to_rows`, in the dtypes of the space: float64 of a Box that has it."""
    parts = subspaces(space)
    if isinstance(space, Dict):
        return {key: rows_to_arrays(part, rows[key]) for key, part in parts}
    if isinstance(space, Tuple):
        return tuple(rows_to_arrays(part, rows[key]) for key, part in parts)
    start = space.start if isinstance(space, Discrete | MultiDiscrete) else 0
    return np.asarray(rows + start, space.dtype) if np.any(start) else np.asarray(rows, space.dtype)


def null_value(space: Space) -> Buffer:
    """Return zeros in row form: an example to allocate buffers from, and a placeholder observation."""
    match space:
        case Discrete():
            return np.int64(0)
        case Dict() | Tuple():
            return _row_type(space)(*[null_value(s) for _, s in subspaces(space)])
        case _ if _is_array(space):
            return np.zeros(space.shape or (), _row_dtype(space))
    _refuse(space, "a value")


def null_action(space: Space) -> Buffer:
    """Return `null_value`, but for a Box the centre of its finite bounds, which models see as 0."""
    if isinstance(space, Dict | Tuple):
        return _row_type(space)(*[null_action(s) for _, s in subspaces(space)])
    if not isinstance(space, Box):
        return null_value(space)
    bounded = space.bounded_below & space.bounded_above
    return (np.where(bounded, space.low, 0) / 2 + np.where(bounded, space.high, 0) / 2).astype(_row_dtype(space))


def random_value(space: Space, rng: np.random.Generator) -> Buffer:
    """Return `space.sample()` in row form.

    Args:
        space: to sample from.
        rng: seeds the space before it samples.

    Raises:
        ValueError: if the bounds of a Box are too far apart to sample from.
    """
    space.seed(int(rng.integers(2**31)))
    try:
        sample = space.sample()
    except OverflowError as error:
        raise ValueError(
            f"Sampling from the space {space}: {error}; expected bounds whose difference is a finite number of its "
            "dtype, or infinite ones. Mend the Box in the environment."
        ) from error
    return to_rows(space, "sample")(sample)


def subspaces(space: Space) -> list[tuple[str, Space]]:
    """Return the names and parts of a Dict or Tuple space, in the order of the fields of a row."""
    if isinstance(space, Dict):
        return list(space.spaces.items())
    return [(str(i), s) for i, s in enumerate(space.spaces)] if isinstance(space, Tuple) else []


def leaf_spaces(space: Space) -> list[Space]:
    """Return the spaces in a Dict or Tuple at any depth, in the order of a row's leaves; of any other it alone."""
    parts = subspaces(space)
    return [leaf for _, part in parts for leaf in leaf_spaces(part)] if parts else [space]


def same_rows(a: Space, b: Space) -> bool:
    """Return whether values of both spaces have the same row form and meaning; the bounds of a Box may differ."""
    if isinstance(a, Box) and isinstance(b, Box):
        return a.shape == b.shape and a.dtype == b.dtype
    parts_a, parts_b = dict(subspaces(a)), dict(subspaces(b))
    if not parts_a or not parts_b:
        return a == b
    return list(parts_a) == list(parts_b) and all(same_rows(part, parts_b[key]) for key, part in parts_a.items())


def is_image(space: Space) -> bool:
    """Return whether observations of a space are read as images: a Box of uint8 with three dimensions.

    They are [C, height, width]. The default models convolve these, divided by their upper bound, and flatten every
    other Box.
    """
    return isinstance(space, Box) and len(space.shape) == 3 and space.dtype == np.uint8


def choice_sizes(space: Space) -> list[int]:
    """Return how many actions each choice of a discrete space has, such as [n] of a Discrete; [] for other spaces.

    The choices of a Dict or Tuple are those of its discrete parts one after the other.
    """
    match space:
        case Discrete():
            return [int(space.n)]
        case MultiDiscrete():
            return [int(n) for n in np.ravel(space.nvec)]
        case MultiBinary():
            return [2] * math.prod(space.shape)
    return [size for _, part in subspaces(space) for size in choice_sizes(part)]


def has_mask(spaces: EnvSpaces) -> bool:
    """Return whether observations have a mask of the legal actions: a Dict's key `MASK`, where there are choices."""
    observation = spaces.observation
    return isinstance(observation, Dict) and MASK in observation.spaces and bool(choice_sizes(spaces.action))


def with_mask(spaces: EnvSpaces) -> EnvSpaces:
    """Return the spaces of an environment whose mask of legal actions is a part of its observations, too.

    An observation that is no Dict becomes the key "observation" of one.
    """
    of_dict = isinstance(spaces.observation, Dict)
    parts = subspaces(spaces.observation) if of_dict else [("observation", spaces.observation)]
    return spaces._replace(observation=Dict([*parts, (MASK, MultiBinary(sum(choice_sizes(spaces.action))))]))


def without_mask(spaces: EnvSpaces) -> EnvSpaces:
    """Return the spaces as models see them: without the mask, and a Dict that has "observation" alone beside is that.

    So it is the opposite of `with_mask`.
    """
    if not has_mask(spaces):
        return spaces
    parts = [(key, part) for key, part in subspaces(spaces.observation) if key != MASK]
    alone = [key for key, _ in parts] == ["observation"]
    return spaces._replace(observation=parts[0][1] if alone else Dict(parts))


def check_mask(spaces: EnvSpaces, name: str) -> None:
    """Refuse observations whose mask does not fit the actions.

    Args:
        spaces: of the environment; without a mask all is well.
        name: of the environment, for messages.

    Raises:
        TypeError: if the mask is of floats, or of a space that has no numbers.
        ValueError: if it has another length, or there is nothing beside it.
    """
    if not has_mask(spaces):
        return
    of_keys, sizes = dict(subspaces(spaces.observation)), choice_sizes(spaces.action)
    mask = of_keys[MASK]
    parts = [part for _, part in subspaces(mask)] if isinstance(mask, Tuple) else [mask]
    form = f"{sum(sizes)} zeros and ones, such as MultiBinary({sum(sizes)})"
    if len(sizes) > 1:
        form += f": the masks of the {len(sizes)} choices one after the other, or a Tuple of them"
    got = f"{name}: observation[{MASK!r}] is {mask}, and the actions are {spaces.action}"
    mend = "Mend the space; a key that is no mask of actions needs another name."
    if not all(isinstance(part, Box | MultiBinary | MultiDiscrete) and part.dtype.kind in "biu" for part in parts):
        raise TypeError(f"{got}; expected integers or bools: {form}. {mend}")
    if [part.shape for part in parts] not in ([(sum(sizes),)], [(n,) for n in sizes]):
        raise ValueError(f"{got}; expected {form}. {mend}")
    if len(of_keys) == 1:
        raise ValueError(f"{got}; expected what a network sees beside the mask. Add a key `observation`.")


def check_action_space(space: Space, name: str = "action_space") -> None:
    """Refuse bounds that no action can be scaled to. Infinite bounds are allowed here.

    Raises:
        ValueError: if a bound is NaN, or low is above high.
    """
    for key, part in subspaces(space):
        check_action_space(part, f"{name}[{key!r}]")
    if isinstance(space, Box) and not (space.low <= space.high).all():
        raise ValueError(
            f"{name}: every bound must be a number with low <= high, got low {space.low} and high "
            f"{space.high}. Mend the Box in the environment."
        )


class FrameStack(Box):
    """Box of frame stacks: the first dimension holds the frames, oldest first, and each row adds one frame.

    A replay stores every frame of such observations once (see `rlpyt.replays.FrameArray`).

    Args:
        low: lower bound, as in `gymnasium.spaces.Box`.
        high: upper bound, as in `gymnasium.spaces.Box`.
        shape: [n_frames * k, ...]; a frame has k channels.
        dtype: of the numbers.
        n_frames: frames in a stack.

    Raises:
        ValueError: if the first dimension is no multiple of n_frames.
    """

    def __init__(self, low: Any, high: Any, shape: tuple[int, ...], dtype: Any, *, n_frames: int) -> None:
        if n_frames < 1 or not shape or shape[0] % n_frames:
            raise ValueError(
                f"FrameStack: got the shape {shape} and n_frames={n_frames}; expected the first dimension to hold that "
                "many frames one after the other. Correct one of them."
            )
        super().__init__(low, high, shape, dtype)
        self.n_frames = n_frames

    @classmethod
    def of(cls, space: Any, n_frames: int) -> FrameStack:
        """Return a Box that is known to hold stacks of frames."""
        return cls(space.low, space.high, space.shape, space.dtype, n_frames=n_frames)


def frame_counts(space: Space) -> Any:
    """Return the number of frames stacked in an observation, 1 for no stack; a tuple where the observation is one."""
    if isinstance(space, Dict | Tuple):
        return tuple(frame_counts(part) for _, part in subspaces(space))
    return space.n_frames if isinstance(space, FrameStack) else 1


def as_gymnasium(space: Any) -> Space:
    """Return the space of gymnasium for a space of gymnasium or old gym, which is known by the name of its class.

    Raises:
        TypeError: if it is neither.
    """
    if isinstance(space, gymnasium.Space):
        return space
    classes = {cls.__name__ for cls in type(space).__mro__}
    if "Box" in classes:
        return Box(space.low, space.high, space.shape, space.dtype)
    if "Discrete" in classes:
        return Discrete(int(space.n), start=int(vars(space).get("start", 0)))
    if "MultiDiscrete" in classes:
        return MultiDiscrete(space.nvec)
    if "MultiBinary" in classes:
        return MultiBinary(space.n)
    if "Dict" in classes:
        return Dict({key: as_gymnasium(s) for key, s in space.spaces.items()})
    if "Tuple" in classes:
        return Tuple([as_gymnasium(s) for s in space.spaces])
    raise TypeError(f"Got {type(space).__name__} {space!r} for a space; expected gymnasium's {_SUPPORTED}.")


@named_arguments
def IntBox(low: int, high: int, shape: tuple[int, ...] | None = None, dtype: DTypeLike = "int32") -> Space:
    """Return the integers of range(low, high), Discrete without a shape, else Box. For uint8, high=255 includes 255.

    A sample of a Discrete is a numpy integer, not an array as in rlpyt 0.1: `torch.as_tensor` takes it, and
    `torch.from_numpy` does not.
    """
    if shape is None:
        return Discrete(high - low, start=low)
    is_image = high == 255 and np.dtype(dtype) == np.uint8  # as rlpyt 0.1 and its users wrote spaces of images
    return Box(low, high - (not is_image), shape, np.dtype(dtype).type)


@named_arguments
def FloatBox(
    low: ArrayLike, high: ArrayLike, shape: tuple[int, ...] | None = None, dtype: DTypeLike = "float32"
) -> Box[Any]:
    """Return a Box of floats. Without a shape it has the shape of the bounds."""
    bounds = np.broadcast_arrays(np.asarray(low, dtype), np.asarray(high, dtype))
    low, high = bounds if shape is None else (np.broadcast_to(b, shape) for b in bounds)
    return Box(low, high, dtype=np.dtype(dtype).type)


def _refuse(space: Any, name: str) -> NoReturn:
    raise TypeError(
        f"{name}: the space {space!r} cannot be stored in rows; expected {_SUPPORTED}. "
        "Wrap the environment to give one of these; gymnasium.wrappers.FilterObservation leaves parts of a Dict out. A "
        "space of your own needs a shape and a dtype of numbers."
    )


def _is_array(space: Space) -> bool:
    """Return whether the values of a space, a Box or one of a user's own, are arrays of numbers."""
    return space.shape is not None and space.dtype is not None and space.dtype.kind in "biuf"


def _row_dtype(space: Space) -> np.dtype[Any]:
    if isinstance(space, MultiDiscrete):
        return np.dtype(np.int64)
    dtype = np.dtype(np.dtype(space.dtype).type)  # in the byte order of this machine, as torch takes no other
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def _row_type(space: Space) -> type[NamedArrayTuple]:
    return namedarraytuple(type(space).__name__, [key for key, _ in subspaces(space)])


def _array_to_row(space: Space, name: str) -> Converter:
    shape, dtype, array_type = space.shape, _row_dtype(space), np.ndarray
    is_finite = _finite_check(space) if dtype.kind == "f" else None

    def to_row(value: Buffer) -> Buffer:
        if type(value) is not array_type or value.dtype is not dtype or value.shape != shape:
            value = _cast(value, shape, dtype, name)
        if is_finite is not None and not is_finite(value):
            raise ValueError(f"{name} must be finite as {dtype}, got {value}.")
        return value

    return to_row


def _binary_to_row(space: MultiBinary, name: str) -> Converter:
    to_array = _array_to_row(space, name)

    def to_row(value: Buffer) -> np.ndarray:
        row: np.ndarray = to_array(value)
        if row.view(np.uint8).max(initial=0) > 1:  # negative numbers are large ones there
            raise ValueError(f"{name}: expected zeros and ones, got {value!r:.200}. Mend the space or the value.")
        return row

    return to_row


def _cast(value: Buffer, shape: tuple[int, ...] | None, dtype: np.dtype[Any], name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:  # tensors with a gradient or on a GPU, lists of unequal lengths
        raise TypeError(
            f"{name}: got {type(value).__name__}, of which numpy makes no array ({error}); expected {dtype} of shape "
            f"{shape}. Return an array, such as tensor.detach().cpu().numpy()."
        ) from error
    if array.dtype.kind not in _STORED_FROM[dtype.kind]:
        what = f"{name}: expected {dtype} of shape {shape}, got {type(value).__name__} ({array.dtype})"
        raise TypeError(f"{what}. Cast it in the environment, or mend its space.")
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}. Mend the space or the value.")
    cast = array.astype(dtype)
    if dtype.kind != "f" and (cast != array).any():
        raise ValueError(f"{name}: values from {array.min()} to {array.max()} do not fit into {dtype}.")
    return cast


def _finite_check(space: Space) -> Callable[[np.ndarray], bool]:
    """Return the cheapest test for NaN and infinity: a dot product of vectors takes a third of isfinite().all()."""
    shape = space.shape or ()
    if len(shape) != 1 or shape[0] >= _BLAS_THREADS_FROM:
        return lambda x: bool(np.isfinite(x).all())
    zeros, isfinite = np.zeros(shape, _row_dtype(space)), math.isfinite
    # Zero times NaN or infinity is NaN. The product of a vector with itself would overflow for large finite numbers.
    return lambda x: isfinite(x.dot(zeros))


def _index(value: Buffer, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected one integer, got {type(value).__name__} {value!r}.") from None


def _discrete_to_row(space: Discrete[Any], name: str) -> Converter:
    n, start = int(space.n), int(space.start)

    def to_row(value: Buffer) -> np.int64:
        index = _index(value, name) - start
        if not 0 <= index < n:
            raise ValueError(f"{name}: expected an integer from {start} to {start + n - 1}, got {value!r}.")
        return np.int64(index)

    return to_row


def _discrete_to_env(space: Discrete[Any], name: str) -> Converter:
    n, start = int(space.n), int(space.start)

    def to_env(row: Buffer) -> int:
        index = _index(row, name)
        if not 0 <= index < n:
            raise ValueError(f"{name}: expected an index from 0 to {n - 1}, got {row!r}.")
        return index + start

    return to_env


def _multi_discrete_to_row(space: MultiDiscrete[Any], name: str) -> Converter:
    to_array, start = _array_to_row(space, name), space.start.astype(np.int64)

    def to_row(value: Buffer) -> np.ndarray:
        indices: np.ndarray = to_array(value) - start
        if not ((indices >= 0) & (indices < space.nvec)).all():
            raise ValueError(f"{name}: expected integers from {start} to below {start + space.nvec}, got {value!r}.")
        return indices

    return to_row


def _multi_discrete_to_env(space: MultiDiscrete[Any], name: str) -> Converter:
    def to_env(row: Buffer) -> np.ndarray:
        indices = np.asarray(row).reshape(space.shape)
        if indices.dtype.kind not in "iu" or not ((indices >= 0) & (indices < space.nvec)).all():
            raise ValueError(f"{name}: expected integers from 0 to below {space.nvec}, got {row!r}.")
        actions: np.ndarray = (indices + space.start).astype(space.dtype)
        return actions

    return to_env


def _box_to_env(space: Space, name: str) -> Converter:
    shape, dtype = space.shape, np.dtype(space.dtype)
    low, high = (space.low, space.high) if isinstance(space, Box) else (-math.inf, math.inf)
    is_finite, is_float = _finite_check(space), dtype.kind == "f"

    def to_env(row: Buffer) -> np.ndarray:
        action = np.asarray(row).reshape(shape)
        if action.dtype.kind == "f":
            if not is_finite(action):
                raise ValueError(f"{name} must be finite, got {row!r}. Has the agent diverged?")
            action = action if is_float else np.rint(action)
        # np.clip gives the same in twice the time.
        return np.asarray(np.minimum(np.maximum(action, low), high), dtype)

    return to_env


def _dict_to_row(space: Dict, name: str) -> Converter:
    Row, keys = _row_type(space), set(space.spaces)
    parts = [(key, to_rows(s, f"{name}[{key!r}]")) for key, s in subspaces(space)]

    def to_row(value: Buffer) -> NamedArrayTuple:
        if not isinstance(value, Mapping):
            raise TypeError(f"{name}: expected a mapping with the keys {list(keys)}, got {type(value).__name__}.")
        if value.keys() != keys:
            raise ValueError(f"{name}: expected the keys {[k for k, _ in parts]}, got {list(value)}.")
        return Row(*[part(value[key]) for key, part in parts])

    return to_row


def _tuple_to_row(space: Tuple[Any], name: str) -> Converter:
    Row = _row_type(space)
    parts = [to_rows(s, f"{name}[{key}]") for key, s in subspaces(space)]

    def to_row(value: Buffer) -> NamedArrayTuple:
        if not isinstance(value, tuple | list):
            raise TypeError(f"{name}: expected a tuple of {len(parts)} parts, got {type(value).__name__}.")
        if len(value) != len(parts):
            raise ValueError(f"{name}: expected {len(parts)} parts, got {len(value)}.")
        return Row(*[part(x) for part, x in zip(parts, value, strict=True)])

    return to_row
