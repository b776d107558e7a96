"""Environments: the adapter that samplers use, the check before a run, and Atari games."""

from rlpyt.envs.adapter import EnvAdapter, make_env
from rlpyt.envs.atari import AtariEnv
from rlpyt.envs.atari_vec import atari_make_vec
from rlpyt.envs.base import Env, EnvError, EnvInfo, EnvStep
from rlpyt.envs.check import EnvExamples, check_env, check_vector_env
from rlpyt.envs.dm_control import dm_control_make
from rlpyt.envs.envpool import envpool_make_vec
from rlpyt.envs.gym import GymEnvWrapper, gym_make
from rlpyt.envs.images import ChannelsFirst
from rlpyt.envs.info import InfoRecorder, as_recorded, info_at, info_recorder
from rlpyt.envs.making import env_methods
from rlpyt.envs.players import ParallelGame, players_make_vec
from rlpyt.envs.state_check import restores_exactly
from rlpyt.envs.vector import VectorEnvAdapter, make_vector_env, makes_vector_env
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AtariTrajInfo

__all__ = [
    "AtariEnv",
    "AtariTrajInfo",
    "ChannelsFirst",
    "Env",
    "EnvAdapter",
    "EnvError",
    "EnvExamples",
    "EnvInfo",
    "EnvSpaces",
    "EnvStep",
    "GymEnvWrapper",
    "InfoRecorder",
    "ParallelGame",
    "VectorEnvAdapter",
    "as_recorded",
    "atari_make_vec",
    "check_env",
    "check_vector_env",
    "dm_control_make",
    "env_methods",
    "envpool_make_vec",
    "gym_make",
    "info_at",
    "info_recorder",
    "make_env",
    "make_vector_env",
    "makes_vector_env",
    "players_make_vec",
    "restores_exactly",
]
