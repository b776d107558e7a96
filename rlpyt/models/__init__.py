"""Neural networks: full models that agents call, and the parts they are made of."""

from rlpyt.models.atari import AtariCatDqnModel, AtariDqnModel, AtariFfModel, AtariLstmModel, AtariR2d1Model
from rlpyt.models.base import Model
from rlpyt.models.conv import Conv2dHeadModel, Conv2dModel, PixelConv2d
from rlpyt.models.dueling import DuelingHeadModel, QHeadModel
from rlpyt.models.encoders import (
    Encoder,
    EncoderSettings,
    ImageEncoder,
    NestedEncoder,
    OneHotEncoder,
    VectorEncoder,
    encoded_action_size,
    is_image,
    make_encoder,
)
from rlpyt.models.ensemble import EnsembleLayerNorm, EnsembleLinear, EnsembleMlpModel
from rlpyt.models.iqn import IqnModel, Quantiles, TauSource
from rlpyt.models.mlp import MlpModel, OutputLinear
from rlpyt.models.mujoco import MujocoFfModel, MujocoLstmModel
from rlpyt.models.noise import Dropout, NoisyLinear, RandomModule, draw_randomness
from rlpyt.models.pg import PgModel
from rlpyt.models.q import QModel
from rlpyt.models.qpg import ActorModel, FeatureModel, MuMlpModel, PiMlpModel, QofMuMlpModel
from rlpyt.models.recurrent import RecurrentCore, RnnState
from rlpyt.models.running_mean_std import RunningMeanStdModel
from rlpyt.models.utils import conv2d_output_shape, init_orthogonal, scale_grad, update_target

__all__ = [
    # full models
    "Model",
    "PgModel",
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
    "MuMlpModel",
    "PiMlpModel",
    "QofMuMlpModel",
    # parts
    "MlpModel",
    "OutputLinear",
    "EnsembleMlpModel",
    "EnsembleLinear",
    "EnsembleLayerNorm",
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
    "EncoderSettings",
    "ImageEncoder",
    "NestedEncoder",
    "OneHotEncoder",
    "VectorEncoder",
    "make_encoder",
    "is_image",
    "encoded_action_size",
    # functions
    "draw_randomness",
    "conv2d_output_shape",
    "init_orthogonal",
    "scale_grad",
    "update_target",
]
