"""Calls of a user's script, for `make types`: an editor must know what they return, and complete it.

mypy reads this file; nothing runs it. A result of the type Any fails here, as `assert_type` takes it for another type.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import gymnasium
import torch

import rlpyt
from rlpyt.agents import export_policy, load_weights, save_weights
from rlpyt.core import Agent, EvalResult
from rlpyt.logging import Logger
from rlpyt.runners import MinibatchRlBase, load_agent, runner_from_params
from rlpyt.samplers import evaluate
from rlpyt.types import AgentStep, StateDict, TrajInfo


def train_and_play(env: gymnasium.Env) -> None:
    runner = rlpyt.train("ppo", "CartPole-v1", n_steps=1e4, algo=dict(learning_rate=1e-3))
    assert_type(runner, MinibatchRlBase)
    assert_type(runner.agent, Agent)
    assert_type(runner.agent.play(env), list[TrajInfo])
    assert_type(runner.logger, Logger)
    assert_type(runner.logger.directory, Path | None)
    assert_type(runner.plot(), Path)
    again = runner_from_params("data/run_0", seed=1)
    assert_type(again.agent.play(env, n_episodes=2), list[TrajInfo])


def load_and_act(env: gymnasium.Env, observation: torch.Tensor) -> None:
    agent = load_agent("data/run_0", snapshot="best")
    assert_type(agent, Agent)
    assert_type(rlpyt.load_agent("data/run_0"), Agent)
    agent.eval_mode(0, deterministic=True)
    assert_type(agent.step(observation, None, None), AgentStep)
    assert_type(agent.value(observation, None, None), torch.Tensor)
    assert_type(agent.play(env)[0].Return, float)
    assert_type(agent.state_dict(), StateDict)
    assert_type(evaluate(agent, gymnasium.make, dict(id="CartPole-v1")), EvalResult)
    assert_type(export_policy(agent, "policy.pt2"), Path)
    assert_type(save_weights(agent, "weights.safetensors"), Path)
    load_weights(agent, "weights.safetensors")
