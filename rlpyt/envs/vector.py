"""Adapter that gives every vector environment the same interface: n environments that one native call steps.

Samplers have a row for the final observation of an episode, and the step after it starts the next episode. That is
AutoresetMode.NEXT_STEP of gymnasium, so the values of such an environment are a batch of rows as they are. Environments
in other modes are converted to this one (see `rlpyt.envs.autoreset`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_space, iterate

from rlpyt.envs.action_masks import EnvMasks, MaskError
from rlpyt.envs.autoreset import NextStepEnv, autoreset_mode, halves_of_step, in_next_step, reset_part, with_final
from rlpyt.envs.base import EnvError, Reset, env_name, told_result
from rlpyt.envs.info import FINAL_KEYS, SEVERAL_AGENTS, as_flags, final_key, vector_info
from rlpyt.envs.making import call_env_cls, call_text, failure, has_parameter
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, as_gymnasium, check_action_space, subspaces, to_env, to_rows
from rlpyt.types import Info, Kwargs
from rlpyt.utils.stops import is_end_of_run

# Forms of the argument of `reset(seed=...)`, in the order in which they are tried. Sync and Async of gymnasium take a
# list, ale-py an array, and environments written with arrays (CartPole of gymnasium) have one generator for all.
_SEED_FORMS: tuple[Callable[[list[int]], Any], ...] = (list, np.array, lambda seeds: seeds[0])
_CLOSE_SECONDS = 10.0  # that processes have to end a step under way
_NOT_THIS_FORM = (TypeError, ValueError, AssertionError, gymnasium.error.Error)


class _Fault(Exception):
    """Error in the values of an environment: its place in the batch, None where that is not known, and the error."""


class VectorEnvAdapter:
    """Vector environment with values in row form (see `rlpyt.spaces`) and a leading dimension B.

    In the step after the end of an episode an environment is reset, with any action and reward 0. The values of `reset`
    and `recv` are valid until the next call of either: copy them to keep them. `info` is a dictionary of arrays
    [B, ...], see `vector_info` and `info_at`. The fields `traj_done` and `game_score`, and final observations in info,
    have the same meaning as for `EnvAdapter`, and so has `action_mask`.

    Args:
        env: the vector environment, in any mode of gymnasium.vector.AutoresetMode.
        ranks: numbers of its environments among all of the run, for messages.

    Raises:
        TypeError: if a part of the interface is missing, or a space is of an unsupported kind.
        ValueError: if it does not name its autoreset mode, has another number of environments, or the bounds of the
            action space are NaN, or low is above high.
    """

    def __init__(self, env: Any, ranks: Sequence[int]) -> None:
        parts = ("single_observation_space", "single_action_space", "num_envs", "reset", "step", "unwrapped")
        missing = [part for part in parts if not hasattr(env, part)]
        if missing:
            raise TypeError(
                f"VectorEnvAdapter: {type(env).__name__} has no {', '.join(missing)}; expected a "
                "gymnasium.vector.VectorEnv. Does EnvCls return one?"
            )
        self.env = env
        self.name = env_name(env.unwrapped)
        self.ranks = list(ranks)
        self.n = len(self.ranks)
        self.n_steps = 0
        if env.num_envs != self.n:
            raise ValueError(f"{self.name}: expected {self.n} environments (num_envs), got {env.num_envs}.")
        mode = autoreset_mode(env, self.name)
        self._own_observation_space: Space = as_gymnasium(env.single_observation_space)
        self.action_space: Space = as_gymnasium(env.single_action_space)
        check_action_space(self.action_space, f"{self.name}: single_action_space")
        self.masks = EnvMasks(EnvSpaces(self._own_observation_space, self.action_space), self.name, self.n)
        """Masks of the legal actions, where it has some."""
        self._to_rows = to_rows(batch_rows_space(self._own_observation_space, self.n))
        self._to_env = to_env(batch_rows_space(self.action_space, self.n))
        self._seed_forms = _SEED_FORMS[:1] if isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv) else _SEED_FORMS
        self._seeds: list[int] | None = None
        self._sent = False
        # The environment that is stepped and reset, in NEXT_STEP mode; a converted one gives rows.
        self._source: Any = env
        self._converted: Callable[[Buffer], Buffer] = self._in_rows
        if mode is not AutoresetMode.NEXT_STEP:
            self._source = NextStepEnv(env, mode, self.name, self._in_rows)
            self._converted = lambda rows: rows
        self._env_send, self._env_recv = halves_of_step(self._source)
        self.advice: list[str] = self._source.advice if isinstance(self._source, NextStepEnv) else []
        """What the user should know of it, for the check at the start."""
        self.can_reset_some = True
        """Whether it can reset a part of itself; known after `try_reset_some`."""

    @property
    def spaces(self) -> EnvSpaces:
        """Spaces of the rows of one environment, with the mask of legal actions where it has one."""
        return self.masks.spaces

    @property
    def observation_space(self) -> Space:
        """Space of the observations of one environment in row form."""
        return self.masks.spaces.observation

    def reset(self, seeds: Sequence[int] | None = None) -> Reset:
        """Start an episode in every environment.

        Args:
            seeds: one for each environment. An environment that has a single generator for all is given the first one.
                None continues the random streams.

        Returns:
            observation in row form [B, ...], info.

        Raises:
            EnvError: if the environment raises, or an observation is not in its space.
        """
        if seeds is None:
            return self._reset("reset", self._source.reset)
        self._seeds = [int(seed) for seed in seeds]
        return self._reset("reset", partial(self._seeded_reset, self._seeds))

    def reset_some(self, mask: np.ndarray) -> Reset:
        """Start an episode in some environments.

        Args:
            mask: bool [B], the environments to reset; at least one.

        Returns:
            observation in row form [B, ...], info; only the rows of the mask are meaningful.

        Raises:
            EnvError: as `reset`; also if the environment cannot reset some environments alone.
        """
        return self._reset("reset of a part (reset_mask)", partial(reset_part, self._source, mask), mask)

    def try_reset_some(self) -> None:
        """Test whether it can reset some environments alone, by a reset of the first one."""
        try:
            self.reset_some(np.arange(self.n) == 0)
        except EnvError:
            self.can_reset_some = False
            self._source.reset()  # also in the middle of a step

    def send(self, action: Buffer) -> None:
        """Send one action to each environment, without waiting if the environment can.

        Args:
            action: in row form [B, ...]; those of environments that are to be reset have no effect.

        Raises:
            EnvError: if an action is out of range or not finite, on which a native environment may hang, or if the
                environment raises.
        """
        self.n_steps += 1
        try:
            action_of_env = self._to_env(action)
        except Exception as error:
            b, fault = _find_at_fault(to_env(self.action_space), lambda: [action[b] for b in range(self.n)])
            raise self._error("step", fault or error, b) from error
        try:
            self._env_send(action_of_env)
        except BaseException as error:
            self._fail(f"step with action {action!r:.200}", error)
        self._sent = True

    def recv(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Wait for the results of the actions.

        Returns:
            observation in row form [B, ...], reward float32 [B], terminated bool [B], truncated bool [B], info.

        Raises:
            EnvError: if the environment raises, an observation is not in its space, or a reward is not finite.
        """
        self._sent = False
        try:
            result = self._env_recv()
            if not isinstance(result, tuple) or len(result) != 5:
                raise TypeError(
                    f"expected (observation, reward, terminated, truncated, info), got {told_result(result)}."
                )
            observation, reward, terminated, truncated, info = result
            reward = self._rewards(reward)
            terminated = as_flags(terminated, "terminated", self.n)
            truncated = as_flags(truncated, "truncated", self.n)
            info = vector_info(info, self.n)
            if "traj_done" in info:
                info = {**info, "traj_done": self._traj_done(info)}
            rows = self._converted(observation)
            if not FINAL_KEYS.keys().isdisjoint(info):
                ended = self._ended_with(info, terminated | truncated)
                if ended.any():
                    rows, info = with_final(self._own_observation_space, rows, info, ended)
            is_finite = np.isfinite(reward)
        except BaseException as error:
            self._fail("step", error)
        if not is_finite.all():
            b = int(np.flatnonzero(~is_finite)[0])
            raise self._error("step", ValueError(f"reward: expected a finite number, got {reward[b]}."), b)
        goes_on = ~(terminated | truncated)
        return self._masked(rows, info, "step", goes_on), reward, terminated, truncated, info

    def why_no_state(self) -> str:
        """Return why vector environments have no state: most step in threads or processes that cannot be read."""
        return (
            f"{self.name} ({_ranks_text(self.ranks)}) cannot be restored: it is a vector environment, whose episodes "
            "end when a state is loaded. Single environments, without num_envs, can be restored."
        )

    def close(self) -> None:
        """Close all environments; processes that do not answer are ended."""
        inner = self.env.unwrapped
        if not isinstance(inner, AsyncVectorEnv):
            self.env.close()
            return
        with suppress(Exception):  # of a process that was killed
            if self._sent:
                inner.step_wait(_CLOSE_SECONDS)
            if inner._state is AsyncState.DEFAULT:
                self.env.close()
                return
        # A call has not come to its end. `close` would wait for its results, of which some were taken already.
        for process in inner.processes:
            process.kill()
        inner._state = AsyncState.DEFAULT
        with suppress(Exception):
            inner.close(terminate=True)
        self.env.close()

    def _reset(self, doing: str, reset: Callable[[], Reset], which: np.ndarray | None = None) -> Reset:
        try:
            if self._sent:  # in the middle of a step it takes no reset
                self._sent = False
                self._env_recv()
            observation, info = reset()
            info, rows = vector_info(info, self.n), self._converted(observation)
        except BaseException as error:
            self._fail(doing, error)
        self.masks.first_reset(info)
        if self.masks.in_rows and isinstance(self._source, NextStepEnv):
            raise self._error(
                doing,
                TypeError(
                    "it has masks of actions, and its autoreset mode is SAME_STEP or DISABLED, where the first step "
                    "of an episode takes the null action; expected AutoresetMode.NEXT_STEP. Make it in that mode."
                ),
            )
        return self._masked(rows, info, doing, np.ones(self.n, bool) if which is None else which), info

    def _seeded_reset(self, seeds: list[int]) -> Reset:
        """Reset with seeds in the first form that the environment takes, and keep that form."""
        if len(seeds) != self.n:
            raise ValueError(f"expected {self.n} seeds, got {len(seeds)}.")
        refused: Exception | None = None
        for form in self._seed_forms:
            try:
                result: Reset = self._source.reset(seed=form(seeds))
            except _NOT_THIS_FORM as error:
                refused = refused or error
            else:
                self._seed_forms = (form,)
                return result
        raise cast(Exception, refused)

    def _rewards(self, value: Buffer) -> np.ndarray:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            several = f" One value for each of several agents is not supported; {SEVERAL_AGENTS}."
            hint = several if isinstance(value, Mapping) else ""
            raise TypeError(f"reward: expected {self.n} numbers, got {type(value).__name__} {value!r:.100}.{hint}")
        if array.shape != (self.n,):
            hint = ""
            if array.ndim == 2 and len(array) == self.n:
                hint = " Objectives can be weighed into one reward by LinearReward of mo_gymnasium.wrappers.vector."
            raise ValueError(f"reward: expected shape {(self.n,)}, got {array.shape}.{hint}")
        return array.astype(np.float32, copy=False)

    def _traj_done(self, info: Info) -> np.ndarray:
        value, given = info["traj_done"], info.get("_traj_done")
        if given is not None:
            value = [one if was else True for one, was in zip(value, given, strict=True)]
        return as_flags(value, "info['traj_done']", self.n)

    def _ended_with(self, info: Info, done: np.ndarray) -> np.ndarray:
        """Return where an episode ended whose final observation is in info, as the environment resets itself."""
        key = final_key(info)
        if key is None:
            return np.zeros(self.n, bool)
        given = info.get(f"_{key}")
        if given is None:
            finals = info[key]
            given = [one is not None for one in finals] if isinstance(finals, np.ndarray) else np.ones(self.n, bool)
        ended: np.ndarray = done & np.asarray(given, bool)
        return ended

    def _in_rows(self, observation: Buffer) -> Buffer:
        try:
            return self._to_rows(observation)
        except Exception as error:
            batch = batch_space(self._own_observation_space, self.n)
            b, fault = _find_at_fault(to_rows(self._own_observation_space), lambda: list(iterate(batch, observation)))
            raise _Fault(b, fault or error) from error

    def _masked(self, rows: Buffer, info: Info, doing: str, acts: np.ndarray) -> Buffer:
        """Return observations with their masks, if they have some; `acts` [B] is False where no action follows."""
        if not self.masks.in_rows:
            return rows
        try:
            return self.masks.observed(rows, info, acts)
        except Exception as error:
            raise self._error(doing, error, error.b if isinstance(error, MaskError) else None) from error

    def _fail(self, doing: str, error: BaseException) -> NoReturn:
        """Raise the EnvError of what an environment raised; an interrupt stays one."""
        if is_end_of_run(error):
            raise error
        raise self._error(doing, error) from error

    def _error(self, doing: str, error: BaseException, b: int | None = None) -> EnvError:
        if isinstance(error, _Fault):
            b, error = error.args
        who = _ranks_text(self.ranks)
        if b is not None:
            who = f"rank {self.ranks[b]} of {who}"
            who += "" if self._seeds is None else f", seed {self._seeds[b]}"
        return EnvError(f"{self.name} ({who}), its step {self.n_steps}: {doing}: {failure(error)}")


def makes_vector_env(EnvCls: Any) -> bool:
    """Return whether `EnvCls` makes a vector environment: its signature has a parameter `num_envs`.

    `gymnasium.make_vec`, `ale_py.vector_env.AtariVectorEnv`, `atari_make_vec` and `envpool_make_vec` have it.
    """
    return has_parameter(EnvCls, "num_envs")


def make_vector_env(
    EnvCls: Callable[..., object], env_kwargs: Kwargs, ranks: Sequence[int], *, env_seed: int | None = None
) -> VectorEnvAdapter:
    """Build a vector environment and wrap it in the adapter.

    `EnvCls` gets a deep copy of the arguments, see `rlpyt.envs.making.call_env_cls`.

    Args:
        EnvCls: any callable with a parameter `num_envs` that returns a vector environment.
        env_kwargs: its other arguments; an `autoreset_mode` among them, or in `vector_kwargs`, becomes NEXT_STEP.
        ranks: numbers of the environments among all of the run; `num_envs` is their number.
        env_seed: given to an `EnvCls` with a parameter of this name, unless `env_kwargs` has it. None is the
            first rank.

    Raises:
        ValueError: if `env_kwargs` has `num_envs`.
        EnvError: if `EnvCls` raises, or returns something that cannot be used, or the environment that it has returned
            before; the text has the call.
    """
    if "num_envs" in env_kwargs:
        raise ValueError(
            f"env_kwargs has num_envs={env_kwargs['num_envs']!r}, but the sampler decides how many environments a "
            "process holds. Leave it out, and set batch_B and n_workers."
        )
    kwargs = {**in_next_step(env_kwargs), "num_envs": len(ranks)}
    env = None
    try:
        env = call_env_cls(EnvCls, kwargs, ranks[0] if env_seed is None else env_seed)
        return VectorEnvAdapter(env, ranks)
    except BaseException as error:
        if isinstance(env, VectorEnv):
            env.close()
        if is_end_of_run(error):
            raise
        raise EnvError(
            f"Making the environments of {_ranks_text(ranks)}: {call_text(EnvCls, kwargs)} failed: {failure(error)}"
        ) from error


def batch_rows_space(space: Space, n: int) -> Space:
    """Return the space whose row form is n row forms of `space`, stacked.

    `batch_space` of gymnasium makes a Box of MultiDiscrete and of MultiBinary. A Box has no `start`, and it clips an
    index out of range instead of refusing it. It also sorts the keys of a Dict.
    """
    match space:
        case Discrete():
            return MultiDiscrete(np.full(n, space.n), dtype=space.dtype, start=np.full(n, space.start))
        case MultiDiscrete():
            nvec, start = (np.repeat(x[None], n, 0) for x in (space.nvec, space.start))
            return MultiDiscrete(nvec, dtype=space.dtype, start=start)
        case MultiBinary():
            return MultiBinary((n, *space.shape))
        case Dict():
            return Dict([(key, batch_rows_space(part, n)) for key, part in subspaces(space)])
        case Tuple():
            return Tuple([batch_rows_space(part, n) for _, part in subspaces(space)])
    return batch_space(space, n)


def _find_at_fault(
    convert: Callable[[Any], Any], values: Callable[[], Sequence[Any]]
) -> tuple[int | None, Exception | None]:
    """Return the first environment whose value cannot be converted, and the error; none if all can alone."""
    faults: list[tuple[int, Exception]] = []
    try:
        ones = values()
    except Exception:
        return None, None
    for b, one in enumerate(ones):
        try:
            convert(one)
        except Exception as error:
            faults.append((b, error))
    return (None, None) if not faults or len(faults) == len(ones) > 1 else faults[0]


def _ranks_text(ranks: Sequence[int]) -> str:
    ranks = list(ranks)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"
