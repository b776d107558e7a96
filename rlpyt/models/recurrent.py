"""Recurrent layers over rows [T, B] in which episodes may start anywhere."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from rlpyt.namedarraytuple import NamedArrayTuple

KINDS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class RnnState(NamedArrayTuple):
    """State of a recurrent core in the layout of torch: [N, B, H], layers, environments, units."""

    h: torch.Tensor
    c: torch.Tensor | None = None
    """The cells of an LSTM; None for a GRU."""


class RecurrentCore(nn.Module):
    """LSTM or GRU that sets its state to zero where an episode starts, also inside an unroll.

    It computes in float32, under autocast too.

    Args:
        input_size: features in.
        hidden_size: H.
        num_layers: N.
        kind: "lstm" or "gru".

    Raises:
        ValueError: if the kind is neither.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, kind: str = "lstm") -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"RecurrentCore: kind is {kind!r}; expected one of {list(KINDS)}.")
        self.rnn = KINDS[kind](input_size, hidden_size, num_layers)
        self.output_size = hidden_size

    def initial_rnn_state(self, batch_size: int) -> RnnState:
        """Return a state of zeros, [N, batch_size, H]."""
        weight = next(self.rnn.parameters())
        h = weight.new_zeros(self.rnn.num_layers, batch_size, self.rnn.hidden_size)
        return RnnState(h, torch.zeros_like(h) if isinstance(self.rnn, nn.LSTM) else None)

    def forward(
        self,
        x: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, RnnState]:
        """Return the outputs of all rows and the state after the last row.

        The rows are split where any environment starts an episode, and each piece runs in one call.

        Args:
            x: [T, B, input_size] float.
            rnn_state: before row 0; None is zero.
            episode_start: [T, B] bool, True where the state is zero before the row; None is nowhere. Leave it on the
                CPU: to read it from another device would synchronise.

        Returns:
            [T, B, H] float32, and the state.
        """
        state = self.initial_rnn_state(x.shape[1]) if rnn_state is None else rnn_state
        if episode_start is None:
            return self._unroll(x, state)
        starts = set(episode_start.any(1).nonzero().flatten().tolist())
        episode_start = episode_start.to(x.device, non_blocking=True)
        outputs = []
        for t0, t1 in pairwise([*sorted(starts | {0}), len(x)]):
            if t0 in starts:
                state = _zero_where(episode_start[t0], state)
            output, state = self._unroll(x[t0:t1], state)
            outputs.append(output)
        return torch.cat(outputs), state

    def _unroll(self, x: torch.Tensor, state: RnnState) -> tuple[torch.Tensor, RnnState]:
        # Autocast would round the state at every step, and is slower on a CPU (80 x 8 x 512 LSTM: 98 against 82 ms).
        with torch.autocast(x.device.type, enabled=False):
            if isinstance(self.rnn, nn.GRU):
                output, h = self.rnn(x.float(), state.h)
                return output, RnnState(h)
            output, (h, c) = self.rnn(x.float(), tuple(state))
            return output, RnnState(h, c)


def make_core(kind: str | None, input_size: int, hidden_size: int) -> RecurrentCore | None:
    """Return a new core of one layer; None where the kind is None."""
    return None if kind is None else RecurrentCore(input_size, hidden_size, kind=kind)


def _zero_where(start: torch.Tensor, state: RnnState) -> RnnState:
    """Return the state [N, B, H] with zeros where start [B] is True."""
    h, c = state
    return RnnState(h.masked_fill(start[:, None], 0), None if c is None else c.masked_fill(start[:, None], 0))
