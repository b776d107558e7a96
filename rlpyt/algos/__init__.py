"""Algorithms: a loss, a gradient step, and what they are computed from."""

from rlpyt.algos.a2c import A2C
from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.dqn import DQN
from rlpyt.algos.policy_gradient import LossInputs, PolicyGradientAlgo
from rlpyt.algos.ppo import PPO

__all__ = ["A2C", "DQN", "LossInputs", "PPO", "PolicyGradientAlgo", "RlAlgorithm"]
