"""Files that make environments and call the suite in other places: conda's, and the nightly job."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(("name", "build"), [("linux_cpu.yml", "2.13.0+cpu"), ("linux_cuda10.yml", "2.13.0")])
def test_both_files_make_the_environment_rlpyt_with_their_own_build_of_torch(name: str, build: str) -> None:
    yaml: Any = pytest.importorskip("yaml")
    content = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    assert content["name"] == "rlpyt"
    *_, pip = content["dependencies"]
    torch, *rest = pip["pip"]
    assert rest == ["--requirement .ci/requirements.lock", "--editable ."]
    lock = (ROOT / ".ci/requirements.lock").read_text(encoding="utf-8").splitlines()
    (pinned,) = (Requirement(line) for line in lock if line.startswith("torch=="))
    both = Requirement(torch).specifier & pinned.specifier
    assert [x for x in ("2.13.0", "2.13.0+cpu", "2.13.0+cu130") if both.contains(x)] == [build]
    assert name in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_lock_has_a_version_of_all_that_the_library_needs() -> None:
    """`make train` installs what the library needs, with the versions of the lock."""
    pinned = {line.split("==")[0] for line in (ROOT / ".ci/requirements.lock").read_text(encoding="utf-8").splitlines()}
    pinned = {canonicalize_name(name) for name in pinned}
    needed, to_read = {"rlpyt"}, [("rlpyt", "classic_control"), ("gymnasium", "classic-control")]
    while to_read:
        name, extra = to_read.pop()
        for requirement in map(Requirement, distribution(name).requires or []):
            its_name = canonicalize_name(requirement.name)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if applies and its_name not in needed:
                needed.add(its_name)
                to_read.append((its_name, ""))
    assert needed - {"rlpyt"} <= pinned
    assert len(needed) < 30, "the first hour of a newcomer waits for each of them"


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="needs a git repository")
@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root needs setpriv")
def test_the_nightly_job_runs_the_suite_below_a_blank_without_root_and_locale() -> None:
    with tempfile.TemporaryDirectory() as name:  # which `nobody` may enter, unlike that of pytest
        run_nightly(Path(name))


def run_nightly(tools: Path) -> None:
    (tools / "make").write_text('#!/bin/sh\necho "$(id -u) $LC_ALL $PWD $*"\ntouch written || echo cannot write\n')
    for place in (tools, tools / "make"):
        place.chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "GIT_CONFIG_COUNT": "1"}
    env |= {"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    command = [str(ROOT / ".ci" / "nightly")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    uid, locale, called = done.stdout.strip().split(" ", 2)
    assert int(uid) != 0
    assert locale == "C"
    assert called.endswith("/a b/rlpyt test")
    assert not Path(called.removesuffix("/a b/rlpyt test")).exists()


@pytest.mark.skipif(not shutil.which("sbatch"), reason="needs SLURM's clients")
def test_no_test_reaches_the_slurm_of_this_machine() -> None:
    done = subprocess.run(["sbatch", "--wrap=true"], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode != 0
    assert "Submitted" not in done.stdout
