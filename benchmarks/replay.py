"""The replay alone: bytes a row, the time of sampling Atari stacks against a plain gather, and of priorities.

    OMP_NUM_THREADS=1 python benchmarks/replay.py [--frames 1000000] [--rounds 9] [--mapped FOLDER]

The gather is `numpy.take` of the same number of bytes, 84 x 84 at a time, from the same frames. Sampling and gather run
in turn, so that a machine whose speed changes disturbs both. 1M frames take 7 GB of memory, all of them written to.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch

from rlpyt.replays import (
    Index,
    Places,
    PrioritizedIndex,
    ReplayBuffer,
    RowStorage,
    SamplesToBuffer,
    Transitions,
    UniformIndex,
    mapped_file,
)
from rlpyt.utils.arrays import buffer_from_example

B, N_FRAMES, SIDE = 8, 4, 84
FRAME = SIDE * SIDE
CHUNK = 100  # rows of each environment that are appended at once
EPISODE = 1000


def example(stack: bool = True) -> SamplesToBuffer:
    """Return one row, with a stack of frames or with a single number."""
    observation = np.zeros((N_FRAMES, SIDE, SIDE), np.uint8) if stack else np.float32(0)
    flag = np.False_
    return SamplesToBuffer(observation, np.int64(0), np.float32(0), flag, flag, flag)


def build(T: int, index: Index, allocate: Any, stack: bool = True) -> ReplayBuffer:
    """Return an empty replay of T rows of each environment."""
    storage = RowStorage(example(stack), T, B, n_frames=N_FRAMES if stack else 1, allocate=allocate)
    return ReplayBuffer(storage, index, Transitions(1), discount=0.99)


def fill(replay: ReplayBuffer, T: int) -> None:
    """Append episodes of 1,000 steps, whose frames are noise."""
    stack = replay.storage.rows_before > 1
    rows = buffer_from_example(example(stack), (CHUNK, B))
    if stack:
        noise = np.random.default_rng(0).integers(0, 256, (CHUNK, B, SIDE, SIDE), np.uint8)
        for i in range(N_FRAMES):  # in a circle, so that every chunk goes on from the last frames of the one before
            rows.observation[:, :, i] = np.roll(noise, N_FRAMES - 1 - i, axis=0)
    for t in range(0, T, CHUNK):
        t_in_episode = (t + np.arange(CHUNK)) % EPISODE
        rows.valid[:] = (t_in_episode < EPISODE - 1)[:, None]
        rows.terminated[:] = (t_in_episode == EPISODE - 2)[:, None]
        replay.append_samples(rows)


def microseconds(parts: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, list[float]]:
    """Return the time of a call of each part in each round; the parts run in turn, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in parts}
    for round_ in range(rounds + 1):
        for name, part in parts.items():
            start = time.perf_counter()
            for _ in range(calls):
                part()
            if round_:
                times[name].append(1e6 * (time.perf_counter() - start) / calls)
    return times


def resident_bytes() -> int:
    """Return the memory of this process without what malloc keeps of arrays that are gone (up to 45 MB of filling)."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss


def memory() -> None:
    """Print what a row takes, by the arrays and by what the process grows."""
    T = 100_000 // B
    before = resident_bytes()
    replay = build(T, UniformIndex(np.random.default_rng(0)), buffer_from_example)
    fill(replay, T)
    resident = (resident_bytes() - before) / replay.size
    print(f"{'memory of one Atari row':<40} {'bytes':>10} {'x 84 x 84':>10}")
    for name, number in {
        "frame storage, arrays": replay.nbytes / replay.size,
        "frame storage, resident, 100k rows": resident,
        "Stable-Baselines3, optimize_memory_usage": N_FRAMES * FRAME,
        "Stable-Baselines3, default": 2 * N_FRAMES * FRAME,
    }.items():
        print(f"{name:<40} {number:>10,.0f} {number / FRAME:>10.3f}")
    print(f"resident memory of {replay.size:,} rows: {resident * replay.size / 1e6:,.0f} MB\n")


def sampling(T: int, allocate: Any, rounds: int) -> None:
    """Print the time of sampling stacks."""
    rng = np.random.default_rng(1)
    replay = build(T, UniformIndex(rng), allocate)
    fill(replay, T)
    arrays = replay.storage.state_dict()["arrays"]
    frames = arrays["observation.frames"].numpy().reshape(T * B, FRAME)
    print(f"{f'sampling from {T * B:,} frames':<32} {'us':>9} {'gather us':>10} {'ratio':>6} {'GB/s':>6}")
    for batch_size in (32, 256):
        n = 2 * N_FRAMES * batch_size

        def gather(n: int = n) -> Any:
            return frames.take(rng.integers(T * B, size=n), axis=0)

        def sample(batch_size: int = batch_size) -> Any:
            return replay.sample_batch(batch_size)

        times = microseconds({"gather": gather, "sample": sample}, rounds, 4000 // batch_size)
        ratio = median(g / s for g, s in zip(times["gather"], times["sample"], strict=True))
        us, gather_us = median(times["sample"]), median(times["gather"])
        print(f"{f'{batch_size} stacked transitions':<32} {us:>9,.0f} {gather_us:>10,.0f} {ratio:>6.2f} "
              f"{n * FRAME / us / 1e3:>6.2f}")  # fmt: skip
    print()


def prioritized(T: int, rounds: int) -> None:
    """Print the time of drawing and updating 256 priorities."""
    rng = np.random.default_rng(1)
    index = PrioritizedIndex(rng)
    replay = build(T, index, buffer_from_example, stack=False)
    fill(replay, T)
    priorities = rng.exponential(size=256)

    def both() -> None:
        places, B_idxs, _ = index.draw(256)
        index.update_priorities(Places(places, B_idxs), priorities)

    def unique() -> None:
        index.unique = True
        both()
        index.unique = False

    def draw() -> None:
        index.draw(256)

    def with_rows() -> None:
        batch = replay.sample_batch(256)
        replay.update_priorities(batch.places, torch.from_numpy(priorities))

    for _ in range(50):
        both()
    parts = {"draw": draw, "draw and update": both, "unique draw and update": unique,
             "sample_batch of vectors and update": with_rows}  # fmt: skip
    print(f"{f'256 priorities of {T * B:,}':<40} {'us':>9}")
    for name, us in microseconds(parts, rounds, 200).items():
        print(f"{name:<40} {median(us):>9,.0f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mapped", metavar="FOLDER", help="keep the frames in a file in this folder")
    args = parser.parse_args()
    T = args.frames // B // CHUNK * CHUNK
    memory()
    sampling(T, mapped_file(args.mapped) if args.mapped else buffer_from_example, args.rounds)
    prioritized(T, args.rounds)


if __name__ == "__main__":
    main()
