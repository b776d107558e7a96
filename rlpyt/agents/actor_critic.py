"""Features, a policy over them and action values, as algorithms call them: of the networks, or of their targets."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from rlpyt.agents.networks import Networks
from rlpyt.agents.rnn_rows import rnn_from_rows
from rlpyt.distributions import ActionUnits
from rlpyt.models import ActorModel, takes_n_models
from rlpyt.namedarraytuple import Buffer
from rlpyt.types import AgentInputs


class ActorCritic:
    """Features, policy and action values over networks.

    Args:
        networks: of the agent, with the precision of the run.
        distribution: of the agent, which knows the units of actions.
        model: key of features and policy, see `rlpyt.models.ActorModel`.
        q_model: key of the action values.
    """

    def __init__(self, networks: Networks, distribution: ActionUnits, model: str, q_model: str) -> None:
        self._networks, self._distribution = networks, distribution
        self._keys = model, q_model

    @property
    def model(self) -> ActorModel:
        """Features and policy."""
        return cast(ActorModel, self._networks.named(self._keys[0]))

    @property
    def q_model(self) -> nn.Module:
        """Action values."""
        return self._networks.named(self._keys[1])

    def features(
        self,
        observation: Buffer,
        prev_action: Buffer,
        prev_reward: Buffer,
        init_rnn_state: Buffer = None,
        episode_start: Buffer = None,
    ) -> AgentInputs:
        """Return the rows with their features in place of the observation.

        Args:
            observation: [T, B, ...] or [B, ...], as are the previous action and reward.
            prev_action: in row form.
            prev_reward: float32.
            init_rnn_state: of a recurrent agent, before the first row, [B, N, H] leaves; None is zero.
            episode_start: [T, B] bool, rows before which the state is zero.
        """
        inputs = observation, prev_action, prev_reward
        x, _ = self._networks.run(self.model.body, inputs, rnn_from_rows(init_rnn_state), episode_start)
        return AgentInputs(x, self._networks.encode(prev_action), prev_reward)

    def pi(self, rows: AgentInputs) -> Buffer:
        """Return what the policy gives at rows of features, whose gradient stops there."""
        with self._networks.autocast():
            return self.model.pi(rows.observation.detach(), rows.prev_action, rows.prev_reward)

    def q(self, rows: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return the values [n_q, ...] of actions [..., A], in units of the bounds, at rows of features."""
        with self._networks.autocast():
            q: torch.Tensor = self.q_model(*rows, self._distribution.rest_fixed(action))
        return q

    def first_q(self, rows: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return the values [...] of the first network. Where the networks take `n_models`, no other is computed."""
        alone = {"n_models": 1} if takes_n_models(self.q_model) else {}
        with self._networks.autocast():
            q: torch.Tensor = self.q_model(*rows, self._distribution.rest_fixed(action), **alone)[0]
        return q

    def pi_parameters(self) -> list[nn.Parameter]:
        """Return the weights of the policy."""
        return list(self.model.pi.parameters())

    def q_parameters(self) -> list[nn.Parameter]:
        """Return the weights of features and action values."""
        return [*self.model.body.parameters(), *self.q_model.parameters()]


class TargetActorCritic(ActorCritic):
    """The same of the targets, without gradient."""

    features = torch.no_grad()(ActorCritic.features)
    pi = torch.no_grad()(ActorCritic.pi)
    q = torch.no_grad()(ActorCritic.q)
