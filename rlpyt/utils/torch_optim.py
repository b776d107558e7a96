"""torch's optimisers without the import of torch's compiler, which takes about as long as that of torch itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim import optimizer as torch_optimizer

Step = Callable[[Optimizer], object]

_MARK = "__dynamo_disable"  # torch's own, on a method that the compiler has been told to leave alone
_steps: dict[type, tuple[object, Step | None]] = {}


@contextmanager
def without_compiler() -> Iterator[None]:
    """Let optimisers be built, saved and loaded without the compiler in the block.

    At the first call of these methods torch imports the compiler, to tell it that it must not compile them. Nothing is
    compiled in the block, and where the compiler is there already nothing is changed.
    """
    methods = [
        inspect.unwrap(getattr(Optimizer, name)) for name in ("add_param_group", "state_dict", "load_state_dict")
    ]
    here = "torch._dynamo" in sys.modules
    for method in [] if here else methods:
        setattr(method, _MARK, method)
    try:
        yield
    finally:
        for method in [] if here else methods:
            if getattr(method, _MARK, None) is method:
                delattr(method, _MARK)


def step(optimizer: Optimizer) -> None:
    """Take a step, as `optimizer.step()` does.

    Of an optimiser of torch without hooks the innermost function is called: those around it import the compiler, and
    cost more than the update of a small network.
    """
    innermost = None if has_own_step(optimizer) else _innermost_step(type(optimizer))
    if innermost is None or optimizer.defaults.get("differentiable"):
        optimizer.step()
        return
    with torch.no_grad():
        innermost(optimizer)


def has_own_step(optimizer: Optimizer) -> bool:
    """Return whether a step was set by hand or has hooks; True where torch keeps hooks in another place than now."""
    own, of_all = vars(optimizer), vars(torch_optimizer)
    if "step" in own:
        return True
    names = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
    global_names = "_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"
    return any(own.get(n, True) for n in names) or any(of_all.get(n, True) for n in global_names)


def _innermost_step(cls: type[Optimizer]) -> Step | None:
    """Return the function inside of torch's wrappers; None where a class or a wrapper is not torch's."""
    outermost: Step = cls.step  # `AdamW` may have its own, or that of `Adam`
    known = _steps.get(cls)
    if known is None or known[0] is not outermost:
        found = outermost if cls in (Adam, AdamW, SGD, RMSprop) else None
        while found is not None and _is_of_torch(found) and hasattr(found, "__wrapped__"):
            found = found.__wrapped__
        known = _steps[cls] = outermost, found if _is_of_torch(found) else None
    return known[1]


def _is_of_torch(function: object) -> bool:
    # Not its `__module__`, which a wrapper takes over from what it wraps.
    return str(getattr(function, "__globals__", {}).get("__name__", "")).startswith("torch.optim.")
