"""SAC over discrete actions: numbers by hand, updates against loops over rows and actions, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DiscreteSacAgent, DqnAgent
from rlpyt.algos import SAC
from rlpyt.algos.sac import alpha_of
from rlpyt.functional import expected_soft_value
from tests.algos.small_problems import RandomEnv, learn_from, set_up
from tests.masked_envs import MaskedEnv

SMALL: dict[str, Any] = dict(hidden_sizes=8)
NETWORKS: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)
SGD: dict[str, Any] = dict(
    OptimCls=torch.optim.SGD, optim_kwargs={}, learning_rate=0.1, q_learning_rate=0.0, alpha_learning_rate=0.1,
    min_steps_learn=64, replay_size=600, discount=0.8,
)  # fmt: skip
TRANSITIONS: dict[str, Any] = dict(SGD, batch_size=8, replay_ratio=1)
SEQUENCES: dict[str, Any] = dict(
    SGD, batch_T=4, batch_B=2, warmup_T=2, store_rnn_state_interval=2, replay_ratio=1
)  # fmt: skip


def test_the_value_of_a_state_by_hand() -> None:
    log_prob = torch.tensor([[0.25, 0.75], [0.0, 1.0]]).log().requires_grad_()
    q = torch.tensor([[2.0, -1.0], [7.0, 3.0]])
    value = expected_soft_value(q, log_prob, 4.0)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    torch.testing.assert_close(value, torch.tensor([0.25 * 2 - 0.75 + 4 * entropy, 3.0]))
    (slope,) = torch.autograd.grad(value.sum(), log_prob)
    assert torch.isfinite(slope).all()
    assert slope[1, 0] == 0


def prepared(EnvCls: Any, settings: dict[str, Any], agent: dict[str, Any]) -> tuple[Any, Any, Any]:
    """An algorithm that has learned for a while, its agent, and a batch."""
    algo, made = SAC(**settings), DiscreteSacAgent(**{**NETWORKS, **agent})
    sampler = set_up(algo, made, EnvCls, n_itr=8)
    learn_from(algo, sampler, 6)
    sampler.shutdown()
    assert algo.update_counter > 0
    generator = torch.Generator().manual_seed(3)
    parameter: Any
    with torch.no_grad():  # a policy that is far from uniform, and values that differ
        for parameter in [*made.parameters(), *made.networks.named("target_q").parameters()]:
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
    return algo, made, algo.feed.sample_batch()


def legal_actions(observation: Any, n: int) -> list[int]:
    mask = observation.action_mask.tolist() if hasattr(observation, "action_mask") else [1] * n
    return [a for a in range(n) if mask[a]] or list(range(n))


def policy(logits: torch.Tensor, legal: list[int]) -> dict[int, float]:
    exp = {a: math.exp(float(logits[a])) for a in legal}
    return {a: x / sum(exp.values()) for a, x in exp.items()}


CASES: dict[str, Any] = {
    "transitions": (RandomEnv, dict(TRANSITIONS, n_step_return=2, reward_scale=3.0), {}),
    "masks": (MaskedEnv, dict(TRANSITIONS, target_entropy=0.7), {}),
    "mean of five": (MaskedEnv, dict(TRANSITIONS, q_of_policy="mean", fixed_alpha=0.4), dict(n_q=5)),
    "sequences": (MaskedEnv, SEQUENCES, dict(recurrent=True, feature_kwargs=dict(rnn_size=6))),
}


@pytest.mark.parametrize("name", CASES)
def test_an_update_equals_a_loop_over_rows_and_actions(name: str) -> None:
    algo, agent, batch = prepared(*CASES[name])
    hyper, recurrent = algo.hyper(0), agent.recurrent
    alpha, scale = float(alpha_of(algo, hyper)), algo.schedule_of("reward_scale")
    places: list[Any]
    with torch.no_grad():
        if recurrent:
            state, target_state = agent.networks.warm_up(
                batch.all_inputs[:2], batch.init_rnn_state, batch.episode_start[:2]
            )
            inputs, starts = batch.all_inputs[2:], batch.episode_start[2:]
            x = agent.features(*inputs, state, starts)
            target_x = agent.target_features(*inputs, target_state, starts)
            T, M = batch.action.shape
            places = [(t, m) for t in range(T) for m in range(M) if batch.valid[t, m]]
            rows = [(x[p], inputs.observation[p]) for p in places]
            nexts = [(p[0] + int(batch.steps[p]), p[1]) for p in places]
            next_rows = [(x[p], target_x[p], inputs.observation[p]) for p in nexts]
        else:
            places = [(m,) for m in range(len(batch.action))]
            online = agent.features(*batch.agent_inputs)
            next_online, target = agent.features(*batch.target_inputs), agent.target_features(*batch.target_inputs)
            rows = [(online[p], batch.agent_inputs.observation[p]) for p in places]
            next_rows = [(next_online[p], target[p], batch.target_inputs.observation[p]) for p in places]
        q_losses, policy_losses, entropies, gaps = [], [], [], []
        for place, (here, observation), (there, there_target, next_observation) in zip(
            places, rows, next_rows, strict=True
        ):
            pi = policy(agent.pi(there), legal_actions(next_observation, agent.distribution.dim))
            q = agent.target_all_q(there_target)
            v = sum(p * (min(float(qi[a]) for qi in q) - alpha * math.log(p)) for a, p in pi.items())
            y = scale * float(batch.return_[place]) + float(batch.bootstrap_discount[place]) * v
            q = agent.all_q(here)
            q_losses.append([0.5 * (y - float(qi[batch.action[place]])) ** 2 for qi in q])
            pi = policy(agent.pi(here), legal_actions(observation, agent.distribution.dim))
            of_all = {a: [float(qi[a]) for qi in q] for a in pi}
            lowest = {a: sum(x) / len(x) if algo.q_of_policy == "mean" else min(x) for a, x in of_all.items()}
            policy_losses.append(sum(p * (alpha * math.log(p) - lowest[a]) for a, p in pi.items()))
            entropies.append(-sum(p * math.log(p) for p in pi.values()))
            fraction = 0.3 if algo.target_entropy == "auto" else algo.target_entropy
            gaps.append(fraction * math.log(len(pi)) - entropies[-1])
    before = None if algo.fixed_alpha is not None else algo.log_alpha.item()
    metrics = algo.update(batch, hyper)
    mean = [sum(x) / len(x) for x in zip(*q_losses, strict=True)]
    assert metrics["q1Loss"].item() == pytest.approx(mean[0], rel=1e-4)
    assert metrics["q2Loss"].item() == pytest.approx(mean[-1], rel=1e-4)
    assert metrics["piLoss"].item() == pytest.approx(sum(policy_losses) / len(rows), rel=1e-4, abs=1e-5)
    assert metrics["entropy"].item() == pytest.approx(sum(entropies) / len(rows), rel=1e-4)
    assert "piMu" not in metrics, "which a Gaussian has"
    assert "piMu" not in algo.opt_info_fields, "whose column would stay empty"
    if before is not None:
        assert algo.log_alpha.item() == pytest.approx(before + 0.1 * sum(gaps) / len(gaps), rel=1e-4)


def test_actions_before_the_first_update_are_as_likely_and_then_the_policy_s() -> None:
    agent: Any = DiscreteSacAgent(**NETWORKS)
    sampler = set_up(SAC(**{**TRANSITIONS, "learning_rate": 0.0, "min_steps_learn": 500}), agent, MaskedEnv, T=125, B=4)
    with torch.no_grad():
        agent.model.pi.mlp[-1].bias += torch.tensor([5.0, 0.0, 0.0, 0.0])
    shares = []
    for itr in range(2):
        samples, _ = sampler.obtain_samples(itr)
        may, took = samples.env.observation.action_mask[..., 0] == 1, samples.agent.action == 0
        more = samples.env.observation.action_mask.sum(-1) > 1
        shares.append(float(took[may & more].float().mean()))
        agent.train_mode(itr)
        agent.anneal_exploration(1.0)
    assert 0.25 < shares[0] < 0.55
    assert shares[1] > 0.9
    sampler.shutdown()


def test_what_has_no_meaning_for_discrete_actions_is_refused() -> None:
    box = dict(action_space=spaces.Box(-1, 1, (2,)))
    with pytest.raises(TypeError, match=r"DiscreteSacAgent: the action space is Box.*expected Discrete"):
        set_up(SAC(**TRANSITIONS), DiscreteSacAgent(**NETWORKS), RandomEnv, box)
    with pytest.raises(ValueError, match=r"pretrain_std is 0.1; expected None"):
        DiscreteSacAgent(pretrain_std=0.1)
    of_one = DiscreteSacAgent(**{**NETWORKS, "QModelCls": lambda **_: torch.nn.Linear(3, 1), "q_model_kwargs": {}})
    with pytest.raises(ValueError, match=r"a Linear, are \[3, 1\] .*expected \[2, 3, 3\].*all actions"):
        set_up(SAC(**TRANSITIONS), of_one, RandomEnv)
    with pytest.raises(TypeError, match="SAC with SacAgent or DiscreteSacAgent"):
        set_up(SAC(**TRANSITIONS), DqnAgent(), RandomEnv)
