"""Command `rlpyt check-env`: whether an environment can be used, told in plain words."""

from __future__ import annotations

import warnings
from typing import Annotated

import tyro

from rlpyt.agents import PgAgent
from rlpyt.cli.arguments import NO_PAIRS, Count, Pairs
from rlpyt.cli.environment import environment, made
from rlpyt.envs import EnvError, VectorEnvAdapter, check_vector_env, make_env
from rlpyt.envs.check import check_env as check_values
from rlpyt.envs.state_check import restores_exactly


def check_env(
    env: Annotated[str, tyro.conf.Positional], *, steps: Count = 100, seed: Count = 0, env_kwargs: Pairs = NO_PAIRS
) -> int:
    """Check an environment of yours as a run does at its start; the exit code is 1 if it cannot be used.

    The default models are built for it, too: one that only a model of your own could take gives 1 as well.

    Args:
        env: id of gymnasium, game of Atari, task such as dm_control/cheetah-run, or module:name of your own.
        steps: random steps that are taken.
        seed: of the environment and of the random actions.
        env_kwargs: further arguments of the environment, as key=value.
    """
    found = environment(env, env_kwargs)
    print(f"{env}\n  observation  {found.spaces.observation}\n  action       {found.spaces.action}")
    limit = f"{found.episode_steps:,} steps" if found.episode_steps else "not known to gymnasium"
    print(f"  time limit   {limit}")
    one = made(found.EnvCls, found.env_kwargs, n_envs=2)
    other = None
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            if isinstance(one, VectorEnvAdapter):
                check_vector_env(one, seed, steps)
                difference: str | None = one.why_no_state()
            else:
                check_values(one, seed, steps)
                try:
                    other = make_env(found.EnvCls, found.env_kwargs)
                except EnvError as error:  # as of an emulator of which a process can hold one
                    difference = f"not compared, as there can be no second environment beside one: {error}"
                else:
                    difference = restores_exactly(one, other, seed, steps // 2, steps // 4)
    except EnvError as error:
        print(f"  wrong        {error}\nIt cannot be used.")
        return 1
    finally:
        one.close()
        if other is not None:
            other.close()
    print(f"  saved state  {'exact: a run resumes bit for bit' if difference is None else difference}")
    agent = PgAgent()
    try:
        agent.initialize(found.spaces)
    except (TypeError, ValueError) as error:
        print(
            f"  wrong        {error}\nIt can be used with a model of your own alone: the default ones cannot take it."
        )
        return 1
    print(f"  is read as   {agent.networks.input_description()}")
    for warning in warned:
        print(f"  warning      {warning.message}")
    print("It can be used.")
    return 0
