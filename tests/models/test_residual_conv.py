"""Residual convolutional networks: sums by hand, sizes, norms, and the settings of IMPALA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rlpyt.models import IMPALA, Conv2dHeadModel, IqnModel, QModel, ResidualConvModel
from rlpyt.models.conv import ResidualConvBlock, SpectralConv2d

SMALL: dict[str, Any] = dict(channels=(4, 6), kernel_sizes=(3, 3), strides=(2, 2), paddings=(1, 1))
PIXELS = Box(0, 255, (2, 20, 16), np.uint8)


def test_a_block_adds_two_convolutions_of_what_is_positive() -> None:
    block = ResidualConvBlock(1)
    convolutions: list[Any] = [block.layers[1], block.layers[3]]
    with torch.no_grad():
        for layer in convolutions:
            layer.weight.zero_()
            layer.weight[0, 0, 1, 1] = 2.0  # the pixel itself
            layer.bias.fill_(-1.0)
    x = torch.tensor([[[[-3.0, 0.5], [1.0, 2.0]]]])
    # 2 relu(2 relu(x) - 1) - 1
    torch.testing.assert_close(block(x), x + torch.tensor([[[[-1.0, -1.0], [1.0, 5.0]]]]))


def test_a_weight_is_divided_by_its_largest_singular_value() -> None:
    torch.manual_seed(0)
    layer, x = SpectralConv2d(3, 5, 3, padding=1), torch.randn(2, 3, 6, 6)
    for _ in range(100):  # until u has converged
        layer(x)
    sigma = torch.linalg.matrix_norm(layer.weight.flatten(1), 2)
    expected = torch.nn.functional.conv2d(x, layer.weight / sigma, layer.bias, padding=1)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)
    layer.eval()
    before = layer.u.clone()
    layer(x)
    assert torch.equal(layer.u, before)
    layer.train()(2 * x).sum().backward()
    grad: Any = layer.weight.grad
    torch.testing.assert_close(
        (grad * layer.weight).sum(), torch.tensor(0.0), rtol=0, atol=1e-2
    )  # its size is no matter


@pytest.mark.parametrize("shape", [(84, 84), (20, 16), (7, 5)])
@pytest.mark.parametrize("pool_to", [None, 3])
def test_the_size_of_the_output_is_the_one_that_is_told(shape: tuple[int, int], pool_to: int | None) -> None:
    net = ResidualConvModel(2, **SMALL, n_blocks=1, pool_to=pool_to)
    images = torch.randint(256, (3, 2, *shape), dtype=torch.uint8)
    assert net(images).flatten(1).shape == (3, net.conv_out_size(*shape))
    assert (net(images) >= 0).all()


def test_the_network_of_impala_has_fifteen_convolutions() -> None:
    model = QModel(Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), conv=IMPALA)
    convolutions = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert len(convolutions) == 15
    flat: Any = model.encoder
    assert flat.output_size == 32 * 11 * 11
    q = model(torch.randint(256, (5, 4, 84, 84), dtype=torch.uint8), torch.zeros(5, 6), torch.zeros(5))
    assert q.shape == (5, 6)
    q.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_convolutions_of_a_model_are_spectral_where_that_is_asked_for() -> None:
    conv = replace(IMPALA, **SMALL, spectral_norm=True, pool_to=2, fc_sizes=8)
    model = IqnModel(PIXELS, Discrete(3), conv=conv, n_tau=4)
    assert sum(isinstance(layer, SpectralConv2d) for layer in model.modules()) == 8
    encoder: Any = model.encoder
    assert encoder.output_size == 6 * 2 * 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (dict(residual_blocks=2, conv_layer_norm=True), "residual blocks have no layer normalisation"),
        (dict(spectral_norm=True), "without residual_blocks"),
        (dict(pool_to=6), "without residual_blocks"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Conv2dHeadModel((2, 20, 16), **SMALL, hidden_sizes=8, **settings)
