"""Every field of every row, against a plain Python reference, through every sampler."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from rlpyt.agents import CategoricalPgAgent
from rlpyt.types import AgentStep, Samples, TrajInfo
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.processes import Worker, receive_all, stop_workers
from rlpyt.utils.progress import Progress
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.seeds import Role, stream_seed
from tests.pairs import others_nightly
from tests.samplers.row_reference import Stream, assert_after, assert_batches, assert_row, row_of, streams_of
from tests.samplers.sampler_kit import (
    EACH,
    ONE_OF_EACH,
    SAMPLERS,
    TWO_OF_EACH,
    Watched,
    assert_equal_batches,
    batches_of,
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
from tests.vector_toy_envs import CountingVectorEnv, DictCountingVectorEnv, LifeVectorEnv

SEED, DISCOUNT = 7, 0.5
OPTIONS: dict[str, Any] = dict(bootstrap_value=True, bootstrap_inputs=True, traj_info_kwargs={"discount": DISCOUNT})


class OldReference(CountingEnv):
    """What the adapter makes of `OldCountingEnv`: an end is either a limit or not."""

    def ending(self) -> tuple[bool, bool]:
        terminated, truncated = super().ending()
        return terminated and not truncated, truncated


ENVS: dict[str, tuple[Any, Any]] = {
    "counting": (CountingEnv, CountingEnv),
    "one array": (partial(CountingEnv, reuse_array=True), CountingEnv),
    "nested": (DictCountingEnv, DictCountingEnv),
    "old gym": (OldCountingEnv, OldReference),
    "lives": (LifeEnv, LifeEnv),
    "native": (CountingVectorEnv, CountingEnv),
    "native nested": (DictCountingVectorEnv, DictCountingEnv),
    "native lives": (LifeVectorEnv, LifeEnv),
}
"""What the sampler is given, and the environment of the reference."""


class Case(NamedTuple):
    """Sampler whose rows are compared with the reference."""

    kind: str
    T: int = 5
    B: int = 3
    env: str = "counting"
    recurrent: bool = True
    waits: bool = False
    """Whether environments rest from the end of an episode to the end of the batch."""
    n_batches: int = 1
    """Places of the ring."""
    servers: int | None = None


SIZES = [(1, 1), (1, 4), (2, 3), (3, 2), (4, 4), (5, 1), (6, 3), (7, 4)]
CASES = [
    *(
        Case("serial", T, B, "counting", (T + B + waits) % 2 == 0, waits, 1 + T % 3)
        for waits in (False, True)
        for T, B in SIZES
    ),
    # All samplers have one collector: a single row and several, divided evenly among workers or not.
    *(Case(kind, 1, 3, "counting", waits, not waits, 1 + 2 * waits) for kind, waits in with_either(TWO_OF_EACH[1:])),
    *(Case(kind, 4, 4, "counting", True, not waits, 3 - waits) for kind, waits in with_either(SAMPLERS[1:])),
    *(
        Case(kind, 4, 3, env, recurrent, recurrent == (i % 2), 1 + i % 2)
        for kind, recurrent in with_either(ONE_OF_EACH)
        for i, env in enumerate(ENVS)
        if env != "counting" and not (env.startswith("native") and kind == "no_overlap2")
    ),
    *(Case("serial", T, 3, env, T % 2 == 0, True) for env in ENVS if env.startswith("native") for T in (1, 3)),
    *(Case(kind, 4, 5, "counting", True, i % 2 == 1, 3, 2) for i, kind in enumerate(("gpu2", "gpu3", "alternating4"))),
    Case("no_overlap5", 4, 5, "counting", True, True, 3, 2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_the_reference_and_no_other_place_is_touched(case):
    kind, T, B, env, recurrent, waits, n_batches, servers = case
    EnvCls, Reference = ENVS[env]
    native, lives = env.startswith("native"), env.endswith("lives")
    options: dict[str, Any] = {**OPTIONS, "mid_batch_reset": not waits, "n_batches": n_batches}
    options |= {"env_info_keys": [] if lives else ["t", "vector"], **({"servers": servers} if servers else {})}
    evaluates = T == 4 and env == "counting"
    options |= dict(eval_n_envs=1, eval_max_trajectories=1) if evaluates else {}
    rests = "never" if not waits else "stepped" if native else "still"
    with running(kind, counting_agent(recurrent), EnvCls, T, B, SEED, **options) as sampler:
        assert sampler.mid_batch_reset != waits
        watched, streams = Watched(sampler), streams_of(Reference, B, recurrent, rests)
        assert len(watched.places) == n_batches
        for itr in range(24 // T + 2):
            # A reset with a mask may break off a game: see the test of what is logged of them.
            told = not (native and lives and waits)
            assert_batches(
                watched, streams, 1, discount=DISCOUNT, with_info=not lives, with_trajectories=told, first=itr
            )
            if evaluates:
                sampler.evaluate_agent(itr)
                watched.check(itr)


# A spawned worker imports torch, which takes 4 s.
@pytest.mark.parametrize(
    ("start_method", "kind"),
    others_nightly([("forkserver", "cpu2"), ("spawn", "cpu1"), ("fork", "cpu2")], [("forkserver", "cpu2")]),
)
def test_start_methods_give_the_same_batches(start_method, kind):
    expected = batches_of(3, "serial", random_agent(), T=4, B=2)
    with running(kind, random_agent(), T=4, B=2, start_method=start_method) as sampler:
        assert_equal_batches(collect(sampler, 3), expected, rtol=1e-5)


# ---- random steps before the first batch ----


def stream_from(samples: Any, b: int) -> tuple[Stream, bool]:
    """Return the rows to come of an environment after random steps, and whether it is amid an episode begun by them."""
    agent, env = row_of(samples, 0, b)
    number, t, episode = (int(x) for x in env.observation)
    assert number == stream_seed(SEED, Role.ENV, b) % 1024
    prev_action, prev_reward = agent.prev_action.item(), env.prev_reward.item()
    assert 0 <= prev_action < N_ACTIONS
    assert prev_reward == (CountingEnv.reward_at(t, prev_action) if t else 0.0)
    assert t or prev_action == 0
    ended = t == LENGTHS[(number + episode) % len(LENGTHS)]
    reference = CountingEnv()
    vars(reference).update(number=number, t=t, episode=episode, needs_reset=ended)
    stream = Stream(reference, env.observation.numpy().copy(), True, prev_action, prev_reward)
    stream.ended = ended
    return stream, t > 0 and not ended


@pytest.mark.parametrize(
    ("kind", "mid_batch_reset", "EnvCls"),
    [
        (kind, mid_batch_reset, EnvCls)
        for EnvCls in (CountingEnv, CountingVectorEnv)
        for kind, mid_batch_reset in with_either(ONE_OF_EACH, True, False)
    ],
)
def test_rows_go_on_from_where_the_random_steps_led(kind, mid_batch_reset, EnvCls):
    T, B, most = 6, 10, 9
    options: dict[str, Any] = {**OPTIONS, "T": T, "B": B, "mid_batch_reset": mid_batch_reset}
    with running(kind, counting_agent(True), EnvCls, max_decorrelation_steps=most, **options) as sampler:
        samples, traj_infos = sampler.obtain_samples(0)
        streams, amid = zip(*[stream_from(samples, b) for b in range(B)], strict=True)
        assert sum(amid) > 1
        if EnvCls is CountingEnv:
            envs = [stream.env for stream in streams]
            taken = [e.t + sum(LENGTHS[(e.number + i) % len(LENGTHS)] for i in range(e.episode)) for e in envs]
            assert all(1 <= n <= most for n in taken)
            assert len(set(taken)) > 1, "all environments took the same number of random steps"
        else:
            # Where an episode ended with the last random step, row 0 is its final row, and the next one begins, also in
            # an environment that would rest after an end inside the batch.
            assert sum(stream.ended for stream in streams) > 0
        unlogged = list(amid)
        for itr in range(2):
            logged = []
            for b, stream in enumerate(streams):
                for t in range(T):
                    assert_row(samples, t, b, stream.next_row(DISCOUNT), recurrent=True, with_info=False)
                    rests: Any = "still" if EnvCls is CountingEnv else "stepped"
                    stream.rests = "never" if mid_batch_reset else rests
                assert_after(samples, b, stream)
                stream.end_batch()
                logged += stream.trajectories[int(unlogged[b]) :]
                unlogged[b] = unlogged[b] and not stream.trajectories
                stream.trajectories.clear()
            assert in_order(traj_infos) == sorted(sorted(info.items()) for info in logged)
            samples, traj_infos = sampler.obtain_samples(itr + 1)


@pytest.mark.parametrize("EnvCls", [LifeEnv, LifeVectorEnv])
def test_a_game_begun_with_random_steps_is_not_logged_even_after_a_lost_life(EnvCls):
    with running("serial", counting_agent(), EnvCls, T=40, B=4, max_decorrelation_steps=6) as sampler:
        _, traj_infos = sampler.obtain_samples(0)
    # A game of three lives takes 3 + 2 + 4 steps; one begun with random steps would seem shorter.
    assert {info.Length for info in traj_infos} == {9}


# ---- any number of workers ----


@pytest.mark.parametrize(("EnvCls", "recurrent"), [(CountingEnv, False), (DictCountingEnv, True)])
def test_any_number_of_workers_gives_the_same_batches(EnvCls, recurrent):
    options: dict[str, Any] = dict(T=6, B=4, max_decorrelation_steps=5, bootstrap_value=True)
    expected = batches_of(4, "serial", random_agent(recurrent), EnvCls, **options)
    actions = torch.cat([samples.agent.action.flatten() for samples, _ in expected])
    assert set(actions.tolist()) == set(range(N_ACTIONS)), "the agent must be a random one for this test"
    for kind in ("cpu1", "cpu2", "cpu3", "cpu4"):
        batches = batches_of(4, kind, random_agent(recurrent), EnvCls, **options)
        for (samples, _), (reference, _) in zip(batches, expected, strict=True):
            assert torch.equal(samples.agent.action, reference.agent.action)
        assert_equal_batches(batches, expected, rtol=1e-4)


@pytest.mark.parametrize("kind", EACH)
def test_two_replicas_are_the_halves_of_one_sampler(kind):
    options: dict[str, Any] = dict(T=5, max_decorrelation_steps=4, bootstrap_value=True)
    whole = batches_of(3, kind, random_agent(True), B=4, **options)
    for rank in (0, 1):
        halves = batches_of(3, kind, random_agent(True), B=2, replicas=Replicas(rank, 2), **options)
        for (half, _), (both, _) in zip(halves, whole, strict=True):
            for x, y in zip(buffer_leaves(half), buffer_leaves(both), strict=True):
                torch.testing.assert_close(x, y[:, 2 * rank : 2 * rank + 2], rtol=1e-4, atol=1e-5)


# ---- trajectories, memory ----


@pytest.mark.parametrize(("kind", "EnvCls"), with_either(TWO_OF_EACH, CountingVectorEnv, CountingEnv))
def test_traj_info_is_given_what_happened(kind, EnvCls):
    with running(kind, counting_agent(), EnvCls, T=12, B=3, TrajInfoCls=RecordingTrajInfo) as sampler:
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


@pytest.mark.parametrize("kind", EACH)
def test_a_batch_is_views_of_its_place_in_the_dtypes_of_the_space(kind):
    options: dict[str, Any] = dict(bootstrap_value=True, env_info_keys=["vector"], n_batches=3)
    with running(kind, counting_agent(), DictCountingEnv, **options) as sampler:
        batches = [sampler.obtain_samples(itr)[0] for itr in range(4)]
        for itr, samples in enumerate(batches):
            for leaf, array in zip(buffer_leaves(samples), buffer_leaves(sampler.batches[itr % 3]), strict=True):
                assert leaf.data_ptr() == array.__array_interface__["data"][0]
        first = batches[0]
        assert len({samples.env.reward.data_ptr() for samples in batches}) == 3
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


@pytest.mark.parametrize("kind", EACH)
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


@pytest.mark.parametrize("kind", EACH)
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


# ---- other processes ----


class Reader:
    """Server that returns what it sees in a place."""

    def __init__(self, rank: int, progress: Progress, batches: list[Samples]) -> None:
        self.batches = batches

    def __call__(self, place: int) -> Any:
        return buffer_func(self.batches[place], np.array)

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(("kind", "start_method"), [("serial", "here"), ("cpu2", "forkserver"), ("gpu2", "here")])
def test_another_process_reads_what_was_collected_while_the_next_batches_are(kind, start_method):
    options = {**OPTIONS, "n_batches": 2, "share_memory": True, "start_method": start_method}
    with running(kind, random_agent(True), DictCountingEnv, **options) as sampler:
        reader = Worker(0, Reader, (sampler.batches,), "forkserver")
        try:
            for itr in range(4):
                [(expected, _)] = collect(sampler, 1, first=itr)
                sampler.obtain_samples(itr + 1)
                reader.send(itr % 2)
                [seen] = receive_all([reader], timeout=30)
                for x, y in zip(buffer_leaves(seen), buffer_leaves(expected), strict=True):
                    assert np.array_equal(x, y.numpy())
        finally:
            stop_workers([reader])
