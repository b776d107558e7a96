"""Algorithms: a loss, a gradient step, and what they are computed from."""

from rlpyt.algos.a2c import A2C
from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.distributional_dqn import IQN, QRDQN, CategoricalDQN
from rlpyt.algos.dqn import DQN
from rlpyt.algos.off_policy import OffPolicyAlgo
from rlpyt.algos.policy_gradient import LossInputs, PolicyGradientAlgo
from rlpyt.algos.ppo import PPO
from rlpyt.algos.r2d1 import R2D1

__all__ = [
    "A2C",
    "DQN",
    "IQN",
    "PPO",
    "QRDQN",
    "R2D1",
    "CategoricalDQN",
    "LossInputs",
    "OffPolicyAlgo",
    "PolicyGradientAlgo",
    "RlAlgorithm",
]
