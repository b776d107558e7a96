"""Encoders: features of observations of any space, [..., output_size] float32 under any leading dimensions.

A model is given observations in row form; see `rlpyt.spaces`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import nn

from rlpyt.functional import to_onehot
from rlpyt.models.conv import Conv2dHeadModel, ConvSettings
from rlpyt.models.running_mean_std import RunningMeanStdModel

Observation: TypeAlias = "torch.Tensor | tuple[Observation, ...]"
"""A tensor, or for a Dict or Tuple space a (named array) tuple with one entry per part."""
Obs = TypeVar("Obs")


def is_image(space: Space) -> bool:
    """Return whether observations of a space are images: uint8 [C, height, width]."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


class Encoder(nn.Module, ABC, Generic[Obs]):
    """Network that turns observations of one space into features."""

    output_size: int
    """Number of features."""
    has_image: bool = False
    """Whether it contains a convolution."""

    @abstractmethod
    def forward(self, observation: Obs) -> torch.Tensor:
        """Return features [..., output_size] of an observation in row form."""

    def update_obs_rms(self, observation: Obs, valid: torch.Tensor | None = None) -> None:
        """Add observations [...] to the running statistics, if there are any, where `valid` [...] is True."""


class VectorEncoder(Encoder[torch.Tensor]):
    """Encoder that flattens numbers to float32, with an optional normalisation; uint8 stands for value / 255.

    Args:
        shape: of one observation.
        rms: running statistics that normalise the flat vector; None does not normalise.
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
        """Add observations [..., *shape] to the running statistics."""
        if self.rms is not None:
            self.rms.update(self._flat(observation), valid)


class OneHotEncoder(Encoder[torch.Tensor]):
    """Encoder that concatenates the one-hot vectors of indices.

    Args:
        space: Discrete or MultiDiscrete.
    """

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
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


class ImageEncoder(Encoder[torch.Tensor]):
    """Encoder of images [..., C, height, width] by a convolutional network.

    Args:
        net: convolutions, with or without fully connected layers.
    """

    has_image = True

    def __init__(self, net: Conv2dHeadModel) -> None:
        super().__init__()
        self.net = net
        self.output_size = net.output_size

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return features of images."""
        return self.net(observation)


class NestedEncoder(Encoder[tuple[Observation, ...]]):
    """Encoder that concatenates the features of all fields of a Dict or Tuple.

    Args:
        encoders: one per field, in the order of the space.
    """

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.fields = nn.ModuleList(encoders)
        self.output_size = sum(encoder.output_size for encoder in encoders)
        self.has_image = any(encoder.has_image for encoder in encoders)

    def forward(self, observation: tuple[Observation, ...]) -> torch.Tensor:
        """Return features of a tuple of observations."""
        pairs = zip(self.fields, observation, strict=True)
        return torch.cat([encoder(x) for encoder, x in pairs], -1)

    def update_obs_rms(self, observation: tuple[Observation, ...], valid: torch.Tensor | None = None) -> None:
        """Add observations to the running statistics of every field."""
        for encoder, x in zip(self.fields, observation, strict=True):
            assert isinstance(encoder, Encoder)
            encoder.update_obs_rms(x, valid)


def make_encoder(space: Space, conv: ConvSettings, normalize_observation: bool = False) -> Encoder:
    """Return a new encoder for a space.

    Images (uint8 Box of three dimensions) go through convolutions. Any other Box and MultiBinary are flattened.
    Discrete and MultiDiscrete become one-hot. Dict and Tuple are encoded field by field.

    Args:
        space: of the observations.
        conv: sizes of the convolutional networks over images.
        normalize_observation: whether a Box that is no image is normalised by running statistics.

    Raises:
        TypeError: if the space is none of these, or uint8 of more than three dimensions.
    """
    match space:
        case spaces.Box() if is_image(space):
            layers = (conv.channels, conv.kernel_sizes, conv.strides, conv.fc_sizes)
            net = Conv2dHeadModel(space.shape, *layers, paddings=conv.paddings, use_maxpool=conv.use_maxpool)
            return ImageEncoder(net)
        case spaces.Box() if len(space.shape) > 3 and space.dtype == np.uint8:
            raise TypeError(
                f"Making a model: the observation space is {space}; expected images of three dimensions, [C, height, "
                "width]. Concatenate the frames of a stack as channels (gymnasium.wrappers.TransformObservation), or "
                "give the agent a model of your own (ModelCls)."
            )
        case spaces.Box():
            rms = RunningMeanStdModel((math.prod(space.shape),)) if normalize_observation else None
            return VectorEncoder(space.shape, rms)
        case spaces.MultiBinary():
            return VectorEncoder(space.shape)
        case spaces.Discrete() | spaces.MultiDiscrete():
            return OneHotEncoder(space)
        case spaces.Dict():
            return NestedEncoder([make_encoder(x, conv, normalize_observation) for x in space.spaces.values()])
        case spaces.Tuple():
            return NestedEncoder([make_encoder(x, conv, normalize_observation) for x in space.spaces])
    raise TypeError(
        f"Making a model: the observation space is {space}; expected Box, Discrete, MultiDiscrete, MultiBinary, or "
        "Dict or Tuple of these. Wrap the environment, or give the agent a model of your own (ModelCls)."
    )


def encoded_action_size(space: Space) -> int:
    """Return A, the length of an encoded action, and of the logits or means of a policy.

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
