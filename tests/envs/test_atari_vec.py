from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlpyt.envs import (
    AtariEnv,
    VectorEnvAdapter,
    atari_make_vec,
    make_vector_env,
)
from rlpyt.envs.atari_vec import AtariVec
from rlpyt.utils.processes import available_cores

NOOP, FIRE = 0, 1
EQUAL: dict[str, Any] = {"max_start_noops": 0, "image_size": (42, 30)}


class SlowRows:
    """The rows that one game of `atari_make_vec` must give, from an `AtariEnv` that knows no lives."""

    def __init__(self, game, horizon=10**6, clip_reward=True, episodic_lives=True, **kwargs):
        self.env = AtariEnv(game, episodic_lives=False, clip_reward=False, **kwargs)
        self.horizon, self.clip_reward, self.episodic_lives = horizon, clip_reward, episodic_lives
        self.n_images = self.env.observation_space.shape[0]

    def reset(self, seed=None):
        observation, info = self.env.reset(seed=seed)
        self.lives, self.n_steps, self.n_seen, self.carried = info["lives"], 0, 1, 0.0
        self.starts, self.null = False, False
        return self.blanked(observation)

    def blanked(self, observation):
        observation = observation.copy()
        observation[: max(0, self.n_images - self.n_seen)] = 0
        return observation

    def step(self, action):
        """Return observation, reward, terminated, truncated, game_score, traj_done, lives."""
        if self.starts:
            return self.reset(), 0.0, False, False, 0.0, False, self.lives
        observation, score, over, _, info = self.env.step(NOOP if self.null else action)
        lives, before = info["lives"], self.lives
        self.lives = lives
        if self.null:
            self.n_seen, self.carried, self.null, self.starts = 1, score, False, over
            return self.blanked(observation), 0.0, over, False, 0.0, over, lives
        self.n_steps += 1
        self.n_seen += 1
        game_score, self.carried = score + self.carried, 0.0
        lost = self.episodic_lives and 0 < lives < before and not over
        late = self.n_steps >= self.horizon
        self.starts, self.null = over or late, lost and not late
        reward = np.sign(score) if self.clip_reward else score
        terminated = over or lost
        return (
            self.blanked(observation),
            reward,
            terminated,
            late and not terminated,
            game_score,
            over or late,
            lives,
        )


def rows_of(result, b):
    observation, reward, terminated, truncated, info = result
    return observation[b], reward[b], terminated[b], truncated[b], *[info[k][b] for k in info]


@pytest.mark.parametrize(
    ("game", "kwargs", "n_steps", "ends"),
    [
        ("breakout", {}, 420, {"lives", "games"}),
        pytest.param(
            *("breakout", {"clip_reward": False, "episodic_lives": False, "num_img_obs": 2}, 300, {"games"}),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            *("ALE/SpaceInvaders-v5", {"frame_skip": 3, "num_img_obs": 5}, 900, {"lives", "games"}),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            *("seaquest", {"horizon": 150, "full_action_space": True, "clip_reward": False}, 400, {"lives", "horizon"}),
            marks=pytest.mark.nightly,
        ),
        ("space_invaders", {"num_img_obs": 1, "frame_skip": 3, "image_size": 20}, 90, set()),
    ],
)
def test_rows_are_those_of_atari_env_to_the_last_pixel(game, kwargs, n_steps, ends):
    kwargs = {**EQUAL, **kwargs}
    env, slow = atari_make_vec(game, 2, **kwargs), SlowRows(game, **kwargs)
    assert (env.single_observation_space, env.single_action_space) == slow.env.spaces
    observation, info = env.reset(seed=np.array([3, 4]))
    np.testing.assert_array_equal(observation[0], slow.reset(seed=3))
    assert list(info) == ["game_score", "traj_done", "lives"]
    rng, seen = np.random.default_rng(0), set()
    assert isinstance(env.single_action_space, spaces.Discrete)
    for t in range(n_steps):
        actions = rng.integers(env.single_action_space.n, size=2)
        image, *row = rows_of(env.step(actions), 0)
        expected_image, *expected = slow.step(actions[0])
        assert row == expected, t
        _, terminated, truncated, _, traj_done, _ = row
        # No image is read in the last frame of a game that is over.
        if not (terminated and traj_done):
            np.testing.assert_array_equal(image, expected_image)
        if terminated or truncated:
            seen.add("horizon" if truncated else "games" if traj_done else "lives")
    assert seen == ends


def test_a_life_that_is_lost_in_the_last_step_ends_the_trajectory():
    def lose(env: AtariVec, n_steps: int) -> list[tuple[Any, ...]]:
        env.reset(seed=np.array([0]))
        return [rows_of(env.step(np.array([FIRE if t % 5 == 0 else NOOP])), 0) for t in range(n_steps)]

    rows = lose(atari_make_vec("breakout", 1, **EQUAL), 40)
    when = [terminated for _, _, terminated, *_ in rows].index(True)
    last, first = lose(atari_make_vec("breakout", 1, horizon=when + 1, **EQUAL), when + 2)[-2:]
    assert last[2:] == (True, False, 0.0, True, 4)
    assert first[2:] == (False, False, 0.0, False, 5)


def test_fire_begins_games_and_lives():
    env = atari_make_vec("breakout", 1, fire_on_reset=True, **EQUAL)
    observation, _ = env.reset(seed=np.array([0]))
    plain, _ = atari_make_vec("breakout", 1, **EQUAL).reset(seed=np.array([0]))
    assert (observation != plain).any()  # the ball is there
    lives, n_lost = 5, 0
    for _ in range(200):
        _, _, terminated, _, info = env.step(np.array([NOOP]))
        n_lost += terminated[0] and not info["traj_done"][0]
        lives = min(lives, info["lives"][0])
    assert n_lost >= 4  # without FIRE the ball would never come
    assert lives == 0


def test_seeds_decide_no_ops_and_sticky_actions_of_each_game():
    kwargs = {"game": "pong", "image_size": 20, "repeat_action_probability": 0.25, "max_start_noops": 9, "horizon": 40}
    three, one = make_vector_env(atari_make_vec, kwargs, [0, 1, 2]), make_vector_env(atari_make_vec, kwargs, [1])

    def seen(env: VectorEnvAdapter, seeds: list[int]) -> np.ndarray:
        rng, observations = np.random.default_rng(0), [env.reset(seeds)[0]]
        for _ in range(50):
            env.send(np.full(env.n, rng.integers(6)))
            observations.append(env.recv()[0])
        return np.array(observations)

    many = seen(three, [5, 6, 7])
    np.testing.assert_array_equal(many, seen(three, [5, 6, 7]))
    np.testing.assert_array_equal(many[:, 1:2], seen(one, [6]))
    assert (many[:, 0] != many[:, 1]).any()
    assert (many != seen(three, [8, 9, 0])).any()


def test_number_of_no_ops():
    env = atari_make_vec("pong", 2, max_start_noops=3, image_size=20)
    numbers = {int(n) for _ in range(30) for n in env.env.reset()[1]["episode_frame_number"]}
    assert numbers == {0, 1, 2, 3}


def test_a_reset_with_a_mask_starts_new_games_there_alone():
    env = VectorEnvAdapter(atari_make_vec("breakout", 3, **EQUAL), [0, 1, 2])
    env.reset([1, 2, 3])
    for t in range(60):
        env.send(np.full(3, FIRE if t % 5 == 0 else NOOP))
        *_, info = env.recv()
        if info["lives"][0] < 4:
            break
    assert env.env._lost_life.all()
    observation, info = env.reset_some(np.array([True, False, True]))
    assert info["lives"].tolist() == [5, 3, 5]
    assert (observation[0, :-1] == 0).all()
    assert (observation[0, -1] != 0).any()
    env.send(np.full(3, FIRE))
    observation, _, terminated, _, info = env.recv()
    assert info["lives"].tolist() == [5, 3, 5]
    assert not terminated.any()
    assert (observation[:, -2] != 0).any((1, 2)).tolist() == [True, False, True]


class Scripted(VectorEnv[Any, Any, Any]):
    """One game whose (score, over, lives) are given; row 0 is the reset."""

    single_observation_space = spaces.Box(0, 255, (2, 1, 1), np.uint8)
    single_action_space = spaces.Discrete(4)
    num_envs = 1
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, script):
        self.script = iter(script)
        self.actions: list[int] = []

    def reset(self, *, seed=None, options=None):
        observation, *_, info = self.recv()
        return observation, info

    def send(self, actions):
        self.actions.append(int(actions[0]))

    def recv(self):
        score, over, lives = next(self.script)
        never = np.zeros(1, bool)
        observation = np.ones((1, 2, 1, 1), np.uint8)
        return observation, np.array([score], np.int32), np.array([over]), never, {"lives": np.array([lives], np.int32)}


@pytest.mark.parametrize(
    ("script", "expected", "actions"),
    [
        # (reward, terminated, game_score, traj_done, lives) of each row, and the actions that reach the emulator.
        pytest.param(
            [(0, False, 3), (5, False, 2), (7, False, 2), (0, False, 2), (2, False, 2)],
            [(1, True, 5, False, 2), (0, False, 0, False, 2), (0, False, 7, False, 2), (1, False, 2, False, 2)],
            [3, NOOP, 3, 3],
            id="a score in the row after a lost life is not lost",
        ),
        pytest.param(
            [(0, False, 3), (0, False, 2), (0, False, 1), (0, False, 1), (0, True, 0)],
            [(0, True, 0, False, 2), (0, False, 0, False, 1), (0, False, 0, False, 1), (0, True, 0, True, 0)],
            [3, NOOP, 3, 3],
            id="a second life lost in that row counts as none",
        ),
        pytest.param(
            [(0, False, 2), (0, False, 1), (9, True, 0), (0, False, 2), (1, False, 2)],
            [(0, True, 0, False, 1), (0, True, 0, True, 0), (0, False, 0, False, 2), (1, False, 1, False, 2)],
            [3, NOOP, NOOP, 3],
            id="the game is over in that row",
        ),
        pytest.param(
            [(0, False, 1), (4, True, 0), (0, False, 1), (0, False, 0), (0, True, 0)],
            [(1, True, 4, True, 0), (0, False, 0, False, 1), (0, False, 0, False, 0), (0, True, 0, True, 0)],
            [3, NOOP, 3, 3],
            id="no lives left is left to the end of the game",
        ),
    ],
)
def test_what_happens_in_the_row_after_a_lost_life(script, expected, actions):
    env = AtariVec(Scripted(script), noop=NOOP, begin=NOOP, clip_reward=True, episodic_lives=True, horizon=99)
    env.reset()
    rows = []
    for _ in expected:
        _, reward, terminated, truncated, info = env.step(np.array([3]))
        assert not truncated.any()
        rows.append((reward[0], terminated[0], info["game_score"][0], info["traj_done"][0], info["lives"][0]))
    assert rows == expected
    assert env.env.actions == actions  # type: ignore[attr-defined]


def test_a_game_that_is_over_in_the_row_after_its_truncation_is_simply_reset():
    # (score, over, lives) of: reset, step, the row in which it is reset (stepped, then reset), step.
    script = [(0, False, 3), (1, False, 3), (9, True, 0), (0, False, 3), (2, False, 3)]
    env = AtariVec(Scripted(script), noop=NOOP, begin=FIRE, clip_reward=False, episodic_lives=True, horizon=1)
    env.reset()
    rows = [env.step(np.array([3])) for _ in range(3)]
    assert [float(row[1][0]) for row in rows] == [1, 0, 2]
    assert [bool(row[2][0]) for row in rows] == [False, False, False]
    assert [bool(row[3][0]) for row in rows] == [True, False, True]
    assert [float(row[4]["game_score"][0]) for row in rows] == [1, 0, 2]
    assert [bool(row[4]["traj_done"][0]) for row in rows] == [True, False, True]
    assert env.env.actions == [3, NOOP, 3]  # type: ignore[attr-defined]


def test_one_thread_a_game_but_no_more_than_cores(monkeypatch):
    from ale_py import vector_env

    made: list[int] = []

    class Counted(vector_env.AtariVectorEnv):
        def __init__(self, *args: Any, num_threads: int, **kwargs: Any) -> None:
            made.append(num_threads)
            raise InterruptedError  # 200 games take a while to load

    monkeypatch.setattr(vector_env, "AtariVectorEnv", Counted)
    for num_envs, num_threads in ((1, None), (200, None), (200, 3)):
        with pytest.raises(InterruptedError):
            atari_make_vec("pong", num_envs, num_threads)
    assert made == [1, min(200, available_cores()), 3]


def test_wrong_settings(monkeypatch):
    with pytest.raises(ValueError, match=r"no game 'brekout'; did you mean .*breakout"):
        atari_make_vec("brekout", 2)
    with pytest.raises(ValueError, match=r"at least 1 .*got 2, 0, 4, 27000 and 30"):
        atari_make_vec("pong", 2, frame_skip=0)
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[atari\]"):
        atari_make_vec("pong", 2)
