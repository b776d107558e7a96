"""One step down a loss: gradient, clipping, optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch

from rlpyt.algos.graph_step import GraphStep, refuse_hooks
from rlpyt.types import StateDict
from rlpyt.utils.projection import projections_of
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.torch_optim import step, without_compiler

ELEMENTWISE = (
    torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.Adagrad,
    torch.optim.Adadelta, torch.optim.RMSprop, torch.optim.SGD,
)  # fmt: skip
MOMENTS = (
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "sum", "acc_delta", "square_avg", "grad_avg",
    "momentum_buffer",
)  # fmt: skip
"""Entries of the state of `ELEMENTWISE` optimisers that have the shape of their parameter."""
IMPLEMENTATION = ("fused", "foreach", "capturable", "differentiable")
"""Settings of a parameter group that say how a step is computed, and not which."""


class GradientDescent:
    """Gradient steps of an optimiser's parameters. Nothing else that a loss depends on gets a gradient.

    A parameter group keeps its ratio to the learning rate of the start, so one with rate 0 stays at 0; it may be given
    its ratio as `lr_scale` instead. A rate that is set in a group between two steps, by hand or by a scheduler of
    torch, is refused.

    Args:
        optimizer: over the parameters to be changed; another one may be set at any time.
        learning_rate: at the start of the run, from 0. Where it is 0, every group must have it.
        replicas: whose gradients are averaged before they are clipped.
        weighted: returns a loss of this replica as it counts among those of the others; None where all count the same.
        modules: networks that parameters are named after, in a saved state and in messages; those of their layers that
            are a `Projection` project their weights after every step.
        rate: setting of the algorithm that is the learning rate.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        learning_rate: float,
        replicas: Replicas | None = None,
        weighted: Callable[[torch.Tensor], torch.Tensor] | None = None,
        modules: Sequence[torch.nn.Module] = (),
        rate: str = "learning_rate",
    ) -> None:
        self.optimizer, self.learning_rate, self.rate = optimizer, learning_rate, rate
        self._replicas, self._weighted = replicas or Replicas(), weighted
        self._modules = modules
        self._projections = projections_of(modules, self.parameters)
        self._differentiated: list[torch.nn.Parameter] = []
        self._strides: list[tuple[int, ...]] = []
        self._graph: GraphStep | None = None
        self._lay_out(self.parameters)

    def __call__(self, loss: torch.Tensor, learning_rate: float, clip_grad_norm: float) -> torch.Tensor:
        """Take one step down a scalar loss; return the gradient's norm before clipping, on the device."""
        if self._graph is not None and torch.compiler.is_compiling():
            grad_norm = self._graph.step(self._weighted_loss(loss), learning_rate, clip_grad_norm)
            self._project()
            return grad_norm
        self._set_rates(learning_rate)
        parameters = self.parameters
        if [parameter.stride() for parameter in parameters] != self._strides:
            self._lay_out(parameters)
        for parameter in parameters:
            parameter.grad = None
        # The gradient of an action value in its own weights is no part of a policy's step, and a third of its cost.
        differentiated = [parameter for parameter in parameters if parameter.requires_grad]
        if differentiated:  # all may be frozen for a while
            self._backward_pass(differentiated)(self._weighted_loss(loss))
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        try:
            grad_norm = _clip_norm(grads, clip_grad_norm) if grads else torch.zeros_like(loss.detach())
        except NotImplementedError:
            self._refuse_sparse(parameters)
            raise
        step(self.optimizer)
        self._project()
        return grad_norm

    def make_graph_ready(self, learning_rate: float) -> None:
        """Let the next step be part of a graph, which changes the optimiser's tensors and none of its numbers.

        Raises:
            NotInGraph: if torch cannot capture the step of this optimiser.
        """
        self._set_rates(learning_rate)
        if self._replicas.world_size > 1 and (trained := [x for x in self.parameters if x.requires_grad]):
            self._backward_pass(trained)  # made by all together, for a replica that leaves compiled code alone
        graph, self._graph = self._graph, None  # none where it is refused
        refuse_hooks(self.optimizer)
        scales = self._lr_scales()
        if graph is None or not graph.is_of(self.optimizer, scales):
            graph = GraphStep(self.optimizer, scales, self._replicas)
        self._graph = graph

    @torch.no_grad()
    def _project(self) -> None:
        for layer in self._projections:
            layer.project()

    @property
    def name(self) -> str:
        """Class of the optimiser, with the eps that it adds to its denominator, as an algorithm may have its own."""
        name, groups = type(self.optimizer).__name__, self.optimizer.param_groups
        # That of Adafactor is two numbers, which are no part of a denominator.
        eps = dict.fromkeys(f"{x:.4g}" for group in groups if isinstance(x := group.get("eps"), int | float))
        return f"{name} (eps {' and '.join(eps)})" if eps else name

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Parameters of all groups of the optimiser."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _weighted_loss(self, loss: torch.Tensor) -> torch.Tensor:
        return loss if self._weighted is None else self._weighted(loss)

    def _backward_pass(self, differentiated: list[torch.nn.Parameter]) -> Callable[[torch.Tensor], None]:
        """Return the backward pass over parameters, made again where these are others than before."""
        if list(map(id, differentiated)) != list(map(id, self._differentiated)):
            self._differentiated = differentiated
            self._backward = self._replicas.backward_pass(differentiated)
        return self._backward

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a copy, without the backward pass: that is over the parameters of this one."""
        return {name: value for name, value in vars(self).items() if name != "_backward"} | {"_differentiated": []}

    def _set_rates(self, learning_rate: float) -> None:
        """Set the groups' rates for a step; raise an error if a script has set one, which would be overwritten."""
        for group in self.optimizer.param_groups:
            if group["lr"] != group.get("lr_given", group["lr"]):
                raise ValueError(
                    f"Taking a gradient step: the lr of a parameter group was set to {float(group['lr']):g}, and every "
                    f"step sets it to {group['lr_scale']:g} of the algorithm's learning rate; expected it as it was. "
                    "Set the algorithm's learning_rate, to a schedule too, or the group's lr_scale."
                )

        for group, scale in zip(self.optimizer.param_groups, self._lr_scales(), strict=True):
            group["lr"] = group["lr_given"] = scale * learning_rate

    def _lr_scales(self) -> list[float]:
        """Return the ratio of each group's learning rate to the learning rate of the start.

        It is kept in the group, beside the rate: so it goes with the optimiser, and a group may be added later.
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

    # ---- layout in memory ----

    @torch.no_grad()
    def _lay_out(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Choose an implementation for the parameters' layout in memory, and give their moments the same layout.

        Fused optimisers read all in the order of memory. A parameter that is a slice of another tensor has gaps there,
        which its gradient and its moments do not have; so it takes the step of torch's default.
        """
        layouts = [_layout(parameter) for parameter in parameters]
        for parameter, (_, shares_memory) in zip(parameters, layouts, strict=True):
            if parameter.requires_grad and shares_memory:
                raise ValueError(
                    f"Taking a gradient step: elements of the parameter {self._name(parameter)!r} share memory, its "
                    f"shape is {tuple(parameter.shape)} and its strides are {parameter.stride()}; expected memory of "
                    "its own for each, as a step changes them one by one. Write nn.Parameter(x.clone()) of an "
                    "expanded x, or make the parameter smaller and expand it in forward."
                )
        for group in self.optimizer.param_groups:
            if group.get("fused") and not all(is_dense for is_dense, _ in layouts):
                group["fused"] = None
        for parameter in parameters:
            state = self.optimizer.state.get(parameter, {})
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.dim() and value.shape == parameter.shape:
                    laid_out = torch.empty_like(parameter, dtype=value.dtype, device=value.device)
                    if laid_out.stride() != value.stride():
                        state[name] = laid_out.copy_(value)
        self._strides = [parameter.stride() for parameter in parameters]

    def _refuse_sparse(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.grad is not None and parameter.grad.layout is not torch.strided:
                raise TypeError(
                    f"Taking a gradient step: the gradient of the parameter {self._name(parameter)!r} is sparse; "
                    "expected a dense one, as the norm of the gradient is taken over all parameters. Leave "
                    "sparse=True out of its nn.Embedding."
                )

    # ---- names of the parameters ----

    def _names(self) -> dict[int, str]:
        """Return the name of each parameter of the networks, by its id."""
        named = [(id(x), name) for module in self._modules for name, x in module.named_parameters()]
        return dict(reversed(named))  # one that several networks share is named after the first

    def _names_of(self, group: StateDict) -> list[str]:
        """Return the names of a group's parameters, as torch has them if it was given some; "" is unknown."""
        names = self._names()
        return list(group.get("param_names") or (names.get(id(parameter), "") for parameter in group["params"]))

    def _name(self, parameter: torch.nn.Parameter) -> str:
        """Return the name of a parameter of the optimiser for a message."""
        names = [name for group in self.optimizer.param_groups for name in self._names_of(group)]
        i = next(i for i, x in enumerate(self.parameters) if x is parameter)
        return names[i] or f"number {i}"

    # ---- state ----

    def state_dict(self) -> StateDict:
        """Return the optimiser's state, with its class and the names of its parameters."""
        with without_compiler():
            state = self.optimizer.state_dict()
        for group, saved in zip(self.optimizer.param_groups, state.get("param_groups", ()), strict=False):
            saved["param_names"] = self._names_of(group)
        return {**state, "class": type(self.optimizer).__name__}

    @torch.no_grad()
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`; refuse that of another optimiser, or of other parameters."""
        scales = self._lr_scales()
        # torch takes over the tensors themselves: two algorithms loaded from one state would share their moments.
        state = deepcopy(dict(state_dict))
        self._check_class(state.pop("class", None))
        others = [c for c in type(self.optimizer).__mro__ if not c.__module__.startswith("torch.optim")]
        if not any("load_state_dict" in vars(c) for c in others):
            self._check_state(state)  # one that loads its state itself may have any form of it
        for group, saved in zip(self.optimizer.param_groups, state.get("param_groups", ()), strict=False):
            saved.pop("param_names", None)  # torch would ask for names in each group that is added later
            saved.update({name: group[name] for name in IMPLEMENTATION if name in group})
        with without_compiler():
            self.optimizer.load_state_dict(state)
        # It takes over the settings of the groups too; their learning rates follow those given to this algorithm.
        for group, scale in zip(self.optimizer.param_groups, scales, strict=True):
            group["lr_scale"] = scale
        # Moments of channels-last weights, say, are laid out otherwise.
        self._lay_out(self.parameters)

    def _check_class(self, saved: str | None) -> None:
        """Check that a state is of this class; that of a subclass of one's own may be of the base. torch names none."""
        Cls = type(self.optimizer)
        known = [Cls] if Cls.__module__.startswith("torch.optim") else Cls.__mro__
        if saved is not None and saved not in [x.__name__ for x in known]:
            self._refuse(f"it is of {saved}", f"one of {Cls.__name__}")

    def _check_state(self, state: StateDict) -> None:
        """Check that a state fits optimiser and parameters: fused steps would write beyond the moments."""
        if missing := [name for name in ("state", "param_groups") if name not in state]:
            self._refuse(
                f"it has no {' and no '.join(map(repr, missing))}, but {', '.join(map(repr, state))!s:.200}", "both"
            )
        groups, saved_groups = self.optimizer.param_groups, state["param_groups"]
        if (n := len(saved_groups)) != len(groups):
            self._refuse(f"it has {n} parameter groups", f"{len(groups)}")
        for i, (group, saved) in enumerate(zip(groups, saved_groups, strict=True)):
            if (n := len(saved["params"])) != len(group["params"]):
                self._refuse(f"its parameter group {i} has {n} parameters", f"{len(group['params'])}")
            names = self._names_of(group)
            saved_names = saved.get("param_names") or names
            for parameter, name, key, saved_name in zip(
                group["params"], names, saved["params"], saved_names, strict=True
            ):
                moments = state["state"].get(key, {}) if isinstance(self.optimizer, ELEMENTWISE) else {}
                for entry in MOMENTS:
                    value = moments.get(entry)
                    if isinstance(value, torch.Tensor) and value.shape != parameter.shape:
                        self._refuse(
                            f"{entry} of the parameter {self._name(parameter)!r} has shape {tuple(value.shape)}",
                            f"that of the parameter, {tuple(parameter.shape)}",
                        )
                if name and saved_name and name != saved_name:
                    self._refuse(
                        f"it has the parameter {saved_name!r} in the place of {name!r}",
                        "the same names in the same order",
                    )

    def _refuse(self, came: str, expected: str) -> None:
        raise ValueError(
            f"Loading the state of the optimiser {type(self.optimizer).__name__}: {came}; expected {expected}. A state "
            "goes with the networks and the optimiser that it was saved with: build these as they were, in the same "
            "order, or start without the state."
        )


def _layout(x: torch.Tensor) -> tuple[bool, bool]:
    """Return whether elements lie side by side in memory, in any order of the dimensions, and whether they share it."""
    steps = sorted((stride, size) for stride, size in zip(x.stride(), x.shape, strict=True) if size != 1)
    last, is_dense, shares = 0, True, False  # last: place of the last element of the dimensions so far
    for stride, size in steps if x.numel() else ():
        is_dense, shares = is_dense and stride == last + 1, shares or stride <= last
        last += stride * (size - 1)
    return is_dense, shares


def _clip_norm(grads: list[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Scale gradients, in place, to a norm of at most max_norm; return the norm that they had.

    As `torch.nn.utils.clip_grad_norm_`, which takes twice as long to group the tensors by device first.
    """
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    if max_norm < math.inf:
        torch._foreach_mul_(grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
