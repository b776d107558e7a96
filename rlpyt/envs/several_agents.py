"""Recognition of environments of several agents, which get a refusal that says so."""

from __future__ import annotations

from rlpyt.envs.making import layers_of

SEVERAL_AGENTS = "agents of rlpyt act in environments of one agent, see docs/howto/own_environment.md, Several agents"
_NAMES = ("possible_agents", "n_agents", "num_agents", "num_players", "agents")
_SPACES = ("observation_space", "action_space")


def check_one_agent(env: object) -> None:
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
    elif found := [name for name in _NAMES if any(hasattr(layer, name) for layer in layers_of(env))]:
        has = f"no {' and '.join(missing)}" if missing else f"its actions are a {composite}"
        what = f"it has {found[0]}, and {has}"
    else:
        return
    own = " Make it an attribute or a property if there is one agent." if methods else ""
    raise TypeError(f"{type(env).__name__} has several agents: {what}; {SEVERAL_AGENTS}.{own}")
