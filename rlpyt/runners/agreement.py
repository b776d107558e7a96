"""Agreement of the replicas of a run: what they decide, gather and compare, and how they stop together."""

from __future__ import annotations

import re
import signal
import traceback
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

import torch

from rlpyt.core import Agent, Algorithm
from rlpyt.logging import current_logger
from rlpyt.utils.process_group import ReplicaError
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.stops import place_of

T = TypeVar("T")
_OF_A_MACHINE = re.compile(
    r"(affinity|settings\.device|algo\.replay_folder"
    r"|sampler\.(n_workers|acting_threads|env_kwargs|eval_env_kwargs|eval_env_overrides))\b"
)


class TrainingDiverged(RuntimeError):
    """Error of a run whose metrics or weights are not finite; it was stopped before its snapshot was overwritten."""


class ReplicasDiverged(RuntimeError):
    """Error of a run whose replicas have other weights than each other; its snapshot was not overwritten."""


class ReplicaStopped(ReplicaError):
    """Error of the replicas that could go on, where another one has raised; the message has its rank and traceback."""


class _Reason(NamedTuple):
    """Reason of one replica to stop."""

    text: str
    signum: int = 0
    """Of the signal that it was sent, 0 for none."""
    diverged: bool = False
    traceback: str = ""


class Agreement:
    """Decisions that the replicas of a run take together.

    All replicas make the same calls in the same order. Every call begins with a flag of each replica. A replica that
    must stop sets its flag instead of making the call that is due, and all stop there. A replica that is alone stops at
    once, and all it gathers is its own.

    While all replicas are inside of `together`, they talk to each other without these flags. Of an exception there the
    others learn when the group of processes breaks.
    """

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self._is_alone = replicas.world_size == 1
        self._step = 0
        self._signum = 0
        self._others_listen = True

    # ---- stops ----

    def defer(self, signum: int) -> bool:
        """Note a signal, for which all replicas stop together; False if this replica must stop at once."""
        if self._is_alone or self._signum:
            return False
        self._signum = signum
        return True

    @contextmanager
    def stopping_together(self) -> Iterator[None]:
        """Let an exception that ends the block end it in all replicas.

        A RuntimeError takes the place of a `SystemExit` that would tell the caller that the run is complete.
        """
        try:
            yield
        except (Exception, SystemExit) as raised:
            error: Exception | SystemExit = raised
            if isinstance(raised, SystemExit) and raised.code in (None, 0):
                error = RuntimeError(
                    f"The run is not complete, and {place_of(raised) or 'its code'} has called exit(), whose exit "
                    "code 0 would say that it is. Raise an exception there; a hook stops a run in order by "
                    "runner.request_stop(reason)."
                )
            if self._others_listen and not self._is_alone:
                with suppress(Exception):  # the group may have broken; the first error counts
                    self._exchange_flags(error)
            if error is raised:
                raise
            raise error from raised

    @contextmanager
    def together(self, step: int | None = None) -> Iterator[None]:
        """Hold what parts of all replicas do together after `step` steps, if all can go on; None is those of before."""
        self._step = self._step if step is None else step
        self.agree()
        self._others_listen = False
        yield
        self._others_listen = True

    def agree(self) -> None:
        """Return if all replicas can go on.

        Else raise `TrainingDiverged` if another replica has, `ReplicaStopped` for its other errors, and SystemExit for
        a signal.
        """
        if self._is_alone:
            return
        reasons = self._exchange_flags()
        if not reasons:
            return
        where = f"of {self.replicas.world_size}, at step {self._step:,}"
        text = "\n".join(f"Replica {rank} {where}: {reason.text}" for rank, reason in reasons.items())
        if any(reason.diverged for reason in reasons.values()):
            raise TrainingDiverged(text)
        raised = [f"\n\nThe traceback of replica {rank}:\n{r.traceback}" for rank, r in reasons.items() if r.traceback]
        if raised:
            rank = next(rank for rank, reason in reasons.items() if reason.traceback)
            raise ReplicaStopped(f"{text}\nAll replicas stop.{''.join(raised)}", rank)
        current_logger().notice(f"{text} All replicas stop.")
        raise SystemExit(128 + max(reason.signum for reason in reasons.values()))

    def _exchange_flags(self, error: BaseException | None = None) -> dict[int, _Reason]:
        """Return the reasons of the replicas that must stop, by rank."""
        self._others_listen = False
        flags = torch.zeros(self.replicas.world_size, dtype=torch.int64)
        flags[self.replicas.rank] = error is not None or self._signum != 0
        if not self.replicas.largest(flags).any():
            self._others_listen = True
            return {}
        own = None
        if error is not None:
            trace = "".join(traceback.format_exception(error))
            own = _Reason(f"{type(error).__name__}: {error}", 0, isinstance(error, TrainingDiverged), trace)
        elif self._signum:
            own = _Reason(f"was sent {signal.Signals(self._signum).name}.", self._signum)
        return {rank: reason for rank, reason in enumerate(self.replicas.gather(own)) if reason is not None}

    # ---- what all have ----

    def gather(self, item: T) -> list[T]:
        """Return the items of all replicas, in the order of their ranks."""
        with self.together():
            return self.replicas.gather(item)

    def any(self, *flags: bool) -> list[bool]:
        """Return of each flag whether it is set in any replica."""
        if self._is_alone:
            return list(flags)
        with self.together():
            return [bool(x) for x in self.replicas.largest(torch.tensor(flags, dtype=torch.int64))]

    def broadcast(self, item: T) -> T:
        """Return the item of replica 0."""
        with self.together():
            return self.replicas.broadcast(item)

    def check_settings(self, settings: Mapping[str, object]) -> None:
        """Raise ValueError if replicas have other settings, as scripts that a launcher starts may have.

        Cores, devices, folders and the arguments of environments may be those of a machine.
        """
        every = self.gather({name: x for name, x in settings.items() if not _OF_A_MACHINE.match(name)})
        for rank, others in enumerate(every):
            names = [name for name in {**every[0], **others} if others.get(name) != every[0].get(name)]
            if names:
                text = ", ".join(f"{x} is {every[0].get(x)!r:.100} and {others.get(x)!r:.100}" for x in names[:5])
                raise ValueError(
                    f"Replicas 0 and {rank} were given different settings: {text}; expected the same in all. Each "
                    "replica has random streams, environments and a share of the work of its own without that."
                )

    # ---- weights ----

    def share_weights(self, agent: Agent, algo: Algorithm[Agent]) -> None:
        """Let all replicas begin with the weights, statistics and optimiser states of replica 0.

        Replicas with other networks raise ValueError.
        """
        if self._is_alone:
            return
        tensors = learned_tensors(agent, algo)
        every = self.gather({name: f"{tuple(x.shape)} {x.dtype}" for name, x in tensors.items()})
        for rank, others in enumerate(every):
            for name in {**every[0], **others}:
                if others.get(name) != every[0].get(name):
                    raise ValueError(
                        f"Replicas 0 and {rank} have different networks: {name} is {every[0].get(name)} and "
                        f"{others.get(name)}; expected the same in all. The environments of all must have the same "
                        "spaces, and a model must be built from nothing else."
                    )
        with self.together():
            self.replicas.broadcast_tensors(list(tensors.values()))

    def check_weights(self, agent: Agent, algo: Algorithm[Agent]) -> None:
        """Raise `ReplicasDiverged` if weights, statistics or optimiser states of replicas differ by one bit."""
        if self._is_alone:
            return
        hashes = self.gather({name: bit_hash(x) for name, x in learned_tensors(agent, algo).items()})
        others = [rank for rank, own in enumerate(hashes) if own != hashes[0]]
        if not others:
            return
        alike = [rank for rank in range(len(hashes)) if rank not in others]
        names = [x for x in dict.fromkeys(x for own in hashes for x in own) if len({own.get(x) for own in hashes}) > 1]
        raise ReplicasDiverged(
            f"Step {self._step:,}: replica {_listed(others)} has other weights than replica {_listed(alike)}. They "
            f"differ in {len(names)} tensors: {_listed(names[:3])}{', ...' if len(names) > 3 else ''}; expected the "
            "same bits in all. Whatever changes weights must be the same in all replicas: take steps by gradient_step "
            "or self.descents.step, not by optimizer.step(), and use no random numbers or data of one replica beside "
            "them. Different processors round differently, too. Snapshots, if any, are from before."
        )


def learned_tensors(agent: Agent, algo: Algorithm[Agent]) -> dict[str, torch.Tensor]:
    """Return all tensors that replicas have alike, by name: networks, targets, statistics and optimiser states."""
    tensors: dict[str, torch.Tensor] = {}
    for i, module in enumerate(agent.networks.modules()):
        tensors |= _tensors_in(module.state_dict(), f"{type(module).__name__} {i}")
    descents = algo.descents if hasattr(algo, "descents") else {}
    optimised = [x for descent in descents.values() for x in descent.parameters]
    tensors |= {f"optimised parameter {i}": x.detach() for i, x in enumerate(optimised)}
    # The same memory under two names is listed once.
    first = {(x.data_ptr(), x.shape): name for name, x in reversed(tensors.items())}
    tensors = {name: x for name, x in tensors.items() if not x.numel() or first[x.data_ptr(), x.shape] == name}
    return tensors | _tensors_in(algo.optim_state_dict(), "optimiser")


def _tensors_in(state: object, name: str) -> dict[str, torch.Tensor]:
    """Return the tensors of nested mappings and lists, by the names on the way to them."""
    if isinstance(state, torch.Tensor):
        return {name: state}
    items: list[tuple[object, object]] = []
    if isinstance(state, Mapping):
        items = list(state.items())
    elif isinstance(state, list | tuple):
        items = list(enumerate(state))
    return {key: x for child, value in items for key, x in _tensors_in(value, f"{name}.{child}").items()}


def bit_hash(tensor: torch.Tensor) -> int:
    """Return a checksum of the bits of a tensor; 10M float32 take 7 ms."""
    x = tensor.detach().cpu().contiguous()
    # One dimension, as a scalar has no bytes to view; and numpy knows no bfloat16.
    return zlib.crc32(x.reshape(-1).view(torch.uint8).numpy().data)


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
