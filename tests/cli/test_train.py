from __future__ import annotations

import json

import pytest

from rlpyt.algos import DQN, PPO
from rlpyt.cli import main
from rlpyt.cli.algorithms import ALGORITHMS, OTHER_NAMES, algorithm, check_fits
from rlpyt.cli.environment import environment
from rlpyt.cli.train import TrainChoices, record_of_path, runner_of, start_of
from rlpyt.launching.smoke import smoke
from rlpyt.runners import AsyncRl, MinibatchRl, SyncRlEval
from rlpyt.samplers import CpuSampler, SerialSampler

ENVS = ["CartPole-v1", "Pendulum-v1", "pong", "InvertedPendulum-v5", "FrozenLake-v1"]


@pytest.fixture(scope="module")
def envs():
    return {name: environment(name) for name in ENVS}


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_each_algorithm_is_built_where_it_fits_and_refused_elsewhere(name, envs):
    chosen, n_built = algorithm(name), 0
    for env in envs.values():
        if env.actions not in chosen.actions:
            with pytest.raises(ValueError, match="These take them: .*ppo"):
                check_fits(name, chosen, env)
            continue
        check_fits(name, chosen, env)
        runner = runner_of(chosen, env, TrainChoices(evaluate=True))
        # The networks fit the spaces, too.
        runner.agent.initialize(env.spaces)
        assert smoke(runner).n_steps < 20_000
        n_built += 1
    assert n_built >= 2
