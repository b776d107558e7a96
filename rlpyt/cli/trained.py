"""Trained agents for the commands that act: the agent of a run, and what its environments are made of."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rlpyt.agents import BaseAgent
from rlpyt.runners import load_agent, part_from_record
from rlpyt.runners.from_params import read_params
from rlpyt.types import Kwargs, TrajInfo


class Trained(NamedTuple):
    """Trained agent, and the environments that its run evaluates in, or else trains in."""

    agent: BaseAgent
    EnvCls: Callable[..., object]
    env_kwargs: Kwargs
    TrajInfoCls: Callable[..., TrajInfo]


def read_trained(run: Path, snapshot: str | None, trust: Sequence[str]) -> Trained:
    """Return the agent of a run and its environments.

    Args:
        run: directory of the run.
        snapshot: see `load_agent`.
        trust: modules that the record may name.

    Raises:
        FileNotFoundError: if there is no run, or no weights in it.
        ValueError: if its record is incomplete.
    """
    sys.path.insert(0, str(Path.cwd()))
    agent = load_agent(run, snapshot=snapshot, trusted=trust)
    record = read_params(run, "load_agent")["runner"]["settings"]["sampler"]
    sampler = part_from_record(record, trusted=trust)
    return Trained(agent, sampler.EnvCls, dict(sampler.evaluation_kwargs), sampler.TrajInfoCls)
