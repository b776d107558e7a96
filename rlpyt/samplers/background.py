"""Sampler in a process of its own, which collects the next batches while this one learns from the last.

Batch i + lag is collected with version i of the weights, those after i iterations of learning. So up to `lag` requests
wait in the pipe, and lag + 1 versions of the weights and lag + 1 batches lie in shared memory.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import torch

from rlpyt.core import Agent, EvalResult, EvaluatorBeside, Sampler
from rlpyt.samplers.remote_sampler import RemoteSampler
from rlpyt.samplers.sampler_server import Batch, ProcessSettings
from rlpyt.samplers.states import TypedTrajStates
from rlpyt.types import Kwargs, Run, Samples, StateDict, TrajInfo
from rlpyt.utils.arrays import buffer_func, buffer_leaves, torchify_buffer


class Arrived(NamedTuple):
    """Batch that was collected, and is not yet learned from."""

    samples: Samples
    traj_infos: list[TrajInfo]
    version: int
    """Of the weights that collected it."""


class BackgroundSampler(Sampler):
    """Sampler that runs another one in a process of its own, some batches ahead of the learner.

    Args:
        sampler: not initialised; it is sent to the process and stays as it is here.
        settings: of the process.
        lag: iterations of learning that the weights of the sampler are behind; 0 collects in turn with the learner.
        affinity: cores and device of the process and its workers; None is the device of the learner, on any core.
    """

    traj_states = TypedTrajStates()

    def __init__(self, sampler: Sampler, settings: ProcessSettings, lag: int, affinity: Kwargs | None = None) -> None:
        self.remote, self.lag = RemoteSampler(sampler, settings, affinity, lag + 1, lag + 1), lag
        self.coupling = self.remote.coupling
        self.batch_spec, self.mid_batch_reset = sampler.batch_spec, sampler.resets_mid_batch
        self.eval_n_envs = sampler.eval_n_envs
        self._arrived: dict[int, Arrived] = {}

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Start the process and the sampler in it, and initialise the agent here for the same spaces."""
        example = self.remote.initialize(agent, run or Run(batch_spec=self.batch_spec))
        self.batches = self.remote.batches
        return example

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Return one batch, and let the next ones be collected while the caller learns from it.

        Args:
            itr: the iteration, one more than in the last call.
        """
        remote = self.remote
        remote.begin(itr)
        with self.coupling.hands_over():
            last = max(itr, min(itr + self.lag, remote.n_itr - 1))
            while remote.next <= last:
                remote.ask_for_next(version=itr)
        with self.coupling.optimizer_waits():
            while itr not in self._arrived:
                self._take_in_next()
        arrived = self._arrived.pop(itr)
        remote.itr = itr + 1
        self.coupling.note_age(itr - arrived.version)
        return arrived.samples, arrived.traj_infos

    def _take_in_next(self) -> None:
        """Wait for the oldest batch under way."""
        batch: Batch = self.remote.logged(self.remote.receive(self.remote.at_oldest))
        itr, version = self.remote.asked.popleft()
        self.coupling.sampler_wait += batch.waited
        self.coupling.hand_over += batch.hand_over
        samples = self.remote.batch_of(itr) if batch.samples is None else torchify_buffer(batch.samples)
        self._arrived[itr] = Arrived(samples, batch.traj_infos, version)

    def _settled(self) -> RemoteSampler:
        """Wait until no batch is under way."""
        while self.remote.asked:
            self._take_in_next()
        return self.remote

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the process, with the weights of now, after the batches under way."""
        return self._settled().evaluate(itr, deterministic)

    def evaluator_beside(self, agent: Agent, run: Run) -> EvaluatorBeside:
        """Start a third process, which evaluates while both others go on."""
        return self.remote.evaluator_beside(agent, run)

    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun."""
        return deepcopy(self.remote.description.traj_info)

    def plan(self) -> dict[str, object]:
        """Return where the work runs."""
        return {**self.remote.description.plan, "lag": self.lag}

    def diagnostics(self) -> dict[str, float]:
        """Return how both sides keep step, and what the sampler itself tells."""
        return {**self.coupling.take(), **self.remote.diagnostics(self._settled)}

    def shutdown(self) -> None:
        """Stop the process, which closes environments and workers."""
        self.remote.stop()

    def why_no_state(self) -> str | None:
        """Return why training environments have no state, after the batches under way."""
        return self._settled().why_no_state()

    def state_dict(self) -> StateDict:
        """Return the state of the sampler after the batches under way, and these batches."""
        state = self._settled().state_dict()
        ahead = [
            {
                "itr": itr,
                "version": batch.version,
                "rows": [leaf.clone() for leaf in buffer_leaves(batch.samples)],
                "traj_infos": self.traj_states.saved(batch.traj_infos),
            }
            for itr, batch in sorted(self._arrived.items())
        ]
        return {**state, "ahead": ahead}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, before the first batch."""
        self.n_cut_episodes = self.remote.load_state_dict(state_dict)
        for batch in state_dict["ahead"]:
            # In memory of their own: the ring has only the row after the last batch, which the sampler has restored.
            samples = _with_leaves(self.remote.batch_of(0), [leaf.clone() for leaf in batch["rows"]])
            traj_infos = self.traj_states.restored(batch["traj_infos"], self.new_traj_info)
            self._arrived[batch["itr"]] = Arrived(samples, traj_infos, batch["version"])


def _with_leaves(example: Samples, leaves: list[torch.Tensor]) -> Samples:
    """Return a batch of these leaves, in the order of `buffer_leaves`."""
    rest = iter(leaves)
    samples: Samples = buffer_func(example, lambda _: next(rest))
    return samples
