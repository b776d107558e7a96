"""Features from the observations of any space, [..., output_size] float under any leading dimensions.

The row forms of spaces, which are what a model is given, stand in `rlpyt.spaces`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import nn

from rlpyt.functional import to_onehot
from rlpyt.models.conv import Conv2dHeadModel
from rlpyt.models.running_mean_std import RunningMeanStdModel


def is_image(space: Space[Any]) -> bool:
    """Return whether observations of a space are images: uint8 [C, height, width]."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


class Encoder(nn.Module, ABC):
    """Turns observations of one space into features."""

    output_size: int
    """Number of features."""
    has_image: bool = False
    """Whether there is a convolution in it."""

    @abstractmethod
    def forward(self, observation: Any) -> torch.Tensor:
        """Return features [..., output_size] of an observation in row form."""

    def update_obs_rms(self, observation: Any, valid: torch.Tensor | None = None) -> None:
        """Take observations [...] into the running statistics, if there are any, where `valid` [...] is True."""


class VectorEncoder(Encoder):
    """Flattens numbers to float32, and normalises them if asked to; uint8 means value / 255.

    Args:
        shape: of one observation.
        rms: normalises the flat vector by running statistics, or None.
    """

    def __init__(self, shape: Sequence[int], rms: RunningMeanStdModel | None = None) -> None:
        super().__init__()
        self._ndim = len(shape)
        self.output_size = math.prod(shape)
        self.rms = rms

    def _flat(self, observation: torch.Tensor) -> torch.Tensor:
        x = observation / 255 if observation.dtype == torch.uint8 else observation.float()
        if self._ndim == 1:
            return x
        return x.flatten(-self._ndim) if self._ndim else x.unsqueeze(-1)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return features of an observation [..., *shape]."""
        x = self._flat(observation)
        return x if self.rms is None else self.rms(x)

    def update_obs_rms(self, observation: torch.Tensor, valid: torch.Tensor | None = None) -> None:
        """Take observations into the running statistics."""
        if self.rms is not None:
            self.rms.update(self._flat(observation), valid)


class OneHotEncoder(Encoder):
    """One-hot vectors of indices, one after the other.

    Args:
        space: Discrete or MultiDiscrete.
    """

    def __init__(self, space: spaces.Discrete[Any] | spaces.MultiDiscrete[Any]) -> None:
        super().__init__()
        sizes = space.n if isinstance(space, spaces.Discrete) else space.nvec
        self._ndim = np.ndim(sizes)
        self._sizes = np.ravel(sizes).tolist()
        self.output_size = sum(self._sizes)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return features of indices [..., *shape]."""
        if self._ndim == 0:
            return to_onehot(observation, self.output_size, torch.float32)
        indices = observation.flatten(-self._ndim).unbind(-1)
        return torch.cat([to_onehot(i, n, torch.float32) for i, n in zip(indices, self._sizes, strict=True)], -1)


class ImageEncoder(Encoder):
    """Convolutions, and fully connected layers if any, over images [..., C, height, width]."""

    has_image = True

    def __init__(self, net: Conv2dHeadModel) -> None:
        super().__init__()
        self.net = net
        self.output_size = net.output_size

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return features of images."""
        return self.net(observation)


class NestedEncoder(Encoder):
    """The features of every field of a Dict or Tuple, one after the other.

    Args:
        encoders: one for each field, in the space's order.
    """

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.fields = nn.ModuleList(encoders)
        self.output_size = sum(encoder.output_size for encoder in encoders)
        self.has_image = any(encoder.has_image for encoder in encoders)

    def forward(self, observation: tuple[Any, ...]) -> torch.Tensor:
        """Return features of a tuple of observations."""
        pairs = zip(self.fields, observation, strict=True)
        return torch.cat([encoder(x) for encoder, x in pairs], -1)

    def update_obs_rms(self, observation: tuple[Any, ...], valid: torch.Tensor | None = None) -> None:
        """Take observations into the running statistics of every field."""
        for encoder, x in zip(self.fields, observation, strict=True):
            assert isinstance(encoder, Encoder)
            encoder.update_obs_rms(x, valid)


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """What the encoders of one model have in common; a model's constructor has the defaults."""

    channels: Sequence[int]
    """Of the convolutions over images, layer by layer, as are the next three."""
    kernel_sizes: Sequence[int]
    strides: Sequence[int]
    paddings: Sequence[int]
    use_maxpool: bool
    """Whether to shrink by max pooling instead of by strides."""
    fc_sizes: int | Sequence[int] | None
    """Fully connected layers over the convolutions; None is none."""
    normalize_observation: bool
    """Whether Box observations that are no images are normalised by running statistics."""


def make_encoder(space: Space[Any], settings: EncoderSettings) -> Encoder:
    """Return the encoder for a space.

    Images (uint8 Box of three dimensions) go through convolutions, any other Box and MultiBinary are flattened,
    Discrete and MultiDiscrete become one-hot, Dict and Tuple are encoded field by field.

    Raises:
        TypeError: if the space is none of these, or uint8 of more than three dimensions.
    """
    s = settings
    match space:
        case spaces.Box() if is_image(space):
            layers = (s.channels, s.kernel_sizes, s.strides, s.fc_sizes)
            return ImageEncoder(Conv2dHeadModel(space.shape, *layers, paddings=s.paddings, use_maxpool=s.use_maxpool))
        case spaces.Box() if len(space.shape) > 3 and space.dtype == np.uint8:
            raise TypeError(
                f"Making a model: the observation space is {space}; expected images of three dimensions, [C, height, "
                "width]. Put the frames of a stack behind each other as channels (gymnasium.wrappers."
                "TransformObservation), or give the agent a model of your own (ModelCls)."
            )
        case spaces.Box():
            rms = RunningMeanStdModel((math.prod(space.shape),)) if s.normalize_observation else None
            return VectorEncoder(space.shape, rms)
        case spaces.MultiBinary():
            return VectorEncoder(space.shape)
        case spaces.Discrete() | spaces.MultiDiscrete():
            return OneHotEncoder(space)
        case spaces.Dict():
            return NestedEncoder([make_encoder(field, s) for field in space.spaces.values()])
        case spaces.Tuple():
            return NestedEncoder([make_encoder(field, s) for field in space.spaces])
    raise TypeError(
        f"Making a model: the observation space is {space}; expected Box, Discrete, MultiDiscrete, MultiBinary, or "
        "Dict or Tuple of these. Wrap the environment, or give the agent a model of your own (ModelCls)."
    )


def encoded_action_size(space: Space[Any]) -> int:
    """Return A, the length of an action as a model takes it and of the logits or means that it gives.

    Raises:
        TypeError: if the space is not Discrete, MultiDiscrete, MultiBinary or Box.
    """
    match space:
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
        case spaces.MultiBinary():
            return 2 * math.prod(space.shape)
        case spaces.Box():
            return math.prod(space.shape)
    raise TypeError(
        f"Making a model: the action space is {space}; expected Discrete, MultiDiscrete, MultiBinary or Box. "
        "Wrap the environment, or give the agent a model of your own (ModelCls)."
    )
