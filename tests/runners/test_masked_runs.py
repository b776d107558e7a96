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
from rlpyt.runners import AsyncRl, MinibatchRl
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.compute import ComputeSettings
from tests.masked_envs import MaskedEnv
from tests.pairs import others_nightly
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
        steps: dict[str, Any] = dict(n_steps=12 * 32, log_interval_steps=2 * 32, checkpoint_interval_steps=3 * 32)
        runner = OneRunner(*ALGOS[algo](), sampler, seed=3, settings=ComputeSettings(), **steps)
        with logger_context(tmp_path / directory, run_ID=0, resume="auto"):
            runner.train()
        assert runner.algo.update_counter > 0
        return runner

    whole = start("a")
    with pytest.raises(Stop):
        start("b", stop_at=8)
    for x, y in zip(start("b").agent.parameters(), whole.agent.parameters(), strict=True):
        assert torch.equal(x, y)
    assert without_times(tmp_path / "b") == without_times(tmp_path / "a")
