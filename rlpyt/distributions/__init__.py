"""Distributions over actions: pure functions of a model's outputs and of noise."""

from rlpyt.distributions.action_units import ActionUnits
from rlpyt.distributions.base import Distribution
from rlpyt.distributions.categorical import Categorical, DistInfoLogits, MultiCategorical, categorical_of
from rlpyt.distributions.composite import Composite, distribution_of, leaf_distributions
from rlpyt.distributions.epsilon_greedy import EpsilonGreedy
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian
from rlpyt.distributions.squashed_gaussian import SquashedGaussian

__all__ = [
    "ActionUnits",
    "Categorical",
    "Composite",
    "DistInfoLogits",
    "DistInfoStd",
    "Distribution",
    "EpsilonGreedy",
    "Gaussian",
    "MultiCategorical",
    "SquashedGaussian",
    "categorical_of",
    "distribution_of",
    "leaf_distributions",
]
