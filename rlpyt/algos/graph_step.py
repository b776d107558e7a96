"""A gradient step that torch.compile captures as part of a graph, with the state of torch's own optimisers."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import torch
from torch.optim.adam import adam

from rlpyt.types import Kwargs
from rlpyt.utils.replicas import Replicas

_numbers = count()  # of the operators: each has its own name


class NotInGraph(Exception):
    """torch cannot capture a step as part of a graph; the message says why."""


class _Group(NamedTuple):
    """Parameters of a group of Adam or AdamW with their state, which stays the optimiser's."""

    lr_scale: float
    settings: Kwargs
    parameters: list[torch.nn.Parameter]
    moments: list[torch.Tensor]
    squares: list[torch.Tensor]
    largest_squares: list[torch.Tensor]
    """Of AMSGrad; empty without it."""
    steps: list[torch.Tensor]


class GraphStep:
    """One step of Adam or AdamW down a loss inside a graph.

    torch's own optimisers cannot be captured together with the gradients that they descend. So the graph calls torch's
    function of the step on the tensors that the optimiser holds. These are made here if it has taken no step yet.

    Args:
        optimizer: an Adam or AdamW.
        lr_scales: ratios of its groups' learning rates to that of the algorithm.
        replicas: whose gradients are averaged before they are clipped.

    Raises:
        NotInGraph: if it is of another class.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, lr_scales: list[float], replicas: Replicas) -> None:
        if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
            raise NotInGraph(f"only steps of Adam and AdamW can be, and one of its is a {type(optimizer).__name__}")
        self._mean = None if replicas.world_size == 1 else _mean_of(replicas)
        self._groups = [_group(optimizer, *pair) for pair in zip(optimizer.param_groups, lr_scales, strict=True)]

    def is_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether these are the tensors of an optimiser, which may have loaded others since."""
        pairs = [
            (optimizer.state.get(x, {}).get("exp_avg"), moment)
            for group in self._groups
            for x, moment in zip(group.parameters, group.moments, strict=True)
        ]
        n_trained = sum(x.requires_grad for group in optimizer.param_groups for x in group["params"])
        return n_trained == len(pairs) and all(held is moment for held, moment in pairs)

    def step(self, loss: torch.Tensor, learning_rate: float | torch.Tensor, clip_grad_norm: float) -> torch.Tensor:
        """Take the step; return the gradient's norm before clipping."""
        parameters = [x for group in self._groups for x in group.parameters]
        grads = list(torch.autograd.grad(loss, parameters))
        if self._mean is not None:
            grads = self._mean(grads)
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        if clip_grad_norm != math.inf:
            grads = list(torch._foreach_mul(grads, (clip_grad_norm / (norm + 1e-6)).clamp(max=1.0)))
        with torch.no_grad():
            for group in self._groups:
                own, grads = grads[: len(group.parameters)], grads[len(group.parameters) :]
                adam(
                    list(group.parameters), own, group.moments, group.squares, group.largest_squares, group.steps,
                    lr=group.lr_scale * learning_rate, foreach=True, capturable=True, **group.settings,
                )  # fmt: skip
        return norm


def _mean_of(replicas: Replicas) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """Return an operator for graphs, which averages gradients over the replicas."""
    name = f"rlpyt::mean_of_replicas_{next(_numbers)}"

    def mean(grads: list[torch.Tensor]) -> list[torch.Tensor]:
        flat = replicas.total(torch.cat([grad.flatten() for grad in grads])) / replicas.world_size
        pieces = flat.split([grad.numel() for grad in grads])
        # In the gradient's own order of memory, of which the graph has been told.
        return [torch.empty_like(x).copy_(piece.view(x.shape)) for x, piece in zip(grads, pieces, strict=True)]

    # torch reads the types of the arguments from the function, and not from texts.
    mean.__annotations__ = {"grads": list[torch.Tensor], "return": list[torch.Tensor]}
    operator = torch.library.custom_op(name, mean, mutates_args=())
    operator.register_fake(lambda grads: [torch.empty_like(grad) for grad in grads])
    return operator


def _group(optimizer: torch.optim.Optimizer, group: dict[str, Any], lr_scale: float) -> _Group:
    beta1, beta2 = group["betas"]
    settings = {name: group[name] for name in ("amsgrad", "weight_decay", "eps", "maximize")}
    settings |= dict(beta1=beta1, beta2=beta2, has_complex=False)
    settings["decoupled_weight_decay"] = group.get("decoupled_weight_decay", False)
    parameters = [x for x in group["params"] if x.requires_grad]
    for x in parameters:
        if not optimizer.state[x]:
            on_device = group.get("fused") or group.get("capturable")
            step = torch.zeros((), dtype=torch.float32, device=x.device if on_device else "cpu")
            names = "exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ())
            made = {name: torch.zeros_like(x, memory_format=torch.preserve_format).detach() for name in names}
            optimizer.state[x] = {"step": step, **made}
    states = [optimizer.state[x] for x in parameters]
    moments, squares, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
    largest = [state["max_exp_avg_sq"] for state in states] if group["amsgrad"] else []
    return _Group(lr_scale, settings, parameters, moments, squares, largest, steps)
