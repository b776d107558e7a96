"""The plan of a run says what becomes of settings that other settings, the batch or the length of the run change."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, DqnAgent, R2d1Agent, SacAgent
from rlpyt.algos import A2C, DQN, PPO, R2D1, SAC
from rlpyt.core import Remark, hyper_parameters, rows_per_update
from rlpyt.functional import Linear
from rlpyt.replays import PrioritizedIndex
from rlpyt.settings import all_settings
from tests.algos.small_problems import RandomEnv, build, set_up

REPLAY: dict[str, Any] = dict(min_steps_learn=64, replay_size=600)
SMALL: dict[str, Any] = dict(hidden_sizes=8)
SEQUENCES: dict[str, Any] = dict(batch_T=4, batch_B=2, warmup_T=2, store_rnn_state_interval=2, n_step_return=1)


def started(algo: Any) -> Any:
    """Return the algorithm, in a run of 10 iterations, 32 steps each."""
    agent: Any = DqnAgent(model_kwargs=SMALL)
    env_kwargs: dict[str, Any] = {}
    if isinstance(algo, A2C | PPO):
        agent = CategoricalPgAgent(model_kwargs=SMALL)
    if isinstance(algo, R2D1):
        agent = R2d1Agent(model_kwargs=dict(**SMALL, rnn_size=4))
    if isinstance(algo, SAC):
        agent, env_kwargs = build(SacAgent, model_kwargs=SMALL), dict(action_space=spaces.Box(-1, 1, (2,)))
    set_up(algo, agent, RandomEnv, env_kwargs)
    return algo


def plan(algo: Any) -> dict[str, Any]:
    """Return the plan of a run of 10 iterations, 32 steps each."""
    return started(algo).plan()


def remarks(algo: Any) -> dict[str, Any]:
    """Return the entries of the plan that have the name of a setting; all but falling settings are cautions."""
    found = {name: text for name, text in plan(algo).items() if name in hyper_parameters(algo)}
    assert all(isinstance(text, Remark) == (TO_ZERO not in text) for text in found.values())
    return found


TO_ZERO = "-> 0 over the run (linear_lr_schedule)"


class WithoutClip(PPO):
    """Has no clip, as the SPO of the tutorial."""

    opt_info_fields = (*A2C.opt_info_fields, "kl")


def test_ppo_says_that_its_learning_rate_goes_to_zero() -> None:
    assert remarks(PPO(learning_rate=1e-3)) == dict(learning_rate=f"0.001 {TO_ZERO}", ratio_clip=f"0.1 {TO_ZERO}")
    assert remarks(PPO(learning_rate="cos_1e-3", ratio_clip=0.2)) == dict(ratio_clip=f"0.2 {TO_ZERO}")
    assert remarks(PPO(linear_lr_schedule=False)) == {}
    assert remarks(WithoutClip(learning_rate=1e-3)) == dict(learning_rate=f"0.001 {TO_ZERO}")


dqn = partial(build, DQN, **REPLAY)
dqn_100 = partial(dqn, eps_steps=100)
SCHEDULE = Linear(0, 1, steps=50)


@pytest.mark.parametrize(
    ("algo", "expected"),
    [
        (A2C(), {}),
        (A2C(reward_clip=5.0), dict(reward_clip="not used without normalize_reward")),
        (A2C(reward_clip=5.0, normalize_reward=True), {}),
        (dqn_100(), {}),
        (dqn_100(replay_ratio=3.3), dict(replay_ratio="3.3 rounded to 3, whole updates an iteration")),
        (dqn_100(replay_ratio="lin_3.3_1"), {}),
        (dqn_100(replay_on_device=True), dict(replay_on_device="not used, the agent is on the CPU, as the replay is")),
        (dqn_100(replay_on_device=False), {}),
        (dqn_100(prefetch=True), {}),
        (dqn_100(prefetch=True, replay_ratio=1), dict(prefetch="not used, an iteration has one update")),
        (
            dqn_100(prefetch=True, prioritized_replay=True, pri_beta_steps=100),
            dict(prefetch="not used, a prioritised batch waits for the priorities of the update before it"),
        ),
        (dqn_100(min_steps_learn=70), dict(min_steps_learn="70 rounded to 96, whole iterations")),
        (dqn(eps_steps=400), dict(eps_steps="400, longer than the run, which ends at 80 % of them")),
        (dqn(eps_steps=3200), {}),  # which is a warning
        (dqn(eps_steps=500, eps_schedule=SCHEDULE), dict(eps_steps="not used, eps_schedule is given")),
        (dqn(eps_schedule=SCHEDULE), {}),
        (dqn_100(pri_alpha=0.5), dict(pri_alpha="not used, prioritized_replay is False")),
        (dqn_100(IndexCls=PrioritizedIndex, pri_alpha=0.5, pri_beta=0.5), {}),
        (
            dqn_100(prioritized_replay=True, pri_beta_steps=1600),
            dict(pri_beta_steps="1,600, longer than the run, which ends at 20 % of them"),
        ),
        (
            dqn_100(prioritized_replay=True, pri_beta=0.5, pri_beta_init=0.3, pri_eta=0.5),
            dict(pri_beta_init="not used, pri_beta is given", pri_eta="not used, it is for sequences"),
        ),
        (
            R2D1(**REPLAY, **SEQUENCES, eps_steps=100, batch_size=16, replay_ratio=1.5),
            dict(batch_size="not used, an update takes batch_B sequences of warmup_T + batch_T rows"),
        ),
        (SAC(**REPLAY, batch_size=32, replay_ratio=32), {}),
    ],
)  # fmt: skip
def test_what_becomes_of_settings(algo: Any, expected: dict[str, str]) -> None:
    """Of an algorithm that is made of a record too, which has the defaults that nobody has given."""
    assert remarks(algo) == remarks(type(algo)(**all_settings(algo))) == expected


QUICK: dict[str, Any] = dict(**REPLAY, target_update_interval=4)


@pytest.mark.parametrize(
    ("algo", "expected"),
    [
        (PPO(), []),
        (DQN(**QUICK, eps_steps=320), []),
        (DQN(**QUICK, eps_steps=400), []),
        (
            DQN(**QUICK, eps_steps=3200),
            [r"over 3,200 steps \(eps_steps\).*320 steps.* 90% .*Set eps_steps to about 60,"],
        ),
        (DQN(**QUICK, eps_schedule=lambda step: 0.5), ["50% of the actions.*let eps_schedule reach 1"]),
        (
            DQN(**{**QUICK, "min_steps_learn": 256}, eps_steps=100),
            [r"after 256 of 320 steps \(min_steps_learn\).*Set min_steps_learn to about 30,"],
        ),
        (
            DQN(**REPLAY, eps_steps=100, replay_ratio=1, target_update_interval=10),
            [r"never moves.*every 10 updates \(target_update_interval\), and the run takes 9.*to about 1, or raise"],
        ),
        (SAC(**REPLAY, batch_size=32, replay_ratio=32), []),
    ],
)
def test_what_costs_the_run_its_learning_is_a_warning_that_says_what_to_set(algo: Any, expected: list[str]) -> None:
    warnings = plan(algo).get("warnings", [])
    assert len(warnings) == len(expected), warnings
    for pattern, text in zip(expected, warnings, strict=True):
        assert re.search(pattern, text), text


def test_rows_of_an_update_stand_beside_the_batch_size_as_it_was_given() -> None:
    algo = R2D1(**REPLAY, **SEQUENCES, batch_size=32, replay_ratio=1.5)
    made = plan(algo)
    algo = started(algo)
    assert (algo.batch_size, rows_per_update(algo)) == (32, 12)
    assert (made["rows an update"], made["updates an iteration"], made["replay ratio"]) == (12, 4, "1.5")
    assert algo.input_priorities is None


def test_the_updates_of_an_iteration_are_those_of_the_first_one_with_updates() -> None:
    made = plan(DQN(**REPLAY, replay_ratio=lambda step: 2.0 if step < 32 else 4.0))
    assert (made["first update at step"], made["updates an iteration"], made["replay ratio"]) == (64, 4, "4")
    made = plan(PPO(minibatches=4, epochs=3))
    assert (made["rows an update"], made["updates an iteration"]) == (8, 12)


@pytest.mark.parametrize(
    ("algo", "expected"),
    [
        (DQN(**REPLAY, batch_size=32), "Adam (eps 0.0003125)"),
        (DQN(**REPLAY, batch_size=32, optim_kwargs=dict(eps=1e-5)), "Adam (eps 1e-05)"),
        (DQN(**REPLAY, OptimCls=torch.optim.AdamW), "AdamW (eps 1e-08)"),
        (R2D1(**REPLAY, **SEQUENCES, replay_ratio=1.5), "Adam (eps 0.001)"),
        (PPO(), "Adam (eps 1e-08)"),
        (A2C(OptimCls=torch.optim.SGD), "SGD"),
        (SAC(**REPLAY, batch_size=32, replay_ratio=32), "Adam (eps 1e-08)"),
    ],
)
def test_the_optimiser_is_named_with_its_eps(algo: Any, expected: str) -> None:
    """DQN has an eps of its own, by the rows of an update."""
    assert plan(algo)["optimiser"] == expected


def test_each_optimiser_has_its_learning_rate_in_the_log() -> None:
    sac = started(SAC(**REPLAY, batch_size=32, replay_ratio=32, learning_rate=1e-3, q_learning_rate="lin_2e-3"))
    first = dict(PiLearningRate=1e-3, QLearningRate=2e-3, AlphaLearningRate=3e-4)
    assert sac.row_numbers(0) == sac.row_numbers(1) == pytest.approx(first)
    assert sac.row_numbers(6) == pytest.approx({**first, "QLearningRate": 1e-3})  # of the iteration at half the run
    assert started(SAC(**REPLAY, batch_size=32, replay_ratio=32, fixed_alpha=0.1)).row_numbers(0).keys() < first.keys()
    assert started(A2C(learning_rate=1e-3)).row_numbers(10) == {"LearningRate": 1e-3}
