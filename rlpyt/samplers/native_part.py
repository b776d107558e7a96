"""Part of a fleet that one native call steps: a `gymnasium.vector.VectorEnv` behind its adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlpyt.envs import VectorEnvAdapter, as_recorded, info_at
from rlpyt.namedarraytuple import Buffer
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.parts import CompletedTraj, LocalPart
from rlpyt.samplers.states import Loaded
from rlpyt.spaces import random_value
from rlpyt.types import SUCCESS_KEYS, Info, StateDict, TrajInfo
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.progress import Progress


class NativePart(LocalPart):
    """Vector environment: all its environments are stepped at once, and reset themselves.

    They do so in the step after the end of an episode. One that rests is stepped too, and its result is dropped; it is
    reset when it wakes. So with `wait_reset` the steps between the end of an episode and that of the batch are lost.

    Args:
        env: all environments of the part.
        rows: see `LocalPart`.
        env_info_nulls: for every name that is recorded of info, the value where a step gives none.
        new_traj_info: see `LocalPart`.
        progress: see `LocalPart`.
        wait_reset: see `LocalPart`.
    """

    def __init__(
        self,
        env: VectorEnvAdapter,
        rows: Rows,
        env_info_nulls: Info | None = None,
        new_traj_info: Callable[[], TrajInfo] = TrajInfo,
        progress: Progress | None = None,
        wait_reset: bool = False,
    ) -> None:
        super().__init__(env.spaces, env.ranks, rows, new_traj_info, progress, wait_reset)
        if self._wait_reset and not env.can_reset_some:
            raise ValueError(
                f"{env.name}: the sampler is to reset environments between batches only (mid_batch_reset=False), and "
                "this one can reset all of them at once but not some (options['reset_mask']); expected "
                "mid_batch_reset=True, or single environments (gymnasium.make; vectorization_mode='sync')."
            )
        self.env = env
        self._env_info_nulls = dict(env_info_nulls or {})
        self._null = self._ended | self._resting  # environments whose row at hand is not a step
        self._after_loss: Any = None  # the first observations of the episodes that begin after a loss

    def reset(self, seeds: Sequence[int] | None) -> None:
        """Begin a new game everywhere."""
        self._begin_all()
        if seeds is not None or self._after_loss is None:
            self._progress.env_rank = self.ranks[0]
            self._after_loss = self.env.reset(seeds)[0]
        self.rows.after.observation[:], self._after_loss = self._after_loss, None

    def decorrelate(self, max_steps: int, rngs: Sequence[np.random.Generator]) -> None:
        """Take random steps in all; each is reset when as many steps are left as its generator says.

        Where only all can be reset at once, all take the same number of steps.
        """
        after, ended = self.rows.after, self._ended
        n_steps = np.array([int(rng.integers(1, max_steps + 1)) for rng in rngs])
        if not self.env.can_reset_some:
            n_steps[:] = n_steps.max()
        for left in range(int(n_steps.max()), 0, -1):
            begins = n_steps == left
            if left < n_steps.max() and begins.any():
                _write(after.observation, self.env.reset_some(begins)[0], begins)
                ended[begins] = self._unlogged[begins] = False
            for b, rng in enumerate(rngs):
                after.prev_action[b] = self.null_action if ended[b] else random_value(self.env.action_space, rng)
            self._progress.step += 1
            self.env.send(after.prev_action)
            after.observation[:], reward, terminated, truncated, info = self.env.recv()
            after.prev_reward[:] = np.where(ended, 0, reward)
            done = terminated | truncated
            traj_done = done & info.get("traj_done", done)
            self._unlogged[:] = np.where(ended, self._unlogged, ~traj_done)
            ended[:] = done

    def send(self, t: int) -> None:
        """Send row t's actions; the environments step while others are waited for."""
        super().send(t)
        self._progress.env_rank = self.ranks[0]
        action = self.rows.action[t]
        self._null = self._ended | self._resting
        if self._null.any():
            for b in np.flatnonzero(self._null).tolist():
                action[b] = self.null_action
        if self._after_loss is None:
            self.env.send(action)

    def recv(self, t: int) -> list[CompletedTraj]:
        """Wait for the results of row t's actions."""
        rows, null = self.rows, self._null
        if self._after_loss is not None:
            for b in range(len(self.ranks)):
                self._null_row(t, b)
            rows.next_observation[t], self._after_loss = self._after_loss, None
            self._record_info(t, {})
            self._ended[:] = False
            return []
        observation, reward, terminated, truncated, info = self.env.recv()
        step = ~null
        rows.next_observation[t], rows.reward[t], rows.valid[t] = observation, reward * step, step
        rows.terminated[t], rows.truncated[t] = terminated & step, truncated & step
        if self._resting.any():
            for b in np.flatnonzero(self._resting).tolist():
                rows.next_observation[t, b] = self._null_observation
        done = terminated | truncated
        self._record_info(t, info)
        self._step_traj_infos(t, np.flatnonzero(step), done, info)
        self._ended[:] = False
        completed: list[CompletedTraj] = []
        # An end in a row that is no step is that of a game which was over right after a lost life.
        for b in np.flatnonzero(done & ~self._resting).tolist():
            self._end_episode(t, b, rows.next_observation[t, b], bool(info.get("traj_done", done)[b]), completed)
        return completed

    def _step_traj_infos(self, t: int, steps: np.ndarray, done: np.ndarray, info: Info) -> None:
        reward = self.rows.reward[t].tolist()
        score = np.asarray(info["game_score"]).tolist() if "game_score" in info else None
        says_success = any(name in info for name in SUCCESS_KEYS)
        for b in steps.tolist():
            one: Info = {} if score is None else {"game_score": score[b]}
            if says_success and done[b]:
                at_b = info_at(info, b)
                one = {**one, **{name: at_b[name] for name in SUCCESS_KEYS if name in at_b}}
            if self._own_traj_info:
                self._step_traj_info(t, b, reward[b], bool(done[b]), {**one, **info_at(info, b)})
            else:
                self._traj_infos[b].step(None, None, reward[b], bool(done[b]), None, one)

    def _record_info(self, t: int, info: Info) -> None:
        for key, null in self._env_info_nulls.items():
            out = self.rows.env_info[t][key]
            out[...] = as_recorded(key, info[key], out) if key in info else null
            if self._null.any():
                out[self._null] = null

    def wake(self) -> None:
        """Reset the environments that rest; a game of several lives that the rest has cut is not logged."""
        if self._resting.any() and self._after_loss is None:  # after a loss all have been reset
            _write(self.rows.after.observation, self.env.reset_some(self._resting.copy())[0], self._resting)
            self._ended[self._resting] = False
            # It cannot be known whether the reset goes on with a game after a lost life, or begins another.
            for b in np.flatnonzero(self._resting & self._game_goes_on).tolist():
                self._traj_infos[b], self._unlogged[b] = self._new_traj_info(), True

    def begin_after_loss(self, seeds: Sequence[int]) -> None:
        """Treat the row at hand as final; the environments are reset at once, and the next row shows it."""
        for b in range(len(self.ranks)):
            self._begin_lost(b)
        self._after_loss = self.env.reset(seeds)[0]

    def with_envs(self, state: dict[str, list[object]]) -> StateDict:
        """Return the state of trajectories, and why native environments have none."""
        return {**state, "why": [self.env.why_no_state() for _ in self.ranks]}

    def load_envs(self, state: StateDict, new_seeds: Sequence[int]) -> Loaded:
        """Begin new episodes everywhere, as native environments cannot be restored."""
        n_cut = int(np.count_nonzero(~(self._ended | self._resting)))
        self.begin_after_loss(new_seeds)
        return Loaded(n_cut, (self.env.why_no_state(),))


def _write(dest: Buffer, src: Buffer, mask: np.ndarray) -> None:
    """Copy the rows of the mask, in every leaf."""
    for to, what in zip(buffer_leaves(dest), buffer_leaves(src), strict=True):
        to[mask] = what[mask]
