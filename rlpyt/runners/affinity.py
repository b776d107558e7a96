"""The cores and devices of a run, as a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AFFINITY_KEYS = ("cuda_idx", "master_cpus", "workers_cpus", "master_torch_threads", "set_affinity")
"""What an affinity may say: the GPU; the cores of this process, and those of each worker (a number or a list of them);
torch threads of this process; whether processes are pinned to their cores (True if it is not said)."""
# In the affinities of rlpyt 0.1 too: a worker has one thread here, and the sampler's class says whether it alternates.
_AFFINITY_KEYS_WITHOUT_EFFECT = ("all_cpus", "worker_torch_threads", "alternating")


def check_affinity(affinity: Mapping[str, Any]) -> None:
    """Refuse keys that say nothing to anyone, and cores that are no list.

    Raises:
        ValueError: if a key is not known.
        TypeError: if cores are not given as a list.
    """
    unknown = sorted(set(affinity) - {*AFFINITY_KEYS, *_AFFINITY_KEYS_WITHOUT_EFFECT})
    if unknown:
        raise ValueError(f"affinity: got {', '.join(unknown)}; expected some of {', '.join(AFFINITY_KEYS)}.")
    for name in ("master_cpus", "workers_cpus"):
        if isinstance(affinity.get(name), int):
            raise TypeError(f"affinity: {name} is {affinity[name]}; expected a list. Write [{affinity[name]}].")
