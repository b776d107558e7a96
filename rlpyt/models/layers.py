"""Kinds of hidden layers, by name: those of policies and values over vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from rlpyt.models.batch_norm import BatchNormModel, XqcModel
from rlpyt.models.ensemble import EnsembleMlpModel, EnsembleModel
from rlpyt.models.mlp import MlpModel, Nonlinearity, OutputLinear
from rlpyt.models.running_mean_std import takes_statistics
from rlpyt.models.simba import SimbaModel, SimbaV2Model
from rlpyt.models.spectral_norm import SpectralNormModel
from rlpyt.models.utils import as_sizes

Layers = str | Callable[..., EnsembleModel]
"""Name of a kind of hidden layers, or a class, called with `n_models`, `input_size`, `hidden_sizes`, `output_size`."""
LAYERS: dict[str, Callable[..., EnsembleModel]] = {
    "mlp": EnsembleMlpModel,
    "batch_norm": BatchNormModel,
    "spectral_norm": SpectralNormModel,
    "simba": SimbaModel,
    "simbav2": SimbaV2Model,
    "xqc": XqcModel,
}


class SingleModel(nn.Module):
    """One network of a kind that is made of ensembles, of one: [..., input_size] becomes [..., output_size]."""

    def __init__(self, ensemble: EnsembleModel) -> None:
        super().__init__()
        self.ensemble = ensemble
        self.output_size = ensemble.output_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        output: torch.Tensor = self.ensemble(x)
        return output[0]


def ensemble_of(
    layers: Layers,
    n_models: int,
    input_size: int,
    hidden_sizes: int | Sequence[int] | None,
    output_size: int | None = None,
    **settings: object,
) -> EnsembleModel:
    """Return N new networks with a kind of hidden layers; settings that are false are left out.

    Raises:
        ValueError: if no kind has the name, or the kind does not have one of the settings.
    """
    if isinstance(layers, str) and layers not in LAYERS:
        raise ValueError(
            f"Making a model: layers is {layers!r}; expected one of {', '.join(map(repr, LAYERS))}, or a class such as "
            "rlpyt.models.SimbaModel."
        )
    given = {name: x for name, x in settings.items() if x}
    if given and layers not in ("mlp", EnsembleMlpModel):
        raise ValueError(
            f"Making a model: layers is {layers!r}, with {', '.join(f'{name}={x!r}' for name, x in given.items())}; "
            'expected those with layers="mlp" only. Leave one or the other out.'
        )
    Cls = LAYERS[layers] if isinstance(layers, str) else layers
    return Cls(n_models, input_size, hidden_sizes, output_size, **given)


def features_of(
    layers: Layers,
    input_size: int,
    hidden_sizes: int | Sequence[int] | None,
    nonlinearity: Nonlinearity = nn.ReLU,
    layer_norm: bool = False,
) -> MlpModel | SingleModel:
    """Return new hidden layers of a kind, without an output layer; the identity without sizes.

    Raises:
        ValueError: if it is batch normalisation, or see `ensemble_of`.
    """
    if layers == "mlp" or not as_sizes(hidden_sizes):
        return MlpModel(input_size, hidden_sizes, nonlinearity=nonlinearity, layer_norm=layer_norm)
    model = ensemble_of(layers, 1, input_size, hidden_sizes, layer_norm=layer_norm)
    if any(map(takes_statistics, model.modules())):
        raise ValueError(
            f"Making a model: layers is {layers!r}, which acts by other statistics than those that it learns with; "
            'expected another kind here, such as layers="simba". Batch normalisation goes with policies and values of '
            "SAC alone, by joint_pass=True."
        )
    return SingleModel(model)


def tower_of(
    layers: Layers,
    input_size: int,
    hidden_sizes: int | Sequence[int] | None,
    output_size: int,
    nonlinearity: Nonlinearity,
) -> nn.Sequential:
    """Return new hidden layers of a kind, and a linear output layer as the last part; see `features_of`."""
    if layers == "mlp":
        return MlpModel(input_size, hidden_sizes, output_size, nonlinearity)
    hidden = features_of(layers, input_size, hidden_sizes)
    return nn.Sequential(hidden, OutputLinear(hidden.output_size, output_size))


def network_of(
    layers: Layers, input_size: int, hidden_sizes: int | Sequence[int] | None, output_size: int | None = None
) -> MlpModel | SingleModel:
    """Return one new network with a kind of hidden layers; see `ensemble_of`."""
    if layers == "mlp":
        return MlpModel(input_size, hidden_sizes, output_size)
    return SingleModel(ensemble_of(layers, 1, input_size, hidden_sizes, output_size))
