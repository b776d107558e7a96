"""Base of DDPG, TD3 and SAC: action values learned from a replay, and a policy that climbs them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch

from rlpyt.algos.off_policy import OffPolicyAlgo, Outputs
from rlpyt.algos.returned import update_metrics
from rlpyt.core import QpgPolicyAgent
from rlpyt.functional import CountLike, ScheduleLike, squared_loss, td_target
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper
from rlpyt.types import AgentInputs, Run

QpgT = TypeVar("QpgT", bound=QpgPolicyAgent)


@dataclass(kw_only=True, eq=False)
class QpgAlgo(OffPolicyAlgo[QpgT]):
    """Base of DDPG, TD3 and SAC.

        y_t = r_t + ... + discount^(n-1) r_{t+n-1} + discount^n V(s_{t+n})
        L_q = sum_i mean(0.5 * (y_t - Q_i(s_t, a_t))^2)

    A subclass defines V and the loss of the policy. Actions are in units of their bounds. The policy takes its step
    after the action values, at the features from before their step.
    """

    counted_descent: ClassVar[str] = "q"
    compiled_losses: ClassVar[Mapping[str, str]] = {"q_target": "q", "q_losses": "q"}
    agent_kind: ClassVar[str]
    """Kind that the agent must have: what its policy is."""
    next_features: ClassVar[bool] = False
    """Whether V takes the features in training, beside the target's."""
    random_target: ClassVar[bool] = False
    """Whether V takes noise."""

    learning_rate: ScheduleLike = 1e-4
    """Of the policy."""
    q_learning_rate: ScheduleLike = 1e-3
    """Of the action values, and of the features that they share with the policy."""
    clip_grad_norm: ScheduleLike = float("inf")
    """Largest L2 norm of the gradient of the policy, and of the gradient of all action values together."""
    target_update_tau: ScheduleLike = 0.01
    """Fraction by which the targets move at every target update; 1 copies."""
    policy_update_interval: CountLike = 1
    """Updates of the action values between updates of the policy, a whole number; what a schedule gives is rounded, to
    at least 1."""
    q_target_clip: ScheduleLike = 1e6
    """Bound of the target y."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        self.check_count("policy_update_interval")
        self.check("q_learning_rate", lambda x: 0.0 <= x < float("inf"), "a number from 0")
        self.check("q_target_clip", lambda x: x > 0.0, "above 0")
        if self.has_input_priorities:
            raise ValueError(
                f"{type(self).__name__}: input_priorities is True; expected False, as no action values are known when "
                "an action is taken. Leave it out."
            )

    def initialize(self, agent: QpgT, run: Run) -> None:
        """Build optimisers and replay; refuse an agent whose policy is of another kind."""
        if agent.kind != self.agent_kind:
            has = f"a {agent.kind}" if isinstance(agent, QpgPolicyAgent) else "no policy with action values"
            raise TypeError(
                f"{type(self).__name__}: the agent, a {type(agent).__name__}, has {has}; expected one with a "
                f"{self.agent_kind}. DDPG goes with DdpgAgent, TD3 with Td3Agent, SAC with SacAgent, and with their "
                "recurrent forms."
            )
        super().initialize(agent, run)

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimisers, one for the policy and one for the action values."""
        hyper = self.hyper(0)
        for name, parameters in {"pi": self.agent.pi_parameters(), "q": self.agent.q_parameters()}.items():
            self.descents[name] = self.make_descent(parameters, self.learning_rate_of(name, hyper))

    def exploration_after(self, itr: int) -> float | None:
        """Return 1 where learning has begun by the end of an iteration; None leaves the agent as it is."""
        return 1.0 if itr >= self.min_itr_learn else None

    def learning_rate_of(self, name: str, hyper: Hyper) -> float:
        """Return the learning rate of the optimiser "pi" or "q", as it stands."""
        rate: float = hyper.q_learning_rate if name == "q" else hyper.learning_rate
        return rate

    def update(self, batch: Buffer, hyper: Hyper) -> dict[str, torch.Tensor]:
        """Take one step of the action values, and where they are due of the policy and the targets."""
        outputs = self.forward(batch, self.agent.features, self.agent.target_features, self.next_features)
        if self.random_target:
            outputs = outputs._replace(noise=self.draw_noise(outputs.next_target))
        metrics = update_metrics(self, "update_q", self.update_q(batch, outputs, hyper))
        if self.is_due("policy", hyper.policy_update_interval):
            detached = outputs.online._replace(observation=outputs.online.observation.detach())
            metrics |= update_metrics(self, "update_policy", self.update_policy(batch, detached, hyper))
        if self.is_due("target", hyper.target_update_interval):
            self.agent.update_target(hyper.target_update_tau)
        return metrics

    def draw_noise(self, rows: AgentInputs) -> torch.Tensor:
        """Return standard normal numbers [..., A] for actions at rows of features."""
        noise = torch.randn(*rows.prev_reward.shape, self.agent.distribution.dim, generator=self.generator)
        return noise.to(self.agent.device, non_blocking=True)

    def update_q(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> dict[str, torch.Tensor]:
        """Take one step of the action values."""
        y = self.q_target(batch, outputs, hyper)
        again = self.before_loss()
        losses, q = self.q_losses(batch, outputs, y, hyper)
        loss = losses.sum()
        grad_norm = self.gradient_step(loss, hyper)
        q = q.detach()
        self.update_priorities(batch, (y - q).abs().mean(0), hyper)
        metrics = self.q_metrics(batch, q, losses.detach(), grad_norm)
        # At the features of before: those of a vector are the vector.
        return metrics | self.losses_around(again, loss, lambda: self.q_losses(batch, outputs, y, hyper)[0].sum())

    def q_losses(
        self, batch: Buffer, outputs: Outputs, y: torch.Tensor, hyper: Hyper
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the losses [n_q] of the action values, and these [n_q, ...]."""
        q = self.agent.q(outputs.online, self.agent.distribution.encode(batch.action))
        return self.mean_loss(squared_loss(y - q), batch), q

    @torch.no_grad()
    def q_target(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> torch.Tensor:
        """Return y, [M] or [T, M]."""
        y = td_target(batch.return_, batch.bootstrap_discount, self.next_value(outputs, hyper))
        return y.clamp(-hyper.q_target_clip, hyper.q_target_clip)

    @abstractmethod
    def next_value(self, outputs: Outputs, hyper: Hyper) -> torch.Tensor:
        """Return V of the rows that are bootstrapped from, [M] or [T, M]."""

    @abstractmethod
    def update_policy(self, batch: Buffer, features: AgentInputs, hyper: Hyper) -> dict[str, torch.Tensor]:
        """Take one step of the policy at rows of features without gradient; return its metrics."""

    @abstractmethod
    def q_metrics(
        self, batch: Buffer, q: torch.Tensor, losses: torch.Tensor, grad_norm: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the metrics of a step of the action values q [n_q, ...], whose losses are [n_q]."""
