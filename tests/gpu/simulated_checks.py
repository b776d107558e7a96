"""Updates and actions on a device that is as strict as a GPU and needs none; see `tests/gpu/simulated.py`.

`tests/test_simulated_device.py` runs this in a process of its own; or `RLPYT_TEST_DEVICE=cpu pytest FILE`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlpyt.agents import actor
from rlpyt.algos import PPO
from rlpyt.replays.reading import Sequences
from rlpyt.samplers import DeviceSampler
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import Places, Run
from rlpyt.utils.arrays import buffer_func, torchify_buffer
from rlpyt.utils.compute import ComputeSettings
from tests.agents.agent_kinds import KINDS, make_agent, random_inputs, spaces_of
from tests.algos.small_problems import batches, optimize
from tests.batched_envs import CartPole
from tests.gpu.gpu_kit import CASES, assert_close, devices_of
from tests.gpu.test_gpu_acting import acted
from tests.gpu.test_gpu_updates import wired
from tests.replays import test_device_replay as device_replay_kit
from tests.samplers.test_device_sampler import Greedy

try:
    from tests.gpu.simulated import NAME, SimulatedDevice, content_of
except ImportError as error:
    pytest.skip(f"torch {torch.__version__} has no devices in Python: {error}", allow_module_level=True)


N = 3
LEFT_OUT = {"A2C LSTM", "DQN images there ahead", "SimBa"}
UPDATES = [case for case in CASES if case not in LEFT_OUT and not case.endswith("masks")]
"""All that differ in what an update does. The device does not exist in other threads."""
TO_CPU = "priority.cpu())", 'x.to("cpu", non_blocking=x.is_cuda, copy=True)'


@pytest.mark.parametrize("case", UPDATES)
def test_updates_meet_no_other_device_and_wait_for_nothing(case):
    """Priorities go back to the CPU, where the index is: the one wait of an update, where it has any.

    Late ones are copied there without a wait from a CUDA device, and with one from this device.
    """
    collected = batches(wired(case, "cpu")[2], N)
    algo, agent, _ = wired(case, "cpu")
    metrics = [optimize(algo, itr, samples) for itr, samples in enumerate(collected)]
    with SimulatedDevice() as device:
        other_algo, other_agent, _ = wired(case, f"{NAME}:0")
        other_metrics = []
        for itr, samples in enumerate(collected):
            device.waits.clear()
            other_metrics.append(optimize(other_algo, itr, samples))
        assert {p.device.type for p in other_agent.parameters()} == {NAME}
        assert devices_of(tuple(other_metrics[-1].values())) == {NAME}
    priorities = [line for _, line in device.waits if line.endswith(TO_CPU)]
    assert len(priorities) == len(device.waits), device.waits
    assert bool(priorities) == getattr(algo, "prioritized_replay", False)
    for one, other in zip(metrics, other_metrics, strict=True):
        assert_close(tuple(one.values()), tuple(map(content_of, other.values())), 1e-5)
    assert_close(tuple(agent.parameters()), tuple(content_of(p) for p in other_agent.parameters()), 1e-5)


def test_a_replay_on_the_device_is_read_there():
    collected = batches(wired("DQN images", "cpu")[2], N)
    drawn = []
    for case, where in (("DQN images", "cpu"), ("DQN images there", f"{NAME}:0")):
        with SimulatedDevice() as device:
            algo, _, _ = wired(case, where)
            for itr, samples in enumerate(collected):
                algo.append(itr, samples)
            if where != "cpu":
                algo.replay.storage._observations.flat[:] = 0
            assert "replay_on_device" not in algo.plan()
            device.waits.clear()
            batch = algo.feed.sample_batch()
            assert not device.waits
        assert devices_of(batch._replace(places=None)) == {torch.device(where).type}
        drawn.append(buffer_func((batch.agent_inputs, batch.target_inputs), content_of))
    assert_close(drawn[0], drawn[1], 0.0)


def acted_by_copy(kind: str, device: str) -> Any:
    """Return what a worker's copy on a device gives after the weights have changed twice."""
    agent = make_agent(kind)
    copy = agent.acting_copy()
    weights = WeightStore(copy)
    copy.to_device(ComputeSettings(device=device))
    steps: list[Any] = []
    for t in range(2):
        for parameter in agent.parameters():
            parameter.data.mul_(1.25)
        weights.publish(agent)
        weights.take(copy)
        actor = copy.actor([1, 2, 3], 4, seed=3)
        actor.begin(t)
        steps.append(actor.step(*torchify_buffer(tuple(random_inputs(spaces_of(kind), 3, seed=t)))))
    assert {p.device.type for p in copy.acting.parameters()} == {torch.device(device).type}
    return buffer_func(tuple(steps), torch.clone)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("act", [acted, acted_by_copy], ids=["agent", "copy in an action server"])
def test_agents_act_as_on_the_cpu_and_give_what_the_cpu_can_read(kind, act):
    expected = act(kind, "cpu")
    with SimulatedDevice():
        steps = act(kind, f"{NAME}:0")
    assert devices_of(steps) == {"cpu"}
    assert_close(steps, expected, 1e-5)


def test_the_device_is_strict():
    with SimulatedDevice() as device:
        x, index = torch.ones(3).to(NAME), torch.tensor([0, 1])
        device.waits.clear()
        (x + 1).sum() * torch.tensor(2.0)
        x[torch.tensor([0, 1]).to(NAME, non_blocking=True)]
        assert not device.waits
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(3)
        with pytest.raises(RuntimeError, match="generator"):
            x.normal_(generator=torch.Generator())
        for wait in (x.sum().item, x.cpu, lambda: x[index], lambda: x[x > 0], lambda: torch.tensor(1.0, device=NAME)):
            device.waits.clear()
            wait()
            assert device.waits


@pytest.mark.parametrize("case", ["final_obs", "final_observation", "reset_mask", "lost", "LSTM"])
def test_a_simulator_is_stepped_without_a_wait(case, monkeypatch):
    """Inside a batch nothing waits. After it two waits tell which episodes have ended, and one copy brings the rest."""
    # The device has no random streams, so that the actions are those that need none.
    monkeypatch.setattr(actor, "torch_generator", lambda seed, role, index, device: torch.Generator())
    recurrent = "LSTM" if case == "LSTM" else False
    results = []
    for where in ("cpu", f"{NAME}:0"):
        with SimulatedDevice() as device:
            dialect = "final_obs" if recurrent else case
            kwargs = dict(dialect=dialect, limit=7, device=where)
            ends = "last_observation" if case == "lost" else "auto"
            sampler = DeviceSampler(CartPole, kwargs, 16, 5, ends=ends)
            torch.manual_seed(0)
            agent = Greedy(recurrent=recurrent and "lstm", model_kwargs=dict(hidden_sizes=8))
            run = Run(batch_spec=sampler.batch_spec, seed=0, bootstrap_value=True, final_rows=False)
            sampler.initialize(agent, run)
            agent.to_device(ComputeSettings(device=where))
            algo = PPO(epochs=1, minibatches=1 if recurrent else 2)
            algo.initialize(agent, run)
            for itr in range(2):
                device.waits.clear()
                samples, infos = sampler.obtain_samples(itr)
                waits = [line for _, line in device.waits]
                metrics = optimize(algo, itr, samples)
            assert len(infos) > 5
            if where != "cpu":
                assert len(waits) == 3, waits
                assert all("nonzero()" in line for line in waits[:2])
                assert ".cpu()" in waits[2]
                assert devices_of(samples.env._replace(valid=None)) == {NAME}
            values = [samples.agent.final_value, *metrics.values()]
            results.append(([content_of(x).clone() for x in values], [info.Length for info in infos]))
    assert results[0][1] == results[1][1]
    assert_close(tuple(results[0][0]), tuple(results[1][0]), 1e-5)


@pytest.mark.parametrize("lengths", [None, Sequences(4, 2, 3, 2)], ids=["transitions", "sequences"])
def test_a_replay_of_a_simulator_waits_when_it_is_appended_to(lengths):
    """Once, for the number of truncated episodes; and for sequences when it is read, for where episodes start.

    It draws by a stream of the device, which there is none of here.
    """
    batches = []
    for where in ("cpu", f"{NAME}:0"):
        with SimulatedDevice() as device:
            replay = device_replay_kit.make(3, 20, torch.device(where), alpha=0.6, sequences=lengths)
            all_rows = buffer_func(device_replay_kit.rows(30), torch.Tensor.to, where)
            for n in range(0, 30, 5):
                device.waits.clear()
                replay.append_samples(all_rows[n : n + 5])
            if where != "cpu":
                assert ["nonzero()" in line for _, line in device.waits] == [True]
            t, b = (x.to(where) for x in (torch.arange(12, 22, 2), torch.arange(5) % 3))
            device.waits.clear()
            batch = replay._read(t, b, None) if lengths is None else replay._read_sequences(t, b, None, lengths)
            replay.update_priorities(Places(t, b), batch.return_.flatten()[:5].abs())
            assert [".cpu()" in line for _, line in device.waits] == [True] * (lengths is not None and where != "cpu")
        batches.append(buffer_func((batch, replay._priorities), content_of))
    assert_close(batches[0], batches[1], 1e-6)
