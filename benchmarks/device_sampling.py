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

import torch
from device_cartpole import CartPole

from rlpyt.agents import CategoricalPgAgent
from rlpyt.samplers import DeviceSampler
from rlpyt.types import Run

T, B, TURNS = 24, 4096, 25


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
