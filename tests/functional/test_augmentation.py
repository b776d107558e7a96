"""Random shifts against a loop over padded images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.functional import random_shift


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shifts_of(result: np.ndarray, images: np.ndarray, pad: int) -> list[tuple[int, int]]:
    """Of one image [C, height, width], all shifts that explain it, by cutting it out of the padded one."""
    _, height, width = images.shape
    padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad)), mode="edge")
    return [
        (y - pad, x - pad)
        for y in range(2 * pad + 1)
        for x in range(2 * pad + 1)
        if np.array_equal(padded[:, y : y + height, x : x + width], result)
    ]


def random_images(*shape: int, dtype: Any = torch.uint8) -> torch.Tensor:
    return torch.randint(0, 256, shape, generator=seeded(9)).to(dtype)


@pytest.mark.parametrize("pad", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_equals_a_cut_out_of_the_padded_image(pad, dtype):
    images = random_images(20, 3, 9, 7, dtype=dtype)
    before = images.clone()
    result = random_shift(images, pad, seeded())
    assert result.shape == images.shape
    assert result.dtype == dtype
    assert torch.equal(images, before)
    for m in range(20):
        assert len(shifts_of(result[m].numpy(), images[m].numpy(), pad)) == 1


def test_all_shifts_are_equally_likely_and_the_directions_independent():
    pad, n = 2, 5000
    images = torch.arange(81, dtype=torch.float32).reshape(1, 9, 9).expand(n, 1, 9, 9)
    centre = random_shift(images, pad, seeded())[:, 0, 4, 4] - 40
    counts = torch.tensor([[(centre == 9 * y + x).sum() for x in range(-2, 3)] for y in range(-2, 3)]).double()
    assert counts.sum() == n
    chi_square = ((counts - n / 25) ** 2 / (n / 25)).sum().item()
    assert chi_square < 51.2  # of 24 degrees of freedom, once in a thousand seeds


def test_leading_dimensions_are_shifted_alike_and_images_beside_each_other_are_not():
    images = random_images(4, 3, 30, 2, 8, 8)
    result = random_shift(images, 3, seeded())
    seen = set()
    for m in range(30):
        own = [shifts_of(result[i, j, m].numpy(), images[i, j, m].numpy(), 3) for i in range(4) for j in range(3)]
        assert len(own[0]) == 1
        assert all(shift == own[0] for shift in own)
        seen |= set(own[0])
    assert len(seen) > 10


def test_the_generator_decides():
    images = random_images(16, 1, 8, 8)
    assert torch.equal(random_shift(images, 2, seeded(1)), random_shift(images, 2, seeded(1)))
    assert not torch.equal(random_shift(images, 2, seeded(1)), random_shift(images, 2, seeded(2)))
    assert torch.equal(random_shift(images, 0, seeded(1)), images)


@pytest.mark.parametrize(("pad", "shape"), [(-1, (2, 1, 4, 4)), (1, (1, 4, 4)), (1, (4,))])
def test_bad_arguments_are_refused(pad, shape):
    with pytest.raises(ValueError, match=rf"random_shift: got pad={pad} and images of shape .*expected pad from 0"):
        random_shift(torch.zeros(shape), pad)
