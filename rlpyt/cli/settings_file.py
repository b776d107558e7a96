"""Settings of a run in a YAML or JSON file: the options of `rlpyt train`, written down.

algorithm: ppo
env: CartPole-v1
n_steps: 2e5
algo:
  learning_rate: 1e-3
agent.model_kwargs: {hidden_sizes: [64, 64]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rlpyt.cli.options import PARTS
from rlpyt.cli.values import Values, is_plain

_YAML = (".yaml", ".yml")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$")
"""Numbers such as 1e-3, which YAML 1.1 takes for texts."""


class SettingsFile(NamedTuple):
    """Content of a file, the settings of parts under the names of the parts."""

    path: str
    values: Values


def taken_from(arguments: Sequence[str]) -> tuple[list[str], SettingsFile]:
    """Return the arguments without the file of settings that they name, and the file.

    The file comes first, in the place of algorithm and environment, which it names then; or after `--config`.
    """
    first, rest = arguments[0], [*arguments]
    if first.endswith(_YAML) or (first.endswith(".json") and _has_settings(Path(first))):
        file = read_settings(first)
        if missing := [name for name in ("algorithm", "env") if not isinstance(file.values.get(name), str)]:
            raise ValueError(
                f"{first} has no {' and no '.join(missing)}; expected algorithm and env, such as ppo and CartPole-v1. "
                "A file without them comes after them: rlpyt train ppo CartPole-v1 --config FILE."
            )
        rest[:1] = [file.values["algorithm"], file.values["env"]]
    else:
        place = next((i for i, x in enumerate(rest) if x.partition("=")[0] == "--config"), None)
        if place is None:
            return rest, SettingsFile("", {})
        _, equals, path = rest.pop(place).partition("=")
        if not equals and place == len(rest):
            raise ValueError("--config: got no value; expected a YAML or JSON file of settings.")
        file = read_settings(path if equals else rest.pop(place))
    if any(x.partition("=")[0] == "--config" for x in rest):
        raise ValueError(
            f"--config: got another file beside {file.path}; expected one. Put all settings into one file."
        )
    values = {name: x for name, x in file.values.items() if name not in ("algorithm", "env")}
    if "config" in values:
        raise ValueError(f"{file.path} names another file, {values['config']!r:.100}; expected settings alone.")
    return rest, SettingsFile(file.path, values)


def _has_settings(path: Path) -> bool:
    """Return whether a JSON file is one of settings, and not the record of a run."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # told by the one who reads a record
        return False
    return isinstance(content, dict) and "algorithm" in content and "runner" not in content


def read_settings(path: str) -> SettingsFile:
    """Return the settings in a file."""
    text = Path(path).read_text(encoding="utf-8")
    try:
        content = _yaml(path, text) if path.endswith(_YAML) else json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        kind = "YAML" if path.endswith(_YAML) else "JSON"
        raise ValueError(f"{path} is no {kind}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not is_plain(content):
        raise ValueError(f"{path} has {content!r:.100}; expected settings by name: numbers, texts, lists of them.")
    values: Values = {}
    for place, value in content.items():
        part, dot, name = place.partition(".")
        if place in PARTS and not isinstance(value, dict):
            example = " The algorithm is named by algorithm: ppo." if place == "algo" else ""
            raise ValueError(f"{path}: {place} is {value!r:.100}; expected its settings by name.{example}")
        into, found = values, {place: value}
        if part in PARTS:
            into, found = values.setdefault(part, {}), {name: value} if dot else value
        for key, x in found.items():
            if _name(key) in into:
                raise ValueError(f"{path}: {key} under {place!r} comes twice; expected it once, also with - for _.")
            into[_name(key)] = x
    return SettingsFile(path, values)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the content of a dictionary of JSON, and refuse a name that comes twice."""
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{twice} comes twice")
    return dict(pairs)


def _yaml(path: str, text: str) -> object:
    try:
        import yaml
    except ImportError as error:
        raise ImportError(
            f"{path}: reading YAML needs PyYAML: pip install pyyaml. A JSON file does without."
        ) from error

    class Loader(yaml.SafeLoader):
        """Loader that makes plain values alone, and reads numbers and None as the command line does."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
            names = [key.value for key, _ in node.value]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise yaml.YAMLError(f"{twice} comes twice in line {node.start_mark.line + 1} and below")
            return super().construct_mapping(node, deep)

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))
    Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("None$"), ["N"])
    try:
        content: object = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return content


def _name(option: str) -> str:
    return option.replace("-", "_")
