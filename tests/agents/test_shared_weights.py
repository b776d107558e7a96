"""Weights in shared memory: what is published is what a copy acts with, whatever the module's state holds."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from rlpyt.agents import CategoricalPgAgent, DqnAgent
from rlpyt.agents.shared_weights import SharedWeights
from rlpyt.envs import make_env
from rlpyt.types import TrajInfo
from rlpyt.utils.shared_memory import dumps
from tests.samplers.sampler_kit import running
from tests.toy_envs import N_ACTIONS, CountingEnv


class Counted(nn.Module):
    """Keeps a number that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.state: Any = {"count": 1}

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        self.state = state


def shared(module: nn.Module) -> tuple[SharedWeights, SharedWeights, Any]:
    """Return the weights as the master and as a worker have them, and the worker's copy of the module."""
    weights = SharedWeights(module)
    theirs = pickle.loads(dumps(weights))  # this process is the other one too
    clone = copy.deepcopy(module)
    with torch.no_grad():
        for tensor in clone.state_dict().values():
            if isinstance(tensor, torch.Tensor):
                tensor.zero_()
    theirs.attach(clone)
    return weights, theirs, clone


def assert_same_state(a: nn.Module, b: nn.Module) -> None:
    for (name, x), (_, y) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        assert torch.equal(x, y), name
        assert (x.dtype, x.stride()) == (y.dtype, y.stride()), name


def test_parameters_and_buffers_are_those_that_were_published_last():
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    weights, _, clone = shared(module)
    assert_same_state(module, clone)
    with torch.no_grad():
        for i, tensor in enumerate(module.state_dict().values()):
            tensor.fill_(i + 7)
    before = copy.deepcopy(clone)
    assert_same_state(clone, before)  # not before they are published
    weights.publish(module)
    assert_same_state(module, clone)
    assert clone[1].running_mean.tolist() == [11, 11]


def test_tensors_of_all_kinds_are_shared():
    module = nn.Module()
    kinds = (torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64)
    for i, dtype in enumerate(kinds):
        module.register_buffer(f"b{i}", torch.ones(3, dtype=dtype))
    module.register_buffer("scalar", torch.tensor(3))
    module.register_buffer("empty", torch.zeros(0, 4))
    images = torch.randn(2, 3, 4, 4)
    module.register_buffer("channels_last", images.to(memory_format=torch.channels_last))
    module.register_buffer("transposed", images[0, 0].t())
    module.weight = module.tied = nn.Parameter(torch.randn(5))
    _, _, clone = shared(module)
    assert_same_state(module, clone)
    assert clone.weight is clone.tied
    module.register_buffer("expanded", torch.ones(1).expand(3))
    assert SharedWeights(module) is not None


def test_extra_state_is_taken_over_when_it_has_changed():
    module: Any = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Counted()), Counted())
    weights, theirs, clone = shared(module)
    module[2].state = torch.arange(3)
    module[1][0].state["count"] = 5
    weights.publish(module)
    theirs.attach(clone)
    assert clone[1][0].state == {"count": 5}
    assert clone[2].state.tolist() == [0, 1, 2]
    clone[2].state = "mine"
    weights.publish(module)
    theirs.attach(clone)
    assert clone[2].state == "mine", "it had not changed"
    module[2].state = bytes(2**18)
    with pytest.raises(RuntimeError, match=r"its extra state .* takes .* bytes, and had room to grow"):
        weights.publish(module)


def test_the_root_may_have_extra_state():
    _, _, clone = shared(Counted())
    assert clone.state == {"count": 1}


def test_however_many_tensors_there_are_they_take_a_few_descriptors():
    module = nn.ModuleList([nn.Linear(1, 1) for _ in range(100)])
    before = len(os.listdir("/proc/self/fd"))
    weights = SharedWeights(module)
    assert len(os.listdir("/proc/self/fd")) - before <= 6
    assert weights is not None


class Telling(Counted):
    """Takes the action, and gives the value, that is the number kept beside its tensors."""

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        number = torch.full(prev_reward.shape, self.state["count"])
        return 1000 * nn.functional.one_hot(number, N_ACTIONS).float(), number.float()


class Acted(TrajInfo):
    """Has the action of its last step."""

    def step(self, observation: Any, action: Any, *rest: Any) -> None:
        super().step(observation, action, *rest)
        self.Action = int(action)


@pytest.mark.parametrize("kind", ["cpu1", "gpu1"])
def test_workers_collect_and_evaluate_with_the_extra_state_of_now(kind):
    agent: Any = CategoricalPgAgent(ModelCls=Telling)
    options: dict[str, Any] = dict(B=1, eval_n_envs=1, eval_max_trajectories=1, TrajInfoCls=Acted)
    options |= {"servers": [{}]} if kind == "gpu1" else {}
    options["start_method"] = "forkserver"
    with running(kind, agent, **options) as sampler:
        for number in (1, 2):
            agent.model.state = {"count": number}
            samples, _ = sampler.obtain_samples(number)
            assert (samples.agent.agent_info.value == number).all()
        agent.model.state = {"count": 0}
        assert [info["Action"] for info in sampler.evaluate_agent(2).traj_infos] == [0]


def test_a_frozen_copy_has_the_weights_and_numbers_that_were_published_to_it():
    """Those of workers, and of a versioned copy, are apart."""
    agent = DqnAgent(model_kwargs={"hidden_sizes": 4})
    agent.initialize(make_env(CountingEnv, {}).spaces)
    frozen, versioned, worker = agent.frozen_copy(), agent.versioned_copy(1), agent.worker_copy()
    theirs, others = (pickle.loads(dumps(x)) for x in (frozen, versioned))  # this process is the other one too
    weight = next(agent.acting.parameters())

    def state(copy: DqnAgent) -> tuple[float, float]:
        return float(next(copy.acting.parameters()).detach().mean()), copy.fraction

    start = state(theirs)
    for number in (1.0, 2.0):
        with torch.no_grad():
            weight.fill_(number)
        agent.anneal_exploration(number / 4)
        agent.sync_shared_memory()
        worker.attach_shared_memory()
        agent.publish_version(int(number))
        others.take_version(int(number))
        assert state(worker) == state(others) == (number, number / 4)
        assert state(theirs) == (start if number == 1 else (1.0, 0.25))
        agent.publish_to(frozen, 7 + int(number))
        theirs.take_version(7 + int(number))
        assert state(theirs) == (number, number / 4)
    with pytest.raises(RuntimeError, match="version 8 of the weights: its block holds version 9"):
        theirs.take_version(8)
