"""The deep Q family: every update, from transitions and from sequences, against a float64 reference over raw rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from rlpyt.agents import (
    CatDqnAgent,
    DqnAgent,
    IqnAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCatDqnAgent,
    RecurrentIqnAgent,
    RecurrentQrDqnAgent,
)
from rlpyt.algos import DQN, IQN, QRDQN, R2D1, CategoricalDQN
from tests.algos.reference import (
    Priorities,
    place_of,
    sequence_losses,
    settings_of,
    sgd_step,
    transition_losses,
)
from tests.algos.small_problems import Watch
from tests.pairs import others_nightly

T, B, N_ACTIONS, BATCH_B = 8, 4, 3, 2
IQN_MODEL: dict[str, Any] = dict(n_tau=4, n_acting_tau=3, n_cosines=3)
ALGOS: dict[str, Any] = {
    "q": (DQN, DqnAgent, {}, {}),
    "categorical": (CategoricalDQN, CatDqnAgent, dict(n_atoms=5), {}),
    "quantiles": (QRDQN, QrDqnAgent, dict(n_quantiles=4), {}),
    "implicit": (IQN, IqnAgent, {}, IQN_MODEL),
    "R2D1": (R2D1, R2d1Agent, {}, {}),
    "q LSTM": (DQN, R2d1Agent, {}, {}),
    "categorical LSTM": (CategoricalDQN, RecurrentCatDqnAgent, dict(n_atoms=5), {}),
    "quantiles LSTM": (QRDQN, RecurrentQrDqnAgent, dict(n_quantiles=4), {}),
    "implicit LSTM": (IQN, RecurrentIqnAgent, {}, IQN_MODEL),
}
TRANSITIONS = [kind for kind, (_, Agent, *_) in ALGOS.items() if not Agent.recurrent]
SEQUENCES = [kind for kind in ALGOS if kind not in TRANSITIONS]


def watched(kind: str, model: dict[str, Any] | None = None, p_end: float | None = None, **settings: Any) -> Watch:
    """Train for two updates an iteration, or one from transitions, at rates at which every update can be seen."""
    AlgoCls, AgentCls, agent, own = ALGOS[kind]
    h: dict[str, Any] = dict(
        discount=0.8, replay_size=1000, optim_kwargs={}, OptimCls=torch.optim.SGD, learning_rate=1.0, clip_grad_norm=0.5
    )
    if AlgoCls is CategoricalDQN:
        # Its gradients are small, and the greedy actions of network and target are to differ.
        h |= dict(V_min=-1.5, V_max=2.0, learning_rate=3.0, clip_grad_norm=0.15)
    if kind in TRANSITIONS:
        sizes: dict[str, Any] = dict(hidden_sizes=(8, 8))
        h |= dict(min_steps_learn=4 * T * B, target_update_interval=6, batch_size=8, replay_ratio=1) | settings
    else:
        sizes = dict(hidden_sizes=6, rnn_size=5)
        h |= dict(min_steps_learn=3 * T * B, target_update_interval=4, batch_T=4, batch_B=BATCH_B, warmup_T=0,
                  store_rnn_state_interval=4, n_step_return=3, delta_clip=None)  # fmt: skip
        h |= {**({"input_priorities": False} if AlgoCls is R2D1 else {}), **settings}
        h["replay_ratio"] = 2 * BATCH_B * (h["warmup_T"] + h["batch_T"]) / (T * B)
    made = AgentCls(model_kwargs={**sizes, **own, **(model or {})}, **agent)
    env_kwargs = dict(p_end=p_end or (0.2 if kind in TRANSITIONS else 0.15))
    return Watch(AlgoCls(**h), made, 6 if kind in TRANSITIONS else 5, T=T, B=B, env_kwargs=env_kwargs)


def mixed_over_valid(errors: torch.Tensor, eta: float) -> torch.Tensor:
    """eta * max + (1 - eta) * mean of every sequence, over the rows that are not NaN; 0 where all are."""
    columns = [column[column.isfinite()] for column in errors.T]
    return torch.stack([eta * x.max() + (1 - eta) * x.mean() if len(x) else x.sum() for x in columns])


def check_updates(watch: Watch, at: Callable[[int], dict[str, Any]] = lambda itr: {}) -> None:
    """Hold every update to the reference: loss, errors, priorities, importance weights, gradient step.

    Args:
        watch: of a run.
        at: what schedules come to in an iteration.
    """
    algo, recurrent = watch.algo, watch.agent.recurrent
    priorities = Priorities(settings_of(algo, N_ACTIONS), T, B, recurrent)
    assert len(watch.updates) == len(watch.metrics) == algo.update_counter > 5
    for i, (update, metric, itr) in enumerate(zip(watch.updates, watch.metrics, watch.itrs, strict=True)):
        h = settings_of(algo, N_ACTIONS, **at(itr))
        places, losses, errors = (sequence_losses if recurrent else transition_losses)(h, update, watch.stream)
        valid = errors.isfinite()
        mixed = mixed_over_valid(errors, h.pri_eta) if recurrent else errors
        means = mixed_over_valid(errors, 0.0) if recurrent else errors
        if recurrent:
            assert torch.equal(update.batch.valid, valid)
        weights = priorities.weights(h, places, itr)
        if weights is not None:
            torch.testing.assert_close(update.batch.is_weights.double(), weights, rtol=1e-4, atol=1e-5)
            losses = losses * weights
            priorities.give(places, mixed)
        loss = losses[valid].mean()
        assert metric["loss"].item() == pytest.approx(loss.item(), rel=1e-4)
        if "priority" in algo.opt_info_fields:
            torch.testing.assert_close(metric["priority"].double(), mixed, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(metric["tdAbsErr"].double(), means, rtol=1e-3, atol=1e-5)
        moved, norm = sgd_step(watch.leaves[i], loss, h.learning_rate, h.clip_grad_norm)
        assert metric["gradNorm"].item() == pytest.approx(norm, rel=1e-3)
        for name, parameter in moved.items():
            torch.testing.assert_close(watch.after[i][name], parameter, rtol=1e-3, atol=1e-5, msg=name)


BETA: dict[str, Any] = dict(prioritized_replay=True, pri_beta_init=0.3, pri_beta_final=0.9)
PRIORITIES: dict[str, Any] = dict(**BETA, pri_alpha=0.7, pri_beta_steps=4.5 * T * B)
NETWORKS: dict[str, Any] = dict(model=dict(dueling=True, noisy=True))
OPTIONS: dict[str, dict[str, Any]] = {
    "one step": {},
    "double, three steps": dict(double_dqn=True, n_step_return=3),
    "priorities": dict(PRIORITIES, n_step_return=3),
    "another scale": dict(value_scale_eps=0.05, n_step_return=3, double_dqn=True),
    "rainbow": dict(NETWORKS, double_dqn=True, n_step_return=3, prioritized_replay=True, pri_beta_steps=6 * T * B),
}
CLIPS = [(kind, dict(delta_clip=clip)) for kind in ("q", "quantiles", "implicit") for clip in (None, 0.3)]


SOME = [*(("q", name) for name in OPTIONS), ("categorical", "priorities"), ("categorical", "rainbow")]
SOME += [("quantiles", "double, three steps"), ("quantiles", "another scale"), ("implicit", "one step")]
SOME += [("implicit", "rainbow")]


@pytest.mark.parametrize(("kind", "settings"), [*others_nightly(product(TRANSITIONS, OPTIONS), SOME), *CLIPS])
def test_updates_from_transitions_equal_the_reference(kind, settings):
    settings = OPTIONS[settings] if isinstance(settings, str) else settings
    watch = watched(kind, **settings)
    check_updates(watch)
    discounts = torch.cat([u.batch.bootstrap_discount for u in watch.updates])
    assert (discounts == 0).any()
    assert all((discounts - 0.8 ** (k + 1)).abs().min() < 1e-6 for k in range(settings.get("n_step_return", 1)))
    if "prioritized_replay" in settings:
        weights = torch.stack([u.batch.is_weights for u in watch.updates])
        assert weights.min() < 0.6
        assert (weights.max(1).values == 1.0).all()
    if "model" in settings:
        first, second = watch.updates[:2]
        name = next(name for name in first.online if name.startswith("head") and name.endswith("bias"))
        assert not torch.equal(first.online[name], first.target[name])  # though they were copied
        assert not torch.equal(second.target[name], first.target[name])  # though nothing was copied between
        return
    other = settings_of(watch.algo, N_ACTIONS, double_dqn=not settings.get("double_dqn", False))
    updates = [u._replace(online_taus=u.online_taus * 2) for u in watch.updates]  # one network more to choose by
    losses = [transition_losses(other, u, watch.stream)[1].mean().item() for u in updates]
    assert any(abs(x - m["loss"].item()) > 1e-3 for x, m in zip(losses, watch.metrics, strict=True))


def test_schedules_are_applied_at_their_step():
    """A line that ends at zero is never there, so that no update is for nothing."""
    settings: dict[str, Any] = dict(learning_rate="lin_0.4", discount="lin_0.8_0.4", delta_clip="lin_0.8")
    watch = watched("q", **settings, clip_grad_norm=1e9)
    left = [(6 - itr) / 6 for itr in range(6)]
    check_updates(
        watch,
        lambda itr: dict(learning_rate=0.4 * left[itr], discount=0.4 + 0.4 * left[itr], delta_clip=0.8 * left[itr]),
    )


def test_the_fractions_are_new_for_every_row_of_every_update_and_for_each_network():
    watch = watched("implicit", double_dqn=True)
    drawn = torch.cat([tau for u in watch.updates for taus in u[-2:] for tau in taus])
    assert len(drawn) == 3 * 8 * len(watch.updates)
    assert drawn.unique().numel() > 0.999 * drawn.numel()
    assert ((drawn >= 0) & (drawn < 1)).all()


@pytest.mark.parametrize(("interval", "tau"), [(5, 1.0), (2, 0.25)])
def test_the_target_network_is_copied_at_the_interval_or_follows_softly(interval, tau):
    watch = watched("q", target_update_interval=interval, target_update_tau=tau)
    assert all(torch.equal(x, watch.updates[0].online[name]) for name, x in watch.updates[0].target.items())
    for i in range(1, len(watch.updates)):
        share = tau if i % interval == 0 else 0.0
        for name, tensor in watch.updates[i].target.items():
            old, new = watch.updates[i - 1].target[name], watch.updates[i].online[name]
            torch.testing.assert_close(tensor, ((1 - share) * old + share * new).detach(), rtol=1e-5, atol=1e-6)
    assert not torch.equal(new, watch.updates[0].online[name])


# ---- sequences ----


@pytest.mark.parametrize("kind", SEQUENCES)
@pytest.mark.parametrize(
    "settings",
    [
        dict(PRIORITIES, n_step_return=1, pri_eta=0.7),
        dict(PRIORITIES, warmup_T=4, double_dqn=True, value_scale_eps=0.05, pri_eta=0.7),
        dict(NETWORKS, warmup_T=4, prioritized_replay=True),
    ],
    ids=["one step", "warm-up", "dueling and noisy"],
)
def test_updates_from_sequences_equal_the_reference(kind, settings):
    watch, warmup_T = watched(kind, **settings), settings.get("warmup_T", 0)
    check_updates(watch)
    starts = torch.cat([u.batch.episode_start for u in watch.updates], 1)
    assert starts[:warmup_T].any() == bool(warmup_T)
    assert starts[warmup_T : warmup_T + 4].any()
    assert not all(u.batch.valid.all() for u in watch.updates)


@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
@pytest.mark.parametrize("interval", [0, 1, 4])
def test_sequences_begin_where_states_are_kept(recurrent, interval):
    watch = watched("q LSTM", dict(recurrent=recurrent), store_rnn_state_interval=interval, warmup_T=4)
    check_updates(watch)
    places = [place_of(watch.stream, first) for u in watch.updates for first in u.batch.all_inputs.observation[0]]
    assert (len({t % 4 for t, _ in places}) == 1) == (interval == 4)
    assert all((u.batch.init_rnn_state is None) == (interval == 0) for u in watch.updates)


@pytest.mark.parametrize("p_end", [0.9, 1e-9])
def test_episodes_may_be_as_short_as_one_step_and_longer_than_the_warm_up(p_end):
    watch = watched("R2D1", p_end=p_end, warmup_T=4)
    check_updates(watch)
    starts = torch.stack([u.batch.episode_start.sum(0) for u in watch.updates])
    assert starts.max() >= 4 if p_end == 0.9 else not starts.any()
