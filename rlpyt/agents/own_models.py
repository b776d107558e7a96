"""Models of a user's own: how they are built with the arguments that they take, and what is checked of them."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from rlpyt.models import Model
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces, random_value
from rlpyt.types import Kwargs
from rlpyt.utils.arguments import argument_names, refused_argument, unknown_argument
from rlpyt.utils.arrays import buffer_from_example, buffer_leaves, torchify_buffer

INPUTS = ("observation", "prev_action", "prev_reward")
RNN_INPUTS = (*INPUTS, "rnn_state", "episode_start")
Q_INPUTS = (*INPUTS, "action")
_WITHOUT_PREVIOUS = {INPUTS: INPUTS[:1], Q_INPUTS: (INPUTS[0], "action")}
"""What a network may take in the place of all its inputs, where it does not look at the row before."""
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


# ---- building ----


def build_model(who: str, Cls: Any, offered: Kwargs, kwargs: Kwargs) -> nn.Module:
    """Return a new model. Sizes that are numpy integers reach it as int, as torch's recurrent layers ask.

    Args:
        who: names the agent and its argument in messages.
        Cls: a class, or any callable that returns a module.
        offered: what the agent tells its models; those of them are given that `Cls` takes, all if it has `**kwargs`.
        kwargs: what the user gave beside, which comes first; every model gets a copy of its own.

    Raises:
        TypeError: if `Cls` is no callable, takes other arguments, or does not return a module.
    """
    if isinstance(Cls, nn.Module) or not callable(Cls):
        raise TypeError(
            f"{who} is {_kind(Cls)}; expected a class, or a function that returns a new model at every call, as a "
            "target network is a second one. Give the class itself, and its arguments as model_kwargs."
        )
    model = _call(who, Cls, offered, kwargs)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{who}, {_name(Cls)}, returned {_kind(model)}; expected a torch.nn.Module. Let it return one.")
    if not isinstance(model, Model) and callable(getattr(model, "update_obs_rms", None)):
        raise TypeError(
            f"{who}, {_name(Cls)}, has update_obs_rms, which is called of subclasses of rlpyt.models.Model alone; "
            "expected one. Derive it from Model, and write update_obs_rms(self, observation, valid=None)."
        )
    return model


def drop_inputs(model: nn.Module, inputs: Sequence[str] = INPUTS) -> None:
    """Let a model that takes no previous action and reward be called with all inputs, like any other.

    A hook of torch drops these where `forward` takes the observation alone, or of action values the observation and the
    action. Nothing is wrapped around the model, so its weights keep their names.
    """
    if _takes_no_previous(model, inputs):
        model.register_forward_pre_hook(_observation_alone if inputs == INPUTS else _observation_and_action)


def _takes_no_previous(model: nn.Module, inputs: Sequence[str]) -> bool:
    """Return whether a model takes all of its inputs but the previous action and reward, and no further ones."""
    fewer, signature = _WITHOUT_PREVIOUS.get(tuple(inputs)), _signature(model)
    if fewer is None or signature is None:
        return False
    return _binds(signature, fewer) and not _binds(signature, [*fewer, "one more"])


# Functions of the module, so that a model with one of them can be copied and pickled.
def _observation_alone(model: nn.Module, inputs: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    return inputs[:1]


def _observation_and_action(model: nn.Module, inputs: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    return inputs[0], inputs[-1]


def _call(who: str, Cls: Callable[..., Any], offered: Kwargs, kwargs: Kwargs) -> Any:
    parameters = _parameters(Cls)
    takes_all = parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters)
    by_name = {p.name: p for p in parameters or () if p.kind in _BY_NAME}
    given = {**{name: x for name, x in offered.items() if takes_all or name in by_name}, **copy_of_kwargs(kwargs)}
    given = {name: int(x) if isinstance(x, np.integer) else x for name, x in given.items()}
    missing = [name for name, p in by_name.items() if p.default is p.empty and name not in given]
    if missing:
        raise TypeError(
            f"{who}, {_name(Cls)}, takes {', '.join(by_name)}, and {', '.join(missing)} was not given; expected "
            f"each from model_kwargs, or one of these, which the agent gives: {', '.join(offered)}. Put {missing[0]} "
            "into model_kwargs, give it a default, or let the constructor take one of these instead."
        )
    for name in kwargs:
        if not takes_all and name not in by_name:
            raise TypeError(f"{who}: {unknown_argument(_name(Cls), name, list(by_name))}")
    try:
        return Cls(**given)
    except TypeError as error:
        refused = refused_argument(error, Cls)
        if refused is None or refused not in given:
            raise
        names = argument_names(Cls) if isinstance(Cls, type) else list(by_name)
        raise TypeError(f"{who}: {unknown_argument(_name(Cls), refused, names)}") from error


def copy_of_kwargs(kwargs: Kwargs) -> Kwargs:
    """Return a deep copy of a model's arguments: one that takes settings out of a dictionary leaves the next its own.

    What cannot be copied, such as an open file, is the same in all models.
    """
    try:
        return copy.deepcopy(dict(kwargs))
    except Exception:
        return dict(kwargs)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return what a function takes; None if it cannot be asked."""
    if isinstance(function, type) and function.__init__ is nn.Module.__init__:  # type: ignore[misc]
        return []  # it takes any arguments, and refuses all
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _name(x: Any) -> str:
    return x.__qualname__ if isinstance(x, type) or inspect.isroutine(x) else type(x).__name__


def _kind(x: Any) -> str:
    return f"the object {x!r:.60}" if not isinstance(x, nn.Module) else f"an object, a {type(x).__name__}"


# ---- checks ----


def check_call(who: str, model: nn.Module, names: Sequence[str]) -> None:
    """Refuse a model whose forward cannot be called with these arguments by position.

    Args:
        who: names agent and model in the message.
        model: to be called.
        names: of the arguments.

    Raises:
        TypeError: if it cannot.
    """
    signature = _signature(model)
    if signature is None or _binds(signature, names) or _takes_no_previous(model, names):
        return
    lacks_start = names[-1] == "episode_start" and _binds(signature, names[:-1])
    fewer = _WITHOUT_PREVIOUS.get(tuple(names))
    advice = (
        "Add `episode_start=None` as its last argument, and set the state to zero before the rows where it is True, as "
        "rlpyt.models.RecurrentCore does when called with (x, rnn_state, episode_start): nn.LSTM and nn.GRU do not."
        if lacks_start
        else f"Write forward(self, {', '.join(names)})"
        + (f", or forward(self, {', '.join(fewer)}) without the row before." if fewer else ".")
    )
    raise TypeError(
        f"{who} has forward{signature}, which cannot be called with {len(names)} arguments by position; expected "
        f"({', '.join(names)}). {advice}"
    )


def _signature(model: nn.Module) -> inspect.Signature | None:
    """Return what the forward of a model takes; None if it cannot be asked."""
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None


def _binds(signature: inspect.Signature, names: Sequence[str]) -> bool:
    try:
        signature.bind(*names)
    except TypeError:
        return False
    return True


@contextmanager
def told_call(who: str, **inputs: Buffer) -> Iterator[None]:
    """Add to an error from inside of a model what it was called with: the user has made no such call.

    Args:
        who: names agent and model in the note.
        **inputs: of the call, by name.
    """
    try:
        yield
    except Exception as error:
        told = ", ".join(f"{name} {_shapes(x)}" for name, x in inputs.items())
        error.add_note(f"{who} raised this when its outputs were checked before training. It was called with {told}.")
        raise


def _shapes(x: Buffer) -> str:
    """Return shapes and dtypes of inputs, with the names of their parts."""
    if isinstance(x, NamedArrayTuple):
        return "{" + ", ".join(f"{name}: {_shapes(part)}" for name, part in x.items()) + "}"
    return f"{list(x.shape)} {str(x.dtype).removeprefix('torch.')}"


def check_rnn_state(who: str, state: Buffer, n_rows: int) -> None:
    """Refuse a recurrent state whose leaves are not [N, n_rows, ...].

    Raises:
        ValueError: if they are not.
    """
    leaves = buffer_leaves(state)
    shapes = [shape_of(leaf) for leaf in leaves]
    if not leaves or any(len(shape) < 2 or shape[1] != n_rows for shape in shapes):
        raise ValueError(
            f"{who} gave a next state of shapes {[list(shape) for shape in shapes]} for {n_rows} rows; expected a "
            f"tensor or a tuple of tensors [N, {n_rows}, H], as torch.nn.LSTM has them: layers, rows, units. Let its "
            "forward return this last."
        )


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the shape of a tensor; () of anything else."""
    return tuple(x.shape) if isinstance(x, torch.Tensor) else ()


def described(x: Any) -> str:
    """Return in words what a model gave."""
    if isinstance(x, torch.Tensor):
        return f"a tensor {list(x.shape)}"
    if isinstance(x, tuple | list):
        return f"a {type(x).__name__} of {len(x)}: {', '.join(map(described, x))}"
    return f"a {type(x).__name__}"


def check_not_probabilities(who: str, logits: torch.Tensor, sizes: Sequence[int]) -> None:
    """Refuse outputs that are probabilities where logits are expected: a softmax of them is nearly uniform.

    Args:
        who: names agent and model in the message.
        logits: [n_rows, ..., sum(sizes)] of different observations.
        sizes: of the choices, which stand one after the other.

    Raises:
        ValueError: if all sum to 1 and differ from row to row. Constant ones, and those that are 0 and 1, may be what
            is meant: these are warned of.
    """
    choices = [x for x in logits.split(list(sizes), -1) if x.shape[-1] > 1]
    if not choices or not all(_sum_to_one(x) for x in choices):
        return
    row = choices[0].flatten(0, -2)[0].tolist()
    example = ", ".join([*(f"{p:.3g}" for p in row[:6]), *(["..."] if len(row) > 6 else [])])
    text = (
        f"{who} gave outputs in [0, 1] that sum to 1, such as [{example}], for "
        f"{len(logits)} random observations: these look like probabilities; expected logits, of which the agent takes "
        "the softmax itself. Let its forward return what goes into the softmax, or the logarithm of what comes out."
    )
    if any((x != x[:1]).any() and ((x > 0) & (x < 1)).any() for x in choices):
        raise ValueError(text)
    warnings.warn(text, stacklevel=2)


def _sum_to_one(x: torch.Tensor) -> bool:
    return bool(((x >= 0) & (x <= 1)).all() and ((x.sum(-1) - 1).abs() < 1e-5).all())


def random_observations(env_spaces: EnvSpaces, n_rows: int) -> Buffer:
    """Return different observations of a space as a model takes them, [n_rows, ...], always the same ones."""
    space, rng = copy.deepcopy(env_spaces.observation), np.random.default_rng(0)  # the environment's stays as it is
    rows = [random_value(space, rng) for _ in range(n_rows)]
    buffer = buffer_from_example(rows[0], n_rows)
    for i, row in enumerate(rows):
        buffer[i] = row
    return torchify_buffer(buffer)
