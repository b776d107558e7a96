"""Honest evaluation: a fixed quota of whole episodes for every environment, so that short episodes are not favoured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlpyt.core import EvalResult
from rlpyt.envs import EnvAdapter, make_env
from rlpyt.spaces import null_value
from rlpyt.types import AgentInputs, TrajInfo
from rlpyt.utils.arrays import buffer_from_example, buffer_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.seeds import Role, stream_seed

NO_LIMIT = 2**62
"""Steps an evaluation takes at most where no limit was set."""


def quotas(n_envs: int, max_trajectories: int | None) -> list[int | None]:
    """Return how many episodes every environment runs: an even share of `max_trajectories`, or None for no limit."""
    if max_trajectories is None:
        return [None] * n_envs
    share, rest = divmod(max_trajectories, n_envs)
    return [share + (i < rest) for i in range(n_envs)]


def evaluate(
    agent: Any,
    EnvCls: Callable[..., Any],
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    n_trajectories: int = 100,
    n_envs: int = 10,
    TrajInfoCls: Callable[..., TrajInfo] = TrajInfo,
    seed: int = 0,
) -> EvalResult:
    """Run whole episodes of an agent that was trained or loaded, without a sampler.

        agent.initialize(make_env(EnvCls, env_kwargs).spaces)
        agent.load_state_dict(load_snapshot(path)["agent_state_dict"])
        evaluate(agent, EnvCls, env_kwargs)

    Args:
        agent: initialised for the environment's spaces.
        EnvCls: as a sampler's.
        env_kwargs: its arguments.
        n_trajectories: episodes, dealt evenly to the environments.
        n_envs: environments, all in this process.
        TrajInfoCls: the statistics of an episode.
        seed: of environments and actions.

    Raises:
        ValueError: if there is nothing to run.
    """
    if n_trajectories < 1 or n_envs < 1:
        raise ValueError(
            f"evaluate: n_trajectories is {n_trajectories} and n_envs is {n_envs}; expected at least 1 of each."
        )
    n_envs = min(n_envs, n_trajectories)
    envs: list[EnvAdapter] = []
    try:
        for rank in range(n_envs):
            envs.append(make_env(EnvCls, env_kwargs or {}, rank))
        agent.collector_initialize(n_envs, range(n_envs), seed, evaluation=True)
        evaluator = Evaluator(envs, agent, quotas(n_envs, n_trajectories), NO_LIMIT, TrajInfoCls)
        evaluator.start([stream_seed(seed, Role.EVAL_ENV, rank) for rank in range(n_envs)])
        return evaluator.evaluate(itr=1)
    finally:
        for env in envs:
            env.close()


class Evaluator:
    """Runs an agent in evaluation environments of its own.

    Args:
        envs: the environments.
        agent: in charge of them for evaluation.
        env_quotas: episodes of every environment; None runs on until `max_T`.
        max_T: steps that each environment takes at most.
        TrajInfoCls: called once for every trajectory.
        traj_info_kwargs: its arguments.
        progress: int64 [2], where the evaluator notes the environment (its rank) and step it is at.
    """

    def __init__(
        self,
        envs: Sequence[EnvAdapter],
        agent: Any,
        env_quotas: Sequence[int | None],
        max_T: int,
        TrajInfoCls: Callable[..., TrajInfo] = TrajInfo,
        traj_info_kwargs: Mapping[str, Any] | None = None,
        progress: np.ndarray | None = None,
    ) -> None:
        self.envs = list(envs)
        self.agent = agent
        self._quotas = list(env_quotas)
        self._max_T = max_T
        self._new_traj_info = lambda: TrajInfoCls(**(traj_info_kwargs or {}))
        self._progress = np.zeros(2, np.int64) if progress is None else progress
        spaces = self.envs[0].spaces
        self._null_action = null_value(spaces.action)
        example = AgentInputs(null_value(spaces.observation), self._null_action, np.float32(0))
        self._row = buffer_from_example(example, len(self.envs))
        self._inputs = torchify_buffer(self._row)
        self._seeds: list[int] | None = None

    def start(self, seeds: Sequence[int]) -> None:
        """Set the seeds that the first evaluation resets its environments with; later ones go on from there."""
        self._seeds = list(seeds)

    @torch.no_grad()
    def evaluate(self, itr: int) -> EvalResult:
        """Run every environment's quota of episodes."""
        agent, row = self.agent, self._row
        agent.eval_mode(itr)
        completed: list[TrajInfo] = []
        left = list(self._quotas)
        active = [b for b, quota in enumerate(left) if quota != 0]
        traj_infos = [self._new_traj_info() for _ in self.envs]
        for b in active:
            row[b] = (self._reset(b), self._null_action, 0.0)
        steps = 0
        with agent.autocast():
            for _ in range(self._max_T):
                if not active:
                    break
                action, agent_info = agent.step(*self._inputs)
                for dest, src in zip(buffer_leaves(row.prev_action), buffer_leaves(action), strict=True):
                    dest[...] = numpify_buffer(src)
                self._progress[1] += 1
                steps += len(active)
                for b in list(active):
                    if self._step_env(b, agent_info, traj_infos):
                        completed.append(traj_infos[b])
                        traj_infos[b] = self._new_traj_info()
                        left[b] = None if left[b] is None else left[b] - 1  # type: ignore[operator]
                        if left[b] == 0:
                            active.remove(b)
        self._seeds = None
        unfinished = sum(1 if quota is None else quota for quota in left)
        return EvalResult(completed, steps, unfinished)

    def _reset(self, b: int) -> Any:
        return self.envs[b].reset(self._seeds[b] if self._seeds is not None else None)[0]

    def _step_env(self, b: int, agent_info: Any, traj_infos: list[TrajInfo]) -> bool:
        """Step one environment; return whether its trajectory ended."""
        row, env = self._row, self.envs[b]
        self._progress[0] = env.rank
        action = row.prev_action[b]
        observation, reward, terminated, truncated, info = env.step(action)
        done = terminated or truncated
        traj_infos[b].step(observation, action, reward, done, None if agent_info is None else agent_info[b], info)
        traj_done = done and info.get("traj_done", True)
        row.prev_reward[b] = reward
        if traj_done:
            traj_infos[b] = traj_infos[b].terminate(observation)
        if done:
            observation = env.reset()[0]
            row.prev_action[b], row.prev_reward[b] = self._null_action, 0.0
            self.agent.reset_one(b)
        row.observation[b] = observation
        return traj_done
