"""What SAC, TD3 and PPO learn on MuJoCo, beside Stable-Baselines3 with the same steps and settings.

    python benchmarks/learning_mujoco.py --library rlpyt --algo sac --env HalfCheetah-v5 --n_steps 60000 --seed 0
    python benchmarks/learning_mujoco.py --library sb3 --algo ppo --env Hopper-v5 --n_steps 500000 --seed 0
    python benchmarks/learning_mujoco.py --algo td3 --precision bfloat16        (or --compile)

Needs rlpyt[mujoco], and `pip install stable-baselines3` for the comparison. Prints lines of steps and return: of SAC
and TD3 the mean of five episodes of the best action, of PPO the mean of the last 100 training episodes. One thread;
start a process for every seed, each on a core of its own.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import torch

N_POINTS, N_EPISODES = 12, 5
BATCH_SIZE, WARM_UP, HORIZON = 256, 10_000, 2_048


def rlpyt(name: str, env: str, n_steps: int, seed: int, settings: Any) -> None:
    """Train with this library, with given `ComputeSettings`."""
    from rlpyt.agents import GaussianPgAgent, SacAgent, Td3Agent
    from rlpyt.algos import PPO, SAC, TD3
    from rlpyt.logging import logger_context, read_progress
    from rlpyt.runners import MinibatchRl, MinibatchRlEval
    from rlpyt.samplers import SerialSampler

    ppo = name == "ppo"
    sampler = SerialSampler(
        gymnasium.make,
        dict(id=env),
        batch_T=HORIZON if ppo else 1,
        batch_B=1,
        max_decorrelation_steps=0,
        eval_n_envs=0 if ppo else 1,
        eval_max_trajectories=None if ppo else N_EPISODES,
    )
    replay: dict[str, Any] = dict(batch_size=BATCH_SIZE, replay_ratio=BATCH_SIZE, min_steps_learn=WARM_UP)
    sizes = dict(hidden_sizes=(256, 256))
    algo: Any
    agent: Any
    if name == "sac":
        algo, agent = SAC(**replay), SacAgent(model_kwargs=sizes, q_model_kwargs=sizes)
    elif name == "td3":
        algo, agent = TD3(**replay), Td3Agent(model_kwargs=sizes, q_model_kwargs=sizes)
    else:
        algo = PPO(
            learning_rate=3e-4,
            gae_lambda=0.95,
            epochs=10,
            minibatches=32,
            ratio_clip=0.2,
            linear_lr_schedule=False,
            value_loss_coeff=0.5,
            entropy_loss_coeff=0.0,
            clip_grad_norm=0.5,
            normalize_advantage=True,
            normalize_reward=True,
            optim_kwargs=dict(eps=1e-5),
        )
        agent = GaussianPgAgent(model_kwargs=dict(normalize_observation=True))
    RunnerCls = MinibatchRl if ppo else MinibatchRlEval
    runner = RunnerCls(algo, agent, sampler, n_steps, seed, log_interval_steps=n_steps // N_POINTS, settings=settings)
    with tempfile.TemporaryDirectory() as folder, logger_context(folder, snapshot_mode="none"):
        runner.train()
        (run_dir,) = Path(folder).glob("run_*")
        progress = read_progress(run_dir)
    for steps, value in zip(progress["Diagnostics/CumSteps"], progress["ReturnAverage"], strict=True):
        print(f"{steps:.0f} {value:.1f}")


def stable_baselines3(name: str, env: str, n_steps: int, seed: int) -> None:
    """Train with Stable-Baselines3."""
    import numpy as np
    import stable_baselines3 as sb3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize

    ppo = name == "ppo"
    envs: Any = make_vec_env(env, seed=seed)
    eval_envs = make_vec_env(env, seed=seed + 1_000)

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps % (n_steps // N_POINTS) == 0:
                if ppo:
                    value = float(np.mean([info["r"] for info in self.model.ep_info_buffer or ()]))
                else:
                    value = evaluate_policy(self.model, eval_envs, N_EPISODES)[0]
                print(f"{self.num_timesteps} {value:.1f}", flush=True)
            return True

    model: Any
    if ppo:
        # The defaults are those above: 2,048 rows, 10 epochs of 32 minibatches, clipping at 0.2 and 0.5.
        model = sb3.PPO("MlpPolicy", VecNormalize(envs, gamma=0.99), seed=seed, device="cpu")
    else:
        settings: dict[str, Any] = dict(
            learning_starts=WARM_UP, batch_size=BATCH_SIZE, train_freq=1, gradient_steps=1, seed=seed, device="cpu"
        )
        settings["policy_kwargs"] = dict(net_arch=[256, 256])
        if name == "td3":
            size = envs.action_space.shape[0]
            settings["action_noise"] = NormalActionNoise(np.zeros(size), 0.1 * np.ones(size))
        model = {"sac": sb3.SAC, "td3": sb3.TD3}[name]("MlpPolicy", envs, **settings)
    model.learn(n_steps, callback=Watch())


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=["rlpyt", "sb3"], default="rlpyt")
    parser.add_argument("--algo", choices=["sac", "td3", "ppo"], default="sac")
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--n_steps", type=float, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="of rlpyt")
    parser.add_argument("--compile", action="store_true", help="the updates of rlpyt")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.library == "sb3":
        stable_baselines3(args.algo, args.env, int(args.n_steps), args.seed)
    else:
        from rlpyt.utils import ComputeSettings

        settings = ComputeSettings(precision=args.precision, compile=args.compile)
        rlpyt(args.algo, args.env, int(args.n_steps), args.seed, settings)


if __name__ == "__main__":
    main()
