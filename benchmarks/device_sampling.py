"""The own cost of `DeviceSampler` on the CPU, as a share of environment and network.

python benchmarks/device_sampling.py

A torch-batched cart-pole of 4,096 environments is stepped with a policy of 64 x 64 units, by the sampler, and by a loop
that does nothing but call both. Once poles fall, after some 22 steps with this policy; once none does, and episodes are
truncated after 500 steps. The figures are the process's seconds of CPU time for a batch, medians over turns that
alternate, and the median of the turns' own shares, so that other work on the machine changes them little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent
from rlpyt.samplers import DeviceSampler
from rlpyt.types import Run

T, B, LIMIT, TURNS = 24, 4096, 500, 25


class CartPole:
    """The cart-pole of gymnasium as tensors; it resets itself and hands the final observation over.

    Without `falls` a pole may turn round, and episodes begin at any time of their 500 steps.
    """

    single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, device: str = "cpu", falls: bool = True) -> None:
        self.num_envs, self.device, self.falls = num_envs, device, falls
        self.generator = torch.Generator(device)
        self.state = torch.zeros(num_envs, 4, device=device)
        self.t = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def begin(self, where: torch.Tensor) -> None:
        fresh = torch.rand(self.num_envs, 4, generator=self.generator, device=self.device) * 0.1 - 0.05
        self.state = torch.where(where[:, None], fresh, self.state)
        self.t.masked_fill_(where, 0)

    def reset(self, seed: int | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        if seed is not None:
            self.generator.manual_seed(seed)
        self.begin(torch.ones(self.num_envs, dtype=torch.bool, device=self.device))
        if not self.falls:
            self.t = torch.randint(LIMIT, (self.num_envs,), generator=self.generator, device=self.device)
        return self.state, {}

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        x, v, angle, w = self.state.unbind(1)
        force = torch.where(action == 1, 10.0, -10.0)
        cos, sin = angle.cos(), angle.sin()
        push = (force + 0.05 * w * w * sin) / 1.1
        angular = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        forward = push - 0.05 * angular * cos / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * forward, angle + 0.02 * w, w + 0.02 * angular], 1)
        self.t += 1
        terminated = ((self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.2095)) & self.falls
        truncated = self.t >= LIMIT
        final = self.state
        self.begin(terminated | truncated)
        return self.state, torch.ones_like(x), terminated, truncated, {"final_obs": final}


def batch_of(sampler: DeviceSampler) -> int:
    """Collect a batch; return the episodes that ended in it."""
    return len(sampler.obtain_samples(0)[1])


def loop_of(agent: CategoricalPgAgent, falls: bool) -> Callable[[], None]:
    """Return a function that steps an environment and the network as often, without rows, statistics or checks."""
    env = CartPole(B, falls=falls)
    actor = agent.actor(range(B), B, seed=1, device=torch.device("cpu"))
    state = [env.reset(seed=1)[0], torch.zeros(B, dtype=torch.int64), torch.zeros(B)]

    @torch.no_grad()
    def loop() -> None:
        actor.begin(0)
        for _ in range(T):
            action, _ = actor.step(*state)
            state[0], state[2], *_ = env.step(action)
            state[1] = action
        actor.value(*state)

    return loop


def seconds_of(function: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def main() -> None:
    """Print the costs."""
    torch.set_num_threads(1)
    print(f"{B:,} environments, batches of {T} steps, CPU time on one thread")
    for falls in (True, False):
        agent = CategoricalPgAgent(model_kwargs=dict(hidden_sizes=[64, 64]))
        sampler = DeviceSampler(CartPole, dict(falls=falls), T, B)
        run = Run(batch_spec=sampler.batch_spec, bootstrap_value=True, final_rows=False)
        sampler.initialize(agent, run)
        loop = loop_of(agent, falls)
        turns = [(seconds_of(loop), seconds_of(partial(batch_of, sampler))) for _ in range(TURNS + 1)][1:]
        alone, whole = (median(seconds) for seconds in zip(*turns, strict=True))
        print(f"{batch_of(sampler):,} episodes end in a batch:")
        print(f"  environment and network  {alone * 1e3:8.1f} ms a batch  {T * B / alone:12,.0f} steps/s")
        print(f"  with the sampler         {whole * 1e3:8.1f} ms a batch  {T * B / whole:12,.0f} steps/s")
        own = median(both / bare - 1 for bare, both in turns)
        print(f"  the sampler's own cost   {own:8.1%} of environment and network")


if __name__ == "__main__":
    main()
