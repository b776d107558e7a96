"""Convolutional networks over images, and their settings.

Images are uint8 [..., C, height, width] and stand for value / 255, or for value / high where another upper bound is
given; float images are used as they are. The division needs no pass over the images. They are cast to the type in which
the convolution computes, which represents 0 to 255 exactly (bfloat16 too), and the first weights are divided instead.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import nn

from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.utils import conv2d_output_shape
from rlpyt.namedarraytuple import Buffer

Init = TypeVar("Init", bound=Callable[..., None])


@dataclass(frozen=True, kw_only=True)
class ConvSettings:
    """Sizes of the layers over images."""

    channels: Sequence[int] = (32, 64, 64)
    """Output channels of each convolution."""
    kernel_sizes: Sequence[int] = (8, 4, 3)
    """Height and width of each kernel, in pixels."""
    strides: Sequence[int] = (4, 2, 1)
    """Stride of each convolution; with `use_maxpool` of each pooling, and convolutions have stride 1."""
    paddings: Sequence[int] | None = None
    """Zero padding of each convolution on all sides, in pixels; None is 0."""
    use_maxpool: bool = False
    """Whether to shrink by max pooling instead of by strides."""
    fc_sizes: int | Sequence[int] | None = 512
    """Fully connected layers over the convolutions; None is no layer."""
    conv_layer_norm: bool = False
    """Whether each convolution is followed by layer normalisation, over channels, height and width."""


NATURE = ConvSettings()
"""Sizes of Mnih et al. 2015, Nature 518."""
DRQ = ConvSettings(channels=(32, 32, 32, 32), kernel_sizes=(3, 3, 3, 3), strides=(2, 1, 1, 1), fc_sizes=None)
"""Sizes of Yarats et al. 2021, arXiv:2004.13649."""


def takes_layers(init: Init) -> Init:
    """Let a constructor with an argument `conv` take the fields of `ConvSettings` as arguments too, by name.

    They replace single fields of `conv`: `model_kwargs=dict(channels=[16, 32], ...)` is how rlpyt 0.1 set these sizes.
    The signature of the constructor has them, so that a misspelt name is answered with the close ones.
    """
    signature = inspect.signature(init)
    default: ConvSettings = signature.parameters["conv"].default
    fields = {f.name: vars(default)[f.name] for f in dataclasses.fields(default)}
    layers = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=x) for name, x in fields.items()]

    @wraps(init)
    def with_layers(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        changes = {name: kwargs.pop(name) for name in fields if name in kwargs}
        if changes:
            kwargs["conv"] = dataclasses.replace(kwargs.get("conv", default), **changes)
        init(self, *args, **kwargs)

    vars(with_layers)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), *layers])
    return cast(Init, with_layers)


def match_divisor(
    divisor: torch.Tensor | None, without: float, state_dict: dict[str, torch.Tensor], prefix: str, errors: list[str]
) -> None:
    """Let the state of a layer have a divisor where the layer has one, and none where it has none.

    A state from before there were divisors has none, when all uint8 was divided by 255. `errors` get a sentence if the
    layer, which without a divisor divides by `without`, would read observations by another scale than these weights.
    """
    name = f"{prefix}divisor"
    if divisor is not None:
        state_dict.setdefault(name, torch.tensor(255.0))
    elif name in state_dict and (trained_with := state_dict.pop(name).item()) != without:
        errors.append(
            f"{name} is {trained_with:g}, what uint8 was divided by when these weights were trained, and this network "
            f"would divide by {without:g}; expected the same. Declare the observation space with the bounds and the "
            "dtype that it had then."
        )


class PixelConv2d(nn.Conv2d):
    """Convolution that reads uint8 as [0, 1], without a change of the image itself: value / 255, see `divide_by`."""

    divisor: torch.Tensor | None
    """Upper bound of the images where it is not 255: a buffer, so that weights keep the scale they were trained with.
    Those from before had no other than 255, and a state without the entry stands for that."""
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
        match_divisor(self.divisor, 255.0, state_dict, prefix, errors=rest[-1])
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


class Conv2dModel(nn.Sequential):
    """Convolutions, each followed by the nonlinearity and an optional pooling; images are [B, C, height, width].

    The arguments are those of rlpyt 0.1; see `ConvSettings` for the sizes.

    Args:
        in_channels: C.
        channels: of each layer.
        kernel_sizes: of each layer.
        strides: of each layer.
        paddings: of each layer; None is 0.
        nonlinearity: called once per layer.
        use_maxpool: whether to shrink by max pooling instead of by strides.
        layer_norm: whether each convolution is normalised over channels, height and width, before the nonlinearity.

    Raises:
        ValueError: if the lists have different lengths, or are empty.
    """

    def __init__(
        self,
        in_channels: int,
        channels: Sequence[int],
        kernel_sizes: Sequence[int],
        strides: Sequence[int],
        paddings: Sequence[int] | None = None,
        nonlinearity: Nonlinearity = nn.ReLU,
        use_maxpool: bool = False,
        layer_norm: bool = False,
    ) -> None:
        paddings = [0] * len(channels) if paddings is None else paddings
        if not len(channels) == len(kernel_sizes) == len(strides) == len(paddings) > 0:
            raise ValueError(
                f"Conv2dModel: got channels {channels}, kernel_sizes {kernel_sizes}, strides {strides} and paddings "
                f"{paddings}; expected one number a layer in each. Give all four the same length."
            )
        layers: list[nn.Module] = []
        for n, kernel, stride, padding in zip(channels, kernel_sizes, strides, paddings, strict=True):
            Layer = nn.Conv2d if layers else PixelConv2d
            layers.append(Layer(in_channels, n, kernel, 1 if use_maxpool else stride, padding))
            layers += [nn.GroupNorm(1, n), nonlinearity()] if layer_norm else [nonlinearity()]
            if use_maxpool and stride > 1:
                layers.append(nn.MaxPool2d(stride))
            in_channels = n
        super().__init__(*layers)
        self.out_channels = in_channels

    def conv_out_size(self, h: int, w: int) -> int:
        """Return the number of features of images of this height and width."""
        for layer in self:
            if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
                h, w = conv2d_output_shape(h, w, layer.kernel_size, layer.stride, layer.padding)  # type: ignore[arg-type]
        return self.out_channels * h * w


class Conv2dHeadModel(nn.Module):
    """Convolutions, then fully connected layers; images [..., C, height, width] become [..., output_size].

    Args:
        image_shape: (C, height, width).
        channels: see `Conv2dModel`, also for all arguments that are not named here.
        hidden_sizes: see `MlpModel`.
        output_size: see `MlpModel`.
        nonlinearity: of all layers.
        conv_layer_norm: see `ConvSettings`.

    Raises:
        ValueError: if the convolutions leave nothing of the image.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        channels: Sequence[int],
        kernel_sizes: Sequence[int],
        strides: Sequence[int],
        hidden_sizes: int | Sequence[int] | None,
        output_size: int | None = None,
        paddings: Sequence[int] | None = None,
        nonlinearity: Nonlinearity = nn.ReLU,
        use_maxpool: bool = False,
        conv_layer_norm: bool = False,
    ) -> None:
        super().__init__()
        c, h, w = image_shape
        layers = (channels, kernel_sizes, strides, paddings)
        self.conv = Conv2dModel(c, *layers, nonlinearity, use_maxpool, layer_norm=conv_layer_norm)
        size = self.conv.conv_out_size(h, w)
        if size == 0:
            raise ValueError(
                f"Convolutions over images {tuple(image_shape)} (channels, height, width) with kernel_sizes "
                f"{kernel_sizes}, strides {strides} and paddings {paddings} leave nothing of the image. If the "
                "channels are last, transpose it: wrap the environment in rlpyt.envs.ChannelsFirst. Otherwise give "
                "smaller kernels in model_kwargs (feature_kwargs of DDPG, TD3 and SAC), such as dict(channels=[32, "
                "64], kernel_sizes=[3, 3], strides=[1, 1], paddings=[1, 1]), or a model of your own (ModelCls)."
            )
        self.head = MlpModel(size, hidden_sizes, output_size, nonlinearity)
        self.output_size = self.head.output_size

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return features [..., output_size] of images [..., C, height, width]."""
        if image.dim() == 4:
            return self.head(self.conv(image).flatten(1))
        x = self.conv(image.reshape(-1, *image.shape[-3:]))
        return self.head(x.reshape(*image.shape[:-3], -1))
