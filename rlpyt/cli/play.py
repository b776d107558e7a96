"""Command `rlpyt play`: episodes of a trained agent, in a window or a video."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import gymnasium

from rlpyt.cli.arguments import NO_PAIRS, Count, File, Modules, Pairs, Run, Text, Whole
from rlpyt.cli.trained import Trained, read_trained
from rlpyt.envs import EnvAdapter, EnvError, make_env, makes_vector_env
from rlpyt.envs.making import call_text
from rlpyt.envs.video import (
    RecordFrames,
    VideoFile,
    draw_without_display,
    draws,
    fps_of,
    has_display,
    numbered,
    render_modes,
    require_video,
)
from rlpyt.types import Kwargs

_SUFFIXES = (".mp4", ".mkv", ".mov", ".avi")
"""Of the files that can hold what the encoder writes."""


def play(
    run: Run,
    *,
    episodes: Whole = None,
    video: File = None,
    sample: bool = False,
    seed: Count = 0,
    snapshot: Text = None,
    env_kwargs: Pairs = NO_PAIRS,
    trust: Modules = (),
) -> int:
    """Show episodes of a trained agent in a window, or write them to videos.

    Args:
        run: directory of the run, such as data/ppo_CartPole-v1/run_0.
        episodes: how many; the default is 3, and 1 for a file of --video.
        video: a file such as cartpole.mp4, or a folder with a file for each episode; needs no display.
        sample: act as in the evaluations of a run; see `rlpyt eval`.
        seed: of the first episode; the next ones have the next seeds.
        snapshot: a file of the run such as itr_99.pkl, or best; the default is the newest.
        env_kwargs: arguments of the environment, as key=value, in place of those of the run's evaluations.
        trust: modules of yours that the settings of the run may name, such as the one of an environment.
    """
    if episodes is None:
        episodes = 1 if video is not None and video.suffix else 3
    if episodes < 1:
        raise ValueError(f"got --episodes {episodes}; expected 1 or more.")
    if video is None and not has_display():
        raise ValueError("there is no display for a window. Write a video: --video FILE.mp4")
    if video is not None and video.suffix.lower() not in ("", *_SUFFIXES):
        raise ValueError(f"--video {video}: expected a file that ends in {', '.join(_SUFFIXES)}, or a folder.")
    if video is not None:
        require_video()
        draw_without_display()
    trained = read_trained(run, snapshot, trust)
    env = _environment(trained, "human" if video is None else "rgb_array", env_kwargs)
    try:
        files = list(numbered(video, episodes)) if video is not None else [None] * episodes
        for episode, file in enumerate(files):
            print(_episode(trained, env, file, seed + episode, sample))
    except (EnvError, gymnasium.error.DependencyNotInstalled) as error:
        # One that draws itself in a window does so in reset and step, whose errors the adapter names.
        why = error if isinstance(error, gymnasium.error.DependencyNotInstalled) else error.__cause__
        if not isinstance(why, gymnasium.error.DependencyNotInstalled):
            raise
        raise ImportError(f"the environment cannot be drawn: {why}") from error
    finally:
        env.close()
    return 0


def _environment(trained: Trained, render_mode: str, env_kwargs: Kwargs) -> EnvAdapter:
    """Return an environment of the run that draws itself in a render mode."""
    EnvCls, kwargs = trained.EnvCls, {**trained.env_kwargs, **env_kwargs}
    if makes_vector_env(EnvCls):
        raise ValueError(
            f"the run has vector environments ({call_text(EnvCls, kwargs)}); expected single ones, as one "
            "episode is shown at a time. In a script give a single environment of the same spaces, such as "
            "gymnasium.make(id, render_mode='human'), to load_agent(RUN).play(env). rlpyt eval takes both."
        )
    drawn = kwargs if "render_mode" in env_kwargs else {**kwargs, "render_mode": render_mode}
    takes = _takes_render_mode(EnvCls)
    env = make_env(EnvCls, drawn if takes == "yes" else kwargs)
    if takes == "perhaps" and not draws(env.env, render_mode) and render_mode in render_modes(env.env):
        env.close()
        env = make_env(EnvCls, drawn)
    if draws(env.env, render_mode):
        return env
    env.close()
    modes = render_modes(env.env)
    if render_mode == "human" and render_mode not in modes:
        raise ValueError(f"{env.name} has no window, only {modes}. Write a video: --video FILE.mp4")
    raise ValueError(
        f"the render mode of {env.name} is {getattr(env.env, 'render_mode', None)!r}, of {modes}; expected "
        f"{render_mode!r}. Let your class or function take an argument render_mode, which becomes the environment's "
        "self.render_mode; or name the argument that makes it draw: --env-kwargs KEY=VALUE."
    )


def drawing_kwargs(EnvCls: Callable[..., object], env_kwargs: Kwargs) -> Kwargs:
    """Return arguments of an environment with which it draws images, if it takes a render mode."""
    return {**env_kwargs, "render_mode": "rgb_array"} if _takes_render_mode(EnvCls) == "yes" else dict(env_kwargs)


def _takes_render_mode(EnvCls: Callable[..., object]) -> Literal["yes", "perhaps", "no"]:
    """Return whether what makes an environment takes the render mode; perhaps if it passes arguments on."""
    parameters = inspect.signature(EnvCls).parameters
    if EnvCls is gymnasium.make or "render_mode" in parameters:
        return "yes"
    passes_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return "perhaps" if passes_on else "no"


def _episode(trained: Trained, env: EnvAdapter, file: Path | None, seed: int, sample: bool) -> str:
    if file is None:
        (info,) = trained.agent.play(env, seed=seed, deterministic=not sample)
        return f"seed {seed}: return {info.Return:g}, {info.Length} steps"
    video = VideoFile(file, fps_of(env.env))
    try:
        (info,) = trained.agent.play(RecordFrames(env.env, video), seed=seed, deterministic=not sample)
    finally:
        video.close()
    return f"seed {seed}: return {info.Return:g}, {info.Length} steps -> {file}"
