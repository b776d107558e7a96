"""Algorithms: a loss, a gradient step, and what they are computed from."""

from rlpyt.algos.a2c import A2C
from rlpyt.algos.augmentation import RandomShift
from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.behavior_cloning import clone_behavior
from rlpyt.algos.cma_es import CMAES
from rlpyt.algos.ddpg import DDPG, TD3
from rlpyt.algos.distributional_dqn import IQN, QRDQN, CategoricalDQN
from rlpyt.algos.dqn import DQN, ErrorBatch
from rlpyt.algos.policy_gradient import LossInputs, PolicyGradientAlgo, UpdateRows
from rlpyt.algos.ppo import PPO
from rlpyt.algos.pqn import PQN
from rlpyt.algos.qpg import QpgAlgo
from rlpyt.algos.r2d1 import R2D1
from rlpyt.algos.replay_feed import OffPolicyAlgo, ReplayFeed, Target
from rlpyt.algos.replay_rows import Outputs, mean_loss
from rlpyt.algos.replay_settings import ReplaySettings
from rlpyt.algos.sac import SAC
from rlpyt.algos.vtrace import VTrace, VTraceInputs

__all__ = [
    "A2C",
    "CMAES",
    "DDPG",
    "DQN",
    "IQN",
    "PPO",
    "PQN",
    "QRDQN",
    "R2D1",
    "SAC",
    "TD3",
    "CategoricalDQN",
    "ErrorBatch",
    "LossInputs",
    "OffPolicyAlgo",
    "Outputs",
    "PolicyGradientAlgo",
    "QpgAlgo",
    "RandomShift",
    "ReplayFeed",
    "ReplaySettings",
    "RlAlgorithm",
    "Target",
    "UpdateRows",
    "VTrace",
    "VTraceInputs",
    "clone_behavior",
    "mean_loss",
]
