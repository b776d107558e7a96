"""Losses: hand numbers, gradients, invalid rows, shapes, and no device synchronisation."""

import math

import pytest
import torch

from rlpyt import functional as F

nan, inf = math.nan, math.inf


def tensor(*numbers, grad=False):
    return torch.tensor(numbers, requires_grad=grad)


def gradient(loss, *inputs):
    return [g.tolist() for g in torch.autograd.grad(loss, inputs)]


def test_policy_gradient_loss():
    log_prob, advantage = tensor(-1.0, -2.0, grad=True), tensor(3.0, -4.0, grad=True)
    loss = F.policy_gradient_loss(log_prob, advantage)
    assert loss.item() == -(-3 + 8) / 2
    loss.backward()
    assert log_prob.grad.tolist() == [-1.5, 2.0]
    assert advantage.grad is None


def test_ppo_clip_loss_by_hand():
    ratio = torch.tensor([0.5, 0.5, 1.5, 1.5, 1.0])
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0])
    log_prob = ratio.log().requires_grad_()
    old_log_prob = torch.zeros(5, requires_grad=True)
    loss = F.ppo_clip_loss(log_prob, old_log_prob, advantage, ratio_clip=0.2)
    assert loss.item() == pytest.approx(-(0.5 - 0.8 + 1.2 - 1.5 + 2.0) / 5)
    loss.backward()
    # No gradient where the clipped term is the smaller one: below with A < 0, above with A > 0.
    torch.testing.assert_close(log_prob.grad, -torch.tensor([0.5, 0.0, 0.0, -1.5, 2.0]) / 5)
    assert old_log_prob.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_ratio_that_overflows_on_a_valid_row(dtype):
    """A policy that has moved far away, on its way back: nothing infinite, and the other rows as they were."""
    log_prob = torch.tensor([0.0, 0.1, 100.0, 50.0, 1e30], dtype=dtype, requires_grad=True)
    old, advantage = torch.zeros(5, dtype=dtype), torch.tensor([1.0, 1.0, 1.0, -1.0, -2.0], dtype=dtype)
    loss = F.ppo_clip_loss(log_prob, old, advantage, ratio_clip=0.2)
    loss.backward()
    assert loss.isfinite()
    assert log_prob.grad is not None
    torch.testing.assert_close(log_prob.grad[:2], torch.tensor([-0.2, -0.2 * math.exp(0.1)], dtype=dtype))
    assert log_prob.grad[2] == 0  # past the clip, as with any large ratio
    assert log_prob.grad.isfinite().all()
    assert torch.linalg.vector_norm(log_prob.grad).isfinite()
    assert F.approx_kl(log_prob, old).isfinite()
    # Where float32 holds the ratio it is the one of the paper.
    for ratio in (1e-6, 1e12):
        x = torch.tensor([math.log(ratio)], dtype=torch.float64)
        loss = F.ppo_clip_loss(x, torch.zeros_like(x), -torch.ones_like(x), ratio_clip=0.2)
        assert loss.item() == pytest.approx(max(ratio, 0.8))


def test_value_loss():
    value = tensor(1.0, 5.0, grad=True)
    loss = F.value_loss(value, tensor(3.0, 4.0))
    assert loss.item() == (0.5 * 4 + 0.5 * 1) / 2
    assert gradient(loss, value) == [[-1.0, 0.5]]


def test_clipped_value_loss():
    # Inside; outside towards the return (no gain, no gradient); outside away from it (full loss).
    value = tensor(0.5, 3.0, -3.0, grad=True)
    old_value = tensor(0.0, 0.0, 0.0, grad=True)
    loss = F.clipped_value_loss(value, old_value, tensor(4.0, 4.0, 4.0), value_clip=1.0)
    assert loss.item() == pytest.approx(0.5 * (3.5**2 + 3.0**2 + 7.0**2) / 3)
    loss.backward()
    torch.testing.assert_close(value.grad, torch.tensor([-3.5, 0.0, -7.0]) / 3)
    assert old_value.grad is None


def test_approx_kl():
    ratio = torch.tensor([0.5, 2.0])
    kl = F.approx_kl(ratio.log().requires_grad_(), torch.zeros(2))
    assert kl.item() == pytest.approx((0.5 - 1 + math.log(2) + 2 - 1 - math.log(2)) / 2)
    assert not kl.requires_grad
    small = F.approx_kl(torch.full((3,), 1e-4), torch.zeros(3)).item()
    assert small == pytest.approx(0.5e-8, rel=1e-2)  # exp(x) - 1 - x would round to 0 in float32


def test_clip_fraction():
    ratio = torch.tensor([0.85, 0.95, 1.0, 1.05, 1.25])
    log_prob, old = ratio.log().requires_grad_(), torch.zeros(5)
    clipped = F.clip_fraction(log_prob, old, ratio_clip=0.1)
    assert clipped.item() == pytest.approx(2 / 5)
    assert not clipped.requires_grad
    assert F.clip_fraction(log_prob, old, ratio_clip=0.2).item() == pytest.approx(1 / 5)
    valid = torch.tensor([True, True, True, True, False])
    assert F.clip_fraction(log_prob, old, ratio_clip=0.1, valid=valid).item() == pytest.approx(1 / 4)


VALID = torch.tensor([True, True, False])
LOSSES = {
    "pg": lambda x, y, z, valid: F.policy_gradient_loss(x, y, valid),
    "ppo": lambda x, y, z, valid: F.ppo_clip_loss(x, y, z, ratio_clip=0.2, valid=valid),
    "value": lambda x, y, z, valid: F.value_loss(x, y, valid),
    "clipped value": lambda x, y, z, valid: F.clipped_value_loss(x, y, z, value_clip=0.1, valid=valid),
    "loosely clipped value": lambda x, y, z, valid: F.clipped_value_loss(x, y, z, value_clip=9.0, valid=valid),
    "kl": lambda x, y, z, valid: F.approx_kl(x, y, valid),
    "clip fraction": lambda x, y, z, valid: F.clip_fraction(x, y, ratio_clip=0.1, valid=valid),
}


@pytest.mark.parametrize("garbage", [1e30, -1e30, nan, inf])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_invalid_rows_change_neither_loss_nor_gradient(loss, garbage):
    x, y, z = torch.randn(3, 3)
    for which in range(3):
        dirty = [a.clone() for a in (x, y, z)]
        dirty[which][2] = garbage
        dirty[0].requires_grad_()
        clean = [a[:2].clone() for a in (x, y, z)]
        clean[0].requires_grad_()
        result, expected = loss(*dirty, VALID), loss(*clean, None)
        torch.testing.assert_close(result, expected)
        if result.requires_grad:
            result.backward()
            expected.backward()
            torch.testing.assert_close(dirty[0].grad, torch.cat([clean[0].grad, torch.zeros(1)]))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_old_values_targets_and_advantages_receive_no_gradient(loss):
    x, *others = (torch.randn(3, requires_grad=True) for _ in range(3))
    result = loss(x, *others, VALID)
    if result.requires_grad:
        result.backward()
        assert x.grad is not None
    assert [other.grad for other in others] == [None, None]


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_broadcasting_is_refused(loss):
    x = torch.randn(3)
    with pytest.raises(
        ValueError, match=r"(loss|kl|fraction): got shapes .*\(3, 1\).*expected all of them equal.*squeeze"
    ):
        loss(x, x[:, None], x, VALID)
    with pytest.raises(ValueError, match=r"valid \(2,\)"):
        loss(x, x, x, VALID[:2])
    with pytest.raises(TypeError, match=r"got valid of dtype torch.int64; expected bool"):
        loss(x, x, x, VALID.long())


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_nothing_valid_gives_zero(loss):
    x = torch.randn(3)
    assert loss(x, x + 1, x, torch.zeros(3, dtype=torch.bool)).item() == 0


def test_q_values():
    target_q, online_q = torch.tensor([[1.0, 5.0], [3.0, 2.0]]), torch.tensor([[9.0, 0.0], [9.0, 0.0]])
    assert F.double_q_value(target_q, online_q).tolist() == [1.0, 3.0]
    assert F.double_q_value(target_q, target_q).tolist() == [5.0, 3.0]
    atoms = torch.stack([target_q, -target_q], -1)
    assert F.double_q_value(atoms, target_q).tolist() == [[5.0, -5.0], [3.0, -3.0]]
    sequence = torch.randn(4, 3, 6)
    assert F.double_q_value(sequence, -sequence).shape == (4, 3)
    with pytest.raises(ValueError, match=r"double_q_value: got target_q \(2, 2\) and online_q \(1, 2\)"):
        F.double_q_value(target_q, online_q[:1])


def test_td_target():
    target_q = tensor(10.0, 10.0, grad=True)
    target = F.td_target(tensor(1.0, 2.0), tensor(0.5, 0.0), target_q)
    assert target.tolist() == [6.0, 2.0]
    assert not target.requires_grad
    for value in (-inf, inf, nan):  # of no legal action after termination, say
        assert F.td_target(tensor(1.0, 2.0), tensor(0.5, 0.0), tensor(4.0, value)).tolist() == [3.0, 2.0]
    with pytest.raises(ValueError, match=r"td_target: got shapes .*target_q \(2, 1\)"):
        F.td_target(tensor(1.0, 2.0), tensor(0.5, 0.0), target_q[:, None])


def test_huber_loss():
    delta = tensor(-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, grad=True)
    loss = F.huber_loss(delta, 2.0)
    assert loss.tolist() == [4.0, 2.0, 0.5, 0.0, 0.5, 2.0, 4.0]
    assert gradient(loss.sum(), delta) == [[-2.0, -2.0, -1.0, 0.0, 1.0, 2.0, 2.0]]
    torch.testing.assert_close(loss, torch.nn.functional.huber_loss(delta, delta * 0, reduction="none", delta=2.0))
    assert F.huber_loss(delta, None).tolist() == [4.5, 2.0, 0.5, 0.0, 0.5, 2.0, 4.5]
    for wrong in (0.0, -1.0, nan):
        with pytest.raises(ValueError, match=r"huber_loss: got delta_clip=.*expected a number above 0.*None"):
            F.huber_loss(delta, wrong)


# ---- continuous control ----


def test_clipped_double_q():
    q = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, 3.0]], requires_grad=True)
    smallest = F.clipped_double_q(q)
    assert smallest.tolist() == [0.5, -2.0, 3.0]
    assert gradient(smallest[:2].sum(), q) == [[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]]


def test_smoothed_action_by_hand():
    mu, noise = torch.tensor([[0.0, 0.5], [0.9, -0.9]], requires_grad=True), torch.tensor([[1.0, 9.0], [1.0, -9.0]])
    action = F.smoothed_action(mu, noise, noise_std=0.2, noise_clip=0.3)
    # Noise; clipped noise; clipped action; both clipped.
    torch.testing.assert_close(action, torch.tensor([[0.2, 0.8], [1.0, -1.0]]))
    assert not action.requires_grad
    assert torch.equal(F.smoothed_action(mu, noise, noise_std=0.0, noise_clip=0.3), mu.detach())
    with pytest.raises(ValueError, match=r"smoothed_action: got shapes mu \(2, 2\), noise \(2,\)"):
        F.smoothed_action(mu, noise[0], noise_std=0.2, noise_clip=0.3)


def test_deterministic_policy_loss_follows_the_gradient_of_q_with_respect_to_the_action():
    # Q(a) = 3 a - a^2 with a = mu(w) = 2 w: dQ/dw = (3 - 2 a) * 2.
    w = tensor(0.5, 1.0, grad=True)
    action = 2 * w
    loss = F.deterministic_policy_loss(3 * action - action.square())
    assert loss.tolist() == [-2.0, -2.0]
    assert gradient(loss.sum(), w) == [[-2.0, 2.0]]


def test_soft_value_and_soft_policy_loss_by_hand():
    q, log_prob = tensor(2.0, 3.0, grad=True), tensor(-1.0, 4.0, grad=True)
    value = F.soft_value(q, log_prob, 0.5)
    assert value.tolist() == [2.5, 1.0]
    assert not value.requires_grad
    loss = F.soft_policy_loss(q, log_prob, torch.tensor(0.5))
    assert loss.tolist() == [-2.5, -1.0]
    assert gradient(loss.sum(), q, log_prob) == [[-1.0, -1.0], [0.5, 0.5]]
    for function in (F.soft_value, F.soft_policy_loss):
        with pytest.raises(ValueError, match=rf"{function.__name__}: got shapes q \(2,\), log_prob \(2, 1\)"):
            function(q, log_prob[:, None], 0.5)


def test_temperature_loss_raises_alpha_while_the_entropy_is_too_low():
    log_alpha = torch.tensor(-2.0, requires_grad=True)
    gap = torch.tensor(0.5, requires_grad=True)  # entropy 0.5 nats below its target
    loss = F.temperature_loss(log_alpha, gap)
    assert loss.item() == 1.0
    loss.backward()
    assert log_alpha.grad is not None
    assert log_alpha.grad.item() == -0.5
    assert gap.grad is None
    with pytest.raises(ValueError, match=r"temperature_loss: got log_alpha \(\) and entropy_gap \(3,\).*mean"):
        F.temperature_loss(log_alpha, torch.zeros(3))


def test_no_function_reads_a_number_back_from_the_device():
    # On the meta device a tensor has no contents, so .item(), .cpu() or `if tensor` would raise.
    x = torch.empty(4, 3, device="meta", requires_grad=True)
    flag = torch.empty(4, 3, device="meta", dtype=torch.bool)
    for loss in LOSSES.values():
        result = loss(x, x, x, flag)
        assert result.shape == ()
        if result.requires_grad:
            result.backward()
    F.generalized_advantage_estimation(x, x, x, flag, flag, discount=0.9, gae_lambda=0.9)
    F.lambda_return(x, x, flag, flag, discount=0.9, lambda_=1.0)
    F.valid_mean(F.huber_loss(F.td_target(x, x, x) - x, 1.0), flag).backward()
    F.valid_standardize(x, flag)
    F.explained_variance(x, x, flag)
    F.episode_start_from_valid(flag)
    F.double_q_value(x, x)
    F.mean_perplexity(x, flag)
    F.smoothed_action(x, x, noise_std=0.2, noise_clip=0.5)
    value = F.clipped_double_q(F.soft_value(x, x, x[0, 0]))
    F.temperature_loss(x[0, 0], F.soft_policy_loss(value, F.deterministic_policy_loss(value), 0.1).mean()).backward()
