"""SAC, TD3 and PPO on HalfCheetah-v5, one environment and one thread: steps per second, beside Stable-Baselines3.

    python benchmarks/half_cheetah.py        (needs rlpyt[mujoco]; `pip install stable-baselines3` for the comparison)
    python benchmarks/half_cheetah.py --split

SAC and TD3 take one update of 256 a step, with networks of 256 x 256; PPO takes 10 epochs of 32 minibatches of 64.
The parts `products` take nothing but the matrix products of the updates, which no library can do without.
`--split` prints what a step of SAC costs in environment, action, replay and update.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

from alternate import main

ENV = "HalfCheetah-v5"
WARM_UP, STEPS, PPO_STEPS = 1_200, 1_000, 3 * 2_048


def _runner(name: str) -> Any:
    import gymnasium

    from rlpyt.agents import GaussianPgAgent, SacAgent, Td3Agent
    from rlpyt.algos import PPO, SAC, TD3
    from rlpyt.runners import MinibatchRl
    from rlpyt.samplers import SerialSampler

    ppo = name == "ppo"
    sampler = SerialSampler(gymnasium.make, dict(id=ENV), 2_048 if ppo else 1, 1, max_decorrelation_steps=0)
    algo: Any
    agent: Any
    if ppo:
        algo = PPO(learning_rate=3e-4, epochs=10, minibatches=32, ratio_clip=0.2, normalize_advantage=True)
        agent = GaussianPgAgent()
    else:
        settings: dict[str, Any] = dict(batch_size=256, replay_ratio=256, min_steps_learn=1_000, replay_size=100_000)
        sizes = dict(hidden_sizes=(256, 256))
        algo = {"sac": SAC, "td3": TD3}[name](**settings)
        agent = {"sac": SacAgent, "td3": Td3Agent}[name](model_kwargs=sizes, q_model_kwargs=sizes)
    n_steps = PPO_STEPS + 2_048 if ppo else WARM_UP + STEPS
    return MinibatchRl(algo, agent, sampler, n_steps=n_steps, log_interval_steps=1e9, seed=0)


def rlpyt(name: str) -> float:
    """Return steps per second after the first updates."""
    runner = _runner(name)
    times: list[float] = []
    optimize = runner.algo.optimize_agent

    def watch(itr: int, samples: Any) -> Any:
        metrics = optimize(itr, samples)
        times.append(time.perf_counter())
        return metrics

    runner.algo.optimize_agent = watch
    runner.train()
    return PPO_STEPS / (times[-1] - times[0]) if name == "ppo" else STEPS / (times[-1] - times[-1 - STEPS])


def stable_baselines3(name: str, torch_threads: int = 1) -> float:
    """Return steps per second after the first updates."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    torch.set_num_threads(torch_threads)
    times: list[float] = []

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            times.append(time.perf_counter())
            return True

    if name == "ppo":
        model: Any = stable_baselines3.PPO("MlpPolicy", ENV, device="cpu")
        # The last rollout is not trained on before the clock is read: one more is begun.
        model.learn(PPO_STEPS + 2_048, callback=Watch())
        return PPO_STEPS / (times[PPO_STEPS] - times[0])
    AlgoCls = {"sac": stable_baselines3.SAC, "td3": stable_baselines3.TD3}[name]
    model = AlgoCls(
        "MlpPolicy",
        ENV,
        learning_starts=1_000,
        batch_size=256,
        train_freq=1,
        gradient_steps=1,
        buffer_size=100_000,
        policy_kwargs=dict(net_arch=[256, 256]),
        device="cpu",
    )
    model.learn(WARM_UP + STEPS, callback=Watch())
    return STEPS / (times[-1] - times[-1 - STEPS])


def products(name: str) -> float:
    """Return steps per second of the matrix products of the updates alone, into memory allocated before."""
    import torch

    torch.set_num_threads(1)
    rows, q = 256, (17 + 6, 256, 256, 1)

    def forward(n: int, sizes: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
        return [(n, rows, a, b) for a, b in pairwise(sizes)]

    def to_weights(n: int, sizes: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
        return [(n, a, rows, b) for a, b in pairwise(sizes)]

    def to_inputs(n: int, sizes: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
        return [(n, rows, b, a) for a, b in pairwise(sizes)]

    pi = (17, 256, 256, 12 if name == "sac" else 6)
    n_q_of_policy = 2 if name == "sac" else 1
    q_step = forward(1, pi) + 2 * forward(2, q) + to_weights(2, q) + to_inputs(2, q[1:])
    pi_step = forward(1, pi) + forward(n_q_of_policy, q) + to_inputs(n_q_of_policy, q)
    pi_step += to_weights(1, pi) + to_inputs(1, pi[1:])
    two_steps = 2 * q_step + (2 if name == "sac" else 1) * pi_step  # TD3's policy learns at every second step
    ready = [
        (torch.rand(n, rows_, inner), torch.rand(n, inner, columns), torch.empty(n, rows_, columns))
        for n, rows_, inner, columns in two_steps
    ]
    times: list[float] = []
    for _ in range(STEPS // 2):
        start = time.perf_counter()
        for a, b, out in ready:
            torch.bmm(a, b, out=out)
        times.append(time.perf_counter() - start)
    return 2 / median(times)


def split() -> None:
    """Print the median cost of the parts of a step of SAC."""
    runner = _runner("sac")
    algo, agent, sampler = runner.algo, runner.agent, runner.sampler
    spent: dict[str, list[float]] = {}

    def timed(owner: Any, method: str, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, method)

        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **kwargs)
            spent.setdefault(name, []).append(time.perf_counter() - start)
            return result

        setattr(owner, method, run)

    timed(sampler, "obtain_samples", "collection (environment, action, bookkeeping)")
    timed(agent, "step", "  action")
    timed(algo, "append", "replay: append")
    timed(algo, "sample_batch", "replay: draw and gather")
    timed(algo, "update", "update")
    timed(algo, "update_q", "  action values")
    timed(algo, "update_policy", "  policy and alpha")
    timed(agent, "update_target", "  targets")
    runner.train()
    for name, seconds in spent.items():
        print(f"{name:<48} {1e6 * median(seconds[-STEPS:]):>9,.0f} us")


PARTS = {
    f"{library}_{name}": (lambda f=function, n=name: f(n))
    for name in ("sac", "td3", "ppo")
    for library, function in (("sb3", stable_baselines3), ("rlpyt", rlpyt), ("products", products))
    if (library, name) != ("products", "ppo")
}

if __name__ == "__main__":
    if "--split" in sys.argv:
        split()
    else:
        main(PARTS, "steps/s", baseline="sb3_sac")
