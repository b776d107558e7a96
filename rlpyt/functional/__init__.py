"""Mathematics of the algorithms as pure functions: each formula once, with its source.

Arrays of other shapes than the ones documented are refused with a ValueError that has all shapes, and flags that are
not bool with a TypeError.
"""

from rlpyt.functional.augmentation import random_shift
from rlpyt.functional.checks import check_bool, check_same_shape
from rlpyt.functional.distributional import (
    categorical_loss,
    categorical_projection,
    entropy_of,
    hl_gauss,
    midpoints,
    quantile_huber_loss,
    two_hot,
    value_rescale,
    value_rescale_inverse,
)
from rlpyt.functional.indexing import from_onehot, select_at_indexes, to_onehot
from rlpyt.functional.losses import (
    approx_kl,
    clip_fraction,
    clipped_double_q,
    clipped_value_loss,
    deterministic_policy_loss,
    double_q_value,
    expected_soft_value,
    huber_loss,
    importance_ratio,
    policy_gradient_loss,
    ppo_clip_loss,
    smoothed_action,
    soft_policy_loss,
    soft_value,
    squared_loss,
    td_target,
    temperature_loss,
    value_loss,
)
from rlpyt.functional.masks import (
    episode_start_from_valid,
    explained_variance,
    legal_choices,
    mask_illegal,
    mean_perplexity,
    share_explained,
    standardize,
    valid_mean,
    valid_standardize,
    zero_invalid,
)
from rlpyt.functional.moments import Moments, batch_moments, pooled_moments
from rlpyt.functional.priorities import sequence_priority
from rlpyt.functional.returns import (
    NStepReturn,
    generalized_advantage_estimation,
    lambda_return,
    n_step_return,
    running_return,
    v_trace,
)
from rlpyt.functional.schedules import (
    SCHEDULED,
    Constant,
    Cosine,
    CountLike,
    Exponential,
    Linear,
    Piecewise,
    Schedule,
    ScheduleLike,
    as_schedule,
)
from rlpyt.functional.value_heads import (
    C51,
    TARGETS_OUTSIDE,
    Backup,
    Expectation,
    HLGauss,
    QuantileRegression,
    TwoHot,
    ValueHead,
    ValueTarget,
    as_value_head,
)

__all__ = [
    # returns
    "lambda_return",
    "generalized_advantage_estimation",
    "v_trace",
    "n_step_return",
    "running_return",
    "NStepReturn",
    # losses and targets
    "policy_gradient_loss",
    "ppo_clip_loss",
    "value_loss",
    "clipped_value_loss",
    "approx_kl",
    "clip_fraction",
    "importance_ratio",
    "double_q_value",
    "td_target",
    "squared_loss",
    "huber_loss",
    "clipped_double_q",
    "smoothed_action",
    "deterministic_policy_loss",
    "expected_soft_value",
    "soft_value",
    "soft_policy_loss",
    "temperature_loss",
    # distributions of the return, and its scale
    "categorical_projection",
    "categorical_loss",
    "entropy_of",
    "midpoints",
    "quantile_huber_loss",
    "two_hot",
    "hl_gauss",
    "value_rescale",
    "value_rescale_inverse",
    # value heads
    "ValueHead",
    "ValueTarget",
    "Expectation",
    "C51",
    "TwoHot",
    "HLGauss",
    "QuantileRegression",
    "as_value_head",
    "Backup",
    "TARGETS_OUTSIDE",
    # priorities
    "sequence_priority",
    # masks
    "zero_invalid",
    "valid_mean",
    "valid_standardize",
    "standardize",
    "explained_variance",
    "share_explained",
    "mean_perplexity",
    "episode_start_from_valid",
    "legal_choices",
    "mask_illegal",
    # moments
    "Moments",
    "batch_moments",
    "pooled_moments",
    # indexing
    "select_at_indexes",
    "to_onehot",
    "from_onehot",
    # schedules
    "Schedule",
    "SCHEDULED",
    "CountLike",
    "ScheduleLike",
    "as_schedule",
    "Constant",
    "Linear",
    "Piecewise",
    "Exponential",
    "Cosine",
    # checks
    "check_same_shape",
    "check_bool",
    # images
    "random_shift",
]
