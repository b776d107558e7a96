"""Interfaces between the parts of a run: all that one may ask of another."""

from rlpyt.core.agent import (
    Actor,
    Agent,
    CategoricalQAgent,
    ExploringAgent,
    MuAgent,
    NoisyTargetAgent,
    PolicyAgent,
    QAgent,
    QpgPolicyAgent,
)
from rlpyt.core.parts import AgentT, Algorithm, EvalResult, EvaluatorBeside, Metrics, Replay, Sampler

__all__ = [
    "Actor",
    "Agent",
    "AgentT",
    "Algorithm",
    "CategoricalQAgent",
    "EvalResult",
    "EvaluatorBeside",
    "ExploringAgent",
    "Metrics",
    "MuAgent",
    "NoisyTargetAgent",
    "PolicyAgent",
    "QAgent",
    "QpgPolicyAgent",
    "Replay",
    "Sampler",
]
