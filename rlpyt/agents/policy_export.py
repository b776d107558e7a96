"""Policies in files that run without this library: programs of torch.export, and ONNX."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_leaves, tree_map

from rlpyt.agents.base import BaseAgent, as_base_agent
from rlpyt.agents.by_hand import as_tensors
from rlpyt.agents.networks import rnn_from_rows, rnn_to_rows
from rlpyt.agents.own_models import random_observations
from rlpyt.core import Agent, example_inputs
from rlpyt.core.agent import as_given
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces, Space, null_value, subspaces
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.compute import ComputeSettings
from rlpyt.version import __version__

Plain = torch.Tensor | tuple["Plain", ...] | dict[str, "Plain"]
"""Tensor [B, ...], or for a Dict or Tuple space a dictionary or tuple of them."""

_B = 3
"""Rows of the examples: any number but 0 and 1, which torch.export takes for fixed sizes."""
_TOLERANCE = 1e-4
_BOUNDS = {spaces.Box: ("low", "high"), spaces.Discrete: ("n", "start"), spaces.MultiDiscrete: ("nvec", "start")}
"""Attributes of a space of actions that a user of a file must know."""


class DeterministicPolicy:
    """Deterministic policy of an agent over plain tensors, all with B first.

    action = policy(observation)
    action, *state = policy(observation, prev_action, prev_reward, *state)    # if it `reads_previous`
    """

    def __init__(self, agent: BaseAgent, reads_previous: bool) -> None:
        self.agent = agent.acting_copy()
        self.agent.to_device(ComputeSettings())
        self.agent.acting.eval().requires_grad_(False)
        self._actor = agent.ActorCls(self.agent, [0], 1, seed=0, evaluation=True, by_hand=True)
        self._actor.begin(0, deterministic=True)
        self.reads_previous = reads_previous
        example = rnn_to_rows(self.agent.rnn_state_example())
        self._state_example = buffer_func(example, torch.zeros_like)

    def __call__(self, *inputs: Plain) -> tuple[torch.Tensor, ...]:
        """Return actions [B, ...], and the recurrent state after the row, if there is one."""
        agent = self.agent
        space = agent.env_spaces.observation
        observation = as_tensors(space, inputs[0], null_value(space), "observation")
        if self.reads_previous:
            _, prev_action, prev_reward, *leaves = inputs
        else:
            first = buffer_leaves(observation)[0]
            _, action, _ = example_inputs(agent.env_spaces)
            prev_action = action.expand(first.shape[0], *action.shape[1:])
            prev_reward, leaves = first.new_zeros(first.shape[0], dtype=torch.float32), []
        state = rnn_from_rows(buffer_func(self._state_example, lambda _, rest: next(rest), iter(leaves)))
        model = agent.exploration.model(self._actor)
        output, next_state = agent.networks.run(model, (observation, prev_action, prev_reward), state)
        return (
            agent.act(agent.head.read_at(observation, output), self._actor),
            *buffer_leaves(rnn_to_rows(next_state)),
        )

    def example_inputs(self, n_rows: int) -> tuple[Plain, ...]:
        """Return different rows, always the same ones."""
        env_spaces = self.agent.env_spaces
        observation = _as_plain(env_spaces.observation, random_observations(env_spaces, n_rows))
        if not self.reads_previous:
            return (observation,)
        actions = EnvSpaces(env_spaces.action, env_spaces.action)
        prev_reward = torch.linspace(-1, 1, n_rows)
        state = [leaf.expand(n_rows, *leaf.shape[1:]).clone() for leaf in buffer_leaves(self._state_example)]
        prev_action = as_given(env_spaces.action, random_observations(actions, n_rows))
        return (observation, prev_action, prev_reward, *state)

    def input_names(self) -> list[str]:
        """Return the names of all inputs."""
        names = _names(self.agent.env_spaces.observation, "observation")
        return [*names, "prev_action", "prev_reward", *self.state_names()] if self.reads_previous else names

    def state_names(self, prefix: str = "") -> list[str]:
        """Return the names of the arrays of the recurrent state."""
        state = self._state_example
        fields = state._fields if isinstance(state, NamedArrayTuple) else range(len(buffer_leaves(state)))
        return [f"{prefix}rnn_state.{field}" for field, x in zip(fields, state or (), strict=False) if x is not None]


class _PolicyModule(nn.Module):
    """Module that torch.export traces. The policy is no part of it, as its tuples would be taken for state."""

    def __init__(self, policy: DeterministicPolicy) -> None:
        super().__init__()
        self.networks = policy.agent.acting
        self._policy = policy

    def forward(self, *inputs: Plain) -> torch.Tensor | tuple[torch.Tensor, ...]:
        action, *state = self._policy(*inputs)
        return (action, *state) if state else action


def export_policy(agent: Agent, path: str | os.PathLike[str]) -> Path:
    """Write the deterministic policy of an agent to a file that runs without this library, for any number of rows.

        export_policy(agent, "policy.pt2")     # policy = torch.export.load("policy.pt2").module()
        export_policy(agent, "policy.onnx")    # session = onnxruntime.InferenceSession("policy.onnx")

    It takes observations [B, ...] in row form (`rlpyt.spaces`), a Dict as a dictionary and a Tuple as a tuple, and
    returns the actions of `agent.step` after `agent.eval_mode(itr, deterministic=True)`. Where the network reads them,
    the previous action and reward follow, and the recurrent state, [B, N, H] each; the next state is returned after
    the action. In ONNX each array of an observation is an input, such as "observation.key". The file describes itself
    in JSON: "policy.json" of torch.export's `extra_files`, and "rlpyt" of ONNX's `metadata_props`.

    Args:
        agent: initialised, with the weights to export.
        path: ends with ".pt2" or ".onnx"; it is returned.

    Raises:
        ValueError: if the path ends otherwise, or the file would give other actions than the agent.
        ImportError: if onnx or onnxscript is not installed, for ".onnx".
        TypeError: if the agent has no rule for a deterministic evaluation, or its actions are a Dict or Tuple.
    """
    path = Path(path)
    if path.suffix not in (".pt2", ".onnx"):
        raise ValueError(f"export_policy: the path is {path}; expected one that ends with .pt2 or .onnx.")
    own = as_base_agent(agent, "export_policy")
    own.networks.check_built()
    if subspaces(own.env_spaces.action):
        raise TypeError(
            f"export_policy: the actions are {own.env_spaces.action}; expected one array, and no Dict or Tuple. Save "
            "the weights instead (rlpyt.agents.save_weights), or export a model that the script itself reads."
        )
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if path.suffix == ".onnx" and missing:
        raise ImportError(
            f"export_policy: the packages {' and '.join(missing)} were not found; they are optional. Install them with "
            "`pip install rlpyt[export]`, or write a .pt2 file."
        )
    with _quiet():
        policy, program = _program(own)
        _check_actions(policy, program, type(agent).__name__)
        described = json.dumps(_description(policy))
        if path.suffix == ".pt2":
            torch.export.save(program, path, extra_files={"policy.json": described})
        else:
            inputs, outputs = policy.input_names(), ["action", *policy.state_names("next_")]
            onnx = torch.onnx.export(program, input_names=inputs, output_names=outputs, dynamo=True, verbose=False)
            assert onnx is not None
            onnx.model.metadata_props["rlpyt"] = described
            onnx.save(path, external_data=False)
    return path


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hold back what torch says of its own: weights of a recurrent layer that it lays out anew, absent torchvision."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _program(agent: BaseAgent, reads_previous: bool = True) -> tuple[DeterministicPolicy, ExportedProgram]:
    """Return the policy, with the previous action and reward as inputs where the network reads them."""
    policy = DeterministicPolicy(agent, reads_previous)
    inputs, B = policy.example_inputs(_B), Dim("B", min=1)
    with torch.no_grad():
        shapes = (tree_map(lambda _: {0: B}, inputs),)
        program = torch.export.export(_PolicyModule(policy), inputs, dynamic_shapes=shapes)
    if agent.recurrent or not reads_previous or _reads_previous(program, policy):
        return policy, program
    return _program(agent, reads_previous=False)


def _reads_previous(program: ExportedProgram, policy: DeterministicPolicy) -> bool:
    """Return whether a program computes with more than the observation and the sizes of its inputs."""
    n_observation = len(tree_leaves(policy.example_inputs(1)[0]))
    later = program.graph_signature.user_inputs[n_observation:]
    users = [user for node in program.graph.nodes if node.name in later for user in node.users]
    return any(user.target is not torch.ops.aten.sym_size.int for user in users)


def _check_actions(policy: DeterministicPolicy, program: ExportedProgram, name: str) -> None:
    """Compare two steps with those of the agent, as a method of the user's may act by another rule."""
    agent, module = policy.agent, program.module()
    inputs = list(policy.example_inputs(_B + 1))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        agent.eval_mode(0, deterministic=True)
        for _ in range(2):
            previous = inputs[1:3] if policy.reads_previous else example_inputs(agent.env_spaces, _B + 1)[1:]
            expected = agent.step(inputs[0], *previous).action
            given = module(*inputs)
            action, *state = given if isinstance(given, tuple) else (given,)
            inputs[3:] = state
            if not torch.allclose(action.double(), expected.double(), rtol=_TOLERANCE, atol=_TOLERANCE):
                raise ValueError(
                    f"export_policy: the file would give the actions {action.tolist()!s:.100}, where {name} gives "
                    f"{expected.tolist()!s:.100}; expected the same. Does it act by a rule of its own, such as a step "
                    "or act? Then let act(self, output, actor) "
                    "return the same, without a draw, where actor.deterministic is True."
                )


def _description(policy: DeterministicPolicy) -> dict[str, object]:
    """Return the description of the file for its users."""
    agent, examples = policy.agent, tree_leaves(policy.example_inputs(1))
    space = agent.env_spaces.action
    kind = next((kind for kind in _BOUNDS if isinstance(space, kind)), type(space))
    bounds = {name: np.asarray(getattr(space, name)).tolist() for name in _BOUNDS.get(kind, ())}
    return {
        "rlpyt": __version__,
        "agent": type(agent).__name__,
        "inputs": [
            {"name": name, "dtype": str(x.dtype).removeprefix("torch."), "shape": ["B", *x.shape[1:]]}
            for name, x in zip(policy.input_names(), examples, strict=True)
        ],
        "outputs": ["action", *policy.state_names()],
        "action_space": {"space": kind.__name__, **bounds},
        "null_action": example_inputs(agent.env_spaces)[1][0].tolist(),
    }


def _as_plain(space: Space, rows: Buffer) -> Plain:
    """Return rows without types of this library."""
    values = {key: _as_plain(part, x) for (key, part), x in zip(subspaces(space), rows, strict=False)}
    if isinstance(space, spaces.Dict):
        return values
    return tuple(values.values()) if isinstance(space, spaces.Tuple) else rows


def _names(space: Space, name: str) -> list[str]:
    """Return the names of all arrays of a space, in order."""
    parts = subspaces(space)
    return [found for key, part in parts for found in _names(part, f"{name}.{key}")] if parts else [name]
