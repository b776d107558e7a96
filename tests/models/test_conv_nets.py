from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium.spaces import Box, Discrete
from torch import nn

from rlpyt.models import (
    Conv2dHeadModel,
    Conv2dModel,
    ConvSettings,
    FeatureModel,
    IqnModel,
    PgModel,
    PixelConv2d,
    QModel,
    conv2d_output_shape,
)

NATURE: dict[str, Any] = dict(channels=(32, 64, 64), kernel_sizes=(8, 4, 3), strides=(4, 2, 1))


def images(*lead: int, shape: tuple[int, int, int] = (2, 12, 10)) -> torch.Tensor:
    return torch.randint(256, (*lead, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def small_net() -> Conv2dHeadModel:
    return Conv2dHeadModel((2, 12, 10), (4, 8), (4, 3), (2, 1), 16, 5, paddings=(0, 1))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_uint8_means_a_255th(channels_last: bool, autocast: bool) -> None:
    conv = PixelConv2d(2, 8, 3, stride=2, padding=1)
    if channels_last:
        conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    image = images(7)
    before = image.clone()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = conv(image)
    reference = F.conv2d(image.double() / 255, conv.weight.double(), conv.bias.double(), stride=2, padding=1).float()  # type: ignore[union-attr]
    assert output.dtype == (torch.bfloat16 if autocast else torch.float32)
    assert output.is_contiguous(memory_format=torch.channels_last) == channels_last
    tolerance: dict[str, Any] = dict(atol=2e-2, rtol=2e-2) if autocast else dict(atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.float(), reference, **tolerance)
    assert torch.equal(image, before)


def test_gradient_of_the_weights_is_that_of_scaled_images() -> None:
    conv, plain = PixelConv2d(2, 8, 3), nn.Conv2d(2, 8, 3)
    plain.load_state_dict(conv.state_dict())
    image = images(3)
    conv(image).square().sum().backward()
    plain(image / 255).square().sum().backward()
    torch.testing.assert_close(conv.weight.grad, plain.weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(conv.bias.grad, plain.bias.grad, rtol=1e-4, atol=1e-4)  # type: ignore[union-attr]


def test_floats_are_taken_as_they_are_and_left_alone() -> None:
    net = small_net()
    pixels = images(3)
    image = pixels / 255
    before = image.clone()
    torch.testing.assert_close(net(image), net(pixels), rtol=1e-4, atol=1e-5)
    assert torch.equal(image, before)


@pytest.mark.parametrize(
    ("h", "w", "kernel", "stride", "padding", "expected"),
    [
        (84, 84, 8, 4, 0, (20, 20)),
        (20, 20, 4, 2, 1, (10, 10)),
        (104, 80, (8, 4), (4, 2), (0, 1), (25, 40)),
        (3, 9, 5, 1, 0, (0, 5)),
    ],
)
def test_conv2d_output_shape(h: int, w: int, kernel: int, stride: int, padding: int, expected: tuple[int, int]) -> None:
    assert conv2d_output_shape(h, w, kernel, stride, padding) == expected


def test_nature_network_sizes() -> None:
    assert Conv2dModel(4, **NATURE).conv_out_size(84, 84) == 64 * 7 * 7
    assert Conv2dModel(4, **NATURE, paddings=(0, 1, 1)).conv_out_size(104, 80) == 64 * 12 * 9
    net = Conv2dHeadModel((4, 84, 84), **NATURE, hidden_sizes=512)
    assert net.output_size == 512
    assert sum(p.numel() for p in net.parameters()) == 8224 + 32832 + 36928 + 3136 * 512 + 512


@pytest.mark.parametrize("use_maxpool", [False, True])
@pytest.mark.parametrize("size", [(12, 10), (13, 15)])
def test_conv_out_size_is_what_comes_out(use_maxpool: bool, size: tuple[int, int]) -> None:
    net = Conv2dModel(2, (4, 8), (4, 3), (3, 2), (0, 1), use_maxpool=use_maxpool)
    output = net(images(1, shape=(2, *size)))
    assert net.conv_out_size(*size) == output[0].numel()
    assert any(isinstance(layer, nn.MaxPool2d) for layer in net) == use_maxpool


def weights_of(make: Callable[[], nn.Module]) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return make().state_dict()


IMAGE = Box(0, 255, (2, 20, 20), np.uint8)
MODELS: dict[str, Callable[..., nn.Module]] = {
    "PgModel": partial(PgModel, IMAGE, Discrete(3)),
    "QModel": partial(QModel, IMAGE, Discrete(3)),
    "IqnModel": partial(IqnModel, IMAGE, Discrete(3)),
    "FeatureModel": partial(FeatureModel, IMAGE, 3),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_layers_over_images_are_one_value_or_arguments_of_their_own(make: Callable[..., nn.Module]) -> None:
    """As `conv`, by the names of rlpyt 0.1, and as `conv` with one field replaced."""
    sizes: dict[str, Any] = dict(channels=[4, 8], kernel_sizes=[4, 3], strides=[2, 1], use_maxpool=True, fc_sizes=16)
    conv = ConvSettings(**sizes)
    one, other, mixed = (
        weights_of(partial(make, **kwargs))
        for kwargs in (dict(conv=conv), sizes, dict(conv=ConvSettings(**sizes | {"channels": [5, 6]}), channels=[4, 8]))
    )
    assert list(one) == list(other) == list(mixed)
    assert all(torch.equal(one[name], other[name]) and torch.equal(one[name], mixed[name]) for name in one)
    assert any(x.shape == (8, 4, 3, 3) for x in one.values())


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_the_signature_of_a_model_has_the_layers(make: Any) -> None:
    parameters = inspect.signature(make.func).parameters
    default = parameters["conv"].default
    assert {f.name: getattr(default, f.name) for f in fields(ConvSettings)} == {
        f.name: parameters[f.name].default for f in fields(ConvSettings)
    }
    with pytest.raises(TypeError, match=rf"{make.func.__name__} has no argument 'chanels'. Did you mean channels\?"):
        make(chanels=[4])


def test_refuses_settings_of_different_lengths() -> None:
    with pytest.raises(ValueError, match=r"channels \(4, 8\), kernel_sizes \(3,\).* expected one number a layer"):
        Conv2dModel(2, (4, 8), (3,), (1, 1))


def test_refuses_images_too_small_or_turned() -> None:
    with pytest.raises(
        ValueError, match=r"images \(84, 84, 3\) .* leave nothing of the image.*ChannelsFirst.*kernel_sizes=\[3, 3\]"
    ):
        Conv2dHeadModel((84, 84, 3), **NATURE, hidden_sizes=512)
