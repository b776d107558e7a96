from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.models import RecurrentCore, RnnState, recurrent
from rlpyt.models.cut_lstm import cut_lstm
from rlpyt.utils.arrays import buffer_leaves


def row_by_row(
    core: RecurrentCore, x: torch.Tensor, state: RnnState, episode_start: torch.Tensor
) -> tuple[torch.Tensor, RnnState]:
    """The slow reference: one row of one environment at a time."""
    columns, states = [], []
    for b in range(x.shape[1]):
        own = state[:, b : b + 1]
        outputs = []
        for t in range(len(x)):
            if episode_start[t, b]:
                own = core.initial_rnn_state(1)
            output, own = core(x[t : t + 1, b : b + 1], own)
            outputs.append(output)
        columns.append(torch.cat(outputs))
        states.append(own)
    return torch.cat(columns, 1), join(states)


def join(states: list[RnnState]) -> RnnState:
    """Put the states of single environments side by side."""
    cells = [state.c for state in states if state.c is not None]
    return RnnState(torch.cat([state.h for state in states], 1), torch.cat(cells, 1) if cells else None)


def random_state(core: RecurrentCore, B: int) -> RnnState:
    h, c = core.initial_rnn_state(B)
    return RnnState(torch.randn_like(h), None if c is None else torch.randn_like(c))


def outputs_and_gradients(
    unroll: Callable[[torch.Tensor, RnnState], tuple[torch.Tensor, RnnState]],
    core: RecurrentCore,
    x: torch.Tensor,
    state: RnnState,
) -> list[torch.Tensor]:
    """Return outputs, last state, and the gradients in weights, inputs and first state of a loss over all of them."""
    leaves = [y.clone().requires_grad_() for y in (x, *buffer_leaves(state))]
    output, final = unroll(leaves[0], RnnState(*leaves[1:]))
    results = [output, *buffer_leaves(final)]
    loss = sum((y * torch.linspace(-1, 2, y.numel()).view(y.shape)).square().sum() for y in results)
    assert isinstance(loss, torch.Tensor)
    return [*results, *torch.autograd.grad(loss, [*core.parameters(), *leaves], materialize_grads=True)]


WAYS = ["few", "many", "packed"]


@contextmanager
def way(name: str, core: RecurrentCore) -> Iterator[None]:
    """Let a core unroll in one of its ways, whatever starts and on whatever device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrent, "_ROWS_A_CALL", 1 if name == "few" else 100)
        if name == "packed":
            patch.setattr(core, "_unroll_cut", core._unroll_packed)
        yield


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["lstm", "gru"]),
    num_layers=st.integers(1, 2),
    T=st.integers(1, 7),
    p_start=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    name=st.sampled_from(WAYS),
)
def test_equals_the_row_by_row_reference(
    seed: int, kind: str, num_layers: int, T: int, p_start: float, name: str
) -> None:
    torch.manual_seed(seed)
    core = RecurrentCore(3, 4, num_layers, kind)
    x, start = torch.randn(T, 3, 3), torch.rand(T, 3) < p_start
    state = random_state(core, 3)
    expected = outputs_and_gradients(lambda x, s: row_by_row(core, x, s, start), core, x, state)
    with way(name, core):
        results = outputs_and_gradients(lambda x, s: core(x, s, start), core, x, state)
    assert len(results) == len(expected)
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result, reference, rtol=1e-4, atol=1e-5)


def test_the_gradient_by_hand_is_the_numerical_one() -> None:
    torch.manual_seed(0)
    T, B, F, H = 4, 2, 3, 2
    shapes = [(T, B, F), (B, H), (B, H), (4 * H, F), (4 * H, H), (4 * H,), (4 * H,)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    start = torch.tensor([[True, False], [False, True], [False, False], [True, True]])
    assert torch.autograd.gradcheck(lambda x, h, c, *weights: cut_lstm(x, (h, c), start, weights), inputs)


def test_a_gradient_of_the_gradient_is_refused() -> None:
    x = torch.randn(4, 2, 3, requires_grad=True)
    output, _ = RecurrentCore(3, 4)(x, None, torch.ones(4, 2, dtype=torch.bool))
    with pytest.raises(RuntimeError, match=r"LSTM over rows in which episodes start.*got create_graph=True"):
        torch.autograd.grad(output.sum(), x, create_graph=True)


def no_bias(core: RecurrentCore) -> None:
    core.rnn = torch.nn.LSTM(3, 4, bias=False)


def with_dropout(core: RecurrentCore) -> None:
    core.rnn = torch.nn.LSTM(3, 4, 2, dropout=0.5)


def hooked(core: RecurrentCore) -> None:
    core.rnn.register_forward_hook(
        lambda _module, _inputs, output: (output[0]._replace(data=2 * output[0][0]), output[1])
    )


def normalised(core: RecurrentCore) -> None:
    torch.nn.utils.weight_norm(core.rnn, "weight_hh_l0")


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("change", [no_bias, with_dropout, hooked, normalised])
def test_what_an_lstm_does_beside_its_cells_is_done_where_episodes_start(
    change: Callable[[RecurrentCore], None],
) -> None:
    core = RecurrentCore(3, 4, 2 if change is with_dropout else 1)
    change(core)
    x, state, start = torch.randn(6, 2, 3), random_state(core, 2), torch.ones(6, 2, dtype=torch.bool)
    for _ in range(2):
        torch.manual_seed(0)
        output = core(x, state, start)[0]
        torch.manual_seed(0)
        with way("packed", core):
            expected = core(x, state, start)[0]
        torch.testing.assert_close(output, expected)
        output.sum().backward()
        with torch.no_grad():
            for parameter in core.parameters():
                parameter.add_(0.1)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_no_gradient_and_no_nan_crosses_an_episode_start(kind: str, name: str) -> None:
    core = RecurrentCore(2, 4, kind=kind)
    x = torch.randn(4, 2, 2, requires_grad=True)
    h = torch.full((1, 2, 4), torch.nan)
    h[:, 1] = 0.5
    start = torch.tensor([[True, False], [False, False], [True, False], [False, False]])
    with way(name, core):
        output, _ = core(x, RnnState(h, h.clone() if kind == "lstm" else None), start)
    assert output.isfinite().all()
    output[3].sum().backward()
    assert x.grad is not None
    assert (x.grad[:2, 0] == 0).all()
    assert (x.grad[2:, 0] != 0).all()
    assert (x.grad[:, 1] != 0).all()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_no_state_is_the_zero_state(kind: str) -> None:
    core = RecurrentCore(3, 4, 2, kind)
    zero = core.initial_rnn_state(5)
    assert zero.h.shape == (2, 5, 4)
    assert not zero.h.any()
    x = torch.randn(2, 5, 3)
    nowhere = torch.zeros(2, 5, dtype=torch.bool)
    outputs = [core(x)[0], core(x, zero)[0], core(x, zero, nowhere)[0], core(x, None, nowhere)[0]]
    for output in outputs[1:]:
        assert torch.equal(output, outputs[0])


def test_the_given_state_is_not_written_to() -> None:
    core = RecurrentCore(3, 4)
    state = RnnState(torch.ones(1, 2, 4), torch.ones(1, 2, 4))
    core(torch.randn(2, 2, 3), state, torch.ones(2, 2, dtype=torch.bool))
    assert state.h.eq(1).all()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_float32_under_autocast(kind: str) -> None:
    core = RecurrentCore(3, 4, kind=kind)
    x = torch.randn(2, 5, 3).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        output, state = core(x)
    assert output.dtype == state.h.dtype == torch.float32
    assert torch.equal(output, core(x.float())[0])


def test_refuses_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match=r"kind is 'rnn'; expected one of \['lstm', 'gru'\]"):
        RecurrentCore(3, 4, kind="rnn")
