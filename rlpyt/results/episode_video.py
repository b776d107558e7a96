"""Hook that writes videos of episodes for TensorBoard."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rlpyt.agents import BaseAgent
from rlpyt.agents.by_hand import check_spaces
from rlpyt.envs import EnvAdapter, make_env
from rlpyt.envs.video import RecordFrames, check_frames, draw_without_display, fps_of, frame_of
from rlpyt.runners.hooks import EventHook, HookedRun
from rlpyt.settings import whole
from rlpyt.types import Kwargs
from rlpyt.utils.seeds import global_streams, set_global_streams

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class _Enough(Exception):
    """The video has all its frames, while the episode goes on."""


class _FirstFrames:
    """Frames of an episode, up to a number, at which `add` raises _Enough."""

    def __init__(self, n_frames: int) -> None:
        self.frames: list[np.ndarray] = []
        self._n_frames = n_frames

    def add(self, frame: np.ndarray) -> None:
        """Keep a copy of a frame: an environment may draw into one array again and again."""
        if len(self.frames) == self._n_frames:
            raise _Enough
        self.frames.append(frame.copy())


@dataclass(eq=False)
class EpisodeVideo(EventHook):
    """Hook that plays an episode at rows of the log, and writes it for TensorBoard, into the folder `video` of the run.

        hooks=[EpisodeVideo(gymnasium.make, dict(id="CartPole-v1", render_mode="rgb_array"))]

    A copy of the agent plays in an environment of its own, so the numbers of the run stay. The run waits meanwhile.
    The image in TensorBoard is `Evaluation/Episode`.

    Raises:
        ImportError: if tensorboard is not installed.
        TypeError: if EnvCls cannot be called.
    """

    folder: ClassVar[str] = "video"
    EnvCls: Callable[..., object]
    """Callable that returns any environment that a sampler takes, with the spaces of the agent. It draws images: with
    the render mode "rgb_array", or in the old interface by `render(mode="rgb_array")`."""
    env_kwargs: Kwargs = field(default_factory=dict)
    """Keyword arguments of `EnvCls`."""
    every_n_rows: int = field(default=10, kw_only=True)
    """Rows of the log from one video to the next; the first row has one."""
    n_frames: int = field(default=500, kw_only=True)
    """Most frames of a video; TensorBoard holds them in memory."""
    seed: int = field(default=0, kw_only=True)
    """Seed of the episode, the same for every video."""
    deterministic: bool = field(default=True, kw_only=True)
    """Whether to take the most probable action, instead of a sampled one."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be meant, and a machine without tensorboard."""
        super().__post_init__()
        if not callable(self.EnvCls):
            raise TypeError(
                f"EpisodeVideo: EnvCls is {self.EnvCls!r}; expected a callable that returns an environment."
            )
        whole(self, "n_frames")
        whole(self, "seed", 0)
        self._env: EnvAdapter | None = None
        self._player: BaseAgent | None = None

    def prepare(self, runner: HookedRun) -> None:
        """Make the environment and the agent.

        Raises:
            EnvError: if the environment cannot be made or reset.
            TypeError: if the agent cannot play by hand.
            ValueError: if the environment draws no images, or has other spaces than the agent.
        """
        if not isinstance(runner.agent, BaseAgent):
            raise TypeError(f"EpisodeVideo: the agent is a {type(runner.agent).__name__}; expected a BaseAgent.")
        draw_without_display()
        streams = global_streams()
        try:
            self._env = make_env(self.EnvCls, self.env_kwargs)
            check_spaces(runner.agent.env_spaces, self._env)
            check_frames(self._env.env)
            self._env.reset(self.seed)
            frame_of(self._env.env)  # an image of another kind ends the run here, and not at its first row
            self._player = runner.agent.replace()
            self._player.initialize(runner.agent.env_spaces)
        finally:
            set_global_streams(streams)

    def write(self, writer: SummaryWriter, runner: HookedRun, step: int) -> None:
        """Play an episode and write it."""
        assert self._env is not None
        assert self._player is not None
        streams = global_streams()
        self._player.load_state_dict(runner.agent.state_dict())
        shown = _FirstFrames(self.n_frames)
        try:
            with contextlib.suppress(_Enough):
                self._player.play(RecordFrames(self._env.env, shown), seed=self.seed, deterministic=self.deterministic)
        finally:
            set_global_streams(streams)
        height, width, _ = shown.frames[0].shape
        encoded = gif(shown.frames, fps_of(self._env.env))
        summary = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
        image = summary.Image(height=height, width=width, colorspace=3, encoded_image_string=encoded)
        value = summary.Value(tag="Evaluation/Episode", image=image)
        writer.file_writer.add_summary(summary(value=[value]), step)  # type: ignore[attr-defined]  # declared None

    def on_end(self, runner: HookedRun, status: str) -> None:
        """Close the environment and the event file."""
        if self._env is not None:
            self._env.close()
        self._env = self._player = None
        super().on_end(runner, status)


def gif(frames: Sequence[np.ndarray], fps: float) -> bytes:
    """Return an animated GIF, which TensorBoard shows as an image.

    Args:
        frames: uint8 [height, width, 3] each.
        fps: frames per second; a viewer shows at most 50.
    """
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    file = io.BytesIO()
    milliseconds = max(20, round(1_000 / fps))
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=milliseconds, loop=0)
    return file.getvalue()
