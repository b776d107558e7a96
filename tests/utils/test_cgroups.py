"""Limits of control groups: both versions, nested ones, and none."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from rlpyt.utils import cgroups


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes a tree of control groups, and puts this process into it."""
    monkeypatch.setattr(cgroups, "_ROOT", str(tmp_path / "cgroup"))
    monkeypatch.setattr(cgroups, "_MEMBERSHIP", str(tmp_path / "membership"))

    def make(membership: str, files: dict[str, str]) -> None:
        (tmp_path / "membership").write_text(membership)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    return make


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {}, math.inf),
        ("", {"cpu.max": "400000 100000"}, 4),
        ("0::/pod/job\n", {"cpu.max": "max 100000", "pod/job/cpu.max": "max 100000"}, math.inf),
        ("0::/pod/job\n", {"pod/cpu.max": "150000 100000", "pod/job/cpu.max": "800000 100000"}, 1.5),
        ("0::/pod/job\n", {"pod/cpu.max": "800000 100000", "pod/job/cpu.max": "20000 10000"}, 2),
        # A container that does not see the group in which it is.
        ("0::/system.slice/docker-7.scope\n", {"cpu.max": "300000 100000"}, 3),
        ("4:cpu,cpuacct:/job\n", {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"}, math.inf),
        (
            "7:blkio:/other\n4:cpu,cpuacct:/job\n",
            {
                "cpu/job/cpu.cfs_quota_us": "250000",
                "cpu/job/cpu.cfs_period_us": "100000",
                "cpu/other/cpu.cfs_quota_us": "100000",
                "cpu/other/cpu.cfs_period_us": "100000",
            },
            2.5,
        ),
    ],
)
def test_the_smallest_quota_on_the_way_up_holds(groups, membership, files, expected):
    groups(membership, files)
    assert cgroups.cpu_quota() == expected


def test_memory_is_what_the_group_or_one_around_it_leaves(groups):
    groups("0::/pod/job\n", {"pod/job/memory.max": "max"})
    assert cgroups.free_memory() == cgroups.memory_limit() == math.inf
    files = {"memory.max": "10000", "memory.current": "7000", "memory.stat": "anon 1\ninactive_file 500"}
    groups("0::/pod/job\n", {f"pod/job/{name}": text for name, text in files.items()})
    assert cgroups.free_memory() == 10_000 - 7000 + 500
    groups("0::/pod/job\n", {f"pod/{name}": text for name, text in {**files, "memory.max": "9000"}.items()})
    assert cgroups.free_memory() == 9000 - 7000 + 500
    assert cgroups.memory_limit() == 9000
    files = {"limit_in_bytes": "1100", "usage_in_bytes": "100", "stat": "cache 5\ntotal_inactive_file 50"}
    groups("0::/pod/job\n", {f"memory/memory.{name}": text for name, text in files.items()})
    assert cgroups.free_memory() == 1100 - 100 + 50
    assert cgroups.memory_limit() == 1100
