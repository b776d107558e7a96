"""The vector environment of ale-py: threads in this process step Pong, and the network is here.

While threads step one half of the environments, actions are chosen for the other half, which is its faster way.
"""

from __future__ import annotations

from ale_py.vector_env import AtariVectorEnv
from networks import N_ACTIONS, Nature, sample_in_halves
from workloads import Clock, Workload, run_from_command_line


def sampling_pong(work: Workload, clock: Clock) -> None:
    """Pong with the Nature network."""
    envs = AtariVectorEnv("pong", work.n_envs, batch_size=work.n_envs // 2, num_threads=work.cores)
    first = envs.reset(seed=0)
    sample_in_halves(envs, first, lambda actions, _: envs.send(actions), Nature(N_ACTIONS, 1), clock)


if __name__ == "__main__":
    run_from_command_line({"sampling_pong": sampling_pong})
