"""What every library is given to do: the same environments, network sizes, batches and threads. Standard library only.

A script of a library holds a function for each workload it has, and ends with `run_from_command_line(FUNCTIONS)`. The
function calls `clock.tick(steps)` whenever it has learned from all of its `steps` so far, and never needs to return.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """Settings that all libraries share."""

    title: str
    n_envs: int
    """Environments, and where `cores` is 2 worker processes if that is faster in the library."""
    cores: int
    """Cores that the whole process tree is pinned to, and threads that each process may use at most."""
    n_steps: int = 1
    """Steps of each environment between updates."""
    warm_up: int = 0
    """Steps before the clock starts: the first updates are among them."""
    epochs: int = 1
    batch_size: int = 0
    updates: int = 1
    """Off-policy: updates after each `n_steps` of all environments."""
    min_steps_learn: int = 0


ATARI = "PongNoFrameskip-v4"
WORKLOADS = {
    "ppo_pong": Workload(
        "PPO, Pong: 8 x 128 steps, 4 epochs of 4 minibatches, Nature network, two cores",
        n_envs=8, cores=2, n_steps=128, warm_up=1_024, epochs=4, batch_size=256,
    ),
    "a2c_pong": Workload(
        "A2C, Pong: 16 x 5 steps, Nature network, two cores",
        n_envs=16, cores=2, n_steps=5, warm_up=800, batch_size=80,
    ),
    "dqn_pong": Workload(
        "DQN, Pong: an update of 32 every 4 steps, 8 environments, Nature network, two cores",
        n_envs=8, cores=2, n_steps=4, warm_up=640, batch_size=32, updates=8, min_steps_learn=480,
    ),
    "rainbow_pong": Workload(
        "Rainbow, Pong: an update of 32 every 4 steps, 8 environments, Nature network, two cores",
        n_envs=8, cores=2, n_steps=4, warm_up=640, batch_size=32, updates=8, min_steps_learn=480,
    ),
    "r2d1_pong": Workload(
        "R2D1, Pong: an update of 8 sequences of 40 + 80 every 960 steps, 16 environments, two cores",
        n_envs=16, cores=2, n_steps=60, warm_up=4_800, batch_size=8, min_steps_learn=3_840,
    ),
    "dqn_cartpole": Workload(
        "DQN, CartPole: an update of 32 every step, one environment, networks of 64 x 64, one core",
        n_envs=1, cores=1, warm_up=400, batch_size=32, min_steps_learn=300,
    ),
    "ppo_cartpole": Workload(
        "PPO, CartPole: 8 x 128 steps, 10 epochs of 16 minibatches, networks of 64 x 64, one core",
        n_envs=8, cores=1, n_steps=128, warm_up=2_048, epochs=10, batch_size=64,
    ),
    "ppo_half_cheetah": Workload(
        "PPO, HalfCheetah: 2,048 steps, 10 epochs of 32 minibatches, networks of 64 x 64, one core",
        n_envs=1, cores=1, n_steps=2_048, warm_up=2_048, epochs=10, batch_size=64,
    ),
    "sac_half_cheetah": Workload(
        "SAC, HalfCheetah: an update of 256 every step, networks of 256 x 256, one core",
        n_envs=1, cores=1, warm_up=400, batch_size=256, min_steps_learn=300,
    ),
    "sac_two_cores": Workload(
        "SAC, HalfCheetah, two cores: an update of 256 every step, networks of 256 x 256",
        n_envs=1, cores=2, warm_up=400, batch_size=256, min_steps_learn=300,
    ),
    "td3_half_cheetah": Workload(
        "TD3, HalfCheetah: an update of 256 every step, networks of 256 x 256, one core",
        n_envs=1, cores=1, warm_up=400, batch_size=256, min_steps_learn=300,
    ),
    "ddpg_half_cheetah": Workload(
        "DDPG, HalfCheetah: an update of 256 every step, networks of 256 x 256, one core",
        n_envs=1, cores=1, warm_up=400, batch_size=256, min_steps_learn=300,
    ),
    "sampling_pong": Workload(
        "Sampling only, Pong: 16 environments, Nature network, two cores",
        n_envs=16, cores=2, n_steps=32, warm_up=1_024,
    ),
    "sampling_cartpole": Workload(
        "Sampling only, CartPole: 16 environments, networks of 64 x 64, two cores",
        n_envs=16, cores=2, n_steps=128, warm_up=4_096,
    ),
    "replay_pong": Workload(
        "Replay only, Pong: batches of 32 stacks of 4 frames and their next, from 50,000 rows, one core",
        n_envs=8, cores=1, warm_up=3_200, batch_size=32,
    ),
    "replay_half_cheetah": Workload(
        "Replay only, HalfCheetah: batches of 256 transitions from 20,000 rows, one core",
        n_envs=1, cores=1, warm_up=25_600, batch_size=256,
    ),
    "start": Workload(
        "Start: from the command to the end of the first iteration of PPO on CartPole, one core",
        n_envs=8, cores=1, n_steps=128, epochs=10, batch_size=64,
    ),
}  # fmt: skip
REPLAY_SIZE = 20_000
"""Rows, for the off-policy workloads."""
DQN_TARGET_INTERVAL = 1_000
"""Steps between two copies to DQN's target network."""
REPLAY_ONLY_SIZE = 50_000


def target_interval(work: Workload) -> int:
    """Return the updates between two copies to DQN's target network."""
    return round(DQN_TARGET_INTERVAL * work.updates / (work.n_envs * work.n_steps))


class Clock:
    """Prints steps per second once enough seconds have passed after the warm-up, and ends the process."""

    def __init__(self, warm_up: int, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self.warm_up, self.seconds, self.now = warm_up, seconds, now
        # Without seconds to measure the first tick after some steps ends the process.
        self.start: tuple[int, float] | None = None if seconds else (0, now())

    def tick(self, steps: int) -> None:
        """Say that all updates for the first `steps` steps of all environments together are made."""
        now = self.now()
        if self.start is None:
            if steps >= self.warm_up:
                self.start = steps, now
            return
        first, start = self.start
        if now - start >= self.seconds and steps > first:
            print(f"RESULT {(steps - first) / (now - start):.6g}", flush=True)
            os._exit(0)  # without waiting for what the library would end in its own time


def run_from_command_line(functions: Mapping[str, Callable[[Workload, Clock], None]]) -> None:
    """Run the workload that the command line names: `python SCRIPT WORKLOAD [--seconds 15]`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=list(functions))
    parser.add_argument("--seconds", type=float, default=15)
    args = parser.parse_args()
    workload = WORKLOADS[args.workload]
    clock = Clock(workload.warm_up, args.seconds)
    functions[args.workload](workload, clock)
    sys.exit(f"{args.workload} ended before the clock had seen {args.seconds} seconds")
