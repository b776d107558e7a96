"""CategoricalDQN, QRDQN and IQN from transitions: every update against a float64 reference over the raw rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlpyt.agents import CatDqnAgent, DqnAgent, IqnAgent, QrDqnAgent
from rlpyt.algos import DQN, IQN, QRDQN, CategoricalDQN
from tests.algos.reference import Priorities, settings_of, sgd_step, transition_losses
from tests.algos.small_problems import Watch

T, B, N_ACTIONS = 8, 4, 3
MODEL: dict[str, Any] = dict(hidden_sizes=(8, 8))
PAIRS: dict[str, Any] = {
    "q": (DQN, lambda **model: DqnAgent(model_kwargs={**MODEL, **model})),
    "categorical": (CategoricalDQN, lambda **model: CatDqnAgent(n_atoms=5, model_kwargs={**MODEL, **model})),
    "quantiles": (QRDQN, lambda **model: QrDqnAgent(n_quantiles=4, model_kwargs={**MODEL, **model})),
    "implicit": (
        IQN,
        lambda **model: IqnAgent(model_kwargs={**MODEL, "n_tau": 4, "n_acting_tau": 3, "n_cosines": 3, **model}),
    ),
}


def watched(kind: str, model: dict[str, Any] | None = None, n_itr: int = 6, **kwargs: Any) -> Watch:
    AlgoCls, make_agent = PAIRS[kind]
    if kind == "categorical":
        # Its gradients are small, and the greedy actions of network and target are to differ.
        kwargs = dict(V_min=-1.5, V_max=2.0, learning_rate=3.0, clip_grad_norm=0.15, **kwargs)
    defaults = dict(
        discount=0.8, batch_size=8, replay_size=1000, replay_ratio=1, min_steps_learn=4 * T * B,
        target_update_interval=6, OptimCls=torch.optim.SGD, learning_rate=1.0, clip_grad_norm=0.5,
    )  # fmt: skip
    return Watch(AlgoCls(**{**defaults, **kwargs}), make_agent(**(model or {})), n_itr, T=T, B=B)


def check_updates(watch: Watch) -> None:
    """Hold every update of a run to the reference: loss, errors, priorities, importance weights, gradient step."""
    algo, h = watch.algo, settings_of(watch.algo, N_ACTIONS)
    priorities = Priorities(h.n_step_return, T, {}, [1.0] * 4)
    largest = 1.0
    assert len(watch.updates) == len(watch.metrics) > 8
    for i, (update, metric, itr) in enumerate(zip(watch.updates, watch.metrics, watch.itrs, strict=True)):
        places, losses, errors = transition_losses(h, update, watch.stream)
        while len(priorities.largest) <= itr:
            priorities.largest.append(largest)
        if h.prioritized_replay:
            share = min(1.0, itr * T * B / h.pri_beta_steps)
            beta = h.pri_beta_init + share * (h.pri_beta_final - h.pri_beta_init)
            p = torch.tensor([priorities(place) for place in places]).double() ** h.pri_alpha
            weights = (p.min() / p) ** beta
            torch.testing.assert_close(update.batch.is_weights.double(), weights, rtol=1e-4, atol=1e-5)
            losses = losses * weights
            priorities.give(places, errors)
            largest = max(largest, float(errors.max()))
        assert metric["loss"].item() == pytest.approx(losses.mean().item(), rel=1e-4)
        torch.testing.assert_close(metric["tdAbsErr"].double(), errors, rtol=1e-3, atol=1e-5)
        moved, norm = sgd_step(watch.leaves[i], losses.mean(), h.learning_rate, h.clip_grad_norm)
        assert metric["gradNorm"].item() == pytest.approx(norm, rel=1e-3)
        for name, parameter in moved.items():
            torch.testing.assert_close(watch.after[i][name], parameter, rtol=1e-3, atol=1e-5, msg=name)
    assert algo.update_counter == len(watch.updates)


@pytest.mark.parametrize("kind", [kind for kind in PAIRS if kind != "q"])
@pytest.mark.parametrize("double_dqn", [False, True])
@pytest.mark.parametrize("n_step_return", [1, 3])
def test_updates_equal_the_reference(kind, double_dqn, n_step_return):
    watch = watched(kind, double_dqn=double_dqn, n_step_return=n_step_return)
    check_updates(watch)
    other = settings_of(watch.algo, N_ACTIONS, double_dqn=not double_dqn)
    updates = [u._replace(online_taus=u.online_taus * 2) for u in watch.updates]  # one network more to choose by
    losses = [transition_losses(other, u, watch.stream)[1].mean().item() for u in updates]
    assert any(abs(x - m["loss"].item()) > 1e-3 for x, m in zip(losses, watch.metrics, strict=True))
    discounts = torch.cat([u.batch.bootstrap_discount for u in watch.updates])
    assert (discounts == 0).any()
    assert all((discounts - 0.8 ** (k + 1)).abs().min() < 1e-6 for k in range(n_step_return))


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("n_step_return", [1, 3])
def test_prioritised_updates_equal_the_reference(kind, n_step_return):
    """Weights, priorities and the schedule of beta, from priorities that are kept by hand."""
    watch = watched(
        kind, n_step_return=n_step_return, prioritized_replay=True, pri_alpha=0.7, pri_beta_init=0.3,
        pri_beta_final=0.9, pri_beta_steps=4.5 * T * B,
    )  # fmt: skip
    check_updates(watch)
    weights = torch.cat([u.batch.is_weights for u in watch.updates])
    assert weights.min() < 0.5
    assert all(u.batch.is_weights.max() == 1.0 for u in watch.updates)
    assert watch.algo.replay.index.beta == pytest.approx(0.9)


@pytest.mark.parametrize("kind", PAIRS)
def test_updates_on_another_scale_equal_the_reference(kind):
    check_updates(watched(kind, value_scale_eps=0.05, n_step_return=3, double_dqn=True))


@pytest.mark.parametrize("kind", ["quantiles", "implicit"])
@pytest.mark.parametrize("delta_clip", [None, 0.3])
def test_the_quantile_loss_may_have_another_clip(kind, delta_clip):
    check_updates(watched(kind, delta_clip=delta_clip))


@pytest.mark.parametrize("kind", PAIRS)
def test_all_of_rainbow_equals_the_reference(kind):
    """Double, n-step, prioritised, dueling and noisy, each update with noise of its own for each network."""
    model = dict(dueling=True, noisy=True)
    watch = watched(kind, model, double_dqn=True, n_step_return=3, prioritized_replay=True, pri_beta_steps=6 * T * B)
    check_updates(watch)
    first, second = watch.updates[:2]
    name = next(name for name, p in first.online.items() if name.startswith("head") and name.endswith("bias"))
    assert not torch.equal(first.online[name], first.target[name])  # though they were copied
    assert not torch.equal(second.target[name], first.target[name])  # though nothing was copied between


def test_the_fractions_are_new_for_every_row_of_every_update_and_for_each_network():
    watch = watched("implicit", double_dqn=True)
    drawn = torch.cat([tau for u in watch.updates for taus in u[-2:] for tau in taus])
    assert len(drawn) == 3 * 8 * len(watch.updates)
    assert drawn.unique().numel() > 0.999 * drawn.numel()
    assert ((drawn >= 0) & (drawn < 1)).all()
