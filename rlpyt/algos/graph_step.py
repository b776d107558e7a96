"""A gradient step that torch.compile captures as part of a graph, with the state of torch's own optimisers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import NamedTuple

import torch
from torch.optim.adam import adam

from rlpyt.types import Kwargs
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.torch_optim import has_own_step

_numbers = count()  # of the operators: each has its own name


class NotInGraph(Exception):
    """torch cannot capture a step as part of a graph; the message says why."""


class _Row(NamedTuple):
    """A parameter with its state, which stays the optimiser's."""

    parameter: torch.nn.Parameter
    moment: torch.Tensor
    square: torch.Tensor
    step: torch.Tensor
    largest_square: torch.Tensor | None
    """Of AMSGrad; None without it."""


class _Group(NamedTuple):
    """Group of Adam or AdamW with those of its parameters that are trained."""

    lr_scale: float
    settings: Kwargs
    rows: list[_Row]


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
        self._total, self._world_size = None, replicas.world_size
        if replicas.world_size > 1:
            _refuse_reduction(replicas, optimizer)
            self._total = _total_of(replicas)
        self._groups = [_group(optimizer, *pair) for pair in zip(optimizer.param_groups, lr_scales, strict=True)]

    def is_of(self, optimizer: torch.optim.Optimizer, lr_scales: list[float]) -> bool:
        """Return whether these are the tensors and settings of an optimiser: others may have been set since."""
        groups = optimizer.param_groups
        return len(groups) == len(self._groups) and all(
            (own.lr_scale, own.settings) == (lr_scale, _settings(group)) and _is_of(own, optimizer, _trained(group))
            for own, group, lr_scale in zip(self._groups, groups, lr_scales, strict=True)
        )

    def step(
        self, loss: torch.Tensor, learning_rate: float | torch.Tensor, clip_grad_norm: float | torch.Tensor
    ) -> torch.Tensor:
        """Take the step; return the gradient's norm before clipping."""
        rows = [row for group in self._groups for row in group.rows]
        parameters = [row.parameter for row in rows]
        # None where the loss does not reach a parameter, which stays as it is; and all may be frozen for a while.
        grads: list[torch.Tensor | None] = []
        if parameters:
            grads += torch.autograd.grad(loss / self._world_size, parameters, allow_unused=True)
        of_others: list[tuple[_Row, torch.Tensor]] = []
        if self._total is not None and grads:
            grads, of_others = _averaged(self._total, rows, grads)
        known = [grad for grad in grads if grad is not None]
        if not known:
            return torch.zeros_like(loss.detach())
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(known)))
        if isinstance(clip_grad_norm, torch.Tensor) or clip_grad_norm != math.inf:
            known = list(torch._foreach_mul(known, (clip_grad_norm / (norm + 1e-6)).clamp(max=1.0)))
        with torch.no_grad():
            before = [(x, x.clone(), n_reached) for row, n_reached in of_others for x in row if x is not None]
            for group in self._groups:
                own, grads = grads[: len(group.rows)], grads[len(group.rows) :]
                reached = [row for row, grad in zip(group.rows, own, strict=True) if grad is not None]
                scaled, known = known[: len(reached)], known[len(reached) :]
                largest = [row.largest_square for row in reached if row.largest_square is not None]
                adam(
                    [row.parameter for row in reached], scaled, [row.moment for row in reached],
                    [row.square for row in reached], largest, [row.step for row in reached],
                    lr=group.lr_scale * learning_rate, foreach=True, capturable=True, **group.settings,
                )  # fmt: skip
            for x, was, n_reached in before:
                x.copy_(torch.where(n_reached.to(x.device) > 0, x, was))
        return norm


def refuse_hooks(optimizer: torch.optim.Optimizer) -> None:
    """Check that a step of an optimiser calls nothing but torch's own functions.

    Raises:
        NotInGraph: if it does: a graph would leave that out.
    """
    if has_own_step(optimizer):
        raise NotInGraph(f"the step of one of its optimisers, a {type(optimizer).__name__}, has a hook or was set")
    for x in (x for group in optimizer.param_groups for x in group["params"]):
        if x._backward_hooks or x._post_accumulate_grad_hooks:
            raise NotInGraph(f"a parameter of shape {tuple(x.shape)} has a hook on its gradient")


def _refuse_reduction(replicas: Replicas, optimizer: torch.optim.Optimizer) -> None:
    """Refuse gradients that replicas average otherwise than as one tensor, as a graph does."""
    if replicas.reduction != "flat":
        raise NotInGraph(f"the gradients of replicas are averaged by reduction={replicas.reduction!r}, not 'flat'")
    if len({x.dtype for group in optimizer.param_groups for x in _trained(group)}) > 1:
        raise NotInGraph("replicas average parameters of several dtypes one dtype after the other")


def _averaged(
    total: Callable[[list[torch.Tensor]], list[torch.Tensor]], rows: list[_Row], grads: list[torch.Tensor | None]
) -> tuple[list[torch.Tensor | None], list[tuple[_Row, torch.Tensor]]]:
    """Return the replicas' mean gradients, and what the own loss does not reach with how many losses do.

    The replicas exchange what `FlatPass` does, as one of them may have left compiled code.
    """
    there = torch.tensor([float(grad is not None) for grad in grads], device=rows[0].parameter.device)
    own = [torch.zeros_like(row.parameter) if grad is None else grad for row, grad in zip(rows, grads, strict=True)]
    *means, n_reached = total([*own, there])
    return [*means], [(row, n_reached[i]) for i, row in enumerate(rows) if grads[i] is None]


@cache
def _total_of(replicas: Replicas) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """Return an operator for graphs, which adds up gradients over the replicas."""
    name = f"rlpyt::total_of_replicas_{next(_numbers)}"

    def total(grads: list[torch.Tensor]) -> list[torch.Tensor]:
        flat = replicas.total(torch.cat([grad.flatten() for grad in grads]))
        pieces = flat.split([grad.numel() for grad in grads])
        # In the gradient's own order of memory, of which the graph has been told.
        return [torch.empty_like(x).copy_(piece.view(x.shape)) for x, piece in zip(grads, pieces, strict=True)]

    # torch reads the types of the arguments from the function, and not from texts.
    total.__annotations__ = {"grads": list[torch.Tensor], "return": list[torch.Tensor]}
    operator = torch.library.custom_op(name, total, mutates_args=())
    operator.register_fake(lambda grads: [torch.empty_like(grad) for grad in grads])
    return operator


def _trained(group: Kwargs) -> list[torch.nn.Parameter]:
    return [x for x in group["params"] if x.requires_grad]


def _settings(group: Kwargs) -> Kwargs:
    """Return the arguments of a group's step, but for its learning rate."""
    beta1, beta2 = group["betas"]
    settings = {name: group[name] for name in ("amsgrad", "weight_decay", "eps", "maximize")}
    settings["decoupled_weight_decay"] = group.get("decoupled_weight_decay", False)
    return {**settings, "beta1": beta1, "beta2": beta2, "has_complex": False}


def _is_of(own: _Group, optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> bool:
    """Return whether the rows of a group are parameters with the state that they have now."""
    return len(parameters) == len(own.rows) and all(
        row.parameter is x and optimizer.state.get(x, {}).get("exp_avg") is row.moment
        for row, x in zip(own.rows, parameters, strict=True)
    )


def _group(optimizer: torch.optim.Optimizer, group: Kwargs, lr_scale: float) -> _Group:
    rows = list[_Row]()
    for x in _trained(group):
        if not optimizer.state[x]:
            step = torch.zeros((), dtype=torch.float32, device=x.device)
            names = "exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ())
            made = {name: torch.zeros_like(x, memory_format=torch.preserve_format).detach() for name in names}
            optimizer.state[x] = {"step": step, **made}
        state = optimizer.state[x]
        state["step"] = state["step"].to(x.device)  # torch counts on the CPU, which a CUDA graph cannot
        largest = state["max_exp_avg_sq"] if group["amsgrad"] else None
        rows.append(_Row(x, state["exp_avg"], state["exp_avg_sq"], state["step"], largest))
        if x.is_cuda:  # a CUDA graph changes them where they lie; of other tensors it would take copies
            for tensor in (tensor for tensor in rows[-1] if tensor is not None):
                torch._dynamo.mark_static_address(tensor)
    return _Group(lr_scale, _settings(group), rows)
