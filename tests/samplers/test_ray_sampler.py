"""`RaySampler` on a cluster of two nodes on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rlpyt.samplers import CpuSampler, RaySampler
from rlpyt.types import Run
from tests.samplers.sampler_kit import assert_equal_batches, collect, random_agent
from tests.toy_envs import CountingEnv

ray = pytest.importorskip("ray", reason="needs the extra ray")
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Yield a cluster of two nodes with a core each, to which this process is connected."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def running(
    Cls: Any = RaySampler, agent: Any = None, EnvCls: Any = CountingEnv, B: int = 3, **options: Any
) -> Iterator[Any]:
    of_run = {k: options.pop(k) for k in ("bootstrap_value", "n_batches") if k in options}
    sampler = Cls(EnvCls, {}, batch_T=6, batch_B=B, n_workers=2, **options)
    try:
        sampler.initialize(agent or random_agent(), Run(batch_spec=sampler.batch_spec, seed=7, **of_run))
        yield sampler
    finally:
        sampler.shutdown()


def test_first(cluster):
    with running() as sampler:
        print(sampler._ray_workers.hosts)
        a = collect(sampler, 3)
    with running(CpuSampler) as sampler:
        b = collect(sampler, 3)
    assert_equal_batches(a, b)
