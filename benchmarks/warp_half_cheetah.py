"""HalfCheetah in MuJoCo Warp: what `DeviceSampler` takes beside the simulation, and PPO by the wall clock.

    pip install mujoco-warp
    python benchmarks/warp_half_cheetah.py [cuda:0] [--n_envs 4096] [--n_batches 400] [--compile]

The model, rewards, observations and 1,000 steps are those of gymnasium's HalfCheetah-v5. Rates are medians over batches
of 24 steps. The returns of PPO are means of the episodes that ended since the last line.
"""

from __future__ import annotations

import argparse
import time
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
XML = Path(gymnasium.__file__).parent / "envs/mujoco/assets/half_cheetah.xml"


class HalfCheetah:
    """Half-cheetahs that are reset from outside, by a mask.

    Args:
        num_envs: how many.
        device: of all tensors.
        first_t: whether the first episodes begin at times of their own, so that they do not end together.
    """

    single_observation_space = spaces.Box(-np.inf, np.inf, (17,), np.float32)
    single_action_space = spaces.Box(-1.0, 1.0, (6,), np.float32)
    auto_reset = False

    def __init__(self, num_envs: int, device: str = "cpu", first_t: bool = True) -> None:
        import mujoco_warp
        import warp

        self.num_envs, self.device, self.first_t = num_envs, device, first_t
        model = mujoco.MjModel.from_xml_path(str(XML))
        self.dt = model.opt.timestep * FRAMES
        with warp.ScopedDevice(device):
            self.model = mujoco_warp.put_model(model)
            data = mujoco.MjData(model)
            self.data = mujoco_warp.put_data(model, data, nworld=num_envs, nconmax=24, njmax=96)

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
        self.generator = torch.Generator(device)
        self.t = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begin an episode in every environment, or in those of a mask."""
        if seed is not None:
            self.generator.manual_seed(seed)
        where = torch.ones_like(self.t, dtype=torch.bool) if options is None else options["reset_mask"]
        kwargs: Any = dict(generator=self.generator, device=self.device)
        for x, start in (
            (self.q, torch.rand(self.q.shape, **kwargs) * 0.2 - 0.1),
            (self.v, torch.randn(self.v.shape, **kwargs) * 0.1),
            (self.warm, torch.zeros_like(self.warm)),
        ):
            x.copy_(torch.where(where[:, None], start, x))
        self.t.masked_fill_(where, 0)
        if options is None and self.first_t:
            self.t = torch.randint(LIMIT, self.t.shape, **kwargs)
        return self.observe(), {}

    def observe(self) -> torch.Tensor:
        """Return the angles and velocities, without the place."""
        return torch.cat([self.q[:, 1:], self.v], 1)

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        """Return observation, reward, terminated, truncated and info."""
        self.control.copy_(action.clamp(-1.0, 1.0))
        before = self.q[:, 0].clone()
        self.simulate()
        self.t += 1
        reward = (self.q[:, 0] - before) / self.dt - 0.1 * self.control.square().sum(1)
        truncated = self.t >= LIMIT
        return self.observe(), reward, torch.zeros_like(truncated), truncated, {}


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


def sampling(n_envs: int, device: str) -> None:
    """Print the rates of the simulation, and of the sampler with a network."""
    env = HalfCheetah(n_envs, device)
    env.reset(seed=0)
    action = torch.zeros(n_envs, 6, device=device)
    print(f"simulation alone  {rate(lambda: [env.step(action) for _ in range(T)], T * n_envs, device):12,.0f} steps/s")
    sampler = DeviceSampler(HalfCheetah, dict(device=device), T, n_envs)
    agent = GaussianPgAgent(model_kwargs=dict(hidden_sizes=[64, 64]))
    sampler.initialize(agent, Run(batch_spec=sampler.batch_spec, bootstrap_value=True, final_rows=False))
    agent.to_device(ComputeSettings(device=device))
    print(f"DeviceSampler     {rate(lambda: sampler.obtain_samples(0), T * n_envs, device):12,.0f} steps/s", flush=True)


def learning(n_envs: int, device: str, n_batches: int, compiled: bool) -> None:
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
    sampler = DeviceSampler(HalfCheetah, dict(device=device), T, n_envs, TrajInfoCls=Noted)
    settings = ComputeSettings(device=device, compile=compiled)
    n_steps = n_batches * T * n_envs
    agent = GaussianPgAgent(model_kwargs=network)
    MinibatchRl(algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps // 8, settings=settings).train()


def main() -> None:
    """Measure, and train."""
    parser = argparse.ArgumentParser(description="HalfCheetah in MuJoCo Warp.")
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--n_envs", type=int, default=4096)
    parser.add_argument("--n_batches", type=int, default=400)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sampling(args.n_envs, args.device)
    if args.n_batches:
        learning(args.n_envs, args.device, args.n_batches, args.compile)


if __name__ == "__main__":
    main()
