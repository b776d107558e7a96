"""Sampler, agent and algorithm that are saved in a file and loaded by fresh ones go on without a bit of difference.

Every algorithm learns from what its agent collects, so whatever is missing in one of the states shows up in the others.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import CategoricalPgAgent, DdpgAgent, DiscreteSacAgent, DqnAgent
from rlpyt.algos import A2C, DDPG, DQN, PPO, QpgAlgo
from rlpyt.logging import load_snapshot, save_snapshot
from rlpyt.types import TrajInfo
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.seeds import global_streams, set_global_streams
from tests.algos.small_problems import RandomEnv, optimize, set_up
from tests.algos.test_algo_state import CASES, DQN_KWARGS, MU_AND_Q, QPG_KWARGS, SMALL
from tests.pairs import others_nightly

N = 8
"""Iterations before the state is saved, and again after it: the replays are half full, and have wrapped at the end."""


class FramesEnv(RandomEnv):
    """Stack of two small frames, each of which comes again in the next observation."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation_space = spaces.Box(0, 255, (2, 3, 3), np.uint8)
        self.frames = np.zeros((2, 3, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.frames = np.zeros((2, 3, 3), np.uint8)
        return super().reset(seed=seed)

    def _observation(self) -> np.ndarray:
        frame = self.np_random.integers(256, size=(3, 3), dtype=np.uint8)
        self.frames = np.stack([self.frames[1], frame])
        return self.frames


class DropoutModel(nn.Module):
    """Policy and value with the dropout of torch, which draws from the global stream of the process that learns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.ReLU())
        self.pi, self.v = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, observation: torch.Tensor, prev_action: torch.Tensor, prev_reward: torch.Tensor) -> Any:
        x = self.body(observation)
        return self.pi(x), self.v(x).squeeze(-1)


class Process:
    """Parts of a run, wired as a runner does it, with the loop of `MinibatchRl`."""

    def __init__(self, case: Callable[[], tuple[Any, Any]], sampler: dict[str, Any], seed: int = 0) -> None:
        self.algo, self.agent = case()
        options = dict(sampler)
        EnvCls = options.pop("EnvCls", RandomEnv)
        of_box = isinstance(self.algo, QpgAlgo) and not isinstance(self.agent, DiscreteSacAgent)
        env_kwargs = {"action_space": spaces.Box(-1, 2, (2,)) if of_box else spaces.Discrete(3)}
        options = {"max_decorrelation_steps": 5, **options}
        self.sampler = set_up(self.algo, self.agent, EnvCls, env_kwargs, n_itr=2 * N, seed=seed, **options)

    def go_on(self, first: int) -> list[Any]:
        """Return copies of the metrics, rows and trajectories of N iterations."""
        seen = []
        for itr in range(first, first + N):
            samples, infos = self.sampler.obtain_samples(itr)
            seen.append([*buffer_leaves(buffer_func(samples, torch.clone)), *map(statistics, infos)])
            seen[-1] += dict(optimize(self.algo, itr, samples)).items()
        return seen

    def state(self) -> dict[str, Any]:
        return {
            "agent": self.agent.state_dict(),
            "algo": self.algo.state_dict(),
            "sampler": self.sampler.state_dict(),
            "streams": global_streams(),
        }

    def load(self, state: dict[str, Any]) -> None:
        for name, part in (("agent", self.agent), ("algo", self.algo), ("sampler", self.sampler)):
            part.load_state_dict(state[name])
        set_global_streams(state["streams"])


def statistics(info: TrajInfo) -> Any:
    return sorted(info.statistics().items())


def check(case: Callable[[], tuple[Any, Any]], sampler: dict[str, Any], path: Path) -> None:
    first = Process(case, sampler)
    try:
        first.go_on(0)
        save_snapshot(path, first.state())
        expected = first.go_on(N)
        whole = deepcopy({name: state for name, state in first.state().items() if name != "sampler"})
    finally:
        first.sampler.shutdown()
    assert first.algo.update_counter > 0
    other = Process(case, sampler, seed=1)
    try:
        other.load(load_snapshot(path))
        assert_equal(other.go_on(N), expected, "itr")
        assert_equal({name: state for name, state in other.state().items() if name != "sampler"}, whole, "state")
    finally:
        other.sampler.shutdown()


def assert_equal(came: Any, expected: Any, place: str) -> None:
    """Compare bit for bit."""
    if isinstance(expected, dict):
        assert came.keys() == expected.keys(), place
        for key, value in expected.items():
            assert_equal(came[key], value, f"{place}[{key!r}]")
    elif isinstance(expected, torch.Tensor | np.ndarray):
        came, expected = np.asarray(came), np.asarray(expected)
        assert (came.dtype, came.shape, came.tobytes()) == (expected.dtype, expected.shape, expected.tobytes()), place
    elif isinstance(expected, list | tuple):
        assert len(came) == len(expected), place
        for i, (one, other) in enumerate(zip(came, expected, strict=True)):
            assert_equal(one, other, f"{place}[{i}]")
    else:
        assert came == expected or came != came, place


MORE_CASES: dict[str, Any] = {
    "torch's dropout": lambda: (PPO(epochs=2), CategoricalPgAgent(ModelCls=DropoutModel)),
    "coloured noise": lambda: (DDPG(**QPG_KWARGS), DdpgAgent(action_noise_correlation=0.9, **MU_AND_Q)),
    "schedules": lambda: (
        A2C(learning_rate=lambda step: 1e-3 / (1 + step / 100), discount=0.9),
        CategoricalPgAgent(model_kwargs=SMALL),
    ),
}


LIKE_ANOTHER = ["A2C", "PPO RMSprop", "PQN Adam", "DQN", "IQN", "DDPG", "SAC", "SimBa"]
LIKE_ANOTHER += ["PPO two-hot", "DQN HL-Gauss", "SAC C51"]
"""Nightly: they keep nothing that another case does not."""


@pytest.mark.parametrize("case", others_nightly([*CASES, *MORE_CASES], {*CASES, *MORE_CASES} - {*LIKE_ANOTHER}))
def test_every_algorithm_goes_on(case, tmp_path):
    check({**CASES, **MORE_CASES}[case], {}, tmp_path / "state.pkl")


def test_a_replay_of_frames_and_priorities_goes_on(tmp_path):
    convolution = dict(channels=[2], kernel_sizes=[2], strides=[1], paddings=[0], fc_sizes=8)
    check(
        lambda: (DQN(**DQN_KWARGS, prioritized_replay=True, frame_stack=2), DqnAgent(model_kwargs=convolution)),
        dict(EnvCls=FramesEnv),
        tmp_path / "state.pkl",
    )
