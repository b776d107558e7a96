"""The deep Q-learning agent: a Q network, its target, and epsilon-greedy exploration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import gymnasium
import numpy as np
import torch
from torch import nn

from rlpyt.agents.by_hand import one_or_many
from rlpyt.agents.env_group import EnvGroup
from rlpyt.agents.model_kwargs import image_model_kwargs
from rlpyt.agents.off_policy import OffPolicyAgent
from rlpyt.agents.own_models import INPUTS, RNN_INPUTS, check_call, check_rnn_state, described
from rlpyt.agents.rnn_rows import rnn_from_rows
from rlpyt.distributions import EpsilonGreedy
from rlpyt.models import AtariDqnModel, AtariR2d1Model, NoisyLinear, QModel, draw_randomness, update_target
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentStep


class DqnAgentInfo(NamedArrayTuple):
    """What the agent records with every action."""

    q: Any
    prev_rnn_state: Any = None
    """Of a recurrent agent, before the row, [B, N, H] leaves."""


class DqnAgent(OffPolicyAgent):
    """Acts greedily by a Q network, and at random with probability epsilon.

    A model of one's own returns q [.., A]; a recurrent one also its next state, in torch's layout [N, B, H]. Where it
    has `NoisyLinear` layers, their noise is drawn anew at every step, the same in all environments.

    Epsilon goes from `eps_init` to `eps_final` as the algorithm's exploration schedule goes from 0 to 1. With
    `eps_final_min`, every environment has a final epsilon of its own, spaced evenly on a log scale from `eps_final_min`
    to `eps_final` (Horgan et al. 2018, Ape-X).

    Args:
        eps_init: epsilon at the start.
        eps_final: epsilon at the end of the schedule.
        eps_final_min: the smallest final epsilon, or None for the same everywhere.
        eps_eval: epsilon in evaluation; before the first iteration of a run it is 1 there.
        ModelCls: see `BaseAgent`.
        model_kwargs: see `BaseAgent`.
        initial_model_state_dict: see `BaseAgent`.
    """

    kind: str = "q"
    """What the network gives, which a loss must fit: "q", "categorical", "quantiles" or "implicit quantiles"."""

    def __init__(
        self,
        eps_init: float = 1.0,
        eps_final: float = 0.01,
        eps_final_min: float | None = None,
        eps_eval: float = 0.001,
        ModelCls: Any = None,
        model_kwargs: Mapping[str, Any] | None = None,
        initial_model_state_dict: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(ModelCls, model_kwargs, initial_model_state_dict)
        for name, eps in dict(eps_init=eps_init, eps_final=eps_final, eps_eval=eps_eval).items():
            if not 0.0 <= eps <= 1.0:
                raise ValueError(f"{type(self).__name__}: {name} is {eps}; expected a probability in [0, 1].")
        if eps_final_min is not None and not 0.0 < eps_final_min <= eps_final:
            raise ValueError(
                f"{type(self).__name__}: eps_final_min is {eps_final_min}; expected more than 0 and at most "
                f"eps_final, {eps_final}."
            )
        self.eps_init, self.eps_final, self.eps_final_min, self.eps_eval = eps_init, eps_final, eps_final_min, eps_eval
        self._eval_epsilon: torch.Tensor | None = None  # in evaluation
        self._noisy_layers: list[NoisyLinear] = []  # where they make it explore

    def make_distribution(self, env_spaces: EnvSpaces) -> EpsilonGreedy:
        """Return the epsilon-greedy distribution, and refuse a space that is not Discrete."""
        if not isinstance(env_spaces.action, gymnasium.spaces.Discrete):
            raise TypeError(
                f"{type(self).__name__}: the action space is {env_spaces.action}; expected Discrete. "
                "Q-learning over actions needs to count them; use a policy-gradient agent."
            )
        return EpsilonGreedy(int(env_spaces.action.n))

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the default Q network; a recurrent agent's has an LSTM (or `model_kwargs=dict(recurrent="gru")`)."""
        return QModel(env_spaces.observation, env_spaces.action, **self.default_model_kwargs())

    def default_model_kwargs(self) -> dict[str, Any]:
        """Return the arguments of the default model."""
        return {**({"recurrent": "lstm"} if self.recurrent else {}), **self.model_kwargs}

    def make_networks(self) -> None:
        """Build the network and its target, which starts as a copy."""
        super().make_networks()
        self.target_model = self.make_model()
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

    def _fits(self, output: Any, n_rows: int) -> bool:
        """Return whether Q-values of all actions follow from an output for rows."""
        try:
            q = self.q_values(output)
        except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
            return False
        # An agent of one's own may act in other spaces.
        return isinstance(q, torch.Tensor) and (self._n_actions == "A" or q.shape == (n_rows, self._n_actions))

    def modules(self) -> list[nn.Module]:
        """Return the network and its target."""
        return [self.model, self.target_model]

    def unrolled(self) -> tuple[nn.Module, nn.Module]:
        """Return the network and its target."""
        return self.model, self.target_model

    def q_values(self, output: Any) -> torch.Tensor:
        """Return q [.., A] of what the model gives: here the same."""
        return output

    def __call__(
        self,
        observation: Any,
        prev_action: Any,
        prev_reward: Any,
        init_rnn_state: Any = None,
        episode_start: Any = None,
    ) -> Any:
        """Return what the network gives, with gradient: q [.., A], or of what it is the expectation.

        Args:
            observation: [T, B, ...] or [B, ...], as are the previous action and reward.
            prev_action: [...] int64.
            prev_reward: [...] float32.
            init_rnn_state: of a recurrent agent, before the first row, [B, N, H] leaves; None is zero.
            episode_start: [T, B] bool, rows before which the state is zero.
        """
        inputs = observation, prev_action, prev_reward
        return self._forward(self.model, inputs, rnn_from_rows(init_rnn_state), episode_start)[0]

    @torch.no_grad()
    def target(
        self,
        observation: Any,
        prev_action: Any,
        prev_reward: Any,
        init_rnn_state: Any = None,
        episode_start: Any = None,
    ) -> Any:
        """Return what the target network gives; see `__call__`."""
        inputs = observation, prev_action, prev_reward
        return self._forward(self.target_model, inputs, rnn_from_rows(init_rnn_state), episode_start)[0]

    def update_target(self, tau: float = 1.0) -> None:
        """Move the target network by the fraction `tau` to the network; 1 copies it."""
        update_target(self.target_model, self.model, tau)

    @one_or_many
    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> AgentStep:
        """Select actions for the environments in charge, [B]; everything returned is on the CPU."""
        group = self._group
        for layer in self._noisy_layers:
            layer.draw(group.generator)
        inputs = self.to_model((observation, prev_action, prev_reward))
        output, next_rnn_state = self._forward(self.model, inputs, group.rnn_state)
        q = self.from_model(self.q_values(output))
        action = self.distribution.sample(q, self._epsilon, self.draw_noise())
        return self._recorded(action, DqnAgentInfo(q), next_rnn_state)

    # ---- exploration ----

    def epsilon(self) -> torch.Tensor:
        """Return epsilon of the environments in charge, [B] or [1], as it stands for training."""
        final = torch.tensor([self.eps_final])
        if self.eps_final_min is not None:
            final = torch.logspace(np.log10(self.eps_final_min), np.log10(self.eps_final), self._group.global_B)
            final = final[self._group.env_ranks]
        return self.eps_init + self.progress * (final - self.eps_init)

    def sample_mode(self, itr: int) -> None:
        """Act in the training environments with the scheduled epsilon, and with noise if the network has any."""
        self._eval_epsilon = None
        draw_randomness(self.model, None)
        self._noisy_layers = [layer for layer in self.model.modules() if isinstance(layer, NoisyLinear)]
        super().sample_mode(itr)

    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        """Act in the evaluation environments with `eps_eval`, without noise; at random before a run's first iteration.

        A deterministic evaluation has epsilon 0, before the first iteration too.
        """
        epsilon = self.eps_eval if itr > 0 or self._is_by_hand(evaluation=True) else 1.0
        self._eval_epsilon = torch.tensor([0.0 if deterministic else epsilon])
        draw_randomness(self.model, None)
        self._noisy_layers = []
        super().eval_mode(itr, deterministic)

    def _take(self, group: EnvGroup) -> None:
        super()._take(group)
        self._epsilon = self.epsilon() if self._eval_epsilon is None else self._eval_epsilon

    def worker_copy(self) -> Self:
        """Return a copy that acts in another process, which has no target."""
        clone = super().worker_copy()
        clone.target_model = nn.Module()
        clone._noisy_layers = []  # those of this one's network, on its device
        return clone

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Return network, target, and how far exploration has gone."""
        return {**super().state_dict(), "target": self.target_model.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self.target_model.load_state_dict(state_dict["target"])


class AtariDqnAgent(DqnAgent):
    """`DqnAgent` with the Nature network (Mnih et al. 2015)."""

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the Nature network."""
        return AtariDqnModel(**self.make_env_to_model_kwargs(env_spaces), **self.model_kwargs)

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the image's shape and the number of actions."""
        return image_model_kwargs(env_spaces)


class R2d1Agent(DqnAgent):
    """`DqnAgent` whose model carries a state."""

    recurrent = True


class AtariR2d1Agent(R2d1Agent):
    """`R2d1Agent` with the convolutional LSTM network of R2D2 (Kapturowski et al. 2019)."""

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the network for these sizes."""
        return AtariR2d1Model(**self.make_env_to_model_kwargs(env_spaces), **self.model_kwargs)

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the image's shape and the number of actions."""
        return image_model_kwargs(env_spaces)


R2d1AlternatingAgent = R2d1Agent
AtariR2d1AlternatingAgent = AtariR2d1Agent
"""Their names in rlpyt 0.1 under an `AlternatingSampler`, which any agent serves now."""
