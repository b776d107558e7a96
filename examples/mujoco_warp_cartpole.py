"""A cart-pole of MuJoCo Warp, whose tensors stay on their device: PPO holds the pole up.

    pip install mujoco-warp
    python examples/mujoco_warp_cartpole.py [cuda:0]

Of 256 poles all are held for 200 steps after some 200,000. The first run compiles Warp's kernels, which takes minutes
on a CPU, and keeps them for later runs.
"""

from __future__ import annotations

import sys
from typing import Any

import mujoco
import numpy as np
import torch
from gymnasium import spaces

from rlpyt.agents import GaussianPgAgent
from rlpyt.algos import PPO
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import DeviceSampler
from rlpyt.utils import ComputeSettings

XML = """<mujoco><option timestep="0.02"/><worldbody><body>
<joint name="slide" type="slide" axis="1 0 0"/><geom type="box" size=".2 .1 .05" mass="1" contype="0"/><body>
<joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 1" size=".05" mass=".1" contype="0"/>
</body></body></worldbody><actuator><motor joint="slide" gear="10"/></actuator></mujoco>"""


class CartPole:
    """Carts whose poles are to stay within 12 degrees; episodes are truncated after 200 steps."""

    single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    single_action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    auto_reset = False  # the sampler resets, by a mask

    def __init__(self, num_envs: int, device: str = "cpu") -> None:
        import mujoco_warp  # of a package of its own, which other examples do not need
        import warp

        self.num_envs, self.device, model = num_envs, device, mujoco.MjModel.from_xml_string(XML)
        with warp.ScopedDevice(device):
            self.model = mujoco_warp.put_model(model)
            self.data = mujoco_warp.put_data(model, mujoco.MjData(model), nworld=num_envs)
        self.simulate: Any = lambda: mujoco_warp.step(self.model, self.data)
        if device != "cpu":
            self.simulate()  # compiles the kernels, which a CUDA graph then starts by one call
            with warp.ScopedCapture(device) as capture:
                mujoco_warp.step(self.model, self.data)
            self.simulate = lambda: warp.capture_launch(capture.graph)
        self.q, self.v, self.force = (warp.to_torch(x) for x in (self.data.qpos, self.data.qvel, self.data.ctrl))
        self.generator, self.t = torch.Generator(device), torch.zeros(num_envs, device=device)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begin an episode in every environment, or in those of a mask."""
        if seed is not None:
            self.generator.manual_seed(seed)
        where = torch.ones_like(self.t, dtype=torch.bool) if options is None else options["reset_mask"]
        for x in (self.q, self.v):
            start = torch.rand(x.shape, generator=self.generator, device=self.device) * 0.1 - 0.05
            x.copy_(torch.where(where[:, None], start, x))
        self.t.masked_fill_(where, 0)
        return torch.cat([self.q, self.v], 1), {}

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        """Push the carts; return observation, reward, terminated, truncated and info."""
        self.force.copy_(action)
        self.simulate()
        self.t += 1
        fallen = (self.q[:, 0].abs() > 2.4) | (self.q[:, 1].abs() > 0.2095)
        return torch.cat([self.q, self.v], 1), torch.ones_like(self.t), fallen, self.t >= 200, {}


def main() -> None:
    """Train."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    algo = PPO(learning_rate=3e-3, gae_lambda=0.95, minibatches=8, epochs=5, ratio_clip=0.2)
    sampler = DeviceSampler(CartPole, dict(device=device), batch_T=32, batch_B=256)
    settings = ComputeSettings(device=device)
    MinibatchRl(algo, GaussianPgAgent(), sampler, 200_000, log_interval_steps=40_000, settings=settings).train()


if __name__ == "__main__":
    main()
