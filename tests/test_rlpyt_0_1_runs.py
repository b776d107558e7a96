"""Scripts as the examples of rlpyt 0.1 were, with their old import lines.

Affinities are what `make_affinity` of rlpyt 0.1 returned, with cores of this machine and no GPU.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlpyt.logging import load_snapshot, read_progress
from rlpyt.utils.affinity import AttrDict
from tests.pairs import others_nightly
from tests.test_rlpyt_0_1 import imported

OLD_LINES = """
    from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
    from rlpyt.agents.pg.atari import AtariFfAgent, AtariLstmAgent
    from rlpyt.agents.qpg.sac_agent import SacAgent
    from rlpyt.algos.dqn.dqn import DQN
    from rlpyt.algos.pg.a2c import A2C
    from rlpyt.algos.qpg.sac import SAC
    from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
    from rlpyt.envs.gym import make as gym_make
    from rlpyt.runners.async_rl import AsyncRlEval
    from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
    from rlpyt.runners.sync_rl import SyncRl
    from rlpyt.samplers.async_.collectors import DbCpuResetCollector
    from rlpyt.samplers.async_.cpu_sampler import AsyncCpuSampler
    from rlpyt.samplers.async_.gpu_sampler import AsyncGpuSampler
    from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
    from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
    from rlpyt.samplers.parallel.gpu.collectors import GpuResetCollector, GpuWaitResetCollector
    from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
    from rlpyt.samplers.serial.sampler import SerialSampler
    from rlpyt.utils.logging.context import logger_context
    """

CORES = sorted(os.sched_getaffinity(0))
FIRST, LAST = CORES[0], CORES[-1]
SMALL_NET = dict(fc_sizes=8, channels=[4], kernel_sizes=[8], strides=[8], paddings=[0])
EVALUATION: dict[str, Any] = dict(eval_n_envs=2, eval_max_steps=8, eval_max_trajectories=4)
ON_THE_CPU = dict(cuda_idx=None, workers_cpus=[FIRST])


def atari(of: Any) -> dict[str, Any]:
    env_kwargs = dict(game="pong")
    return dict(EnvCls=of.AtariEnv, TrajInfoCls=of.AtariTrajInfo, env_kwargs=env_kwargs, batch_B=2)


def dqn(of: Any, Runner: str, Sampler: str, affinity: Any, **collector: str) -> Any:
    sampler = getattr(of, Sampler)(
        **atari(of),
        **EVALUATION,
        **{name: getattr(of, kind) for name, kind in collector.items()},
        eval_env_kwargs=dict(game="pong"),
        batch_T=4,
        max_decorrelation_steps=4,
    )
    return getattr(of, Runner)(
        algo=of.DQN(optim_kwargs=dict(), replay_ratio=4, batch_size=4, min_steps_learn=16, replay_size=128),
        agent=of.AtariDqnAgent(model_kwargs=SMALL_NET),
        sampler=sampler,
        n_steps=80,
        log_interval_steps=40,
        affinity=affinity,
    )


def sac(of: Any) -> Any:
    env_kwargs = dict(id="Pendulum-v1")
    sizes: dict[str, Any] = dict(batch_T=1, batch_B=1, max_decorrelation_steps=0, **EVALUATION)
    return of.MinibatchRlEval(
        algo=of.SAC(min_steps_learn=16, batch_size=4, replay_size=128),
        agent=of.SacAgent(model_kwargs=dict(hidden_sizes=[8]), q_model_kwargs=dict(hidden_sizes=[8])),
        sampler=of.SerialSampler(EnvCls=of.gym_make, env_kwargs=env_kwargs, eval_env_kwargs=env_kwargs, **sizes),
        n_steps=80,
        log_interval_steps=40,
        affinity=dict(cuda_idx=None),
    )


def a2c(
    of: Any, Sampler: str, Agent: str = "AtariFfAgent", Runner: str = "MinibatchRl", affinity: Any = None, **kinds: str
) -> Any:
    classes = {name: getattr(of, kind) for name, kind in kinds.items()}
    alternating = dict(workers_cpus=[FIRST] * 2, alternating=True) if Sampler == "AlternatingSampler" else {}
    recurrent = dict(lstm_size=8) if Agent == "AtariLstmAgent" else {}
    return getattr(of, Runner)(
        algo=of.A2C(learning_rate=7e-4),
        agent=getattr(of, Agent)(model_kwargs={**SMALL_NET, **recurrent}),
        sampler=getattr(of, Sampler)(batch_T=5, max_decorrelation_steps=4, **atari(of), **classes),
        n_steps=80,
        log_interval_steps=40,
        affinity=affinity or {**ON_THE_CPU, **alternating},
    )


def of_one(core: int, **device: Any) -> AttrDict:
    """Return the affinity of one sampler, as that of a whole run of one process."""
    cpus: dict[str, Any] = dict.fromkeys(("all_cpus", "master_cpus", "workers_cpus"), (core,))
    threads = dict(master_torch_threads=1, worker_torch_threads=1)
    return AttrDict(**cpus, **threads, alternating=False, set_affinity=True, **device)


def asynchronous(sampler: Any) -> AttrDict:
    optimizer = [dict(cpus=(FIRST,), torch_threads=1, cuda_idx=None, set_affinity=True)]
    return AttrDict(all_cpus=(FIRST, LAST), optimizer=optimizer, sampler=sampler, set_affinity=True)


lstm, async_dqn = partial(a2c, Sampler="GpuSampler", Agent="AtariLstmAgent"), partial(dqn, Runner="AsyncRlEval")
SCRIPTS: dict[str, Callable[[Any], Any]] = {
    "sac": sac,
    **{f"a2c {kind}": partial(a2c, Sampler=f"{kind}Sampler") for kind in ("Serial", "Cpu", "Gpu", "Alternating")},
    "lstm": partial(lstm, CollectorCls="GpuResetCollector"),
    "lstm that waits": partial(lstm, CollectorCls="GpuWaitResetCollector"),
    "dqn": partial(dqn, Runner="MinibatchRlEval", Sampler="SerialSampler", affinity=dict(cuda_idx=None)),
    "dqn Gpu": partial(dqn, Runner="MinibatchRlEval", Sampler="GpuSampler", affinity=ON_THE_CPU),
    "multi-GPU": partial(
        a2c, Sampler="GpuSampler", Runner="SyncRl", affinity=[of_one(core, cuda_idx=None) for core in (FIRST, LAST)]
    ),
    "async Cpu": partial(
        async_dqn,
        Sampler="AsyncCpuSampler",
        affinity=asynchronous(of_one(LAST)),
        CollectorCls="DbCpuResetCollector",
    ),
    "async Gpu": partial(async_dqn, Sampler="AsyncGpuSampler", affinity=asynchronous([of_one(LAST, cuda_idx=None)])),
}


@pytest.fixture
def of() -> SimpleNamespace:
    with pytest.warns(DeprecationWarning, match="of rlpyt 0.1 is"):
        return imported(OLD_LINES)


@pytest.mark.parametrize("name", others_nightly(SCRIPTS, ("lstm that waits", "async Gpu")))
def test_a_script_of_rlpyt_0_1_trains(name: str, of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    runner = SCRIPTS[name](of)
    assert runner.sampler.resets_mid_batch == (name != "lstm that waits")
    with of.logger_context("script", 0, name, dict(game="pong"), snapshot_mode="last"):
        runner.train()
    directory = Path("script") / "run_0"
    assert json.loads((directory / "status.json").read_text())["status"] == "finished"
    progress = read_progress(directory)
    assert progress["Diagnostics/CumSteps"][-1] == 80
    assert progress["Diagnostics/CumUpdates"][-1] > 0
    assert "ReturnAverage" in progress
    assert ("GameScoreAverage" in progress) == (name != "sac")
    assert load_snapshot(directory / "params.pkl")["cum_steps"] == 80
    if name == "multi-GPU":
        assert progress["Diagnostics/Iteration"][-1] == 80 / (2 * 5 * 2), "two replicas, each with a whole batch"
    if name.startswith("async"):
        assert set(progress["Diagnostics/DataAgeMax"][1:]) == {1.0}, "lag 1"
