"""One replay in several processes: a writer at full speed, and readers that never see half a row."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.replays import (
    PrioritizedIndex,
    ReplayBuffer,
    RowStorage,
    Sequences,
    Transitions,
    UniformIndex,
    mapped_file,
)
from rlpyt.utils.arrays import buffer_from_example, buffer_leaves
from rlpyt.utils.processes import Worker, receive_all, stop_workers
from rlpyt.utils.rw_lock import LockError, RwLock
from rlpyt.utils.shared_memory import dumps
from tests.pairs import others_nightly
from tests.replays.replay_servers import BATCH_T, N_FRAMES, N_STEP, B, ReplayServer, read_for, rows_at

T = 48
ROLES = ("learner", "copier", "reader")
shared = partial(buffer_from_example, share_memory=True)


def make_shared(kind: str, allocate: Any = shared, seed: int = 0) -> Any:
    """Build a replay of frame stacks in shared memory, with lock; this process is its learner."""
    rng = np.random.default_rng(seed)
    unique = kind == "unique"
    index = UniformIndex(rng) if kind in ("uniform", "sequences") else PrioritizedIndex(rng, unique=unique)
    reading = Sequences(8, 0, N_STEP, 4) if kind == "sequences" else Transitions(N_STEP)
    example = rows_at(0)[0, 0]
    storage = RowStorage(example, T, B, N_FRAMES, 4 if kind == "sequences" else 0, allocate)
    lock = RwLock(ROLES, timeout=30.0, what="the replay")
    lock.join("learner")
    return ReplayBuffer(storage, index, reading, discount=1.0, allocate=shared, lock=lock)


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    yield workers
    stop_workers(workers, seconds=1.0)


def start(replay: ReplayBuffer, roles: tuple[str, ...], workers: list[Worker]) -> None:
    workers += [Worker(rank, ReplayServer, (replay, role), "forkserver") for rank, role in enumerate(roles)]


@pytest.mark.parametrize(
    "kind", others_nightly(["uniform", "prioritized", "unique", "sequences", "file"], ["prioritized", "sequences"])
)
def test_a_writer_at_full_speed_and_two_readers(kind, tmp_path, workers):
    allocate = mapped_file(tmp_path) if kind == "file" else shared
    replay = make_shared("uniform" if kind == "file" else kind, allocate)
    start(replay, ("copier", "reader"), workers)
    copier, reader = workers
    copier.send(("write", T // BATCH_T))
    assert receive_all([copier], 60.0) == [T * B]
    copier.send(("write", 400))
    reader.send(("read", 0.6))
    n, wrong = read_for(replay, 0.6)
    (_, (n_other, wrong_other)) = receive_all(workers, 60.0)
    assert wrong == wrong_other == []
    assert min(n, n_other) > 5
    # All rows are there, once and in order, and the priorities add up.
    written = (T // BATCH_T + 400) * BATCH_T
    assert replay.storage.written == written
    expected = np.arange(written - T, written)
    np.testing.assert_array_equal(replay.storage.rows.reward[expected % T], np.repeat(expected[:, None], B, 1))
    if replay.takes_priorities:
        tree = replay.index._tree
        assert tree.total == pytest.approx(tree.values.sum(), rel=1e-12)
        np.testing.assert_allclose(tree.values, replay.index._raised(replay.index._priorities), rtol=1e-12)


@pytest.mark.parametrize("kind", ["uniform", "prioritized", "sequences"])
def test_it_gives_the_batches_of_a_replay_of_one_process(kind):
    """Also where another handle writes: nothing that decides what comes is private to the process that wrote."""
    one, other = make_shared(kind), make_shared(kind)
    writer: ReplayBuffer = pickle.loads(dumps(other))
    writer.lock.join("copier")
    for batch in range(15):
        rows = rows_at(batch * BATCH_T)
        one.append_samples(rows)
        (writer if batch % 3 else other).append_samples(rows)
        if batch < 3:
            continue
        a, b = one.sample_batch(16), other.sample_batch(16)
        for x, y in zip(buffer_leaves(a), buffer_leaves(b), strict=True):
            assert torch.equal(x, y)
        if one.takes_priorities:
            for replay in (one, writer):
                replay.update_priorities(a.places, torch.arange(16) / 7)
                replay.set_hyper(alpha=0.5 + 0.1 * batch)
    assert len(one) == len(other) == len(writer) == T * B


def test_a_writer_that_is_killed_in_the_middle_of_a_batch_ends_the_run_of_the_readers(workers):
    replay = make_shared("prioritized")
    start(replay, ("copier",), workers)
    replay.append_samples(rows_at(0))
    workers[0].send(("write_half", None))
    while replay.storage.written == BATCH_T:
        pass
    os.kill(workers[0].pid or 0, signal.SIGKILL)
    with pytest.raises(LockError, match=r"Reading the replay: the copier .* died or failed while it wrote"):
        replay.sample_batch(8)


def test_rows_that_are_refused_are_an_error_of_the_writer_first():
    replay = make_shared("uniform")
    with pytest.raises(ValueError, match="Appending to a replay of 3 environments"):
        replay.append_samples(rows_at(0)[:, :2])
    with pytest.raises(LockError, match=r"the learner .* failed while it wrote"):
        replay.append_samples(rows_at(0))


def test_draws_that_change_the_tree_are_alone():
    replay = make_shared("unique")
    replay.append_samples(rows_at(0))
    other: Any = pickle.loads(dumps(replay))
    other.lock.timeout = 0.05
    other.lock.join("copier")
    with replay.lock.reading, pytest.raises(LockError, match="Writing to the replay"):
        other.sample_batch(4)
    with replay.lock.reading:
        assert other.check_valid() == (True, "")


def test_changes_are_alone_and_nothing_is_read_while_another_process_writes():
    replay = make_shared("prioritized")
    replay.append_samples(rows_at(0))
    places = replay.sample_batch(4).places
    other: Any = pickle.loads(dumps(replay))
    other.lock.timeout = 0.02
    other.lock.join("copier")
    for change in (
        lambda: other.append_samples(rows_at(BATCH_T)),
        lambda: other.update_priorities(places, torch.ones(4)),
        lambda: other.set_hyper(alpha=0.1),
    ):
        with replay.lock.reading, pytest.raises(LockError, match="Writing to the replay"):
            change()
    for read in (lambda: other.sample_batch(4), other.check_valid):
        with replay.lock.writing, pytest.raises(LockError, match="Reading the replay"):
            read()
