"""Networks and numbers of an agent: those that act and those that only learn, on devices, in workers and in files."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from rlpyt.agents.action_masks import ActionMasks
from rlpyt.core import AgentNetworks
from rlpyt.models import Model, RandomModule, join_replicas, uses_prev_action
from rlpyt.models.utils import LayerFinder, move_weights
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple, namedarraytuple
from rlpyt.types import AgentInputs, StateDict
from rlpyt.utils.arrays import buffer_func, buffer_to
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.replicas import Replicas

M = TypeVar("M", bound=nn.Module)
T = TypeVar("T")


class Network(Generic[M]):
    """Attribute of an agent's class, or of a part's with its `networks`, that stands for one of the networks.

    Args:
        part: "acting" or "learning".
        key: of the network there, and in the agent's state.
    """

    def __init__(self, part: str, key: str) -> None:
        self.part, self.key = part, key

    def __get__(self, instance: Any, owner: type) -> M:
        return self if instance is None else instance.networks.named(self.key)  # type: ignore[return-value]

    def __set__(self, instance: Any, network: M) -> None:
        networks: Networks = instance.networks
        getattr(networks, self.part)[self.key] = network
        networks.encode_by()


class Held(Generic[T]):
    """Attribute of an agent's class that stands for one of a part that the agent holds, such as `networks.device`.

    Args:
        part: attribute of the agent that is the part, or a path of attributes such as "by_hand.actor".
        name: of the attribute there; "" is the same name.
    """

    def __init__(self, part: str, name: str = "") -> None:
        self.path, self.name = part.split("."), name

    def __set_name__(self, owner: type, name: str) -> None:
        self.path.append(self.name or name)

    def __get__(self, instance: Any, owner: type) -> T:
        if instance is None:
            return self  # type: ignore[return-value]  # which only inspection asks for
        part = instance
        for name in self.path[:-1]:
            try:
                part = getattr(part, name)
            except AttributeError:
                of = type(instance).__name__
                raise AttributeError(f"{of} has no {self.path[-1]}: it is not initialised.") from None
        return getattr(part, self.path[-1])

    def __set__(self, instance: Any, value: T) -> None:
        for name in self.path[:-1]:
            instance = getattr(instance, name)
        setattr(instance, self.path[-1], value)


class Numbers(nn.Module):
    """Numbers of an agent, so many of each name and 0 at first, in one float64 buffer.

    They go where the networks that act go, but for devices.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        ends = list(accumulate(sizes.values(), initial=0))
        self._slices = {name: slice(lo, hi) for name, (lo, hi) in zip(sizes, pairwise(ends), strict=True)}
        self.values: torch.Tensor
        self.register_buffer("values", torch.zeros(ends[-1], dtype=torch.float64))

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the numbers of a name, a float64 view to read and write."""
        return self.values.numpy()[self._slices[name]]


def _same(prev_action: Buffer) -> Buffer:
    return prev_action


class Networks(AgentNetworks):
    """Networks of an agent by name: `acting`, which workers have too, and `learning` (targets, action values).

    Args:
        owner: name of the agent's class, for messages.
        kept: numbers that acting needs in every process and that belong to the agent's state: name and how many.
        others: names of further numbers of which each process has the current value, such as scheduled settings.
    """

    def __init__(self, owner: str, kept: Mapping[str, int], others: Sequence[str] = ()) -> None:
        self._owner, self.kept = owner, kept
        self.numbers = Numbers({"annealed": 1, **kept, **dict.fromkeys(others, 1)})
        """How far exploration has gone, what is kept, and scheduled settings of now, in every process that acts."""
        self.have_learned = False
        """Whether they are trained or loaded, so that building them again would lose something."""
        self.clear()

    def clear(self) -> None:
        """Begin without networks, on the CPU: a run that stopped before it learned may have placed them elsewhere."""
        self.device, self.compute = torch.device("cpu"), ComputeSettings()
        self.acting, self.learning = nn.ModuleDict(), nn.ModuleDict()
        self.layers = LayerFinder()
        self.recurrent = False
        self.masks: ActionMasks | None = None
        self.encode: Callable[[Buffer], Buffer] = _same
        """Function of previous actions that returns them as the networks are given them."""
        # By name, such as "model" or "target.body", as a subclass may put others in their place.
        self.unrolled = ["model"]
        """Those that normalise observations and carry the recurrent state: the model, and its target."""
        self.with_dropout = ["model"]
        """Those that are in training mode in updates."""
        self.targets: list[tuple[str, str]] = []
        """Targets, each with the network that it follows."""
        self._distribution: Any = None
        self._readers: tuple[str, ...] = ()

    def encode_by(self, distribution: Any = None, *readers: str) -> None:
        """Encode previous actions by a distribution from now on, if one of the named networks reads them.

        Without one, or without readers, those of before are asked again.
        """
        self._distribution, self._readers = distribution or self._distribution, readers or self._readers
        # Asked once, because `encode` is called at every step.
        reads = any(uses_prev_action(self.named(name)) for name in self._readers)
        self.encode = self._distribution.encode if reads and self._distribution is not None else _same

    def add_target(self, key: str, target: nn.Module, part: str = "", network: str = "model") -> None:
        """Have a target network under a key, all of which, or one part, follows that part of a network."""
        self.learning[key] = target.requires_grad_(False)
        self.targets.append((f"{key}.{part}".rstrip("."), f"{network}.{part}".rstrip(".")))

    def modules(self) -> list[nn.Module]:
        """Return all networks: those that act, then those that only learn."""
        return [*self.acting.values(), *self.learning.values()]

    def named(self, name: str) -> nn.Module:
        """Return a network by its key, or a part of it, such as "model.body"."""
        key, _, part = name.partition(".")
        for networks in (self.acting, self.learning):
            # Past ModuleDict's own look-up, which is slow: this is asked for at every step.
            if (network := networks._modules.get(key)) is not None:
                return network.get_submodule(part) if part else network
        raise AttributeError(
            f"{self._owner} has no network {name!r}: it is not initialised, or is a worker's copy, or a subclass names "
            "another one."
        )

    def check_built(self) -> None:
        """Raise RuntimeError if the networks are not built."""
        if "model" not in self.acting:
            raise RuntimeError(
                f"{self._owner}: is not initialised, and has no model yet; expected "
                "agent.initialize(env_spaces) first, with the spaces of make_env(EnvCls, env_kwargs)."
            )

    # ---- devices ----

    def to_device(self, settings: ComputeSettings) -> None:
        """Move the networks to the device, in the precision and memory format of the run."""
        if not isinstance(settings, ComputeSettings):
            raise TypeError(
                f"{self._owner}: to_device was given {settings!r}; expected rlpyt.utils.ComputeSettings(), or "
                'ComputeSettings(device="cuda:0") for the first GPU.'
            )
        self.compute = settings
        self.device = torch.device(settings.device)
        for module in self.modules():
            settings.place(module, self.device)

    def to_model(self, inputs: Buffer) -> Buffer:
        """Return tensors on the model's device."""
        return inputs if self.device.type == "cpu" else buffer_to(inputs, self.device)

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context of the run's precision; held around a whole batch it saves the casts of the weights."""
        return self.compute.autocast(self.device)

    # ---- forward passes ----

    def run(
        self, network: nn.Module, inputs: Sequence[Buffer], rnn_state: Buffer = None, episode_start: Buffer = None
    ) -> tuple[Buffer, Buffer]:
        """Return the outputs of a network and its next recurrent state [N, B, H], None if there is none.

        The inputs are observation, previous action and previous reward, on the device; the state is that before them.
        """
        observation, prev_action, prev_reward = inputs
        rnn = (rnn_state, episode_start) if self.recurrent else ()
        with self.autocast():
            output = network(observation, self.encode(prev_action), prev_reward, *rnn)
        if not self.recurrent:
            return output, None
        *first, next_rnn_state = output
        return first[0] if len(first) == 1 else tuple(first), next_rnn_state

    def run_rows(
        self,
        network: nn.Module,
        observation: Buffer,
        prev_action: Buffer,
        prev_reward: Buffer,
        init_rnn_state: Buffer = None,
        episode_start: Buffer = None,
    ) -> Buffer:
        """Return the outputs of a network for rows of samples; for the arguments see `BaseAgent.__call__`."""
        inputs = observation, prev_action, prev_reward
        return self.run(network, inputs, rnn_from_rows(init_rnn_state), episode_start)[0]

    @torch.no_grad()
    def target(self, *inputs: Buffer, **rnn: Buffer) -> Buffer:
        """Return the outputs of the model's target; for the arguments see `BaseAgent.__call__`."""
        return self.run_rows(self.named("target"), *inputs, **rnn)

    @torch.no_grad()
    def warm_up(self, inputs: AgentInputs, init_rnn_state: Buffer, episode_start: Buffer) -> tuple[Buffer, ...]:
        """Return the recurrent states of network and target after rows; see `rlpyt.core.AgentNetworks`."""
        state = rnn_from_rows(init_rnn_state)
        return tuple(
            rnn_to_rows(self.run(network, inputs, state, episode_start)[1])
            for network in map(self.named, self.unrolled)
        )

    # ---- learning ----

    def train(self) -> None:
        """Put the networks into training mode, for updates."""
        for network in map(self.named, self.with_dropout):
            if not network.training:  # to visit every layer at every step of a run costs more than to look
                self.layers.set_training(network, True)

    @torch.no_grad()
    def update_targets(self, tau: float = 1.0) -> None:
        """Move the targets by the fraction `tau` to the networks that they follow; 1 copies."""
        self.check_built()
        for pair in self.targets:
            target, network = (self.layers.of(self.named(name), nn.Module) for name in pair)
            move_weights(target, network, tau)

    def join(self, replicas: Replicas) -> None:
        """Connect the normalisers, which then pool the batches of all replicas."""
        for network in self.modules():
            join_replicas(network, replicas)

    def update_obs_rms(self, observation: Buffer, valid: torch.Tensor | None = None) -> None:
        """Update the normalisers of the network by a batch of observations; those of the target become the same."""
        network, *targets = map(self.named, self.unrolled)
        if not isinstance(network, Model):
            return
        if self.masks is not None:
            observation = self.masks.hidden(observation)
        before = [(x, x._version) for x in self.layers.buffers(network)]  # how often each was written to
        network.update_obs_rms(observation, valid)
        if self.in_hindsight:
            network.update_obs_rms(observation._replace(desired_goal=observation.achieved_goal), valid)
        after = self.layers.buffers(network) if before else []
        changed = [i for i, (x, n) in enumerate(before) if after[i] is not x or x._version != n]
        for target in targets if changed else ():
            own = self.layers.buffers(target)
            for i in changed:
                own[i].copy_(after[i].detach())

    def draw_randomness(self, generator: torch.Generator | None) -> None:
        """Draw what the networks are random in (noisy layers, IQN's fractions, dropout); None turns it off."""
        for network in self.modules():
            for layer in self.layers.of(network, RandomModule):  # type: ignore[type-abstract]
                layer.draw(generator)

    def rewinder(self) -> Callable[[], None]:
        """Return an undo function for random streams and buffers; see `rlpyt.core.AgentNetworks`."""
        networks = nn.ModuleList(self.modules())
        streams = [(part, part.copy_stream()) for part in networks.modules() if isinstance(part, RandomModule)]
        buffers = [(buffer, buffer.clone()) for buffer in networks.buffers()]

        def rewind() -> None:
            for part, stream in streams:
                part.set_stream(stream)
            for buffer, before in buffers:
                buffer.copy_(before)

        return rewind

    # ---- other processes ----

    def acting_modules(self) -> nn.Module:
        """Return all whose state the processes that act are sent: the networks that act, and the numbers."""
        return nn.ModuleList([self.acting, self.numbers])

    def acting_copy(self) -> Networks:
        """Return a copy on the CPU, with the networks that act and nothing of those that only learn."""
        self.check_built()
        clone = copy.copy(self)
        clone.device = torch.device("cpu")
        acting, clone.numbers = copy.deepcopy((self.acting, self.numbers))
        clone.acting, clone.learning, clone.layers = acting.cpu(), nn.ModuleDict(), LayerFinder()
        clone.unrolled, clone.with_dropout, clone.targets = self.unrolled[:1], ["model"], []
        clone._readers = tuple(name for name in self._readers if name.partition(".")[0] in self.acting)
        return clone

    # ---- state ----

    def input_description(self) -> str:
        """Return a description of how each part of an observation is read, if the model has an encoder of ours."""
        model = self.named(self.unrolled[0])
        parts = model.reading() if isinstance(model, Model) else []
        return "; ".join([*parts, *(["action_mask: the legal actions"] if parts and self.masks else [])])

    def state_dict(self) -> StateDict:
        """Return the state of all networks by name, and the numbers that belong to it."""
        acting, learning = ({name: m.state_dict() for name, m in ms.items()} for ms in (self.acting, self.learning))
        numbers = {name: self.numbers[name].tolist() for name in self.kept}
        return {**acting, **{name: x[0] if len(x) == 1 else x for name, x in numbers.items()}, **learning}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""
        self.check_built()
        check_state(self._owner, state_dict)
        names = [*self.acting, *self.learning, *self.kept]
        if not set(names) <= state_dict.keys():
            raise ValueError(
                f"{self._owner}: was given a state with {', '.join(map(repr, state_dict))!s:.200}; expected "
                f"{', '.join(map(repr, names))}, as its state_dict() returns them. Those of rlpyt 0.1 have other names "
                "and do not load (docs/start/from_rlpyt_0_1.md)."
            )
        self.have_learned = True
        for name, module in [*self.acting.items(), *self.learning.items()]:
            module.load_state_dict(state_dict[name])
        for name in self.kept:
            self.numbers[name][:] = state_dict[name]


# ---- recurrent states, as torch and as samples have them ----


def rnn_to_rows(state: Buffer) -> Buffer:
    """Turn a model's state, [N, B, H] leaves, into what samples keep.

    A plain tuple, such as torch's (h, c), gets the names "0", "1", so that an index means rows and not its parts.
    """
    rows = buffer_func(state, _swap)
    return namedarraytuple("RnnState", map(str, range(len(rows))))(*rows) if type(rows) is tuple else rows


def rnn_from_rows(rows: Buffer) -> Buffer:
    """Turn the state that samples keep, [B, N, H] leaves, into the model's own."""
    state = buffer_func(rows, _swap)
    return tuple(state) if isinstance(state, NamedArrayTuple) and "0" in state else state


def _swap(state: torch.Tensor) -> torch.Tensor:
    return state.transpose(0, 1).contiguous()


def check_state(who: str, state: StateDict) -> None:
    """Check that a state is the agent's, and not a whole snapshot."""
    if "agent_state_dict" in state:
        raise ValueError(
            f"{who}: was given a snapshot, with {', '.join(map(repr, state))}; expected the agent's state in it. Give "
            'snapshot["agent_state_dict"].'
        )
