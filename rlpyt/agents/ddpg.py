"""Agents with a deterministic policy: DDPG and TD3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.networks import Held
from rlpyt.agents.qpg import QpgAgent, check_not_negative
from rlpyt.agents.rules import Exploration, GaussianNoise, Head, MuHead
from rlpyt.core import MuAgent, NoisyTargetAgent
from rlpyt.functional import ScheduleLike, smoothed_action
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.types import AgentInputs


class MuAgentInfo(NamedArrayTuple):
    """Record of a deterministic policy beside every action; of a recurrent agent also its state before the row."""

    mu: Buffer
    """[..., A], in units of the bounds."""
    prev_rnn_state: Buffer = None


@dataclass(kw_only=True, eq=False)
class NoisyMu(BaseAgent):
    """Deterministic policy with noise added in units of the bounds, and clipped to them; see `GaussianNoise`."""

    kind: ClassVar[str] = "deterministic policy"
    policy_outputs: ClassVar[tuple[str, ...]] = ("mu",)
    HeadCls: ClassVar[type[Head]] = MuHead
    ExplorationCls: ClassVar[type[Exploration]] = GaussianNoise

    action_std: ScheduleLike = 0.1
    """Standard deviation of the noise, over environment steps; the value of a batch is that at its first step."""
    action_noise_clip: float | None = None
    """Bound of the noise; None is none. It takes no schedule, as the standard deviation has one."""
    action_noise_correlation: float = 0.0
    """From one step to the next, in [0, 1); it takes no schedule, as a noise that goes on would jump with it."""

    target_mu = Held[Callable[[AgentInputs], torch.Tensor]]("targets", "pi")

    def __post_init__(self) -> None:
        """Validate the noise."""
        super().__post_init__()
        check_not_negative(self, "action_std", "action_noise_clip")
        self.check("action_noise_correlation", lambda x: 0.0 <= x < 1.0, "a number in [0, 1)")

    def agent_info(self, output: torch.Tensor) -> NamedArrayTuple:
        """Return mu."""
        return MuAgentInfo(output)


class Smoothing(MuHead):
    """Actions mu of a policy whose target has clipped noise (Fujimoto et al. 2018)."""

    def smoothed(self, mu: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return actions mu of the target policy with clipped noise; see `rlpyt.core.NoisyTargetAgent.smoothed`."""
        noise_std = self.agent.numbers["target_noise_std"].item()
        return smoothed_action(mu, noise, noise_std=noise_std, noise_clip=self.agent.target_noise_clip)


@dataclass(kw_only=True, eq=False)
class NoisyTarget(BaseAgent):
    """Two networks of action values, and noise on the target policy."""

    kind: ClassVar[str] = "deterministic policy with noise on its target"
    HeadCls: ClassVar[type[Head]] = Smoothing
    scheduled_in_updates: ClassVar[tuple[str, ...]] = ("target_noise_std",)

    n_q: int = 2
    """Networks of action values; the size of a layer, so it takes no schedule."""
    target_noise_std: ScheduleLike = 0.2
    """Standard deviation of the noise on the target policy's actions, over environment steps."""
    target_noise_clip: float = 0.5
    """Bound of that noise. It takes no schedule, as the standard deviation has one."""

    smoothed = Held[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]("head")

    def __post_init__(self) -> None:
        """Validate the noise."""
        super().__post_init__()
        check_not_negative(self, "target_noise_std", "target_noise_clip")


@dataclass(kw_only=True, eq=False)
class DdpgAgent(NoisyMu, QpgAgent, MuAgent):
    """Deterministic policy with action values, which explores by `GaussianNoise`.

    Sources: Lillicrap et al. 2016, arXiv:1509.02971; the noise without correlation Fujimoto et al. 2018.
    """


@dataclass(kw_only=True, eq=False)
class Td3Agent(NoisyTarget, NoisyMu, QpgAgent, NoisyTargetAgent):
    """Deterministic policy with two networks of action values, and a target policy with noise; see `DdpgAgent`.

    Source: Fujimoto et al. 2018, arXiv:1802.09477.
    """
