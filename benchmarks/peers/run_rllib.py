"""RLlib on its new API stack: environments and learner in the driver, without actors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ale_py
import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing, DtypeObservation, FrameStackObservation
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env
from workloads import ATARI, REPLAY_SIZE, Clock, Workload, run_from_command_line

NATURE: Any = [[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"]]


def make_pong(config: Any) -> gymnasium.Env:
    """Return Pong with 4 stacked frames of 84 x 84 in [0, 1], channels last, as the encoder asks."""
    gymnasium.register_envs(ale_py)
    env = AtariPreprocessing(gymnasium.make(ATARI), frame_skip=4, scale_obs=True, grayscale_newaxis=False)
    stacked = FrameStackObservation(env, 4)
    space = gymnasium.spaces.Box(0, 1, (84, 84, 4), np.float32)
    return gymnasium.wrappers.TransformObservation(stacked, lambda frames: frames.transpose(1, 2, 0), space)


def make_vector(name: str, config: Any) -> gymnasium.Env:
    """Return a plain environment, its observations in single precision."""
    return DtypeObservation(gymnasium.make(name), np.float32)


def train(
    config: AlgorithmConfig, make_env: Callable[[Any], gymnasium.Env], work: Workload, clock: Clock, **settings: Any
) -> None:
    """Train until the clock ends the process, which counts the steps that the environments made in all."""
    torch.set_num_threads(work.cores)
    register_env("benchmark", make_env)
    config = config.environment("benchmark").learners(num_learners=0).training(**settings)
    config = config.env_runners(
        num_env_runners=0, num_envs_per_env_runner=work.n_envs, rollout_fragment_length=work.n_steps
    )
    config.evaluation_interval = None
    algorithm = config.build_algo()
    while True:
        result = algorithm.train()
        clock.tick(int(result["num_env_steps_sampled_lifetime"]))


def ppo(model: DefaultModelConfig, make_env: Any, lr: float, clip: float, work: Workload, clock: Clock) -> None:
    """Clipped PPO."""
    config = PPOConfig().rl_module(model_config=model)
    settings = dict(
        lr=lr,
        clip_param=clip,
        use_kl_loss=False,
        lambda_=0.95,
        vf_loss_coeff=0.5,
        grad_clip=0.5,
        num_epochs=work.epochs,
        minibatch_size=work.batch_size,
        train_batch_size_per_learner=work.n_envs * work.n_steps,
    )
    train(config, make_env, work, clock, **settings)


def ppo_pong(work: Workload, clock: Clock) -> None:
    """PPO with the Nature network."""
    model = DefaultModelConfig(
        conv_filters=NATURE, conv_activation="relu", head_fcnet_hiddens=[512], vf_share_layers=True
    )
    ppo(model, make_pong, 2.5e-4, 0.1, work, clock)


def ppo_vector(env: str, work: Workload, clock: Clock) -> None:
    """PPO with two networks of 64 x 64."""
    model = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
    ppo(model, partial(make_vector, env), 3e-4, 0.2, work, clock)


def sac_half_cheetah(work: Workload, clock: Clock) -> None:
    """SAC with a uniform replay and one update a step."""
    model = DefaultModelConfig(fcnet_hiddens=[256, 256], fcnet_activation="relu", head_fcnet_hiddens=[])
    config = SACConfig().rl_module(model_config=model).reporting(min_sample_timesteps_per_iteration=100)
    config.min_time_s_per_iteration = None
    replay = {"type": "EpisodeReplayBuffer", "capacity": REPLAY_SIZE}
    settings = dict(
        train_batch_size_per_learner=work.batch_size,
        training_intensity=work.batch_size,
        num_steps_sampled_before_learning_starts=work.min_steps_learn,
        replay_buffer_config=replay,
        tau=0.005,
        n_step=1,
    )
    train(config, partial(make_vector, "HalfCheetah-v5"), work, clock, **settings)


if __name__ == "__main__":
    run_from_command_line(
        {
            "ppo_pong": ppo_pong,
            "ppo_cartpole": partial(ppo_vector, "CartPole-v1"),
            "ppo_half_cheetah": partial(ppo_vector, "HalfCheetah-v5"),
            "sac_half_cheetah": sac_half_cheetah,
            "start": partial(ppo_vector, "CartPole-v1"),
        }
    )
