"""Contract of a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from rlpyt.agents.own_models import build_model
from rlpyt.models import draw_randomness, encoded_action_size
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces
from rlpyt.testing.expect import expect, expect_close, random_batch, seeded
from rlpyt.utils.arrays import buffer_func, buffer_leaves, torchify_buffer

LEADING_DIMS: tuple[tuple[int, ...], ...] = ((4,), (3, 4), (1, 1))
"""Leading dimensions that every model is called with: [B] and [T, B]."""


@dataclass
class _ModelCase:
    """Model, the spaces that it is built for, and inputs for it."""

    make: Callable[[], nn.Module]
    name: str
    spaces: EnvSpaces
    recurrent: bool

    def inputs(self, *lead: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """Return observation, encoded previous action and previous reward with leading dimensions."""
        observation = torchify_buffer(random_batch(self.spaces.observation, lead, np.random.default_rng(0)))
        g = torch.Generator().manual_seed(0)
        width = encoded_action_size(self.spaces.action)
        return observation, torch.rand((*lead, width), generator=g), torch.rand(lead, generator=g)

    def outputs(self, model: nn.Module, inputs: Buffer, rnn_state: Buffer = None, *start: Any) -> tuple[list[Any], Any]:
        """Return the heads' tensors, and the next recurrent state."""
        result = model(*inputs, rnn_state, *start) if self.recurrent else model(*inputs)
        if not self.recurrent:
            return buffer_leaves(result if isinstance(result, tuple) else (result,)), None
        expect(
            isinstance(result, tuple) and len(result) > 1,
            f"{self.name}: what a recurrent model returns",
            type(result).__name__,
            "a tuple whose last element is the next state",
        )
        return buffer_leaves(tuple(result[:-1])), result[-1]


def check_model(
    ModelCls: Callable[..., nn.Module],
    env_spaces: EnvSpaces,
    model_kwargs: Mapping[str, object] | None = None,
    *,
    recurrent: bool = False,
    output_shapes: Sequence[tuple[int, ...]] | None = None,
    leading_dims: Sequence[tuple[int, ...]] = LEADING_DIMS,
    autocast: bool = True,
    seed: int = 0,
) -> None:
    """Call a model as agents and algorithms do, and check what they rely on.

    Outputs have the leading dimensions of the inputs, which stay as they are; a row does not depend on the others; an
    evaluation changes nothing; bfloat16 gives float32 outputs that are near; every parameter gets a gradient; a loaded
    or copied model is the same one; a recurrent model over T rows gives what T single steps give.

    Args:
        ModelCls: called as an agent calls it: with `observation_space` and `action_space` where it takes them.
        env_spaces: of the environment.
        model_kwargs: further arguments of the model.
        recurrent: whether it takes `rnn_state` and `episode_start`, and returns its next state last.
        output_shapes: of one row of every output, without the state; None checks leading dimensions alone.
        leading_dims: to call it with.
        autocast: whether to check it in bfloat16 too, as runs with `precision="bfloat16"` use it.
        seed: of the weights, by torch's global generator, which is left as it was.

    Raises:
        AssertionError: if the contract is broken.
        TypeError: if the model cannot be built.
    """
    offered = {"observation_space": env_spaces.observation, "action_space": env_spaces.action}

    def make() -> nn.Module:
        model = build_model("check_model: ModelCls", ModelCls, offered, dict(model_kwargs or {}))
        draw_randomness(model, None)  # as an evaluation is
        return model.eval()

    with seeded(seed):
        model = make()
        case = _ModelCase(make, type(model).__name__, env_spaces, recurrent)
        for lead in leading_dims:
            _check_leading_dims(case, model, lead, output_shapes)
        _check_rows_alone(case, model)
        if autocast:
            _check_autocast(case, model)
        _check_copies(case, model)
        if recurrent:
            _check_unroll(case, model)
        draw_randomness(model, torch.Generator().manual_seed(seed))
        _check_gradients(case, model.train())


def _check_leading_dims(
    case: _ModelCase, model: nn.Module, lead: tuple[int, ...], shapes: Sequence[tuple[int, ...]] | None
) -> None:
    what = f"{case.name} called with leading dimensions {list(lead)}"
    inputs, state = case.inputs(*lead), copy.deepcopy(model.state_dict())
    kept = buffer_func(inputs, torch.clone)
    with torch.no_grad():
        heads, rnn_state = case.outputs(model, inputs)
    for x in heads:
        expect(tuple(x.shape[: len(lead)]) == lead, f"{what}: shape of an output", tuple(x.shape), f"{lead} first")
        expect(x.dtype == torch.float32, f"{what}: dtype of an output", x.dtype, "torch.float32")
        expect(bool(x.isfinite().all()), f"{what}: an output", "numbers that are not finite", "finite numbers")
    if shapes is not None:
        came = [tuple(x.shape[len(lead) :]) for x in heads]
        expect(came == list(shapes), f"{what}: shapes of one row", came, f"{list(shapes)}")
    B = lead[-1] if lead else 1
    for leaf in buffer_leaves(rnn_state):
        expect(leaf.dim() > 1 and leaf.shape[1] == B, f"{what}: next state", tuple(leaf.shape), f"[N, {B}, H]")
    expect_close(f"{what}: inputs after the call", inputs, kept, "the inputs unchanged")
    expect_close(f"{what}: state_dict after an evaluation", tuple(model.state_dict().values()),
                  tuple(state.values()), "no change of weights and statistics")  # fmt: skip


def _check_rows_alone(case: _ModelCase, model: nn.Module) -> None:
    inputs = case.inputs(1, 4)
    whole, rows, row = (
        case.outputs(model, x)[0] for x in (inputs, tuple(x[0] for x in inputs), tuple(x[0, 2:3] for x in inputs))
    )
    expected = "the same, whatever other rows are in the batch"
    expect_close(f"{case.name}: rows [1, 4] and [4]", tuple(x[0] for x in whole), tuple(rows), expected, 1e-5)
    expect_close(f"{case.name}: a row of four, and alone", tuple(x[0, 2:3] for x in whole), tuple(row), expected, 1e-4)


def _check_autocast(case: _ModelCase, model: nn.Module) -> None:
    inputs = case.inputs(2, 4)
    exact, _ = case.outputs(model, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rough, _ = case.outputs(model, inputs)
    expected = "float32 near the exact numbers: let the last layers be rlpyt.models.OutputLinear"
    expect_close(f"{case.name}: outputs in bfloat16", tuple(rough), tuple(exact), expected, 0.05)


def _check_copies(case: _ModelCase, model: nn.Module) -> None:
    inputs, other = case.inputs(3, 4), case.make()
    other.load_state_dict(model.state_dict())
    expected, _ = case.outputs(model, inputs)
    for how, twin in (("a model that loaded its state_dict", other), ("its copy", copy.deepcopy(model))):
        came, _ = case.outputs(twin, inputs)
        expect_close(f"{case.name} and {how}", tuple(came), tuple(expected), "the same outputs")


def _check_gradients(case: _ModelCase, model: nn.Module) -> None:
    heads, state = case.outputs(model, case.inputs(3, 4))
    torch.stack([x.square().sum() for x in (*heads, *buffer_leaves(state))]).sum().backward()
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        expect(grad is not None, f"{case.name}: gradient of the parameter {name}", grad, "one, or no such parameter")
        assert grad is not None
        expect(bool(grad.isfinite().all()), f"{case.name}: gradient of {name}", "infinite numbers", "finite ones")


def _check_unroll(case: _ModelCase, model: nn.Module) -> None:
    T, B = 5, 3
    inputs, episode_start = case.inputs(T, B), torch.zeros(T, B, dtype=torch.bool)
    episode_start[[0, 2, 2, 4], [1, 0, 2, 0]] = True
    whole, last = case.outputs(model, inputs, None, episode_start)
    state: Any = None
    for t in range(T):
        if state is not None:
            keep = (~episode_start[t]).float()[:, None]
            state = buffer_func(state, lambda x, keep=keep: x * keep) if t else state
        step, state = case.outputs(model, tuple(x[t] for x in inputs), state)
        what = f"{case.name}: row {t} of an unroll, and the step from the state before it"
        expected = "the same; the state is zero before rows where episode_start is True"
        expect_close(what, tuple(x[t] for x in whole), tuple(step), expected, 1e-4)
    expect_close(f"{case.name}: the state after {T} rows, and after {T} steps", last, state, "the same", 1e-4)
