"""Messages for unknown arguments: close names, and the names that other libraries use."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from difflib import SequenceMatcher
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from rlpyt.old_rlpyt import PAGE, compat

P = ParamSpec("P")
R = TypeVar("R")

ELSEWHERE = {
    "gamma": "discount",
    "tau": "target_update_tau",
    "lr": "learning_rate",
    "learning_starts": "min_steps_learn",
    "buffer_size": "replay_size",
    "max_grad_norm": "clip_grad_norm",
    "clip_range": "ratio_clip",
    "clip_coef": "ratio_clip",
    "n_epochs": "epochs",
    "update_epochs": "epochs",
    "num_minibatches": "minibatches",
    "ent_coef": "entropy_loss_coeff",
    "vf_coef": "value_loss_coeff",
    "n_critics": "n_q",
    "num_envs": "batch_B",
    "n_envs": "batch_B",
    "num_steps": "batch_T",
    "total_timesteps": "n_steps",
    "policy_kwargs": "model_kwargs",
    "net_arch": "hidden_sizes",
}
"""Arguments by the names that other libraries have for them, and the names here."""
_CLOSE = 0.8
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class SuggestsArguments:
    """Base of classes that suggest close names for an unknown argument of their constructors."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = suggesting(cls.__init__)  # type: ignore[method-assign]


def suggesting(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that suggests close names for an unknown argument.

    It may take some of its `**kwargs` and pass the others on. Python itself says which name none of the bases knew.
    """

    @wraps(init)
    def called(self: Any, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            if (text := _given_twice(error, cls)) is not None:
                raise TypeError(text) from error
            name = refused_argument(error, cls)
            if name not in kwargs:
                raise
            noun = getattr(cls, "noun", "argument")
            raise TypeError(unknown_argument(cls.__name__, name, argument_names(cls), noun)) from None

    return called


def check_arguments(cls: type, args: Collection[Any], kwargs: Collection[str], noun: str) -> None:
    """Refuse arguments that a constructor does not take; one that passes some on is asked itself.

    Raises:
        TypeError: with close names for an unknown one.
    """
    parameters = list(_signature(cls).parameters.values())[1:]
    if args and all(p.kind is p.KEYWORD_ONLY for p in parameters):
        raise TypeError(
            f"{cls.__name__}: got {len(args)} {noun}s without a name, {next(iter(args))!r} first; expected each by its "
            f"name, such as {cls.__name__}({parameters[0].name}=...)."
        )
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        known = {p.name for p in parameters}
        unknown = next((name for name in kwargs if name not in known), None)
        if unknown is not None:
            raise TypeError(unknown_argument(cls.__name__, unknown, argument_names(cls), noun))


def own_names(cls: type) -> set[str]:
    """Return the names that a class, or a base of it, defines outside of the library."""
    return {name for c in cls.__mro__ if c.__module__.split(".")[0] != "rlpyt" for name in vars(c)}


def check_defined(cls: type) -> None:
    """Refuse a class that lacks methods, and say what each of them does."""
    methods = [getattr(cls, name) for name in sorted(getattr(cls, "__abstractmethods__", ()))]
    told = [f"{m.__name__} ({(inspect.getdoc(m) or 'no description').splitlines()[0].rstrip('.')})" for m in methods]
    if told:
        raise TypeError(
            f"{cls.__name__} is abstract: it does not define {'; '.join(told)}. Define each of them. See {PAGE}."
        )


@cache
def _signature(cls: type) -> inspect.Signature:
    return inspect.signature(cls.__init__)  # type: ignore[misc]


def named_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it suggests close names for an unknown argument."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            name = refused_argument(error, function)
            if name is None or name not in kwargs:
                raise
            names = list(inspect.signature(function).parameters)
            raise TypeError(unknown_argument(function.__name__, name, names)) from None

    return called


def argument_names(cls: type) -> list[str]:
    """Return the names of the constructor's arguments, and of those of its bases that `**kwargs` are passed on to."""
    return _names(cls, _NAMED, inspect.Parameter.VAR_KEYWORD)


def positional_names(cls: type) -> list[str]:
    """Return the names of positional arguments, and of those of the bases that `*args` are passed on to."""
    return _names(cls, _NAMED[:1], inspect.Parameter.VAR_POSITIONAL)


def _names(cls: type, kinds: Collection[object], passes_on: object) -> list[str]:
    """Return names of arguments of the constructor and its bases, up to the base that passes none on."""
    names: dict[str, None] = {}
    for base in cls.__mro__[:-1]:
        if "__init__" in vars(base):
            parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            names |= dict.fromkeys(p.name for p in parameters if p.kind in kinds)
            if not any(p.kind is passes_on for p in parameters):
                break
    return list(names)


def refused_argument(error: TypeError, called: Any) -> str | None:
    """Return the name that a constructor or function did not know; None if the error is about something else."""
    found = re.match(r"(.+?)(?:\.__init__)?\(\) got an unexpected keyword argument '(.+?)'", str(error))
    # A partial object, for one, has no name.
    things = called.__mro__ if isinstance(called, type) else [called]
    own = [getattr(thing, "__qualname__", "") for thing in things]
    # torch.nn.Module says the class without the function that it stands in.
    return found[2] if found and found[1] in {*own, *(name.rpartition(".")[2] for name in own)} else None


def _given_twice(error: TypeError, cls: type) -> str | None:
    """Return a message about an argument that a constructor got by position and by name; None for other errors."""
    found = re.match(r"(.+?)\.__init__\(\) got multiple values for argument '(.+?)'", str(error))
    owner = next((base for base in cls.__mro__ if found and base.__qualname__ == found[1]), None)
    if found is None or owner is None:
        return None
    return (
        f"{cls.__name__}: {owner.__name__}.__init__ got {found[2]!r} by position and by name; expected it once. "
        f"Arguments without a name are {', '.join(positional_names(owner))}, in this order, which may be another one "
        f"than in rlpyt 0.1. Give all of them by name, in super().__init__(...) of a subclass too. See {PAGE}."
    )


def unknown_argument(who: str, name: str, names: Collection[str], noun: str = "argument") -> str:
    """Return a message about an unknown argument that suggests close names."""
    if old := compat("names").SETTINGS.get(name):
        return f"{who} has no {name!r}, as rlpyt 0.1 had. {old} See {PAGE}."
    close = [ELSEWHERE[name]] if ELSEWHERE.get(name) in names else close_names(name, names)
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return f"{who} has no {noun} {name!r}. {hint}It has: {', '.join(names)}."


def close_names(name: str, names: Collection[str]) -> list[str]:
    """Return at most three names that are close to a misspelt one, the closest first."""
    scores = {other: _closeness(name.lower(), other.lower()) for other in names}
    return sorted((other for other in names if scores[other] >= _CLOSE), key=lambda x: -scores[x])[:3]


def _closeness(a: str, b: str) -> float:
    """Return how close two names are, from 0 to 1, by their letters or by their words in any order."""
    words_a, words_b = sorted(a.split("_")), sorted(b.split("_"))
    if len(words_a) > 1 and set(words_a) <= set(words_b):
        return 1.0 if words_a == words_b else _CLOSE
    return SequenceMatcher(None, a, b).ratio()
