"""Atari games that the threads of ale-py step together, with the rules of `AtariEnv`."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorWrapper

from rlpyt.envs.atari import find_rom
from rlpyt.envs.base import VectorStep
from rlpyt.spaces import FrameStack
from rlpyt.utils.processes import available_cores


def atari_make_vec(
    game: str = "pong",
    num_envs: int = 1,
    num_threads: int | None = None,
    frame_skip: int = 4,
    num_img_obs: int = 4,
    clip_reward: bool = True,
    episodic_lives: bool = True,
    fire_on_reset: bool = False,
    max_start_noops: int = 30,
    repeat_action_probability: float = 0.0,
    horizon: int = 27_000,
    image_size: int | tuple[int, int] = 84,
    full_action_space: bool = False,
) -> AtariVec:
    """Return a vector environment of Atari games that behaves like as many `AtariEnv` with the same arguments.

    Rewards, scores, lives and ends are those of `AtariEnv`. So are the images, to the last pixel, with four exceptions:

    - In the row after a lost life a step of no action is taken, or of FIRE with `fire_on_reset`. `AtariEnv` takes none,
      or one raw frame of FIRE. ale-py steps all environments or none.
    - The final observation of a game that is over is a mixture of the last image and the one before, as ale-py reads no
      screen after the end. Nothing is learned from it, as the episode is terminated.
    - With `frame_skip=1` there is no maximum with the previous frame.
    - At the start of a game FIRE is pressed before the no-ops, whose number the generator of ale-py draws. So games are
      equal if `max_start_noops` and `repeat_action_probability` are 0.

    A game cannot be saved: there is no `state_dict`.

    `num_envs` is the number of games, and `num_threads` that of the threads which step them, by default one for each
    game, at most one for each core of this process. To the horizon, rows after lost lives do not count. The other
    arguments are those of `AtariEnv`.

    Raises:
        ImportError: if ale-py is not installed.
        ValueError: if there is no such game; the text has close names.
    """
    try:
        from ale_py import Action
        from ale_py.vector_env import AtariVectorEnv
    except ImportError as error:
        raise ImportError("atari_make_vec needs ale-py: pip install rlpyt[atari].") from error
    if min(num_envs, frame_skip, num_img_obs, horizon) < 1 or max_start_noops < 0:
        raise ValueError(
            "atari_make_vec: num_envs, frame_skip, num_img_obs and horizon must be at least 1 and max_start_noops at "
            f"least 0, got {num_envs}, {frame_skip}, {num_img_obs}, {horizon} and {max_start_noops}."
        )
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    env = AtariVectorEnv(
        find_rom(game).stem,
        num_envs,
        num_threads=min(num_envs, available_cores()) if num_threads is None else num_threads,
        # The horizon is applied here: ale-py would show no final observation, see `AtariVec`.
        max_num_frames_per_episode=2**30,
        repeat_action_probability=repeat_action_probability,
        full_action_space=full_action_space,
        img_height=height,
        img_width=width,
        stack_num=num_img_obs,
        frameskip=frame_skip,
        # ale-py draws from 0 to noop_max - 1.
        noop_max=max_start_noops + 1,
        # With episodic_life it would start a new game after each life.
        episodic_life=False,
        reward_clipping=False,
        use_fire_reset=fire_on_reset,
    )
    actions = env.ale.get_action_set()
    noop = actions.index(Action.NOOP)
    fire = actions.index(Action.FIRE) if fire_on_reset and Action.FIRE in actions else noop
    return AtariVec(env, noop, fire, clip_reward, episodic_lives, horizon)


class AtariVec(VectorWrapper[Any, Any, Any, Any, Any]):
    """Vector environment with the rules of `AtariEnv` for lives, rewards and the horizon, over an `AtariVectorEnv`.

    `info` has arrays [B]: `game_score` (float64), `traj_done` (bool) and `lives` (int32). In the row after a lost life
    the reward is 0 and a lost life does not count. A score made in it is added to the `game_score` of the next row. If
    the game ends in it, `terminated` and `traj_done` are True. `reset` starts new games, also with a mask.

    ale-py could truncate a game itself, but it reads no screen in the frame in which it does. The final observation,
    whose value counts, would be of older frames. So the horizon is applied here, and the next row resets that game.

    Args:
        env: an `AtariVectorEnv` that clips no rewards, ends no episodes with lives, and truncates nothing.
        noop: index of the action that does nothing.
        begin: index of the action in the row after a lost life.
        clip_reward, episodic_lives, horizon: see `AtariEnv`.
    """

    def __init__(
        self,
        env: Any,
        noop: int,
        begin: int,
        clip_reward: bool,
        episodic_lives: bool,
        horizon: int,
    ) -> None:
        super().__init__(env)
        self._noop, self._begin = noop, begin
        self._clip_reward, self._episodic_lives, self._horizon = clip_reward, episodic_lives, horizon
        self._n_images = len(env.single_observation_space.low)
        self.single_observation_space = FrameStack.of(env.single_observation_space, self._n_images)
        n = env.num_envs
        self._lives, self._n_steps, self._n_seen = np.zeros((3, n), np.int64)
        self._carried_score = np.zeros(n)
        self._over, self._cut, self._lost_life = np.zeros((3, n), bool)

    def reset(
        self, *, seed: int | Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Start new games, or with `reset_mask`, bool [B], some.

        Seeds are int64 [B], one for each game, or one number for the first, counted up for the others.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        begun = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self._lives[:] = info["lives"]
        self._n_steps[begun] = self._carried_score[begun] = 0
        self._over[begun] = self._cut[begun] = self._lost_life[begun] = False
        self._n_seen[begun] = 1
        self._blank_older_images(observation)
        nothing = np.zeros(self.num_envs)
        return observation, {"game_score": nothing, "traj_done": nothing.astype(bool), "lives": info["lives"]}

    def step(self, actions: np.ndarray) -> VectorStep:
        """Take one step in every game; see `send` and `recv`."""
        self.send(actions)
        return self.recv()

    def send(self, actions: np.ndarray) -> None:
        """Let the threads step; actions [B] of games that start, or continue after a lost life, have no effect."""
        actions = np.array(actions)
        actions[self._lost_life] = self._begin
        actions[self._over | self._cut] = self._noop
        self.env.send(actions)  # type: ignore[attr-defined]

    def recv(self) -> VectorStep:
        """Wait for all games.

        Returns:
            observation uint8 [B, num_img_obs, height, width], reward float32 [B], terminated bool [B],
            truncated bool [B], info.
        """
        observation, score, over, _, info = self.env.recv()  # type: ignore[attr-defined]
        if self._cut.any():  # reset what was truncated in the row before, in place of its step
            first, info = self.env.reset(options={"reset_mask": self._cut})
            observation[self._cut] = first[self._cut]
            over[self._cut] = False
        lives = info["lives"]
        begun = self._over | self._cut
        is_step = ~(begun | self._lost_life)
        self._n_steps[begun] = 0
        self._n_steps += is_step
        self._n_seen = np.where(is_step, self._n_seen + 1, 1)
        self._blank_older_images(observation)

        # Some games count down to no lives before they are over: the end of the game decides there.
        lost_life = is_step & (lives > 0) & (lives < self._lives) & ~over & self._episodic_lives
        out_of_time = is_step & (self._n_steps >= self._horizon)
        self._over, self._cut, self._lost_life = over, out_of_time & ~over, lost_life
        self._lives = lives.astype(np.int64)

        game_score = np.where(is_step, score + self._carried_score, 0.0)
        self._carried_score = np.where(is_step | begun, 0.0, score)
        reward = np.where(is_step, np.sign(score) if self._clip_reward else score, 0).astype(np.float32)
        info = {"game_score": game_score, "traj_done": over | out_of_time, "lives": lives}
        return observation, reward, over | lost_life, self._cut & ~lost_life, info

    def _blank_older_images(self, observation: np.ndarray) -> None:
        """Set the images from before the start of an episode to zero."""
        for b in np.flatnonzero(self._n_seen < self._n_images):
            observation[b, : self._n_images - self._n_seen[b]] = 0
