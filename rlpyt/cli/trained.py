"""Trained agents for the commands that act: the agent of a run, and what its environments are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple

from rlpyt.cli.environment import look_in_working_directory, made
from rlpyt.core import Agent
from rlpyt.envs import EnvError
from rlpyt.logging import RunDirectoryError, SnapshotError
from rlpyt.logging.segments import CheckpointError
from rlpyt.logging.space_record import unrecorded_in
from rlpyt.run_records import CHECKPOINTS, run_status
from rlpyt.runners import RecordError, load_agent, part_from_record
from rlpyt.runners.from_params import read_params
from rlpyt.samplers import BaseSampler
from rlpyt.spaces import EnvSpaces
from rlpyt.types import Kwargs, TrajInfo

_WEIGHTS = ("params.pkl", "itr_*.pkl", f"{CHECKPOINTS}/*/manifest.json")
_ENDED = {"failed": "failed", "interrupted": "was interrupted", "killed": "was killed"}


class Trained(NamedTuple):
    """Trained agent, and the environments that its run evaluates in, or else trains in."""

    agent: Agent
    EnvCls: Callable[..., object]
    env_kwargs: Kwargs
    TrajInfoCls: Callable[..., TrajInfo]


def read_trained(run: Path, snapshot: str | None, trust: Sequence[str]) -> Trained:
    """Return the agent of a run and its environments; see `load_agent`."""
    _check_weights(Path(run))
    with reading_records(trust):
        params = read_params(run, "load_agent")
        record = params["runner"]["settings"].get("sampler")
        sampler = part_from_record(record if isinstance(record, dict) else {}, trusted=trust)
        if not isinstance(sampler, BaseSampler):
            raise RecordError(f"{run}: the record has a {type(sampler).__name__} as its sampler, without environments.")
        for some in (sampler.env_kwargs, sampler.eval_env_kwargs, sampler.eval_env_overrides):
            if not isinstance(some, dict | None):
                raise RecordError(f"{run}: the record has env_kwargs {some!r:.100}; expected a dictionary.")
        kwargs = dict(sampler.evaluation_kwargs)
        is_recorded = unrecorded_in(params.get("spaces", {"unrecorded": "no entry"})) is None
        given = None if is_recorded else spaces_of(sampler.EnvCls, kwargs)
        agent = load_agent(run, snapshot=snapshot, trusted=trust, env_spaces=given)
    return Trained(agent, sampler.EnvCls, kwargs, sampler.TrajInfoCls)


def _check_weights(run: Path) -> None:
    """Raise FileNotFoundError for a run that has ended before it had weights; the message says how."""
    if any(path for pattern in _WEIGHTS for path in run.glob(pattern)):
        return
    status, note = run_status(run)
    if status in _ENDED:
        raise FileNotFoundError(
            f"{run} has no weights: the run {_ENDED[status]} before the first row of its log ({shorten(note, 300)})."
        )


def spaces_of(EnvCls: Callable[..., object], env_kwargs: Kwargs) -> EnvSpaces:
    """Return the spaces of an environment, which is built to see them: a record lacks those of a user's class."""
    try:
        env = made(EnvCls, env_kwargs)
    except EnvError as error:
        raise ValueError(str(error)) from error
    env.close()
    return env.spaces


@contextmanager
def reading_records(trust: Sequence[str]) -> Iterator[None]:
    """Let trusted modules be found while the block reads the files of a run, and say what is wrong in one message.

    Modules of the working directory are found, too. Where one is not trusted, the message has the option that does it.
    """
    if trust:
        look_in_working_directory()
    try:
        yield
    except RecordError as error:
        remedy = f" If it is yours, give --trust {' '.join([*trust, error.module])}." if error.module else ""
        raise ValueError(f"{error.what}{remedy}") from error
    except (CheckpointError, SnapshotError, RunDirectoryError) as error:
        raise ValueError(str(error)) from error
