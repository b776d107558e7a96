"""Seeds: one number for a run, spawned by role and global index so that no two streams are the same.

Every random stream of a run is `SeedSequence(seed, spawn_key=(role, index))`. The index of an environment is its
global rank over all workers and replicas. So the streams do not depend on which worker has which environment.
Evaluation environments are seeded in every evaluation: from iteration 1 on the iteration is a third number of the key.
Source: numpy's SeedSequence (O'Neill's seed_seq design).
"""

from __future__ import annotations

import random
import secrets
import struct
from enum import IntEnum
from typing import TypedDict

import numpy as np
import torch

_TORCH_WORDS, _TORCH_HEADER = 624, 24  # words of its Mersenne Twister; bytes before them: seed, left, seeded, used


class Role(IntEnum):
    """Role of a random stream. The numbers are part of every published result: never renumber them."""

    MODEL = 0
    ENV = 1
    EVAL_ENV = 2
    ACTIONS = 3
    EVAL_ACTIONS = 4
    ALGO = 5
    DECORRELATION = 6
    ENV_CHECK = 7
    SAMPLER = 8
    WORKER = 9
    EVALUATOR = 10
    ENV_MADE = 11
    EVAL_ENV_MADE = 12


def seed_sequence(seed: int, role: Role, index: int = 0, itr: int = 0) -> np.random.SeedSequence:
    """Return the seed sequence of one stream of a run.

    Args:
        seed: of the run.
        role: of the stream.
        index: number within the role, such as the rank of an environment.
        itr: iteration, where every iteration has a stream of its own.
    """
    return np.random.SeedSequence(seed, spawn_key=(int(role), index, itr) if itr else (int(role), index))


def stream_seed(seed: int, role: Role, index: int = 0, itr: int = 0) -> int:
    """Return a 31-bit number that seeds one stream, for libraries that take a number (gymnasium, ALE)."""
    return int(seed_sequence(seed, role, index, itr).generate_state(1)[0] >> 1)


def numpy_generator(seed: int, role: Role, index: int = 0) -> np.random.Generator:
    """Return numpy's generator of one stream."""
    return np.random.default_rng(seed_sequence(seed, role, index))


def torch_generator(seed: int, role: Role, index: int = 0, device: torch.device | None = None) -> torch.Generator:
    """Return a generator of torch of one stream, on the CPU or a device, where the numbers are others."""
    state = seed_sequence(seed, role, index).generate_state(1, np.uint64)[0]
    return torch.Generator(device or "cpu").manual_seed(int(state >> np.uint64(1)))


def make_seed() -> int:
    """Return a fresh 31-bit seed from the system's entropy."""
    return secrets.randbits(31)


def set_seed(seed: int, rank: int = 0) -> None:
    """Seed the global generators of `random`, numpy and torch, which user code may draw from.

    Args:
        seed: of the run.
        rank: of this replica, as every replica has streams of its own.
    """
    state = stream_seed(seed, Role.MODEL, rank)
    random.seed(state)
    np.random.seed(state)
    torch.manual_seed(state)


class GlobalStreams(TypedDict):
    """State of the global generators, as plain data."""

    random: tuple[int, list[int], float | None]
    numpy: tuple[str, np.ndarray, int, int, float]
    torch: torch.Tensor
    cuda: list[torch.Tensor]


def global_streams() -> GlobalStreams:
    """Return where the global generators of `random`, numpy and torch (all GPUs) stand, as plain data."""
    version, numbers, gauss = random.getstate()
    name, keys, pos, has_gauss, cached = np.random.get_state(legacy=True)
    place = int(pos), int(has_gauss), float(cached)
    return {
        "random": (version, list(numbers), gauss),
        "numpy": (name, np.asarray(keys), *place),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def set_global_streams(state: GlobalStreams) -> None:
    """Let the global generators go on where `global_streams` has found them."""
    version, numbers, gauss = state["random"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, pos, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.asarray(keys), checked_position(pos), has_gauss, cached))
    torch.set_rng_state(checked_stream(state["torch"]))
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])  # fewer may be visible than before


def checked_position(position: int, words: int = 624) -> int:
    """Return the place from which a generator of numpy goes on, which numpy takes from a file without a look.

    Args:
        position: number of its words that are used up.
        words: those of its kind; 624 of the Mersenne Twister.

    Raises:
        ValueError: if it lies outside: the generator would read other memory of the process.
    """
    if not 0 <= int(position) <= words:
        raise ValueError(f"a random stream: got {position} of its words used up, expected 0 to {words}.")
    return int(position)


def checked_stream(state: torch.Tensor) -> torch.Tensor:
    """Return the state of a CPU generator of torch, which torch takes from a file with hardly a look.

    Raises:
        ValueError: if it goes on outside of its 624 words: the generator would read other memory of the process.
    """
    words = np.asarray(state).tobytes()
    left, used = struct.unpack_from("=i4xQ", words, 8) if len(words) >= _TORCH_HEADER else (0, 0)
    # `left` counts the word before, too; a fresh generator has 1 left and 0 used.
    if left + used > _TORCH_WORDS + 1:
        raise ValueError(
            f"a random stream of torch: got {left} words left after {used}, expected {_TORCH_WORDS} words in all."
        )
    return state
