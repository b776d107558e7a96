"""The cores and devices of a run, as a dictionary."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from numbers import Integral
from typing import Any

import psutil

from rlpyt.utils.processes import available_cpus

AFFINITY_KEYS = ("cuda_idx", "master_cpus", "workers_cpus", "master_torch_threads", "set_affinity")
"""What an affinity may say: the GPU; the cores of this process, and those of each worker (a number or a list of them);
torch threads of this process; whether processes are pinned to their cores (True if it is not said)."""
# In the affinities of rlpyt 0.1 too: a worker has one thread here, and the sampler's class says whether it alternates.
_AFFINITY_KEYS_WITHOUT_EFFECT = ("all_cpus", "worker_torch_threads", "alternating")


def check_affinity(affinity: Mapping[str, Any]) -> None:
    """Refuse keys that say nothing to anyone, and cores that are no list.

    Raises:
        ValueError: if a key is not known.
        TypeError: if it is no mapping, cores are not given as a list, or the device not by its number.
    """
    if not isinstance(affinity, Mapping) or {"optimizer", "sampler"} <= set(affinity):
        raise TypeError(
            f"affinity: got {affinity!r:.100}; expected one dictionary of this run. Runs on several GPUs (a list of "
            "affinities) and asynchronous ones (optimizer and sampler) are not there yet. Give one of these alone."
        )
    unknown = sorted(set(affinity) - {*AFFINITY_KEYS, *_AFFINITY_KEYS_WITHOUT_EFFECT})
    if unknown:
        raise ValueError(f"affinity: got {', '.join(unknown)}; expected some of {', '.join(AFFINITY_KEYS)}.")
    cuda_idx = affinity.get("cuda_idx")
    if cuda_idx is not None and (type(cuda_idx) is bool or not isinstance(cuda_idx, Integral) or cuda_idx < 0):
        raise TypeError(
            f"affinity: cuda_idx is {cuda_idx!r}; expected the number of a CUDA device, from 0, or None for the CPU."
        )
    for name in ("master_cpus", "workers_cpus"):
        if isinstance(affinity.get(name), int):
            raise TypeError(f"affinity: {name} is {affinity[name]}; expected a list. Write [{affinity[name]}].")


@contextmanager
def pinned_to(cpus: Sequence[int]) -> Iterator[None]:
    """Keep this process to some cores, and give it back those that it had."""
    process, before = psutil.Process(), available_cpus()
    process.cpu_affinity(list(cpus))
    try:
        yield
    finally:
        for thread in process.threads():  # those of torch that have started meanwhile are pinned too
            with suppress(OSError):  # it may have ended
                if os.sched_getaffinity(thread.id) == set(cpus):
                    os.sched_setaffinity(thread.id, before)
