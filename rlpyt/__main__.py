"""Program `rlpyt`, as `python -m rlpyt`."""

import os
import sys

# Python has put the working directory first, where a file could take the place of a library. A clone stays there.
if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()) and not os.path.isfile("rlpyt/__main__.py"):
    del sys.path[0]

from rlpyt.cli import main

if __name__ == "__main__":
    sys.exit(main())
