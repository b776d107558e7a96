"""Workers in this process give what workers in processes give, to the bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from rlpyt.envs import EnvError
from rlpyt.utils.seeds import global_streams
from rlpyt.utils.watched import WorkerError
from tests.samplers.sampler_kit import assert_equal_batches, collect, in_order, random_agent, running
from tests.toy_envs import CountingEnv
from tests.vector_toy_envs import CountingVectorEnv

KINDS = ("cpu2", "gpu3", "alternating2", "no_overlap2")


class DrawingEnv(CountingEnv):
    """Draws from the global generators of its process for the reward."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return (obs, random.random() + np.random.rand() + torch.rand(()).item(), *rest)


def of(kind: str, start_method: str, EnvCls: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Return batches, an evaluation, and the batches of a sampler that goes on from a state between them."""
    options |= dict(start_method=start_method, eval_n_envs=2, eval_max_trajectories=5, saves_state=True, T=4, B=4)
    agent = random_agent(recurrent=True)
    with running(kind, agent, EnvCls, **options) as sampler:
        batches = collect(sampler, 2)
        state = sampler.state_dict()
        evaluation = in_order(sampler.evaluate_agent(2).traj_infos)
    with running(kind, random_agent(recurrent=True), EnvCls, **options) as sampler:
        sampler.load_state_dict(state)
        return batches, evaluation, collect(sampler, 2, first=2)


@pytest.mark.parametrize(
    ("kind", "EnvCls", "options"),
    [
        *((kind, DrawingEnv, {}) for kind in KINDS),
        ("cpu2", CountingVectorEnv, {}),
        ("cpu3", CountingEnv, {"mid_batch_reset": False, "n_batches": 2}),
        ("gpu2", CountingEnv, {"servers": 2}),
    ],
)
def test_rows_evaluations_and_resumed_rows_are_those_of_processes(kind, EnvCls, options):
    before = global_streams()
    here, there = of(kind, "here", EnvCls, **options), of(kind, "forkserver", EnvCls, **options)
    assert_equal_batches(here[0], there[0])
    assert here[1] == there[1]
    assert_equal_batches(here[2], there[2])
    after = global_streams()
    assert after["random"] == before["random"], "the generators of this process are its own"
    np.testing.assert_array_equal(after["numpy"][1], before["numpy"][1])


class FragileEnv(CountingEnv):
    """Fails at the thirtieth step of all, once; the check at the start takes some of them."""

    steps = 0
    fails = True

    def step(self, action: Any) -> Any:
        type(self).steps += 1
        if type(self).fails and type(self).steps == 30:
            type(self).fails = False
            raise ZeroDivisionError("the simulator fell over")
        return super().step(action)


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_an_error_of_an_environment_has_its_cause_and_a_lost_worker_is_replaced(kind, monkeypatch):
    monkeypatch.setattr(FragileEnv, "steps", 0)
    monkeypatch.setattr(FragileEnv, "fails", True)
    options: dict[str, Any] = dict(start_method="here", T=4, B=2)
    with (
        running(kind, random_agent(), FragileEnv, **options) as sampler,
        pytest.raises(WorkerError, match=r"in this process.* raised EnvError: .*the simulator fell over") as info,
    ):
        collect(sampler, 5)
    assert isinstance(info.value.__cause__, EnvError)
    assert isinstance(info.value.__cause__.__cause__, ZeroDivisionError)
    monkeypatch.setattr(FragileEnv, "steps", 0)
    monkeypatch.setattr(FragileEnv, "fails", True)
    with running(kind, random_agent(), FragileEnv, restart_workers=1, **options) as sampler:
        batches = collect(sampler, 5)
        assert sampler.diagnostics()["WorkerRestarts"] == 1
        assert sum(int(samples.env.truncated.sum()) for samples, _ in batches) >= 1


class StoppingEnv(CountingEnv):
    """Is interrupted by Ctrl-C in one step, when it is armed."""

    armed = False

    def step(self, action: Any) -> Any:
        if StoppingEnv.armed and self.t == 2:
            StoppingEnv.armed = False
            raise KeyboardInterrupt
        return super().step(action)


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_ctrl_c_is_raised_as_it_is_and_the_worker_is_lost(kind, monkeypatch):
    with running(kind, random_agent(), StoppingEnv, start_method="here", T=4, B=4) as sampler:
        monkeypatch.setattr(StoppingEnv, "armed", True)
        with pytest.raises(KeyboardInterrupt):
            collect(sampler, 9)
        with pytest.raises(WorkerError, match=r"in this process\) raised KeyboardInterrupt"):
            collect(sampler, 1)


def test_action_servers_do_not_pin_this_process():
    cores = psutil.Process().cpu_affinity()
    servers = [dict(master_cpus=cores[:1], workers_cpus=cores[:1])] * 2
    with running("gpu2", random_agent(), start_method="here", servers=servers):
        assert psutil.Process().cpu_affinity() == cores
