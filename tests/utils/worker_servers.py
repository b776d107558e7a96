"""What runs in the worker processes of the tests of `rlpyt.utils`; importable there."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_info

from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.calls import Call
from rlpyt.utils.progress import Progress
from rlpyt.utils.worker_main import STOP_SIGNALS


def _names_of(mask: str) -> set[str]:
    return {s.name for s in STOP_SIGNALS if int(mask, 16) >> (s - 1) & 1}


class Server:
    """Does what a request says.

    Args:
        rank: of the worker.
        progress: see `Progress`.
        *arrays: buffers in shared memory; -1 is written to the first one when the server is closed.
    """

    def __init__(self, rank: int, progress: Progress, *arrays: Any) -> None:
        self.rank, self.progress, self.arrays = rank, progress, arrays

    def __call__(self, request: tuple[Any, ...]) -> Any:
        if isinstance(request, Call):
            return request.on(self)
        name, *args = request
        return getattr(self, name)(*args)

    def close(self) -> None:
        if self.arrays:
            buffer_leaves(self.arrays[0])[0][...] = -1

    def echo(self, message: Any) -> Any:
        return message

    def zeros(self, n: int) -> bytes:
        return bytes(n)

    def add(self, n: int) -> list[Any]:
        """Add to all arrays in place; return what they hold then, and their forms."""
        answers: list[Any] = []
        for leaf in buffer_leaves(self.arrays):
            leaf += np.asarray(n, leaf.dtype)
            answers.append((leaf.tolist(), leaf.shape, str(leaf.dtype)))
        return answers

    def write(self, array: np.ndarray, value: Any) -> int:
        """Write into an array that came with the request; return the descriptors that are open then."""
        array[...] = value
        del array
        return len(os.listdir("/proc/self/fd"))

    def raise_error(self, text: str) -> None:
        self.progress.env_rank, self.progress.step = 3, 17
        raise ValueError(text)

    def unpicklable(self) -> Any:
        return threading.Lock()

    def kill(self) -> None:
        self.progress.env_rank, self.progress.step = 5, 23
        os.kill(os.getpid(), signal.SIGKILL)

    def exit(self, code: int) -> None:
        os._exit(code)

    def system_exit(self) -> None:
        sys.exit("enough")

    def sleep(self, seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

    def sleep_in_c(self, seconds: int) -> None:
        """Stand still and keep the interpreter's lock, as a simulator that hangs."""
        ctypes.PyDLL(None).sleep(seconds)

    def work(self, steps: int, seconds: float) -> str:
        """Make progress all the time, slowly."""
        for _ in range(steps):
            time.sleep(seconds)
            self.progress.step += 1
        return "worked"

    def signals_of_children(self) -> tuple[set[str], set[str], str]:
        """Return the signals that a program of this process ignores and blocks, and what a fork does at SIGTERM."""
        text = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
        ignored, blocked = (_names_of(text.split(f"{field}:")[1].split()[0]) for field in ("SigIgn", "SigBlk"))
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, str(signal.getsignal(signal.SIGTERM)).encode())
            os._exit(0)
        os.wait()
        return ignored, blocked, os.read(reader, 99).decode()

    def threads(self) -> int:
        return torch.get_num_threads()

    def pools(self) -> tuple[dict[str, int], dict[str, str]]:
        """Return the threads of every pool, after a product that is worth several; and the environment."""
        square = np.ones((300, 300))
        square @ square
        pools = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
        if "cv2" in sys.modules:
            pools["cv2"] = sys.modules["cv2"].getNumThreads()
        return pools, dict(os.environ)


class BrokenServer(Server):
    """Cannot be made."""

    def __init__(self, rank: int, progress: Progress) -> None:
        raise OSError("no display")


class ExitingServer(Server):
    """Ends the process while it is made, as a failing simulator does."""

    def __init__(self, rank: int, progress: Progress) -> None:
        os._exit(4)


class ReplaceableServer(Server):
    """Knows which restart it is.

    Args:
        rank: of the worker.
        progress: see `Server`.
        restarts: which one, 0 for none.
        broken: the restarts that cannot be made.
        slow: seconds that a replacement takes to be made.
    """

    def __init__(
        self, rank: int, progress: Progress, restarts: int, broken: Sequence[int] = (), slow: float = 0.0
    ) -> None:
        super().__init__(rank, progress)
        self.restarts = restarts
        progress.env_rank = 10 * rank
        if restarts in broken:
            raise OSError(f"no display for restart {restarts}")
        if restarts:
            time.sleep(slow)

    def which(self) -> tuple[int, int]:
        return self.rank, self.restarts

    def note(self, step: int) -> None:
        self.progress.step = step

    def die_soon(self) -> str:
        """Reply, and die when the reply is gone."""
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return "farewell"

    def remember(self, thing: Any) -> list[Any]:
        """Keep something; return all that this process was given."""
        self.things = [*getattr(self, "things", []), thing]
        return self.things

    def keep(self, array: np.ndarray) -> None:
        self.kept = array

    def write_kept(self, value: int) -> None:
        self.kept[...] = value

    def unless_replaced(self, restarts: int, name: str, *args: Any) -> Any:
        """Do it, but in a process after so many restarts say which it is."""
        return self.which() if self.restarts >= restarts else getattr(self, name)(*args)

    def unless_new(self, name: str, *args: Any) -> Any:
        """Do it in the first process; a replacement says which it is."""
        return self.which() if self.restarts else getattr(self, name)(*args)
