"""Acting in bfloat16: the weights are cast once a batch, and again after they have changed."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.compute import ComputeSettings
from tests.agents.agent_kinds import Sampled

B = 2


def acting_agent() -> tuple[Any, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    agent = CategoricalPgAgent(model_kwargs=dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_sizes=8))
    image = gymnasium.spaces.Box(0, 255, (1, 12, 12), np.uint8)
    agent.initialize(EnvSpaces(image, gymnasium.spaces.Discrete(3)))
    agent.to_device(ComputeSettings(precision="bfloat16", channels_last=True))
    sampled = Sampled(agent, B)
    sampled.begin(0)
    observation = torch.randint(0, 256, (B, 1, 12, 12), dtype=torch.uint8)
    return sampled, (observation, torch.zeros(B, dtype=torch.int64), torch.zeros(B))


def casts(agent: Any, inputs: tuple[torch.Tensor, ...], steps: int) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, agent.autocast():
        for _ in range(steps):
            agent.step(*inputs)
    return sum(event.count for event in profile.key_averages() if event.key == "aten::_to_copy")


def test_weights_are_cast_once_in_a_batch():
    agent, inputs = acting_agent()
    casts(agent, inputs, 1)
    # A step casts its inputs, and the first convolution's scaled weights; the first one the other weights too.
    first, five = casts(agent, inputs, 1), casts(agent, inputs, 5)
    each = (five - first) / 4
    assert each < first
    assert five == first + 4 * each


def test_an_update_between_batches_is_seen_and_training_after_acting_has_gradients():
    agent, inputs = acting_agent()
    with agent.autocast():
        before = agent.step(*inputs).agent_info.value
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.mul_(1.5)
    with agent.autocast():
        assert not torch.allclose(before, agent.step(*inputs).agent_info.value, rtol=0.05)
    agent.train_mode(0)
    agent(*inputs)[1].sum().backward()
    assert all(p.grad is not None for name, p in agent.model.named_parameters() if "policy" not in name)
