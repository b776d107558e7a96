"""Acting with a network on a GPU: the rows are those of the CPU, through every sampler and with every agent."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from rlpyt.agents import CatDqnAgent, GaussianPgAgent, PgAgent
from rlpyt.core import example_inputs
from rlpyt.samplers import CpuSampler
from rlpyt.utils.arrays import buffer_func, buffer_leaves, torchify_buffer
from rlpyt.utils.compute import ComputeSettings
from tests.agents.agent_kinds import KINDS, make_agent, random_inputs, spaces_of
from tests.gpu.gpu_kit import BOX, CudaWatchEnv, assert_close, devices_of
from tests.samplers.sampler_kit import TWO_OF_EACH, collect, in_order, random_agent, running
from tests.toy_envs import CountingEnv, DictCountingEnv
from tests.vector_toy_envs import CountingVectorEnv

pytestmark = pytest.mark.gpu

CASES: list[tuple[str, Any, bool]] = [
    *((kind, EnvCls, recurrent) for kind in TWO_OF_EACH for EnvCls, recurrent in [(CountingEnv, True)]),
    *((kind, DictCountingEnv, False) for kind in ("serial", "gpu2")),
    *((kind, CountingVectorEnv, False) for kind in ("serial", "halves", "cpu2", "gpu2")),
]


def rows(kind: str, EnvCls: Any, recurrent: bool, device: str) -> tuple[Any, ...]:
    """Return what a sampler collects, an evaluation, and what it collects after its state was taken and set."""
    agent = random_agent(recurrent)
    options: dict[str, Any] = dict(EnvCls=EnvCls, T=4, B=4, eval_n_envs=2, eval_max_trajectories=4)
    options["start_method"] = "forkserver"
    with running(kind, agent, bootstrap_value=True, **options) as sampler:
        agent.to_device(ComputeSettings(device=device))
        first = collect(sampler, 2)
        evaluation = sampler.evaluate_agent(1)
        state: Any = None
        if EnvCls is CountingEnv:
            state = deepcopy(sampler.state_dict())
        again = collect(sampler, 1, first=2)
        if state is not None:
            sampler.load_state_dict(state)
    return first, again, in_order(evaluation.traj_infos), evaluation.steps


@pytest.mark.parametrize(("kind", "EnvCls", "recurrent"), CASES)
def test_every_sampler_gives_the_rows_of_the_cpu(kind, EnvCls, recurrent, device):
    one, other = rows(kind, EnvCls, recurrent, "cpu"), rows(kind, EnvCls, recurrent, device)
    assert one[2:] == other[2:]
    for (samples, infos), (other_samples, other_infos) in zip(one[0] + one[1], other[0] + other[1], strict=True):
        assert infos == other_infos
        assert devices_of(other_samples) == {"cpu"}
        assert_close(samples, other_samples)


@pytest.mark.parametrize("kind", ["gpu2", "alternating4"])
def test_action_servers_on_a_gpu_and_on_the_cpu_give_the_rows_of_one_process(kind, on_gpu):
    batches = []
    for servers in (1, [{"cuda_idx": 0} if on_gpu else {}, {}]):
        agent = random_agent(True)
        with running(
            kind, agent, T=4, B=4, bootstrap_value=True, servers=servers, start_method="forkserver"
        ) as sampler:
            batches.append(collect(sampler, 2))
            for parameter in agent.parameters():
                parameter.data.mul_(1.25)
            batches[-1] += collect(sampler, 2, first=2)
    for (samples, infos), (other_samples, other_infos) in zip(*batches, strict=True):
        assert infos == other_infos
        # Float32 in another process is what the GPU makes of it by default, with convolutions and LSTMs in TF32.
        assert_close(samples, other_samples, 2e-3 if on_gpu else 1e-4)


def acted(kind: str, device: str) -> Any:
    """Return what an agent gives of steps, ends of an episode, a state that is set again, and an evaluation."""
    agent = make_agent(kind)
    agent.to_device(ComputeSettings(device=device))
    actor = agent.actor([1, 2, 3], 4, seed=3)
    actor.begin(1)
    steps: list[Any] = []
    for t in range(3):
        inputs = torchify_buffer(tuple(random_inputs(spaces_of(kind), 3, seed=t)))
        steps.append(actor.step(*inputs))
        if isinstance(agent, PgAgent):
            steps.append(actor.value(*inputs))
        actor.reset_one(1)
    actor.load_state_dict(actor.state_dict())
    steps.append(actor.step(*inputs))
    evaluating = agent.actor([0, 1], 2, seed=3, evaluation=True)
    evaluating.begin(1)
    steps.append(evaluating.step(*(x[:2] for x in inputs)))
    actor.begin(2)
    steps.append(actor.step(*inputs))
    assert {x.device.type for x in buffer_leaves(actor.rnn_state)} <= {torch.device(device).type}
    return buffer_func(tuple(steps), torch.clone)


@pytest.mark.parametrize("kind", KINDS)
def test_every_agent_acts_as_on_the_cpu(kind, device):
    """The noise is drawn on the CPU: the same actions, and the same recurrent and exploration states."""
    steps = acted(kind, device)
    assert devices_of(steps) == {"cpu"}
    assert_close(acted(kind, "cpu"), steps)


def test_workers_never_start_cuda(device):
    """What they are sent holds nothing of the device, after networks and units of actions have been used there."""
    for agent, env_kwargs in (
        (CatDqnAgent(n_atoms=5, model_kwargs=dict(noisy=True, hidden_sizes=8)), {}),
        (GaussianPgAgent(model_kwargs=dict(hidden_sizes=8)), dict(action_space=BOX)),
    ):
        sampler = CpuSampler(CudaWatchEnv, env_kwargs, 3, 2, n_workers=2, env_info_keys=["cuda"])
        try:
            sampler.initialize(agent)
            agent.to_device(ComputeSettings(device=device))
            if isinstance(agent, GaussianPgAgent):
                agent(*(x.to(device) for x in example_inputs(agent.env_spaces, 2)))
            samples, _ = sampler.obtain_samples(0)
            assert not samples.env.env_info.cuda.any()
        finally:
            sampler.shutdown()


def test_weights_that_learn_on_the_device_reach_the_workers(device):
    agent = random_agent()
    with running("cpu2", agent, bootstrap_value=True, T=3, B=2, start_method="forkserver") as sampler:
        agent.to_device(ComputeSettings(device=device))
        before = collect(sampler, 1)[0][0].agent.agent_info.value
        with torch.no_grad():
            for parameter in agent.parameters():
                parameter.zero_()
        after = collect(sampler, 1)[0][0].agent.agent_info.value
    assert before.any()
    assert not after.any()
