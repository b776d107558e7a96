"""Agents with a deterministic policy: DDPG and TD3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.agents.env_group import EnvGroup
from rlpyt.agents.qpg import QpgAgent
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.types import AgentInputs


class MuAgentInfo(NamedArrayTuple):
    """What an agent with a deterministic policy records with every action."""

    mu: Any
    """[..., A], in units of the bounds."""
    prev_rnn_state: Any = None
    """Of a recurrent agent, before the row, [B, N, H] leaves."""


class DdpgAgent(QpgAgent):
    """Acts by a deterministic policy with noise added in units of the bounds, and clipped to them.

        noise_t = action_noise_correlation * noise_{t-1} + sqrt(1 - action_noise_correlation^2) * action_std * N(0, I)

    from noise_0 = 0 where an episode starts: with a correlation c an AR(1) process, which is the Ornstein-Uhlenbeck
    process of theta = 1 - c with time steps of 1; its standard deviation tends to action_std.

    Args:
        *args: see `QpgAgent`.
        action_std: of the noise.
        action_noise_clip: bound of the noise; None is none.
        action_noise_correlation: from one step to the next, in [0, 1).
        **kwargs: see `QpgAgent`.

    Sources: Lillicrap et al. 2016, arXiv:1509.02971; the noise without correlation Fujimoto et al. 2018.
    """

    kind = "deterministic policy"
    policy_outputs = ("mu",)

    def __init__(
        self,
        *args: Any,
        action_std: float = 0.1,
        action_noise_clip: float | None = None,
        action_noise_correlation: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.check_not_negative(action_std=action_std, action_noise_clip=action_noise_clip)
        if not 0 <= action_noise_correlation < 1:
            raise ValueError(
                f"{type(self).__name__}: action_noise_correlation is {action_noise_correlation}; expected a number in "
                "[0, 1)."
            )
        self.action_std, self.action_noise_clip = action_std, action_noise_clip
        self.action_noise_correlation = action_noise_correlation

    def collector_initialize(
        self, global_B: int, env_ranks: Sequence[int], seed: int, evaluation: bool = False, restarts: int = 0
    ) -> EnvGroup:
        """Take charge of environments; see `rlpyt.core.Agent.collector_initialize`."""
        group = super().collector_initialize(global_B, env_ranks, seed, evaluation, restarts)
        if self.action_noise_correlation:
            group.exploration_state = torch.zeros(len(group.env_ranks), self.distribution.dim)
        return group

    def agent_info(self, output: torch.Tensor) -> MuAgentInfo:
        """Return mu."""
        return MuAgentInfo(output)

    def best_action(self, output: torch.Tensor) -> torch.Tensor:
        """Return mu as actions."""
        return self.distribution.decode(output)

    def explore(self, output: torch.Tensor, group: EnvGroup) -> torch.Tensor:
        """Return mu with noise."""
        noise = group.draw(self.distribution.draw_noise) * self.action_std
        if group.exploration_state is not None:
            c = self.action_noise_correlation
            noise = group.exploration_state = c * group.exploration_state + (1 - c * c) ** 0.5 * noise
        if self.action_noise_clip is not None:
            noise = noise.clamp(-self.action_noise_clip, self.action_noise_clip)
        return self.distribution.decode((output + noise).clamp(-1, 1))

    @torch.no_grad()
    def target_mu(self, rows: AgentInputs) -> torch.Tensor:
        """Return mu of the target policy at rows of the target's features."""
        with self.autocast():
            return self.target_model.pi(*rows)


class Td3Agent(DdpgAgent):
    """`DdpgAgent` with two networks of action values, and a target policy with noise.

    Args:
        *args: see `QpgAgent`.
        n_q: see `QpgAgent`.
        target_noise_std: standard deviation of the noise on the target policy's actions.
        target_noise_clip: bound of that noise.
        **kwargs: see `DdpgAgent`.

    Source: Fujimoto et al. 2018, arXiv:1802.09477.
    """

    kind = "deterministic policy with noise on its target"

    def __init__(
        self,
        *args: Any,
        n_q: int = 2,
        target_noise_std: float = 0.2,
        target_noise_clip: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, n_q=n_q, **kwargs)
        self.check_not_negative(target_noise_std=target_noise_std, target_noise_clip=target_noise_clip)
        self.target_noise_std, self.target_noise_clip = target_noise_std, target_noise_clip


class RecurrentDdpgAgent(DdpgAgent):
    """`DdpgAgent` whose features carry a state."""

    recurrent = True


class RecurrentTd3Agent(Td3Agent):
    """`Td3Agent` whose features carry a state."""

    recurrent = True
