"""Values of settings as a command line carries them: what a setting can take, and texts to values and back."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Mapping as MappingABC
from collections.abc import Sequence as SequenceABC
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

Values: TypeAlias = dict[str, Any]
"""Values of settings by name."""
PLAIN = (bool, int, float, str)
_NAMES = {
    bool: "BOOL",
    int: "INT",
    float: "NUMBER",
    str: "TEXT",
    list: "LIST",
    dict: "KEY=VALUE,...",
    type(None): "None",
}


def kinds_of(hint: object) -> frozenset[type]:
    """Return the kinds of values that a hint allows and a command line can carry; `list` and `dict` of plain values.

    Empty for a hint of something else, such as a class or a function.
    """
    if hint is None or hint is type(None):
        return frozenset([type(None)])
    if hint in PLAIN:
        return frozenset([hint])
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return kinds_of(parts[0])
    if origin in (Union, types.UnionType):
        return frozenset().union(*map(kinds_of, parts))
    if origin is Literal:
        return frozenset(type(choice) for choice in parts)
    if origin in (dict, MappingABC) and parts[0] is str:
        return frozenset([dict])
    if origin in (list, tuple, SequenceABC):
        return frozenset([list])
    return frozenset()


def choices_of(hint: object) -> tuple[str, ...]:
    """Return the texts of a Literal; empty for another hint."""
    return tuple(map(str, get_args(hint))) if get_origin(hint) is Literal else ()


def metavar_of(kinds: frozenset[type], hint: object) -> str:
    """Return what the help says in the place of a value, such as NUMBER|SCHEDULE."""
    if choices := choices_of(hint):
        return "|".join(choices)
    # A setting that takes a number or a text takes a schedule such as lin_1e-3.
    names = {**_NAMES, str: "SCHEDULE"} if {float, str} <= kinds else _NAMES
    return "|".join(names[kind] for kind in _NAMES if kind in kinds)


def value_of(text: str, kinds: frozenset[type] = frozenset(_NAMES)) -> object:
    """Return the value that a text stands for.

        3e-4    5e4    True    None    lin_1e-3    64,64    hidden_sizes=[64,64],noisy=True

    Args:
        text: of the command line.
        kinds: those that are allowed.

    Raises:
        ValueError: if the text stands for none of them.
    """
    for kind in (type(None), bool, int, float):
        if kind in kinds and (value := _READERS[kind](text)) is not _NOT:
            return value
    if dict in kinds and (text[:1] == "{" or _looks_like_dict(text)):
        return _dict_of(text)
    if list in kinds and (str not in kinds or text[:1] in ("[", "(") or ("," in text and len(_parts(text)) > 1)):
        return _list_of(text)
    if str in kinds:
        return text
    raise ValueError(f"got {text!r}; expected {metavar_of(kinds, None)}.")


def text_of(value: object) -> str:
    """Return the text that stands for a value."""
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_inner(item)}" for key, item in value.items()) or "{}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_inner, value))}]"
    return str(value)


def is_plain(value: object) -> bool:
    """Return whether a value is one that a command line can carry."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, PLAIN)


def _inner(value: object) -> str:
    return json.dumps(value) if isinstance(value, Mapping) else text_of(value)


_NOT = object()


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return _NOT


def _whole(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        number = _number(text)
    return int(number) if isinstance(number, float) and number.is_integer() else _NOT


_READERS: dict[type, Callable[[str], object]] = {
    type(None): lambda text: None if text in ("None", "none", "null") else _NOT,
    bool: lambda text: {"true": True, "false": False}.get(text.lower(), _NOT),
    int: _whole,
    float: _number,
}


def _parts(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "[({") - (char in "])}")
        if depth < 0:
            break
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    if depth != 0:
        raise ValueError(f"got {text!r}, whose brackets do not match.")
    return [part.strip() for part in parts]


def _looks_like_dict(text: str) -> bool:
    return all(re.match(r"\w+=", part) for part in _parts(text))


def _dict_of(text: str) -> dict[str, object]:
    if text[0] == "{":
        found = json.loads(text)
        assert isinstance(found, dict)
        return found
    pairs = [part.partition("=") for part in _parts(text)]
    return {key: value_of(item) for key, _, item in pairs}


def _list_of(text: str) -> Sequence[object]:
    parts = _parts(text)
    if len(parts) == 1 and (whole := parts[0])[:1] in ("[", "("):
        if whole[-1] not in "])":
            raise ValueError(f"got {text!r}; expected nothing after the bracket.")
        parts = _parts(whole[1:-1])
    return tuple(value_of(item) for item in parts if item)
