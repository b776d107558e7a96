"""The way back from `params.json` to a runner: names are looked up, and nothing else of the file is ever run."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, NoReturn

import gymnasium
import numpy as np
import torch

from rlpyt.logging import current_logger
from rlpyt.logging.checkpoint_files import Content
from rlpyt.logging.params import versions
from rlpyt.logging.space_record import SPACES, unrecorded_in
from rlpyt.run_records import load_json, printable
from rlpyt.runners.record import NUMBERS, TAGS, found_in, path_of
from rlpyt.settings import Settings

# Modules that a record may name, with those in them. Nothing else is imported.
_ROOMS = ("agents", "algos", "distributions", "envs", "functional", "models", "replays", "samplers", "spaces", "types")
_OF_GYMNASIUM = tuple(f"gymnasium.{name}" for name in ("envs", "spaces", "vector", "wrappers"))
_MODULES = (
    *(f"rlpyt.{room}" for room in (*_ROOMS, "runners", "results", "utils.compute", "utils.affinity")),
    *("torch.nn", "torch.optim", *_OF_GYMNASIUM),
)
_PACKAGES = ("rlpyt", "rlpyt.utils", "gymnasium")
"""Modules that a record may name, without those in them."""
# A run calls a class or function of a record with arguments of the record. So files, processes and imports have to be
# out of reach: these kinds of classes, what stands in these modules, and these functions.
_CLASSES = (torch.nn.Module, torch.optim.Optimizer, gymnasium.Env, gymnasium.vector.VectorEnv, gymnasium.spaces.Space)
_HARMLESS = tuple(f"rlpyt.{room}" for room in ("distributions", "functional", "models", "spaces", "types"))
_MAKERS = frozenset(
    {
        *("gymnasium.envs.registration:make", "gymnasium.envs.registration:make_vec"),
        *("rlpyt.envs.gym:make", "rlpyt.envs.gym:gym_make"),
    }
)
"""Functions that import what stands before the colon of an id; `Reader` judges it."""
_OTHERS = _MAKERS | {
    *("rlpyt.envs.atari_vec:atari_make_vec", "rlpyt.envs.dm_control:dm_control_make"),
    *("rlpyt.envs.envpool:envpool_make_vec", "rlpyt.envs.gym:GymEnvWrapper"),
    *("rlpyt.samplers.collector:Collector", "rlpyt.samplers.collector:WaitResetCollector"),
    "rlpyt.samplers.evaluator:Evaluator",
}
_REFUSED = ("RecordVideo",)
"""Wrappers of gymnasium that write files."""
_IDS = ("id", "env_id")
"""Names of arguments that are ids: shimmy's environments of old gym have the second."""
_KINDS: dict[str, tuple[type, ...]] = {
    **{"compute": (dict, type(None)), "logger": (dict,), "spaces": (dict,)},
    **{"plan": (dict,), "name": (str,)},
}
"""Entries of params.json that are read, as far as they are there."""
_DTYPES = {str(x).removeprefix("torch."): x for x in vars(torch).values() if isinstance(x, torch.dtype)}
_MOST_ENTRIES = 1 << 27
"""Entries of all recorded spaces, such as the pixels of images: a few numbers must not fill the memory."""


class RecordError(ValueError):
    """Record that cannot be made into a part again: damaged, incomplete, or with names that are not trusted."""

    def __init__(self, what: str, module: str = "", name: str = "") -> None:
        self.what = printable(what)
        """What is wrong, without a remedy in Python."""
        self.module = module if _is_name(module) else ""
        """Package that may be trusted; empty if that is no remedy."""
        remedy = f"trusted=({self.module!r},) for its module" if name else f"trusted=({self.module!r},)"
        known = f"known=[{name}], or " if name and _is_name(name) else ""
        super().__init__(f"{self.what} If it is yours, give {known}{remedy}." if self.module else self.what)


def chose_settings(record: Content) -> bool:
    """Return whether the runner of a record has chosen its settings of the computation itself."""
    return record["settings"].get("settings") in (None, "fastest")


def part_from_record(
    record: Mapping[str, Any], *, known: Iterable[object] = (), trusted: Iterable[str] = (), **changes: object
) -> Any:
    """Return a new part of recorded settings, such as the agent of a run.

        params = json.loads(Path("data/run_0/params.json").read_text())
        agent = part_from_record(params["runner"]["settings"]["agent"])

    Args:
        record: {"class": ..., "settings": {...}}, as `record_of` returns it.
        known: see `runner_from_params`, as are the two that follow.
        trusted: modules that may be imported.
        **changes: settings of the part instead of those recorded.

    Raises:
        RecordError: if the record is damaged or incomplete, or has names that are not trusted.
        TypeError: if a change has a name that the part does not have.
    """
    return Reader(known, trusted).part(record, "", changes)


def read_params(path: str | os.PathLike[str], who: str = "runner_from_params") -> Content:
    """Return the content of a run's params.json, which has the record of a runner, from its directory or the file."""
    file = Path(path) / "params.json" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        runs = sorted(found.parent.name for found in file.parent.glob("*/params.json"))
        beside = f"; {file.parent} has the runs {', '.join(runs)}" if runs else ""
        raise FileNotFoundError(f"{who}: there is no {file}; expected the directory of a run{beside}.")
    try:
        params = load_json(file)
    except ValueError as error:
        raise RecordError(f"{who}: {file} is no JSON file: {error}.") from None
    except OSError as error:
        raise RecordError(f"{who}: {file} cannot be read: {error.strerror}.") from None
    record = params.get("runner") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(record, dict) or not isinstance(record.get("settings"), dict):
        raise RecordError(
            f"{who}: {file} has no record of a runner under 'runner'; expected the params.json that "
            "a run of this version writes at its start."
        )
    wrong = next((key for key, kind in _KINDS.items() if key in params and not isinstance(params[key], kind)), None)
    if wrong is not None:
        raise RecordError(
            f"{who}: {file} has {params[wrong]!r:.100} under {wrong!r}; expected {_KINDS[wrong][0].__name__}."
        )
    return params


def compare_versions(recorded: object) -> None:
    """Log the libraries that have another version than those of the record."""
    now = versions()
    before = recorded if isinstance(recorded, dict) else {}
    other = [f"{name} {before[name]} (now {now[name]})" for name in now if before.get(name, now[name]) != now[name]]
    if other:
        current_logger().log(printable(f"The record was made with {', '.join(other)}: the numbers may differ."))


def logger_settings(directory: Path, recorded: Mapping[str, object]) -> Content:
    """Return the arguments of `logger_context` that a run keeps when it goes on, or starts again."""
    defaults: Content = {
        **{"snapshot_mode": "last", "snapshot_gap": 1, "use_summary_writer": False},
        **{"verbosity": "table", "line_columns": []},
    }
    found = {name: recorded.get(name, default) for name, default in defaults.items()}
    wrong = next((name for name, x in found.items() if type(x) is not type(defaults[name])), None)
    if wrong is not None:
        raise RecordError(
            f"resume: {directory / 'params.json'} has {found[wrong]!r:.100} under 'logger', {wrong!r}; expected "
            f"{type(defaults[wrong]).__name__}, as {defaults[wrong]!r}."
        )
    return found


class Reader:
    """Reader of recorded values, by what `runner_from_params` says is known and trusted.

    Each method takes the place of the value, such as "sampler.EnvCls", for messages, which begin with `who`.
    """

    def __init__(self, known: Iterable[object], trusted: Iterable[str], who: str = "runner_from_params") -> None:
        self._who = who
        if isinstance(trusted, str) or not isinstance(known, Iterable):
            raise TypeError(
                f"{self._who}: got known={known!r:.100} and trusted={trusted!r:.100}; expected lists, such as "
                'known=[MyEnv] and trusted=["my_project"].'
            )
        self._known: dict[str | None, Any] = {path: value for value in known for path in _paths(value)}
        self._trusted = tuple(trusted)
        self._n_entries = 0  # of spaces
        self._kinds: dict[str, Callable[[dict[str, Any], str], Any]] = {
            "name": lambda x, place: self._named(x["name"], place, _may_be_a_setting),
            "partial": self._partial,
            "tuple": lambda x, place: tuple(self.value(x["tuple"], place)),
            "float": lambda x, place: float(x["float"]),
            "dict": self._dict,
            "array": lambda x, place: self._array("array", x, place),
            "tensor": lambda x, place: torch.from_numpy(self._array("tensor", x, place)),
            "space": self._space,
            "dtype": lambda x, place: _DTYPES[x["dtype"]],
            "device": lambda x, place: torch.device(x["device"]),
            "path": lambda x, place: Path(x["path"]),
            "unrecorded": self._unrecorded,
        }

    def value(self, value: object, place: str) -> Any:
        """Return what a value was recorded of."""
        if isinstance(value, list):
            return [self.value(item, place) for item in value]
        if not isinstance(value, dict):
            return value
        if "class" in value:
            return self.part(value, place)
        tag = next((tag for tag in self._kinds if tag in value), None)
        if tag is None:
            content = {key: self.value(item, f"{place}.{key}") for key, item in value.items()}
            self._check_ids(content, place)
            return content
        try:
            return self._kinds[tag](value, place)
        except RecordError:
            raise
        except Exception as error:  # numpy and gymnasium assert, too
            raise RecordError(
                f"{self._who}: {place} is {value!r:.100}; expected a record with {tag!r} ({error!r:.200})."
            ) from error

    def part(self, record: Mapping[str, Any], place: str, changes: Mapping[str, Any] | None = None) -> Any:
        """Return a part, schedule or dataclass of the recorded settings, some of them changed."""
        settings, changes = record.get("settings"), changes or {}
        if not isinstance(settings, Mapping):
            raise RecordError(f"{self._who}: {place or 'the record'} has no settings; expected a dictionary.")
        if not isinstance(path := record.get("class"), str):
            self._unrecorded(path, place)
        cls = self._named(path, place, _is_harmless)
        prefix = f"{place}." if place else ""
        kept = {name: self.value(x, prefix + name) for name, x in settings.items() if name not in changes}
        changed = {name: self._changed(settings.get(name), change, prefix + name) for name, change in changes.items()}
        self._check_calls(kept, changed, prefix)
        try:
            if "env_kwargs" in changed and kept.get("eval_env_kwargs") is not None:  # it must not be left behind
                before = self._without_unrecorded(settings.get("env_kwargs"), f"{prefix}env_kwargs")
                return cls(**kept, env_kwargs=before).replace(**changed)
            return cls(**kept, **changed)
        except RecordError:
            raise
        except Exception as error:
            if changed and self._can_be_made(cls, settings, prefix):  # it is what was given
                raise
            raise RecordError(
                f"{self._who}: {place or 'the runner'} cannot be made of its record: {type(error).__name__}: {error}"
            ) from error

    def _without_unrecorded(self, arguments: Any, place: str) -> Any:
        """Return recorded arguments without those that have no record; the user gives these, with all others."""
        if isinstance(arguments, dict) and TAGS.isdisjoint(arguments):
            arguments = {name: x for name, x in arguments.items() if unrecorded_in(x) is None}
        return self.value(arguments, place)

    def _can_be_made(self, cls: Callable[..., object], settings: Mapping[str, object], prefix: str) -> bool:
        """Return whether a part could be made without changes, as far as one can tell."""
        try:
            cls(**{name: self.value(x, prefix + name) for name, x in settings.items()})
        except RecordError:
            return True  # something was not recorded
        except Exception:
            return False
        return True

    def _changed(self, recorded: object, change: object, place: str) -> object:
        """Return a changed setting: a part with changed settings where these were given, else what was given."""
        if isinstance(recorded, dict) and "class" in recorded and isinstance(change, Mapping):
            return self.part(recorded, place, change)
        return change

    def _named(self, path: str, place: str, is_allowed: Callable[[Any], bool]) -> Any:
        """Return a class or function that was handed in, is trusted, or is allowed."""
        if path in self._known:
            return self._known[path]
        found = self._found(path, place)
        if _is_in(found.__module__, self._trusted) or is_allowed(found):
            return found
        raise self._refused(path, place)

    def _found(self, path: str, place: str) -> Any:
        """Return a class or function of a module that may be imported; the name is judged before."""
        module, _, name = path.partition(":")
        may_import = module in _PACKAGES or _is_in(module, (*_MODULES, *self._trusted))
        if not (_is_name(module) and _is_name(name) and may_import):
            raise self._refused(path, place)
        try:
            found = found_in(importlib.import_module(module), name)
        except ImportError as error:
            raise RecordError(f"{self._who}: {place} names {path}, which was not found: {error}.") from error
        if not isinstance(found, type | FunctionType | BuiltinFunctionType):
            raise RecordError(f"{self._who}: {place} names {path}; expected a class or function of that module.")
        return found

    def _refused(self, path: str, place: str) -> RecordError:
        module, _, name = path.partition(":")
        if module == "__main__":
            return RecordError(
                f"{self._who}: {place or 'the runner'} names {path}, which stands in the script that was started, "
                f"and no other program can import it; expected it to be handed in, in Python: known=[{name}], which "
                "load_agent, runner_from_params and MinibatchRl.resume take. For later runs put it into a module that "
                "the script imports."
            )
        return RecordError(
            f"{self._who}: {place or 'the runner'} names {path}; expected a part, model, optimiser or "
            "environment of rlpyt, torch or gymnasium: a file may not choose other code to run.",
            "" if _is_in(module, ("rlpyt", "torch", "gymnasium")) else module.partition(".")[0],
            name.rpartition(".")[2],
        )

    def _check_calls(self, kept: Mapping[str, object], changed: Mapping[str, object], prefix: str) -> None:
        """Judge what the settings of a part let other code do: make environments, and join a cluster."""
        function = {**kept, **changed}.get("EnvCls")
        for name in ("env_kwargs", "eval_env_kwargs", "eval_env_overrides"):
            arguments = kept.get(name)
            if isinstance(arguments, dict) and _path(function) in _MAKERS:
                self._check_ids(arguments, prefix + name, is_made=True)
        address = kept.get("ray_address")
        if address not in (None, "auto", "local") and address not in self._trusted:
            raise RecordError(
                f"{self._who}: {prefix}ray_address is {address!r:.100}, a cluster, which would run code here; "
                f"expected 'auto' or 'local'. If it is yours, trust {address!r:.100} as you trust a module."
            )

    def _check_ids(self, arguments: Mapping[str, object], place: str, is_made: bool = False) -> None:
        """Judge the ids among the arguments of a call; `is_made` says that `gymnasium.make`, or its like, gets them.

        All other texts are data. `gymnasium.make` imports what stands before the colon of an id, and so may a function
        of the user's that hands one on. What it could not import is no id.
        """
        for name in _IDS:
            text = arguments.get(name)
            if isinstance(text, str) and ":" in text and (is_made or _can_be_imported(text)):
                self._check_id(text, f"{place}.{name}")

    def _check_id(self, text: str, place: str) -> None:
        module, _, name = text.partition(":")
        if not (_is_name(module) and ":" not in name):
            raise RecordError(
                f"{self._who}: {place} is {text!r:.200}; expected an id of gymnasium, or module:id with the name of a "
                "module, which gymnasium imports."
            )
        if not (module == "gymnasium" or _is_in(module, ("gymnasium.envs", *self._trusted))):
            raise RecordError(
                f"{self._who}: {place} is {text!r:.200}, for which gymnasium imports {module}; expected no module, or "
                "gymnasium: a file may not choose other code to run.",
                module.partition(".")[0],
            )

    def _dict(self, record: Content, place: str) -> object:
        content = {self.value(key, place): self.value(item, place) for key, item in record["dict"]}
        self._check_ids(content, place)
        return content

    def _partial(self, record: dict[str, Any], place: str) -> Any:
        content = self.value(record["partial"], place)
        made = partial(content["function"], *content["args"], **content["keywords"])  # joins a partial of a partial
        if _path(made) in _MAKERS:
            self._check_ids({**dict(zip(_IDS[:1], made.args, strict=False)), **made.keywords}, place, is_made=True)
        return made

    def _array(self, tag: str, record: dict[str, Any], place: str) -> np.ndarray:
        dtype = str(record["dtype"])
        if not dtype.startswith(NUMBERS) or np.dtype(dtype).kind not in "fiub":  # a comma makes one of several parts
            raise RecordError(f"{self._who}: {place} has type {dtype!r}; expected float, int or bool.")
        return np.array(self.value(record[tag], place), dtype=np.dtype(dtype)).reshape(record["shape"])

    def _space(self, record: dict[str, Any], place: str) -> Any:
        SpaceCls = {cls.__name__: cls for cls in SPACES}[record["space"]]
        recorded = record["settings"]
        shape = recorded["n"] if SpaceCls is gymnasium.spaces.MultiBinary else recorded.get("shape", [])
        self._n_entries += math.prod(np.atleast_1d(np.asarray(shape, dtype=object)))
        if self._n_entries > _MOST_ENTRIES:
            raise ValueError(f"more than {_MOST_ENTRIES:,} entries")
        # One by one, as "dtype" would be taken for the mark of a dtype of torch.
        settings = {name: x if name == "dtype" else self.value(x, place) for name, x in recorded.items()}
        for name in ("low", "high"):  # as earlier versions wrote the bounds of a bool Box, which gymnasium refuses
            if isinstance(settings.get(name), bool):
                settings[name] = int(settings[name])
        if SpaceCls is gymnasium.spaces.Tuple:
            settings["spaces"] = [part for _, part in settings["spaces"]]
        return SpaceCls(**settings)

    def _unrecorded(self, record: object, place: str) -> NoReturn:
        what = record["unrecorded"] if isinstance(record, dict) and "unrecorded" in record else record
        if not place:
            raise RecordError(f"{self._who}: the runner has the class {what!r:.100}; expected a name.")
        first, *others = place.split(".")
        change = f"{first}={{{others[0]!r}: ...}}" if others else f"{first}=..."  # a change replaces a whole setting
        raise RecordError(
            f"{self._who}: {place} was not recorded, as it is {what}; expected it to be given. Write "
            f"{self._who}(..., {change})."
        )


def _paths(value: Any) -> list[str | None]:
    """Return the paths under which a record may name what a user has handed in, whose script may have been the main."""
    name = value.__qualname__
    return [path_of(value), f"{value.__module__}:{name}", f"__main__:{name}"]


def _is_in(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _is_harmless(cls: object) -> bool:
    """Return whether a class of the library does nothing when it is called but keep its arguments."""
    if not isinstance(cls, type) or not _is_in(cls.__module__, ["rlpyt"]):
        return False
    return issubclass(cls, Settings) or (is_dataclass(cls) and cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def _may_be_a_setting(found: Any) -> bool:
    if found.__name__ in _REFUSED:
        return False
    if _is_in(found.__module__, (*_HARMLESS, "torch.nn.functional")) or _path(found) in _OTHERS or _is_harmless(found):
        return True
    is_replay = _is_in(found.__module__, ["rlpyt.replays"]) and found.__module__ != "rlpyt.replays.mapped_file"
    return isinstance(found, type) and (is_replay or issubclass(found, _CLASSES))


def _path(function: object) -> str:
    """Return where a function is defined; of a partial, what it calls."""
    function = function.func if isinstance(function, partial) else function
    if not isinstance(function, type | FunctionType | BuiltinFunctionType):
        return ""
    return f"{function.__module__}:{function.__qualname__}"


def _is_name(text: str) -> bool:
    return all(word.isidentifier() for word in text.split("."))


def _can_be_imported(text: str) -> bool:
    """Return whether there is a package or module of the name before the colon; nothing is imported to see."""
    try:
        return importlib.util.find_spec(text.partition(":")[0].partition(".")[0]) is not None
    except (ImportError, ValueError):
        return True
