"""Agents with a deterministic policy: DDPG and TD3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.qpg import QpgAgent
from rlpyt.core import MuAgent, NoisyTargetAgent
from rlpyt.functional import ScheduleLike, smoothed_action
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.settings import Settings
from rlpyt.types import AgentInputs


class MuAgentInfo(NamedArrayTuple):
    """Record of an agent with a deterministic policy beside every action."""

    mu: Buffer
    """[..., A], in units of the bounds."""
    prev_rnn_state: Buffer = None
    """Of a recurrent agent, before the row, [B, N, H] leaves."""


if TYPE_CHECKING:
    Rule = QpgAgent
else:  # no agent by itself, so that the agents below are no deeper than others
    Rule = Settings


@dataclass(kw_only=True, eq=False)
class NoisyMu(Rule):
    """Deterministic policy with noise added in units of the bounds, and clipped to them.

        noise_t = action_noise_correlation * noise_{t-1} + sqrt(1 - action_noise_correlation^2) * action_std * N(0, I)

    from noise_0 = 0 where an episode starts: with a correlation c an AR(1) process, which is the Ornstein-Uhlenbeck
    process of theta = 1 - c with time steps of 1; its standard deviation tends to action_std.
    """

    policy_outputs: ClassVar[Sequence[str]] = ("mu",)

    action_std: ScheduleLike = 0.1
    """Standard deviation of the noise, over environment steps; the value of a batch is that at its first step."""
    action_noise_clip: float | None = None
    """Bound of the noise; None is none. It takes no schedule, as the standard deviation has one."""
    action_noise_correlation: float = 0.0
    """From one step to the next, in [0, 1); it takes no schedule, as a noise that goes on would jump with it."""

    def __post_init__(self) -> None:
        """Refuse noise that cannot be."""
        super().__post_init__()
        self.check_not_negative("action_std", "action_noise_clip")
        self.check("action_noise_correlation", lambda x: 0.0 <= x < 1.0, "a number in [0, 1)")

    def exploration_state(self, n_rows: int) -> torch.Tensor | None:
        """Return the noise of the step before, zero; None where steps are independent."""
        return torch.zeros(n_rows, self.distribution.dim) if self.action_noise_correlation else None

    def agent_info(self, output: torch.Tensor) -> NamedArrayTuple:
        """Return mu."""
        return MuAgentInfo(output)

    def best_action(self, output: torch.Tensor) -> torch.Tensor:
        """Return mu as actions."""
        return self.distribution.decode(output)

    def explore(self, output: torch.Tensor, actor: ModelActor) -> torch.Tensor:
        """Return mu with noise."""
        noise = actor.draw(self.distribution.draw_noise) * self.numbers["action_std"].item()
        if actor.exploration_state is not None:
            c = self.action_noise_correlation
            noise = actor.exploration_state = c * actor.exploration_state + (1 - c * c) ** 0.5 * noise
        if self.action_noise_clip is not None:
            noise = noise.clamp(-self.action_noise_clip, self.action_noise_clip)
        return self.distribution.decode((output + noise).clamp(-1, 1))

    @torch.no_grad()
    def target_mu(self, features: AgentInputs) -> torch.Tensor:
        """Return mu of the target policy at rows of the target's features."""
        with self.autocast():
            mu: torch.Tensor = self.target_model.pi(*features)
        return mu


@dataclass(kw_only=True, eq=False)
class DdpgAgent(NoisyMu, QpgAgent, MuAgent):
    """Deterministic policy with action values; for the noise see `NoisyMu`.

    Sources: Lillicrap et al. 2016, arXiv:1509.02971; the noise without correlation Fujimoto et al. 2018.
    """

    kind: ClassVar[str] = "deterministic policy"


@dataclass(kw_only=True, eq=False)
class Td3Agent(NoisyMu, QpgAgent, NoisyTargetAgent):
    """Deterministic policy with two networks of action values, and a target policy with noise; see `NoisyMu`.

    Source: Fujimoto et al. 2018, arXiv:1802.09477.
    """

    kind: ClassVar[str] = "deterministic policy with noise on its target"

    n_q: int = 2
    """Networks of action values; the size of a layer, so it takes no schedule."""
    target_noise_std: ScheduleLike = 0.2
    """Standard deviation of the noise on the target policy's actions, over environment steps."""
    target_noise_clip: float = 0.5
    """Bound of that noise. It takes no schedule, as the standard deviation has one."""

    def __post_init__(self) -> None:
        """Refuse noise that cannot be."""
        super().__post_init__()
        self.check_not_negative("target_noise_std", "target_noise_clip")

    def smoothed(self, mu: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return actions mu of the target policy with clipped noise; see `rlpyt.core.NoisyTargetAgent.smoothed`."""
        noise_std = self.numbers["target_noise_std"].item()
        return smoothed_action(mu, noise, noise_std=noise_std, noise_clip=self.target_noise_clip)
