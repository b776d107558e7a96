"""Program `rlpyt`, as `python -m rlpyt`."""

import sys

from rlpyt.cli import main

if __name__ == "__main__":
    sys.exit(main())
