"""`optimize_agent` is `append` and `learn`; what an algorithm from scratch needs; steps of optimisers by name."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, DqnAgent, SacAgent
from rlpyt.algos import A2C, DQN, PPO, SAC, RandomShift, RlAlgorithm, VTrace
from rlpyt.core import rows_per_update
from tests.algos.small_problems import (
    RandomEnv,
    Spot,
    build,
    check_parameters,
    parameters64,
    set_up,
    train,
)

REPLAY: dict[str, Any] = dict(min_steps_learn=64, replay_size=600, batch_size=8, replay_ratio=0.5)
SMALL: dict[str, Any] = dict(hidden_sizes=8)
BOX: dict[str, Any] = dict(action_space=spaces.Box(-1, 1, (2,)))
KINDS: dict[str, Any] = {
    "A2C": (A2C, {}, CategoricalPgAgent, None),
    "VTrace": (VTrace, {}, CategoricalPgAgent, None),
    "PPO": (PPO, {}, CategoricalPgAgent, None),
    "DQN": (DQN, REPLAY, DqnAgent, None),
    "SAC": (SAC, REPLAY, SacAgent, BOX),
}


@pytest.mark.parametrize("kind", KINDS)
def test_append_and_learn_are_optimize_agent_and_leave_the_modes_to_the_runner(kind: str) -> None:
    AlgoCls, settings, AgentCls, env_kwargs = KINDS[kind]
    agents, metrics = [], []
    for in_two in (False, True):
        algo, agent = AlgoCls(**settings), AgentCls(model_kwargs=SMALL)
        sampler = set_up(algo, agent, RandomEnv, env_kwargs)
        for itr in range(4):
            samples = sampler.obtain_samples(itr)[0]
            agent.train_mode(itr)
            agent.train_mode = agent.eval_mode = lambda itr: pytest.fail("modes are the runner's")
            if in_two:
                assert algo.append(itr, samples) is None
                last = algo.learn(itr)
            else:
                last = algo.optimize_agent(itr, samples)
            del agent.train_mode, agent.eval_mode
        agents.append(agent)
        metrics.append(last)
    check_parameters(agents[1], parameters64(agents[0]), rtol=0, atol=0)
    assert metrics[0].keys() == metrics[1].keys()
    assert all(torch.equal(metrics[0][name], metrics[1][name]) for name in metrics[0])


def test_a_replay_takes_batches_in_without_learning_and_learns_without_a_batch() -> None:
    algo, agent = DQN(**REPLAY), DqnAgent(model_kwargs=SMALL)
    sampler = set_up(algo, agent, RandomEnv)
    for itr in range(3):
        algo.append(itr, sampler.obtain_samples(itr)[0])
    assert algo.update_counter == 0
    assert len(algo.learn(0)) == 0  # before min_steps_learn
    metrics = [algo.learn(3), algo.learn(3)]
    assert algo.update_counter == 4
    assert all(len(x["loss"]) == 2 for x in metrics)


# ---- an algorithm from scratch ----


class OwnLearn(RlAlgorithm[Any]):
    opt_info_fields = ("loss", "gradNorm")

    def initialize(self, agent: Any, run: Any) -> None:
        super().initialize(agent, run)
        self.batch_size = run.batch_spec.size

    def learn(self, itr: int) -> dict[str, torch.Tensor]:
        agent, env = self.samples
        _, value = self.agent(env.observation, agent.prev_action, env.prev_reward)
        loss = value[env.valid].square().mean()
        return {"loss": loss.detach(), "gradNorm": self.gradient_step(loss, self.hyper(itr * self.steps_per_itr))}


class OwnOptimizeAgent(RlAlgorithm[Any]):
    def optimize_agent(self, itr: int, samples: Any) -> Any:
        self.update_counter += 1
        return {}


def test_an_algorithm_from_scratch_has_one_way_to_learn() -> None:
    algo = OwnLearn(learning_rate=0.1)
    train(algo, CategoricalPgAgent(model_kwargs=SMALL), RandomEnv, n_itr=3)
    assert (algo.update_counter, rows_per_update(algo)) == (3, 32)
    other = OwnOptimizeAgent()
    train(other, CategoricalPgAgent(model_kwargs=SMALL), RandomEnv, n_itr=3)
    assert other.update_counter == 3
    with pytest.raises(AttributeError, match=r"has no 'batch_size'. It is the rows .* Set it in initialize"):
        rows_per_update(other)

    class Nothing(RlAlgorithm[Any]):
        pass

    for Cls in (RlAlgorithm, Nothing):
        with pytest.raises(TypeError, match=rf"{Cls.__name__}: has no way to learn; expected a method learn"):
            build(Cls).learn(0)


def test_append_with_the_arguments_of_before_is_refused() -> None:
    class Mine(DQN):
        def append(self, itr: int, samples: Any, now: Any) -> None:  # type: ignore[override]
            pass

    with pytest.raises(TypeError, match=r"Mine.append\(self, itr, samples, now\) does not fit .* append\(self, itr, s"):
        Mine()


# ---- steps by name ----


def test_steps_of_every_optimiser_by_name_and_the_one_that_is_counted() -> None:
    algo = SAC(**REPLAY, learning_rate=0.1, q_learning_rate=0.2, alpha_learning_rate=0.3)
    agent = build(SacAgent, model_kwargs=SMALL)
    set_up(algo, agent, RandomEnv, BOX)
    assert list(algo.descents) == ["pi", "q", "alpha"]
    parameters = {"pi": agent.pi_parameters(), "q": agent.q_parameters(), "alpha": [algo.log_alpha]}
    for name, rate, count in (("pi", 0.1, 0), ("q", 0.2, 1), ("alpha", 0.3, 1)):
        loss = torch.stack([p.square().sum() + p.sum() for p in parameters[name]]).sum()
        step = algo.gradient_step if name == "q" else partial(algo.descents.step, name)
        assert step(loss, algo.hyper(0)) > 0
        assert algo.descents[name].optimizer.param_groups[0]["lr"] == rate
        assert algo.update_counter == count
    with pytest.raises(RuntimeError, match=r"SAC: gradient_step has no optimiser; expected 'model' .*'pi', 'q', 'alp"):
        algo.descents.step("model", loss, algo.hyper(0))


# ---- explained variance ----


# ---- augmentation ----


def test_a_shift_of_images_serves_deep_q_learning_too() -> None:
    def first_batch(**settings: Any) -> Any:
        convolutions = dict(channels=(2,), kernel_sizes=(4,), strides=(4,), paddings=(0,), fc_sizes=8)
        algo, agent = DQN(**REPLAY, **settings), DqnAgent(model_kwargs=convolutions)
        sampler = set_up(algo, agent, Spot)
        for itr in range(2):
            algo.append(itr, sampler.obtain_samples(itr)[0])
        return algo.feed.sample_batch().agent_inputs.observation

    plain, shifted, by_hand = first_batch(), first_batch(random_shift=3), first_batch(augment=RandomShift(3))
    assert plain.shape == shifted.shape
    assert not torch.equal(plain, shifted)
    assert torch.equal(shifted, by_hand)
    inverted = first_batch(augment=lambda observation, n_leading, generator: 255 - observation)
    assert np.array_equal(inverted, 255 - plain.numpy())
