"""Numbers of the rows of all replicas together, normalisers that join, and what is refused among replicas."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlpyt.agents import CategoricalPgAgent, DqnAgent, PgAgent
from rlpyt.algos import A2C, DQN, PPO
from rlpyt.algos.global_rows import GlobalRows
from rlpyt.models import RunningMeanStdModel
from rlpyt.replays import PrioritizedIndex
from rlpyt.samplers import SerialSampler
from rlpyt.utils.arrays import buffer_from_example
from rlpyt.utils.replicas import Replicas
from tests.algos.small_problems import RandomEnv, build, copied, optimize, run_of
from tests.replica_kit import run_replicas

# ---- normalisers ----


def test_copies_of_a_normaliser_talk_to_nobody() -> None:
    def work(replicas: Replicas) -> list[float]:
        rms = RunningMeanStdModel(())
        rms.join(replicas)
        copies = [copy.deepcopy(rms), pickle.loads(pickle.dumps(rms))]
        for own in copies if replicas.rank else []:  # the other replica makes no such call
            own.update(torch.tensor([1.0, 3.0]))
        return [float(own.mean) for own in copies]

    assert run_replicas(2, work) == [[0.0, 0.0], [2.0, 2.0]]


class Normed(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, layer: nn.Module) -> None:
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(3, 4), copy.deepcopy(layer), nn.Linear(4, 4)
        self.rms = RunningMeanStdModel((3,))

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        x = self.layer(self.first(self.rms(observation)).reshape(-1, 4))
        x = self.last(x).reshape(*observation.shape[:-1], 4)
        return x[..., :3], x[..., 3]


def initialized(algo: Any, agent: Any, replicas: Replicas, **facts: Any) -> Any:
    """Initialise an algorithm as a runner does in one of several replicas; return the sampler."""
    sampler = SerialSampler(RandomEnv, {}, batch_T=4, batch_B=2, max_decorrelation_steps=0)
    run = run_of(sampler, **{"n_itr": 50, "seed": 0, "bootstrap_value": algo.bootstrap_value, **facts})
    run = replace(run, example=sampler.initialize(agent, run), replicas=replicas)
    algo.initialize(agent, run)
    return sampler


def test_all_networks_of_an_agent_join() -> None:
    agent = PgAgent(ModelCls=Normed, model_kwargs=dict(layer=nn.BatchNorm1d(4)))
    with pytest.raises(TypeError, match="the layer 'layer' of Normed"):
        initialized(A2C(), agent, Replicas(0, 2))
    agent = build(PgAgent, ModelCls=Normed, model_kwargs=dict(layer=nn.LayerNorm(4)))
    replicas = Replicas(0, 2)
    initialized(A2C(), agent, replicas)
    assert agent.model.rms._replicas is agent.reward_rms._replicas is replicas
    # Whoever acts elsewhere agrees on nothing.
    assert agent.acting_copy().model.rms._replicas is not replicas


# ---- users' own parts ----


class OwnLoss(A2C):
    def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
        _, value = self.forward(batch, init_rnn_state)
        loss = value[batch.valid].sum() / batch.valid.sum()  # a mean of their own, of their own rows
        return loss, {"loss": loss, "steps": 7}


def test_an_own_loss_counts_by_its_rows() -> None:
    torch.manual_seed(1)
    agent = CategoricalPgAgent(model_kwargs=dict(hidden_sizes=4))
    settings: dict[str, Any] = dict(OptimCls=torch.optim.SGD, learning_rate=0.0, clip_grad_norm=float("inf"))
    algo = OwnLoss(**settings)
    sampler = initialized(algo, agent, Replicas())
    shares, alone = [], []
    for n in (1, 3):
        samples = copied(sampler.obtain_samples(0)[0])
        samples.env.valid[n:] = False
        optimize(algo, 0, samples)
        shares.append(samples)
        alone.append(gradient(agent))
    agents = [copy.deepcopy(agent) for _ in shares]

    def work(replicas: Replicas) -> tuple[torch.Tensor, float]:
        algo, agent, samples = OwnLoss(**settings), agents[replicas.rank], shares[replicas.rank]
        algo.initialize(agent, replace(run_of(sampler, n_itr=9, seed=0), replicas=replicas))
        steps = float(optimize(algo, 0, samples)["steps"])
        return gradient(agent), steps

    n0, n1 = (int(samples.env.valid.sum()) for samples in shares)
    assert n0 != n1
    results = run_replicas(2, work)
    assert sum(steps for _, steps in results) / 2 == pytest.approx(7)  # what is no mean of rows stays what it is
    for together, _ in results:
        torch.testing.assert_close(together, (n0 * alone[0] + n1 * alone[1]) / (n0 + n1))


def gradient(agent: Any) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in agent.parameters() if p.grad is not None])


# ---- replays ----


@pytest.mark.parametrize("end", [7, 30])
def test_importance_weights_of_replicas_compare(end: int) -> None:
    valid = np.random.default_rng(0).random((16, 3)) < 0.7
    first = max(2, end - 14)

    def index_of(rank: int) -> PrioritizedIndex:
        rng = np.random.default_rng(rank)
        index = PrioritizedIndex(rng, alpha=0.7, beta=0.6)
        shown = valid if rank == 0 else valid & (np.arange(3) > 0)
        index.initialize(16, 3, shown, buffer_from_example)
        index.move(first, end, rng.uniform(0.1 + rank, 5.0, (end - first, 3)))
        return index

    def work(replicas: Replicas) -> tuple[np.ndarray, np.ndarray]:
        index = index_of(replicas.rank)
        index.divides_by_largest = False
        places, B_idxs, weights = index.draw(5)
        assert weights is not None
        _, of_all = GlobalRows(replicas).weigh_draws(None, torch.from_numpy(weights))
        assert of_all is not None
        raised = index._priorities**0.7
        p = raised[places % 16 * 3 + B_idxs] / raised.sum()
        return (np.count_nonzero(raised) * p) ** -0.6, of_all.numpy()

    own, of_all = zip(*run_replicas(2, work), strict=True)
    largest = max(w.max() for w in own)
    assert own[0].max() != own[1].max()
    for weights, divided in zip(own, of_all, strict=True):
        np.testing.assert_allclose(divided, weights / largest, rtol=1e-5)


@pytest.mark.parametrize(("world_size", "rows", "n_updates", "least"), [(1, 640, 4, 4), (2, 320, 4, 2), (4, 160, 4, 1)])
def test_settings_of_a_replay_count_the_rows_of_all_replicas(
    world_size: int, rows: int, n_updates: int, least: int
) -> None:
    """Each replica has 8 rows an iteration; the replay ratio is that of all rows to all that are consumed."""
    algo = build(DQN, replay_size=640, min_steps_learn=40, replay_ratio=4.0, batch_size=8)
    initialized(algo, DqnAgent(model_kwargs=dict(hidden_sizes=4)), Replicas(0, world_size))
    assert algo.replay.size == rows
    assert algo.feed.n_updates(algo.hyper(0)) == n_updates
    assert algo.min_itr_learn == least
    eps = algo.optimizer.param_groups[0]["eps"]
    assert eps == pytest.approx(0.01 / (8 * world_size))
    assert algo.replay.index.divides_by_largest == (world_size == 1)


class OwnMinibatches(PPO):
    def minibatch_rows(self, batch: Any, init_rnn_state: Any, valid: Any) -> Any:
        for rows, rnn_state in super().minibatch_rows(batch, init_rnn_state, valid):
            yield rows._replace(weight=None), rnn_state


def test_own_minibatches_without_a_weight_are_refused_among_replicas() -> None:
    for replicas in (Replicas(), Replicas(0, 2)):
        algo = OwnMinibatches(minibatches=2)
        samples = initialized(algo, CategoricalPgAgent(), replicas).obtain_samples(0)[0]
        said = "OwnMinibatches: minibatch_rows gave a minibatch without weight to one of 2"
        with pytest.raises(ValueError, match=said) if replicas.world_size > 1 else nullcontext():
            optimize(algo, 0, samples)


def test_a_run_after_one_of_replicas_counts_every_row_alike() -> None:
    algo = A2C()
    for _ in range(2):
        initialized(algo, PgAgent(), Replicas())
        assert algo.loss_weight == 1.0
        algo.loss_weight = 0.25  # of the last rows among those of other replicas
