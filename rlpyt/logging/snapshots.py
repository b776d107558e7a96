"""Snapshots of the parameters of a run: their names, and files that hold data without code."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from rlpyt.logging.files import replace_file
from rlpyt.run_records import DEEPEST, printable

SnapshotMode = Literal["none", "last", "all", "gap", "last+gap"]
"""Which snapshots a run keeps: `params.pkl` for last, `itr_<N>.pkl` for all and gap."""


_BEFORE_TORCH_1_6 = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""First bytes of a file of an older torch, as snapshots of rlpyt 0.1 may be; it has no checksums."""


_SLACK = 1 << 20
"""Bytes by which a tensor may be larger than its file: other programs save one with equal rows as a single row."""


class SnapshotError(RuntimeError):
    """Error for a file that is not a snapshot: it is damaged, has another format, or contains code."""


def check_snapshot_settings(mode: str, gap: int) -> None:
    """Raise ValueError unless `mode` is a SnapshotMode and `gap` a number of iterations >= 1."""
    if mode not in get_args(SnapshotMode):
        raise ValueError(f"snapshots: got snapshot_mode {mode!r}, expected one of {get_args(SnapshotMode)}.")
    if gap < 1:
        raise ValueError(f"snapshots: got snapshot_gap {gap}, expected iterations >= 1.")


def snapshot_names(mode: SnapshotMode, itr: int, gap: int) -> list[str]:
    """Return up to two file names under which the snapshot of an iteration, from 0, is saved; see `logger_context`."""
    names = ["params.pkl"] if mode in ("last", "last+gap") else []
    at_gap = "gap" in mode and (itr == 0 or (itr + 1) % gap == 0)
    return [*names, f"itr_{itr}.pkl"] if mode == "all" or at_gap else names


def save_snapshot(path: str | os.PathLike[str], params: Mapping[str, object]) -> None:
    """Save plain data as a file that `torch.load(path, weights_only=True)` reads.

    Numpy arrays become tensors, numpy scalars Python numbers, every mapping a dict. A view is saved without the rest of
    its storage. The old file stays until the new one is safe on the disk.

    Args:
        path: the file; its directory must exist.
        params: dictionaries, lists and tuples of tensors, numpy arrays, numbers, str and None. TypeError names the
            place of anything else.
    """
    content = snapshot_content(params)
    with replace_file(path) as file:
        file.write(content)


def snapshot_content(params: Mapping[str, object]) -> memoryview:
    """Return the content of the file that `save_snapshot` would write; TypeError if there is more than plain data."""
    # In memory first: a signal's exception or a full disk, raised in a write that torch calls, may abort the process.
    content = io.BytesIO()
    torch.save(_to_plain(params, "params"), content)
    return content.getbuffer()


def _to_plain(value: Any, place: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor | np.ndarray):
        return _to_plain_tensor(value, place)
    if isinstance(value, Mapping):
        return {_to_plain_key(key, place): _to_plain(item, f"{place}[{key!r}]") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_to_plain(item, f"{place}[{i}]") for i, item in enumerate(value))
    raise _not_plain(place, type(value))


def _to_plain_tensor(value: torch.Tensor | np.ndarray, place: str) -> torch.Tensor:
    if isinstance(value, np.ndarray):
        try:
            # A read-only array is copied: torch would warn that it cannot keep it read-only.
            return torch.from_numpy(np.require(value, requirements=["C", "W"]))
        except (TypeError, ValueError):
            raise _not_plain(place, f"an array of dtype {value.dtype}") from None
    value = value.detach()
    if type(value) is not torch.Tensor:
        raise _not_plain(place, type(value))
    # torch.save writes the whole storage of a view: one row would take the whole buffer along.
    whole = value.layout is not torch.strided or value.untyped_storage().nbytes() == value.nbytes
    return value if whole else value.clone()


def _to_plain_key(key: object, place: str) -> Any:
    if isinstance(key, np.generic):
        key = key.item()
    if key is None or type(key) in (bool, int, float, str):
        return key
    raise _not_plain(f"a key of {place}", type(key))


def _not_plain(place: str, what: type | str) -> TypeError:
    name = f"{what.__module__}.{what.__qualname__}" if isinstance(what, type) else what
    return TypeError(
        f"saving a snapshot: {place} is {name}, expected dict, list, tuple, tensor, numeric array, "
        "number, str, bool or None, so that loading never runs code. Save its state_dict() or its "
        "numbers instead."
    )


def load_snapshot(path: str | os.PathLike[str], map_location: str | torch.device | None = "cpu") -> Any:
    """Load a snapshot without running code that is in the file; arrays are loaded as tensors.

    Args:
        path: the file.
        map_location: the device for its tensors; None for the devices they were saved from.

    Raises:
        FileNotFoundError: if there is no such file; the message lists those beside it.
        SnapshotError: if the file is damaged, is not a snapshot, or holds more than plain data.
    """
    path = Path(path)
    if not path.is_file():
        beside = sorted(file.name for file in path.parent.glob("*.pkl"))
        raise FileNotFoundError(
            f"loading a snapshot: there is no file {path}; beside it are {beside or 'no snapshots'}. "
            "Was the run's snapshot_mode 'none'?"
        )
    _check_archive(path)
    try:
        with torch.sparse.check_sparse_tensor_invariants():  # indices outside of a tensor would lead out of its memory
            content = torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:
        foreign = _foreign_names(path)
        if not foreign and not isinstance(error, pickle.UnpicklingError):
            why = printable((str(error).splitlines() or [type(error).__name__])[0])
            raise SnapshotError(f"loading a snapshot: {path} does not load: {why}") from error
        # Not chained, as the message of torch recommends to load the file with code.
        names = f"names {printable(foreign)}" if foreign else "is damaged, or holds more than plain data"
        raise SnapshotError(
            f"loading a snapshot: {path} {names}, expected plain data only; to load such a "
            "file is to run its code, so it was not loaded. Save it again with save_snapshot where "
            "it comes from."
        ) from None
    _check_nesting(path, content)
    return content


def _check_archive(path: Path) -> None:
    """Compare each part with its checksum. torch.load does not: it would load a flipped bit."""
    with open(path, "rb") as file:
        if file.read(len(_BEFORE_TORCH_1_6)) == _BEFORE_TORCH_1_6:
            return
    try:
        with zipfile.ZipFile(path) as archive:
            _check_sizes(path, archive)
            damaged = archive.testzip()
    except SnapshotError:
        raise
    except Exception as error:
        # A damaged archive makes zipfile raise BadZipFile, EOFError, NotImplementedError and more.
        raise SnapshotError(
            f"loading a snapshot: {path} is no whole snapshot file ({printable(error)}), expected one written "
            "by save_snapshot. Is it truncated, or a pickle of something else; the snapshots beside "
            "it may be whole."
        ) from error
    if damaged is not None:
        raise SnapshotError(
            f"loading a snapshot: {path} is damaged, its part {printable(damaged)} differs from its checksum. "
            "Take another snapshot of the run."
        )


def _check_sizes(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse an archive that is larger than its file, before anything is unpacked; torch.save compresses nothing."""
    parts = archive.infolist()
    size = sum(part.file_size for part in parts)
    if size > path.stat().st_size or any(part.compress_type != zipfile.ZIP_STORED for part in parts):
        raise SnapshotError(
            f"loading a snapshot: {path} has {path.stat().st_size:,} bytes and unpacks to {size:,}; expected a file of "
            "save_snapshot, which is not compressed. It was not unpacked."
        )


def _check_nesting(path: Path, content: object) -> None:
    """Refuse lists and dictionaries with themselves or one part again and again in them, which no walk would leave.

    A file of `save_snapshot` has every part once, and so at least a byte for each; a tensor whose rows are all the same
    memory would fill that of the process where it is copied.
    """
    size = left = path.stat().st_size
    level = [content]
    for _ in range(DEEPEST):
        parts = (
            part
            for x in level
            if isinstance(x, dict | list | tuple)
            for part in (x.values() if isinstance(x, dict) else x)
        )
        level = list(itertools.islice(parts, left + 1))
        if any(isinstance(x, torch.Tensor) and _bytes_of(x) > size + _SLACK for x in level):
            break
        left -= len(level)
        if not level:
            return
        if left < 0:
            break
    raise SnapshotError(
        f"loading a snapshot: {path} has more parts than bytes, a tensor of more bytes than it, or parts inside each "
        f"other by more than {DEEPEST} levels; expected a file of save_snapshot."
    )


def _bytes_of(tensor: torch.Tensor) -> int:
    return tensor.nbytes if tensor.layout is torch.strided and not tensor.is_nested else 0


def _foreign_names(path: Path) -> list[str]:
    try:
        return torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:
        return []
