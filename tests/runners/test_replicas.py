"""What a replica knows of the others: which environments and streams are its own, and how many steps all take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from rlpyt.runners import MinibatchRl
from rlpyt.runners.agreement import Agreement
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.replicas import Replicas
from tests.algos.small_problems import optimize
from tests.runners.runner_kit import make_algo, make_sampler


@contextmanager
def replica(algo: Any, rank: int, world_size: int = 2) -> Iterator[Any]:
    """Yield the runner of a replica that was started."""
    algorithm, agent = algo
    runner = MinibatchRl(algorithm, agent, make_sampler(), n_steps=4000, seed=3, settings=ComputeSettings())
    runner._group.agreement = Agreement(Replicas(rank, world_size))
    try:
        runner.startup()
        yield runner
    finally:
        runner.shutdown()


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_replicas_have_environments_and_streams_of_their_own(name):
    numbers, actions, states, drawn = [], [], [], []
    common: Any = None
    for rank in range(2):
        with replica(make_algo(name), rank) as runner:
            samples, _ = runner.sampler.obtain_samples(0)
            numbers.append(set(samples.env.observation[..., 0].unique().tolist()))
            actions.append(samples.agent.action.clone())
            states.append(runner.algo.generator.get_state())
            if name == "dqn":
                common = samples if common is None else common  # the same rows in both replays
                for itr in range(4):
                    runner.algo.append(itr, common)
                drawn.append(runner.algo.feed.sample_batch().agent_inputs.observation)
    assert len(numbers[0]) == 4
    assert not numbers[0] & numbers[1]
    assert not torch.equal(*actions)
    assert not torch.equal(*states)
    if drawn:
        assert not torch.equal(*drawn)


@pytest.mark.parametrize("world_size", [1, 2])
def test_schedules_of_a_replay_count_the_steps_of_all_replicas(world_size):
    settings: dict[str, Any] = dict(
        prioritized_replay=True, pri_beta_init=0.4, pri_beta_final=1.0, pri_beta_steps=400, eps_steps=400
    )
    with replica(make_algo("dqn", min_steps_learn=2000, **settings), 0, world_size) as runner:
        for itr in range(3):
            optimize(runner.algo, itr, runner.sampler.obtain_samples(itr)[0])
        # 20 steps of each replica an iteration: exploration is set for the next one, beta for this one.
        assert runner.agent.fraction == pytest.approx(60 * world_size / 400)
        assert runner.algo.replay.index.beta == pytest.approx(0.4 + 0.6 * 40 * world_size / 400)


def test_the_replay_ratio_counts_the_rows_of_all_replicas(monkeypatch):
    with replica(make_algo("ppo"), 0) as runner:
        seen: dict[str, Any] = {}
        monkeypatch.setattr(runner.logger, "record_tabular", seen.__setitem__)
        optimize(runner.algo, 0, runner.sampler.obtain_samples(0)[0])
        runner._log.record_counters(1, 1.0)
        assert seen["ReplayRatio"] == seen["CumReplayRatio"] == runner.algo.epochs
