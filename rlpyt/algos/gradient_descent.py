"""One step down a loss: gradient, clipping, optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch

from rlpyt.types import StateDict
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.torch_optim import step, without_compiler


class GradientDescent:
    """Gradient steps of an optimiser's parameters. Nothing else that a loss depends on gets a gradient.

    A parameter group keeps its ratio to the learning rate of the start: a group with half the rate always has half of
    it, and a group with rate 0 stays at 0. A group may be given its ratio as `lr_scale` instead. A rate that is set in
    a group between two steps, by hand or by a scheduler of torch, is refused.

    Args:
        optimizer: over the parameters to be changed; another one may be set at any time.
        learning_rate: at the start of the run, from 0. Where it is 0, every group must have it.
        replicas: whose gradients are averaged before they are clipped.
        weighted: returns a loss of this replica as it counts among those of the others; None where all count the same.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        learning_rate: float,
        replicas: Replicas | None = None,
        weighted: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.optimizer, self.learning_rate = optimizer, learning_rate
        self._replicas, self._weighted = replicas or Replicas(), weighted
        self._differentiated: list[torch.nn.Parameter] = []

    def __call__(self, loss: torch.Tensor, learning_rate: float, clip_grad_norm: float) -> torch.Tensor:
        """Take one step down a scalar loss; return the gradient's norm before clipping, on the device.

        Raises:
            ValueError: if the learning rate of a group was set since the last step.
        """
        self._check_rates()
        parameters = self.parameters
        for parameter in parameters:
            parameter.grad = None
        # The gradient of an action value in its own weights is no part of a policy's step, and a third of its cost.
        differentiated = [parameter for parameter in parameters if parameter.requires_grad]
        if differentiated:  # all may be frozen for a while
            self._backward_pass(differentiated)(loss if self._weighted is None else self._weighted(loss))
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        grad_norm = _clip_norm(grads, clip_grad_norm) if grads else torch.zeros_like(loss.detach())
        for group, scale in zip(self.optimizer.param_groups, self._lr_scales(), strict=True):
            group["lr"] = group["lr_given"] = scale * learning_rate
        step(self.optimizer)
        return grad_norm

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Parameters of all groups of the optimiser."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _backward_pass(self, differentiated: list[torch.nn.Parameter]) -> Callable[[torch.Tensor], None]:
        """Return the backward pass over parameters, made again where these are others than before."""
        if list(map(id, differentiated)) != list(map(id, self._differentiated)):
            self._differentiated = differentiated
            self._backward = self._replicas.backward_pass(differentiated)
        return self._backward

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a copy, without the backward pass: that is over the parameters of this one."""
        return {name: value for name, value in vars(self).items() if name != "_backward"} | {"_differentiated": []}

    def _check_rates(self) -> None:
        """Refuse a group whose learning rate is not that of the last step: the next one would set it in silence."""
        for group in self.optimizer.param_groups:
            if group["lr"] != group.get("lr_given", group["lr"]):
                raise ValueError(
                    f"Taking a gradient step: the lr of a parameter group was set to {float(group['lr']):g}, and every "
                    f"step sets it to {group['lr_scale']:g} of the algorithm's learning rate; expected it as it was. "
                    "Set the algorithm's learning_rate, to a schedule too, or the group's lr_scale."
                )

    def _lr_scales(self) -> list[float]:
        """Return the ratio of each group's learning rate to the learning rate of the start.

        It is kept in the group, beside the rate: so it goes with the optimiser, and a group may be added later.

        Raises:
            ValueError: if a group has a learning rate and the start has none.
        """
        for group in self.optimizer.param_groups:
            if "lr_scale" not in group:
                lr, base = float(group["lr"]), self.learning_rate
                if not base and lr:
                    raise ValueError(
                        f"Taking a gradient step: a parameter group has lr {lr:g}, and the algorithm's learning rate "
                        "is 0 at the start of the run, so that there is no ratio to keep; expected 0 of both. Give the "
                        "group its ratio (lr_scale=0.1, say), or let the schedule begin above 0."
                    )
                group["lr_scale"] = 1.0 if lr == base else lr / base
        return [group["lr_scale"] for group in self.optimizer.param_groups]

    def state_dict(self) -> StateDict:
        """Return the optimiser's state."""
        with without_compiler():
            return self.optimizer.state_dict()

    @torch.no_grad()
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over the result of `state_dict`."""
        scales = self._lr_scales()
        # torch takes over the tensors themselves: two algorithms loaded from one state would share their moments.
        with without_compiler():
            self.optimizer.load_state_dict(deepcopy(dict(state_dict)))
        # It takes over the settings of the groups too; their learning rates follow those given to this algorithm.
        for group, scale in zip(self.optimizer.param_groups, scales, strict=True):
            group["lr_scale"] = scale
        # Fused optimisers read memory in its order, which is another one if the state comes from channels-last weights.
        for parameter, state in self.optimizer.state.items():
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                    state[name] = torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def _clip_norm(grads: list[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Scale gradients, in place, to a norm of at most max_norm; return the norm that they had.

    As `torch.nn.utils.clip_grad_norm_`, which takes twice as long to group the tensors by device first.
    """
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    if max_norm < math.inf:
        torch._foreach_mul_(grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
