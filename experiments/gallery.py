"""Gallery of the trained agents in experiments/trained: a film and a curve of each, and the page docs/start/gallery.md.

    python -m experiments.gallery

Everything is made of what is kept there: the weights play an episode by their best actions, and the log is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from experiments.studies import STUDIES
from rlpyt.envs import make_env
from rlpyt.envs.video import RecordFrames, draw_without_display, fps_of
from rlpyt.logging import plot_progress, read_progress
from rlpyt.runners import load_agent
from rlpyt.samplers import SerialSampler
from rlpyt.settings import all_settings

ROOT = Path(__file__).resolve().parent.parent
TRAINED, PAGE, PICTURES = ROOT / "experiments/trained", ROOT / "docs/start/gallery.md", ROOT / "docs/start/gallery"
FIGURES = ROOT / "docs/notes/figures"
STUDY = "classic_control"
BEGIN, END = "<!-- gallery: begin -->", "<!-- gallery: end -->"
WIDTH, COLOURS, EVERY = 300, 16, 2
"""Of a film: pixels, colours, and of how many frames one is kept. Ten seconds are some 150 kB."""


class Film:
    """Frames of an episode, made small and kept for a GIF."""

    def __init__(self) -> None:
        self.n_frames, self.pictures = 0, list[Image.Image]()

    def add(self, frame: np.ndarray) -> None:
        """Take the next frame, uint8 [height, width, 3]."""
        if self.n_frames % EVERY == 0:
            height, width = frame.shape[:2]
            small = Image.fromarray(frame).resize((WIDTH, WIDTH * height // width), Image.Resampling.LANCZOS)
            self.pictures.append(small.quantize(COLOURS, dither=Image.Dither.NONE))
        self.n_frames += 1

    def save(self, file: Path, fps: float) -> None:
        """Write the film, which plays as fast as the environment does, again and again."""
        first, *others = self.pictures
        first.save(file, save_all=True, append_images=others, duration=round(1000 * EVERY / fps), loop=0, optimize=True)


def sampler_of(name: str) -> tuple[SerialSampler, dict[str, Any]]:
    """Return the sampler of a configuration, and the arguments of its environment."""
    sampler = STUDIES[STUDY][name]().sampler
    assert isinstance(sampler, SerialSampler)
    return sampler, dict(sampler.env_kwargs or {})


def film(name: str, file: Path, max_steps: int | None = None) -> None:
    """Have a kept agent play the episode of seed 0 by its best actions, and write the film.

    Args:
        name: of the agent's folder.
        file: a GIF.
        max_steps: ends the episode earlier; None plays it to its end.
    """
    draw_without_display()
    sampler, env_kwargs = sampler_of(name)
    limit = {} if max_steps is None else {"max_episode_steps": max_steps}
    env = make_env(sampler.EnvCls, {**env_kwargs, "render_mode": "rgb_array", **limit})
    taken = Film()
    load_agent(TRAINED / name).play(RecordFrames(env.env, taken), seed=0, deterministic=True)
    taken.save(file, fps_of(env.env))
    env.close()


def row(part: object, given: Mapping[str, object]) -> str:
    """Return the line of a table for a part and settings of it."""
    return f"| `{type(part).__name__}` | {', '.join(f'`{name}={x!r}`' for name, x in given.items())} |"


def changed(part: object) -> dict[str, object]:
    """Return the settings of a part that are not the default."""
    default = all_settings(type(part)())
    return {name: x for name, x in all_settings(part).items() if x != default[name]}


def section(name: str) -> str:
    """Return the part of the page for an agent."""
    runner, (sampler, env_kwargs) = STUDIES[STUDY][name](), sampler_of(name)
    progress = read_progress(TRAINED / name)
    steps, last = progress["Diagnostics/CumSteps"][-1], progress["ReturnAverage"][-1]
    task = env_kwargs["id"]
    return f"""### {name}

![Film: {name} plays {task}](gallery/{name}.gif)

![Curve: {name} learns {task}](gallery/{name}.png)

{task}, {steps:,.0f} steps, seed 0. The last row of the log has a mean return of {last:,.1f}.

    python -m experiments.train {STUDY} {name} --seed 0 --log_dir data/gallery/{name}
    python -m experiments.keep_agent data/gallery/{name}/run_0 experiments/trained/{name}

| part | settings, where they are not the default |
|---|---|
{row(runner.algo, changed(runner.algo))}
{row(runner.agent, changed(runner.agent))}
{row(sampler, dict(batch_T=sampler.batch_T, batch_B=sampler.batch_B))}
"""


def figures() -> str:
    """Return the part of the page for the studies over seeds, of which docs/notes/figures has pictures."""
    names = sorted(file.stem for file in FIGURES.glob("*.png"))
    return "\n".join(f"![Curves: {name}](../notes/figures/{name}.png)\n" for name in names)


def write_page() -> None:
    """Write what stands between the marks of the page."""
    text = PAGE.read_text()
    agents = "\n".join(section(name) for name in STUDIES[STUDY])
    body = f"""
{agents}
## Over seeds

The studies of [figures.md](../notes/figures.md), which has their numbers and commands. A line is the
mean over seeds, a band its interval of 95 %.

{figures()}
"""
    PAGE.write_text(text.partition(BEGIN)[0] + BEGIN + "\n" + body + END + text.partition(END)[2])


def main() -> None:
    """Write the films, the curves and the page."""
    PICTURES.mkdir(exist_ok=True)
    for name in STUDIES[STUDY]:
        film(name, PICTURES / f"{name}.gif")
        plot_progress(TRAINED / name, file=str(PICTURES / f"{name}.png"))
    write_page()


if __name__ == "__main__":
    main()
