"""Command `rlpyt bench`: how fast samplers collect on this machine, and in which settings networks learn faster."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from statistics import median
from typing import Annotated

import torch
import tyro

from rlpyt.agents import PgAgent
from rlpyt.cli.arguments import NO_PAIRS, Count, Env, Names, Pairs
from rlpyt.cli.choices import SAMPLERS
from rlpyt.cli.environment import Environment, environment
from rlpyt.cli.text import columns
from rlpyt.cli.values import Values
from rlpyt.core import Agent, example_inputs
from rlpyt.runners.compute_choice import settings_by_rule
from rlpyt.samplers import BaseSampler
from rlpyt.types import Run
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.compute import PRECISIONS, ComputeSettings
from rlpyt.utils.processes import available_cores, available_threads

ROUNDS = 3
"""Times that every sampler is measured, in turn with the others: the machine may be busy for a while."""
_WORTH = 1.05  # by which settings must be faster to be worth a word


def bench(
    env: Annotated[Env, tyro.conf.arg(metavar="[ENV]")] = "CartPole-v1",
    *,
    sampler_type: Names = (),
    batch_T: Count = 64,
    batch_B: Count = 16,
    n_workers: Count = 0,
    update_rows: Count = 256,
    seconds: float = 2.0,
    env_kwargs: Pairs = NO_PAIRS,
) -> int:
    """Measure how many steps a second each sampler collects, and in which settings the network learns faster.

    The network is the default one of policy gradients.

    Args:
        env: id of gymnasium, game of Atari, task such as dm_control/cheetah-run, or module:name of your own.
        sampler_type: of serial, cpu, gpu and alternating; all by default.
        batch_T: time steps of a batch.
        batch_B: environments.
        n_workers: of the samplers with workers; 0 is one for each core.
        update_rows: rows of an update of yours.
        seconds: of each measurement. There are three for each sampler, and for all settings together.
        env_kwargs: further arguments of the environment, as key=value.
    """
    unknown = sorted(set(sampler_type) - set(SAMPLERS))
    if unknown:
        raise ValueError(f"--sampler-type: got {unknown[0]!r}; expected some of {', '.join(SAMPLERS)}.")
    found = environment(env, env_kwargs)
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
    print(f"\nLearning, by a pass of the network over {update_rows} rows and back, best of {ROUNDS}\n")
    print(settings_measured(found, update_rows, seconds))
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
        settings = settings_by_rule(agent, Affinity())
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


def settings_measured(env: Environment, n_rows: int, seconds: float) -> str:
    """Return a table of settings of the computation, and how to set the fastest, if the rule is not about as fast."""
    agent, before = PgAgent(), torch.get_num_threads()
    agent.initialize(env.spaces)
    rule = settings_by_rule(agent, Affinity())
    several = sorted({1, available_threads()}), sorted({False, rule.channels_last}), PRECISIONS
    every = [replace(rule, torch_threads=n, channels_last=c, precision=p) for n, c, p in product(*several)]
    best = dict.fromkeys(every, float("inf"))
    for settings in every * ROUNDS:
        torch.set_num_threads(settings.torch_threads)
        agent.to_device(settings)
        best[settings] = min(best[settings], _seconds_of_a_pass(agent, n_rows, seconds / len(every)))
    torch.set_num_threads(before)
    every.sort(key=lambda settings: best[settings])
    rows = [["precision", "threads", "channels-last", "ms", ""]]
    for x in every:
        by_rule = "the rule" if x == rule else ""
        rows.append([x.precision, str(x.torch_threads), str(x.channels_last), f"{1e3 * best[x]:.3g}", by_rule])
    if best[every[0]] * _WORTH > best[rule]:
        return columns(rows)
    given = {key: x for key, x in every[0].as_dict().items() if x != getattr(ComputeSettings(), key)}
    text = f"settings=ComputeSettings({', '.join(f'{key}={x!r}' for key, x in given.items())})"
    flag = " or --precision bfloat16" if every[0] == replace(rule, precision="bfloat16") else ""
    return f"{columns(rows)}\n\nFaster than the rule: {text}{flag}"


def _seconds_of_a_pass(agent: Agent, n_rows: int, seconds: float) -> float:
    """Return the seconds of a pass of the networks and back; there are at least two, of which the first warms up."""
    inputs, n, start = example_inputs(agent.env_spaces, n_rows), -1, time.perf_counter()
    while n < 1 or time.perf_counter() - start < seconds:
        outputs = agent(*inputs)
        sum(leaf.float().sum() for leaf in buffer_leaves(outputs) if leaf.requires_grad).backward()
        n += 1
        start = time.perf_counter() if n == 0 else start
    return (time.perf_counter() - start) / n


def _collect(sampler: BaseSampler, seconds: float, first_itr: int = 0) -> tuple[int, float]:
    """Collect at least one batch, and for as long as was said; return steps and seconds."""
    itr, start = first_itr, time.perf_counter()
    while itr == first_itr or time.perf_counter() - start < seconds:
        sampler.obtain_samples(itr)
        itr += 1
    return (itr - first_itr) * sampler.batch_spec.size, time.perf_counter() - start
