"""Atari games on the Arcade Learning Environment, with the preprocessing of the DQN papers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from rlpyt.envs.base import meant
from rlpyt.namedarraytuple import Buffer
from rlpyt.old_rlpyt import check_class, tells_old_attributes
from rlpyt.spaces import EnvSpaces, FrameStack
from rlpyt.types import StateDict


@tells_old_attributes
class AtariEnv(gymnasium.Env[np.ndarray, Any]):
    """Atari game in grayscale, with skipped and stacked frames.

    A step repeats the action for `frame_skip` raw frames. The image is the maximum of the last two, as sprites flicker,
    shrunk by area. The observation is a stack of the last `num_img_obs` images, uint8 [num_img_obs, height, width],
    oldest first, with zeros before the start of the episode. It is ONE array that every step overwrites: it is valid
    until the next `step` or `reset`. Copy it to keep it.

    info has `game_score` (float, raw reward of the step), `lives` (int), and where an episode ends `traj_done` (bool,
    whether the whole game ended).
    With `episodic_lives` a lost life is `terminated` with `traj_done` False, and the next `reset()` without a seed
    continues the same game.

    Args:
        game: a name in any of the usual spellings: "space_invaders", "SpaceInvaders", "ALE/SpaceInvaders-v5",
            "SpaceInvadersNoFrameskip-v4". A version in it changes nothing else.
        frame_skip: raw frames of a step.
        num_img_obs: images in an observation.
        clip_reward: whether the reward is the sign of the score.
        episodic_lives: whether a lost life ends an episode.
        fire_on_reset: whether to press FIRE, if there is such a button, at the start of a game, after the no-ops, and
            of a life.
        max_start_noops: most raw frames without action at the start of a game; their number is random.
        repeat_action_probability: probability at each raw frame that the previous action is repeated (sticky actions);
            0 as in the older benchmarks, 0.25 in Machado et al. 2018.
        horizon: steps after which a game is truncated.
        image_size: height and width of the images; one number is both.
        full_action_space: whether to use all 18 actions instead of those that the game uses.

    Raises:
        ImportError: if ale-py or OpenCV is not installed.
        ValueError: if there is no such game; the text has close names.

    Source: Mnih et al. 2015, doi:10.1038/nature14236, Methods; Machado et al. 2018, arXiv:1709.06009.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012
    render_mode = "rgb_array"
    observation_space: FrameStack
    action_space: Discrete[Any]

    def __init__(
        self,
        game: str = "pong",
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
    ) -> None:
        check_class(type(self))
        try:
            import ale_py
            import cv2
        except ImportError as error:
            raise ImportError("AtariEnv needs ale-py and OpenCV: pip install rlpyt[atari].") from error
        if min(frame_skip, num_img_obs, horizon) < 1 or max_start_noops < 0:
            raise ValueError(
                "AtariEnv: frame_skip, num_img_obs and horizon must be at least 1 and max_start_noops at least 0, got "
                f"{frame_skip}, {num_img_obs}, {horizon} and {max_start_noops}."
            )
        cv2.setNumThreads(1)
        self._resize, self._area = cv2.resize, cv2.INTER_AREA
        self._make_state = ale_py.ALEState
        self._frame_skip = frame_skip
        self._clip_reward = clip_reward
        self._episodic_lives = episodic_lives
        self._max_start_noops = max_start_noops
        self._horizon = horizon
        self.game, self.rom = game, find_rom(game)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        # Sticky actions are drawn here: the emulator neither tells nor saves the action that it would repeat.
        self.ale.setFloat("repeat_action_probability", 0.0)
        self._stickiness = repeat_action_probability
        self._load_game()
        self.actions = self.ale.getLegalActionSet() if full_action_space else self.ale.getMinimalActionSet()
        self._noop, fire = ale_py.Action.NOOP, ale_py.Action.FIRE
        self._taken = self._noop
        self._fire = fire if fire_on_reset and fire in self.actions else None

        height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
        self._size = (width, height)
        self._frame, self._last_frame = np.zeros((2, *self.ale.getScreenDims()), np.uint8)
        self._max_frame = np.zeros_like(self._frame)
        self._observation = np.zeros((num_img_obs, height, width), np.uint8)
        self._older, self._newer, self._newest = self._observation[:-1], self._observation[1:], self._observation[-1]
        self._lives = 0
        self._n_steps = 0
        self._lost_life = False
        self.observation_space = FrameStack(0, 255, self._observation.shape, np.uint8, n_frames=num_img_obs)
        self.action_space = Discrete(len(self.actions))

    @property
    def spaces(self) -> EnvSpaces:
        """Return both spaces, as `agent.initialize` takes them."""
        return EnvSpaces(self.observation_space, self.action_space)

    def get_action_meanings(self) -> list[str]:
        """Return the names of the actions, such as "NOOP" and "UPFIRE", in the order of their indices."""
        return [action.name for action in self.actions]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a game, or continue one after a lost life; with a seed always start a game.

        Args:
            seed: of the no-ops and the sticky actions of the emulator.
            options: not used; it is part of the signature of gymnasium.

        Returns:
            observation uint8 [num_img_obs, height, width], info.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._load_game()
        if seed is None and self._lost_life:
            self._observation[:-1] = 0
        else:
            self._start_game()
        if self._fire is not None:
            self._act_once(self._fire)
            self._show_first_frame()
        self._lost_life = False
        self._lives = self.ale.lives()
        return self._observation, {"game_score": 0.0, "traj_done": False, "lives": self._lives}

    def step(self, action: int | np.integer[Any]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take `frame_skip` raw frames with an action.

        Args:
            action: index into `actions`.

        Returns:
            observation uint8 [num_img_obs, height, width], reward, terminated, truncated, info.
        """
        score = self._act(self.actions[action])
        np.maximum(self._frame, self._last_frame, out=self._max_frame)
        self._older[:] = self._newer
        self._resize(self._max_frame, self._size, self._newest, interpolation=self._area)
        self._n_steps += 1

        game_over = self.ale.game_over(with_truncation=False)
        lives = self.ale.lives()
        # Some games count down to no lives before they are over: game_over decides there.
        self._lost_life = self._episodic_lives and 0 < lives < self._lives and not game_over
        self._lives = lives
        terminated = game_over or self._lost_life
        out_of_time = self._n_steps >= self._horizon
        traj_done = game_over or out_of_time
        self._lost_life = self._lost_life and not traj_done
        reward = float((score > 0) - (score < 0)) if self._clip_reward else score
        info: dict[str, Any] = {"game_score": score, "lives": lives}
        if terminated or out_of_time:  # in no other step: where a wrapper ends an episode, its game is over, too
            info["traj_done"] = traj_done
        return self._observation, reward, terminated, out_of_time and not terminated, info

    def render(self) -> np.ndarray:
        """Return the screen, uint8 [height, width, 3] in colour and full size."""
        return self.ale.getScreenRGB()

    def state_dict(self) -> StateDict:
        """Return everything that the future depends on, with the states of the emulator and the generator."""
        return {
            "game": self.rom.stem,
            "ale": np.frombuffer(self.ale.cloneSystemState().serialize(), np.uint8).copy(),
            "sticky": int(self._taken.value) if self._stickiness else None,
            "np_random": self.np_random.bit_generator.state,
            "frame": self._frame.copy(),
            "observation": self._observation.copy(),
            "lives": self._lives,
            "n_steps": self._n_steps,
            "lost_life": self._lost_life,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from what `state_dict` returned for the same game and settings.

        Raises:
            ValueError: if the state is that of another game or of other images.
        """
        came, own = (state["game"], tuple(state["observation"].shape)), (self.rom.stem, self._observation.shape)
        if came != own:
            raise ValueError(f"AtariEnv: loading a state: got game and images {came}, expected {own}.")
        self.ale.restoreSystemState(self._make_state(np.asarray(state["ale"], np.uint8).tobytes()))
        if state["sticky"] is not None:
            self._taken = type(self._noop)(state["sticky"])
        self.np_random.bit_generator.state = state["np_random"]
        self._frame[:] = state["frame"]
        self._observation[:] = state["observation"]
        self._lives, self._n_steps, self._lost_life = state["lives"], state["n_steps"], state["lost_life"]

    def _load_game(self) -> None:
        """Load the game with a seed of the generator; the emulator takes a seed only here."""
        self.ale.setInt("random_seed", int(self.np_random.integers(2**31 - 1)))
        self.ale.loadROM(self.rom)

    def _start_game(self) -> None:
        self.ale.reset_game()
        self._taken = self._noop
        for _ in range(self.np_random.integers(self._max_start_noops + 1)):
            self._act_once(self._noop)
        if self.ale.game_over():
            self.ale.reset_game()
        self._n_steps = 0
        self._show_first_frame()

    def _act_once(self, action: Buffer) -> int:
        """Take an action for a raw frame, or the one before again, and return the score."""
        if not self._stickiness or self.np_random.random() >= self._stickiness:
            self._taken = action
        score: int = self.ale.act(self._taken)
        return score

    def _act(self, action: Buffer) -> float:
        """Repeat an action; only the screens of the last two frames are read, which take 11 us each."""
        act = self._act_once if self._stickiness else self.ale.act
        score = 0
        for _ in range(self._frame_skip - 2):
            score += act(action)
        if self._frame_skip > 1:
            score += act(action)
            self.ale.getScreenGrayscale(self._last_frame)
        else:
            self._frame, self._last_frame = self._last_frame, self._frame
        score += act(action)
        self.ale.getScreenGrayscale(self._frame)
        return float(score)

    def _show_first_frame(self) -> None:
        self.ale.getScreenGrayscale(self._frame)
        self._observation[:] = 0
        self._resize(self._frame, self._size, self._newest, interpolation=self._area)


def find_rom(game: str) -> Path:
    """Return the path of a game in any spelling of its name."""
    from ale_py import ALEInterface, roms

    by_letters = {rom_id.replace("_", ""): rom_id for rom_id in roms.get_all_rom_ids()}
    name = re.sub(r"(-ram)?(NoFrameskip|Deterministic)?(-v\d+)?$", "", game.split("/")[-1])
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    if letters in by_letters:
        path = roms.get_rom_path(by_letters[letters])
        # Games for two players are listed and shipped, but the process ends when one is loaded.
        if path is not None and ALEInterface.isSupportedROM(path) is not None:
            return path
        raise ValueError(f"AtariEnv: the game {game!r} is not supported by ale-py; it is for two players.")
    raise ValueError(f"AtariEnv: there is no game {game!r}; {meant(name.lower(), list(by_letters.values()))}.")
