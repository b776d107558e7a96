"""Variants of a configuration: levels of changes that are crossed into a grid, and the file that keeps one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np

from rlpyt.logging.files import replace_file
from rlpyt.run_records import VARIANT_FILE, load_json
from rlpyt.settings import Settings, all_settings, arguments_of
from rlpyt.utils.arguments import argument_names, unknown_argument

Variant: TypeAlias = dict[str, Any]
"""Changes of a configuration by name, nested: `{"algo": {"learning_rate": 1e-3}}`."""
Part = TypeVar("Part", bound=Settings)
_CHANGEABLE = (Settings, dict, list, tuple)
_LONGEST_NAME = 255


@dataclass(frozen=True)
class VariantLevel:
    """Settings that change together in a grid, and the values that they take.

    Example:
        >>> VariantLevel([("algo", "learning_rate"), ("algo", "epochs")], [(1e-3, 4), (3e-4, 10)], ["fast", "slow"])

    Raises:
        ValueError: if a level is empty, or numbers of keys, values and names do not fit.
        TypeError: if a key or a name is of the wrong kind.
    """

    keys: Sequence[Sequence[str]]
    """Path of each setting in the configuration, such as `("algo", "learning_rate")`."""
    values: Sequence[Sequence[object]]
    """Combinations: in each one a value for every key."""
    dir_names: Sequence[str]
    """Name of the folder of each combination."""

    def __post_init__(self) -> None:
        """Raise an error for a level that makes no grid."""
        who = f"VariantLevel({[*self.keys]!r:.60})"
        if not self.keys or not self.values:
            raise ValueError(f"{who} has no {'values' if self.keys else 'keys'}; expected some. Give them.")
        check_keys(who, self.keys, "Remove one.")
        for values in self.values:
            if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != len(self.keys):
                raise ValueError(
                    f"{who}: got the combination {values!r}; expected {len(self.keys)} value(s), one for each of "
                    f"{list(self.keys)}. Write it as a tuple, such as (1e-3,) for one key."
                )
        if len(self.dir_names) != len(self.values):
            raise ValueError(
                f"{who}: got {len(self.dir_names)} dir_names for {len(self.values)} combinations; expected one for "
                "each. Name every combination."
            )
        _check_names(who, self.dir_names)


def check_keys(who: str, keys: Iterable[object], mend: str) -> None:
    """Raise an error unless keys are tuples of names, and none is the same as another or inside of it."""
    paths: list[tuple[str, ...]] = []
    for key in keys:
        if isinstance(key, str) or not isinstance(key, Sequence) or not key or {*map(type, key)} != {str}:
            raise TypeError(f"{who}: got the key {key!r}; expected a tuple of names. Write ({key!r},).")
        paths.append(tuple(key))
    for a, b in combinations(paths, 2):
        n = min(len(a), len(b))
        if a[:n] == b[:n]:
            raise ValueError(
                f"{who}: one of the settings {'.'.join(a)} and {'.'.join(b)} is the other, or inside of it; expected "
                f"each setting once. {mend}"
            )


def _check_names(who: str, names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"{who}: got the dir_name {name!r}; expected the name of a folder. Correct it.")
        if any(len(part.encode()) > _LONGEST_NAME for part in name.split(os.sep)):
            raise ValueError(
                f"{who}: the dir_name {name!r:.60} is longer than {_LONGEST_NAME} bytes, which no file system takes; "
                "expected a shorter one. Name the value instead of writing it out."
            )


def make_variants(*levels: VariantLevel) -> tuple[list[Variant], list[str]]:
    """Cross levels into a grid.

    Args:
        levels: the outermost first; its folders hold those of the next level.

    Returns:
        The changes of each point of the grid, and the folder of each, such as "lr_1e-3/seed_0".

    Raises:
        ValueError: if there is no level, or a key comes in two levels, or two points are equal or have one folder.
    """
    if not levels:
        raise ValueError("make_variants: got no level, so that the grid is empty; expected one or more VariantLevel.")
    keys = [key for level in levels for key in level.keys]
    check_keys("make_variants", keys, "Put both into one level, which lists the combinations.")
    points = product(*(level.values for level in levels))
    variants = [nested(keys, deepcopy([*chain(*point)])) for point in points]
    log_dirs = [os.path.join(*names) for names in product(*(level.dir_names for level in levels))]
    check_grid(variants, log_dirs)
    return variants, log_dirs


def check_grid(
    variants: Sequence[Mapping[str, object]],
    log_dirs: Sequence[str],
    runs_args: Sequence[Sequence[object]] | None = None,
) -> None:
    """Raise an error for a grid that is empty, or mixes two variants; they may differ by their runs_args alone."""
    if not variants or len(variants) != len(log_dirs):
        raise ValueError(
            f"A grid: got {len(variants)} variants and {len(log_dirs)} log_dirs; expected one folder for each variant, "
            "and one variant or more. make_variants returns both."
        )
    seen: dict[str, str] = {}
    folders: set[str] = set()
    for variant, log_dir, args in zip(variants, log_dirs, runs_args or [()] * len(variants), strict=True):
        text, folder = " ".join([json_of(variant, log_dir), *map(repr, map(str, args))]), os.path.normpath(log_dir)
        if folder.startswith((os.sep, os.pardir)):
            raise ValueError(f"A grid: got the log_dir {log_dir!r}; expected a folder in that of the grid. Correct it.")
        if text in seen:
            raise ValueError(
                f"A grid: {seen[text]!r} and {log_dir!r} are the same variant, {dict(variant)!r:.200}; expected "
                "different ones. Remove one. More seeds of a variant are runs_per_setting."
            )
        if folder in folders:
            raise ValueError(f"A grid: two variants have the folder {folder!r}. Give each a name of its own.")
        seen[text] = log_dir
        folders.add(folder)


def save_variant(variant: Mapping[str, object], log_dir: str | os.PathLike[str]) -> None:
    """Write a variant into the log directory of its runs, as `variant_config.json`.

    Raises:
        TypeError: if it has a value that JSON does not have.
    """
    text = json_of(variant, log_dir)
    Path(log_dir).mkdir(parents=True, exist_ok=True)
    with replace_file(Path(log_dir) / VARIANT_FILE) as file:
        file.write(text.encode() + b"\n")


def load_variant(log_dir: str | os.PathLike[str]) -> Variant:
    """Return what `save_variant` wrote into a log directory.

    Raises:
        FileNotFoundError: if there is no variant.
        ValueError: if the file is damaged.
    """
    path = Path(log_dir) / VARIANT_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"load_variant: there is no {path}; expected the log_dir of a run that run_experiments has launched. "
            "save_variant writes one."
        )
    try:
        variant = load_json(path)
    except ValueError as error:
        raise ValueError(f"load_variant: {path} is no JSON: {error}. Launch the grid again.") from error
    if not isinstance(variant, dict):
        raise ValueError(f"load_variant: {path} has {variant!r:.100}; expected a dictionary of changes.")
    return variant


@overload
def update_config(default: Part, variant: Mapping[str, object]) -> Part: ...
@overload
def update_config(default: Mapping[str, object], variant: Mapping[str, object]) -> Variant: ...
def update_config(default: Settings | Mapping[str, object], variant: Mapping[str, object]) -> Settings | Variant:
    """Return a configuration with some values changed; `default` stays as it is.

    Args:
        default: a part, such as a runner with its algorithm, agent and sampler, or a nested dictionary. All parts of
            the result are new ones, so that two configurations of a grid share none.
        variant: the changes by name. Where the old value is a part or a dictionary, a dictionary changes some of
            its values. A dictionary that a part holds, such as env_kwargs, may get new keys.

    Raises:
        KeyError: if a nested dictionary has no such key.
        TypeError: if a part has no such setting; or a dictionary would replace a plain value, or the other way round.
    """
    if isinstance(default, Settings):
        return _changed_part(default, variant, type(default).__name__)
    return _changed_dict(default, variant, "", is_open=False)


def _changed(old: object, new: object, place: str, is_open: bool) -> object:
    if isinstance(old, Settings) and isinstance(new, Mapping):
        return _changed_part(old, new, place)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _changed_dict(old, new, place, is_open)
    # In a part None stands for a dictionary that is not given.
    is_lost = isinstance(old, Mapping) and not (is_open and new is None)
    if is_lost or (isinstance(new, Mapping) and not is_open):
        kinds = ["a dictionary" if isinstance(x, Mapping) else repr(x) for x in (old, new)]
        raise TypeError(f"update_config: {place} is {kinds[0]}; got {kinds[1]}; expected the same kind. Correct it.")
    return _fresh(new)


def _changed_part(part: Part, variant: Mapping[str, object], place: str) -> Part:
    cls, given = type(part), all_settings(part)
    for name in variant:
        if name not in argument_names(cls):
            raise TypeError(unknown_argument(f"update_config: {place} ({cls.__name__})", name, argument_names(cls)))
    changes = {name: _changed(given.get(name), new, f"{place}.{name}", is_open=True) for name, new in variant.items()}
    # What was not given is not given to the copy either: it may follow from another setting.
    held = {name: x for name, x in given.items() if isinstance(x, Settings) or name in arguments_of(part)}
    fresh = {name: _fresh(x) for name, x in held.items() if name not in changes and isinstance(x, _CHANGEABLE)}
    return part.replace(**fresh, **changes)


def _changed_dict(default: Mapping[str, object], variant: Mapping[str, object], place: str, is_open: bool) -> Variant:
    changed = {key: _fresh(value) for key, value in default.items()}
    for key, new in variant.items():
        path = f"{place}.{key}".lstrip(".")
        if key not in default and not is_open:
            who = f"update_config: {place or 'the configuration'}"
            raise KeyError(unknown_argument(who, str(key), [str(name) for name in default], "key"))
        changed[key] = _changed(default[key], new, path, is_open) if key in default else _fresh(new)
    return changed


def _fresh(value: object) -> object:
    """Return a copy of a part or a container, and anything else as it is."""
    if isinstance(value, Settings):
        return _changed_part(value, {}, type(value).__name__)
    if isinstance(value, dict):
        return {key: _fresh(x) for key, x in value.items()}
    if type(value) is list:
        return [_fresh(x) for x in value]
    return tuple(_fresh(x) for x in value) if type(value) is tuple else value


def nested(keys: Iterable[Sequence[str]], values: Iterable[object]) -> Variant:
    """Return the nested changes that set some values by their paths, of which none is inside of another."""
    variant: Variant = {}
    for (*outer, name), value in zip(keys, values, strict=True):
        inner = variant
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[name] = value
    return variant


def json_of(variant: Mapping[str, object], log_dir: str | os.PathLike[str]) -> str:
    """Return the text of the file of a variant, which is the same for equal variants."""
    try:
        _check_texts(variant)
        return json.dumps(variant, indent=4, sort_keys=True, default=_of_numpy)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"The variant of {str(log_dir)!r}: {error}; expected numbers, texts, lists and dictionaries, as it is kept "
            f"in {VARIANT_FILE}. Let the script make other values from a name."
        ) from error


def _check_texts(value: object) -> None:
    """Refuse keys that are no texts, which JSON would make some."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no text")
            _check_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_texts(item)


def _of_numpy(value: object) -> object:
    """Return a number of numpy as one of Python."""
    if not isinstance(value, np.generic):
        raise TypeError(f"got {value!r:.100} of type {type(value).__name__}")
    return value.item()
