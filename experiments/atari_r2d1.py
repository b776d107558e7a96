"""R2D1 on Atari: recurrent Q-learning from prioritised sequences (Kapturowski et al. 2019), in one machine.

Rewards are not clipped. Where the environments are many, epsilon differs between them.
"""

from __future__ import annotations

from experiments.configuration import Config, Renamed, changed
from rlpyt.agents import AtariR2d1Agent
from rlpyt.algos import R2D1
from rlpyt.envs import AtariEnv
from rlpyt.runners import AsyncRlEval, MinibatchRlBase, MinibatchRlEval
from rlpyt.samplers import AlternatingSampler, GpuSampler


def r2d1() -> MinibatchRlBase:
    """Return R2D1 with 32 environments, and half the sequences an update of the paper."""
    return MinibatchRlEval(
        algo=R2D1(
            discount=0.997,
            batch_T=80,
            batch_B=32,
            warmup_T=40,
            store_rnn_state_interval=40,
            replay_ratio=4,
            learning_rate=1e-4,
            clip_grad_norm=80.0,
            min_steps_learn=int(1e5),
            double_dqn=True,
            prioritized_replay=True,
            n_step_return=5,
            pri_alpha=0.9,
            pri_beta_init=0.6,
            pri_beta_final=0.6,
        ),
        agent=AtariR2d1Agent(model_kwargs=dict(dueling=True)),
        sampler=GpuSampler(
            EnvCls=AtariEnv,
            env_kwargs=dict(game="pong", episodic_lives=True, clip_reward=False, horizon=int(27e3), num_img_obs=4),
            eval_env_kwargs=dict(
                game="pong", episodic_lives=False, clip_reward=False, horizon=int(27e3), num_img_obs=4
            ),
            batch_T=30,
            batch_B=32,
            max_decorrelation_steps=1000,
            eval_n_envs=4,
            eval_max_steps=int(161e3),
            eval_max_trajectories=100,
        ),
        n_steps=100e6,
        log_interval_steps=1e6,
    )


r2d1_long = changed(
    r2d1,
    algo=dict(replay_size=int(4e6), batch_B=64, replay_ratio=1),
    agent=dict(eps_final=0.1, eps_final_min=0.0005),
    # 40 rows are the warm-up and the interval of stored states; 192 x 40 rows are those of one update.
    sampler=dict(
        batch_T=40,
        batch_B=192,
        eval_n_envs=6,
        eval_max_steps=int(28e3 * 6),
        env_kwargs=dict(episodic_lives=False),
    ),
    n_steps=20e9,
    log_interval_steps=10e6,
)

r2d1_profile = changed(
    r2d1_long,
    algo=dict(min_steps_learn=int(5e4)),
    sampler=dict(eval_max_trajectories=2),
    n_steps=1e6,
    log_interval_steps=1e6,
)

async_gpu = changed(
    r2d1_long,
    Cls=AsyncRlEval,
    sampler=dict(batch_T=40, batch_B=256, eval_n_envs=20, eval_max_steps=int(28e3 * 20)),
)

CONFIGS: dict[str, Config] = {
    "r2d1": r2d1,
    "r2d1_long": r2d1_long,
    "r2d1_profile": r2d1_profile,
    "r2d1_prof_halftrain": changed(r2d1_profile, algo=dict(batch_B=32, replay_ratio=0.5)),
    "r2d1_prof_quartertrain": changed(r2d1_profile, algo=dict(batch_B=16, replay_ratio=0.25)),
    "r2d1_long_4tr": changed(
        r2d1_long, algo=dict(replay_ratio=4), sampler=dict(eval_n_envs=12, eval_max_steps=int(28e3 * 12))
    ),
    "async_gpu": async_gpu,
    # The numbers of one machine of three; those of the others are arguments of the script.
    "async_alt": changed(
        async_gpu,
        sampler=dict(
            Cls=AlternatingSampler,
            batch_B=264,
            eval_n_envs=44,
            eval_max_steps=int(28e3 * 44),
            eval_max_trajectories=120,
        ),
    ),
    # For tests of the library: many resets, short sequences, a small replay.
    "r2d1_test": changed(
        r2d1_long,
        algo=dict(
            replay_size=int(1e5),
            batch_T=10,
            batch_B=16,
            warmup_T=5,
            store_rnn_state_interval=5,
            replay_ratio=6,  # one update an iteration: 5 x 8 rows are a sixth of the (10 + 5) x 16 of an update
            min_steps_learn=int(1e4),
            eps_steps=1e5,
        ),
        sampler=dict(
            batch_T=5,
            batch_B=8,
            max_decorrelation_steps=20,
            eval_n_envs=8,
            eval_max_steps=int(8 * 1.5e3),
            eval_max_trajectories=8,
            env_kwargs=dict(episodic_lives=True),
        ),
        log_interval_steps=1e5,
    ),
}

_MACHINE = "the name was that of a machine"
RENAMED = {
    "async_alt_pabti": Renamed("async_alt", _MACHINE, 264, 44),
    "async_alt_dgx": Renamed("async_alt", _MACHINE, 312, 78),
    "async_alt_got": Renamed("async_alt", _MACHINE, 252, 36),
    "async_gpu_dgx": Renamed("async_gpu", _MACHINE, 312, 39),
}
