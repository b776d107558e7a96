from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ale_py
import cv2
import numpy as np
import pytest
from ale_py import roms
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from rlpyt.agents import CategoricalPgAgent
from rlpyt.envs import AtariEnv, make_env
from rlpyt.envs.atari import find_rom
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.samplers import SerialSampler, evaluate
from rlpyt.types import Run
from tests.pairs import others_nightly

NOOP, FIRE = 0, 1
BREAKOUT: dict[str, Any] = {"game": "breakout", "max_start_noops": 0}


def lose_a_life(env, max_steps=400):
    """Press FIRE and never move; returns the last step and how many steps it took."""
    for t in range(1, max_steps):
        result = env.step(FIRE if t % 5 == 1 else NOOP)
        if result[2] or result[3]:
            return result, t
    raise AssertionError("no episode ended")


class SlowAtari:
    """The observations of an AtariEnv, from a list of every raw frame of an emulator of its own."""

    def __init__(self, game, frame_skip, n_images, size, fire=False):
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(Path(roms.get_rom_path(game) or ""))
        self.frame_skip, self.n_images, self.size, self.fire = frame_skip, n_images, size, fire
        self.actions = self.ale.getMinimalActionSet()
        self.over = True

    def reset(self):
        if self.over:
            self.ale.reset_game()
            self.raw = [self.ale.getScreenGrayscale()]
            self.images = [self.shrunk(self.raw[-1])]
        if self.fire:
            self.ale.act(self.actions[FIRE])
            self.raw.append(self.ale.getScreenGrayscale())
            self.images = [self.shrunk(self.raw[-1])]
        # What a lost life leaves behind is its last image.
        self.images = self.images[-1:]
        self.lives = self.ale.lives()
        return self.stack()

    def step(self, action):
        score = 0
        for _ in range(self.frame_skip):
            score += self.ale.act(self.actions[action])
            self.raw.append(self.ale.getScreenGrayscale())
        self.images.append(self.shrunk(np.maximum(self.raw[-1], self.raw[-2])))
        lost, self.over = self.ale.lives() < self.lives, self.ale.game_over()
        return self.stack(), score, lost or self.over, self.over

    def shrunk(self, image):
        return cv2.resize(image, self.size[::-1], interpolation=cv2.INTER_AREA)

    def stack(self):
        images = self.images[-self.n_images :]
        blank = [np.zeros(self.size, np.uint8)] * (self.n_images - len(images))
        return np.stack(blank + images)


@pytest.mark.parametrize(
    ("frame_skip", "n_images", "fire"),
    others_nightly([(4, 4, False), (1, 2, True), (2, 1, False), (3, 5, True)], [(4, 4, False), (1, 2, True)]),
)
def test_steps_against_a_slow_reference(frame_skip, n_images, fire):
    size = (30, 42)
    env = AtariEnv("breakout", frame_skip, n_images, max_start_noops=0, image_size=size, fire_on_reset=fire)
    slow = SlowAtari("breakout", frame_skip, n_images, size, fire)
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation, slow.reset())
    n_lost = n_games = 0
    for action in np.random.default_rng(0).choice(4, p=[0.6, 0.2, 0.1, 0.1], size=1200 // frame_skip):
        observation, reward, terminated, truncated, info = env.step(action)
        expected, score, over, game_over = slow.step(action)
        np.testing.assert_array_equal(observation, expected)
        assert (info["game_score"], terminated, truncated, info.get("traj_done")) == (
            *(score, over, False),
            game_over if over else None,
        )
        assert reward == np.sign(score)
        assert info["lives"] == slow.ale.lives()
        if over:
            n_lost += not game_over
            n_games += game_over
            np.testing.assert_array_equal(env.reset()[0], slow.reset())
    assert n_lost > 2
    assert n_games > 0


def test_with_a_seed_a_new_game_starts_after_a_lost_life():
    env = AtariEnv(**BREAKOUT)
    first = env.reset(seed=3)[0].copy()
    lose_a_life(env)
    observation, info = env.reset(seed=3)
    assert info["lives"] == 5
    np.testing.assert_array_equal(observation, first)


@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_a_wrapper_may_end_an_episode_and_its_game(mode):
    def make() -> Any:
        return TimeLimit(AtariEnv("breakout", image_size=36, max_start_noops=0, episodic_lives=False), 20)

    def make_vec(num_envs: int) -> Any:
        return SyncVectorEnv([make] * num_envs, autoreset_mode=mode)

    agent = CategoricalPgAgent(model_kwargs=dict(channels=[4], kernel_sizes=[8], strides=[8], fc_sizes=8))
    sampler = SerialSampler(make if mode is None else make_vec, {}, batch_T=64, batch_B=1, max_decorrelation_steps=0)
    sampler.initialize(agent, Run(batch_spec=sampler.batch_spec))
    samples, infos = sampler.obtain_samples(0)
    assert [info.Length for info in infos] == [20] * int(samples.env.done.sum())
    assert len(infos) == 3
    result = evaluate(agent, sampler.EnvCls, n_trajectories=2, n_envs=2, max_steps=400)
    assert (len(result.traj_infos), result.unfinished) == (2, 0)


def test_a_time_limit_of_old_gym_cuts_the_game_too():
    env = make_env(lambda: GymEnvWrapper(TimeLimit(AtariEnv("pong"), 10)), {}, seed=0)
    env.reset()
    ends = list[int]()
    for t in range(40):
        step = env.step(np.int64(0))
        if step[2] or step[3]:
            ends.append(t)
            env.reset()
    assert ends == [9, 19, 29, 39]


def test_horizon_counts_the_steps_of_all_lives():
    env = AtariEnv(**BREAKOUT, horizon=110)
    env.reset(seed=0)
    n_steps, ends = 0, []
    while n_steps < 110:
        (_, _, terminated, truncated, info), t = lose_a_life(env)
        n_steps += t
        ends.append((terminated, truncated, info["traj_done"]))
        env.reset()
    assert n_steps == 110
    assert len(ends) > 2
    assert ends == [(True, False, False)] * (len(ends) - 1) + [(False, True, True)]
    assert env.ale.lives() == 5


def trajectory(env, seed):
    rng = np.random.default_rng(0)
    seen: list[tuple[int, float]] = []
    for k in range(3):
        observation, _ = env.reset(seed=seed if k == 0 else None)
        actions = rng.integers(env.action_space.n, size=30)
        # Every step writes its image into the same array.
        seen.extend((int(observation.astype(int).sum()), env.step(action)[1]) for action in actions)
    return seen


@pytest.mark.parametrize("kwargs", [{}, {"max_start_noops": 0, "repeat_action_probability": 0.25}])
def test_seeds_decide_no_ops_and_sticky_actions(kwargs):
    env = AtariEnv("pong", **kwargs)
    first = trajectory(env, 5)
    assert trajectory(env, 5) == first
    assert trajectory(AtariEnv("pong", **kwargs), 5) == first
    assert trajectory(env, 6) != first


def test_a_sticky_action_is_the_one_that_was_taken_before(monkeypatch):
    env = AtariEnv("pong", frame_skip=1, max_start_noops=0, repeat_action_probability=0.25)
    env.reset(seed=0)
    taken = [env.actions[NOOP]]
    monkeypatch.setattr(env, "ale", SimpleNamespace(act=taken.append))
    asked = [env.actions[t % 6] for t in range(1, 2001)]
    for action in asked:
        env._act_once(action)
    stuck = [t for t, action in enumerate(asked, 1) if taken[t] != action]
    assert all(taken[t] == taken[t - 1] for t in stuck)
    assert 0.2 < len(stuck) / len(asked) < 0.3


def test_number_of_no_ops():
    env = AtariEnv("pong", max_start_noops=4)
    env.reset(seed=0)
    numbers = set()
    for _ in range(40):
        env.reset()
        numbers.add(env.ale.getEpisodeFrameNumber())
    assert numbers == {0, 1, 2, 3, 4}


def test_the_right_game_is_found_in_every_spelling():
    for game in ("space_invaders", "SpaceInvaders", "ALE/SpaceInvaders-v5", "SpaceInvadersNoFrameskip-v4"):
        assert find_rom(game).stem == "space_invaders"
    for game in ("pong", "Pong", "ALE/Pong-v5", "PongDeterministic-v0", "Pong-ramNoFrameskip-v4"):
        assert find_rom(game).stem == "pong"
    assert AtariEnv("ALE/SpaceInvaders-v5").rom.stem == "space_invaders"


@pytest.mark.parametrize("missing", ["ale_py", "cv2"])
def test_a_missing_package_is_named(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[atari\]"):
        AtariEnv("pong")


def test_arguments_and_attributes_of_the_predecessor():
    env = AtariEnv("ALE/Breakout-v5", num_img_obs=2, image_size=(50, 40))
    assert env.spaces == (env.observation_space, env.action_space)
    assert (env.game, env.observation_space.shape, env.action_space.n) == ("ALE/Breakout-v5", (2, 50, 40), 4)
    assert env.get_action_meanings() == ["NOOP", "FIRE", "RIGHT", "LEFT"]
    assert env.render().shape == (210, 160, 3)
    assert AtariEnv("breakout", full_action_space=True).action_space.n == 18


@pytest.mark.parametrize(
    ("game", "kwargs", "text"),
    [
        ("brekout", {}, "there is no game 'brekout'; did you mean .*breakout"),
        ("ALE/SpaceInvader-v5", {}, "did you mean space_invaders"),
        ("xyz", {}, "expected one of .*pong"),
        ("combat", {}, "'combat' is not supported by ale-py; it is for two players"),
        ("pong", {"frame_skip": 0}, r"frame_skip, num_img_obs and horizon must be at least 1.*got 0, 4, 27000 and 30"),
    ],
)
def test_what_cannot_be_played(game, kwargs, text):
    with pytest.raises(ValueError, match=text):
        AtariEnv(game, **kwargs)


def test_rewards_are_the_signs_of_raw_scores():
    clipped, raw = (AtariEnv("space_invaders", clip_reward=clip, episodic_lives=False) for clip in (True, False))
    clipped.reset(seed=0), raw.reset(seed=0)
    scores = []
    for action in np.random.default_rng(1).integers(6, size=150):
        (_, reward, *_, info), (_, score, *_, raw_info) = clipped.step(action), raw.step(action)
        assert (reward, info["game_score"]) == (np.sign(score), score)
        assert raw_info == info
        scores.append(score)
    assert max(scores) >= 5


def test_a_life_that_is_lost_in_the_last_step_ends_the_trajectory():
    env = AtariEnv(**BREAKOUT)
    env.reset(seed=0)
    _, horizon = lose_a_life(env)
    env = AtariEnv(**BREAKOUT, horizon=horizon)
    env.reset(seed=0)
    (_, _, terminated, truncated, info), _ = lose_a_life(env)
    assert (terminated, truncated, info["traj_done"]) == (True, False, True)
    assert env.reset()[1]["lives"] == 5
