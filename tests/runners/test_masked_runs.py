"""Masks and composite actions in all kinds of processes: no illegal action, and the numbers of a run of one process.

`MaskedEnv` raises where an action is illegal, or is not in its space; that ends a run.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from rlpyt.agents import DqnAgent, PgAgent
from rlpyt.algos import A2C, DQN, PPO, VTrace
from rlpyt.logging import logger_context
from rlpyt.runners import AsyncRl, MinibatchRl, SyncRl
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.compute import ComputeSettings
from tests.masked_envs import MaskedEnv
from tests.pairs import others_nightly
from tests.runners.lagged import with_lag
from tests.runners.runner_kit import make_sampler, without_times
from tests.runners.test_resume import Stop, Stopping
from tests.samplers.sampler_kit import collect, running

SMALL: dict[str, Any] = dict(hidden_sizes=8, normalize_observation=True)
ENVS: dict[str, Any] = {
    "Discrete": {},
    "MultiDiscrete": dict(sizes=(2, 3), as_tuple=True),
    "Dict": dict(sizes=(2, 3), composite=True),
    "Dict, of info": dict(sizes=(3, 2, 3), composite=True, of_info=True),
}
ALGOS: dict[str, Any] = {
    "A2C LSTM": lambda: (A2C(), PgAgent(recurrent=True, model_kwargs=dict(**SMALL, rnn_size=8))),
    "PPO": lambda: (PPO(minibatches=2, epochs=2, linear_lr_schedule=False), PgAgent(model_kwargs=SMALL)),
    "V-trace": lambda: (VTrace(), PgAgent(model_kwargs=SMALL)),
    "DQN": lambda: (
        DQN(batch_size=8, min_steps_learn=30, replay_size=400, eps_steps=100),
        DqnAgent(model_kwargs=dict(hidden_sizes=8)),
    ),
}
RUNS = [(algo, env) for algo, env in product(ALGOS, ENVS) if algo != "DQN" or env == "Discrete"]
SOME = [("A2C LSTM", "Dict")]


@pytest.mark.parametrize(
    ("kind", "env"),
    others_nightly(
        product(("cpu2", "gpu2", "alternating2"), ENVS),
        [("alternating2", "Dict, of info")],
    ),
)
def test_workers_collect_the_legal_rows_of_one_process(kind: str, env: str) -> None:
    batches = []
    for one in ("serial", kind):
        torch.manual_seed(0)
        _, agent = ALGOS["A2C LSTM"]()
        options = dict(env_kwargs=ENVS[env], T=8, B=4, max_decorrelation_steps=10)
        with running(
            one, agent, MaskedEnv, start_method="fork", eval_n_envs=2, eval_max_trajectories=4, **options
        ) as s:
            batches.append([(samples.env, samples.agent.action) for samples, _ in collect(s, 2)])
            assert len(s.evaluate_agent(2, True).traj_infos) == 4
    assert all(map(torch.equal, buffer_leaves(tuple(batches[1])), buffer_leaves(tuple(batches[0]))))


def train(directory: Path, algo: str, env: str, Runner: Any, sampler: Any = None, B: int = 4, **kwargs: Any) -> Any:
    """Train for 12 iterations, in `directory/run_0`."""
    options: dict[str, Any] = dict(n_steps=12 * 8 * 4, log_interval_steps=2 * 8 * 4, seed=3, settings=ComputeSettings())
    sampler = sampler or make_sampler("serial", MaskedEnv, 8, B, env_kwargs=ENVS[env])
    runner = Runner(*ALGOS[algo](), sampler, **{**options, **kwargs})
    with logger_context(directory, run_ID=0, resume="auto"):
        runner.train()
    assert runner.algo.update_counter > 0
    return runner


def check_same(one: Any, other: Any, **tolerance: Any) -> None:
    for x, y in zip(one.agent.parameters(), other.agent.parameters(), strict=True):
        torch.testing.assert_close(x, y, **tolerance)


@pytest.mark.parametrize(("algo", "env"), others_nightly(RUNS, SOME))
def test_a_sampler_in_the_background_acts_by_old_weights_and_new_masks(algo: str, env: str, tmp_path: Path) -> None:
    lagged = with_lag(1)(MaskedEnv, ENVS[env], batch_T=8, batch_B=4, max_decorrelation_steps=0)
    reference = train(tmp_path / "a", algo, env, MinibatchRl, lagged)
    ours = train(tmp_path / "b", algo, env, AsyncRl, lag=1)
    check_same(ours, reference, rtol=0, atol=0)


@pytest.mark.parametrize("env", others_nightly(ENVS, ["Dict"]))
def test_two_replicas_are_a_run_of_one(env: str, tmp_path: Path) -> None:
    one = train(tmp_path / "a", "A2C LSTM", env, MinibatchRl)
    two = train(tmp_path / "b", "A2C LSTM", env, SyncRl, B=2, n_replicas=2, replica_timeout=60)
    check_same(two, one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("algo", "env"), others_nightly(RUNS, [("PPO", "Dict, of info")]))
@pytest.mark.parametrize(
    ("Runner", "kind"), others_nightly([(MinibatchRl, "cpu2"), (AsyncRl, "serial")], [(MinibatchRl, "cpu2")])
)
def test_a_run_that_goes_on_is_the_run_that_was_not_stopped(
    Runner: Any, kind: str, algo: str, env: str, tmp_path: Path
) -> None:
    def start(directory: str, stop_at: float = math.inf) -> Any:
        options = dict(start_method="here") if kind == "cpu2" else {}
        sampler = make_sampler(kind, MaskedEnv, 8, 4, env_kwargs=ENVS[env], **options)
        OneRunner = type(Runner.__name__, (Stopping, Runner), {"stop_at": stop_at})
        return train(tmp_path / directory, algo, env, OneRunner, sampler, checkpoint_interval_steps=3 * 8 * 4)

    whole = start("a")
    with pytest.raises(Stop):
        start("b", stop_at=8)
    check_same(start("b"), whole, rtol=0, atol=0)
    assert without_times(tmp_path / "b") == without_times(tmp_path / "a")
