"""Part of a fleet that one native call steps: a `gymnasium.vector.VectorEnv` behind its adapter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlpyt.envs import InfoRecorder, VectorEnvAdapter, as_recorded, info_at
from rlpyt.namedarraytuple import Buffer
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet_spec import FleetSpec
from rlpyt.samplers.parts import CompletedTraj, LocalPart
from rlpyt.spaces import random_value
from rlpyt.types import Info, StateDict
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.progress import Progress


class NativePart(LocalPart):
    """Vector environment: all its environments are stepped at once, and reset themselves.

    They do so in the step after the end of an episode. One that rests is stepped too, and its result is dropped; it is
    reset when it wakes. So with `wait_reset` the steps between the end of an episode and that of the batch are lost.

    Args:
        env: all environments of the part.
        recorder: says what is recorded of their info, and the values where a step gives none.
        spec, rows, progress: see `LocalPart`.
    """

    def __init__(
        self,
        spec: FleetSpec,
        env: VectorEnvAdapter,
        rows: Rows,
        recorder: InfoRecorder,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(spec, env.spaces, rows, progress)
        if self._wait_reset and not env.can_reset_some:
            raise ValueError(
                f"{env.name}: the sampler is to reset environments between batches only (mid_batch_reset=False), and "
                "this one can reset all of them at once but not some (options['reset_mask']); expected "
                "mid_batch_reset=True, or single environments (gymnasium.make; vectorization_mode='sync')."
            )
        self.env = env
        self._env_info_nulls: Info = {key: recorder.example[key] for key in spec.env_info_keys}
        self._null = self._ended | self._resting  # environments whose row at hand is not a step

    def _reset_all(self, out: Buffer) -> None:
        seeds = [seed for seed in self._seeds if seed is not None]
        self._seeds = [None] * len(self.ranks)
        self._progress.env_rank = self.ranks[0]
        out[:] = self.env.reset(seeds or None)[0]

    @property
    def _is_lost(self) -> bool:
        """Whether all environments wait for a reset after a loss."""
        return self._seeds[0] is not None

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
        if not self._is_lost:
            self.env.send(action)

    def recv(self, t: int) -> list[CompletedTraj]:
        """Wait for the results of row t's actions."""
        rows, null = self.rows, self._null
        if self._is_lost:
            for b in range(len(self.ranks)):
                self._null_row(t, b)
            self._reset_all(rows.next_observation[t])
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
        for b in steps.tolist():
            one: Info = {} if score is None else {"game_score": score[b]}
            if self._own_traj_info or done[b]:
                one = {**one, **info_at(info, b)}
            if self._own_traj_info:
                self._step_traj_info(t, b, reward[b], bool(done[b]), one)
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
        if self._resting.any() and not self._is_lost:
            _write(self.rows.after.observation, self.env.reset_some(self._resting.copy())[0], self._resting)
            self._ended[self._resting] = False
            # It cannot be known whether the reset goes on with a game after a lost life, or begins another.
            for b in np.flatnonzero(self._resting & self._game_goes_on).tolist():
                self._traj_infos[b], self._unlogged[b] = self._new_traj_info(), True

    def why_no_state(self) -> str:
        """Return why native environments have no state."""
        return self.env.why_no_state()

    def _saved_env(self, b: int) -> tuple[StateDict, str | None]:
        return {}, None

    def _why_not_loaded(self, b: int, saved: StateDict) -> str:
        return self.env.why_no_state()


def _write(dest: Buffer, src: Buffer, mask: np.ndarray) -> None:
    """Copy the rows of the mask, in every leaf."""
    for to, what in zip(buffer_leaves(dest), buffer_leaves(src), strict=True):
        to[mask] = what[mask]
