"""Small problems solved by asynchronous runs on CPUs: the sampler acts by weights that are some iterations old.

Such a run is the same every time, so a threshold needs a margin for changes of rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from rlpyt.agents import CategoricalPgAgent, DqnAgent, R2d1Agent, RecurrentCategoricalPgAgent, SacAgent
from rlpyt.algos import DQN, PPO, R2D1, SAC, VTrace
from rlpyt.logging import read_progress
from rlpyt.runners import AsyncRl
from rlpyt.samplers import SerialSampler
from tests.algos.small_problems import Chain, ContinuousBandit, Cue
from tests.runners.runner_kit import nightly, run

pytestmark = pytest.mark.slow

REPLAY: dict[str, Any] = dict(replay_size=4_000, min_steps_learn=500, discount=0.9)
HIDDEN: dict[str, Any] = dict(hidden_sizes=32)
N_ROWS = 6
"""Rows of the log."""


class Case(NamedTuple):
    """Problem, who solves it, and the mean returns before and after."""

    make: Callable[[], tuple[Any, Any]]
    EnvCls: Any
    n_itr: int
    before: float
    after: float
    T: int = 16
    lag: int = 1
    env_kwargs: dict[str, Any] | None = None


def dqn() -> tuple[Any, Any]:
    q: dict[str, Any] = dict(learning_rate=1e-3, eps_steps=3_000, batch_size=64, target_update_interval=50)
    return DQN(**REPLAY, **q), DqnAgent(model_kwargs=HIDDEN)


def sac() -> tuple[Any, Any]:
    rates: dict[str, Any] = dict(learning_rate=3e-3, q_learning_rate=3e-3, alpha_learning_rate=3e-3)
    # Without much entropy, as the episodes that are judged are those of training.
    rest: dict[str, Any] = dict(target_update_tau=0.02, batch_size=64, replay_ratio=12, alpha_init=0.1)
    return SAC(**REPLAY, **rates, **rest, target_entropy=-2.5), SacAgent(model_kwargs=HIDDEN, q_model_kwargs=HIDDEN)


def r2d1() -> tuple[Any, Any]:
    sequences: dict[str, Any] = dict(batch_T=6, batch_B=32, warmup_T=3, store_rnn_state_interval=3, replay_ratio=12)
    q: dict[str, Any] = dict(learning_rate=3e-3, target_update_interval=50, eps_steps=1_000, n_step_return=2)
    return R2D1(**REPLAY, **sequences, **q), R2d1Agent(eps_final=0.02, model_kwargs=dict(**HIDDEN, rnn_size=32))


def ppo() -> tuple[Any, Any]:
    return PPO(learning_rate=3e-3, gae_lambda=0.95), CategoricalPgAgent(model_kwargs=dict(normalize_observation=True))


def v_trace() -> tuple[Any, Any]:
    return VTrace(learning_rate=5e-3), CategoricalPgAgent()


def recurrent_v_trace() -> tuple[Any, Any]:
    algo = VTrace(learning_rate=1e-2, gae_lambda=0.95, normalize_advantage=True)
    return algo, RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=32, hidden_sizes=32))


CASES = {
    "DQN": Case(dqn, Chain, 30, 0.8, 0.95),
    "SAC": Case(sac, ContinuousBandit, 12, -0.8, -0.35),
    "R2D1": Case(r2d1, Cue, 48, 0.7, 0.8, T=9, env_kwargs=dict(delay=1)),
    "PPO": Case(ppo, Chain, 24, 0.8, 0.95),
    "VTrace": Case(v_trace, Chain, 24, 0.8, 0.95),
    "VTrace lag 4": Case(v_trace, Chain, 30, 0.8, 0.95, lag=4),
    "VTrace LSTM": Case(recurrent_v_trace, Cue, 48, 0.7, 0.8, T=9, lag=2, env_kwargs=dict(delay=2)),
}


def curve_of(case: Case, directory: Path, seed: int = 0) -> dict[str, list[float]]:
    """Train, and return the columns of progress.csv."""
    torch.manual_seed(seed)
    sampler = SerialSampler(case.EnvCls, case.env_kwargs, case.T, 8, max_decorrelation_steps=0)
    n_steps = case.n_itr * case.T * 8
    settings: dict[str, Any] = dict(n_steps=n_steps, log_interval_steps=n_steps // N_ROWS, seed=seed, lag=case.lag)
    run(directory, case.make(), sampler, AsyncRl, snapshot_mode="none", **settings)
    return read_progress(directory / "run_0")


@pytest.mark.parametrize(
    "name", ["DQN", "R2D1", "VTrace lag 4", *map(nightly, ("SAC", "PPO", "VTrace", "VTrace LSTM"))]
)
def test_an_asynchronous_run_learns(name, tmp_path):
    case = CASES[name]
    progress = curve_of(case, tmp_path)
    returns = progress["ReturnAverage"]
    assert len(returns) == N_ROWS
    assert returns[0] < case.before
    assert returns[-1] > case.after
    assert progress["Diagnostics/DataAgeMean"][-1] == case.lag
    assert progress["Diagnostics/RowsDropped"][-1] == 0
