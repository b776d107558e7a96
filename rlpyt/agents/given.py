"""Checks of what an agent is given: settings, the spaces of an environment, and states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlpyt.core import Agent
from rlpyt.spaces import EnvSpaces
from rlpyt.types import StateDict


def check_dictionaries(who: str, **given: object) -> None:
    """Refuse anything but dictionaries, such as the QModelCls that agents of rlpyt 0.1 had as their second argument.

    Raises:
        TypeError: if a setting is something else.
    """
    for name, value in given.items():
        if not isinstance(value, Mapping | None):
            raise TypeError(
                f"{who}: {name} is {value!r:.100}; expected a dictionary or None. Only ModelCls, model_kwargs and "
                "initial_model_state_dict may come without a name, in this order. Name all others, as QModelCls=..."
            )


def of_its_kind(agent: Agent) -> Any:
    """Return an agent with the settings, networks and parts that its kind has beside those of any agent."""
    return agent


def as_env_spaces(who: str, given: Any) -> EnvSpaces:
    """Return the spaces of an environment, which may be given as a plain pair.

    Raises:
        TypeError: if something else was given.
    """
    if isinstance(given, tuple) and len(given) == 2:
        return EnvSpaces(*given)
    raise TypeError(
        f"{who}: initialize was given {given!r:.100}; expected the spaces of an environment. Write "
        "agent.initialize(EnvSpaces(env.observation_space, env.action_space)), with EnvSpaces of rlpyt.envs."
    )


def check_state(who: str, state: StateDict) -> None:
    """Refuse a whole snapshot in place of the agent's state.

    Raises:
        ValueError: if it is one.
    """
    if "agent_state_dict" in state:
        raise ValueError(
            f"{who}: was given a snapshot, with {', '.join(map(repr, state))}; expected the agent's state in it. Give "
            'snapshot["agent_state_dict"].'
        )
