"""Parts of a fleet: environments that are stepped together and fill their columns of the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.envs import EnvAdapter
from rlpyt.envs.state_data import StateError
from rlpyt.logging import current_logger
from rlpyt.namedarraytuple import Buffer
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.states import AsBuilt, Loaded, dealt, piece, restore_info, saved_info, why_no_state
from rlpyt.spaces import EnvSpaces, null_action, null_value, random_value
from rlpyt.types import Info, InfoDict, StateDict, TrajInfo
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


class Part(ABC):
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
    def wake(self) -> None:
        """Reset the environments that rest, without waiting where that is possible.

        Their first observations stand in the row after the batch.
        """

    @abstractmethod
    def ready(self) -> None:
        """Wait until the environments that were woken are reset."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return where every environment and trajectory stands."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> Loaded | None:
        """Take over what `state_dict` returned, of any parts; an environment that cannot is treated as lost.

        Returns:
            What was lost; None says nothing.
        """

    def why_no_state(self) -> str | None:
        """Return why an environment has no state; None if all have one."""
        return why_no_state(self.state_dict())


class LocalPart(Part):
    """Part in this process: it holds the statistics of trajectories, and notes its progress.

    Args:
        spaces: of one environment.
        ranks: global ranks of the environments.
        rows: the memory of these environments only.
        new_traj_info: makes the statistics of a trajectory.
        progress: where the environment, the step and the row at hand are noted for the master.
        wait_reset: whether an environment rests after the end of an episode until `wake`.
    """

    waits_for = "environments"

    def __init__(
        self,
        spaces: EnvSpaces,
        ranks: Sequence[int],
        rows: Rows,
        new_traj_info: Callable[[], TrajInfo] = TrajInfo,
        progress: Progress | None = None,
        wait_reset: bool = False,
    ) -> None:
        self.rows = rows
        self.ranks = list(ranks)
        self._new_traj_info = new_traj_info
        # Only a TrajInfo of the user's own reads all of a step, and slicing it costs as much as a cheap step.
        self._own_traj_info = type(self._new_traj_info()).step is not TrajInfo.step
        self._progress = progress or Progress()
        self._wait_reset = wait_reset
        self._resting = rows.resting
        self.null_action, self._null_observation = null_action(spaces.action), null_value(spaces.observation)
        self._traj_infos = [self._new_traj_info() for _ in self.ranks]
        self._unlogged = np.zeros(len(self.ranks), bool)  # trajectories that began with random steps
        self._ended = np.zeros(len(self.ranks), bool)  # the row at hand holds a final observation
        self._game_goes_on = np.zeros(len(self.ranks), bool)  # after the last end of an episode

    @abstractmethod
    def decorrelate(self, max_steps: int, rngs: Sequence[np.random.Generator]) -> None:
        """Take 1 to `max_steps` random steps in every environment, so that their episodes do not end together.

        Trajectories that began with random steps are not logged: they say nothing about the agent.
        """

    @abstractmethod
    def begin_after_loss(self, seeds: Sequence[int]) -> None:
        """Treat the row at hand as the final one of episodes that were lost; the next row starts new ones."""

    def send(self, t: int) -> None:
        """Note the row at hand; the work is done in `recv`."""
        self._progress.step += 1
        self._progress.row = t

    def ready(self) -> None:
        """Nothing to wait for: here `wake` resets at once."""

    def _begin_all(self) -> None:
        """Forget all trajectories, and write null actions and rewards into the row after the batch."""
        self._traj_infos = [self._new_traj_info() for _ in self.ranks]
        self._unlogged[:] = self._ended[:] = False
        after = self.rows.after
        after.prev_action[:], after.prev_reward[:] = self.null_action, 0.0

    def _begin_lost(self, b: int) -> None:
        """Forget a trajectory whose environment was lost."""
        self._traj_infos[b] = self._new_traj_info()
        self._unlogged[b], self._ended[b] = False, True

    def _null_row(self, t: int, b: int) -> None:
        """Write a row in which no step is taken."""
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
        """Let the statistics of the user's own class see all of row t."""
        rows = self.rows
        agent_info = None if rows.agent_info is None else rows.agent_info[t, b]
        self._traj_infos[b].step(rows.observation[t, b], rows.action[t, b], reward, done, agent_info, InfoDict(info))

    def state_dict(self) -> StateDict:
        """Return where every environment and trajectory stands, and the row after the batch."""
        infos = [saved_info(info) for info in self._traj_infos]
        state = {
            "last_row": [torch.from_numpy(np.array(leaf)) for leaf in buffer_leaves(self.rows.after)],
            "ended": self._ended.tolist(),
            "resting": self._resting.tolist(),
            "unlogged": self._unlogged.tolist(),
            "traj_infos": [info for info, _ in infos],
            "why": [why for _, why in infos],
            "envs": [{} for _ in self.ranks],
            "seeds": [None for _ in self.ranks],
        }
        return {"parts": [piece(self.ranks, self.with_envs(state))]}

    @abstractmethod
    def with_envs(self, state: dict[str, list[object]]) -> StateDict:
        """Return the state of trajectories with that of the environments, or why these have none."""

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Take over what `state_dict` returned, for other parts too."""
        state = dealt(state_dict["parts"], self.ranks)
        for leaf, saved in zip(buffer_leaves(self.rows.after), state["last_row"], strict=True):
            leaf[...] = saved.numpy()
        self._ended[:], self._unlogged[:] = state["ended"], state["unlogged"]
        self._resting[:] = state["resting"]
        self._traj_infos = [self._new_traj_info() for _ in self.ranks]
        for b, saved in enumerate(state["traj_infos"]):
            # Statistics without a state begin in the middle of a trajectory, and say nothing.
            self._unlogged[b] |= not restore_info(self._traj_infos[b], saved)
        return self.load_envs(state, [state_dict["new_seeds"][rank] for rank in self.ranks])

    @abstractmethod
    def load_envs(self, state: StateDict, new_seeds: Sequence[int]) -> Loaded:
        """Restore the environments, after all else; those that cannot be are reset by the new seeds."""


class ListPart(LocalPart):
    """Python list of environments, stepped one after the other.

    Args:
        envs: the environments, in the order of the rows' B dimension.
        rows: see `LocalPart`.
        record_info: turns an info dictionary into a value of `rows.env_info`; None where nothing is recorded.
        new_traj_info: see `LocalPart`.
        progress: see `LocalPart`.
        wait_reset: see `LocalPart`.
    """

    def __init__(
        self,
        envs: Sequence[EnvAdapter],
        rows: Rows,
        record_info: Callable[[Info], Buffer] | None = None,
        new_traj_info: Callable[[], TrajInfo] = TrajInfo,
        progress: Progress | None = None,
        wait_reset: bool = False,
    ) -> None:
        super().__init__(envs[0].spaces, [env.rank for env in envs], rows, new_traj_info, progress, wait_reset)
        self.envs = list(envs)
        self._record_info = record_info
        self._seeds: list[int | None] = [None] * len(self.envs)  # of an environment's next reset
        self.why_lost: str | None = None
        """Why a state that can be read is not the whole one, as the check has found; it is neither saved nor loaded."""
        self.as_built: list[AsBuilt] = []
        """What `reset` sets the environments back to first; empty for those of training, which go on."""
        self._said_not_set_back = False

    def reset(self, seeds: Sequence[int] | None) -> None:
        """Begin a new game everywhere."""
        self._begin_all()
        if seeds is not None:
            self._seeds = list(seeds)
        why = next(filter(None, [as_built.set_back() for as_built in self.as_built]), None)
        if why is not None and not self._said_not_set_back:
            self._said_not_set_back = True
            current_logger().warn(f"{why} Its evaluations may depend on those before.")
        for b in range(len(self.envs)):
            self.rows.after.observation[b] = self._reset_env(b)

    def decorrelate(self, max_steps: int, rngs: Sequence[np.random.Generator]) -> None:
        """Take random steps, as many in each environment as its generator says."""
        after = self.rows.after
        for b, (env, rng) in enumerate(zip(self.envs, rngs, strict=True)):
            observation, action, reward = after.observation[b], self.null_action, 0.0
            for _ in range(int(rng.integers(1, max_steps + 1))):
                self._unlogged[b] = True
                self._progress.env_rank = env.rank
                self._progress.step += 1
                action = random_value(env.action_space, rng)
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

    def begin_after_loss(self, seeds: Sequence[int]) -> None:
        """Treat the row at hand as final; the resets that follow take these seeds."""
        for b in range(len(self.envs)):
            self._begin_lost(b)
        self._seeds = list(seeds)

    def _reset_env(self, b: int) -> Buffer:
        """Begin an episode, and return its first observation."""
        seed, self._seeds[b] = self._seeds[b], None
        self._progress.env_rank = self.envs[b].rank
        observation, _ = self.envs[b].reset(seed)
        self._ended[b] = False
        return observation

    def with_envs(self, state: dict[str, list[object]]) -> StateDict:
        """Return the state of trajectories with that of the environments."""
        state["seeds"] = list(self._seeds)
        for b, env in enumerate(self.envs):
            # One that waits for a reset with a seed, after a loss, may not have begun: it has no state, and needs none.
            if self._seeds[b] is None:
                state["envs"][b], why = ({}, self.why_lost) if self.why_lost else env.saved_state()
                state["why"][b] = why or state["why"][b]
        return state

    def load_envs(self, state: StateDict, new_seeds: Sequence[int]) -> Loaded:
        """Restore the environments; those that cannot be are lost, and take the new seeds."""
        self._seeds = list(state["seeds"])
        n_cut, reasons = 0, list[str]()
        for b, (env, saved) in enumerate(zip(self.envs, state["envs"], strict=True)):
            why = self.why_lost or _why_not_loaded(env, saved)
            if saved and why is None:
                continue
            if self._seeds[b] is None:
                self._seeds[b] = new_seeds[b]
                n_cut += not (self._ended[b] or self._resting[b])
                reasons.append(why or state["why"][b] or f"{env.name} was saved without a state.")
            self._begin_lost(b)
        return Loaded(n_cut, tuple(reasons[:1]))


def _why_not_loaded(env: EnvAdapter, saved: StateDict) -> str | None:
    """Load the state of an environment; return why that cannot be done in one that has just begun."""
    try:
        env.load_state_dict(saved)
    except StateError as error:
        return f"{env.name} (rank {env.rank}) cannot be restored: {error}."
    return None
