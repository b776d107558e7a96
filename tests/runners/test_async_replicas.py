"""Several processes that learn, each with a share of the sampler, and affinities as rlpyt 0.1 made them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlpyt.runners import AsyncRl
from rlpyt.samplers import background
from rlpyt.samplers.background import ProcessSettings, acting_device
from rlpyt.types import Run
from rlpyt.utils.affinity import Affinity, optimizer_parts, sampler_part
from rlpyt.utils.processes import available_cpus
from rlpyt.utils.replicas import Replicas
from tests.runners.runner_kit import make_algo, make_sampler, rows_of, run, without_times

CPU = available_cpus()[0]


def test_two_learners_share_the_environments_and_are_one_run(tmp_path):
    """Two optimisers with half of the columns each: their gradients are those of all columns."""
    options: dict[str, Any] = dict(n_steps=120, log_interval_steps=40, lag=1)
    whole = run(tmp_path / "a", make_algo("ppo", minibatches=1), make_sampler(), AsyncRl, **options)
    both = run(tmp_path / "b", make_algo("ppo", minibatches=1), make_sampler(), AsyncRl, n_replicas=2, **options)
    assert len(rows_of(tmp_path / "b")) == 3
    for x, y in zip(whole.agent.parameters(), both.agent.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    for row, other in zip(without_times(tmp_path / "a"), without_times(tmp_path / "b"), strict=True):
        for name in ("Iteration", "CumSteps", "CumCompletedTrajs", "DataAgeMin", "DataAgeMax", "RowsDropped"):
            assert row[f"Diagnostics/{name}"] == other[f"Diagnostics/{name}"], name


def test_workers_are_shared_too():
    sampler = make_sampler("cpu3", B=4).share(2)
    assert (sampler.batch_spec.B, sampler.n_workers) == (2, 1)
    sampler = make_sampler("alternating2", B=4).share(2)
    assert (sampler.batch_spec.B, sampler.n_workers) == (2, 2)


OLD = {
    "all_cpus": [0, 1, 2, 3],
    "optimizer": [{"cpus": [0], "torch_threads": 1, "cuda_idx": 0}, {"cpus": [1], "torch_threads": 2, "cuda_idx": 1}],
    "sampler": {
        "all_cpus": [2, 3],
        "master_cpus": [2, 3],
        "workers_cpus": [2, 3],
        "master_torch_threads": 1,
        "worker_torch_threads": 1,
        "alternating": False,
    },
    "set_affinity": True,
}


def test_an_affinity_of_rlpyt_0_1_is_understood():
    first, second = (Affinity.from_mapping(part) for part in optimizer_parts(OLD))
    assert (first.device, first.master_cpus, first.master_torch_threads) == ("cuda:0", [0], 1)
    assert (second.device, second.master_cpus, second.master_torch_threads) == ("cuda:1", [1], 2)
    sampler = Affinity.from_mapping(sampler_part(OLD))
    assert (sampler.device, sampler.master_cpus, sampler.workers_cpus) == ("cpu", [2, 3], [2, 3])
    assert sampler_part(OLD)["cuda_idx"] is None  # and not the device of the learner, as where it is left out
    assert sampler_part(OLD, 1, 2)["workers_cpus"] == [3]
    assert sampler_part(OLD, 1, 3)["workers_cpus"] == [2, 3]  # too few to be dealt
    one = {"optimizer": {"master_cpus": [1]}, "sampler": [{"cuda_idx": 1, "workers_cpus": [0]}]}
    assert optimizer_parts(one) == [{"master_cpus": [1]}]
    assert sampler_part(one) == {"cuda_idx": 1, "workers_cpus": [0]}
    agent: Any = SimpleNamespace(device="cuda:0")
    assert acting_device(agent, ProcessSettings(), sampler_part(OLD)) == "cpu"
    assert acting_device(agent, ProcessSettings(), {}) == "cuda:0"
    servers = [{"cuda_idx": 1}, {"cuda_idx": 2}]
    assert sampler_part({"optimizer": [{}], "sampler": servers}) == {"sampler": servers}


def test_that_of_a_run_in_one_process_is_split():
    plain = {"master_cpus": [0], "workers_cpus": [1, 2], "cuda_idx": 0}
    assert optimizer_parts(plain) == [plain]
    assert sampler_part(plain) == {"workers_cpus": [1, 2]}  # acts where the learner learns


@pytest.mark.parametrize("affinity", [{"optimizer": [{}]}, {"sampler": {}}, {"optimizer": [], "sampler": {}}])
def test_a_part_that_is_missing_is_named(affinity):
    algo, agent = make_algo("ppo")
    with pytest.raises(ValueError, match=r"affinity: got the keys .*; expected optimizer, .* and sampler, "):
        AsyncRl(algo, agent, make_sampler(), n_steps=100, affinity=affinity)


def test_a_run_with_it_is_pinned_and_ends(tmp_path):
    affinity = {
        "optimizer": [{"cpus": [CPU], "torch_threads": 1}],
        "sampler": {"master_cpus": [CPU], "workers_cpus": [CPU, CPU]},
    }
    runner = run(tmp_path, "ppo", make_sampler("cpu2", start_method="fork"), AsyncRl, affinity=affinity)
    assert runner._group.cores.master_cpus == [CPU]
    assert len(rows_of(tmp_path)) == 3
    assert available_cpus() != [CPU] or len(available_cpus()) == 1


def test_the_processes_of_two_samplers_have_global_streams_of_their_own(monkeypatch):
    seeds: list[int] = []
    monkeypatch.setattr(background, "set_seed", seeds.append)
    server: Any = background.SamplerServer.__new__(background.SamplerServer)
    server._sampler, server._agent = None, None
    for rank in (0, 1):
        with pytest.raises(AttributeError):  # there is no sampler
            server.initialize(Run(batch_spec=make_sampler().batch_spec, seed=7, replicas=Replicas(rank, 2)))
    assert len(set(seeds)) == 2
