"""Runs that end by a fault: environments that go wrong, and what is asked of every such end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from rlpyt.logging import load_snapshot
from rlpyt.runners import MinibatchRl
from rlpyt.utils.seeds import Role, stream_seed
from tests.runners.runner_kit import make_sampler, run, status_of
from tests.toy_envs import FaultyEnv

SEED, BAD_RANK = 3, 2  # the first environment of the second of two workers
BAD_SEED, EVAL_SEED = stream_seed(SEED, Role.ENV, BAD_RANK), stream_seed(SEED, Role.EVAL_ENV, 1)

ENV = rf"FaultyEnv \(rank {BAD_RANK}, seed {BAD_SEED}\), its step \d+: "
MESSAGES = {
    "raise": ENV + r"step with action .*: ZeroDivisionError: the toy broke in step",
    "reset": ENV + r"reset: ZeroDivisionError: the toy broke in reset",
    "nan": ENV + r"step with action .*reward: expected a finite number, got nan",
    "shape": ENV + r"step with action .*observation: expected shape \(3,\), got \(2,\)",
    "constructor": r"Making environment [02]: FaultyEnv\(fault='constructor'.*OSError: no licence for the simulator",
}
DEATHS = {
    "kill": r"was killed by SIGKILL \(out of memory",
    "exit": "exited with code 3",
    "hang": "has made no progress for 1 s.*worker_timeout",
}
EVAL_MESSAGES = {
    **DEATHS,
    "raise": rf"raised EnvError: FaultyEnv \(rank 1, seed {EVAL_SEED}\).*ZeroDivisionError: the toy broke in step",
    "reset": rf"raised EnvError: FaultyEnv \(rank 1, seed {EVAL_SEED}\).*ZeroDivisionError: the toy broke in reset",
    "nan": rf"raised EnvError: FaultyEnv \(rank 1, seed {EVAL_SEED}\).*expected a finite number, got nan",
}


def faulty(directory: Path, kind: str, fault: str, at: int = 12, *, evaluation: bool = False, **kwargs: Any) -> Any:
    """Return a sampler of which one environment goes wrong, and notes in `directory` when it did."""
    bad_seed, EnvCls = kwargs.pop("bad_seed", EVAL_SEED if evaluation else BAD_SEED), kwargs.pop("EnvCls", FaultyEnv)
    bad = {"fault": fault, "at": at, "bad_seed": bad_seed, "note": str(directory / "note")}
    if evaluation:
        kwargs |= dict(eval_env_kwargs=bad, eval_n_envs=2, eval_max_trajectories=20)
    return make_sampler(kind, EnvCls, env_kwargs={"fault": "none"} if evaluation else bad, **kwargs)


def fail(
    directory: Path, error: type[Exception], sampler: Any, parts: Any = "ppo", Runner: Any = MinibatchRl, **options: Any
) -> str:
    """Run until the fault ends the run, at most 10 s after it happened; return the message, which the status has too.

    What was saved before is a whole snapshot of the row written last.
    """
    note = directory / "note"
    with pytest.raises(error) as info:
        run(directory, parts, sampler, Runner, **{"n_steps": 1e4, "seed": SEED, **options})
    assert not note.exists() or time.monotonic() - float(note.read_text().split()[0]) < 10
    status, message = status_of(directory), str(info.value)
    assert (status["status"], status["exception"]["message"]) == ("failed", message)
    assert status["exception"]["type"] == type(info.value).__name__
    if (saved := directory / "run_0" / "params.pkl").exists():
        state = load_snapshot(saved)["agent_state_dict"]["model"]
        assert all(x.isfinite().all() for x in state.values() if isinstance(x, torch.Tensor))
    return message
