"""Losses compiled by torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

import torch

from rlpyt.algos.gradient_descent import GradientDescent
from rlpyt.core import Agent, example_inputs
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.settings import Hyper

Loss = Callable[..., Buffer]
LossT = TypeVar("LossT", bound=Loss)
_TORCH = torch.__path__[0]


class CompiledLosses:
    """Losses of an algorithm as it calls them: compiled where the run asks for it, else as they are.

    Args:
        who: name of the algorithm, for messages.
        names: what it calls through this object.
        moving: returns the names of settings that follow a schedule.
        agent: of the run, on its device.
        descents: all optimisers of the algorithm by name, once they are built.

    Raises:
        ValueError: if the run is to compile, and there is no loss, or torch cannot follow the rows of the agent.
    """

    def __init__(
        self,
        who: str,
        names: Sequence[str],
        moving: Callable[[], Sequence[str]],
        agent: Agent,
        descents: Mapping[str, GradientDescent],
    ) -> None:
        self._on, self._device = agent.compute.compile, agent.device
        self._moving, self._descents = moving, descents
        self._compiled: dict[Loss, CompiledLoss] = {}
        reason = why_not_compilable(bool(agent.recurrent), example_inputs(agent.env_spaces)[0]) if self._on else ""
        if self._on and (reason or not names):
            raise ValueError(
                f"{who}: the settings have compile=True, and {reason or 'it has no loss that can be compiled'}; "
                "expected compile=False."
            )

    def __call__(self, loss: LossT, by: str) -> LossT:
        """Return a loss to call.

        Args:
            loss: a method or a function; one of its arguments is the hyper-parameters. It draws no random numbers.
            by: the optimiser that descends it.
        """
        if not self._on:
            return loss
        if loss not in self._compiled:
            self._compiled[loss] = CompiledLoss(loss, self._moving, self._device, self._descents, by)
        return cast(LossT, self._compiled[loss])

    def __getstate__(self) -> dict[str, object]:
        # A copy of the algorithm compiles its own; in another process it computes no loss.
        return {**vars(self), "_compiled": {}}


class CompiledLoss:
    """Loss compiled by `torch.compile`.

    Settings that follow a schedule are handed in as tensors: as numbers they would be constants of the compiled code,
    which would be compiled again whenever they change. A loss that torch cannot compile as a whole is compiled in
    parts.

    Args:
        plain: the loss. One of its arguments is the hyper-parameters.
        moving: returns the names of settings that follow a schedule.
        device: of the networks.
        descents: all optimisers of the algorithm by name.
        by: the one that descends the loss. What only others update is constant in the compiled code, which would
            compute its gradients, too. Where there is no such optimiser nothing is constant.
    """

    def __init__(
        self,
        plain: Loss,
        moving: Callable[[], Sequence[str]],
        device: torch.device,
        descents: Mapping[str, GradientDescent],
        by: str,
    ) -> None:
        self.plain, self._compiled = plain, torch.compile(plain)
        self._moving, self._device, self._descents, self._by = moving, device, descents, by
        self._hyper: Hyper | None = None

    def __call__(self, *args: Buffer, **named: Buffer) -> Buffer:
        """Return what the loss returns.

        Raises:
            ValueError: if torch's own folder keeps the linker from finding it.
        """
        inputs = [self._moved(x) for x in args]
        named_inputs = {name: self._moved(x) for name, x in named.items()}
        constant = self._constant()
        try:
            for parameter in constant:
                parameter.requires_grad_(False)
            return self._compiled(*inputs, **named_inputs)
        except RuntimeError as error:  # torch's types of errors are in its compiler, which takes long to import
            if " " in _TORCH and "cannot find -l" in str(error):
                raise ValueError(
                    f"Compiling {self.plain.__qualname__}: torch is installed in {_TORCH}, and does not quote the "
                    "blank in that path for the linker; expected a folder without one. Move the environment, or leave "
                    "compile out."
                ) from None
            raise
        finally:
            for parameter in constant:
                parameter.requires_grad_(True)

    def _constant(self) -> list[torch.nn.Parameter]:
        """Return the weights in training that the optimiser of the loss does not update, and another one does."""
        own = self._descents.get(self._by)
        if own is None:
            return []
        updated = {id(x) for x in own.parameters}
        others = [x for descent in self._descents.values() if descent is not own for x in descent.parameters]
        return [x for x in others if x.requires_grad and id(x) not in updated]

    def _moved(self, x: Buffer) -> Buffer:
        """Return hyper-parameters with tensors in the place of moving numbers; anything else as it is."""
        if not isinstance(x, Hyper):
            return x
        if x is not self._hyper:
            self._hyper, self._tensors = x, self._with_tensors(x)
        return self._tensors

    def _with_tensors(self, hyper: Hyper) -> Hyper:
        values = vars(hyper)
        moving = {name: values[name] for name in self._moving() if values[name] is not None}
        tensors = {name: torch.tensor(float(x)).to(self._device, non_blocking=True) for name, x in moving.items()}
        return Hyper(**{**values, **tensors})


def why_not_compilable(recurrent: bool, observation: Buffer) -> str:
    """Return why torch cannot follow the rows of an agent; an empty string where it can."""
    if recurrent:
        return "its agent is recurrent, whose unroll is cut where episodes start"
    hidden = list(_hidden_fields(observation))
    return f"the observation has the keys {hidden}, which are no names of attributes" if hidden else ""


def _hidden_fields(buffer: Buffer) -> Iterator[str]:
    """Yield the names by which torch would ask for a field and not find it."""
    for part in buffer if isinstance(buffer, tuple) else ():
        yield from _hidden_fields(part)
    if isinstance(buffer, NamedArrayTuple):
        yield from (name for name, x in buffer.items() if getattr(buffer, name, None) is not x)
