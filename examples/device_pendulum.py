"""SAC swings up a pendulum that is simulated in tensors, and holds it in gymnasium's Pendulum-v1.

    python examples/device_pendulum.py [--device cuda:0] [--smoke]

The simulator steps all its pendulums in one call, and its data stay on their device. It has the dynamics, rewards and
200 steps of Pendulum-v1, where a mean return of -200 or better is solved.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from rlpyt.agents import SacAgent
from rlpyt.algos import SAC
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRlEval
from rlpyt.samplers import DeviceSampler
from rlpyt.utils import ComputeSettings


class Pendulum:
    """Pendulums that begin anew in the step that truncates them, and hand their final observation over.

    Args:
        num_envs: how many.
        device: of all tensors.
    """

    single_observation_space = spaces.Box(-8.0, 8.0, (3,), np.float32)
    single_action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, num_envs: int, device: str = "cpu") -> None:
        self.num_envs, self.device = num_envs, device
        self.generator = torch.Generator(device)
        self.angle, self.speed = torch.zeros(2, num_envs, device=device)
        self.t = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def reset(self, seed: int | None = None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Begin all anew; return their observations [num_envs, 3]."""
        if seed is not None:
            self.generator.manual_seed(seed)
        self._begin(torch.ones_like(self.t, dtype=torch.bool))
        return self._observation(), {}

    def step(
        self, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """Push each by a torque, [num_envs, 1]."""
        torque, full_turn = action[:, 0], 2 * torch.pi
        off = (self.angle + torch.pi) % full_turn - torch.pi
        reward = -(off**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed = (self.speed + 0.05 * (15 * self.angle.sin() + 3 * torque)).clamp(-8, 8)
        self.angle, self.t = self.angle + 0.05 * self.speed, self.t + 1
        truncated = self.t >= 200
        info = {"final_obs": self._observation()}
        self._begin(truncated)
        return self._observation(), reward, torch.zeros_like(truncated), truncated, info

    def _begin(self, where: torch.Tensor) -> None:
        drawn = 2 * torch.rand(2, self.num_envs, generator=self.generator, device=self.device) - 1
        self.angle = torch.where(where, torch.pi * drawn[0], self.angle)
        self.speed = torch.where(where, drawn[1], self.speed)
        self.t = self.t.masked_fill(where, 0)

    def _observation(self) -> torch.Tensor:
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed], 1)


def main() -> None:
    """Read the options, train, and play in Pendulum-v1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--n_steps", type=float, default=8_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/device_pendulum")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 600 if args.smoke else args.n_steps
    sampler = DeviceSampler(Pendulum, dict(device=args.device), batch_T=1, batch_B=4, eval_n_envs=20)
    sizes = dict(hidden_sizes=(64, 64))
    agent = SacAgent(model_kwargs=sizes, q_model_kwargs=sizes)
    runner = MinibatchRlEval(
        SAC(learning_rate=1e-3, q_learning_rate=1e-3, min_steps_learn=500 if args.smoke else 1_000),
        agent,
        sampler,
        n_steps=n_steps,
        log_interval_steps=n_steps // (1 if args.smoke else 8),
        seed=args.seed,
        settings=ComputeSettings(device=args.device),
    )
    with logger_context(args.log_dir, name="sac_device_pendulum", log_params=vars(args)):
        runner.train()
    env = gymnasium.make("Pendulum-v1")
    returns = [info.Return for info in agent.play(env, n_episodes=2 if args.smoke else 20)]
    print(f"Mean return in {len(returns)} episodes of Pendulum-v1: {np.mean(returns):.0f}")


if __name__ == "__main__":
    main()
