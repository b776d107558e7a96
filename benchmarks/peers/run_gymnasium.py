"""gymnasium's vector environments: Pong with an environment in each process, CartPole with all in this one."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from networks import N_ACTIONS, Nature, TwoNetworks, sample
from workloads import ATARI, Clock, Workload, run_from_command_line

gymnasium.register_envs(ale_py)


def pong() -> gymnasium.Env[Any, Any]:
    """Return Pong as the other libraries have it."""
    return FrameStackObservation(AtariPreprocessing(gymnasium.make(ATARI)), 4)


def sampling_pong(work: Workload, clock: Clock) -> None:
    """Pong with the Nature network."""
    sample(gymnasium.vector.AsyncVectorEnv([pong] * work.n_envs), Nature(N_ACTIONS, 1), work, clock)


def sampling_cartpole(work: Workload, clock: Clock) -> None:
    """CartPole with networks of 64 x 64, all in this process, which is the faster way."""
    envs = gymnasium.make_vec("CartPole-v1", num_envs=work.n_envs, vectorization_mode="sync")
    sample(envs, TwoNetworks(4, 2), work, clock)


if __name__ == "__main__":
    run_from_command_line({"sampling_pong": sampling_pong, "sampling_cartpole": sampling_cartpole})
