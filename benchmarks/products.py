"""The matrix product of a layer in float32: by torch's choice, by oneDNN, and in bfloat16.

    OMP_NUM_THREADS=1 python benchmarks/products.py

On a processor of AMD torch takes MKL for float32. The operator of oneDNN is torch's own, and private.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F

LAYERS = ((256, 23, 256), (32, 512, 2_048), (256, 256, 256), (960, 512, 2_048), (1_024, 1_024, 1_024))
"""Rows, inputs and outputs."""
SECONDS = 0.5


def gflops(layer: tuple[int, int, int], function: Callable[[], object]) -> float:
    """Return the billions of operations a second of the fastest call."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    rows, n_in, n_out = layer
    return 2 * rows * n_in * n_out / best / 1e9


def main() -> None:
    """Print a line for every layer."""
    torch.set_num_threads(1)
    by_onednn = torch.ops.mkldnn._linear_pointwise
    print(f"{'rows x in x out':<20} {'torch':>7} {'oneDNN':>7} {'bfloat16':>9}   GFLOP/s")
    for layer in LAYERS:
        rows, n_in, n_out = layer
        given = torch.randn(rows, n_in), torch.randn(n_out, n_in), torch.randn(n_out)
        short = [x.bfloat16() for x in given]
        torch.testing.assert_close(by_onednn(*given, "none", [], ""), F.linear(*given), rtol=1e-4, atol=1e-3)
        ways: list[Callable[[], object]] = [
            partial(F.linear, *given),
            partial(by_onednn, *given, "none", [], ""),
            partial(F.linear, *short),
        ]
        figures = [gflops(layer, way) for way in ways]
        print(f"{rows:>5} x {n_in:>5} x {n_out:>5} {figures[0]:>7.0f} {figures[1]:>7.0f} {figures[2]:>9.0f}")


if __name__ == "__main__":
    main()
