"""The agent of SAC over discrete actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from rlpyt.agents.networks import Held
from rlpyt.agents.qpg import ActorCritic, QpgAgent, TargetActorCritic
from rlpyt.agents.rules import ChoiceExploration, Exploration, Head, LogitsHead
from rlpyt.agents.sac import SacAgentInfo
from rlpyt.core import Agent, ChoiceAgent
from rlpyt.distributions import Categorical, DistInfoLogits, categorical_of
from rlpyt.models import AllQMlpModel, LogitsMlpModel
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentInputs


class ChoiceCritic(ActorCritic):
    """Features, policy and action values of an agent whose networks give the values of all actions."""

    def all_q(self, rows: AgentInputs) -> torch.Tensor:
        """Return the values of all actions at rows of features; see `ChoiceAgent`."""
        with self.networks.autocast():
            return self.q_model(*rows)

    def q(self, rows: AgentInputs, action: torch.Tensor, **n_models: int) -> torch.Tensor:
        """Return the values of actions, one-hot [..., A]."""
        if self._agent.values.n_outputs is None:
            return (self.all_q(rows) * action).sum(-1)
        return (self.all_q(rows) * action.unsqueeze(-1)).sum(-2)


class TargetChoiceCritic(ChoiceCritic, TargetActorCritic):
    """The same of the targets, without gradient."""

    q = torch.no_grad()(ChoiceCritic.q)
    all_q = torch.no_grad()(ChoiceCritic.all_q)


@dataclass(kw_only=True, eq=False)
class DiscreteSacAgent(QpgAgent, ChoiceAgent):
    """Policy over discrete actions with `n_q` networks that give the values of all of them; for `SAC`.

    Features are shared as those of `QpgAgent` are. Before the first update all actions are as likely, of those that a
    mask in the observation allows. `ModelCls` returns logits [..., A], and `QModelCls`, which is called without an
    action, [n_models, ..., A].

    Source: Christodoulou 2019, arXiv:1910.07207.
    """

    kind: ClassVar[str] = ChoiceAgent.kind
    policy_outputs: ClassVar[tuple[str, ...]] = ("logits",)
    DefaultModelCls: ClassVar[Callable[..., nn.Module] | None] = LogitsMlpModel
    DefaultQModelCls: ClassVar[Callable[..., nn.Module]] = AllQMlpModel
    HeadCls: ClassVar[type[Head]] = LogitsHead
    ExplorationCls: ClassVar[type[Exploration]] = ChoiceExploration
    other_parts: ClassVar[Mapping[str, Callable[[Agent], object]]] = {
        "online": ChoiceCritic,
        "targets": TargetChoiceCritic,
    }
    hidden_sizes: ClassVar[tuple[int, ...]] = (256, 256)
    has_target_policy: ClassVar[bool] = False

    n_q: int = 2
    """Networks of action values; the size of a layer, so it takes no schedule."""

    all_q = Held[Callable[[AgentInputs], torch.Tensor]]("online")
    target_all_q = Held[Callable[[AgentInputs], torch.Tensor]]("targets", "all_q")

    def __post_init__(self) -> None:
        """Validate the settings."""
        super().__post_init__()
        if self.pretrain_std is not None:
            raise ValueError(
                f"{type(self).__name__}: pretrain_std is {self.pretrain_std!r}; expected None, as noise goes with "
                "continuous actions alone. Leave it out."
            )

    def make_distribution(self, env_spaces: EnvSpaces) -> Categorical:
        """Return the distribution over the actions; refuse a space that is not Discrete."""
        if not isinstance(distribution := categorical_of(env_spaces.action), Categorical):
            raise TypeError(
                f"{type(self).__name__}: the action space is {env_spaces.action}; expected Discrete. Use SacAgent for "
                "a Box, and PgAgent with PPO for several choices at once."
            )
        return distribution

    def agent_info(self, output: DistInfoLogits) -> NamedArrayTuple:
        """Return the logits."""
        return SacAgentInfo(output)
