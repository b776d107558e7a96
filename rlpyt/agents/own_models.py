"""Models of an agent: how they are built for the spaces, and what is checked of those of a user's own."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, NoReturn

import gymnasium
import numpy as np
import torch
from torch import nn

from rlpyt.agents.actor import of_its_kind
from rlpyt.core import Agent, ChoiceAgent, QpgPolicyAgent, example_inputs
from rlpyt.distributions import Categorical, Gaussian, MultiCategorical, leaf_distributions
from rlpyt.models import ActorModel, Encoder, FeatureModel, Model
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces, random_value, without_mask
from rlpyt.types import Kwargs
from rlpyt.utils.arguments import argument_names, refused_argument, unknown_argument
from rlpyt.utils.arrays import buffer_from_example, buffer_leaves, torchify_buffer
from rlpyt.utils.checks import described

_INPUTS = ("observation", "prev_action", "prev_reward")
_OF_FEATURES = ("features", "prev_action", "prev_reward")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


# ---- building ----


def build_model(who: str, Cls: Any, offered: Kwargs, kwargs: Kwargs) -> nn.Module:
    """Return a new model; refuse what makes none, or takes other arguments.

    Args:
        who: names the agent and its argument in messages.
        Cls: a class, or any callable that returns a module.
        offered: what the agent tells its models; those of them are given that `Cls` takes, all if it has `**kwargs`.
        kwargs: what the user gave beside, which comes first; every model gets a copy of its own.
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


def drop_inputs(model: nn.Module, inputs: Sequence[str] = _INPUTS) -> None:
    """Make a model that takes no previous action and reward callable with all inputs.

    A hook of torch drops these where `forward` takes the observation alone, or of action values the observation and the
    action. Nothing is wrapped around the model, so its weights keep their names.
    """
    if _takes_no_previous(model, inputs):
        model.register_forward_pre_hook(_without_previous)


def _takes_no_previous(model: nn.Module, inputs: Sequence[str]) -> bool:
    """Return whether a model takes all of its inputs but the previous action and reward, and no further ones."""
    fewer, signature = (inputs[0], *inputs[3:]), _signature(model.forward)
    return "rnn_state" not in inputs and _binds(signature, fewer) and not _binds(signature, [*fewer, "one more"])


# A function of the module, so that a model with it can be copied and pickled.
def _without_previous(model: nn.Module, inputs: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    return inputs[0], *inputs[3:]


def _call(who: str, Cls: Callable[..., Any], offered: Kwargs, kwargs: Kwargs) -> Any:
    # A module without a constructor takes no arguments, whatever its signature says.
    plain = isinstance(Cls, type) and Cls.__init__ == nn.Module.__init__  # type: ignore[misc]
    parameters = [] if plain else _signature(Cls).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    by_name = {p.name: p for p in parameters if p.kind in _BY_NAME}
    try:  # a deep copy, as a model may take settings out of a dictionary, which the next model needs too
        kwargs = copy.deepcopy(dict(kwargs))
    except Exception:  # an open file, for one, is the same in all models
        kwargs = dict(kwargs)
    given = {**{name: x for name, x in offered.items() if takes_all or name in by_name}, **kwargs}
    # torch's recurrent layers ask for plain integers.
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


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, or one that takes anything if it has none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return inspect.signature(lambda *args, **kwargs: None)


def _binds(signature: inspect.Signature, names: Sequence[str]) -> bool:
    try:
        signature.bind(*names)
    except TypeError:
        return False
    return True


def _name(x: Any) -> str:
    return x.__qualname__ if isinstance(x, type) or inspect.isroutine(x) else type(x).__name__


def _kind(x: Any) -> str:
    return f"the object {x!r:.60}" if not isinstance(x, nn.Module) else f"an object, a {type(x).__name__}"


def new_model(agent: Agent) -> nn.Module:
    """Return a new model for the spaces of an agent (a target network is another one).

    Of an agent with features it is these and the policy over them.
    """
    model: nn.Module
    if isinstance(agent, QpgPolicyAgent):
        body = _new_body(agent)
        model = ActorModel(body, _new_network(agent, "the policy"))
        # The agent calls the encoder of the value beside the body.
        readers = [body] if body.value_encoder is None else [body, body.value_encoder]
    else:
        model = _new_network(agent, "DefaultModelCls", with_layer=True, **_of_values(agent))
        readers = [model]
    if (masks := of_its_kind(agent).networks.masks) is not None:
        for reader in readers:
            masks.hide_from(reader)
    return model


def _new_network(agent: Agent, default: str, with_layer: bool = False, **further: int) -> nn.Module:
    """Return a network of the class that the user gave, or of the default one, which messages call `default`.

    The default class is told the recurrent layer `with_layer`; `further` is told beside the spaces.
    """
    own, who = of_its_kind(agent), type(agent).__name__
    offered = {**own.make_env_to_model_kwargs(without_mask(agent.env_spaces)), **further}
    if own.ModelCls is not None:
        model = build_model(f"{who}: ModelCls", own.ModelCls, offered, own.model_kwargs)
    elif (DefaultModelCls := type(own).DefaultModelCls) is None:
        raise TypeError(f"{who}: ModelCls is None, and there is no DefaultModelCls; expected one of them.")
    else:
        kwargs: Kwargs = {**{name: getattr(own, x) for name, x in own.told_to_default.items()}, **own.model_kwargs}
        if with_layer:
            kwargs = _with_layer(agent, DefaultModelCls, kwargs)
        model = build_model(f"{who}: {default}", DefaultModelCls, offered, kwargs)
    _fit_encoder(model, agent)
    drop_inputs(model)
    return model


def _of_values(agent: Agent) -> Kwargs:
    """Return the argument that tells a model how many outputs the agent reads as a value, if not one."""
    n = agent.values.n_outputs
    return {} if n is None else {"n_atoms": n}


def _fit_encoder(model: nn.Module, agent: Agent) -> None:
    # A model may have been told the shape of observations alone.
    if isinstance(model, Model) and isinstance(model.encoder, Encoder):
        model.encoder.fit_to(without_mask(agent.env_spaces).observation)


def _with_layer(agent: Agent, DefaultModelCls: Callable[..., nn.Module], kwargs: Kwargs) -> Kwargs:
    """Return the arguments of an agent's default model with its recurrent layer, if it takes the choice."""
    if "recurrent" in inspect.signature(DefaultModelCls).parameters:
        return _with_recurrence(agent, kwargs, "model_kwargs")
    if agent.recurrent not in (True, False, "lstm"):
        raise ValueError(
            f"{type(agent).__name__}: recurrent is {agent.recurrent!r}, and its model of rlpyt 0.1 has an LSTM; "
            "expected True. To choose the layer use an agent with the default model, such as "
            "RecurrentCategoricalPgAgent, RecurrentGaussianPgAgent or R2d1Agent."
        )
    return kwargs


def _with_recurrence(agent: Agent, kwargs: Kwargs, name: str) -> Kwargs:
    """Return the arguments of a default model with its recurrent layer, an LSTM unless one is named."""
    recurrent, given = agent.recurrent, kwargs.get("recurrent")
    if isinstance(recurrent, str) and given not in (None, recurrent):
        raise ValueError(
            f"{type(agent).__name__}: recurrent is {recurrent!r}, and {given!r} in {name}; expected one of them. Leave "
            "the other out."
        )
    layer = "lstm" if recurrent is True else recurrent
    return {**({"recurrent": layer} if layer else {}), **kwargs}


def _new_body(agent: Agent) -> Model:
    """Return a new network of features, whose size the policy is told."""
    own, who, kwargs = of_its_kind(agent), type(agent).__name__, of_its_kind(agent).feature_kwargs
    BodyCls = type(own).BodyCls  # of the class, as a function in a class is no method of its objects here
    if BodyCls is FeatureModel:
        kwargs = _with_recurrence(agent, kwargs, "feature_kwargs")
    offered = {
        "observation_space": without_mask(agent.env_spaces).observation,
        "action_size": agent.distribution.dim,
    }
    body = build_model(f"{who}: BodyCls", BodyCls, offered, kwargs)
    if BodyCls is FeatureModel and body.recurrent != bool(agent.recurrent):
        raise ValueError(
            f"{who}: feature_kwargs has recurrent={kwargs.get('recurrent')!r}; expected "
            f"{'lstm or gru' if agent.recurrent else 'None'}. Recurrent are agents with recurrent=True, such "
            "as RecurrentDdpgAgent, RecurrentTd3Agent and RecurrentSacAgent, and they alone."
        )
    if not isinstance(body, Model) or not hasattr(body, "output_size"):
        raise TypeError(
            f"{who}: BodyCls made a {type(body).__name__}; expected a Model of rlpyt.models "
            "with an `output_size`, the number of features. Derive its class from Model, and set this there."
        )
    own._feature_size = body.output_size
    _fit_encoder(body, agent)
    drop_inputs(body)
    return body


def new_q_model(agent: Agent) -> nn.Module:
    """Return new networks of action values."""
    own = of_its_kind(agent)
    offered = {**own.make_env_to_model_kwargs(agent.env_spaces), "n_models": own.n_q, **_of_values(agent)}
    body = own.model.body
    if body.value_encoder is not None:
        offered["observation_shape"] = (body.output_size + body.value_encoder.output_size,)
    kwargs = {**({"hidden_sizes": own.hidden_sizes} if own.QModelCls is None else {}), **own.q_model_kwargs}
    model = build_model(f"{type(agent).__name__}: QModelCls", own.QModelCls or own.DefaultQModelCls, offered, kwargs)
    drop_inputs(model, _OF_FEATURES if isinstance(agent, ChoiceAgent) else (*_OF_FEATURES, "action"))
    return model


# ---- checks ----


@contextmanager
def calling(who: str, model: nn.Module, **inputs: Buffer) -> Iterator[None]:
    """Hold around a call of a model with these inputs by position, which the user has not made.

    A forward that cannot be called with them is refused; an error from inside of it is told what it was called with.
    """
    names, signature = tuple(inputs), _signature(model.forward)
    if not _binds(signature, names) and not _takes_no_previous(model, names):
        expected = ", ".join(names)
        advice = f"Write forward(self, {expected})"
        if "rnn_state" not in names:
            advice += f", or forward(self, {', '.join((names[0], *names[3:]))}) without the row before."
        elif _binds(signature, names[:-1]):
            advice = (
                "Add `episode_start=None` as its last argument, and set the state to zero before the rows where it is "
                "True, as rlpyt.models.RecurrentCore does when called with (x, rnn_state, episode_start): nn.LSTM and "
                "nn.GRU do not."
            )
        raise TypeError(
            f"{who} has forward{signature}, which cannot be called with {len(names)} arguments by position; expected "
            f"({expected}). {advice}"
        )
    try:
        yield
    except Exception as error:
        told = ", ".join(f"{name} {_shapes(x)}" for name, x in inputs.items() if x is not None)
        error.add_note(f"{who} raised this when its outputs were checked before training. It was called with {told}.")
        raise


def _shapes(x: Buffer) -> str:
    """Return shapes and dtypes of inputs, with the names of their parts."""
    if isinstance(x, NamedArrayTuple):
        return "{" + ", ".join(f"{name}: {_shapes(part)}" for name, part in x.items()) + "}"
    return f"{list(x.shape)} {str(x.dtype).removeprefix('torch.')}"


def refuse(who: str, given: Buffer, expected: str) -> NoReturn:
    """Raise ValueError for what a model gave for three rows."""
    raise ValueError(f"{who} gave {described(given)} for 3 rows; expected {expected}. Let its forward return this.")


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the shape of a tensor; () of anything else."""
    return tuple(x.shape) if isinstance(x, torch.Tensor) else ()


def check_rnn_state(who: str, state: Buffer, n_rows: int) -> None:
    """Check that the leaves of a recurrent state are [N, n_rows, ...]."""
    leaves = buffer_leaves(state)
    shapes = [shape_of(leaf) for leaf in leaves]
    if not leaves or any(len(shape) < 2 or shape[1] != n_rows for shape in shapes):
        raise ValueError(
            f"{who} gave a next state of shapes {[list(shape) for shape in shapes]} for {n_rows} rows; expected a "
            f"tensor or a tuple of tensors [N, {n_rows}, H], as torch.nn.LSTM has them: layers, rows, units. Let its "
            "forward return this last."
        )


def check_not_probabilities(who: str, logits: torch.Tensor, sizes: Sequence[int]) -> None:
    """Raise an error for probabilities in place of logits [n_rows, ..., sum(sizes)], whose softmax is nearly uniform.

    Constant ones, and those that are 0 and 1, may be what is meant: these are warned of.
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


# ---- checks of an agent's networks: another shape may fit, and mean something else ----


def the_model(agent: Agent) -> str:
    """Return in words whose model a message is about."""
    return f"{type(agent).__name__}: the model, a {type(of_its_kind(agent).model).__name__},"


def _inputs(agent: Agent, n_rows: int, observation: Buffer = None) -> dict[str, Buffer]:
    """Return the arguments of a model by name: null rows without a state, or those of an observation."""
    null, prev_action, prev_reward = example_inputs(agent.env_spaces, n_rows)
    inputs = null if observation is None else observation, of_its_kind(agent).networks.encode(prev_action), prev_reward
    rnn = {"rnn_state": None, "episode_start": None} if agent.recurrent else {}
    return {**dict(zip(_INPUTS, inputs, strict=True)), **rnn}


@torch.no_grad()
def outputs_of(agent: Agent, observation: Buffer = None, n_rows: int = 3) -> Buffer:
    """Return the outputs of the model for observations, null ones by default."""
    model, inputs = of_its_kind(agent).model, _inputs(agent, n_rows, observation)
    with calling(the_model(agent), model, **inputs):
        return model.eval()(*inputs.values())


def _random_outputs(agent: Agent, n_rows: int = 8) -> Buffer:
    """Return the same for different observations; None where the model fails on what may never occur."""
    try:
        with torch.random.fork_rng(devices=[]):
            return outputs_of(agent, random_observations(agent.env_spaces, n_rows), n_rows)
    except Exception:
        return None


def check_policy_outputs(agent: Agent) -> None:
    """Check that a model returns the parameters of the distribution, and a value."""
    outputs, distribution = outputs_of(agent), agent.distribution
    names = [*distribution.DistInfo._fields, "value"]
    of_outputs = [part for part in leaf_distributions(distribution) for _ in part.DistInfo._fields]
    given = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    got = [shape_of(output) for output in given[: len(names)]]
    value = _with_outputs(agent, 3)
    # A distribution of one's own alone knows its sizes.
    pairs = zip_longest(of_outputs, got[: len(of_outputs)], fillvalue=())
    shapes = [*[(3, width) if (width := _width(part)) else shape for part, shape in pairs], value]
    if got != shapes or len(given) != len(names) + bool(agent.recurrent):
        refuse(the_model(agent), outputs, _named(names, shapes) + (", and its next state" if agent.recurrent else ""))
    _check_state_and_logits(agent, given[-1], list(map(_choices, of_outputs)))


def _choices(distribution: object) -> Sequence[int]:
    """Return the sizes of the choices of which a distribution of ours takes logits; none of any other."""
    if type(distribution) is Categorical:
        return [distribution.dim]
    return distribution.dims if type(distribution) is MultiCategorical else ()


def _width(distribution: object) -> int:
    """Return the width of every parameter of a distribution of ours; 0 of any other."""
    return distribution.dim if type(distribution) is Gaussian else sum(_choices(distribution))


def _with_outputs(agent: Agent, *shape: int) -> tuple[int, ...]:
    """Return the shape of what is read as values of a shape."""
    n = agent.values.n_outputs
    return shape if n is None else (*shape, n)


def _named(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in zip(names, shapes, strict=False))


def _check_state_and_logits(agent: Agent, state: Buffer, sizes: Sequence[Sequence[int]]) -> None:
    """Check the shapes of the next state, if there is one, and that logits are no probabilities.

    `sizes` has those of the choices in every output; none where it is no logits.
    """
    if agent.recurrent:
        check_rnn_state(the_model(agent), state, 3)
    at_random = _random_outputs(agent) if any(sizes) else None
    outputs = [at_random] if isinstance(at_random, torch.Tensor | None) else list(at_random)
    for logits, of_choices in zip(outputs, sizes, strict=False):
        if of_choices and isinstance(logits, torch.Tensor):
            check_not_probabilities(the_model(agent), logits, of_choices)


def check_q_outputs(agent: Agent) -> None:
    """Check that the agent's head can read the outputs of a network."""
    given, head, space = outputs_of(agent), of_its_kind(agent).head, agent.env_spaces.action
    # An agent of one's own may act in other spaces.
    A = int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else "A"
    pair = isinstance(given, tuple | list) and len(given) == 2
    output, state = given if agent.recurrent and pair else (None if agent.recurrent else given, None)
    try:
        q = head.read(output)
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
        q = None
    fits = isinstance(q, torch.Tensor) and (A == "A" or q.shape == (3, A))
    if not fits or (head.logit_sizes and shape_of(output)[-1:] != head.logit_sizes):
        of_state = ", and its next state, as a tuple" if agent.recurrent else ", no tuple"
        refuse(the_model(agent), given, head.expected.format(n=3, A=A) + of_state)
    _check_state_and_logits(agent, state, [head.logit_sizes])


@torch.no_grad()
def check_actor_outputs(agent: Agent) -> None:
    """Check arguments and outputs of a policy and of action values over features."""
    own, who, dim = of_its_kind(agent), type(agent).__name__, agent.distribution.dim
    body, pi, q_model, names = own.model.body, own.model.pi, own.q_model, own.policy_outputs
    policy, action_values = f"the policy, a {type(pi).__name__},", f"the action values, a {type(q_model).__name__},"
    for module in agent.networks.modules():
        module.eval()
    with calling(f"{who}: the body", body, **_inputs(agent, 3)):
        rows = own.features(*example_inputs(agent.env_spaces, 3))
    of_features = dict(zip(_OF_FEATURES, rows, strict=True))
    with calling(f"{who}: {policy}", pi, **of_features):
        output = own.pi(rows)
    if isinstance(agent, ChoiceAgent):
        with calling(f"{who}: {action_values}", q_model, **of_features):
            q, of_actions = own.all_q(rows), [dim]
    else:
        with calling(f"{who}: {action_values}", q_model, **of_features, action=torch.zeros(3, dim)):
            q, of_actions = own.q(rows, torch.zeros(3, dim)), []
    given = list(output) if isinstance(output, tuple | list) and len(names) > 1 else [output]
    shapes = [(3, dim)] * len(names)
    if names and [shape_of(x) for x in given] != shapes:
        refuse(f"{who}: {policy}", output, _named(names, shapes))
    if q.shape != (shape := _with_outputs(agent, own.n_q, 3, *of_actions)):
        n = agent.values.n_outputs
        of_head = "" if n is None else f", and for the {n} outputs of value_head, {agent.values}"
        advice = "make n_atoms outputs of each" if of_head else "leave out a last dimension of 1"
        advice = "give all actions a value" if of_actions and not of_head else advice
        raise ValueError(
            f"{who}: {action_values} are {list(q.shape)} for 3 rows; expected {list(shape)}, of n_q = {own.n_q} "
            f"networks{of_head}. Let it make n_models networks, and {advice}."
        )


def check_apart(who: str, network: nn.Module, target: nn.Module) -> None:
    """Check that a network and its target share no weights, as those of the target do not learn.

    Both may have the same weights that are frozen.
    """
    own = {id(x) for x in network.parameters() if x.requires_grad}
    shared = [name for name, x in target.named_parameters() if id(x) in own]
    if network is target or shared:
        what = "the same module again" if network is target else f"a module with weights of the first, {shared[0]}"
        raise ValueError(
            f"{who} returned {what}, when it was called for the target network; expected a new module at every call, "
            "as the target's weights do not learn. Make all layers inside the class or function, such as "
            "ModelCls=Net in place of lambda: net; layers with weights to begin from are copied by copy.deepcopy."
        )
