"""Neural networks: full models, which agents call, and their parts."""

from rlpyt.models.base import Model, takes_n_models, uses_prev_action
from rlpyt.models.batch_norm import BatchNormModel, EnsembleBatchNorm, XqcModel
from rlpyt.models.conv import IMPALA, Conv2dHeadModel, Conv2dModel, ConvSettings, ResidualConvModel
from rlpyt.models.encoders import (
    Encoder,
    ImageEncoder,
    NestedEncoder,
    OneHotEncoder,
    VectorEncoder,
    encoded_action_size,
    is_image,
    make_encoder,
)
from rlpyt.models.ensemble import EnsembleLayerNorm, EnsembleLinear, EnsembleMlpModel, EnsembleModel, UnitLinear
from rlpyt.models.iqn import IqnModel, Quantiles, TauSource
from rlpyt.models.layers import LAYERS
from rlpyt.models.mlp import MlpModel, OutputLinear
from rlpyt.models.noise import Dropout, NoisyLinear, RandomModule, draw_randomness
from rlpyt.models.pg import PgModel, PolicyModel
from rlpyt.models.pixels import PixelConv2d
from rlpyt.models.presets import (
    AtariCatDqnModel,
    AtariDqnModel,
    AtariFfModel,
    AtariLstmModel,
    AtariR2d1Model,
    MujocoFfModel,
    MujocoLstmModel,
)
from rlpyt.models.q import DuelingHeadModel, QHeadModel, QModel
from rlpyt.models.qpg import (
    ActorModel,
    AllQMlpModel,
    FeatureHead,
    FeatureModel,
    LogitsMlpModel,
    MuMlpModel,
    PiMlpModel,
    QofMuMlpModel,
)
from rlpyt.models.recurrent import RecurrentCore, RnnState
from rlpyt.models.running_mean_std import RunningMeanStdModel, join_replicas, takes_statistics
from rlpyt.models.simba import SimbaModel, SimbaV2Model
from rlpyt.models.spectral_norm import SpectralLinear, SpectralNormModel
from rlpyt.models.utils import conv2d_output_shape, init_orthogonal, scale_grad, update_target
from rlpyt.utils.projection import Projection

__all__ = [
    "IMPALA",
    "ResidualConvModel",
    # full models
    "Model",
    "PgModel",
    "PolicyModel",
    "QModel",
    "IqnModel",
    "Quantiles",
    "AtariFfModel",
    "AtariLstmModel",
    "AtariDqnModel",
    "AtariCatDqnModel",
    "AtariR2d1Model",
    "MujocoFfModel",
    "MujocoLstmModel",
    "ActorModel",
    "FeatureModel",
    "FeatureHead",
    "AllQMlpModel",
    "LogitsMlpModel",
    "MuMlpModel",
    "PiMlpModel",
    "QofMuMlpModel",
    # parts
    "MlpModel",
    "OutputLinear",
    "EnsembleModel",
    "EnsembleMlpModel",
    "EnsembleLinear",
    "EnsembleLayerNorm",
    "LAYERS",
    "BatchNormModel",
    "EnsembleBatchNorm",
    "SpectralNormModel",
    "SpectralLinear",
    "SimbaModel",
    "SimbaV2Model",
    "XqcModel",
    "Projection",
    "UnitLinear",
    "ConvSettings",
    "Conv2dModel",
    "Conv2dHeadModel",
    "PixelConv2d",
    "DuelingHeadModel",
    "QHeadModel",
    "Dropout",
    "NoisyLinear",
    "RandomModule",
    "TauSource",
    "RecurrentCore",
    "RnnState",
    "RunningMeanStdModel",
    "Encoder",
    "ImageEncoder",
    "NestedEncoder",
    "OneHotEncoder",
    "VectorEncoder",
    "make_encoder",
    "is_image",
    "encoded_action_size",
    # functions
    "uses_prev_action",
    "takes_n_models",
    "draw_randomness",
    "join_replicas",
    "takes_statistics",
    "conv2d_output_shape",
    "init_orthogonal",
    "scale_grad",
    "update_target",
]
