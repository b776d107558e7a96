"""Agents: a model, a distribution over its actions, and what it takes to act in many environments."""

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.base import BaseAgent
from rlpyt.agents.ddpg import DdpgAgent, Td3Agent
from rlpyt.agents.discrete_sac import DiscreteSacAgent
from rlpyt.agents.distributional import CatDqnAgent, IqnAgent, QrDqnAgent
from rlpyt.agents.dqn import DqnAgent
from rlpyt.agents.names import (
    AlternatingAtariLstmAgent,
    AlternatingMujocoLstmAgent,
    AlternatingRecurrentCategoricalPgAgent,
    AlternatingRecurrentGaussianPgAgent,
    AtariCatDqnAgent,
    AtariDqnAgent,
    AtariFfAgent,
    AtariLstmAgent,
    AtariMixin,
    AtariR2d1Agent,
    AtariR2d1AlternatingAgent,
    MujocoFfAgent,
    MujocoLstmAgent,
    MujocoMixin,
    OffPolicyAgent,
    R2d1Agent,
    R2d1AlternatingAgent,
    RecurrentCatDqnAgent,
    RecurrentCategoricalPgAgent,
    RecurrentDdpgAgent,
    RecurrentGaussianPgAgent,
    RecurrentIqnAgent,
    RecurrentQrDqnAgent,
    RecurrentSacAgent,
    RecurrentTd3Agent,
)
from rlpyt.agents.networks import Network, Networks
from rlpyt.agents.policy_export import export_policy
from rlpyt.agents.policy_gradient import CategoricalPgAgent, GaussianPgAgent, PgAgent
from rlpyt.agents.population import PopulationAgent
from rlpyt.agents.pqn import PqnAgent
from rlpyt.agents.qpg import QpgAgent
from rlpyt.agents.rules import (
    EpsilonGreedyExploration,
    Exploration,
    GaussianNoise,
    Head,
    PolicyExploration,
    QHead,
    Sampling,
)
from rlpyt.agents.sac import SacAgent
from rlpyt.agents.weight_files import load_weights, save_weights
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
    "DiscreteSacAgent",
    "DqnAgent",
    "EpsilonGreedyExploration",
    "Exploration",
    "GaussianNoise",
    "GaussianPgAgent",
    "Head",
    "IqnAgent",
    "ModelActor",
    "MujocoFfAgent",
    "MujocoLstmAgent",
    "MujocoMixin",
    "Network",
    "Networks",
    "OffPolicyAgent",
    "PgAgent",
    "PolicyExploration",
    "PopulationAgent",
    "PqnAgent",
    "QHead",
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
    "Sampling",
    "Td3Agent",
    "export_policy",
    "load_weights",
    "save_weights",
]
