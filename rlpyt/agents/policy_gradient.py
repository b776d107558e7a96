"""Policy-gradient agents: a distribution over actions and a value, feed-forward or recurrent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import torch
from torch import nn

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.networks import Network
from rlpyt.agents.own_models import check_policy_outputs
from rlpyt.agents.rules import Exploration, Head, PolicyHead, Sampling
from rlpyt.agents.value_heads import ValueHeadSettings
from rlpyt.core import PolicyAgent
from rlpyt.distributions import distribution_of
from rlpyt.models import PgModel, RunningMeanStdModel
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces, leaf_spaces
from rlpyt.utils.arguments import named_arguments


class AgentInfo(NamedArrayTuple):
    """Record beside every action; of a recurrent agent also its state before the row, [B, N, H] leaves."""

    dist_info: Buffer
    value: Buffer
    prev_rnn_state: Buffer = None


@dataclass(kw_only=True, eq=False)
class PgAgent(ValueHeadSettings, BaseAgent, PolicyAgent):
    """Policy that samples from a distribution whose parameters the model gives, beside a value.

    The default model and the distribution follow the spaces: `Discrete`, `MultiDiscrete` and `MultiBinary` actions get
    categorical distributions, `Box` a diagonal Gaussian, and a `Dict` or `Tuple` the product of those of its parts. A
    model of one's own returns `(logits, value)`, or `(mean, log_std, value)`, or the parameters of all parts one after
    the other and then the value; a recurrent one also its next state, in torch's layout [N, B, H]: a tensor, or a tuple
    of them, named or plain.
    """

    DefaultModelCls: ClassVar[Callable[..., nn.Module] | None] = PgModel
    HeadCls: ClassVar[type[Head]] = PolicyHead
    ExplorationCls: ClassVar[type[Exploration]] = Sampling
    actions: ClassVar[str] = ""
    """Spaces of actions that it is for: "discrete", "continuous", or "" for both, and for mixtures."""

    reward_rms = Network[RunningMeanStdModel]("learning", "reward_rms")

    def make_distribution(self, env_spaces: EnvSpaces) -> Any:
        """Return the distribution for the action space; refuse a space that the agent is not for."""
        space, name = env_spaces.action, f"{type(self).__name__}: the action space"
        boxes = [isinstance(leaf, gymnasium.spaces.Box) for leaf in leaf_spaces(space)]
        if any(boxes) and self.actions == "discrete":
            other = "GaussianPgAgent" if all(boxes) else "PgAgent"
            raise TypeError(f"{name} is {space}; expected a discrete one. Use {other}.")
        if not all(boxes) and self.actions == "continuous":
            other = "PgAgent" if any(boxes) else "CategoricalPgAgent"
            raise TypeError(f"{name} is {space}; expected a Box. Use {other}.")
        return distribution_of(space, name)

    @named_arguments
    def initialize(self, env_spaces: EnvSpaces) -> None:
        """Build the model and the statistics of rewards, and check that the model's outputs fit the distribution."""
        super().initialize(env_spaces)
        self.reward_rms = RunningMeanStdModel(())
        check_policy_outputs(self)

    def __call__(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer, *rnn: Buffer) -> Buffer:
        """Return distribution parameters and what `values` reads, with gradient; see `BaseAgent.__call__`."""
        return self.head.read_at(observation, super().__call__(observation, prev_action, prev_reward, *rnn))

    def agent_info(self, output: tuple[Buffer, torch.Tensor]) -> NamedArrayTuple:
        """Return distribution parameters and value."""
        return AgentInfo(output[0], self.values.mean(output[1]))


@dataclass(kw_only=True, eq=False)
class CategoricalPgAgent(PgAgent):
    """Policy-gradient agent for discrete actions."""

    actions: ClassVar[str] = "discrete"


@dataclass(kw_only=True, eq=False)
class GaussianPgAgent(PgAgent):
    """Policy-gradient agent for continuous actions."""

    actions: ClassVar[str] = "continuous"
