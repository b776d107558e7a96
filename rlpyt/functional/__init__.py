"""The mathematics of the algorithms as pure functions, each formula once, with its source."""

from rlpyt.functional.checks import check_bool, check_same_shape
from rlpyt.functional.indexing import from_onehot, select_at_indexes, to_onehot
from rlpyt.functional.losses import (
    approx_kl,
    clipped_value_loss,
    double_q_value,
    huber_loss,
    policy_gradient_loss,
    ppo_clip_loss,
    q_target_max,
    td_target,
    value_loss,
)
from rlpyt.functional.masks import (
    episode_start_from_valid,
    explained_variance,
    valid_mean,
    valid_standardize,
    zero_invalid,
)
from rlpyt.functional.returns import (
    NStepReturn,
    discounted_return,
    generalized_advantage_estimation,
    lambda_return,
    n_step_return,
)
from rlpyt.functional.schedules import (
    Constant,
    Cosine,
    Exponential,
    Linear,
    Piecewise,
    Schedule,
    ScheduleLike,
    as_schedule,
    is_schedule,
)

__all__ = [
    # returns
    "discounted_return",
    "lambda_return",
    "generalized_advantage_estimation",
    "n_step_return",
    "NStepReturn",
    # losses and targets
    "policy_gradient_loss",
    "ppo_clip_loss",
    "value_loss",
    "clipped_value_loss",
    "approx_kl",
    "q_target_max",
    "double_q_value",
    "td_target",
    "huber_loss",
    # masks
    "zero_invalid",
    "valid_mean",
    "valid_standardize",
    "explained_variance",
    "episode_start_from_valid",
    # indexing
    "select_at_indexes",
    "to_onehot",
    "from_onehot",
    # schedules
    "Schedule",
    "ScheduleLike",
    "as_schedule",
    "is_schedule",
    "Constant",
    "Linear",
    "Piecewise",
    "Exponential",
    "Cosine",
    # checks
    "check_same_shape",
    "check_bool",
]
