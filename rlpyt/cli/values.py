"""Values of settings as a command line carries them: what a setting can take, and texts to values and back."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Iterable as IterableABC
from collections.abc import Mapping as MappingABC
from collections.abc import Sequence as SequenceABC
from contextlib import suppress
from itertools import pairwise
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
_ALL = frozenset(_NAMES)


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
    if origin in (list, tuple, SequenceABC, IterableABC):
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


def value_of(text: str, kinds: frozenset[type] = _ALL) -> object:
    """Return the value that a text stands for.

        3e-4    5e4    True    None    lin_1e-3    64,64    hidden_sizes=[64,64],noisy=True    "7"    007

    Args:
        text: of the command line. Between quotes it is a text, whatever it looks like.
        kinds: those that are allowed.

    Raises:
        ValueError: if the text stands for none of them.
    """
    if str in kinds and _QUOTED.fullmatch(text):
        return _unquoted(text)
    is_name = str in kinds and re.match(r"[+-]?0\d", text)  # such as the number of a map, 007
    if not is_name and (value := _simple(text, kinds)) is not _NOT:
        return value
    if dict in kinds and (text[:1] == "{" or re.match(r"\w+=", text)):
        return dict_of(text)
    looks_like_list = not _is_prose(text) and (text[:1] in ("[", "(") or len(split(text)) > 1)
    if list in kinds and (str not in kinds or looks_like_list):
        return list_of(text)
    if str in kinds:
        if list in kinds and not _is_prose(text):
            _check_brackets(text)
        return text
    raise ValueError(f"got {text!r}; expected {metavar_of(kinds, None).replace(_NAMES[bool], 'true or false')}.")


def value_for(value: object, hint: object) -> object:
    """Return the value of a setting with a hint, of which texts and numbers are read as on the command line.

    Raises:
        ValueError: if a command line cannot carry the setting, or the value is none that it takes.
    """
    kinds, choices = kinds_of(hint), choices_of(hint)
    if not kinds - {type(None)}:
        raise ValueError(f"got {value!r:.100}; expected no text, as it is a class or a function. Write a script.")
    if isinstance(value, dict) and dict in kinds:
        return value
    found = value_of(value if isinstance(value, str) else text_of(value), kinds)
    if choices and str(found) not in choices:
        raise ValueError(f"got {value!r:.100}; expected one of {', '.join(choices)}.")
    return found


def pairs_of(texts: Sequence[str]) -> Values:
    """Return the values by name that several texts stand for: `a=1 b=2`, `a=1,b=2`, or JSON."""
    found: Values = {}
    for text in texts:
        if "=" not in text and text[:1] != "{":
            raise ValueError(f"got {text!r}; expected key=value, such as render_mode=rgb_array, or JSON.")
        found |= dict_of(text)
    return found


def dict_of(text: str) -> dict[str, object]:
    """Return the values by name that a text stands for: `a=1,b=[2,3]`, or JSON."""
    if text[:1] == "{":
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(
                f'got {text!r}, which is no JSON: {error}; expected such as {{"size": 3, "name": "maze"}}.'
            ) from error
        assert isinstance(found, dict)
        return found
    return {key: inner_value(value) for key, value in entries(text)}


def entries(text: str, key: str = r"\w+") -> list[tuple[str, str]]:
    """Return the keys and values of a text as `a=1,b=[2,3]`; a comma that no key follows is part of the value."""
    pairs: list[str] = []
    for part in split(text):
        if pairs and not re.match(rf"\s*{key}=", part):
            pairs[-1] += f",{part}"
        else:
            pairs.append(part)
    return [(key.strip(), value.strip()) for key, _, value in (pair.partition("=") for pair in pairs)]


def list_of(text: str, read: Callable[[str], object] | None = None) -> tuple[object, ...]:
    """Return the values that a text stands for, between commas, and in brackets or not.

    Args:
        text: such as "64,64" or "[64,64]".
        read: makes a value of the text of each; None reads it as the value of an entry of a dictionary.
    """
    parts = split(text.strip())
    if len(parts) == 1 and (whole := parts[0].strip())[:1] in ("[", "("):
        _check_brackets(whole)
        if whole[-1] not in "])":
            raise ValueError(f"got {text!r}; expected nothing after the bracket.")
        parts = split(whole[1:-1])
    return tuple((read or inner_value)(part.strip()) for part in parts if part.strip())


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
    """Return the text of a value in a dictionary or list; a text that would be read as something else is quoted."""
    if isinstance(value, str):
        try:
            plain = inner_value(value) == value.strip() == value != "" and not set(value) & set("[](){},")
        except ValueError:
            plain = False
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if isinstance(value, Mapping) else text_of(value)


_NOT = object()


def _simple(text: str, kinds: frozenset[type] = _ALL) -> object:
    """Return None, the truth value or the number that a text stands for; `_NOT` for another text."""
    if type(None) in kinds and text in ("None", "none", "null"):
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if int in kinds:
        with suppress(ValueError):
            return int(text)
    with suppress(ValueError):
        number = float(text)
        if int in kinds and number.is_integer():
            return int(number)
        if float in kinds:
            return number
    return _NOT


_ZERO = "\0"
# A text in quotes, which begins a value and ends it.
_QUOTED = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*')(?=\s*(?:[,:\])}]|$))""")


def _unquoted(text: str) -> str:
    if text[0] == "'":
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError:  # a backslash of a path
        return text[1:-1]


def inner_value(text: str) -> object:
    """Return the value of an entry of a dictionary; a dictionary in it is JSON, so that a text may have an =."""
    text = text.strip()
    if text[:1] == "{" and not _is_prose(text):
        return dict_of(text)
    return value_of(text, _ALL - {dict})


def split(text: str) -> list[str]:
    """Split at the commas outside of quotes, and of brackets that match."""
    commas = [place for place, sign in enumerate(_masked(text)) if sign == ","]
    return [text[a + 1 : b] for a, b in pairwise([-1, *commas, len(text)])]


def _masked(text: str) -> str:
    """Return a text with zeros in the place of quotes, and of brackets that match, with all that is inside.

    A quote begins a value, so that an apostrophe in a word is none.
    """
    signs, opened = list(text), list[int]()
    place, before = 0, ","
    while place < len(text):
        quoted = _QUOTED.match(text, place) if before in ",=:[({" else None
        start, end = place, quoted.end() if quoted else place + 1
        if text[place] in "[({":
            opened.append(place)
        is_closed = text[place] in "])}" and len(opened) > 0
        if is_closed:
            start = opened.pop()
        if quoted or is_closed:
            signs[start:end] = _ZERO * (end - start)
        before = before if text[place].isspace() else text[place]
        place = end
    return "".join(signs)


def _check_brackets(text: str) -> None:
    if set(_masked(text)) & set("[](){}"):
        raise ValueError(f"got {text!r}, whose brackets do not match. If it is a text, quote it: '\"{text}\"'.")


def _is_prose(text: str) -> bool:
    """Return whether a text has words apart, which no list or dictionary has: "smile :)", "[tag] title", "so, so"."""
    if not re.search(r"[^\W\d]", text) or not re.search(r"\s", text.strip()):
        return False
    if text[0] in "[({":
        return re.match(rf"{_ZERO}+\s+\w", _masked(text)) is not None
    # A part between commas that is neither a number nor a value between brackets or quotes is a word.
    parts = [part.strip() for part in split(text)]
    return any(part and _simple(part) is _NOT and part[0] not in "[({\"'" for part in parts)
