"""A layer of LSTM cells whose state is set to zero inside the unroll, with its gradient by hand, for the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import Function


def cut_lstm(
    x: torch.Tensor,
    state: tuple[torch.Tensor, torch.Tensor],
    episode_start: torch.Tensor,
    weights: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs of all rows and the cells after the last one.

        i, f, g, o = W_x x_t + b + W_h h_{t-1},    h_{t-1} = c_{t-1} = 0 where an episode starts at t
        c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g),    h_t = sigmoid(o) tanh(c_t)

    The products with the inputs, and those that give the gradients of the weights, are one for all rows.

    Args:
        x: [T, B, F] float.
        state: h and c before row 0, [B, H].
        episode_start: [T, B] bool.
        weights: of an `nn.LSTM`'s layer, in its order: [4H, F], [4H, H], [4H], [4H].

    Returns:
        [T, B, H], and [B, H].

    Raises:
        RuntimeError: in a backward pass whose gradient is to be differentiated.
    """
    weight_x, weight_h, bias_x, bias_h = weights
    from_inputs = torch.nn.functional.linear(x, weight_x, bias_x + bias_h)
    return _Unroll.apply(from_inputs, weight_h, *state, episode_start)


class _Unroll(Function):
    """The part of a layer that goes row by row."""

    @staticmethod
    def forward(
        ctx: Any,
        from_inputs: torch.Tensor,
        weight_h: torch.Tensor,
        h: torch.Tensor,
        c: torch.Tensor,
        episode_start: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        T, (B, H) = len(from_inputs), h.shape
        gates = from_inputs.clone()
        outputs, h_before, c_before, tanh_c = (gates.new_empty(T, B, H) for _ in range(4))
        starts, any_start = episode_start[:, :, None], episode_start.any(1).tolist()
        for t in range(T):
            h_before[t], c_before[t] = h, c
            if any_start[t]:  # filled, as a product of 0 and a state that is not finite would be NaN
                h_before[t].masked_fill_(starts[t], 0.0)
                c_before[t].masked_fill_(starts[t], 0.0)
            row = gates[t].addmm_(h_before[t], weight_h.t())
            i, f, g, o = row.chunk(4, 1)
            row[:, : 2 * H].sigmoid_()
            g.tanh_()
            o.sigmoid_()
            c = (f * c_before[t]).addcmul_(i, g)
            h = torch.mul(o, torch.tanh(c, out=tanh_c[t]), out=outputs[t])
        ctx.save_for_backward(gates, weight_h, h_before, c_before, tanh_c, starts)
        ctx.any_start = any_start
        return outputs, c

    @staticmethod
    def backward(ctx: Any, d_outputs: torch.Tensor, dc: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # torch's `once_differentiable` refuses less: a second gradient of the saved tensors would be left out silently.
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Backward pass of an LSTM over rows in which episodes start, on a CPU: got create_graph=True; expected "
                "False, as its gradient has no gradient. Use a GRU, or rows without starts."
            )
        gates, weight_h, h_before, c_before, tanh_c, starts = ctx.saved_tensors
        T, B, H = d_outputs.shape
        # What a gradient is multiplied with on its way is known for all rows before the way back begins.
        i, f, g, o = gates.chunk(4, 2)
        slope = gates * (1.0 - gates)
        to_gates = torch.cat([g * slope[..., :H], c_before * slope[..., H : 2 * H], i * (1.0 - g * g)], 2)
        to_output_gate, to_c = tanh_c * slope[..., 3 * H :], o * (1.0 - tanh_c * tanh_c)
        to_gates = to_gates.view(T, B, 3, H)
        d_gates = torch.empty_like(gates)
        dh = torch.zeros_like(dc)
        for t in reversed(range(T)):
            dh = dh + d_outputs[t]
            dc = torch.addcmul(dc, dh, to_c[t])
            torch.mul(dc[:, None], to_gates[t], out=d_gates[t].view(B, 4, H)[:, :3])
            torch.mul(dh, to_output_gate[t], out=d_gates[t][:, 3 * H :])
            dc, dh = dc * f[t], d_gates[t] @ weight_h
            if ctx.any_start[t]:
                dc.masked_fill_(starts[t], 0.0)
                dh.masked_fill_(starts[t], 0.0)
        d_weight = d_gates.view(T * B, 4 * H).t() @ h_before.view(T * B, H)
        return d_gates, d_weight, dh, dc, None
