"""Stored data in the replay of an algorithm: written into it before a run, or beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlpyt.core import Agent, Replay
from rlpyt.replays.interface import SamplesToBuffer
from rlpyt.replays.mixed_replay import MixedReplay
from rlpyt.replays.replay_buffer import ReplayBuffer
from rlpyt.replays.stored_data import StoredData
from rlpyt.spaces import EnvSpaces
from rlpyt.types import Run
from rlpyt.utils.arrays import buffer_func, torchify_buffer


class StoredRows(NamedTuple):
    """Settings of stored data, and whose they are."""

    who: str
    """Class of the algorithm, for messages."""
    data: StoredData | str
    """The data, a file of `StoredData.save`, or the name of a Minari dataset."""
    fraction: float | None
    """Of a batch; None writes the data into the replay."""
    make_replay: Callable[[SamplesToBuffer, int], Replay]
    """Makes the replay of stored rows, of an example and a number of time steps."""

    def add_to(self, replay: Replay, agent: Agent, run: Run) -> tuple[Replay, int, SamplesToBuffer]:
        """Return the replay that an algorithm learns from, the time steps that it holds, and the stored rows [T, B].

        Every replica has its share of the data. Their observations count for the normalisers of the networks.

        Args:
            replay: empty; the data are written into it, or put beside it.
            agent: of the algorithm, initialised.
            run: of the algorithm.

        Raises:
            ValueError: if data and environment do not fit, or the replay is too small for them.
            TypeError: if the agent is recurrent, or the replay is no `ReplayBuffer`.
        """
        if agent.recurrent or not isinstance(replay, ReplayBuffer):
            kind = "a recurrent" if agent.recurrent else "a feed-forward"
            raise TypeError(
                f"{self.who}: stored_data is set, {type(agent).__name__} is {kind} agent, and the replay is a "
                f"{type(replay).__name__}; expected a feed-forward agent, as stored rows have no recurrent states, and "
                "a ReplayBuffer. Leave stored_data out, or exchange the other."
            )
        data = loaded(self.data, agent.env_spaces)
        storage, B = replay.storage, run.batch_spec.B
        result: Replay
        if self.fraction is None:
            columns = data.columns(B * run.world_size, storage.rows_before, 1)[:, B * run.rank : B * (run.rank + 1)]
            needed = len(columns.valid)
            if needed > storage.T:
                raise ValueError(
                    f"{self.who}: replay_size is room for {storage.T} rows of each environment; expected at least "
                    f"{needed}, for {data}. Raise replay_size to {needed * B * run.world_size:,} or more, or give "
                    "stored_fraction, to keep them apart."
                )
            replay.append_samples(columns)
            storage.break_off()
            result, held = replay, needed
        else:
            columns = data.columns(run.world_size, storage.rows_before, replay.reading.rows_after)
            columns = columns[:, run.rank : run.rank + 1]
            example: SamplesToBuffer = buffer_func(columns, lambda x: x[0, 0])
            stored = self.make_replay(example, len(columns.valid))
            assert isinstance(stored, ReplayBuffer)  # made as the other
            stored.append_samples(columns)
            result, held = MixedReplay(replay, stored, self.fraction, data.checksum()), 0
        own: SamplesToBuffer = torchify_buffer(columns[storage.rows_before :])
        agent.networks.update_obs_rms(own.observation, own.valid)
        return result, held, own


def loaded(given: StoredData | str, spaces: EnvSpaces) -> StoredData:
    """Return stored data, which may be a file or the name of a Minari dataset, once they fit an environment."""
    if isinstance(given, str):
        given = StoredData.load(given, spaces) if given.endswith(".npz") else StoredData.from_minari(given)
    given.check_fits(spaces)
    return given
