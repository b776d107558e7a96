"""Command `rlpyt play`: episodes of a trained agent, in a window or a video."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import gymnasium
import tyro

from rlpyt.cli.arguments import Modules
from rlpyt.cli.trained import Trained, read_trained
from rlpyt.envs import EnvAdapter, EnvError, make_env
from rlpyt.envs.video import (
    RecordFrames,
    VideoFile,
    check_frames,
    draw_without_display,
    fps_of,
    has_display,
    numbered,
    render_mode_of,
    require_video,
)


def play(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    episodes: int = 3,
    video: Path | None = None,
    sample: bool = False,
    seed: int = 0,
    snapshot: str | None = None,
    trust: Modules = (),
) -> int:
    """Show episodes of a trained agent in a window, or write them to videos.

    Args:
        run: directory of the run, such as data/ppo_CartPole-v1/run_0.
        episodes: how many.
        video: a file such as cartpole.mp4, or a folder with a file for each episode; needs no display.
        sample: sample actions instead of taking the most probable one.
        seed: of the first episode; the next ones have the next seeds.
        snapshot: a file of the run such as itr_99.pkl, or best; the default is the newest.
        trust: modules of yours that the settings of the run may name, such as the one of an environment.
    """
    if episodes < 1:
        raise ValueError(f"rlpyt play: got --episodes {episodes}; expected 1 or more.")
    if video is None and not has_display():
        raise ValueError("rlpyt play: there is no display for a window. Write a video: --video FILE.mp4")
    if video is not None:
        require_video()
        draw_without_display()
    trained = read_trained(run, snapshot, trust)
    env = _environment(trained, "human" if video is None else "rgb_array")
    try:
        if video is not None:
            check_frames(env.env)
        files = list(numbered(video, episodes)) if video is not None else [None] * episodes
        for episode, file in enumerate(files):
            print(_episode(trained, env, file, seed + episode, sample))
    except (EnvError, gymnasium.error.DependencyNotInstalled) as error:
        # One that draws itself in a window does so in reset and step, whose errors the adapter names.
        why = error if isinstance(error, gymnasium.error.DependencyNotInstalled) else error.__cause__
        if not isinstance(why, gymnasium.error.DependencyNotInstalled):
            raise
        raise ImportError(f"rlpyt play: the environment cannot be drawn: {why}") from error
    finally:
        env.close()
    return 0


def _environment(trained: Trained, render_mode: str) -> EnvAdapter:
    kwargs = trained.env_kwargs
    if trained.EnvCls is gymnasium.make:
        kwargs = {**kwargs, "render_mode": render_mode}
    try:
        env = make_env(trained.EnvCls, kwargs)
    except EnvError as error:
        raise ValueError(f"rlpyt play: {error}") from error
    if render_mode == "human" and render_mode_of(env.env) != "human":
        env.close()
        raise ValueError(f"rlpyt play: {env.name} has no window. Write a video: --video FILE.mp4")
    return env


def _episode(trained: Trained, env: EnvAdapter, file: Path | None, seed: int, sample: bool) -> str:
    """Play one episode; return what is told of it."""
    if file is None:
        (info,) = trained.agent.play(env, seed=seed, deterministic=not sample)
        return f"seed {seed}: return {info.Return:g}, {info.Length} steps"
    video = VideoFile(file, fps_of(env.env))
    try:
        (info,) = trained.agent.play(RecordFrames(env.env, video), seed=seed, deterministic=not sample)
    finally:
        video.close()
    return f"seed {seed}: return {info.Return:g}, {info.Length} steps -> {file}"
