"""Environments: the face that samplers see, the check before a run, and Atari."""

from rlpyt.envs.adapter import EnvAdapter, make_env
from rlpyt.envs.atari import AtariEnv
from rlpyt.envs.base import Env, EnvError, EnvStep
from rlpyt.envs.check import EnvExamples, check_env
from rlpyt.envs.gym import gym_make
from rlpyt.envs.info import InfoRecorder, info_recorder
from rlpyt.spaces import EnvSpaces

__all__ = [
    "AtariEnv",
    "Env",
    "EnvAdapter",
    "EnvError",
    "EnvExamples",
    "EnvSpaces",
    "EnvStep",
    "InfoRecorder",
    "check_env",
    "gym_make",
    "info_recorder",
    "make_env",
]
