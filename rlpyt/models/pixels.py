"""Convolution over pixels, and the scale by which weights were trained to read them.

Images are uint8 [..., C, height, width] and stand for value / 255, or for value / high where another upper bound is
given; float images are used as they are. The division needs no pass over the images. They are cast to the type in which
the convolution computes, which represents 0 to 255 exactly (bfloat16 too), and the first weights are divided instead.
"""

from __future__ import annotations

import torch
from torch import nn

from rlpyt.namedarraytuple import Buffer


class PixelConv2d(nn.Conv2d):
    """Convolution that reads uint8 as [0, 1], without a change of the image itself: value / 255, see `divide_by`."""

    divisor: torch.Tensor | None
    """Upper bound of the images where it is not 255: a buffer, so that weights of another scale are refused."""
    is_loaded = False
    """Whether it has weights from elsewhere, of which the scale is a part."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        **kwargs: object,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, **kwargs)  # type: ignore[arg-type]
        self.register_buffer("divisor", None)

    def divide_by(self, high: float) -> None:
        """Read uint8 as value / high."""
        self.divisor = None if high == 255 else torch.tensor(float(high), device=self.weight.device)

    def _load_from_state_dict(self, state_dict: dict[str, torch.Tensor], prefix: str, *rest: Buffer) -> None:
        name, own = f"{prefix}divisor", 255 if self.divisor is None else self.divisor.item()
        trained_with = float(state_dict.get(name, 255))
        if trained_with != own:
            errors: list[str] = rest[-1]
            errors.append(
                f"{name} is {trained_with:g}, what uint8 was divided by when these weights were trained, and this "
                f"network would divide by {own:g}; expected the same. Declare the observation space with the bounds "
                "and the dtype that it had then."
            )
        self.is_loaded = True
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the convolution of images [B, C, height, width]."""
        weight, device_type = self.weight, input.device.type
        autocast = torch.is_autocast_enabled(device_type)
        x = input.to(torch.get_autocast_dtype(device_type) if autocast else weight.dtype)
        if weight.is_contiguous(memory_format=torch.channels_last):
            # After the cast: on a CPU a third faster than both in one pass (0.57 against 0.99 ms, 32 x 4 x 84 x 84).
            x = x.contiguous(memory_format=torch.channels_last)
        if input.dtype == torch.uint8:
            weight = weight * (1 / 255 if self.divisor is None else self.divisor.reciprocal())
        return self._conv_forward(x, weight, self.bias)
