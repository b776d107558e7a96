"""`make slurm`: start a SLURM on this machine, run the tests of this folder on it, and end it in any case.

python -m tests.slurm [options of pytest]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.slurm.one_machine import PACKAGES, OneMachine, missing_programs

SIDE_BY_SIDE = 5
"""Cases at once, each on a node of its own: they wait most of their time."""


def main(options: list[str]) -> int:
    """Return pytest's exit code; 2 where SLURM is not installed."""
    missing = missing_programs()
    if missing:
        print(f"make slurm: no {', '.join(missing)}. Install Debian's packages: {PACKAGES}.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="rlpyt_slurm_") as folder:
        top = Path(folder)
        (top / "cases").mkdir()
        with OneMachine(top, n_nodes=SIDE_BY_SIDE) as slurm:
            many = ["--numprocesses", str(SIDE_BY_SIDE), "--dist", "worksteal"]
            command = [sys.executable, "-m", "pytest", *many, "--timeout", "900", f"--basetemp={top}/cases"]
            env = {**os.environ, **slurm.env, "RLPYT_SLURM": folder}
            return wait_for(subprocess.Popen([*command, "tests/slurm", *options], env=env))


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code. At Ctrl-C pytest ends its tests, and what they have started, first."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        return process.wait(60)
    finally:
        process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
