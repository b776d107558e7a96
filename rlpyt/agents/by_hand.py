"""Acting without a sampler: one observation at a time, or a batch, as a script that renders or deploys has them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from rlpyt.agents.actor import ModelActor
from rlpyt.envs import EnvAdapter
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, null_action, null_value, same_rows, subspaces
from rlpyt.types import AgentStep, TrajInfo
from rlpyt.utils.arrays import buffer_func, buffer_leaves


class ActsByHand:
    """Methods of an agent that act over an actor of its own, for scripts without a sampler.

    `eval_mode` and `sample_mode` begin an episode in evaluation or in training; without either the first `step` acts as
    after `eval_mode(0)`. The noise follows torch's global seed. While a sampler steps an agent whose class defines one
    of these methods itself, the sampler's actor is in charge instead (see `OwnStepActor`).
    """

    env_spaces: EnvSpaces
    distribution: Any
    _mode: str | None = None
    _in_charge: ModelActor | None = None
    _in_training: ModelActor | None = None  # the one by hand that `sample_mode` goes on with

    @abstractmethod
    def actor_by_hand(self, n_rows: int, evaluation: bool) -> ModelActor:
        """Return an actor for environments that no sampler steps; the agent must be initialised."""

    def best_action(self, output: Buffer) -> torch.Tensor:
        """Return the actions [B] of a deterministic evaluation, of what `act` takes.

        Raises:
            TypeError: if the agent has no such rule.
        """
        raise TypeError(
            f"{type(self).__name__}: has no best_action; expected the rule of its deterministic evaluation. Write "
            "best_action(self, output), which returns actions [B] without noise."
        )

    @property
    def mode(self) -> str | None:
        """Which mode method was called last in this process: "train", "sample" or "eval"; None before."""
        return self._mode

    @property
    def in_charge(self) -> ModelActor:
        """Actor that the methods below act over."""
        if self._in_charge is None:
            self.eval_mode(0)
        assert self._in_charge is not None
        return self._in_charge

    def put_in_charge(self, actor: ModelActor | None) -> ModelActor | None:
        """Let another actor be in charge, and return the one that was."""
        before, self._in_charge = self._in_charge, actor
        return before

    def sample_mode(self, itr: int) -> None:
        """Make ready to act as in training, where the episodes stand."""
        self._mode = "sample"
        self._begin(self._training_by_hand, itr)

    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        """Make ready to act as in evaluation, from fresh episodes.

        Args:
            itr: the iteration; by hand it has no effect on Q-learners.
            deterministic: whether to take the most probable action, without exploration, instead of a sampled one.
        """
        self._mode = "eval"
        self._begin(lambda: self.actor_by_hand(1, evaluation=True), itr, deterministic)

    def _training_by_hand(self) -> ModelActor:
        if self._in_training is None:
            self._in_training = self.actor_by_hand(1, evaluation=False)
        return self._in_training

    def _begin(self, by_hand: Callable[[], ModelActor], itr: int, deterministic: bool = False) -> None:
        """Begin with the sampler's actor, if one is in charge, or else with one by hand."""
        actor = self._in_charge
        if actor is None or actor.by_hand:
            actor = by_hand()
        ModelActor.begin(actor, itr, deterministic)
        self._in_charge = actor

    def step(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> AgentStep:
        """Select actions for rows [B, ...]; by hand one row without B gives one action. All is on the CPU.

        Args:
            observation: by hand see `rows_of`, which the other two follow as well.
            prev_action: what `step` returned last.
            prev_reward: of that action.
        """
        step: AgentStep = self._by_rows(ModelActor.step, observation, prev_action, prev_reward)
        return step

    def play(self, env: object, n_episodes: int = 1, *, seed: int = 0, deterministic: bool = True) -> list[TrajInfo]:
        """Run whole episodes in an environment of one's own, such as one that shows them in a window.

            agent.play(gymnasium.make("CartPole-v1", render_mode="human"))

        Args:
            env: any single environment that a sampler takes, or an `EnvAdapter` around one, with the spaces of the
                agent; it stays open. Where its info has `traj_done` False, as after a lost life in Atari, the episode
                goes on after a `reset`, as in an evaluation.
            n_episodes: how many.
            seed: of the first episode; the next ones have the next seeds.
            deterministic: whether to take the most probable action, without exploration, instead of a sampled one.

        Returns:
            The statistics of every episode, such as `Return` and `Length`. The discount is 1, so `DiscountedReturn` is
            the return.

        Raises:
            EnvError: if the environment raises, or gives values that its spaces do not allow.
            TypeError: if it is no environment, or a vector environment.
            ValueError: if it has other spaces than the agent.
        """
        env = env if isinstance(env, EnvAdapter) else EnvAdapter(env)
        check_spaces(self.env_spaces, env)
        infos = []
        for episode in range(n_episodes):
            self.eval_mode(0, deterministic=deterministic)
            (observation, _), action, reward, traj_done = env.reset(seed=seed + episode), None, None, False
            info = TrajInfo()
            while not traj_done:
                action = self.step(observation, action, reward).action
                observation, reward, terminated, truncated, env_info = env.step(buffer_func(action, np.asarray))
                done = terminated or truncated
                info.step(None, None, reward, done, None, env_info)
                traj_done = done and bool(env_info.get("traj_done", True))
                if done and not traj_done:
                    (observation, _), action, reward = env.reset(), None, None
                    self.reset()
            infos.append(info)
        return infos

    def value(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> torch.Tensor:
        """Return the values [B] of rows, or [] of one row by hand; the recurrent state stays where it is."""
        value: torch.Tensor = self._by_rows(ModelActor.value, observation, prev_action, prev_reward)
        return value

    def _by_rows(self, method: Callable[..., Any], *row: Any) -> Buffer:
        actor = self.in_charge
        if not actor.by_hand:
            return method(actor, *row)
        inputs, is_one = rows_of(self.env_spaces, *row)
        n_rows = len(inputs[2])
        if n_rows != len(actor.env_ranks):
            before, actor = actor, self.actor_by_hand(n_rows, actor.evaluation)
            ModelActor.begin(actor, before.itr, before.deterministic)
            self._in_charge = actor
            if not actor.evaluation:
                self._in_training = actor
        outputs = method(actor, *inputs)
        return buffer_func(outputs, lambda x: x[0]) if is_one else outputs

    def reset(self) -> None:
        """Forget the episodes of all environments."""
        ModelActor.reset(self.in_charge)

    def reset_one(self, idx: int) -> None:
        """Forget the episode of one environment."""
        ModelActor.reset_one(self.in_charge, idx)

    @property
    def deterministic(self) -> bool:
        """Whether an evaluation asks for the most probable action; a `step` of one's own reads it."""
        return self._in_charge is not None and self._in_charge.deterministic

    @property
    def rnn_state(self) -> Buffer:
        """Recurrent state before the next step, [N, B, H] leaves; it may be set."""
        return self.in_charge.rnn_state

    @rnn_state.setter
    def rnn_state(self, state: Buffer) -> None:
        self.in_charge.rnn_state = state

    def draw_noise(self) -> torch.Tensor:
        """Return the noise [B, ...] that the distribution's `sample` takes; for a `step` of one's own, once a step."""
        return self.in_charge.draw(self.distribution.draw_noise)


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
