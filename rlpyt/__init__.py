"""rlpyt: deep reinforcement learning research in PyTorch, with parallel samplers.

Nothing heavy is imported here: `import rlpyt` takes milliseconds, torch comes with the packages that
compute (`rlpyt.agents`, `rlpyt.samplers`, ...).
"""

import os
import sys

from rlpyt import old_names
from rlpyt.namedarraytuple import NamedArrayTuple, namedarraytuple
from rlpyt.version import __version__

__all__ = ["NamedArrayTuple", "namedarraytuple", "__version__"]

if sys.platform != "linux":
    raise ImportError(
        f"Importing rlpyt: this system is {sys.platform!r}; expected 'linux'. Shared memory and worker processes need "
        "memfd and forkserver of Linux. Use a Linux machine, a container, or the Windows Subsystem for Linux."
    )

# The threads of torch wait awake for their next work, for some milliseconds, and take the cores from workers that step.
# libgomp reads this when torch is loaded.
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "30000"

old_names.install()
