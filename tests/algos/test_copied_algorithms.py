"""A copy of algorithm and agent, made in the middle of a run, goes on as they do and shares nothing with them."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from copy import deepcopy
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch

from rlpyt.utils.arrays import buffer_leaves
from tests.algos.small_problems import batches, optimize
from tests.gpu.gpu_kit import CASES, OF_EVERY_FAMILY
from tests.gpu.test_gpu_updates import N, wired
from tests.pairs import others_nightly


def pickled(parts: Any) -> Any:
    return pickle.loads(pickle.dumps(parts))


def acted(agent: Any, samples: Any) -> list[torch.Tensor]:
    """Return the action at rows of a batch, and what the agent records of it."""
    agent.sample_mode(N)
    actor = agent.actor([0, 1, 2, 3], 4, seed=5)
    actor.begin(N)
    inputs = samples.env.observation[0], samples.agent.prev_action[0], samples.env.prev_reward[0]
    return [leaf.clone() for leaf in buffer_leaves(actor.step(*inputs))]


def of_library(root: Any) -> set[str]:
    """Return the rooms of the library whose objects one keeps alive, but for classes, modules and what these hold."""
    found, rest = {id(root): root}, [root]
    while rest:
        for x in gc.get_referents(rest.pop()):
            if id(x) not in found and not isinstance(x, type | ModuleType | FunctionType):
                found[id(x)] = x
                rest.append(x)
    return {type(x).__module__.split(".")[1] for x in found.values() if type(x).__module__.startswith("rlpyt.")}


OF_THE_SUITE = [(case, (deepcopy, pickled)[i % 2]) for i, case in enumerate((*OF_EVERY_FAMILY, "VTrace", "IQN GRU"))]


@pytest.mark.parametrize(
    ("case", "copy_of"), others_nightly([(case, copy) for case in CASES for copy in (deepcopy, pickled)], OF_THE_SUITE)
)
def test_a_copy_learns_and_acts_as_the_original_does(case: str, copy_of: Callable[[Any], Any]) -> None:
    algo, agent, sampler = wired(case, "cpu")
    collected = batches(sampler, N)
    for itr in range(N - 1):
        optimize(algo, itr, collected[itr])
    assert algo.update_counter > 0
    copied_agent, copy = copy_of((agent, algo))  # and in the other order
    rest, rest_agent = copy_of((algo, agent))
    alone, before = copy_of(agent), [x.clone() for x in agent.parameters()]
    metrics = [optimize(each, N - 1, collected[-1]) for each in (algo, copy)]
    for name, value in metrics[0].items():
        assert torch.equal(value, metrics[1][name]), name
    weights = [list(each.parameters()) for each in (agent, copied_agent, rest_agent, alone)]
    assert all(map(torch.equal, weights[0], weights[1]))
    for unchanged in weights[2:]:
        assert all(map(torch.equal, unchanged, before)), "the rest has learned nothing"
    assert not all(map(torch.equal, weights[0], before))
    assert rest.update_counter < copy.update_counter == algo.update_counter
    assert all(map(torch.equal, acted(agent, collected[-1]), acted(copied_agent, collected[-1])))
    optimize(rest, N - 1, collected[-1])
    assert rest_agent.fraction == copied_agent.fraction == agent.fraction
    rooms = of_library(alone)
    assert "agents" in rooms
    assert not rooms & {"algos", "replays"}, "an agent alone takes no replay along"
