"""A whole run of two replicas, in processes of their own, equals a run of one process with all their environments.

A2C draws nothing in its updates, and actions and environments follow their numbers among all of them. So the rows are
the same ones from the first batch to the last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.agents import PgAgent
from rlpyt.algos import A2C
from rlpyt.logging import logger_context, read_progress
from rlpyt.logging.sinks import STATISTICS
from rlpyt.runners import AsyncRl, MinibatchRl, SyncRl
from rlpyt.samplers import SerialSampler
from rlpyt.utils.compute import ComputeSettings
from tests.algos.small_problems import RandomEnv
from tests.pairs import others_nightly

T, B, N_STEPS, LOG_STEPS = 5, 6, 900, 300


def B_of(Runner: Any, world_size: int) -> int:
    """Return the environments of a sampler; AsyncRl deals them to its replicas."""
    return B if Runner is AsyncRl else B // world_size


def train(
    directory: Path, world_size: int, Runner: Any, window: int = 1000, **options: Any
) -> tuple[dict[str, torch.Tensor], Any]:
    """Return the networks' state, and the rows of the log."""
    agent = PgAgent(recurrent=True, model_kwargs=dict(hidden_sizes=8, rnn_size=6, normalize_observation=True))
    algo = A2C(normalize_advantage=True, normalize_reward=True, learning_rate=3e-3)
    sampler = SerialSampler(
        RandomEnv, dict(p_end=0.4), batch_T=T, batch_B=B_of(Runner, world_size), max_decorrelation_steps=0
    )
    settings: dict[str, Any] = dict(n_steps=N_STEPS, seed=3, log_interval_steps=LOG_STEPS, log_traj_window=window)
    with logger_context(directory, run_ID=world_size):
        Runner(algo, agent, sampler, settings=ComputeSettings(), **settings, **options).train()
    state = {f"{i}.{name}": x for i, m in enumerate(agent.networks.modules()) for name, x in m.state_dict().items()}
    return state, read_progress(directory / f"run_{world_size}")


RUNS: dict[str, Any] = {
    "flat": (SyncRl, dict(reduction="flat"), 1000),
    "ddp": (SyncRl, dict(reduction="ddp"), 1000),
    "short window": (SyncRl, {}, 7),
    "collected in turn, short window": (AsyncRl, dict(lag=0), 7),
}


@pytest.mark.parametrize("case", others_nightly(RUNS, ["short window"]))
def test_a_run_of_two_replicas_equals_a_run_of_one(case: str, tmp_path: Path) -> None:
    """A window that has fewer trajectories than an iteration, too: the last ones of the run, not of a replica."""
    Runner, options, window = RUNS[case]
    one, rows = train(tmp_path, 1, MinibatchRl, window)
    two, shared = train(tmp_path, 2, Runner, window, n_replicas=2, replica_timeout=60, **options)
    assert one.keys() == two.keys()
    for name, x in one.items():
        torch.testing.assert_close(two[name], x, rtol=1e-5, atol=1e-5, msg=name)
    columns = [f"{name}{stat}" for name in (*A2C.opt_info_fields, "Length", "Return") for stat in STATISTICS]
    assert len(rows["lossAverage"]) == N_STEPS // LOG_STEPS
    for column in columns:
        np.testing.assert_allclose(shared[column], rows[column], rtol=1e-3, atol=1e-4, err_msg=column)
