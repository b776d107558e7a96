"""Robots in MuJoCo Warp: what `DeviceSampler` takes beside the simulation, and PPO by the wall clock.

    pip install mujoco-warp
    python benchmarks/warp_locomotion.py half_cheetah [cuda:0] [--n_envs 4096] [--n_batches 400] [--seed 0] [--compile]

Models and 1,000 steps are those of gymnasium's HalfCheetah-v5 and Humanoid-v5, and the rewards those of the first. The
humanoid is paid for the speed of its root, where gymnasium takes the centre of mass, and contacts cost it nothing. An
observation has the angles and velocities alone. Rates are medians over batches of 24 steps. The returns of PPO are
means of the episodes that ended since the last line.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import gymnasium
import mujoco
import numpy as np
import torch
from gymnasium import spaces

from rlpyt.agents import GaussianPgAgent
from rlpyt.algos import PPO
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import DeviceSampler, TrajInfo
from rlpyt.types import Run
from rlpyt.utils import ComputeSettings

T, FRAMES, LIMIT = 24, 5, 1000
MODELS = Path(gymnasium.__file__).parent / "envs/mujoco/assets"


@dataclass(frozen=True)
class Robot:
    """A robot of gymnasium and its reward for moving forward."""

    hidden: int
    """Places at the front of qpos that the observation leaves out."""
    n_contacts: int
    n_constraints: int
    limit: float
    """Of an action."""
    noise: float
    """Of the first places and velocities."""
    forward: float
    cost: float
    """Of the square of the actions."""
    alive: float = 0.0
    heights: tuple[float, float] | None = None
    """Between which an episode goes on."""


ROBOTS = dict(
    half_cheetah=Robot(1, 24, 96, limit=1.0, noise=0.1, forward=1.0, cost=0.1),
    humanoid=Robot(2, 40, 160, limit=0.4, noise=0.01, forward=1.25, cost=0.1, alive=5.0, heights=(1.0, 2.0)),
)


class Locomotion:
    """Robots that are reset from outside, by a mask.

    Args:
        num_envs: how many.
        robot: which.
        device: of all tensors.
    """

    auto_reset = False

    def __init__(self, num_envs: int, robot: str, device: str = "cpu") -> None:
        import mujoco_warp
        import warp

        self.num_envs, self.robot, self.device = num_envs, ROBOTS[robot], device
        model = mujoco.MjModel.from_xml_path(str(MODELS / f"{robot}.xml"))
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON  # Warp has no PGS, which the humanoid asks for
        self.dt = model.opt.timestep * FRAMES
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (model.nq + model.nv - self.robot.hidden,))
        self.single_action_space = spaces.Box(-self.robot.limit, self.robot.limit, (model.nu,))
        with warp.ScopedDevice(device):
            self.model = mujoco_warp.put_model(model)
            sizes = dict(nworld=num_envs, nconmax=self.robot.n_contacts, njmax=self.robot.n_constraints)
            self.data = mujoco_warp.put_data(model, mujoco.MjData(model), **sizes)

        def simulate() -> None:
            for _ in range(FRAMES):
                mujoco_warp.step(self.model, self.data)

        self.simulate: Any = simulate
        if device != "cpu":
            simulate()  # compiles the kernels
            with warp.ScopedCapture(device) as capture:
                simulate()
            self.simulate = lambda: warp.capture_launch(capture.graph)
        self.q, self.v, self.control, self.warm = (
            warp.to_torch(x) for x in (self.data.qpos, self.data.qvel, self.data.ctrl, self.data.qacc_warmstart)
        )
        self.first_q = torch.as_tensor(model.qpos0, dtype=torch.float32, device=device)
        self.generator = torch.Generator(device)
        self.t = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begin an episode in every environment, or in those of a mask."""
        if seed is not None:
            self.generator.manual_seed(seed)
        where = torch.ones_like(self.t, dtype=torch.bool) if options is None else options["reset_mask"]
        kwargs: Any = dict(generator=self.generator, device=self.device)
        noise = self.robot.noise
        for x, start in (
            (self.q, self.first_q + noise * (2 * torch.rand(self.q.shape, **kwargs) - 1)),
            (self.v, noise * torch.randn(self.v.shape, **kwargs)),
            (self.warm, torch.zeros_like(self.warm)),
        ):
            x.copy_(torch.where(where[:, None], start, x))
        self.t.masked_fill_(where, 0)
        if options is None:  # first episodes that do not end together
            self.t = torch.randint(LIMIT, self.t.shape, **kwargs)
        return self.observe(), {}

    def observe(self) -> torch.Tensor:
        """Return the angles and velocities, without the place."""
        return torch.cat([self.q[:, self.robot.hidden :], self.v], 1)

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        """Return observation, reward, terminated, truncated and info."""
        robot = self.robot
        self.control.copy_(action.clamp(-robot.limit, robot.limit))
        before = self.q[:, 0].clone()
        self.simulate()
        self.t += 1
        reward = robot.forward * (self.q[:, 0] - before) / self.dt - robot.cost * self.control.square().sum(1)
        fallen, truncated = torch.zeros_like(self.t, dtype=torch.bool), self.t >= LIMIT
        if robot.heights:
            low, high = robot.heights
            fallen = (self.q[:, 2] < low) | (self.q[:, 2] > high)
            reward = reward + robot.alive * ~fallen
        return self.observe(), reward, fallen, truncated, {}


def rate(function: Any, n_steps: int, device: str, turns: int = 9) -> float:
    """Return steps per second, a median of turns."""
    seconds = []
    for _ in range(turns):
        start = time.perf_counter()
        function()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return n_steps / median(seconds)


def busy(function: Any) -> float:
    """Return the share of a call in which the GPU computes, as torch's profiler sees it."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return sum(event.self_device_time_total for event in profile.key_averages()) * 1e-6 / seconds


def sampling(robot: str, n_envs: int, device: str) -> None:
    """Print the rates of the simulation, and of the sampler with a network."""
    env = Locomotion(n_envs, robot, device)
    env.reset(seed=0)
    sampler = DeviceSampler(Locomotion, dict(robot=robot, device=device), T, n_envs)
    agent = GaussianPgAgent(model_kwargs=dict(hidden_sizes=[64, 64]))
    sampler.initialize(agent, Run(batch_spec=sampler.batch_spec, bootstrap_value=True, final_rows=False))
    agent.to_device(ComputeSettings(device=device))
    action = torch.zeros(n_envs, *env.single_action_space.shape, device=device)
    for name, function in (
        ("simulation alone", lambda: [env.step(action) for _ in range(T)]),
        ("DeviceSampler", lambda: sampler.obtain_samples(0)),
    ):
        line = f"{name:18s}{rate(function, T * n_envs, device):12,.0f} steps/s"
        print(line if device == "cpu" else f"{line}, the GPU computes {busy(function):.0%} of the time", flush=True)


def learning(robot: str, n_envs: int, device: str, n_batches: int, seed: int, compiled: bool) -> None:
    """Train, and print returns by steps and seconds."""
    returns: list[float] = []
    start = time.perf_counter()

    class Noted(TrajInfo):
        def terminate(self, observation: Any) -> TrajInfo:
            returns.append(self.Return)
            return self

    class Printing(PPO):
        def optimize_agent(self, itr: int, samples: Any) -> Any:
            if (itr + 1) % (n_batches // 8) == 0 and returns:
                seconds, steps = time.perf_counter() - start, (itr + 1) * T * n_envs
                print(f"{steps:14,} steps {seconds:7.0f} s   return {fmean(returns):8.0f}", flush=True)
                returns.clear()
            return super().optimize_agent(itr, samples)

    algo = Printing(
        learning_rate=1e-3,
        gae_lambda=0.95,
        minibatches=4,
        epochs=5,
        ratio_clip=0.2,
        normalize_advantage=True,
        normalize_reward=True,
        linear_lr_schedule=False,
    )
    network = dict(hidden_sizes=[128, 128], share_trunk=False, normalize_observation=True)
    sampler = DeviceSampler(Locomotion, dict(robot=robot, device=device), T, n_envs, TrajInfoCls=Noted)
    settings = ComputeSettings(device=device, compile=compiled)
    n_steps = n_batches * T * n_envs
    agent = GaussianPgAgent(model_kwargs=network)
    MinibatchRl(
        algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // 8, seed=seed, settings=settings
    ).train()


def main() -> None:
    """Measure, and train."""
    parser = argparse.ArgumentParser(description="Robots in MuJoCo Warp.")
    parser.add_argument("robot", choices=ROBOTS)
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--n_envs", type=int, default=4096)
    parser.add_argument("--n_batches", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sampling(args.robot, args.n_envs, args.device)
    if args.n_batches:
        learning(args.robot, args.n_envs, args.device, args.n_batches, args.seed, args.compile)


if __name__ == "__main__":
    main()
