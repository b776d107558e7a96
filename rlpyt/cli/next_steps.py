"""Commands that are offered at the end of a run: those that would work here."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path

import gymnasium
from gymnasium.envs.registration import load_env_creator

from rlpyt.cli.show import trust_options
from rlpyt.envs import makes_vector_env
from rlpyt.envs.making import has_parameter
from rlpyt.envs.video import has_display
from rlpyt.run_records import PARAMS_FILE, read_json
from rlpyt.samplers import BaseSampler

_DRAWN_BY_PYGAME = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text", "gymnasium.envs.box2d")


def next_steps(directory: Path, path: str, made_by: object) -> list[str]:
    """Return lines with the commands that show a run, film its agent and draw its curves, as far as they work here.

    `path` is the directory as a user would type it. A sampler that is no `BaseSampler` does not tell how its
    environments are made.
    """
    run, trust = shlex.quote(path), trust_options(read_json(directory / PARAMS_FILE)[0])
    lines = [f"What it was: rlpyt show {run}"]
    video = "" if has_display() else f" --video {shlex.quote(path.rstrip('/') + '.mp4')}"
    has_weights = any(directory.glob("*.pkl")) or any(directory.glob("checkpoints/*/manifest.json"))
    can_write = not video or find_spec("imageio_ffmpeg") is not None
    if has_weights and can_write and isinstance(made_by, BaseSampler) and _is_drawn(made_by, bool(video)):
        lines.append(f"How it acts: rlpyt play {run}{video}{trust}")
    if find_spec("matplotlib") is not None and (directory / "progress.csv").exists():
        lines.append(f"How it learned: rlpyt plot {run}")
    return lines


def _is_drawn(made_by: BaseSampler, as_video: bool) -> bool:
    """Return whether an environment draws itself, by what makes it and its metadata: it is not built."""
    EnvCls, env_id = made_by.EnvCls, made_by.evaluation_kwargs.get("id")
    if makes_vector_env(EnvCls):
        return False
    made: object = EnvCls
    if EnvCls is gymnasium.make and isinstance(env_id, str):
        try:
            entry_point = gymnasium.spec(env_id.rpartition(":")[2]).entry_point  # the module is imported
        except (gymnasium.error.Error, ImportError):  # its package has gone, or registers it in another way
            return False
        if str(entry_point).startswith(_DRAWN_BY_PYGAME) and find_spec("pygame") is None:
            return False
        made = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    elif not has_parameter(EnvCls, "render_mode"):
        return False
    metadata = getattr(made, "metadata", None)  # a function has none
    return metadata is None or ("rgb_array" if as_video else "human") in metadata.get("render_modes", ())
