"""gymnasium's AsyncVectorEnv: an environment in each process, and the network here."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from run_bare import N_ACTIONS, Nature, TwoNetworks, draw
from workloads import ATARI, Clock, Workload, run_from_command_line

gymnasium.register_envs(ale_py)


def pong() -> gymnasium.Env[Any, Any]:
    """Return Pong as the other libraries have it."""
    return FrameStackObservation(AtariPreprocessing(gymnasium.make(ATARI)), 4)


def cartpole() -> gymnasium.Env[Any, Any]:
    """Return CartPole."""
    return gymnasium.make("CartPole-v1")


@torch.no_grad()
def sample(make: Any, model: torch.nn.Module, work: Workload, clock: Clock) -> None:
    """Step all environments with drawn actions."""
    torch.set_num_threads(1)  # two are slower: the environments' processes need the other core
    envs = gymnasium.vector.AsyncVectorEnv([make] * work.n_envs)
    rows, steps = envs.reset(seed=0)[0], 0
    while True:
        clock.tick(steps)
        x = torch.from_numpy(rows)
        rows = envs.step(draw(model(x if x.dtype == torch.uint8 else x.float())[0]))[0]
        steps += work.n_envs


def sampling_pong(work: Workload, clock: Clock) -> None:
    """Pong with the Nature network."""
    sample(pong, Nature(N_ACTIONS, 1).to(memory_format=torch.channels_last), work, clock)


def sampling_cartpole(work: Workload, clock: Clock) -> None:
    """CartPole with networks of 64 x 64."""
    sample(cartpole, TwoNetworks(4, 2), work, clock)


if __name__ == "__main__":
    run_from_command_line({"sampling_pong": sampling_pong, "sampling_cartpole": sampling_cartpole})
