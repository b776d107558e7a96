"""Stable-Baselines3, as its documentation writes these workloads."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import ale_py
import gymnasium
import numpy as np
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack
from workloads import (
    ATARI,
    DQN_TARGET_INTERVAL,
    REPLAY_ONLY_SIZE,
    REPLAY_SIZE,
    Clock,
    Workload,
    run_from_command_line,
)

ENDLESS = 10**9


class OnRollout(BaseCallback):
    """Ticks before each rollout."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def _on_rollout_start(self) -> None:
        self.clock.tick(self.num_timesteps)

    def _on_step(self) -> bool:
        return True


def pong(work: Workload) -> Any:
    """Return stacked frames; processes where they were faster."""
    gymnasium.register_envs(ale_py)
    processes = SubprocVecEnv if work.n_steps < 128 and not work.updates > 1 else None
    return VecFrameStack(make_atari_env(ATARI, n_envs=work.n_envs, vec_env_cls=processes), n_stack=4)


def ppo_pong(AlgoCls: Any, work: Workload, clock: Clock) -> None:
    """Clipped PPO with the Nature network."""
    model = AlgoCls(
        "CnnPolicy",
        pong(work),
        n_steps=work.n_steps,
        batch_size=work.batch_size,
        n_epochs=work.epochs,
        learning_rate=2.5e-4,
        clip_range=0.1,
        device="cpu",
    )
    model.learn(ENDLESS, callback=OnRollout(clock))


def a2c_pong(work: Workload, clock: Clock) -> None:
    """A2C with RMSprop, as it comes."""
    sb3.A2C("CnnPolicy", pong(work), n_steps=work.n_steps, device="cpu").learn(ENDLESS, callback=OnRollout(clock))


def dqn(AlgoCls: Any, policy: str, env: Any, work: Workload, clock: Clock, **policy_kwargs: Any) -> None:
    """DQN over whole observations."""
    torch.set_num_threads(work.cores)
    model = AlgoCls(
        policy,
        env,
        batch_size=work.batch_size,
        buffer_size=REPLAY_SIZE,
        learning_starts=work.min_steps_learn,
        train_freq=work.n_steps,
        gradient_steps=work.updates,
        learning_rate=1e-4,
        target_update_interval=DQN_TARGET_INTERVAL,
        exploration_initial_eps=0.05,  # else nearly all actions are drawn, without the network
        policy_kwargs=policy_kwargs,
        device="cpu",
    )
    model.learn(ENDLESS, callback=OnRollout(clock))


def dqn_pong(AlgoCls: Any, work: Workload, clock: Clock) -> None:
    """DQN with the Nature network over stacked frames."""
    dqn(AlgoCls, "CnnPolicy", pong(work), work, clock)


def dqn_cartpole(AlgoCls: Any, work: Workload, clock: Clock) -> None:
    """DQN with a network of 64 x 64."""
    dqn(AlgoCls, "MlpPolicy", "CartPole-v1", work, clock, net_arch=[64, 64])


def ppo_vector(AlgoCls: Any, env: str, work: Workload, clock: Clock) -> None:
    """PPO with two networks of 64 x 64."""
    torch.set_num_threads(1)
    model = AlgoCls(
        "MlpPolicy",
        make_vec_env(env, work.n_envs),
        n_steps=work.n_steps,
        batch_size=work.batch_size,
        n_epochs=work.epochs,
        device="cpu",
    )
    model.learn(ENDLESS, callback=OnRollout(clock))


def off_policy(AlgoCls: Any, work: Workload, clock: Clock) -> None:
    """SAC, TD3 or DDPG with networks of 256 x 256 and one update a step."""
    torch.set_num_threads(work.cores)
    model = AlgoCls(
        "MlpPolicy",
        "HalfCheetah-v5",
        learning_starts=work.min_steps_learn,
        batch_size=work.batch_size,
        buffer_size=REPLAY_SIZE,
        train_freq=1,
        gradient_steps=work.updates,
        policy_kwargs=dict(net_arch=[256, 256]),
        device="cpu",
    )
    model.learn(ENDLESS, callback=OnRollout(clock))


class CollectOnly(sb3.PPO):
    """PPO without its updates."""

    def train(self) -> None:
        """Learn nothing."""


def sampling(policy: str, env: Any, work: Workload, clock: Clock) -> None:
    """Collect rollouts; the environments need the other core."""
    torch.set_num_threads(1)
    CollectOnly(policy, env, n_steps=work.n_steps, device="cpu").learn(ENDLESS, callback=OnRollout(clock))


def sampling_pong(work: Workload, clock: Clock) -> None:
    """Frames in a process for each environment."""
    gymnasium.register_envs(ale_py)
    env = VecFrameStack(make_atari_env(ATARI, n_envs=work.n_envs, vec_env_cls=SubprocVecEnv), n_stack=4)
    sampling("CnnPolicy", env, work, clock)


def sampling_cartpole(work: Workload, clock: Clock) -> None:
    """CartPole in this process, which is its faster way."""
    sampling("MlpPolicy", make_vec_env("CartPole-v1", work.n_envs), work, clock)


def replay_pong(work: Workload, clock: Clock) -> None:
    """Draw from its replay, which keeps stacks, in its smaller form."""
    observation = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    replay = ReplayBuffer(
        REPLAY_ONLY_SIZE,
        observation,
        gymnasium.spaces.Discrete(6),
        n_envs=work.n_envs,
        optimize_memory_usage=True,
        handle_timeout_termination=False,
    )
    rows = np.random.default_rng(0).integers(0, 256, (2, work.n_envs, 4, 84, 84), np.uint8)
    zeros = np.zeros(work.n_envs, np.float32)
    for _ in range(REPLAY_ONLY_SIZE // work.n_envs):
        replay.add(rows[0], rows[1], np.zeros((work.n_envs, 1), np.int64), zeros, zeros, [{}] * work.n_envs)
    for i in count():
        clock.tick(i * work.batch_size)
        replay.sample(work.batch_size)


def replay_half_cheetah(work: Workload, clock: Clock) -> None:
    """Draw HalfCheetah's transitions."""
    observation = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)  # as the others keep them
    replay = ReplayBuffer(REPLAY_SIZE, observation, gymnasium.make("HalfCheetah-v5").action_space)
    vector, action, zero = np.zeros((1, 17), np.float32), np.zeros((1, 6), np.float32), np.zeros(1, np.float32)
    for _ in range(REPLAY_SIZE):
        replay.add(vector, vector, action, zero, zero, [{}])
    for i in count():
        clock.tick(i * work.batch_size)
        replay.sample(work.batch_size)


if __name__ == "__main__":
    run_from_command_line(
        {
            "ppo_pong": partial(ppo_pong, sb3.PPO),
            "a2c_pong": a2c_pong,
            "dqn_pong": partial(dqn_pong, sb3.DQN),
            "dqn_cartpole": partial(dqn_cartpole, sb3.DQN),
            "ppo_cartpole": partial(ppo_vector, sb3.PPO, "CartPole-v1"),
            "ppo_half_cheetah": partial(ppo_vector, sb3.PPO, "HalfCheetah-v5"),
            "sac_two_cores": partial(off_policy, sb3.SAC),
            "sac_half_cheetah": partial(off_policy, sb3.SAC),
            "td3_half_cheetah": partial(off_policy, sb3.TD3),
            "ddpg_half_cheetah": partial(off_policy, sb3.DDPG),
            "sampling_pong": sampling_pong,
            "sampling_cartpole": sampling_cartpole,
            "replay_pong": replay_pong,
            "replay_half_cheetah": replay_half_cheetah,
            "start": partial(ppo_vector, sb3.PPO, "CartPole-v1"),
        }
    )
