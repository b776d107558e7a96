"""Weights of agents as safetensors, the format that other libraries and tools read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from rlpyt.agents.base import as_base_agent
from rlpyt.core import Agent
from rlpyt.utils.packages import optional_package
from rlpyt.version import __version__

_NUMBERS = "numbers"
"""Entry of a file's metadata: what the agent's state has beside tensors, as JSON."""


def save_weights(agent: Agent, path: str | os.PathLike[str]) -> Path:
    """Write `agent.state_dict()` as safetensors: all networks, with the statistics that normalise observations.

    A tensor is named by its network and its name there, such as "model.encoder.rms.mean". The metadata have the
    version, the agent's class, and the numbers of the state as JSON.

    Returns:
        The path.

    Raises:
        ImportError: if safetensors is not installed.
        RuntimeError: if the agent is not initialised.
        TypeError: if a network keeps more than tensors and numbers.
    """
    save_file = optional_package("safetensors.torch", "save_weights", "export").save_file
    as_base_agent(agent, "save_weights").networks.check_built()
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, object] = {}
    for name, part in agent.state_dict().items():
        # A network without weights has no tensor that would name it.
        if isinstance(part, Mapping) and part and all(isinstance(value, torch.Tensor) for value in part.values()):
            # Copies, as safetensors refuses tensors that share memory.
            tensors |= {f"{name}.{key}": value.detach().cpu().contiguous().clone() for key, value in part.items()}
        else:
            numbers[name] = part
    try:
        about = {"format": "pt", "rlpyt": __version__, "agent": type(agent).__name__, _NUMBERS: json.dumps(numbers)}
    except TypeError as error:
        raise TypeError(
            f"save_weights: {type(agent).__name__} keeps more than tensors and numbers in {', '.join(numbers)} "
            f"({error}); expected these alone. Keep tensors as buffers of the network, or save agent.state_dict() with "
            "rlpyt.logging.save_snapshot."
        ) from error
    save_file(tensors, path, metadata=about)
    return Path(path)


def load_weights(agent: Agent, path: str | os.PathLike[str]) -> None:
    """Load a file of `save_weights` into an initialised agent with the same networks.

    Raises:
        ImportError: if safetensors is not installed.
        FileNotFoundError: if there is no such file.
        RuntimeError: if the agent is not initialised.
        ValueError: if it is damaged, of something else, or of an agent with other networks.
    """
    safetensors = optional_package("safetensors", "load_weights", "export")
    as_base_agent(agent, "load_weights").networks.check_built()
    state: dict[str, dict[str, torch.Tensor]] = {}
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            numbers = json.loads((file.metadata() or {}).get(_NUMBERS, "null"))
            for name in file.keys():  # noqa: SIM118  # which is no mapping
                network, _, key = name.partition(".")
                state.setdefault(network, {})[key] = file.get_tensor(name)
    except safetensors.SafetensorError as error:
        raise ValueError(f"load_weights: {path} is no whole file of safetensors: {error}.") from error
    if not isinstance(numbers, dict):
        raise ValueError(f"load_weights: {path} has weights of something else; expected a file of save_weights.")
    try:
        agent.load_state_dict({**state, **numbers})
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"load_weights: {path} has the weights of another agent than this {type(agent).__name__}: {error}"
        ) from error
