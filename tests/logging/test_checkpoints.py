"""Checkpoints on a disk that fills, files that are damaged, processes that are killed, and replicas."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from rlpyt.logging import checkpoints as checkpoints_module
from rlpyt.logging import segments
from rlpyt.logging.checkpoint_files import CheckpointFiles, Saved
from rlpyt.logging.checkpoints import Checkpoints
from rlpyt.logging.segments import CheckpointError, RingWriter
from rlpyt.run_records import open_to_write
from rlpyt.runners.agreement import Agreement
from rlpyt.runners.checkpointing import RunCheckpoints
from rlpyt.utils.replicas import Replicas
from tests.logging.test_segments import Ring, check, copy_of, flip, memory_folder
from tests.pairs import crossed
from tests.replica_kit import in_threads

T, ROWS = 32, 5  # of the ring; written between two checkpoints


def newest_whole(checkpoints: Checkpoints, agreement: Agreement) -> Saved | None:
    """Return what a run would go on from; None where there is no checkpoint."""
    run = RunCheckpoints.__new__(RunCheckpoints)
    run._files, run._agreement = checkpoints, agreement
    return run.read_newest() if checkpoints.steps() else None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def ring_at(step: int) -> Ring:
    """Return the ring after some saves, each after `ROWS` rows."""
    ring = Ring(T, 2)
    for salt in range(step):
        ring.write(ROWS, salt)
    return ring


def state_of(step: int, ring: Ring) -> dict[str, object]:
    return {"weights": torch.full((100,), float(step)), "pair": (step, [None, True]), "algo": {"replay": ring.state()}}


def save(checkpoints: Checkpoints, *steps: int, **kwargs) -> None:
    """Save steps, which must be those that follow."""
    ring = ring_at(steps[0] - 1)
    for step in steps:
        ring.write(ROWS, step - 1)
        assert checkpoints.save(step, state_of(step, ring), {"itr": step}, **kwargs) is None
        assert checkpoints.finish() is None


def check_saved(saved: Saved) -> None:
    """Compare a checkpoint with what its step must have, byte for byte."""
    expected = ring_at(saved.step)
    assert saved.info["itr"] == saved.step
    assert torch.equal(saved.state["weights"], torch.full((100,), float(saved.step)))
    assert saved.state["pair"] == (saved.step, [None, True])
    loaded = Ring(T, 2)
    loaded.load(saved.state["algo"]["replay"])
    check(loaded, copy_of(expected))


@pytest.fixture(autouse=True)
def _rings_are_large(monkeypatch):
    """So that their rows are read while the run goes on, as gigabytes are."""
    monkeypatch.setattr(segments, "COPIED_BYTES", 0)


@contextmanager
def opened(folder: Path, *args, **kwargs) -> Iterator[Checkpoints]:
    checkpoints = Checkpoints(folder, *args, **kwargs)
    try:
        yield checkpoints
    finally:
        checkpoints.close()


def newest(folder: Path) -> Saved:
    with opened(folder) as checkpoints:
        saved = newest_whole(checkpoints, Agreement(Replicas()))
        assert saved is not None
        return saved


def place(folder: Path, step: int) -> Path:
    return folder / f"{step:012d}"


def named_by(folder: Path, step: int) -> set[str]:
    """Return the segments that a checkpoint names."""
    part = json.loads((place(folder, step) / "rank_0.json").read_text())
    return {segment[0] for segment in part["rings"]["algo.replay"]["segments"]}


# ---- content ----


def test_checkpoints_come_back_and_share_segments(tmp_path):
    with opened(tmp_path) as checkpoints:
        assert checkpoints.steps() == []
        save(checkpoints, 1, 2, 3, 4, 5, 6, 7, 8)
        assert checkpoints.steps() == [8, 7]
        for step in (7, 8):
            check_saved(checkpoints.read(step))
        info = checkpoints.info(8)
        assert (info["format"], info["world_size"], info["itr"]) == (1, 1, 8)
        assert set(info["versions"]) >= {"rlpyt", "torch", "numpy", "python"}
        named = [named_by(tmp_path, step) for step in (7, 8)]
        assert len(named[0] & named[1]) > len(named[0]) // 2
        assert {file.name for file in (tmp_path / "segments").iterdir()} == named[0] | named[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{7:012d}", f"{8:012d}", "segments"]


@pytest.fixture
def late(monkeypatch):
    """Return an event for which every writer of rows waits."""
    goes_on, write = threading.Event(), RingWriter.write

    def write_late(*args):
        assert goes_on.wait(20)
        write(*args)

    monkeypatch.setattr(RingWriter, "write", write_late)
    return goes_on


@pytest.mark.parametrize(("copied", "n_rows"), [(0, 3), (1 << 20, 5 * ROWS)])
def test_state_is_that_of_the_save_though_the_run_goes_on(tmp_path, monkeypatch, late, copied, n_rows):
    """The thread begins after the run has changed the newest rows, and of a small ring, which is copied, all."""
    monkeypatch.setattr(segments, "COPIED_BYTES", copied)
    ring = ring_at(3)
    state: Any = state_of(3, ring)
    info: Any = {"itr": 3, "list": [1]}
    with opened(tmp_path) as checkpoints:
        assert checkpoints.save(3, state, info) is None
        state["weights"].fill_(-1)
        info["list"].append(2)
        ring.write(n_rows, salt=77)
        late.set()
        assert checkpoints.finish() is None
        assert checkpoints.read(3).info["list"] == [1]
        check_saved(checkpoints.read(3))


@pytest.mark.parametrize(
    ("state", "info", "said"),
    [
        ({"x": object()}, {}, "object"),
        ({}, {"x": float("nan")}, "JSON"),
        ({"a.b": ring_at(1).state(), "a": {"b": ring_at(1).state()}}, {}, r"two rings have the path 'a\.b'"),
        ({"a/b": ring_at(1).state()}, {}, "Rename the keys"),
    ],
)
def test_what_is_no_plain_data_is_refused_at_once(tmp_path, state, info, said):
    with opened(tmp_path) as checkpoints:
        with pytest.raises((TypeError, ValueError), match=said):
            checkpoints.save(1, state, info)
        assert checkpoints.steps() == []
        save(checkpoints, 1)
        check_saved(checkpoints.read(1))


def test_step_that_is_saved_is_not_written_again(tmp_path):
    with opened(tmp_path) as checkpoints:
        save(checkpoints, 1)
        written = {path: path.stat().st_mtime_ns for path in place(tmp_path, 1).iterdir()}
        save(checkpoints, 1)
        checkpoints.continue_from(checkpoints.read(1))
        save(checkpoints, 1)
    assert {path: path.stat().st_mtime_ns for path in place(tmp_path, 1).iterdir()} == written


# ---- what is kept ----


def test_the_best_is_kept_without_the_rows_of_its_replay(tmp_path):
    scores = {1: None, 2: 5.0, 3: float("nan"), 4: 3.0, 5: 5.0, 6: 4.0, 7: 1.0, 8: float("inf"), 9: 1.0}
    best_after = [None, 2, 2, 2, 5, 5, 5, 5, 5]
    with opened(tmp_path) as checkpoints:
        for step, score in scores.items():
            save(checkpoints, step, score=score)
            assert checkpoints.best() == best_after[step - 1]
            assert checkpoints.steps() == list(range(step, max(0, step - 2), -1))
        assert checkpoints.info(9)["is_resumable"]
        assert not checkpoints.info(5)["is_resumable"]
        saved = checkpoints.read(5)
        assert (saved.state["weights"] == 5).all()
        assert saved.state["algo"]["replay"] is None
        named = {s.file for step in (8, 9) for ring in checkpoints.read(step).segments.values() for s in ring}
        assert {file.name for file in (tmp_path / "segments").iterdir()} == named
        # It stays the best when the run goes on after it, and is gone when it goes on before it.
        checkpoints.continue_from(checkpoints.read(8))
        assert (checkpoints.best(), checkpoints.steps()) == (5, [8])


def test_the_best_without_a_replay_can_be_resumed(tmp_path):
    with opened(tmp_path, keep=1) as checkpoints:
        for step, score in {1: 2.0, 2: 1.0, 3: 0.0}.items():
            checkpoints.save(step, {"weights": step}, {}, score)
        assert checkpoints.finish() is None
        assert (checkpoints.best(), checkpoints.steps()) == (1, [3, 1])
        assert checkpoints.read(1).state == {"weights": 1}


# ---- damage ----


@pytest.fixture
def folder(tmp_path):
    with opened(tmp_path) as checkpoints:
        save(checkpoints, 6, 7)
    return tmp_path


def own_files(folder: Path) -> dict[str, Path]:
    """Return a file of each kind that the newest checkpoint alone has."""
    names = {"manifest": "manifest.json", "part": "rank_0.json", "content": "rank_0.pt"}
    found = {kind: place(folder, 7) / name for kind, name in names.items()}
    return {**found, "segment": folder / "segments" / min(named_by(folder, 7) - named_by(folder, 6))}


@pytest.mark.parametrize(
    ("kind", "how"),
    crossed(
        ["manifest", "part", "content", "segment"],
        ["truncated", "empty", "flipped", "longer", "missing"],
        strength=1,
    ),
)
def test_damage_is_found_and_the_checkpoint_before_taken(folder, kind, how):
    path = own_files(folder)[kind]
    content = path.read_bytes()
    if how == "flipped":
        flip(path, len(content) // 3)
    elif how == "missing":
        path.unlink()
    else:
        path.write_bytes({"truncated": content[:-3], "empty": b"", "longer": content + b"x"}[how])
    if (kind, how) != ("manifest", "missing"):  # that is no checkpoint any more
        with opened(folder) as checkpoints, pytest.raises(CheckpointError, match=str(path)):
            checkpoints.read(7)
    saved = newest(folder)
    assert saved.step == 6
    check_saved(saved)
    with opened(folder) as checkpoints:
        checkpoints.continue_from(saved)
        save(checkpoints, 7, 8)
        assert checkpoints.steps() == [8, 7]
        for step in (7, 8):
            check_saved(checkpoints.read(step))


def test_manifest_of_another_step_is_refused(folder):
    place(folder, 7).rename(place(folder, 9))
    with opened(folder) as checkpoints, pytest.raises(CheckpointError, match="of step 7; expected 9"):
        checkpoints.read(9)


def test_run_with_no_whole_checkpoint_is_refused_and_keeps_its_files(folder):
    for step in (6, 7):
        flip(place(folder, step) / "rank_0.pt", 100)
    with pytest.raises(CheckpointError, match="none of them is whole") as info:
        newest(folder)
    assert all(str(place(folder, step)) in str(info.value) for step in (6, 7))
    assert CheckpointFiles(folder).steps() == [7, 6]


def reseal(folder: Path, step: int, **changes: object) -> None:
    """Change the entries of a manifest and make its checksums right, as who forges one can."""
    path = place(folder, step) / "manifest.json"
    manifest = {**json.loads(path.read_text()), **changes}
    del manifest["sha256"]
    part = place(folder, step) / "rank_0.json"
    content = json.loads(part.read_text())
    content["sha256"] = hashlib.sha256(part.with_suffix(".pt").read_bytes()).hexdigest()
    part.write_text(json.dumps(content))
    manifest["ranks"] = [hashlib.sha256(part.read_bytes()).hexdigest()]
    CheckpointFiles(folder).write_manifest(step, manifest)


def test_file_outside_of_the_segments_is_neither_read_nor_removed(folder):
    outside = folder / "outside"
    outside.write_bytes(b"")
    part = own_files(folder)["part"]
    content = json.loads(part.read_text())
    entry = content["rings"]["algo.replay"]["segments"][0]
    entry[:2] = ["../outside", hashlib.sha256(b"").hexdigest()]
    part.write_text(json.dumps(content))
    reseal(folder, 7)
    with opened(folder) as checkpoints:
        with pytest.raises(CheckpointError, match="in the folder of segments"):
            checkpoints.read(7)
        checkpoints.continue_from(checkpoints.read(6))
        save(checkpoints, 7, 8, 9)
    assert outside.exists()


def test_other_formats_and_numbers_of_replicas_are_refused_and_not_passed_over(folder):
    reseal(folder, 7, format=2)
    with pytest.raises(ValueError, match=r"its format is 2; expected up to 1\. Install"):
        newest(folder)
    reseal(folder, 7, format=1, world_size=2)
    with pytest.raises(ValueError, match="of 2 replicas; the run has 1"):
        newest(folder)
    with pytest.raises(ValueError, match="it is of 2 replicas; got replica 2"):
        CheckpointFiles(folder, rank=2).read(7)


# ---- full and read-only disks ----


@contextmanager
def full_at(monkeypatch, n: int) -> Iterator[list[str]]:
    """Let the disk be full from the n-th file on."""
    names: list[str] = []

    def opened(path: Path, flags: int) -> int:
        names.append(path.name)
        return open_to_write(path, flags) if len(names) < n else os.open("/dev/full", os.O_WRONLY)

    with monkeypatch.context() as patch:
        patch.setattr("rlpyt.logging.files.open_to_write", opened)
        yield names


def test_full_disk_at_any_file_costs_one_checkpoint(tmp_path, monkeypatch):
    with full_at(monkeypatch, 1000) as names, opened(tmp_path / "counted") as checkpoints:
        save(checkpoints, 1)
    assert len(names) >= 4
    for n in range(1, len(names) + 1):
        folder, ring = tmp_path / str(n), ring_at(0)
        with opened(folder) as checkpoints:
            for step in (1, 2, 3):
                ring.write(ROWS, step - 1)
                with full_at(monkeypatch, n if step == 2 else 1000):
                    assert checkpoints.save(step, state_of(step, ring), {"itr": step}) is None
                    reason = checkpoints.finish()
                if step == 2:
                    assert "The checkpoint of step 2 is missing: [Errno 28] No space left" in str(reason)
                    assert checkpoints.steps() == [1]
                    check_saved(checkpoints.read(1))
                else:
                    assert reason is None
            assert checkpoints.steps() == [3, 1]
            check_saved(checkpoints.read(3))
        assert [path for path in folder.rglob("*") if ".tmp-" in path.name] == []
        assert not place(folder, 2).exists()


def test_full_disk_of_the_last_save_is_told_by_close(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    with full_at(monkeypatch, 1):
        checkpoints.save(1, {}, {})
        assert "step 1 is missing" in str(checkpoints.save(2, {}, {}))
        assert "step 2 is missing" in str(checkpoints.close())


@pytest.mark.skipif(os.geteuid() != 0, reason="drops the rights of root")
def test_folder_that_may_not_be_written_to_is_named(tmp_path):
    with opened(tmp_path / "checkpoints") as checkpoints:
        os.seteuid(65534)
        try:
            checkpoints.save(1, {}, {})
            with pytest.raises(
                PermissionError, match=r"checkpoint of step 1: Permission denied\. Give a log_dir"
            ) as raised:
                checkpoints.finish()
        finally:
            os.seteuid(0)
        assert str(tmp_path / "checkpoints") in str(raised.value)
        save(checkpoints, 2)


# ---- kills ----


def save_for_ever(folder: Path, said: Any) -> None:
    """Go on from what is there and tell each step that is saved; the first one is that of the start."""
    checkpoints = Checkpoints(folder)
    saved = newest_whole(checkpoints, Agreement(Replicas()))
    if saved is not None:
        check_saved(saved)
    checkpoints.continue_from(saved)
    step = 0 if saved is None else saved.step
    ring = ring_at(step)
    while True:
        said.send(step)
        ring.write(ROWS, step)
        step += 1
        assert checkpoints.save(step, state_of(step, ring), {"itr": step}) is None
        assert checkpoints.finish() is None


@pytest.mark.parametrize("n_kills", [3, pytest.param(15, marks=pytest.mark.nightly)])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.timeout(60)
def test_kills_at_random_moments_lose_no_checkpoint_that_was_whole(n_kills, tmp_path):
    folder, rng, n_half_written = tmp_path / "checkpoints", random.Random(0), 0
    for _ in range(n_kills):
        said, of_run = multiprocessing.Pipe(duplex=False)
        if (pid := os.fork()) == 0:
            try:
                save_for_ever(folder, of_run)
            finally:
                os._exit(1)
        of_run.close()
        last = first = said.recv()
        start = time.monotonic()
        while last <= max(first, 1):
            last = said.recv()
        time.sleep(rng.uniform(0, time.monotonic() - start))
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(EOFError):
            while True:
                last = said.recv()
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        with opened(folder) as checkpoints:
            whole = checkpoints.steps()
            n_half_written += len(checkpoints.all_steps()) > len(whole)
            assert len(whole) >= 2  # and those that a kill has left from being removed
            assert whole[1] == whole[0] - 1
            assert whole[0] >= last
            for step in whole:
                check_saved(checkpoints.read(step))
    assert whole[0] >= n_kills
    assert n_half_written or n_kills < 15


# ---- the thread ----


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


def test_error_of_the_thread_reaches_the_run(tmp_path, monkeypatch):
    def broken(*args):
        raise RuntimeError("a fault")

    for ends in (Checkpoints.finish, Checkpoints.close, lambda checkpoints: checkpoints.save(2, {}, {})):
        checkpoints = Checkpoints(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "_remove_old", broken)
            checkpoints.save(1, {}, {})
            with pytest.raises(RuntimeError, match="a fault"):
                ends(checkpoints)
        assert checkpoints.finish() is None
        checkpoints.close()
        assert threads() == []


def test_interrupt_of_a_wait_loses_nothing(tmp_path, late):
    def interrupt(*args):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with opened(tmp_path) as checkpoints:
            assert checkpoints.save(3, state_of(3, ring_at(3)), {"itr": 3}) is None
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                checkpoints.finish()
            late.set()
            assert checkpoints.close() is None
            check_saved(checkpoints.read(3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert threads() == []


def test_run_waits_after_it_was_too_fast(tmp_path, monkeypatch):
    ring, write = ring_at(6), RingWriter.write

    def overtaken(self, rows):
        ring.begun += 1000
        write(self, rows)

    with opened(tmp_path) as checkpoints:
        with monkeypatch.context() as patch:
            patch.setattr(RingWriter, "write", overtaken)
            checkpoints.save(6, state_of(6, ring), {"itr": 6})
            assert "step 6 is missing: the run has written over rows" in str(checkpoints.finish())
        ring = ring_at(7)
        checkpoints.save(7, state_of(7, ring), {"itr": 7})
        assert checkpoints.steps() == [7]  # without a call of finish
        check_saved(checkpoints.read(7))


def test_run_waits_where_nearly_all_of_a_full_ring_is_new(tmp_path, late):
    ring = ring_at(0)
    with opened(tmp_path) as checkpoints:
        for step, t in {1: T - 4, 2: T + 3, 3: 4}.items():
            late.clear()
            timer = threading.Timer(0.2, late.set)
            timer.start()
            ring.write(t)
            checkpoints.save(step, {"ring": ring.state()}, {})
            assert (checkpoints.steps()[:1] == [step]) == (step == 2)
            timer.join()
            assert checkpoints.finish() is None


# ---- going on ----


def test_later_and_half_written_checkpoints_are_removed(folder):
    (place(folder, 5)).mkdir()
    (place(folder, 9)).mkdir()
    (place(folder, 9) / "rank_0.json").write_text("{")
    (folder / "segments" / "rank_0-algo.replay-left").write_bytes(b"x")
    (folder / "segments" / "rank_0-algo.replay-left.tmp-17").write_bytes(b"x")
    (folder / "segments" / "rank_3-gone").write_bytes(b"x")
    (folder / "segments" / "note.txt").write_bytes(b"x")
    with opened(folder) as checkpoints:
        saved = checkpoints.read(6)
        checkpoints.continue_from(saved)
        assert checkpoints.all_steps() == [6]
        named = {segment.file for ring in saved.segments.values() for segment in ring}
        assert {file.name for file in (folder / "segments").iterdir()} == named | {"note.txt"}
        save(checkpoints, 7)
        assert checkpoints.steps() == [7, 6]
    with opened(folder) as checkpoints:
        checkpoints.continue_from(None)
        assert checkpoints.all_steps() == []
        assert [file.name for file in (folder / "segments").iterdir()] == ["note.txt"]


@pytest.mark.parametrize("kept", ["manifest.json", "rank_0-algo"])
def test_an_old_file_that_cannot_be_removed_costs_nothing_and_goes_later(tmp_path, monkeypatch, kept):
    unlink = Path.unlink

    def refuses(self, missing_ok=False):
        if self.name.startswith(kept) and ".tmp-" not in self.name:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self))
        unlink(self, missing_ok=missing_ok)

    with opened(tmp_path) as checkpoints:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refuses)
            save(checkpoints, *range(1, 12))  # after which the ring has begun anew
        assert checkpoints.steps()[:2] == [11, 10]
        for step in checkpoints.steps():
            check_saved(checkpoints.read(step))
        save(checkpoints, 12)
        assert checkpoints.steps() == [12, 11]
        assert {file.name for file in (tmp_path / "segments").iterdir()} == named_by(tmp_path, 11) | named_by(
            tmp_path, 12
        )


def test_disk_error_does_not_look_like_a_checkpoint_that_names_nothing(folder, monkeypatch):
    read = Path.read_text

    def fails(self, *args, **kwargs):
        if self.name == "rank_0.json":
            raise OSError(errno.EMFILE, "Too many open files")
        return read(self, *args, **kwargs)

    before = sorted((folder / "segments").iterdir())
    monkeypatch.setattr(Path, "read_text", fails)
    with pytest.raises(OSError, match="Too many"):
        CheckpointFiles(folder).remove_segments(set())
    assert sorted((folder / "segments").iterdir()) == before


# ---- replicas ----


@contextmanager
def two(folder: Path, session: str = "now") -> Iterator[list[Checkpoints]]:
    with opened(folder, 1, 2, session) as other, opened(folder, 0, 2, session) as first:
        yield [first, other]


def state_of_rank(step: int, rank: int) -> dict[str, object]:
    return state_of(step, ring_at(step)) | {"rank": rank}


def save_both(pair: list[Checkpoints], step: int) -> list[str | None]:
    for rank, checkpoints in enumerate(pair):
        checkpoints.save(step, state_of_rank(step, rank), {"itr": step})
    return [checkpoints.finish() for checkpoints in pair]


def test_manifest_comes_after_the_parts_of_all_replicas(tmp_path):
    with two(tmp_path) as (first, other):
        first.save(1, state_of_rank(1, 0), {"itr": 1})
        time.sleep(0.1)
        assert first.steps() == []
        other.save(1, state_of_rank(1, 1), {"itr": 1})
        assert first.finish() is None
        assert other.finish() is None
        for step in (2, 3, 4):
            assert save_both([first, other], step) == [None, None]
        for rank, checkpoints in enumerate((first, other)):
            assert checkpoints.steps() == [4, 3]
            for step in (3, 4):
                saved = checkpoints.read(step)
                assert saved.state["rank"] == rank
                check_saved(saved)
    wrong: list[dict[str, Any]] = [{"world_size": 2}, {"keep": 0}]
    for settings in wrong:
        with pytest.raises(ValueError, match="expected keep >= 1 and the same session"):
            Checkpoints(tmp_path, **settings)


def test_part_of_an_earlier_start_is_never_taken_for_a_new_one(tmp_path):
    with two(tmp_path, "before") as pair:
        assert save_both(pair, 1) == [None, None]
        assert save_both(pair, 2) == [None, None]
    (place(tmp_path, 2) / "manifest.json").unlink()  # killed before it was written
    with two(tmp_path, "after") as (first, other):
        first.continue_from(first.read(1))
        # The other one has a file there again, as if it had been written too late to be removed.
        place(tmp_path, 2).mkdir()
        (place(tmp_path, 2) / "rank_1.json").write_bytes((place(tmp_path, 1) / "rank_1.json").read_bytes())
        first.save(2, state_of_rank(2, 0), {"itr": 2})
        time.sleep(0.1)
        assert first.steps() == [1]
        other.continue_from(other.read(1))
        other.save(2, state_of_rank(2, 1), {"itr": 2})
        assert first.finish() is None
        assert other.finish() is None
        check_saved(other.read(2))
        assert other.read(2).state["rank"] == 1


def test_replicas_leave_each_other_their_segments(tmp_path):
    with two(tmp_path) as pair:
        assert save_both(pair, 1) == [None, None]
        (tmp_path / "segments" / "rank_0-new.tmp-1").write_bytes(b"under way")
        (tmp_path / "segments" / "rank_1-new.tmp-1").write_bytes(b"under way")
        pair[0].continue_from(pair[0].read(1))
        assert [p.name for p in (tmp_path / "segments").glob("*.tmp-1")] == ["rank_1-new.tmp-1"]
        pair[1].continue_from(pair[1].read(1))
        assert list((tmp_path / "segments").glob("*.tmp-1")) == []
        assert save_both(pair, 2) == [None, None]
        for checkpoints in pair:
            check_saved(checkpoints.read(2))


def test_full_disk_of_another_replica_costs_one_checkpoint(tmp_path, monkeypatch):
    with two(tmp_path) as (first, other):
        write = RingWriter.write

        def full(writer, rows):
            if writer in other._writers.values():
                raise OSError(errno.ENOSPC, "No space left on device")
            write(writer, rows)

        monkeypatch.setattr(RingWriter, "write", full)
        reasons = save_both([first, other], 1)
        assert "replica 1 could not write its part: OSError: [Errno 28]" in str(reasons[0])
        assert "No space left" in str(reasons[1])
        monkeypatch.setattr(RingWriter, "write", write)
        assert save_both([first, other], 2) == [None, None]
        assert first.steps() == [2]
        assert not place(tmp_path, 1).exists()


def test_replica_that_is_gone_is_waited_for_within_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints_module, "_PEER_SECONDS_AT_END", 0.1)
    checkpoints = Checkpoints(tmp_path, 0, 2, "now")
    checkpoints.save(1, {}, {})
    assert "replica 1 did not write" in str(checkpoints.close())
    monkeypatch.setattr(checkpoints_module, "_PEER_SECONDS", 0.1)
    with opened(tmp_path, 0, 2, "now") as checkpoints:
        checkpoints.save(2, {}, {})
        assert "replica 1 did not write" in str(checkpoints.finish())
    assert threads() == []


def test_replicas_go_on_from_the_same_checkpoint(tmp_path):
    """The newest part of one replica is damaged: the other one must not go on from its own whole part."""
    with two(tmp_path) as pair:
        assert save_both(pair, 1) == [None, None]
        assert save_both(pair, 2) == [None, None]
    flip(place(tmp_path, 2) / "rank_1.pt", 100)

    def resume(replicas: Replicas) -> int:
        with opened(tmp_path, replicas.rank, 2, "again") as checkpoints:
            saved = newest_whole(checkpoints, Agreement(replicas))
            assert saved is not None
            check_saved(saved)
            return saved.step

    assert in_threads(resume) == [1, 1]
