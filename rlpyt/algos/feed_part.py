"""Interface of the parts that the feed of a replay holds."""

from __future__ import annotations

from rlpyt.algos.metrics import Numbers
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper
from rlpyt.types import Samples, StateDict


class FeedPart:
    """Part of the feed of a replay: hooks around what is appended and what is learned, which do nothing here."""

    def append(self, samples: Samples, hyper: Hyper) -> None:
        """Take in a batch of the sampler, which has been stored."""

    def prepare(self, batch: Buffer) -> Buffer:
        """Return the batch of an update, changed."""
        return batch

    def after_update(self, hyper: Hyper) -> None:
        """Do what is due after an update."""

    def metrics(self) -> Numbers:
        """Return metrics of an iteration that has learned."""
        return {}

    def state_dict(self) -> StateDict:
        """Return what a checkpoint keeps of it, by names of its own among those of the feed."""
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over its names of the state of a feed; an earlier version's may be without them."""
