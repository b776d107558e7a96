"""SBX, in JAX on the CPU: its classes take the arguments of Stable-Baselines3's, on whose environments they run.

XLA starts as many threads as the process has cores, which the benchmark pins. The clock starts after the warm-up, in
which everything is compiled.
"""

from __future__ import annotations

from functools import partial

from run_stable_baselines3 import dqn_cartpole, dqn_pong, off_policy, ppo_pong, ppo_vector
from sbx import DDPG, DQN, PPO, SAC, TD3
from workloads import run_from_command_line

if __name__ == "__main__":
    run_from_command_line(
        {
            "ppo_pong": partial(ppo_pong, PPO),
            "dqn_pong": partial(dqn_pong, DQN),
            "dqn_cartpole": partial(dqn_cartpole, DQN),
            "ppo_cartpole": partial(ppo_vector, PPO, "CartPole-v1"),
            "ppo_half_cheetah": partial(ppo_vector, PPO, "HalfCheetah-v5"),
            "sac_two_cores": partial(off_policy, SAC),
            "sac_half_cheetah": partial(off_policy, SAC),
            "td3_half_cheetah": partial(off_policy, TD3),
            "ddpg_half_cheetah": partial(off_policy, DDPG),
            "start": partial(ppo_vector, PPO, "CartPole-v1"),
        }
    )
