"""The deep Q-learning agent: a Q network, its target, and epsilon-greedy exploration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from torch import nn

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.base import BaseAgent
from rlpyt.agents.own_models import INPUTS, RNN_INPUTS, check_apart, check_call, check_rnn_state, described
from rlpyt.agents.rnn_rows import rnn_from_rows
from rlpyt.agents.weights import Network
from rlpyt.core import QAgent
from rlpyt.distributions import EpsilonGreedy
from rlpyt.functional import ScheduleLike
from rlpyt.models import NoisyLinear, QModel, update_target
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces


class DqnAgentInfo(NamedArrayTuple):
    """Record of a Q-learner beside every action."""

    q: Buffer
    prev_rnn_state: Buffer = None
    """Of a recurrent agent, before the row, [B, N, H] leaves."""


@dataclass(kw_only=True, eq=False)
class DqnAgent(BaseAgent, QAgent):
    """Q-learner that acts greedily by a Q network, and at random with probability epsilon.

    A model of one's own returns q [.., A]; a recurrent one also its next state, in torch's layout [N, B, H]. Where it
    has `NoisyLinear` layers, their noise is drawn at every step, the same in all environments.

    Epsilon goes from `eps_init` to `eps_final` as the algorithm's exploration schedule goes from 0 to 1; or it is any
    function of the step, `eps_train`.
    """

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("eps_init", "eps_final"), ", as it is an end of epsilon's way. Give eps_train the schedule"
    )

    eps_init: float = 1.0
    """Epsilon at the start."""
    eps_final: float = 0.01
    """Epsilon at the end of the algorithm's schedule."""
    eps_final_min: float | None = None
    """Smallest final epsilon. Every environment has a final epsilon of its own, spaced evenly on a log scale from this
    to `eps_final` (Horgan et al. 2018, Ape-X). None is the same epsilon everywhere."""
    eps_train: ScheduleLike | None = None
    """Epsilon in training, the same in all environments, in the place of the way from `eps_init` to `eps_final`; None
    is that way. The value of a batch is that at its first step."""
    eps_eval: float = 0.001
    """Epsilon in evaluation; before the first iteration of a run it is 1 there."""

    kept_numbers: ClassVar[Mapping[str, int]] = {"annealed": 1}

    target_model = Network[nn.Module]("learning", "target")

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        super().__post_init__()
        for name in ("eps_init", "eps_final", "eps_train", "eps_eval"):
            self.check(name, lambda x: 0.0 <= x <= 1.0, "a probability in [0, 1]")
        if self.eps_final_min is not None and not 0.0 < self.eps_final_min <= self.eps_final:
            raise ValueError(
                f"{type(self).__name__}: eps_final_min is {self.eps_final_min}; expected more than 0 and at most "
                f"eps_final, {self.eps_final}."
            )
        if self.eps_final_min is not None and self.eps_train is not None:
            raise ValueError(
                f"{type(self).__name__}: eps_final_min is {self.eps_final_min} and eps_train {self.eps_train!r}; "
                "expected one of them, as eps_train is the epsilon of all environments. Leave one out."
            )

    def make_distribution(self, env_spaces: EnvSpaces) -> EpsilonGreedy:
        """Return the epsilon-greedy distribution, and refuse a space that is not Discrete."""
        if not isinstance(env_spaces.action, gymnasium.spaces.Discrete):
            raise TypeError(
                f"{type(self).__name__}: the action space is {env_spaces.action}; expected Discrete. "
                "Q-learning over actions needs to count them; use a policy-gradient agent."
            )
        return EpsilonGreedy(int(env_spaces.action.n))

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the default Q network; a recurrent agent's has an LSTM or the layer that the agent names."""
        return QModel(env_spaces.observation, env_spaces.action, **self.default_model_kwargs())

    def make_networks(self) -> None:
        """Build the network and its target, which starts as a copy."""
        super().make_networks()
        self.learning["target"] = self.make_model()
        check_apart(f"{type(self).__name__}: ModelCls", self.model, self.target_model)
        self.target_model.requires_grad_(False).eval()
        self.update_target()
        self._check_outputs()

    def _check_outputs(self) -> None:
        """Refuse a network whose outputs `q_values` cannot take."""
        check_call(self._the_model, self.model, RNN_INPUTS if self.recurrent else INPUTS)
        given = self._outputs()
        pair = isinstance(given, tuple | list) and len(given) == 2
        if not (self._fits(given[0] if pair else None, 3) if self.recurrent else self._fits(given, 3)):
            state = ", and its next state, as a tuple" if self.recurrent else ", no tuple"
            raise ValueError(
                f"{self._the_model} gave {described(given)} for 3 rows; expected {self._expected_output(3)}{state}. "
                "Let its forward return this."
            )
        if self.recurrent:
            check_rnn_state(self._the_model, given[1], 3)

    def _expected_output(self, n_rows: int) -> str:
        """Return in words what the network should give for rows."""
        return f"q {[n_rows, self._n_actions]}"

    @property
    def _n_actions(self) -> Any:
        space = self.env_spaces.action
        return int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else "A"

    def _fits(self, output: Buffer, n_rows: int) -> bool:
        """Return whether Q-values of all actions follow from an output for rows."""
        try:
            q = self.q_values(output)
        except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
            return False
        # An agent of one's own may act in other spaces.
        return isinstance(q, torch.Tensor) and (self._n_actions == "A" or q.shape == (n_rows, self._n_actions))

    def unrolled(self) -> Sequence[nn.Module]:
        """Return the network and its target."""
        return [self.model, self.target_model]

    # ---- for algorithms ----

    def q_values(self, output: Buffer) -> torch.Tensor:
        """Return q [.., A] of what the network gives: here the same."""
        q: torch.Tensor = output
        return q

    @torch.no_grad()
    def target(
        self,
        observation: Buffer,
        prev_action: Buffer,
        prev_reward: Buffer,
        init_rnn_state: Buffer = None,
        episode_start: Buffer = None,
    ) -> Buffer:
        """Return what the target network gives; for the arguments see `BaseAgent.__call__`."""
        inputs = observation, prev_action, prev_reward
        return self._forward(self.target_model, inputs, rnn_from_rows(init_rnn_state), episode_start)[0]

    def update_target(self, tau: float = 1.0) -> None:
        """Move the target network by the fraction `tau` to the network; 1 copies it."""
        update_target(self.target_model, self.model, tau)

    # ---- acting ----

    def acts_on(self, output: Buffer) -> torch.Tensor:
        """Return q [B, A]."""
        return self.q_values(output)

    def act(self, output: torch.Tensor, actor: ModelActor) -> torch.Tensor:
        """Return the best actions by q [B, A], and random ones with probability epsilon, `actor.exploration`."""
        noise = actor.draw(self.distribution.draw_noise)
        action: torch.Tensor = self.distribution.sample(output, actor.exploration, noise)
        return action

    def best_action(self, output: torch.Tensor) -> torch.Tensor:
        """Return the best actions by q [B, A]."""
        return output.argmax(-1)

    def agent_info(self, output: torch.Tensor) -> NamedArrayTuple:
        """Return q."""
        return DqnAgentInfo(output)

    def exploration(self, actor: ModelActor, itr: int) -> torch.Tensor:
        """Return epsilon, [B] or [1]: in evaluation `eps_eval`, and 1 before a run's first iteration.

        A deterministic evaluation has epsilon 0, before the first iteration too.
        """
        if not actor.evaluation:
            return self.epsilon(actor)
        epsilon = self.eps_eval if itr > 0 or actor.by_hand else 1.0
        return torch.tensor([0.0 if actor.deterministic else epsilon])

    def epsilon(self, actor: ModelActor | None = None) -> torch.Tensor:
        """Return epsilon of an actor's environments, [B] or [1], as it stands for training; None is one by hand."""
        if self.eps_train is not None:
            return torch.tensor(self.numbers["eps_train"], dtype=torch.float32)
        actor = actor or self.in_charge
        final = self._final_epsilon(actor.global_B)
        final = final if self.eps_final_min is None else final[actor.env_ranks]
        return self.eps_init + self.fraction * (final - self.eps_init)

    def mean_epsilon(self, fraction: float, n_envs: int) -> float | None:
        """Return the mean epsilon over all environments of a run; see `rlpyt.core.QAgent.mean_epsilon`."""
        if self.eps_train is not None:  # as it stands: the fraction is of the way that it replaces
            return float(self.numbers["eps_train"][0])
        return self.eps_init + fraction * (self._final_epsilon(n_envs).double().mean().item() - self.eps_init)

    def _final_epsilon(self, n_envs: int) -> torch.Tensor:
        """Return the final epsilon of the environments of a run, [n_envs], or [1] where all have the same."""
        if self.eps_final_min is None:
            return torch.tensor([self.eps_final])
        return torch.logspace(np.log10(self.eps_final_min), np.log10(self.eps_final), n_envs)

    def noisy_layers(self) -> list[NoisyLinear]:
        """Return the layers of the network whose noise explores."""
        return [layer for layer in self.model.modules() if isinstance(layer, NoisyLinear)]
