"""One update of A2C, PPO and V-trace against a float64 reference; invalid rows, rows of an older policy, metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import PgAgent
from rlpyt.algos import A2C, PPO, VTrace
from rlpyt.functional import Piecewise
from rlpyt.types import Samples
from tests.algos import reference
from tests.algos.small_problems import (
    RandomEnv,
    batches,
    check_parameters,
    copied,
    optimize,
    parameters64,
    set_up,
    shake,
    train,
)
from tests.pairs import crossed


class RecurrentPgAgent(PgAgent):
    recurrent = True


SPACES = {
    "discrete": spaces.Discrete(3),
    "multi-discrete": spaces.MultiDiscrete([2, 4]),
    "continuous": spaces.Box(torch.tensor([-0.1, 2.0]).numpy(), torch.tensor([3.0, 2.5]).numpy()),
}
KINDS = {
    "discrete": ("discrete", None),
    "multi-discrete": ("multi-discrete", None),
    "continuous": ("continuous", None),
    "discrete LSTM": ("discrete", "lstm"),
    "continuous GRU": ("continuous", "gru"),
}


def make_agent(recurrent: str | None) -> PgAgent:
    if recurrent is None:
        return PgAgent(model_kwargs=dict(hidden_sizes=(16, 16)))
    return RecurrentPgAgent(model_kwargs=dict(hidden_sizes=12, rnn_size=8, recurrent=recurrent))


def normalized(agent: PgAgent) -> PgAgent:
    """The agent with running statistics of its observations, which are those that acted until an update is over."""
    return agent.replace(model_kwargs={**(agent.model_kwargs or {}), "normalize_observation": True})


def prepare(algo: Any, kind: str, seed: int, moved: float = 0.2, **kwargs: Any) -> tuple[PgAgent, Samples]:
    """An agent, its second batch (which begins within episodes), and a policy that has moved since it acted."""
    space, recurrent = KINDS[kind]
    agent = make_agent(recurrent)
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=SPACES[space]), T=9, B=6, n_itr=4, seed=seed, **kwargs)
    shake(agent)
    samples = batches(sampler, 2)[1]
    assert not samples.env.valid.all()
    assert samples.env.terminated.any() and samples.env.truncated.any()  # noqa: PT018
    shake(agent, moved, seed=2)
    return agent, samples


COMMON: dict[str, Any] = dict(
    discount=0.9, value_loss_coeff=0.7, entropy_loss_coeff=0.03, learning_rate=0.05, clip_grad_norm=1e9,
    normalize_advantage=False,
)  # fmt: skip
PPO_TOO: dict[str, Any] = dict(
    minibatches=1, epochs=3, linear_lr_schedule=False, ratio_clip=0.1, value_clip=None, **COMMON
)
V_TRACE: dict[str, Any] = dict(gae_lambda=1.0, rho_bar=1.0, c_bar=1.0, pg_rho_bar=1.0, **COMMON)
OPTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "A2C": (A2C, dict(COMMON, gae_lambda=1.0)),
    "A2C GAE": (A2C, dict(COMMON, gae_lambda=0.8, normalize_advantage=True)),
    "PPO": (PPO, dict(PPO_TOO, gae_lambda=0.95)),
    "PPO value clip": (PPO, dict(PPO_TOO, gae_lambda=0.9, value_clip=0.1, normalize_advantage=True)),
    "PPO gradient clip": (PPO, dict(PPO_TOO, gae_lambda=0.9, clip_grad_norm=0.1, ratio_clip=0.4)),
    "V-trace": (VTrace, V_TRACE),
    "V-trace lambda": (VTrace, dict(V_TRACE, gae_lambda=0.7, rho_bar=2.0, c_bar=0.8, pg_rho_bar=1.5)),
    "V-trace no bounds": (
        VTrace, dict(V_TRACE, rho_bar=math.inf, c_bar=math.inf, pg_rho_bar=math.inf, normalize_advantage=True),
    ),
}  # fmt: skip


def expect(agent: Any, samples: Samples, kind: str, AlgoCls: Any, h: dict[str, Any]) -> Any:
    """Parameters, losses and gradient norms that the reference comes to, and the other metrics of the last update."""
    space, recurrent = KINDS[kind]
    p, losses, norms = parameters64(agent), list[float](), list[float]()
    terms: dict[str, torch.Tensor] = {}
    for _ in range(h.get("epochs", 1)):
        if AlgoCls is VTrace:
            loss, terms = reference.v_trace_loss(p, samples, SPACES[space], recurrent is not None, h)
        else:
            loss, terms = reference.loss(p, samples, SPACES[space], recurrent is not None, AlgoCls is PPO, h)
        p, norm = reference.sgd_step(p, loss, h["learning_rate"], h["clip_grad_norm"])
        losses.append(float(loss.detach()))
        norms.append(norm)
    return p, torch.tensor(losses), torch.tensor(norms), terms


@pytest.mark.parametrize(("kind", "name"), crossed(list(KINDS), list(OPTIONS)))
def test_updates_equal_the_reference(kind, name):
    AlgoCls, h = OPTIONS[name]
    algo = AlgoCls(**h, OptimCls=torch.optim.SGD)
    agent, samples = prepare(algo, kind, seed=len(name) % 2)
    expected, losses, norms, terms = expect(agent, samples, kind, AlgoCls, h)
    metrics = optimize(algo, 0, samples)
    torch.testing.assert_close(metrics["loss"].reshape(-1), losses, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(metrics["gradNorm"].reshape(-1), norms, rtol=1e-3, atol=1e-4)
    for term, value in terms.items():
        assert metrics[term].reshape(-1)[-1].item() == pytest.approx(float(value.detach()), rel=1e-3, abs=1e-5), term
    check_parameters(agent, expected, rtol=1e-3, atol=1e-4)
    assert not any(x.requires_grad for x in metrics.values())
    assert algo.update_counter == len(losses)
    assert set(metrics) == set(algo.opt_info_fields) == {"loss", "gradNorm", *terms}


@pytest.mark.parametrize("AlgoCls", [A2C, PPO, VTrace])
@pytest.mark.parametrize("itr", [0, 1, 3])
def test_schedules_are_applied_at_their_step(AlgoCls, itr):
    """Over 4 iterations of 54 steps; a line is at 1, 3/4, 2/4, 1/4 of its start, and never at its end."""
    h = {A2C: COMMON, PPO: PPO_TOO, VTrace: V_TRACE}[AlgoCls] | dict(gae_lambda=0.5)
    left = (4 - itr) / 4
    hyper = h | dict(learning_rate=0.1 * left, discount=0.9 - 0.1 * itr, entropy_loss_coeff=0.1 * itr,
                     clip_grad_norm=0.3 + itr)  # fmt: skip
    settings: dict[str, Any] = h | dict(
        learning_rate="lin_0.1", discount=lambda step: 0.9 - 0.1 * step / 54,
        clip_grad_norm=lambda step: 0.3 + step / 54,
        entropy_loss_coeff=Piecewise([0, 4 * 54], [0.0, 0.4]),
    )  # fmt: skip
    if AlgoCls is PPO:
        hyper["ratio_clip"] = 0.2 * left
        settings |= dict(linear_lr_schedule=True, learning_rate=0.1, ratio_clip=0.2)
    if AlgoCls is VTrace:
        hyper |= dict(rho_bar=0.3 + 0.1 * itr, c_bar=0.2 + 0.1 * itr)
        settings |= dict(rho_bar=lambda step: 0.3 + 0.1 * step / 54, c_bar=lambda step: 0.2 + 0.1 * step / 54)
    algo = AlgoCls(**settings, OptimCls=torch.optim.SGD)
    agent, samples = prepare(algo, "discrete", 0)
    expected, *_ = expect(agent, samples, "discrete", AlgoCls, hyper)
    optimize(algo, itr, samples)
    check_parameters(agent, expected, rtol=1e-3, atol=1e-5)


def garbage(samples: Samples, number: float) -> Samples:
    """The batch with a number in place of whatever a final row holds that has no meaning."""
    changed = copied(samples)
    final = ~changed.env.valid
    after_termination = torch.zeros_like(final)
    after_termination[1:] = final[1:] & changed.env.terminated[:-1]
    assert after_termination.any()
    changed.env.reward[final] = number
    changed.env.observation[final] = 1e6
    changed.agent.agent_info.value[after_termination] = number
    for parameter in changed.agent.agent_info.dist_info:
        parameter[final] = number
    # The null action of a final row is finite and in the space; which one it is has no meaning.
    changed.agent.action[final] = 1e30 if changed.agent.action.is_floating_point() else 1
    return changed


def garbage_but_for_cut_episodes(samples: Samples, number: float) -> Samples:
    """The batch with garbage in its final rows. Where an episode was cut, its final observation has a value."""
    changed = garbage(samples, number)
    cut = torch.zeros_like(samples.env.valid)
    cut[1:] = samples.env.truncated[:-1] & ~samples.env.terminated[:-1]
    changed.env.observation[cut] = samples.env.observation[cut]
    assert cut.any()
    return changed


@pytest.mark.parametrize(
    ("kind", "number", "AlgoCls"), crossed(list(KINDS), [1e30, math.nan, -math.inf], [A2C, PPO, VTrace])
)
def test_final_rows_change_nothing(kind, number, AlgoCls):
    results = []
    spoil = garbage_but_for_cut_episodes if AlgoCls is VTrace else garbage
    for change in (lambda x: x, lambda x: spoil(x, number)):
        options = dict(minibatches=2, epochs=2, value_clip=0.2) if AlgoCls is PPO else {}
        algo = AlgoCls(**options, learning_rate=0.1, OptimCls=torch.optim.SGD, normalize_advantage=True)
        agent, samples = prepare(algo, kind, seed=3)
        metrics = optimize(algo, 0, change(samples))
        results.append([*metrics.values(), *agent.model.state_dict().values()])
    for x, y in zip(*results, strict=True):
        assert x.isfinite().all()
        torch.testing.assert_close(x, y, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["discrete", "continuous GRU"])
def test_every_epoch_takes_every_row_once(kind):
    seen: list[torch.Tensor] = []

    @dataclass(kw_only=True, eq=False)
    class Watched(PPO):
        def loss(self, batch, *args):
            seen.append(batch.return_)
            return super().loss(batch, *args)

    algo = Watched(minibatches=3, epochs=4)
    _, samples = prepare(algo, kind, 0)
    optimize(algo, 0, samples)
    assert algo.update_counter == len(seen) == 12
    everything, valid = algo.loss_inputs(samples, algo.hyper(0))[0].return_, samples.env.valid
    recurrent = kind == "continuous GRU"
    expected = everything.flatten() if recurrent else everything[valid]
    orders = set()
    for epoch in range(4):
        parts = seen[3 * epoch : 3 * epoch + 3]
        assert all(part.numel() in (len(expected) // 3, -(-len(expected) // 3)) for part in parts)
        assert torch.equal(torch.cat([x.flatten() for x in parts]).sort()[0], expected.sort()[0])
        orders.add(tuple(torch.cat([x.flatten() for x in parts]).tolist()))
        if recurrent:  # whole sequences
            columns = {tuple(column) for part in parts for column in part.T.tolist()}
            assert columns == {tuple(column) for column in everything.T.tolist()}
    assert len(orders) == 4


@pytest.mark.parametrize("target_kl", [None, 0.01])
@pytest.mark.parametrize("normalize_advantage", [False, True])
def test_rows_that_are_fewer_than_minibatches_are_one_a_minibatch(normalize_advantage, target_kl):
    algo = PPO(minibatches=4, epochs=2, normalize_advantage=normalize_advantage, target_kl=target_kl)
    agent = make_agent(None)
    sampler = set_up(algo, agent, RandomEnv, dict(p_end=0.5), T=2, B=2, n_itr=6)
    before = parameters64(agent)
    for itr in range(6):
        samples = sampler.obtain_samples(itr)[0]
        metrics = optimize(algo, itr, samples)
        assert all(values.isfinite().all() for values in metrics.values())
        assert len(metrics["loss"]) in (int(samples.env.valid.sum()), 2 * int(samples.env.valid.sum()))
    with pytest.raises(AssertionError):
        check_parameters(agent, before)


@pytest.mark.parametrize("AlgoCls", [A2C, PPO, VTrace])
@pytest.mark.parametrize("recurrent", [None, "lstm"])
def test_without_a_valid_row_nothing_moves_and_nothing_is_logged(AlgoCls, recurrent):
    """Adam would go on by its momentum, and the mean of no row is 0, which is no entropy."""
    algo, agent = AlgoCls(**(dict(minibatches=2, epochs=2) if AlgoCls is PPO else {})), make_agent(recurrent)
    sampler = set_up(algo, agent, RandomEnv, dict(p_end=1.0), T=1, B=4, n_itr=6)
    for itr in range(6):
        before = parameters64(agent)
        metrics = optimize(algo, itr, sampler.obtain_samples(itr)[0])
        if itr % 2:
            assert metrics == {}
            check_parameters(agent, before, rtol=0, atol=0)
        else:
            assert set(metrics) == set(algo.opt_info_fields)
    assert algo.update_counter == 3 * (4 if AlgoCls is PPO else 1)


def test_a_minibatch_of_sequences_without_a_valid_row_is_left_out():
    algo, agent = PPO(minibatches=4, epochs=2), make_agent("lstm")
    sampler = set_up(algo, agent, RandomEnv, T=3, B=4, n_itr=6)
    samples = copied(sampler.obtain_samples(0)[0])
    samples.env.valid[:, 1:3] = False  # two of the four environments
    metrics = optimize(algo, 0, samples)
    assert algo.update_counter == len(metrics["entropy"]) == 2 * 2
    assert (metrics["entropy"] > 0.5).all()  # near log 3; of no row it would be 0


@pytest.mark.parametrize(("kind", "normalize_observation"), crossed(list(KINDS), [False, True], strength=1))
def test_the_first_ratio_of_every_batch_is_one(kind, normalize_observation):
    log_ratios: list[float] = []

    @dataclass(kw_only=True, eq=False)
    class Watched(PPO):
        def loss(self, batch, init_rnn_state, hyper):
            dist_info, value = self.forward(batch, init_rnn_state)
            log_prob = self.agent.distribution.log_prob(batch.action, dist_info)
            log_ratios.append(float((log_prob - batch.old_log_prob).detach().abs().max()))
            values.append(float((value - batch.old_value).detach().abs().max()))
            return super().loss(batch, init_rnn_state, hyper)

    values: list[float] = []
    space, recurrent = KINDS[kind]
    agent = normalized(make_agent(recurrent)) if normalize_observation else make_agent(recurrent)
    algo = Watched(learning_rate=0.01, minibatches=2, epochs=2)
    train(algo, agent, RandomEnv, dict(action_space=SPACES[space]), n_itr=4, T=9, B=6)
    assert len(log_ratios) == 16
    assert max(log_ratios[::4] + values[::4]) < 1e-5
    assert min(log_ratios[1::4] + values[1::4]) > 1e-3
    if normalize_observation:
        assert agent.model.state_dict()["encoder.rms.count"].item() > 100


def test_kl_stops_the_epochs_of_a_batch_only():
    def n_updates(target_kl):
        algo = PPO(learning_rate=0.3, minibatches=2, epochs=5, target_kl=target_kl, OptimCls=torch.optim.SGD)
        _, samples = prepare(algo, "discrete", 0)
        kl = optimize(algo, 0, samples)["kl"]
        assert len(kl) == algo.update_counter
        return len(kl), kl

    all_of_them, kl = n_updates(None)
    assert all_of_them == 10
    assert n_updates(1e-9)[0] == 2
    after_epochs = kl[1::2]
    limit = float(after_epochs[:2].max()) * 1.0001
    first_over = next((i for i, x in enumerate(after_epochs) if x > limit), 4)
    assert n_updates(limit)[0] == 2 * (first_over + 1)


# ---- V-trace ----


@pytest.mark.parametrize(("kind", "mid_batch_reset"), crossed(list(KINDS), [True, False], strength=1))
def test_on_policy_it_is_a2c(kind, mid_batch_reset):
    """So the row after the batch stands for the value that acting recorded, where an episode was cut there, too."""
    space, recurrent = KINDS[kind]
    h = COMMON | dict(gae_lambda=0.8, normalize_advantage=True, normalize_reward=True)
    results = []
    for AlgoCls in (VTrace, A2C):
        agent, algo = normalized(make_agent(recurrent)), AlgoCls(**h, OptimCls=torch.optim.SGD)
        env_kwargs = dict(action_space=SPACES[space], p_end=0.4)
        train(algo, agent, RandomEnv, env_kwargs, n_itr=4, T=3, B=16, mid_batch_reset=mid_batch_reset)
        results.append(parameters64(agent))
        assert algo.update_counter == 4
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], rtol=1e-4, atol=1e-5)
