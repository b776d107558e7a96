"""Runs whose sampler works in a process of its own: what they log is what a loop with old weights logs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.algos import QpgAlgo
from rlpyt.runners import AsyncRl, AsyncRlEval, MinibatchRl, MinibatchRlEval, compute_choice
from rlpyt.samplers import SerialSampler, background
from rlpyt.samplers.background import ProcessSettings, acting_device
from rlpyt.types import Run
from rlpyt.utils.affinity import Affinity, optimizer_parts, sampler_part
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.coupling import Coupling
from rlpyt.utils.processes import available_cpus
from rlpyt.utils.replicas import Replicas
from tests.algos.small_problems import RandomEnv
from tests.algos.test_algo_state import CASES
from tests.markdown import ROOT, quoted, tables
from tests.runners.lagged import with_lag
from tests.runners.runner_kit import make_algo, make_sampler, nightly, rows_of, run, status_of, without_times

OWN = ("WaitTime", "HandOverTime", "DataAge", "RowsDropped")
EVALUATION: dict[str, Any] = dict(eval_n_envs=2, eval_max_trajectories=4)


def train(directory: Path, case: str, sampler: Any, Runner: Any, **kwargs: Any) -> Any:
    algo, agent = CASES[case]()
    if case in ("DQN input priorities", "Rainbow", "R2D1"):
        algo = algo.replace(eps_steps=100)  # so that actions are those of the network
    return run(directory, (algo, agent), sampler, Runner, n_steps=240, log_interval_steps=80, **kwargs)


def options_of(case: str) -> dict[str, Any]:
    action_space = spaces.Box(-1, 2, (2,)) if isinstance(CASES[case]()[0], QpgAlgo) else spaces.Discrete(3)
    env_kwargs = {"action_space": action_space}
    return dict(env_kwargs=env_kwargs, batch_T=5, batch_B=4, max_decorrelation_steps=0)


def learned(directory: Path) -> list[dict[str, str]]:
    """Return the rows of progress.csv without what only one of the runners logs."""
    return [{k: v for k, v in row.items() if not any(own in k for own in OWN)} for row in without_times(directory)]


@pytest.mark.parametrize(
    ("case", "lag"),
    [("PPO LSTM", 2), ("DQN input priorities", 1), ("R2D1", 3)]
    + [nightly("SAC", 1), nightly("VTrace", 1), nightly("PPO", 1), nightly("A2C", 3), nightly("Rainbow", 2)]
    + [nightly("TD3", 2), nightly("R2D1", 1), nightly("SAC LSTM", 2), nightly("VTrace GRU", 2)],
)
def test_a_run_is_that_of_a_serial_loop_with_old_weights(case, lag, tmp_path):
    options, Reference = options_of(case), MinibatchRlEval if lag == 1 else MinibatchRl
    options |= EVALUATION if lag == 1 else {}
    reference = train(tmp_path / "a", case, with_lag(lag)(RandomEnv, **options), Reference)
    Runner = AsyncRlEval if lag == 1 else AsyncRl
    ours = train(tmp_path / "b", case, SerialSampler(RandomEnv, **options), Runner, lag=lag)
    assert learned(tmp_path / "a") == learned(tmp_path / "b")
    for x, y in zip(reference.agent.parameters(), ours.agent.parameters(), strict=True):
        assert torch.equal(x, y)
    assert reference.algo.update_counter > 0
    train(tmp_path / "c", case, SerialSampler(RandomEnv, **options), Reference)
    assert learned(tmp_path / "c") != learned(tmp_path / "a")  # a lag is something else than none


def test_a_lag_of_zero_is_the_run_without_a_process(tmp_path):
    for name, Runner, kwargs in (("a", MinibatchRlEval, {}), ("b", AsyncRlEval, {"lag": 0})):
        run(tmp_path / name, "dqn", make_sampler(**EVALUATION), Runner, **kwargs)
    assert learned(tmp_path / "a") == learned(tmp_path / "b")


def test_the_columns_tell_who_waited_and_how_old_the_data_are(tmp_path):
    runner = run(tmp_path, "ppo", make_sampler(), AsyncRl, n_steps=200, log_interval_steps=40, lag=2)
    rows = [{k.removeprefix("Diagnostics/"): float(v) for k, v in r.items()} for r in rows_of(tmp_path)]
    assert [row["DataAgeMin"] for row in rows] == [0, 2, 2, 2, 2]
    assert [row["DataAgeMean"] for row in rows] == [0.5, 2, 2, 2, 2]
    assert [row["DataAgeMax"] for row in rows] == [1, 2, 2, 2, 2]
    assert [row["RowsDropped"] for row in rows] == [0] * 5
    for name in ("OptimizerWaitTime", "SamplerWaitTime", "HandOverTime"):
        assert all(0 <= row[name] < 5 for row in rows)
        assert sum(row[name] for row in rows) > 0
    assert isinstance(runner.sampler, SerialSampler)  # as it was given
    assert not runner.sampler.running


def test_the_glossary_has_the_columns():
    [table] = [t for t in tables(ROOT / "docs" / "reference" / "glossary.md") if t[0][0] == "column"]
    told = [name for row in table[1:] if quoted(row[2]) == ["AsyncRl"] for name in quoted(row[0])]
    assert [name.removeprefix("Diagnostics/") for name in told] == list(Coupling().take())


@pytest.mark.parametrize(
    ("lag", "error", "text"),
    [
        (-1, ValueError, "AsyncRl: lag is -1; expected a whole number from 0"),
        (1.5, ValueError, r"AsyncRl: lag is 1\.5; expected a whole number from 0"),
        ("much", TypeError, "AsyncRl: lag is 'much'; expected a whole number from 0"),
    ],
)
def test_a_lag_that_cannot_be_meant_is_refused(lag, error, text):
    algo, agent = make_algo("ppo")
    with pytest.raises(error, match=text):
        AsyncRl(algo, agent, make_sampler(), n_steps=100, lag=lag)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"affinity": []}, "affinity is an empty list"),
        ({"n_replicas": 2, "affinity": {"optimizer": [{}] * 3, "sampler": {}}}, "affinity has 3 dictionaries"),
        ({"n_replicas": 2, "affinity": {"optimizer": {"cpus": [0]}, "sampler": {}}}, "would all work on them"),
        ({"n_replicas": 3}, "batch_B is 4, given for 3 replicas together"),
    ],
)
def test_learners_that_cannot_be_are_refused(settings, text):
    algo, agent = make_algo("ppo")
    with pytest.raises(ValueError, match=text):
        AsyncRl(algo, agent, make_sampler(), n_steps=100, **settings)


def test_a_lag_as_long_as_the_run_is_told(tmp_path, capsys):
    run(tmp_path, "ppo", make_sampler(), AsyncRl, n_steps=40, lag=2)
    assert "WARNING: lag is 2 and the run has 2 iterations" in capsys.readouterr().out


def test_threads_leave_the_cores_of_the_sampler_free(monkeypatch, tmp_path):
    seen: list[int] = []

    def choose(agent: Any, cores: Any, n_busy: int, **kwargs: Any) -> ComputeSettings:
        seen.append(n_busy)
        return ComputeSettings()

    monkeypatch.setattr(compute_choice, "settings_by_rule", choose)
    run(tmp_path / "a", "ppo", make_sampler(), AsyncRl, n_steps=20, settings=None)
    run(tmp_path / "b", "ppo", make_sampler("cpu3", start_method="fork"), AsyncRl, n_steps=20, settings=None)
    assert seen == [1, 3]
    assert status_of(tmp_path / "b")["status"] == "finished"


# ---- several learners, each with a share of the sampler, and affinities of rlpyt 0.1 ----


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
