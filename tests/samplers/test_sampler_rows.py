"""Every field of every row, against a plain Python reference, through every sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.types import AgentStep, TrajInfo
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.seeds import Role, stream_seed
from tests.samplers.row_reference import Stream, assert_after, assert_row, row_of
from tests.samplers.sampler_kit import (
    SAMPLERS,
    TWO_OF_EACH,
    assert_equal_batches,
    collect,
    counting_agent,
    in_order,
    random_agent,
    running,
    with_either,
)
from tests.toy_envs import (
    LENGTHS,
    N_ACTIONS,
    CountingEnv,
    CountingModel,
    DictCountingEnv,
    LifeEnv,
    OldCountingEnv,
    RecordingTrajInfo,
)

SEED, DISCOUNT = 7, 0.5
ENVS = {
    "counting": (CountingEnv, {}),
    "one array": (CountingEnv, {"reuse_array": True}),
    "nested": (DictCountingEnv, {}),
    "old gym": (OldCountingEnv, {}),
    "lives": (LifeEnv, {}),
}


class OldReference(CountingEnv):
    """What the adapter makes of `OldCountingEnv`: an end is either a limit or not."""

    def ending(self) -> tuple[bool, bool]:
        terminated, truncated = super().ending()
        return terminated and not truncated, truncated


def assert_batches_are_the_reference(
    sampler: Any, streams: list[Stream], n_batches: int, recurrent: bool, with_info: bool
) -> None:
    T = sampler.batch_spec.T
    for itr in range(n_batches):
        samples, traj_infos = sampler.obtain_samples(itr)
        for b, stream in enumerate(streams):
            for t in range(T):
                assert_row(samples, t, b, stream.next_row(DISCOUNT), recurrent, with_info)
            assert_after(samples, b, stream)
        expected = [info for stream in streams for info in stream.trajectories]
        assert in_order(traj_infos) == sorted(sorted(info.items()) for info in expected)
        for stream in streams:
            stream.trajectories.clear()


def check(sampler_kind: str, env_kind: str, T: int, B: int, recurrent: bool) -> None:
    EnvCls, env_kwargs = ENVS[env_kind]
    streams = []
    for rank in range(B):
        env = OldReference() if EnvCls is OldCountingEnv else EnvCls()
        observation, _ = env.reset(seed=stream_seed(SEED, Role.ENV, rank))
        streams.append(Stream(env, observation, recurrent, prev_action=0, prev_reward=0.0))
    with_info = env_kind != "lives"
    with running(
        sampler_kind,
        counting_agent(recurrent),
        EnvCls,
        T,
        B,
        SEED,
        env_kwargs=env_kwargs,
        env_info_keys=["t", "vector"] if with_info else [],
        bootstrap_value=True,
        bootstrap_inputs=True,
        traj_info_kwargs={"discount": DISCOUNT},
    ) as sampler:
        assert_batches_are_the_reference(
            sampler, streams, n_batches=24 // T + 1, recurrent=recurrent, with_info=with_info
        )


@pytest.mark.parametrize(
    ("kind", "T", "B"),
    [("serial", *size) for size in ((1, 1), (1, 4), (2, 3), (3, 2), (4, 4), (5, 1), (6, 3), (7, 4))]
    # All samplers have one collector: a single row and several, divided evenly among workers or not.
    + [(kind, *size) for kind in SAMPLERS[1:] for size in ((1, 3), (5, 4))],
)
def test_rows_of_every_batch_size(kind, T, B):
    check(kind, "counting", T, B, recurrent=(T + B) % 2 == 0)


@pytest.mark.parametrize("env_kind", [kind for kind in ENVS if kind != "counting"])
@pytest.mark.parametrize(("kind", "recurrent"), with_either(TWO_OF_EACH))
def test_rows_of_every_environment(kind, env_kind, recurrent):
    check(kind, env_kind, T=5, B=3, recurrent=recurrent)


# A spawned worker imports torch, which takes 4 s.
@pytest.mark.parametrize(("start_method", "kind"), [("forkserver", "cpu2"), ("spawn", "cpu1"), ("fork", "cpu2")])
def test_start_methods_give_the_same_batches(start_method, kind):
    with running("serial", random_agent(), T=4, B=2) as serial:
        expected = collect(serial, 3)
    with running(kind, random_agent(), T=4, B=2, start_method=start_method) as sampler:
        assert_equal_batches(collect(sampler, 3), expected, rtol=1e-5)


# ---- random steps before the first batch ----


@pytest.mark.parametrize("kind", TWO_OF_EACH)
def test_decorrelated_rows_go_on_from_where_the_random_steps_led(kind):
    T, B, most = 4, 6, 9
    with running(
        kind,
        counting_agent(),
        T=T,
        B=B,
        max_decorrelation_steps=most,
        bootstrap_value=True,
        traj_info_kwargs={"discount": DISCOUNT},
    ) as sampler:
        samples, traj_infos = sampler.obtain_samples(0)
        streams, n_random = [], []
        for b in range(B):
            agent, env = row_of(samples, 0, b)
            number, t, episode = (int(x) for x in env.observation)
            assert number == stream_seed(SEED, Role.ENV, b) % 1024
            reference = CountingEnv()
            vars(reference).update(number=number, t=t, episode=episode, needs_reset=False)
            prev_action, prev_reward = agent.prev_action.item(), env.prev_reward.item()
            if t == 0:
                assert (prev_action, prev_reward) == (0, 0.0)
            else:
                assert 0 <= prev_action < N_ACTIONS
                assert prev_reward == CountingEnv.reward_at(t, prev_action)
            n_random.append(t + sum(LENGTHS[(number + e) % len(LENGTHS)] for e in range(episode)))
            streams.append(Stream(reference, env.observation.numpy().copy(), False, prev_action, prev_reward))
        assert all(1 <= n <= most for n in n_random)
        assert len(set(n_random)) > 1, "all environments took the same number of random steps"
        logged = []
        for b, stream in enumerate(streams):
            begun_by_the_agent = stream.env.t == 0
            for t in range(T):
                assert_row(samples, t, b, stream.next_row(DISCOUNT), recurrent=False, with_info=False)
            logged += stream.trajectories[0 if begun_by_the_agent else 1 :]
            # From here on all is logged, except a trajectory that began with random steps and is not over.
            stream.trajectories = [] if begun_by_the_agent or stream.trajectories else [{"unlogged": 1.0}]
        assert in_order(traj_infos) == sorted(sorted(info.items()) for info in logged)
        samples, traj_infos = sampler.obtain_samples(1)
        logged = []
        for b, stream in enumerate(streams):
            for t in range(T):
                assert_row(samples, t, b, stream.next_row(DISCOUNT), recurrent=False, with_info=False)
            unlogged = stream.trajectories[:1] == [{"unlogged": 1.0}]
            logged += stream.trajectories[2 if unlogged else 0 :]
        assert in_order(traj_infos) == sorted(sorted(info.items()) for info in logged)


def test_a_game_begun_with_random_steps_is_not_logged_even_after_a_lost_life():
    with running("serial", counting_agent(), LifeEnv, T=40, B=4, max_decorrelation_steps=6) as sampler:
        _, traj_infos = sampler.obtain_samples(0)
    # A game of three lives takes 3 + 2 + 4 steps; one begun with random steps would seem shorter.
    assert {info.Length for info in traj_infos} == {9}


# ---- any number of workers ----


@pytest.mark.parametrize(("EnvCls", "recurrent"), [(CountingEnv, False), (DictCountingEnv, True)])
def test_any_number_of_workers_gives_the_same_batches(EnvCls, recurrent):
    options: dict[str, Any] = dict(T=6, B=4, max_decorrelation_steps=5, bootstrap_value=True)
    with running("serial", random_agent(recurrent), EnvCls, **options) as serial:
        expected = collect(serial, 4)
    actions = torch.cat([samples.agent.action.flatten() for samples, _ in expected])
    assert set(actions.tolist()) == set(range(N_ACTIONS)), "the agent must be a random one for this test"
    for kind in ("cpu1", "cpu2", "cpu3", "cpu4"):
        with running(kind, random_agent(recurrent), EnvCls, **options) as sampler:
            batches = collect(sampler, 4)
        for (samples, _), (reference, _) in zip(batches, expected, strict=True):
            assert torch.equal(samples.agent.action, reference.agent.action)
        assert_equal_batches(batches, expected, rtol=1e-4)


@pytest.mark.parametrize("kind", TWO_OF_EACH)
def test_two_replicas_are_the_halves_of_one_sampler(kind):
    options: dict[str, Any] = dict(T=5, max_decorrelation_steps=4, bootstrap_value=True)
    with running(kind, random_agent(True), B=4, **options) as sampler:
        whole = collect(sampler, 3)
    for rank in (0, 1):
        with running(kind, random_agent(True), B=2, replicas=Replicas(rank, 2), **options) as sampler:
            halves = collect(sampler, 3)
        for (half, _), (both, _) in zip(halves, whole, strict=True):
            for x, y in zip(buffer_leaves(half), buffer_leaves(both), strict=True):
                torch.testing.assert_close(x, y[:, 2 * rank : 2 * rank + 2], rtol=1e-4, atol=1e-5)


def test_another_seed_gives_other_batches():
    with running("serial", random_agent(), seed=1) as sampler:
        one = collect(sampler, 1)
    with running("serial", random_agent(), seed=2) as sampler:
        two = collect(sampler, 1)
    assert not torch.equal(one[0][0].env.observation, two[0][0].env.observation)
    assert not torch.equal(one[0][0].agent.action, two[0][0].agent.action)


def test_environments_of_one_run_differ():
    with running("serial", random_agent(), B=4, T=12) as sampler:
        samples, _ = sampler.obtain_samples(0)
    numbers = samples.env.observation[0, :, 0].tolist()
    assert len(set(numbers)) == 4
    actions = {tuple(samples.agent.action[:, b].tolist()) for b in range(4)}
    assert len(actions) == 4


# ---- recurrent state, trajectories, memory ----


@pytest.mark.parametrize("kind", TWO_OF_EACH)
def test_recurrent_state_is_zero_at_starts_and_only_there(kind):
    with running(kind, random_agent(recurrent=True), T=6, B=3) as sampler:
        batches = [samples for samples, _ in collect(sampler, 6)]
    h = torch.cat([samples.agent.agent_info.prev_rnn_state.h for samples in batches]).abs().amax((2, 3))
    c = torch.cat([samples.agent.agent_info.prev_rnn_state.c for samples in batches]).abs().amax((2, 3))
    t = torch.cat([samples.env.observation[..., 1] for samples in batches])
    assert torch.equal(h == 0, t == 0)
    assert torch.equal(c == 0, t == 0)
    assert (t == 0).sum() > 3


@pytest.mark.parametrize("kind", TWO_OF_EACH)
def test_traj_info_is_given_what_happened(kind):
    with running(kind, counting_agent(), T=12, B=3, TrajInfoCls=RecordingTrajInfo) as sampler:
        _samples, traj_infos = sampler.obtain_samples(0)
    assert len(traj_infos) > 3
    for info in traj_infos:
        seen = vars(info)["_seen"]
        assert len(seen) == info.Length
        number, _, episode = seen[0][0]
        for i, (observation, action, reward, done, t, value) in enumerate(seen):
            assert observation.tolist() == [number, i, episode]
            assert t == i + 1
            assert reward == CountingEnv.reward_at(i + 1, action)
            assert done == (i + 1 == len(seen))
            assert value == 100 * number + i + (0.25 * seen[i - 1][2] if i else 0)
        assert vars(info)["_final"].tolist() == [number, len(seen), episode]


@pytest.mark.parametrize("kind", TWO_OF_EACH)
def test_a_batch_is_views_of_one_memory_in_the_dtypes_of_the_space(kind):
    with running(kind, counting_agent(), DictCountingEnv, bootstrap_value=True, env_info_keys=["vector"]) as sampler:
        first, _ = sampler.obtain_samples(0)
        second, _ = sampler.obtain_samples(1)
        assert all(
            a is b or a.data_ptr() == b.data_ptr()
            for a, b in zip(buffer_leaves(first), buffer_leaves(second), strict=False)
        )
        assert first.agent.action[0].data_ptr() == first.agent.prev_action[1].data_ptr()
        assert first.env.reward[0].data_ptr() == first.env.prev_reward[1].data_ptr()
        env = first.env
        assert env.observation["counts"].dtype == torch.float32
        assert env.observation["ale.lives"].dtype == torch.int64
        assert env.observation["count"]["image"].dtype == torch.uint8
        assert env.observation["pair"]["0"].dtype == torch.int16
        assert (env.reward.dtype, env.valid.dtype, env.terminated.dtype) == (torch.float32, torch.bool, torch.bool)
        assert first.agent.action.dtype == torch.int64
        assert not any(leaf.is_inference() for leaf in buffer_leaves(first)), "training must be able to use the rows"
        assert first.agent.bootstrap_value.shape == (1, 3)
        assert env.env_info["vector"].shape == (5, 3, 2)


@pytest.mark.parametrize("kind", TWO_OF_EACH)
def test_the_example_is_one_row_without_leading_dimensions(kind):
    with running(kind, random_agent(recurrent=True), DictCountingEnv, bootstrap_value=True) as sampler:
        samples, _ = sampler.obtain_samples(0)
        sampler.shutdown()
        example = sampler.initialize(random_agent(recurrent=True))
    assert [np.shape(leaf) for leaf in buffer_leaves(example)] == [leaf.shape[2:] for leaf in buffer_leaves(samples)]


class Bare(CategoricalPgAgent):
    """Records nothing beside its actions, as an agent of one's own may."""

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> AgentStep:
        return AgentStep(super().step(observation, prev_action, prev_reward).action)


class Plain(TrajInfo):
    """Looks at every step, but not at what the agent recorded."""

    def step(self, *args: Any) -> None:
        super().step(*args)
        assert args[4] is None


@pytest.mark.parametrize("kind", TWO_OF_EACH)
def test_an_agent_may_record_nothing(kind):
    agent = Bare(ModelCls=CountingModel)
    options: dict[str, Any] = dict(TrajInfoCls=Plain, eval_n_envs=2, eval_max_trajectories=3)
    with running(kind, counting_agent()) as sampler:
        expected, _ = collect(sampler, 2)[1]
    with running(kind, agent, **options) as sampler:
        samples, _ = collect(sampler, 2)[1]
        assert len(sampler.evaluate_agent(1).traj_infos) == 3
    assert samples.agent.agent_info is None
    assert torch.equal(samples.agent.action, expected.agent.action)
