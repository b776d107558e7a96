"""Environments that rest from the end of an episode to the end of the batch: `mid_batch_reset=False`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent, GaussianPgAgent
from rlpyt.algos import A2C, DQN
from rlpyt.samplers import SerialSampler, WaitResetCollector
from rlpyt.spaces import EnvSpaces
from rlpyt.types import BatchSpec, Run
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.seeds import Role, stream_seed
from tests.samplers.row_reference import streams_of
from tests.samplers.sampler_kit import (
    EACH,
    ONE_OF_EACH,
    assert_equal_batches,
    batches_of,
    collect,
    counting_agent,
    random_agent,
    running,
    with_either,
)
from tests.toy_envs import CountingEnv

SEED, DISCOUNT = 7, 0.5
AFTER: dict[str, Any] = dict(bootstrap_value=True, bootstrap_inputs=True)
WAIT: dict[str, Any] = dict(mid_batch_reset=False, **AFTER, traj_info_kwargs={"discount": DISCOUNT})
PROCESSES = {"start_method": "forkserver"}


# ---- the rows ----


def test_what_the_words_say_of_one_environment():
    """The rows by hand, so that the reference itself is held to something."""
    with running("serial", counting_agent(True), T=4, B=1, env_kwargs={"lengths": (2, 4)}, **WAIT) as sampler:
        batches = [samples for samples, _ in collect(sampler, 4)]
    number = int(batches[0].env.observation[0, 0, 0])
    rows = [samples.env.observation[:, 0].tolist() for samples in batches]
    first = number % 2  # whether an episode of four steps comes first
    short, long = rows[first], rows[1 - first]
    assert [o[1] for o in short] == [0, 1, 2, 0]
    assert short[3] == [0, 0, 0], "a row after the final one is null"
    assert [o[1] for o in long] == [0, 1, 2, 3]
    assert [o[2] for o in rows[2][:2]] == [2, 2], "every batch begins a new episode here"
    env, agent = batches[first].env, batches[first].agent
    assert env.valid[:, 0].tolist() == [True, True, False, False]
    assert env.done[:, 0].tolist() == [False, True, False, False]
    assert agent.action[2:, 0].tolist() == [0, 0]
    assert env.reward[2:, 0].tolist() == [0, 0]
    assert env.prev_reward[:, 0].tolist() == [0, *env.reward[:2, 0].tolist(), 0]
    assert agent.agent_info.prev_rnn_state.h[0].item() == 0
    env, agent = batches[1 - first].env, batches[1 - first].agent
    assert env.done[:, 0].tolist() == [False, False, False, True]
    # The value of the final observation (number, 4, episode), after four rows.
    assert agent.bootstrap_value.item() == 100 * number + 4 + 0.25 * env.reward[3, 0].item() + 0.5 * 4
    following = batches[2 - first]
    assert following.env.observation[0, 0].tolist() == [number, 0, 2 - first]
    assert following.env.valid[0, 0]
    assert (following.agent.prev_action[0, 0], following.env.prev_reward[0, 0]) == (0, 0)


class UncentredEnv(CountingEnv):
    """Takes numbers from 2 to 6."""

    def __init__(self, lengths: Any) -> None:
        super().__init__(lengths)
        self.action_space: Any = spaces.Box(2, 6, (1,), np.float32)

    def step(self, action: Any) -> Any:
        return super().step(1)


@pytest.mark.parametrize("kind", EACH)
def test_before_the_first_step_of_an_episode_there_is_the_null_action(kind):
    # Episodes that end with the batch, and within it.
    for length in (3, 2):
        torch.manual_seed(0)
        with running(kind, GaussianPgAgent(), UncentredEnv, 3, 2, env_kwargs={"lengths": (length,)}, **WAIT) as sampler:
            for itr in range(3):
                samples, _ = sampler.obtain_samples(itr)
                assert (samples.env.observation[0, :, 1] == 0).all(), "every batch begins with an episode"
                assert samples.agent.prev_action[0].tolist() == [[4.0], [4.0]]
                assert (samples.agent.action[0] != 4).all()
                assert samples.env.prev_reward[0].tolist() == [0, 0]


def test_the_collector_may_ask_for_it():
    for options in ({"CollectorCls": WaitResetCollector}, {"mid_batch_reset": False}):
        assert SerialSampler(CountingEnv, {}, batch_T=3, batch_B=1, **options).resets_mid_batch is False
    assert SerialSampler(CountingEnv, {}, batch_T=3, batch_B=1).resets_mid_batch is True
    asked = batches_of(6, "serial", counting_agent(), CollectorCls=WaitResetCollector, bootstrap_value=True)
    with running("serial", counting_agent(), mid_batch_reset=False, bootstrap_value=True) as sampler:
        assert_equal_batches(asked, collect(sampler, 6))


@pytest.mark.parametrize("kind", EACH)
def test_decorrelation_and_evaluation_go_together_with_it(kind):
    options: dict[str, Any] = {**WAIT, "T": 4, "B": 3, "max_decorrelation_steps": 5}
    evaluation: dict[str, Any] = dict(eval_n_envs=3, eval_max_trajectories=7)
    expected = batches_of(5, "serial", random_agent(True), **options)
    with running(kind, random_agent(True), **options, **evaluation) as sampler:
        batches = []
        for itr in range(5):
            batches += collect(sampler, 1, first=itr)
            result = sampler.evaluate_agent(itr)  # while resets are under way
            assert (len(result.traj_infos), result.unfinished) == (7, 0)
            assert result.steps == sum(info.Length for info in result.traj_infos), "rests are no steps"
    assert_equal_batches(batches, expected, rtol=1e-4)


# ---- in the background ----


class SlowReset(CountingEnv):
    """Takes its time to begin an episode, but for the first, and for those of the check at the start."""

    def __init__(self, seconds: float, lengths: tuple[int, ...]) -> None:
        super().__init__(lengths)
        self.seconds = seconds
        self.slow_numbers = {stream_seed(SEED, Role.ENV, rank) % 1024 for rank in range(4)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is None and self.number in self.slow_numbers:
            time.sleep(self.seconds)
        return super().reset(seed=seed)


@pytest.mark.parametrize(("kind", "T"), with_either(ONE_OF_EACH, 1, 4))
def test_a_batch_stays_as_it_is_while_environments_are_reset(kind, T):
    options: dict[str, Any] = {**WAIT, "T": T, "B": 4, "env_kwargs": {"seconds": 0.01, "lengths": (1, 4, 2)}}
    options |= PROCESSES
    with running(kind, random_agent(True), SlowReset, env_info_keys=["t"], **options) as sampler:
        for itr in range(5):
            samples, _ = sampler.obtain_samples(itr)
            copy = buffer_func(samples, torch.clone)
            sampler.state_dict()  # waits until all are reset
            for i, (now, before) in enumerate(zip(buffer_leaves(samples), buffer_leaves(copy), strict=True)):
                assert torch.equal(now, before), (itr, i)


@pytest.mark.parametrize("kind", ["cpu2", "alternating2"])
def test_resets_overlap_with_the_learner(kind):
    options: dict[str, Any] = {**WAIT, "T": 2, "B": 2, "env_kwargs": {"seconds": 0.5, "lengths": (1,)}}
    options |= PROCESSES
    with running(kind, counting_agent(), SlowReset, **options) as sampler:
        sampler.obtain_samples(0)
        start = time.perf_counter()
        sampler.obtain_samples(1)
        assert time.perf_counter() - start > 0.4, "nothing was reset"
        time.sleep(0.6)
        start = time.perf_counter()
        samples, _ = sampler.obtain_samples(2)
        assert time.perf_counter() - start < 0.25, "the resets were waited for"
        assert samples.env.observation[0, :, 2].tolist() == [2, 2]
        assert samples.env.valid.tolist() == [[True, True], [False, False]]


# ---- algorithms ----


def by_hand(
    rows: list[dict[str, Any]], last_value: float, discount: float, lambda_: float
) -> list[tuple[float, float]]:
    """Return the advantage and the return of every valid row of one environment's batch, summed up step by step."""
    out = []
    values = [row["value"] for row in rows] + [last_value]
    for t, row in enumerate(rows):
        if not row["valid"]:
            continue
        advantage, weight, k = 0.0, 1.0, t
        while True:
            after = 0.0 if rows[k]["terminated"] else values[k + 1]
            advantage += weight * (rows[k]["reward"] + discount * after - values[k])
            if rows[k]["terminated"] or rows[k]["truncated"] or k == len(rows) - 1:
                break
            weight, k = weight * discount * lambda_, k + 1
        out.append((advantage, advantage + row["value"]))
    return out


@pytest.mark.parametrize("gae_lambda", [0.0, 0.6, 1.0])
def test_advantages_and_returns_are_those_of_the_episodes(gae_lambda):
    T, B, discount = 3, 4, 0.9
    agent, algo = counting_agent(), A2C(discount=discount, gae_lambda=gae_lambda)
    with running("serial", agent, T=T, B=B, **WAIT) as sampler:
        algo.initialize(agent, Run(batch_spec=sampler.batch_spec, n_itr=20, mid_batch_reset=False))
        streams = streams_of(CountingEnv, B, False, "still")
        ends = set()
        for itr in range(12):
            samples, _ = sampler.obtain_samples(itr)
            inputs, _ = algo.loss_inputs(samples, algo.hyper(0))
            for b, stream in enumerate(streams):
                rows = [stream.next_row(DISCOUNT) for _ in range(T)]
                expected = by_hand(rows, stream.agent_row()["value"], discount, gae_lambda)
                stream.end_batch()
                ends |= {(t, r["terminated"], r["truncated"]) for t, r in enumerate(rows)}
                valid = samples.env.valid[:, b]
                # Values are up to 1e5, in float32.
                np.testing.assert_allclose(inputs.advantage[valid, b], [a for a, _ in expected], rtol=1e-4, atol=0.05)
                np.testing.assert_allclose(inputs.return_[valid, b], [r for _, r in expected], rtol=1e-4, atol=0.05)
                assert torch.equal(inputs.valid[:, b], valid)
        # Ends of both kinds in the last row, where the bootstrap value is that of the final observation.
        assert {(T - 1, True, False), (T - 1, False, True), (0, True, False), (0, False, True)} <= ends


def test_rows_of_rest_do_not_reach_the_update():
    agent, algo = random_agent(recurrent=True), A2C()
    with running("serial", agent, T=6, B=4, **WAIT) as sampler:
        algo.initialize(agent, Run(batch_spec=sampler.batch_spec, n_itr=10, mid_batch_reset=False))
        samples, _ = sampler.obtain_samples(0)
    batch, init_rnn_state = algo.loss_inputs(samples, algo.hyper(0))
    assert not batch.episode_start.any(), "nothing begins inside a batch"
    _, value = algo.forward(batch, init_rnn_state)
    torch.testing.assert_close(value[batch.valid], batch.old_value[batch.valid], rtol=1e-4, atol=1e-4)
    resting = ~samples.env.valid
    resting[1:] &= ~samples.env.valid[:-1]  # the final observation stays: its value counts
    assert resting.sum() > 3
    gradients = []
    for junk in (0.0, 50.0):
        samples.env.observation[resting] = junk
        samples.env.reward[resting] = junk
        samples.agent.agent_info.value[resting] = junk
        now = algo.hyper(0)
        loss, _ = algo.loss(*algo.loss_inputs(samples, now), now)
        gradients.append(torch.autograd.grad(loss, list(agent.parameters())))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_a_replay_of_transitions_refuses_it():
    agent = DqnAgent()
    agent.initialize(EnvSpaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)))
    with pytest.raises(ValueError, match=r"mid_batch_reset=False.*expected mid_batch_reset=True"):
        DQN().initialize(agent, Run(batch_spec=BatchSpec(4, 2), n_itr=10, mid_batch_reset=False))
