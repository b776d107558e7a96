"""Episodes that were recorded before a run, as the rows of a replay."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import gymnasium
import numpy as np
import torch

from rlpyt.functional import legal_choices
from rlpyt.namedarraytuple import Buffer
from rlpyt.replays.interface import SamplesToBuffer
from rlpyt.replays.minari import MinariDataset, load_minari, save_minari
from rlpyt.replays.replay_buffer import ReplayBuffer
from rlpyt.replays.storage import named_leaves
from rlpyt.spaces import (
    MASK,
    EnvSpaces,
    Space,
    arrays_to_rows,
    choice_sizes,
    has_mask,
    leaf_spaces,
    null_action,
    null_value,
)
from rlpyt.utils.arrays import buffer_from_example, buffer_func, buffer_leaves


class Episode(NamedTuple):
    """Episode of L steps in the values of the environment, by the names that Minari has."""

    observations: Buffer
    """[L + 1, ...], the final one too; of a Dict a dictionary of arrays."""
    actions: Buffer
    """[L, ...], as the environment takes them."""
    rewards: Buffer
    """[L] numbers."""
    terminations: Buffer
    """[L] bool, whether the step ended the episode in a terminal state."""
    truncations: Buffer
    """[L] bool, whether it ended by a limit. The last step counts as truncated where neither is set."""


class StoredData:
    """Episodes one after another, in rows as a sampler would have made them: each ends with its final observation.

    So an episode that was truncated, or cut off when it was recorded, is bootstrapped from the state in which it
    stopped, as new episodes are. `from_minari`, `from_arrays`, `from_replay` and `load` make one, as does
    `RecordEpisodes`; `save` and `to_minari` write it.

    Args:
        rows: [N] arrays in row form (see `rlpyt.spaces`), the last one not `valid`.
        spaces: of the environment.

    Raises:
        ValueError: if there is no valid row, or episodes and final rows do not alternate.
    """

    def __init__(self, rows: SamplesToBuffer, spaces: EnvSpaces) -> None:
        last = rows.valid & ~np.append(rows.valid[1:], False)  # steps after which there is no other
        if not last.any() or rows.valid[-1] or (last != (rows.terminated | rows.truncated)).any():
            raise ValueError(
                f"Stored data: got {np.count_nonzero(rows.valid)} steps in {len(rows.valid)} rows, of which "
                f"{np.count_nonzero(last)} are the last of an episode and "
                f"{np.count_nonzero(rows.terminated | rows.truncated)} end one; expected one step or more, and a row "
                "that is not valid after every end and nowhere else. Build it with from_arrays."
            )
        self.rows, self.spaces = rows, spaces

    @property
    def n_steps(self) -> int:
        """Steps, which are the transitions that may be drawn."""
        return int(np.count_nonzero(self.rows.valid))

    @property
    def n_episodes(self) -> int:
        """Episodes, those that were cut off included."""
        return int(np.count_nonzero(self.rows.terminated | self.rows.truncated))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_steps:,} steps of {self.n_episodes:,} episodes)"

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return itself: its rows are read and never written."""
        return self

    # ---- where it comes from ----

    @classmethod
    def from_arrays(
        cls,
        spaces: EnvSpaces,
        *,
        observations: Buffer,
        actions: Buffer,
        rewards: Buffer,
        terminated: Buffer,
        truncated: Buffer,
        next_observations: Buffer,
    ) -> Self:
        """Return the steps of arrays [N, ...] in the values of the environment: a dictionary of arrays for a Dict.

        Args:
            spaces: of the environment, `EnvSpaces(env.observation_space, env.action_space)`.
            observations: that the actions were chosen on.
            actions: as the environment takes them.
            rewards: numbers.
            terminated: bool, whether the step ended the episode in a terminal state.
            truncated: bool, whether it ended by a limit. The last step counts as truncated where neither is set.
            next_observations: that the steps led to; inside of an episode those of the next step.

        Raises:
            TypeError: if arrays are of other kinds than the spaces, or flags are not bool.
            ValueError: if lengths or shapes do not fit, a number is not finite, or a step does not follow the one
                before it.
        """
        n = len(rewards)
        flags = _flag("terminated", terminated, n), _flag("truncated", truncated, n)
        ends = flags[0] | flags[1]
        if n:
            ends[-1] = True
        observation = arrays_to_rows(spaces.observation, observations, n, "observations")
        after = arrays_to_rows(spaces.observation, next_observations, n, "next_observations")
        follows = ends[:-1].copy()
        same = np.ones(max(n - 1, 0), bool)
        for now, then in zip(buffer_leaves(observation), buffer_leaves(after), strict=True):
            same &= (now[1:] == then[:-1]).reshape(len(same), -1).all(1)
        if not (follows | same).all():
            i = int(np.argmin(follows | same))
            raise ValueError(
                f"Stored data: next_observations[{i}] is not observations[{i + 1}], and no episode ends with step {i}; "
                "expected the steps of an episode one after another. Set truncated where the next step is of another "
                "episode: truncated[:] = ~terminated for steps in any order."
            )
        action = arrays_to_rows(spaces.action, actions, n, "actions")
        final = buffer_func(after, lambda x: x[ends])
        return cls(_rows(spaces, observation, action, rewards, flags[0], ends & ~flags[0], final), spaces)

    @classmethod
    def from_minari(cls, dataset: MinariDataset | str) -> Self:
        """Return the episodes of a Minari dataset, or of the local one of a name such as "cartpole/expert-v0".

        Raises:
            ImportError: if minari is not installed.
            FileNotFoundError: if there is no such dataset on this machine.
            ValueError: as `from_episodes`.
        """
        found = load_minari(dataset)
        return cls.from_episodes(EnvSpaces(found.observation_space, found.action_space), found.iterate_episodes())

    @classmethod
    def from_episodes(cls, spaces: EnvSpaces, episodes: Iterable[Episode]) -> Self:
        """Return whole episodes, or parts of them that end with an observation.

        Raises:
            TypeError: if arrays are of other kinds than the spaces, or flags are not bool.
            ValueError: if an episode lacks its final observation, goes on after its end, or does not fit its spaces.
        """
        parts = [_episode(spaces, i, episode) for i, episode in enumerate(episodes)]
        if not parts:
            raise ValueError("Stored data: got no episodes; expected one or more. Record some first.")
        observation, action, rewards, terminated, truncated, final = (
            _joined([part[i] for part in parts]) for i in range(len(parts[0]))
        )
        return cls(_rows(spaces, observation, action, rewards, terminated, truncated, final), spaces)

    @classmethod
    def from_replay(cls, replay: ReplayBuffer, spaces: EnvSpaces) -> Self:
        """Return the rows that may be drawn from a replay, such as `algo.replay` after a run, with `agent.env_spaces`.

        The newest row of every environment becomes a final row where its episode goes on. Where frames are stacked,
        what comes before the first whole episode is left out.

        Raises:
            ValueError: if it holds no whole step.
            TypeError: if it is a replay of another class, such as that of a device.
        """
        if not isinstance(replay, ReplayBuffer):
            raise TypeError(
                f"Stored data: got a {type(replay).__name__}; expected a ReplayBuffer, whose rows are on the CPU. Of a "
                "run that began with stored data it is algo.replay.new."
            )
        storage, columns = replay.storage, []
        T_idxs = (storage.oldest + np.arange(storage.rows_before, storage.held)) % storage.T
        for b in range(storage.B):
            column: SamplesToBuffer = buffer_func(storage.rows, lambda x, b=b: x[T_idxs, b])
            first = 0
            if storage.rows_before > 1:
                first = int(np.argmin(np.append(storage.rows.valid[T_idxs - 1, b], False)))
            column = column._replace(observation=storage.observation(T_idxs, np.array(b)))
            if len(column.valid[first:]) > 1:
                columns.append(_ended(buffer_func(column, lambda x, i=first: x[i:]), null_action(spaces.action)))
        if not columns:
            raise ValueError(
                f"Stored data: the replay holds {storage.held} rows of each of {storage.B} environments; expected one "
                "whole step of some. Append more rows first."
            )
        return cls(_joined(columns), spaces)

    @classmethod
    def load(cls, file: str | Path, spaces: EnvSpaces) -> Self:
        """Return what `save` wrote.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is none of `save`, or of other spaces.
        """
        with np.load(file) as arrays:
            came = dict(arrays)
        example = named_leaves(_example(spaces))
        if came.keys() != example.keys():
            raise ValueError(
                f"Loading stored data: {file} has {', '.join(came)}; expected {', '.join(example)}, of a file that "
                "StoredData.save wrote for these spaces."
            )
        for name, one in example.items():
            array = came[name]
            if array.shape[1:] != one.shape or array.dtype != one.dtype:
                raise ValueError(
                    f"Loading stored data: {file} has {name} of {array.dtype} {list(array.shape[1:])} a row; expected "
                    f"{one.dtype} {list(one.shape)}, as the environment. Was it recorded in another one?"
                )
        leaves = iter(came[name] for name in example)
        return cls(buffer_func(_example(spaces), lambda _: next(leaves)), spaces)

    # ---- where it goes to ----

    def save(self, file: str | Path) -> None:
        """Write a file of numpy; its name gets the end .npz, if it lacks it. An old file is replaced whole."""
        path = Path(file)
        new = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        try:
            with open(new, "wb") as out:
                np.savez(out, **named_leaves(self.rows))
            os.replace(new, path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz"))
        finally:
            new.unlink(missing_ok=True)

    def to_minari(self, dataset_id: str, **about: object) -> MinariDataset:
        """Write a local Minari dataset, and return it.

        Args:
            dataset_id: such as "cartpole/expert-v0".
            about: further arguments of `minari.create_dataset_from_buffers`, such as `env` or `algorithm_name`. Images
                are kept as they are, without a loss.

        Raises:
            ImportError: if minari is not installed.
            ValueError: of minari, if there is such a dataset.
        """
        return save_minari(self.rows, self.spaces, dataset_id, about)

    # ---- for a replay ----

    def checksum(self) -> int:
        """Return a number by which other rows are told from these."""
        found = 0
        for leaf in buffer_leaves(self.rows):
            found = zlib.crc32(np.ascontiguousarray(leaf).data.cast("B") if leaf.size else b"", found)
        return found

    def check_fits(self, spaces: EnvSpaces) -> None:
        """Refuse data of another environment.

        Raises:
            ValueError: if rows have another form there, or an action lies outside of the bounds.
        """
        for name, own, other in zip(EnvSpaces._fields, self.spaces, spaces, strict=True):
            if _form(own) != _form(other):
                raise ValueError(
                    f"Stored data: the {name} space is {own}, and that of the environment is {other}; expected the "
                    "same shapes and dtypes. Give data of this environment, or wrap it as the one of the data was."
                )
        self.check_actions(spaces)

    def check_actions(self, spaces: EnvSpaces) -> None:
        """Refuse actions outside of the bounds of a Box, or that the mask of their row forbids.

        Raises:
            ValueError: if there is one.
        """
        valid, choices = self.rows.valid, []
        for (name, x), space in zip(named_leaves(self.rows.action).items(), leaf_spaces(spaces.action), strict=True):
            action = x[valid]
            if not isinstance(space, gymnasium.spaces.Box):
                choices.append(action.reshape(len(action), -1).astype(np.int64))
                continue
            low, high = space.low, space.high
            if (action < low - 1e-4 * abs(low)).any() or (action > high + 1e-4 * abs(high)).any():
                raise ValueError(
                    f"Stored data: actions{f' of {name}' if name else ''} go from {action.min(0)} to {action.max(0)}; "
                    f"expected them within the bounds of the environment, {low} to {high}. Scale them, or clip them "
                    "with np.clip."
                )
        if has_mask(spaces):
            self._check_legal(np.concatenate(choices, 1), choice_sizes(spaces.action))

    def _check_legal(self, choices: np.ndarray, sizes: list[int]) -> None:
        """Refuse choices [n_steps, len(sizes)] that masks forbid."""
        mask = self.rows.observation[MASK][self.rows.valid].reshape(-1, sum(sizes))
        places = choices + np.cumsum([0, *sizes[:-1]])
        allowed = legal_choices(torch.from_numpy(mask), sizes).numpy()
        legal = np.logical_and.reduce(np.take_along_axis(allowed, places, 1), axis=1)
        if not legal.all():
            raise ValueError(
                f"Stored data: the mask of step {legal.argmin()} forbids the action that was taken there, as do those "
                f"of {np.count_nonzero(~legal)} of {len(legal)} steps; expected legal actions. Give each step the mask "
                f"of the observation before its action, or leave out the key {MASK!r}."
            )

    def columns(self, n: int, before: int, after: int) -> SamplesToBuffer:
        """Return the rows cut into columns of equal length, as those of several environments, [T, n].

        Every step may be drawn in one column. Where an episode is cut, its step before the cut is truncated, and the
        observation after it is the final row of the column.

        Args:
            n: columns.
            before: rows at the head of each from which nothing is drawn: those before, or rows of padding.
            after: rows that follow the last step of each, at least 1: the final row, and rows of padding.
        """
        N = len(self.rows.valid)
        steps = -(-(N - 1) // n)
        shape = (before + n * steps + 1,)
        padded: SamplesToBuffer = buffer_from_example(_example(self.spaces), shape)
        for whole, leaf in zip(buffer_leaves(padded), buffer_leaves(self.rows), strict=True):
            whole[before : before + N] = leaf
        null, length = null_action(self.spaces.action), before + steps + 1
        result: SamplesToBuffer = buffer_from_example(_example(self.spaces), (length + after - 1, n))
        for b in range(n):
            column = _ended(buffer_func(padded, lambda x, b=b: x[b * steps : b * steps + length]), null)
            result[:length, b] = column
        return result


def _example(spaces: EnvSpaces) -> SamplesToBuffer:
    """Return a row that is not valid."""
    no = np.bool_(False)
    return SamplesToBuffer(null_value(spaces.observation), null_action(spaces.action), np.float32(0), no, no, no)


def _form(space: Space) -> object:
    """Return what decides how values of a space are stored and what they mean, bounds of a Box apart."""
    leaves = named_leaves(null_value(space)).items()
    return [(name, np.shape(x), np.asarray(x).dtype) for name, x in leaves], choice_sizes(space)


def _flag(name: str, values: Buffer, n: int) -> np.ndarray:
    flags = np.asarray(values)
    if flags.shape != (n,) or (flags.dtype != bool and n):
        raise (ValueError if flags.dtype == bool else TypeError)(
            f"Stored data: {name} is {flags.dtype} {list(flags.shape)}; expected bool [{n}], one for every reward. "
            f"Write {name}.astype(bool)."
        )
    return flags.astype(bool)


def _rows(
    spaces: EnvSpaces,
    observation: Buffer,
    action: Buffer,
    rewards: Buffer,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final: Buffer,
) -> SamplesToBuffer:
    """Return the rows of N steps in row form, with the final observations [n_episodes] after the ends of episodes."""
    ends = terminated | truncated
    n = len(ends)
    reward = arrays_to_rows(gymnasium.spaces.Box(-np.inf, np.inf, ()), rewards, n, "rewards")
    at = np.arange(n) + np.cumsum(ends) - ends
    rows: SamplesToBuffer = buffer_from_example(_example(spaces), (n + int(np.count_nonzero(ends)),))
    rows.action[:] = null_action(spaces.action)
    rows[at] = SamplesToBuffer(observation, action, reward, terminated, truncated, np.ones(n, bool))
    rows.observation[at[ends] + 1] = final
    return rows


def _ended(column: SamplesToBuffer, null: Buffer) -> SamplesToBuffer:
    """Return a column of rows [T, ...] whose last one is a final row, in memory of its own."""
    column = buffer_func(column, np.copy)
    if column.valid[-1]:
        column.truncated[-2] |= column.valid[-2] & ~column.terminated[-2]
        column[-1] = column[-1]._replace(action=null, reward=0.0, terminated=False, truncated=False, valid=False)
    return column


def _episode(spaces: EnvSpaces, i: int, episode: Episode) -> tuple[Buffer, ...]:
    """Return the parts of an episode in row form: the arguments of `_rows` after the spaces."""
    n, name = len(episode.rewards), f"episode {i}"
    ends = [_flag(f"{name}: {flag}", getattr(episode, flag), n) for flag in ("terminations", "truncations")]
    one = episode.observations
    while isinstance(one, dict | tuple):
        one = next(iter(one.values() if isinstance(one, dict) else one))
    if not n or len(one) != n + 1:
        raise ValueError(
            f"Stored data: {name} has {len(one)} observations and {n} rewards; expected one observation more than "
            "rewards, and one reward or more: the observation after the last step is what a truncated episode is "
            "bootstrapped from. Record it too."
        )
    if (ends[0] | ends[1])[:-1].any():
        raise ValueError(f"Stored data: {name} has an end before its last step; expected it there alone. Split it.")
    ends[1][-1] |= not ends[0][-1]
    every = arrays_to_rows(spaces.observation, episode.observations, n + 1, f"{name}: observations")
    action = arrays_to_rows(spaces.action, episode.actions, n, f"{name}: actions")
    return every[:-1], action, np.asarray(episode.rewards), *ends, every[-1:]


def _joined(buffers: Sequence[Buffer]) -> Buffer:
    leaves = iter(zip(*map(buffer_leaves, buffers), strict=True))
    return buffer_func(buffers[0], lambda _: np.concatenate(next(leaves)))
