"""Checks of what an agent's networks take and give, before training: another shape may fit, and mean something else."""

from __future__ import annotations

import torch
from torch import nn

from rlpyt.agents.given import of_its_kind
from rlpyt.agents.own_models import (
    INPUTS,
    Q_INPUTS,
    RNN_INPUTS,
    check_call,
    check_not_probabilities,
    check_rnn_state,
    described,
    random_observations,
    shape_of,
    told_call,
)
from rlpyt.core import Agent, example_inputs
from rlpyt.distributions import Categorical, Gaussian, MultiCategorical
from rlpyt.models import encoded_action_size
from rlpyt.namedarraytuple import Buffer


def the_model(agent: Agent) -> str:
    """Return in words whose model a message is about."""
    return f"{type(agent).__name__}: the model, a {type(of_its_kind(agent).model).__name__},"


@torch.no_grad()
def outputs_of(agent: Agent, observation: Buffer = None, n_rows: int = 3) -> Buffer:
    """Return what the model gives for observations, null ones by default, with no state before."""
    null, prev_action, prev_reward = example_inputs(agent.env_spaces, n_rows)
    rnn, model = [None] if agent.recurrent else [], of_its_kind(agent).model.eval()
    inputs = null if observation is None else observation, of_its_kind(agent).networks.encode(prev_action), prev_reward
    with told_call(the_model(agent), **dict(zip(INPUTS, inputs, strict=True))):
        return model(*inputs, *rnn)


def random_outputs(agent: Agent, n_rows: int = 8) -> Buffer:
    """Return the same for different observations; None where the model fails on what may never occur."""
    try:
        with torch.random.fork_rng(devices=[]):
            return outputs_of(agent, random_observations(agent.env_spaces, n_rows), n_rows)
    except Exception:
        return None


def check_policy_outputs(agent: Agent) -> None:
    """Refuse a model that does not give the parameters of the distribution, and a value.

    Raises:
        TypeError: if it cannot be called.
        ValueError: if its outputs are others.
    """
    check_call(the_model(agent), of_its_kind(agent).model, RNN_INPUTS if agent.recurrent else INPUTS)
    outputs, distribution = outputs_of(agent), agent.distribution
    names = [*distribution.DistInfo._fields, "value"]
    given = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    got = [shape_of(output) for output in given[: len(names)]]
    if type(distribution) in (Categorical, MultiCategorical, Gaussian):
        size = encoded_action_size(agent.env_spaces.action)
        shapes = [*[(3, size)] * (len(names) - 1), (3,)]
    else:  # which alone knows the sizes of its parameters
        shapes = [*got[: len(names) - 1], (3,)]
    if got != shapes or len(given) != len(names) + bool(agent.recurrent):
        expected = ", ".join(f"{name} {list(shape)}" for name, shape in zip(names, shapes, strict=False))
        raise ValueError(
            f"{the_model(agent)} gave {described(outputs)} for 3 rows; "
            f"expected {expected}{', and its next state' if agent.recurrent else ''}. Let its forward return these."
        )
    if agent.recurrent:
        check_rnn_state(the_model(agent), given[-1], 3)
    sizes = _logit_sizes(distribution)
    at_random = random_outputs(agent) if sizes else None
    if at_random is not None:
        check_not_probabilities(the_model(agent), at_random[0], sizes)


def _logit_sizes(distribution: object) -> list[int]:
    """Return how many logits each choice has; none of distributions that take no logits, or are one's own."""
    if type(distribution) is Categorical:
        return [distribution.dim]
    return distribution.dims if type(distribution) is MultiCategorical else []


def check_q_outputs(agent: Agent) -> None:
    """Refuse a network whose outputs the agent's head cannot read.

    Raises:
        TypeError: if it cannot be called.
        ValueError: if its outputs are others.
    """
    who, head = the_model(agent), of_its_kind(agent).head
    check_call(who, of_its_kind(agent).model, RNN_INPUTS if agent.recurrent else INPUTS)
    given = outputs_of(agent)
    pair = isinstance(given, tuple | list) and len(given) == 2
    if not (head.fits(given[0] if pair else None, 3) if agent.recurrent else head.fits(given, 3)):
        state = ", and its next state, as a tuple" if agent.recurrent else ", no tuple"
        raise ValueError(
            f"{who} gave {described(given)} for 3 rows; expected {head.expected(3)}{state}. Let its forward return "
            "this."
        )
    if agent.recurrent:
        check_rnn_state(who, given[1], 3)
    if (sizes := head.logit_sizes()) and (at_random := random_outputs(agent)) is not None:
        logits = at_random[0] if agent.recurrent else at_random
        if isinstance(logits, torch.Tensor):
            check_not_probabilities(who, logits, sizes)


@torch.no_grad()
def check_actor_outputs(agent: Agent) -> None:
    """Refuse a policy and action values over features that take other arguments, or give other outputs.

    Raises:
        TypeError: if one of them cannot be called.
        ValueError: if outputs are others.
    """
    own, who, dim = of_its_kind(agent), type(agent).__name__, agent.distribution.dim
    pi, q_model = own.model.pi, own.q_model
    check_call(f"{who}: the body", own.model.body, RNN_INPUTS if agent.recurrent else INPUTS)
    policy = f"{who}: the policy, a {type(pi).__name__},"
    action_values = f"{who}: the action values, a {type(q_model).__name__},"
    check_call(policy, pi, INPUTS)
    check_call(action_values, q_model, Q_INPUTS)
    for module in agent.networks.modules():
        module.eval()
    inputs, action = example_inputs(agent.env_spaces, 3), torch.zeros(3, dim)
    with told_call(f"{who}: the body", observation=inputs[0]):
        rows = own.features(*inputs)
    with told_call(policy, features=rows.observation):
        output = own.pi(rows)
    _check_policy(policy, output, own.policy_outputs, (3, dim))
    with told_call(action_values, features=rows.observation, action=action):
        q = own.q(rows, action)
    if q.shape != (own.n_q, 3):
        raise ValueError(
            f"{action_values} are {list(q.shape)} for 3 "
            f"rows; expected [{own.n_q}, 3], of n_q = {own.n_q} networks. Let it make n_models networks, and "
            "leave out a last dimension of 1."
        )


def _check_policy(who: str, output: Buffer, names: tuple[str, ...], shape: tuple[int, int]) -> None:
    given = list(output) if isinstance(output, tuple | list) and len(names) > 1 else [output]
    if names and [shape_of(x) for x in given] != [shape] * len(names):
        raise ValueError(
            f"{who} gave {described(output)} for 3 rows; expected "
            f"{', '.join(f'{name} {list(shape)}' for name in names)}. Let its forward return this."
        )


def check_apart(who: str, network: nn.Module, target: nn.Module) -> None:
    """Refuse a network and its target that are one module, or share weights: the target's do not learn.

    Args:
        who: names the agent and the argument that makes them.
        network: that learns.
        target: made by a second call.

    Raises:
        ValueError: if they are not apart. Both may have the same weights that are frozen.
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
