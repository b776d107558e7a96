"""Encoders: features of observations of any space, [..., output_size] float32 under any leading dimensions.

A model is given observations in row form; see `rlpyt.spaces`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import nn

from rlpyt.functional import to_onehot
from rlpyt.models.conv import Conv2dHeadModel, ConvSettings
from rlpyt.models.mlp import Nonlinearity
from rlpyt.models.pixels import PixelConv2d
from rlpyt.models.running_mean_std import RunningMeanStdModel
from rlpyt.models.utils import as_sizes
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import is_image, subspaces

Observation: TypeAlias = "torch.Tensor | tuple[Observation, ...]"
"""A tensor, or for a Dict or Tuple space a (named array) tuple with one entry per part."""
Obs = TypeVar("Obs")
Part = TypeVar("Part")
_MAX_ONE_HOT = 1_000_000


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

    def reading(self) -> list[str]:
        """Return in words how every part of an observation is read, for the plan of a run."""
        return []

    def fit_to(self, space: Space) -> None:
        """Take in what a new encoder must know of the space beside its shape: the scale of its images.

        A scale that the model has set itself stays, and so does that of weights that it has loaded.
        """


class VectorEncoder(Encoder[torch.Tensor]):
    """Encoder that flattens numbers to float32 as they are, with an optional normalisation.

    Args:
        shape: of one observation.
        rms: running statistics that normalise the flat vector; None does not normalise.
    """

    def __init__(self, shape: Sequence[int], rms: RunningMeanStdModel | None = None) -> None:
        super().__init__()
        self._shape, self._ndim = tuple(shape), len(shape)
        self.output_size = math.prod(shape)
        self.rms = rms

    def reading(self) -> list[str]:
        """Return the shape if it is flattened, and the number of inputs."""
        flattened = f"{list(self._shape)} flattened to " if self._ndim > 1 else ""
        return [f"{flattened}{self.output_size:,} numbers{'' if self.rms is None else ' normalised'}"]

    def _load_from_state_dict(self, state_dict: dict[str, torch.Tensor], prefix: str, *rest: Buffer) -> None:
        state_dict.pop(f"{prefix}divisor", None)  # 1, which an encoder of uint8 had once
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _flat(self, observation: torch.Tensor) -> torch.Tensor:
        x = observation.float()
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
        self.output_size = _one_hot_size("observation", space, sum(self._sizes))

    def reading(self) -> list[str]:
        """Return the number of inputs."""
        return [f"{self.output_size:,} one-hot inputs"]

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return features of indices [..., *shape]."""
        if self._ndim == 0:
            return to_onehot(observation, self.output_size, torch.float32)
        indices = observation.flatten(-self._ndim).unbind(-1)
        return torch.cat([to_onehot(i, n, torch.float32) for i, n in zip(indices, self._sizes, strict=True)], -1)


class ImageEncoder(Encoder[torch.Tensor]):
    """Encoder of images [..., C, height, width] by a convolutional network, which divides uint8 by 255.

    Args:
        net: convolutions, with or without fully connected layers.
    """

    has_image = True

    def __init__(self, net: Conv2dHeadModel) -> None:
        super().__init__()
        self.net = net
        self.output_size = net.output_size
        self._is_uint8 = True

    def _first(self) -> PixelConv2d | None:
        first = self.net.conv[0] if isinstance(self.net, Conv2dHeadModel) else None
        return first if isinstance(first, PixelConv2d) else None

    def reading(self) -> list[str]:
        """Return what the image is divided by, where that is known."""
        first = self._first()
        if first is None or not self._is_uint8:
            return ["image"]
        return [f"image divided by {255 if first.divisor is None else first.divisor.item():g}"]

    def fit_to(self, space: Space) -> None:
        """Divide uint8 images by the upper bound of the space, where the network can do so."""
        first = self._first()
        self._is_uint8 = space.dtype == np.uint8
        if first is not None and first.divisor is None and not first.is_loaded and is_image(space):
            assert isinstance(space, spaces.Box)
            first.divide_by(max(1.0, float(space.high.max(initial=0))))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return features of images."""
        return self.net(observation)


class NestedEncoder(Encoder[tuple[Observation, ...]]):
    """Encoder that concatenates the features of all fields of a Dict or Tuple.

    Args:
        encoders: one per field, in the order of the space.
        names: of the fields, for `reading`; by default their numbers.
        places: of the fields among those of an observation; by default they are all of them.
    """

    def __init__(
        self, encoders: Sequence[Encoder], names: Sequence[str] | None = None, places: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self._names = list(map(str, range(len(encoders)))) if names is None else list(names)
        self._places = None if places is None else list(places)
        self.fields = nn.ModuleList(encoders)
        self.output_size = sum(encoder.output_size for encoder in encoders)
        self.has_image = any(encoder.has_image for encoder in encoders)

    def forward(self, observation: tuple[Observation, ...]) -> torch.Tensor:
        """Return features of a tuple of observations."""
        pairs = zip(self.fields, self._own(observation), strict=True)
        return torch.cat([encoder(x) for encoder, x in pairs], -1)

    def _own(self, parts: Sequence[Part]) -> Sequence[Part]:
        if self._places is None:
            return parts
        as_tuple = tuple(parts)  # as an index of rows is one of their times
        return [as_tuple[i] for i in self._places]

    def reading(self) -> list[str]:
        """Return how every field is read, after its name."""
        pairs = zip(self._names, self.fields, strict=True)
        return [f"{name}: {text}" for name, x in pairs if isinstance(x, Encoder) for text in x.reading()]

    def fit_to(self, space: Space) -> None:
        """Let every field take in its part of the space."""
        parts = self._own(subspaces(space))
        for encoder, (_, part) in zip(self.fields, parts, strict=False) if len(parts) == len(self.fields) else ():
            if isinstance(encoder, Encoder):
                encoder.fit_to(part)

    def update_obs_rms(self, observation: tuple[Observation, ...], valid: torch.Tensor | None = None) -> None:
        """Add observations to the running statistics of every field."""
        for encoder, x in zip(self.fields, self._own(observation), strict=True):
            assert isinstance(encoder, Encoder)
            encoder.update_obs_rms(x, valid)


def make_encoder(
    space: Space, conv: ConvSettings, normalize_observation: bool = False, without: Sequence[str] = ()
) -> Encoder:
    """Return a new encoder for a space.

    Images (uint8 Box of three dimensions) are divided by their upper bound, which is 255 for pictures and 1 for planes
    of zeros and ones, and go through convolutions. Any other Box, and MultiBinary, is flattened and used as it is,
    whatever its dtype. Discrete and MultiDiscrete become one-hot. Dict and Tuple are encoded field by field.

    Args:
        space: of the observations.
        conv: sizes of the convolutional networks over images.
        normalize_observation: whether a Box that is no image is normalised by running statistics.
        without: keys of a Dict that it does not read.

    Raises:
        TypeError: if the space is none of these, or uint8 of more than three dimensions.
        ValueError: if one-hot vectors would have more than a million entries.
    """
    match space:
        case spaces.Box() if is_image(space):
            sizes = {name: size for name, size in vars(conv).items() if name != "fc_sizes"}
            image_encoder = ImageEncoder(Conv2dHeadModel(space.shape, hidden_sizes=conv.fc_sizes, **sizes))
            image_encoder.fit_to(space)
            return image_encoder
        case spaces.Box() if len(space.shape) > 3 and space.dtype == np.uint8:
            raise TypeError(
                f"Making a model: the observation space is {space}; expected images of three dimensions, [C, height, "
                "width]. Wrap the environment in rlpyt.envs.ChannelsFirst, which makes channels of the frames of a "
                "stack, or give the agent a model of your own (ModelCls)."
            )
        case spaces.Box():
            rms = RunningMeanStdModel((math.prod(space.shape),)) if normalize_observation else None
            return VectorEncoder(space.shape, rms)
        case spaces.MultiBinary():
            return VectorEncoder(space.shape)
        case spaces.Discrete() | spaces.MultiDiscrete():
            return OneHotEncoder(space)
        case spaces.Dict() | spaces.Tuple():
            fields = [(i, key, part) for i, (key, part) in enumerate(subspaces(space)) if key not in without]
            places, names, parts = zip(*fields, strict=True) if fields else ((), (), ())
            encoders = [make_encoder(x, conv, normalize_observation) for x in parts]
            return NestedEncoder(encoders, names, places if without else None)
    raise TypeError(
        f"Making a model: the observation space is {space}; expected Box, Discrete, MultiDiscrete, MultiBinary, or "
        "Dict or Tuple of these. Wrap the environment, or give the agent a model of your own (ModelCls)."
    )


def make_value_encoder(
    space: Space, conv: ConvSettings, normalize_observation: bool, keys: Sequence[str]
) -> Encoder | None:
    """Return a new encoder for the keys of a Dict that a value sees and the policy does not; None where there are none.

    What the policy sees is `make_encoder(..., without=keys)`.

    Raises:
        ValueError: if a key is not in the space, or all keys are named.
    """
    if not keys:
        return None
    there = [key for key, _ in subspaces(space)] if isinstance(space, spaces.Dict) else []
    if not set(keys) < set(there):
        raise ValueError(
            f"Making a model: value_only is {keys!r}, and the observation has the keys {there}; expected some of them, "
            "in a list, and another that the policy sees."
        )
    return make_encoder(space, conv, normalize_observation, [key for key in there if key not in keys])


def encoder_and_layers(
    space: Space,
    conv: ConvSettings,
    normalize_observation: bool,
    hidden_sizes: int | Sequence[int],
    nonlinearity: Nonlinearity,
    without: Sequence[str] = (),
) -> tuple[Encoder, list[int], Nonlinearity]:
    """Return a new encoder, and sizes and nonlinearity of the layers over it: of a single image those of `conv`."""
    if is_image(space):
        layers, conv, nonlinearity = as_sizes(conv.fc_sizes), replace(conv, fc_sizes=None), nn.ReLU
    else:
        layers = as_sizes(hidden_sizes)
    return make_encoder(space, conv, normalize_observation, without), layers, nonlinearity


def _one_hot_size(of: str, space: Space, size: int) -> int:
    """Return a length of one-hot vectors that memory can hold, with the weights of a layer over them."""
    if size > _MAX_ONE_HOT:
        raise ValueError(
            f"Making a model: the {of} space is {space!s:.100}, and its one-hot vector would have {size:,} entries; "
            f"expected at most {_MAX_ONE_HOT:,}. Wrap the environment to give such numbers by several choices "
            "(MultiDiscrete) or as a Box, or give the agent a model of your own with an embedding (ModelCls)."
        )
    return size


def encoded_action_size(space: Space) -> int:
    """Return A, the length of an encoded action, and of the logits or means of a policy; the sum over a Dict or Tuple.

    Raises:
        ValueError: if that of a discrete space is above a million.
        TypeError: if the space, or a part of it, is not Discrete, MultiDiscrete, MultiBinary or Box.
    """
    match space:
        case spaces.Discrete():
            return _one_hot_size("action", space, int(space.n))
        case spaces.MultiDiscrete():
            return _one_hot_size("action", space, int(space.nvec.sum()))
        case spaces.MultiBinary():
            return 2 * math.prod(space.shape)
        case spaces.Box():
            return math.prod(space.shape)
        case spaces.Dict() | spaces.Tuple() if subspaces(space):
            return sum(encoded_action_size(part) for _, part in subspaces(space))
    raise TypeError(
        f"Making a model: the action space is {space}; expected Discrete, MultiDiscrete, MultiBinary, Box, or Dict or "
        "Tuple of these. Wrap the environment, or give the agent a model of your own (ModelCls)."
    )
