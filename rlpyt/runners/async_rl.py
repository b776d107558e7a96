"""Runners that learn while the sampler collects the next batches in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlpyt.runners.base import MinibatchRlBase
from rlpyt.runners.compute_choice import choose_settings
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.utils.checks import whole_number
from rlpyt.utils.compute import ComputeSettings


@dataclass(eq=False)
class AsyncRlBase(MinibatchRlBase):
    """Runner whose sampler works in a process of its own, `lag` batches ahead of the learner.

    The loop is the one of all runners. While it learns from batch i, the sampler collects batch i + 1, ..., i + lag.
    Batch i + lag is collected with the weights after i iterations of learning, so the same seed gives the same run.

    `sampler` stays the one that was given; while the run lasts it stands for that in the other process.
    """

    lag: int | str = field(default=1, kw_only=True)
    """Iterations of learning that the weights of the sampler are behind; 0 collects in turn, in the other process."""

    def __post_init__(self) -> None:
        """Refuse a lag that cannot be meant."""
        super().__post_init__()
        self.given_sampler = self.sampler
        if self.lag == "free":
            raise ValueError(
                f"{type(self).__name__}: lag is 'free', which is not there yet; expected a whole number from 0. Give "
                "lag=1, the default."
            )
        self._lag = whole_number(type(self).__name__, "lag", self.lag, 0)

    def given(self) -> dict[str, Any]:
        """Return all settings by name, the sampler as it was given."""
        return {**super().given(), "sampler": self.given_sampler}

    def startup(self) -> int:
        """Let the sampler work in a process of its own, and build all parts."""
        self._to_give_back.callback(setattr, self, "sampler", self.given_sampler)
        self.sampler = self.given_sampler.in_background(self._lag)
        return super().startup()

    def measure_compute(self) -> ComputeSettings:
        """Return the fastest settings on this machine, with threads on the cores that the sampler leaves free."""
        workers = self.sampler.plan().get("workers", 1)
        return choose_settings(self.agent, self.cores, n_busy=int(str(workers)))


@dataclass(eq=False)
class AsyncRl(AsyncRlBase, MinibatchRl):
    """`MinibatchRl` whose sampler works in a process of its own, while this one learns."""


@dataclass(eq=False)
class AsyncRlEval(AsyncRlBase, MinibatchRlEval):
    """`MinibatchRlEval` whose sampler works in a process of its own, while this one learns.

    Evaluations run there too, with the weights of now, once the batches under way are done; the learner waits for them.
    """
