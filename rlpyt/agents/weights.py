"""Networks and numbers of an agent: those that act and those that only learn, on devices, in workers and in files."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import nn

from rlpyt.agents.given import check_state
from rlpyt.models import copy_streams, join_replicas, set_streams
from rlpyt.namedarraytuple import Buffer
from rlpyt.types import StateDict
from rlpyt.utils.arrays import buffer_to
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.replicas import Replicas

M = TypeVar("M", bound=nn.Module)


class Network(Generic[M]):
    """Attribute of an agent's class that stands for a network in `agent.acting` or `agent.learning`.

    Args:
        part: "acting" or "learning".
        key: of the network there, and in the agent's state.
    """

    def __init__(self, part: str, key: str) -> None:
        self.part, self.key = part, key

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, agent: object | None, owner: type) -> M:
        """Return the network; of the class, this object.

        Raises:
            AttributeError: if the agent has not built it, or is a worker's copy, which has only what acts.
        """
        if agent is None:
            return self  # type: ignore[return-value]  # which only inspection asks for
        networks = vars(agent).get(self.part, {})
        if self.key not in networks:
            raise AttributeError(
                f"{type(agent).__name__} has no {self.name}: it is not initialised, or is a worker's copy."
            )
        network: M = networks[self.key]
        return network

    def __set__(self, agent: object, network: M) -> None:
        vars(agent)[self.part][self.key] = network


class Numbers(nn.Module):
    """Numbers of an agent by name, in one float64 buffer: they go where the networks that act go, but for devices.

    Args:
        sizes: of each name, how many numbers it has; all are 0 at first.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        ends = list(accumulate(sizes.values(), initial=0))
        self._places = {name: slice(lo, hi) for name, (lo, hi) in zip(sizes, pairwise(ends), strict=True)}
        self.values: torch.Tensor
        self.register_buffer("values", torch.zeros(ends[-1], dtype=torch.float64))

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the numbers of a name, a float64 view to read and write."""
        numbers: np.ndarray = self.values.numpy()[self._places[name]]
        return numbers


class HasNetworks:
    """Networks of an agent by name: `acting`, which workers have too, and `learning` (targets, action values)."""

    kept_numbers: ClassVar[Mapping[str, int]] = {}
    """Numbers that acting needs in every process and that belong to the agent's state: name and how many."""

    device: torch.device
    compute: ComputeSettings
    acting: nn.ModuleDict
    learning: nn.ModuleDict
    numbers: Numbers
    """How far exploration has gone, `kept_numbers`, and scheduled settings of now, in every process that acts."""
    _has_weights_of_its_own: bool = False

    def forget_networks(self) -> None:
        """Begin without networks, on the CPU: a run that stopped before it learned may have placed them elsewhere."""
        self.device, self.compute = torch.device("cpu"), ComputeSettings()
        self.acting, self.learning = nn.ModuleDict(), nn.ModuleDict()

    def modules(self) -> list[nn.Module]:
        """Return all networks: those that act, then those that only learn."""
        return [*self.acting.values(), *self.learning.values()]

    def to_device(self, settings: ComputeSettings) -> None:
        """Move the networks to the device, in the precision and memory format of the run."""
        if not isinstance(settings, ComputeSettings):
            raise TypeError(
                f"{type(self).__name__}: to_device was given {settings!r}; expected rlpyt.utils.ComputeSettings(), or "
                'ComputeSettings(device="cuda:0") for the first GPU.'
            )
        self.compute = settings
        self.device = torch.device(settings.device)
        for module in self.modules():
            settings.place(module, self.device)

    def join(self, replicas: Replicas) -> None:
        """Let the normalisers of observations and rewards take in the batches of all replicas."""
        for network in self.modules():
            join_replicas(network, replicas)

    def rewinder(self) -> Callable[[], None]:
        """Return a function that undoes what forward passes move from now on; see `rlpyt.core.Agent`."""
        networks = self.modules()
        streams = [copy_streams(network) for network in networks]
        buffers = [[(buffer, buffer.clone()) for buffer in network.buffers()] for network in networks]

        def rewind() -> None:
            for network, of_it, pairs in zip(networks, streams, buffers, strict=True):
                set_streams(network, of_it)
                for buffer, before in pairs:
                    buffer.copy_(before)

        return rewind

    def to_model(self, inputs: Buffer) -> Buffer:
        """Return tensors on the model's device."""
        return inputs if self.device.type == "cpu" else buffer_to(inputs, self.device)

    def from_model(self, outputs: Buffer) -> Buffer:
        """Return tensors on the CPU, where environments are."""
        return outputs if self.device.type == "cpu" else buffer_to(outputs, "cpu")

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of the run's precision; held around a whole batch it saves the casts of the weights."""
        return self.compute.autocast(self.device)

    # ---- other processes ----

    def acting_modules(self) -> nn.Module:
        """Return all whose state the processes that act are sent: the networks that act, and the numbers."""
        return nn.ModuleList([self.acting, self.numbers])

    def acting_copy(self) -> Self:
        """Return a copy on the CPU, with the networks that act and nothing of those that only learn."""
        self.check_initialized()
        clone = copy.copy(self)
        clone.device = torch.device("cpu")
        clone.acting, clone.learning = copy.deepcopy(self.acting).cpu(), nn.ModuleDict()
        clone.numbers = copy.deepcopy(self.numbers)
        clone.leave_behind()
        own = vars(self)
        stale = [k for k, x in vars(clone).items() if isinstance(x, nn.Module) and x is own.get(k)]
        if stale:
            warnings.warn(
                f"{type(self).__name__}: the workers get its {', '.join(stale)} once, and what is learned later "
                "reaches the networks in `acting` alone. Put a network that acts into agent.acting, and one that only "
                "learns into agent.learning (docs/own_agent.md).",
                stacklevel=3,
            )
        return clone

    def leave_behind(self) -> None:
        """Let go of what a copy for another process has no use for; a subclass adds its own."""
        for f in fields(self):  # type: ignore[arg-type]
            if f.metadata.get("weights"):
                setattr(self, f.name, None)
        vars(self).pop("_given", None)  # which has these, too

    # ---- state ----

    def check_initialized(self) -> None:
        """Raise RuntimeError if the networks are not built."""
        if "model" not in self.acting:
            raise RuntimeError(
                f"{type(self).__name__}: is not initialised, and has no model yet; expected "
                "agent.initialize(env_spaces) first, with the spaces of make_env(EnvCls, env_kwargs)."
            )

    def state_dict(self) -> StateDict:
        """Return the state of all networks by name, and the numbers that belong to it."""
        acting, learning = ({name: m.state_dict() for name, m in ms.items()} for ms in (self.acting, self.learning))
        numbers = {name: self.numbers[name].tolist() for name in self.kept_numbers}
        return {**acting, **{name: x[0] if len(x) == 1 else x for name, x in numbers.items()}, **learning}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""
        self.check_initialized()
        check_state(type(self).__name__, state_dict)
        names = [*self.acting, *self.learning, *self.kept_numbers]
        if not set(names) <= state_dict.keys():
            raise ValueError(
                f"{type(self).__name__}: was given a state with {', '.join(map(repr, state_dict))!s:.200}; expected "
                f"{', '.join(map(repr, names))}, as its state_dict() returns them. Those of rlpyt 0.1 have other names "
                "and do not load (docs/from_rlpyt_0_1.md)."
            )
        self._has_weights_of_its_own = True
        for name, module in [*self.acting.items(), *self.learning.items()]:
            module.load_state_dict(state_dict[name])
        for name in self.kept_numbers:
            self.numbers[name][:] = state_dict[name]
