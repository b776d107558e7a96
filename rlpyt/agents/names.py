"""Agents by name: those of rlpyt 0.1, and the recurrent ones. Each is a choice of settings and presets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.ddpg import DdpgAgent, Td3Agent
from rlpyt.agents.distributional import CatDqnAgent, IqnAgent, QrDqnAgent
from rlpyt.agents.dqn import DqnAgent
from rlpyt.agents.model_kwargs import image_model_kwargs, vector_model_kwargs
from rlpyt.agents.policy_gradient import CategoricalPgAgent, GaussianPgAgent
from rlpyt.agents.sac import SacAgent
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

Preset = Callable[..., nn.Module] | None
SizesOf = Callable[[EnvSpaces], Kwargs] | None

OffPolicyAgent = BaseAgent
"""Former base of the agents of replay algorithms; every agent can now be steered as they were."""

# ---- recurrent agents ----


@dataclass(kw_only=True, eq=False)
class RecurrentCategoricalPgAgent(CategoricalPgAgent):
    """`CategoricalPgAgent` whose model carries a state."""

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class RecurrentGaussianPgAgent(GaussianPgAgent):
    """`GaussianPgAgent` whose model carries a state."""

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class R2d1Agent(DqnAgent):
    """`DqnAgent` whose model carries a state."""

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class RecurrentCatDqnAgent(CatDqnAgent):
    """`CatDqnAgent` whose model carries a state."""

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class RecurrentQrDqnAgent(QrDqnAgent):
    """`QrDqnAgent` whose model carries a state."""

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class RecurrentIqnAgent(IqnAgent):
    """`IqnAgent` whose model carries a state."""

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class RecurrentDdpgAgent(DdpgAgent):
    """`DdpgAgent` whose features carry a state."""

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class RecurrentTd3Agent(Td3Agent):
    """`Td3Agent` whose features carry a state."""

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class RecurrentSacAgent(SacAgent):
    """`SacAgent` whose features carry a state."""

    recurrent: bool | str = True


# ---- agents with a model of rlpyt 0.1 ----


@dataclass(kw_only=True, eq=False)
class AtariFfAgent(CategoricalPgAgent):
    """`CategoricalPgAgent` with the small convolutional model of A3C (Mnih et al. 2016)."""

    preset: ClassVar[Preset] = AtariFfModel
    sizes_of: ClassVar[SizesOf] = staticmethod(image_model_kwargs)


@dataclass(kw_only=True, eq=False)
class AtariLstmAgent(CategoricalPgAgent):
    """Recurrent `CategoricalPgAgent` with the convolutional LSTM model."""

    preset: ClassVar[Preset] = AtariLstmModel
    sizes_of: ClassVar[SizesOf] = staticmethod(image_model_kwargs)

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class MujocoFfAgent(GaussianPgAgent):
    """`GaussianPgAgent` with separate networks for policy and value."""

    preset: ClassVar[Preset] = MujocoFfModel
    sizes_of: ClassVar[SizesOf] = staticmethod(vector_model_kwargs)


@dataclass(kw_only=True, eq=False)
class MujocoLstmAgent(GaussianPgAgent):
    """Recurrent `GaussianPgAgent` with a shared LSTM."""

    preset: ClassVar[Preset] = MujocoLstmModel
    sizes_of: ClassVar[SizesOf] = staticmethod(vector_model_kwargs)

    recurrent: bool | str = True


@dataclass(kw_only=True, eq=False)
class AtariDqnAgent(DqnAgent):
    """`DqnAgent` with the Nature network (Mnih et al. 2015)."""

    preset: ClassVar[Preset] = AtariDqnModel
    sizes_of: ClassVar[SizesOf] = staticmethod(image_model_kwargs)


@dataclass(kw_only=True, eq=False)
class AtariR2d1Agent(R2d1Agent):
    """`R2d1Agent` with the convolutional LSTM network of R2D2 (Kapturowski et al. 2019)."""

    preset: ClassVar[Preset] = AtariR2d1Model
    sizes_of: ClassVar[SizesOf] = staticmethod(image_model_kwargs)


@dataclass(kw_only=True, eq=False)
class AtariCatDqnAgent(CatDqnAgent):
    """`CatDqnAgent` with the Nature network."""

    preset: ClassVar[Preset] = AtariCatDqnModel
    sizes_of: ClassVar[SizesOf] = staticmethod(image_model_kwargs)


AlternatingRecurrentCategoricalPgAgent = RecurrentCategoricalPgAgent
AlternatingRecurrentGaussianPgAgent = RecurrentGaussianPgAgent
AlternatingAtariLstmAgent = AtariLstmAgent
AlternatingMujocoLstmAgent = MujocoLstmAgent
R2d1AlternatingAgent = R2d1Agent
AtariR2d1AlternatingAgent = AtariR2d1Agent
"""Their names in rlpyt 0.1 under an `AlternatingSampler`, which any agent serves now."""
