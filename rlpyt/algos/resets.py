"""Resets of parameters: networks are drawn anew every so many updates, and learn again from the replay.

Source: Nikishin et al. 2022, arXiv:2205.07802.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

import torch
from torch import nn

from rlpyt.algos.base import AnyAlgorithm
from rlpyt.algos.feed_part import FeedPart
from rlpyt.settings import Hyper, all_settings
from rlpyt.types import StateDict
from rlpyt.utils.seeds import Role, stream_seed


class Resets(FeedPart):
    """Networks of an agent that are drawn anew, where they lie, with those of their targets and optimisers.

    The new weights are those that a new agent with the same settings would begin with, drawn by the seed of the run and
    the number of the update: the same in all replicas, and after a resume. Buffers are drawn anew with the weights of
    their layer, such as a batch normalisation's; those of layers without weights stay, as do a normaliser's statistics.

    Args:
        algo: initialised, with the networks of its agent.
        names: of networks, such as "model" or "q_model", or of parts of them, such as "model.head"; none is all.
        seed: of the run.
        is_due: says of a name, an interval and a number of updates whether what is done so often is due.

    Raises:
        ValueError: if there is no such network.
    """

    def __init__(
        self, algo: AnyAlgorithm, names: Sequence[str], seed: int, is_due: Callable[[str, float, int], bool]
    ) -> None:
        self._algo, self._names, self._seed, self._is_due = algo, names, seed, is_due
        for name in names:
            try:
                algo.agent.networks.named(name)
            except AttributeError:
                raise ValueError(
                    f"{type(algo).__name__}: reset_networks has {name!r}; expected {', '.join(self._all())}, or a part "
                    'of one of them, such as "model.head".'
                ) from None

    def _all(self) -> list[str]:
        """Return the names of the networks that follow no other."""
        networks = self._algo.agent.networks
        targets = {name.partition(".")[0] for name, _ in networks.targets}
        return [*networks.acting, *(name for name in networks.learning if name not in targets)]

    def after_update(self, hyper: Hyper) -> None:
        """Draw the networks anew where that is due."""
        interval = hyper.reset_interval
        if interval is not None and self._is_due("reset", interval, self._algo.update_counter):
            self.reset()

    def state_dict(self) -> StateDict:
        """Return the seed."""
        return {"reset_seed": self._seed}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on with the seed of the run that was saved."""
        self._seed = state_dict.get("reset_seed", self._seed)

    @torch.no_grad()
    def reset(self) -> None:
        """Draw the networks anew."""
        algo, networks = self._algo, self._algo.agent.networks
        given = [f.name for f in fields(algo.agent) if f.metadata.get("weights")]
        settings = {**all_settings(algo.agent), **dict.fromkeys(given)}
        fresh = type(algo.agent)(**settings)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_seed(self._seed, Role.MODEL, algo.update_counter))
            fresh.initialize(algo.agent.env_spaces)
        new: set[nn.Parameter] = set()
        for name in self._names or self._all():
            for own, drawn in zip(networks.named(name).modules(), fresh.networks.named(name).modules(), strict=True):
                if weights := own._parameters:
                    _copy(weights, drawn._parameters)
                    _copy(own._buffers, drawn._buffers)
                    new.update(x for x in weights.values() if x is not None)
        for names in networks.targets:
            for own, followed in zip(*(networks.named(name).modules() for name in names), strict=True):
                if not new.isdisjoint(followed._parameters.values()):
                    _copy(own._parameters, followed._parameters)
                    _copy(own._buffers, followed._buffers)
        for descent in algo.descents.values():
            for parameter in new:
                descent.optimizer.state.pop(parameter, None)


def _copy(own: Mapping[str, torch.Tensor | None], drawn: Mapping[str, torch.Tensor | None]) -> None:
    for name, x in own.items():
        if x is not None and (new := drawn[name]) is not None:
            x.copy_(new)
