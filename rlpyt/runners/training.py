"""One training of a runner: the parts that work in it, and facts that its log, evaluations and checkpoints share."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlpyt.core import Agent, Algorithm, Sampler
from rlpyt.logging import Logger
from rlpyt.runners.agreement import Agreement
from rlpyt.runners.collecting import InTurn
from rlpyt.utils.compute import ComputeSettings


@dataclass(eq=False)
class Training:
    """Parts and facts of one training; a runner makes one in `startup`, and its settings stay as they were given."""

    algo: Algorithm[Agent]
    """Learns: that of the runner, or this replica's share of it."""
    agent: Agent
    """That of the runner."""
    sampler: Sampler
    """Collects: that of the runner, this replica's share of it, or what stands here for one in another process."""
    collecting: InTurn
    """How the sampler goes together with learning."""
    agreement: Agreement
    """With the other replicas."""
    logger: Logger = field(init=False)
    """Of replica 0; a silent one in the others. Known once the run has started."""
    steps_per_itr: int = 0
    """Environment steps of one iteration, all replicas counted."""
    n_itr: int = 0
    """Iterations of the run."""
    log_interval_itrs: int = 1
    """Iterations from one row of the log to the next."""
    compute: ComputeSettings = field(default_factory=ComputeSettings)
    """Device, precision and so on; those of the run once they are chosen."""
    saved_step: int | None = None
    """Steps of the newest checkpoint that was saved, or is being saved."""
