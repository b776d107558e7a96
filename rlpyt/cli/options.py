"""Options of a command line for the settings of a runner and its parts, made of their fields and docstrings."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, fields, is_dataclass, make_dataclass
from typing import Annotated, NamedTuple

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from rlpyt.cli.arguments import Text
from rlpyt.cli.values import Values, is_plain, kinds_of, metavar_of, pairs_of, text_of, value_for
from rlpyt.run_records import printable
from rlpyt.runners import MinibatchRlBase
from rlpyt.settings import Settings, all_settings, arguments_of, hint_of, setting_docs, settings_by_group

PARTS = ("algo", "agent", "sampler")
_CONFIG = "YAML or JSON file with more options; what stands on the command line comes before it."


class Given(NamedTuple):
    """Value that the user has given, in contrast to a default."""

    value: object


def options_class(runner: MinibatchRlBase, Base: type, left_out: Collection[str] = ()) -> type:
    """Return a dataclass of options: those of `Base`, and the settings of the runner and of its parts.

    Settings of the runner that are `left_out` are covered by `Base`.
    """
    own = [f.name for f in fields(Base)]
    parts = [(name, _part_class(name, vars(runner)[name])) for name in PARTS]
    return make_dataclass(
        "Options",
        [
            *_fields_of(runner, lambda name: name == "n_steps" or name not in {*own, *left_out, *PARTS}),
            ("config", Annotated[Text, tyro.conf.arg(help=_CONFIG)], None),
            *[(name, Part, field(default_factory=Part)) for name, Part in parts],
        ],
        bases=(Base,),
        kw_only=True,
    )


def changes_of(options: object, runner: MinibatchRlBase) -> Values:
    """Return the settings that were given, as changes for `update_config`."""
    changes = _given(vars(options), all_settings(runner))
    for name in PARTS:
        of_part = vars(vars(options)[name])
        groups = [vars(group) for group in of_part.values() if is_dataclass(group)]
        if given := _given(ChainMap(of_part, *groups), all_settings(vars(runner)[name])):
            changes[name] = given
    return changes


def values_for(part: Settings, given: Mapping[str, object]) -> Values:
    """Return values of a file as settings of a part and of the parts in it; texts are read as on the command line."""
    found, hints = Values(), {f.name: hint_of(type(part), f) for f in fields(part)}  # type: ignore[arg-type]
    for name, value in given.items():
        if name in PARTS and isinstance(value, Mapping):
            found[name] = values_for(all_settings(part)[name], value)
        else:
            try:
                found[name] = value_for(value, hints[name]) if name in hints else value
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    return found


def _part_class(name: str, part: Settings) -> type:
    """Return a dataclass of the options of a part, in which those of each group are one field."""
    own, *groups = settings_by_group(type(part)).items()
    options = _fields_of(part, lambda setting: setting in own[1])
    for group, settings in groups:
        made = _fields_of(part, settings.__contains__, f"{name}.")
        Group = make_dataclass(group, made, kw_only=True)
        options.append((group.replace(" ", "_"), Group, field(default_factory=Group)))
    return make_dataclass(name, options, kw_only=True)


def _given(options: Mapping[str, object], settings: Mapping[str, object]) -> Values:
    given: Values = {}
    for name, option in options.items():
        if isinstance(option, Given):
            given[name] = option.value
        elif name in settings and isinstance(option, bool) and option is not settings[name]:
            given[name] = option
    return given


def _fields_of(part: Settings, are_meant: Callable[[str], bool], prefix: str = "") -> list[tuple[str, object, object]]:
    """Return the settings of a part that a command line can carry, as fields of a dataclass.

    The options get a prefix where the field that has them says another one.
    """
    # A seed that the runner has drawn is not given.
    docs, values = setting_docs(type(part)), {**all_settings(part), "seed": arguments_of(part).get("seed")}
    found: list[tuple[str, object, object]] = []
    for f in fields(part):  # type: ignore[arg-type]
        if not are_meant(f.name) or f.name not in values or f.metadata.get("weights") or "state_dict" in f.name:
            continue
        value, hint = values[f.name], hint_of(type(part), f)
        kinds = kinds_of(hint)
        if not kinds - {type(None)} or not is_plain(value):
            continue
        spec: object = bool if kinds == {bool} else Annotated[object, _spec(hint)]
        about = tyro.conf.arg(
            help_behavior_hint=lambda default: f"(default: {default})".replace("'", ""),
            help=" ".join(docs.get(f.name, "").split()),
            name=f"{prefix}{f.name}" if prefix else None,
            prefix_name=not prefix,
        )
        found.append((f.name, Annotated[spec, about], _default(value)))
    return found


def _default(value: object) -> object:
    """Return what a field of a dataclass has for a default; a dictionary or a list is not allowed to be one."""
    return field(default_factory=lambda: value) if isinstance(value, dict | list) else field(default=value)


def _spec(hint: object) -> PrimitiveConstructorSpec[object]:
    metavar = metavar_of(kinds_of(hint), hint)

    def given(arguments: list[str]) -> Given:
        if not arguments:
            raise ValueError(f"got no value; expected {metavar}.")
        return Given(value_for(arguments[0], hint) if len(arguments) == 1 else pairs_of(arguments))

    return PrimitiveConstructorSpec(
        nargs="*" if dict in kinds_of(hint) else 1,
        metavar=metavar,
        instance_from_str=given,
        is_instance=lambda x: True,
        str_from_instance=lambda x: [printable(text_of(x))],  # a record may come from elsewhere
    )
