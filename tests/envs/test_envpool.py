from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlpyt.envs import (
    EnvError,
    VectorEnvAdapter,
    check_vector_env,
    envpool_make_vec,
    make_vector_env,
    makes_vector_env,
)

NOOP, FIRE = 0, 1


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[envpool\]"):
        envpool_make_vec("Pong-v5", 2)
    assert makes_vector_env(envpool_make_vec)


@pytest.fixture
def envpool():
    return pytest.importorskip("envpool", reason="EnvPool is not installed: pip install rlpyt[envpool]")


BREAKOUT: dict[str, Any] = {"task_id": "Breakout-v5", "img_height": 20, "img_width": 16, "noop_max": 1}


def make(task_id: str, ranks: list[int], **kwargs: Any) -> VectorEnvAdapter:
    return make_vector_env(envpool_make_vec, {"task_id": task_id, **kwargs}, ranks)


def rows(env: VectorEnvAdapter, seeds: list[int] | None, n_steps: int = 60) -> np.ndarray:
    rng, seen = np.random.default_rng(0), [env.reset(seeds)[0]]
    for _ in range(n_steps):
        env.send(np.full(env.n, rng.integers(2)))
        seen.append(env.recv()[0])
    return np.array(seen)


def test_the_seeds_of_reset_reach_the_environments(envpool):
    three, one = make("CartPole-v1", [0, 1, 2]), make("CartPole-v1", [1])
    many = rows(three, [5, 6, 7])
    np.testing.assert_array_equal(many, rows(three, [5, 6, 7]))
    np.testing.assert_array_equal(many[:, 1:2], rows(one, [6]))
    assert (many != rows(three, [8, 9, 10])).any()


def test_without_seeds_an_argument_decides_or_chance(envpool):
    np.testing.assert_array_equal(
        rows(make("CartPole-v1", [0, 1], seed=5), None), rows(make("CartPole-v1", [0, 1]), [5, 6])
    )
    assert (rows(make("CartPole-v1", [0, 1]), None) != rows(make("CartPole-v1", [0, 1]), None)).any()
    env = make("CartPole-v1", [0, 1], seed=5)
    first = env.reset()[0]
    assert (first != env.reset()[0]).any()


def test_episodes_end_with_a_row_of_their_own(envpool):
    env = make("CartPole-v1", [0, 1, 2], max_episode_steps=12)
    env.reset([1, 2, 3])
    single: Any = gymnasium.make("CartPole-v1").unwrapped
    ended, n_terminated, n_truncated = np.zeros(3, bool), 0, 0
    observation, _ = env.reset([1, 2, 3])
    for k in range(60):
        action = np.array([1, k % 2, 1])
        env.send(action)
        before, (observation, reward, terminated, truncated, _) = observation, env.recv()
        assert reward.tolist() == (~ended).astype(float).tolist()
        assert not (terminated | truncated)[ended].any()
        for b in np.flatnonzero(~ended):
            single.reset()
            single.state = before[b]
            expected = single.step(int(action[b]))
            np.testing.assert_allclose(observation[b], expected[0], atol=1e-4)
            assert terminated[b] == expected[2]
        assert (np.abs(observation[ended]) <= 0.05).all()
        ended = terminated | truncated
        n_terminated += terminated.sum()
        n_truncated += truncated.sum()
    assert n_terminated > 5
    assert n_truncated > 2


def test_a_reset_of_a_part_leaves_the_others_alone(envpool):
    env, whole = make("CartPole-v1", [0, 1, 2]), make("CartPole-v1", [0, 1, 2])
    env.reset([1, 2, 3])
    whole.reset([1, 2, 3])
    for k in range(7):
        for e in (env, whole):
            e.send(np.full(3, k % 2))
            e.recv()
    observation, info = env.reset_some(np.array([True, False, True]))
    assert observation.shape == (3, 4)
    assert (np.abs(observation[[0, 2]]) <= 0.05).all()
    assert info["elapsed_step"].shape == (3,)
    for e in (env, whole):
        e.send(np.zeros(3, int))
    observation, *_, info = env.recv()
    np.testing.assert_array_equal(observation[1], whole.recv()[0][1])
    assert info["elapsed_step"].tolist() == [1, 8, 1]
    with pytest.raises(EnvError, match="after a reset of all"):
        make("CartPole-v1", [0]).reset_some(np.ones(1, bool))


@pytest.mark.parametrize("episodic_life", [True, False])
def test_lives_of_atari_are_no_ends_of_games(envpool, episodic_life):
    env = make_vector_env(envpool_make_vec, {**BREAKOUT, "episodic_life": episodic_life}, [0, 1])
    env.reset([3, 4])
    ended, ends, lives = np.zeros(2, bool), [], 5
    for t in range(300):
        env.send(np.full(2, FIRE if t % 5 == 0 else NOOP))
        _, _, terminated, truncated, info = env.recv()
        assert list(info) == ["game_score", "traj_done", "lives"]
        assert not truncated.any()
        assert (terminated[0], info["traj_done"][0]) != (False, True)
        if ended[0] and info["lives"][0] != 5:
            assert info["lives"][0] == lives
        ended, lives = terminated, info["lives"][0]
        if terminated[0]:
            ends.append((bool(info["traj_done"][0]), int(lives)))
    lost = [(False, lives) for lives in (4, 3, 2, 1)] if episodic_life else []
    assert ends[: len(lost) + 1] == [*lost, (True, 0)]


def test_the_horizon_of_atari_ends_the_trajectory(envpool):
    env = make_vector_env(envpool_make_vec, {**BREAKOUT, "episodic_life": True, "max_episode_steps": 8}, [0])
    env.reset([3])
    seen = []
    for _ in range(9):
        env.send(np.array([NOOP]))
        _, _, terminated, truncated, info = env.recv()
        seen.append((bool(terminated[0]), bool(truncated[0]), bool(info["traj_done"][0])))
    assert seen == [(False, False, False)] * 7 + [(False, True, True), (False, False, False)]


@pytest.mark.parametrize("task_id", ["Pendulum-v1", "Taxi-v3", "Blackjack-v1", "MiniGrid-Empty-5x5-v0", "Pong-v5"])
def test_spaces_and_info_of_other_tasks(envpool, recwarn, task_id):
    env = make(task_id, [0, 1])
    examples = check_vector_env(env, seed=0)
    assert not [w for w in recwarn if "precision" in str(w.message)]
    assert env.spaces == (env.env._pool.observation_space, env.env._pool.action_space)  # that of one
    assert ("game_score" in examples.info) == (task_id == "Pong-v5")
    assert "env_id" not in examples.info
    env.close()
    assert env.env._pool is None


def test_wrong_settings(envpool):
    with pytest.raises(ValueError, match=r"no task 'Pongg-v5'; did you mean .*Pong-v5"):
        envpool_make_vec("Pongg-v5", 2)
    with pytest.raises(ValueError, match=r"Leave out batch_size"):
        envpool_make_vec("Pong-v5", 2, batch_size=1)
    with pytest.raises(EnvError, match="nonsense"):
        make("Pong-v5", [0], nonsense=3)
