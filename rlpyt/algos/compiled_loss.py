"""Losses compiled by torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar, cast

import torch

from rlpyt.core import AgentT, Algorithm, example_inputs
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.settings import Hyper, Scheduled, moving

Loss = Callable[..., Buffer]
LossT = TypeVar("LossT", bound=Loss)
_TORCH = torch.__path__[0]


class CompiledLosses:
    """Losses of an algorithm as it calls them: compiled where the run asks for it, else as they are.

    Settings that follow a schedule are handed in as tensors: as numbers they would be constants of the compiled code,
    which would be compiled again whenever they change. A loss that torch cannot compile as a whole is compiled in
    parts.

    Args:
        algo: with its agent, on the device of the run.
        names: what it calls through this object.

    Raises:
        ValueError: if the run is to compile, and there is no loss, or torch cannot follow the rows of the agent.
    """

    def __init__(self, algo: Algorithm[AgentT], names: Sequence[str]) -> None:
        self._algo, self._on = algo, algo.agent.compute.compile
        self._compiled: dict[Loss, Loss] = {}
        self._hyper: tuple[Hyper, Hyper] | None = None  # as they came, and with tensors in them
        if self._on and (reason := _why_not(algo, names)):
            raise ValueError(
                f"{type(algo).__name__}: the settings have compile=True, and {reason}; expected compile=False."
            )

    def __call__(self, loss: LossT, by: str) -> LossT:
        """Return a loss to call.

        Args:
            loss: a method or a function; one of its arguments is the hyper-parameters. It draws no random numbers.
            by: the optimiser that descends it. What only others update is constant in the compiled code, which would
                compute its gradients, too. Where there is no such optimiser nothing is constant.
        """
        if not self._on:
            return loss
        if loss not in self._compiled:
            self._compiled[loss] = partial(self._call, torch.compile(loss), by)
        return cast(LossT, self._compiled[loss])

    def __getstate__(self) -> dict[str, object]:
        # A copy of the algorithm compiles its own; in another process it computes no loss.
        return {**vars(self), "_compiled": {}, "_hyper": None}

    def _call(self, compiled: Loss, by: str, *args: Buffer, **named: Buffer) -> Buffer:
        inputs = [self._moved(x) for x in args]
        named_inputs = {name: self._moved(x) for name, x in named.items()}
        constant = self._constant(by)
        try:
            for parameter in constant:
                parameter.requires_grad_(False)
            return compiled(*inputs, **named_inputs)
        except RuntimeError as error:  # torch's types of errors are in its compiler, which takes long to import
            if " " in _TORCH and "cannot find -l" in str(error):
                raise ValueError(
                    f"Compiling a loss of {type(self._algo).__name__}: torch is installed in {_TORCH}, and does not "
                    "quote the blank in that path for the linker; expected a folder without one. Move the environment, "
                    "or leave compile out."
                ) from None
            raise
        finally:
            for parameter in constant:
                parameter.requires_grad_(True)

    def _constant(self, by: str) -> list[torch.nn.Parameter]:
        """Return the weights in training that the optimiser of the loss does not update, and another one does."""
        descents = self._algo.descents
        if by not in descents:
            return []
        updated = {id(x) for x in descents[by].parameters}
        others = [x for name, descent in descents.items() if name != by for x in descent.parameters]
        return [x for x in others if x.requires_grad and id(x) not in updated]

    def _moved(self, x: Buffer) -> Buffer:
        """Return hyper-parameters with tensors in the place of moving numbers; anything else as it is."""
        if not isinstance(x, Hyper):
            return x
        if self._hyper is None or x is not self._hyper[0]:
            values, device = vars(x), self._algo.agent.device
            numbers = {n: values[n] for n in moving(cast(Scheduled, self._algo)) if values[n] is not None}
            tensors = {n: torch.tensor(float(v)).to(device, non_blocking=True) for n, v in numbers.items()}
            self._hyper = x, Hyper(**{**values, **tensors})
        return self._hyper[1]


def _why_not(algo: Algorithm[AgentT], names: Sequence[str]) -> str:
    """Return why there is nothing to compile, or torch cannot follow the rows of the agent; an empty string if not."""
    if algo.agent.recurrent:
        return "its agent is recurrent, whose unroll is cut where episodes start"
    if hidden := list(_hidden_fields(example_inputs(algo.agent.env_spaces)[0])):
        return f"the observation has the keys {hidden}, which are no names of attributes"
    return "" if names else "it has no loss that can be compiled"


def _hidden_fields(buffer: Buffer) -> Iterator[str]:
    """Yield the names by which torch would ask for a field and not find it."""
    for part in buffer if isinstance(buffer, tuple) else ():
        yield from _hidden_fields(part)
    if isinstance(buffer, NamedArrayTuple):
        yield from (name for name, x in buffer.items() if getattr(buffer, name, None) is not x)
