"""Files of the checkpoints of a run, and how they are read.

    checkpoints/segments/...            rows of replays, each written once
    checkpoints/000000040000/           the checkpoint after so many steps
        rank_0.pt, rank_0.json          all other state of a replica; its checksum and its segments
        manifest.json                   says that the checkpoint is whole; written last

The manifest has a checksum of itself and those of the files rank_r.json. These have the checksums of all others.
Nothing in a file can run code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, cast

from rlpyt.logging.files import paths_in, remove_file, write_json
from rlpyt.logging.segments import (
    CheckpointError,
    RingOnDisk,
    Segment,
    as_damaged,
    on_all_cores,
    open_rows,
    rank_of,
    segment_from,
    sha256_of,
)
from rlpyt.logging.snapshots import SnapshotError, load_snapshot
from rlpyt.run_records import load_json, refuse_link
from rlpyt.types import RingRows, StateDict

FORMAT = 1
"""Version of the files. A reader takes every version up to its own."""
MANIFEST = "manifest.json"
Content: TypeAlias = dict[str, Any]
"""Content of a JSON file."""
_RING = "rlpyt.ring"  # key of what stands in the place of a ring's state
_KINDS: Mapping[str, tuple[type, ...]] = {
    "format": (int,),
    "step": (int,),
    "itr": (int,),
    "world_size": (int,),
    "seed": (int,),
    "is_resumable": (bool,),
    "has_rows": (bool,),
    "score": (int, float, NoneType),
    "ranks": (list,),
    "settings": (dict,),
    "compute": (dict,),
}
"""Values that a manifest may have; its checksum is no signature, so they may be anything."""
_NEEDED = ("format", "step", "world_size", "is_resumable", "score", "ranks")


class Saved(NamedTuple):
    """Checkpoint that was read."""

    step: int
    info: Content
    """What the manifest says."""
    state: StateDict
    segments: dict[str, list[Segment]]
    """Those of every ring, by its name."""


class CheckpointFiles:
    """Files of the checkpoints of a run, of which the part of one replica is read.

    `folder` is that of all checkpoints. A checkpoint must be of `world_size` replicas; None takes any number.
    """

    def __init__(self, folder: Path, rank: int = 0, world_size: int | None = None) -> None:
        self.folder, self.segments = folder, folder / "segments"
        self.rank, self.world_size = rank, world_size

    def place(self, step: int) -> Path:
        """Return the folder of a checkpoint."""
        return self.folder / f"{step:012d}"

    def all_steps(self) -> list[int]:
        """Return the steps of all checkpoints, half written ones too, the newest first."""
        names = (place.name for place in paths_in(self.folder, "[0-9]*"))
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints that a run can go on from, the newest first.

        The manifest of a damaged one is there, but `read` refuses it.
        """
        return [step for step in self.all_steps() if self._is_resumable(step)]

    def _is_resumable(self, step: int) -> bool:
        try:
            return bool(paths_in(self.place(step), MANIFEST)) and bool(self.info(step)["is_resumable"])
        except (CheckpointError, ValueError):
            return True  # `read` will say what is wrong

    def best(self) -> int | None:
        """Return the step of the checkpoint with the highest score; None if none has one."""
        scores: dict[int, float] = {}
        for step in self.all_steps():
            with contextlib.suppress(CheckpointError, ValueError):
                if (score := self.info(step)["score"]) is not None:
                    scores[step] = score
        return max(scores, key=lambda step: scores[step], default=None)  # of equals the newest

    def info(self, step: int) -> Content:
        """Return what the manifest says; CheckpointError if it is damaged, ValueError if it is of a later format."""
        with as_damaged(self.place(step) / MANIFEST) as path:
            manifest = self._json(step, MANIFEST)
            sha256 = manifest.pop("sha256")
            if sha256 != _sha256_of_json(manifest):
                raise ValueError(f"its checksum is {_sha256_of_json(manifest)}; expected {sha256}")
            if manifest["step"] != step:
                raise ValueError(f"it is of step {manifest['step']}; expected {step}")
            if manifest["format"] <= FORMAT:
                _check_kinds(manifest)
        if manifest["format"] > FORMAT:
            raise ValueError(
                f"Reading the checkpoint {path}: its format is {manifest['format']}; expected up to {FORMAT}. Install "
                "the version of rlpyt that wrote it, or a later one."
            )
        return manifest

    def _json(self, step: int, name: str) -> Content:
        """Return the content of a file of a checkpoint, to which no link may lead."""
        refuse_link(self.folder)
        refuse_link(self.place(step))
        content = load_json(self.place(step) / name)
        if not isinstance(content, dict):
            raise ValueError(f"it has a {type(content).__name__}; expected a dictionary")
        return content

    def write_manifest(self, step: int, manifest: Mapping[str, object]) -> None:
        """Write the manifest of a checkpoint, with its checksum."""
        write_json(self.place(step) / MANIFEST, {**manifest, "sha256": _sha256_of_json(manifest)})

    def read(self, step: int, with_rings: bool = True) -> Saved:
        """Read the part of the replica of a checkpoint, after all its checksums were compared.

        Args:
            step: of the checkpoint.
            with_rings: whether to look for the rows of replays. None stands for them otherwise, and where they are not
                kept, as `info` says by "is_resumable".

        Raises:
            CheckpointError: if a file is missing or damaged.
            ValueError: if the checkpoint is of a later format, or of another number of replicas.
        """
        info = self.info(step)
        n = info["world_size"]
        if self.rank >= n or self.world_size not in (None, n):
            got = f"got replica {self.rank}" if self.world_size is None else f"the run has {self.world_size}"
            raise ValueError(
                f"Reading the checkpoint {self.place(step)}: it is of {n} replicas; {got}. Start as many replicas as "
                "the run had."
            )
        path = self.place(step) / f"rank_{self.rank}.json"
        with as_damaged(self.place(step) / MANIFEST):
            sha256 = info["ranks"][self.rank]
        _check(path, sha256)
        with as_damaged(path):
            part = self._json(step, path.name)
            refuse_link(self.segments)
            rings = part["rings"] if info["is_resumable"] and with_rings else {}
            segments = {name: [segment_from(entry) for entry in ring["segments"]] for name, ring in rings.items()}
            sha256 = part["sha256"]
        content = path.with_suffix(".pt")
        _check(content, sha256)
        on_all_cores(
            lambda segment: _check(self.segments / segment.file, segment.sha256),
            [segment for ring in segments.values() for segment in ring],
        )
        try:
            state = load_snapshot(content)
        except SnapshotError as error:
            raise CheckpointError(f"Reading a checkpoint: {content} is refused: {error}") from error
        with as_damaged(path):
            if not isinstance(state, dict) or not isinstance(state := state.get("state"), dict):
                raise TypeError(f"it has no 'state' of a run, but a {type(state).__name__}")
            return Saved(step, info, cast(StateDict, self._with_rings(state, rings, segments)), segments)

    def _with_rings(self, state: object, rings: Content, segments: Mapping[str, list[Segment]]) -> object:
        """Return what `without_rings` was given; None stands for rings whose rows are gone."""
        if isinstance(state, dict):
            if _RING not in state:
                return {key: self._with_rings(x, rings, segments) for key, x in state.items()}
            if state[_RING] not in rings:
                return None
            name, ring = state[_RING], rings[state[_RING]]
            specs = {array: (tuple(shape), dtype) for array, (shape, dtype) in ring["specs"].items()}
            whole = {**state["others"], **{key: ring[key] for key in ("T", "written", "intervals")}}
            return RingOnDisk(self.segments, segments[name], specs, state["newest"], whole)
        if isinstance(state, list | tuple):
            return type(state)(self._with_rings(x, rings, segments) for x in state)
        return state

    def remove(self, step: int) -> None:
        """Remove a checkpoint but for its segments. One whose manifest stays is whole."""
        manifest = self.place(step) / MANIFEST
        remove_file(manifest)  # first, as it says that the rest is there
        if not manifest.exists():
            shutil.rmtree(self.place(step), ignore_errors=True)

    def remove_segments(self, known: set[str]) -> None:
        """Remove the segments of the replica that no checkpoint names; replica 0 also those of replicas that are gone.

        Segments in `known` stay.
        """
        named = known | {file for step in self.all_steps() for file in self._named(step)}
        for file in self.segments.iterdir():
            owner = rank_of(file.name)
            is_own = owner is not None and self.rank == (owner if owner < (self.world_size or 1) else 0)
            if is_own and file.name not in named:
                remove_file(file)

    def _named(self, step: int) -> set[str]:
        """Return the segments that a checkpoint names, those of all replicas; none if their rows are not kept."""
        named: set[str] = set()
        if paths_in(self.place(step), MANIFEST) and not self._is_resumable(step):
            return named
        # What is gone or damaged names nothing. Another error of the disk must not look like that.
        with contextlib.suppress(FileNotFoundError):
            for path in paths_in(self.place(step), "rank_*.json"):
                if path.is_symlink() or not path.is_file():
                    continue
                text = path.read_text(errors="replace")
                with contextlib.suppress(CheckpointError, RecursionError), as_damaged(path):
                    rings = json.loads(text).get("rings", {})
                    named |= {segment_from(entry).file for ring in rings.values() for entry in ring["segments"]}
        return named


def without_rings(state: object, name: str, rings: dict[str, RingRows]) -> object:
    """Return a state with a mark in the place of the rows of every ring; `rings` collects them by their paths."""
    if isinstance(state, RingRows):
        if name in rings:
            raise ValueError(f"Saving a checkpoint: two rings have the path {name!r}. Rename a key of the state.")
        rings[name] = state
        others = {key: x for key, x in state.items() if key not in ("T", "written", "intervals", "arrays")}
        return {_RING: name, "newest": open_rows(state), "others": others}
    if isinstance(state, Mapping):
        return {key: without_rings(x, f"{name}.{key}".lstrip("."), rings) for key, x in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(without_rings(x, f"{name}.{i}".lstrip("."), rings) for i, x in enumerate(state))
    return state


def _check_kinds(manifest: Content) -> None:
    """Raise TypeError or ValueError if a value of a manifest is of another kind than a run writes."""
    missing = [key for key in _NEEDED if key not in manifest]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}")
    for key, kinds in _KINDS.items():
        if key in manifest and type(manifest[key]) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"its {key!r} is {manifest[key]!r:.100}; expected {expected}")
    if not all(type(sha256) is str for sha256 in manifest["ranks"]):
        raise TypeError(f"its 'ranks' are {manifest['ranks']!r:.100}; expected the checksum of each replica's file")


def _check(path: Path, sha256: str) -> None:
    with as_damaged(path):
        found = sha256_of(path)
        if found != sha256:
            raise ValueError(f"its checksum is {found}; expected {sha256}")


def _sha256_of_json(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()
