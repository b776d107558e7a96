"""What every row of a batch must be, told by stepping the environments in plain Python, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlpyt.types import Samples
from rlpyt.utils.seeds import Role, stream_seed
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
        rests: what becomes of the environment from the end of an episode to `end_batch`: "never" begins the next
            episode at once, "still" waits, "stepped" goes on with null actions, and nobody sees it.
    """

    def __init__(
        self,
        env: Any,
        observation: Any,
        recurrent: bool,
        prev_action: int = NULL_ACTION,
        prev_reward: float = NULL_REWARD,
        rests: Literal["never", "still", "stepped"] = "never",
    ) -> None:
        self.env, self.observation, self.recurrent, self.rests = env, observation, recurrent, rests
        self.prev_action, self.prev_reward = prev_action, prev_reward
        self.ended, self.h = False, 0
        self.unseen_end = False  # of an episode, in an environment that is stepped while it rests
        self.trajectory: list[tuple[float, float]] = []
        self.trajectories: list[dict[str, float]] = []

    def next_row(self, discount: float) -> dict[str, Any]:
        """Take one step (or none, where the last episode is over) and return the row."""
        row = self.agent_row()
        row.update(action=row["wanted"], valid=True)
        if self.ended:
            row.update(action=NULL_ACTION, reward=NULL_REWARD, terminated=False, truncated=False, valid=False, info={})
            if self.rests == "never":
                self.begin_episode()
            else:
                self.rest()
            return row
        observation, reward, terminated, truncated, info = self.env.step(row["action"])
        row.update(reward=reward, terminated=terminated, truncated=truncated, info=info)
        self.observation, self.prev_action, self.prev_reward = observation, row["action"], reward
        self.h += self.recurrent
        self.ended = self.unseen_end = terminated or truncated
        self.trajectory.append((reward, info["game_score"]))
        if self.ended and info.get("traj_done", True):
            self.end_trajectory(discount)
        return row

    def begin_episode(self) -> None:
        self.observation, _ = self.env.reset()
        self.prev_action, self.prev_reward, self.h, self.ended = NULL_ACTION, NULL_REWARD, 0, False

    def rest(self) -> None:
        """Show the agent, which goes on, a row of nothing."""
        if self.rests == "stepped":
            if self.unseen_end:
                self.env.reset()
                self.unseen_end = False
            else:
                _, _, terminated, truncated, _ = self.env.step(NULL_ACTION)
                self.unseen_end = terminated or truncated
        self.observation = nothing(self.observation)
        self.prev_action, self.prev_reward = NULL_ACTION, NULL_REWARD
        self.h += self.recurrent

    def end_batch(self) -> None:
        """Reset an environment that rests."""
        if self.ended and self.rests != "never":
            self.begin_episode()

    def end_trajectory(self, discount: float) -> None:
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


def streams_of(EnvCls: Any, B: int, recurrent: bool, rests: Any = "never", seed: int = 7) -> list[Stream]:
    """Return the rows to come of the environments of a run with a seed."""
    envs = [EnvCls() for _ in range(B)]
    firsts = [env.reset(seed=stream_seed(seed, Role.ENV, rank))[0] for rank, env in enumerate(envs)]
    return [Stream(env, first, recurrent, rests=rests) for env, first in zip(envs, firsts, strict=True)]


def nothing(observation: Any) -> Any:
    """Return the null observation, in the form of one that the environment gave."""
    if isinstance(observation, Mapping):
        return {key: nothing(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(nothing(part) for part in observation)
    return np.zeros_like(observation)


def assert_row(samples: Samples, t: int, b: int, row: dict[str, Any], recurrent: bool, with_info: bool) -> None:
    """Compare every field of a row with what was expected."""
    agent, env = row_of(samples, t, b)
    where = ("row", t, b, row)
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


def assert_batches(
    sampler: Any,
    streams: Sequence[Stream],
    n_batches: int,
    *,
    discount: float,
    with_info: bool = True,
    with_trajectories: bool = True,
    first: int = 0,
) -> None:
    """Compare batches, their bootstrap values and their trajectories with those of the streams."""
    for itr in range(first, first + n_batches):
        samples, traj_infos = sampler.obtain_samples(itr)
        for b, stream in enumerate(streams):
            for t in range(sampler.batch_spec.T):
                assert_row(samples, t, b, stream.next_row(discount), stream.recurrent, with_info)
            assert_after(samples, b, stream)
            stream.end_batch()
        expected = [info for stream in streams for info in stream.trajectories]
        got = [info.statistics() for info in traj_infos]
        if with_trajectories:
            assert sorted(sorted(x.items()) for x in got) == sorted(sorted(x.items()) for x in expected), itr
        for stream in streams:
            stream.trajectories.clear()


def assert_after(samples: Samples, b: int, stream: Stream) -> None:
    """Compare what is recorded of the row after the batch with what was expected."""
    expected, agent = stream.agent_row(), samples.agent
    assert agent.bootstrap_value[0, b].item() == expected["value"], b
    if agent.bootstrap_inputs is not None:
        observation, prev_action, prev_reward = agent.bootstrap_inputs[0, b]
        assert_same(observation, expected["observation"], f"after the batch, environment {b}")
        assert prev_action.item() == expected["prev_action"], b
        assert prev_reward.item() == expected["prev_reward"], b


def row_of(samples: Samples, t: int, b: int) -> Any:
    """Return what the agent and the environment did in a row; what is recorded of the one after the batch is no row."""
    return samples._replace(agent=samples.agent._replace(bootstrap_value=None, bootstrap_inputs=None))[t, b]


def assert_same(row: Any, value: Any, where: object) -> None:
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
