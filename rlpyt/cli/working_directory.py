"""The working directory among the places where Python looks for modules."""

from __future__ import annotations

import os
import sys


def look_in_working_directory() -> None:
    """Let modules of the working directory be imported, in this process and in the workers that it starts.

    It is called where the user has named a module, and nowhere else: files that lie about must not run. It comes last,
    so that none of them takes the place of an installed module.
    """
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.append(directory)
