"""Agents whose class has a `step`, or another method of acting, of its own, as those of rlpyt 0.1 had.

Such an agent may keep a state between `reset`, `sample_mode` and `step`. A sampler acts by it through `OwnStepActor`,
which calls these methods in the order of rlpyt 0.1. Where they call `super().step(...)` and the like, the library's
method acts in the environments of that sampler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

METHODS = ("step", "value", "sample_mode", "eval_mode", "reset", "reset_one")


def acts_itself(cls: type) -> bool:
    """Return whether a class of a user's defines a method of acting."""
    own = [vars(base) for base in cls.__mro__ if base.__module__.split(".")[0] != "rlpyt"]
    return any(name in names for names in own for name in METHODS)


class OwnStepActor:
    """Actor (see `rlpyt.core.Actor`) that calls an agent's methods: `reset`, `sample_mode` or `eval_mode`, then `step`.

    Args:
        acting: agent that has the methods.
        by_rule: actor of the same environments, by the rule of the library.
        by_hand: what the agent's methods of the library call, over that actor.
    """

    def __init__(self, acting: Any, by_rule: Any, by_hand: Any) -> None:
        self.agent, self._actor, self._by_hand = acting, by_rule, by_hand
        self._is_reset = False

    def begin(self, itr: int, deterministic: bool = False) -> None:
        """Call `reset`, before the first batch and every evaluation, and `sample_mode` or `eval_mode`."""
        if self._actor.evaluation or not self._is_reset:
            self.reset()
        if not self._actor.evaluation:
            self._call(self.agent.sample_mode, itr)
        else:
            # A method of the user's may lack the argument, and needs none where nothing is asked of it.
            self._call(self.agent.eval_mode, itr, **({"deterministic": True} if deterministic else {}))

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        """Call `step`."""
        return self._call(self.agent.step, observation, prev_action, prev_reward)

    def value(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        """Call `value`."""
        return self._call(self.agent.value, observation, prev_action, prev_reward)

    def reset(self) -> None:
        """Call `reset`."""
        self._is_reset = True
        self._call(self.agent.reset)

    def reset_one(self, idx: int) -> None:
        """Call `reset_one`."""
        self._call(self.agent.reset_one, idx)

    def state_dict(self) -> Any:
        """Return the state of the actor of the library; what the agent keeps itself is in no checkpoint."""
        return self._actor.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """Take over what `state_dict` returned."""
        self._actor.load_state_dict(state_dict)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before, self.agent.by_hand = self.agent.by_hand, self._by_hand
        try:
            return method(*args, **kwargs)
        finally:
            self.agent.by_hand = before
