"""Acting in bfloat16: the weights are cast once a batch, and again after they have changed."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlpyt.agents import CategoricalPgAgent, DqnAgent, PgAgent, PqnAgent, QpgAgent
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.arrays import buffer_leaves, torchify_buffer
from rlpyt.utils.compute import ComputeSettings
from tests.agents.agent_kinds import ONE_OF_A_KIND, Sampled, make_agent, random_inputs, spaces_of
from tests.pairs import crossed

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


def assert_float32(tree: Any) -> None:
    """Hold numbers to float32, and to digits that bfloat16 has not."""
    for leaf in buffer_leaves(tree):
        assert leaf.dtype == torch.float32
        if leaf.any():  # log_std of a new Gaussian policy is 0
            assert not torch.equal(leaf, leaf.bfloat16().float())


@pytest.mark.parametrize(("kind", "mode"), crossed(ONE_OF_A_KIND, ["sample", "eval"], strength=1))
def test_what_an_agent_acts_and_learns_by_is_float32(kind, mode):
    """Q-values, values, distribution parameters, recurrent states, in training's environments and in evaluation's."""
    agent, inputs = make_agent(kind), torchify_buffer(random_inputs(spaces_of(kind), 5))
    agent.to_device(ComputeSettings(precision="bfloat16"))
    sampled = Sampled(agent, 5, seed=1, n_eval=5)
    (sampled.begin if mode == "sample" else sampled.begin_evaluation)(1)
    outputs: list[Any] = []
    q_values: Any = agent.q_values if isinstance(agent, DqnAgent) else None

    def watched(output: Any) -> torch.Tensor:
        outputs.append(output)
        return q_values(output)

    if q_values is not None:
        agent.head.read = watched
    with agent.autocast():
        sampled.step(*inputs)  # the recurrent state before the first step is zero
        info = sampled.step(*inputs).agent_info
        assert_float32(info)
        if isinstance(agent, PgAgent):
            assert_float32(sampled.value(*inputs))
    if q_values is not None:
        q = q_values(outputs[-1])
        assert torch.equal(info.value, q.amax(-1)) if isinstance(agent, PqnAgent) else torch.equal(info.q, q)
    if isinstance(agent, QpgAgent):
        agent.train_mode(0)
        rows, target_rows = agent.features(*inputs), agent.target_features(*inputs)
        actions = torch.rand(5, agent.distribution.dim) * 2 - 1
        assert_float32(agent.pi(rows))
        assert_float32((agent.q(rows, actions), agent.first_q(rows, actions), agent.target_q(target_rows, actions)))
