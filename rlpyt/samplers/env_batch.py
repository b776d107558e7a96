"""A batch of environments that fills its columns of the rows, wherever the environments are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.envs import EnvAdapter
from rlpyt.samplers.buffer import Rows
from rlpyt.spaces import EnvSpaces, null_action, null_value, random_value
from rlpyt.types import InfoDict, TrajInfo, traj_info_maker
from rlpyt.utils.arrays import buffer_leaves
from rlpyt.utils.seeds import Role, stream_seed


class CompletedTraj(NamedTuple):
    """A trajectory, and where it ended: by these, those of all workers are put in one order."""

    t: int
    rank: int
    traj_info: TrajInfo


class EnvBatch(ABC):
    """Environments that take the actions of row t and give the rest of it, and the observation of row t + 1.

    Row T of observation, action and reward is the one after the batch; who collects copies it to row 0. An
    environment stands still while its `rows.resting` is set; with `wait_reset`, from the end of an episode to `wake`.
    """

    rows: Rows
    ranks: list[int]
    """Global ranks of the environments, in the order of the rows' B dimension."""
    null_action: Any
    """What counts as the action before the first step, in row form."""
    waits_for: str
    """What `recv` spends its time on, for the measured breakdown: "environments" or "waiting"."""

    @abstractmethod
    def reset(self, seeds: Sequence[int] | None = None) -> None:
        """Begin a new game everywhere: first observations, null actions and zero rewards in row T."""

    @abstractmethod
    def send(self, t: int) -> None:
        """Take the actions of row t, without waiting where that can be had."""

    @abstractmethod
    def recv(self, t: int) -> list[CompletedTraj]:
        """Complete row t and write the observation of row t + 1; return the trajectories that ended with row t."""

    @abstractmethod
    def wake(self) -> None:
        """Reset the environments that rest, first observations to row T, without waiting where that can be had."""

    @abstractmethod
    def ready(self) -> None:
        """Wait until the environments that were woken are reset."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return where every environment and trajectory stands."""

    @abstractmethod
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; an environment that cannot is treated as lost."""


class LocalEnvs(EnvBatch):
    """What batches in this process share: the statistics of trajectories, and the notes of where they are.

    Args:
        spaces: of one environment.
        ranks: global ranks of the environments.
        rows: the memory of these environments only.
        TrajInfoCls: called once for every trajectory.
        traj_info_kwargs: its arguments, such as the discount.
        progress: int64 [3], where the environment (its rank), the step and the row at hand are noted for the master.
        wait_reset: whether an environment rests after the end of an episode until `wake`.
    """

    waits_for = "environments"

    def __init__(
        self,
        spaces: EnvSpaces,
        ranks: Sequence[int],
        rows: Rows,
        TrajInfoCls: Callable[..., TrajInfo] = TrajInfo,
        traj_info_kwargs: Mapping[str, Any] | None = None,
        progress: np.ndarray | None = None,
        wait_reset: bool = False,
    ) -> None:
        self.rows = rows
        self.ranks = list(ranks)
        self.T = len(rows.terminated)
        self._new_traj_info = traj_info_maker(TrajInfoCls, traj_info_kwargs)
        # Only a TrajInfo of the user's own reads all of a step, and slicing it costs as much as a cheap step.
        self._own_traj_info = type(self._new_traj_info()).step is not TrajInfo.step
        self._progress = np.zeros(3, np.int64) if progress is None else progress
        self._wait_reset = wait_reset
        self._resting = rows.resting[0]
        self.null_action, self._null_observation = null_action(spaces.action), null_value(spaces.observation)
        self._traj_infos = [self._new_traj_info() for _ in self.ranks]
        self._unlogged = np.zeros(len(self.ranks), bool)  # trajectories that began with random steps
        self._ended = np.zeros(len(self.ranks), bool)  # the row at hand holds a final observation
        self._game_goes_on = np.zeros(len(self.ranks), bool)  # after the last end of an episode
        self._last_seeds = [0] * len(self.ranks)  # which the environments were reset with

    @abstractmethod
    def decorrelate(self, max_steps: int, rngs: Sequence[np.random.Generator]) -> None:
        """Take 1 to `max_steps` random steps in every environment, which keeps them from moving in step at first.

        Trajectories that began with random steps are not logged: they say nothing about the agent.
        """

    @abstractmethod
    def begin_after_loss(self, seeds: Sequence[int]) -> None:
        """Treat the row at hand as the final one of episodes that were lost; the next row starts new ones."""

    def send(self, t: int) -> None:
        """Note the row at hand; the work is done in `recv`."""
        self._progress[1] += 1
        self._progress[2] = t

    def ready(self) -> None:
        """Nothing to wait for: here `wake` resets at once."""

    def _new_game_seed(self, b: int) -> int:
        """Return a seed for a reset that is to begin a new game: without one it may go on after a lost life."""
        self._last_seeds[b] = stream_seed(self._last_seeds[b], Role.EVAL_ENV)
        return self._last_seeds[b]

    def _begin_all(self) -> None:
        """Forget all trajectories, and write null actions and rewards into row T."""
        self._traj_infos = [self._new_traj_info() for _ in self.ranks]
        self._unlogged[:] = self._ended[:] = False
        self.rows.action[self.T], self.rows.reward[self.T] = self.null_action, 0.0

    def _begin_lost(self, b: int) -> None:
        """Forget a trajectory whose environment was lost."""
        self._traj_infos[b] = self._new_traj_info()
        self._unlogged[b], self._ended[b] = False, True

    def _null_row(self, t: int, b: int) -> None:
        """Write a row in which no step is taken."""
        rows = self.rows
        rows.action[t + 1, b], rows.reward[t + 1, b] = self.null_action, 0.0
        rows.terminated[t, b] = rows.truncated[t, b] = rows.valid[t, b] = False

    def _end_episode(self, t: int, b: int, observation: Any, traj_done: bool, completed: list[CompletedTraj]) -> None:
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

    def _shown(self, t: int) -> tuple[Any, Any, Any] | None:
        """Return what statistics see of the agent at row t: the observation before the step, action and agent_info."""
        rows = self.rows
        if not self._own_traj_info:
            return None
        return rows.observation[t], rows.action[t + 1], None if rows.agent_info is None else rows.agent_info[t]

    def _step_traj_info(
        self, shown: tuple[Any, Any, Any] | None, b: int, reward: float, done: bool, info: Mapping[str, Any]
    ) -> None:
        if shown is None:
            self._traj_infos[b].step(None, None, reward, done, None, info)
            return
        observation, action, agent_info = shown
        agent_info = None if agent_info is None else agent_info[b]
        self._traj_infos[b].step(observation[b], action[b], reward, done, agent_info, InfoDict(info))

    def _last_row(self) -> list[np.ndarray]:
        return [leaf[self.T] for leaf in buffer_leaves((self.rows.observation, self.rows.action, self.rows.reward))]

    def state_dict(self) -> dict[str, Any]:
        """Return where every trajectory stands, and the row after the batch."""
        return {
            "last_row": [torch.from_numpy(np.array(leaf)) for leaf in self._last_row()],
            "ended": self._ended.tolist(),
            "resting": self._resting.tolist(),
            "unlogged": self._unlogged.tolist(),
            "traj_infos": [deepcopy(vars(info)) for info in self._traj_infos],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        for leaf, saved in zip(self._last_row(), state_dict["last_row"], strict=True):
            leaf[...] = saved.numpy()
        self._ended[:], self._unlogged[:] = state_dict["ended"], state_dict["unlogged"]
        self._resting[:] = state_dict["resting"]
        for info, saved in zip(self._traj_infos, state_dict["traj_infos"], strict=True):
            vars(info).clear()  # an attribute that comes with the first step may be there, and not in the saved
            vars(info).update(deepcopy(saved))


class EnvList(LocalEnvs):
    """A Python list of environments, stepped one after the other.

    Args:
        envs: the environments, in the order of the rows' B dimension.
        rows: see `LocalEnvs`.
        record_info: turns an info dictionary into a value of `rows.env_info`; None where nothing is recorded.
        **kwargs: see `LocalEnvs`.
    """

    def __init__(
        self,
        envs: Sequence[EnvAdapter],
        rows: Rows,
        record_info: Callable[[Mapping[str, Any]], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(envs[0].spaces, [env.rank for env in envs], rows, **kwargs)
        self.envs = list(envs)
        self._record_info = record_info
        self._seeds: list[int | None] = [None] * len(self.envs)  # of an environment's next reset

    def reset(self, seeds: Sequence[int] | None = None) -> None:
        """Begin a new game everywhere."""
        goes_on = self._ended & self._game_goes_on
        self._begin_all()
        if seeds is not None:
            self._seeds, self._last_seeds = list(seeds), list(seeds)
        for b in range(len(self.envs)):
            if goes_on[b] and self._seeds[b] is None:
                self._seeds[b] = self._new_game_seed(b)
            self.rows.observation[self.T, b] = self._reset_env(b)[0]

    def decorrelate(self, max_steps: int, rngs: Sequence[np.random.Generator]) -> None:
        """Take random steps, as many in each environment as its generator says."""
        rows, T = self.rows, self.T
        for b, (env, rng) in enumerate(zip(self.envs, rngs, strict=True)):
            observation, action, reward = rows.observation[T, b], self.null_action, 0.0
            for _ in range(int(rng.integers(1, max_steps + 1))):
                self._unlogged[b] = True
                self._progress[0] = env.rank
                self._progress[1] += 1
                action = random_value(env.action_space, rng)
                observation, reward, terminated, truncated, info = env.step(action)
                if terminated or truncated:
                    self._unlogged[b] = not info.get("traj_done", True)
                    observation, _ = self._reset_env(b)
                    action, reward = self.null_action, 0.0
            rows.observation[T, b], rows.action[T, b], rows.reward[T, b] = observation, action, reward

    def recv(self, t: int) -> list[CompletedTraj]:
        """Take row t's actions in all environments; where an episode ended a row ago, start the next one."""
        rows, ended, resting, progress = self.rows, self._ended, self._resting, self._progress
        observation_, action_, reward_ = rows.observation[t + 1], rows.action[t + 1], rows.reward[t + 1]
        terminated_, truncated_, valid_ = rows.terminated[t], rows.truncated[t], rows.valid[t]
        completed: list[CompletedTraj] = []
        shown = self._shown(t)
        for b, env in enumerate(self.envs):
            progress[0] = env.rank
            if ended[b] or resting[b]:
                self._null_row(t, b)
                observation_[b], info = (self._null_observation, {}) if resting[b] else self._reset_env(b)
            else:
                observation, reward, terminated, truncated, info = env.step(action_[b])
                observation_[b], reward_[b], valid_[b] = observation, reward, True
                terminated_[b], truncated_[b] = terminated, truncated
                done = terminated or truncated
                self._step_traj_info(shown, b, reward, done, info)
                if done:
                    self._end_episode(t, b, observation, info.get("traj_done", True), completed)
            if self._record_info is not None:
                rows.env_info[t, b] = self._record_info(info)
        return completed

    def wake(self) -> None:
        """Reset the environments that rest."""
        for b in np.flatnonzero(self._resting).tolist():
            self._progress[0] = self.envs[b].rank
            self.rows.observation[self.T, b] = self._reset_env(b)[0]

    def begin_after_loss(self, seeds: Sequence[int]) -> None:
        """Treat the row at hand as final; the resets that follow take these seeds."""
        for b in range(len(self.envs)):
            self._begin_lost(b)
        self._seeds, self._last_seeds = list(seeds), list(seeds)

    def _reset_env(self, b: int) -> tuple[Any, Mapping[str, Any]]:
        seed, self._seeds[b] = self._seeds[b], None
        self._progress[0] = self.envs[b].rank
        observation, _ = self.envs[b].reset(seed)
        self._ended[b] = False
        return observation, {}

    def state_dict(self) -> dict[str, Any]:
        """Return where every environment and trajectory stands."""
        return {**super().state_dict(), "envs": [env.state_dict() for env in self.envs], "seeds": list(self._seeds)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self._seeds = list(state_dict["seeds"])
        for b, (env, saved) in enumerate(zip(self.envs, state_dict["envs"], strict=True)):
            env.load_state_dict(saved)
            if not saved:
                self._begin_lost(b)
