"""Networks and numbers of an agent: those that act and those that only learn, on devices, in workers and in files."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
import torch
from torch import nn

from rlpyt.agents.given import check_state
from rlpyt.agents.shared_weights import SharedNumbers, SharedWeights
from rlpyt.agents.weight_versions import WeightVersions
from rlpyt.models import copy_streams, join_replicas, set_streams
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import ScheduledSettings
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

    if TYPE_CHECKING:

        @overload
        def __get__(self, agent: None, owner: type) -> Self: ...
        @overload
        def __get__(self, agent: object, owner: type) -> M: ...

    def __get__(self, agent: object | None, owner: type) -> Self | M:
        """Return the network.

        Raises:
            AttributeError: if the agent has not built it, or is a worker's copy, which has only what acts.
        """
        if agent is None:
            return self
        networks = vars(agent).get(self.part, {})
        if self.key not in networks:
            raise AttributeError(
                f"{type(agent).__name__} has no {self.name}: it is not initialised, or is a worker's copy."
            )
        network: M = networks[self.key]
        return network

    def __set__(self, agent: object, network: M) -> None:
        vars(agent)[self.part][self.key] = network


_KINDS: dict[object, type] = {"bool": bool, "int": int, "float": float, "int | None": int, "float | None": float}
_KINDS |= {bool: bool, int: int, float: float, int | None: int, float | None: float}


@cache
def plain_settings(cls: type[ScheduledSettings]) -> dict[str, type]:
    """Return the settings of a class that are no schedule but a number or None, and the type of the number."""
    return {f.name: _KINDS[f.type] for f in fields(cls) if f.type in _KINDS and f.name not in cls.scheduled()}  # type: ignore[arg-type]


class HasNetworks:
    """Networks of an agent by name: `acting`, which workers have too, and `learning` (targets, action values)."""

    kept_numbers: ClassVar[Mapping[str, int]] = {}
    """Numbers that acting needs in every process and that belong to the agent's state: name and how many."""

    device: torch.device
    compute: ComputeSettings
    acting: nn.ModuleDict
    learning: nn.ModuleDict
    numbers: SharedNumbers
    """How far exploration has gone, `kept_numbers`, and the settings of now, in every process that acts."""
    _has_weights_of_its_own: bool = False
    _shared: SharedWeights | None = None
    _versions: WeightVersions | None = None

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
        """Return a function that lets what a forward pass moves stand where it stands now; see `rlpyt.core.Agent`."""
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

    def worker_copy(self) -> Self:
        """Return a copy that acts in another process: on the CPU, with weights and numbers in shared memory.

        This process calls `sync_shared_memory` whenever the weights have changed and nobody acts; the other one calls
        `attach_shared_memory` before it acts.
        """
        self._note_settings().share()
        clone = self.acting_copy()
        self._shared = clone._shared = SharedWeights(clone.acting)
        return clone

    def acting_copy(self) -> Self:
        """Return a copy on the CPU, with the networks that act and nothing of those that only learn."""
        self.check_initialized()
        clone = copy.copy(self)
        clone.device = torch.device("cpu")
        clone.acting, clone.learning = copy.deepcopy(self.acting).cpu(), nn.ModuleDict()
        clone._shared = clone._versions = None
        clone.leave_behind()
        self._warn_of_stale_networks(clone)
        return clone

    def _warn_of_stale_networks(self, clone: Self) -> None:
        """Warn of networks that are sent to other processes once, and would act there with the weights of the start."""
        own = vars(self)
        names = [k for k, x in vars(clone).items() if isinstance(x, nn.Module) and x is own.get(k)]
        if names:
            warnings.warn(
                f"{type(self).__name__}: the workers get its {', '.join(names)} once, and what is learned later "
                "reaches the networks in `acting` alone. Put a network that acts into agent.acting, and one that only "
                "learns into agent.learning (docs/own_agent.md).",
                stacklevel=4,
            )

    def leave_behind(self) -> None:
        """Let go of what a copy for another process has no use for; a subclass adds its own."""
        for f in fields(self):  # type: ignore[arg-type]
            if f.metadata.get("weights"):
                setattr(self, f.name, None)
        vars(self).pop("_given", None)  # which has these, too

    def act_on(self, device: str | None) -> None:
        """Let a worker's copy act on a device, with weights of its own there; None is the device of the run."""
        self.to_device(self.compute if device is None else replace(self.compute, device=device))

    def attach_shared_memory(self) -> None:
        """Let this copy's weights be those in shared memory, or copies of them; called again before every batch."""
        assert self._shared is not None, "only a worker's copy is attached"
        if self.device.type == "cpu":
            self._shared.attach(self.acting)
        else:
            self._shared.copy_to(self.acting)
        self._take_settings()

    def sync_shared_memory(self) -> None:
        """Publish the weights to the copies in other processes."""
        if self._shared is not None:
            self._note_settings()
            self._shared.publish(self.acting)

    def published(self) -> list[np.ndarray]:
        """Return what `sync_shared_memory` has published, as arrays in shared memory, for other machines."""
        assert self._shared is not None, "worker_copy comes first"
        return [*self._shared.arrays, self.numbers.values]

    def publish_received(self, arrays: Sequence[np.ndarray]) -> None:
        """Publish to the copies on this machine what `published` returned on another one."""
        for mine, received in zip(self.published(), arrays, strict=True):
            mine[...] = received

    def _plain_settings(self) -> dict[str, type]:
        kinds = plain_settings(type(self))  # type: ignore[arg-type]
        return {name: kind for name, kind in kinds.items() if isinstance(getattr(self, name), Real | None)}

    def _note_settings(self) -> SharedNumbers:
        """Return the numbers with the plain settings of now: these may be set during a run."""
        for name in self._plain_settings():
            value = getattr(self, name)
            self.numbers[name][:] = math.nan if value is None else value
        return self.numbers

    def _take_settings(self) -> None:
        """Let the plain settings of a copy be those of the agent."""
        for name, kind in self._plain_settings().items():
            value = self.numbers[name].item()
            setattr(self, name, None if math.isnan(value) else kind(value))

    # ---- versions of the weights ----

    def versioned_copy(self, n_versions: int) -> Self:
        """Return a copy that acts in another process, by the versions of the weights that this one publishes.

        Args:
            n_versions: the last versions that are kept.
        """
        clone = self._copy_with_versions(n_versions)
        self._versions = clone._versions
        return clone

    def publish_version(self, version: int) -> None:
        """Let the versioned copy have the weights and numbers of now under a number."""
        assert self._versions is not None, "versioned_copy comes first"
        self._versions.publish(version, self.acting, self._note_settings())

    def frozen_copy(self) -> Self:
        """Return a copy that acts in another process, beside the versioned one, by what `publish_to` gives it."""
        return self._copy_with_versions(1)

    def publish_to(self, frozen: Self, version: int) -> None:
        """Let a frozen copy have the weights and numbers of now under a number, in place of the last."""
        assert frozen._versions is not None, "only a frozen copy is published to"
        frozen._versions.publish(version, self.acting, self._note_settings())

    def _copy_with_versions(self, n_versions: int) -> Self:
        clone = self.acting_copy()
        clone.numbers = self._note_settings().copy()
        clone._versions = WeightVersions(clone.acting, clone.numbers, n_versions)
        return clone

    def become(self, versioned_copy: Self, device: str) -> None:
        """Act in the stead of a versioned copy, on a device: take over all that it has. It is of the same class."""
        vars(self).update(vars(versioned_copy))
        self.to_device(replace(self.compute, device=device))

    def take_version(self, version: int | None) -> int:
        """Act with the weights and numbers that were published under a number, None is the newest; return the number.

        Raises:
            RuntimeError: if they are not there, or not any more.
        """
        assert self._versions is not None, "only a versioned or frozen copy takes versions"
        if version is None:
            version = self._versions.take_newest(self.acting, self.numbers)
        else:
            self._versions.take(version, self.acting, self.numbers)
        self._take_settings()
        return version

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
