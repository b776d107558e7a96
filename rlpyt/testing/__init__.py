"""Contracts of environments, models, agents, replays, samplers and algorithms, as functions to call in own tests.

    from rlpyt.testing import check_env

    def test_my_env():
        check_env(MyEnv, dict(size=3))

The tests of the library call the same functions. A broken contract is an `AssertionError` that says what was checked,
what came and what was expected.
"""

from rlpyt.testing.agents import check_agent
from rlpyt.testing.envs import check_env
from rlpyt.testing.models import check_model
from rlpyt.testing.replays import check_replay, random_rows
from rlpyt.testing.runs import check_algo, check_sampler

__all__ = [
    "check_agent",
    "check_algo",
    "check_env",
    "check_model",
    "check_replay",
    "check_sampler",
    "random_rows",
]
