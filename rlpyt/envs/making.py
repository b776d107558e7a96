"""Calls of `EnvCls`: every environment gets arguments of its own, and each call must return another environment."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import TypeVar
from weakref import WeakValueDictionary

import gymnasium
from gymnasium.vector import SyncVectorEnv

from rlpyt.namedarraytuple import Buffer
from rlpyt.types import Kwargs
from rlpyt.utils.stops import place_of

T = TypeVar("T")
LARGE = 2**24
"""Bytes of data from which on no copy is made for each environment."""
_PART = 2**12  # bytes from which on an array counts as a part of the data
_LEAVES = (int, float, bool, str, type(None))  # need no copy, and are in tables by the million
# Innermost environments that were returned in this process, by id, while they exist.
_RETURNED: WeakValueDictionary[int, object] = WeakValueDictionary()


def call_env_cls(EnvCls: Callable[..., T], env_kwargs: Kwargs | None = None, env_seed: int | None = None) -> T:
    """Return a new environment, or a new vector environment.

    `EnvCls` is given a deep copy of the arguments. An environment may change them, by a `pop` with a default say, and
    the next one must still get what the user gave. What cannot be copied (modules, locks, handles) is handed on as it
    is. So are iterators, which give each environment a number of its own, and the largest arrays of data that is larger
    than 16 MiB together. The arguments that a `functools.partial` holds are copied too.

    Args:
        EnvCls: any callable that returns an environment.
        env_kwargs: its arguments.
        env_seed: given to an `EnvCls` that names a parameter `env_seed`, unless `env_kwargs` has it; None gives it
            nothing.

    Raises:
        TypeError: if the environment, or the one inside its wrappers, was returned before in this process.
    """
    given = dict(env_kwargs or {})
    everything = [given, EnvCls.args, EnvCls.keywords] if type(EnvCls) is partial else given
    memo = _shared_parts(everything)
    kwargs = {key: _own_copy(value, memo) for key, value in given.items()}
    if env_seed is not None and "env_seed" not in kwargs and takes_env_seed(EnvCls):
        kwargs["env_seed"] = env_seed
    if type(EnvCls) is partial:
        bound = {key: _own_copy(value, memo) for key, value in EnvCls.keywords.items()}
        EnvCls = partial(EnvCls.func, *[_own_copy(value, memo) for value in EnvCls.args], **bound)
    env = EnvCls(**kwargs)
    _check_is_new(env)
    return env


def takes_env_seed(EnvCls: Callable[..., object]) -> bool:
    """Return whether `EnvCls` names a parameter `env_seed` that no `functools.partial` has set."""
    if type(EnvCls) is partial and "env_seed" in EnvCls.keywords:
        return False
    return has_parameter(EnvCls, "env_seed")


def has_parameter(function: Callable[..., object], name: str) -> bool:
    """Return whether a parameter of this name stands in the signature of a function or class."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # compiled functions may have no signature
        return False


def layers_of(env: object) -> list[object]:
    """Return the environment and all within it, from the outermost wrapper."""
    layers = [env]
    while (inner := _wrapped(layers[-1])) is not None:
        if any(inner is layer for layer in layers):  # an attribute `env` may lead back
            break
        layers.append(inner)
    return layers


def env_methods(
    EnvCls: Callable[..., object], env_kwargs: Kwargs, names: Sequence[str]
) -> dict[str, Callable[..., Buffer]]:
    """Build an environment; return those of some methods that it or a wrapper has, by name: the outermost one of each.

    Args:
        EnvCls: as a sampler has it.
        env_kwargs: its arguments.
        names: of the methods.
    """
    of_vector = {"num_envs": 1} if has_parameter(EnvCls, "num_envs") else {}
    layers = layers_of(call_env_cls(EnvCls, {**env_kwargs, **of_vector}, 0))
    inner_first = [(name, getattr(layer, name, None)) for layer in reversed(layers) for name in names]
    return {name: method for name, method in inner_first if callable(method)}


def _wrapped(env: object) -> object:
    """Return the attribute `env` of a wrapper, or None.

    `__getattr__` and properties are passed by, as they may ask the inner environment. `__dict__` is not read: from then
    on, Python looks up every attribute of an object more slowly, which costs a step of CartPole-v1 a tenth.
    """
    of_class = getattr(type(env), "env", None)  # a default, which the attribute of the object hides
    if hasattr(type(of_class), "__get__") and not isinstance(of_class, MemberDescriptorType):
        return None
    try:
        inner: object = object.__getattribute__(env, "env")
    except AttributeError:
        return None
    return None if inner is of_class else inner


def call_text(EnvCls: Callable[..., object], env_kwargs: Kwargs) -> str:
    """Return a call as text, for messages."""
    arguments = ", ".join(f"{key}={value!r:.200}" for key, value in env_kwargs.items())
    return f"{getattr(EnvCls, '__qualname__', repr(EnvCls))}({arguments})"


def failure(error: BaseException) -> str:
    """Return the type of an error, its message, and the innermost line of code that is not the library's."""
    place = place_of(error)
    message = str(error) or "no message"
    return f"{type(error).__name__}: {message}{f' ({place})' if place else ''}{_hint(error)}"


def _hint(error: BaseException) -> str:
    """Return what to do about errors whose own text does not say it."""
    if isinstance(error, SystemExit):
        return "\nAn environment must not end the process: return terminated or truncated, or raise an exception."
    if "bool8" in str(error):
        return "\nThe checker of gym 0.25 and 0.26 fails on numpy 2: make the environment with rlpyt.envs.gym_make."
    if isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):
        return "\nA process of the environment has ended, or was killed (out of memory?): its pipe is closed."
    if isinstance(error, gymnasium.error.UnregisteredEnv):
        return (
            "\nAn id is known to a process that has imported the package which registers it. Workers import the file "
            "of the script, without what stands under `if __name__ == '__main__':`. Give 'package:Id-v0', or import "
            "the package at the top of the file that defines EnvCls."
        )
    return ""


def _own_copy(value: Buffer, memo: dict[int, Buffer]) -> Buffer:
    """Return a deep copy, with the memo of `copy.deepcopy`; what cannot be copied is the given object."""
    if type(value) in _LEAVES:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, Iterator):
        return value
    if type(value) in (dict, list, tuple):
        # By hand, so that one part that cannot be copied does not keep the others from it.
        if type(value) is dict:
            new: Buffer = memo.setdefault(id(value), {})
            new.update((_own_copy(key, memo), _own_copy(part, memo)) for key, part in value.items())
        elif type(value) is list:
            new = memo.setdefault(id(value), [])
            new.extend(_own_copy(part, memo) for part in value)
        else:
            new = memo[id(value)] = tuple(_own_copy(part, memo) for part in value)
        return new
    n_before = len(memo)
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # each class refuses in its own way
        while len(memo) > n_before:  # halves of objects
            memo.popitem()
        return memo.setdefault(id(value), value)


def _shared_parts(value: object) -> dict[int, Buffer]:
    """Return the parts of a value that are not copied, as each environment would hold all of them again, by id."""
    parts, _ = _data_parts(value)
    left, shared = sum(size for size, _ in parts), dict[int, Buffer]()
    for size, part in sorted(parts, key=lambda sized: sized[0], reverse=True):
        if left < LARGE:
            break
        shared[id(part)] = part
        left -= size
    return shared


def data_size(value: object) -> tuple[int, int]:
    """Return the bytes of the arrays, tensors and tables that a value leads to, and the number of objects."""
    parts, n_objects = _data_parts(value)
    return sum(size for size, _ in parts), n_objects


def _data_parts(value: object) -> tuple[list[tuple[int, Buffer]], int]:
    """Return the arrays, tensors, tables and large containers that a value leads to, and the number of objects."""
    found: list[tuple[int, Buffer]] = []
    seen: set[int] = set()
    todo: list[Buffer] = [value]
    while todo:
        part = todo.pop()
        if type(part) in _LEAVES or id(part) in seen or isinstance(part, type | ModuleType | FunctionType):
            continue
        seen.add(id(part))
        is_container, size = isinstance(part, Mapping | list | tuple), _size(part)
        if size >= (LARGE if is_container else _PART):
            found.append((size, part))
        elif is_container:
            todo += part.values() if isinstance(part, Mapping) else part
        else:
            todo += getattr(part, "__dict__", {}).values()
    return found, len(seen)


def _size(value: object) -> int:
    try:
        return max(int(getattr(value, "nbytes", 0)), sys.getsizeof(value, 0))
    except Exception:  # objects that answer to every name
        return 0


def _check_is_new(env: object) -> None:
    """Refuse an environment that was returned before: its episodes would be mixed, and the checked one is closed."""
    innermost = [_innermost(env)]
    if isinstance(innermost[0], SyncVectorEnv):
        innermost += [_innermost(one) for one in innermost[0].envs]
    for one in innermost:
        if id(one) in _RETURNED:
            raise TypeError(
                f"EnvCls has returned the same {type(one).__name__} twice. Every place of the batch, the check at the "
                "start and the evaluation need an environment of their own. Let EnvCls make a new one at each call: "
                "give the class or a function that makes it, not a lambda around an object."
            )
        try:
            _RETURNED[id(one)] = one
        except TypeError:  # compiled classes may allow no weak references, and cannot be told apart later
            continue


def _innermost(env: object) -> object:
    """Return the environment inside all wrappers."""
    # An attribute `env` may be something else, such as a name or a module.
    layers = [layer for layer in layers_of(env) if not isinstance(layer, type) and hasattr(layer, "step")]
    return layers[-1] if layers else env
