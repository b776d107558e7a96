"""Affinities of the runs of a grid: how they share a machine, as a short code that a command line carries.

A code is `<number><name>` joined by `_`, as in rlpyt 0.1: `16cpu_2gpu_1cxg` describes 16 cores and two GPUs, and
`1slt_16cpu_2gpu_1cxg` its second run slot. `2aut` means two runs that share what the launcher may use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Self, TypeAlias

from rlpyt.launching.machine import Core, Machine, shared_cores
from rlpyt.utils.affinity import AttrDict
from rlpyt.utils.arguments import unknown_argument
from rlpyt.utils.slurm_job import visible_gpus

AnyAffinity: TypeAlias = Any
"""Affinity of a run: an AttrDict, or a list with one for each replica."""
_TOKEN = re.compile(r"(\d+)([a-z]{3})")


def _number(name: str, default: int, least: int = 0) -> int:
    return field(default=default, metadata={"name": name, "least": least})


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Run slots: how runs that go on side by side share cores and GPUs.

    Raises:
        ValueError: if they cannot share them so.
    """

    run_slot: int = _number("slt", -1, least=-1)
    """The slot of one run; -1 for all of them."""
    n_parallel: int = _number("aut", 0)
    """Runs side by side that share what the launcher may use; 0 where the numbers below describe the machine."""
    n_cpu_core: int = _number("cpu", 0)
    """Cores, numbered from 0; with `n_parallel` those that the launcher may use."""
    n_gpu: int = _number("gpu", 0)
    """GPUs, numbered from 0; with `n_parallel` those that the launcher may use."""
    contexts_per_gpu: int = _number("cxg", 1, least=1)
    """Runs that share a GPU."""
    gpu_per_run: int = _number("gpr", 1, least=1)
    """GPUs of a run that learn: replicas of SyncRl, or of AsyncRl."""
    cpu_per_run: int = _number("cpr", 1, least=1)
    """Cores of a run without GPUs."""
    cpu_per_worker: int = _number("cpw", 1, least=1)
    """Cores of a worker."""
    hyperthread_offset: int = _number("hto", 0)
    """Difference of the numbers of a core's two hyper-threads; 0 for cores without."""
    n_socket: int = _number("skt", 1, least=1)
    """Sockets, each with as many of the cores and GPUs; a run stays on one."""
    cpu_reserved: int = _number("res", 0)
    """Cores for each GPU that are kept from workers, for the process that learns."""
    async_sample: int = _number("ass", 0)
    """Whether the sampler of AsyncRl has cores and GPUs of its own."""
    sample_gpu_per_run: int = _number("sgr", 0)
    """GPUs of a run whose sampler acts on them."""
    optim_sample_share_gpu: int = _number("oss", 0)
    """Whether the sampler acts on the GPUs that learn."""
    alternating: int = _number("alt", 0)
    """Whether the workers are doubled, for the two halves of AlternatingSampler."""
    set_affinity: int = _number("saf", 1)
    """Whether processes are pinned to their cores."""

    def __post_init__(self) -> None:
        """Refuse numbers that do not fit each other."""
        for f in fields(self):
            value, least = getattr(self, f.name), f.metadata["least"]
            if f.name == "n_cpu_core" and not self.n_parallel:
                least = 1
            if type(value) is not int or value < least:
                raise ValueError(f"{self._who}: {f.name} is {value!r}; expected a whole number from {least}.")
        if self.n_parallel:
            if self.gpu_per_run > 1 and self.n_parallel * self.gpu_per_run > self.n_gpu:
                raise ValueError(
                    f"{self._who}: {self.n_parallel} runs take {self.gpu_per_run} GPUs each; expected at most "
                    f"{self.n_gpu} in all. Name more GPUs (gpu), or fewer for a run (gpr) or runs (aut)."
                )
            return
        self._check_shares()
        if self.run_slot >= self.n_slots:
            raise ValueError(
                f"{self._who}: the slot {self.run_slot} was asked for; expected 0 to {self.n_slots - 1}. Correct it."
            )

    @property
    def _who(self) -> str:
        return f"The affinity {self.code!r}"

    def _check_shares(self) -> None:
        if self.n_slots < 1:
            asked = f"{self._gpus_per_run} GPUs" if self.n_gpu else f"{self.cpu_per_run} cores"
            raise ValueError(
                f"{self._who}: a run takes {asked}; expected at most those of a socket: "
                f"{(self.n_gpu or self.n_cpu_core) // self.n_socket}. Name more, or give a run fewer."
            )
        if self.contexts_per_gpu > 1 and (self._gpus_per_run > 1 or self.async_sample):
            raise ValueError(f"{self._who}: expected contexts_per_gpu 1 for a run with parts. Correct it.")
        if 0 < self.hyperthread_offset < self.n_cpu_core:
            raise ValueError(
                f"{self._who}: hyperthread_offset is {self.hyperthread_offset}; expected 0, or at least the "
                f"{self.n_cpu_core} cores, which else are hyper-threads of each other. Take 0, or quick_affinity_code."
            )
        n_cores = self.cores_per_run
        least = self.n_replicas * (self.cpu_per_worker + self.cpu_reserved)
        if self.async_sample:
            on_gpus = self.gpu_per_run if self.optim_sample_share_gpu else self.sample_gpu_per_run
            n_samplers = max(1, on_gpus if self.n_gpu else 0)
            least = n_samplers * self.cpu_per_worker + max(1, self.cpu_reserved) * self.n_replicas
        if n_cores < least:
            more = f"Give a run {least} of them, by cpu_per_run={least} ({least}cpr in the code)"
            if self.n_gpu:
                more = f"Name {least * self.n_slots} cores (n_cpu_core), or fewer GPUs (n_gpu) or runs on each"
            raise ValueError(
                f"{self._who}: there are {n_cores} cores for a run; expected at least {least}, for its workers and the "
                f"processes that learn. {more}, or take fewer cores for each part."
            )

    # ---- the code ----

    @classmethod
    def from_code(cls, code: str) -> Self:
        """Return the slots that a code describes; refuse something else than known names with a number each."""
        names = {f.metadata["name"]: f.name for f in fields(cls)}
        values: dict[str, int] = {}
        for token in code.split("_"):
            match = _TOKEN.fullmatch(token)
            if not match:
                raise ValueError(
                    f"Reading the affinity {code!r}: got {token!r}; expected a number and three letters, such as 2cpu. "
                    "encode_affinity and quick_affinity_code write such codes."
                )
            if match[2] not in names:
                raise ValueError(unknown_argument(f"The affinity {code!r}", match[2], list(names), "name"))
            if names[match[2]] in values:
                raise ValueError(f"Reading the affinity {code!r}: {match[2]} comes twice; expected once. Remove one.")
            values[names[match[2]]] = int(match[1])
        return cls(**values)

    @property
    def code(self) -> str:
        """Code of all that is not the default."""
        given = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return "_".join(f"{getattr(self, f.name)}{f.metadata['name']}" for f in given)

    # ---- shares ----

    @property
    def n_replicas(self) -> int:
        """Processes of a run that learn."""
        return self.gpu_per_run if self.n_gpu else 1

    @property
    def _gpus_per_run(self) -> int:
        own = self.sample_gpu_per_run if self.async_sample and not self.optim_sample_share_gpu else 0
        return self.gpu_per_run + own

    @property
    def n_slots(self) -> int:
        """Runs that go on side by side."""
        if self.n_parallel:
            return self.n_parallel
        if self.n_gpu:
            return self.n_gpu // self.n_socket // self._gpus_per_run * self.contexts_per_gpu * self.n_socket
        return self.n_cpu_core // self.n_socket // self.cpu_per_run * self.n_socket

    @property
    def cores_per_run(self) -> int:
        """Cores of each run."""
        if self.n_gpu:
            return self.n_cpu_core // self.n_socket // (self.n_slots // self.n_socket)
        return self.cpu_per_run

    def cores(self) -> list[Core]:
        """Return the cores of the slot, by their numbers."""
        socket, place = self._place()
        offset = self.hyperthread_offset  # so many cores has the machine, where a code has fewer
        first = socket * (max(self.n_cpu_core, offset) // self.n_socket) + place * self.cores_per_run
        numbers = range(first, first + self.cores_per_run)
        return [Core((n, n + offset) if offset else (n,), socket) for n in numbers]

    def gpus(self) -> list[int]:
        """Return the GPUs of the slot."""
        if not self.n_gpu:
            return []
        socket, place = self._place()
        groups = self.n_gpu // self.n_socket // self._gpus_per_run
        first = socket * (self.n_gpu // self.n_socket) + place % groups * self._gpus_per_run  # spread before sharing
        return [*range(first, first + self._gpus_per_run)]

    def _place(self) -> tuple[int, int]:
        if self.run_slot < 0:
            raise ValueError(
                f"{self._who} names no run slot; expected one, such as {prepend_run_slot(0, self.code)!r}. "
                "run_experiments gives each run its own."
            )
        sharing = self.contexts_per_gpu if self.n_gpu else 1
        each = self.n_slots // self.n_socket // sharing
        layer, group = divmod(self.run_slot, each * self.n_socket)  # all sockets before GPUs are shared
        return group // each, layer * each + group % each

    # ---- the affinity of a run ----

    def affinity(self) -> AnyAffinity:
        """Return the affinity of the slot, see `affinity_from_code`."""
        if self.n_parallel:  # the launcher has left this process its share alone, of cores and of devices
            machine = Machine.of_this_process()
            slots = self if machine.has_own_cores else replace(self, set_affinity=0)
            return _one_or_all(slots._parts(machine.cores, [*range(self.n_replicas)] if self.n_gpu else [None]))
        cores = self.cores()
        gpus: Sequence[int | None] = self.gpus() or [None]
        if self.async_sample:
            return self._async_affinity(cores, gpus)
        return _one_or_all(self._parts(cores, gpus))

    def _parts(self, cores: Sequence[Core], gpus: Sequence[int | None]) -> list[AttrDict]:
        """Return a share of the cores for each GPU, where None stands for a part without."""
        return [self._part(share, gpu) for share, gpu in zip(_shares(cores, len(gpus)), gpus, strict=True)]

    def _part(self, cores: Sequence[Core], gpu: int | None) -> AttrDict:
        n_reserved = min(self.cpu_reserved if gpu is not None else 0, len(cores) - 1)
        reserved, others = cores[:n_reserved], cores[n_reserved:]
        return AttrDict(
            all_cpus=_cpus(cores),
            master_cpus=_cpus(reserved or cores),
            workers_cpus=self._workers(others),
            master_torch_threads=len(reserved or cores),
            worker_torch_threads=min(self.cpu_per_worker, len(others)),
            alternating=bool(self.alternating),
            set_affinity=bool(self.set_affinity),
            cuda_idx=gpu,
        )

    def _workers(self, cores: Sequence[Core]) -> list[list[int]]:
        n = max(1, len(cores) // self.cpu_per_worker)
        groups = [cores[i * self.cpu_per_worker : (i + 1) * self.cpu_per_worker] for i in range(n)]
        if not self.alternating:
            return [_cpus(group) for group in groups]
        # The two halves of the workers never step at once: a core serves one of each.
        return [[core.cpus[half % len(core.cpus)] for core in group] for half in (0, 1) for group in groups]

    def _async_affinity(self, cores: Sequence[Core], gpus: Sequence[int | None]) -> AttrDict:
        n_optim = max(1, self.cpu_reserved) * self.n_replicas
        optim_gpus = gpus[: self.n_replicas]
        sample_gpus = optim_gpus if self.optim_sample_share_gpu else gpus[self.n_replicas :]
        set_affinity = bool(self.set_affinity)
        optimizer = [
            AttrDict(cpus=_cpus(share), torch_threads=len(share), cuda_idx=gpu, set_affinity=set_affinity)
            for share, gpu in zip(_shares(cores[:n_optim], self.n_replicas), optim_gpus, strict=True)
        ]
        samplers = replace(self, cpu_reserved=0)._parts(cores[n_optim:], sample_gpus or [None])
        return AttrDict(
            all_cpus=_cpus(cores), optimizer=optimizer, sampler=_one_or_all(samplers), set_affinity=set_affinity
        )


def _one_or_all(parts: list[AttrDict]) -> AnyAffinity:
    return parts[0] if len(parts) == 1 else parts


def _cpus(cores: Sequence[Core]) -> list[int]:
    """Return the first hyper-threads of all cores, then the others."""
    return [core.cpus[0] for core in cores] + [*chain.from_iterable(core.cpus[1:] for core in cores)]


def _shares(cores: Sequence[Core], n: int) -> list[Sequence[Core]]:
    return [shared_cores(cores, i, n) for i in range(n)]


def encode_affinity(n_cpu_core: int = 1, n_gpu: int = 0, **numbers: int | None) -> str:
    """Return the code of a machine's run slots, from numbers that are those of `Slots`; None is the default.

    Raises:
        ValueError: if runs cannot share the machine so.
        TypeError: if `Slots` has no such number.
    """
    given = {name: int(x) if isinstance(x, bool) else x for name, x in numbers.items() if x is not None}
    return Slots(n_cpu_core=n_cpu_core, n_gpu=n_gpu, **given).code


def make_affinity(run_slot: int = 0, **numbers: int) -> AnyAffinity:
    """Return the affinity of one run, as a runner takes it; the numbers are those of `encode_affinity`."""
    return affinity_from_code(encode_affinity(**numbers, run_slot=run_slot))


def affinity_from_code(run_slot_affinity_code: str) -> AnyAffinity:
    """Return the affinity of a run, from the code that `run_experiments` hands to its script.

    Returns:
        A dictionary for a runner; for several GPUs a list of them; for AsyncRl one with optimizer and sampler.

    Raises:
        ValueError: if the code cannot be read, or names no run slot.
    """
    return Slots.from_code(run_slot_affinity_code).affinity()


def quick_affinity_code(n_parallel: int | None = None, use_gpu: bool = True, contexts_per_gpu: int = 1) -> str:
    """Return a code for this machine: runs share the cores and GPUs that this process may use.

    Args:
        n_parallel: runs side by side; None for one on each GPU, or `contexts_per_gpu`, or without GPUs one on each
            core.
        use_gpu: whether runs use the GPUs.
        contexts_per_gpu: runs that share a GPU.
    """
    machine = Machine.of_this_process()
    n_gpu = len(machine.devices) if use_gpu else 0
    n = n_parallel or (n_gpu * contexts_per_gpu or len(machine.cores))
    return Slots(
        n_parallel=n,
        n_gpu=n_gpu,
        contexts_per_gpu=contexts_per_gpu if n_gpu else 1,
        set_affinity=int(machine.has_own_cores),
    ).code


def job_affinity_code() -> str:
    """Return the code of a run that has all cores and GPUs which a job system has given to this job."""
    n_gpu = len(visible_gpus())
    return prepend_run_slot(0, Slots(n_parallel=1, n_gpu=n_gpu, gpu_per_run=max(1, n_gpu)).code)


def get_n_run_slots(affinity_code: str) -> int:
    """Return how many runs go on side by side."""
    return Slots.from_code(affinity_code).n_slots


def prepend_run_slot(run_slot: int, affinity_code: str) -> str:
    """Return the code of one slot."""
    return f"{run_slot}slt_{affinity_code}"


def remove_run_slot(run_slot_affinity_code: str) -> tuple[int, str]:
    """Return the slot of a code, and the code of all slots."""
    slots = Slots.from_code(run_slot_affinity_code)
    return slots.run_slot, replace(slots, run_slot=-1).code
