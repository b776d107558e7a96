"""Random changes of images that do not change their meaning."""

from __future__ import annotations

import torch


def random_shift(images: torch.Tensor, pad: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Return images shifted at random by up to `pad` pixels in each direction, with repeated borders.

    Args:
        images: [..., M, C, height, width]; each of the M images has its own shift, equal in all leading dimensions.
        pad: the largest shift in pixels; all 2 * pad + 1 shifts of a direction are equally likely.
        generator: a CPU generator to draw from; None is torch's global one.

    Returns:
        The shape and dtype of images.

    Raises:
        ValueError: if pad is negative, or images have fewer than four dimensions.

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
    # Each image is cut out of its widened copy. This copies whole rows; one index per pixel would take 3.5 times as
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
