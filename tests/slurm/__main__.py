"""`make slurm`: start a SLURM on this machine, run the tests of this folder on it, and end it in any case.

python -m tests.slurm [options of pytest]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.slurm.one_machine import PACKAGES, OneMachine, missing_programs

SIDE_BY_SIDE = 4
"""Cases at once, each on a node of its own: they wait most of their time."""


def main(options: list[str]) -> int:
    """Return pytest's exit code; 2 where SLURM is not installed."""
    missing = missing_programs()
    if missing:
        print(f"make slurm: no {', '.join(missing)}. Install Debian's packages: {PACKAGES}.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="rlpyt_slurm_") as folder:
        top, bare = Path(folder), Path(folder, "bare")
        for place in (top / "cases", bare):
            place.mkdir()
        with OneMachine(top, n_nodes=SIDE_BY_SIDE) as slurm, OneMachine(bare, 1, False, "task/affinity") as other:
            many = ["--numprocesses", str(SIDE_BY_SIDE), "--dist", "worksteal"]
            command = [sys.executable, "-m", "pytest", *many, "--timeout", "900", f"--basetemp={top}/cases"]
            env = {**os.environ, **slurm.env, "RLPYT_SLURM": folder}
            return wait_for(subprocess.Popen([*command, "tests/slurm", *options], env=env), other)


def wait_for(tests: subprocess.Popen[bytes], bare: OneMachine) -> int:
    """Return the exit code of the tests. At Ctrl-C they end what they have started, if they do so within a minute."""
    try:
        while tests.poll() is None:
            bare.look_after_controller()
            time.sleep(0.2)
        return tests.returncode
    except KeyboardInterrupt:
        tests.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            tests.wait(60)
        return 130
    finally:
        tests.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
