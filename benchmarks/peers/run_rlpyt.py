"""This library, as its examples write these workloads; `--setting float32` computes as the others do.

"chosen" is the runner's rule in float32, as where nothing is said. "fastest" takes bfloat16 for images. What came out
goes to standard error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Literal

import gymnasium
import numpy as np
from workloads import DQN_TARGET_INTERVAL, REPLAY_ONLY_SIZE, REPLAY_SIZE, WORKLOADS, Clock, Workload

from rlpyt.agents import (
    AtariCatDqnAgent,
    AtariDqnAgent,
    AtariR2d1Agent,
    CategoricalPgAgent,
    DdpgAgent,
    DqnAgent,
    GaussianPgAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import A2C, DDPG, DQN, PPO, R2D1, SAC, TD3, CategoricalDQN
from rlpyt.envs import AtariEnv
from rlpyt.logging import silent_context
from rlpyt.replays import ReplayBuffer, RowStorage, SamplesToBuffer, Transitions, UniformIndex
from rlpyt.runners import AsyncRl, MinibatchRl
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.types import Run
from rlpyt.utils.arrays import buffer_from_example
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import available_threads

Setting = ComputeSettings | Literal["fastest"] | None
NATURE = dict(paddings=(0, 0, 0))


def train(algo: Any, agent: Any, sampler: Any, clock: Clock, settings: Setting, RunnerCls: Any = MinibatchRl) -> None:
    """Train, with a tick after each batch is learned from."""
    runner = RunnerCls(algo, agent, sampler, n_steps=10**9, log_interval_steps=10**9, seed=0, settings=settings)
    optimize = algo.optimize_agent

    def optimize_agent(itr: int, samples: Any) -> Any:
        if itr == 0:
            print(runner.compute, file=sys.stderr)
        metrics = optimize(itr, samples)
        clock.tick((itr + 1) * sampler.batch_spec.size)
        return metrics

    algo.optimize_agent = optimize_agent
    with silent_context():
        runner.train()


def ppo_pong(work: Workload, clock: Clock, settings: Setting) -> None:
    """Clipped PPO with the Nature network."""
    sampler = CpuSampler(AtariEnv, dict(game="pong"), work.n_steps, work.n_envs, max_decorrelation_steps=0)
    algo = PPO(
        learning_rate=2.5e-4,
        gae_lambda=0.95,
        ratio_clip=0.1,
        epochs=work.epochs,
        minibatches=work.n_envs * work.n_steps // work.batch_size,
        value_loss_coeff=0.5,
        clip_grad_norm=0.5,
        normalize_advantage=True,
    )
    train(algo, CategoricalPgAgent(), sampler, clock, settings)


def a2c_pong(work: Workload, clock: Clock, settings: Setting) -> None:
    """A2C."""
    sampler = CpuSampler(AtariEnv, dict(game="pong"), work.n_steps, work.n_envs, max_decorrelation_steps=0)
    train(A2C(learning_rate=7e-4), CategoricalPgAgent(), sampler, clock, settings)


def dqn(
    EnvCls: Any, env_kwargs: Any, AgentCls: Any, model: Any, work: Workload, clock: Clock, settings: Setting
) -> None:
    """DQN, over a replay that keeps each frame once where there are frames."""
    sampler = SerialSampler(EnvCls, env_kwargs, work.n_steps, work.n_envs, max_decorrelation_steps=0)
    updates_per_step = work.updates / (work.n_steps * work.n_envs)
    algo = DQN(
        batch_size=work.batch_size,
        replay_ratio=work.batch_size * updates_per_step,
        replay_size=REPLAY_SIZE,
        min_steps_learn=work.min_steps_learn,
        learning_rate=1e-4,
        target_update_interval=round(DQN_TARGET_INTERVAL * updates_per_step),
    )
    train(algo, AgentCls(model_kwargs=model), sampler, clock, settings)


def rainbow_pong(work: Workload, clock: Clock, settings: Setting) -> None:
    """All parts of Rainbow."""
    sampler = SerialSampler(AtariEnv, dict(game="pong"), work.n_steps, work.n_envs, max_decorrelation_steps=0)
    algo = CategoricalDQN(
        batch_size=work.batch_size,
        replay_ratio=work.batch_size * work.updates / (work.n_steps * work.n_envs),
        replay_size=REPLAY_SIZE,
        min_steps_learn=work.min_steps_learn,
        learning_rate=6.25e-5,
        n_step_return=3,
        double_dqn=True,
        prioritized_replay=True,
    )
    agent = AtariCatDqnAgent(eps_init=0.0, eps_final=0.0, model_kwargs=dict(**NATURE, dueling=True, noisy=True))
    train(algo, agent, sampler, clock, settings)


def r2d1_pong(work: Workload, clock: Clock, settings: Setting) -> None:
    """R2D1 over stored recurrent states."""
    sampler = SerialSampler(AtariEnv, dict(game="pong"), work.n_steps, work.n_envs, max_decorrelation_steps=0)
    algo = R2D1(batch_B=work.batch_size, replay_size=REPLAY_SIZE, min_steps_learn=work.min_steps_learn)
    train(algo, AtariR2d1Agent(), sampler, clock, settings)


def ppo_vector(env: str, AgentCls: Any, work: Workload, clock: Clock, settings: Setting) -> None:
    """PPO with two networks of 64 x 64."""
    sampler = SerialSampler(gymnasium.make, dict(id=env), work.n_steps, work.n_envs, max_decorrelation_steps=0)
    algo = PPO(
        learning_rate=3e-4,
        gae_lambda=0.95,
        ratio_clip=0.2,
        epochs=work.epochs,
        minibatches=work.n_envs * work.n_steps // work.batch_size,
        value_loss_coeff=0.5,
        entropy_loss_coeff=0.0,
        clip_grad_norm=0.5,
        normalize_advantage=True,
        linear_lr_schedule=False,
    )
    train(algo, AgentCls(), sampler, clock, settings)


def off_policy(
    AlgoCls: Any,
    AgentCls: Any,
    work: Workload,
    clock: Clock,
    settings: Setting,
    RunnerCls: Any = MinibatchRl,
) -> None:
    """SAC, TD3 or DDPG with networks of 256 x 256."""
    sampler = SerialSampler(
        gymnasium.make, dict(id="HalfCheetah-v5"), work.n_steps, work.n_envs, max_decorrelation_steps=0
    )
    algo = AlgoCls(
        batch_size=work.batch_size,
        replay_ratio=work.batch_size * work.updates,
        min_steps_learn=work.min_steps_learn,
        replay_size=REPLAY_SIZE,
    )
    sizes = dict(hidden_sizes=(256, 256))
    train(algo, AgentCls(model_kwargs=sizes, q_model_kwargs=sizes), sampler, clock, settings, RunnerCls)


def sac_two_cores(work: Workload, clock: Clock, settings: Setting) -> None:
    """SAC whose rows are collected in another process, a batch ahead, while two threads learn."""
    if not isinstance(settings, ComputeSettings):
        settings = ComputeSettings(torch_threads=work.cores)
    off_policy(SAC, SacAgent, work, clock, settings, AsyncRl)


def sampling(EnvCls: Any, env_kwargs: Any, work: Workload, clock: Clock, settings: Setting) -> None:
    """Collect, and learn nothing."""
    sampler = CpuSampler(EnvCls, env_kwargs, work.n_steps, work.n_envs, max_decorrelation_steps=0, n_workers=work.cores)
    agent = CategoricalPgAgent()
    sampler.initialize(agent, Run(batch_spec=sampler.batch_spec, bootstrap_value=True))
    agent.to_device(settings if isinstance(settings, ComputeSettings) else ComputeSettings())
    for itr in count():
        clock.tick(itr * sampler.batch_spec.size)
        sampler.obtain_samples(itr)


def replay_pong(work: Workload, clock: Clock, settings: Setting) -> None:
    """Draw from a replay that keeps each frame once."""
    T, B, chunk = REPLAY_ONLY_SIZE // work.n_envs, work.n_envs, 50
    example = SamplesToBuffer(np.zeros((4, 84, 84), np.uint8), np.int64(0), np.float32(0), *3 * [np.False_])
    storage = RowStorage(example, T, B, n_frames=4)
    replay = ReplayBuffer(storage, UniformIndex(np.random.default_rng(0)), Transitions(1), discount=0.99)
    rows = buffer_from_example(example, (chunk, B))
    noise = np.random.default_rng(0).integers(0, 256, (chunk, B, 84, 84), np.uint8)
    for i in range(4):  # in a circle: each chunk goes on from the last frames of the one before
        rows.observation[:, :, i] = np.roll(noise, 3 - i, axis=0)
    rows.valid[:] = True
    for _ in range(T // chunk):
        replay.append_samples(rows)
    for i in count():
        clock.tick(i * work.batch_size)
        replay.sample_batch(work.batch_size)


def replay_half_cheetah(work: Workload, clock: Clock, settings: Setting) -> None:
    """Draw HalfCheetah's transitions."""
    vector, action = np.zeros(17, np.float32), np.zeros(6, np.float32)
    example = SamplesToBuffer(vector, action, np.float32(0), *3 * [np.False_])
    storage = RowStorage(example, REPLAY_SIZE, work.n_envs)
    replay = ReplayBuffer(storage, UniformIndex(np.random.default_rng(0)), Transitions(1), discount=0.99)
    rows = buffer_from_example(example, (100, work.n_envs))
    rows.valid[:] = True
    for _ in range(REPLAY_SIZE // 100):
        replay.append_samples(rows)
    for i in count():
        clock.tick(i * work.batch_size)
        replay.sample_batch(work.batch_size)


FUNCTIONS: dict[str, Callable[[Workload, Clock, Setting], None]] = {
    "ppo_pong": ppo_pong,
    "a2c_pong": a2c_pong,
    "dqn_pong": partial(dqn, AtariEnv, dict(game="pong"), AtariDqnAgent, NATURE),
    "dqn_cartpole": partial(dqn, gymnasium.make, dict(id="CartPole-v1"), DqnAgent, dict(hidden_sizes=(64, 64))),
    "rainbow_pong": rainbow_pong,
    "r2d1_pong": r2d1_pong,
    "ppo_cartpole": partial(ppo_vector, "CartPole-v1", CategoricalPgAgent),
    "ppo_half_cheetah": partial(ppo_vector, "HalfCheetah-v5", GaussianPgAgent),
    "sac_half_cheetah": partial(off_policy, SAC, SacAgent),
    "sac_two_cores": sac_two_cores,
    "td3_half_cheetah": partial(off_policy, TD3, Td3Agent),
    "ddpg_half_cheetah": partial(off_policy, DDPG, DdpgAgent),
    "sampling_pong": partial(sampling, AtariEnv, dict(game="pong")),
    "sampling_cartpole": partial(sampling, gymnasium.make, dict(id="CartPole-v1")),
    "replay_pong": replay_pong,
    "replay_half_cheetah": replay_half_cheetah,
    "start": partial(ppo_vector, "CartPole-v1", CategoricalPgAgent),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=list(FUNCTIONS))
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--setting", choices=["chosen", "fastest", "float32", "bfloat16", "compiled"], default="chosen")
    parser.add_argument("--cpu_time", action="store_true", help="of this process, where other work runs beside it")
    args = parser.parse_args()
    work = WORKLOADS[args.workload]
    settings: Setting = "fastest" if args.setting == "fastest" else None
    if args.setting not in ("chosen", "fastest"):
        precision = "float32" if args.setting == "compiled" else args.setting
        compiled = dict(compile=args.setting == "compiled")
        threads = min(work.cores, available_threads())
        settings = ComputeSettings(torch_threads=threads, channels_last=True, precision=precision, **compiled)
    clock = Clock(work.warm_up, args.seconds, time.process_time if args.cpu_time else time.perf_counter)
    FUNCTIONS[args.workload](work, clock, settings)
