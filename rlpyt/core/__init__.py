"""Interfaces between the parts of a run: all that one may ask of another."""

from rlpyt.core.agent import (
    Actor,
    Agent,
    AgentByHand,
    AgentNetworks,
    CategoricalQAgent,
    ExploringAgent,
    Features,
    MuAgent,
    NoisyTargetAgent,
    PolicyAgent,
    PopulationPolicyAgent,
    QAgent,
    QpgPolicyAgent,
    ValueAt,
    example_inputs,
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
    "AgentNetworks",
    "AgentT",
    "Algorithm",
    "Appender",
    "CategoricalQAgent",
    "EvalResult",
    "EvaluatorBeside",
    "ExploringAgent",
    "Features",
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
    "ValueAt",
    "example_inputs",
]
