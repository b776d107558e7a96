"""The agent of SAC."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.env_group import EnvGroup
from rlpyt.agents.qpg import QpgAgent
from rlpyt.distributions import DistInfoStd, SquashedGaussian
from rlpyt.models import PiMlpModel
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.spaces import EnvSpaces


class SacAgentInfo(NamedArrayTuple):
    """What SAC's agent records with every action."""

    dist_info: Any
    prev_rnn_state: Any = None
    """Of a recurrent agent, before the row, [B, N, H] leaves."""


class SacAgent(QpgAgent):
    """Acts by samples of a squashed Gaussian, whose standard deviation depends on the state.

    Args:
        *args: see `QpgAgent`.
        n_q: see `QpgAgent`; REDQ has 10.
        **kwargs: see `QpgAgent`.

    Sources: Haarnoja et al. 2018, arXiv:1812.05905; REDQ Chen et al. 2021, arXiv:2101.05982.
    """

    kind = "squashed Gaussian policy"
    policy_outputs = ("mean", "log_std")
    PolicyCls = PiMlpModel
    hidden_sizes = (256, 256)
    has_target_policy = False
    distribution: SquashedGaussian

    def __init__(self, *args: Any, n_q: int = 2, **kwargs: Any) -> None:
        super().__init__(*args, n_q=n_q, **kwargs)

    def make_distribution(self, env_spaces: EnvSpaces) -> SquashedGaussian:
        """Return the distribution within the bounds; refuse a space without finite ones."""
        return SquashedGaussian.from_space(env_spaces.action)

    def agent_info(self, output: Any) -> SacAgentInfo:
        """Return mean and log_std."""
        return SacAgentInfo(DistInfoStd(*output))

    def best_action(self, output: Any) -> torch.Tensor:
        """Return the squashed mean."""
        return self.distribution.mode(DistInfoStd(*output))

    def explore(self, output: Any, group: EnvGroup) -> torch.Tensor:
        """Return samples."""
        return self.distribution.sample(DistInfoStd(*output), group.draw(self.distribution.draw_noise))


class RecurrentSacAgent(SacAgent):
    """`SacAgent` whose features carry a state."""

    recurrent = True
