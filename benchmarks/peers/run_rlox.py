"""rlox's replay, in Rust. It keeps vectors of float32, and so no stacks of frames."""

from __future__ import annotations

from itertools import count

import numpy as np
from rlox import ReplayBuffer
from workloads import REPLAY_SIZE, Clock, Workload, run_from_command_line


def replay_half_cheetah(work: Workload, clock: Clock) -> None:
    """Draw HalfCheetah's transitions."""
    replay = ReplayBuffer(REPLAY_SIZE, 17, 6)
    observations, actions, rewards = (np.zeros(REPLAY_SIZE * n, np.float32) for n in (17, 6, 1))
    ends = np.zeros(REPLAY_SIZE, np.uint8)
    replay.push_batch(observations, observations, actions, rewards, ends, ends)
    for i in count():
        clock.tick(i * work.batch_size)
        replay.sample(work.batch_size, i)


if __name__ == "__main__":
    run_from_command_line({"replay_half_cheetah": replay_half_cheetah})
