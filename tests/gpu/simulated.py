"""A device that computes on the CPU and is as strict as a GPU: mistakes with devices show without one.

Tensors there refuse to meet tensors of the CPU, and generators of the CPU, and every operation for which the CPU would
have to wait for a GPU is noted. It stands on torch's support for devices written in Python, which is experimental.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import rlpyt

NAME = "simulated"
LIBRARY = str(Path(rlpyt.__file__).parent) + os.sep
aten = torch.ops.aten
READS = (aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default, aten.nonzero.default,
         aten.masked_select.default)  # fmt: skip
MAKERS = (torch.tensor, torch.as_tensor)
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)


class Backend:
    """What torch asks a device's module."""

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16]

    @staticmethod
    def is_available() -> bool:
        return True

    is_initialized = is_available

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Nothing is drawn there."""


# For as long as the process lives, and before its first backward pass: autograd counts the devices once.
_setup_privateuseone_for_python_backend(NAME, backend_module=Backend())


class OnDevice(torch.Tensor):
    """A tensor of the simulated device."""

    content: torch.Tensor

    @staticmethod
    def __new__(cls, content: torch.Tensor) -> OnDevice:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            content.size(),
            strides=content.stride(),
            storage_offset=content.storage_offset(),
            dtype=content.dtype,
            device=torch.device(NAME, 0),
        )
        tensor.content = content
        return tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{func} was called on the simulated device outside of SimulatedDevice")


def is_of_library(file: str) -> bool:
    """Return whether a file is one of the library; those of tests may lie in a clone that is named as the library."""
    return file.startswith(LIBRARY)


class SimulatedDevice(TorchDispatchMode):
    """Context in which the device exists.

    `waits` has the operations that had to wait for it since it was last cleared, and the line of the library.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[str, str]] = []
        self._functions = _Functions(self)

    def __enter__(self) -> SimulatedDevice:
        self._functions.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._functions.__exit__(*exception)

    def note(self, what: Any) -> None:
        """Remember that something had to wait."""
        lines = [f"{f.filename}:{f.lineno} {f.line}" for f in traceback.extract_stack() if is_of_library(f.filename)]
        self.waits.append((str(what), lines[-1] if lines else ""))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        leaves = tree_leaves((args, kwargs))
        here = [x for x in leaves if isinstance(x, OnDevice)]
        asked = kwargs.get("device")
        to_here = asked is not None and torch.device(asked).type == NAME
        if not here and not to_here:
            return func(*args, **kwargs)
        if to_here:
            kwargs["device"] = torch.device("cpu")
        if func is aten.copy_.default or func is aten._to_copy.default:
            return self._copy(func, args, kwargs, to_here or (bool(here) and asked is None))
        self._check(func, args, here, leaves)
        out = compute(func, args, kwargs)
        if func in READS[:3]:
            return out
        out = tree_map_only(torch.Tensor, OnDevice, out)
        return return_and_correct_aliasing(func, args, kwargs, out) if here else out

    def _check(self, func: Any, args: Any, here: list[Any], leaves: list[Any]) -> None:
        """Refuse what a GPU refuses, and note what it waits for."""
        others = [x for x in leaves if isinstance(x, torch.Tensor) and not isinstance(x, OnDevice)]
        if any(isinstance(x, torch.Generator) for x in leaves):
            raise RuntimeError(f"{func}: Expected a '{NAME}' device type for generator but found 'cpu'")
        if func in INDEXING:
            indices = [i for i in args[1] if i is not None]
            if not isinstance(args[0], OnDevice):
                raise RuntimeError(f"{func}: indices should be on the device of the tensor, which is the CPU")
            if any(not isinstance(i, OnDevice) or i.dtype is torch.bool for i in indices):
                self.note(func)
        elif any(x.dim() > 0 for x in others):
            raise RuntimeError(f"{func}: Expected all tensors to be on the same device")
        if func in READS:
            self.note(func)

    def _copy(self, func: Any, args: Any, kwargs: dict[str, Any], to_here: bool) -> Any:
        if func is aten.copy_.default:
            destination, source, *rest = args
            if isinstance(destination, OnDevice) is not isinstance(source, OnDevice) and not any(rest):
                self.note(func)
            content_of(destination).copy_(content_of(source))
            return destination
        from_here = isinstance(args[0], OnDevice)
        if from_here is not to_here and not (kwargs.pop("non_blocking", False) and to_here):
            self.note(func)
        out = compute(func, args, kwargs)
        return OnDevice(out) if to_here else out


class _Functions(TorchFunctionMode):
    """What torch does not dispatch: tensors made of numbers."""

    def __init__(self, device: SimulatedDevice) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        to_here = torch.device(kwargs.get("device") or "cpu").type == NAME if func in MAKERS else False
        if to_here and not isinstance(args[0], torch.Tensor):
            self.device.note(func)
            content = func(*args, **{**kwargs, "device": "cpu"})
            return OnDevice(content)
        return func(*args, **kwargs)


def content_of(x: Any) -> Any:
    """Return the numbers of a tensor, as a tensor of the CPU."""
    return x.content if isinstance(x, OnDevice) else x


def compute(func: Any, args: Any, kwargs: Any) -> Any:
    """Compute on the CPU."""
    args, kwargs = tree_map_only(OnDevice, content_of, (args, kwargs))
    with torch.no_grad():
        return RECURRENT.get(func, func)(*args, **kwargs)


# ---- cells of recurrent layers, which torch has for GPUs alone ----


def lstm(input_gates: Any, hidden_gates: Any, cx: Any, *biases: Any) -> Any:
    """Return h, c, and the gates for the way back."""
    gates = input_gates + hidden_gates + sum(bias for bias in biases if bias is not None)
    i, f, g, o = gates.chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], -1)


def lstm_backward(grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool) -> Any:
    """Return the gradients of the gates, of the cell before, and of the biases."""
    i, f, g, o = workspace.chunk(4, -1)
    grad_hy, grad_cy = (torch.zeros_like(cy) if grad is None else grad for grad in (grad_hy, grad_cy))
    t = cy.tanh()
    grad = grad_hy * o * (1 - t * t) + grad_cy
    gates = [grad * g * i * (1 - i), grad * cx * f * (1 - f), grad * i * (1 - g * g), grad_hy * t * o * (1 - o)]
    grad_gates = torch.cat(gates, -1)
    return grad_gates, grad * f, grad_gates.sum(0)


def gru(input_gates: Any, hidden_gates: Any, hx: Any, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    """Return h, and what the way back needs."""
    input_gates = input_gates if input_bias is None else input_gates + input_bias
    hidden_gates = hidden_gates if hidden_bias is None else hidden_gates + hidden_bias
    (ir, iz, i_n), (hr, hz, hn) = input_gates.chunk(3, -1), hidden_gates.chunk(3, -1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (i_n + r * hn).tanh()
    return (hx - n) * z + n, torch.cat([r, z, n, hx, hn], -1)


def gru_backward(grad_hy: Any, workspace: Any, has_bias: bool) -> Any:
    """Return the gradients of both kinds of gates, of the state before, and of both biases."""
    r, z, n, hx, hn = workspace.chunk(5, -1)
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_r, grad_z = grad_n * hn * r * (1 - r), grad_hy * (hx - n) * z * (1 - z)
    of_input, of_hidden = (torch.cat([grad_r, grad_z, x], -1) for x in (grad_n, grad_n * r))
    return of_input, of_hidden, grad_hy * z, of_input.sum(0), of_hidden.sum(0)


RECURRENT: dict[Any, Callable[..., Any]] = {
    aten._thnn_fused_lstm_cell.default: lstm,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_backward,
    aten._thnn_fused_gru_cell.default: gru,
    aten._thnn_fused_gru_cell_backward.default: gru_backward,
}
