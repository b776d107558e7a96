"""Affinity of a run: the device and the cores that its processes use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from itertools import pairwise
from numbers import Integral
from typing import Any, Self, TypeAlias

import psutil

from rlpyt.utils.processes import available_cpus

AffinityDict: TypeAlias = Mapping[str, Any]
"""Cores and devices by name, as a runner is given them."""
# In affinities of rlpyt 0.1, and without effect: a worker has one thread, and the sampler's class says what alternates.
_WITHOUT_EFFECT = ("all_cpus", "worker_torch_threads", "alternating")


class AttrDict(dict[str, Any]):
    """Dictionary whose entries are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"AttrDict has no entry {name!r}; it has {', '.join(map(repr, self))}.") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def copy(self) -> AttrDict:
        """Return a copy, in which every AttrDict is a copy too."""
        return AttrDict({key: value.copy() if isinstance(value, AttrDict) else value for key, value in self.items()})


@dataclass(frozen=True, kw_only=True)
class Affinity:
    """Device and cores of a run, each optional.

    Raises:
        TypeError: if cores are not given as a list, or the device is not given by its number.
    """

    cuda_idx: int | None = None
    """Number of the CUDA device; None computes on the CPU."""
    master_cpus: Sequence[int] = ()
    """Cores of the process that trains; none given are all that it may use."""
    workers_cpus: Sequence[int | Sequence[int]] = ()
    """Cores of each worker: a number or a list of them; their number is the number of workers."""
    evaluator_cpus: Sequence[int] = ()
    """Cores of the process that evaluates beside learning; none given are those of the workers."""
    sampler: Sequence[Mapping[str, object]] = ()
    """Affinity of each action server of the sampler; none given have no servers, or as many as the sampler says."""
    master_torch_threads: int | None = None
    """Torch threads of the process that trains; None chooses them."""
    set_affinity: bool = True
    """Whether processes are pinned to their cores."""

    def __post_init__(self) -> None:
        """Refuse values of the wrong kind."""
        index: object = self.cuda_idx
        if index is not None and (type(index) is bool or not isinstance(index, Integral) or index < 0):
            raise TypeError(
                f"affinity: cuda_idx is {index!r}; expected the number of a CUDA device, from 0, or None for the CPU."
            )
        lists = {
            "master_cpus": self.master_cpus,
            "workers_cpus": self.workers_cpus,
            "evaluator_cpus": self.evaluator_cpus,
        }
        for name, cpus in lists.items():
            if isinstance(cpus, int):
                raise TypeError(f"affinity: {name} is {cpus}; expected a list. Write [{cpus}].")

    @classmethod
    def from_mapping(cls, affinity: AffinityDict | None) -> Self:
        """Return the affinity that a dictionary describes; three keys of rlpyt 0.1 have no effect.

        Raises:
            ValueError: if a key is not known.
            TypeError: if it is no mapping, or a value is of the wrong kind.
        """
        given: object = {} if affinity is None else affinity
        if not isinstance(given, Mapping) or {"optimizer", "sampler"} <= set(given):
            got = (
                f"a list of {len(given)}"
                if isinstance(given, Sequence) and not isinstance(given, str)
                else f"{given!r:.100}"
            )
            raise TypeError(
                f"affinity: got {got}; expected one dictionary of this run. A list of affinities, as of a job with "
                "several GPUs, is for SyncRl, and one with optimizer and sampler for AsyncRl. Use these, give one "
                "dictionary alone, or ask for one GPU."
            )
        names = [f.name for f in fields(cls)]
        unknown = sorted(set(given) - {*names, *_WITHOUT_EFFECT})
        if unknown:
            raise ValueError(f"affinity: got {', '.join(unknown)}; expected some of {', '.join(names)}.")
        known: dict[str, Any] = {name: given[name] for name in names if name in given}
        lists = ("master_cpus", "workers_cpus", "evaluator_cpus")
        known |= {name: () for name in lists if known.get(name) is None}  # no cores
        return cls(**known)

    @property
    def device(self) -> str:
        """The torch device, "cpu" or "cuda:<cuda_idx>"."""
        return "cpu" if self.cuda_idx is None else f"cuda:{self.cuda_idx}"

    def device_of_replica(self, given: str, n_replicas: int) -> str:
        """Return the device of one of some replicas whose settings name one: of several its own GPU, if any."""
        return given if n_replicas == 1 or self.cuda_idx is None else self.device


def dealt_cpus(cpus: Sequence[int], n: int) -> list[list[int]]:
    """Return the cores of each of n processes that share them; one core may be of several, where there are too few.

    The first has the fewest.
    """
    bounds = [i * len(cpus) // n for i in range(n + 1)]
    return [list(cpus[start:end]) or [cpus[start]] for start, end in pairwise(bounds)]


def optimizer_parts(affinity: AffinityDict) -> list[AffinityDict]:
    """Return the affinity of each process that learns, of a run whose sampler has a process of its own.

    Args:
        affinity: with parts `optimizer`, one dictionary or a list of them, and `sampler`; or that of a run in one
            process. In a part `cpus` stands for `master_cpus`, and `torch_threads` for `master_torch_threads`.

    Raises:
        ValueError: if one of the two parts is missing, or there is no optimizer.
    """
    if not {"optimizer", "sampler"} & set(affinity):
        return [affinity]
    missing = sorted({"optimizer", "sampler"} - set(affinity))
    others = sorted(set(affinity) - {"optimizer", "sampler", "set_affinity", *_WITHOUT_EFFECT})
    parts = affinity.get("optimizer")
    if missing or others or not parts:
        raise ValueError(
            f"affinity: got the keys {', '.join(sorted(affinity))}; expected optimizer, a list of dictionaries with "
            "cpus, torch_threads and cuda_idx, and sampler, a dictionary with master_cpus, workers_cpus and cuda_idx."
        )
    all_parts: list[AffinityDict] = [parts] if isinstance(parts, Mapping) else parts
    pinned = {"set_affinity": affinity["set_affinity"]} if "set_affinity" in affinity else {}
    names: dict[str, str] = {"cpus": "master_cpus", "torch_threads": "master_torch_threads"}
    return [{**pinned, **{names.get(k, k): v for k, v in part.items()}} for part in all_parts]


def sampler_part(affinity: AffinityDict, rank: int = 0, n_shares: int = 1) -> AffinityDict:
    """Return the affinity of a sampler in a process of its own, or of one share of it.

    Args:
        affinity: see `optimizer_parts`. Of a run in one process, the cores of the workers are the sampler's.
        rank: of the process that learns from this share.
        n_shares: shares; each has as many of the cores of workers as another.
    """
    part = affinity.get("sampler", affinity)
    if not isinstance(part, Mapping):
        return {"sampler": part} if len(part) > 1 else part[0]  # an action server on each device
    if "sampler" in affinity:
        own = {"cuda_idx": None, **part}  # the CPU, unless it names a device
    else:
        own = {name: part[name] for name in ("workers_cpus", "evaluator_cpus", "set_affinity") if name in part}
    cpus = list(own.get("workers_cpus") or ())
    if len(cpus) >= n_shares > 1:
        own["workers_cpus"] = cpus[rank * len(cpus) // n_shares : (rank + 1) * len(cpus) // n_shares]
    return own


@contextmanager
def pinned_to(cpus: Sequence[int]) -> Iterator[None]:
    """Pin this process to some cores while the block runs, then restore the cores that it had."""
    process, before = psutil.Process(), available_cpus()
    process.cpu_affinity(list(cpus))
    try:
        yield
    finally:
        for thread in process.threads():  # torch's threads that have started in between are pinned too
            with suppress(OSError):  # the thread may have ended
                if os.sched_getaffinity(thread.id) == set(cpus):
                    os.sched_setaffinity(thread.id, before)
