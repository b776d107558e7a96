"""What every row of a batch must be, told by stepping the environments in plain Python, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlpyt.types import Samples
from tests.toy_envs import N_ACTIONS

NULL_ACTION, NULL_REWARD = 0, 0.0


class Stream:
    """The rows of one environment with the agent of `CountingModel`.

    Args:
        env: its own copy of the environment, reset.
        observation: the first one.
        recurrent: whether the model counts rows.
        prev_action: before the first row.
        prev_reward: likewise.
    """

    def __init__(self, env: Any, observation: Any, recurrent: bool, prev_action: int, prev_reward: float) -> None:
        self.env, self.observation, self.recurrent = env, observation, recurrent
        self.prev_action, self.prev_reward = prev_action, prev_reward
        self.ended, self.h = False, 0
        self.trajectory: list[tuple[float, float]] = []
        self.trajectories: list[dict[str, float]] = []

    def next_row(self, discount: float) -> dict[str, Any]:
        """Take one step (or start the next episode) and return the row."""
        row = self.agent_row()
        row.update(action=row["wanted"], valid=True)
        if self.ended:
            row.update(action=NULL_ACTION, reward=NULL_REWARD, terminated=False, truncated=False, valid=False, info={})
            self.observation, _ = self.env.reset()
            self.prev_action, self.prev_reward, self.h, self.ended = NULL_ACTION, NULL_REWARD, 0, False
            return row
        observation, reward, terminated, truncated, info = self.env.step(row["action"])
        row.update(reward=reward, terminated=terminated, truncated=truncated, info=info)
        self.observation, self.prev_action, self.prev_reward = observation, row["action"], reward
        self.h += self.recurrent
        self.ended = terminated or truncated
        self.trajectory.append((reward, info["game_score"]))
        if self.ended and info.get("traj_done", True):
            rewards = [r for r, _ in self.trajectory]
            self.trajectories.append(
                {
                    "Length": len(rewards),
                    "Return": sum(rewards),
                    "NonzeroRewards": sum(r != 0 for r in rewards),
                    "DiscountedReturn": sum(r * discount**i for i, r in enumerate(rewards)),
                    "GameScore": sum(score for _, score in self.trajectory),
                }
            )
            self.trajectory = []
        return row

    def agent_row(self) -> dict[str, Any]:
        """Return what the agent sees and says at the row at hand."""
        counts = self.observation["counts"] if isinstance(self.observation, Mapping) else self.observation
        number, t, episode = (int(x) for x in counts)
        return {
            "observation": self.observation,
            "prev_action": self.prev_action,
            "prev_reward": self.prev_reward,
            "wanted": int(t + episode + self.prev_action + 8 * self.prev_reward + self.h) % N_ACTIONS,
            "value": 100 * number + t + 0.25 * self.prev_reward + 0.5 * self.h,
            "h": self.h,
        }


def assert_row(samples: Samples, t: int, b: int, row: dict[str, Any], recurrent: bool, with_info: bool) -> None:
    """Compare every field of a row with what was expected."""
    agent, env = row_of(samples, t, b)
    where = f"row [{t}, {b}]: {row}"
    assert_same(env.observation, row["observation"], where)
    for name, value in [
        ("reward", env.reward),
        ("prev_reward", env.prev_reward),
        ("terminated", env.terminated),
        ("truncated", env.truncated),
        ("valid", env.valid),
        ("action", agent.action),
        ("prev_action", agent.prev_action),
        ("value", agent.agent_info.value),
    ]:
        assert value.item() == row[name], (name, value, where)
    assert bool(env.done) == (row["terminated"] or row["truncated"])
    logits = [1000.0 * (i == row["wanted"]) for i in range(N_ACTIONS)]
    assert agent.agent_info.dist_info.logits.tolist() == logits, where
    if recurrent:
        assert agent.agent_info.prev_rnn_state.h.item() == row["h"], where
    if with_info:
        assert env.env_info["t"].item() == row["info"].get("t", 0), where
        assert env.env_info["vector"].tolist() == [row["info"].get("t", 0)] * 2, where


def row_of(samples: Samples, t: int, b: int) -> Any:
    """Return what the agent and the environment did in a row; the bootstrap value is not of any row."""
    return samples._replace(agent=samples.agent._replace(bootstrap_value=None))[t, b]


def assert_same(row: Any, value: Any, where: str) -> None:
    """Compare an observation in row form with one as the environment gives it."""
    if isinstance(value, Mapping):
        assert len(row) == len(value)
        for key, part in value.items():
            assert_same(row[key], part, where)
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            assert_same(row[str(i)], part, where)
    else:
        assert np.array_equal(row.numpy(), np.asarray(value)), (row, value, where)
