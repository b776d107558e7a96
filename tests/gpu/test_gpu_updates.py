"""Updates on a GPU: every algorithm's are those of the CPU, wait for nothing, and are saved from one to the other."""

from __future__ import annotations

import io
from contextlib import nullcontext
from inspect import signature
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from rlpyt.algos import OffPolicyAlgo
from rlpyt.utils.compute import ComputeSettings
from tests.algos.small_problems import batches, optimize, set_up
from tests.gpu.gpu_kit import CASES, OF_EVERY_FAMILY, assert_close, devices_of, tensors_in

pytestmark = pytest.mark.gpu
N = 5


def wired(case: str, device: str, seed: int = 0, n: int = N, **settings: Any) -> tuple[Any, Any, Any]:
    """Return algorithm, agent and sampler; the weights follow the seed, wherever they lie."""
    algo, agent, (EnvCls, env_kwargs) = CASES[case]()
    settings = {"device": device, **settings}
    return (
        algo,
        agent,
        set_up(algo, agent, EnvCls, env_kwargs, n_itr=n, seed=seed, settings=ComputeSettings(**settings)),
    )


def learned(case: str, device: str, collected: list[Any], **settings: Any) -> tuple[Any, Any, list[Any]]:
    algo, agent, _ = wired(case, device, **settings)
    return algo, agent, [optimize(algo, itr, samples) for itr, samples in enumerate(collected)]


@pytest.mark.parametrize("case", CASES)
def test_updates_are_those_of_the_cpu(case, device):
    collected = batches(wired(case, "cpu")[2], N)
    algo, agent, metrics = learned(case, "cpu", collected)
    other_algo, other_agent, other_metrics = learned(case, device, collected)
    assert other_algo.update_counter == algo.update_counter > 0
    for one, other in zip(metrics, other_metrics, strict=True):
        assert one.keys() == other.keys()
        assert_close(tuple(one.values()), tuple(other.values()), 2e-3)
    for one, other in zip(agent.networks.modules(), other_agent.networks.modules(), strict=True):
        assert_close(tuple(one.state_dict().values()), tuple(other.state_dict().values()), 2e-3)
    kind = torch.device(device).type
    assert all(devices_of(tuple(m.values())) <= {kind} for m in other_metrics)
    assert {p.device.type for module in other_agent.networks.modules() for p in module.parameters()} == {kind}


@pytest.mark.parametrize("case", CASES)
def test_nothing_waits_for_the_device_inside_an_update(case, device, no_waiting, monkeypatch):
    algo, _agent, sampler = wired(case, device)
    collected = batches(sampler, N)
    for itr in range(N - 1):  # constants are copied to the device once
        optimize(algo, itr, collected[itr])
    if isinstance(algo, OffPolicyAlgo):
        original = algo.feed.update_priorities

        def update_priorities(batch: Any, td_abs_error: torch.Tensor, hyper: Any) -> torch.Tensor:
            """Priorities go back to the CPU, where the index is: the one wait of an update, unless they may be late."""
            before = torch.cuda.get_sync_debug_mode() if torch.cuda.is_available() else 0
            if before and algo.prioritized_replay and not algo.feed.draws.may_be_ahead:
                torch.cuda.set_sync_debug_mode("default")
            try:
                return original(batch, td_abs_error, hyper)
            finally:
                if before:
                    torch.cuda.set_sync_debug_mode(before)

        monkeypatch.setattr(algo.feed, "update_priorities", update_priorities)
    updates = algo.update_counter
    with no_waiting():
        optimize(algo, N - 1, collected[-1])
    assert algo.update_counter > updates


IS_OLD = "isolate_recompiles" not in signature(torch.compile).parameters
COMPILED = (
    "A2C", "PPO", "PPO images", "VTrace", "DQN", "DQN images there", "Rainbow", "QRDQN", "DDPG", "SAC",
    "PQN Adam", "CrossQ", "XQC", "SimbaV2", "discrete SAC", "SAC C51", "PPO, normalised, masks", "C51, masks",
    pytest.param("TD3", marks=pytest.mark.xfail(IS_OLD, reason="torch 2.11 generates no code of it for a GPU")),
)  # fmt: skip


@pytest.mark.parametrize("case", COMPILED)
def test_compiled_updates_are_those_of_the_cpu_in_graphs_that_wait_for_nothing(case, device, on_gpu, no_waiting):
    """Here torch's compiler runs for real, which the nightly tests of the CPU do there."""
    if not on_gpu:
        pytest.skip("CUDA graphs need a GPU")
    n = 8
    torch._dynamo.reset()
    counters.clear()
    algo, agent, sampler = wired(case, "cpu", n=n)
    collected = batches(sampler, n)
    for itr, samples in enumerate(collected):
        optimize(algo, itr, samples)
    other_algo, other_agent, _ = wired(case, device, n=n, compile=True)
    for itr, samples in enumerate(collected[:-1]):
        optimize(other_algo, itr, samples)
    # Priorities go back to the CPU; and a minibatch of PPO may have a size that no graph was recorded for.
    with nullcontext() if case in ("Rainbow", "TD3", "PPO") else no_waiting():
        optimize(other_algo, n - 1, collected[-1])
    assert other_algo.compiled.is_on
    assert other_algo.update_counter == algo.update_counter > 0
    assert counters["inductor"]["cudagraph_skips"] == 0
    for one, other in zip(agent.networks.modules(), other_agent.networks.modules(), strict=True):
        assert_close(tuple(one.state_dict().values()), tuple(other.state_dict().values()), 2e-3)


@pytest.mark.parametrize("case", ["PPO", "SAC"])
def test_a_compiled_run_and_an_eager_one_go_on_from_each_other(case, device, on_gpu):
    if not on_gpu:
        pytest.skip("CUDA graphs need a GPU")
    n = 9
    algo, agent, sampler = wired(case, "cpu", n=n)
    collected = batches(sampler, n)
    for itr, samples in enumerate(collected):
        optimize(algo, itr, samples)
    state: Any = None
    for begin in range(0, n, 3):
        other_algo, other_agent, _ = wired(case, device, seed=begin, n=n, compile=begin != 3)
        if state is not None:
            other_algo.load_state_dict(state[0])
            other_agent.load_state_dict(state[1])
        for itr in range(begin, begin + 3):
            optimize(other_algo, itr, collected[itr])
        assert other_algo.compiled.is_on == (begin != 3)
        file = io.BytesIO()
        torch.save((other_algo.state_dict(), other_agent.state_dict()), file)
        file.seek(0)
        state = torch.load(file, map_location="cpu", weights_only=True)
    assert_close(tuple(agent.parameters()), tuple(other_agent.parameters()), 2e-3)


@pytest.mark.parametrize("case", OF_EVERY_FAMILY)
def test_a_state_goes_from_the_device_to_the_cpu_and_back(case, device):
    algo, agent, sampler = wired(case, device)
    collected = batches(sampler, N)
    for itr in range(N - 1):
        optimize(algo, itr, collected[itr])
    file = io.BytesIO()
    torch.save((algo.state_dict(), agent.state_dict()), file)
    file.seek(0)
    states = torch.load(file, map_location="cpu", weights_only=True)
    assert {x.device.type for x in tensors_in(states)} == {"cpu"}
    metrics = []
    for where in ("cpu", device, "cpu"):
        other_algo, other_agent, _ = wired(case, where, seed=1)
        other_algo.load_state_dict(states[0])
        other_agent.load_state_dict(states[1])
        states = other_algo.state_dict(), other_agent.state_dict()
        expected = {"cpu", torch.device(where).type}
        assert {x.device.type for x in tensors_in(states)} <= expected
        assert {x.device.type for x in tensors_in(other_algo.optim_state_dict())} == {torch.device(where).type}
        metrics.append((other_algo, other_agent))
    last = optimize(algo, N - 1, collected[-1])
    for other_algo, other_agent in metrics:
        assert_close(tuple(last.values()), tuple(optimize(other_algo, N - 1, collected[-1]).values()), 2e-3)
        assert_close(tuple(agent.parameters()), tuple(other_agent.parameters()), 2e-3)


@pytest.mark.parametrize("case", ["PPO images", "DQN images", "SAC images"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_other_settings_learn_the_same(case, precision, device):
    """Channels-last is a matter of memory; bfloat16 rounds to three digits, and weights and losses stay float32."""
    collected = batches(wired(case, "cpu")[2], N)
    _, agent, metrics = learned(case, device, collected)
    _, other_agent, other_metrics = learned(case, device, collected, channels_last=True, precision=precision)
    tolerance = 2e-3 if precision == "float32" else 0.1
    assert {p.dtype for p in other_agent.parameters()} == {torch.float32}
    for one, other in zip(metrics, other_metrics, strict=True):
        assert {value.dtype for value in other.values()} <= {torch.float32}
        if precision == "float32":
            assert_close(tuple(one.values()), tuple(other.values()), tolerance)
        assert all(value.isfinite().all() for value in other.values())
    assert_close(tuple(agent.parameters()), tuple(other_agent.parameters()), tolerance)
    weights = [p for p in other_agent.parameters() if p.dim() == 4]
    assert weights
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in weights)
