"""DDPG, TD3 and SAC: whole runs of updates against a float64 reference over the rows as they were collected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    DdpgAgent,
    RecurrentDdpgAgent,
    RecurrentSacAgent,
    RecurrentTd3Agent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import DDPG, SAC, TD3
from rlpyt.algos.sac import alpha_of
from tests.algos.qpg_reference import QpgReference, QpgWatch
from tests.algos.small_problems import RandomEnv, learn_from, set_up
from tests.pairs import crossed

T, B = 8, 4
BOX = spaces.Box(np.array([-0.1, -2], np.float32), np.array([3, 5], np.float32))
ALGOS: dict[str, Any] = {"DDPG": DDPG, "TD3": TD3, "SAC": SAC}
AGENTS: dict[str, Any] = {
    "DDPG": (DdpgAgent, RecurrentDdpgAgent),
    "TD3": (Td3Agent, RecurrentTd3Agent),
    "SAC": (SacAgent, RecurrentSacAgent),
}
ADAM: dict[str, Any] = dict(OptimCls=torch.optim.Adam, optim_kwargs=dict(eps=1e-3))
SHARED: dict[str, Any] = dict(hidden_sizes=10)


def make_agent(kind: str, recurrent: bool = False, **kwargs: Any) -> Any:
    defaults: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=(12, 10)), q_model_kwargs=dict(hidden_sizes=(14, 9)))
    if recurrent:
        defaults["feature_kwargs"] = dict(rnn_size=5)
    return AGENTS[kind][recurrent](**{**defaults, **kwargs})


def make_algo(kind: str, recurrent: bool = False, **kwargs: Any) -> Any:
    """Two updates an iteration, from the third on; rates at which every update can be seen."""
    h: dict[str, Any] = dict(
        discount=0.8, replay_size=1000, min_steps_learn=3 * T * B, optim_kwargs={}, OptimCls=torch.optim.SGD,
        learning_rate=0.2, q_learning_rate=0.2, target_update_tau=0.4, batch_size=8, replay_ratio=2 * 8 / (T * B),
    )  # fmt: skip
    if kind == "SAC":
        h["alpha_learning_rate"] = 0.3
    if recurrent:
        h |= dict(batch_T=4, batch_B=2, warmup_T=4, store_rnn_state_interval=4)
    h |= kwargs
    if recurrent:
        h["replay_ratio"] = 2 * h["batch_B"] * (h["warmup_T"] + h["batch_T"]) / (T * B)
    return ALGOS[kind](**h)


def watched(kind: str, recurrent: bool = False, agent: dict[str, Any] | None = None, **kwargs: Any) -> QpgWatch:
    run: dict[str, Any] = {"n_itr": 6, "action_space": BOX, "T": T, "B": B}
    run |= {name: kwargs.pop(name) for name in ("n_itr", "p_end") if name in kwargs}
    algo, made = make_algo(kind, recurrent, **kwargs), make_agent(kind, recurrent, **(agent or {}))
    return QpgWatch(algo, made, **run)


def assert_metrics(metrics: dict[str, float], expected: dict[str, float]) -> None:
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(float(value), rel=1e-3, abs=1e-5), name


def check_updates(watch: QpgWatch, left_out: tuple[str, ...] = ()) -> QpgReference:
    """Hold every update to the reference, which starts from the same weights and is never set right in between."""
    reference = QpgReference(watch)
    moved = dict.fromkeys(watch.first, 0.0)
    assert len(watch.after) == watch.algo.update_counter > 0
    for i, (weights, alpha) in enumerate(watch.after):
        metrics, is_weights = reference.update(i)
        if is_weights is not None:
            torch.testing.assert_close(watch.drawn[i][0].is_weights.double(), is_weights, rtol=1e-3, atol=1e-5)
        assert_metrics(*({k: x for k, x in m.items() if k not in left_out} for m in (watch.metrics[i], metrics)))
        for part, parameters in weights.items():
            for name, parameter in parameters.items():
                expected = reference.w[part][name].detach()
                torch.testing.assert_close(parameter.detach(), expected, rtol=1e-3, atol=1e-5, msg=f"{i} {part} {name}")
                moved[part] = max(moved[part], float((parameter - watch.first[part][name]).detach().abs().max()))
        if hasattr(watch.algo, "alpha"):
            h = reference.settings(watch.itrs[i])
            assert alpha == pytest.approx(reference.alpha(h), rel=1e-4)
    # The reference is worth what has moved.
    assert all(moved[part] > 1e-3 for part, p in watch.first.items() if p), moved
    return reference


SETTINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "DDPG": ("DDPG", {}, {}),
    "DDPG Adam": ("DDPG", dict(**ADAM, learning_rate=0.02, q_learning_rate=0.01), {}),
    "DDPG n-step": ("DDPG", dict(n_step_return=3, target_update_interval=2), {}),
    "DDPG two values": ("DDPG", {}, dict(n_q=2)),
    "DDPG priorities": (
        "DDPG",
        dict(prioritized_replay=True, pri_beta_init=0.3, pri_beta_final=0.9, pri_beta_steps=4 * T * B, n_step_return=3),
        {},
    ),
    "DDPG clipped": ("DDPG", dict(clip_grad_norm=0.05, q_target_clip=0.5), dict(feature_kwargs=SHARED)),
    "TD3": ("TD3", {}, {}),
    "TD3 Adam": ("TD3", dict(**ADAM, n_step_return=3, learning_rate=0.02, q_learning_rate=0.01), {}),
    "TD3 noise": ("TD3", {}, dict(target_noise_std=1.0, target_noise_clip=0.7)),
    "TD3 noise past the bounds": ("TD3", {}, dict(target_noise_std=1.0, target_noise_clip=3.0)),
    "TD3 intervals": ("TD3", dict(policy_update_interval=3, target_update_interval=2), dict(feature_kwargs=SHARED)),
    "TD3 priorities": ("TD3", dict(prioritized_replay=True), {}),
    "SAC": ("SAC", {}, {}),
    "SAC Adam": ("SAC", dict(**ADAM, learning_rate=0.02, q_learning_rate=0.01), {}),
    "SAC alpha": ("SAC", dict(alpha_init=0.3, target_entropy=0.7), {}),
    "SAC fixed alpha": ("SAC", dict(fixed_alpha=0.3), {}),
    "SAC without entropy": ("SAC", dict(fixed_alpha=0.0), {}),
    "SAC prior": ("SAC", dict(action_prior="gaussian", fixed_alpha="lin_0.4_0.2"), {}),
    "SAC reward scale": ("SAC", dict(reward_scale=5.0, n_step_return=3, q_target_clip=2.0), {}),
    "SAC intervals": ("SAC", dict(policy_update_interval=2, target_update_interval=3), dict(feature_kwargs=SHARED)),
    "SAC priorities": ("SAC", dict(prioritized_replay=True, pri_beta_init=0.9), {}),
    "SAC priorities, fixed alpha": ("SAC", dict(prioritized_replay=True, pri_beta_init=0.9, fixed_alpha=0.2), {}),
    "REDQ": (
        "SAC", dict(n_target_q=2, q_of_policy="mean", policy_update_interval=2), dict(n_q=5, feature_kwargs=SHARED),
    ),
    "DroQ's layer norm": ("SAC", {}, dict(q_model_kwargs=dict(hidden_sizes=(7, 5), layer_norm=True))),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_updates_from_transitions_equal_the_reference(name):
    kind, settings, agent = SETTINGS[name]
    reference = check_updates(watched(kind, agent=agent, **settings))
    if settings.get("prioritized_replay"):
        assert len(set(reference.priorities.given.values())) > 20


@pytest.mark.parametrize("kind", ALGOS)
def test_schedules_are_followed(kind):
    settings: dict[str, Any] = dict(
        learning_rate="lin_0.4", q_learning_rate="lin_0.05_0.2", clip_grad_norm="lin_2_0.1", discount="lin_0.8_0.4",
        target_update_tau="lin_0.05_0.5", q_target_clip="lin_2_0.5",
    )  # fmt: skip
    if kind == "SAC":
        settings |= dict(alpha_learning_rate="lin_0.5_0.1", reward_scale="lin_1_3", target_entropy="lin_-4_1")
    watch = watched(kind, policy_update_interval=2, **settings)
    check_updates(watch)
    assert set().union(*watch.metrics) == set(ALGOS[kind].opt_info_fields)
    assert sum("piLoss" in m or "muLoss" in m for m in watch.metrics) == watch.algo.update_counter // 2


OVER_ALL_ROWS = ("q1", "q2", "qMeanDiff", "piMu", "piLogStd")
"""Metrics of sequences that take in the rows that are not trained on."""


OF_SEQUENCES: dict[str, dict[str, Any]] = {
    "warm-up": dict(n_step_return=3),
    "targets far behind": dict(
        q_learning_rate=2.0, clip_grad_norm=0.5, target_update_tau=0.1, target_update_interval=3, p_end=0.1
    ),
    "priorities": dict(warmup_T=0, prioritized_replay=True, pri_eta=0.7),
    "states of zeros": dict(store_rnn_state_interval=0, n_step_return=2),
    "short episodes": dict(store_rnn_state_interval=1, p_end=0.5, **ADAM, learning_rate=0.02, q_learning_rate=0.01),
}


@pytest.mark.parametrize(("kind", "name"), crossed(list(ALGOS), list(OF_SEQUENCES)))
def test_updates_from_sequences_equal_the_reference(kind, name):
    settings = OF_SEQUENCES[name] | (dict(fixed_alpha=0.3) if kind == "SAC" else {})
    watch = watched(kind, True, **settings)
    check_updates(watch, left_out=OVER_ALL_ROWS)
    starts = torch.cat([batch.episode_start for batch, _ in watch.drawn], 1)
    assert starts.any()
    assert not all(batch.valid.all() for batch, _ in watch.drawn)


@pytest.mark.parametrize(
    ("kind", "agent"),
    [
        ("SAC", {}),  # the metrics of all rows too, where there is no warm-up that differs
        ("TD3", dict(feature_kwargs=dict(rnn_size=5, recurrent="gru", hidden_sizes=6))),
    ],
)
def test_metrics_of_sequences_are_means_over_the_rows_to_train_on(kind, agent):
    check_updates(watched(kind, True, agent, **(dict(fixed_alpha=0.3) if kind == "SAC" else {})))


def test_a_run_may_start_from_the_temperature_of_another():
    algo, agent = make_algo("SAC", **ADAM, alpha_learning_rate=0.1), make_agent("SAC")
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    learn_from(algo, sampler, 6)
    alpha = float(alpha_of(algo, algo.hyper(0)))
    assert abs(alpha - 1) > 0.1
    other = make_algo("SAC", **ADAM, initial_optim_state_dict=algo.optim_state_dict())
    set_up(other, make_agent("SAC"), RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    assert alpha_of(other, other.hyper(0)) == alpha
    fixed = make_algo("SAC", **ADAM, fixed_alpha=0.1)
    set_up(fixed, make_agent("SAC"), RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    with pytest.raises(ValueError, match=r"SAC: .* has no 'alpha'.*expected a state of the same algorithm"):
        other.descents.load_state_dict(fixed.optim_state_dict())
