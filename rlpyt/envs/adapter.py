"""Adapter that gives every kind of environment the same interface.

The adapter tells environments of gymnasium, of old gym (4-tuple step, reset that returns only an observation) and of
rlpyt 0.1 apart by what they return, at every call, by its length. That takes no measurable time, and no setting can be
wrong. Every value is checked before it reaches a buffer: a wrong shape or a NaN there is found hours later, if ever.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium.spaces import Tuple
from gymnasium.vector import VectorEnv

from rlpyt.envs.action_masks import EnvMasks
from rlpyt.envs.base import EnvError, Reset, env_name, told_result
from rlpyt.envs.info import FINAL_KEYS, SEVERAL_AGENTS, as_flag, final_key
from rlpyt.envs.making import call_env_cls, call_text, failure, layers_of, takes_env_seed
from rlpyt.envs.state import load_graph, save_graph
from rlpyt.envs.state_data import StateError, class_name
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, as_gymnasium, check_action_space, to_env, to_rows
from rlpyt.types import Kwargs, StateDict, as_number
from rlpyt.utils.stops import is_end_of_run

_FLOAT32_MAX = float(np.finfo(np.float32).max)

_OF_SEVERAL_AGENTS = ("possible_agents", "n_agents", "num_agents", "num_players", "agents")
_SPACES = ("observation_space", "action_space")

Step: TypeAlias = tuple[Any, float, bool, bool, dict[str, Any]]


class EnvAdapter:
    """Environment of any kind, with values in row form (see `rlpyt.spaces`).

    An observation is valid until the next `step` or `reset`, as environments may write into the same array again. Copy
    an observation to keep it.

    Samplers use two keys of `info` if they are there. `traj_done` (bool) is False where an episode ends but the game
    goes on, after a lost life; without it every end is the end of a game. `game_score` is the raw score of the step. If
    a 4-tuple environment gives done with `traj_done` False, `reset` does not reset it: the last observation is the
    first of the next episode. If it gives `traj_done` True without done, the episode is truncated.

    An environment that resets itself in the step that ends an episode returns the first observation of the next one.
    Where its info has the final observation, by one of the names "final_observation", "final_obs",
    "terminal_observation" and "closing_observation", `step` returns that, and the info of that step ("final_info").

    If the info of the first reset has `action_mask`, the mask of legal actions becomes a part of every observation,
    which then is a Dict; see `masks`.

    Args:
        env: the environment.
        rank: its number among all environments of the run, for messages.
        seed: seed of the first `reset`, unless that is called with another one.

    Raises:
        TypeError: if a part of the interface is missing, or a space is of an unsupported kind.
        ValueError: if the bounds of the action space are NaN, low is above high, or the observation has a mask of legal
            actions that does not fit them.
    """

    def __init__(self, env: Any, rank: int = 0, seed: int | None = None) -> None:
        _check_one_agent(env)
        if missing := [a for a in (*_SPACES, "reset", "step") if not hasattr(env, a)]:
            raise TypeError(
                f"EnvAdapter: {type(env).__name__} has no {', '.join(missing)}; expected an environment of the "
                'gymnasium or the old gym interface, such as gymnasium.make("CartPole-v1") returns. Does EnvCls return '
                "one?"
            )
        if isinstance(env, VectorEnv) or (hasattr(env, "num_envs") and hasattr(env, "single_action_space")):
            raise TypeError(
                f"EnvAdapter: {type(env).__name__} is a vector environment; expected one environment. An EnvCls that "
                "makes these has a parameter num_envs, which the sampler gives."
            )
        self.env = env
        self.rank = rank
        self.name = env_name(env)
        self._own_observation_space: Space = as_gymnasium(env.observation_space)
        self.action_space: Space = as_gymnasium(env.action_space)
        check_action_space(self.action_space, f"{self.name}: action_space")
        self.masks = EnvMasks(EnvSpaces(self._own_observation_space, self.action_space), self.name)
        """Masks of the legal actions, where it has some."""
        self.n_steps = 0
        self.seed = seed
        self._first_seed = seed
        self._to_rows = to_rows(self._own_observation_space)
        self._to_env = to_env(self.action_space)
        self._seeded_reset = seeded_reset(env)
        self.takes_seed = takes_seed(env)
        """Whether it can be seeded after it was made."""
        self.has_env_seed = False
        """Whether it was made with an `env_seed` of its own."""
        self.gave_none = False
        """Whether a flag was None, which is taken for False."""
        self._continues_from: Buffer = None

    @property
    def spaces(self) -> EnvSpaces:
        """Spaces of the rows, with the mask of legal actions where the environment has one."""
        return self.masks.spaces

    @property
    def observation_space(self) -> Space:
        """Space of the observations in row form."""
        return self.masks.spaces.observation

    def reset(self, seed: int | None = None) -> Reset:
        """Start an episode; return its first observation in row form, and the info of the environment.

        Args:
            seed: seeds the environment; None continues its random stream.

        Raises:
            EnvError: if the environment raises, or its observation is not in its space.
        """
        seed = self._first_seed if seed is None else seed
        self._first_seed = None
        try:
            observation, info = self._reset(seed)
            self.masks.first_reset(info)
            observation = self._to_rows(observation)
            if self.masks.in_rows:
                observation = self.masks.observed(observation, info, True)
            return observation, info
        except BaseException as error:
            if is_end_of_run(error):
                raise
            raise self._error("reset", error) from error

    def step(self, action: Buffer) -> Step:
        """Take one step.

        Args:
            action: in row form.

        Returns:
            observation (in row form), reward, terminated, truncated, info.

        Raises:
            EnvError: if the environment raises, the action or the observation is not in its space, the reward is not
                one finite number, or a flag is not True or False.
        """
        self.n_steps += 1
        try:
            result = self.env.step(self._to_env(action))
            if type(result) is not tuple or len(result) != 5:
                result = self._read_old(result)
            observation, reward, terminated, truncated, info = result
            info = info if type(info) is dict else _as_dict(info)
            if type(terminated) is not bool:
                terminated = self._flag(terminated, "terminated")
            if type(truncated) is not bool:
                truncated = self._flag(truncated, "truncated")
            if terminated or truncated:
                observation, info = self._read_end(observation, info)
            else:
                observation = self._to_rows(observation)
            if self.masks.in_rows:
                observation = self.masks.observed(observation, info, not (terminated or truncated))
            if type(reward) is not float:
                reward = _number(reward)
            if not -_FLOAT32_MAX <= reward <= _FLOAT32_MAX:  # NaN is refused, too
                raise ValueError(f"reward: expected a finite number, got {reward}.")
        except BaseException as error:
            if is_end_of_run(error):
                raise
            raise self._error(f"step with action {action!r:.200}", error) from error
        return observation, reward, terminated, truncated, info

    def state_dict(self) -> StateDict:
        """Return all that the future of the environment depends on, as plain data; empty if that cannot be read.

        A layer that has `state_dict` and `load_state_dict` gives its state itself. The attributes of all others are
        read, see `rlpyt.envs.state`.
        """
        return self.saved_state()[0]

    def why_no_state(self) -> str | None:
        """Return why the environment has no state, with the attribute that cannot be read; None if it has one."""
        return self.saved_state()[1]

    def saved_state(self) -> tuple[StateDict, str | None]:
        """Return the state, empty if it cannot be had; and why it cannot."""
        try:
            graph = save_graph({"env": self.env, "continues_from": self._continues_from}, self.layers)
            facts = {"name": self.name, "seed": self.seed, "first_seed": self._first_seed}
            mask = {"mask": self.masks.newest} if self.masks.in_rows else {}
            return {**facts, **mask, "frame": self._frame(), "graph": graph}, None
        except StateError as error:
            why = f"{error}"
        except Exception as error:  # of a state_dict of its own; a run does not end by that
            why = f"saving its state raised {type(error).__name__}: {error}"
        return {}, f"{self.name} (rank {self.rank}) cannot be restored: {why}."

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load what `state_dict` returned; an empty state changes nothing.

        The environment has to be of the same class and settings, and reset once.

        Raises:
            ValueError: if the state is that of another environment; nothing is changed then.
        """
        if not state_dict:
            return
        if state_dict["name"] != self.name:
            raise ValueError(
                f"{self.where}: loading a state: got that of {state_dict['name']}, expected one of {self.name}."
            )
        frame = self._frame()
        for place, came in state_dict.get("frame", {}).items():
            if came != frame.get(place):
                raise ValueError(
                    f"{self.where}: loading a state: {place}: got {came}, expected {frame.get(place, 'no such layer')}."
                )
        roots = load_graph(state_dict["graph"], {"env": self.env, "continues_from": None}, self.layers)
        self._continues_from = roots["continues_from"]
        self.seed, self._first_seed = state_dict["seed"], state_dict["first_seed"]
        self.masks.newest = state_dict.get("mask")

    def _frame(self) -> dict[str, str]:
        """Return what is the same in every environment that a state may be loaded into."""
        classes = {".".join(["env"] * (i + 1)): class_name(type(layer)) for i, layer in enumerate(self.layers)}
        spaces = {"observation_space": f"{self._own_observation_space}", "action_space": f"{self.action_space}"}
        return {**classes, **spaces}

    @property
    def layers(self) -> list[object]:
        """The environment and all within it, from the outermost wrapper."""
        return layers_of(self.env)

    @property
    def where(self) -> str:
        """Name of the environment, with rank and step, for messages."""
        return f"{self.name} (rank {self.rank}), its step {self.n_steps}"

    def close(self) -> None:
        """Close the environment if it has `close`."""
        close = getattr(self.env, "close", None)
        if close is not None:
            close()

    def _reset(self, seed: int | None) -> Reset:
        continues_from, self._continues_from = self._continues_from, None
        if seed is not None:
            self.seed = seed
            return read_reset(self._seeded_reset(seed), self._own_observation_space)
        if continues_from is not None:
            return continues_from, {}
        return read_reset(self.env.reset(), self._own_observation_space)

    def _read_old(self, result: Any) -> Step:
        """Turn a 4-tuple into gymnasium's five; a done by a time limit is `truncated`."""
        if isinstance(result, tuple) and len(result) == 5:
            return result
        if not isinstance(result, tuple) or len(result) != 4:
            raise TypeError(
                "expected (observation, reward, terminated, truncated, info), or the older (observation, "
                f"reward, done, info), got {told_result(result)}."
            )
        observation, reward, done, info = result
        done, info = self._flag(done, "done"), _as_dict(info)
        if info.get("traj_done") is not None and as_flag(info["traj_done"], "info['traj_done']") and not done:
            # A time limit of rlpyt 0.1, whose samplers ended the trajectory and reset the environment.
            return observation, reward, False, True, info
        said = _info_of_end(info) if done else {}
        limit = next((key for key in ("TimeLimit.truncated", "timeout") if said.get(key) is not None), None)
        truncated = limit is not None and as_flag(said[limit], f"info[{limit!r}]")
        # A limit cuts the game, also where the environment says at every step that it has not ended.
        goes_on = not (truncated or said.get("traj_done") is None or as_flag(said["traj_done"], "info['traj_done']"))
        self._continues_from = observation if goes_on else None
        return observation, reward, done and not truncated, truncated, info

    def _flag(self, value: object, name: str) -> bool:
        if value is None:
            self.gave_none = True
            return False
        return as_flag(value, name)

    def _read_end(self, observation: Buffer, info: dict[str, Buffer]) -> Reset:
        """Return the final observation of an episode in row form, and the info of the step that ended it."""
        key = final_key(info)
        if key is None:
            observation = self._to_rows(observation)
        else:
            observation = to_rows(self._own_observation_space, f"info[{key!r}], the final observation,")(info[key])
            info = _info_of_end(info)
        traj_done = info.get("traj_done", True)
        if type(traj_done) is not bool:
            info = {**info, "traj_done": traj_done is None or as_flag(traj_done, "info['traj_done']")}
        return observation, info

    def _error(self, doing: str, error: BaseException) -> EnvError:
        return EnvError(
            f"{self.name} (rank {self.rank}, seed {self.seed}), its step {self.n_steps}: {doing}: {failure(error)}"
        )


def make_env(
    EnvCls: Callable[..., object],
    env_kwargs: Kwargs,
    rank: int = 0,
    seed: int | None = None,
    *,
    env_seed: int | None = None,
) -> EnvAdapter:
    """Build an environment and wrap it in the adapter.

    `EnvCls` gets a deep copy of the arguments, see `rlpyt.envs.making.call_env_cls`.

    Args:
        EnvCls: any callable that returns an environment, `gymnasium.make` among them.
        env_kwargs: its arguments.
        rank: number of the environment among all of the run.
        seed: seed of its first `reset`.
        env_seed: given to an `EnvCls` with a parameter of this name, unless `env_kwargs` has it. None is `seed`, or
            else the rank.

    Raises:
        EnvError: if `EnvCls` raises, or returns something that cannot be used, or the environment that it has returned
            before; the text has the call.
    """
    fallback = rank if seed is None else seed
    try:
        env = EnvAdapter(call_env_cls(EnvCls, env_kwargs, fallback if env_seed is None else env_seed), rank, seed)
        env.has_env_seed = takes_env_seed(EnvCls) or "env_seed" in env_kwargs
        return env
    except BaseException as error:
        if is_end_of_run(error):
            raise
        raise EnvError(
            f"Making environment {rank}: {call_text(EnvCls, env_kwargs)} failed: {failure(error)}"
        ) from error


def _check_one_agent(env: object) -> None:
    """Refuse an environment of several agents.

    An attribute such as `agents` says nothing alone. It counts where a space is missing, or where actions are a Tuple
    or a Dict. A space that is a method is PettingZoo's way to give one to each agent.

    Raises:
        TypeError: if it has several.
    """
    methods = [name for name in _SPACES if callable(getattr(env, name, None))]
    missing = [name for name in _SPACES if not hasattr(env, name)]
    composite = type(getattr(env, "action_space", None)).__name__
    if methods:
        what = f"{' and '.join(methods)} is a method, as in PettingZoo"
    elif not (missing or composite in ("Tuple", "Dict")):
        return  # before the names are looked up: a property may raise before the first reset
    elif found := [name for name in _OF_SEVERAL_AGENTS if any(hasattr(layer, name) for layer in layers_of(env))]:
        has = f"no {' and '.join(missing)}" if missing else f"its actions are a {composite}"
        what = f"it has {found[0]}, and {has}"
    else:
        return
    own = " Make it an attribute or a property if there is one agent." if methods else ""
    raise TypeError(f"{type(env).__name__} has several agents: {what}; {SEVERAL_AGENTS}.{own}")


def takes_seed(env: object) -> bool:
    """Return whether an environment can be seeded after it was made: by `reset`, or by a method `seed`."""
    return _way_of_seed(env) != "apart" or callable(getattr(env, "seed", None))


def seeded_reset(env: Any) -> Callable[[int], Any]:
    """Return a function that resets an environment with a seed, in the form that its `reset` takes."""
    way = _way_of_seed(env)

    def reset(seed: int) -> Any:
        if way == "keyword":
            return env.reset(seed=seed)
        if way == "unknown":
            with suppress(TypeError):
                return env.reset(seed=seed)
        seed_env = getattr(env, "seed", None)
        if callable(seed_env):
            try:
                inspect.signature(seed_env).bind(seed)
                numbers = [seed]
            except (TypeError, ValueError) as error:  # a `seed` that takes no number seeds in its own way
                numbers = [] if isinstance(error, TypeError) else [seed]
            seed_env(*numbers)
        return env.reset()

    return reset


def _way_of_seed(env: Any) -> Literal["keyword", "apart", "unknown"]:
    """Return how `reset` takes a seed; wrappers that pass their arguments on are looked through."""
    try:
        parameters = inspect.signature(env.reset).parameters
    except (TypeError, ValueError):  # a compiled function may have no signature
        return "unknown"
    if "seed" in parameters:
        return "keyword"
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return "apart"
    inner = getattr(env, "env", None)
    return "keyword" if inner is None else _way_of_seed(inner)


def _number(reward: Buffer) -> float:
    """Return a reward as a Python float; environments of old gym may return an array of one element."""
    number = as_number(reward)
    if number is not None:
        return number
    if isinstance(reward, Mapping | list | tuple):
        hint = f"One reward for each of several agents is not supported; {SEVERAL_AGENTS}."
    elif isinstance(reward, np.ndarray):
        hint = "Objectives can be weighed into one reward by mo_gymnasium.wrappers.LinearReward."
    else:
        hint = "Return a float."
    raise TypeError(f"reward: expected one number, got {type(reward).__name__} {reward!r:.100}. {hint}")


def _info_of_end(info: dict[str, Buffer]) -> dict[str, Buffer]:
    """Return the info of the step that ended an episode, where the environment has begun the next one already."""
    key = final_key(info)
    final = None if key is None else info.get(FINAL_KEYS[key])
    return {**info, **final} if isinstance(final, Mapping) else info


def read_reset(result: Any, space: Space) -> Reset:
    """Return (observation, info) of a reset, which may be an observation alone, even one that is a tuple."""
    is_pair = type(result) is tuple and len(result) == 2 and (result[1] is None or isinstance(result[1], Mapping))
    if is_pair and not (isinstance(space, Tuple) and space.contains(result)):
        return result[0], _as_dict(result[1])
    return result, {}


def _as_dict(info: Any) -> dict[str, Any]:
    """Return an info as a dictionary: None is empty, a named tuple gives its fields."""
    if info is None:
        return {}
    if isinstance(info, Mapping):
        return dict(info)
    if isinstance(info, tuple) and hasattr(info, "_asdict"):
        return dict(info._asdict())
    raise TypeError(f"info: expected a dictionary, a named tuple or None, got {type(info).__name__}.")
