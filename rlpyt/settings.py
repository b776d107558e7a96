"""Base of the parts of a run: their settings are dataclass fields, and some of them may be schedules."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import Field, fields, is_dataclass
from functools import cache
from numbers import Real
from types import SimpleNamespace
from typing import Any, ClassVar, Self, TypeVar, cast, get_args, get_type_hints

from rlpyt.functional import SCHEDULED, Constant, ScheduleLike, as_schedule
from rlpyt.old_rlpyt import check_class, tells_old_attributes
from rlpyt.utils.arguments import argument_names, check_arguments, check_defined, positional_names, suggesting

R = TypeVar("R")


def _of_class(function: Callable[[type], R]) -> Callable[[type], R]:
    """Decorate a function of a class that is computed once for each."""
    return cache(function)  # to mypy its own type takes no class whose objects are not hashable


class Hyper(SimpleNamespace):
    """Values of the settings that may be schedules, at one step, as attributes.

    Three that every algorithm has are declared, so that an editor can follow them.
    """

    discount: float
    learning_rate: float
    clip_grad_norm: float

    def __setattr__(self, name: str, value: object) -> None:
        """Raise AttributeError: the values are those of all updates at their step."""
        raise AttributeError(
            f"Setting {name} of hyper-parameters to {value!r:.80}: they are the values of this step, for all that read "
            f"them. Set the algorithm's own {name}, which counts from the next iteration on."
        )


class _FieldDocs:
    """Docstring of a class of settings, with an entry for every field, made when `help` asks for it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, part: object, cls: type) -> str:
        # While the decorator makes a dataclass it reads the docstring, but the fields are not known yet.
        if "__match_args__" not in vars(cls) or "Args:" in self._text:
            return self._text
        docs, lines = setting_docs(cls), [inspect.cleandoc(self._text)]
        for group, names in settings_by_group(cls).items():
            entries = [f"    {name}: {docs.get(name, '')}".replace("\n", "\n        ") for name in names]
            lines += ["", f"Args, {group}:" if group else "Args:", *entries]
        return "\n".join(lines)


@tells_old_attributes
class Settings:
    """Base of the parts of a run; their settings are dataclass fields, each with a docstring of its own.

    A field keeps the value that the user gave. Values derived from it are in other attributes. A subclass is either a
    dataclass with more fields, or has an `__init__` that passes on the arguments of its base.

    A field of the type `ScheduleLike`, of a class that is `Scheduled` too, may be a number, a string such as
    "lin_2.5e-4", or any callable of the step count.
    """

    noun: ClassVar[str] = "argument"
    """What a setting is called in an error message."""
    group: ClassVar[str] = ""
    """Heading under which `help` and the command line show the settings that a class, which says so in its own body,
    declares; those without one come first."""
    in_class_bodies: ClassVar[frozenset[str]] = frozenset()
    """Settings that the body of a subclass may set without being a dataclass, as parts of rlpyt 0.1 did."""
    in_place_of_none: ClassVar[Mapping[str, str]] = {}
    """What to give for no effect, by the names of settings that do not take None, as a sentence for messages."""
    fixed: ClassVar[Mapping[str, str]] = {}
    """Why settings that a user may want to schedule do not change, and what to do instead, by name, for messages."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let constructors suggest close names for an argument that none of them knows."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = suggesting(cls.__init__)  # type: ignore[method-assign]
        if isinstance(text := vars(cls).get("__doc__"), str):
            cls.__doc__ = _FieldDocs(text)  # type: ignore[assignment]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse arguments that the class does not take; note those that were given."""
        _check_class(cls)
        check_arguments(cls, args, kwargs, cls.noun)
        part = super().__new__(cls)
        vars(part)["_given"] = args, kwargs
        return part

    def __post_init__(self) -> None:
        """Refuse values of the wrong kind. A subclass calls this first and then makes its own checks."""
        for name in self.in_class_bodies:
            if not _set_by_dataclass(type(self), name):
                setattr(self, name, getattr(type(self), name))
        for f in fields(self):  # type: ignore[arg-type]
            if f.type in (bool, "bool") and getattr(self, f.name) not in (True, False):
                raise TypeError(
                    f"{type(self).__name__}: {f.name} is {getattr(self, f.name)!r}; expected True or False. Give one."
                )
        for name, optional in scheduled(type(self)).items():
            if getattr(self, name) is None and not optional:
                none = self.in_place_of_none.get(name, "Give one.")
                raise TypeError(f"{type(self).__name__}: {name} is None; expected a number or a schedule. {none}")
            self.check(name, lambda x: x == x, "a number")

    def replace(self, **changes: Any) -> Self:
        """Return a new part with the same settings except for these changes; lists and dictionaries are copies."""
        kept = {name: x.copy() if type(x) in (dict, list) else x for name, x in all_settings(self).items()}
        part = type(self)(**{**kept, **changes})
        # A default is not given because another setting has changed.
        vars(part)["_given"] = (), {**arguments_of(self), **changes}
        return part

    def check(self, name: str, holds: Callable[[Any], bool], expected: str) -> None:
        """Refuse a setting whose value does not hold. A schedule is judged by its value at step 0. None is accepted.

        Args:
            name: of the field.
            holds: whether a number is accepted.
            expected: the accepted numbers in words, for the message.

        Raises:
            ValueError: if the value does not hold.
            TypeError: if it is no number and, where the field takes them, no schedule and not None.
        """
        value, what = getattr(self, name), f"{type(self).__name__}: {name}"
        is_scheduled = name in scheduled(type(self))
        if value is None and is_scheduled:
            return
        if not is_scheduled and not isinstance(value, Real):
            raise TypeError(
                f"{what} is {value!r} of type {type(value).__name__}; expected {expected}, which may not change during "
                f"the run{self.fixed.get(name, '. Convert it')}."
            )
        number = value
        if is_scheduled:
            schedule = cast(Scheduled, self).schedule_of(name)
            # The length of the run is not known yet. In a run without end no schedule begins too late.
            number = None if schedule is None else as_schedule(schedule, n_steps=2**62, name=what)(0)
        if number is not None and not holds(number):
            raise ValueError(f"{what} is {value!r}; expected {expected}. Correct it.")


class Scheduled:
    """Base, beside `Settings`, of the parts some of whose settings may be schedules."""

    _n_steps: int = 2**62  # a run without end, until `bind` gives the length of the run
    _bound: list[Any] | None = None  # what the schedules were made of
    _newest: tuple[int, Hyper] | None = None  # the values as they were asked for last, and at which step

    def schedule_of(self, name: str) -> ScheduleLike | None:
        """Return the number or schedule that a setting follows.

        A subclass may derive it from other settings that are schedules or plain numbers, and from what `bind` finds.
        """
        schedule: ScheduleLike | None = getattr(self, name)
        return schedule

    def bind(self, n_steps: int) -> None:
        """Bind the schedules to the length of a run in steps.

        Raises:
            ValueError: if one of them does not fit that length.
        """
        self._n_steps = n_steps
        self._bound = None
        self.hyper(0)

    def hyper(self, step: int) -> Hyper:
        """Return the values of the scheduled settings at a step. A setting may be given another value at any time.

        As long as no value can have changed, the same object is returned: an iteration may be one row.
        """
        given = [getattr(self, name) for name in _that_decide(type(self))]
        if self._bound != given:
            self._newest = None
            follows = {name: self.schedule_of(name) for name in scheduled(type(self))}
            bound = {n: as_schedule(s, self._n_steps, name=n) for n, s in follows.items() if s is not None}
            self._values = {name: bound[name](step) if name in bound else None for name in follows}
            self._moving = {name: schedule for name, schedule in bound.items() if type(schedule) is not Constant}
            self._bound = given
        if self._newest is None or (self._moving and self._newest[0] != step):
            moved = {name: schedule(step) for name, schedule in self._moving.items()}
            self._newest = step, Hyper(**{**self._values, **moved})
        return self._newest[1]


def all_settings(part: object) -> dict[str, Any]:
    """Return the settings of a part by name, defaults included, as they were given or set since.

    `type(part)(**all_settings(part))` makes a part with the same settings.
    """
    own: list[str] = [f.name for f in fields(part) if f.init] if is_dataclass(part) else []
    values = {**arguments_of(part), **{name: getattr(part, name) for name in own}}
    return {name: values[name] for name in argument_names(type(part)) if name in values}


def whole(part: Settings, name: str, least: int = 1) -> int:
    """Return a setting as an integer. Refuse one that is not whole or is below `least`."""
    part.check(name, lambda x: x >= least and x % 1 == 0, f"a whole number from {least}")
    return int(getattr(part, name))


def check_count(part: Settings, name: str) -> None:
    """Check that the schedule of a count, which is rounded, begins with a whole number from 1."""
    part.check(name, lambda x: x >= 1 and x % 1 == 0, "a whole number from 1")


def whole_count(x: float) -> int:
    """Return the rounded value of a schedule of a count."""
    return max(1, round(x))


def refuse_together(part: object, name: str, others: Mapping[str, str]) -> None:
    """Refuse a setting, which is set, beside others that are set too: not None, False or 0.

    Args:
        part: with the settings.
        name: of the one.
        others: why not with it, by name, as the end of a message, and how to mend it.
    """
    for other, why in others.items():
        if getattr(part, other) not in (None, False):
            raise ValueError(f"{type(part).__name__}: {name} and {other} are set; expected one of them, as {why}")


def arguments_of(part: object) -> dict[str, Any]:
    """Return the arguments of a part's constructor by name, without the defaults."""
    args, kwargs = vars(part).get("_given", ((), {}))
    return {**dict(zip(positional_names(type(part)), args, strict=False)), **kwargs}


def chosen(part: Settings) -> dict[str, Any]:
    """Return the arguments that differ from the defaults: a run that goes on is given all that its record has."""
    defaults, arguments = {f.name: f.default for f in fields(part)}, arguments_of(part)  # type: ignore[arg-type]
    plain = {name: x for name, x in arguments.items() if isinstance(x, Real | str | None)}
    same = [name for name, x in plain.items() if name in defaults and x == defaults[name]]
    return {name: x for name, x in arguments.items() if name not in same}


def moving(part: Scheduled) -> list[str]:
    """Return the settings that follow a schedule, and no plain number; known after `part.hyper`."""
    return list(part._moving)


@_of_class
def _check_class(cls: type[Settings]) -> None:
    """Refuse a class that lacks methods, has some that cannot be called, or sets defaults that are ignored."""
    check_class(cls)
    check_defined(cls)
    names: list[str] = [f.name for f in fields(cls) if f.init] if is_dataclass(cls) else []
    ignored = [name for name in names if name not in cls.in_class_bodies and not _set_by_dataclass(cls, name)]
    if ignored:
        raise TypeError(
            f"{cls.__name__} sets {', '.join(ignored)} in a class body, and only a dataclass takes that for a "
            "default; expected one. Put @dataclass(kw_only=True, eq=False) above the class."
        )


def _set_by_dataclass(cls: type, name: str) -> bool:
    """Return whether the value of a field in a class body is that of a dataclass."""
    owner = next((c for c in cls.__mro__ if name in vars(c)), None)
    return owner is None or "__dataclass_fields__" in vars(owner)


@_of_class
def _that_decide(cls: type) -> list[str]:
    """Return the settings that the values of scheduled ones follow from: these themselves, and plain numbers."""
    plain = (bool, int, float, "bool", "int", "float")
    return [*scheduled(cls), *(f.name for f in fields(cls) if f.type in plain)]


@_of_class
def scheduled(cls: type) -> dict[str, bool]:
    """Return the fields that a class or a base declares as scheduled, and for each whether None is allowed.

    The most derived declaration as a schedule counts. A subclass that declares the field as a plain number, to change
    its default, does not take the schedule away.
    """
    found: dict[str, bool] = {}
    classes = [c for c in cls.__mro__ if "__dataclass_fields__" in vars(c)]
    for name in cls.__dataclass_fields__:  # type: ignore[attr-defined]
        owners = [c for c in classes if name in c.__dataclass_fields__]  # type: ignore[attr-defined]
        declared = [d for c in owners if (d := _declared(c, name)) is not None]
        if declared:
            found[name] = declared[0]
    return found


def _declared(cls: type, name: str) -> bool | None:
    """Return whether a field marked as `SCHEDULED` allows None; None where it is not marked."""
    hint = hint_of(cls, cls.__dataclass_fields__[name])  # type: ignore[attr-defined]
    parts = [hint, *get_args(hint)]
    marked = any(SCHEDULED in getattr(part, "__metadata__", ()) for part in parts)
    return type(None) in parts if marked else None


def hint_of(cls: type, declared: Field[Any]) -> object:
    """Return the hint of a field; None where it names something local, or for type checkers alone."""
    try:
        names = vars(sys.modules[owner_of(cls, declared).__module__])
        alone = SimpleNamespace(__annotations__={declared.name: declared.type})
        return get_type_hints(alone, names, include_extras=True)[declared.name]
    except (NameError, AttributeError, TypeError):
        return None


def owner_of(cls: type, declared: Field[object]) -> type:
    """Return the class that has declared a field of a dataclass; those derived from it share the field.

    The annotations of a class are not asked, as Python 3.14 makes them when they are read.
    """
    sharing = [c for c in cls.__mro__ if vars(c).get("__dataclass_fields__", {}).get(declared.name) is declared]
    return sharing[-1]


@_of_class
def settings_by_group(cls: type) -> dict[str, list[str]]:
    """Return the settings of a class by their `group`, which is that of the class that was the first to declare one."""
    groups: dict[str, list[str]] = {"": []}
    for name in argument_names(cls):
        owners = [c for c in cls.__mro__ if name in vars(c).get("__dataclass_fields__", ())]
        groups.setdefault(vars(owners[-1]).get("group", "") if owners else "", []).append(name)
    return groups


@_of_class
def setting_docs(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields of a dataclass by name, as far as its source is there."""
    from docstring_parser.attrdoc import AttributeDocstrings  # help alone asks for it

    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__dataclass_fields__" in vars(base):
            with suppress(TypeError, SyntaxError):  # of a class of an interactive session
                found = AttributeDocstrings().get_attr_docs(base)
                docs |= {name: inspect.cleandoc(text) for name, (text, *_) in found.items()}
    return docs
