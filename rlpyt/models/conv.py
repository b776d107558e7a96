"""Convolutional networks over images, and their settings."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import nn

from rlpyt.models.mlp import MlpModel, Nonlinearity
from rlpyt.models.pixels import PixelConv2d
from rlpyt.models.utils import conv2d_output_shape

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
    residual_blocks: int = 0
    """Residual blocks after each convolution, which then shrinks by max pooling (IMPALA: 2); 0 has none."""
    spectral_norm: bool = False
    """Whether the convolutions of residual blocks have spectral normalisation."""
    pool_to: int | None = None
    """Height and width to which the last images of residual blocks are pooled by the maximum; None leaves them."""


NATURE = ConvSettings()
"""Sizes of Mnih et al. 2015, Nature 518."""
IMPALA = ConvSettings(
    channels=(16, 32, 32), kernel_sizes=(3, 3, 3), strides=(2, 2, 2), paddings=(1, 1, 1), residual_blocks=2,
    fc_sizes=256,
)  # fmt: skip
"""Sizes of the deep network of Espeholt et al. 2018, arXiv:1802.01561."""
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
        h, w = _size_after(self, h, w)
        return self.out_channels * h * w


def _size_after(layers: nn.Sequential, h: int, w: int) -> tuple[int, int]:
    """Return height and width after convolutions and poolings."""
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            h, w = conv2d_output_shape(h, w, layer.kernel_size, layer.stride, layer.padding)  # type: ignore[arg-type]
    return h, w


class SpectralConv2d(nn.Conv2d):
    """Convolution whose weight, as a matrix [out, in * height * width], is divided by its largest singular value.

    See `SpectralLinear`, which does the same for linear layers. Of the convolution itself it is no exact norm, as none
    of the implementations in use is.
    """

    u: torch.Tensor

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, padding: int) -> None:
        super().__init__(in_channels, out_channels, kernel_size, padding=padding)
        self.register_buffer("u", F.normalize(torch.randn(out_channels), dim=0))
        for _ in range(15):
            self._iterate()

    @torch.no_grad()
    def _iterate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return u and v by a step of power iteration, which is kept in training mode."""
        weight = self.weight.flatten(1)
        v = F.normalize(self.u @ weight, dim=0)
        if self.training:
            self.u.copy_(F.normalize(weight @ v, dim=0))
        return self.u.clone(), v

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the convolution of [B, C, height, width]."""
        with torch.autocast(input.device.type, enabled=False):
            u, v = self._iterate()
            sigma = u @ self.weight.flatten(1) @ v
        return self._conv_forward(input, self.weight / sigma, self.bias)


class ResidualConvBlock(nn.Module):
    """x + conv(f(conv(f(x)))) of images [B, C, height, width]; f is the nonlinearity, and kernels are 3 x 3."""

    def __init__(self, channels: int, nonlinearity: Nonlinearity = nn.ReLU, spectral_norm: bool = False) -> None:
        super().__init__()
        Layer = SpectralConv2d if spectral_norm else nn.Conv2d
        convs = (Layer(channels, channels, 3, padding=1) for _ in range(2))
        self.layers = nn.Sequential(*chain.from_iterable((nonlinearity(), conv) for conv in convs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum, of the same shape."""
        output: torch.Tensor = x + self.layers(x)
        return output


class ResidualConvModel(nn.Sequential):
    """Stages of a convolution, max pooling over 3 x 3 pixels, and residual blocks; images are [B, C, height, width].

    The settings of IMPALA are `rlpyt.models.IMPALA`.

    Args:
        in_channels: C.
        channels: of each stage.
        kernel_sizes: of the first convolution of each stage.
        strides: of each pooling; 1 does not pool.
        paddings: of the first convolution of each stage; None is 0.
        nonlinearity: called once per layer.
        n_blocks: residual blocks of each stage.
        spectral_norm: whether their convolutions are a `SpectralConv2d`.
        pool_to: height and width to which the last images are pooled by the maximum; None leaves them.

    Sources: Espeholt et al. 2018, arXiv:1802.01561, figure 3; spectral normalisation and pooling to 6 Clark et al.
    2024 (BTR), arXiv:2411.03820.
    """

    def __init__(
        self,
        in_channels: int,
        channels: Sequence[int],
        kernel_sizes: Sequence[int],
        strides: Sequence[int],
        paddings: Sequence[int] | None = None,
        nonlinearity: Nonlinearity = nn.ReLU,
        n_blocks: int = 2,
        spectral_norm: bool = False,
        pool_to: int | None = None,
    ) -> None:
        paddings = [0] * len(channels) if paddings is None else paddings
        layers: list[nn.Module] = []
        for n, kernel, stride, padding in zip(channels, kernel_sizes, strides, paddings, strict=True):
            layers.append((nn.Conv2d if layers else PixelConv2d)(in_channels, n, kernel, 1, padding))
            if stride > 1:
                layers.append(nn.MaxPool2d(3, stride, 1))
            layers += [ResidualConvBlock(n, nonlinearity, spectral_norm) for _ in range(n_blocks)]
            in_channels = n
        layers.append(nonlinearity())
        if pool_to is not None:
            layers.append(nn.AdaptiveMaxPool2d(pool_to))
        super().__init__(*layers)
        self.out_channels, self._pool_to = in_channels, pool_to

    def conv_out_size(self, h: int, w: int) -> int:
        """Return the number of features of images of this height and width; 0 if nothing of them is left."""
        h, w = _size_after(self, h, w)
        return self.out_channels * (h * w if self._pool_to is None or not h * w else self._pool_to**2)


class Conv2dHeadModel(nn.Module):
    """Convolutions, then fully connected layers; images [..., C, height, width] become [..., output_size].

    Args:
        image_shape: (C, height, width).
        channels: see `Conv2dModel`, also for all arguments that are not named here.
        hidden_sizes: see `MlpModel`.
        output_size: see `MlpModel`.
        nonlinearity: of all layers.
        conv_layer_norm: see `ConvSettings`, also for the next three.
        residual_blocks: with some, the convolutions are a `ResidualConvModel`.
        spectral_norm: of residual blocks.
        pool_to: of residual blocks.

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
        residual_blocks: int = 0,
        spectral_norm: bool = False,
        pool_to: int | None = None,
    ) -> None:
        super().__init__()
        c, h, w = image_shape
        sizes = (c, channels, kernel_sizes, strides, paddings, nonlinearity)
        self.conv: Conv2dModel | ResidualConvModel
        if residual_blocks:
            if conv_layer_norm:
                raise ValueError(
                    f"Conv2dHeadModel: residual_blocks is {residual_blocks} and conv_layer_norm True; expected one of "
                    "them, as residual blocks have no layer normalisation. Leave one out."
                )
            self.conv = ResidualConvModel(*sizes, residual_blocks, spectral_norm, pool_to)
        elif spectral_norm or pool_to is not None:
            raise ValueError(
                f"Conv2dHeadModel: spectral_norm is {spectral_norm} and pool_to {pool_to}, without residual_blocks; "
                "expected residual_blocks=2, say, as both belong to them."
            )
        else:
            self.conv = Conv2dModel(*sizes, use_maxpool, layer_norm=conv_layer_norm)
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
