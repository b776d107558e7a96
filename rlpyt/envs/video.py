"""Videos of episodes: frames of an environment while an agent plays it, and the file that they are written to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

DEFAULT_FPS = 30


class RecordFrames(gymnasium.Wrapper[object, object, object, object]):
    """Wrapper that draws the environment after every reset and step, and sends the frame on at once.

    Args:
        env: with the render mode "rgb_array".
        file: takes the frames; see `video_file`.
    """

    def __init__(self, env: gymnasium.Env[object, object], file: VideoFile) -> None:
        super().__init__(env)
        self.file = file

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, dict[str, object]]:
        """Reset the environment, and write its frame."""
        result = self.env.reset(seed=seed, options=options)
        self.file.add(frame_of(self.env))
        return result

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        """Take a step, and write the frame after it."""
        result = self.env.step(action)
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


def write_video(path: str | os.PathLike[str], frames: Iterable[np.ndarray], fps: float) -> None:
    """Write frames, uint8 [height, width, 3] each, to a video; an iterator is not kept in memory.

    Args:
        path: of the file, such as "episode.mp4".
        frames: at least one.
        fps: frames per second; see `fps_of`.

    Raises:
        ImportError: if imageio-ffmpeg is not installed.
        ValueError: if there is no frame.
    """
    n = 0
    with closing(VideoFile(path, fps)) as file:
        for frame in frames:
            file.add(frame)
            n += 1
    if n == 0:
        raise ValueError(f"Writing the video {path}: got no frame; expected one or more.")


def has_display() -> bool:
    """Return whether a window can be opened."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def draw_without_display() -> None:
    """Let MuJoCo and pygame draw images where there is no display; it must be set before they are imported."""
    if not has_display():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def check_frames(env: gymnasium.Env[object, object]) -> None:
    """Raise ValueError for an environment that does not draw images, before anything starts."""
    if env.render_mode != "rgb_array":
        raise ValueError(
            f"{env}: a video needs the render mode 'rgb_array', got {env.render_mode!r}, of "
            f"{env.metadata.get('render_modes', [])}. Let the environment take render_mode='rgb_array', and return "
            "an image uint8 [height, width, 3] from render()."
        )


def frame_of(env: gymnasium.Env[object, object]) -> np.ndarray:
    """Return the image that an environment shows, uint8 [height, width, 3]."""
    frame: object = env.render()
    image = np.asarray(frame)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(
            f"{env}: render() returned {image.dtype} {list(image.shape)}; expected uint8 [height, width, 3]."
        )
    return image


def fps_of(env: gymnasium.Env[object, object]) -> float:
    """Return the frames per second that an environment names, or else `DEFAULT_FPS`."""
    return float(env.metadata.get("render_fps") or DEFAULT_FPS)


def numbered(path: Path, n: int) -> Iterator[Path]:
    """Give the files of n videos: the path itself for one, or files in the folder that it names."""
    if path.suffix:
        yield from [path] if n == 1 else [path.with_stem(f"{path.stem}_{i}") for i in range(n)]
    else:
        yield from [path / f"episode_{i}.mp4" for i in range(n)]
