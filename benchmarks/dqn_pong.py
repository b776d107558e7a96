"""DQN on Pong after learning has started: an update of 32 every 4 steps, Nature network, two cores: steps per second.

    python benchmarks/dqn_pong.py        (needs `pip install stable-baselines3` for the comparison)

rlpyt collects 4 x 8 rows and takes 8 updates; "one" collects 4 x 1 rows and takes one, as Stable-Baselines3 comes;
"sb3_8" gives that 8 environments and 8 updates too.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from alternate import main

STEPS, WARM_UP = 1_500, 600


def rlpyt(B: int = 8, sample_mode: str = "serial", **settings: Any) -> float:
    """Return steps per second after the first updates."""
    from rlpyt.agents import AtariDqnAgent
    from rlpyt.algos import DQN
    from rlpyt.envs import AtariEnv
    from rlpyt.runners import MinibatchRl
    from rlpyt.samplers import CpuSampler, SerialSampler
    from rlpyt.utils.compute import ComputeSettings

    SamplerCls = {"cpu": CpuSampler, "serial": SerialSampler}[sample_mode]
    sampler = SamplerCls(AtariEnv, dict(game="pong"), 4, B, max_decorrelation_steps=0)
    algo = DQN(batch_size=32, replay_ratio=8, replay_size=20_000, min_steps_learn=WARM_UP - 200, learning_rate=1e-4)
    runner = MinibatchRl(
        algo,
        AtariDqnAgent(model_kwargs=dict(paddings=(0, 0, 0))),
        sampler,
        n_steps=WARM_UP + STEPS,
        log_interval_steps=WARM_UP + STEPS,
        seed=0,
        settings=ComputeSettings(**settings) if settings else None,
    )
    times: list[tuple[int, float]] = []
    store = runner.store_diagnostics

    def watch(itr: int, *args: Any) -> None:
        store(itr, *args)
        times.append(((itr + 1) * 4 * B, time.perf_counter()))

    runner.store_diagnostics = watch  # type: ignore[method-assign,assignment]
    runner.train()
    (first, start), (last, end) = next(t for t in times if t[0] >= WARM_UP), times[-1]
    return (last - first) / (end - start)


def stable_baselines3(B: int = 1) -> float:
    """Return steps per second after the first updates."""
    import ale_py
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    times: list[tuple[int, float]] = []

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            times.append((self.num_timesteps, time.perf_counter()))
            return True

    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=B, seed=0), 4)
    model = DQN(
        "CnnPolicy",
        env,
        batch_size=32,
        buffer_size=20_000,
        learning_starts=WARM_UP - 200,
        train_freq=4,
        gradient_steps=B,
        learning_rate=1e-4,
        optimize_memory_usage=False,
    )
    model.learn(WARM_UP + STEPS, callback=Watch())
    (first, start), (last, end) = next(t for t in times if t[0] >= WARM_UP), times[-1]
    return (last - first) / (end - start)


PARTS = {
    "sb3": stable_baselines3,
    "sb3_8": partial(stable_baselines3, B=8),
    "float32": partial(rlpyt, torch_threads=2),
    "channels_last": partial(rlpyt, torch_threads=2, channels_last=True),
    "bfloat16": partial(rlpyt, torch_threads=2, channels_last=True, precision="bfloat16"),
    "chosen": rlpyt,
    "cpu": partial(rlpyt, sample_mode="cpu"),
    "one": partial(rlpyt, B=1),
}

if __name__ == "__main__":
    main(PARTS, "steps/s", baseline="sb3")
