"""Command `rlpyt bench`: how fast the samplers collect from an environment on this machine."""

from __future__ import annotations

import time
from statistics import median
from typing import Annotated

import torch
import tyro

from rlpyt.agents import PgAgent
from rlpyt.cli.arguments import Count, Pairs
from rlpyt.cli.environment import Environment, environment
from rlpyt.cli.text import columns
from rlpyt.cli.train import SAMPLERS
from rlpyt.cli.values import Values, pairs_of
from rlpyt.runners.compute_choice import choose_settings
from rlpyt.samplers import BaseSampler
from rlpyt.types import Run
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.processes import available_cores, available_threads

ROUNDS = 3
"""Times that every sampler is measured, in turn with the others: the machine may be busy for a while."""


def bench(
    env: Annotated[str, tyro.conf.Positional] = "CartPole-v1",
    *,
    sampler_type: tuple[str, ...] = (),
    batch_T: Count = 64,
    batch_B: Count = 16,
    n_workers: Count = 0,
    seconds: float = 2.0,
    env_kwargs: Pairs = (),
) -> int:
    """Measure how many steps a second each sampler collects, with the default network of policy gradients.

    Args:
        env: id of gymnasium, game of Atari, task such as dm_control/cheetah-run, or module:name of your own.
        sampler_type: of serial, cpu, gpu and alternating; all by default.
        batch_T: time steps of a batch.
        batch_B: environments.
        n_workers: of the samplers with workers; 0 is one for each core.
        seconds: of each measurement. There are three for each sampler.
        env_kwargs: further arguments of the environment, as key=value.
    """
    unknown = sorted(set(sampler_type) - set(SAMPLERS))
    if unknown:
        raise ValueError(f"--sampler-type: got {unknown[0]!r}; expected some of {', '.join(SAMPLERS)}.")
    found = environment(env, pairs_of(env_kwargs))
    workers = n_workers or min(available_cores(), batch_B)
    names = [name for name in sampler_type or SAMPLERS if name != "alternating" or workers > 1]
    rates: dict[str, list[float]] = {name: [] for name in names}
    shares: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for name in names:
            rate, shares[name] = measured(name, found, (batch_T, batch_B), workers, seconds)
            rates[name].append(rate)
    parts = list(dict.fromkeys(part for share in shares.values() for part in share))
    print(f"{env}: {batch_B} environments, batches of {batch_T} steps, {workers} workers, median of {ROUNDS}")
    print("Shares of the time are means over the processes.\n")
    rows = [["sampler", "steps/s", "us/step", *parts]]
    for name in sorted(names, key=lambda name: -median(rates[name])):
        rate = median(rates[name])
        share = [f"{shares[name].get(part, 0.0):.0%}" for part in parts]
        rows.append([name, f"{rate:,.0f}", f"{1e6 / rate:.1f}", *share])
    print(columns(rows))
    return 0


def measured(
    name: str, env: Environment, batch: tuple[int, int], n_workers: int, seconds: float
) -> tuple[float, dict[str, float]]:
    """Return the steps a second of a sampler, and the shares of the time by what it was spent on."""
    workers: Values = {} if name == "serial" else dict(n_workers=n_workers)
    sampler = SAMPLERS[name](env.EnvCls, env.env_kwargs, *batch, time_breakdown=True, **workers)
    agent, threads = PgAgent(), torch.get_num_threads()
    try:
        torch.set_num_threads(available_threads())
        sampler.initialize(agent, Run(batch_spec=sampler.batch_spec, bootstrap_value=True))
        settings = choose_settings(agent, Affinity()).settings
        torch.set_num_threads(settings.torch_threads)
        agent.to_device(settings)
        _collect(sampler, 0.0)
        sampler.diagnostics()
        steps, total = _collect(sampler, seconds, first_itr=1)
        spent = sampler.diagnostics()
    finally:
        sampler.shutdown()
        torch.set_num_threads(threads)
    return steps / total, {key.removesuffix("Time"): value / total for key, value in spent.items()}


def _collect(sampler: BaseSampler, seconds: float, first_itr: int = 0) -> tuple[int, float]:
    """Collect at least one batch, and for as long as was said; return steps and seconds."""
    itr, start = first_itr, time.perf_counter()
    while itr == first_itr or time.perf_counter() - start < seconds:
        sampler.obtain_samples(itr)
        itr += 1
    return (itr - first_itr) * sampler.batch_spec.size, time.perf_counter() - start
