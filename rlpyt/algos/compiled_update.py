"""Updates compiled whole by torch.compile: forward passes, gradients, clipping and optimisers' steps as one graph."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, Protocol, TypeVar, cast

import torch
from torch.utils._pytree import tree_map_only

from rlpyt.algos.graph_step import NotInGraph
from rlpyt.algos.loss_after import Learner, is_asked_for
from rlpyt.core import example_inputs
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.settings import Hyper, Scheduled, moving
from rlpyt.types import Kwargs
from rlpyt.utils.compute import compilations

T = TypeVar("T")
Compute = Callable[..., Any]
_LOG = logging.getLogger(__name__)
_TORCH = torch.__path__[0]
_IS_OLD = "isolate_recompiles" not in signature(torch.compile).parameters
# torch compiles a function only so often, and other runs in this process would count. Before 2.13 they do.
_OF_ITS_OWN: Kwargs = {} if _IS_OLD else {"isolate_recompiles": True}
# Kinds of what code reads by its global names and nobody exchanges within a run: functions, classes, modules. A look at
# each of them before every update takes an eighth of the update of a small network.
_STAYS = {"BUILTIN_MATCH", "CLASS_MATCH", "CLOSURE_MATCH", "MODULE_MATCH"}
# Before 2.13 torch fails an assertion where it would order the loops of a fused step of Adam again.
_CUDA_GRAPHS: Kwargs = {"triton.cudagraphs": True, **({"loop_ordering_after_fusion": False} if _IS_OLD else {})}


def _may_change(guards: Sequence[Any]) -> list[bool]:
    """Return which of the guards of compiled code, as torch has them, shall be looked at before each call."""
    return [not (guard.is_global and guard.guard_type in _STAYS) for guard in guards]


# Before 2.13 code that an earlier run of the process has compiled would be found by its guards alone.
_FEWER_GUARDS: Kwargs = {} if _IS_OLD else {"guard_filter_fn": _may_change}


class _Descents(Protocol):
    def make_graph_ready(self, hyper: Hyper) -> None: ...


class _Learner(Learner, Protocol):
    loss_weight: float

    @property
    def descents(self) -> _Descents: ...


class CompiledUpdate:
    """Tensor part of an algorithm's update: compiled where the run asks for it, else as it is.

    What is compiled draws no random numbers, counts nothing, and reads no number from a tensor. Settings that follow a
    schedule are handed in as tensors: as numbers they would be constants of the compiled code, which would be compiled
    again whenever they change. What torch cannot capture as one graph runs as it is, and a warning says why.

    Args:
        algo: with its agent, on the device of the run.

    Raises:
        ValueError: if the run is to compile, and torch is too old, or cannot follow the rows of the agent.
    """

    def __init__(self, algo: _Learner) -> None:
        self._algo, self.is_on = algo, algo.agent.compute.compile
        self._compiled: dict[Compute, Compute] = {}
        self._hyper: tuple[Hyper, Hyper] | None = None  # as they came, and with tensors in them
        self._first: Kwargs = {}  # hyper-parameters of the first update
        self._set_since: set[str] = set()  # those that a script has set to something else
        self._counted = list[None]()  # steps of one call that count as updates
        self._passed_at: int | None = None  # updates when a step was first taken outside of compiled code
        if self.is_on and (reason := _why_not(algo)):
            raise ValueError(
                f"{type(algo).__name__}: the settings have compile=True, and {reason}; expected compile=False."
            )

    def __call__(self, compute: Callable[..., T], *inputs: object) -> T:
        """Return what a function gives for its inputs: the algorithm, its hyper-parameters, tensors, and flags."""
        if self.is_on and is_asked_for(self._algo):
            self._leave_off("every loss is asked for a second time (log_loss_after, or the level DEBUG of rlpyt.loss)")
        if not self.is_on:
            return compute(*inputs)
        before, began = compilations(), time.perf_counter()
        try:
            self._algo.descents.make_graph_ready(_hyper_of(inputs))
            if compute not in self._compiled:
                options = {**(_CUDA_GRAPHS if self._has_cuda_graphs else {}), **_FEWER_GUARDS}
                self._compiled[compute] = torch.compile(compute, fullgraph=True, options=options, **_OF_ITS_OWN)
            self._counted.clear()
            with self._weight_as_tensor():
                result: T = self._run(compute, *map(self._moved, inputs))
        except Exception as error:
            if " " in _TORCH and "cannot find -l" in str(error):
                raise ValueError(
                    f"Compiling the update of {type(self._algo).__name__}: torch is installed in {_TORCH}, and does "
                    "not quote the blank in that path for the linker; expected a folder without one. Move the "
                    "environment, or leave compile out."
                ) from None
            reason = str(error) if isinstance(error, NotInGraph) else _why_not_captured(error)
            if not reason:
                raise
            self._leave_off(reason)
            return compute(*inputs)
        if compilations() != before:
            seconds = time.perf_counter() - began
            _LOG.info("%s: its update was compiled in %.0f s.", type(self._algo).__name__, seconds)
        self._algo.update_counter += len(self._counted)
        return result

    def count(self) -> None:
        """Count a step as an update, inside of compiled code: as a number that moves the counter is no part of it."""
        self._counted.append(None)

    @property
    def _has_cuda_graphs(self) -> bool:
        # What replicas tell each other may go through the CPU.
        return self._algo.agent.device.type == "cuda" and self._algo.global_rows.alone

    def _run(self, compute: Callable[..., T], *inputs: object) -> T:
        if not self._has_cuda_graphs:
            return cast(T, self._compiled[compute](*inputs))
        torch.compiler.cudagraph_mark_step_begin()
        # The next call writes its results where these are.
        return cast(T, tree_map_only(torch.Tensor, torch.clone, self._compiled[compute](*inputs)))

    @contextmanager
    def _weight_as_tensor(self) -> Iterator[None]:
        """Let the weight of the losses among those of other replicas, which moves, be no constant of compiled code."""
        weight = self._algo.loss_weight
        if not self._algo.global_rows.alone:
            tensor = torch.as_tensor(weight, device=self._algo.agent.device)
            self._algo.loss_weight = cast(float, tensor)
        try:
            yield
        finally:
            self._algo.loss_weight = weight

    def is_passed_by(self) -> None:
        """Warn once where the run is to compile, and updates take no step inside of compiled code."""
        if self.is_on and not self._compiled:
            n_updates = self._algo.update_counter
            self._passed_at = n_updates if self._passed_at is None else self._passed_at
            if n_updates != self._passed_at:
                self._leave_off("it does not call self.compiled")

    def _leave_off(self, reason: str) -> None:
        self.is_on = False
        name = type(self._algo).__name__
        _LOG.warning("%s: compile is True, and its update runs as it is: %s.", name, reason.rstrip("."))

    def __getstate__(self) -> dict[str, object]:
        # A copy of the algorithm compiles its own; in another process it computes no update.
        return {**vars(self), "_compiled": {}, "_hyper": None}

    def _moved(self, x: object) -> object:
        """Return hyper-parameters with tensors in the place of moving numbers; anything else as it is."""
        if not isinstance(x, Hyper):
            return x
        if self._hyper is None or x is not self._hyper[0]:
            values, device = vars(x), self._algo.agent.device
            self._first = self._first or values
            self._set_since |= {name for name, value in values.items() if value != self._first[name]}
            names = self._set_since.union(moving(cast(Scheduled, self._algo)))
            numbers = {name: values[name] for name in sorted(names) if values[name] is not None}
            tensors = {n: torch.tensor(float(v)).to(device, non_blocking=True) for n, v in numbers.items()}
            self._hyper = x, Hyper(**{**values, **tensors})
        return self._hyper[1]


def _why_not(algo: _Learner) -> str:
    """Return why torch cannot compile an update of the algorithm; an empty string if it can."""
    if algo.agent.recurrent:
        return "its agent is recurrent, whose unroll is cut where episodes start"
    if hidden := list(_hidden_fields(example_inputs(algo.agent.env_spaces))):
        return f"the observations or actions have the keys {hidden}, which are no names of attributes"
    config: Any = importlib.import_module("torch._dynamo.config")
    if not hasattr(config, "trace_autograd_ops"):
        return f"torch {torch.__version__} cannot capture gradients in a graph, as 2.11 can"
    config.trace_autograd_ops = True
    config.skip_nnmodule_hook_guards = False  # a hook that a module gets or loses during the run counts from then on
    return ""


def _hyper_of(inputs: tuple[object, ...]) -> Hyper:
    """Return the hyper-parameters among the inputs of a function that takes steps."""
    for x in inputs:
        if isinstance(x, Hyper):
            return x
    raise NotInGraph("what self.compiled was given has no hyper-parameters, of which a step has its learning rate")


def _why_not_captured(error: Exception) -> str:
    """Return why torch has compiled no graph; an empty string if the error is none of its compiler."""
    exc: Any = importlib.import_module("torch._dynamo.exc")  # which takes long to import
    if isinstance(error, exc.FailOnRecompileLimitHit):
        limit = importlib.import_module("torch._dynamo.config").recompile_limit
        return f"torch has compiled it {limit} times and would go on, as something in it, such as a number, changes"
    first, second, *_ = [*str(error).splitlines(), "", ""]
    what = f"{first} {second}" if first.endswith(":") else first
    return f"torch cannot capture it: {what.strip()}" if isinstance(error, exc.TorchDynamoException) else ""


def _hidden_fields(buffer: Buffer) -> Iterator[str]:
    """Yield the names by which torch would ask for a field and not find it; at a dot it takes them apart."""
    for part in buffer if isinstance(buffer, tuple) else ():
        yield from _hidden_fields(part)
    if isinstance(buffer, NamedArrayTuple):
        yield from (name for name, x in buffer.items() if "." in name or getattr(buffer, name, None) is not x)
