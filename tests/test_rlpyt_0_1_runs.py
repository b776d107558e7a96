"""Scripts in the form of the examples of rlpyt 0.1 for several GPUs and asynchronous runs: only import lines are new.

The affinities are what `make_affinity` of rlpyt 0.1 returned, with cores of this machine and no GPU.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlpyt.agents import AtariDqnAgent, AtariFfAgent
from rlpyt.algos import A2C, DQN
from rlpyt.envs import AtariEnv
from rlpyt.logging import load_snapshot, logger_context, read_progress
from rlpyt.runners import AsyncRlEval, SyncRl
from rlpyt.samplers import (
    AsyncCpuSampler,
    AsyncGpuSampler,
    AtariTrajInfo,
    DbCpuResetCollector,
    GpuSampler,
)
from rlpyt.utils.affinity import AttrDict
from tests.pairs import others_nightly

CORES = sorted(os.sched_getaffinity(0))
FIRST, LAST = CORES[0], CORES[-1]
SMALL_NET = dict(fc_sizes=8, channels=[4], kernel_sizes=[8], strides=[8], paddings=[0])


def sampler_affinity(core: int, **device: Any) -> AttrDict:
    """Return the affinity of one sampler, as that of a whole run of one process."""
    cpus: dict[str, Any] = dict.fromkeys(("all_cpus", "master_cpus", "workers_cpus"), (core,))
    threads = dict(master_torch_threads=1, worker_torch_threads=1)
    return AttrDict(**cpus, **threads, alternating=False, set_affinity=True, **device)


def async_affinity(sampler: Any) -> AttrDict:
    optimizer = [dict(cpus=(FIRST,), torch_threads=1, cuda_idx=None, set_affinity=True)]
    return AttrDict(all_cpus=(FIRST, LAST), optimizer=optimizer, sampler=sampler, set_affinity=True)


ATARI: dict[str, Any] = dict(EnvCls=AtariEnv, TrajInfoCls=AtariTrajInfo, env_kwargs=dict(game="pong"), batch_B=2)
EVALUATION: dict[str, Any] = dict(eval_n_envs=2, eval_max_steps=8, eval_max_trajectories=4)


def multi_gpu() -> SyncRl:
    affinity: Any = [sampler_affinity(core, cuda_idx=None) for core in (FIRST, LAST)]
    sampler = GpuSampler(batch_T=5, max_decorrelation_steps=4, **ATARI)
    agent = AtariFfAgent(model_kwargs=SMALL_NET)
    options: dict[str, Any] = dict(n_steps=80, log_interval_steps=40, affinity=affinity, seed=7)
    return SyncRl(algo=A2C(learning_rate=7e-4), agent=agent, sampler=sampler, **options)


def asynchronous(SamplerCls: Callable[..., Any], part: Any, **collector: Any) -> AsyncRlEval:
    """Return the run of a script that trains DQN while another process samples."""
    evaluation = dict(eval_env_kwargs=ATARI["env_kwargs"], **EVALUATION)
    sampler = SamplerCls(batch_T=4, max_decorrelation_steps=4, **ATARI, **evaluation, **collector)
    algo = DQN(replay_ratio=4, batch_size=4, min_steps_learn=16, replay_size=128)
    options: dict[str, Any] = dict(n_steps=80, log_interval_steps=40, affinity=async_affinity(part))
    return AsyncRlEval(algo=algo, agent=AtariDqnAgent(model_kwargs=SMALL_NET), sampler=sampler, **options)


SCRIPTS: dict[str, Callable[[], Any]] = {
    "multi_gpu": multi_gpu,
    "async_cpu": lambda: asynchronous(AsyncCpuSampler, sampler_affinity(LAST), CollectorCls=DbCpuResetCollector),
    "async_gpu": lambda: asynchronous(AsyncGpuSampler, [sampler_affinity(LAST, cuda_idx=None)]),
}


@pytest.mark.parametrize("name", others_nightly(SCRIPTS, ("async_gpu",)))
def test_a_script_of_rlpyt_0_1_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with logger_context("script", 0, name, dict(game="pong"), snapshot_mode="last"):
        SCRIPTS[name]().train()
    directory = Path("script") / "run_0"
    assert json.loads((directory / "status.json").read_text())["status"] == "finished"
    progress = read_progress(directory)
    assert progress["Diagnostics/CumSteps"][-1] == 80
    assert progress["Diagnostics/CumUpdates"][-1] > 0
    assert "GameScoreAverage" in progress
    assert load_snapshot(directory / "params.pkl")["cum_steps"] == 80
    if name == "multi_gpu":
        assert progress["Diagnostics/Iteration"][-1] == 80 / (2 * 5 * 2), "two replicas, each with a whole batch"
    else:
        assert set(progress["Diagnostics/DataAgeMax"][1:]) == {1.0}, "lag 1"
