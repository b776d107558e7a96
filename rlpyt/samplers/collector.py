"""The collector: the one loop that fills a batch of rows with an agent in a list of environments.

Its own cost is one Python call per time step and a few microseconds per row (`benchmarks/collector.py` measures
it); everything is written straight into the batch's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.envs import EnvAdapter
from rlpyt.samplers.buffer import Rows, agent_inputs_of
from rlpyt.spaces import null_value, random_value
from rlpyt.types import TrajInfo
from rlpyt.utils.arrays import buffer_leaves, torchify_buffer


class CompletedTraj(NamedTuple):
    """A trajectory, and where it ended: by these, those of all workers are put in one order."""

    t: int
    rank: int
    traj_info: TrajInfo


class Collector:
    """Steps a list of environments with an agent, batch after batch.

    Args:
        envs: the environments, in the order of the rows' B dimension.
        agent: in charge of them (`agent.collector_initialize` was called with their ranks).
        rows: the batch's memory, for these environments only.
        TrajInfoCls: called once for every trajectory.
        traj_info_kwargs: its arguments, such as the discount.
        record_info: turns an info dictionary into a value of `rows.env_info`; None where nothing is recorded.
        progress: int64 [2], where the collector notes the environment (its rank) and step it is at, for the master.
    """

    def __init__(
        self,
        envs: Sequence[EnvAdapter],
        agent: Any,
        rows: Rows,
        TrajInfoCls: Callable[..., TrajInfo] = TrajInfo,
        traj_info_kwargs: Mapping[str, Any] | None = None,
        record_info: Callable[[Mapping[str, Any]], Any] | None = None,
        progress: np.ndarray | None = None,
    ) -> None:
        self.envs = list(envs)
        self.agent = agent
        self.rows = rows
        self.T = len(rows.terminated)
        self._new_traj_info = lambda: TrajInfoCls(**(traj_info_kwargs or {}))
        # Only a TrajInfo of the user's own may want the agent's info, and slicing it costs as much as a cheap step.
        own_step = type(self._new_traj_info()).step is not TrajInfo.step
        self._slice_agent_info = own_step and rows.agent_info is not None
        self._record_info = record_info
        self._progress = np.zeros(2, np.int64) if progress is None else progress
        self._null_action = null_value(self.envs[0].action_space)
        self._traj_infos: list[TrajInfo] = []
        self._unlogged = np.zeros(len(self.envs), bool)  # trajectories that began with random steps
        self._ended = np.zeros(len(self.envs), bool)  # the row at hand holds a final observation
        # Views made once: a torch index costs more than an environment step of CartPole.
        self._inputs = agent_inputs_of(rows)
        action, agent_info = (buffer_leaves(torchify_buffer(x)) for x in (rows.action, rows.agent_info))
        self._action_out = [[leaf[t + 1] for leaf in action] for t in range(self.T)]
        self._agent_info_out = [[leaf[t] for leaf in agent_info] for t in range(self.T)]

    def start(self, seeds: Sequence[int], max_decorrelation_steps: int, rngs: Sequence[np.random.Generator]) -> None:
        """Reset all environments with their seeds, and let each take a random number of random steps.

        The steps keep environments from moving in step with each other at first. Trajectories that began with them are
        not logged: they say nothing about the agent.

        Args:
            seeds: one an environment.
            max_decorrelation_steps: the most random steps; 0 for none.
            rngs: one an environment, for the number of steps and the actions.
        """
        rows, T = self.rows, self.T
        self._traj_infos = [self._new_traj_info() for _ in self.envs]
        for b, (env, seed, rng) in enumerate(zip(self.envs, seeds, rngs, strict=True)):
            self._progress[0] = env.rank
            observation, _ = env.reset(seed)
            action, reward, n_steps = self._null_action, 0.0, 0
            if max_decorrelation_steps > 0:
                n_steps = int(rng.integers(1, max_decorrelation_steps + 1))
            for _ in range(n_steps):
                self._unlogged[b] = True
                self._progress[1] += 1
                action = random_value(env.action_space, rng)
                observation, reward, terminated, truncated, info = env.step(action)
                if terminated or truncated:
                    self._unlogged[b] = not info.get("traj_done", True)
                    observation, _ = env.reset()
                    action, reward = self._null_action, 0.0
            rows.observation[T, b], rows.action[T, b], rows.reward[T, b] = observation, action, reward

    @torch.no_grad()  # not inference_mode, in which autocast casts the weights again at every step: 1.4 ms to 1.0 ms
    def collect_batch(self, itr: int) -> list[CompletedTraj]:
        """Fill the rows and return the trajectories that were completed, in the order in which they were."""
        rows, agent = self.rows, self.agent
        for all_rows in (rows.observation, rows.action, rows.reward):
            all_rows[0] = all_rows[-1]
        completed: list[CompletedTraj] = []
        agent.sample_mode(itr)
        with agent.autocast():
            for t in range(self.T):
                action, agent_info = agent.step(*self._inputs[t])
                _copy_leaves(self._action_out[t], action)
                _copy_leaves(self._agent_info_out[t], agent_info)
                self._progress[1] += 1
                self._step_envs(t, agent_info, completed)
            if rows.bootstrap_value is not None:
                rows.bootstrap_value[0] = agent.value(*self._inputs[self.T])
        return completed

    def _step_envs(self, t: int, agent_info: Any, completed: list[CompletedTraj]) -> None:
        """Take row t's actions in all environments; where an episode ended a row ago, start the next one."""
        rows, ended, progress = self.rows, self._ended, self._progress
        observation_, action_, reward_ = rows.observation[t + 1], rows.action[t + 1], rows.reward[t + 1]
        terminated_, truncated_, valid_ = rows.terminated[t], rows.truncated[t], rows.valid[t]
        for b, env in enumerate(self.envs):
            progress[0] = env.rank
            if ended[b]:
                action_[b], reward_[b], terminated_[b], truncated_[b], valid_[b] = self._null_action, 0, 0, 0, 0
                observation_[b], _ = env.reset()
                info: Mapping[str, Any] = {}
                ended[b] = False
                self.agent.reset_one(b)
            else:
                action = action_[b]
                observation, reward, terminated, truncated, info = env.step(action)
                observation_[b], reward_[b], valid_[b] = observation, reward, True
                terminated_[b], truncated_[b] = terminated, truncated
                done = terminated or truncated
                traj_info = self._traj_infos[b]
                traj_info.step(
                    observation, action, reward, done, agent_info[b] if self._slice_agent_info else None, info
                )
                if done:
                    ended[b] = True
                    if info.get("traj_done", True):
                        self._end_trajectory(t, b, observation, completed)
            if self._record_info is not None:
                rows.env_info[t, b] = self._record_info(info)

    def _end_trajectory(self, t: int, b: int, observation: Any, completed: list[CompletedTraj]) -> None:
        traj_info = self._traj_infos[b].terminate(observation)
        if not self._unlogged[b]:
            completed.append(CompletedTraj(t, self.envs[b].rank, traj_info))
        self._unlogged[b] = False
        self._traj_infos[b] = self._new_traj_info()

    def state_dict(self) -> dict[str, Any]:
        """Return where every environment and trajectory stands."""
        last = (self.rows.observation[self.T], self.rows.action[self.T], self.rows.reward[self.T])
        return {
            "last_row": [torch.from_numpy(np.array(leaf)) for leaf in buffer_leaves(last)],
            "ended": self._ended.tolist(),
            "unlogged": self._unlogged.tolist(),
            "traj_infos": [deepcopy(vars(info)) for info in self._traj_infos],
            "envs": [env.state_dict() for env in self.envs],
            "agent": self.agent.group_state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        last = (self.rows.observation[self.T], self.rows.action[self.T], self.rows.reward[self.T])
        for leaf, saved in zip(buffer_leaves(last), state_dict["last_row"], strict=True):
            leaf[...] = saved.numpy()
        self._ended[:], self._unlogged[:] = state_dict["ended"], state_dict["unlogged"]
        for info, saved in zip(self._traj_infos, state_dict["traj_infos"], strict=True):
            vars(info).clear()  # an attribute that comes with the first step may be there, and not in the saved
            vars(info).update(deepcopy(saved))
        for env, saved in zip(self.envs, state_dict["envs"], strict=True):
            env.load_state_dict(saved)
        self.agent.load_group_state_dict(state_dict["agent"])


def _copy_leaves(out: list[torch.Tensor], buffer: Any) -> None:
    for dest, src in zip(out, buffer_leaves(buffer), strict=True):
        dest.copy_(src)
