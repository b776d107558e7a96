"""Recognition of environments of several agents, which get a refusal that says so."""

from __future__ import annotations

from rlpyt.envs.making import layers_of

SEVERAL_AGENTS = "agents of rlpyt act in environments of one agent, see docs/own_environment.md, Several agents"
_NAMES = ("possible_agents", "n_agents", "num_agents", "num_players", "agents")
_SPACES = ("observation_space", "action_space")


def check_one_agent(env: object) -> None:
    """Refuse an environment of several agents.

    An attribute such as `agents` says nothing alone. It counts where a space is missing, or where actions are a Tuple
    or a Dict. A space that is a method is PettingZoo's way to give one to each agent.

    Raises:
        TypeError: if it has several.
    """
    found = [name for name in _NAMES if any(hasattr(layer, name) for layer in layers_of(env))]
    methods = [name for name in _SPACES if callable(getattr(env, name, None))]
    missing = [name for name in _SPACES if not hasattr(env, name)]
    action_space = getattr(env, "action_space", None)
    if methods:
        what = f"{' and '.join(methods)} is a method, as in PettingZoo"
    elif found and missing:
        what = f"it has {found[0]}, and no {' and '.join(missing)}"
    elif found and type(action_space).__name__ in ("Tuple", "Dict"):
        what = f"it has {found[0]}, and its actions are a {type(action_space).__name__}"
    else:
        return
    own = " Make it an attribute or a property if there is one agent." if methods else ""
    raise TypeError(f"{type(env).__name__} has several agents: {what}; {SEVERAL_AGENTS}.{own}")
