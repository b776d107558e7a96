"""Weights in shared memory: what is published is what a copy acts with, whatever the module's state holds."""

from __future__ import annotations

import copy
import os
import pickle
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from rlpyt.agents import DqnAgent
from rlpyt.envs import make_env
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.utils.shared_memory import dumps
from tests.agents.acting_copies import Elsewhere
from tests.toy_envs import CountingEnv


class Counted(nn.Module):
    """Keeps a number that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.state: Any = {"count": 1}

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        self.state = state


def agent_of(module: nn.Module, **kept: Any) -> Any:
    """Return what a store needs of an agent that acts by a module."""
    networks = SimpleNamespace(acting_modules=lambda: module)
    return SimpleNamespace(networks=networks, device=torch.device("cpu"), **kept)


def shared(module: nn.Module) -> tuple[Any, Any, Any]:
    """Return how the master publishes and how a worker takes, and the worker's copy of the module."""
    agent = agent_of(module)
    store = WeightStore(agent)
    theirs: WeightStore = pickle.loads(dumps(store))  # this process is the other one too
    clone = copy.deepcopy(module)
    with torch.no_grad():
        for tensor in clone.state_dict().values():
            if isinstance(tensor, torch.Tensor):
                tensor.zero_()
    acts = agent_of(clone)
    store.publish(agent)
    theirs.take(acts)
    return lambda: store.publish(agent), lambda: theirs.take(acts), clone


def assert_same_state(a: nn.Module, b: nn.Module) -> None:
    for (name, x), (_, y) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        assert torch.equal(x, y), name
        assert (x.dtype, x.stride()) == (y.dtype, y.stride()), name


def test_parameters_and_buffers_are_those_that_were_published_last():
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    publish, _, clone = shared(module)
    assert_same_state(module, clone)
    with torch.no_grad():
        for i, tensor in enumerate(module.state_dict().values()):
            tensor.fill_(i + 7)
    before = copy.deepcopy(clone)
    assert_same_state(clone, before)  # not before they are published
    publish()
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
    assert WeightStore(agent_of(module)) is not None


def test_extra_state_is_taken_over_when_it_has_changed():
    assert shared(Counted())[2].state == {"count": 1}, "of the root, too"
    module: Any = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Counted()), Counted())
    publish, take, clone = shared(module)
    module[2].state = torch.arange(3)
    module[1][0].state["count"] = 5
    publish()
    take()
    assert clone[1][0].state == {"count": 5}
    assert clone[2].state.tolist() == [0, 1, 2]
    clone[2].state = "mine"
    publish()
    take()
    assert clone[2].state == "mine", "it had not changed"
    module[2].state = bytes(2**18)
    with pytest.raises(RuntimeError, match=r"its extra state .* take .* bytes, and had room to grow"):
        publish()


def test_what_a_worker_counts_itself_is_left_alone_while_other_attributes_change():
    agent, theirs = agent_of(Counted()), agent_of(Counted())
    agent.n_steps, agent.greedy = 0, np.bool_(False)
    store = WeightStore(agent)
    taken: WeightStore = pickle.loads(dumps(store))
    for n in (1, 2):
        agent.greedy = np.bool_(n == 2)
        store.publish(agent)
        taken.take(theirs)
        theirs.n_steps += 1
        theirs.networks.acting_modules().state["count"] += 1
        assert (theirs.n_steps, theirs.networks.acting_modules().state["count"], theirs.greedy) == (n, 1 + n, n == 2)


def test_however_many_tensors_there_are_they_take_a_few_descriptors():
    module = nn.ModuleList([nn.Linear(1, 1) for _ in range(100)])
    before = len(os.listdir("/proc/self/fd"))
    weights = WeightStore(agent_of(module))
    assert len(os.listdir("/proc/self/fd")) - before <= 6
    assert weights is not None


def test_numbers_of_an_agent_may_have_any_name():
    class Counting(DqnAgent):
        kept_numbers: ClassVar = {**DqnAgent.kept_numbers, "half": 1, "seen.first": 2}

    agent = Counting(model_kwargs={"hidden_sizes": 4})
    agent.initialize(make_env(CountingEnv, {}).spaces)
    other = Elsewhere(agent)
    agent.numbers["half"][:], agent.numbers["seen.first"][1] = 0.5, 3
    other.publish()
    assert other.agent.numbers["half"] == 0.5
    assert other.agent.numbers["seen.first"].tolist() == agent.state_dict()["seen.first"] == [0, 3]


def test_weights_are_copied_where_they_cannot_be_shared():
    """Several versions are, and those of an agent on another device."""
    agent = DqnAgent(model_kwargs={"hidden_sizes": 4})
    agent.initialize(make_env(CountingEnv, {}).spaces)
    one, several = Elsewhere(agent), Elsewhere(agent, 2)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(1.0)
    one.publish()
    several.publish()
    same = [
        all(torch.equal(x, y) for x, y in zip(other.agent.acting.parameters(), agent.parameters(), strict=True))
        for other in (one, several)
    ]
    assert same == [True, False]
    several.take()
    assert all(torch.equal(x, y) for x, y in zip(several.agent.acting.parameters(), agent.parameters(), strict=True))
