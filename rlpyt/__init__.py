"""rlpyt: deep reinforcement learning research in PyTorch, with parallel samplers.

Nothing heavy is imported here: `import rlpyt` takes milliseconds, torch comes with the packages that
compute (`rlpyt.agents`, `rlpyt.samplers`, ...).
"""

from rlpyt import old_names
from rlpyt.namedarraytuple import NamedArrayTuple, namedarraytuple
from rlpyt.version import __version__

__all__ = ["NamedArrayTuple", "namedarraytuple", "__version__"]

old_names.install()
