from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from rlpyt.models import ConvSettings, Encoder, QModel, encoded_action_size, make_encoder
from tests.random_kit import random_rows

IMAGE = Box(0, 255, (2, 12, 10), np.uint8)
SPACES: dict[str, gymnasium.Space[Any]] = {
    "vector": Box(-1, 1, (3,)),
    "scalar": Box(-1, 1, ()),
    "matrix": Box(-1, 1, (2, 3), np.float64),
    "integers": Box(0, 9, (4,), np.int32),
    "bytes": Box(0, 255, (4,), np.uint8),
    "float_image": Box(0, 1, (2, 12, 10)),
    "image": IMAGE,
    "discrete": Discrete(5, start=3),
    "multi_discrete": MultiDiscrete([2, 3]),
    "multi_discrete_table": MultiDiscrete(np.array([[2, 3], [4, 2]])),
    "multi_binary": MultiBinary(4),
    "multi_binary_table": MultiBinary([2, 3]),
    "dict": Dict({"image": IMAGE, "ale.lives": Discrete(6), "nested": Dict({"x": Box(-1, 1, (3,))})}),
    "tuple": Tuple([Box(-1, 1, (3,)), Discrete(2)]),
}
SIZES = dict(vector=3, scalar=1, matrix=6, integers=4, bytes=4, float_image=240, image=16, discrete=5)
SIZES |= dict(multi_discrete=5, multi_discrete_table=11, multi_binary=4, multi_binary_table=6, dict=25, tuple=5)


def encoder_for(space: gymnasium.Space[Any], normalize_observation: bool = False) -> Encoder:
    conv = ConvSettings(channels=(4,), kernel_sizes=(4,), strides=(2,), fc_sizes=16)
    return make_encoder(space, conv, normalize_observation)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("lead", [(4,), (3, 4)])
@pytest.mark.parametrize("normalize", [False, True])
def test_features_of_every_space(name: str, lead: tuple[int, ...], normalize: bool) -> None:
    encoder = encoder_for(SPACES[name], normalize)
    observation = random_rows(SPACES[name], *lead)
    features = encoder(observation)
    assert features.shape == (*lead, SIZES[name])
    assert encoder.output_size == SIZES[name]
    assert features.dtype == torch.float32
    assert encoder.has_image == (name in ("image", "dict"))
    one = tuple(0 for _ in lead)
    torch.testing.assert_close(encoder(observation[one]), features[one], rtol=1e-4, atol=1e-5)


def test_what_features_are() -> None:
    def features(name: str, *values: Any) -> list[float]:
        x = [torch.as_tensor(v) for v in values]
        return encoder_for(SPACES[name])(x[0] if len(x) == 1 else tuple(x)).tolist()

    assert features("discrete", 2) == [0, 0, 1, 0, 0]
    assert features("multi_discrete", [1, 2]) == [0, 1, 0, 0, 1]
    assert features("multi_discrete_table", [[1, 0], [3, 1]]) == [0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1]
    assert features("multi_binary", np.array([1, 0, 1, 1], np.int8)) == [1, 0, 1, 1]
    assert features("matrix", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) == [1, 2, 3, 4, 5, 6]
    assert features("scalar", 0.5) == [0.5]
    assert features("bytes", np.array([0, 51, 102, 255], np.uint8)) == [0, 51, 102, 255]
    assert features("tuple", [1.0, 2.0, 3.0], 1) == [1, 2, 3, 0, 1]


def test_only_numbers_are_normalised_and_only_valid_rows_count() -> None:
    space = Dict({"a": Box(-1, 1, (2,)), "b": MultiBinary(2), "c": Tuple([Box(-1, 1, (1,))])})
    encoder = encoder_for(space, normalize_observation=True)
    observation = random_rows(space, 5)
    observation["a"][:] = torch.tensor([[0.0, 10.0], [2.0, 14.0], [0.0, 10.0], [2.0, 14.0], [9e9, 9e9]])
    encoder.update_obs_rms(observation, torch.tensor([True, True, True, True, False]))
    features = encoder(observation)
    torch.testing.assert_close(features[:2, :2], torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    assert torch.equal(features[:, 2:4], observation["b"].float())
    torch.testing.assert_close(features[:4, 4].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    assert len(encoder.state_dict()) == 6


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (Discrete(5), 5),
        (MultiDiscrete([2, 3]), 5),
        (MultiDiscrete(np.array([[2, 3], [4, 2]])), 11),
        (MultiBinary(3), 6),
        (MultiBinary([2, 2]), 8),
        (Box(-1, 1, (3,)), 3),
        (Box(-1, 1, ()), 1),
        (Box(-1, 1, (2, 3)), 6),
    ],
)
def test_encoded_action_size(space: gymnasium.Space[Any], size: int) -> None:
    assert encoded_action_size(space) == size


def test_refuses_stacks_of_images() -> None:
    with pytest.raises(TypeError, match=r"Box\(0, 255, \(3, 12, 12, 3\), uint8\); expected images of three dimensions"):
        encoder_for(Box(0, 255, (3, 12, 12, 3), np.uint8))


def test_one_hot_vectors_that_no_memory_holds_are_refused_before_they_are_made() -> None:
    with pytest.raises(
        ValueError, match=r"observation space is Discrete\(2147483647\).*2,147,483,647 entries.*ModelCls"
    ):
        encoder_for(Discrete(2**31 - 1))
    with pytest.raises(ValueError, match=r"action space is MultiDiscrete.*2,000,000 entries"):
        encoded_action_size(MultiDiscrete([10**6, 10**6]))
    with pytest.raises(ValueError, match="action space is Discrete"):
        QModel(Box(-1, 1, (3,)), Discrete(2**31 - 1))
    assert encoder_for(Discrete(4000)).output_size == 4000


@pytest.mark.parametrize(
    ("name", "reading"),
    [
        ("vector", ["3 numbers"]),
        ("matrix", ["[2, 3] flattened to 6 numbers"]),
        ("bytes", ["4 numbers"]),
        ("image", ["image divided by 255"]),
        ("multi_discrete", ["5 one-hot inputs"]),
        ("dict", ["ale.lives: 6 one-hot inputs", "image: image divided by 255", "nested: x: 3 numbers"]),
        ("tuple", ["0: 3 numbers", "1: 2 one-hot inputs"]),
    ],
)
def test_how_a_space_is_read_in_words(name: str, reading: list[str]) -> None:
    assert encoder_for(SPACES[name]).reading() == reading


def test_refuses_other_spaces() -> None:
    with pytest.raises(TypeError, match=r"observation space is Text.*expected Box.*ModelCls"):
        encoder_for(Text(3))
    assert encoded_action_size(Dict({"a": Discrete(2), "b": Box(0, 1, (3,))})) == 5
    for space in (Text(2), Dict({"a": Text(2)}), Dict({})):
        with pytest.raises(TypeError, match=r"action space is (Text|Dict).*expected Discrete.*ModelCls"):
            encoded_action_size(space)
