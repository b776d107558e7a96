"""Settings of a run as a flat dictionary, from the records that it wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from rlpyt.logging.params import RESERVED
from rlpyt.run_records import inside

Value: TypeAlias = bool | int | float | str | None
"""Value of a setting; a list or an array is its JSON text, and a class or function "module:Name"."""

_ORIGIN = ("versions", "git_commit", "argv")
_TAGS = ("name", "float", "dtype", "device", "path")
"""Keys of recorded values that one word stands for, see `rlpyt.runners.record`."""
_PATH = re.compile(r"[A-Za-z_][\w.]*:([A-Za-z_][\w.]*)")


def settings_of(params: Mapping[str, object], variant: Mapping[str, object] | None = None) -> dict[str, Value]:
    """Return the settings of a run by their places, such as `algo.learning_rate`; the place of a part has its class.

    Args:
        params: content of params.json: the record of the runner, and settings of the user.
        variant: content of variant_config.json. Where a place is in both, the record of the runner counts.
    """
    runner = params.get("runner")
    own = {name: value for name, value in params.items() if name not in (*RESERVED, *_ORIGIN)}
    found = {**_flat(variant or {}), **_flat(params.get("log_params", {})), **_flat(own)}
    if isinstance(runner, dict) and "settings" in runner:
        settings = _with_compute(_flat(runner["settings"]), params.get("compute"))
        found |= settings | {"runner": str(runner.get("class"))}
    if (replicas := inside(params, "plan", "replicas")) is not None:  # which an affinity may give
        found |= _flat({"replicas": replicas})
    return found


def _with_compute(settings: dict[str, Value], chosen: object) -> dict[str, Value]:
    """Return settings with those of the computation under `compute`, whether they were given or chosen.

    The command that starts a run again gives what the first start has chosen: both have one method.
    """
    found = {key: value for key, value in settings.items() if key != "settings" and not key.startswith("settings.")}
    given = {key[len("settings.") :]: value for key, value in settings.items() if key.startswith("settings.")}
    values: dict[str, Value] = {"tf32": None, "compile": False}
    if settings.get("settings") is None:  # the runner chooses, everywhere this precision
        values["precision"] = "float32"
    values |= given | (_flat(chosen) if isinstance(chosen, dict) else {})
    if "device" in values:  # which one of a machine's is the affinity's matter
        values["device"] = str(values["device"]).partition(":")[0]
    return found | {f"compute.{name}": value for name, value in values.items()}


def text_of(value: Value, width: int = 40, *, short: bool = True) -> str:
    """Return a value as a text, for labels and tables.

    Args:
        value: of a setting.
        width: letters at most.
        short: whether four digits of a number do, and the name of a class without its module.
    """
    if isinstance(value, float):
        return f"{value:.4g}" if short else f"{value!r}"
    text = str(value)
    if short and (path := _PATH.fullmatch(text)):
        text = path[1]
    return text if len(text) <= width else text[: width - 3] + "..."


def _flat(part: object) -> dict[str, Value]:
    return dict(_leaves(part, ())) if isinstance(part, dict) else {}


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, Value]]:
    place = ".".join(path)
    if isinstance(value, dict) and list(value) == ["tuple"]:
        value = value["tuple"]
    if not isinstance(value, dict):
        yield place, _plain(value)
        return
    if len(value) == 1 and isinstance(word := next(iter(value.values())), str) and next(iter(value)) in _TAGS and path:
        yield place, float(word) if "float" in value else word
        return
    if isinstance(value.get("class"), str) and path:
        yield place, value["class"]
        value = value.get("settings", {key: item for key, item in value.items() if key != "class"})
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))


def _plain(value: object) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, sort_keys=True)
