"""The words of the library: rows, batches, statistics of trajectories."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.types import EnvSamples, InfoDict, TrajInfo, traj_info_maker


def test_done_is_either_flag():
    terminated, truncated = np.array([[0, 0, 1, 1]], bool), np.array([[0, 1, 0, 1]], bool)
    for cast in (np.asarray, torch.from_numpy):
        env = EnvSamples(None, None, None, cast(terminated), cast(truncated), None)
        assert env.done.tolist() == [[False, True, True, True]]
        assert env.done.dtype == env.terminated.dtype
        assert env[0, 2].done.item() is True


# ---- trajectories ----


def run(info: TrajInfo, rewards: list[float], scores: list[float | None] | None = None) -> TrajInfo:
    for i, reward in enumerate(rewards):
        score = scores[i] if scores else None
        info.step(None, None, reward, i == len(rewards) - 1, None, {} if score is None else {"game_score": score})
    return info.terminate(None)


def test_statistics_by_hand():
    info = run(TrajInfo(discount=0.5), [1.0, 0.0, -2.0, 4.0])
    assert info.statistics() == {"Length": 4, "Return": 3.0, "NonzeroRewards": 3, "DiscountedReturn": 1 - 0.5 + 0.5}


def test_the_raw_score_is_summed_where_the_environment_gives_one():
    assert run(TrajInfo(), [1, 1, -1], [10.0, 400.0, -5.0]).statistics()["GameScore"] == 405
    assert run(TrajInfo(), [1, 1], [None, 7.0]).statistics()["GameScore"] == 7
    assert "GameScore" not in run(TrajInfo(), [1, 1]).statistics()


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ([{"is_success": 0.0}, {"is_success": 1.0}], 1.0),
        ([{"is_success": 1.0}, {"is_success": 0.0}], 0.0),  # it counts where the episode ends
        ([{}, {"success": np.bool_(True)}], 1.0),
        ([{}, {"is_success": None, "success": np.array([0.0])}], 0.0),
        ([{"success": True}, {}], None),
        ([{}, {"success": "yes", "is_success": np.zeros(2)}], None),
    ],
)
def test_success_is_what_info_says_at_the_end(infos: list[dict[str, Any]], expected: float | None) -> None:
    info = TrajInfo()
    for i, env_info in enumerate(infos):
        info.step(None, None, 1.0, i == len(infos) - 1, None, env_info)
    assert info.statistics().get("Success") == expected


def test_a_success_of_a_subclass_is_left_to_it() -> None:
    class Any_(TrajInfo):
        def __init__(self, discount: float = 1.0) -> None:
            super().__init__(discount)
            self.Success = 0.0

        def step(self, *args: Any) -> None:
            super().step(*args)
            self.Success = max(self.Success, args[-1]["success"])

    info = Any_()
    for success in (0.0, 1.0, 0.0):
        info.step(None, None, 1.0, True, None, {"success": success})
    assert info.Success == 1.0


class Counting(TrajInfo):
    """A statistic of a user's own."""

    def __init__(self, discount: float = 1.0) -> None:
        super().__init__(discount)
        self.Lefts = 0
        self._hidden = 0

    def step(self, observation: Any, action: Any, reward: float, done: bool, agent_info: Any, env_info: Any) -> None:
        super().step(observation, action, reward, done, agent_info, env_info)
        self.Lefts += action == 0
        self._hidden += 1

    def terminate(self, observation: Any) -> TrajInfo:
        self.Lefts *= 10
        return self


def test_a_subclass_adds_columns():
    info = Counting(0.9)
    for action in (0, 1, 0):
        info.step(None, action, 1.0, False, None, {})
    assert info.terminate(None).statistics()["Lefts"] == 20
    assert "_hidden" not in info.statistics()


@pytest.mark.parametrize("info", [TrajInfo(0.5), Counting(0.5)])
def test_statistics_travel_between_processes(info):
    info.step(None, 0, 2.0, False, None, {"game_score": 1.0})
    there = pickle.loads(pickle.dumps(info))
    there.step(None, 0, 2.0, True, None, {})
    assert there.statistics()["DiscountedReturn"] == 3.0


class Bare(TrajInfo):
    def __init__(self) -> None:
        self.Return = 0.0


@pytest.mark.parametrize("info", [TrajInfo(), Bare()])
def test_where_a_trajectory_ended_is_no_statistic_and_travels_along(info):
    keys = list(info)
    assert info.ended_at is None
    info.ended_at = 3, 4, 5
    assert list(info) == list(vars(info)) == keys
    for other in (pickle.loads(pickle.dumps(info)), copy.deepcopy(info), copy.copy(info)):
        assert (other.ended_at, vars(other)) == ((3, 4, 5), vars(info))


def test_attributes_of_a_traj_info_are_keys():
    info = run(TrajInfo(0.5), [1.0, 2.0])
    assert info["Return"] == info.Return == 3.0
    info["Best"] = 2.0
    assert vars(info)["Best"] == 2.0
    assert info.statistics()["Best"] == 2.0
    assert "Best" in info
    assert info.get("Worst", 7) == 7
    public = ["Length", "Return", "NonzeroRewards", "DiscountedReturn", "Best"]
    assert [k for k in info if not k.startswith("_")] == public
    assert [k for k, _ in info.items() if not k.startswith("_")] == public
    assert len(info) == len(list(info.keys())) == len(vars(info))
    with pytest.raises(KeyError, match="Worst"):
        info["Worst"]
    other = run(TrajInfo(0.5), [1.0, 2.0])
    assert len({info, other}) == 2
    other["Best"] = 2.0
    assert vars(other) == vars(info)
    assert other not in [info]


def test_info_answers_by_key_and_by_attribute():
    info = pickle.loads(pickle.dumps(InfoDict({"x": 1, "ale.lives": 3})))
    assert info.x == info["x"] == getattr(info, "x", 0) == 1
    assert getattr(info, "y", 0) == info.get("y", 0) == 0
    assert not hasattr(info, "y")
    with pytest.raises(AttributeError, match=r"no 'y' in this step; it has \['x', 'ale.lives'\]"):
        _ = info.y


class OldScore(TrajInfo):
    """Counts the score as the predecessor's statistics of Atari did, without an argument `discount`."""

    def __init__(self):
        super().__init__()
        self.GameScore = 0

    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self.GameScore += getattr(env_info, "game_score", 0)


def test_a_subclass_may_count_the_score_itself_and_take_no_discount():
    info = traj_info_maker(OldScore, {"discount": 0.5})()
    for reward in (1.0, 1.0, 2.0):
        info.step(None, None, reward, False, None, InfoDict(game_score=10.0))
    assert info.statistics() == {
        "Length": 3,
        "Return": 4.0,
        "NonzeroRewards": 3,
        "DiscountedReturn": 2.0,
        "GameScore": 30,
    }
    assert vars(traj_info_maker(lambda **kwargs: TrajInfo(**kwargs), {"discount": 0.5})())["_discount"] == 0.5


@pytest.mark.parametrize(("score", "total"), [(None, 2.0), (np.array([3.0]), 5.0), (np.int64(3), 5.0), (True, 3.0)])
def test_a_score_may_be_none_or_any_one_number(score, total):
    info = TrajInfo()
    for one in (2.0, score):
        info.step(None, None, 1.0, False, None, {"game_score": one})
    assert info.GameScore == total
    assert type(info.GameScore) is float


@pytest.mark.parametrize("score", ["3", [1.0], np.zeros(2), {"home": 1}])
def test_a_score_that_is_no_number_is_refused_by_name(score):
    with pytest.raises(TypeError, match="game_score in the info of an environment: expected one number, or None"):
        TrajInfo().step(None, None, 1.0, False, None, {"game_score": score})
