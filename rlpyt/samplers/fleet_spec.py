"""Descriptions of fleets: plain values that say which environments a process has, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from rlpyt.types import Kwargs, TrajInfo
from rlpyt.utils.seeds import Role, stream_seed

NO_LIMIT = 2**62
"""Steps an evaluation takes at most where no limit was set."""


class FleetRole(Enum):
    """Purpose of a fleet; the value is what one of its environments is called in messages."""

    TRAIN = "environment"
    EVAL = "evaluation environment"

    @property
    def env_stream(self) -> Role:
        """The random streams that seed the environments."""
        return Role.ENV if self is FleetRole.TRAIN else Role.EVAL_ENV


@dataclass(frozen=True, kw_only=True)
class FleetSpec:
    """Description of the environments of one role in one process; sent to workers as it is."""

    role: FleetRole
    EnvCls: Callable[..., Any]
    env_kwargs: Kwargs | None
    env_ranks: list[int]
    """Global ranks of the environments of this process."""
    global_B: int
    """Environments of this role over all workers and replicas."""
    seed: int = 0
    """Of the run."""
    LoopCls: Callable[..., Any]
    """The loop: a `Collector` or an `Evaluator`."""
    TrajInfoCls: Callable[..., TrajInfo] = TrajInfo
    traj_info_kwargs: Kwargs = field(default_factory=dict)
    env_info_keys: Sequence[str] | Mapping[str, Any] = ()
    """Names of the numbers in the environments' info that are recorded."""
    max_decorrelation_steps: int = 0
    """Random steps that every environment takes at most before the first batch."""
    saves_state: bool = False
    """Whether the check tries out the state of an environment, as it will be saved."""
    evaluates: bool = False
    """Whether the check finds out if evaluations can set environments back to how they were built."""
    mid_batch_reset: bool = True
    """Whether an environment goes on with a new episode inside a batch; else it rests until the batch is over."""
    sets_back: bool = False
    """Whether evaluations set the environments back to how they were built, in a process that has made no check."""
    quotas: Sequence[int | None] = ()
    """Episodes of one evaluation, of each environment; None for no limit."""
    max_T: int = NO_LIMIT
    """Steps of one evaluation at most, of each environment."""
    restarts: int = 0
    """Which restart of a lost worker this is, counted over all workers; 0 for one that was there from the start."""

    def seeds(self, itr: int = 0) -> list[int]:
        """Return the seeds of the environments' resets at an iteration."""
        return [stream_seed(self.seed, self.role.env_stream, rank, itr) for rank in self.env_ranks]

    def env_seeds(self) -> list[int]:
        """Return the `env_seed` of each environment, for an EnvCls with that parameter."""
        stream = Role.ENV_MADE if self.role is FleetRole.TRAIN else Role.EVAL_ENV_MADE
        offset = self.restarts * self.global_B
        return [stream_seed(self.seed, stream, rank + offset) for rank in self.env_ranks]

    def restart_seeds(self) -> list[int]:
        """Return the seeds of the resets after a restart, which no other environment of the run has."""
        offset = self.restarts * self.global_B
        return [stream_seed(self.seed, self.role.env_stream, rank + offset) for rank in self.env_ranks]

    @property
    def amount(self) -> int:
        """Episodes of an evaluation; its steps, where only they are limited."""
        quotas = [quota for quota in self.quotas if quota is not None]
        return sum(quotas) if quotas else self.max_T * len(self.quotas)

    def deal(self, n: int) -> list[FleetSpec]:
        """Deal the environments to n processes, in order, as evenly as they go; some may get none."""
        places = np.array_split(np.arange(len(self.env_ranks)), n)
        return [
            replace(
                self,
                env_ranks=[self.env_ranks[i] for i in part],
                quotas=[self.quotas[i] for i in part] if self.quotas else (),
            )
            for part in places
        ]


Specs = Mapping[FleetRole, FleetSpec]
"""The fleets of one process: that of training, and that of evaluation where there is one."""


def quotas(n_envs: int, max_trajectories: int | None) -> list[int | None]:
    """Return the number of episodes of every environment: an even share of `max_trajectories`, or None for no limit."""
    if max_trajectories is None:
        return [None] * n_envs
    share, rest = divmod(max_trajectories, n_envs)
    return [share + (i < rest) for i in range(n_envs)]
