"""Recurrent layers over rows [T, B] in which episodes may start anywhere."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from rlpyt.models.cut_lstm import cut_lstm
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.utils.arrays import buffer_func

# Rows for every row with a start up from which the unroll is one call for each piece: with fewer, calls cost more.
_ROWS_A_CALL = 8
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

        It takes about 1.3 times as long as without any start, however many episodes start, and where. On a CPU where
        torch computes the call without a start by a quicker library it takes 2.3 times as long
        (docs/notes/benchmarks.md).

        Args:
            x: [T, B, input_size] float.
            rnn_state: before row 0; None is zero.
            episode_start: [T, B] bool, True where the state is zero before the row; None is nowhere. Leave it on the
                CPU: to read it from another device would synchronise.

        Returns:
            [T, B, H] float32, and the state.
        """
        state = self.initial_rnn_state(x.shape[1]) if rnn_state is None else rnn_state
        # Autocast would round the state at every step, and is slower on a CPU (80 x 8 x 512 LSTM: 98 against 82 ms).
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            if episode_start is None:
                return self._unroll(x, state)
            rows = episode_start.any(1).nonzero().flatten().tolist()
            if len(rows) <= max(1, len(x) // _ROWS_A_CALL):
                return self._unroll_between(rows, x, state, episode_start.to(x.device, non_blocking=True))
            if x.device.type == "cpu" and _is_plain_lstm(self.rnn):
                return self._unroll_cut(x, state, episode_start)
            return self._unroll_packed(x, state, episode_start)

    def _unroll(self, x: torch.Tensor, state: RnnState) -> tuple[torch.Tensor, RnnState]:
        output, last = self.rnn(x, _of_torch(state))
        return output, _from_torch(last)

    def _unroll_between(
        self, rows: list[int], x: torch.Tensor, state: RnnState, episode_start: torch.Tensor
    ) -> tuple[torch.Tensor, RnnState]:
        outputs = []
        for t0, t1 in pairwise([*sorted({0, *rows}), len(x)]):
            output, state = self._unroll(x[t0:t1], _zero_where(episode_start[t0], state) if t0 in rows else state)
            outputs.append(output)
        return torch.cat(outputs), state

    def _unroll_cut(
        self, x: torch.Tensor, state: RnnState, episode_start: torch.Tensor
    ) -> tuple[torch.Tensor, RnnState]:
        # On a CPU the LSTM of torch takes half as long again with packed sequences (docs/notes/benchmarks.md).
        assert state.c is not None
        last_h, last_c = [], []
        for h, c, weights in zip(state.h, state.c, self.rnn.all_weights, strict=True):
            x, c = cut_lstm(x, (h, c), episode_start, weights)
            last_h.append(x[-1])
            last_c.append(c)
        return x, RnnState(torch.stack(last_h), torch.stack(last_c))

    def _unroll_packed(
        self, x: torch.Tensor, state: RnnState, episode_start: torch.Tensor
    ) -> tuple[torch.Tensor, RnnState]:
        pieces = Pieces(episode_start)
        output, last = self.rnn(pieces.pack(x), _of_torch(pieces.first_state(state)))
        return pieces.unpack(output), pieces.last_state(_from_torch(last))


class Pieces:
    """The pieces of rows [T, B] in which no episode starts but at their beginning, as sequences of their own."""

    def __init__(self, episode_start: torch.Tensor) -> None:
        start = episode_start.cpu()
        T, B = start.shape
        self._starts_anew = start[0]
        begins = start.clone()
        begins[0] = True
        row = torch.arange(T)[:, None]
        age = row - torch.where(begins, row, 0).cummax(0).values
        piece = begins.t().flatten().cumsum(0).view(B, T).t() - 1
        # As torch wants them: the longest first.
        place = torch.bincount(piece.flatten()).argsort(descending=True, stable=True).argsort()[piece]
        self._n, self._first, self._last = int(piece.max()) + 1, place[0], place[-1]
        self._alive = torch.bincount(age.flatten())
        self._order = (age * self._n + place).flatten().argsort()

    def pack(self, x: torch.Tensor) -> PackedSequence:
        """Return rows [T, B, F] with the first rows of all pieces first, then their second rows, and so on."""
        return PackedSequence(x.flatten(0, 1)[self._order.to(x.device, non_blocking=True)], self._alive)

    def unpack(self, packed: PackedSequence) -> torch.Tensor:
        """Return rows [T, B, H] in their own order."""
        rows = packed.data[self._order.argsort().to(packed.data.device, non_blocking=True)]
        return rows.view(-1, len(self._first), rows.shape[1])

    def first_state(self, state: RnnState) -> RnnState:
        """Return the states [N, pieces, H] before the first rows of the pieces, for those of the environments."""
        device = state.h.device
        anew, first = (x.to(device, non_blocking=True) for x in (self._starts_anew, self._first))
        kept = _zero_where(anew, state)
        return buffer_func(kept, lambda x: x.new_zeros(len(x), self._n, x.shape[2]).index_copy(1, first, x))

    def last_state(self, state: RnnState) -> RnnState:
        """Return the states [N, B, H] of the environments after their last rows, for those of the pieces."""
        return state[:, self._last.to(state.h.device, non_blocking=True)]


def make_core(kind: str | None, input_size: int, hidden_size: int) -> RecurrentCore | None:
    """Return a new core of one layer; None where the kind is None."""
    return None if kind is None else RecurrentCore(input_size, hidden_size, kind=kind)


def _is_plain_lstm(rnn: nn.RNNBase) -> bool:
    """Return whether a layer does no more than the cells of an LSTM that read from layer to layer."""
    more = rnn.bidirectional or rnn.proj_size or rnn.dropout or rnn._forward_hooks or rnn._forward_pre_hooks
    return type(rnn) is nn.LSTM and rnn.bias and not more


def _zero_where(start: torch.Tensor, state: RnnState) -> RnnState:
    """Return the state [N, B, H] with zeros where start [B] is True."""
    h, c = state
    return RnnState(h.masked_fill(start[:, None], 0), None if c is None else c.masked_fill(start[:, None], 0))


def _of_torch(state: RnnState) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    return state.h if state.c is None else (state.h, state.c)


def _from_torch(state: torch.Tensor | tuple[torch.Tensor, torch.Tensor]) -> RnnState:
    return RnnState(state) if isinstance(state, torch.Tensor) else RnnState(*state)
