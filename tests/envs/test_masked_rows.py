"""Masks of legal actions in rows: from a Dict, from info, of one environment and of many, and bad ones named."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlpyt.envs import EnvAdapter, EnvError, check_env, check_vector_env, make_env, make_vector_env
from rlpyt.envs.state_check import restores_exactly, why_not_restored
from rlpyt.spaces import (
    EnvSpaces,
    check_mask,
    choice_sizes,
    has_mask,
    null_action,
    random_value,
    with_mask,
    without_mask,
)
from tests.masked_envs import MaskedEnv

BOX = spaces.Box(-1, 1, (2,), np.float32)
CHOICES = spaces.MultiDiscrete([2, 3])


def vector_env(num_envs: int, **kwargs: Any) -> SyncVectorEnv:
    return SyncVectorEnv([partial(MaskedEnv, **kwargs)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


# ---- spaces ----


def test_spaces_of_rows_and_of_models() -> None:
    assert [choice_sizes(s) for s in (spaces.Discrete(3, start=2), CHOICES, spaces.MultiBinary((1, 2)), BOX)] == [
        [3], [2, 3], [2, 2], [],
    ]  # fmt: skip
    plain = EnvSpaces(BOX, CHOICES)
    assert with_mask(plain).observation == spaces.Dict({"observation": BOX, "action_mask": spaces.MultiBinary(5)})
    of_dict = EnvSpaces(spaces.Dict({"b": BOX, "a": BOX}), CHOICES)
    for own in (plain, of_dict):
        assert not has_mask(own)
        assert without_mask(own) == own
        assert has_mask(with_mask(own))
        assert without_mask(with_mask(own)) == own
    continuous = EnvSpaces(spaces.Dict({"action_mask": BOX}), BOX)
    assert not has_mask(continuous), "a key of any meaning"


MASK_SPACES: list[tuple[Any, Any, Any, str]] = [
    (spaces.Box(0, 1, (5,)), CHOICES, TypeError, "integers or bools: 5 zeros and ones, such as MultiBinary"),
    (spaces.Box(0, 1, (4,), np.int8), CHOICES, ValueError, "the masks of the 2 choices one after the other, or a Tup"),
    (spaces.MultiBinary(3), spaces.Discrete(2), ValueError, "2 zeros and ones"),
    (spaces.Discrete(2), spaces.Discrete(2), TypeError, "needs another name"),
    (spaces.Tuple([spaces.MultiBinary(3), spaces.MultiBinary(2)]), CHOICES, ValueError, "or a Tuple of them"),
    (
        spaces.MultiBinary(3),
        spaces.Dict({"a": spaces.Discrete(2), "b": CHOICES, "c": BOX}),
        ValueError,
        "of the 3 choi",
    ),
]


@pytest.mark.parametrize(("mask", "action", "kind", "text"), MASK_SPACES)
def test_a_space_that_is_no_mask_of_the_actions_is_refused(mask: Any, action: Any, kind: Any, text: str) -> None:
    own = EnvSpaces(spaces.Dict({"observation": BOX, "action_mask": mask}), action)
    with pytest.raises(kind, match=rf"my env: observation\['action_mask'\] is .*{text}"):
        check_mask(own, "my env")


def test_a_mask_alone_is_no_observation() -> None:
    check_mask(EnvSpaces(spaces.Dict({"a": BOX, "action_mask": spaces.MultiBinary(5)}), CHOICES), "my env")
    with pytest.raises(ValueError, match="Add a key `observation`"):
        check_mask(EnvSpaces(spaces.Dict({"action_mask": spaces.MultiBinary(5)}), CHOICES), "my env")


# ---- rows ----


def test_a_mask_in_info_becomes_a_part_of_the_rows() -> None:
    env, twin = make_env(MaskedEnv, dict(of_info=True)), MaskedEnv(of_info=True)
    assert env.spaces == EnvSpaces(twin.observation_space, twin.action_space), "not known before the first reset"
    row: Any = env.reset(seed=3)[0]
    assert env.spaces == with_mask(EnvSpaces(twin.observation_space, twin.action_space))
    expected, info = twin.reset(seed=3)
    for _ in range(20):
        assert type(row).__name__ == "Dict"
        assert row._fields == ("observation", "action_mask")
        assert row.observation.tolist() == expected.tolist()
        assert row.action_mask.tolist() == list(info["action_mask"])
        action = int(np.flatnonzero(info["action_mask"])[0])
        row, _, *ends, _ = env.step(np.int64(action))
        expected, _, _, _, info = twin.step(action)
        if any(ends):
            assert not row.action_mask.any(), "a final observation may have any mask"
            (row, _), (expected, info) = env.reset(), twin.reset()


@pytest.mark.parametrize("kwargs", [{}, {"of_info": True}, dict(sizes=(2, 3)), dict(sizes=(2, 3), as_tuple=True),
                                    dict(sizes=(2, 3), as_tuple=True, of_info=True),
                                    dict(sizes=(3, 2, 3), composite=True),
                                    dict(sizes=(3, 2, 3), as_tuple=True, composite=True, of_info=True)])  # fmt: skip
def test_random_steps_take_legal_actions_alone(kwargs: dict[str, Any]) -> None:
    examples = check_env(make_env(MaskedEnv, kwargs), seed=0, n_steps=40)
    assert has_mask(examples.spaces)
    of_many = check_vector_env(make_vector_env(vector_env, kwargs, range(3)), seed=0, n_steps=20)
    assert of_many.spaces == examples.spaces


def test_masks_beside_hidden_steps_are_refused() -> None:
    def same_step(num_envs: int) -> SyncVectorEnv:
        return SyncVectorEnv([partial(MaskedEnv, of_info=True)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)

    env = make_vector_env(same_step, {}, range(2))
    with pytest.raises(EnvError, match=r"masks of actions.*takes the null action; expected AutoresetMode\.NEXT_STEP"):
        env.reset([4, 5])


def test_a_vector_environment_gives_the_rows_of_its_parts() -> None:
    many, ones = make_vector_env(vector_env, dict(of_info=True), range(2)), [MaskedEnv(of_info=True) for _ in range(2)]
    rows, _ = many.reset([4, 5])
    expected, ended = [one.reset(seed=seed) for one, seed in zip(ones, (4, 5), strict=True)], [False, False]
    for _ in range(20):
        assert rows.action_mask.tolist() == [info["action_mask"].tolist() for _, info in expected]
        assert rows.observation.tolist() == [observation.tolist() for observation, _ in expected]
        actions = many.masks.legal(np.zeros(2, np.int64))
        many.send(actions)
        rows, *_ = many.recv()
        for b, one in enumerate(ones):
            if ended[b]:
                expected[b], ended[b] = one.reset(), False
            else:
                observation, _, terminated, truncated, info = one.step(actions[b])
                expected[b], ended[b] = (observation, info), terminated or truncated


def test_legal_is_the_action_or_one_that_the_mask_allows() -> None:
    env = make_env(MaskedEnv, dict(sizes=(2, 3), p_legal=1.0))
    assert env.masks.legal(np.array([1, 2])).tolist() == [1, 2], "nothing is known before a reset"
    env.reset(seed=0)
    assert env.masks.legal(np.array([1, 2])).tolist() == [1, 2]
    row = env.reset()[0]
    row.action_mask[:] = [1, 0, 0, 1, 1]
    env.masks.observed(row, {}, True)
    assert env.masks.legal(np.array([1, 0])).tolist() == [0, 1]
    assert env.masks.legal(np.array([0, 2])).tolist() == [0, 2]
    rng, counts = np.random.default_rng(0), np.zeros(3)
    for _ in range(300):
        counts[env.masks.legal(random_value(env.action_space, rng))[1]] += 1
    assert counts[0] == 0
    assert counts[1:].min() > 80


def test_the_mask_of_a_dict_of_actions_is_of_its_discrete_parts() -> None:
    env = make_env(MaskedEnv, dict(sizes=(3, 2), composite=True, of_info=True))
    assert choice_sizes(env.action_space) == [3, 2]
    _, info = env.reset(seed=0)
    assert len(info["action_mask"]) == 5
    env.masks.observed(np.zeros(6, np.float32), {"action_mask": np.array([0, 1, 0, 0, 1], np.int8)}, True)
    action = null_action(env.action_space)
    legal = env.masks.legal(action)
    assert legal.move == 1
    aim, choice = legal.deep
    assert aim.tolist() == [-0.5, -0.5], "the centre of its bounds, as before"
    assert choice.tolist() == [1]
    assert action.move == 0
    assert not has_mask(EnvSpaces(spaces.Dict({"action_mask": BOX}), spaces.Dict({"aim": BOX}))), "nothing to mask"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("composite", [False, True])
def test_an_environment_that_is_restored_knows_its_newest_mask(composite: bool, seed: int) -> None:
    """Without it random actions of a trial would be illegal, and the environment would be taken for one without."""
    kwargs = dict(sizes=(3, 2, 3), composite=composite, of_info=True)
    env = make_env(MaskedEnv, kwargs)
    assert why_not_restored(env, lambda: make_env(MaskedEnv, kwargs), seed) is None
    assert restores_exactly(env, make_env(MaskedEnv, kwargs), seed, n_steps=20, n_before=seed) is None


# ---- what is wrong ----


class Wrong(MaskedEnv):
    """Gives a wrong mask at its second step: a value, or the name of a fault."""

    def __init__(self, wrong: Any, of_info: bool = False) -> None:
        super().__init__(of_info)
        self.wrong = wrong

    def _row(self, over: bool = False) -> tuple[Any, dict[str, Any]]:
        observation, info = super()._row(over)
        holder = info if self.of_info else observation
        if self.t == 2:
            holder["action_mask"] = self.wrong
        if self.wrong is None and self.t == 2:
            holder.clear()
        return observation, info


NONE = np.zeros(4, np.int8)
FAULTS: list[tuple[Any, bool, str]] = [
    (NONE, False, r"action_mask: \[0, 0, 0, 0\] forbids all actions; expected a legal one at every step"),
    (NONE, True, r"action_mask: \[0, 0, 0, 0\] forbids all actions"),
    (np.ones(3, np.int8), False, r"observation\['action_mask'\]: expected shape \(4,\), got \(3,\)"),
    (np.ones(3, np.int8), True, r"info\['action_mask'\]: expected shape \(4,\), got \(3,\)"),
    (np.ones(4), True, r"info\['action_mask'\]: expected int8 of shape \(4,\), got ndarray \(float64\)"),
    (np.full(4, 2), True, r"info\['action_mask'\]: expected zeros and ones"),
    (None, True, r"info\['action_mask'\] is not there; expected the mask of the legal actions at every step"),
]


@pytest.mark.parametrize(("wrong", "of_info", "text"), FAULTS)
def test_a_wrong_mask_is_named_with_environment_and_step(wrong: Any, of_info: bool, text: str) -> None:
    env = make_env(Wrong, dict(wrong=wrong, of_info=of_info), rank=7, seed=11)
    env.reset()
    env.step(env.masks.legal(np.int64(0)))
    with pytest.raises(EnvError, match=rf"Wrong \(rank 7, seed 11\), its step 2: step with action .*{text}"):
        env.step(env.masks.legal(np.int64(0)))


def test_the_environment_of_many_whose_mask_is_wrong_is_named() -> None:
    def make(num_envs: int) -> SyncVectorEnv:
        return SyncVectorEnv(
            [partial(Wrong, NONE if b == 1 else np.ones(4, np.int8)) for b in range(num_envs)],
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )

    env = make_vector_env(make, {}, range(5, 8))
    env.reset([1, 2, 3])
    env.send(env.masks.legal(np.zeros(3, np.int64)))
    env.recv()
    env.send(env.masks.legal(np.zeros(3, np.int64)))
    with pytest.raises(EnvError, match=r"rank 6 of ranks 5 to 7, seed 2\), its step 2: step: .*forbids all actions"):
        env.recv()


def test_one_choice_without_a_legal_action_is_enough() -> None:
    env = make_env(MaskedEnv, dict(sizes=(2, 3)))
    row = env.reset(seed=0)[0]
    row.action_mask[:] = [1, 1, 0, 0, 0]
    with pytest.raises(ValueError, match="forbids all actions of a choice"):
        env.masks.observed(row, {}, True)


def test_a_mask_that_does_not_fit_ends_the_start() -> None:
    class Short(MaskedEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Discrete(5)

    with pytest.raises(EnvError, match=r"Making environment 0: .*Short.*5 zeros and ones"):
        make_env(Short, {})


def test_taxi_has_its_mask() -> None:
    env = EnvAdapter(gymnasium.make("Taxi-v4"))
    row, info = env.reset(seed=0)
    assert row.action_mask.tolist() == info["action_mask"].tolist()
    assert env.spaces == with_mask(EnvSpaces(spaces.Discrete(500), spaces.Discrete(6)))
