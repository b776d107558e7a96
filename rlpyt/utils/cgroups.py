"""Limits of a container or a job system on this process: Linux control groups, versions 1 and 2.

Groups are nested, and each counts what all groups inside it use. So the smallest limit among the groups around the
process holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePosixPath

_ROOT = "/sys/fs/cgroup"
_MEMBERSHIP = "/proc/self/cgroup"
# By version: limit, usage, and the part of it that is cache.
_MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def cpu_quota() -> float:
    """Return the number of cores whose time this process may use, a float; infinity without a limit."""
    quotas = [math.inf]
    for version, folder in _folders("cpu"):
        if version == 2:
            quota, period, *_ = [*_read(f"{folder}/cpu.max").split(), "", ""]
        else:
            quota, period = (_read(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit():  # not where the quota is "max" or -1
            quotas.append(int(quota) / int(period))
    return min(quotas)


def free_memory() -> float:
    """Return the bytes that this process may still use; infinity without a limit."""
    free = [math.inf]
    for version, folder in _folders("memory"):
        limit, used, cache = _MEMORY_FILES[version]
        room = _read(f"{folder}/{limit}").strip()
        if room.isdigit():
            # The page cache counts as used, but is freed when memory is needed.
            stat = dict(line.split() for line in _read(f"{folder}/memory.stat").splitlines())
            free.append(int(room) - int(_read(f"{folder}/{used}")) + int(stat.get(cache, 0)))
    return min(free)


def memory_limit() -> float:
    """Return the bytes that this process and all others of its group may use; infinity without a limit."""
    rooms = (_read(f"{folder}/{_MEMORY_FILES[version][0]}").strip() for version, folder in _folders("memory"))
    return min([math.inf, *(int(room) for room in rooms if room.isdigit())])


def _folders(controller: str) -> Iterator[tuple[int, str]]:
    """Yield version and folder of the groups of this process, from the innermost outwards.

    A container often shows its own group as the root, although the process has another path.
    """
    roots = ["0::/", f"1:{controller}:/"]
    for line in [*_read(_MEMBERSHIP).splitlines(), *roots]:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            version, root = 2, _ROOT
        elif controller in controllers.split(","):
            version, root = 1, f"{_ROOT}/{controller}"
        else:
            continue
        own = PurePosixPath(path)
        for group in (own, *own.parents):
            yield version, root + str(group).rstrip("/")


def _read(path: str) -> str:
    """Return the text of a small file, empty if it does not exist."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
