"""Agents with a `step`, or another method of acting, of their own, as those of rlpyt 0.1 had.

Such an agent may keep a state between `reset`, `sample_mode` and `step`. Where its methods call `super().step(...)` and
the like, the library's method acts in the environments of the sampler that called.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import torch

from rlpyt.core import Actor, Agent
from rlpyt.namedarraytuple import Buffer
from rlpyt.types import AgentStep, StateDict

R = TypeVar("R")


class OwnStepActor(Actor):
    """Actor that calls the methods of an agent in the order of rlpyt 0.1: `reset`, a mode, `step`.

    Args:
        agent: has the methods.
        actor: of the same environments, by the rule of the library.
        acting: makes the context in which the agent's methods of the library act over that actor.
        evaluation: whether the environments are the evaluation's.
    """

    def __init__(
        self, agent: Agent, actor: Actor, acting: Callable[[], AbstractContextManager[None]], evaluation: bool
    ) -> None:
        self.agent, self.actor, self.evaluation = agent, actor, evaluation
        self._acting, self._is_reset = acting, False

    def begin(self, itr: int, deterministic: bool = False) -> None:
        """Call `reset`, before the first batch and every evaluation, and `sample_mode` or `eval_mode`."""
        if self.evaluation or not self._is_reset:
            self.reset()
        if not self.evaluation:
            self._call(self.agent.sample_mode, itr)
        else:
            # A method of the user's may lack the argument, and needs none where nothing is asked of it.
            self._call(self.agent.eval_mode, itr, **({"deterministic": True} if deterministic else {}))

    def step(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> AgentStep:
        """Call `step`."""
        return self._call(self.agent.step, observation, prev_action, prev_reward)

    def value(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> torch.Tensor:
        """Call `value`."""
        return self._call(self.agent.value, observation, prev_action, prev_reward)

    def reset(self) -> None:
        """Call `reset`."""
        self._is_reset = True
        self._call(self.agent.reset)

    def reset_one(self, idx: int) -> None:
        """Call `reset_one`."""
        self._call(self.agent.reset_one, idx)

    def state_dict(self) -> StateDict:
        """Return the state of the actor of the library; what the agent keeps itself is in no checkpoint."""
        return self.actor.state_dict()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""
        self.actor.load_state_dict(state_dict)

    def _call(self, method: Callable[..., R], *args: Buffer, **kwargs: bool) -> R:
        with self._acting():
            return method(*args, **kwargs)
