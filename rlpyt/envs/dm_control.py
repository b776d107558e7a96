"""Tasks of the DeepMind Control Suite, through Shimmy, the adapter of Farama.

Shimmy converts the time steps of the suite to those of gymnasium. The suite ends an episode by its time limit with
discount 1, which is `truncated`, and by the task itself with discount 0, which is `terminated`. This module adds what
Shimmy leaves out.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict

from rlpyt.envs.base import Reset, meant
from rlpyt.envs.video import has_display
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import FrameStack, Space
from rlpyt.types import Kwargs

# MuJoCo writes its largest number, mjMAXVAL, for an actuator without a bound.
_NO_BOUND = 1e10
_DEFAULT_IMAGE = (240, 320)


def dm_control_make(
    domain: str,
    task: str,
    flatten: bool = False,
    pixels: tuple[int, int] | None = None,
    n_frames: int = 3,
    camera_id: int = 0,
    task_kwargs: Kwargs | None = None,
    action_repeat: int = 1,
) -> DmControlEnv | DmControlPixelsEnv:
    """Return a task of the DeepMind Control Suite.

    Args:
        domain: name in the suite, such as "cheetah".
        task: of the domain, such as "run".
        flatten: whether an observation is one vector of all parts instead of a Dict of vectors.
        pixels: height and width of images, which replace the vectors as the observation.
        n_frames: images in an observation, with `pixels`.
        camera_id: number of the camera, from 0; -1 is the free camera of MuJoCo.
        task_kwargs: of the task, `time_limit` (seconds) among them. `random` seeds what a task draws when it is made
            (the model of the lqr tasks). It is 0 by default, as all environments of a run have to be one task.
        action_repeat: steps of the task's control that a step here takes with one action, fewer at the end of an
            episode; its reward is their sum, and with `pixels` the last is drawn. Most papers have 2, and count steps
            of the control.

    Raises:
        ImportError: if dm-control, Shimmy or MuJoCo is not installed.
        ValueError: if there is no such domain or task, with close names in the text; or if the image is empty, or both
            flat and of pixels, or an action repeated less than once.
        RuntimeError: if no image can be drawn.
    """
    if action_repeat < 1:
        raise ValueError(f"dm_control_make: got action_repeat={action_repeat}; expected at least 1, once an action.")
    if pixels is not None and (flatten or min(*pixels, n_frames) < 1):
        raise ValueError(
            f"dm_control_make: got pixels={pixels}, n_frames={n_frames} and flatten={flatten}; expected a height, a "
            "width and a number of frames of at least 1, and no flatten, as images take the place of the vectors."
        )
    suite, Adapter = _import_suite()
    tasks = suite.TASKS_BY_DOMAIN
    if domain not in tasks:
        raise ValueError(f"dm_control_make: there is no domain {domain!r}; {meant(domain, tasks)}.")
    if task not in tasks[domain]:
        raise ValueError(f"dm_control_make: there is no task of {domain} {task!r}; {meant(task, tasks[domain])}.")
    height, width = pixels or _DEFAULT_IMAGE
    env = Adapter(
        suite.load(domain, task, task_kwargs={"random": 0, **(task_kwargs or {})}),
        render_mode="rgb_array",
        render_kwargs={"height": height, "width": width, "camera_id": camera_id},
    )
    env.spec = EnvSpec(f"dm_control/{domain}-{task}-v0")
    if pixels is None:
        return DmControlEnv(env, action_repeat, flatten)
    return DmControlPixelsEnv(env, action_repeat, n_frames)


class _SuiteEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Base of both kinds of observation: seeds, bounds of actions, repeated actions, frames per second."""

    def __init__(self, env: Any, action_repeat: int) -> None:
        super().__init__(env)
        self._action_repeat = action_repeat
        self._last: Buffer = None
        # Before a reset with a seed, the suite would continue the random stream that made the task, equal everywhere.
        env.np_random = np.random.RandomState()
        low, high = env.action_space.low, env.action_space.high
        self.action_space = Box(
            np.where(low <= -_NO_BOUND, -np.inf, low), np.where(high >= _NO_BOUND, np.inf, high), dtype=np.float64
        )
        # Shimmy writes a thousand times the seconds of a step, into one dictionary for all environments.
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / (env.dt * action_repeat))}

    def observe(self, parts: dict[str, np.ndarray], is_first: bool) -> Buffer:
        """Return the observation, of an episode the first or another, for its parts as the suite gives them."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        parts, _ = self.env.reset(seed=seed)
        self._last = self.observe(parts, is_first=True)
        return self._last, {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take steps of the task's control; Shimmy's info says what the flags say, and is left out.

        Where the simulation diverges, which the suite raises an error of, the episode is truncated at the observation
        before, with a warning: MuJoCo has set its state back then.
        """
        total = 0.0
        try:
            for _ in range(self._action_repeat):
                parts, reward, terminated, truncated, _ = self.env.step(action)
                total += float(reward)
                if terminated or truncated:
                    break
        except import_module("dm_control.rl.control").PhysicsError as error:
            name = self.spec.id if self.spec else type(self).__name__
            warnings.warn(f"{name}: {error} The episode is truncated where it was before.", stacklevel=2)
            return self._last, total, False, True, {}
        self._last = self.observe(parts, is_first=False)
        return self._last, total, terminated, truncated, {}


class DmControlEnv(_SuiteEnv):
    """Task whose observations are float32 vectors: a Dict of [n] by name, or one [n].

    The suite gives plain numbers and matrices, too (the joints of the manipulator); each becomes a vector.

    Args:
        env: the adapter of Shimmy.
        action_repeat: steps of the task in one step.
        flatten: whether observations are one vector.
    """

    def __init__(self, env: Any, action_repeat: int, flatten: bool) -> None:
        super().__init__(env, action_repeat)
        self._flatten = flatten
        sizes = {name: int(np.prod(part.shape)) for name, part in env.observation_space.spaces.items()}
        self.observation_space: Space = (
            _vectors(sum(sizes.values())) if flatten else Dict({name: _vectors(n) for name, n in sizes.items()})
        )
        self._names = list(self.observation_space.spaces) if isinstance(self.observation_space, Dict) else list(sizes)

    def observe(self, parts: dict[str, np.ndarray], is_first: bool) -> Buffer:
        """Return the vectors."""
        vectors = {name: np.asarray(parts[name], np.float32).reshape(-1) for name in self._names}
        return np.concatenate(list(vectors.values())) if self._flatten else vectors


class DmControlPixelsEnv(_SuiteEnv):
    """Task whose observations are the last images, uint8 [n_frames * 3, height, width], oldest first.

    At the start of an episode all images are the first one. The observation is one array that every step overwrites.

    Args:
        env: the adapter of Shimmy, with the size of the images.
        action_repeat: steps of the task in one step.
        n_frames: images in an observation.

    Raises:
        RuntimeError: if no image can be drawn.
    """

    def __init__(self, env: Any, action_repeat: int, n_frames: int) -> None:
        super().__init__(env, action_repeat)
        try:
            height, width, _ = env.render().shape
        except Exception as error:
            env.close()
            raise RuntimeError(
                f"{env.spec.id}: drawing an image with {env.render_kwargs} failed ({error}). Where there is no "
                "display, set MUJOCO_GL=egl (it needs libEGL) before the start; else correct the size or the camera."
            ) from error
        self.observation_space = FrameStack(0, 255, (3 * n_frames, height, width), np.uint8, n_frames=n_frames)
        self._images = np.zeros((n_frames, 3, height, width), np.uint8)
        self._observation = self._images.reshape(-1, height, width)

    def observe(self, parts: dict[str, np.ndarray], is_first: bool) -> np.ndarray:
        """Draw an image and put it behind the others."""
        screen: Any = self.env.render()
        image = screen.transpose(2, 0, 1)
        if is_first:
            self._images[:] = image
        else:
            self._images[:-1] = self._images[1:]
            self._images[-1] = image
        return self._observation


def _vectors(size: int) -> Box[Any]:
    return Box(-np.inf, np.inf, (size,), np.float32)


def _import_suite() -> tuple[Any, Any]:
    try:
        with warnings.catch_warnings():
            # glfw warns of the missing display when it is imported.
            warnings.simplefilter("ignore")
            _choose_renderer()
            mujoco = import_module("mujoco")
            suite = import_module("dm_control.suite")
            sizes = import_module("dm_control.mujoco.wrapper.mjbindings.sizes").array_sizes
            Adapter = import_module("shimmy.dm_control_compatibility").DmControlCompatibilityV0
    except ImportError as error:
        raise ImportError(
            f"dm_control_make needs dm-control and Shimmy: pip install rlpyt[dm_control] ({error})."
        ) from error
    _forget_removed_fields(mujoco, sizes)
    return suite, Adapter


def _choose_renderer() -> None:
    """Let dm-control draw without a display if there is none; it chooses its renderer when it is imported.

    By default it would take glfw, which can be imported but fails at the first image.
    """
    if has_display() or "MUJOCO_GL" in os.environ or "dm_control.mujoco" in sys.modules:
        return
    # EGL fails with errors of many kinds. Without it nothing draws: glfw would end the process at the second try.
    for renderer in ("egl", "disable"):
        os.environ["MUJOCO_GL"] = renderer
        with suppress(Exception):
            import_module("dm_control.mujoco")
            break
    del os.environ["MUJOCO_GL"]


def _forget_removed_fields(mujoco: Any, sizes: dict[str, dict[str, Any]]) -> None:
    """Remove the fields that MuJoCo no longer has from the table of fields in dm-control.

    dm-control 1.0.50 was made for MuJoCo 3.17 and looks up every field of its table. MuJoCo 4.0.0 lacks nine fields of
    flexible bodies, so that no task could be made. No task of the suite has such a body. Over 15 random steps each of
    the 48 tasks that could be compared gives the same numbers with both versions, to 2e-8.
    """
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    for struct, example in (("mjmodel", model), ("mjdata", mujoco.MjData(model))):
        for field in [field for field in sizes[struct] if not hasattr(example, field)]:
            del sizes[struct][field]
