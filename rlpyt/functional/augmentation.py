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
    shift = torch.randint(-pad, pad + 1, (2, M, 1), generator=generator).to(images.device)
    # Where a pixel comes from; to clip is to repeat the border.
    y = (torch.arange(height, device=images.device) + shift[0]).clamp(0, height - 1)
    x = (torch.arange(width, device=images.device) + shift[1]).clamp(0, width - 1)
    m, c = torch.arange(M, device=images.device), torch.arange(C, device=images.device)
    return images[..., m[:, None, None, None], c[:, None, None], y[:, None, :, None], x[:, None, None, :]]
