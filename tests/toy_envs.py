"""Toy environments and models whose every number can be told in advance; importable in worker processes.

An observation of a counting environment says where it comes from: (number of the environment, steps since the reset,
episodes since the seeding). Numbers are small integers and binary fractions, so that float32 arithmetic is exact.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.models import RnnState
from rlpyt.types import TrajInfo

N_ACTIONS = 3
LENGTHS = (3, 1, 5, 2)


class CountingEnv(gymnasium.Env[Any, Any]):
    """Counts; episodes have the given lengths in turn and end by termination, truncation, or both at once.

    Args:
        lengths: of the episodes; environment number e starts at place e.
        reuse_array: whether the observation is one array that is written again (as AtariEnv's is).
    """

    def __init__(self, lengths: Sequence[int] = LENGTHS, reuse_array: bool = False) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(0, 2**20, (3,), np.float32)
        self.action_space = spaces.Discrete(N_ACTIONS)
        self.lengths, self.reuse_array = tuple(lengths), reuse_array
        self.number = self.t = self.episode = 0
        self.needs_reset = True
        self._array = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.number, self.episode = seed % 1024, -1
        self.t, self.episode = 0, self.episode + 1
        self.needs_reset = False
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert not self.needs_reset, "stepped after the end of an episode"
        assert type(action) is int, action
        self.t += 1
        terminated, truncated = self.ending()
        self.needs_reset = terminated or truncated
        reward = self.reward_at(self.t, action)
        info = {"t": self.t, "vector": np.full(2, self.t), "game_score": 2 * reward, "name": "toy"}
        return self.observe(), reward, terminated, truncated, info

    def ending(self) -> tuple[bool, bool]:
        place = self.number + self.episode
        over = self.t >= self.lengths[place % len(self.lengths)]
        return over and place % 3 != 1, over and place % 3 != 0

    @staticmethod
    def reward_at(t: int, action: Any) -> float:
        return (0.0, 1.0, -0.5, 2.0)[t % 4] + 0.125 * action

    def observe(self) -> Any:
        array = self._array if self.reuse_array else np.zeros(3, np.float32)
        array[:] = self.number, self.t, self.episode
        return array

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number, "t": self.t, "episode": self.episode, "needs_reset": self.needs_reset}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class DictCountingEnv(CountingEnv):
    """The same counts in a nested observation, with keys that are no identifiers."""

    def __init__(self, lengths: Sequence[int] = LENGTHS) -> None:
        super().__init__(lengths)
        self.observation_space = spaces.Dict(
            {
                "counts": spaces.Box(0, 2**20, (3,), np.float32),
                "ale.lives": spaces.Discrete(4),
                "count": spaces.Dict({"image": spaces.Box(0, 255, (1, 4, 4), np.uint8)}),
                "pair": spaces.Tuple([spaces.Box(-99, 99, (), np.int16), spaces.MultiBinary(2)]),
            }
        )

    def observe(self) -> Any:
        return {
            "counts": np.array([self.number, self.t, self.episode], np.float32),
            "ale.lives": self.t % 4,
            "count": {"image": np.full((1, 4, 4), self.t, np.uint8)},
            "pair": (np.array(-self.t, np.int16), np.array([self.t % 2, 1], np.int8)),
        }


class AgingEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pays more in every step since it was built: a reset does not set it back, as with running statistics.

    Args:
        EnvCls: makes the environment inside.
        readable: whether it has a state.
        kwargs: of `EnvCls`.
    """

    def __init__(self, EnvCls: Any = CountingEnv, readable: bool = True, **kwargs: Any) -> None:
        super().__init__(EnvCls(**kwargs))
        self.age = 0
        self.numbers = None if readable else iter(range(3))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, *rest = self.env.step(action)
        self.age += 1
        return observation, float(reward) + 0.125 * self.age, *rest


class OldCountingEnv:
    """The same counts through the interface of old gym: `seed`, a bare observation, a 4-tuple."""

    def __init__(self) -> None:
        self.inner = CountingEnv()
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self._seed: int | None = None

    def seed(self, seed: int) -> None:
        self._seed = seed

    def reset(self) -> Any:
        seed, self._seed = self._seed, None
        return self.inner.reset(seed=seed)[0]

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.inner.step(action)
        return observation, reward, terminated or truncated, {**info, "TimeLimit.truncated": truncated}


class LifeEnv(CountingEnv):
    """A game of three lives: each ends an episode, only the last one (or the horizon) the trajectory."""

    HORIZON: ClassVar[int] = 11

    def __init__(self, lengths: Sequence[int] = (3, 2, 4)) -> None:
        super().__init__(lengths)
        self.lives = 3
        self.life_t = 0
        self.lost_life = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        goes_on = seed is None and self.lost_life
        self.life_t, self.lost_life = 0, False
        if goes_on:
            self.needs_reset = False
            return self.observe(), {}
        self.lives = 3
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, _, _, info = super().step(action)
        self.life_t += 1
        life_over = self.life_t >= self.lengths[(self.number + self.lives) % len(self.lengths)]
        truncated = self.t >= self.HORIZON and not life_over
        self.lives -= life_over
        self.lost_life = life_over and self.lives > 0
        self.needs_reset = life_over or truncated
        info = {"game_score": 10 * reward, "traj_done": truncated or self.lives == 0}
        return observation, reward, life_over, truncated, info

    def ending(self) -> tuple[bool, bool]:
        return False, False

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "lives": self.lives, "life_t": self.life_t, "lost_life": self.lost_life}


class FaultyEnv(CountingEnv):
    """Goes wrong in one way.

    Args:
        fault: "raise", "nan", "shape", "kill", "exit", "hang"; "reset" or "constructor" raises there.
        at: steps after the bad seed at which it happens (resets, for "reset").
        bad_seed: only an environment that was reset with it is bad; None is every one.
        note: a file to which it adds a line when it happens: the seconds of `time.monotonic`.
    """

    def __init__(self, fault: str, at: int = 4, bad_seed: int | None = None, note: str | None = None) -> None:
        super().__init__()
        self.fault, self.at, self.bad_seed, self.note = fault, at, bad_seed, note
        if fault == "constructor":
            self.take_note()
            raise OSError("no licence for the simulator")
        self.bad = bad_seed is None
        self.n_steps = self.n_resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None and seed == self.bad_seed:
            self.bad, self.n_steps, self.n_resets = True, 0, 0
        self.n_resets += 1
        if self.bad and self.fault == "reset" and self.n_resets >= self.at:
            self.take_note()
            raise ZeroDivisionError("the toy broke in reset")
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        self.n_steps += 1
        if self.bad and self.n_steps == self.at:
            self.take_note()
            observation, reward = self.go_wrong(observation, reward)
        return observation, reward, *rest

    def take_note(self) -> None:
        if self.note is not None:
            with open(self.note, "a") as file:
                print(time.monotonic(), file=file)

    def go_wrong(self, observation: Any, reward: float) -> tuple[Any, float]:
        match self.fault:
            case "raise":
                raise ZeroDivisionError("the toy broke in step")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
            case "hang":
                time.sleep(3600)
            case "nan":
                return observation, float("nan")
            case "shape":
                return observation[:2], reward
        return observation, reward


class SlowEnv(CountingEnv):
    """Takes some seconds for every step."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(self.seconds)
        return super().step(action)


class PrintingEnv(CountingEnv):
    """Prints at every step, as some simulators do."""

    def step(self, action: Any) -> Any:
        print("a step", flush=True)
        return super().step(action)


class GreedyTrajInfo(TrajInfo):
    """Counts the steps in which the most probable action was taken."""

    def __init__(self, discount: float = 1.0) -> None:
        super().__init__(discount)
        self.Greedy = 0

    def step(self, observation: Any, action: Any, reward: float, done: bool, agent_info: Any, env_info: Any) -> None:
        super().step(observation, action, reward, done, agent_info, env_info)
        self.Greedy += int(action) == int(np.argmax(agent_info.dist_info.logits))


class RecordingTrajInfo(TrajInfo):
    """Keeps what it was given, to be looked at."""

    def __init__(self, discount: float = 1.0) -> None:
        super().__init__(discount)
        self._seen: list[tuple[Any, ...]] = []
        self.LastValue = 0.0

    def step(self, observation: Any, action: Any, reward: float, done: bool, agent_info: Any, env_info: Any) -> None:
        super().step(observation, action, reward, done, agent_info, env_info)
        value = float(agent_info.value)
        assert env_info.get("t") == getattr(env_info, "t", None)
        self._seen.append((np.array(observation), int(action), reward, done, env_info.get("t"), value))
        self.LastValue = value

    def terminate(self, observation: Any) -> TrajInfo:
        self._final = np.array(observation)
        return self


class CountingModel(nn.Module):
    """A policy that all but surely takes action (t + episode + prev_action + 8 prev_reward) mod n, and its value.

    Its recurrent state counts the rows since it was zero, and adds to the action.
    """

    def __init__(self, observation_space: Any, action_space: Any, recurrent: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.n, self.recurrent = int(action_space.n), recurrent

    def forward(
        self,
        observation: Any,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: Any = None,
        episode_start: Any = None,
    ) -> tuple[Any, ...]:
        counts = observation if isinstance(observation, torch.Tensor) else observation["counts"]
        number, t, episode = counts.unbind(-1)
        action = t + episode + prev_action.argmax(-1) + 8 * prev_reward
        value = 100 * number + t + 0.25 * prev_reward
        if not self.recurrent:
            return (*self._outputs(action, value),)
        h = torch.zeros(1, len(t), 1) if rnn_state is None else rnn_state.h
        return *self._outputs(action + h[0, :, 0], value + 0.5 * h[0, :, 0]), RnnState(h + 1)

    def _outputs(self, action: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return 1000.0 * nn.functional.one_hot(action.long() % self.n, self.n), value * self.scale


class BareEnv:
    """The interface of gymnasium without a base class, a spec or `close`; it draws, and episodes have three steps."""

    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, seed: int | None = None) -> Any:
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        self.t += 1
        return np.full(2, self.t / 4, np.float32), 1.0, self.t == 3, False, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), 20 * (self.t + 1), np.uint8)


class OldBareEnv(BareEnv):
    """The old interface: `reset` without info, four values of `step`, and a mode for each `render`."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()[0]

    def step(self, action: int) -> Any:
        observation, reward, done, _, info = super().step(action)
        return observation, reward, done, info

    def render(self, mode: str = "human") -> Any:
        return super().render() if mode == "rgb_array" else None


class OddArraysEnv(BareEnv):
    """Shows its observations as one kind of array that numpy and a sampler take, and torch does not."""

    KINDS: ClassVar[dict[str, Any]] = {
        "flipped": lambda x: x[::-1].copy()[::-1],
        "read-only": lambda x: np.broadcast_to(x, x.shape),
        "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
        "masked": np.ma.masked_array,
        "list": lambda x: x.tolist(),
        "wide": lambda x: x.astype(np.float64),
    }

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def reset(self, seed: int | None = None) -> Any:
        return self.KINDS[self.kind](super().reset()[0]), {}

    def step(self, action: int) -> Any:
        observation, *rest = super().step(action)
        return self.KINDS[self.kind](observation), *rest
