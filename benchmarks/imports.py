"""Import times: `import rlpyt`, torch's own, and what `rlpyt.samplers` adds to it.

python benchmarks/imports.py
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median

CODE = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(module: str, rounds: int = 5) -> float:
    """Return the median seconds of an import in a fresh process, after one that warms the disk's cache."""
    times = [
        float(subprocess.run([sys.executable, "-c", CODE.format(module)], capture_output=True, check=True).stdout)
        for _ in range(rounds + 1)
    ]
    return median(times[1:])


if __name__ == "__main__":
    for module in ("rlpyt", "numpy", "torch", "rlpyt.samplers", "torch"):
        print(f"import {module:<16} {seconds(module):.3f} s")
