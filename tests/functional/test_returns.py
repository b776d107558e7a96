"""Returns against hand numbers, slow references of another shape, and each other."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.functional import (
    generalized_advantage_estimation,
    lambda_return,
    n_step_return,
    running_return,
)

few = settings(max_examples=50)
seeds = st.integers(0, 2**31)
unit = st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0])


def random_rows(seed, dtype=torch.float64, p_end=0.2):
    """Rows of random episodes by the row convention, as keyword arguments, and valid.

    The rows of final observations hold garbage wherever nothing may read it.
    """
    rng = np.random.default_rng(seed)
    T, B = int(rng.integers(1, 20)), int(rng.integers(1, 4))
    reward, values = rng.normal(size=(T, B)), rng.normal(size=(T + 1, B))
    terminated, truncated, valid = np.zeros((3, T + 1, B), dtype=bool)
    valid[:] = True
    for b in range(B):
        valid[0, b] = rng.random() > p_end  # the episode may have ended with the last batch
        for t in range(T):
            if valid[t, b] and rng.random() < p_end:
                which = rng.integers(3)
                terminated[t, b], truncated[t, b] = which != 0, which != 1  # both, one time in three
                valid[t + 1, b] = False
    value, next_value = values[:-1].copy(), values[1:].copy()
    terminated, truncated, valid = terminated[:T], truncated[:T], valid[:T]
    garbage = np.where(np.arange(B) % 2, np.nan, 1e30)  # NaN in every other environment
    for array in (reward, value, next_value):
        array[~valid] = np.broadcast_to(garbage, (T, B))[~valid]
    next_value[terminated] = np.nan
    rows = dict(reward=reward, value=value, next_value=next_value)
    tensors = {name: torch.tensor(array, dtype=dtype) for name, array in rows.items()}
    flags = dict(terminated=torch.tensor(terminated), truncated=torch.tensor(truncated))
    return tensors | flags, torch.tensor(valid)


def without_value(rows):
    return {name: array for name, array in rows.items() if name != "value"}


def n_step_returns_of_row(rows, t, b, discount):
    """G^(1), G^(2), ... of row (t, b), each bootstrapped, up to the end of its episode or batch."""
    reward, next_value, terminated, truncated = (
        rows[name][:, b].tolist() for name in ("reward", "next_value", "terminated", "truncated")
    )
    total, returns = 0.0, []
    for k in range(t, len(reward)):
        total += discount ** (k - t) * reward[k]
        returns.append(total + (0.0 if terminated[k] else discount ** (k - t + 1) * next_value[k]))
        if terminated[k] or truncated[k]:
            break
    return returns


def assert_valid_rows(result, expected, valid, **tolerance):
    """`expected(t, b)` on every valid row."""
    for t, b in valid.nonzero().tolist():
        assert result[t, b].item() == pytest.approx(expected(t, b), **(tolerance or dict(abs=1e-9)))


# One environment: two steps, truncated; final row; two steps, terminated; final row; one step.
REWARD = torch.tensor([[1.0], [2.0], [0.0], [3.0], [4.0], [0.0], [5.0]])
VALUE = torch.tensor([[10.0], [20.0], [30.0], [40.0], [50.0], [60.0], [70.0]])
BOOTSTRAP_VALUE = 80.0
HAND = dict(
    reward=REWARD,
    next_value=torch.cat([VALUE[1:], torch.tensor([[BOOTSTRAP_VALUE]])]),
    terminated=torch.tensor([[0], [0], [0], [0], [1], [0], [0]]) != 0,
    truncated=torch.tensor([[0], [1], [0], [0], [0], [0], [0]]) != 0,
)
HAND_VALID = [0, 1, 3, 4, 6]


def test_lambda_return_by_hand():
    return_ = lambda_return(**HAND, discount=0.5, lambda_=1.0)
    # Row 1 bootstraps from 30, the value of the final observation; row 4 from nothing.
    assert return_[HAND_VALID, 0].tolist() == [1 + 0.5 * 17, 2 + 0.5 * 30, 3 + 0.5 * 4, 4, 5 + 0.5 * 80]


def test_gae_by_hand():
    advantage, return_ = generalized_advantage_estimation(**HAND, value=VALUE, discount=0.5, gae_lambda=0.5)
    delta = {0: 1 + 10 - 10, 1: 2 + 15 - 20, 3: 3 + 25 - 40, 4: 4 - 50, 6: 5 + 40 - 70}
    expected = [delta[0] + 0.25 * delta[1], delta[1], delta[3] + 0.25 * delta[4], delta[4], delta[6]]
    assert advantage[HAND_VALID, 0].tolist() == expected
    assert torch.equal(return_, advantage + VALUE)


@few
@given(seeds, unit, unit)
def test_lambda_return_is_the_mixture_of_n_step_returns(seed, discount, lambda_):
    rows, valid = random_rows(seed)

    def expected(t, b):
        *shorter, longest = n_step_returns_of_row(rows, t, b, discount)
        mixed = sum((1 - lambda_) * lambda_**i * g for i, g in enumerate(shorter))
        return mixed + lambda_ ** len(shorter) * longest

    return_ = lambda_return(**without_value(rows), discount=discount, lambda_=lambda_)
    assert_valid_rows(return_, expected, valid)


@few
@given(seeds, unit, unit)
def test_gae_is_the_sum_of_discounted_deltas(seed, discount, gae_lambda):
    rows, valid = random_rows(seed)

    def expected(t, b):
        total = 0.0
        for k in range(t, len(valid)):
            r, v, v_next, terminated, truncated = (
                rows[name][k, b].item() for name in ("reward", "value", "next_value", "terminated", "truncated")
            )
            delta = r - v + (0.0 if terminated else discount * v_next)
            total += (discount * gae_lambda) ** (k - t) * delta
            if terminated or truncated:
                break
        return total

    advantage, return_ = generalized_advantage_estimation(**rows, discount=discount, gae_lambda=gae_lambda)
    assert_valid_rows(advantage, expected, valid)
    assert_valid_rows(return_ - rows["value"], expected, valid)


@few
@given(seeds)
def test_invalid_rows_are_finite_for_finite_input_and_nan_stays_in_them(seed):
    rows, valid = random_rows(seed, torch.float32)
    advantage, _ = generalized_advantage_estimation(**rows, discount=0.99, gae_lambda=0.95)
    assert advantage[valid].isfinite().all()
    finite = {name: array.nan_to_num() if array.is_floating_point() else array for name, array in rows.items()}
    for result in (
        *generalized_advantage_estimation(**finite, discount=0.99, gae_lambda=0.95),
        lambda_return(**without_value(finite), discount=0.99, lambda_=1.0),
    ):
        assert result.isfinite().all()


def test_n_step_return_by_hand():
    # Windows of three rows: goes on; truncated at the second row; terminated at the first; at the last.
    reward = np.array([[1, 1, 1, 1], [2, 2, np.nan, 2], [4, np.nan, 9, 4]], dtype=np.float32)
    terminated = np.array([[0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]], dtype=bool)
    truncated = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], dtype=bool)
    result = n_step_return(reward, terminated, truncated, discount=0.5)
    assert result.return_.tolist() == [3, 2, 1, 3]
    assert result.steps.tolist() == [3, 2, 1, 3]
    assert result.terminated_n.tolist() == [False, False, True, True]
    assert result.bootstrap_discount.tolist() == [0.125, 0.25, 0, 0]
    assert result.return_.dtype == result.bootstrap_discount.dtype == np.float32


@few
@given(seeds, unit, st.integers(1, 6))
def test_n_step_return_over_a_sequence(seed, discount, n_step):
    rows, valid = random_rows(seed)
    arrays = [rows[name].numpy() for name in ("reward", "terminated", "truncated")]
    if len(valid) < n_step:
        return
    windows = [np.moveaxis(np.lib.stride_tricks.sliding_window_view(a, n_step, axis=0), -1, 0) for a in arrays]
    result = n_step_return(*windows, discount=discount)
    for t, b in valid[: len(valid) - n_step + 1].nonzero().tolist():
        references = n_step_returns_of_row(rows, t, b, discount)[:n_step]
        steps = result.steps[t, b]
        assert steps == len(references)
        last = t + steps - 1
        assert result.terminated_n[t, b] == rows["terminated"][last, b].item()
        tail = 0.0 if result.terminated_n[t, b] else result.bootstrap_discount[t, b] * rows["next_value"][last, b]
        assert result.return_[t, b] + float(tail) == pytest.approx(references[-1], abs=1e-9)


def test_errors_say_what_came_and_what_was_expected():
    rows = dict(HAND, value=VALUE)
    with pytest.raises(ValueError, match=r"GAE: got shapes .*value \(7,\).*expected all of them equal"):
        generalized_advantage_estimation(**dict(rows, value=VALUE[:, 0]), discount=0.99, gae_lambda=0.95)
    with pytest.raises(TypeError, match=r"GAE: got terminated of dtype torch.float32; expected bool"):
        generalized_advantage_estimation(**dict(rows, terminated=REWARD), discount=0.99, gae_lambda=0.95)
    flags = np.zeros((3, 2), dtype=bool)
    with pytest.raises(ValueError, match=r"n_step_return: got shapes reward \(2, 2\)"):
        n_step_return(np.zeros((2, 2)), flags, flags, discount=0.9)
    with pytest.raises(TypeError, match="got truncated of dtype int64"):
        n_step_return(np.zeros((3, 2)), flags, flags.astype(int), discount=0.9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_the_gpu_without_synchronising():
    rows, valid = random_rows(5, torch.float32)
    expected, _ = generalized_advantage_estimation(**rows, discount=0.99, gae_lambda=0.95)
    on_gpu = {name: array.cuda() for name, array in rows.items()}
    torch.cuda.set_sync_debug_mode("error")
    try:
        advantage, _ = generalized_advantage_estimation(**on_gpu, discount=0.99, gae_lambda=0.95)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(advantage.cpu()[valid], expected[valid])


@few
@given(seeds, unit)
def test_running_returns_are_those_of_a_loop(seed, discount):
    rng = np.random.default_rng(seed)
    T, B = int(rng.integers(1, 20)), int(rng.integers(1, 4))
    reward, done, running = rng.normal(size=(T, B)), rng.random((T, B)) < 0.3, rng.normal(size=B)
    result = running_return(*map(torch.from_numpy, (reward, done, running)), discount=discount)
    for t in range(T):
        over = done[t - 1] if t else np.zeros(B, bool)
        running = reward[t] + discount * np.where(over, 0.0, running)
        np.testing.assert_allclose(result[t].numpy(), running, rtol=1e-9, atol=1e-9)


def test_running_return_refuses_what_does_not_fit():
    reward, done, previous = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.bool), torch.zeros(2)
    with pytest.raises(ValueError, match="running_return"):
        running_return(reward, done, previous[:1], discount=0.9)
    with pytest.raises(TypeError, match="running_return"):
        running_return(reward, done.float(), previous, discount=0.9)
