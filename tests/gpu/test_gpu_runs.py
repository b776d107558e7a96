"""Whole runs on a GPU, the settings chosen for it, and copies to and from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, DqnAgent, RecurrentCategoricalPgAgent
from rlpyt.core import example_inputs
from rlpyt.logging import load_snapshot
from rlpyt.runners import MinibatchRl, MinibatchRlEval
from rlpyt.runners.compute_choice import settings_by_rule
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arrays import buffer_to
from rlpyt.utils.device_copy import CopyToCpu, CopyToDevice
from tests.gpu.gpu_kit import CASES, CONV, tensors_in
from tests.runners.runner_kit import make_sampler, rows_of, run, status_of
from tests.toy_envs import CountingEnv

pytestmark = pytest.mark.gpu
IMAGE = spaces.Box(0, 255, (2, 12, 12), np.uint8)


def affinity_of(device: str) -> dict[str, Any]:
    """Return what names the device to a runner."""
    index = torch.device(device).index
    return {} if index is None else {"cuda_idx": index}


@pytest.fixture(autouse=True)
def _threads_stay():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("algo", "kind", "Runner"),
    [
        ("ppo", "serial", MinibatchRl),
        ("ppo lstm", "alternating2", MinibatchRlEval),
        ("dqn", "cpu2", MinibatchRlEval),
        ("dqn", "gpu2", MinibatchRl),
    ],
)
def test_a_run_goes_to_its_end_and_leaves_its_files(algo, kind, Runner, device, tmp_path):
    evaluation = dict(eval_n_envs=2, eval_max_trajectories=2) if Runner is MinibatchRlEval else {}
    runner = run(tmp_path, algo, make_sampler(kind, **evaluation), Runner, affinity=affinity_of(device), settings=None)
    assert {p.device.type for p in runner.agent.parameters()} == {torch.device(device).type}
    assert status_of(tmp_path)["status"] == "finished"
    rows = rows_of(tmp_path)
    assert [row["Diagnostics/CumSteps"] for row in rows][-1] == "100"
    assert all(np.isfinite(float(rows[-1][name])) for name in ("lossAverage", "gradNormAverage"))
    snapshot = load_snapshot(tmp_path / "run_0" / "params.pkl")
    assert {x.device.type for x in tensors_in(snapshot)} == {"cpu"}
    assert all(x.isfinite().all() for x in tensors_in(snapshot["agent_state_dict"]["model"]))
    runner.agent.load_state_dict(snapshot["agent_state_dict"])


# ---- settings ----


@pytest.mark.parametrize("AgentCls", [CategoricalPgAgent, RecurrentCategoricalPgAgent, DqnAgent])
def test_settings_are_chosen_for_the_device(AgentCls, device):
    recurrent = {"rnn_size": 8} if AgentCls.recurrent else {}
    agent = AgentCls(model_kwargs={**CONV, **recurrent})
    agent.initialize(EnvSpaces(IMAGE, spaces.Discrete(3)))
    settings = settings_by_rule(agent, Affinity.from_mapping(affinity_of(device)))
    assert (settings.device, settings.channels_last, settings.precision) == (device, True, "float32")
    agent.to_device(settings)
    actor = agent.actor([0, 1], 2, 0)
    actor.begin(0)
    assert actor.step(*example_inputs(agent.env_spaces, 2)).action.device.type == "cpu"


def test_a_device_that_is_not_there_is_refused_before_workers_start(on_gpu):
    n = torch.cuda.device_count() if on_gpu else 0
    algo, agent, _ = CASES["A2C"]()
    message = f"sees {n} CUDA devices" if on_gpu else "sees no CUDA device"
    with pytest.raises(ValueError, match=message):
        MinibatchRl(algo, agent, make_sampler("cpu2"), n_steps=100, affinity=dict(cuda_idx=n))


# ---- copies ----


def test_what_comes_from_the_device_has_arrived(device, on_gpu):
    ones = torch.ones(1 << 20, device=device)
    for value in range(2, 6):
        if on_gpu:
            torch.cuda._sleep(100_000_000)
        assert (buffer_to(ones * value, "cpu") == value).all()


def test_what_goes_to_the_device_may_be_overwritten_at_once(device, on_gpu):
    """A sampler writes its batch again while the last update may still be under way."""
    if not on_gpu:
        pytest.skip("on the CPU nothing is copied")
    for n in (1 << 8, 1 << 14, 1 << 24):  # small copies and large ones take different ways
        source = torch.zeros(n)
        torch.cuda._sleep(100_000_000)
        copied = buffer_to(source, device)
        source.fill_(1.0)
        assert not copied.any()


def test_a_batch_is_copied_beside_what_the_device_computes(device, on_gpu, no_waiting):
    """The CPU does not wait, the copy does not wait for the device, and what reads it waits for the copy."""
    source = torch.arange(1 << 22, dtype=torch.float32)
    CopyToDevice((source,), torch.device(device)).arrived()  # pins memory
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000_000)
        before = torch.cuda.current_stream().record_event()
    with no_waiting():
        copy = CopyToDevice((source,), torch.device(device))
        if on_gpu:
            assert copy._event is not None
            copy._event.synchronize()
            assert not before.query(), "the copy has waited for what was queued before it"
        (there,) = copy.arrived()
        back = CopyToCpu(there + 1)
    assert (back.arrived() == source + 1).all()


def test_numbers_of_a_run_do_not_depend_on_what_else_the_device_does(device, on_gpu, tmp_path):
    """Twice the same run, once beside other work on the GPU: a copy that is read too early would show."""
    results = []
    for busy in (False, True):
        if busy and on_gpu:
            torch.cuda._sleep(1_000_000_000)
        sampler = make_sampler("gpu2", CountingEnv)
        run(tmp_path / str(busy), "dqn", sampler, affinity=affinity_of(device), settings=None)
        rows = rows_of(tmp_path / str(busy))
        results.append([(row["ReturnAverage"], row["LengthAverage"], row["Diagnostics/CumUpdates"]) for row in rows])
    assert results[0] == results[1]
