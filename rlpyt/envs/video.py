"""Videos of episodes: frames of an environment while an agent plays it, and the file that they are written to."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlpyt.envs.adapter import EnvAdapter, Step
from rlpyt.envs.base import Reset, env_name
from rlpyt.namedarraytuple import Buffer

DEFAULT_FPS = 30


class Frames(Protocol):
    """Taker of the frames of an episode, such as a `VideoFile`."""

    def add(self, frame: np.ndarray) -> None:
        """Take the next frame, uint8 [height, width, 3]."""


class RecordFrames(EnvAdapter):
    """Environment that is drawn after every reset and step, and whose frames are sent on at once.

    Args:
        env: any environment that `check_frames` takes.
        file: takes the frames; see `VideoFile`.
    """

    def __init__(self, env: object, file: Frames) -> None:
        super().__init__(env)
        self.file = file

    def reset(self, seed: int | None = None) -> Reset:
        """Reset the environment, and send its frame."""
        result = super().reset(seed)
        self.file.add(frame_of(self.env))
        return result

    def step(self, action: Buffer) -> Step:
        """Take a step, and send the frame after it."""
        result = super().step(action)
        self.file.add(frame_of(self.env))
        return result


class VideoFile:
    """Video that is written frame by frame; nothing is kept in memory.

    Args:
        path: of the file, such as "episode.mp4".
        fps: frames per second.

    Raises:
        ImportError: if imageio-ffmpeg is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], fps: float) -> None:
        require_video()
        self.path = Path(path)
        self.fps = fps
        self._writer: Any = None

    def add(self, frame: np.ndarray) -> None:
        """Append a frame, uint8 [height, width, 3]; an odd height or width is filled with a black line."""
        if self._writer is None:
            import imageio_ffmpeg

            self.path.parent.mkdir(parents=True, exist_ok=True)
            height, width = (n + n % 2 for n in frame.shape[:2])
            # Blocks of 2: the default 16 would stretch the image. The codec itself takes even sizes only.
            self._writer = imageio_ffmpeg.write_frames(
                str(self.path), (width, height), fps=self.fps, macro_block_size=2, ffmpeg_log_level="error"
            )
            self._writer.send(None)
        odd_rows, odd_columns = frame.shape[0] % 2, frame.shape[1] % 2
        whole = np.pad(frame, ((0, odd_rows), (0, odd_columns), (0, 0)))
        self._writer.send(np.ascontiguousarray(whole))

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def require_video() -> None:
    """Raise ImportError, with the command that installs it, where videos cannot be written."""
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise ImportError(f"Writing a video needs imageio-ffmpeg: pip install rlpyt[video]. ({error})") from error


def has_display() -> bool:
    """Return whether a window can be opened."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def draw_without_display() -> None:
    """Let MuJoCo and pygame draw images where there is no display; it must be set before they are imported."""
    if not has_display():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def check_frames(env: object) -> None:
    """Refuse an environment that does not draw images, before anything starts.

    Raises:
        ValueError: if it has no `render`, or one without a `mode` while its render mode is not "rgb_array".
    """
    if not draws(env, "rgb_array"):
        raise ValueError(
            f"{env_name(env)}: a video needs the render mode 'rgb_array', got {getattr(env, 'render_mode', None)!r}, "
            f"of {render_modes(env)}. Let the environment take render_mode='rgb_array', and return "
            "an image uint8 [height, width, 3] from render()."
        )


def draws(env: object, mode: str) -> bool:
    """Return whether an environment draws itself in a render mode; one of the old interface is told at each call."""
    render, modes = getattr(env, "render", None), render_modes(env)
    if not callable(render):
        return False
    is_in_mode = getattr(env, "render_mode", None) == mode and (not modes or mode in modes)
    return is_in_mode or (mode == "rgb_array" and _takes_mode(render))


def render_modes(env: object) -> Sequence[str]:
    """Return the render modes that an environment names."""
    return _metadata_of(env).get("render_modes") or []


def frame_of(env: object) -> np.ndarray:
    """Return the image that an environment shows, uint8 [height, width, 3].

    Raises:
        ValueError: if `render` returns something else.
    """
    render = getattr(env, "render")  # noqa: B009  of any class
    frame = render(mode="rgb_array") if _takes_mode(render) else render()
    image = np.asarray(frame)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        got = "None" if frame is None else f"{image.dtype} {list(image.shape)}"
        raise ValueError(
            f"{env_name(env)}: render() returned {got}; expected uint8 [height, width, 3]. Return such an image for "
            "the render mode 'rgb_array'."
        )
    return image


def _takes_mode(render: Callable[..., object]) -> bool:
    """Return whether a `render` is of the old interface, where each call says what it wants."""
    return "mode" in inspect.signature(render).parameters


def fps_of(env: object) -> float:
    """Return the frames per second that an environment names, or else `DEFAULT_FPS`."""
    metadata = _metadata_of(env)
    return float(metadata.get("render_fps") or metadata.get("video.frames_per_second") or DEFAULT_FPS)


def _metadata_of(env: object) -> Mapping[str, Any]:
    return getattr(env, "metadata", None) or {}


def numbered(path: Path, n: int) -> Iterator[Path]:
    """Give the files of n videos: the path itself for one, or files in the folder that it names."""
    if path.suffix:
        yield from [path] if n == 1 else [path.with_stem(f"{path.stem}_{i}") for i in range(n)]
    else:
        yield from [path / f"episode_{i}.mp4" for i in range(n)]
