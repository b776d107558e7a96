"""What the agents of replay algorithms share: exploration that the algorithm steers, and recurrent states."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.rnn_rows import rnn_from_rows, rnn_to_rows
from rlpyt.models import Model, draw_randomness
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.types import AgentInputs, AgentStep
from rlpyt.utils.shared_memory import shared_array


class OffPolicyAgent(BaseAgent):
    """Base of the agents of Q-learning and of deterministic and soft policy gradients."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._annealed = np.zeros(1)  # in shared memory where workers act
        self._exploration: Callable[[int], float | None] | None = None

    @abstractmethod
    def unrolled(self) -> tuple[nn.Module, nn.Module]:
        """Return the network that carries the recurrent state, and its target."""

    # ---- exploration ----

    def anneal_exploration(self, progress: float) -> None:
        """Set how far exploration has gone from its first (0) to its last value (1), in every process that acts."""
        self._annealed[0] = progress

    def explore_by(self, schedule: Callable[[int], float | None]) -> None:
        """Follow a schedule of the iteration: `train_mode(itr)` sets how far exploration is for what comes after it.

        So it goes on under an `optimize_agent` of one's own, too. Where the schedule gives None it stays as it is.
        """
        self._exploration = schedule

    def train_mode(self, itr: int) -> None:
        """Make ready for updates, and let exploration go on."""
        super().train_mode(itr)
        progress = None if self._exploration is None else self._exploration(itr)
        if progress is not None:
            self.anneal_exploration(progress)

    @property
    def progress(self) -> float:
        """How far exploration has gone, from 0 to 1."""
        return float(self._annealed[0])

    # ---- networks ----

    def update_obs_rms(self, observation: Any, valid: torch.Tensor | None = None) -> None:
        """Let the normalisers of network and target, which are the same, take in a batch of observations."""
        for network in self.unrolled():
            if isinstance(network, Model):
                network.update_obs_rms(observation, valid)

    def draw_randomness(self, generator: torch.Generator | None) -> None:
        """Draw anew what the networks are random in (noisy layers, IQN's fractions, dropout); None is without."""
        for network in self.modules():
            draw_randomness(network, generator)

    # ---- recurrent states ----

    def _forward(self, model: nn.Module, inputs: Any, rnn_state: Any = None, episode_start: Any = None) -> Any:
        """Return what a network gives and its next recurrent state, in torch's layout; None if there is none."""
        observation, prev_action, prev_reward = inputs
        rnn = (rnn_state, episode_start) if self.recurrent else ()
        with self.autocast():
            output = model(observation, self.encode(prev_action), prev_reward, *rnn)
        return output if self.recurrent else (output, None)

    @torch.no_grad()
    def warm_up(self, inputs: AgentInputs, init_rnn_state: Any, episode_start: Any) -> tuple[Any, Any]:
        """Return the recurrent states of network and target network after rows, each by its own way from one state.

        Args:
            inputs: [T, B] rows.
            init_rnn_state: before the first row, [B, N, H] leaves; None is zero.
            episode_start: [T, B] bool, rows before which the state is zero.
        """
        state = rnn_from_rows(init_rnn_state)
        after = (self._forward(model, inputs, state, episode_start)[1] for model in self.unrolled())
        own, target = map(rnn_to_rows, after)
        return own, target

    def _recorded(self, action: Any, info: NamedArrayTuple, next_rnn_state: Any) -> AgentStep:
        """Return a step; a recurrent agent records its state before it and goes on to the next."""
        if not self.recurrent:
            return AgentStep(action, info)
        group = self._group
        prev_rnn_state = self.from_model(rnn_to_rows(group.rnn_state))
        group.rnn_state = next_rnn_state
        return AgentStep(action, info._replace(prev_rnn_state=prev_rnn_state))

    # ---- processes and state ----

    def worker_copy(self) -> Self:
        """Return a copy that acts in another process, and follows this one's exploration."""
        annealed = shared_array(1, np.float64)
        annealed[:] = self._annealed
        self._annealed = annealed
        clone = super().worker_copy()
        clone._exploration = None  # a worker's follows this one's
        return clone

    def state_dict(self) -> dict[str, Any]:
        """Return what `BaseAgent` does, and how far exploration has gone."""
        return {**super().state_dict(), "annealed": self.progress}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self.anneal_exploration(state_dict["annealed"])
