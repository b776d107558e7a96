"""Variants of algorithms as users write them: another loss beside the own one, another target, a model of the world."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent, PgAgent, RecurrentSacAgent, SacAgent
from rlpyt.algos import DQN, PPO, SAC, Target
from rlpyt.functional import valid_mean
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler
from tests.algos.small_problems import RandomEnv, Spot, build, learn_from, set_up
from tests.algos.variants.latent import LatentSAC

SMALL: dict[str, Any] = dict(hidden_sizes=8)
REPLAY: dict[str, Any] = dict(min_steps_learn=64, replay_size=600, batch_size=8, replay_ratio=1)
CONVOLUTIONS: dict[str, Any] = dict(channels=(2,), kernel_sizes=(4,), strides=(4,), paddings=(0,), fc_sizes=8)
BOX: dict[str, Any] = dict(action_space=spaces.Box(-1, 1, (2,)))


class RewardPPO(PPO):
    """The encoder predicts the reward, too."""

    def optim_initialize(self, rank: int = 0) -> None:
        self.head = torch.nn.Linear(8, 1)
        self.descents.add("model", [*self.agent.parameters(), *self.head.parameters()])

    def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
        loss, metrics = super().loss(batch, init_rnn_state, hyper)
        agent: Any = self.agent
        features, _ = agent.model.features(*batch.agent_inputs)
        error = valid_mean((self.head(features).squeeze(-1) - batch.reward).square(), batch.valid)
        return loss + error, {**metrics, "rewardError": error.detach()}


class RewardSAC(SAC):
    """The features predict the reward, too."""

    def optim_initialize(self, rank: int = 0) -> None:
        super().optim_initialize(rank)
        self.head = torch.nn.Linear(8, 1)
        self.descents.add("q", [*self.agent.q_parameters(), *self.head.parameters()], rate="q_learning_rate")

    def q_losses(self, batch: Any, outputs: Any, hyper: Any) -> Any:
        losses, q, y = super().q_losses(batch, outputs, hyper)[:3]
        error = (self.head(outputs.online.observation).squeeze(-1) - batch.reward).square().mean()
        return losses + error / len(losses), q, y, {"rewardError": error.detach()}


class Growing(Target):
    """Moves after 1, 2, 4, 8, ... updates."""

    def is_due(self, n_updates: int, hyper: Any) -> bool:
        return n_updates & (n_updates - 1) == 0


class GrowingDQN(DQN):
    TargetCls = Growing


@pytest.mark.parametrize("kind", ["PPO", "SAC"])
def test_an_auxiliary_loss_reaches_the_features(kind: str) -> None:
    algo: Any = RewardPPO() if kind == "PPO" else RewardSAC(**REPLAY)
    agent: Any = build(PgAgent, model_kwargs=CONVOLUTIONS)
    if kind == "SAC":
        agent = SacAgent(model_kwargs=SMALL, q_model_kwargs=SMALL, feature_kwargs=SMALL)
    found: list[torch.Tensor | None] = []
    sampler = set_up(algo, agent, *((Spot, None) if kind == "PPO" else (RandomEnv, BOX)))
    algo.head.register_full_backward_hook(lambda module, into, out: found.append(into[0]))
    learn_from(algo, sampler, 10)
    assert len(found) == algo.update_counter > 0
    assert all(x is not None and x.any() for x in found)


def test_a_target_of_another_schedule() -> None:
    algo, agent = GrowingDQN(**REPLAY), DqnAgent(model_kwargs=SMALL)
    moved, given = [], agent.update_target

    def update_target(tau: float = 1.0) -> None:
        moved.append(algo.update_counter)
        given(tau)

    sampler = set_up(algo, agent, RandomEnv)
    agent.update_target = update_target
    learn_from(algo, sampler, 10)
    assert moved == [1, 2, 4, 8, 16, 32]


@pytest.mark.nightly
def test_a_model_of_the_world_is_trained_beside_the_policy() -> None:
    sequences: dict[str, Any] = dict(batch_T=8, batch_B=8, warmup_T=0, store_rnn_state_interval=4, n_step_return=1)
    settings: dict[str, Any] = dict(min_steps_learn=128, replay_size=2000, replay_ratio=16)
    algo = LatentSAC(**sequences, **settings)
    agent = RecurrentSacAgent(model_kwargs=SMALL, q_model_kwargs=SMALL, feature_kwargs=dict(rnn_size=8))
    sampler = SerialSampler(gymnasium.make, dict(id="Pendulum-v1"), batch_T=32, batch_B=4, max_decorrelation_steps=0)
    losses: list[torch.Tensor] = []

    class Watching(MinibatchRl):
        def store_diagnostics(self, itr: int, traj_infos: Any, metrics: Any) -> None:
            losses.extend(metrics.get("worldLoss", ()))
            super().store_diagnostics(itr, traj_infos, metrics)

    Watching(algo, agent, sampler, n_steps=1000, log_interval_steps=500, seed=0).train()
    assert len(losses) > 100
    assert torch.stack(losses[-20:]).mean() < 0.5 * torch.stack(losses[:20]).mean()
