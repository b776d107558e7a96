"""Acting without a sampler: one observation at a time, or a batch, as a script that renders or deploys has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rlpyt.agents.actor import ModelActor, of_its_kind
from rlpyt.core import Agent
from rlpyt.envs import EnvAdapter
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, null_action, null_value, same_rows, subspaces
from rlpyt.types import AgentStep, TrajInfo
from rlpyt.utils.arrays import buffer_func, buffer_leaves


class ByHand:
    """Acting of an agent in environments of a script, without a sampler; the agent's methods of this kind call it.

    `eval_mode` and `sample_mode` begin an episode in evaluation or in training; without either the first `step` acts as
    after `eval_mode(0)`. The noise follows torch's global seed.

    Args:
        agent: that acts.
        actor: of a sampler, where an agent whose class has a `step` of its own acts for one (see `rlpyt.old_steps`);
            None makes actors for as many rows as a script gives.
    """

    def __init__(self, agent: Agent, actor: ModelActor | None = None) -> None:
        self._agent = of_its_kind(agent)
        self._actor = actor
        self._in_training: ModelActor | None = None
        self._of_sampler = actor is not None
        self.mode: str | None = None
        """Which mode method was called last in this process: "train", "sample" or "eval"; None before."""

    def __getstate__(self) -> dict[str, object]:
        """Return the state of a copy, which has no actors yet."""
        return {**vars(self), "_actor": None, "_in_training": None}

    @property
    def actor(self) -> ModelActor:
        """Actor of the rows that were given last."""
        if self._actor is None:
            self._agent.eval_mode(0)
        assert self._actor is not None
        return self._actor

    def _new_actor(self, n_rows: int, evaluation: bool) -> ModelActor:
        self._agent.networks.check_built()
        seed = int(torch.randint(2**31 - 1, ()))
        actor: ModelActor = self._agent.ActorCls(
            self._agent, range(n_rows), n_rows, seed, evaluation=evaluation, by_hand=True
        )
        return actor

    def sample_mode(self, itr: int) -> None:
        """Make ready to act as in training, where the episodes stand."""
        self.mode = "sample"
        if not self._of_sampler:
            self._in_training = self._in_training or self._new_actor(1, evaluation=False)
            self._actor = self._in_training
        self.actor.begin(itr)

    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        """Make ready to act as in evaluation, from fresh episodes; see `rlpyt.core.Agent`."""
        self.mode = "eval"
        if not self._of_sampler:
            self._actor = self._new_actor(1, evaluation=True)
        self.actor.begin(itr, deterministic)
        if not self._of_sampler:
            self._agent.reset()  # an agent may keep a state of its own

    def step(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> AgentStep:
        """Select actions for rows [B, ...], or the action for one row without B; see `rows_of`."""
        return self._by_rows(ModelActor.step, observation, prev_action, prev_reward)

    def value(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> torch.Tensor:
        """Return the values [B] of rows, or [] of one row; the recurrent state stays where it is."""
        return self._by_rows(ModelActor.value, observation, prev_action, prev_reward)

    def _by_rows(self, method: Callable[..., Any], *row: Any) -> Buffer:
        actor = self.actor
        if self._of_sampler:
            return method(actor, *row)
        inputs, is_one = rows_of(self._agent.env_spaces, *row)
        n_rows = len(inputs[2])
        if n_rows != len(actor.env_ranks):
            before, actor = actor, self._new_actor(n_rows, actor.evaluation)
            actor.begin(before.itr, before.deterministic)
            self._actor = actor
            if not actor.evaluation:
                self._in_training = actor
        outputs = method(actor, *inputs)
        return buffer_func(outputs, lambda x: x[0]) if is_one else outputs

    def play(self, env: object, n_episodes: int = 1, *, seed: int = 0, deterministic: bool = True) -> list[TrajInfo]:
        """Run whole episodes in an environment of one's own; see `BaseAgent.play`."""
        agent = self._agent
        env = env if isinstance(env, EnvAdapter) else EnvAdapter(env)
        check_spaces(agent.env_spaces, env)
        infos = []
        for episode in range(n_episodes):
            agent.eval_mode(0, deterministic=deterministic)
            (observation, _), action, reward, traj_done = env.reset(seed=seed + episode), None, None, False
            info = TrajInfo()
            while not traj_done:
                action = agent.step(observation, action, reward).action
                observation, reward, terminated, truncated, env_info = env.step(buffer_func(action, np.asarray))
                done = terminated or truncated
                info.step(None, None, reward, done, None, env_info)
                traj_done = done and bool(env_info.get("traj_done", True))
                if done and not traj_done:
                    (observation, _), action, reward = env.reset(), None, None
                    agent.reset()
            infos.append(info)
        return infos

    def reset(self) -> None:
        """Forget the episodes of all environments."""
        self.actor.reset()

    def reset_one(self, idx: int) -> None:
        """Forget the episode of one environment."""
        self.actor.reset_one(idx)

    # ---- for an agent's own `step` ----

    @property
    def deterministic(self) -> bool:
        """Whether an evaluation asks for the most probable action."""
        return self._actor is not None and self._actor.deterministic

    @property
    def rnn_state(self) -> Buffer:
        """Recurrent state before the next step, [N, B, H] leaves; it may be set."""
        return self.actor.rnn_state

    @rnn_state.setter
    def rnn_state(self, state: Buffer) -> None:
        self.actor.rnn_state = state

    def draw_noise(self) -> torch.Tensor:
        """Return the noise [B, ...] that the distribution's `sample` takes, once a step."""
        return self.actor.draw(self._agent.distribution.draw_noise)


@contextmanager
def acting_by(agent: Agent, by_hand: ByHand) -> Iterator[None]:
    """Let an agent's methods act over another actor: that of a sampler, which calls them."""
    own = of_its_kind(agent)
    before, own.by_hand = own.by_hand, by_hand
    try:
        yield
    finally:
        own.by_hand = before


def rows_of(
    env_spaces: EnvSpaces, observation: Buffer, prev_action: Buffer, prev_reward: Buffer
) -> tuple[Buffer, bool]:
    """Return what an agent is given as tensors [B, ...], and whether it was one row without B.

    Args:
        env_spaces: of the environment.
        observation: in row form but for its dtypes, tensors or arrays, [...] or [B, ...]; of a Dict a dictionary too.
        prev_action: likewise; None is the null action.
        prev_reward: [] or [B]; None is 0.

    Raises:
        ValueError: if shapes are others, or the three do not go together.
    """
    example = (null_value(env_spaces.observation), null_action(env_spaces.action), np.float32(0))
    given = [_tensors(env_spaces.observation, observation, example[0], "observation")]
    is_one = _is_one(given[0], example[0])
    B = () if is_one else (len(buffer_leaves(given[0])[0]),)
    for name, value, null in (("prev_action", prev_action, example[1]), ("prev_reward", prev_reward, example[2])):
        space = env_spaces.action if name == "prev_action" else None
        if value is None:
            value = buffer_func(null, lambda x: np.tile(x, (*B, *(1,) * np.ndim(x))))
        given.append(_tensors(space, value, null, name))
    for name, value, null in zip(("observation", "prev_action", "prev_reward"), given, example, strict=True):
        for leaf, row in zip(buffer_leaves(value), buffer_leaves(null), strict=True):
            if tuple(leaf.shape) != (*B, *np.shape(row)):
                raise ValueError(
                    f"Acting by hand: {name} has the shape {list(leaf.shape)}; expected {[*B, *np.shape(row)]}. Give "
                    "one row of observation, previous action and previous reward, or B rows of each."
                )
    return (buffer_func(tuple(given), lambda x: x[None]) if is_one else tuple(given)), is_one


def check_spaces(expected: EnvSpaces, env: EnvAdapter) -> None:
    """Refuse an environment whose spaces are not the agent's; bounds of observations may differ.

    Raises:
        ValueError: if it has others.
    """
    if not (same_rows(env.spaces.observation, expected.observation) and env.spaces.action == expected.action):
        raise ValueError(
            f"Playing in {env.name}: its spaces are {env.spaces}; expected those of the agent, {expected}. Make the "
            "environment with the class and arguments that the agent was trained with."
        )


def _is_one(value: Buffer, row: Buffer) -> bool:
    return buffer_leaves(value)[0].dim() == np.ndim(buffer_leaves(row)[0])


def _tensors(space: Space | None, value: Buffer, row: Buffer, name: str) -> Buffer:
    """Return a value as tensors of the dtypes of a row."""
    parts = subspaces(space) if space is not None else []
    if not parts:
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(_array(value, np.asarray(row), name))
        return tensor.to(torch.as_tensor(row).dtype)
    values = [value[key] for key, _ in parts] if isinstance(value, Mapping) else list(value)
    return type(row)(*[_tensors(s, v, r, name) for (_, s), v, r in zip(parts, values, row, strict=True)])


def _array(value: Buffer, row: np.ndarray, name: str) -> np.ndarray:
    """Return a copy in the dtype of a row, as torch takes no flipped views and warns of arrays that are read-only."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths, or a tuple with an info
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"Acting by hand: {name} is a {type(value).__name__}, {value!r:.100}; expected one array. Of what "
            "env.reset() of gymnasium returns give the first, and of what env.step(action) returns likewise."
        )
    return np.array(array, row.dtype, order="C", subok=False)
