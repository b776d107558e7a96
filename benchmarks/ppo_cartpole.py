"""PPO on CartPole-v1, 8 x 128 steps, two 64 x 64 networks, 10 epochs of minibatches of 64: steps per second.

python benchmarks/ppo_cartpole.py        (needs `pip install stable-baselines3` for the comparison)
"""

from __future__ import annotations

import time

import gymnasium
from alternate import main

STEPS = 40_960


def rlpyt() -> float:
    from rlpyt.agents import CategoricalPgAgent
    from rlpyt.algos import PPO
    from rlpyt.runners import MinibatchRl
    from rlpyt.samplers import SerialSampler

    sampler = SerialSampler(gymnasium.make, dict(id="CartPole-v1"), 128, 8, max_decorrelation_steps=0)
    algo = PPO(
        learning_rate=3e-4,
        gae_lambda=0.95,
        ratio_clip=0.2,
        epochs=10,
        minibatches=16,
        value_loss_coeff=0.5,
        entropy_loss_coeff=0.0,
        clip_grad_norm=0.5,
        normalize_advantage=True,
        linear_lr_schedule=False,
    )
    runner = MinibatchRl(algo, CategoricalPgAgent(), sampler, n_steps=STEPS, log_interval_steps=STEPS, seed=0)
    start = time.perf_counter()
    runner.train()
    return STEPS / (time.perf_counter() - start)


def stable_baselines3() -> float:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=128, batch_size=64, n_epochs=10, device="cpu")
    start = time.perf_counter()
    model.learn(STEPS)
    return STEPS / (time.perf_counter() - start)


def stable_baselines3_one_thread() -> float:
    import torch

    torch.set_num_threads(1)
    return stable_baselines3()


if __name__ == "__main__":
    main(
        {
            "stable-baselines3": stable_baselines3,
            "stable-baselines3, one thread": stable_baselines3_one_thread,
            "rlpyt": rlpyt,
        },
        unit="steps/s",
    )
