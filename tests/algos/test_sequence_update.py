"""The deep Q family from sequences: every update against a float64 unroll, row by row, over the raw rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlpyt.agents import R2d1Agent, RecurrentCatDqnAgent, RecurrentIqnAgent, RecurrentQrDqnAgent
from rlpyt.algos import DQN, IQN, QRDQN, R2D1, CategoricalDQN
from tests.algos.reference import Priorities, place_of, rnn_step, sequence_losses, settings_of, sgd_step
from tests.algos.small_problems import Watch, parameters64

T, B, N_ACTIONS, BATCH_B = 8, 4, 3, 2
MODEL: dict[str, Any] = dict(hidden_sizes=6, rnn_size=5)
IQN_MODEL: dict[str, Any] = dict(n_tau=4, n_acting_tau=3, n_cosines=3)
PAIRS: dict[str, Any] = {
    "R2D1": (R2D1, lambda **model: R2d1Agent(model_kwargs={**MODEL, **model})),
    "q": (DQN, lambda **model: R2d1Agent(model_kwargs={**MODEL, **model})),
    "categorical": (CategoricalDQN, lambda **model: RecurrentCatDqnAgent(n_atoms=5, model_kwargs={**MODEL, **model})),
    "quantiles": (QRDQN, lambda **model: RecurrentQrDqnAgent(n_quantiles=4, model_kwargs={**MODEL, **model})),
    "implicit": (IQN, lambda **model: RecurrentIqnAgent(model_kwargs={**MODEL, **IQN_MODEL, **model})),
}


def watched(kind: str, model: dict[str, Any] | None = None, p_end: float = 0.15, **kwargs: Any) -> Watch:
    AlgoCls, make_agent = PAIRS[kind]
    if kind == "categorical":
        kwargs = dict(V_min=-1.5, V_max=2.0, **kwargs)
    h: dict[str, Any] = dict(
        discount=0.8, replay_size=1000, min_steps_learn=3 * T * B, target_update_interval=4, optim_kwargs={},
        OptimCls=torch.optim.SGD, learning_rate=1.0, clip_grad_norm=0.5, batch_T=4, batch_B=BATCH_B, warmup_T=0,
        store_rnn_state_interval=4, n_step_return=3,
    )  # fmt: skip
    h |= kwargs
    h["replay_ratio"] = 2 * BATCH_B * (h["warmup_T"] + h["batch_T"]) / (T * B)  # two updates an iteration
    if kind == "R2D1":
        h = {"input_priorities": False, "delta_clip": None, **h}
    return Watch(AlgoCls(**h), make_agent(**(model or {})), 5, T=T, B=B, env_kwargs=dict(p_end=p_end))


def check_updates(watch: Watch) -> None:
    """Hold every update of a run to the reference: loss, priorities, importance weights, gradient step."""
    algo, h = watch.algo, settings_of(watch.algo, N_ACTIONS)
    priorities = Priorities(h.warmup_T + h.batch_T + h.n_step_return - 1, T, {}, [1.0] * 3)
    largest = 1.0
    assert len(watch.updates) == len(watch.metrics) == algo.update_counter == 6
    for i, (update, metric, itr) in enumerate(zip(watch.updates, watch.metrics, watch.itrs, strict=True)):
        places, losses, errors = sequence_losses(h, update, watch.stream)
        valid = errors.isfinite()
        assert torch.equal(update.batch.valid, valid)
        while len(priorities.largest) <= itr:
            priorities.largest.append(largest)
        mixed = mixed_over_valid(errors, h.pri_eta)
        if h.prioritized_replay:
            share = min(1.0, itr * T * B / h.pri_beta_steps)
            beta = h.pri_beta_init + share * (h.pri_beta_final - h.pri_beta_init)
            p = torch.tensor([priorities(place) for place in places]).double() ** h.pri_alpha
            weights = (p.min() / p) ** beta
            torch.testing.assert_close(update.batch.is_weights.double(), weights, rtol=1e-4, atol=1e-5)
            losses = losses * weights
            priorities.give(places, mixed)
            largest = max(largest, float(mixed.max()))
        loss = losses[valid].mean()
        assert metric["loss"].item() == pytest.approx(loss.item(), rel=1e-4)
        if "priority" in algo.opt_info_fields:
            torch.testing.assert_close(metric["priority"].double(), mixed, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(metric["tdAbsErr"].double(), mixed_over_valid(errors, 0.0), rtol=1e-3, atol=1e-5)
        moved, norm = sgd_step(watch.leaves[i], loss, h.learning_rate, h.clip_grad_norm)
        assert metric["gradNorm"].item() == pytest.approx(norm, rel=1e-3)
        for name, parameter in moved.items():
            torch.testing.assert_close(watch.after[i][name], parameter, rtol=1e-3, atol=1e-5, msg=name)


def mixed_over_valid(errors: torch.Tensor, eta: float) -> torch.Tensor:
    """eta * max + (1 - eta) * mean of every sequence, over the rows that are not NaN; 0 where all are."""
    columns = [column[column.isfinite()] for column in errors.T]
    return torch.stack([eta * x.max() + (1 - eta) * x.mean() if len(x) else x.sum() for x in columns])


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("n_step_return", [1, 3])
@pytest.mark.parametrize("warmup_T", [0, 4])
def test_updates_equal_the_reference(kind, n_step_return, warmup_T):
    watch = watched(
        kind, n_step_return=n_step_return, warmup_T=warmup_T, double_dqn=n_step_return == 3, prioritized_replay=True,
        value_scale_eps=0.05 if warmup_T else None, pri_eta=0.7, pri_beta_init=0.3, pri_beta_final=0.9,
        pri_beta_steps=3.5 * T * B,
    )  # fmt: skip
    check_updates(watch)
    starts = torch.cat([u.batch.episode_start for u in watch.updates], 1)
    assert starts[:warmup_T].any() == bool(warmup_T)
    assert starts[warmup_T : warmup_T + 4].any()
    assert not all(u.batch.valid.all() for u in watch.updates)


@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
@pytest.mark.parametrize("interval", [0, 1, 4])
@pytest.mark.parametrize("warmup_T", [0, 4])
def test_sequences_begin_where_states_are_kept(recurrent, interval, warmup_T):
    watch = watched("q", dict(recurrent=recurrent), store_rnn_state_interval=interval, warmup_T=warmup_T)
    check_updates(watch)
    places = [place_of(watch.stream, first) for u in watch.updates for first in u.batch.all_inputs.observation[0]]
    assert (len({t % 4 for t, _ in places}) == 1) == (interval == 4)
    assert all((u.batch.init_rnn_state is None) == (interval == 0) for u in watch.updates)


@pytest.mark.parametrize("kind", PAIRS)
def test_dueling_and_noisy_recurrent_networks_equal_the_reference(kind):
    check_updates(watched(kind, dict(dueling=True, noisy=True), warmup_T=4, prioritized_replay=True))


def test_episodes_may_be_shorter_than_a_sequence_and_as_short_as_one_step():
    watch = watched("R2D1", p_end=0.9, warmup_T=4)
    check_updates(watch)
    starts = torch.stack([u.batch.episode_start.sum(0) for u in watch.updates])
    assert starts.max() >= 4


def test_long_episodes_are_warmed_up_all_the_way():
    watch = watched("R2D1", p_end=0.0, warmup_T=4)
    check_updates(watch)
    assert all(u.batch.valid.all() and not u.batch.episode_start.any() for u in watch.updates)


@pytest.mark.parametrize("broken", ["state", "warm-up of the target", "double"])
def test_the_reference_tells_faults_apart(broken):
    """What the updates are held to would not hold with a fault in any of these."""
    watch = watched("R2D1", p_end=0.05, warmup_T=4, learning_rate=10.0)
    h = settings_of(watch.algo, N_ACTIONS)
    changes: dict[str, Any] = {"state": dict(store_rnn_state_interval=0), "double": dict(double_dqn=False)}
    faulty = settings_of(watch.algo, N_ACTIONS, **changes.get(broken, {}))
    differences = []
    for update in watch.updates:
        right = sequence_losses(h, update, watch.stream)[1]
        other = update._replace(target=update.online) if broken == "warm-up of the target" else update
        differences.append(
            (sequence_losses(faulty, other, watch.stream)[1] / right - 1).nan_to_num().abs().max().item()
        )
    assert max(differences) > 1e-2


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_the_stored_state_is_the_one_that_the_agent_had_when_it_acted(kind, recurrent):
    """Unrolled in float64 from the run's first row, by the network that acted all along."""
    watch = watched(kind, dict(recurrent=recurrent), learning_rate=0.0, store_rnn_state_interval=1, n_step_return=1)
    p, stream = {k: x.detach() for k, x in parameters64(watch.agent).items()}, watch.stream
    seen = 0
    for update in watch.updates[-2:]:
        for m, first in enumerate(update.batch.all_inputs.observation[0]):
            t0, b = place_of(stream, first)
            state = torch.zeros(5).double()
            cells = torch.zeros(5).double() if recurrent == "lstm" else None
            for t in range(t0 + 1):
                if t and stream.env.valid[t, b] and not stream.env.valid[t - 1, b]:
                    state, cells = torch.zeros_like(state), None if cells is None else torch.zeros_like(cells)
                if t == t0:
                    break
                x = (p["trunk.0.weight"] @ stream.env.observation[t, b].double() + p["trunk.0.bias"]).relu()
                before = torch.nn.functional.one_hot(stream.agent.prev_action[t, b], N_ACTIONS).double()
                x = torch.cat([x, before, stream.env.prev_reward[t, b].double()[None]])
                state, cells = rnn_step(p, x, state, cells)
            stored = update.batch.init_rnn_state
            torch.testing.assert_close(stored.h[m, 0].double(), state, rtol=1e-4, atol=1e-5)
            if cells is not None:
                torch.testing.assert_close(stored.c[m, 0].double(), cells, rtol=1e-4, atol=1e-5)
            seen += bool(state.any())
    assert seen > 1
