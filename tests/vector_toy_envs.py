"""The toy environments of `tests.toy_envs` as native vector environments: the same numbers, n at a time.

They speak in the ways that real ones do: `CountingVectorEnv` has `send` and `recv` and gives info as plain arrays (as
ale-py and EnvPool do), `DictCountingVectorEnv` has only `step` and gives info with gymnasium's `_key` masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from tests.toy_envs import LENGTHS, CountingEnv, DictCountingEnv, FaultyEnv, LifeEnv


class ToyVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps toy environments in turn; in the step after the end of an episode one is reset instead, or in another mode.

    Seeds are a list of Python ints, one for each environment, also with a `reset_mask`.

    Args:
        envs: the environments.
        info_example: zeros of what an environment gives in info, in rows in which it gives nothing.
        mode: how it resets. The toys see to it that none is stepped after the end of an episode.
    """

    def __init__(
        self,
        envs: Sequence[CountingEnv],
        info_example: dict[str, Any],
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.metadata = {"autoreset_mode": mode}
        self.envs, self.num_envs = list(envs), len(envs)
        self.info_example = info_example
        self.single_observation_space, self.single_action_space = envs[0].observation_space, envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._observations: list[Any] = [None] * self.num_envs
        self._ended = np.zeros(self.num_envs, bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        assert seed is None or (type(seed) is list and all(type(s) is int for s in seed)), seed
        mask = np.ones(self.num_envs, bool) if options is None else options["reset_mask"]
        assert mask.dtype == bool, mask
        assert mask.shape == (self.num_envs,), mask
        seeds = [None] * self.num_envs if seed is None else seed
        for b in np.flatnonzero(mask):
            self._observations[b], _ = self.envs[b].reset(seed=seeds[b])
        self._ended[mask] = False
        return self._observe(), self._info([{}] * self.num_envs)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        assert self.action_space.contains(actions), actions
        mode = self.metadata["autoreset_mode"]
        rewards, infos = np.zeros(self.num_envs), []
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        for b, env in enumerate(self.envs):
            if self._ended[b] and mode is AutoresetMode.NEXT_STEP:
                self._observations[b], info = env.reset()
            else:
                self._observations[b], rewards[b], terminated[b], truncated[b], info = env.step(int(actions[b]))
            infos.append(info)
        self._ended = terminated | truncated
        final = self._reset_ended(infos) if mode is AutoresetMode.SAME_STEP and self._ended.any() else {}
        return self._observe(), rewards, terminated, truncated, {**self._info(infos), **final}

    def _reset_ended(self, infos: list[dict[str, Any]]) -> dict[str, Any]:
        """Reset those whose episode ended, and return what they gave last."""
        final = {"final_obs": self._observe(), "final_info": self._info(infos)}
        for b in np.flatnonzero(self._ended):
            self._observations[b], infos[b] = self.envs[b].reset()
        return final

    def _observe(self) -> Any:
        space = self.single_observation_space
        out: Any = create_empty_array(space, self.num_envs)
        return concatenate(space, self._observations, out)

    def _info(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            key: np.stack([np.asarray(info.get(key, null)) for info in infos])
            for key, null in self.info_example.items()
        }


class CountingVectorEnv(ToyVectorEnv):
    """n of `CountingEnv`, with `send` and `recv`."""

    def __init__(
        self, num_envs: int, lengths: Sequence[int] = LENGTHS, EnvCls: Any = CountingEnv, **kwargs: Any
    ) -> None:
        example = {"t": 0, "vector": np.zeros(2, int), "game_score": 0.0}
        super().__init__([EnvCls(lengths) for _ in range(num_envs)], example, **kwargs)
        self._actions: Any = None

    def send(self, actions: Any) -> None:
        assert self._actions is None, "sent twice"
        self._actions = actions

    def recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        actions, self._actions = self._actions, None
        return self.step(actions)


class DictCountingVectorEnv(ToyVectorEnv):
    """n of `DictCountingEnv`, without `send`; a key of info is there only where an environment gave it."""

    def __init__(
        self, num_envs: int, lengths: Sequence[int] = LENGTHS, EnvCls: Any = DictCountingEnv, **kwargs: Any
    ) -> None:
        super().__init__([EnvCls(lengths) for _ in range(num_envs)], {}, **kwargs)

    def _reset_ended(self, infos: list[dict[str, Any]]) -> dict[str, Any]:
        """As gymnasium's: an array of objects, and masks."""
        final: dict[str, Any] = {}
        for b in np.flatnonzero(self._ended).tolist():
            final = self._add_info(final, {"final_obs": self._observations[b], "final_info": infos[b]}, b)
            self._observations[b], infos[b] = self.envs[b].reset()
        return final

    def _info(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        together: dict[str, Any] = {}
        for b, info in enumerate(infos):
            together = self._add_info(together, info, b)
        return together


class LifeVectorEnv(ToyVectorEnv):
    """n of `LifeEnv`: the reset in the row after a lost life goes on with the same game; one with a mask as well."""

    def __init__(self, num_envs: int, lengths: Sequence[int] = (3, 2, 4), **kwargs: Any) -> None:
        super().__init__([LifeEnv(lengths) for _ in range(num_envs)], {"game_score": 0.0, "traj_done": False}, **kwargs)


class FaultyVectorEnv(ToyVectorEnv):
    """n of `FaultyEnv`; with the fault "shape" the whole batch has the wrong shape."""

    def __init__(self, num_envs: int, fault: str, at: int = 4, bad_seed: int | None = None) -> None:
        super().__init__([FaultyEnv(fault, at, bad_seed) for _ in range(num_envs)], {"t": 0, "game_score": 0.0})

    def _observe(self) -> Any:
        shortest = min(len(observation) for observation in self._observations)
        return np.stack([observation[:shortest] for observation in self._observations])
