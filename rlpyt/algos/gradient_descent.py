"""One step down a loss: gradient, clipping, optimiser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch


class GradientDescent:
    """Takes the gradient steps of some parameters; whatever else a loss depends on gets no gradient.

    Args:
        parameters: to be changed.
        optimizer: over them.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        self.parameters, self.optimizer = list(parameters), optimizer

    def __call__(self, loss: torch.Tensor, learning_rate: float, clip_grad_norm: float) -> torch.Tensor:
        """Take one step down a scalar loss; return the gradient's norm before clipping, on the device."""
        for parameter in self.parameters:
            parameter.grad = None
        # The gradient of an action value in its own weights is no part of a policy's step, and a third of its cost.
        loss.backward(inputs=[parameter for parameter in self.parameters if parameter.requires_grad])
        grads = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        grad_norm = _clip_norm(grads, clip_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        return grad_norm

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        # torch takes over the tensors themselves: two algorithms loaded from one state would share their moments.
        self.optimizer.load_state_dict(deepcopy(dict(state_dict)))


def _clip_norm(grads: list[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Scale gradients, in place, to a norm of at most max_norm; return the norm that they had.

    As `torch.nn.utils.clip_grad_norm_`, which takes twice as long to group the tensors by device first.
    """
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    if max_norm < math.inf:
        torch._foreach_mul_(grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
