"""Tasks of EnvPool (Atari, MuJoCo, Procgen, MiniGrid and more), which its threads step together."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlpyt.envs.base import Reset, VectorStep, meant
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import FrameStack
from rlpyt.types import Info
from rlpyt.utils.processes import available_cores


def envpool_make_vec(
    task_id: str, num_envs: int, num_threads: int | None = None, seed: int | None = None, **env_kwargs: Any
) -> EnvPoolVec:
    """Return a vector environment of an EnvPool task.

    Args:
        task_id: a name of `envpool.list_all_envs()`, such as "Pong-v5" or "HalfCheetah-v4".
        num_envs: number of environments.
        num_threads: threads that step them; by default one for each, at most one for each core of this process.
        seed: of the environments (`seed`, `seed + 1`, ...) until `reset` is called with seeds, as samplers do; by
            default a random one.
        **env_kwargs: options of the task, which EnvPool checks. The defaults are those of EnvPool. For Atari they
            differ from `AtariEnv`: `episodic_life=False`, `reward_clip=False` and `use_fire_reset=True`.

    Raises:
        ImportError: if EnvPool is not installed.
        ValueError: if there is no such task, or not all environments would be stepped together.
        TypeError: if the task has no such option.
    """
    try:
        envpool: Any = import_module("envpool")
    except ImportError as error:
        raise ImportError("envpool_make_vec needs EnvPool: pip install rlpyt[envpool].") from error
    tasks = envpool.list_all_envs()
    if task_id not in tasks:
        likely = meant(task_id, tasks, "see envpool.list_all_envs()")
        raise ValueError(f"envpool_make_vec: there is no task {task_id!r}; {likely}.")
    if env_kwargs.get("batch_size", num_envs) not in (0, num_envs) or env_kwargs.get("max_num_players", 1) != 1:
        raise ValueError(
            f"envpool_make_vec: a sampler steps all environments at once, each with one player; got {num_envs} "
            f"environments and {env_kwargs}. Leave out batch_size and max_num_players."
        )
    threads = min(num_envs, available_cores()) if num_threads is None else num_threads
    return EnvPoolVec(envpool, task_id, seed, {"num_envs": num_envs, "num_threads": threads, **env_kwargs})


class EnvPoolVec(VectorEnv[Any, Any, Any]):
    """Vector environment of EnvPool, made at its first `reset`, as EnvPool takes seeds only when it is made.

    `reset` with seeds makes a new pool. Environment b then has the stream of its seed, for any number of environments.

    For Atari, `info` has arrays [B]: `game_score` (float64, the raw reward), `traj_done` (bool, False where a lost life
    ends the episode and the game continues) and `lives` (int32). In the row after a lost life (`episodic_life=True`)
    EnvPool plays its no-ops and FIRE within the same game, and gives no score of them. If the game ends in them, the
    next game begins without a sign and counts to the same trajectory. `reset` starts new games, also with a mask. For
    other tasks `info` is that of EnvPool without the numbers of the environments.

    Args:
        envpool: the module.
        task_id: name of the task.
        seed: of the environments, until `reset` is called with seeds.
        options: arguments of the pool.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, envpool: Any, task_id: str, seed: int | None, options: dict[str, Any]) -> None:
        self._envpool, self._options, self._seed = envpool, options, seed
        self.task_id, self.spec = task_id, EnvSpec(task_id)
        self._pool: Any = None
        self.num_envs = options["num_envs"]
        with warnings.catch_warnings():
            # gymnasium warns of every bound in float64 for values in float32.
            warnings.simplefilter("ignore", UserWarning)
            spec = envpool.make_spec(task_id, **options)
            self.single_observation_space = spec.gymnasium_observation_space
            if "stack_num" in spec.config._fields:
                self.single_observation_space = FrameStack.of(self.single_observation_space, spec.config.stack_num)
            self.single_action_space = spec.gymnasium_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Start episodes.

        Args:
            seed: one for each environment, or one for the first, counted up for the others; makes a new pool.
            options: with `reset_mask`, bool [B], only these start, and only their rows are meaningful.

        Returns:
            observation [B, ...], info.
        """
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            if seed is not None or self._pool is None:
                raise ValueError(f"{self.task_id}: reset_mask goes without a seed, and after a reset of all.")
            observation, info = self._pool.reset(np.flatnonzero(mask).astype(np.int32))
        else:
            if seed is not None or self._pool is None:
                self._make_pool(seed)
            observation, info = self._pool.reset()
        return self._in_order(observation, info["env_id"]), self._info(info, np.zeros(len(info["env_id"]), bool))

    def step(self, actions: Buffer) -> VectorStep:
        """Take one step in every environment; see `send` and `recv`."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Buffer) -> None:
        """Let the threads step. EnvPool does not check the range of actions."""
        self._pool.send(actions)

    def recv(self) -> VectorStep:
        """Wait for all environments.

        Returns:
            observation [B, ...], reward float32 [B], terminated bool [B], truncated bool [B], info.
        """
        observation, *row, info = self._pool.recv()
        order = info["env_id"]
        reward, terminated, truncated = (self._in_order(x, order) for x in row)
        reward = np.asarray(reward, np.float32)
        return self._in_order(observation, order), reward, terminated, truncated, self._info(info, row[2])

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _make_pool(self, seed: int | list[int] | None) -> None:
        seed = self._seed if seed is None else seed
        if seed is None:
            seed = int(self.np_random.integers(2**30))
        seeds = [seed + b for b in range(self.num_envs)] if isinstance(seed, int) else list(seed)
        self.close_extras()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self._pool = self._envpool.make_gymnasium(self.task_id, seed=seeds, **self._options)
            _ = self._pool.observation_space  # it is made, with its warnings, when it is first used

    def _info(self, info: Info, truncated: np.ndarray) -> dict[str, Any]:
        """Return the info for samplers; `info["terminated"]` of EnvPool tells the end of a game from that of a life."""
        if {"lives", "reward", "terminated"} <= info.keys():
            kept = {
                "game_score": info["reward"].astype(np.float64),
                "traj_done": info["terminated"].astype(bool) | truncated,
                "lives": info["lives"],
            }
        else:
            kept = {key: value for key, value in info.items() if key not in ("env_id", "players")}
        ordered: dict[str, Any] = self._in_order(kept, info["env_id"])
        return ordered

    def _in_order(self, values: Any, env_ids: np.ndarray) -> Buffer:
        """Put the values of some environments, in any order, into their places; the others are zero."""
        if isinstance(values, dict):
            return {key: self._in_order(value, env_ids) for key, value in values.items()}
        if isinstance(values, tuple):
            return tuple(self._in_order(value, env_ids) for value in values)
        if len(env_ids) == self.num_envs and (env_ids[:-1] < env_ids[1:]).all():
            return values
        placed = np.zeros((self.num_envs, *values.shape[1:]), values.dtype)
        placed[env_ids] = values
        return placed
