"""Base of an algorithm of one's own that learns from a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.replay_feed import ReplayFeed, check_run
from rlpyt.algos.replay_settings import ReplaySettings
from rlpyt.core import Agent
from rlpyt.types import Run

ExploringT = TypeVar("ExploringT", bound=Agent)


@dataclass(kw_only=True, eq=False)
class OffPolicyAlgo(ReplaySettings, RlAlgorithm[ExploringT]):
    """Base of an algorithm of one's own that learns from a replay; it has its own `update`.

    A feed-forward agent learns from transitions; a recurrent one from sequences, for which `batch_T` and `batch_B` must
    be given. `DQN`, `DDPG`, `TD3` and `SAC` are made the same way, and count as subclasses of this one.
    """

    def initialize(self, agent: ExploringT, run: Run) -> None:
        """Build optimiser and replay; refuse settings that do not fit the agent, and a run without updates."""
        check_run(self, agent, run)
        super().initialize(agent, run)
        self.feed: ReplayFeed = ReplayFeed(self, run)
