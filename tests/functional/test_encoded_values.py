"""Value heads: hand numbers, loops in Python floats, and the ways in which one may be given."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rlpyt import functional as F
from rlpyt.functional import C51, Expectation, HLGauss, QuantileRegression, TwoHot, ValueHead

HEADS: list[ValueHead] = [
    Expectation(),
    C51(-2.0, 3.0, 11),
    TwoHot(-2.0, 3.0, 11),
    HLGauss(-2.0, 3.0, 10),
    QuantileRegression(7),
]
WITH_RANGE = [head for head in HEADS if isinstance(head, TwoHot)]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def outputs_of(head: ValueHead, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, *([] if head.n_outputs is None else [head.n_outputs]), dtype=torch.float64)


# ---- references, one number at a time ----


def two_hot_by_loops(y: float, V_min: float, V_max: float, n: int) -> list[float]:
    dz, y = (V_max - V_min) / (n - 1), min(max(y, V_min), V_max)
    return [max(0.0, 1 - abs(y - (V_min + i * dz)) / dz) for i in range(n)]


def hl_gauss_by_loops(y: float, V_min: float, V_max: float, n: int, ratio: float) -> list[float]:
    w, y = (V_max - V_min) / n, min(max(y, V_min), V_max)
    below = [0.5 * (1 + math.erf((V_min + i * w - y) / (ratio * w * math.sqrt(2)))) for i in range(n + 1)]
    return [(below[i + 1] - below[i]) / (below[n] - below[0]) for i in range(n)]


def softmax_by_loops(logits: list[float]) -> list[float]:
    total = sum(map(math.exp, logits))
    return [math.exp(x) / total for x in logits]


def places_by_loops(head: TwoHot) -> list[float]:
    if isinstance(head, HLGauss):
        w = (head.V_max - head.V_min) / head.n_bins
        return [head.V_min + (i + 0.5) * w for i in range(head.n_bins)]
    return [head.V_min + i * (head.V_max - head.V_min) / (head.n_bins - 1) for i in range(head.n_bins)]


# ---- encodings ----


def test_two_hot_by_hand() -> None:
    y = torch.tensor([0.25, 1.0, -7.0, 2.0, 9.0])
    expected = [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    assert F.two_hot(y, 0.0, 2.0, 3).tolist() == expected
    assert F.two_hot(torch.tensor(0.5), 0.0, 1.0, 2).tolist() == [0.5, 0.5]


def test_hl_gauss_by_hand() -> None:
    # Two bins of width 1 and sigma 1: Phi(1) - Phi(0) = 0.3413447 on both sides of the edge between them.
    assert F.hl_gauss(torch.tensor(0.0), -1.0, 1.0, 2, 1.0).tolist() == pytest.approx([0.5, 0.5])
    # From y = -1: Phi(1) - Phi(0) = 0.3413447 and Phi(2) - Phi(1) = 0.1359051, of 0.4772499 that are inside.
    p = F.hl_gauss(torch.tensor([-1.0, -50.0]), -1.0, 1.0, 2, 1.0)
    assert p[0].tolist() == pytest.approx([0.3413447 / 0.4772499, 0.1359051 / 0.4772499], abs=1e-6)
    assert torch.equal(p[0], p[1])


@pytest.mark.parametrize("n", [2, 3, 51])
@pytest.mark.parametrize(("V_min", "V_max"), [(-10.0, 10.0), (0.0, 1.0), (-0.3, 7.7)])
def test_encodings_against_loops(n: int, V_min: float, V_max: float) -> None:
    y = torch.linspace(V_min - 1, V_max + 1, 60, dtype=torch.float64).reshape(3, 20)
    y[0, 0], y[0, 1] = V_min, V_max
    for found, reference, more in ((F.two_hot, two_hot_by_loops, []), (F.hl_gauss, hl_gauss_by_loops, [0.6])):
        expected = [reference(float(x), V_min, V_max, n, *more) for x in y.flatten()]
        p = found(y, V_min, V_max, n, *more)
        torch.testing.assert_close(p.flatten(0, 1), torch.tensor(expected, dtype=torch.float64))
        torch.testing.assert_close(p.sum(-1), torch.ones_like(y))
        assert (p >= 0).all()


@pytest.mark.parametrize("head", [TwoHot(-10, 10), HLGauss(-10, 10), C51(-10, 10, 101)], ids=str)
def test_the_mean_of_an_encoding_is_the_number(head: TwoHot) -> None:
    y = torch.linspace(-9.2, 9.2, 999, dtype=torch.float64)  # four bins from the ends, where a Gaussian is cut off
    target = head.encode(y)
    torch.testing.assert_close(head.mean(target.content.log()), y, rtol=0, atol=1e-5)
    assert torch.equal(target.value, y)


@pytest.mark.parametrize("function", [F.two_hot, F.hl_gauss])
@pytest.mark.parametrize("given", [(1.0, 1.0, 5), (2.0, 1.0, 5), (0.0, 1.0, 1)])
def test_an_encoding_without_a_range_is_refused(function: Any, given: Any) -> None:
    with pytest.raises(ValueError, match="expected V_min below V_max and at least 2 atoms"):
        function(torch.zeros(3), *given)


# ---- heads ----


@pytest.mark.parametrize("head", WITH_RANGE, ids=str)
def test_mean_and_loss_against_loops(head: TwoHot) -> None:
    output, y = outputs_of(head, 4), torch.tensor([-2.0, 0.31, 2.99, 8.0], dtype=torch.float64)
    target, places = head.encode(y), places_by_loops(head)
    means, losses = head.mean(output), head.loss(output, target)
    for i in range(4):
        p = softmax_by_loops(output[i].tolist())
        if isinstance(head, HLGauss):
            of_target = hl_gauss_by_loops(float(y[i]), head.V_min, head.V_max, head.n_bins, head.sigma_ratio)
        else:
            of_target = two_hot_by_loops(float(y[i]), head.V_min, head.V_max, head.n_bins)
        assert means[i].item() == pytest.approx(sum(a * b for a, b in zip(p, places, strict=True)))
        assert losses[i].item() == pytest.approx(-sum(a * math.log(b) for a, b in zip(of_target, p, strict=True)))
    assert target.outside is not None
    assert target.outside.tolist() == [0, 0, 0, 1]
    assert target.metrics(torch.mean) == {F.TARGETS_OUTSIDE: pytest.approx(0.25)}


def test_a_number_has_the_losses_of_before() -> None:
    output, y = torch.randn(5), torch.randn(5)
    head = Expectation()
    assert torch.equal(head.loss(output, head.encode(y)), F.squared_loss(y - output))
    assert torch.equal(head.loss(output, head.encode(y), 0.3), F.huber_loss(y - output, 0.3))
    assert head.mean(output) is output
    assert head.encode(y).metrics(torch.mean) == {}
    outputs = torch.randn(3, 5)
    assert torch.equal(head.lowest(outputs), F.clipped_double_q(outputs))


def test_quantiles_are_those_of_quantile_regression() -> None:
    head, output = QuantileRegression(4), torch.randn(3, 4)
    next_output, tau = torch.randn(3, 4), F.midpoints(4)
    target = head.bootstrap(next_output, lambda x: 1 + 0.5 * x)
    assert torch.equal(target.value, (1 + 0.5 * next_output).mean(-1))
    for clip in (None, 0.5):
        expected = F.quantile_huber_loss(output, tau, 1 + 0.5 * next_output, clip)
        assert torch.equal(head.loss(output, target, clip), expected)
    # Of one sample y the loss is sum_i |tau_i - 1[y < q_i]| |y - q_i|.
    one = head.loss(torch.tensor([[0.0, 1.0, 2.0, 3.0]]), head.encode(torch.tensor([1.5])))
    assert one.item() == pytest.approx(0.125 * 1.5 + 0.375 * 0.5 + 0.375 * 0.5 + 0.125 * 1.5)


def test_a_target_of_the_whole_distribution_against_loops() -> None:
    head = C51(-2.0, 3.0, 6)
    next_output = outputs_of(head, 5)
    target = head.bootstrap(next_output, lambda x: 1.1 + 0.9 * x)
    assert target.outside is not None
    for i in range(5):
        p, projected, outside, mean = softmax_by_loops(next_output[i].tolist()), [0.0] * 6, 0.0, 0.0
        for z, share in zip(places_by_loops(head), p, strict=True):
            y = 1.1 + 0.9 * z
            mean, outside = mean + share * y, outside + share * (y > 3.0 or y < -2.0)
            for j, near in enumerate(two_hot_by_loops(y, -2.0, 3.0, 6)):
                projected[j] += share * near
        assert target.content[i].tolist() == pytest.approx(projected)
        assert target.value[i].item() == pytest.approx(mean)
        assert target.outside[i].item() == pytest.approx(outside)
        assert outside > 0


@pytest.mark.parametrize("head", HEADS, ids=str)
class TestEveryHead:
    def test_shapes_and_gradients(self, head: ValueHead) -> None:
        output, next_output = outputs_of(head, 2, 3, 4).requires_grad_(), outputs_of(head, 3, 4).requires_grad_()
        assert head.mean(output).shape == (2, 3, 4)
        for target in (head.encode(head.mean(next_output)), head.bootstrap(next_output, lambda x: 0.5 * x)):
            assert target.value.shape == (3, 4)
            assert not target.value.requires_grad
            assert not target.content.requires_grad
            loss = head.loss(output, target)  # of two networks, against one target
            assert loss.shape == (2, 3, 4)
            assert loss.requires_grad
            torch.testing.assert_close(loss[1], head.loss(output[1], target))

    def test_the_lowest_network_by_its_mean(self, head: ValueHead) -> None:
        outputs = outputs_of(head, 3, 5, 2)
        lowest, means = head.lowest(outputs), head.mean(outputs)
        for i in range(5):
            for j in range(2):
                which = min(range(3), key=lambda k: float(means[k, i, j]))
                assert torch.equal(lowest[i, j], outputs[which, i, j])


# ---- how one is given ----


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("expectation", Expectation()),
        ("hl_gauss:-10,10", HLGauss(-10, 10)),
        ("hl_gauss:-10,10,51,0.5", HLGauss(-10, 10, 51, 0.5)),
        ("two_hot:0,2e2", TwoHot(0, 200)),
        ("c51:-1,1,21", C51(-1, 1, 21)),
        ("quantiles", QuantileRegression()),
        ("quantiles:8", QuantileRegression(8)),
    ],
)
def test_texts(text: str, head: ValueHead) -> None:
    assert F.as_value_head(text) == head
    assert F.as_value_head(head) is head


@pytest.mark.parametrize(
    "text", ["", "gauss:-1,1", "hl_gauss", "c51:3", "hl_gauss:a,b", "quantiles:1,2", "two_hot -1,1"]
)
def test_a_text_of_no_head_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r'^agent: got .*; expected "expectation", .* such as "hl_gauss:-10,10"'):
        F.as_value_head(text, "agent")


def test_no_head_at_all_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^value_head: got 3 of type int; expected"):
        F.as_value_head(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^value_head: got <class .*HLGauss'> of type ABCMeta"):
        F.as_value_head(HLGauss)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: HLGauss(1, 1), "HLGauss: V_min is 1 and V_max 1; expected finite numbers, V_min below V_max"),
        (lambda: TwoHot(-math.inf, 1), "TwoHot: V_min is -inf"),
        (lambda: C51(0, math.nan), "C51: V_min is 0 and V_max nan"),
        (lambda: TwoHot(0, 1, 1), "TwoHot: n_bins is 1; expected a whole number from 2"),
        (lambda: TwoHot(0, 1, 5.5), "TwoHot: n_bins is 5.5"),  # type: ignore[arg-type]
        (lambda: HLGauss(0, 1, sigma_ratio=0), "HLGauss: sigma_ratio is 0; expected a number above 0"),
        (lambda: QuantileRegression(0), "QuantileRegression: n_quantiles is 0; expected a whole number from 1"),
    ],
)
def test_a_head_that_cannot_be_is_refused(make: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        make()
