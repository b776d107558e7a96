"""EnvPool: threads in this process step Pong, and the network is here.

While threads step one half of the environments, actions are chosen for the other half, its asynchronous mode.
"""

from __future__ import annotations

import envpool
from networks import N_ACTIONS, Nature, sample_in_halves
from workloads import Clock, Workload, run_from_command_line


def sampling_pong(work: Workload, clock: Clock) -> None:
    """Pong with the Nature network."""
    envs = envpool.make_gymnasium(
        "Pong-v5", num_envs=work.n_envs, batch_size=work.n_envs // 2, num_threads=work.cores, seed=0
    )
    envs.async_reset()
    observation, *_, info = envs.recv()
    sample_in_halves(envs, (observation, info), envs.send, Nature(N_ACTIONS, 1), clock)


if __name__ == "__main__":
    run_from_command_line({"sampling_pong": sampling_pong})
