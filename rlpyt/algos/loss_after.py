"""Loss of the rows of an update once more, after the update, without a trace in the run."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlpyt.core import Agent


class LossAfter:
    """Second computation of a loss, with the random numbers of the first; all streams then stand where they stood.

    Made before the first computation.

    Args:
        agent: whose networks the loss is of.
        generator: of the algorithm.
    """

    def __init__(self, agent: Agent, generator: torch.Generator) -> None:
        self._agent, self._generator = agent, generator
        self._rewind = self._rewinder()

    def _rewinder(self) -> Callable[[], None]:
        """Return a function that lets all streams that a loss may draw from stand where they stand now."""
        device = self._agent.device
        of_networks, own, of_cpu = self._agent.networks.rewinder(), self._generator.get_state(), torch.get_rng_state()
        of_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

        def rewind() -> None:
            of_networks()
            self._generator.set_state(own)
            torch.set_rng_state(of_cpu)
            if of_device is not None:
                torch.cuda.set_rng_state(of_device, device)

        return rewind

    @torch.no_grad()
    def __call__(self, loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return the loss that a function computes."""
        return_to_now = self._rewinder()
        self._rewind()
        try:
            return loss()
        finally:
            return_to_now()
