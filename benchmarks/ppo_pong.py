"""PPO on Pong, 8 environments x 128 steps, 4 epochs, 4 minibatches, Nature network, two cores: steps per second.

python benchmarks/ppo_pong.py        (needs `pip install stable-baselines3` for the comparison)
"""

from __future__ import annotations

import time
from typing import Any

from alternate import main

STEPS = 6_144


def _rlpyt(n_steps: int = STEPS, **settings: Any) -> float:
    from rlpyt.agents import CategoricalPgAgent
    from rlpyt.algos import PPO
    from rlpyt.envs import AtariEnv
    from rlpyt.runners import MinibatchRl
    from rlpyt.samplers import CpuSampler, SerialSampler
    from rlpyt.utils.compute import ComputeSettings

    SamplerCls = {"cpu": CpuSampler, "serial": SerialSampler}[settings.pop("sample_mode", "cpu")]
    sampler = SamplerCls(AtariEnv, dict(game="pong"), 128, 8, max_decorrelation_steps=0)
    algo = PPO(
        learning_rate=2.5e-4,
        gae_lambda=0.95,
        ratio_clip=0.1,
        epochs=4,
        minibatches=4,
        value_loss_coeff=0.5,
        clip_grad_norm=0.5,
        normalize_advantage=True,
    )
    runner = MinibatchRl(
        algo,
        CategoricalPgAgent(),
        sampler,
        n_steps=n_steps,
        log_interval_steps=n_steps,
        seed=0,
        settings=ComputeSettings(**settings) if settings else None,
    )
    # From the second iteration on: starting the workers is not what is measured.
    times: list[float] = []
    store = runner.store_diagnostics
    runner.store_diagnostics = lambda *args: (store(*args), times.append(time.perf_counter()))[0]  # type: ignore
    runner.train()
    return (len(times) - 1) * 1024 / (times[-1] - times[0])


def stable_baselines3() -> float:
    import ale_py
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    class Times(BaseCallback):
        def _on_rollout_start(self) -> None:
            times.append(time.perf_counter())

        def _on_step(self) -> bool:
            return True

    gymnasium.register_envs(ale_py)
    times: list[float] = []
    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=8), n_stack=4)
    model = PPO(
        "CnnPolicy", env, n_steps=128, batch_size=256, n_epochs=4, learning_rate=2.5e-4, clip_range=0.1, device="cpu"
    )
    model.learn(STEPS, callback=Times())
    return (len(times) - 1) * 1024 / (times[-1] - times[0])


if __name__ == "__main__":
    main(
        {
            "stable-baselines3": stable_baselines3,
            "rlpyt, settings chosen": lambda: _rlpyt(),
            "rlpyt, float32": lambda: _rlpyt(torch_threads=2),
            "rlpyt, float32, channels-last": lambda: _rlpyt(torch_threads=2, channels_last=True),
            "rlpyt, bfloat16, channels-last": lambda: _rlpyt(torch_threads=2, channels_last=True, precision="bfloat16"),
        },
        unit="steps/s",
    )
