"""Which sampler is the fastest for an environment and a model on this machine? Tries them and prints a table.

    python benchmarks/choose_sampler.py --env ALE/Pong-v5
    python benchmarks/choose_sampler.py --env CartPole-v1 --batch_B 16 --agent rlpyt.agents:RecurrentCategoricalPgAgent

Every candidate collects batches for some seconds, in several rounds one after the other (the machine may be busy in one
of them), and reports the median and how its time was spent: environments, network, waiting (for another process, the
hand-over included) and copying, as the mean over its processes. Sampling only: what the algorithm takes between batches
comes on top for all.
"""

from __future__ import annotations

import rlpyt  # noqa: F401  # before torch, as in a script that imports nothing else; see rlpyt/__init__.py

# isort: split
import argparse
import importlib
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

import gymnasium
import torch

from rlpyt.envs import AtariEnv, atari_make_vec
from rlpyt.runners.compute_choice import settings_by_rule
from rlpyt.samplers import AlternatingSampler, BaseSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.types import Run
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.processes import available_cores, available_threads


class Candidate(NamedTuple):
    """A sampler with its arguments."""

    SamplerCls: type[BaseSampler]
    native: bool
    batch_B: int
    kwargs: dict[str, Any]

    def __str__(self) -> str:
        """Return the call, as it would be typed."""
        arguments = {"batch_B": self.batch_B, **self.kwargs}
        text = ", ".join(f"{k}={v}" for k, v in arguments.items())
        return f"{self.SamplerCls.__name__}({'vector environment, ' if self.native else ''}{text})"


def candidates(batch_Bs: list[int], has_native: bool) -> Iterator[Candidate]:
    """Yield what is worth trying on as many cores as there are."""
    cores = available_cores()
    for B in batch_Bs:
        yield Candidate(SerialSampler, False, B, {})
        for n_workers in sorted({cores, 2 * cores}):
            if n_workers <= B:
                yield Candidate(CpuSampler, False, B, dict(n_workers=n_workers))
                yield Candidate(GpuSampler, False, B, dict(n_workers=n_workers))
            if 2 <= n_workers <= B:
                yield Candidate(AlternatingSampler, False, B, dict(n_workers=n_workers))
        if has_native:
            yield Candidate(SerialSampler, True, B, {})
            if B > 1:
                yield Candidate(SerialSampler, True, B, dict(n_parts=2))
            yield Candidate(CpuSampler, True, B, dict(n_workers=min(cores, B)))


class Running:
    """A sampler that was started, and what it has reached."""

    def __init__(self, candidate: Candidate, args: argparse.Namespace) -> None:
        module, name = args.agent.split(":")
        agent = getattr(importlib.import_module(module), name)()
        atari = args.env.startswith("ALE/")
        env_kwargs = dict(game=args.env) if atari else dict(id=args.env)
        makers: tuple[Any, Any] = (AtariEnv, atari_make_vec) if atari else (gymnasium.make, gymnasium.make_vec)
        self.sampler = candidate.SamplerCls(
            makers[candidate.native],
            env_kwargs,
            args.batch_T,
            candidate.batch_B,
            max_decorrelation_steps=0,
            time_breakdown=True,
            **candidate.kwargs,
        )
        try:
            self.sampler.initialize(agent, Run(batch_spec=self.sampler.batch_spec, bootstrap_value=True))
            settings = settings_by_rule(agent, Affinity())
            torch.set_num_threads(settings.torch_threads)
            agent.to_device(settings)
            self.rates: list[float] = []
            self.shares: dict[str, float] = {}
            self.itr = 0
            self.collect(0.0)
        except BaseException:
            self.sampler.shutdown()
            raise

    def collect(self, seconds: float) -> None:
        """Collect at least one batch, and for as long as was said."""
        self.sampler.diagnostics()
        rows, start = 0, time.perf_counter()
        while rows == 0 or time.perf_counter() - start < seconds:
            self.sampler.obtain_samples(self.itr)
            self.itr += 1
            rows += self.sampler.batch_spec.size
        total = time.perf_counter() - start
        if seconds:
            self.rates.append(rows / total)
            self.shares = {k.removesuffix("Time"): v / total for k, v in self.sampler.diagnostics().items()}


def main() -> None:
    """Try all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="ALE/Pong-v5", help="gymnasium id, or ALE/<Game>-v5")
    parser.add_argument("--agent", default="rlpyt.agents:PgAgent", help="module:class; the model is its default")
    parser.add_argument("--batch_T", type=int, default=64)
    parser.add_argument("--batch_B", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--seconds", type=float, default=3.0, help="of one candidate in one round")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(available_threads())
    tried = list(candidates(args.batch_B, has_native=True))
    rates: dict[str, list[float]] = {str(c): [] for c in tried}
    shares: dict[str, dict[str, float]] = {}
    for _ in range(args.rounds):
        for candidate in tried:
            running = Running(candidate, args)
            try:
                running.collect(args.seconds)
            finally:
                running.sampler.shutdown()
            rates[str(candidate)] += running.rates
            shares[str(candidate)] = running.shares
    columns = list(next(iter(shares.values())))
    print(f"\n{'sampler':<62} {'rows/s':>8}  " + " ".join(f"{c:>12}" for c in columns))
    for name, numbers in sorted(rates.items(), key=lambda item: -median(item[1])):
        print(f"{name:<62} {median(numbers):>8,.0f}  " + " ".join(f"{shares[name][c]:>12.0%}" for c in columns))
    print(f"\nThe best for {args.env}: {max(rates, key=lambda name: median(rates[name]))}")


if __name__ == "__main__":
    main()
