"""Checkpoints of an Atari replay: time and memory of saving, of saving new rows, and of resuming.

    OMP_NUM_THREADS=1 python benchmarks/checkpoint_replay.py [--frames 1000000] [--folder FOLDER]
    OMP_NUM_THREADS=1 python benchmarks/checkpoint_replay.py --frames 0

The replay is that of DQN with frames: 84 x 84 bytes, actions, rewards and flags; 1M frames take 7 GB of memory and 8 GB
of the disk. "Stands still" is the time in `save`. In the other time a loop appends rows and reads batches, and its
speed is compared with that without a save. Memory is the largest resident set in a save, above that before it.
What the disk and the checksum allow is measured first, with blocks of 16 MB. Reading begins with an empty page cache.
A process that touches memory for the first time may wait for the host of a virtual machine. So "touch" is the time in
which one thread fills a new array of the same size, and the larger part of "load".
With `--frames 0` the cost of a small checkpoint is measured: a network, its optimizer and a replay of 10,000 rows.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import torch
from replay import CHUNK, B, build, example, fill

from rlpyt.logging.checkpoints import Checkpoints
from rlpyt.logging.segments import BLOCK, HashingFile, sha256_of
from rlpyt.replays import PrioritizedIndex, ReplayBuffer
from rlpyt.utils.arrays import buffer_from_example

NEW_ROWS = 10_000  # of all environments, between two saves


def limits(folder: Path, blocks: int = 64) -> None:
    """Print what the disk, the checksum and new memory allow, in MB/s."""
    data = np.random.default_rng(0).integers(0, 256, BLOCK, np.uint8).data
    path, mb = folder / "limits", blocks * BLOCK / 1e6

    def write() -> None:
        with open(path, "wb", buffering=0) as file:
            for _ in range(blocks):
                file.write(data)
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read() -> None:
        buffer = memoryview(bytearray(BLOCK))
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def hash_alone() -> None:
        for _ in range(blocks):
            hashlib.sha256(data)

    def both() -> None:
        with open(path, "wb") as file:
            hashing = HashingFile(file)
            for _ in range(blocks):
                hashing.write(data)

    parts: dict[str, Callable[[], object]] = {
        "write": write,
        "read": read,
        "sha256": hash_alone,
        "sha256 and write": both,
        "sha256 and read": lambda: sha256_of(path),
    }
    for name, part in parts.items():
        print(f"{name:<44} {mb / seconds(part):>8,.0f} MB/s")
    path.unlink()


def seconds(part: Callable[[], object]) -> float:
    """Return the time of a call."""
    start = time.perf_counter()
    part()
    return time.perf_counter() - start


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Yield a list that has the largest resident set of the block after it."""
    process, peak, ends = psutil.Process(), [0], threading.Event()

    def watch() -> None:
        while not ends.wait(0.002):
            peak[0] = max(peak[0], process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ends.set()
        thread.join()


class Loop:
    """Loop of training in small: it appends rows and reads batches of 32."""

    def __init__(self, replay: ReplayBuffer) -> None:
        self.replay = replay
        self.rows, self.t = buffer_from_example(example(), (CHUNK, B)), 0
        self.rows.valid[:] = True
        noise = np.random.default_rng(0).integers(0, 256, (CHUNK, B, 84, 84), np.uint8)  # that of `fill`
        for i in range(4):
            self.rows.observation[:, :, i] = np.roll(noise, 3 - i, axis=0)

    def __call__(self) -> None:
        """Append a row of each environment, and read two batches of 32."""
        self.append(B)
        for _ in range(2):
            self.replay.sample_batch(32)

    def append(self, n_rows: int) -> None:
        """Append so many rows, of all environments, at once."""
        for _ in range(n_rows // B):
            self.replay.append_samples(self.rows[self.t : self.t + 1])
            self.t = (self.t + 1) % CHUNK

    def speed(self, n_seconds: float) -> float:
        """Return calls per second."""
        n, start = 0, time.perf_counter()
        while time.perf_counter() - start < n_seconds:
            self()
            n += 1
        return n / (time.perf_counter() - start)


def save(checkpoints: Checkpoints, step: int, loop: Loop, usual: float, n_new: int) -> None:
    """Save beside the loop, and print what it took for so many new rows."""
    replay = loop.replay
    before, held = psutil.Process().memory_info().rss, replay.storage.held
    with peak_memory() as peak:
        start = time.perf_counter()
        reason = checkpoints.save(step, {"algo": {"replay": replay.state_dict()}}, {})
        still = time.perf_counter() - start
        n, slow = 0, 0.0
        while checkpoints.is_writing and reason is None:
            slow = max(slow, seconds(loop))
            n += 1
        beside = time.perf_counter() - start
    if reason := reason or checkpoints.finish():
        raise RuntimeError(reason)
    speed = n / (beside - still) / usual
    appended = (replay.storage.held - held) / replay.storage.T * replay.nbytes  # memory that the loop has filled
    grown = 100 * max(0, peak[0] - before - appended) / before
    print(
        f"{f'{n_new:,} new rows':<24} {beside:>9.2f} s {still:>12.3f} s {100 * speed:>9.0f} % "
        f"{slow:>9.3f} s {grown:>8.1f} %"
    )


def large(folder: Path, frames: int) -> None:
    """Measure a large replay."""
    n_steps = frames // B // CHUNK * CHUNK
    T = n_steps * 9 // 8  # so that there is room for the rows of the loop
    replay = build(T, PrioritizedIndex(np.random.default_rng(0)), buffer_from_example)
    fill(replay, n_steps)
    loop = Loop(replay)
    loop.speed(0.5)
    usual = loop.speed(2.0)
    checkpoints = Checkpoints(folder / "checkpoints")
    print(f"\n{replay.size:,} frames, {replay.nbytes / 1e9:.1f} GB, of them held {replay.storage.held * B:,}")
    print(f"{'save':<24} {'on disk':>11} {'stands still':>14} {'loop speed':>11} {'slowest':>11} {'memory':>10}")
    saved = 0
    for step in range(5):
        if step:
            loop.append(NEW_ROWS)
        written = replay.storage.written
        place = (written - 1) % T
        newest = replay.storage.state_dict()["arrays"]["observation.frames"][place].clone()
        save(checkpoints, step, loop, usual, (written - saved) * B)
        saved = written
    if reason := checkpoints.close():
        raise RuntimeError(reason)
    replay = loop.replay = None  # type: ignore[assignment]  # lets go of the memory
    resume(folder, T, place, newest)


def resume(folder: Path, T: int, place: int, newest: torch.Tensor) -> None:
    """Measure reading: checksums, and rows into a new replay."""
    os.sync()
    time.sleep(15.0)  # a virtual machine gives memory back to its host some seconds after it was freed
    start = time.perf_counter()
    new = np.empty(T * B * 84 * 84, np.uint8)
    new.fill(1)
    print(f"\n{'touch new memory of that size':<44} {time.perf_counter() - start:>8.2f} s")
    del new
    time.sleep(15.0)
    replay = build(T, PrioritizedIndex(np.random.default_rng(0)), buffer_from_example)
    checkpoints = Checkpoints(folder / "checkpoints")
    with peak_memory() as peak:
        start = time.perf_counter()
        saved = checkpoints.read(checkpoints.steps()[0])
        read = time.perf_counter()
        replay.load_state_dict(saved.state["algo"]["replay"])
        end = time.perf_counter()
    checkpoints.close()
    assert torch.equal(replay.storage.state_dict()["arrays"]["observation.frames"][place], newest)
    print(f"{'checksums':<44} {read - start:>8.2f} s")
    print(f"{'load':<44} {end - read:>8.2f} s")
    print(f"{'resume':<44} {end - start:>8.2f} s, memory {peak[0] / replay.nbytes:.2f} of the replay")


def small(folder: Path, rounds: int = 50) -> None:
    """Measure a checkpoint of CartPole's size."""
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 2)
    )
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    replay = build(10_000 // B // CHUNK * CHUNK, PrioritizedIndex(np.random.default_rng(0)), buffer_from_example, False)
    still, beside = [], []
    checkpoints = Checkpoints(folder / "checkpoints")
    for step in range(rounds):
        fill(replay, CHUNK)
        state = {"agent": model.state_dict(), "optim": optimizer.state_dict(), "algo": {"replay": replay.state_dict()}}
        start = time.perf_counter()
        checkpoints.save(step, state, {})
        still.append(1e3 * (time.perf_counter() - start))
        if reason := checkpoints.finish():
            raise RuntimeError(reason)
        beside.append(1e3 * (time.perf_counter() - start))
    checkpoints.close()
    print(f"small checkpoint: stands still {median(still):.2f} ms, {median(beside):.1f} ms until it is on the disk")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure; else that of temporary files")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        if args.frames:
            limits(folder)
            large(folder, args.frames)
        else:
            small(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
