"""DQN: its updates against a float64 reference over the raw rows, target network, replay ratio, exploration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.types import Samples
from rlpyt.utils.replicas import Replicas
from tests.algos.reference import Parameters, mlp, sgd_step
from tests.algos.small_problems import (
    RandomEnv,
    check_parameters,
    copied,
    joined,
    optimize,
    parameters64,
    run_of,
    set_up,
)

T, B = 8, 4


@dataclass(kw_only=True, eq=False)
class WatchedDQN(DQN):
    """Keeps what it drew, and the networks that it had before each update."""

    drawn: list[Any] = field(default_factory=list)
    networks: list[tuple[Parameters, Parameters]] = field(default_factory=list)

    def loss(self, batch, hyper):
        agent: Any = self.agent
        target = {k: x.double() for k, x in agent.target_model.state_dict().items()}
        self.drawn.append(batch)
        self.networks.append((parameters64(self.agent), target))
        return super().loss(batch, hyper)


def small_agent(**kwargs: Any) -> DqnAgent:
    return DqnAgent(model_kwargs=dict(hidden_sizes=(16, 16)), **kwargs)


def small_dqn(**kwargs: Any) -> WatchedDQN:
    defaults = dict(
        batch_size=16, replay_size=1000, replay_ratio=2, min_steps_learn=5 * T * B, OptimCls=torch.optim.SGD
    )
    return WatchedDQN(**{**defaults, **kwargs})


def collect_and_learn(algo: DQN, agent: Any, n_itr: int, **kwargs: Any) -> tuple[list[Samples], list[Any]]:
    """Train; return the batches and the metrics of all iterations."""
    sampler = set_up(algo, agent, RandomEnv, n_itr=n_itr, T=T, B=B, **kwargs)
    all_batches, all_metrics = [], []
    for itr in range(n_itr):
        samples = copied(sampler.obtain_samples(itr)[0])
        all_batches.append(samples)
        all_metrics.append(optimize(algo, itr, samples))
    return all_batches, all_metrics


def q(p: Parameters, observation: torch.Tensor) -> torch.Tensor:
    return mlp(p, "head.q", mlp(p, "trunk", observation.double(), torch.relu, hidden_only=True), torch.relu)


def target_of(stream: Samples, t: int, b: int, n: int, discount: float, networks: Any, double: bool) -> float:
    """What Q(row t of environment b) is moved to, summed up from the rows as they were collected."""
    online, target = networks
    total, env = 0.0, stream.env
    for k in range(n):
        total += discount**k * float(env.reward[t + k, b])
        if env.terminated[t + k, b]:
            return total
        if env.truncated[t + k, b]:
            break
    next_observation = env.observation[t + k + 1, b]
    q_target = q(target, next_observation)
    best = q(online if double else target, next_observation).argmax()
    return total + discount ** (k + 1) * float(q_target[best])


def reference_loss(batch: Any, stream: Samples, networks: Any, h: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of the drawn rows, found in the stream by their observations, and the absolute TD errors."""
    deltas = []
    for observation in batch.agent_inputs.observation:
        ((t, b),) = (stream.env.observation == observation).all(-1).nonzero().tolist()
        assert stream.env.valid[t, b]
        y = target_of(stream, t, b, h["n_step_return"], h["discount"], networks, h["double_dqn"])
        deltas.append(y - q(networks[0], observation)[stream.agent.action[t, b]])
    delta = torch.stack(deltas)
    c = h["delta_clip"]
    each = delta**2 / 2 if c is None else torch.where(delta.abs() <= c, delta**2 / 2, c * (delta.abs() - c / 2))
    return each.mean(), delta.detach().abs()


@pytest.mark.parametrize("double_dqn", [False, True])
@pytest.mark.parametrize("n_step_return", [1, 3])
@pytest.mark.parametrize("delta_clip", [None, 0.5])
def test_updates_equal_the_reference(double_dqn, n_step_return, delta_clip):
    h = dict(double_dqn=double_dqn, n_step_return=n_step_return, delta_clip=delta_clip, discount=0.8)
    algo, agent = small_dqn(**h, learning_rate=1.0, clip_grad_norm=0.15, target_update_interval=6), small_agent()
    collected, metrics = collect_and_learn(algo, agent, n_itr=7)
    stream = joined(collected)
    updates = [{name: values[i] for name, values in m.items()} for m in metrics if m for i in range(4)]
    assert len(updates) == len(algo.drawn) == 12
    after = [online for online, _ in algo.networks[1:]] + [parameters64(agent)]
    clipped = differs = 0
    for batch, networks, expected, metric in zip(algo.drawn, algo.networks, after, updates, strict=True):
        loss, td_abs_error = reference_loss(batch, stream, networks, h)
        assert metric["loss"].item() == pytest.approx(loss.item(), rel=1e-4)
        torch.testing.assert_close(metric["tdAbsErr"].double(), td_abs_error, rtol=1e-4, atol=1e-5)
        moved, norm = sgd_step(networks[0], loss, 1.0, 0.15)
        assert metric["gradNorm"].item() == pytest.approx(norm, rel=1e-4)
        clipped += norm > 0.15
        other_loss, _ = reference_loss(batch, stream, networks, {**h, "double_dqn": not double_dqn})
        differs += abs(other_loss.item() - loss.item()) > 1e-3
        for name, parameter in moved.items():
            torch.testing.assert_close(expected[name], parameter, rtol=1e-4, atol=1e-5)
    assert clipped > 0
    assert differs > 0


def test_all_ways_an_episode_ends_are_drawn():
    """The reference above is worth what it has seen."""
    algo, agent = small_dqn(n_step_return=3, replay_ratio=16), small_agent()
    collect_and_learn(algo, agent, n_itr=12)
    discounts = torch.cat([batch.bootstrap_discount for batch in algo.drawn])
    terminated = torch.cat([batch.terminated for batch in algo.drawn])
    assert torch.equal(discounts == 0, terminated)
    for steps in (1, 2, 3):
        assert (discounts - 0.99**steps).abs().min() < 1e-6
    assert terminated.any()


def test_the_target_network_starts_as_a_copy_and_is_copied_at_the_interval():
    algo, agent = small_dqn(target_update_interval=5, learning_rate=0.1), small_agent()
    collect_and_learn(algo, agent, n_itr=8)
    onlines, targets = zip(*algo.networks, strict=True)
    for i, target in enumerate(targets):
        source = onlines[i - i % 5]  # the network after update i - i % 5, which is the one before the next
        for name, tensor in target.items():
            assert torch.equal(tensor, source[name]), (i, name)
    assert not torch.equal(onlines[5]["head.q.0.weight"], onlines[0]["head.q.0.weight"])


def test_the_target_network_follows_softly():
    algo = small_dqn(target_update_interval=2, target_update_tau=0.25, learning_rate=0.1)
    agent = small_agent()
    collect_and_learn(algo, agent, n_itr=8)
    onlines, targets = zip(*algo.networks, strict=True)
    for i in range(1, len(targets)):
        tau = 0.25 if i % 2 == 0 else 0.0
        for name, tensor in targets[i].items():
            expected = (1 - tau) * targets[i - 1][name] + tau * onlines[i][name]
            torch.testing.assert_close(tensor, expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("initial", [False, True])
def test_the_target_network_starts_from_given_weights_too(initial):
    first = small_agent()
    set_up(small_dqn(), first, RandomEnv, n_itr=10, seed=3)
    agent = small_agent(initial_model_state_dict=first.state_dict()["model"] if initial else None)
    set_up(small_dqn(), agent, RandomEnv, n_itr=10, seed=4)
    for name, tensor in agent.target_model.state_dict().items():
        assert torch.equal(tensor, agent.model.state_dict()[name])
        if initial:
            assert torch.equal(tensor, first.model.state_dict()[name])
    assert not any(parameter.requires_grad for parameter in agent.target_model.parameters())


@pytest.mark.parametrize(
    ("replay_ratio", "batch_size", "updates"), [(1, 32, 1), (8, 32, 8), (4, 16, 8), (0.5, 8, 2), (2, 24, 3)]
)
def test_replay_ratio_is_rows_consumed_by_rows_collected(replay_ratio, batch_size, updates):
    algo, agent = small_dqn(replay_ratio=replay_ratio, batch_size=batch_size), small_agent()
    _, metrics = collect_and_learn(algo, agent, n_itr=8)
    assert [len(m["loss"]) if m else 0 for m in metrics] == [0] * 4 + [updates] * 4
    assert algo.update_counter == len(algo.drawn) == 4 * updates
    assert algo.plan()["updates an iteration"] == updates
    assert {len(batch.action) for batch in algo.drawn} == {batch_size}
    if updates != 3:
        assert updates * batch_size / (T * B) == replay_ratio


@pytest.mark.parametrize(
    ("min_steps_learn", "first"), [(0, 1), (1, 1), (T * B, 1), (T * B + 1, 2), (5 * T * B, 5), (5.5 * T * B, 6)]
)
def test_the_first_update_waits_for_so_many_steps(min_steps_learn, first):
    algo, agent = small_dqn(min_steps_learn=min_steps_learn), small_agent()
    _, metrics = collect_and_learn(algo, agent, n_itr=7)
    assert [bool(m) for m in metrics] == [itr + 1 >= first for itr in range(7)]
    assert algo.plan()["first update at step"] == first * T * B >= min_steps_learn


def test_replicas_share_rows_and_replay():
    """Of two replicas each collects and keeps half, and takes as many updates as both have rows for."""
    agent, algo = small_agent(), small_dqn(replay_size=800, replay_ratio=2, min_steps_learn=4 * 2 * T * B)
    sampler = SerialSampler(RandomEnv, {}, T, B)
    run = run_of(sampler, n_itr=10, replicas=Replicas(1, 2))
    algo.initialize(agent, replace(run, example=sampler.initialize(agent, run)))
    plan = algo.plan()
    assert (plan["rows an iteration"], plan["updates an iteration"]) == (2 * T * B, 4)
    assert (plan["replay rows"], plan["first update at step"]) == (400, 4 * 2 * T * B)
    assert algo.hyper(0).learning_rate == algo.learning_rate


def test_a_run_may_end_with_its_first_update():
    algo, agent = small_dqn(min_steps_learn=3 * T * B), small_agent()
    _, metrics = collect_and_learn(algo, agent, n_itr=3)
    assert [bool(m) for m in metrics] == [False, False, True]


@pytest.mark.parametrize("itr", [4, 7])
def test_schedules_are_applied_at_their_step(itr):
    """Of 8 iterations; a line that ends at zero is never there, so that no update is for nothing."""
    algo = small_dqn(learning_rate="lin_0.4", discount="lin_0.8_0.4", delta_clip="lin_0.8", clip_grad_norm=1e9)
    agent = small_agent()
    collected, metrics = collect_and_learn(algo, agent, n_itr=8)
    left = (8 - itr) / 8
    h = dict(double_dqn=False, n_step_return=1, discount=0.4 + 0.4 * left, delta_clip=0.8 * left)
    stream = joined(collected)
    i = 4 * (itr - 4)
    loss, _ = reference_loss(algo.drawn[i], stream, algo.networks[i], h)
    assert metrics[itr]["loss"][0].item() == pytest.approx(loss.item(), rel=1e-4)
    moved, _ = sgd_step(algo.networks[i][0], loss, 0.4 * left, 1e9)
    for name, parameter in moved.items():
        torch.testing.assert_close(algo.networks[i + 1][0][name], parameter, rtol=1e-4, atol=1e-5)


def test_adam_has_the_paper_s_epsilon_unless_it_is_given():
    for kwargs, eps in (({}, 0.01 / 16), (dict(optim_kwargs=dict(eps=1e-3)), 1e-3)):
        algo = small_dqn(OptimCls=torch.optim.Adam, **kwargs)
        set_up(algo, small_agent(), RandomEnv, n_itr=10)
        assert algo.optimizer.param_groups[0]["eps"] == eps


def test_running_statistics_of_observations_are_kept():
    algo, agent = small_dqn(target_update_interval=7), DqnAgent(model_kwargs=dict(normalize_observation=True))
    collected, _ = collect_and_learn(algo, agent, n_itr=6)
    seen = torch.cat([samples.env.observation[samples.env.valid] for samples in collected]).double()
    state, target_state = agent.model.state_dict(), agent.target_model.state_dict()
    assert state["encoder.rms.count"].item() == len(seen)
    torch.testing.assert_close(state["encoder.rms.mean"], seen.mean(0))
    torch.testing.assert_close(state["encoder.rms.var"], seen.var(0, correction=0))
    # The target network is as it was at update 7, in the last iteration, of 8 updates.
    assert target_state["encoder.rms.count"].item() == len(seen)


class Crowd(RandomEnv):
    """So many actions that one at random is hardly ever the greedy one."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(1000))


@pytest.mark.parametrize("SamplerCls", [SerialSampler, CpuSampler])
def test_epsilon_anneals_over_eps_steps_wherever_actions_are_chosen(SamplerCls):
    T, B, n_itr = 50, 8, 6
    algo = DQN(eps_steps=4 * T * B, min_steps_learn=5 * T * B, replay_size=10_000, batch_size=T * B, replay_ratio=1)
    agent = DqnAgent(eps_init=0.9, eps_final=0.1, model_kwargs=dict(hidden_sizes=4))
    kwargs: dict[str, Any] = dict(n_workers=2) if SamplerCls is CpuSampler else {}
    sampler = set_up(algo, agent, Crowd, T=T, B=B, n_itr=n_itr, SamplerCls=SamplerCls, **kwargs)
    try:
        for itr in range(n_itr - 1):  # none of these learns before the last
            samples = copied(sampler.obtain_samples(itr)[0])
            expected = 0.9 + (0.1 - 0.9) * min(itr / 4, 1)
            valid = samples.env.valid
            explored = samples.agent.action != samples.agent.agent_info.q.argmax(-1)
            share = explored[valid].float().mean().item()
            assert share == pytest.approx(expected, abs=4 * (0.25 / int(valid.sum())) ** 0.5), itr
            optimize(algo, itr, samples)
    finally:
        sampler.shutdown()


def test_the_same_rows_come_of_workers_that_follow_epsilon_and_weights():
    def run(SamplerCls: Any, **kwargs: Any) -> Any:
        algo, agent = small_dqn(eps_steps=6 * T * B, learning_rate=0.1), small_agent(eps_final_min=0.001)
        sampler = set_up(algo, agent, RandomEnv, T=T, B=B, n_itr=8, SamplerCls=SamplerCls, **kwargs)
        try:
            actions = []
            for itr in range(8):
                samples = copied(sampler.obtain_samples(itr)[0])
                actions.append(samples.agent.action)
                optimize(algo, itr, samples)
            return torch.stack(actions), agent
        finally:
            sampler.shutdown()

    actions, agent = run(SerialSampler)
    worker_actions, worker_agent = run(CpuSampler, n_workers=2)
    assert torch.equal(actions, worker_actions)
    check_parameters(worker_agent, parameters64(agent), rtol=0, atol=0)


def test_the_frames_of_an_observation_may_be_given():
    found = []
    for frame_stack in (None, 1, 3):  # of the three numbers of an observation
        algo = small_dqn(frame_stack=frame_stack)
        set_up(algo, small_agent(), RandomEnv)
        replay: Any = algo.replay
        found.append(replay.storage.rows_before)
    assert found == [1, 1, 2]
