"""What is recorded of actions, and what the environment executes, in dimensions with equal bounds and of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DdpgAgent, GaussianPgAgent, RecurrentSacAgent, SacAgent, Td3Agent
from rlpyt.algos import DDPG, PPO, SAC, TD3
from rlpyt.core import example_inputs
from tests.algos.small_problems import RandomEnv, optimize, set_up

FIXED = spaces.Box(np.array([-1, 2, 0], np.float32), np.array([1, 2, 10], np.float32))
WHOLE = spaces.Box(np.array([0, 2, -3], np.int32), np.array([10, 2, 3], np.int32), dtype=np.int32)
SMALL: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=8), q_model_kwargs=dict(hidden_sizes=8))
REPLAY: dict[str, Any] = dict(replay_size=200, min_steps_learn=60, replay_ratio=4, batch_size=16)
SEQUENCES: dict[str, Any] = dict(batch_T=2, batch_B=4, warmup_T=2)
CASES: dict[str, Any] = {
    "DDPG": lambda: (DDPG(**REPLAY), DdpgAgent(**SMALL)),
    "TD3": lambda: (TD3(**REPLAY), Td3Agent(**SMALL, pretrain_std=0.5)),
    "SAC": lambda: (SAC(**REPLAY), SacAgent(**SMALL)),
    "recurrent SAC": lambda: (
        SAC(**REPLAY, **SEQUENCES),
        RecurrentSacAgent(**SMALL, feature_kwargs=dict(rnn_size=6)),
    ),
    "PPO": lambda: (PPO(minibatches=2, epochs=2), GaussianPgAgent(model_kwargs=dict(hidden_sizes=8))),
}


class NotingEnv(RandomEnv):
    """`RandomEnv` that notes what it is given."""

    def __init__(self, action_space: Any, noted: list[np.ndarray]) -> None:
        super().__init__(action_space)
        self.noted = noted

    def step(self, action: Any) -> Any:
        self.noted.append(np.array(action))
        return super().step(action)


def run(case: str, space: spaces.Box) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Learn for some batches; return algorithm, agent, and what was recorded and executed in valid rows."""
    noted: list[np.ndarray] = []
    algo, agent = CASES[case]()
    sampler = set_up(algo, agent, lambda: NotingEnv(space, noted), {}, T=16, B=1, n_itr=10)
    noted.clear()
    recorded = []
    for itr in range(10):
        samples = sampler.obtain_samples(itr)[0]
        recorded.append(samples.agent.action[samples.env.valid].numpy().copy())
        optimize(algo, itr, samples)
    return algo, agent, np.concatenate(recorded), np.stack(noted)


@pytest.mark.parametrize(
    ("case", "space"), [*((case, WHOLE) for case in CASES), *((case, FIXED) for case in ("recurrent SAC", "PPO"))]
)
def test_a_fixed_dimension_stays_and_integers_are_recorded_before_rounding_and_executed_after_it(case, space):
    """Nothing else depends on a dimension with equal bounds."""
    algo, agent, recorded, executed = run(case, space)
    clipped = recorded.clip(space.low, space.high)
    np.testing.assert_array_equal(executed, np.rint(clipped) if space is WHOLE else clipped)
    assert executed.dtype == space.dtype
    assert (recorded[:, 1] == 2).all()
    assert (recorded[:, [0, 2]] != np.rint(recorded[:, [0, 2]])).mean() > 0.9
    assert (np.ptp(executed[:, [0, 2]], axis=0) > 0.2 * (space.high - space.low)[[0, 2]]).all()
    if case == "PPO":
        # The density is that of the action which the policy gave: it tells 3.4 from 3, which are both executed as 3.
        dist_info = agent.distribution.DistInfo(torch.zeros(3), torch.zeros(3))
        a, b = (agent.distribution.log_prob(torch.tensor([x, 2.0, 0]), dist_info) for x in (3.4, 3.0))
        assert a != b
        return
    rows = agent.features(*example_inputs(agent.env_spaces, 4), *([None, None] if agent.recurrent else []))
    one, other = torch.zeros(4, 3), torch.tensor([[0, 0.7, 0]] * 4)
    for q in (agent.q, agent.first_q, agent.target_q):
        assert torch.equal(q(rows, one), q(rows, other))
    if isinstance(algo, SAC):
        assert algo.hyper(0).target_entropy == -2
