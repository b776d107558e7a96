"""Deterministic policy gradients from a replay: DDPG and TD3, feed-forward or recurrent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from rlpyt.algos.metrics import Numbers
from rlpyt.algos.qpg import AnyQpgAlgo, QpgAlgo, bootstrapped, bounded_target
from rlpyt.algos.replay_rows import Outputs, mean_loss
from rlpyt.core import MuAgent, NoisyTargetAgent
from rlpyt.functional import CountLike, ScheduleLike, ValueTarget, deterministic_policy_loss
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
    agent_kinds: ClassVar[tuple[str, ...]] = ("deterministic policy",)

    batch_size: CountLike = 64
    min_steps_learn: int = int(1e4)
    replay_ratio: ScheduleLike = 64.0

    @torch.no_grad()
    def q_target(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> torch.Tensor | ValueTarget:
        """Return y by Q_target of the target policy's action."""
        action = self.agent.target_mu(outputs.next_target)
        next_output = self.agent.target_q(outputs.next_target, action)[0]
        return bootstrapped(self.agent, next_output, partial(bounded_target, batch, hyper=hyper))

    def update_policy(self, batch: Buffer, features: AgentInputs, hyper: Hyper) -> Numbers:
        """Climb the first action value."""
        return climb_first(self, batch, features, hyper)


@dataclass(kw_only=True, eq=False)
class TD3(QpgAlgo[NoisyTargetAgent]):
    """DDPG with the smaller of two action values, noise on the target policy, and a policy updated less often.

        V(s) = min_i Q_target,i(s, clip(mu_target(s) + clip(N(0, target_noise_std), +-target_noise_clip), -1, 1))

    For agents such as `Td3Agent`, which has the noise.

    Source: Fujimoto et al. 2018, arXiv:1802.09477.
    """

    opt_info_fields: ClassVar[tuple[str, ...]] = DDPG.opt_info_fields
    agent_kinds: ClassVar[tuple[str, ...]] = ("deterministic policy with noise on its target",)
    random_target = True

    batch_size: CountLike = 100
    min_steps_learn: int = int(1e4)
    replay_ratio: ScheduleLike = 100.0
    learning_rate: ScheduleLike = 1e-3
    target_update_tau: ScheduleLike = 0.005
    target_update_interval: CountLike = 2
    """Updates of the action values between target updates."""
    policy_update_interval: CountLike = 2
    """Updates of the action values between updates of the policy."""

    @torch.no_grad()
    def q_target(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> torch.Tensor | ValueTarget:
        """Return y by the smallest Q_target of the target policy's action with noise."""
        assert outputs.noise is not None
        action = self.agent.smoothed(self.agent.target_mu(outputs.next_target), outputs.noise)
        next_output = self.agent.values.lowest(self.agent.target_q(outputs.next_target, action))
        return bootstrapped(self.agent, next_output, partial(bounded_target, batch, hyper=hyper))

    def update_policy(self, batch: Buffer, features: AgentInputs, hyper: Hyper) -> Numbers:
        """Climb the first action value."""
        return climb_first(self, batch, features, hyper)


DDPG.register(TD3)  # it was its subclass in rlpyt 0.1


def climb_first(algo: AnyQpgAlgo, batch: Buffer, features: AgentInputs, hyper: Hyper) -> Numbers:
    """Take one step of a deterministic policy up the first action value; return its metrics."""
    loss = policy_loss(algo.agent, batch, features)
    grad_norm = algo.descents.step("pi", loss, hyper)
    return {"muLoss": loss.detach(), "muGradNorm": grad_norm}


def policy_loss(agent: MuAgent, batch: Buffer, features: AgentInputs) -> torch.Tensor:
    """Return the loss of a deterministic policy at rows of features."""
    q = agent.values.mean(agent.first_q(features, agent.pi(features)))
    return mean_loss(deterministic_policy_loss(q), batch)
