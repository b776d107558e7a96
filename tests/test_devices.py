"""What would fail or be wrong on a GPU only, shown on a machine without one; `tests/gpu` has what needs one."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import CatDqnAgent, CategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.core import example_inputs
from rlpyt.distributions import Gaussian
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler, evaluate
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.compute import ComputeSettings
from tests.algos.small_problems import RandomEnv, batches, optimize, set_up
from tests.gpu.gpu_kit import ImageEnv

VECTOR, IMAGE = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(0, 255, (1, 12, 12), np.uint8)
SMALL: dict[str, Any] = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_sizes=8)
META = ComputeSettings(device="meta")
"""Another device, where nothing is computed."""


# ---- a device that is not there ----


def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_a_device_of_too_high_a_number_is_refused(monkeypatch):
    two_devices(monkeypatch)
    assert ComputeSettings(device="cuda:1").device == "cuda:1"
    with pytest.raises(
        ValueError, match=r"'cuda:2', but torch sees 2 CUDA devices.*expected one of 'cuda:0' to 'cuda:1'"
    ):
        ComputeSettings(device="cuda:2")


@pytest.mark.parametrize(("cuda_idx", "error"), [(2, ValueError), ("0", TypeError), (True, TypeError), (-1, TypeError)])
def test_a_wrong_cuda_idx_is_refused_before_workers_start(monkeypatch, cuda_idx, error):
    two_devices(monkeypatch)
    parts = PPO(), CategoricalPgAgent(), SerialSampler(RandomEnv, {}, 4, 2)
    with pytest.raises(error, match=f"{cuda_idx}"):
        MinibatchRl(*parts, n_steps=100, affinity=dict(cuda_idx=cuda_idx))
    if error is ValueError:
        MinibatchRl(*parts, n_steps=100, affinity=dict(cuda_idx=cuda_idx), settings=ComputeSettings())


# ---- agents ----


def test_an_agent_that_was_placed_and_did_not_learn_begins_anew_on_the_cpu():
    agent = CategoricalPgAgent()
    agent.initialize(EnvSpaces(VECTOR, spaces.Discrete(3)))
    agent.to_device(META)
    agent.initialize(EnvSpaces(VECTOR, spaces.Discrete(3)))
    actor = agent.actor([0], 1, 0)
    actor.begin(0)
    assert actor.step(*example_inputs(agent.env_spaces)).action.device.type == "cpu"
    assert agent.compute == ComputeSettings()


def test_units_of_actions_are_sent_without_what_lies_on_a_device():
    units = Gaussian.from_space(spaces.Box(np.array([0, -2], np.float32), np.array([4, 2], np.float32)))
    units.encode(torch.zeros(3, 2, device="meta"))
    sent = pickle.loads(pickle.dumps(units))
    assert list(sent._units) == [torch.device("cpu")]
    assert torch.equal(sent.decode(torch.ones(2)), torch.tensor([4.0, 2.0]))


class NotingPickler(pickle.Pickler):
    """Notes the memory of every tensor that is pickled."""

    def reducer_override(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            self.seen.add(x.untyped_storage().data_ptr())
            return int, ()
        return NotImplemented

    seen: set[int]


def test_a_worker_is_sent_no_weights_of_the_network_that_learns():
    """They may be on a device, which every worker would start."""
    agent = CatDqnAgent(model_kwargs=dict(noisy=True, hidden_sizes=8))
    agent.initialize(EnvSpaces(VECTOR, spaces.Discrete(3)))
    agent.give_V_min_max(-1.0, 1.0)
    actor = agent.actor([0, 1], 2, 0)
    actor.begin(0)
    actor.step(*example_inputs(agent.env_spaces, 2))
    agent.step(*example_inputs(agent.env_spaces, 2))  # by hand, too
    pickler = NotingPickler(io.BytesIO())
    pickler.seen = set()
    pickler.dump(vars(agent.acting_copy()))
    assert len(pickler.seen) > 3
    assert not pickler.seen & {p.untyped_storage().data_ptr() for p in agent.parameters()}


class OwnPlain(nn.Module):
    """A model of a user whose last layers are none of the library's: under autocast they give bfloat16."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.heads = nn.Linear(3, 4)

    def forward(self, observation, prev_action, prev_reward):
        out = self.heads(observation)
        return out[..., :3], out[..., 3]


def test_a_model_that_gives_bfloat16_acts_learns_and_is_evaluated():
    algo, agent = PPO(epochs=1), CategoricalPgAgent(ModelCls=OwnPlain)
    sampler = set_up(algo, agent, RandomEnv, settings=ComputeSettings(precision="bfloat16"))
    for itr in range(2):
        samples, _ = sampler.obtain_samples(itr)
        assert samples.agent.bootstrap_value.dtype == torch.float32
        assert samples.agent.bootstrap_value.all()
        metrics = optimize(algo, itr, samples)
    assert all(value.isfinite().all() for value in metrics.values())
    assert len(evaluate(agent, RandomEnv, n_trajectories=2, n_envs=2).traj_infos) == 2


# ---- optimisers ----


@pytest.mark.parametrize("saved_channels_last", [False, True])
def test_the_state_of_an_optimiser_takes_the_memory_format_of_the_weights(saved_channels_last):
    """A GPU run may have chosen channels-last; a fused Adam reads its moments in the order of the memory."""

    def make(channels_last: bool) -> tuple[PPO, CategoricalPgAgent, Any]:
        algo, agent = PPO(epochs=2, minibatches=2), CategoricalPgAgent(model_kwargs=SMALL)
        sampler = set_up(algo, agent, ImageEnv, settings=ComputeSettings(channels_last=channels_last))
        return algo, agent, sampler

    algo, agent, sampler = make(saved_channels_last)
    first, second = batches(sampler, 2)
    optimize(algo, 0, first)
    others = []
    for channels_last in (False, True):
        other, other_agent, _ = make(channels_last)
        other.load_state_dict(algo.state_dict())
        other_agent.load_state_dict(agent.state_dict())
        optimize(other, 1, second)
        others.append([p.detach() for p in other_agent.parameters()])
        assert all(
            x.stride() == p.stride()
            for p, state in other.optimizer.state.items()
            for x in state.values()
            if x.shape == p.shape
        )
    for one, other in zip(*others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
