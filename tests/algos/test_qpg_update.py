"""DDPG, TD3 and SAC: whole runs of updates against a float64 reference over the rows as they were collected."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    DdpgAgent,
    DqnAgent,
    RecurrentDdpgAgent,
    RecurrentSacAgent,
    RecurrentTd3Agent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import DDPG, SAC, TD3
from rlpyt.algos.gradient_descent import GradientDescent
from rlpyt.algos.sac import alpha_of
from tests.algos.qpg_reference import QpgReference, QpgWatch, all_weights
from tests.algos.small_problems import Bandit, RandomEnv, copied, optimize, set_up

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


def test_learned_alpha_with_importance_weights_equals_the_reference():
    check_updates(watched("SAC", prioritized_replay=True, pri_beta_init=0.9))


@pytest.mark.parametrize("kind", ALGOS)
def test_schedules_are_followed(kind):
    settings: dict[str, Any] = dict(
        learning_rate="lin_0.4", q_learning_rate="lin_0.05_0.2", clip_grad_norm="lin_2_0.1", discount="lin_0.8_0.4",
        target_update_tau="lin_0.05_0.5", q_target_clip="lin_2_0.5",
    )  # fmt: skip
    if kind == "SAC":
        settings |= dict(alpha_learning_rate="lin_0.5_0.1", reward_scale="lin_1_3")
    check_updates(watched(kind, **settings))


OVER_ALL_ROWS = ("q1", "q2", "qMeanDiff", "piMu", "piLogStd")
"""Metrics of sequences that take in the rows that are not trained on."""


@pytest.mark.parametrize("kind", ALGOS)
@pytest.mark.parametrize(
    "settings",
    [
        dict(n_step_return=3),
        dict(q_learning_rate=2.0, clip_grad_norm=0.5, target_update_tau=0.1, target_update_interval=3, p_end=0.1),
        dict(warmup_T=0, prioritized_replay=True, pri_eta=0.7),
        dict(store_rnn_state_interval=0, n_step_return=2),
        dict(store_rnn_state_interval=1, p_end=0.5, **ADAM, learning_rate=0.02, q_learning_rate=0.01),
    ],
    ids=["warm-up", "targets far behind", "priorities", "states of zeros", "short episodes"],
)
def test_updates_from_sequences_equal_the_reference(kind, settings):
    if kind == "SAC":
        settings = dict(fixed_alpha=0.3, **settings)
    watch = watched(kind, True, **settings)
    check_updates(watch, left_out=OVER_ALL_ROWS)
    starts = torch.cat([batch.episode_start for batch, _ in watch.drawn], 1)
    assert starts.any()
    assert not all(batch.valid.all() for batch, _ in watch.drawn)


def test_metrics_of_sequences_are_means_over_the_rows_to_train_on():
    check_updates(watched("SAC", True, fixed_alpha=0.3))


def test_gru_features_equal_the_reference():
    check_updates(watched("TD3", True, dict(feature_kwargs=dict(rnn_size=5, recurrent="gru", hidden_sizes=6))))


FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "discount": ("DDPG", dict(discount=0.81)),
    "steps": ("DDPG", dict(n_step_return=2)),
    "tau": ("DDPG", dict(target_update_tau=0.41)),
    "policy interval": ("TD3", dict(policy_update_interval=1)),
    "target interval": ("TD3", dict(target_update_interval=1)),
    "rate of the policy": ("SAC", dict(learning_rate=0.21)),
    "rate of the values": ("SAC", dict(q_learning_rate=0.21)),
    "rate of alpha": ("SAC", dict(alpha_learning_rate=0.35)),
    "first alpha": ("SAC", dict(alpha_init=1.1)),
    "target entropy": ("SAC", dict(target_entropy=-1.9)),
    "prior": ("SAC", dict(action_prior="gaussian")),
    "value of the policy": ("SAC", dict(q_of_policy="mean")),
    "reward scale": ("SAC", dict(reward_scale=1.1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_reference_tells_faults_apart(fault):
    kind, changes = FAULTS[fault]
    watch = watched(kind)
    reference = QpgReference(watch, **changes)
    for i in range(len(watch.after)):
        reference.update(i)
    differences = [
        float(((p - reference.w[part][name]).abs().max() / p.abs().max()).detach())
        for part, parameters in watch.after[-1][0].items()
        for name, p in parameters.items()
    ]
    assert max(differences) > 5e-3


@pytest.mark.parametrize("kind", ALGOS)
@pytest.mark.parametrize("still", ["learning_rate", "q_learning_rate", "alpha_learning_rate"])
@pytest.mark.parametrize("recurrent", [False, True])
def test_a_rate_of_zero_holds_its_own_parameters_and_no_others(kind, still, recurrent):
    if still == "alpha_learning_rate" and kind != "SAC":
        pytest.skip("it has no alpha")
    features: dict[str, Any] = dict(feature_kwargs={**SHARED, **(dict(rnn_size=5) if recurrent else {})})
    watch = watched(kind, recurrent, features, **{still: 0.0})
    weights, alpha = watch.after[-1]
    moved = {part: any(not torch.equal(p[n], watch.first[part][n]) for n in p) for part, p in weights.items()}
    values, policy = still != "q_learning_rate", still != "learning_rate"
    expected = dict(body=values, q=values, target_body=values, target_q=values, pi=policy, target_pi=policy)
    if kind == "SAC":
        expected["target_pi"] = False  # it has none
        assert (alpha != 1.0) == (still != "alpha_learning_rate")
    assert moved == expected


@pytest.mark.parametrize(("kind", "policy", "values"), [("DDPG", 1e-4, 1e-3), ("TD3", 1e-3, 1e-3), ("SAC", 3e-4, 3e-4)])
def test_learning_rates_by_default_are_those_of_the_papers(kind, policy, values):
    algo, agent = ALGOS[kind](min_steps_learn=3 * T * B), make_agent(kind)
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    for itr in range(3):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    rates = {name: descent.optimizer.param_groups[0]["lr"] for name, descent in algo.descents.items()}
    assert rates == {"pi": policy, "q": values, **({"alpha": 3e-4} if kind == "SAC" else {})}


@pytest.mark.parametrize("kind", ALGOS)
@pytest.mark.parametrize("recurrent", [False, True])
def test_the_policy_s_gradient_ends_at_the_features_and_the_values_begins_there(kind, recurrent, monkeypatch):
    """Of the two losses themselves, by what gets a gradient and not by what an optimiser moves."""
    features: dict[str, Any] = dict(feature_kwargs={**SHARED, **(dict(rnn_size=5) if recurrent else {})})
    algo, agent = make_algo(kind, recurrent), make_agent(kind, recurrent, **features)
    reached: dict[str, list[set[str]]] = {"q": [], "pi": []}
    watch_itr = algo.min_steps_learn // (T * B)
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    body, pi, q = (
        list(agent.model.body.parameters()),
        list(agent.model.pi.parameters()),
        list(agent.q_model.parameters()),
    )

    def spy() -> Any:
        given = GradientDescent.__call__

        def descend(descent: GradientDescent, loss: torch.Tensor, *args: Any) -> Any:
            name = next((name for name in reached if algo.descents[name] is descent), "")
            if not name:
                return given(descent, loss, *args)
            grads = [torch.autograd.grad(loss, p, allow_unused=True, retain_graph=True) for p in (body, pi, q)]
            seen = {part for part, g in zip(("body", "pi", "q"), grads, strict=True) if any(x is not None for x in g)}
            reached[name].append(seen)
            return given(descent, loss, *args)

        return descend

    monkeypatch.setattr(GradientDescent, "__call__", spy())
    for itr in range(watch_itr + 1):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    assert reached["q"]
    assert all(seen == {"body", "q"} for seen in reached["q"])
    # The values' own weights lie on the policy's way, and are given no gradient by its step.
    assert reached["pi"]
    assert all(seen == {"pi", "q"} for seen in reached["pi"])


@pytest.mark.parametrize("kind", ALGOS)
def test_the_policy_s_step_leaves_no_gradient_in_the_values(kind):
    algo, agent = make_algo(kind, policy_update_interval=1), make_agent(kind, feature_kwargs=SHARED)
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    given, before = algo.update_policy, list[torch.Tensor]()

    def update_policy(*args: Any) -> Any:
        before[:] = [p.grad.clone() for p in agent.q_parameters()]
        return given(*args)

    algo.update_policy = update_policy
    for itr in range(4):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    assert before
    assert all(torch.equal(p.grad, old) for p, old in zip(agent.q_parameters(), before, strict=True))
    assert all(p.grad is None for m in (agent.target_model, agent.target_q_model) for p in m.parameters())


@pytest.mark.parametrize("kind", ALGOS)
@pytest.mark.parametrize("recurrent", [False, True])
def test_targets_begin_as_copies(kind, recurrent):
    agent = make_agent(kind, recurrent, feature_kwargs={**SHARED, **(dict(rnn_size=5) if recurrent else {})})
    set_up(make_algo(kind, recurrent), agent, RandomEnv, dict(action_space=BOX), T=T, B=B)
    weights = all_weights(agent)
    for part in ("body", "q", "pi"):
        target = weights[f"target_{part}"]
        assert target.keys() == ({} if (kind, part) == ("SAC", "pi") else weights[part]).keys()
        assert all(torch.equal(weights[part][name], target[name]) for name in target)
    pairs = [(agent.q_model, agent.target_q_model), (agent.model.body, agent.target_model.body)]
    for module, target_module in pairs:
        assert not {p.data_ptr() for p in module.parameters()} & {p.data_ptr() for p in target_module.parameters()}
    assert not any(p.requires_grad for m in (agent.target_model, agent.target_q_model) for p in m.parameters())


class ThreeSteps(gymnasium.Env[Any, Any]):
    """Rewards 1, 2, 4; the third step ends the episode by termination, truncation or both, in turn.

    The observation is the number of the episode's kind, and the steps taken.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 9, (2,))
        self.action_space = BOX
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        over, kind = self.t == 3, self.episode % 3
        return self._observation(), 2.0 ** (self.t - 1), over and kind != 1, over and kind != 0, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.episode % 3, self.t], np.float32)


def set_output(module: torch.nn.Module, value: Any) -> None:
    """Let a network's last layer give the same, whatever it is given."""
    weight, bias = list(module.parameters())[-2:]
    with torch.no_grad():
        weight.zero_()
        bias.copy_(torch.as_tensor(value, dtype=torch.float32).reshape(bias.shape))


@pytest.mark.filterwarnings("ignore:.*two resets with seed")
@pytest.mark.parametrize("kind", ALGOS)
@pytest.mark.parametrize("n", [1, 2])
def test_hand_numbers_of_y_where_episodes_go_on_end_and_are_cut_off(kind, n, monkeypatch):
    settings: dict[str, Any] = dict(fixed_alpha=0.5) if kind == "SAC" else {}
    algo = make_algo(kind, discount=0.5, n_step_return=n, batch_size=64, replay_ratio=4, **settings)
    agent = make_agent(kind, n_q=1 if kind == "DDPG" else 2)
    sampler = set_up(algo, agent, ThreeSteps, T=T, B=B, n_itr=6)
    set_output(agent.target_q_model, [10.0] if kind == "DDPG" else [12.0, 10.0])
    V = 10.0
    if kind == "SAC":
        # Without noise u is 0, and so is log(1 - tanh(u)^2): log p = -sum_i (log_std_i + log(2 pi) / 2) over two i.
        set_output(agent.model.pi, [0.0, 0.0, -20.0, -20.0])
        monkeypatch.setattr(torch, "randn", lambda *shape, **_: torch.zeros(*shape))
        V = 10.0 - 0.5 * (2 * 20 - math.log(2 * math.pi))
    seen, given = {}, algo.q_target

    def q_target(batch: Any, *args: Any) -> Any:
        y = given(batch, *args)
        for (episode, t), value in zip(batch.agent_inputs.observation.tolist(), y.tolist(), strict=True):
            seen[("terminated", "truncated", "both")[int(episode)], int(t)] = value
        return y

    algo.q_target, algo.update_policy = q_target, lambda *_: {}
    algo.target_update_interval = 1000
    for itr in range(4):
        samples = sampler.obtain_samples(itr)[0]
        optimize(algo, itr, copied(samples))
    assert len(seen) == 9
    for end in ("terminated", "truncated", "both"):
        last = 0.5 * V if end == "truncated" else 0.0
        if n == 1:
            expected = [1 + 0.5 * V, 2 + 0.5 * V, 4 + last]
        else:
            expected = [1 + 0.5 * 2 + 0.25 * V, 2 + 0.5 * 4 + 0.5 * last, 4 + last]
        assert [seen[end, t] for t in range(3)] == pytest.approx(expected, rel=1e-5), end


class Pictures(Bandit):
    """Images that tell where each pixel came from, and a vector beside them that must stay as it is."""

    def __init__(self) -> None:
        parts: dict[str, spaces.Space[Any]] = {
            "image": spaces.Box(0, 255, (1, 12, 12), np.uint8),
            "vector": spaces.Box(0, 255, (2,), np.uint8),
        }
        super().__init__(spaces.Dict(parts), BOX)

    def observe(self) -> Any:
        return {"image": np.arange(144, dtype=np.uint8).reshape(1, 12, 12), "vector": np.array([1, 2], np.uint8)}

    def pay(self, action: Any) -> float:
        return 0.0


@pytest.mark.parametrize("recurrent", [False, True])
def test_images_are_shifted_row_by_row_and_the_rows_of_a_sequence_alike(recurrent):
    small: dict[str, Any] = dict(channels=[2], kernel_sizes=[3], strides=[2], paddings=[0], image_feature_size=4)
    algo = make_algo("SAC", recurrent, random_shift=2)
    agent = make_agent("SAC", recurrent, feature_kwargs={**small, **(dict(rnn_size=5) if recurrent else {})})
    sampler = set_up(algo, agent, Pictures, T=T, B=B, n_itr=6)
    batches, given = [], algo.feed.sample_batch

    def sample_batch() -> Any:
        batches.append(given())
        return batches[-1]

    algo.feed.sample_batch = sample_batch
    for itr in range(5):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    names = ["all_inputs"] if recurrent else ["agent_inputs", "target_inputs"]
    shifts: dict[str, set[int]] = {name: set() for name in names}
    pairs = set()
    for batch in batches:
        if not recurrent:
            corners = [batch[name].observation.image[:, 0, 6, 6].int() - 78 for name in names]
            pairs |= {*zip(*(corner.tolist() for corner in corners), strict=True)}
        for name in names:
            inputs = batch[name].observation
            assert (inputs.vector == torch.tensor([1, 2])).all()
            centre = inputs.image[..., 0, 6, 6].int() - 78  # where it came from: 12 * dy + dx
            if recurrent:
                assert (centre == centre[0]).all()
            shifts[name] |= {int(x) for x in centre.flatten()}
    for seen in shifts.values():
        assert seen <= {12 * y + x for y in range(-2, 3) for x in range(-2, 3)}
        assert len(seen) > (4 if recurrent else 8)
    # The observation and the one that follows it are shifted by numbers of their own.
    assert recurrent or len(pairs) > 2 * max(len(seen) for seen in shifts.values())


class Table(Pictures):
    """A table of bytes, which is no image."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (3, 4), np.uint8)

    def observe(self) -> Any:
        return np.arange(12, dtype=np.uint8).reshape(3, 4)


@pytest.mark.parametrize("recurrent", [False, True])
def test_what_is_no_image_is_not_shifted(recurrent):
    algo, agent = make_algo("SAC", recurrent, random_shift=2), make_agent("SAC", recurrent)
    with pytest.raises(ValueError, match=r"SAC: random_shift is 2, but no part of the observations is an image"):
        set_up(algo, agent, Table, T=T, B=B, n_itr=6)


def test_a_run_may_start_from_the_temperature_of_another():
    algo, agent = make_algo("SAC", **ADAM, alpha_learning_rate=0.1), make_agent("SAC")
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    for itr in range(6):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    alpha = float(alpha_of(algo, algo.hyper(0)))
    assert abs(alpha - 1) > 0.1
    other = make_algo("SAC", **ADAM, initial_optim_state_dict=algo.optim_state_dict())
    set_up(other, make_agent("SAC"), RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    assert alpha_of(other, other.hyper(0)) == alpha
    fixed = make_algo("SAC", **ADAM, fixed_alpha=0.1)
    set_up(fixed, make_agent("SAC"), RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    with pytest.raises(ValueError, match=r"SAC: .* has no 'alpha'.*expected a state of the same algorithm"):
        other.descents.load_state_dict(fixed.optim_state_dict())


@pytest.mark.parametrize("kind", ALGOS)
@pytest.mark.parametrize("recurrent", [False, True])
def test_the_target_normalises_like_the_network(kind, recurrent):
    features: dict[str, Any] = dict(feature_kwargs=dict(normalize_observation=True))
    algo, agent = make_algo(kind, recurrent, target_update_interval=1000), make_agent(kind, recurrent, **features)
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=6)
    for itr in range(6):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    own, target = (dict(module.body.named_buffers()) for module in (agent.model, agent.target_model))
    assert own.keys() == target.keys() == {"encoder.rms.mean", "encoder.rms.var", "encoder.rms.count"}
    assert own["encoder.rms.count"] > 0
    assert all(torch.equal(own[name], target[name]) for name in own)


@pytest.mark.parametrize("kind", ALGOS)
@pytest.mark.parametrize("recurrent", [False, True])
def test_a_run_goes_on_from_its_state_as_if_it_had_not_stopped(kind, recurrent):
    def parts() -> Any:
        algo, agent = make_algo(kind, recurrent, **ADAM, prioritized_replay=True), make_agent(kind, recurrent)
        return algo, agent, set_up(algo, agent, RandomEnv, dict(action_space=BOX), T=T, B=B, n_itr=8)

    algo, agent, sampler = parts()
    collected = [copied(sampler.obtain_samples(itr)[0]) for itr in range(8)]
    for itr in range(5):
        optimize(algo, itr, collected[itr])
    other_algo, other_agent, _ = parts()
    other_agent.load_state_dict(agent.state_dict())
    other_algo.load_state_dict(algo.state_dict())
    for itr in range(5, 8):
        expected, metrics = optimize(algo, itr, collected[itr]), optimize(other_algo, itr, collected[itr])
        assert all(torch.equal(metrics[name], x) for name, x in expected.items())
    for part, p in all_weights(agent).items():
        assert all(torch.equal(x, all_weights(other_agent)[part][name]) for name, x in p.items())


@pytest.mark.parametrize("kind", ALGOS)
def test_metrics_are_those_that_are_announced(kind):
    watch = watched(kind, policy_update_interval=2)
    assert set().union(*watch.metrics) == set(ALGOS[kind].opt_info_fields)
    assert sum("piLoss" in m or "muLoss" in m for m in watch.metrics) == watch.algo.update_counter // 2


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("SAC", dict(n_target_q=3), r"SAC: n_target_q is 3 of the agent's 2 networks"),
        ("SAC", dict(q_of_policy="max"), r"SAC: q_of_policy is 'max'; expected one of"),
        ("SAC", dict(action_prior="beta"), r"SAC: action_prior is 'beta'; expected one of"),
        ("SAC", dict(alpha_init=0.0), r"alpha_init is 0.0; expected above 0"),
        ("SAC", dict(fixed_alpha=-0.1), r"fixed_alpha is -0.1; expected a number from 0"),
        ("SAC", dict(target_entropy=math.inf), r"target_entropy is inf; expected a finite number or"),
        ("SAC", dict(reward_scale=0.0), r"reward_scale is 0.0; expected above 0"),
        ("TD3", dict(policy_update_interval=0), r"TD3: policy_update_interval is 0; expected a whole number from 1"),
        ("TD3", dict(policy_update_interval=1.5), r"expected a whole number from 1"),
        ("DDPG", dict(random_shift=-1), r"random_shift is -1; expected a whole number from 0"),
        ("DDPG", dict(q_learning_rate=-1.0), r"q_learning_rate is -1.0; expected a number from 0"),
        ("DDPG", dict(q_target_clip=0.0), r"q_target_clip is 0.0; expected above 0"),
        ("DDPG", dict(input_priorities=True, prioritized_replay=True), r"input_priorities is True; expected False"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        set_up(make_algo(kind, **settings), make_agent(kind), RandomEnv, dict(action_space=BOX), T=T, B=B)


@pytest.mark.parametrize("kind", ALGOS)
def test_agents_without_a_policy_over_action_values_are_refused(kind):
    message = rf"{kind}: the agent, a DqnAgent, has no policy with action values; .*SAC with SacAgent"
    with pytest.raises(TypeError, match=message):
        set_up(make_algo(kind), DqnAgent(), RandomEnv, T=T, B=B)


@pytest.mark.parametrize(
    ("kind", "agent"), [("SAC", "DDPG"), ("SAC", "TD3"), ("DDPG", "SAC"), ("TD3", "SAC"), ("TD3", "DDPG")]
)
def test_an_agent_of_another_algorithm_is_refused_before_the_run(kind, agent):
    """Its policy gives something else, or it lacks the noise of the target; an update would fail with torch's words."""
    with pytest.raises((TypeError, ValueError), match=rf"{kind}: .*expected"):
        set_up(make_algo(kind), make_agent(agent), RandomEnv, dict(action_space=BOX), T=T, B=B)
