"""Agents: a model, a distribution over its actions, and what it takes to act in many environments."""

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.dqn import AtariDqnAgent, DqnAgent
from rlpyt.agents.env_group import EnvGroup
from rlpyt.agents.policy_gradient import (
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
from rlpyt.types import AgentInputs, AgentStep

__all__ = [
    "AgentInputs",
    "AgentStep",
    "AtariDqnAgent",
    "AtariFfAgent",
    "AtariLstmAgent",
    "BaseAgent",
    "CategoricalPgAgent",
    "DqnAgent",
    "EnvGroup",
    "GaussianPgAgent",
    "MujocoFfAgent",
    "MujocoLstmAgent",
    "PgAgent",
    "RecurrentCategoricalPgAgent",
    "RecurrentGaussianPgAgent",
]
