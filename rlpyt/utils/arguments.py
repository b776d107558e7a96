"""Messages for unknown arguments: close names, and the names that other libraries use."""

from __future__ import annotations

import inspect
import re
from abc import ABCMeta
from collections.abc import Callable, Collection
from difflib import SequenceMatcher
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from rlpyt.old_names import PAGE, SETTINGS

P = ParamSpec("P")
R = TypeVar("R")
if TYPE_CHECKING:
    _Meta = ABCMeta
else:  # a class has one metaclass, derived from those of all its bases: a user's may be a Protocol
    _Meta = type(Protocol)

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


class NamedArguments(_Meta):
    """Metaclass of classes that suggest close names for an unknown argument of their constructor.

    Constructors may take some of their `**kwargs` and pass the others on. Python itself says which name none of them
    knew.
    """

    noun = "argument"
    """What the arguments are called."""
    # Those of a Protocol are slow, and rely on what only a Protocol has.
    __instancecheck__ = ABCMeta.__instancecheck__
    __subclasscheck__ = ABCMeta.__subclasscheck__

    if not TYPE_CHECKING:  # to a type checker an instance is what `__init__` says

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            """Return an instance; raise TypeError with close names for an unknown argument."""
            try:
                return super().__call__(*args, **kwargs)
            except TypeError as error:
                if cls.__abstractmethods__:
                    raise TypeError(_undefined(cls)) from None
                if (text := _given_twice(error, cls)) is not None:
                    raise TypeError(text) from error
                name = refused_argument(error, cls)
                if name not in kwargs:
                    raise
                raise TypeError(unknown_argument(cls.__name__, name, argument_names(cls), cls.noun)) from None

        @property
        def __signature__(cls) -> inspect.Signature:
            """Signature of the constructor, which `__call__` would hide."""
            signature = inspect.signature(cls.__init__)
            return signature.replace(parameters=list(signature.parameters.values())[1:])


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
    own = [base.__qualname__ for base in called.__mro__] if isinstance(called, type) else [_qualname(called)]
    # torch.nn.Module says the class without the function that it stands in.
    return found[2] if found and found[1] in {*own, *(name.rpartition(".")[2] for name in own)} else None


def _undefined(cls: type) -> str:
    """Return a message about methods that a class must define, with what each of them does."""
    methods = [getattr(cls, name) for name in sorted(cls.__abstractmethods__)]  # type: ignore[attr-defined]
    told = [f"{m.__name__} ({(inspect.getdoc(m) or 'no description').splitlines()[0].rstrip('.')})" for m in methods]
    return f"{cls.__name__} is abstract: it does not define {'; '.join(told)}. Define each of them. See {PAGE}."


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


def _qualname(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", ""))  # partial objects, for one, have none


def unknown_argument(who: str, name: str, names: Collection[str], noun: str = "argument") -> str:
    """Return a message about an unknown argument that suggests close names.

    Args:
        who: the class or function that was called.
        name: the unknown name.
        names: the names that it has.
        noun: the word for them in the message.
    """
    if name in SETTINGS:
        return f"{who} has no {name!r}, as rlpyt 0.1 had. {SETTINGS[name]} See {PAGE}."
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
