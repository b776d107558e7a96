"""Settings: the base of every part that is put together by name: samplers, agents, algorithms, runners."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise
from numbers import Real
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_type_hints

from rlpyt.functional import SCHEDULED, Schedule, as_schedule
from rlpyt.utils.arguments import NamedArguments, argument_names, positional_names


class Hyper(SimpleNamespace):
    """Values of the scheduled settings at one step, as attributes."""


class SettingsType(NamedArguments):
    """Metaclass of `Settings`: keeps what a constructor was given; `help` shows the docstrings of fields."""

    if not TYPE_CHECKING:  # to a type checker an instance is what `__init__` says

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            """Return an instance that knows the arguments it was made with."""
            part = super().__call__(*args, **kwargs)
            vars(part)["_given"] = args, kwargs
            return part

        @property
        def __doc__(cls) -> str | None:
            """The class's docstring, with an entry for every field."""
            text = vars(cls).get("__doc__")
            # A dataclass asks for it while it is made, when there is nothing to add yet.
            if text is None or "__match_args__" not in vars(cls) or "Args:" in text:
                return text
            docs = setting_docs(cls)
            entries = [f"    {name}: {docs.get(name, '')}".replace("\n", "\n        ") for name in argument_names(cls)]
            return "\n".join([inspect.cleandoc(text), "", "Args:", *entries])

        @__doc__.setter
        def __doc__(cls, text: str) -> None:
            type.__setattr__(cls, "_doc", text)


class Settings(metaclass=SettingsType):
    """Base of the parts whose settings are dataclass fields, each with a docstring of its own.

    The fields keep what the user gave; values that follow from them live in other attributes. A field of the type
    `ScheduleLike` may be a number, a string such as "lin_2.5e-4", or any callable of the step count. A subclass adds
    fields as a dataclass of its own, or has an `__init__` that passes on what it does not know.
    """

    noun: ClassVar[str] = "argument"
    """What a setting is called in a message about an unknown name."""
    in_class_bodies: ClassVar[frozenset[str]] = frozenset()
    """Settings that the body of a subclass may set without being a dataclass, as parts of rlpyt 0.1 did."""
    _n_steps: int = 2**62  # a run without end, until `bind` says how long it is

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse settings without a name where all have one, and say why one would not be heard."""
        if args and all(p.kind is p.KEYWORD_ONLY for p in [*inspect.signature(cls.__init__).parameters.values()][1:]):
            raise TypeError(
                f"{cls.__name__}: got {len(args)} {cls.noun}s without a name, {args[0]!r} first; expected each by its "
                f"name, such as {cls.__name__}({fields(cls)[0].name}=...)."  # type: ignore[arg-type]
            )
        unheard: list[str] = (
            [f.name for f in fields(cls) if not _set_by_dataclass(cls, f.name) and f.name not in cls.in_class_bodies]
            if is_dataclass(cls)
            else []
        )
        if unheard:
            raise TypeError(
                f"{cls.__name__} sets {', '.join(unheard)} in a class body, and only a dataclass takes that for a "
                "default; expected one. Put @dataclass(kw_only=True, eq=False) above the class."
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse values of the wrong kind; a subclass calls this first and adds its own checks."""
        for name in self.in_class_bodies:
            if not _set_by_dataclass(type(self), name):
                setattr(self, name, getattr(type(self), name))
        for name, optional in self.scheduled().items():
            if getattr(self, name) is None and not optional:
                raise TypeError(f"{type(self).__name__}: {name} is None; expected a number or a schedule. Give one.")
            self.check(name, lambda x: x == x, "a number")
        for f in fields(self):  # type: ignore[arg-type]
            if f.type in (bool, "bool") and getattr(self, f.name) not in (True, False):
                raise TypeError(
                    f"{type(self).__name__}: {f.name} is {getattr(self, f.name)!r}; expected True or False. Give one."
                )

    def given(self) -> dict[str, Any]:
        """Return all settings by name, as they were given or set since, complete with the defaults.

        `type(part)(**part.given())` makes a part with the same settings.
        """
        args, kwargs = vars(self).get("_given", ((), {}))
        positions = dict(zip(positional_names(type(self)), args, strict=False))
        known: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}
        values = {**positions, **kwargs, **known}
        return {name: values[name] for name in argument_names(type(self)) if name in values}

    def replace(self, **changes: Any) -> Self:
        """Return a new part with the same settings but for these."""
        return type(self)(**{**self.given(), **changes})

    def check(self, name: str, holds: Callable[[Any], bool], expected: str) -> None:
        """Refuse a setting that does not hold; a schedule is judged by its value at step 0, None is taken.

        Raises:
            ValueError: if it does not hold.
            TypeError: if it is neither a number nor, where the field may be one, a schedule or None.
        """
        value, what = getattr(self, name), f"{type(self).__name__}: {name}"
        scheduled = name in self.scheduled()
        if value is None and scheduled:
            return
        if not scheduled and not isinstance(value, Real):
            raise TypeError(
                f"{what} is {value!r} of type {type(value).__name__}; expected {expected}, which may not change during "
                "the run. Convert it."
            )
        # Bound to a run without end, as a schedule that begins late is no error yet.
        if not holds(as_schedule(value, n_steps=2**62, name=what)(0)):
            raise ValueError(f"{what} is {value!r}; expected {expected}. Correct it.")

    def whole(self, name: str, least: int = 1) -> int:
        """Return a setting as an integer, and refuse one that is not whole or below `least`."""
        self.check(name, lambda x: x >= least and x % 1 == 0, f"a whole number from {least}")
        return int(getattr(self, name))

    # ---- schedules ----

    @classmethod
    def scheduled(cls) -> dict[str, bool]:
        """Return the fields that may hold a schedule, and of each whether None is allowed."""
        return _scheduled(cls)

    def schedule_of(self, name: str) -> Any:
        """Return the number or schedule that a setting follows: the one given, unless a subclass has a rule."""
        return getattr(self, name)

    def bind(self, n_steps: int) -> None:
        """Bind the schedules to the length of a run, in steps.

        Raises:
            ValueError: if one of them does not fit it.
        """
        self._n_steps = n_steps
        self._bound: dict[str, tuple[Any, Schedule | None]] = {}
        self.hyper(0)

    def hyper(self, step: int) -> Hyper:
        """Return the scheduled settings at a step. A setting that was given another value since follows that."""
        return Hyper(
            **{name: None if (s := self.bound_schedule(name)) is None else s(step) for name in self.scheduled()}
        )

    def bound_schedule(self, name: str) -> Schedule | None:
        """Return the schedule of a setting over the steps of the run; None where the setting is None."""
        given = self.schedule_of(name)
        bound = self._bound.get(name)
        if bound is None or (bound[0] is not given and bound[0] != given):
            schedule = None if given is None else as_schedule(given, self._n_steps, name=name)
            bound = self._bound[name] = given, schedule
        return bound[1]


def _set_by_dataclass(cls: type, name: str) -> bool:
    owner = next((c for c in cls.__mro__ if name in vars(c)), None)
    return owner is None or "__dataclass_fields__" in vars(owner)


@cache
def _scheduled(cls: type) -> dict[str, bool]:
    """Return the fields that a class or one of its bases declares as scheduled, and of each whether None is allowed.

    The most derived declaration counts; where a class declares a field as a plain number, that of its base does.
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
    annotation = cls.__dataclass_fields__[name].type  # type: ignore[attr-defined]
    module = next(c.__module__ for c in cls.__mro__ if name in inspect.get_annotations(c))
    try:
        hints = get_type_hints(
            SimpleNamespace(__annotations__={name: annotation}), vars(sys.modules[module]), include_extras=True
        )
    except (NameError, AttributeError, TypeError):  # a name of a function that the class stands in
        return None
    parts = [hints[name], *get_args(hints[name])]
    marked = any(SCHEDULED in getattr(part, "__metadata__", ()) for part in parts)
    return type(None) in parts if marked else None


@cache
def setting_docs(cls: type) -> dict[str, str]:
    """Return the docstring of every field of a dataclass, by name, from the source of its class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__dataclass_fields__" not in vars(base):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):  # a class without a source, such as one of an interactive session
            continue
        for field, text in pairwise(tree.body[0].body):  # type: ignore[attr-defined]
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _is_text(text):
                docs[field.target.id] = inspect.cleandoc(text.value.value)
    return docs


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
