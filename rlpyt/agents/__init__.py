"""Agents: a model, a distribution over its actions, and what it takes to act in many environments."""

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.ddpg import DdpgAgent, RecurrentDdpgAgent, RecurrentTd3Agent, Td3Agent
from rlpyt.agents.distributional import (
    AtariCatDqnAgent,
    CatDqnAgent,
    IqnAgent,
    QrDqnAgent,
    RecurrentCatDqnAgent,
    RecurrentIqnAgent,
    RecurrentQrDqnAgent,
)
from rlpyt.agents.dqn import (
    AtariDqnAgent,
    AtariR2d1Agent,
    AtariR2d1AlternatingAgent,
    DqnAgent,
    R2d1Agent,
    R2d1AlternatingAgent,
)
from rlpyt.agents.env_group import EnvGroup
from rlpyt.agents.model_kwargs import AtariMixin, MujocoMixin
from rlpyt.agents.off_policy import OffPolicyAgent
from rlpyt.agents.policy_gradient import (
    AlternatingAtariLstmAgent,
    AlternatingMujocoLstmAgent,
    AlternatingRecurrentCategoricalPgAgent,
    AlternatingRecurrentGaussianPgAgent,
    AtariFfAgent,
    AtariLstmAgent,
    CategoricalPgAgent,
    GaussianPgAgent,
    MujocoFfAgent,
    MujocoLstmAgent,
    PgAgent,
    RecurrentCategoricalPgAgent,
    RecurrentGaussianPgAgent,
)
from rlpyt.agents.qpg import QpgAgent
from rlpyt.agents.sac import RecurrentSacAgent, SacAgent
from rlpyt.types import AgentInputs, AgentStep

__all__ = [
    "AgentInputs",
    "AgentStep",
    "AlternatingAtariLstmAgent",
    "AlternatingMujocoLstmAgent",
    "AlternatingRecurrentCategoricalPgAgent",
    "AlternatingRecurrentGaussianPgAgent",
    "AtariCatDqnAgent",
    "AtariDqnAgent",
    "AtariFfAgent",
    "AtariLstmAgent",
    "AtariMixin",
    "AtariR2d1Agent",
    "AtariR2d1AlternatingAgent",
    "BaseAgent",
    "CatDqnAgent",
    "CategoricalPgAgent",
    "DdpgAgent",
    "DqnAgent",
    "EnvGroup",
    "GaussianPgAgent",
    "IqnAgent",
    "MujocoFfAgent",
    "MujocoLstmAgent",
    "MujocoMixin",
    "OffPolicyAgent",
    "PgAgent",
    "QpgAgent",
    "QrDqnAgent",
    "R2d1Agent",
    "R2d1AlternatingAgent",
    "RecurrentCatDqnAgent",
    "RecurrentCategoricalPgAgent",
    "RecurrentDdpgAgent",
    "RecurrentGaussianPgAgent",
    "RecurrentIqnAgent",
    "RecurrentQrDqnAgent",
    "RecurrentSacAgent",
    "RecurrentTd3Agent",
    "SacAgent",
    "Td3Agent",
]
