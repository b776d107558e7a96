"""Loss of the rows of an update once more, after the update, without a trace in the run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import torch

from rlpyt.algos.global_rows import GlobalRows
from rlpyt.core import Agent

_LOSSES = logging.getLogger("rlpyt.loss")


class Learner(Protocol):
    """What is asked of an algorithm."""

    generator: torch.Generator
    global_rows: GlobalRows
    log_loss_after: bool
    update_counter: int

    @property
    def agent(self) -> Agent:
        """Whose networks have the streams and buffers."""


class LossAfter:
    """Second computation of a loss, with the random numbers of the first; made before the first one.

    It computes where `log_loss_after` asks for it, or the level DEBUG of the logger "rlpyt.loss" of Python; not the
    latter among replicas, where it may be another one in each, and a loss may wait for the others.
    """

    def __init__(self, algo: Learner) -> None:
        self._algo = algo
        # Where a second loss is asked for, `CompiledUpdate` compiles nothing; and torch cannot follow the question.
        self.is_on = not torch.compiler.is_compiling() and is_asked_for(algo)
        self._rewind = self._rewinder() if self.is_on else None

    def _rewinder(self) -> Callable[[], None]:
        """Return an undo function for the random streams that a loss may draw from, and for buffers of the networks."""
        agent, generator = self._algo.agent, self._algo.generator
        device = agent.device
        of_networks, own, of_cpu = agent.networks.rewinder(), generator.get_state(), torch.get_rng_state()
        of_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

        def rewind() -> None:
            of_networks()
            generator.set_state(own)
            torch.set_rng_state(of_cpu)
            if of_device is not None:
                torch.cuda.set_rng_state(of_device, device)

        return rewind

    @torch.no_grad()
    def metrics(self, before: torch.Tensor, loss: Callable[[], torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the metrics `lossBefore` and `lossAfter` of an update, where `log_loss_after` asks for them."""
        if self._rewind is None:
            return {}
        return_to_now = self._rewinder()
        self._rewind()
        try:
            after = loss()
        finally:
            return_to_now()
        before = before.detach()
        if _is_logged(self._algo):
            name, n = type(self._algo).__name__, self._algo.update_counter
            _LOSSES.debug("%s: update %d, loss %.6g before it and %.6g after", name, n, before.item(), after.item())
        return {"lossBefore": before, "lossAfter": after} if self._algo.log_loss_after else {}


def is_asked_for(algo: Learner) -> bool:
    """Return whether the losses of updates are computed a second time."""
    return algo.log_loss_after or _is_logged(algo)


def _is_logged(algo: Learner) -> bool:
    return algo.global_rows.alone and _LOSSES.isEnabledFor(logging.DEBUG)
