from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.logging import segments
from rlpyt.logging.checkpoint_files import Saved
from rlpyt.logging.checkpoints import Checkpoints
from rlpyt.logging.segments import (
    BLOCK,
    OPEN_ROWS,
    CheckpointError,
    HashingFile,
    Overtaken,
    RingOnDisk,
    RingWriter,
    Segment,
    open_rows,
    segment_from,
    sha256_of,
)
from rlpyt.types import RingRows
from tests.pairs import crossed


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Yield a folder in memory where there is one: on a busy disk each of many files may wait for a second."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def tmp_path():
    with memory_folder() as folder:
        yield folder


class Ring:
    """Ring buffer as a replay has it: rows, and an array with an entry for every `k` rows; rows have their number."""

    def __init__(self, T: int, k: int = 1, width: int = 2) -> None:
        self.T, self.k, self.written, self.begun = T, k, 0, 0
        self.rows = np.zeros((T, width), np.int64)
        self.kept = np.zeros((T // k, 3), np.float32)

    def write(self, t: int, salt: int = 0) -> None:
        """Write rows, and change the flag of the newest row before, as `RowStorage.write` may."""
        self.begun = self.written + t
        for back in range(1, min(self.written, OPEN_ROWS) + 1):
            self.rows[(self.written - back) % self.T, 1] += 1 + salt
        for i in range(self.written, self.written + t):
            self.rows[i % self.T] = 1000 * i + salt
            if i % self.k == 0:
                self.kept[i // self.k % (self.T // self.k)] = i + salt
        self.written += t

    def arrays(self) -> dict[str, np.ndarray]:
        held = min(self.written, self.T)
        return {"rows": self.rows[:held], "kept": self.kept[: -(-held // self.k)]}

    def state(self) -> RingRows:
        rows = RingRows(
            T=self.T,
            written=self.written,
            intervals={"rows": 1, "kept": self.k},
            arrays={name: torch.from_numpy(array) for name, array in self.arrays().items()},
        )
        rows.now = lambda: self.begun
        return rows

    def load(self, state: RingRows) -> None:
        self.rows[:], self.kept[:] = -1, -1
        self.written = self.begun = state["written"]
        arrays = self.arrays()
        assert state.specs() == {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
        state.read_into(arrays)


def copy_of(ring: Ring) -> tuple[int, dict[str, np.ndarray]]:
    return ring.written, {name: array.copy() for name, array in ring.arrays().items()}


def check(ring: Ring, copied: tuple[int, dict[str, np.ndarray]]) -> None:
    assert ring.written == copied[0]
    for name, array in ring.arrays().items():
        np.testing.assert_array_equal(array, copied[1][name])


def check_it_comes_back(folder, writer: RingWriter, ring: Ring) -> None:
    rows, loaded = ring.state(), Ring(ring.T, ring.k, ring.rows.shape[1])
    state = {key: rows[key] for key in ("T", "written", "intervals")}
    loaded.load(RingOnDisk(folder, writer.segments, rows.specs(), open_rows(rows), state))
    check(loaded, copy_of(ring))


@pytest.fixture
def writer(tmp_path) -> RingWriter:
    return RingWriter(tmp_path, "rank_0-ring")


@pytest.mark.parametrize(("t", "k"), crossed([1, 2, 3, 5, 11], [1, 2, 4], strength=1))
def test_ring_comes_back_at_every_phase(tmp_path, writer, k, t):
    ring = Ring(12, k)
    for _ in range(14):
        ring.write(t)
        writer.write(ring.state())
        check_it_comes_back(tmp_path, writer, ring)


def test_save_writes_only_new_rows(tmp_path, writer):
    ring = Ring(64)
    ring.write(100)
    writer.write(ring.state())
    assert [(s.first, s.end) for s in writer.segments] == [(i, min(i + 4, 98)) for i in range(36, 98, 4)]
    old = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    writer.write(ring.state())
    assert len(list(tmp_path.iterdir())) == 16
    ring.write(5)
    writer.write(ring.state())
    assert [(s.first, s.end) for s in writer.segments[-2:]] == [(98, 102), (102, 103)]
    assert writer.segments[0].end > 105 - 64
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in old} == old


@pytest.mark.parametrize(("before", "after"), [(14, 13), (14, 12), (14, 11), (40, 10)])
def test_ring_that_begins_anew_is_written_anew(tmp_path, writer, before, after):
    ring = Ring(16)
    for t, salt in ((before, 0), (after, 7)):
        ring.written = 0
        ring.write(t, salt)
        writer.write(ring.state())
    check_it_comes_back(tmp_path, writer, ring)


@pytest.mark.parametrize("t", [1, 5])
def test_faster_writer_is_noticed_while_it_writes(writer, t):
    """The rows are written over, but the ring has not counted them yet."""
    ring = Ring(16)
    ring.write(16)
    rows = ring.state()
    ring.begun = 16 + t
    with pytest.raises(Overtaken, match="shorter intervals"):
        writer.write(rows)
    assert writer.segments == []
    # The rows that were written over are saved already.
    writer.segments = [Segment("rank_0-ring-x", "", 0, t)]
    writer.write(rows)
    assert writer.segments[-1].end == 14


def test_only_a_ring_that_is_nearly_unsaved_is_late(writer):
    ring = Ring(64)
    for t, is_late, saves in ((59, False, False), (1, True, True), (50, False, False), (9, True, False)):
        ring.write(t)
        assert writer.is_late(ring.state()) == is_late
        if saves:
            writer.write(ring.state())


def test_array_with_gaps_is_refused(tmp_path, writer):
    ring = Ring(8)
    ring.write(8)
    rows = ring.state()
    rows["arrays"]["rows"] = rows["arrays"]["rows"].T.contiguous().T
    with pytest.raises(TypeError, match="without gaps"):
        writer.write(rows)
    assert list(tmp_path.iterdir()) == []


def test_name_that_is_no_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Rename the keys"):
        RingWriter(tmp_path, "rank_0-algo/replay")
    for file in ("../rank_0-x", "/etc/passwd", "rank_0-x/../../y", "..", "", "rank_0-x\n"):
        with pytest.raises(ValueError, match="in the folder of segments"):
            segment_from([file, "0" * 64, 0, 1])
    with pytest.raises(TypeError):
        segment_from(["rank_0-x", "0" * 64, 0, "1"])


@pytest.mark.parametrize("change", [-1, 1])
def test_segment_of_another_length_is_refused(tmp_path, writer, change):
    ring = Ring(16)
    ring.write(16)
    writer.write(ring.state())
    before = len(os.listdir("/proc/self/fd"))
    check_it_comes_back(tmp_path, writer, ring)
    file = tmp_path / writer.segments[3].file
    file.write_bytes((file.read_bytes() + b"x")[: file.stat().st_size + change])
    with pytest.raises(CheckpointError, match=file.name):
        check_it_comes_back(tmp_path, writer, ring)
    assert len(os.listdir("/proc/self/fd")) == before, "no file is left open"


@pytest.mark.parametrize("block", [1 << 12, BLOCK])
def test_large_file_is_hashed_as_it_is_written(tmp_path, monkeypatch, block):
    monkeypatch.setattr(segments, "BLOCK", block)
    content = np.random.default_rng(0).bytes(2 * block + 5)
    with open(tmp_path / "x", "wb") as file:
        hashing = HashingFile(file)
        for start in range(0, len(content), block // 3):
            hashing.write(memoryview(content)[start : start + block // 3])
    assert (tmp_path / "x").read_bytes() == content
    assert hashing.sha256.hexdigest() == sha256_of(tmp_path / "x") == hashlib.sha256(content).hexdigest()


STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 20)),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 2)),
    st.tuples(st.just("damage"), st.integers(0, 100)),
)


@settings(max_examples=40)
@given(k=st.sampled_from([1, 3]), keep=st.integers(1, 3), steps=st.lists(STEP, max_size=30))
def test_random_writes_saves_kills_and_damages_against_plain_copies(k, keep, steps):
    with memory_folder() as folder:
        write_save_kill_and_damage(folder, k, keep, steps)


def write_save_kill_and_damage(folder, k, keep, steps) -> None:
    ring, checkpoints = Ring(12, k), Checkpoints(folder, keep=keep)
    copies: dict[int, tuple[int, dict[str, np.ndarray]]] = {}
    try:
        for n, (what, number) in enumerate(steps):
            if what == "write":
                ring.write(number, salt=n)
            elif what == "save":
                copies[ring.written] = copies.get(ring.written) or copy_of(ring)
                assert checkpoints.save(ring.written, {"replay": {"ring": ring.state()}}, {}) is None
                assert checkpoints.finish() is None
                assert checkpoints.steps() == sorted(copies, reverse=True)[:keep]
            elif what == "damage" and len(checkpoints.steps()) > 1:
                newest = folder / f"{checkpoints.steps()[0]:012d}"
                files = sorted(newest.iterdir())
                flip(files[number % len(files)])
                what, number = "kill", 0
            if what == "kill":
                ring, checkpoints = kill(folder, checkpoints, ring, copies, number)
    finally:
        checkpoints.close()
    names = {file.name for file in (folder / "segments").iterdir()} if copies else set()
    assert names == checkpoints._named(0) | {x for s in checkpoints.steps() for x in checkpoints._named(s)}


def flip(path: Path, where: int | None = None) -> None:
    """Change a bit of a file, in its middle where no place is given."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if where is None else where] ^= 1
    path.write_bytes(content)


def kill(folder, checkpoints: Checkpoints, ring: Ring, copies, leftovers: int) -> tuple[Ring, Checkpoints]:
    """Begin again in another process's place, and compare the ring that is read."""
    keep = checkpoints._keep
    checkpoints.close()
    if copies:
        for i in range(leftovers):
            (folder / "segments" / f"rank_0-replay.ring-{10**6 + i}.tmp-123").write_bytes(b"half")
            (folder / f"{10**6 + i:012d}").mkdir()
    checkpoints, fresh = Checkpoints(folder, keep=keep), Ring(12, ring.k)
    saved = newest_whole(checkpoints)
    if saved is not None:
        fresh.load(saved.state["replay"]["ring"])
        check(fresh, copies[saved.step])
    checkpoints.continue_from(saved)
    for step in [step for step in copies if saved is None or step > saved.step]:
        del copies[step]
    return fresh, checkpoints


def newest_whole(checkpoints: Checkpoints) -> Saved | None:
    for step in checkpoints.steps():
        try:
            return checkpoints.read(step)
        except CheckpointError:
            pass
    return None
