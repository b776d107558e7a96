"""How speed grows with cores, environments, batch and network: figures, and a picture.

    python benchmarks/scaling.py [--parts sampling updates compiled] [--picture docs/notes/performance/scaling.png]

"sampling" collects with `CpuSampler`, one worker a core: rows a second, by the number of environments. "updates" are
those of SAC on vectors: rows a second, by batch size and width of the networks, and the share of the fastest matrix
product of the same machine. "compiled" are the same with compile=True at one width. Each figure is the best of some
rounds, as the machine is shared.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from performance import has_bfloat16

from rlpyt.agents import CategoricalPgAgent, SacAgent
from rlpyt.algos import SAC
from rlpyt.envs import AtariEnv
from rlpyt.logging import silent_context
from rlpyt.namedarraytuple import Buffer
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.settings import Hyper
from rlpyt.types import Run
from rlpyt.utils import ComputeSettings

ENVS = (4, 8, 16, 32, 64, 128)
CORES = (1, 2)
BATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
WIDTHS = (64, 128, 256, 512, 1024)
COMPILED_WIDTH, COMPILED_BATCHES = 256, (32, 128, 256, 1024, 4096)  # each of which is compiled apart
ROUNDS, SECONDS = 4, 0.5
REPEATS = 3  # of all figures of sampling, as the machine is slow for minutes
OBS, ACT = 17, 6  # of HalfCheetah


PARTS = ("sampling", "updates", "compiled")


class NullEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """Environment of the shapes of HalfCheetah that does nothing."""

    observation_space = spaces.Box(-10, 10, (OBS,), np.float32)
    action_space = spaces.Box(-1, 1, (ACT,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        return self.np_random.normal(size=OBS).astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Return noise."""
        return self.np_random.normal(size=OBS).astype(np.float32), 1.0, False, False, {}


def fastest(step: Callable[[], int]) -> float:
    """Return rows a second of the best round."""
    step()
    best = 0.0
    for _ in range(ROUNDS):
        rows, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < SECONDS:
            rows += step()
        best = max(best, rows / passed)
    return best


ENVIRONMENTS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "CartPole": (gymnasium.make, dict(id="CartPole-v1")),
    "Pong": (AtariEnv, dict(game="pong")),
}


def sampling(env: str) -> dict[str, float]:
    """Return rows a second by cores and environments."""
    results: dict[str, float] = {}
    for _ in range(REPEATS):
        for cores, B in product(CORES, ENVS):
            T = max(1, 1024 // B)
            affinity = dict(workers_cpus=list(range(cores)))
            sampler = CpuSampler(*ENVIRONMENTS[env], T, B, n_workers=cores, max_decorrelation_steps=0)
            sampler.initialize(CategoricalPgAgent(), Run(batch_spec=sampler.batch_spec, affinity=affinity))

            def collect(sampler: CpuSampler = sampler, n: int = T * B) -> int:
                sampler.obtain_samples(0)
                return n

            try:
                results[f"{cores} x {B}"] = max(results.get(f"{cores} x {B}", 0.0), fastest(collect))
            finally:
                sampler.shutdown()
            print(f"{env:<9} {cores} cores {B:>4} environments {results[f'{cores} x {B}']:>10,.0f} rows/s", flush=True)
    return results


def flops_of_update(width: int) -> float:
    """Return floating-point operations of an update of SAC a row of the batch: two of every product's terms."""
    pi, q = OBS * width + width * width + width * 2 * ACT, (OBS + ACT) * width + width * width + width
    # Policy: two forward passes and a backward pass. Values, two networks: three forward passes, a backward pass, and
    # one to the actions alone.
    return 2.0 * (pi * (2 + 2) + 2 * q * (3 + 2 + 1))


def updates(
    precision: str, compiled: bool = False, widths: Sequence[int] = WIDTHS, batches: Sequence[int] = BATCHES
) -> dict[str, float]:
    """Return rows a second by batch size and width."""
    results = {}
    for width in widths:
        sizes = dict(hidden_sizes=(width, width))
        sampler = SerialSampler(NullEnv, {}, 1, 8, max_decorrelation_steps=0)
        algo = SAC(batch_size=8, replay_ratio=8, min_steps_learn=8_000, replay_size=20_000)
        agent = SacAgent(model_kwargs=sizes, q_model_kwargs=sizes)
        settings = ComputeSettings(precision=precision, compile=compiled)
        with silent_context():
            runner = MinibatchRl(algo, agent, sampler, n_steps=1e6, seed=0, settings=settings)
            runner.startup()
        for itr in range(1_000):
            algo.append(itr, sampler.obtain_samples(itr)[0])
        hyper = algo.hyper(8_000)
        for M in batches:
            batch = algo.replay.sample_batch(M)

            def update(algo: SAC = algo, hyper: Hyper = hyper, batch: Buffer = batch, n: int = M) -> int:
                algo.update(batch, hyper)
                return n

            rate = results[f"{width} x {M}"] = fastest(update)
            how = f"{precision}{', compiled' if compiled else ''}"
            print(f"width {width:>5} batch {M:>5} {how} {rate:>12,.0f} rows/s "
                  f"{1e-9 * rate * flops_of_update(width):>7.1f} GFLOP/s", flush=True)  # fmt: skip
        runner.shutdown()
    return results


def fastest_product(precision: str) -> float:
    """Return operations a second of a large matrix product, with one thread."""
    n = 1024
    a, b = (torch.randn(n, n, dtype=getattr(torch, precision)) for _ in range(2))

    def multiply() -> int:
        torch.matmul(a, b)
        return 2 * n**3

    return fastest(multiply)


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw all figures into one picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 4.5))
    for axis, env in zip(axes, ENVIRONMENTS, strict=False):
        for cores in CORES:
            rates = [results["sampling"][env][f"{cores} x {B}"] for B in ENVS]
            axis.plot(ENVS, rates, marker="o", label=f"{cores} core{'s' * (cores > 1)}")
        axis.set(title=f"CpuSampler, {env}", xlabel="environments", ylabel="rows/s", xscale="log", ylim=(0, None))
        axis.set_xticks(ENVS, ENVS)
        axis.legend()
    for precision, style in zip(results["updates"], ("-", "--"), strict=False):
        for i, width in enumerate(WIDTHS):
            rates = [results["updates"][precision][f"{width} x {M}"] for M in BATCHES]
            axes[2].plot(BATCHES, rates, style, color=f"C{i}", label=f"{width} wide" if style == "-" else None)
    compiled = [results["compiled"][f"{COMPILED_WIDTH} x {M}"] for M in COMPILED_BATCHES]
    axes[2].plot(COMPILED_BATCHES, compiled, ":", marker=".", color=f"C{WIDTHS.index(COMPILED_WIDTH)}")
    axes[2].set(
        title="Updates of SAC, one thread (dotted: compiled)",
        xlabel="batch",
        ylabel="rows/s",
        xscale="log",
        yscale="log",
    )
    axes[2].set_xticks(BATCHES, BATCHES)
    axes[2].legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--picture", type=Path, default=Path("docs/notes/performance/scaling.png"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    path = args.picture.with_suffix(".json")
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if "sampling" in args.parts:
        results["sampling"] = {env: sampling(env) for env in ENVIRONMENTS}
    if "updates" in args.parts:
        precisions = ("float32", "bfloat16") if has_bfloat16() else ("float32",)
        results["product"] = {precision: fastest_product(precision) for precision in precisions}
        results["updates"] = {x: updates(x) for x in precisions}
    if "compiled" in args.parts:
        rates = [updates("float32", True, [COMPILED_WIDTH], [M]) for M in COMPILED_BATCHES]
        results["compiled"] = {name: rate for one in rates for name, rate in one.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1))
    draw(results, args.picture)


if __name__ == "__main__":
    main()
