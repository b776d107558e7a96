"""Datasets of Minari, which is optional: how one is found, and how stored rows become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from rlpyt.namedarraytuple import Buffer
from rlpyt.replays.interface import SamplesToBuffer
from rlpyt.spaces import EnvSpaces, Space, rows_to_arrays
from rlpyt.utils.packages import optional_package


class MinariDataset(Protocol):
    """Dataset as `minari.load_dataset` returns it."""

    observation_space: Space
    action_space: Space

    def iterate_episodes(self) -> Iterable[Buffer]:
        """Return episodes with the fields of `Episode`."""


def load_minari(dataset: MinariDataset | str) -> MinariDataset:
    """Return a dataset, which may be given as the name of a local one."""
    if not isinstance(dataset, str):
        return dataset
    found: MinariDataset = optional_package("minari", "StoredData.from_minari", "minari").load_dataset(dataset)
    return found


def save_minari(
    rows: SamplesToBuffer, spaces: EnvSpaces, dataset_id: str, about: Mapping[str, object]
) -> MinariDataset:
    """Write a local dataset of the rows of `StoredData`; see `StoredData.to_minari`."""
    minari = optional_package("minari", "StoredData.to_minari", "minari")
    observations = rows_to_arrays(spaces.observation, rows.observation)
    actions = rows_to_arrays(spaces.action, rows.action)
    buffers = list[object]()
    starts = np.flatnonzero(rows.valid & ~np.append(False, rows.valid[:-1])).tolist()
    for first, last in zip(starts, np.flatnonzero(rows.terminated | rows.truncated).tolist(), strict=True):
        steps = slice(first, last + 1)
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=len(buffers),
                observations=_sliced(observations, slice(first, last + 2)),
                actions=_sliced(actions, steps),
                rewards=list(rows.reward[steps]),
                terminations=list(rows.terminated[steps]),
                truncations=list(rows.truncated[steps]),
            )
        )
    of_spaces = {"observation_space": spaces.observation, "action_space": spaces.action}
    given = {**of_spaces, "jpeg_encoding": False, **about}
    written: MinariDataset = minari.create_dataset_from_buffers(dataset_id, buffer=buffers, **given)
    return written


def _sliced(values: Buffer, part: slice) -> Buffer:
    if isinstance(values, dict):
        return {key: _sliced(x, part) for key, x in values.items()}
    return tuple(_sliced(x, part) for x in values) if isinstance(values, tuple) else values[part]
