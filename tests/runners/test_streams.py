"""What a replica knows of the others: its own random streams and environments, and how many steps all take."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.runners import MinibatchRl
from rlpyt.runners.agreement import Agreement
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.replicas import Replicas
from tests.algos.small_problems import optimize
from tests.runners.runner_kit import make_algo, make_sampler

SEED, T, B = 3, 3, 4


@contextmanager
def replica(parts: Any, rank: int, world_size: int = 2, sampler: Any = None) -> Iterator[Any]:
    """Yield the runner of a replica that was started."""
    algo, agent = parts
    sampler = sampler or make_sampler()
    runner = MinibatchRl(algo, agent, sampler, n_steps=4000, seed=SEED, settings=ComputeSettings())
    runner._group.agreement = Agreement(Replicas(rank, world_size))
    try:
        runner.startup()
        yield runner
    finally:
        runner.shutdown()


class Drawing(gymnasium.Env[Any, Any]):
    """Environment whose observations are drawn from its own generator and from those of its process."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (4,), np.float64)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observation(), 0.0, False, False, {}

    def _observation(self) -> np.ndarray:
        of_process = drawn_from_the_process()
        return np.array([self.np_random.random(), *of_process])


def drawn_from_the_process() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand((), dtype=torch.float64))]


def drawn_by(generator: Any) -> float:
    if isinstance(generator, torch.Generator):
        return float(torch.rand((), dtype=torch.float64, generator=generator))
    return float(generator.random())


def noise_of(agent: Any, rank: int, world_size: int, n_workers: int, evaluation: bool) -> list[float]:
    """Draw the noise of one step as the actors of a replica's workers do."""
    numbers: list[float] = []
    for ranks in np.array_split(np.arange(rank * B, (rank + 1) * B), n_workers):
        actor = agent.actor(ranks.tolist(), world_size * B, SEED, evaluation=evaluation)
        actor.begin(1)
        numbers += actor.draw(lambda n, g: torch.rand(n, dtype=torch.float64, generator=g)).tolist()
    return numbers


def test_no_two_streams_of_a_run_draw_the_same_numbers() -> None:
    numbers: dict[tuple[int, str], list[float]] = {}
    for rank in range(3):
        kind, n_workers = [("cpu2", 2), ("cpu1", 1), ("serial", 1)][rank]
        settings: dict[str, Any] = dict(batch_size=4, min_steps_learn=20, replay_size=300, prioritized_replay=True)
        algo: Any = DQN(**settings)
        agent = DqnAgent(model_kwargs=dict(hidden_sizes=4))
        sampler = make_sampler(kind, Drawing, T, B, max_decorrelation_steps=0)
        with replica((algo, agent), rank, 3, sampler) as runner:
            observations = [runner.sampler.obtain_samples(itr)[0].env.observation.clone() for itr in range(2)]
            numbers[rank, "environments and workers"] = torch.cat(observations).flatten().tolist()
            numbers[rank, "algorithm"] = [drawn_by(algo.generator) for _ in range(4)]
            numbers[rank, "replay"] = [drawn_by(algo.replay.index.rng) for _ in range(4)]
            numbers[rank, "process"] = [x for _ in range(4) for x in drawn_from_the_process()]
            for evaluation in (False, True):
                numbers[rank, f"actions {evaluation}"] = noise_of(agent, rank, 3, n_workers, evaluation)
    counts = Counter(x for own in numbers.values() for x in own)
    assert len(numbers) == 3 * 6
    assert sum(counts.values()) == 3 * (2 * T * B * 4 + 4 + 4 + 12 + 2 * B)
    again = {x for x, n in counts.items() if n > 1}
    assert not {stream: sum(x in again for x in own) for stream, own in numbers.items() if again & set(own)}


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
