"""Writer of the checkpoints of a run. A kill at any moment leaves the checkpoints before as they were.

`rlpyt.logging.checkpoint_files` says which files there are, and reads them.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from math import inf, isfinite
from pathlib import Path
from threading import Event

from rlpyt.logging.checkpoint_files import FORMAT, MANIFEST, CheckpointFiles, Content, Saved, without_rings
from rlpyt.logging.files import MAY_PASS, replace_file, sync_directory, write_json
from rlpyt.logging.params import versions
from rlpyt.logging.segments import HashingFile, Overtaken, RingWriter, held_still, sha256_of
from rlpyt.logging.snapshots import snapshot_content
from rlpyt.types import RingRows, StateDict

_PEER_SECONDS = 600.0  # that another replica may take longer for its files
_PEER_SECONDS_AT_END = 60.0  # the same after `close`


class Checkpoints(CheckpointFiles):
    """Checkpoints of one replica of a run, written beside it.

    All replicas save at the same steps. Replica 0 writes the manifest once the files of all are there.

    Args:
        folder: of all checkpoints of the run.
        rank: of this replica.
        world_size: replicas.
        session: text that the replicas have in common, and that no earlier start of the run had. So a file that an
            earlier start has left is never taken for a new one. A replica that is alone draws it.
        keep: newest checkpoints that are kept. Two share most segments; if the newest is damaged, the run goes on from
            the one before. The one with the best score is kept beside them, then without the rows of replays.
    """

    def __init__(self, folder: Path, rank: int = 0, world_size: int = 1, session: str = "", keep: int = 2) -> None:
        if keep < 1 or (world_size > 1 and not session):
            raise ValueError(
                f"Checkpoints: got keep={keep} and session={session!r} for {world_size} replicas; expected keep >= 1 "
                "and the same session for several replicas."
            )
        super().__init__(folder, rank, world_size)
        self._keep = keep
        self._session = session or secrets.token_hex(8)
        self._writers: dict[str, RingWriter] = {}  # by ring
        self._waits = False  # whether the run waits while a checkpoint is written
        self._ends, self._patience = Event(), _PEER_SECONDS_AT_END
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._last: int | None = None  # step of the newest checkpoint
        self._writing: Future[None] | None = None

    # ---- saving ----

    def save(self, step: int, state: StateDict, info: Mapping[str, object], score: float | None = None) -> str | None:
        """Take the state of now, and write it beside the run. `finish` comes first, and what it returns is returned.

        The run waits for the disk where it would soon write over rows of a ring that are not saved. A step that is
        already saved is not saved again, as its files would have to be replaced one after the other.

        Args:
            step: steps of the run so far.
            state: plain data and `RingRows`; TypeError if there is more.
            info: JSON values, for the manifest.
            score: of the last evaluation, higher is better; None or nan if there was none.
        """
        missing = self.finish()
        if step == self._last:
            return missing
        rings: dict[str, RingRows] = {}
        content = snapshot_content({"state": without_rings(state, "", rings)})
        held = {name: held_still(rows) for name, rows in rings.items()}
        for name in rings:
            if name not in self._writers:
                self._writers[name] = RingWriter(self.segments, f"rank_{self.rank}-{name}")
        score = score if score is not None and isfinite(score) else None
        manifest = json.loads(json.dumps({**info, "score": score}, allow_nan=False))
        waits = self._waits or any(
            self._writers[name].is_late(rows) for name, rows in rings.items() if held[name] is rows
        )
        self._last, self._writing = step, self._thread.submit(self._write, step, content, held, manifest)
        if waits:
            wait([self._writing])
        return missing

    @property
    def is_writing(self) -> bool:
        """Whether `finish` would wait."""
        return self._writing is not None and not self._writing.done()

    def finish(self) -> str | None:
        """Wait for the checkpoint that is being written; return None if it is there.

        If the run can go on without it, return why it is missing: a disk that is full or does not answer, rows that
        were written over, or another replica without its part. Any other error of the disk is raised.
        """
        if self._writing is None:
            return None
        wait([self._writing])
        step, writing = self._last, self._writing
        self._writing = self._last = None  # not before: an interrupt of the wait loses nothing
        try:
            writing.result()
        except (_Missing, Overtaken) as error:
            self._waits |= isinstance(error, Overtaken)
            reason = str(error)
        except OSError as error:
            if error.errno not in MAY_PASS:
                raise OSError(
                    error.errno,
                    f"Saving the checkpoint of step {step:,}: {error.strerror}. Give a log_dir that can be "
                    "written to, or no checkpoint intervals",
                    error.filename,
                ) from error
            reason = str(error)
        else:
            self._last = step
            return None
        return f"The checkpoint of step {step:,} is missing: {reason}"

    def close(self, patience: float | None = None) -> str | None:
        """Finish, and end the thread; return what `finish` returns.

        For the parts of other replicas, which may be gone, it waits `patience` seconds; None is a minute.
        """
        self._patience = _PEER_SECONDS_AT_END if patience is None else patience
        self._ends.set()
        try:
            return self.finish()
        finally:
            self._thread.shutdown()

    def _write(self, step: int, content: memoryview, rings: Mapping[str, RingRows], manifest: Content) -> None:
        """Write the part of this replica, and the manifest if it is replica 0."""
        place = self.place(step)
        part: dict[str, object] = {"session": self._session, "step": step}
        try:
            self.segments.mkdir(parents=True, exist_ok=True)
            place.mkdir(exist_ok=True)
            sync_directory(place.parent)
            part["rings"] = {name: _written(self._writers[name], rows) for name, rows in rings.items()}
            with replace_file(place / f"rank_{self.rank}.pt") as file:
                hashing = HashingFile(file)
                hashing.write(content)
            part["sha256"] = hashing.sha256.hexdigest()
            write_json(place / f"rank_{self.rank}.json", part)
        except BaseException as error:
            self._give_up(step, error)
            raise
        if self.rank == 0:
            self._write_whole(step, manifest)
        # The new checkpoint is whole: what fails from now on costs room on the disk alone, until it is tried again.
        with contextlib.suppress(OSError):
            if self.rank == 0:
                self._remove_old(step)
            self.remove_segments({segment.file for writer in self._writers.values() for segment in writer.segments})

    def _give_up(self, step: int, error: BaseException) -> None:
        """Tell replica 0 why the part of this replica is missing, and free the disk."""
        path = self.place(step) / f"rank_{self.rank}.json"
        with contextlib.suppress(OSError):
            path.with_suffix(".pt").unlink(missing_ok=True)
            write_json(path, {"session": self._session, "step": step, "failed": f"{type(error).__name__}: {error}"})

    def _write_whole(self, step: int, manifest: Content) -> None:
        """Write the manifest, once the files of all replicas are there."""
        end = time.monotonic() + _PEER_SECONDS
        parts = [self._part_of(rank, step, end) for rank in range(self.world_size or 1)]
        own = {
            "format": FORMAT,
            "step": step,
            "world_size": len(parts),
            "session": self._session,
            "versions": versions(),
            "is_resumable": True,
            "has_rows": any(part["rings"] for _, part in parts),
            "ranks": [sha256 for sha256, _ in parts],
        }
        self.write_manifest(step, {**manifest, **own})

    def _part_of(self, rank: int, step: int, end: float) -> tuple[str, Content]:
        """Return checksum and content of the file of a replica, once it has written that of this save."""
        path = self.place(step) / f"rank_{rank}.json"
        end_after_close = inf
        while True:
            part: Content = {}
            with contextlib.suppress(FileNotFoundError, ValueError):  # not there yet, or of an earlier start
                part = json.loads(path.read_text())
            if part.get("session") == self._session:
                break
            if self._ends.is_set():
                end_after_close = min(end_after_close, time.monotonic() + self._patience)
            if time.monotonic() > min(end, end_after_close):
                raise _Missing(f"replica {rank} did not write {path} in time.")
            time.sleep(0.01)
        if "failed" in part:
            raise _Missing(f"replica {rank} could not write its part: {part['failed']}")
        return sha256_of(path), part

    def _remove_old(self, step: int) -> None:
        """Remove old checkpoints that are not kept, and those left half written."""
        kept, best = self.steps()[: self._keep], self.best()
        for old in self.all_steps():
            if old > step or old in kept:
                continue
            if old != best:
                self.remove(old)
                continue
            manifest = self.info(old)
            if manifest["is_resumable"] and manifest["has_rows"]:
                self.write_manifest(old, {**manifest, "is_resumable": False})

    # ---- going on ----

    def unfinished(self, steps: Sequence[int]) -> list[int]:
        """Return the steps of checkpoints without a manifest that are newer than all of `steps`, the newest first."""
        newest = max(steps, default=-1)
        places = {step: self.place(step) for step in self.all_steps() if step > newest}
        return [step for step, place in places.items() if not (place / MANIFEST).exists()]

    def continue_from(self, saved: Saved | None) -> None:
        """Go on after a checkpoint that was read; None begins the run.

        Later checkpoints, and what a kill has left half written, are removed. All replicas call this before any of
        them saves.
        """
        if not self.segments.exists():
            return
        self._last = None if saved is None else saved.step
        last = -1 if saved is None else saved.step
        if self.rank == 0:
            whole = self.steps()
            best = self.best()
            for step in self.all_steps():
                if step > last or (step not in whole and step != best):
                    self.remove(step)
        segments = {} if saved is None else saved.segments
        self._writers = {
            name: RingWriter(self.segments, f"rank_{self.rank}-{name}", own) for name, own in segments.items()
        }
        self.remove_segments({segment.file for own in segments.values() for segment in own})


def _written(writer: RingWriter, rows: RingRows) -> dict[str, object]:
    """Write the new rows of a ring; return its entry."""
    writer.write(rows)
    state = {key: rows[key] for key in ("T", "written", "intervals")}
    return {**state, "specs": rows.specs(), "segments": list(writer.segments)}


class _Missing(RuntimeError):
    """Error for a checkpoint of which another replica has no part."""
