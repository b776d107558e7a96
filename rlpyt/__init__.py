"""rlpyt: deep reinforcement learning research in PyTorch, with parallel samplers.

Nothing heavy is imported here: `import rlpyt` takes milliseconds, torch comes with the packages that
compute (`rlpyt.agents`, `rlpyt.samplers`, ...), or with the first use of `rlpyt.train` and `rlpyt.load_agent`.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING

from rlpyt import old_rlpyt
from rlpyt.namedarraytuple import NamedArrayTuple, namedarraytuple
from rlpyt.version import __version__

if TYPE_CHECKING:
    from rlpyt.cli.from_python import train
    from rlpyt.runners import load_agent

__all__ = ["train", "load_agent", "NamedArrayTuple", "namedarraytuple", "__version__"]

if sys.platform != "linux":
    raise ImportError(
        f"Importing rlpyt: this system is {sys.platform!r}; expected 'linux'. Shared memory and worker processes need "
        "memfd and forkserver of Linux. Use a Linux machine, a container, or the Windows Subsystem for Linux."
    )

# The threads of torch wait awake for their next work, for some milliseconds, and take the cores from workers that step.
# libgomp reads this when torch is loaded.
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "30000"

sys.meta_path.insert(0, old_rlpyt.OldPaths)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import what is heavy, and the packages below, when they are asked for."""
        if name == "train":
            return importlib.import_module("rlpyt.cli.from_python").train
        if name == "load_agent":
            return importlib.import_module("rlpyt.runners").load_agent
        try:
            return importlib.import_module(f"rlpyt.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"rlpyt.{name}":
                raise
        raise AttributeError(f"module 'rlpyt' has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Return the names that are there, and those that wait: a notebook completes them."""
        return sorted({*globals(), *__all__})
