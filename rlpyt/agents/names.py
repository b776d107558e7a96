"""Agents by name: those of rlpyt 0.1, and the recurrent ones. Each is a choice of settings and of a default model.

They stand beside the agents that they are kinds of, and not below them, so that no chain of classes is long. As
`isinstance` and `issubclass` see it, they are kinds of them all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from gymnasium import spaces
from torch import nn

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.ddpg import DdpgAgent, NoisyMu, NoisyTarget, Td3Agent
from rlpyt.agents.distributional import (
    CatDqnAgent,
    IqnAgent,
    QrDqnAgent,
    WithAtoms,
    WithImplicitQuantiles,
    WithQuantiles,
)
from rlpyt.agents.dqn import DqnAgent
from rlpyt.agents.policy_gradient import CategoricalPgAgent, GaussianPgAgent, PgAgent
from rlpyt.agents.qpg import QpgAgent
from rlpyt.agents.sac import SacAgent, SquashedPolicy
from rlpyt.core import CategoricalQAgent, MuAgent, NoisyTargetAgent
from rlpyt.models import (
    AtariCatDqnModel,
    AtariDqnModel,
    AtariFfModel,
    AtariLstmModel,
    AtariR2d1Model,
    MujocoFfModel,
    MujocoLstmModel,
)
from rlpyt.spaces import EnvSpaces
from rlpyt.types import Kwargs

C = TypeVar("C", bound=type)
ModelClass = Callable[..., nn.Module] | None

OffPolicyAgent = BaseAgent
"""Former base of the agents of replay algorithms; every agent can now be steered as they were."""


def kind_of(*classes: type[BaseAgent]) -> Callable[[C], C]:
    """Return a decorator that makes a dataclass, and lets it pass for a subclass of others."""

    def made(cls: C) -> C:
        dataclass(kw_only=True, eq=False)(cls)
        for other in classes:
            other.register(cls)
        return cls

    return made


# ---- recurrent agents ----


@kind_of(CategoricalPgAgent)
class RecurrentCategoricalPgAgent(PgAgent):
    """`CategoricalPgAgent` whose model carries a state."""

    actions: ClassVar[str] = "discrete"
    recurrent: bool | str = True


@kind_of(GaussianPgAgent)
class RecurrentGaussianPgAgent(PgAgent):
    """`GaussianPgAgent` whose model carries a state."""

    actions: ClassVar[str] = "continuous"
    recurrent: bool | str = True


@kind_of()
class R2d1Agent(DqnAgent):
    """`DqnAgent` whose model carries a state."""

    recurrent: bool | str = True


@kind_of(CatDqnAgent)
class RecurrentCatDqnAgent(WithAtoms, DqnAgent, CategoricalQAgent):
    """`CatDqnAgent` whose model carries a state."""

    recurrent: bool | str = True


@kind_of(QrDqnAgent)
class RecurrentQrDqnAgent(WithQuantiles, DqnAgent):
    """`QrDqnAgent` whose model carries a state."""

    recurrent: bool | str = True


@kind_of(IqnAgent)
class RecurrentIqnAgent(WithImplicitQuantiles, DqnAgent):
    """`IqnAgent` whose model carries a state."""

    recurrent: bool | str = True


@kind_of(DdpgAgent)
class RecurrentDdpgAgent(NoisyMu, QpgAgent, MuAgent):
    """`DdpgAgent` whose features carry a state."""

    recurrent: bool | str = True


@kind_of(Td3Agent)
class RecurrentTd3Agent(NoisyTarget, QpgAgent, NoisyTargetAgent):
    """`Td3Agent` whose features carry a state."""

    recurrent: bool | str = True


@kind_of(SacAgent)
class RecurrentSacAgent(SquashedPolicy, QpgAgent):
    """`SacAgent` whose features carry a state."""

    recurrent: bool | str = True


# ---- agents with a model of rlpyt 0.1 ----


class AtariMixin:
    """Mixin of rlpyt 0.1: tells an agent's ModelCls `image_shape` and `output_size`, and nothing else."""

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> Kwargs:
        """Return the image's shape [C, height, width] and the number of actions."""
        observation, action = env_spaces
        is_image = isinstance(observation, spaces.Box) and len(observation.shape) == 3
        if not is_image or not isinstance(action, spaces.Discrete):
            raise TypeError(
                f"An image model for discrete actions was given the spaces {observation} and {action}; expected a Box "
                "[C, height, width] and a Discrete. Use CategoricalPgAgent or DqnAgent, whose models fit any spaces."
            )
        return {"image_shape": observation.shape, "output_size": int(action.n)}


class MujocoMixin:
    """Mixin of rlpyt 0.1: tells an agent's ModelCls `observation_shape` and `action_size`, and nothing else."""

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> Kwargs:
        """Return the observation's shape and the number of action dimensions."""
        observation, action = env_spaces
        if not isinstance(observation, spaces.Box) or not isinstance(action, spaces.Box) or len(action.shape) != 1:
            raise TypeError(
                f"A vector model for continuous actions was given the spaces {observation} and {action}; expected "
                "Boxes, the action's with one dimension. Use GaussianPgAgent, whose models fit any spaces."
            )
        return {"observation_shape": observation.shape, "action_size": action.shape[0]}


@kind_of(CategoricalPgAgent)
class AtariFfAgent(AtariMixin, PgAgent):
    """`CategoricalPgAgent` with the small convolutional model of A3C (Mnih et al. 2016)."""

    actions: ClassVar[str] = "discrete"
    DefaultModelCls: ClassVar[ModelClass] = AtariFfModel


@kind_of(CategoricalPgAgent)
class AtariLstmAgent(AtariMixin, PgAgent):
    """Recurrent `CategoricalPgAgent` with the convolutional LSTM model."""

    actions: ClassVar[str] = "discrete"
    DefaultModelCls: ClassVar[ModelClass] = AtariLstmModel
    recurrent: bool | str = True


@kind_of(GaussianPgAgent)
class MujocoFfAgent(MujocoMixin, PgAgent):
    """`GaussianPgAgent` with separate networks for policy and value."""

    actions: ClassVar[str] = "continuous"
    DefaultModelCls: ClassVar[ModelClass] = MujocoFfModel


@kind_of(GaussianPgAgent)
class MujocoLstmAgent(MujocoMixin, PgAgent):
    """Recurrent `GaussianPgAgent` with a shared LSTM."""

    actions: ClassVar[str] = "continuous"
    DefaultModelCls: ClassVar[ModelClass] = MujocoLstmModel
    recurrent: bool | str = True


@kind_of()
class AtariDqnAgent(AtariMixin, DqnAgent):
    """`DqnAgent` with the Nature network (Mnih et al. 2015)."""

    DefaultModelCls: ClassVar[ModelClass] = AtariDqnModel


@kind_of(R2d1Agent)
class AtariR2d1Agent(AtariMixin, DqnAgent):
    """`R2d1Agent` with the convolutional LSTM network of R2D2 (Kapturowski et al. 2019)."""

    DefaultModelCls: ClassVar[ModelClass] = AtariR2d1Model
    recurrent: bool | str = True


@kind_of(CatDqnAgent)
class AtariCatDqnAgent(AtariMixin, WithAtoms, DqnAgent, CategoricalQAgent):
    """`CatDqnAgent` with the Nature network."""

    DefaultModelCls: ClassVar[ModelClass] = AtariCatDqnModel


AlternatingRecurrentCategoricalPgAgent = RecurrentCategoricalPgAgent
AlternatingRecurrentGaussianPgAgent = RecurrentGaussianPgAgent
AlternatingAtariLstmAgent = AtariLstmAgent
AlternatingMujocoLstmAgent = MujocoLstmAgent
R2d1AlternatingAgent = R2d1Agent
AtariR2d1AlternatingAgent = AtariR2d1Agent
"""Their names in rlpyt 0.1 under an `AlternatingSampler`, which any agent serves now."""
