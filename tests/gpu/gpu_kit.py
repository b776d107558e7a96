"""Every algorithm with an agent and an environment, small, and the comparison of what two devices give."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlpyt.agents import (
    CatDqnAgent,
    CategoricalPgAgent,
    DdpgAgent,
    DqnAgent,
    GaussianPgAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentGaussianPgAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import DDPG, DQN, PPO, QRDQN, R2D1, SAC, TD3, CategoricalDQN, VTrace
from rlpyt.utils.arrays import buffer_leaves
from tests.algos.small_problems import RandomEnv
from tests.algos.test_algo_state import CASES as SMALL_PROBLEMS
from tests.algos.test_masked_learning import ALGOS as MASKED_PROBLEMS
from tests.masked_envs import MaskedEnv

BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32))
SMALL: dict[str, Any] = dict(hidden_sizes=8)
RNN: dict[str, Any] = dict(**SMALL, rnn_size=8)
CONV: dict[str, Any] = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_sizes=8)
# Without a large eps Adam would turn the rounding of a gradient near 0 into a whole step.
SMOOTH: dict[str, Any] = dict(optim_kwargs=dict(eps=1e-2))
REPLAY: dict[str, Any] = dict(**SMOOTH, batch_size=16, replay_size=200, replay_ratio=1.0, min_steps_learn=64)
SEQUENCES: dict[str, Any] = dict(
    **SMOOTH, batch_T=4, batch_B=3, warmup_T=2, store_rnn_state_interval=2, replay_size=200, replay_ratio=1.5,
    min_steps_learn=64,
)  # fmt: skip
PER: dict[str, Any] = dict(prioritized_replay=True, pri_beta_steps=300, n_step_return=3)
LATE: dict[str, Any] = dict(prefetch=True, late_priorities=True)
THERE: dict[str, Any] = dict(replay_on_device=True)
MU: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)


class ImageEnv(RandomEnv):
    """`RandomEnv` that shows random images."""

    def __init__(self, action_space: Any = None) -> None:
        super().__init__(action_space)
        self.observation_space = spaces.Box(0, 255, (2, 12, 12), np.uint8)

    def _observation(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (2, 12, 12), dtype=np.uint8)


class CudaWatchEnv(RandomEnv):
    """`RandomEnv` whose info says whether its process has started CUDA."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *rest, _ = super().step(action)
        return *rest, {"cuda": int(torch.cuda.is_initialized())}


DISCRETE: tuple[Any, dict[str, Any]] = RandomEnv, {}
CONTINUOUS: tuple[Any, dict[str, Any]] = RandomEnv, dict(action_space=BOX)
IMAGES: tuple[Any, dict[str, Any]] = ImageEnv, {}
CONTINUOUS_IMAGES: tuple[Any, dict[str, Any]] = ImageEnv, dict(action_space=BOX)

CASES: dict[str, Any] = {
    "VTrace": lambda: (
        VTrace(**SMOOTH, normalize_advantage=True, normalize_reward=True, rho_bar=2.0),
        GaussianPgAgent(model_kwargs=dict(**SMALL, normalize_observation=True)),
        CONTINUOUS,
    ),
    "PPO": lambda: (
        PPO(**SMOOTH, epochs=2, normalize_advantage=True, normalize_reward=True, value_clip=0.2),
        GaussianPgAgent(model_kwargs=dict(**SMALL, normalize_observation=True)),
        CONTINUOUS,
    ),
    "PPO images": lambda: (PPO(**SMOOTH, epochs=2, minibatches=2), CategoricalPgAgent(model_kwargs=CONV), IMAGES),
    "PPO LSTM": lambda: (
        PPO(**SMOOTH, epochs=2, minibatches=2),
        RecurrentGaussianPgAgent(model_kwargs=dict(**RNN, normalize_observation=True)),
        CONTINUOUS,
    ),
    "DQN": lambda: (
        DQN(**REPLAY, double_dqn=True),
        DqnAgent(model_kwargs=dict(**SMALL, dueling=True, normalize_observation=True)),
        DISCRETE,
    ),
    "DQN Munchausen": lambda: (DQN(**REPLAY, munchausen=0.9), DqnAgent(model_kwargs=SMALL), DISCRETE),
    "DQN images": lambda: (DQN(**REPLAY), DqnAgent(model_kwargs=CONV), IMAGES),
    "DQN images ahead": lambda: (DQN(**REPLAY, prefetch=True), DqnAgent(model_kwargs=CONV), IMAGES),
    "DQN images there": lambda: (DQN(**REPLAY, **THERE), DqnAgent(model_kwargs=CONV), IMAGES),
    "DQN images there ahead": lambda: (DQN(**REPLAY, **THERE, prefetch=True), DqnAgent(model_kwargs=CONV), IMAGES),
    "DQN priorities": lambda: (DQN(**REPLAY, **PER, input_priorities=True), DqnAgent(model_kwargs=SMALL), DISCRETE),
    "Rainbow": lambda: (
        CategoricalDQN(**REPLAY, **PER, double_dqn=True, unique_draws=True),
        CatDqnAgent(n_atoms=11, model_kwargs=dict(**SMALL, dueling=True, noisy=True)),
        DISCRETE,
    ),
    "Rainbow ahead": lambda: (
        CategoricalDQN(**REPLAY, **PER, **LATE, double_dqn=True),
        CatDqnAgent(n_atoms=11, model_kwargs=dict(**SMALL, dueling=True, noisy=True)),
        DISCRETE,
    ),
    "QRDQN": lambda: (QRDQN(**REPLAY), QrDqnAgent(n_quantiles=5, model_kwargs=SMALL), DISCRETE),
    "R2D1 there": lambda: (R2D1(**SEQUENCES, **THERE), R2d1Agent(model_kwargs=RNN), DISCRETE),
    "R2D1 ahead": lambda: (R2D1(**SEQUENCES, **LATE, n_step_return=3), R2d1Agent(model_kwargs=RNN), DISCRETE),
    "DDPG": lambda: (DDPG(**REPLAY), DdpgAgent(**MU, action_noise_correlation=0.5), CONTINUOUS),
    "TD3": lambda: (TD3(**REPLAY, **PER), Td3Agent(**MU), CONTINUOUS),
    "SAC": lambda: (SAC(**REPLAY), SacAgent(**MU), CONTINUOUS),
    "REDQ": lambda: (
        SAC(**REPLAY, fixed_alpha=0.2, n_target_q=2, q_of_policy="mean"),
        SacAgent(**MU, n_q=4),
        CONTINUOUS,
    ),
    "SAC images": lambda: (
        SAC(**REPLAY, random_shift=2),
        SacAgent(
            **MU, feature_kwargs=dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], image_feature_size=8)
        ),
        CONTINUOUS_IMAGES,
    ),
}


def of_another_table(table: dict[str, Any], case: str, EnvCls: Any) -> tuple[Any, Any, Any]:
    """Return a case of another table as those of `CASES` are."""
    algo, agent = table[case]()
    env_kwargs = CONTINUOUS[1] if isinstance(agent, SacAgent | Td3Agent) else {}
    smooth = {**(algo.optim_kwargs or {}), **SMOOTH["optim_kwargs"]}
    return algo.replace(optim_kwargs=smooth), agent, (EnvCls, env_kwargs)


OF_STATES = ("A2C", "A2C LSTM", "VTrace GRU", "IQN", "IQN GRU", "R2D1", "SAC LSTM", "PQN Adam", "PPO two-hot", "CrossQ",
             "XQC", "SimBa", "SimbaV2", "spectral norm", "discrete SAC", "SAC C51")  # fmt: skip
OF_MASKS = ("PPO, normalised", "LSTM PPO", "double, dueling, noisy, prioritised DQN", "C51", "R2D1", "discrete SAC")
CASES |= {case: partial(of_another_table, SMALL_PROBLEMS, case, RandomEnv) for case in OF_STATES}
CASES |= {f"{case}, masks": partial(of_another_table, MASKED_PROBLEMS, case, MaskedEnv) for case in OF_MASKS}
OF_EVERY_FAMILY = ("PPO", "PPO LSTM", "DQN priorities", "Rainbow", "R2D1", "TD3", "SAC", "SAC LSTM")


def assert_close(one: Any, other: Any, tolerance: float = 1e-4) -> None:
    """Compare structures of tensors wherever they lie: floats up to a tolerance, all others exactly."""
    leaves = [[x.detach().cpu() for x in buffer_leaves(tree)] for tree in (one, other)]
    assert len(leaves[0]) == len(leaves[1])
    for x, y in zip(*leaves, strict=True):
        close = tolerance if x.is_floating_point() else 0
        torch.testing.assert_close(x, y, rtol=close, atol=close, equal_nan=True)


def devices_of(tree: Any) -> set[str]:
    """Return the kinds of device that the tensors of a structure lie on."""
    return {x.device.type for x in buffer_leaves(tree)}


def tensors_in(state: Any) -> list[torch.Tensor]:
    """Return all tensors in nested dictionaries, lists and tuples."""
    if isinstance(state, torch.Tensor):
        return [state]
    if isinstance(state, dict):
        return [tensor for value in state.values() for tensor in tensors_in(value)]
    if isinstance(state, list | tuple):
        return [tensor for value in state for tensor in tensors_in(value)]
    return []
