"""Weights for the processes that act: one process publishes what its agent acts by, others take it."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from numbers import Real

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
    returns), and the agent's public attributes that are numbers, texts or None, settings among them, by name.

    Made where the agent learns, once the run has placed it; sent to other processes by reference (see
    `rlpyt.utils.shared_memory`). Version v lies in block v % n. Every block has a stamp, the version in it, which is
    written last and removed first. So a reader that finds the stamp before and after its copy has a whole version.

    Where only one version is kept, an agent on the CPU has its tensors in the block itself, so that nothing is copied:
    nobody may act while it is written.
    """

    def __init__(self, agent: Agent, n_versions: int = 1) -> None:
        tensors, rest = _contents(agent)
        # Offset, shape and stride: weights in channels-last order stay in it. Overlapping memory is laid out anew.
        self._layout: dict[str, tuple[int, torch.dtype, torch.Size, tuple[int, ...]]] = {}
        size = 0
        for name, tensor in tensors.items():
            self._layout[name] = size, tensor.dtype, tensor.shape, torch.empty_like(tensor).stride()
            size += math.ceil(tensor.numel() * tensor.element_size() / _ALIGNMENT) * _ALIGNMENT
        # All blocks in one array, as every array takes two descriptors a process.
        self._blocks = shared_array((n_versions, size), np.uint8)
        # What is no tensor, pickled, after its size.
        self._rests = shared_array((n_versions, _SIZE + 2 * len(dumps(rest)) + _ROOM_TO_GROW), np.uint8)
        self._stamps = shared_array(n_versions, np.int64)
        self._stamps[:] = _BEING_WRITTEN
        self._written: dict[int, dict[str, object]] = {}  # what is no tensor, by block
        # What the agent of this process has: a version, the rest of it, and the tensors of the one block themselves.
        self._taken, self._rest, self._shares = _BEING_WRITTEN, b"", False
        self._views: dict[int, dict[str, torch.Tensor]] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_views": {}}  # each process makes its own, as a tensor would be copied

    @property
    def newest(self) -> int:
        """Version that was published last; -1 before the first."""
        return int(self._stamps.max())

    @property
    def arrays(self) -> list[np.ndarray]:
        """All that is published, in shared memory, for a machine that has a copy of the agent."""
        return [*self._blocks, *self._rests, self._stamps]

    def receive(self, arrays: Sequence[np.ndarray]) -> None:
        """Publish here what the store of another machine has published, its arrays; nobody may act meanwhile."""
        for mine, received in zip(self.arrays, arrays, strict=True):
            mine[...] = received

    @torch.no_grad()
    def publish(self, agent: Agent, version: int | None = None) -> None:
        """Write what the agent acts by now, over version - n, which nobody may need any more.

        Args:
            agent: that of the store, or a copy of it.
            version: None is the one after the last.
        """
        if version is None:
            version = self.newest + 1
        block = version % len(self._stamps)
        self._stamps[block] = _BEING_WRITTEN
        tensors, rest = _contents(agent)
        for name, tensor in self._tensors(block).items():
            tensor.copy_(tensors[name])
        if rest != self._written.get(block):
            self._write_rest(block, dumps(rest))
            self._written[block] = rest
        self._stamps[block] = version

    @torch.no_grad()
    def take(self, agent: Agent, version: int | None = None) -> int:
        """Load a version into an agent of this process, on any device; return its number.

        Args:
            agent: the same at every call.
            version: None is the newest, which others may publish meanwhile; it is not taken twice.
        """
        for _ in range(_ATTEMPTS if version is None else 1):
            wanted = self.newest if version is None else version
            if version is None and wanted == self._taken:
                return wanted
            found = self._take(agent, wanted)
            if found == wanted:
                self._taken = wanted
                return wanted
        raise RuntimeError(
            f"Taking version {wanted} of the weights: its block holds version {found} (-1 while one is "
            f"written); expected version {wanted}. Of {len(self._stamps)} versions the last ones are kept."
        )

    def _take(self, agent: Agent, version: int) -> int:
        """Read a version, and return the one that was in its block all the time."""
        block = version % len(self._stamps)
        if self._stamps[block] == version:
            self._take_tensors(agent, block)
            size = int(self._rests[block, :_SIZE].view(np.int64)[0])
            rest = self._rests[block, _SIZE : _SIZE + size].tobytes()
            if self._stamps[block] == version and rest != self._rest:
                _take_rest(agent, rest, self._rest)
                self._rest = rest
        return int(self._stamps[block])

    def _take_tensors(self, agent: Agent, block: int) -> None:
        """Copy the tensors of a block to an agent; or let its own be these, if it can, from now on."""
        copies = len(self._stamps) > 1 or agent.device.type != "cpu"
        if self._shares and not copies:
            return
        state = agent.networks.acting_modules().state_dict(keep_vars=True)
        for name, tensor in self._tensors(block).items():
            if copies:
                state[name].copy_(tensor)
            else:
                state[name].data = tensor
        self._shares = not copies

    def _tensors(self, block: int) -> dict[str, torch.Tensor]:
        """Return views of the tensors of a block by name, made once: together they take as long as the copies."""
        if block not in self._views:
            self._views[block] = {}
            for name, (start, dtype, shape, stride) in self._layout.items():
                flat = torch.from_numpy(self._blocks[block, start : start + math.prod(shape) * dtype.itemsize])
                self._views[block][name] = flat.view(dtype).as_strided(shape, stride)
        return self._views[block]

    def _write_rest(self, block: int, rest: bytes) -> None:
        room = self._rests.shape[1] - _SIZE
        if len(rest) > room:
            raise RuntimeError(
                "Publishing the model's weights: its extra state (get_extra_state) and the texts among the agent's "
                f"attributes take {len(rest):,} bytes, and had room to grow to {room:,}. Keep what grows out of the "
                "model, or in buffers of a fixed size; begin the name of a text with _ to keep it here."
            )
        self._rests[block, _SIZE : _SIZE + len(rest)] = np.frombuffer(rest, np.uint8)
        self._rests[block, :_SIZE].view(np.int64)[0] = len(rest)


def _contents(agent: Agent) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    """Return the current content of an agent: tensors by name, and all else, in which an extra state is pickled."""
    tensors: dict[str, torch.Tensor] = {}
    rest: dict[str, object] = {}
    for name, value in agent.networks.acting_modules().state_dict(keep_vars=True).items():
        if _is_extra(name):
            rest[name] = dumps(value)
        else:
            tensors[name] = value
    plain = (Real, str, np.bool_, type(None))
    rest |= {name: x for name, x in vars(agent).items() if not name.startswith("_") and isinstance(x, plain)}
    return tensors, rest


def _take_rest(agent: Agent, rest: bytes, before: bytes) -> None:
    """Set extra state and attributes of an agent that differ from the version before: it may have set others itself."""
    had = pickle.loads(before) if before else {}
    for name, value in pickle.loads(rest).items():
        if name in had and value == had[name]:
            continue
        if _is_extra(name):
            module = agent.networks.acting_modules().get_submodule(name.removesuffix(_EXTRA_STATE).rstrip("."))
            module.set_extra_state(pickle.loads(value))
        else:
            setattr(agent, name, value)


def _is_extra(name: str) -> bool:
    return name.split(".")[-1] == _EXTRA_STATE
