"""The agent of SAC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.qpg import QpgAgent
from rlpyt.agents.rules import Head, SquashedGaussianHead
from rlpyt.distributions import DistInfoStd, SquashedGaussian
from rlpyt.models import PiMlpModel
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces


class SacAgentInfo(NamedArrayTuple):
    """Record of SAC's agent beside every action."""

    dist_info: Buffer
    prev_rnn_state: Buffer = None
    """Of a recurrent agent, before the row, [B, N, H] leaves."""


@dataclass(kw_only=True, eq=False)
class SquashedPolicy(BaseAgent):
    """Policy that samples from a squashed Gaussian, whose standard deviation depends on the state."""

    kind: ClassVar[str] = "squashed Gaussian policy"
    policy_outputs: ClassVar[tuple[str, ...]] = ("mean", "log_std")
    DefaultModelCls: ClassVar[Callable[..., nn.Module] | None] = PiMlpModel
    HeadCls: ClassVar[type[Head]] = SquashedGaussianHead
    hidden_sizes: ClassVar[tuple[int, ...]] = (256, 256)
    has_target_policy: ClassVar[bool] = False

    n_q: int = 2
    """Networks of action values; REDQ has 10. It is the size of a layer, so it takes no schedule."""

    def make_distribution(self, env_spaces: EnvSpaces) -> SquashedGaussian:
        """Return the distribution within the bounds; refuse a space without finite ones."""
        return SquashedGaussian.from_space(env_spaces.action)

    def agent_info(self, output: DistInfoStd) -> NamedArrayTuple:
        """Return mean and log_std."""
        return SacAgentInfo(output)


@dataclass(kw_only=True, eq=False)
class SacAgent(SquashedPolicy, QpgAgent):
    """Policy that samples from a squashed Gaussian, whose standard deviation depends on the state.

    Sources: Haarnoja et al. 2018, arXiv:1812.05905; REDQ Chen et al. 2021, arXiv:2101.05982.
    """
