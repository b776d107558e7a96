"""Schedules: hand numbers, exact ends, no overshoot, strings, binding, messages."""

import pickle
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlpyt.functional import Constant, Cosine, Exponential, Linear, Piecewise, as_schedule


@pytest.mark.parametrize(
    ("schedule", "points"),
    [
        (Constant(3), {-1: 3, 0: 3, 10**9: 3}),
        (Linear(1.0, steps=100), {0: 1, 25: 0.75, 50: 0.5, 100: 0, 101: 0}),
        (Linear(1.0, 0.1, steps=100, begin=50), {0: 1, 50: 1, 100: 0.55, 150: 0.1, 10**9: 0.1}),
        (Linear(0.4, 1.0, steps=1e2), {0: 0.4, 50: 0.7, 100: 1}),
        (Cosine(2.0, steps=100), {0: 2, 25: 1 + 0.5**0.5, 50: 1, 100: 0, 200: 0}),
        (Cosine(2.0, 1.0, steps=110, warmup_steps=10), {-5: 0, 0: 0, 5: 1, 10: 2, 60: 1.5, 110: 1}),
        (Exponential(1.0, 1e-4, steps=100), {0: 1, 25: 0.1, 50: 0.01, 100: 1e-4, 200: 1e-4}),
        (Exponential(0.5, 2.0, steps=2), {0: 0.5, 1: 1, 2: 2}),
        (Piecewise([10, 20, 40], [1.0, 3.0, 2.0]), {0: 1, 10: 1, 15: 2, 20: 3, 30: 2.5, 40: 2, 99: 2}),
        (Piecewise([10, 20], [1.0, 3.0], "step"), {0: 1, 10: 1, 19: 1, 20: 3, 99: 3}),
        (Piecewise([5], [7.0]), {0: 7, 5: 7, 6: 7}),
    ],
    ids=repr,
)
def test_values_by_hand(schedule, points):
    for step, expected in points.items():
        value = schedule(np.int64(step))
        assert type(value) is float
        assert value == pytest.approx(expected, abs=1e-15)
    assert pickle.loads(pickle.dumps(schedule)) == schedule


positive = st.floats(1e-6, 1e3)


@settings(max_examples=100)
@given(positive, positive, st.integers(1, 10**7), st.integers(0, 10**7))
@example(0.9, 0.9, 10, 2)  # 0.8 * 0.9 + 0.2 * 0.9 > 0.9
def test_ends_are_exact_and_nothing_lies_beyond_them(start, end, steps, step):
    for schedule in (
        Linear(start, end, steps),
        Cosine(start, end, steps),
        Exponential(start, end, steps),
        Piecewise((0, steps), (start, end)),
    ):
        assert schedule(0) == schedule(-1) == start
        assert schedule(steps) == schedule(steps + step) == end
        assert min(start, end) <= schedule(step) <= max(start, end)
        if start >= end:
            assert schedule(step) >= schedule(step + steps // 3 + 1) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("given_", "schedule"),
    [
        (0.1, Constant(0.1)),
        (np.float32(0.5), Constant(0.5)),
        ("0.1", Constant(0.1)),
        ("const_0.1", Constant(0.1)),
        ("lin_2.5e-4", Linear(2.5e-4, 0.0, 1000)),
        ("lin_1_0.1", Linear(1.0, 0.1, 1000)),
        ("cos_3e-4", Cosine(3e-4, 0.0, 1000)),
        ("cos_3e-4_1e-5", Cosine(3e-4, 1e-5, 1000)),
        ("exp_1e-3_1e-5", Exponential(1e-3, 1e-5, 1000)),
        (Linear(1.0), Linear(1.0, 0.0, 1000)),
        (Linear(1.0, begin=300), Linear(1.0, 0.0, 700, begin=300)),
        (Linear(1.0, steps=10), Linear(1.0, steps=10)),
        (Cosine(1.0, warmup_steps=10), Cosine(1.0, steps=1000, warmup_steps=10)),
        (Piecewise((0, 5), (1.0, 2.0)), Piecewise((0, 5), (1.0, 2.0))),
    ],
)
def test_as_schedule(given_, schedule):
    assert as_schedule(given_, n_steps=1000, name="learning_rate") == schedule


def test_as_schedule_returns_a_callable_as_it_is():
    def halves(step):
        return 0.5**step

    assert as_schedule(halves) is halves
    assert as_schedule(float("inf"))(0) == float("inf")  # no clipping, say


@pytest.mark.parametrize(
    ("value", "n_steps", "error", "message"),
    [
        (True, 10, TypeError, "got True of type bool; expected a number, a schedule object"),
        (None, 10, TypeError, "got None of type NoneType; expected a number"),
        (Linear, 10, TypeError, "of type type; expected .* construct the class"),
        (float("nan"), 10, ValueError, "got value=nan; expected a number"),
        ("lin", 10, ValueError, "got the string 'lin'; expected .*'lin_START'"),
        ("linear_1e-3", 10, ValueError, "got the string 'linear_1e-3'"),
        ("exp_1e-3", 10, ValueError, "got the string 'exp_1e-3'; expected .*'exp_START_END'"),
        ("exp_1_0", 10, ValueError, "Exponential: got start=1.0 and end=0.0; expected both above 0"),
        ("lin_inf", 10, ValueError, "Linear: got start=inf; expected a finite number"),
        ("lin_1", None, ValueError, "run of None steps; expected a run .* Give n_steps"),
        (Linear(1.0, begin=10), 10, ValueError, "in a run of 10 steps; expected a run that ends after"),
        (Cosine(1.0, warmup_steps=10), 10, ValueError, "Cosine: got warmup_steps=10 and steps=10; expected fewer"),
        (0.1, -5, ValueError, "got n_steps=-5; expected a finite number of at least 1"),
    ],
)
def test_as_schedule_names_the_hyper_parameter_and_what_came(value, n_steps, error, message):
    with pytest.raises(error, match=f"^learning_rate: .*{message}"):
        as_schedule(value, n_steps, name="learning_rate")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Linear(1.0, steps=-1), ValueError, "Linear: got steps=-1; expected a finite number of at least 1"),
        (lambda: Linear(1.0, steps=True), TypeError, "got steps=True of type bool"),
        (lambda: Linear(1.0, begin=-1), ValueError, "got begin=-1; expected a finite number of at least 0"),
        (lambda: Linear(cast(float, "1")), TypeError, "got start='1' of type str; expected a number"),
        (lambda: Exponential(-1.0, 1.0), ValueError, "got start=-1.0"),
        (lambda: Piecewise((0, 1), (1.0,)), ValueError, "got 2 boundaries and 1 values; expected one value for each"),
        (lambda: Piecewise((5, 5), (1.0, 2.0)), ValueError, r"got boundaries \(5, 5\); expected increasing"),
        (
            lambda: Piecewise((0,), (1.0,), cast(Any, "cubic")),
            ValueError,
            "got interpolation 'cubic'; expected 'linear'",
        ),
        (lambda: Linear(1.0)(0), ValueError, r"got Linear\(.*steps=None .*expected a length. Bind it first"),
        (lambda: Cosine(1.0, warmup_steps=5)(7), ValueError, "whose steps=None stands for the whole run"),
    ],
)
def test_wrong_schedules_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
