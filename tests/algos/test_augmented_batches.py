"""Random shifts of the images in batches of a replay."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.algos.augmentation import Augmented, RandomShift
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.types import AgentInputs
from tests.algos.small_problems import Spot, set_up


class Observation(NamedArrayTuple):
    """An image that tells where each pixel came from, and a vector beside it that must stay as it is."""

    image: torch.Tensor
    vector: torch.Tensor


class OfTransitions(NamedArrayTuple):
    agent_inputs: Any
    target_inputs: Any


class OfSequences(NamedArrayTuple):
    all_inputs: Any


def pictures(*leading: int) -> AgentInputs:
    image = torch.arange(144, dtype=torch.uint8).view(1, 12, 12).expand(*leading, 1, 12, 12)
    return AgentInputs(Observation(image, torch.tensor([1, 2], dtype=torch.uint8).expand(*leading, 2)), None, None)


def shifts_of(inputs: AgentInputs) -> torch.Tensor:
    """12 * dy + dx of every image."""
    assert (inputs.observation.vector == torch.tensor([1, 2])).all()
    return inputs.observation.image[..., 0, 6, 6].int() - 78


ALL_SHIFTS = {12 * y + x for y in range(-2, 3) for x in range(-2, 3)}


def test_rows_are_shifted_one_by_one_and_those_bootstrapped_from_by_numbers_of_their_own() -> None:
    part = Augmented(RandomShift(2), torch.Generator().manual_seed(0))
    batch = part.prepare(OfTransitions(pictures(200), pictures(200)))
    now, after = shifts_of(batch.agent_inputs).tolist(), shifts_of(batch.target_inputs).tolist()
    assert set(now) == set(after) == ALL_SHIFTS
    assert len({*zip(now, after, strict=True)}) > 4 * len(ALL_SHIFTS)


def test_rows_of_a_sequence_are_shifted_alike() -> None:
    part = Augmented(RandomShift(2), torch.Generator().manual_seed(0))
    shifts = shifts_of(part.prepare(OfSequences(pictures(6, 200))).all_inputs)
    assert (shifts == shifts[0]).all()
    assert set(shifts[0].tolist()) == ALL_SHIFTS


@pytest.mark.parametrize("settings", [dict(random_shift=2), dict(augment=RandomShift(2))])
def test_an_algorithm_shifts_by_its_settings(settings: dict[str, Any]) -> None:
    algo = DQN(min_steps_learn=64, replay_size=600, **settings)
    set_up(algo, DqnAgent(model_kwargs=dict(channels=(2,), kernel_sizes=(4,), strides=(4,), paddings=(0,))), Spot)
    (part,) = (part for part in algo.feed.parts if isinstance(part, Augmented))
    assert part.change == RandomShift(2)
