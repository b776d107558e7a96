"""Deep Q-learning on Atari: plain, double, dueling, prioritised, categorical, and all of them (Rainbow without noise).

The target networks start as copies, and Adam's epsilon is 0.01 / 128; see docs/reference/experiments.md.
"""

from __future__ import annotations

import torch

from experiments.configuration import Config, Renamed, changed
from rlpyt.agents import AtariCatDqnAgent, AtariDqnAgent
from rlpyt.algos import DQN, CategoricalDQN
from rlpyt.envs import AtariEnv
from rlpyt.runners import AsyncRlEval, MinibatchRl, MinibatchRlBase, MinibatchRlEval
from rlpyt.samplers import CpuSampler, GpuSampler, SerialSampler


def dqn() -> MinibatchRlBase:
    """Return DQN with batches of 128, so that 312 updates are 5,000 steps."""
    return MinibatchRlEval(
        algo=DQN(
            discount=0.99,
            batch_size=128,
            learning_rate=1e-4,
            clip_grad_norm=10.0,
            min_steps_learn=int(5e4),
            double_dqn=False,
            prioritized_replay=False,
            n_step_return=1,
            replay_size=int(1e6),
        ),
        agent=AtariDqnAgent(model_kwargs=dict(dueling=False)),
        sampler=GpuSampler(
            EnvCls=AtariEnv,
            env_kwargs=dict(game="pong", episodic_lives=True),
            eval_env_kwargs=dict(game="pong", episodic_lives=False, horizon=int(27e3)),
            batch_T=2,
            batch_B=16,
            max_decorrelation_steps=1000,
            eval_n_envs=4,
            eval_max_steps=int(125e3),
            eval_max_trajectories=100,
        ),
        n_steps=50e6,
        log_interval_steps=1e6,
    )


catdqn = changed(dqn, algo=dict(Cls=CategoricalDQN, learning_rate=2.5e-4), agent=dict(Cls=AtariCatDqnAgent))

debug = changed(
    dqn,
    sampler=dict(
        Cls=SerialSampler,
        batch_T=8,
        batch_B=2,
        max_decorrelation_steps=20,
        eval_max_steps=int(8e3),
        eval_max_trajectories=4,
    ),
    algo=dict(min_steps_learn=int(1e4), replay_size=int(1e4), eps_steps=2e4),
    n_steps=3e4,
    log_interval_steps=1e4,
)

CONFIGS: dict[str, Config] = {
    "dqn": dqn,
    "double": changed(dqn, algo=dict(double_dqn=True)),
    "prioritized": changed(dqn, algo=dict(prioritized_replay=True)),
    "dueling": changed(dqn, agent=dict(model_kwargs=dict(dueling=True))),
    "double_pri_duel": changed(
        dqn,
        algo=dict(double_dqn=True, prioritized_replay=True),
        agent=dict(model_kwargs=dict(dueling=True)),
    ),
    "catdqn": catdqn,
    "ernbw": changed(
        catdqn,
        algo=dict(n_step_return=3, learning_rate=6.25e-5, double_dqn=True, prioritized_replay=True),
        agent=dict(model_kwargs=dict(dueling=True)),
    ),
    "rmsprop": changed(
        dqn,
        algo=dict(OptimCls=torch.optim.RMSprop, optim_kwargs=dict(alpha=0.95, eps=1e-6), learning_rate=2.5e-4),
        n_steps=15e6,
    ),
    "fast_log": changed(
        dqn, sampler=dict(eval_max_steps=int(70e3), eval_max_trajectories=50), n_steps=15e6, log_interval_steps=1e5
    ),
    "short_run": changed(dqn, n_steps=15e6),
    # Its runner was the one that evaluates not, but the evaluation's other settings stayed.
    "no_eval": changed(dqn, Cls=MinibatchRl, sampler=dict(eval_n_envs=0), log_interval_steps=1e5),
    "serial": changed(dqn, sampler=dict(Cls=SerialSampler, batch_T=8, batch_B=2)),
    "cpu": changed(dqn, sampler=dict(Cls=CpuSampler, batch_T=4, batch_B=4)),
    "debug": debug,
    "debug_vec_eps": changed(debug, sampler=dict(batch_T=4, batch_B=4), agent=dict(eps_final_min=0.001)),
    # The number of evaluation environments was in the wrong dictionary, so that it had no effect and 4 evaluated.
    "async_big": changed(dqn, Cls=AsyncRlEval, sampler=dict(batch_T=4, batch_B=256, eval_n_envs=10)),
}

RENAMED: dict[str, Renamed] = {}
