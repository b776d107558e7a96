"""A trained run, loaded from its directory: episodes that are shown, recorded or only counted.

    python examples/ppo_cartpole.py --log_dir data/ppo
    python examples/render.py data/ppo/run_0 --episodes 5
    python examples/render.py data/ppo/run_0 --human
    python examples/render.py data/ppo/run_0 --video data/ppo/videos

The command `rlpyt play` does this for more kinds of environments. Prints the return of every episode. Nothing but the
directory of the run is needed: agent, environment and weights are those of its record.
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import fmean

import gymnasium

from rlpyt.envs import EnvAdapter, make_env
from rlpyt.envs.video import RecordFrames, VideoFile, check_frames, draws, fps_of
from rlpyt.runners import load_agent, part_from_record


def environment(run: Path, render_mode: str | None, trusted: list[str]) -> EnvAdapter:
    """Return an environment as the run evaluates in, or else trains in."""
    params = json.loads((run / "params.json").read_text())
    sampler = part_from_record(params["runner"]["settings"]["sampler"], trusted=trusted)
    env_kwargs = sampler.evaluation_kwargs
    if sampler.EnvCls is gymnasium.make and render_mode is not None:
        env_kwargs = {**env_kwargs, "render_mode": render_mode}
    return make_env(sampler.EnvCls, env_kwargs)


def main() -> None:
    """Read the options, load, and play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="directory of the run, such as data/ppo/run_0")
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--human", action="store_true", help="show the episodes in a window")
    parser.add_argument("--video", metavar="FOLDER", help="write a video of every episode there; needs the extra video")
    parser.add_argument("--sample", action="store_true", help="sample actions instead of taking the most probable one")
    parser.add_argument("--snapshot", help="a file of the run, such as itr_99.pkl; default: the newest")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trusted", nargs="*", default=[], help="modules of yours that the record may name")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; the next ones have the next seeds")
    args = parser.parse_args()
    agent = load_agent(args.run, snapshot=args.snapshot, device=args.device, trusted=args.trusted)
    render_mode = "human" if args.human else "rgb_array" if args.video else None
    env = environment(args.run, render_mode, args.trusted)
    if args.human and not draws(env.env, "human"):
        parser.error(f"{env.name} has no window here; use --video, or `rlpyt play`.")
    returns = []
    for episode in range(args.episodes):
        with ExitStack() as stack:
            shown = env
            if args.video:
                check_frames(env.env)
                file = VideoFile(Path(args.video, f"episode_{episode}.mp4"), fps_of(env.env))
                shown = RecordFrames(env.env, stack.enter_context(closing(file)))
            (info,) = agent.play(shown, seed=args.seed + episode, deterministic=not args.sample)
        returns.append(info.Return)
        print(f"episode {episode}: return {info.Return:g}, {info.Length} steps")
    env.close()
    print(f"mean return of {len(returns)} episodes: {fmean(returns):g}")


if __name__ == "__main__":
    main()
