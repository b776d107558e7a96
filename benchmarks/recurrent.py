"""A recurrent layer over rows in which episodes start: unrolls a second, forward and backward, by each way there is.

    python benchmarks/recurrent.py        (--kind gru; --T 30 --B 32 --starts 59 --units 512; --rounds 8)

"no start" is one call of torch for all rows. "chosen" is what `RecurrentCore` does with the starts; "between" one call
for each piece between rows with a start, "cut" the loop with its gradient by hand, "packed" packed sequences.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from alternate import interleave, rate

from rlpyt.models import RecurrentCore, RnnState

Unroll = Callable[[torch.Tensor, RnnState], tuple[torch.Tensor, RnnState]]


@dataclass
class Way:
    """Passes over the same rows, forward and backward."""

    core: RecurrentCore
    unroll: Unroll
    x: torch.Tensor
    state: RnnState

    def run(self, seconds: float) -> float:
        """Return passes a second; the best one counts, as the machine is shared."""
        times: list[float] = []

        def step() -> int:
            start = time.perf_counter()
            self.core.zero_grad()
            self.unroll(self.x, self.state)[0].square().sum().backward()
            times.append(time.perf_counter() - start)
            return 1

        rate(step, seconds)
        return 1.0 / min(times)

    def close(self) -> None:
        """There is nothing to let go of."""


def main() -> None:
    """Print the ways beside each other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=("lstm", "gru"), default="lstm")
    for name, value in dict(T=30, B=32, starts=59, units=512, rounds=8).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    core = RecurrentCore(args.units, args.units, kind=args.kind)
    start = torch.zeros(args.T, args.B, dtype=torch.bool)
    start.view(-1)[args.B + torch.randperm((args.T - 1) * args.B)[: args.starts]] = True
    rows = start.any(1).nonzero().flatten().tolist()
    x = torch.randn(args.T, args.B, args.units, requires_grad=True)
    ways: dict[str, Unroll] = {
        "no start": lambda x, state: core(x, state),
        "chosen": lambda x, state: core(x, state, start),
        "between": lambda x, state: core._unroll_between(rows, x, state, start),
        "packed": lambda x, state: core._unroll_packed(x, state, start),
    }
    if args.kind == "lstm":
        ways["cut"] = lambda x, state: core._unroll_cut(x, state, start)
    state = core.initial_rnn_state(args.B)
    parts = {name: Way(core, unroll, x, state) for name, unroll in ways.items()}
    interleave(parts, "passes/s", lambda name: "no start", args.rounds, 1.0)


if __name__ == "__main__":
    main()
