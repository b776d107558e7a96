"""Deterministic policy gradients from a replay: DDPG and TD3, feed-forward or recurrent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import torch

from rlpyt.algos.off_policy import Outputs
from rlpyt.algos.qpg import QpgAlgo
from rlpyt.core import MuAgent, NoisyTargetAgent
from rlpyt.functional import CountLike, ScheduleLike, clipped_double_q, deterministic_policy_loss
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper
from rlpyt.types import AgentInputs


@dataclass(kw_only=True, eq=False)
class DDPG(QpgAlgo[MuAgent]):
    """Deep deterministic policy gradients; for agents such as `DdpgAgent`.

        V(s) = Q_target(s, mu_target(s))
        L_mu = -mean(Q(s_t, mu(s_t)))

    Source: Lillicrap et al. 2016, arXiv:1509.02971.
    """

    opt_info_fields: ClassVar[tuple[str, ...]] = ("muLoss", "qLoss", "muGradNorm", "qGradNorm")
    compiled_losses: ClassVar[Mapping[str, str]] = {**QpgAlgo.compiled_losses, "policy_loss": "pi"}
    agent_kind: ClassVar[str] = "deterministic policy"

    batch_size: CountLike = 64
    """Transitions an update. Not used with sequences: an update takes batch_B of them."""
    min_steps_learn: int = int(1e4)
    """Steps, all environments counted, that the first update waits for."""
    replay_ratio: ScheduleLike = 64.0
    """Rows consumed by updates for every row collected, rounded to whole updates an iteration. Warm-up rows count, and
    so do the final rows of episodes among those collected."""

    def next_value(self, outputs: Outputs, hyper: Hyper) -> torch.Tensor:
        """Return Q_target of the target policy's action."""
        return self.agent.target_q(outputs.next_target, self.agent.target_mu(outputs.next_target))[0]

    def update_policy(self, batch: Buffer, features: AgentInputs, hyper: Hyper) -> dict[str, torch.Tensor]:
        """Climb the first action value."""
        loss = self.policy_loss(batch, features, hyper)
        grad_norm = self.descend("pi", loss, hyper)
        return {"muLoss": loss.detach(), "muGradNorm": grad_norm}

    def policy_loss(self, batch: Buffer, features: AgentInputs, hyper: Hyper) -> torch.Tensor:
        """Return the loss of the policy at rows of features."""
        q = self.agent.first_q(features, self.agent.pi(features))
        return self.mean_loss(deterministic_policy_loss(q), batch)

    def q_metrics(
        self, batch: Buffer, q: torch.Tensor, losses: torch.Tensor, grad_norm: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the loss of all action values, and the norm of its gradient."""
        return {"qLoss": losses.sum(), "qGradNorm": grad_norm}


@dataclass(kw_only=True, eq=False)
class TD3(DDPG):
    """DDPG with the smaller of two action values, noise on the target policy, and a policy updated less often.

        V(s) = min_i Q_target,i(s, clip(mu_target(s) + clip(N(0, target_noise_std), +-target_noise_clip), -1, 1))

    For agents such as `Td3Agent`, which has the noise.

    Source: Fujimoto et al. 2018, arXiv:1802.09477.
    """

    compiled_losses: ClassVar[Mapping[str, str]] = {"q_losses": "q", "policy_loss": "pi"}
    agent_kind: ClassVar[str] = "deterministic policy with noise on its target"
    random_target: ClassVar[bool] = True

    batch_size: CountLike = 100
    """Transitions an update. Not used with sequences: an update takes batch_B of them."""
    replay_ratio: ScheduleLike = 100.0
    """Rows consumed by updates for every row collected, rounded to whole updates an iteration. Warm-up rows count, and
    so do the final rows of episodes among those collected."""
    learning_rate: ScheduleLike = 1e-3
    """Of the policy."""
    target_update_tau: ScheduleLike = 0.005
    """Fraction by which the targets move at every target update; 1 copies."""
    target_update_interval: CountLike = 2
    """Updates of the action values between target updates."""
    policy_update_interval: CountLike = 2
    """Updates of the action values between updates of the policy."""

    def next_value(self, outputs: Outputs, hyper: Hyper) -> torch.Tensor:
        """Return the smallest Q_target of the target policy's action with noise."""
        assert outputs.noise is not None
        agent = cast(NoisyTargetAgent, self.agent)  # `initialize` has checked its kind
        action = agent.smoothed(agent.target_mu(outputs.next_target), outputs.noise)
        return clipped_double_q(self.agent.target_q(outputs.next_target, action))
