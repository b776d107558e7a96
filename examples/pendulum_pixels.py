"""SAC or TD3 from images, as DrQ has it: Pendulum-v1 drawn in 48 x 48 pixels, three frames in a stack.

    python examples/pendulum_pixels.py --algo sac

Policy and action values share convolutions, which learn from the action values alone; the images of a batch are shifted
at random. The replay keeps every frame once. The convolutions are small, for a machine without a GPU: leave
`feature_kwargs` out to get those of DrQ, for images of 84 x 84.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

from rlpyt.agents import QpgAgent, SacAgent, Td3Agent
from rlpyt.algos import SAC, TD3
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import SerialSampler

SIZE, N_FRAMES = 48, 3


class DrawnPendulum(gymnasium.ObservationWrapper[np.ndarray, np.ndarray, np.ndarray]):
    """Pendulum-v1 that shows its rod, white on black."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE), np.uint8)
        axis = np.linspace(-1.2, 1.2, SIZE, dtype=np.float32)
        self._x, self._y = np.meshgrid(axis, -axis)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Return the picture [48, 48] of an observation; edges are soft, so that small motions are seen."""
        cos, sin, _ = observation
        along = (self._x * sin + self._y * cos).clip(0, 1)
        pixels_away = np.hypot(self._x - along * sin, self._y - along * cos) * (SIZE / 2.4)
        return (255 * (2 - pixels_away).clip(0, 1)).astype(np.uint8)


def make_env() -> Any:
    """Return the drawn environment with its frames stacked."""
    return gymnasium.wrappers.FrameStackObservation(DrawnPendulum(), N_FRAMES)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=["sac", "td3"], default="sac")
    parser.add_argument("--n_steps", type=float, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/pendulum_pixels")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 520 if args.smoke else args.n_steps
    AlgoCls, AgentCls = {"sac": (SAC, SacAgent), "td3": (TD3, Td3Agent)}[args.algo]
    algo = AlgoCls(
        learning_rate=1e-3,
        q_learning_rate=1e-3,
        batch_size=128,
        replay_ratio=16 if args.smoke else 64,  # an update for every 2 rows
        min_steps_learn=480 if args.smoke else 1_000,
        replay_size=100_000,
        frame_stack=N_FRAMES,
        random_shift=2,
    )
    sizes = dict(hidden_sizes=(128, 128))
    convolutions = dict(channels=(16, 16, 32), kernel_sizes=(3, 3, 3), strides=(2, 2, 2), paddings=(0, 0, 0))
    agent: QpgAgent = AgentCls(model_kwargs=sizes, q_model_kwargs=sizes, feature_kwargs=convolutions)
    sampler = SerialSampler(
        EnvCls=make_env,
        env_kwargs={},
        batch_T=8,
        batch_B=1,
        eval_n_envs=1 if args.smoke else 10,
        eval_max_trajectories=1 if args.smoke else 20,
    )
    runner = MinibatchRlEval(
        algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // (1 if args.smoke else 10), seed=args.seed
    )
    with logger_context(args.log_dir, name=f"{args.algo}_pendulum_pixels", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
