"""Weights for the processes that act: one process publishes what its agent acts by, others take it."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch

from rlpyt.core import Agent
from rlpyt.utils.shared_memory import dumps, shared_array

_ALIGNMENT = 64
_EXTRA_STATE = "_extra_state"  # torch's key of what `get_extra_state` returns
_ROOM_TO_GROW = 2**16
_SIZE = 8  # bytes of a size
_BEING_WRITTEN = -1
_ATTEMPTS = 100


class WeightStore:
    """The last versions of what an agent acts by, in shared memory.

    A version is the state of the agent's `acting_modules()` (parameters, buffers, and what a `get_extra_state`
    returns), and the agent's attributes that are numbers, texts or None, by name.

    Made where the agent learns, once the run has placed it; sent to other processes by reference (see
    `rlpyt.utils.shared_memory`). Version v lies in block v % n. Every block has a stamp, the version in it, which is
    written last and removed first. So a reader that finds the stamp before and after its copy has a whole version.

    Where only one version is kept, an agent on the CPU has its tensors in the block itself, so that nothing is copied:
    nobody may act while it is written.

    Args:
        agent: initialised.
        n_versions: that are kept.
    """

    def __init__(self, agent: Agent, n_versions: int = 1) -> None:
        contents = _Contents.of(agent)
        self._blocks = [_Block(contents) for _ in range(n_versions)]
        self._stamps = shared_array(n_versions, np.int64)
        self._stamps[:] = _BEING_WRITTEN
        # What the agent of this process has: a version, the rest of it, and the tensors of the one block themselves.
        self._taken, self._rest, self._shares = _BEING_WRITTEN, b"", False

    @property
    def arrays(self) -> list[np.ndarray]:
        """All that is published, in shared memory, for a machine that has a copy of the agent."""
        return [array for block in self._blocks for array in block.arrays] + [self._stamps]

    def receive(self, arrays: Sequence[np.ndarray]) -> None:
        """Publish here what the store of another machine has published; nobody may act meanwhile.

        Args:
            arrays: those of the other store.
        """
        for mine, received in zip(self.arrays, arrays, strict=True):
            size = min(len(mine), len(received))  # the room for what is no tensor may differ by some bytes
            mine[:size] = received[:size]

    @torch.no_grad()
    def publish(self, agent: Agent, version: int | None = None) -> None:
        """Write what the agent acts by now, over version - n, which nobody may need any more.

        Args:
            agent: that of the store, or a copy of it.
            version: None is the one after the last.

        Raises:
            RuntimeError: if its extra state has outgrown the room that it was given.
        """
        if version is None:
            version = int(self._stamps.max()) + 1
        block = version % len(self._blocks)
        self._stamps[block] = _BEING_WRITTEN
        self._blocks[block].write(_Contents.of(agent))
        self._stamps[block] = version

    @torch.no_grad()
    def take(self, agent: Agent, version: int | None = None) -> int:
        """Let an agent of this process, on any device, act by a version; return which.

        Args:
            agent: the same at every call.
            version: None is the newest, which others may publish meanwhile; it is not taken twice.

        Raises:
            RuntimeError: if the version is not there, or was overwritten meanwhile.
        """
        for attempt in range(_ATTEMPTS):
            wanted = int(self._stamps.max()) if version is None else version
            if version is None and wanted == self._taken:
                break
            found = self._take(agent, wanted)
            if found == wanted:
                self._taken = wanted
                break
            if version is not None or attempt + 1 == _ATTEMPTS:
                raise RuntimeError(
                    f"Taking version {wanted} of the weights: its block holds version {found} (-1 while one is "
                    f"written); expected version {wanted}. Of {len(self._stamps)} versions the last ones are kept."
                )
        return self._taken

    def _take(self, agent: Agent, version: int) -> int:
        """Read a version, and return the one that was in its block all the time."""
        block = self._blocks[version % len(self._blocks)]
        found = self._stamp_of(version)
        if found != version:
            return found
        if len(self._blocks) > 1 or agent.device.type != "cpu":
            block.copy_to(agent)
        elif not self._shares:
            block.share_with(agent)
            self._shares = True
        rest = block.rest()
        if self._stamp_of(version) == version and rest != self._rest:
            _take_rest(agent, rest, self._rest)
            self._rest = rest
        return self._stamp_of(version)

    def _stamp_of(self, version: int) -> int:
        return int(self._stamps[version % len(self._stamps)])


class _Contents(NamedTuple):
    """Contents of a version."""

    tensors: dict[str, torch.Tensor]
    extra: dict[str, object]
    attributes: dict[str, object]

    @classmethod
    def of(cls, agent: Agent) -> _Contents:
        """Return those of an agent as it is now."""
        state = agent.networks.acting_modules().state_dict(keep_vars=True)
        extra = {name: value for name, value in state.items() if _is_extra(name)}
        tensors = {name: value for name, value in state.items() if not _is_extra(name)}
        return cls(tensors, extra, plain_attributes(agent))


class _Place(NamedTuple):
    offset: int
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]

    def tensor(self, block: np.ndarray) -> torch.Tensor:
        size = math.prod(self.shape) * self.dtype.itemsize
        flat = torch.from_numpy(block[self.offset : self.offset + size]).view(self.dtype)
        # By strides, so that weights in channels-last order stay in it.
        return flat.as_strided(self.shape, self.stride)


class _Block:
    """Memory of one version. All tensors lie in one array, as every array takes two descriptors a process."""

    def __init__(self, contents: _Contents) -> None:
        self._places: dict[str, _Place] = {}
        size = 0
        for name, tensor in contents.tensors.items():
            # Overlapping or sparse memory is laid out anew; all else keeps its order.
            self._places[name] = _Place(size, tensor.dtype, tensor.shape, torch.empty_like(tensor).stride())
            size += math.ceil(tensor.numel() * tensor.element_size() / _ALIGNMENT) * _ALIGNMENT
        self._block = shared_array(size, np.uint8)
        # What is no tensor, pickled, after its size.
        self._rest = shared_array(_SIZE + 2 * len(_pickled(contents)) + _ROOM_TO_GROW, np.uint8)
        self._written: dict[str, object] | None = None
        self._made: dict[str, torch.Tensor] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_made": {}}  # each process makes its own, as a tensor would be copied

    @property
    def arrays(self) -> list[np.ndarray]:
        return [self._block, self._rest]

    @property
    def _tensors(self) -> dict[str, torch.Tensor]:
        """Views of the shared tensors by name, made once: together they take as long as the copies."""
        if not self._made:
            self._made = {name: place.tensor(self._block) for name, place in self._places.items()}
        return self._made

    def write(self, contents: _Contents) -> None:
        for name, tensor in self._tensors.items():
            tensor.copy_(contents.tensors[name])
        if contents.extra or contents.attributes != self._written:
            self._write_rest(_pickled(contents))
            self._written = contents.attributes

    def _write_rest(self, rest: bytes) -> None:
        if len(rest) > len(self._rest) - _SIZE:
            raise RuntimeError(
                "Publishing the model's weights: its extra state (get_extra_state) and the texts among the agent's "
                f"attributes take {len(rest):,} bytes, and had room to grow to {len(self._rest) - _SIZE:,}. Keep what "
                "grows out of the model, or in buffers of a fixed size; begin the name of a text with _ to keep it "
                "here."
            )
        self._rest[_SIZE : _SIZE + len(rest)] = np.frombuffer(rest, np.uint8)
        self._rest[:_SIZE].view(np.int64)[0] = len(rest)

    def rest(self) -> bytes:
        """Return what is no tensor, pickled."""
        return self._rest[_SIZE : _SIZE + int(self._rest[:_SIZE].view(np.int64)[0])].tobytes()

    def share_with(self, agent: Agent) -> None:
        """Let the tensors of an agent on the CPU be those in shared memory from now on."""
        state = agent.networks.acting_modules().state_dict(keep_vars=True)
        for name, place in self._places.items():
            state[name].data = place.tensor(self._block)

    def copy_to(self, agent: Agent) -> None:
        """Copy the tensors into an agent on any device."""
        state = agent.networks.acting_modules().state_dict(keep_vars=True)
        for name, tensor in self._tensors.items():
            state[name].copy_(tensor)


def plain_attributes(agent: object) -> dict[str, object]:
    """Return the public attributes of an agent that are a number, a text or None, settings among them."""
    return {
        name: value
        for name, value in vars(agent).items()
        if not name.startswith("_") and (value is None or isinstance(value, Real | str | np.bool_))
    }


def _take_rest(agent: Agent, rest: bytes, before: bytes) -> None:
    """Let an agent have extra state and attributes, as far as they are others than before: it may count in its own."""
    extra, attributes = pickle.loads(rest)
    extra_before, attributes_before = pickle.loads(before) if before else (b"", {})
    if extra != extra_before:
        module = agent.networks.acting_modules()
        for name, value in pickle.loads(extra).items():
            module.get_submodule(name.removesuffix(_EXTRA_STATE).rstrip(".")).set_extra_state(value)
    for name, value in attributes.items():
        if name not in attributes_before or value != attributes_before[name]:
            setattr(agent, name, value)


def _pickled(contents: _Contents) -> bytes:
    return dumps((dumps(contents.extra), contents.attributes))


def _is_extra(name: str) -> bool:
    return name.split(".")[-1] == _EXTRA_STATE
