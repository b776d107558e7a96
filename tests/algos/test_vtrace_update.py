"""One update of V-trace against a float64 reference, A2C on-policy, the row after a batch, and invalid rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rlpyt.agents import CategoricalPgAgent, PgAgent
from rlpyt.algos import A2C, VTrace
from rlpyt.types import Samples
from tests.algos import reference
from tests.algos.small_problems import (
    Metronome,
    RandomEnv,
    TableModel,
    batches,
    check_parameters,
    copied,
    metronome_values,
    optimize,
    parameters64,
    set_up,
    shake,
    train,
)
from tests.algos.test_policy_gradient_update import COMMON, KINDS, SPACES, garbage, make_agent

OPTIONS: dict[str, dict[str, Any]] = {
    "paper": dict(),
    "lambda": dict(gae_lambda=0.7, rho_bar=2.0, c_bar=0.8, pg_rho_bar=1.5),
    "no bounds": dict(rho_bar=math.inf, c_bar=math.inf, pg_rho_bar=math.inf, normalize_advantage=True),
}
DEFAULTS: dict[str, Any] = dict(gae_lambda=1.0, rho_bar=1.0, c_bar=1.0, pg_rho_bar=1.0, normalize_advantage=False)


def prepare(algo: Any, kind: str, seed: int, moved: float = 0.2, **kwargs: Any) -> tuple[PgAgent, Samples]:
    """An agent, its second batch (which begins within episodes), and a policy that has moved since it acted."""
    space, recurrent = KINDS[kind]
    agent = make_agent(recurrent)
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=SPACES[space]), T=9, B=6, seed=seed, **kwargs)
    shake(agent)
    samples = batches(sampler, 2)[1]
    assert samples.env.terminated.any() and samples.env.truncated.any()  # noqa: PT018
    shake(agent, moved, seed=2)
    return agent, samples


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_vtrace_equals_the_reference(kind, options, seed):
    h = {**DEFAULTS, **COMMON, **OPTIONS[options]}
    algo = VTrace(**h, OptimCls=torch.optim.SGD)
    agent, samples = prepare(algo, kind, seed)
    space, recurrent = KINDS[kind]
    p = parameters64(agent)
    loss, terms = reference.v_trace_loss(p, samples, SPACES[space], recurrent is not None, h)
    assert float(terms["kl"]) > 1e-3
    expected, norm = reference.sgd_step(p, loss, h["learning_rate"], h["clip_grad_norm"])
    metrics = optimize(algo, 0, samples)
    assert set(metrics) == set(algo.opt_info_fields) == {*terms, "loss", "gradNorm"}
    for name, value in {**terms, "loss": loss}.items():
        assert metrics[name].item() == pytest.approx(float(value.detach()), rel=1e-4, abs=1e-5), name
    assert metrics["gradNorm"].item() == pytest.approx(norm, rel=1e-4)
    check_parameters(agent, expected, rtol=1e-4, atol=1e-5)
    assert algo.update_counter == 1


@pytest.mark.parametrize("mid_batch_reset", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_on_policy_it_is_a2c(kind, mid_batch_reset):
    """So the row after the batch stands for the value that acting recorded, where an episode was cut there, too."""
    space, recurrent = KINDS[kind]
    h: dict[str, Any] = dict(**COMMON, gae_lambda=0.8, normalize_advantage=True, normalize_reward=True)
    results = []
    for AlgoCls in (VTrace, A2C):
        agent, algo = make_agent(recurrent), AlgoCls(**h, OptimCls=torch.optim.SGD)
        env_kwargs = dict(action_space=SPACES[space], p_end=0.4)
        train(algo, agent, RandomEnv, env_kwargs, n_itr=4, T=3, B=16, mid_batch_reset=mid_batch_reset)
        results.append(parameters64(agent))
        assert algo.update_counter == 4
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], rtol=1e-4, atol=1e-5)


def test_the_row_after_the_batch_is_valued_by_the_network_in_training():
    values: list[float] = torch.arange(6.0).tolist()
    agent = CategoricalPgAgent(TableModel, model_kwargs=dict(values=values))
    algo = VTrace(discount=0.5)
    sampler = set_up(algo, agent, Metronome, dict(length=40, truncates=True), T=1, B=2)
    samples = batches(sampler, 1)[0]
    assert samples.agent.bootstrap_value is None
    seen = samples.agent.bootstrap_inputs.observation
    assert torch.equal(batches(sampler, 1)[0].env.observation, seen)
    table: Any = agent.model
    with torch.no_grad():
        table.values += 100
    batch, _ = algo.vtrace_inputs(samples, algo.hyper(0))
    _, metrics = algo.loss(batch, None, algo.hyper(0))
    now, after = (table.values[x].detach() for x in (samples.env.observation, seen))
    expected = (0.5 * (samples.env.reward + 0.5 * after - now) ** 2).mean()
    assert metrics["valueLoss"].item() == pytest.approx(expected.item())


def test_no_ratio_is_clipped_on_policy_at_a_bound_of_1():
    for rho_bar, clipped in ((1.0, 0.0), (0.5, 1.0)):
        agent = CategoricalPgAgent(TableModel, model_kwargs=dict(values=[0.0] * 6))
        algo = VTrace(rho_bar=rho_bar)
        samples = batches(set_up(algo, agent, Metronome, dict(length=40, truncates=True), T=4, B=2), 1)[0]
        batch, _ = algo.vtrace_inputs(samples, algo.hyper(0))
        metrics = algo.loss(batch, None, algo.hyper(0))[1]
        assert (metrics["rho"].item(), metrics["rhoClipped"].item()) == (rho_bar, clipped)


def garbage_but_for_cut_episodes(samples: Samples, number: float) -> Samples:
    """The batch with garbage in its final rows. Where an episode was cut, its final observation has a value."""
    changed = garbage(samples, number)
    cut = torch.zeros_like(samples.env.valid)
    cut[1:] = samples.env.truncated[:-1] & ~samples.env.terminated[:-1]
    changed.env.observation[cut] = samples.env.observation[cut]
    assert cut.any()
    return changed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1e30, float("nan"), float("-inf")])
def test_final_rows_change_nothing(kind, number):
    results = []
    for change in (lambda x: x, lambda x: garbage_but_for_cut_episodes(x, number)):
        algo = VTrace(learning_rate=0.1, OptimCls=torch.optim.SGD, normalize_advantage=True)
        agent, samples = prepare(algo, kind, seed=3)
        metrics = optimize(algo, 0, change(samples))
        results.append([*metrics.values(), *agent.model.state_dict().values()])
    for x, y in zip(*results, strict=True):
        assert x.isfinite().all()
        torch.testing.assert_close(x, y, rtol=0, atol=0)


@pytest.mark.parametrize("recurrent", [None, "lstm"])
def test_without_a_valid_row_nothing_moves_and_nothing_is_logged(recurrent):
    algo, agent = VTrace(), make_agent(recurrent)
    sampler = set_up(algo, agent, RandomEnv, dict(p_end=1.0), T=1, B=4, n_itr=6)
    for itr in range(6):
        before = parameters64(agent)
        metrics = optimize(algo, itr, sampler.obtain_samples(itr)[0])
        if itr % 2:
            assert metrics == {}
            check_parameters(agent, before, rtol=0, atol=0)
        else:
            assert set(metrics) == set(algo.opt_info_fields)
    assert algo.update_counter == 3


def test_statistics_take_in_valid_rows_of_the_batch_only():
    algo, agent = VTrace(), PgAgent(model_kwargs=dict(normalize_observation=True))
    sampler = set_up(algo, agent, RandomEnv, T=20, B=5)
    observations = []
    for itr in range(3):
        samples = copied(sampler.obtain_samples(itr)[0])
        observations.append(samples.env.observation[samples.env.valid])
        optimize(algo, itr, samples)
    seen, state = torch.cat(observations).double(), agent.model.state_dict()
    assert state["encoder.rms.count"].item() == len(seen)
    torch.testing.assert_close(state["encoder.rms.mean"], seen.mean(0))


@pytest.mark.parametrize("truncates", [True, False])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_no_value_loss_is_left_where_the_value_is_the_truth(gae_lambda, truncates):
    values = metronome_values(5, truncates, 0.9).nan_to_num(1e4).tolist()
    agent = CategoricalPgAgent(TableModel, model_kwargs=dict(values=values))
    algo = VTrace(discount=0.9, gae_lambda=gae_lambda)
    sampler = set_up(algo, agent, Metronome, dict(length=5, truncates=truncates), T=7, B=4)
    collected = batches(sampler, 5)
    table: Any = agent.model
    with torch.no_grad():  # another policy, with the same values
        table.logits += torch.randn(table.logits.shape, generator=torch.Generator().manual_seed(0))
    for samples in collected:
        batch, _ = algo.vtrace_inputs(samples, algo.hyper(0))
        assert algo.loss(batch, None, algo.hyper(0))[1]["valueLoss"] < 1e-8


def test_a_batch_without_the_row_after_it_is_refused():
    algo = VTrace()
    _, samples = prepare(algo, "discrete", 0)
    samples = samples._replace(agent=samples.agent._replace(bootstrap_inputs=None))
    with pytest.raises(ValueError, match=r"VTrace: the batch has no agent.bootstrap_inputs; expected .*run.bootstrap"):
        optimize(algo, 0, samples)


def test_schedules_are_applied_at_their_step():
    """The bounds and the learning rate of iteration 3 of 10; the steps of an iteration are its rows."""
    h = {**DEFAULTS, **COMMON, "rho_bar": 0.3 + 0.3, "c_bar": 0.2 + 0.3, "pg_rho_bar": 0.5, "learning_rate": 0.035}
    at = 9 * 6
    schedules: dict[str, Any] = dict(
        learning_rate="lin_0.05",
        rho_bar=lambda step: 0.3 + 0.1 * step / at,
        c_bar=lambda step: 0.2 + 0.1 * step / at,
    )
    algo = VTrace(**{**h, **schedules}, OptimCls=torch.optim.SGD)
    agent, samples = prepare(algo, "discrete", 0)
    p = parameters64(agent)
    loss, _ = reference.v_trace_loss(p, samples, SPACES["discrete"], False, h)
    expected, _ = reference.sgd_step(p, loss, h["learning_rate"], h["clip_grad_norm"])
    optimize(algo, 3, samples)
    check_parameters(agent, expected, rtol=1e-4, atol=1e-5)
