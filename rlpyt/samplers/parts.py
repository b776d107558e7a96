"""Parts of a fleet: environments that are stepped together and fill their columns of the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.envs import EnvAdapter, InfoRecorder, VectorEnvAdapter, as_recorded, info_at
from rlpyt.envs.state_data import StateError
from rlpyt.logging import current_logger
from rlpyt.namedarraytuple import Buffer
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet_spec import FleetSpec
from rlpyt.samplers.states import AsBuilt, Loaded, dealt, piece, restore_info, saved_info, why_no_state
from rlpyt.spaces import EnvSpaces, null_action, null_value, random_value
from rlpyt.types import Info, InfoDict, StateDict, TrajInfo, traj_info_maker
from rlpyt.utils.arguments import own_names
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.progress import Progress

_NO_INFO: Mapping[str, Any] = {}


class CompletedTraj(NamedTuple):
    """A trajectory, and the row and environment in which it ended."""

    t: int
    rank: int
    traj_info: TrajInfo


def in_order(itr: int, completed: Iterable[CompletedTraj]) -> list[TrajInfo]:
    """Return trajectories of an iteration in the order in which they ended, the same for any number of workers.

    Each is told where that was, for the order among those of other replicas.
    """
    trajs = sorted(completed, key=lambda c: (c.t, c.rank))
    for traj in trajs:
        traj.traj_info.ended_at = itr, traj.t, traj.rank
    return [traj.traj_info for traj in trajs]


class Environments(ABC):
    """Training environments, wherever they are: a part, a collector over parts, the work of a sampler."""

    @abstractmethod
    def wake(self) -> None:
        """Reset those that rest, without waiting where that is possible; their rows of the batch stay as they are.

        Their first observations stand in the row after the batch.
        """

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return the states of environments, trajectories and actors, as pieces (see `states`)."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> Loaded | None:
        """Load the result of `state_dict`, of any parts; an environment that cannot is treated as lost.

        Returns:
            What was lost; None says nothing.
        """

    def why_no_state(self) -> str | None:
        """Return why an environment has no state; None if all have one."""
        return why_no_state(self.state_dict())


class Part(Environments):
    """Environments that take the actions of row t, and give the rest of it and the next observation.

    An environment stands still while its `rows.resting` is set; with `wait_reset`, from the end of an episode to
    `wake`.
    """

    rows: Rows
    ranks: list[int]
    """Global ranks of the environments, in the order of the rows' B dimension."""
    null_action: Buffer
    """What counts as the action before the first step, in row form."""
    waits_for: str
    """What `recv` spends its time on, for the measured breakdown: "environments" or "waiting"."""

    @abstractmethod
    def reset(self, seeds: Sequence[int] | None) -> None:
        """Begin a new game everywhere: first observations, null actions and zero rewards in the row after the batch.

        Args:
            seeds: of the environments, in their order; None takes those that `begin_after_loss` was given.
        """

    @abstractmethod
    def send(self, t: int) -> None:
        """Take the actions of row t, without waiting where that is possible."""

    @abstractmethod
    def recv(self, t: int) -> list[CompletedTraj]:
        """Complete row t and write its next observation; return the trajectories that ended with row t."""

    @abstractmethod
    def ready(self) -> None:
        """Wait until the environments that were woken are reset."""


class LocalPart(Part):
    """Part in this process: it holds the statistics of trajectories, and notes its progress for the master.

    The rows are those of these environments only.
    """

    waits_for = "environments"
    why_lost: str | None = None
    """Why environments are neither saved nor loaded; None if they are."""

    def __init__(self, spec: FleetSpec, spaces: EnvSpaces, rows: Rows, progress: Progress | None) -> None:
        self.rows, self.ranks = rows, list(spec.env_ranks)
        self._new_traj_info = traj_info_maker(spec.TrajInfoCls, spec.traj_info_kwargs)
        # Only a TrajInfo of the user's own reads all of a step, and slicing it costs as much as a cheap step.
        self._own_traj_info = "step" in own_names(type(self._new_traj_info()))
        self._progress = progress or Progress()
        self._wait_reset = not spec.mid_batch_reset
        self._resting = rows.resting
        self.null_action, self._null_observation = null_action(spaces.action), null_value(spaces.observation)
        self._traj_infos = [self._new_traj_info() for _ in self.ranks]
        self._unlogged = np.zeros(len(self.ranks), bool)  # trajectories that began with random steps
        self._ended = np.zeros(len(self.ranks), bool)  # the row at hand holds a final observation
        self._game_goes_on = np.zeros(len(self.ranks), bool)  # after the last end of an episode
        self._seeds: list[int | None] = [None] * len(self.ranks)  # of an environment's next reset

    @abstractmethod
    def decorrelate(self, max_steps: int, rngs: Sequence[np.random.Generator]) -> None:
        """Take 1 to `max_steps` random steps in every environment, so that their episodes do not end together.

        Trajectories that began with random steps are not logged: they say nothing about the agent.
        """

    @abstractmethod
    def _reset_all(self, out: Buffer) -> None:
        """Begin a new game in every environment, by its seed, and write the first observations [B] to `out`."""

    def reset(self, seeds: Sequence[int] | None) -> None:
        """Begin a new game everywhere."""
        self._traj_infos = [self._new_traj_info() for _ in self.ranks]
        self._unlogged[:] = self._ended[:] = False
        after = self.rows.after
        after.prev_action[:], after.prev_reward[:] = self.null_action, 0.0
        if seeds is not None:
            self._seeds = list(seeds)
        self._reset_all(after.observation)

    def begin_after_loss(self, seeds: Sequence[int]) -> None:
        """Treat the row at hand as the final one of episodes that were lost; the resets that follow take the seeds."""
        for b in range(len(self.ranks)):
            self._begin_lost(b)
        self._seeds = list(seeds)

    def send(self, t: int) -> None:
        """Note the row at hand; the work is done in `recv`."""
        self._progress.step += 1
        self._progress.row = t

    def ready(self) -> None:
        """Nothing to wait for: here `wake` resets at once."""

    def _begin_lost(self, b: int) -> None:
        """Forget a trajectory whose environment was lost."""
        self._traj_infos[b] = self._new_traj_info()
        self._unlogged[b], self._ended[b] = False, True

    def _null_row(self, t: int, b: int) -> None:
        rows = self.rows
        rows.action[t, b], rows.reward[t, b] = self.null_action, 0.0
        rows.terminated[t, b] = rows.truncated[t, b] = rows.valid[t, b] = False

    def _end_episode(
        self, t: int, b: int, observation: Buffer, traj_done: bool, completed: list[CompletedTraj]
    ) -> None:
        self._ended[b], self._game_goes_on[b] = True, not traj_done
        if self._wait_reset:
            self._resting[b] = True
        if not traj_done:
            return
        traj_info = self._traj_infos[b].terminate(observation)
        if not self._unlogged[b]:
            completed.append(CompletedTraj(t, self.ranks[b], traj_info))
        self._unlogged[b] = False
        self._traj_infos[b] = self._new_traj_info()

    def _step_traj_info(self, t: int, b: int, reward: float, done: bool, info: Info) -> None:
        """Step the statistics of a TrajInfo of the user's with all of row t."""
        rows = self.rows
        agent_info = None if rows.agent_info is None else rows.agent_info[t, b]
        self._traj_infos[b].step(rows.observation[t, b], rows.action[t, b], reward, done, agent_info, InfoDict(info))

    def state_dict(self) -> StateDict:
        """Return the states of environments and trajectories, and the row after the batch."""
        infos = [saved_info(info) for info in self._traj_infos]
        envs = [self._saved_env(b) for b in range(len(self.ranks))]
        state = {
            "last_row": [torch.from_numpy(np.array(leaf)) for leaf in buffer_leaves(self.rows.after)],
            "ended": self._ended.tolist(),
            "resting": self._resting.tolist(),
            "unlogged": self._unlogged.tolist(),
            "traj_infos": [info for info, _ in infos],
            "why": [of_env or of_info for (_, of_env), (_, of_info) in zip(envs, infos, strict=True)],
            "envs": [env for env, _ in envs],
            "seeds": list(self._seeds),
        }
        return {"parts": [piece(self.ranks, state)]}

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Load the result of `state_dict`, for other parts too; environments that cannot are lost."""
        state = dealt(state_dict["parts"], self.ranks)
        for leaf, saved in zip(buffer_leaves(self.rows.after), state["last_row"], strict=True):
            leaf[...] = saved.numpy()
        self._ended[:], self._unlogged[:] = state["ended"], state["unlogged"]
        self._resting[:] = state["resting"]
        self._traj_infos = [self._new_traj_info() for _ in self.ranks]
        for b, saved in enumerate(state["traj_infos"]):
            # Statistics without a state begin in the middle of a trajectory, and say nothing.
            self._unlogged[b] |= not restore_info(self._traj_infos[b], saved)
        self._seeds = list(state["seeds"])
        n_cut, reasons = 0, list[str]()
        for b, saved in enumerate(state["envs"]):
            why = self._why_not_loaded(b, saved)
            if saved and why is None:
                continue
            if self._seeds[b] is None:
                self._seeds[b] = state_dict["new_seeds"][self.ranks[b]]
                n_cut += not (self._ended[b] or self._resting[b])
                reasons.append(
                    why or state["why"][b] or f"The environment of rank {self.ranks[b]} was saved without one."
                )
            self._begin_lost(b)
        return Loaded(n_cut, tuple(reasons[:1]))

    def _saved_env(self, b: int) -> tuple[StateDict, str | None]:
        """Return the state of an environment; or an empty one, and why."""
        return {}, self.why_lost

    def _why_not_loaded(self, b: int, saved: StateDict) -> str | None:
        """Load the state of an environment; return why that cannot be done in one that has just begun."""
        return self.why_lost


class ListPart(LocalPart):
    """Python list of environments, stepped one after the other.

    Args:
        envs: the environments, in the order of the rows' B dimension.
        recorder: of what `rows.env_info` has of their info.
        why_lost: why a state that can be read is not the whole one, as the check has found; it is neither saved nor
            loaded.
        as_built: what `reset` sets the environments back to first; empty for those of training, which go on.
    """

    def __init__(
        self,
        spec: FleetSpec,
        envs: Sequence[EnvAdapter],
        rows: Rows,
        recorder: InfoRecorder,
        progress: Progress | None = None,
        why_lost: str | None = None,
        as_built: Sequence[AsBuilt] = (),
    ) -> None:
        super().__init__(spec, envs[0].spaces, rows, progress)
        self.envs, self.why_lost, self._as_built = list(envs), why_lost, as_built
        self._record_info = None if rows.env_info is None else recorder.record
        self._said_not_set_back = False

    def _reset_all(self, out: Buffer) -> None:
        why = next(filter(None, [as_built.set_back() for as_built in self._as_built]), None)
        if why is not None and not self._said_not_set_back:
            self._said_not_set_back = True
            current_logger().warn(f"{why} Its evaluations may depend on those before.")
        for b in range(len(self.envs)):
            out[b] = self._reset_env(b)

    def decorrelate(self, max_steps: int, rngs: Sequence[np.random.Generator]) -> None:
        """Take random steps, as many in each environment as its generator says."""
        after = self.rows.after
        for b, (env, rng) in enumerate(zip(self.envs, rngs, strict=True)):
            observation, action, reward = after.observation[b], self.null_action, 0.0
            for _ in range(int(rng.integers(1, max_steps + 1))):
                self._unlogged[b] = True
                self._progress.env_rank = env.rank
                self._progress.step += 1
                action = env.masks.legal(random_value(env.action_space, rng))
                observation, reward, terminated, truncated, info = env.step(action)
                if terminated or truncated:
                    self._unlogged[b] = not info.get("traj_done", True)
                    observation = self._reset_env(b)
                    action, reward = self.null_action, 0.0
            after.observation[b], after.prev_action[b], after.prev_reward[b] = observation, action, reward

    def recv(self, t: int) -> list[CompletedTraj]:
        """Take row t's actions in all environments; where an episode ended a row ago, start the next one."""
        rows, ended, resting, progress = self.rows, self._ended, self._resting, self._progress
        own_traj_info, traj_infos, record_info = self._own_traj_info, self._traj_infos, self._record_info
        observation_, action_, reward_ = rows.next_observation[t], rows.action[t], rows.reward[t]
        # Written once for all environments: most rows are steps that end nothing.
        rows.terminated[t] = rows.truncated[t] = False
        rows.valid[t] = True
        completed: list[CompletedTraj] = []
        for b, env in enumerate(self.envs):
            progress.env_rank = env.rank
            if ended[b] or resting[b]:
                self._null_row(t, b)
                observation_[b], info = self._null_observation if resting[b] else self._reset_env(b), _NO_INFO
            else:
                observation, reward, terminated, truncated, info = env.step(action_[b])
                observation_[b], reward_[b] = observation, reward
                done = terminated or truncated
                if own_traj_info:
                    self._step_traj_info(t, b, reward, done, info)
                else:
                    traj_infos[b].step(None, None, reward, done, None, info)
                if done:
                    rows.terminated[t, b], rows.truncated[t, b] = terminated, truncated
                    self._end_episode(t, b, observation, info.get("traj_done", True), completed)
            if record_info is not None:
                rows.env_info[t, b] = record_info(info)
        return completed

    def wake(self) -> None:
        """Reset the environments that rest."""
        for b in np.flatnonzero(self._resting).tolist():
            self._progress.env_rank = self.envs[b].rank
            self.rows.after.observation[b] = self._reset_env(b)

    def _reset_env(self, b: int) -> Buffer:
        """Begin an episode, and return its first observation."""
        seed, self._seeds[b] = self._seeds[b], None
        self._progress.env_rank = self.envs[b].rank
        observation, _ = self.envs[b].reset(seed)
        self._ended[b] = False
        return observation

    def _saved_env(self, b: int) -> tuple[StateDict, str | None]:
        # One that waits for a reset with a seed, after a loss, may not have begun: it has no state, and needs none.
        waits = self._seeds[b] is not None
        return ({}, self.why_lost) if self.why_lost or waits else self.envs[b].saved_state()

    def _why_not_loaded(self, b: int, saved: StateDict) -> str | None:
        env = self.envs[b]
        if self.why_lost:
            return self.why_lost
        try:
            env.load_state_dict(saved)
        except StateError as error:
            return f"{env.name} (rank {env.rank}) cannot be restored: {error}."
        return None


class NativePart(LocalPart):
    """Vector environment: all its environments are stepped at once, and reset themselves.

    They do so in the step after the end of an episode. One that rests is stepped too, and its result is dropped; it is
    reset when it wakes. So with `wait_reset` the steps between the end of an episode and that of the batch are lost.
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
        self.env, self.why_lost = env, env.why_no_state()
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
            after.prev_action[:] = self.env.masks.legal(after.prev_action, ~ended)
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
            # A null action may be one that the environment forbids, which it is told of at rest too.
            self.env.send(self.env.masks.legal(action, self._null) if self.env.masks.in_rows else action)

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


def _write(dest: Buffer, src: Buffer, mask: np.ndarray) -> None:
    """Copy the rows of the mask, in every leaf."""
    for to, what in zip(buffer_leaves(dest), buffer_leaves(src), strict=True):
        to[mask] = what[mask]
