"""Socket of the forkserver, which Python leaves on the disk where the master is killed.

Python removes it where the master ends in order. A forkserver ends soon after its master, however that ends. It imports
this module; elsewhere the import has no effect.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from multiprocessing import forkserver
from pathlib import Path

from rlpyt.utils.worker_main import MASTER_OF_FORKSERVER


def _remove() -> None:
    """Remove the socket and the folder that the master made for it."""
    address: str | None = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]  # set by its `main`
    if address is not None:
        with contextlib.suppress(OSError):  # the master has done it
            os.unlink(address)
            Path(address).parent.rmdir()


if os.environ.get(MASTER_OF_FORKSERVER) == str(os.getppid()):
    atexit.register(_remove)  # not called in workers: they leave by os._exit
