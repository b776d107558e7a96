"""Interfaces between the parts of a run: all that one may ask of another."""

from rlpyt.core.agent import (
    Actor,
    Agent,
    AgentByHand,
    CategoricalQAgent,
    ExploringAgent,
    MuAgent,
    NoisyTargetAgent,
    PolicyAgent,
    PopulationPolicyAgent,
    QAgent,
    QpgPolicyAgent,
)
from rlpyt.core.evaluation import EvalResult, EvaluatorBeside
from rlpyt.core.parts import (
    AgentT,
    Algorithm,
    Appender,
    FreeSampler,
    Metrics,
    Sampler,
    TrajStates,
)
from rlpyt.core.replay import Replay

__all__ = [
    "Actor",
    "Agent",
    "AgentByHand",
    "AgentT",
    "Algorithm",
    "Appender",
    "CategoricalQAgent",
    "EvalResult",
    "EvaluatorBeside",
    "ExploringAgent",
    "FreeSampler",
    "Metrics",
    "MuAgent",
    "NoisyTargetAgent",
    "PolicyAgent",
    "PopulationPolicyAgent",
    "QAgent",
    "QpgPolicyAgent",
    "Replay",
    "Sampler",
    "TrajStates",
]
