"""Losses compiled by torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from rlpyt.settings import Hyper

if TYPE_CHECKING:
    from rlpyt.algos.base import RlAlgorithm


class CompiledLoss:
    """A method of an algorithm, compiled by `torch.compile`, in the place of the plain one.

    Settings that follow a schedule are handed in as tensors: as numbers they would be constants of the compiled code,
    which would be compiled again whenever they change. A method that torch cannot compile as a whole is compiled in
    parts.

    Args:
        algo: of the method, whose class has it.
        name: of the method. Its last argument is the hyper-parameters.
        descent: name of the optimiser that descends it. What the others update is constant in the compiled code, which
            would compute its gradients, too.
    """

    def __init__(self, algo: RlAlgorithm[Any], name: str, descent: str) -> None:
        self._algo, self._name, self._descent = algo, name, descent
        plain: Callable[..., Any] = getattr(type(algo), name)
        self._compiled = torch.compile(plain.__get__(algo))
        self._hyper: Hyper | None = None

    def __call__(self, *args: Any) -> Any:
        """Return what the method returns."""
        *inputs, hyper = args
        if hyper is not self._hyper:
            self._hyper, self._tensors = hyper, self._with_tensors(hyper)
        others = [
            x
            for name, descent in self._algo.descents.items()
            if name != self._descent
            for x in descent.parameters
            if x.requires_grad
        ]
        for parameter in others:
            parameter.requires_grad_(False)
        try:
            return self._compiled(*inputs, self._tensors)
        finally:
            for parameter in others:
                parameter.requires_grad_(True)

    def _with_tensors(self, hyper: Hyper) -> Hyper:
        values, device = vars(hyper), self._algo.agent.device
        moving = {name: values[name] for name in self._algo.moving() if values[name] is not None}
        tensors = {name: torch.tensor(float(x)).to(device, non_blocking=True) for name, x in moving.items()}
        return Hyper(**{**values, **tensors})

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # A copy of the algorithm in another process, which computes no loss, has the plain method.
        return getattr, (self._algo, self._name)
