"""Cost of a batch of `RaySampler` against `CpuSampler` on one machine, and the time to go on after a node is lost.

python benchmarks/ray_sampler.py
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import gymnasium

from rlpyt.agents import AtariFfAgent, CategoricalPgAgent
from rlpyt.envs import AtariEnv
from rlpyt.logging import current_logger
from rlpyt.samplers import CpuSampler, RaySampler
from rlpyt.types import Run

SECONDS = 4.0
N_WORKERS = 2


def sampler_of(Cls: type[CpuSampler], game: str, **options: Any) -> CpuSampler:
    """Return a running sampler with 16 environments."""
    EnvCls, env_kwargs = (AtariEnv, {"game": "pong"}) if game == "Pong" else (gymnasium.make, {"id": "CartPole-v1"})
    sampler = Cls(EnvCls, env_kwargs, batch_T=128, batch_B=16, n_workers=N_WORKERS, **options)
    agent = AtariFfAgent() if game == "Pong" else CategoricalPgAgent()
    sampler.initialize(agent, Run(batch_spec=sampler.batch_spec, bootstrap_value=True))
    return sampler


def milliseconds(Cls: type[CpuSampler], game: str) -> float:
    """Return the least time of a batch over some rounds."""
    sampler, best = sampler_of(Cls, game), float("inf")
    try:
        start, itr = time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS or itr < 3:
            before = time.perf_counter()
            sampler.obtain_samples(itr)
            best, itr = min(best, time.perf_counter() - before), itr + 1
    finally:
        sampler.shutdown()
    return 1000 * best


class Timed(list[str]):
    """Texts of a log, with the time of the last: a loss that was seen is logged."""

    seen = 0.0

    def append(self, text: str) -> None:
        self.seen = time.perf_counter()


def seconds_to_go_on(cluster: Any, node: Any) -> tuple[float, float, float]:
    """Return the seconds of a usual batch, from the end of a node to its notice, and from there to the whole batch."""
    sampler = sampler_of(RaySampler, "CartPole", restart_workers=1)
    current_logger().texts = texts = Timed()
    try:
        for itr in range(3):
            before = time.perf_counter()
            sampler.obtain_samples(itr)
            usual = time.perf_counter() - before
        texts.seen = 0.0
        cluster.remove_node(node, allow_graceful=False)
        start = time.perf_counter()
        while not texts.seen:
            itr += 1
            sampler.obtain_samples(itr)
        return usual, texts.seen - start, time.perf_counter() - texts.seen
    finally:
        current_logger().texts = None
        sampler.shutdown()


def main() -> None:
    """Print all figures."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    size: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 150 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    node = cluster.add_node(**size)
    ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
    try:
        for game in ("CartPole", "Pong"):
            local, remote = milliseconds(CpuSampler, game), milliseconds(RaySampler, game)
            print(
                f"{game}: a batch of 128 x 16 takes CpuSampler {local:.1f} ms, RaySampler {remote:.1f} ms", flush=True
            )
        usual, notice, on = seconds_to_go_on(cluster, node)
        print(f"a lost node: seen after {notice:.2f} s, the batch whole {on:.2f} s later; usually {usual:.2f} s")
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
