"""One update of A2C and PPO: loss, gradient, clipping and step against a float64 reference, invalid rows, metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, PgAgent
from rlpyt.algos import A2C, PPO
from rlpyt.functional import Piecewise
from rlpyt.types import Samples
from rlpyt.utils.compute import ComputeSettings
from tests.algos import reference
from tests.algos.small_problems import (
    RandomEnv,
    Spot,
    batches,
    check_parameters,
    copied,
    optimize,
    parameters64,
    set_up,
    shake,
    train,
)


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


def prepare(algo: Any, kind: str, seed: int, n_itr: int = 4, **kwargs: Any) -> tuple[PgAgent, Samples]:
    """An agent, its second batch (which begins within episodes), and a policy that has moved since it acted."""
    space, recurrent = KINDS[kind]
    agent = make_agent(recurrent)
    sampler = set_up(
        algo, agent, RandomEnv, dict(action_space=SPACES[space]), T=9, B=6, n_itr=n_itr, seed=seed, **kwargs
    )
    shake(agent)
    samples = batches(sampler, 2)[1]
    assert not samples.env.valid.all()
    assert samples.env.terminated.any() and samples.env.truncated.any()  # noqa: PT018
    shake(agent, seed=2)
    return agent, samples


def expect(agent: Any, samples: Samples, kind: str, ppo: bool, h: dict[str, Any], n_updates: int = 1) -> Any:
    """Parameters, losses and gradient norms that the reference comes to."""
    space, recurrent = KINDS[kind]
    p, losses, norms = parameters64(agent), [], []
    for _ in range(n_updates):
        loss = reference.loss(p, samples, SPACES[space], recurrent is not None, ppo, h)
        p, norm = reference.sgd_step(p, loss, h["learning_rate"], h["clip_grad_norm"])
        losses.append(float(loss.detach()))
        norms.append(norm)
    return p, losses, norms


COMMON = dict(discount=0.9, value_loss_coeff=0.7, entropy_loss_coeff=0.03, learning_rate=0.05, clip_grad_norm=1e9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [dict(gae_lambda=1.0), dict(gae_lambda=0.8, normalize_advantage=True)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a2c_equals_the_reference(kind, options, seed):
    h = {"normalize_advantage": False, **COMMON, **options}
    algo = A2C(**h, OptimCls=torch.optim.SGD)
    agent, samples = prepare(algo, kind, seed)
    expected, losses, norms = expect(agent, samples, kind, False, h)
    metrics = optimize(algo, 0, samples)
    assert metrics["loss"].item() == pytest.approx(losses[0], rel=1e-4, abs=1e-5)
    assert metrics["gradNorm"].item() == pytest.approx(norms[0], rel=1e-4)
    check_parameters(agent, expected, rtol=1e-4, atol=1e-5)
    assert algo.update_counter == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        dict(gae_lambda=0.95),
        dict(gae_lambda=0.9, value_clip=0.1, normalize_advantage=True),
        dict(gae_lambda=0.9, clip_grad_norm=0.1, ratio_clip=0.4),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_ppo_equals_the_reference(kind, options, seed):
    h = {"normalize_advantage": False, "ratio_clip": 0.1, "value_clip": None, **COMMON, **options}
    algo = PPO(**h, OptimCls=torch.optim.SGD, minibatches=1, epochs=3, linear_lr_schedule=False)
    agent, samples = prepare(algo, kind, seed)
    expected, losses, norms = expect(agent, samples, kind, True, h, n_updates=3)
    metrics = optimize(algo, 0, samples)
    torch.testing.assert_close(metrics["loss"], torch.tensor(losses), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(metrics["gradNorm"], torch.tensor(norms), rtol=1e-3, atol=1e-4)
    check_parameters(agent, expected, rtol=1e-3, atol=1e-4)
    assert algo.update_counter == 3


@pytest.mark.parametrize("itr", [0, 1, 3])
def test_schedules_are_applied_at_their_step(itr):
    """Over 4 iterations a line is at 1, 3/4, 2/4, 1/4 of its start; the steps of this one are whole batches."""
    h = dict(COMMON, gae_lambda=0.5, normalize_advantage=False, value_clip=0.2)
    hyper = dict(h, learning_rate=0.1 * (4 - itr) / 4, ratio_clip=0.2 * (4 - itr) / 4, clip_grad_norm=0.3 + itr)
    settings: dict[str, Any] = dict(
        h, clip_grad_norm=lambda step: 0.3 + step / (9 * 6), ratio_clip=0.2, learning_rate=0.1
    )
    algo = PPO(**settings, OptimCls=torch.optim.SGD, minibatches=1, epochs=2, linear_lr_schedule=True)
    agent, samples = prepare(algo, "discrete", 0, n_itr=4)
    expected, _, _ = expect(agent, samples, "discrete", True, hyper, n_updates=2)
    optimize(algo, itr, samples)
    check_parameters(agent, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("itr", [0, 3])
def test_schedules_are_applied_at_their_step_in_a2c(itr):
    h = dict(COMMON, gae_lambda=0.5, normalize_advantage=False)
    hyper = dict(h, learning_rate=0.1 * (4 - itr) / 4, discount=0.9 - 0.1 * itr, entropy_loss_coeff=0.1 * itr)
    settings: dict[str, Any] = dict(
        h,
        learning_rate="lin_0.1",
        discount=lambda step: 0.9 - 0.1 * step / (9 * 6),
        entropy_loss_coeff=Piecewise([0, 4 * 9 * 6], [0.0, 0.4]),
    )
    algo = A2C(**settings, OptimCls=torch.optim.SGD)
    agent, samples = prepare(algo, "discrete", 0, n_itr=4)
    expected, _, _ = expect(agent, samples, "discrete", False, hyper)
    optimize(algo, itr, samples)
    check_parameters(agent, expected, rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1e30, float("nan"), float("-inf")])
@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
def test_final_rows_change_nothing(kind, number, AlgoCls):
    results = []
    for change in (lambda x: x, lambda x: garbage(x, number)):
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
def test_batches_with_hardly_a_valid_row(normalize_advantage, target_kl):
    """One step an episode and one row a batch: in every other batch there are final rows alone."""
    algo = PPO(minibatches=4, epochs=2, normalize_advantage=normalize_advantage, target_kl=target_kl)
    agent = make_agent(None)
    sampler = set_up(algo, agent, RandomEnv, dict(p_end=1.0), T=1, B=4, n_itr=6)
    before = parameters64(agent)
    updates = []
    for itr in range(6):
        metrics = optimize(algo, itr, sampler.obtain_samples(itr)[0])
        assert all(values.isfinite().all() for values in metrics.values())
        updates.append(len(metrics.get("loss", [])))
    assert updates[1::2] == [0, 0, 0]
    assert min(updates[::2]) >= 4
    # Rows fewer than minibatches are one a minibatch.
    agent = make_agent(None)
    sampler = set_up(algo, agent, RandomEnv, dict(p_end=0.5), T=2, B=2, n_itr=6)
    for itr in range(6):
        samples = sampler.obtain_samples(itr)[0]
        metrics = optimize(algo, itr, samples)
        assert all(values.isfinite().all() for values in metrics.values())
        assert len(metrics["loss"]) in (int(samples.env.valid.sum()), 2 * int(samples.env.valid.sum()))
    with pytest.raises(AssertionError):
        check_parameters(agent, before)


@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
@pytest.mark.parametrize("recurrent", [None, "lstm"])
def test_without_a_valid_row_nothing_moves_and_nothing_is_logged(AlgoCls, recurrent):
    """Adam would go on by its momentum, and the mean of no row is 0, which is no entropy."""
    algo, agent = AlgoCls(**({} if AlgoCls is A2C else dict(minibatches=2, epochs=2))), make_agent(recurrent)
    sampler = set_up(algo, agent, RandomEnv, dict(p_end=1.0), T=1, B=4, n_itr=6)
    for itr in range(6):
        before = parameters64(agent)
        metrics = optimize(algo, itr, sampler.obtain_samples(itr)[0])
        if itr % 2:
            assert metrics == {}
            check_parameters(agent, before, rtol=0, atol=0)
        else:
            assert set(metrics) == set(algo.opt_info_fields)
    assert algo.update_counter == 3 * (1 if AlgoCls is A2C else 4)


def test_a_minibatch_of_sequences_without_a_valid_row_is_left_out():
    algo, agent = PPO(minibatches=4, epochs=2), make_agent("lstm")
    sampler = set_up(algo, agent, RandomEnv, T=3, B=4, n_itr=6)
    samples = copied(sampler.obtain_samples(0)[0])
    samples.env.valid[:, 1:3] = False  # two of the four environments
    metrics = optimize(algo, 0, samples)
    assert algo.update_counter == len(metrics["entropy"]) == 2 * 2
    assert (metrics["entropy"] > 0.5).all()  # near log 3; of no row it would be 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalize_observation", [False, True])
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
    agent = make_agent(recurrent)
    agent = agent.replace(model_kwargs={**(agent.model_kwargs or {}), "normalize_observation": normalize_observation})
    algo = Watched(learning_rate=0.01, minibatches=2, epochs=2)
    train(algo, agent, RandomEnv, dict(action_space=SPACES[space]), n_itr=4, T=9, B=6)
    assert len(log_ratios) == 16
    assert max(log_ratios[::4] + values[::4]) < 1e-5
    assert min(log_ratios[1::4] + values[1::4]) > 1e-3
    if normalize_observation:
        assert agent.model.state_dict()["encoder.rms.count"].item() > 100


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_first_ratio_is_one_in_bfloat16_too(channels_last):
    model_kwargs = dict(channels=(8, 16), kernel_sizes=(4, 3), strides=(2, 2), paddings=(0, 0), fc_sizes=32)
    agent = CategoricalPgAgent(model_kwargs=model_kwargs)
    algo, settings = PPO(), ComputeSettings(precision="bfloat16", channels_last=channels_last)
    sampler = set_up(algo, agent, Spot, T=12, B=3, settings=settings)
    shake(agent, 0.05)
    batch, _ = algo.loss_inputs(batches(sampler, 1)[0], algo.hyper(0))
    dist_info, value = algo.forward(batch, None)
    assert value.dtype == batch.old_value.dtype == torch.float32
    log_prob, old_log_prob = (agent.distribution.log_prob(batch.action, x) for x in (dist_info, batch.old_dist_info))
    torch.testing.assert_close(log_prob, old_log_prob, rtol=0, atol=1e-3)
    torch.testing.assert_close(value, batch.old_value, rtol=0, atol=1e-3)


@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
def test_statistics_take_in_valid_rows_only(AlgoCls):
    algo = AlgoCls()
    agent = PgAgent(model_kwargs=dict(normalize_observation=True))
    sampler = set_up(algo, agent, RandomEnv, T=20, B=5)
    observations = []
    for itr in range(3):
        samples = copied(sampler.obtain_samples(itr)[0])
        observations.append(samples.env.observation[samples.env.valid])
        optimize(algo, itr, samples)
    seen = torch.cat(observations).double()
    state = agent.model.state_dict()
    assert state["encoder.rms.count"].item() == len(seen)
    torch.testing.assert_close(state["encoder.rms.mean"], seen.mean(0))
    torch.testing.assert_close(state["encoder.rms.var"], seen.var(0, correction=0))


def test_a2c_learns_by_the_statistics_that_it_acted_by():
    seen = []

    class Spy(A2C):
        def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
            seen.append((batch, self.forward(batch, init_rnn_state)[1].detach()))
            return super().loss(batch, init_rnn_state, hyper)

    algo, agent = Spy(), PgAgent(model_kwargs=dict(normalize_observation=True))
    sampler = set_up(algo, agent, RandomEnv, T=20, B=5)
    for itr in range(3):
        optimize(algo, itr, copied(sampler.obtain_samples(itr)[0]))
        batch, value = seen[-1]
        torch.testing.assert_close(value[batch.valid], batch.old_value[batch.valid], rtol=1e-5, atol=1e-6)
    assert agent.model.state_dict()["encoder.rms.count"] > 0


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


def test_the_last_minibatch_of_an_epoch_stops_the_epochs():
    """In the first one of all the policy is the one that acted."""
    algo = PPO(learning_rate=0.3, minibatches=2, epochs=5, target_kl=1e-6, OptimCls=torch.optim.SGD)
    kl = optimize(algo, 0, batches(set_up(algo, make_agent(None), RandomEnv), 1)[0])["kl"]
    assert len(kl) == 2
    assert kl[0] < 1e-6 < kl[1]


def test_the_clip_fraction_is_the_share_of_rows_whose_ratio_has_left_the_clip():
    ratios: list[torch.Tensor] = []

    class Spy(PPO):
        def loss(self, batch, init_rnn_state, hyper):
            params, _ = self.forward(batch, init_rnn_state)
            log_prob, _ = self.agent.distribution.log_prob_and_entropy(batch.action, params)
            ratios.append((log_prob - batch.old_log_prob).exp().detach())
            return super().loss(batch, init_rnn_state, hyper)

    algo = Spy(learning_rate=0.3, minibatches=1, epochs=4, linear_lr_schedule=False, OptimCls=torch.optim.SGD)
    clipped = optimize(algo, 0, batches(set_up(algo, make_agent(None), RandomEnv), 1)[0])["clipFraction"]
    by_hand = [((ratio < 0.9) | (ratio > 1.1)).float().mean() for ratio in ratios]
    torch.testing.assert_close(clipped, torch.stack(by_hand))
    assert clipped[0] == 0, "the policy is still the one that acted"
    assert clipped[-1] > 0


@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
def test_metrics_are_what_their_names_say(AlgoCls):
    algo = AlgoCls(**(dict(minibatches=1, epochs=1) if AlgoCls is PPO else {}))
    agent, samples = prepare(algo, "discrete", 5)
    p, valid = parameters64(agent), samples.env.valid
    params, value = reference.forward(p, samples, SPACES["discrete"], False)
    log_prob, entropy = reference.log_prob_and_entropy(params, samples.agent.action, SPACES["discrete"])
    old = [x.double() for x in samples.agent.agent_info.dist_info]
    old_log_prob, _ = reference.log_prob_and_entropy(old, samples.agent.action, SPACES["discrete"])
    _, return_ = reference.advantages(samples, 0.99, 1.0)
    log_ratio = (log_prob - old_log_prob)[valid]
    metrics = optimize(algo, 0, samples)
    assert not any(x.requires_grad for x in metrics.values())
    expected = {
        "entropy": entropy[valid].mean(),
        "perplexity": entropy[valid].exp().mean(),
        "valueLoss": 0.5 * (return_ - value)[valid].square().mean(),
        "kl": (log_ratio.exp() - 1 - log_ratio).mean(),
    }
    assert set(metrics) == set(algo.opt_info_fields)
    for name in metrics.keys() & expected.keys():
        assert metrics[name].item() == pytest.approx(float(expected[name].detach()), rel=1e-4), name
