"""CrossQ: SAC by one pass over both rows of a transition; and projections after the steps of SimbaV2."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import SacAgent
from rlpyt.algos import SAC
from rlpyt.algos.qpg import draw
from rlpyt.algos.replay_rows import run_over
from rlpyt.models import EnsembleBatchNorm, UnitLinear
from rlpyt.utils.replicas import Replicas
from tests.algos.small_problems import RandomEnv, learn_from, set_up

BOX: dict[str, Any] = dict(action_space=spaces.Box(-1, 1, (2,)))
REPLAY: dict[str, Any] = dict(min_steps_learn=64, replay_size=600, batch_size=8, replay_ratio=1)
NORMS: dict[str, Any] = dict(layers="batch_norm", hidden_sizes=(8, 8))
XQC: dict[str, Any] = dict(layers="xqc", hidden_sizes=(8, 8))


def crossq(n_itr: int = 6, agent: dict[str, Any] | None = None, **settings: Any) -> tuple[Any, Any]:
    """Return algorithm and agent after some updates."""
    algo = SAC(**REPLAY | dict(joint_pass=True, learning_rate=1e-2, q_learning_rate=1e-2) | settings)
    made = SacAgent(has_targets=False, model_kwargs=NORMS, q_model_kwargs=NORMS, **(agent or {}))
    sampler = set_up(algo, made, RandomEnv, BOX)
    learn_from(algo, sampler, n_itr)
    assert algo.update_counter > 0
    return algo, made


def network(module: torch.nn.Module, i: int, x: torch.Tensor, training: bool) -> torch.Tensor:
    """Network i of an ensemble in float64: norm, then linear, ReLU and norm, then linear; or as XQC has it."""
    p = {name: t.detach().double()[i] for name, t in module.state_dict().items() if t.dim()}

    def norm(x: torch.Tensor, at: int) -> torch.Tensor:
        mean, var = (x.mean(0), x.var(0, correction=0)) if training else (p[f"{at}.mean"], p[f"{at}.var"])
        return (x - mean) / (var + 1e-3).sqrt() * p[f"{at}.weight"] + p[f"{at}.bias"]

    x = norm(x.double(), 0)
    for at in (1, 4):
        if "1.bias" in p:
            x = norm((x @ p[f"{at}.weight"] + p[f"{at}.bias"][0]).relu(), at + 2)
        else:  # XQC: the norm comes before the nonlinearity
            x = norm(x @ p[f"{at}.weight"], at + 1).relu()
    return x @ p["7.weight"] + p["7.bias"][0]


def drawn_outputs(algo: Any, agent: Any, batch: Any) -> Any:
    """What an update with a batch has the losses computed from."""
    algo.draws = draw(algo, batch, True)
    target = None if algo.target is None else agent.target_features
    outputs = run_over(batch, agent, agent.features, target, with_next=True, warmup_T=0)
    return outputs._replace(noise=algo.draws.target)


def both_rows(pi: torch.nn.Module, batch: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Observations and actions of both rows in float64, and log-densities of the actions at the second ones."""
    s, next_s = batch.agent_inputs.observation, batch.target_inputs.observation
    mean, log_std = network(pi, 0, next_s, training=False).chunk(2, -1)
    u = mean + log_std.clamp(-20, 2).exp() * noise
    log_prob = (torch.distributions.Normal(mean, log_std.exp()).log_prob(u) + 2 * u.cosh().log()).sum(-1)
    return torch.cat([torch.cat([s, batch.action], -1).double(), torch.cat([next_s, u.tanh()], -1)]), log_prob


@pytest.mark.parametrize("settings", [{}, dict(n_target_q=2)], ids=["min of all", "min of two"])
def test_losses_equal_the_formulas(settings: dict[str, Any]) -> None:
    algo, agent = crossq(agent=dict(n_q=3), reward_scale=2.0, **settings)
    batch, hyper = algo.feed.sample_batch(), algo.hyper(0)
    outputs = drawn_outputs(algo, agent, batch)
    before = copy.deepcopy((agent.model.pi, agent.q_model))
    losses, q, y = algo.q_losses(batch, outputs, hyper)

    pi, q_model = (x.mlp.ensemble.layers if hasattr(x.mlp, "ensemble") else x.mlp.layers for x in before)
    rows, log_prob = both_rows(pi, batch, outputs.noise)
    both = torch.stack([network(q_model, i, rows, training=True)[:, 0] for i in range(3)])
    q_expected, next_q = both.chunk(2, 1)
    chosen = next_q if algo.draws.target_q is None else next_q[algo.draws.target_q]
    value = chosen.min(0).values - algo.log_alpha.detach().double().exp() * log_prob
    y_expected = 2 * batch.return_ + batch.bootstrap_discount * value
    torch.testing.assert_close(q, q_expected.float(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(y, y_expected.float(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(losses, (0.5 * (y_expected - q_expected) ** 2).mean(-1).float(), rtol=1e-3, atol=1e-4)

    # The policy's statistics stay where they were, those of the values moved once.
    assert all(map(torch.equal, before[0].buffers(), agent.model.pi.buffers()))
    first, moved = before[1].mlp.layers[0], agent.q_model.mlp.layers[0]
    torch.testing.assert_close(moved.mean[0], (0.99 * first.mean[0] + 0.01 * rows.mean(0)).float())
    assert moved.n_passes == first.n_passes + 1
    # y is a number: nothing of the next rows' values gets a gradient but by the statistics.
    assert not y.requires_grad
    assert q.requires_grad


def test_targets_take_a_joint_pass_of_their_own() -> None:
    """XQC: the atoms of y are those of the smaller target value of a pass over both rows, by statistics of that."""
    algo = SAC(**REPLAY, joint_pass=True, q_learning_rate=1e-2, target_update_tau=0.2)
    agent: Any = SacAgent(model_kwargs=XQC, q_model_kwargs=XQC, value_head="c51:-2,2,5")
    sampler = set_up(algo, agent, RandomEnv, BOX)
    learn_from(algo, sampler, 6)
    assert algo.update_counter > 10
    batch, hyper = algo.feed.sample_batch(), algo.hyper(0)
    outputs = drawn_outputs(algo, agent, batch)
    pi, q_model, target = copy.deepcopy((agent.model.pi.mlp.ensemble, agent.q_model.mlp, agent.target_q_model.mlp))
    losses, q, y, *_ = algo.q_losses(batch, outputs, hyper)

    rows, log_prob = both_rows(pi.layers, batch, outputs.noise)
    atoms, M = torch.linspace(-2, 2, 5, dtype=torch.float64), len(batch.action)
    own, following = (
        torch.stack([network(x.layers, i, rows, training=True).softmax(-1) for i in range(2)])
        for x in (q_model, target)
    )
    expected_q = own[:, :M] @ atoms
    next_q = following[:, M:] @ atoms
    alpha, total = algo.log_alpha.detach().double().exp(), torch.zeros(2, dtype=torch.float64)
    for m in range(M):
        p = torch.zeros(5, dtype=torch.float64)
        for atom, weight in zip(atoms, following[next_q[:, m].argmin(), M + m], strict=True):
            z = batch.return_[m] + batch.bootstrap_discount[m] * (atom - alpha * log_prob[m])
            at = float((z.clamp(-2, 2) + 2).item())
            low = min(int(at), 3)
            p[low] += weight * (1 - (at - low))
            p[low + 1] += weight * (at - low)
        total -= (p * own[:, m].log()).sum(-1) / M
    torch.testing.assert_close(q, expected_q.float(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(losses, total.float(), rtol=1e-3, atol=1e-3)
    assert not y.requires_grad
    # The targets follow by `tau`; the weights have norm 1 after every step.
    assert not torch.equal(target.layers[1].weight, q_model.layers[1].weight)
    norms = torch.cat([x.weight.norm(dim=1).flatten() for x in q_model.modules() if isinstance(x, UnitLinear)])
    torch.testing.assert_close(norms, torch.ones_like(norms))


def test_the_policy_climbs_the_values_of_the_running_statistics() -> None:
    algo, agent = crossq()
    batch, hyper = algo.feed.sample_batch(), algo.hyper(0)
    algo.draws = draw(algo, batch, True)
    features = agent.features(*batch.agent_inputs)
    q_before, pi_before = copy.deepcopy((agent.q_model, agent.model.pi))
    metrics = algo.update_policy(batch, features, hyper)
    assert all(map(torch.equal, q_before.buffers(), agent.q_model.buffers()))
    assert agent.model.pi.mlp.ensemble.layers[0].n_passes == pi_before.mlp.ensemble.layers[0].n_passes + 1
    assert agent.q_model.training
    assert agent.model.training
    assert all(layer.training for layer in agent.q_model.modules())
    # The loss once more, with the values in evaluation mode.
    agent.model.pi.load_state_dict(pi_before.state_dict())
    agent.q_model.eval()
    loss = algo.actions.policy_step(batch, features, hyper).loss
    torch.testing.assert_close(metrics["piLoss"], loss.detach(), rtol=0.1, atol=0.05)


def test_one_pass_an_update_and_no_targets() -> None:
    algo = SAC(**REPLAY, joint_pass=True, policy_update_interval=3)
    agent = SacAgent(has_targets=False, model_kwargs=NORMS, q_model_kwargs=NORMS)
    sampler = set_up(algo, agent, RandomEnv, BOX)
    passes: list[int] = []
    layer = next(x for x in agent.q_model.modules() if isinstance(x, EnsembleBatchNorm))
    layer.register_forward_hook(lambda module, inputs, y: passes.append(y.shape[1] if module.training else -1))
    learn_from(algo, sampler, 6)
    n = algo.update_counter
    assert n > 6
    assert passes == [x for i in range(1, n + 1) for x in ([16, -1] if i % 3 == 0 else [16])]
    assert algo.target is None
    assert list(agent.networks.learning) == ["q_model"]


def test_statistics_of_one_replica_are_refused() -> None:
    _, agent = crossq(3)
    with pytest.raises(TypeError, match="takes statistics of each replica's own batches"):
        agent.networks.join(Replicas(0, 2))


def test_weight_decay_leaves_alpha_alone() -> None:
    algo, _ = crossq(3, OptimCls=torch.optim.AdamW, optim_kwargs=dict(weight_decay=0.5))
    groups = [group for x in ("alpha", "q") for group in algo.descents[x].optimizer.param_groups]
    assert [group["weight_decay"] for group in groups] == [0.0, 0.5]
