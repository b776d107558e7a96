"""Munchausen targets: numbers by hand, losses against loops over rows and actions, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rlpyt.agents import DqnAgent, IqnAgent, QrDqnAgent, R2d1Agent
from rlpyt.algos import DQN, IQN, QRDQN
from rlpyt.algos.munchausen import munchausen_target
from rlpyt.algos.replay_rows import is_of_sequences, legal_at_rows, run_over
from tests.algos.small_problems import RandomEnv, learn_from, set_up
from tests.masked_envs import MaskedEnv

SMALL: dict[str, Any] = dict(hidden_sizes=8)
COMMON: dict[str, Any] = dict(
    munchausen=0.9, munchausen_tau=0.3, munchausen_lowest=-0.5, min_steps_learn=64, replay_size=600, discount=0.8
)
TRANSITIONS: dict[str, Any] = dict(COMMON, batch_size=8, replay_ratio=1, n_step_return=2)
SEQUENCES: dict[str, Any] = dict(
    COMMON, batch_T=4, batch_B=2, warmup_T=2, store_rnn_state_interval=2, replay_ratio=1
)  # fmt: skip
CASES: dict[str, Any] = {
    "DQN": (DQN, DqnAgent, RandomEnv, TRANSITIONS, dict(model_kwargs=SMALL)),
    "masks": (DQN, DqnAgent, MaskedEnv, TRANSITIONS, dict(model_kwargs=SMALL)),
    "bins": (DQN, DqnAgent, RandomEnv, TRANSITIONS, dict(model_kwargs=SMALL, value_head="hl_gauss:-5,5,11")),
    "sequences": (DQN, R2d1Agent, MaskedEnv, SEQUENCES, dict(model_kwargs=dict(SMALL, rnn_size=6))),
    "QR": (QRDQN, QrDqnAgent, RandomEnv, TRANSITIONS, dict(model_kwargs=SMALL, n_quantiles=5)),
    "IQN": (IQN, IqnAgent, MaskedEnv, TRANSITIONS, dict(model_kwargs=SMALL)),
}


def soft_policy(q: torch.Tensor, tau: float, legal: list[int]) -> dict[int, float]:
    exp = {a: math.exp(float(q[a]) / tau) for a in legal}
    return {a: x / sum(exp.values()) for a, x in exp.items()}


@pytest.mark.parametrize("name", CASES)
def test_targets_equal_a_loop_over_rows_and_actions(name: str) -> None:
    AlgoCls, AgentCls, EnvCls, settings, agent_kwargs = CASES[name]
    algo, agent = AlgoCls(**settings), AgentCls(**agent_kwargs)
    sampler = set_up(algo, agent, EnvCls, n_itr=8)
    assert (learn_from(algo, sampler, 6)[-1]["munchausen"] < 0).any()
    sampler.shutdown()
    assert algo.update_counter > 0
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # values that differ
        for parameter in agent.networks.named("target").parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        batch, hyper = algo.feed.sample_batch(), algo.hyper(0)
        agent.networks.draw_randomness(algo.generator)
        outputs = run_over(
            batch, agent, agent, agent.target, with_next=False, warmup_T=int(algo.warmup_T), with_target=True
        )
    next_values = outputs.next_target.value if name == "IQN" else outputs.next_target
    next_values = agent.q_values(outputs.next_target) if name == "bins" else next_values
    y, bonus = munchausen_target(algo, batch, outputs, next_values, hyper)
    tau, found = 0.3, set()
    own, after = agent.q_values(outputs.target), agent.q_values(outputs.next_target)
    legal, next_legal = legal_at_rows(agent, batch, int(algo.warmup_T)), outputs.next_legal
    rows = torch.cartesian_prod(*map(torch.arange, batch.action.shape)).reshape(-1, batch.action.dim()).tolist()
    for row in map(tuple, rows):
        allowed, next_allowed = (
            [a for a in range(own.shape[-1]) if mask is None or mask[row][a]] for mask in (legal, next_legal)
        )
        action = int(batch.action[row])
        if is_of_sequences(batch) and not batch.valid[row]:
            continue
        gain = 0.9 * max(tau * math.log(soft_policy(own[row], tau, allowed)[action]), -0.5)
        found.add(gain > -0.45)
        torch.testing.assert_close(float(bonus[row]), gain, rtol=1e-4, atol=1e-5)
        value = torch.zeros(next_values.shape[batch.action.dim() + 1 :])
        for a, p in soft_policy(after[row], tau, next_allowed).items() if batch.bootstrap_discount[row] else ():
            value += p * (next_values[row][a] - tau * math.log(p))
        expected = batch.return_[row] + gain + batch.bootstrap_discount[row] * value
        torch.testing.assert_close(y[row], expected, rtol=1e-4, atol=1e-4)
    assert found == {True, False}, "no bonus was clipped, or every one"
    if is_of_sequences(batch):  # the target's outputs at a row are those that an earlier row is bootstrapped from
        torch.testing.assert_close(outputs.target[1][batch.steps[0] == 1], outputs.next_target[0][batch.steps[0] == 1])
