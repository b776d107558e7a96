"""Rows of an older policy: ratios compare with the policy that acted, its running statistics included."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from rlpyt.agents import PgAgent
from rlpyt.algos import PPO, VTrace
from tests.algos.small_problems import RandomEnv, batches, optimize, set_up
from tests.algos.test_policy_gradient_update import KINDS, SPACES, make_agent

NORMALIZED = pytest.mark.parametrize("kind", ["discrete", "continuous GRU"])


def one_batch_behind(algo: Any, kind: str) -> tuple[PgAgent, PgAgent, Any]:
    """The agent after an iteration, the one before, and a batch that the one before has acted in."""
    space, recurrent = KINDS[kind]
    agent = make_agent(recurrent)
    agent = agent.replace(model_kwargs={**(agent.model_kwargs or {}), "normalize_observation": True})
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=SPACES[space]), T=9, B=6)
    first, second = batches(sampler, 2)
    acted = deepcopy(agent)
    optimize(algo, 0, first)
    before, now = (x.model.state_dict()["encoder.rms.count"] for x in (acted, agent))
    assert (before, now) == (0, int(first.env.valid.sum()))
    return agent, acted, second


@NORMALIZED
def test_ppo_compares_with_the_policy_and_the_statistics_that_acted(kind):
    minibatches: list[Any] = []

    class Watched(PPO):
        def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
            minibatches.append(batch)
            return super().loss(batch, init_rnn_state, hyper)

    algo = Watched(epochs=1, minibatches=1, learning_rate=0.03)
    agent, acted, samples = one_batch_behind(algo, kind)
    batch, init_rnn_state = algo.loss_inputs(samples, algo.hyper(0))
    rnn = (init_rnn_state, batch.episode_start) if agent.recurrent else ()
    with torch.no_grad():
        then, now = (x(*batch.agent_inputs, *rnn) for x in (acted, agent))
        log_prob_then, log_prob_now = (agent.distribution.log_prob(batch.action, x) for x, _ in (then, now))
    log_ratio = (log_prob_now - log_prob_then)[batch.valid]
    assert log_ratio.abs().max() > 1e-2
    torch.testing.assert_close(batch.old_value, then[1], rtol=1e-5, atol=1e-5)
    metrics = optimize(algo, 1, samples)
    given = minibatches[-1]
    old = given.old_log_prob if given.valid is None else given.old_log_prob[given.valid]
    torch.testing.assert_close(old.sort()[0], log_prob_then[batch.valid].sort()[0], rtol=1e-5, atol=1e-5)
    assert metrics["kl"].item() == pytest.approx((log_ratio.expm1() - log_ratio).mean().item(), rel=1e-3)


@NORMALIZED
def test_v_trace_does_too(kind):
    algo = VTrace(learning_rate=0.03)
    agent, acted, samples = one_batch_behind(algo, kind)
    batch, init_rnn_state = algo.vtrace_inputs(samples, algo.hyper(0))
    rnn = (init_rnn_state, batch.episode_start) if agent.recurrent else ()
    with torch.no_grad():
        (then, _), (now, _) = (x(*batch.agent_inputs, *rnn) for x in (acted, agent))
        log_prob_then, log_prob_now = (agent.distribution.log_prob(batch.action, x[:-1]) for x in (then, now))
    valid = batch.valid
    torch.testing.assert_close(batch.old_log_prob[valid], log_prob_then[valid], rtol=1e-5, atol=1e-5)
    ratio = (log_prob_now - log_prob_then)[valid].exp()
    metrics = optimize(algo, 1, samples)
    assert metrics["rho"].item() == pytest.approx(ratio.clamp(max=1.0).mean().item(), rel=1e-4)
    assert metrics["rho"] < 0.999
