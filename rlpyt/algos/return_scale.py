"""Rewards of a replay's batches, divided by the running scale of the returns."""

from __future__ import annotations

import math

import torch

from rlpyt.algos.feed_part import FeedPart
from rlpyt.algos.metrics import Numbers
from rlpyt.functional import running_return
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper
from rlpyt.types import Samples, StateDict
from rlpyt.utils.replicas import Replicas

_LEAST_VAR = 1e-6  # of R, to divide by


def running_returns(env: Buffer, previous: torch.Tensor, discount: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums [T, B] up to each row of `samples.env`, and those [B] that the next batch goes on from."""
    # A row that is not valid starts a new episode; after a lost one nothing else tells.
    done = env.terminated | env.truncated | ~env.valid
    running = running_return(env.reward, done, previous, discount=discount)
    return running, running[-1].masked_fill(done[-1], 0.0)


class ReturnScale(FeedPart):
    """Factor of the rewards, which follows the discounted sums of them up to each row, of stored data too.

        factor = 1 / max(sqrt(var(R)), max |R| / limit),    R_t = r_t + discount * R_{t-1}

    It is 1 until a reward other than 0 came. In hindsight the rewards that came count, not those of other goals.

    The replay keeps rewards as they came, so those of an old row are divided by the scale of today, as all others of a
    batch. Rewards are only scaled: to shift them would change what an episode's length is worth.

    Sources: Engstrom et al. 2020, arXiv:2005.12729, appendix A.2; the limit Lee et al. 2025 (SimbaV2),
    arXiv:2502.15280.

    Args:
        B: environments.
        limit: largest size of a sum of scaled rewards so far; None sets none.
        replicas: whose sums count too.
    """

    def __init__(self, B: int, limit: float | None, replicas: Replicas) -> None:
        self._limit, self._replicas = limit, replicas
        self._moments = torch.zeros(3, dtype=torch.float64)  # number, sum, and sum of squares of R
        self._largest = torch.zeros(1)
        self._running = torch.zeros(B)  # of the episodes that go on
        self.factor = 1.0
        """By which rewards are multiplied."""

    def append(self, samples: Samples, hyper: Hyper) -> None:
        """Let the rows [T, B] of a batch of the sampler count."""
        env = samples.env
        flags = {name: env[name].cpu() for name in ("reward", "terminated", "truncated")}  # of a device, too
        self._running = self.take_in(env._replace(**flags), self._running, hyper.discount)

    def take_in(self, env: Buffer, previous: torch.Tensor, discount: float) -> torch.Tensor:
        """Let rows [T, B] count, which go on from sums [B]; return the sums from which the next go on."""
        running, following = running_returns(env, previous, discount)
        R = running[env.valid].double()
        self._moments += self._replicas.total(torch.stack([torch.tensor(float(len(R))), R.sum(), R.square().sum()]))
        largest = R.abs().max().reshape(1).float() if len(R) else torch.zeros(1)
        self._largest = torch.maximum(self._largest, self._replicas.largest(largest))
        self._set_factor()
        return following

    def prepare(self, batch: Buffer) -> Buffer:
        """Return a batch of a replay with scaled returns."""
        return batch._replace(return_=batch.return_ * self.factor)

    def metrics(self) -> Numbers:
        """Return the factor as it stands."""
        return {"rewardFactor": self.factor}

    def state_dict(self) -> StateDict:
        """Return the statistics and the sums of the episodes that go on."""
        own = {"moments": self._moments.clone(), "largest": self._largest, "running": self._running}
        return {"return_scale": own}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self._moments, self._largest, self._running = (
            state_dict["return_scale"][name].clone() for name in ("moments", "largest", "running")
        )
        self._set_factor()

    def _set_factor(self) -> None:
        n, total, squares = self._moments.tolist()
        if n and self._largest:
            deviation = math.sqrt(max(squares / n - (total / n) ** 2, _LEAST_VAR))
            self.factor = 1.0 / max(deviation, 0.0 if self._limit is None else float(self._largest) / self._limit)
