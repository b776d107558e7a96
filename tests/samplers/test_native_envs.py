"""Native vector environments give the rows, trajectories and values of the Python list of the same environments."""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import torch
from gymnasium.vector import AutoresetMode

from rlpyt.agents import CategoricalPgAgent
from rlpyt.envs import EnvError
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.processes import WorkerError
from rlpyt.utils.seeds import Role, stream_seed
from tests.pairs import crossed
from tests.samplers.row_reference import Stream, assert_batches, assert_row, row_of
from tests.samplers.sampler_kit import (
    assert_equal_batches,
    batches_of,
    collect,
    counting_agent,
    in_order,
    random_agent,
    running,
    start_and_stop,
    with_either,
)
from tests.toy_envs import CountingEnv, DictCountingEnv, LifeEnv, RecordingTrajInfo
from tests.vector_toy_envs import (
    CountingVectorEnv,
    DictCountingVectorEnv,
    FaultyVectorEnv,
    LifeVectorEnv,
    ToyVectorEnv,
)

SEED, DISCOUNT = 7, 0.5
KINDS = ("serial", "halves", "cpu2", "gpu2", "alternating2")
TOYS = [(CountingVectorEnv, CountingEnv), (DictCountingVectorEnv, DictCountingEnv), (LifeVectorEnv, LifeEnv)]
AFTER: dict[str, Any] = dict(bootstrap_value=True, bootstrap_inputs=True)
OPTIONS: dict[str, Any] = dict(B=3, seed=SEED, **AFTER, traj_info_kwargs={"discount": DISCOUNT})


def info_keys(EnvCls: Any) -> list[str]:
    return [] if EnvCls is LifeEnv else ["t", "vector"]


# ---- rows ----


@pytest.mark.parametrize(("VectorCls", "EnvCls", "recurrent"), [(*TOYS[0], False), *((*toy, True) for toy in TOYS[1:])])
def test_batches_are_those_of_the_python_list(VectorCls, EnvCls, recurrent):
    for T in (1, 5):
        options: dict[str, Any] = {**OPTIONS, "T": T, "B": 4, "env_info_keys": info_keys(EnvCls)}
        n_batches = 9 // T + 2
        expected = batches_of(n_batches, "serial", random_agent(recurrent), EnvCls, **options)
        for kind in (*KINDS, "cpu3", "no_overlap2") if T == 5 else ("serial", "halves"):
            batches = batches_of(n_batches, kind, random_agent(recurrent), VectorCls, **options)
            for (samples, _), (reference, _) in zip(batches, expected, strict=True):
                assert torch.equal(samples.agent.action, reference.agent.action), (kind, T)
            # A forward pass over another number of rows is rounded otherwise.
            assert_equal_batches(batches, expected, rtol=0.0 if kind == "serial" else 1e-4)


class SteadyEnv(CountingEnv):
    """Has the same episode again and again, so that one more or less of them is not seen."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode = 0
        return self.observe(), {}


class SteadyDictEnv(SteadyEnv, DictCountingEnv):
    """The same in a nested observation."""


@pytest.mark.parametrize(
    ("mode", "classes"),
    crossed(list(AutoresetMode), [(CountingVectorEnv, SteadyEnv), (DictCountingVectorEnv, SteadyDictEnv)], strength=1),
)
def test_batches_are_the_same_in_every_mode_of_reset(mode, classes):
    VectorCls, EnvCls = classes
    in_mode = functools.partial(VectorCls, EnvCls=EnvCls, mode=mode)
    for kind, mid_batch_reset in (("serial", True), ("serial", False), ("cpu2", True)):
        options: dict[str, Any] = {**OPTIONS, "T": 7, "B": 8, "mid_batch_reset": mid_batch_reset}
        options["env_info_keys"] = ["t", "vector"]
        expected = batches_of(5, "serial", counting_agent(True), EnvCls, **options)
        assert len({info["Length"] for _, infos in expected for info in infos}) > 2
        with running(kind, counting_agent(True), in_mode, **options) as sampler:
            assert_equal_batches(collect(sampler, 5), expected)


def test_info_that_would_be_cut_is_refused():
    """Like that of one environment: t is whole where it was checked, and becomes a fraction."""

    class Drifting(CountingVectorEnv):
        def _info(self, infos: Any) -> dict[str, Any]:
            info = super()._info(infos)
            return {**info, "t": info["t"] + 0.5 if self.drifts else info["t"]}

        drifts = False

    with running("serial", counting_agent(), Drifting, **{**OPTIONS, "env_info_keys": ["t"]}) as sampler:
        sampler.obtain_samples(0)
        Drifting.drifts = True
        with pytest.raises(
            ValueError, match=r"Recording 't'.*float64 \[\d\]; expected int64.*env_info_keys=\{'t': 0.0\}"
        ):
            sampler.obtain_samples(1)


# ---- resting until the batch is over ----


class VaryingLifeEnv(LifeEnv):
    """Every other game loses lives inside a batch of three; the others run to the horizon with the first life."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        self.lengths = (2,) if self.episode % 2 else (self.HORIZON + 1,)
        return observation, info


class VaryingLifeVectorEnv(ToyVectorEnv):
    """A reset with a mask starts a new game, also after a lost life: ale-py's does."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([VaryingLifeEnv() for _ in range(num_envs)], {"game_score": 0.0, "traj_done": False})

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        for b in np.flatnonzero(np.ones(self.num_envs) if options is None else options["reset_mask"]):
            self.envs[b].lost_life = False  # type: ignore[attr-defined]
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("kind", ["serial", "cpu2"])
def test_what_is_logged_of_games_with_rests_is_whole_games(kind):
    options: dict[str, Any] = {**OPTIONS, "T": 3, "mid_batch_reset": False, "TrajInfoCls": RecordingTrajInfo}
    with running(kind, counting_agent(), VaryingLifeVectorEnv, **options) as sampler:
        traj_infos = [info for itr in range(20) for info in sampler.obtain_samples(itr)[1]]
    assert len(traj_infos) > 3
    for info in traj_infos:
        # A game of which a life was lost is broken off by the reset, and logged nowhere.
        assert info.Length == LifeEnv.HORIZON
        observations = [o.tolist() for o, *_ in vars(info)["_seen"]]
        assert len({(number, episode) for number, _, episode in observations}) == 1, "games run together"
        assert [t for _, t, _ in observations] == list(range(info.Length)), "steps are missing"


# ---- state ----


@pytest.mark.parametrize(("kind", "mid_batch_reset"), with_either(KINDS, True, False))
def test_after_loading_the_row_at_hand_is_final_and_new_episodes_begin(kind, mid_batch_reset):
    T, n = 4, 3
    of_the_start = {stream_seed(SEED, Role.ENV, rank) % 1024 for rank in range(3)}
    options: dict[str, Any] = {**OPTIONS, "T": T, "mid_batch_reset": mid_batch_reset, "env_info_keys": ["t", "vector"]}
    with running(kind, counting_agent(True), CountingVectorEnv, **options) as sampler:
        collect(sampler, n)
        state = sampler.state_dict()
        expected, _ = collect(sampler, 1, first=n)[0]
    with running(kind, counting_agent(True), CountingVectorEnv, **options) as sampler:
        for _ in range(2):  # in a sampler that has not run, and in one that has
            sampler.load_state_dict(state)
            assert "it is a vector environment" in str(sampler.why_no_state())
            samples, traj_infos = sampler.obtain_samples(n)
            assert not samples.env.valid[0].any()
            assert not samples.env.done[0].any()
            assert torch.equal(samples.env.observation[0], expected.env.observation[0])
            assert torch.equal(samples.agent.prev_action[0], expected.agent.prev_action[0])
            assert torch.equal(samples.env.prev_reward[0], expected.env.prev_reward[0])
            h = samples.agent.agent_info.prev_rnn_state.h
            assert torch.equal(h[0], expected.agent.agent_info.prev_rnn_state.h[0])
            for zero in (samples.agent.action[0], samples.env.reward[0], h[1]):
                assert not zero.any()
            assert all(not leaf[0].any() for leaf in buffer_leaves(samples.env.env_info))
            assert samples.env.valid[1].all()
            assert not samples.env.observation[1, :, 1:].any(), "no episode begins, or no environment was seeded"
            assert not set(samples.env.observation[1, :, 0].tolist()) & of_the_start
            streams = []
            for b in range(3):
                env = CountingEnv()
                vars(env).update(number=int(samples.env.observation[1, b, 0]), needs_reset=False)
                streams.append(Stream(env, env.observe(), True, rests="never" if mid_batch_reset else "stepped"))
                for t in range(1, T):
                    assert_row(samples, t, b, streams[b].next_row(DISCOUNT), True, True)
                streams[b].end_batch()
            # What was lost is logged nowhere.
            assert in_order(traj_infos) == sorted(sorted(i.items()) for stream in streams for i in stream.trajectories)
            for stream in streams:
                stream.trajectories.clear()
        assert_batches(sampler, streams, 4, discount=DISCOUNT, first=n + 1)


# ---- gymnasium's own ----


def children() -> set[int]:
    """Return the processes below this one, those aside that serve the starting of others until the end."""
    below = psutil.Process().children(recursive=True)
    servers = ("multiprocessing.forkserver", "resource_tracker")
    return {child.pid for child in below if not any(name in " ".join(child.cmdline()) for name in servers)}


def next_state(state: np.ndarray, action: int) -> np.ndarray:
    """CartPole's equations of motion, one Euler step (Barto, Sutton and Anderson 1983; Florian 2007)."""
    x, x_dot, theta, theta_dot = state.astype(np.float64)
    force = 10.0 if action == 1 else -10.0
    temp = (force + 0.05 * theta_dot**2 * math.sin(theta)) / 1.1
    theta_acc = (9.8 * math.sin(theta) - math.cos(theta) * temp) / (0.5 * (4 / 3 - 0.1 * math.cos(theta) ** 2 / 1.1))
    x_acc = temp - 0.05 * theta_acc * math.cos(theta) / 1.1
    return np.array([x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc])


@pytest.mark.parametrize("mode", [None, "sync", "async"])
@pytest.mark.parametrize("kind", ["serial", "halves"])
def test_rows_of_cart_pole_follow_its_physics(kind, mode):
    env_kwargs: dict[str, Any] = {"id": "CartPole-v1"}
    if mode is not None:
        env_kwargs["vectorization_mode"] = mode
    before = children()
    agent = CategoricalPgAgent(model_kwargs={"hidden_sizes": 4})
    T, B = 40, 3
    batches = batches_of(3, kind, agent, gymnasium.make_vec, T, B, env_kwargs=env_kwargs, bootstrap_value=True)
    assert children() == before

    rows = [row_of(samples, t, b) for b in range(B) for samples, _ in batches for t in range(T)]
    n_ends, starts, lengths = 0, [], []
    for b in range(B):
        length = 0
        for (agent_row, env), (next_agent, after) in pairwise(rows[b * 3 * T : (b + 1) * 3 * T]):
            state, following = env.observation.numpy(), after.observation.numpy()
            if env.valid:
                length += 1
                expected = next_state(state, agent_row.action.item())
                np.testing.assert_allclose(following, expected, rtol=1e-4, atol=1e-5)
                failed = abs(expected[0]) > 2.4 or abs(expected[2]) > 12 * math.pi / 180
                assert (bool(env.terminated), bool(env.truncated), env.reward.item()) == (failed, False, 1.0)
                assert after.valid != env.done
            else:
                lengths.append(length)
                n_ends, length = n_ends + 1, 0
                starts.append(tuple(following))
                assert np.abs(following).max() <= 0.05, "an episode begins near the middle"
                assert (env.reward, env.done, agent_row.action) == (0, False, 0)
                assert after.valid
                assert (next_agent.prev_action, after.prev_reward) == (0, 0)
    assert n_ends > 6
    assert len(set(starts)) == n_ends, "episodes begin in the same state"
    logged = [info["Length"] for _, infos in batches for info in infos]
    assert all(info["Return"] == info["Length"] for _, infos in batches for info in infos)
    # One that ends with the very last row is logged, and has no final row here.
    assert len(logged) - B <= n_ends <= len(logged)
    assert set(lengths) <= set(logged)


def test_async_environments_are_closed_after_an_error():
    before = children()
    env_kwargs = {"id": "CartPole-v1", "vectorization_mode": "async"}

    def break_off() -> None:
        with running("halves", random_agent(), gymnasium.make_vec, B=2, env_kwargs=env_kwargs) as sampler:
            sampler.obtain_samples(0)
            assert len(children() - before) == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert children() == before


@pytest.mark.parametrize("kind", ["serial", "halves"])
def test_environments_that_cannot_be_reset_in_part_take_the_same_number_of_random_steps(kind):
    T, B = 30, 4
    options: dict[str, Any] = dict(env_kwargs={"id": "CartPole-v1"}, max_decorrelation_steps=15)
    agent = CategoricalPgAgent(model_kwargs={"hidden_sizes": 4})
    with running(kind, agent, gymnasium.make_vec, T, B, **options) as sampler:
        samples, traj_infos = sampler.obtain_samples(0)
    env = samples.env
    # One whose episode has just ended or begun aside, all are amid an episode, after a step of reward 1.
    amid = env.prev_reward[0] == 1
    assert amid.sum() > 1
    assert env.observation[0, amid].abs().amax(1).min() > 0.05
    for b in range(B):
        for t in np.flatnonzero(env.valid[:-1, b].numpy()):
            expected = next_state(env.observation[t, b].numpy(), samples.agent.action[t, b].item())
            np.testing.assert_allclose(env.observation[t + 1, b].numpy(), expected, rtol=1e-4, atol=1e-5)
    unlogged = int((amid & env.valid[0] & env.done.any(0)).sum())
    assert len(traj_infos) == int(env.done.sum()) - unlogged


def test_environments_that_cannot_be_reset_in_part_cannot_rest():
    options: dict[str, Any] = dict(env_kwargs={"id": "CartPole-v1"}, mid_batch_reset=False)
    with pytest.raises(
        ValueError, match=r"CartPoleVectorEnv CartPole-v1.*mid_batch_reset=False.*expected mid_batch_reset=T"
    ):
        start_and_stop("serial", random_agent(), gymnasium.make_vec, **options)


# ---- faults ----


FAULTS = {
    "raise": r"FaultyVectorEnv \(ranks {first} to {last}\).*ZeroDivisionError: the toy broke in step",
    "nan": r"FaultyVectorEnv \(rank {bad} of ranks {first} to {last}, seed {seed}\).*finite.*nan",
    "shape": r"FaultyVectorEnv.*ranks {first} to {last}.*shape",
    "kill": r"environment {first}, step \d+, was killed by SIGKILL",
    "exit": r"environment {first}, step \d+, exited with code 3",
}


@pytest.mark.parametrize(
    ("kind", "fault"),
    [*(("cpu2", fault) for fault in FAULTS), *(("serial", fault) for fault in ("raise", "nan", "shape"))]
    + [("halves", "nan"), ("gpu2", "raise"), ("gpu2", "kill"), ("alternating2", "nan"), ("alternating2", "exit")],
)
def test_a_fault_names_the_environment(kind, fault):
    first = 0 if kind == "serial" else 2
    seed = stream_seed(SEED, Role.ENV, 3)
    env_kwargs = {"fault": fault, "at": 6, "bad_seed": seed}
    match = FAULTS[fault].format(first=first, last=3, bad=3, seed=seed)
    error = EnvError if kind in ("serial", "halves") else WorkerError
    options: dict[str, Any] = dict(env_kwargs=env_kwargs, start_method="forkserver")
    with running(kind, random_agent(), FaultyVectorEnv, T=4, B=4, seed=SEED, **options) as sampler:
        sampler.obtain_samples(0)
        with pytest.raises(error, match=match):
            collect(sampler, 5, first=1)
