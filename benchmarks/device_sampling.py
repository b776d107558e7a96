"""The own cost of `DeviceSampler`, as a share of environment and network.

    python benchmarks/device_sampling.py        (--device cuda:0; --compile-env)

A torch-batched cart-pole of 4,096 environments is stepped with a policy of 64 x 64 units, by the sampler, and by a loop
that does nothing but call both. Once poles fall, after some 22 steps with this policy; once none does, and episodes are
truncated after 500 steps. The figures are the process's seconds of CPU time for a batch, medians over turns that
alternate, and the median of the turns' own shares, so that other work on the machine changes them little. On a GPU they
are seconds on the wall, until the GPU has done its work. With --compile-env the sampler's environment is compiled, the
loop's is not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from device_cartpole import CartPole

from rlpyt.agents import CategoricalPgAgent
from rlpyt.samplers import DeviceSampler
from rlpyt.types import Run
from rlpyt.utils import ComputeSettings

T, B, TURNS = 24, 4096, 25


def batch_of(sampler: DeviceSampler) -> int:
    """Collect a batch; return the episodes that ended in it."""
    return len(sampler.obtain_samples(0)[1])


def loop_of(agent: CategoricalPgAgent, falls: bool, device: torch.device) -> Callable[[], None]:
    """Return a function that steps an environment and the network as often, without rows, statistics or checks."""
    env = CartPole(B, str(device), falls)
    actor = agent.actor(range(B), B, seed=1, device=device)
    state = [env.reset(seed=1)[0], torch.zeros(B, dtype=torch.int64, device=device), torch.zeros(B, device=device)]

    @torch.no_grad()
    def loop() -> None:
        actor.begin(0)
        for _ in range(T):
            action, _ = actor.step(*state)
            state[0], state[2], *_ = env.step(action)
            state[1] = action
        actor.value(*state)

    return loop


def seconds_of(function: Callable[[], object], device: torch.device) -> float:
    """Return the CPU time of a call, or its time on the wall with a GPU."""
    clock = time.process_time
    if device.type == "cuda":
        clock = time.perf_counter
        torch.cuda.synchronize(device)
    start = clock()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start


def main() -> None:
    """Print the costs."""
    parser = argparse.ArgumentParser(description="The own cost of DeviceSampler.")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--compile-env", action="store_true")
    args = parser.parse_args()
    device = args.device
    torch.set_num_threads(1)
    clock = "time on the wall" if device.type == "cuda" else "CPU time"
    print(f"{B:,} environments, batches of {T} steps, {clock}, one thread of the host")
    for falls in (True, False):
        agent = CategoricalPgAgent(model_kwargs=dict(hidden_sizes=[64, 64]))
        sampler = DeviceSampler(CartPole, dict(falls=falls, device=str(device)), T, B, compile_env=args.compile_env)
        run = Run(batch_spec=sampler.batch_spec, bootstrap_value=True, final_rows=False)
        sampler.initialize(agent, run)
        agent.to_device(ComputeSettings(device=str(device)))
        both = loop_of(agent, falls, device), partial(batch_of, sampler)
        turns = [[seconds_of(function, device) for function in both] for _ in range(TURNS + 1)][1:]
        alone, whole = (median(seconds) for seconds in zip(*turns, strict=True))
        print(f"{batch_of(sampler):,} episodes end in a batch:")
        print(f"  environment and network  {alone * 1e3:8.1f} ms a batch  {T * B / alone:12,.0f} steps/s")
        print(f"  with the sampler         {whole * 1e3:8.1f} ms a batch  {T * B / whole:12,.0f} steps/s")
        own = median(with_it / bare - 1 for bare, with_it in turns)
        print(f"  the sampler's own cost   {own:8.1%} of environment and network")


if __name__ == "__main__":
    main()
