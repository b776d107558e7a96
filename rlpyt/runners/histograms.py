"""Hook that writes histograms for TensorBoard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlpyt.logging.sinks import Row, optional_package
from rlpyt.runners.hooked import Hook, HookedRun
from rlpyt.settings import whole
from rlpyt.types import StateDict

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@dataclass(eq=False)
class Histograms(Hook):
    """Hook that writes histograms for TensorBoard at each row of the log, into the folder `histograms` of the run.

    Raises:
        ImportError: if tensorboard is not installed.
    """

    parameters: bool = True
    """Whether of every parameter of the agent's networks."""
    gradients: bool = True
    """Whether of its gradient in the last update, where the optimiser has left it."""
    actions: bool = True
    """Whether of the actions of the newest batch."""
    every_n_rows: int = 1
    """Rows of the log from one set of histograms to the next."""

    def __post_init__(self) -> None:
        """Refuse a number of rows that cannot be meant, and a machine without tensorboard."""
        super().__post_init__()
        self._every = whole(self, "every_n_rows")
        self._package = optional_package("torch.utils.tensorboard", "Histograms", "tensorboard")
        self._writer: SummaryWriter | None = None
        self._n_rows = 0

    def on_start(self, runner: HookedRun) -> None:
        """Open the event file; what was written of steps after a checkpoint is purged."""
        if runner.logger.directory is None:
            return
        purge_step = runner.first_itr * runner.steps_per_itr + 1 if runner.first_itr else None
        self._writer = self._package.SummaryWriter(str(runner.logger.directory / "histograms"), purge_step=purge_step)
        self._n_rows = 0

    def on_row(self, runner: HookedRun, row: Row, step: int) -> None:
        """Write the histograms."""
        self._n_rows += 1
        if self._writer is None or (self._n_rows - 1) % self._every:
            return
        for i, module in enumerate(runner.agent.networks.modules()):
            for name, parameter in module.named_parameters():
                place = f"{type(module).__name__}_{i}/{name}"
                if self.parameters:
                    self._add(f"Parameters/{place}", parameter, step)
                if self.gradients and parameter.grad is not None:
                    self._add(f"Gradients/{place}", parameter.grad, step)
        if self.actions and step:
            batches = runner.sampler.batches
            samples = batches[(step // runner.steps_per_itr - 1) % len(batches)]
            actions = np.asarray(samples.agent.action)[np.asarray(samples.env.valid)]
            for i, column in enumerate(actions.reshape(len(actions), -1).T):
                self._writer.add_histogram(f"Actions/{i}", column, step)
        self._writer.flush()

    def _add(self, tag: str, values: torch.Tensor, step: int) -> None:
        if self._writer is not None and values.isfinite().all():
            self._writer.add_histogram(tag, values.detach().float().cpu(), step)

    def on_end(self, runner: HookedRun, status: str) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def state_dict(self) -> StateDict:
        """Return how many rows there were, so that a run that goes on keeps the distance."""
        return {"n_rows": self._n_rows}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""
        self._n_rows = state_dict.get("n_rows", 0)  # older checkpoints have none
