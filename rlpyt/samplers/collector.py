"""The collector: the one loop that fills a batch of rows with an agent in parts of a fleet.

Its own cost is one Python call per time step and a few microseconds per row (`benchmarks/collector.py` measures
it); everything is written straight into the batch's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

import numpy as np
import torch

from rlpyt.core import Actor, Agent
from rlpyt.namedarraytuple import Buffer
from rlpyt.old_rlpyt import tells_old_attributes
from rlpyt.samplers.buffer import RowMemory
from rlpyt.samplers.parts import CompletedTraj, Environments, Part
from rlpyt.samplers.states import Loaded, dealt, joined, piece
from rlpyt.types import AgentInputs, StateDict
from rlpyt.utils.arrays import buffer_leaves, torchify_buffer

ACTIVITIES = ("environments", "network", "waiting", "copying")
"""Activities of a process while a batch is collected: it steps environments, runs the network, waits for another
process (or for its next batch), or moves data between rows and network."""


class Stopwatch:
    """Sums of seconds by activity; a lap costs 0.2 us, so it always runs."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(ACTIVITIES, 0.0)
        self._last = perf_counter()

    def start(self) -> None:
        """Begin a lap; the time before it is not counted."""
        self._last = perf_counter()

    def lap(self, activity: str) -> None:
        """Count the time since the last lap for an activity."""
        now = perf_counter()
        self.seconds[activity] += now - self._last
        self._last = now

    def take(self) -> dict[str, float]:
        """Return the seconds of every activity, and begin again from zero."""
        seconds, self.seconds = self.seconds, dict.fromkeys(ACTIVITIES, 0.0)
        return seconds


def mean_of(processes: Sequence[Mapping[str, float]], total: float) -> dict[str, float]:
    """Return the mean over processes that worked side by side; a process has waited for what it lacks to the total."""
    mean = {name: sum(seconds[name] for seconds in processes) / len(processes) for name in ACTIVITIES}
    mean["waiting"] += max(0.0, total - sum(mean.values()))
    return mean


class _TorchRows:
    """Torch views of the rows of a place, by t: a torch index costs more than an environment step of CartPole."""

    def __init__(self, memory: RowMemory) -> None:
        inputs, agent_info, T = torchify_buffer(memory.inputs), torchify_buffer(memory.agent_info), len(memory.valid)
        self.inputs: list[AgentInputs] = [inputs[t] for t in range(T + 1)]
        self.action = [buffer_leaves(inputs.prev_action[t + 1]) for t in range(T)]
        self.agent_info = [buffer_leaves(None if agent_info is None else agent_info[t]) for t in range(T)]


class ActingPart:
    """Part of a fleet with the actor for it, which `agent` made."""

    def __init__(self, agent: Agent, envs: Part, actor: Actor, stopwatch: Stopwatch) -> None:
        self.agent, self.envs, self.actor, self.stopwatch = agent, envs, actor, stopwatch
        self.rows = envs.rows
        self._places = [_TorchRows(place) for place in self.rows.places]
        self._torch_rows = self._places[self.rows.place]

    def begin(self, itr: int, first_t: int | None) -> None:
        """Turn to the batch of an iteration; see `Collector.collect_batch`.

        Where it begins, the row after the last batch is its first, and all environments are stepped.
        """
        rows, resting = self.rows, self.rows.resting
        self.actor.begin(itr)
        if first_t is not None:
            rows.turn_to(itr)
        else:
            self.envs.ready()
            self.stopwatch.lap(self.envs.waits_for)
            rows.begin(itr)
        self._torch_rows = self._places[rows.place]
        if first_t is None and resting.any():
            rows.first.prev_action[resting], rows.first.prev_reward[resting] = self.envs.null_action, 0.0
            self._forget(resting)
            resting[:] = False

    def act(self, t: int) -> None:
        """Select the actions of row t."""
        rows = self._torch_rows
        action, agent_info = self.actor.step(*rows.inputs[t])
        self.stopwatch.lap("network")
        _copy_leaves(rows.action[t], action)
        _copy_leaves(rows.agent_info[t], agent_info)
        self.stopwatch.lap("copying")

    def recv(self, t: int) -> list[CompletedTraj]:
        """Wait for the rest of row t; where it was a final one, the actor forgets the episode."""
        with self.agent.compute.without_autocast(self.agent.device):
            completed = self.envs.recv(t)
        self.stopwatch.lap(self.envs.waits_for)
        steps = self.rows.valid[t]
        if not steps.all():
            self._forget(~(steps | self.rows.resting))
        return completed

    def end(self) -> None:
        """Write what was asked for of the row after the last one, and note that the batch is whole."""
        if self.rows.bootstrap_value is not None:
            # By torch: numpy has no bfloat16, which a model of one's own may give.
            torch.from_numpy(self.rows.bootstrap_value)[0] = self.actor.value(*self._torch_rows.inputs[self.rows.T])
            self.stopwatch.lap("network")
        if self.rows.bootstrap_inputs is not None:
            # A copy: an environment that rests is reset in the row itself while the algorithm learns.
            self.rows.bootstrap_inputs[0] = self.rows.after
            self.stopwatch.lap("copying")
        self.rows.end()

    def _forget(self, mask: np.ndarray) -> None:
        for b in np.flatnonzero(mask):
            self.actor.reset_one(int(b))

    def state_dict(self) -> StateDict:
        """Return the states of environments and actor."""
        return joined([self.envs.state_dict(), {"actors": [piece(self.envs.ranks, self.actor.state_dict())]}])

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Load the result of `state_dict`, of parts with the same environments or others."""
        loaded = self.envs.load_state_dict(state_dict) or Loaded()
        self.actor.load_state_dict(dealt(state_dict["actors"], self.envs.ranks))
        return loaded


@tells_old_attributes
class Collector(Environments):
    """Steps environments with an agent, batch after batch.

    With two parts, one steps while the other gets actions. `overlap` False sends a part's actions only when the other
    part has stepped, so that never both step at once, only one beside the network.

    Args:
        agent: acts.
        parts: parts of the fleet, each with its actor.
        overlap: whether the environments of two parts may step at the same time.
    """

    mid_batch_reset = True
    """Whether an environment goes on after the end of an episode; False lets it rest until the batch is over."""

    def __init__(self, agent: Agent, parts: Sequence[tuple[Part, Actor]], overlap: bool = True) -> None:
        self.agent = agent
        self.stopwatch = Stopwatch()
        self.parts = [ActingPart(agent, envs, actor, self.stopwatch) for envs, actor in parts]
        self.overlap = overlap
        self.T = self.parts[0].rows.T

    @torch.no_grad()  # not inference_mode, in which autocast casts the weights again at every step: 1.4 ms to 1.0 ms
    def collect_batch(self, itr: int, first_t: int | None = None) -> list[CompletedTraj]:
        """Fill the rows and return the trajectories that were completed, in the order in which they were.

        Args:
            itr: the iteration.
            first_t: the row to go on from, in a batch that another collector began and lost; None begins a batch.
        """
        completed: list[CompletedTraj] = []
        held: tuple[Part, int] | None = None
        self.stopwatch.start()
        with self.agent.compute.autocast(self.agent.device):
            for part in self.parts:
                part.begin(itr, first_t)
            start = first_t or 0
            for t in range(start, self.T):
                for part in self.parts:
                    if t > start:
                        completed += part.recv(t - 1)
                    if held is not None:
                        held[0].send(held[1])
                    part.act(t)
                    if self.overlap:
                        part.envs.send(t)
                    else:
                        held = part.envs, t
            for part in self.parts:
                completed += part.recv(self.T - 1)
                if held is not None:
                    held[0].send(held[1])
                    held = None
                part.end()
        return completed

    def wake(self) -> None:
        """Reset the environments that rest; the bootstrap value of the batch stays as it is, too."""
        for part in self.parts:
            part.envs.wake()

    def state_dict(self) -> StateDict:
        """Return the states of environments and actors."""
        return joined(part.state_dict() for part in self.parts)

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Load the result of `state_dict`, of a collector of any parts."""
        return Loaded.merge([part.load_state_dict(state_dict) for part in self.parts])

    def why_no_state(self) -> str | None:
        """Return why an environment has no state; None if all have one."""
        return next(filter(None, (part.envs.why_no_state() for part in self.parts)), None)


class WaitResetCollector(Collector):
    """`Collector` that lets an environment rest from the end of an episode to the end of the batch."""

    mid_batch_reset = False


CpuResetCollector = GpuResetCollector = DbCpuResetCollector = DbGpuResetCollector = Collector
CpuWaitResetCollector = GpuWaitResetCollector = DbCpuWaitResetCollector = DbGpuWaitResetCollector = WaitResetCollector
"""Their names in rlpyt 0.1, which had one loop for every sampler."""


def _copy_leaves(out: list[torch.Tensor], buffer: Buffer) -> None:
    for dest, src in zip(out, buffer_leaves(buffer), strict=True):
        dest.copy_(src)
