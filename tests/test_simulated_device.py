"""The checks on the simulated device, in a process of their own: torch counts devices once, before the first update."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


FAMILIES = "PPO and images, Rainbow, R2D1 and ahead, SAC and LSTM"
SOME = "is_strict or replay_on_the_device or (simulator and not lost and not final)"
SOME += " or (act and RecurrentCategorical and nested)"
SOME += f" or (updates and ({FAMILIES.replace(',', ' or')}))"
"""Updates of four families, a replay there, and some agents."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("which", [SOME, pytest.param("", marks=pytest.mark.nightly)], ids=["some", "all"])
def test_the_checks_on_the_simulated_device(which: str):
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env = {**outside, "PYTHONPATH": str(ROOT), "RLPYT_TEST_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/gpu/simulated_checks.py",
        "-k",
        which,
    ]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=390)
    assert result.returncode == 0, result.stdout[-20_000:]
