"""Numbers of the configurations of rlpyt 0.1, as their dictionaries had them; none of its code.

A configuration is a base and its changes, by dotted names such as "algo.learning_rate". Numbers that are another's as
well, such as those of both kinds of environments, are not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping

Numbers = dict[str, object]
"""Dotted name -> value."""

_DQN: Numbers = {
    "algo.discount": 0.99,
    "algo.batch_size": 128,
    "algo.learning_rate": 1e-4,
    "algo.clip_grad_norm": 10.0,
    "algo.min_steps_learn": 50_000,
    "algo.double_dqn": False,
    "algo.prioritized_replay": False,
    "algo.n_step_return": 1,
    "algo.replay_size": 1_000_000,
    "env.game": "pong",
    "env.episodic_lives": True,
    "eval_env.game": "pong",
    "eval_env.episodic_lives": False,
    "eval_env.horizon": 27_000,
    "model.dueling": False,
    "runner.n_steps": 50e6,
    "runner.log_interval_steps": 1e6,
    "sampler.batch_T": 2,
    "sampler.batch_B": 16,
    "sampler.max_decorrelation_steps": 1000,
    "sampler.eval_n_envs": 4,
    "sampler.eval_max_steps": 125_000,
    "sampler.eval_max_trajectories": 100,
}
_ALL_THREE: Numbers = {"algo.double_dqn": True, "algo.prioritized_replay": True, "model.dueling": True}

_R2D1: Numbers = {
    "algo.discount": 0.997,
    "algo.batch_T": 80,
    "algo.batch_B": 32,
    "algo.warmup_T": 40,
    "algo.store_rnn_state_interval": 40,
    "algo.replay_ratio": 4,
    "algo.learning_rate": 1e-4,
    "algo.clip_grad_norm": 80.0,
    "algo.min_steps_learn": 100_000,
    "algo.double_dqn": True,
    "algo.prioritized_replay": True,
    "algo.n_step_return": 5,
    "algo.pri_alpha": 0.9,
    "algo.pri_beta_init": 0.6,
    "algo.pri_beta_final": 0.6,
    "algo.input_priority_shift": 2,
    "model.dueling": True,
    "env.game": "pong",
    "env.episodic_lives": True,
    "env.clip_reward": False,
    "env.horizon": 27_000,
    "env.num_img_obs": 4,
    "eval_env.game": "pong",
    "eval_env.episodic_lives": False,
    "eval_env.clip_reward": False,
    "eval_env.horizon": 27_000,
    "eval_env.num_img_obs": 4,
    "runner.n_steps": 100e6,
    "runner.log_interval_steps": 1e6,
    "sampler.batch_T": 30,
    "sampler.batch_B": 32,
    "sampler.max_decorrelation_steps": 1000,
    "sampler.eval_n_envs": 4,
    "sampler.eval_max_steps": 161_000,
    "sampler.eval_max_trajectories": 100,
}
_LONG: Numbers = {
    **_R2D1,
    "algo.replay_size": 4_000_000,
    "algo.batch_B": 64,
    "algo.replay_ratio": 1,
    "agent.eps_final": 0.1,
    "agent.eps_final_min": 0.0005,
    "runner.n_steps": 20e9,
    "runner.log_interval_steps": 10e6,
    "sampler.batch_T": 40,
    "sampler.batch_B": 192,
    "sampler.eval_n_envs": 6,
    "sampler.eval_max_steps": 168_000,
    "env.episodic_lives": False,
}


_A2C: Numbers = {
    "algo.discount": 0.99,
    "algo.learning_rate": 3e-4,
    "algo.value_loss_coeff": 0.5,
    "algo.entropy_loss_coeff": 0.01,
    "algo.clip_grad_norm": 1.0,
    "env.game": "pong",
    "runner.n_steps": 50e6,
    "sampler.batch_T": 5,
    "sampler.batch_B": 32,
    "sampler.max_decorrelation_steps": 1000,
}
_PPO: Numbers = {
    **_A2C,
    "algo.learning_rate": 1e-3,
    "algo.value_loss_coeff": 1.0,
    "algo.gae_lambda": 0.98,
    "algo.linear_lr_schedule": True,
    "sampler.batch_T": 64,
}
_EPOCHS: Numbers = {"algo.minibatches": 4, "algo.epochs": 4}

_HOPPER: Numbers = {"env.id": "Hopper-v3", "runner.n_steps": 1e6}
_MUJOCO_PPO: Numbers = {
    **_HOPPER,
    "algo.discount": 0.99,
    "algo.learning_rate": 3e-4,
    "algo.clip_grad_norm": 1e6,
    "algo.entropy_loss_coeff": 0.0,
    "algo.gae_lambda": 0.95,
    "algo.minibatches": 32,
    "algo.epochs": 10,
    "algo.ratio_clip": 0.2,
    "algo.normalize_advantage": True,
    "algo.linear_lr_schedule": True,
    "model.normalize_observation": False,
    "runner.log_interval_steps": 20_480,
    "sampler.batch_T": 2048,
    "sampler.batch_B": 1,
    "sampler.max_decorrelation_steps": 0,
}
_ONE_MINIBATCH: Numbers = {"sampler.batch_T": 256, "sampler.batch_B": 8, "algo.minibatches": 1, "algo.epochs": 32}
_ONE_ROW: Numbers = {
    **_HOPPER,
    "agent.model_kwargs": None,
    "agent.q_model_kwargs": None,
    "algo.discount": 0.99,
    "algo.target_update_interval": 1,
    "runner.log_interval_steps": 1e4,
    "sampler.batch_T": 1,
    "sampler.batch_B": 1,
    "sampler.max_decorrelation_steps": 0,
    "sampler.eval_max_steps": 51_000,
    "sampler.eval_max_trajectories": 50,
}
_DDPG: Numbers = {
    **_ONE_ROW,
    "algo.batch_size": 100,
    "algo.replay_ratio": 100,
    "algo.target_update_tau": 0.01,
    "algo.policy_update_interval": 1,
    "algo.learning_rate": 1e-3,
    "algo.q_learning_rate": 1e-3,
    "sampler.eval_n_envs": 5,
}
_TD3: Numbers = {
    **_DDPG,
    "algo.target_update_tau": 0.005,
    "algo.target_update_interval": 2,
    "algo.policy_update_interval": 2,
    "sampler.eval_n_envs": 6,
}
_SAC: Numbers = {
    **_ONE_ROW,
    "agent.v_model_kwargs": None,
    "algo.batch_size": 256,
    "algo.replay_ratio": 256,
    "algo.target_update_tau": 0.005,
    "algo.learning_rate": 3e-4,
    "algo.reparameterize": True,
    "sampler.eval_n_envs": 4,
}
_SAC_V: Numbers = {
    **_SAC,
    "algo.policy_output_regularization": 0.001,
    "algo.reward_scale": 5,
    "sampler.eval_n_envs": 6,
}
_BSTL: Numbers = {"algo.bootstrap_timelimit": True}
_ONE_SYNC: Numbers = {"algo.updates_per_sync": 1}

OLD: Mapping[str, Mapping[str, Numbers]] = {
    "atari_dqn": {
        "dqn": _DQN,
        "ernbw": {**_DQN, **_ALL_THREE, "algo.n_step_return": 3, "algo.learning_rate": 6.25e-5},
        "rmsprop": {
            **_DQN,
            "optim.alpha": 0.95,
            "optim.eps": 1e-6,
            "algo.learning_rate": 2.5e-4,
            "runner.n_steps": 15e6,
        },
        "async_big": {**_DQN, "sampler.batch_T": 4, "sampler.batch_B": 256, "eval_n_envs": 10},
    },
    "atari_r2d1": {
        "r2d1": _R2D1,
        "r2d1_long": _LONG,
    },
    "atari_ff_a2c": {
        "0": _A2C,
    },
    "atari_ff_ppo": {"0": {**_PPO, **_EPOCHS}},
    "atari_lstm_a2c": {
        "0": {**_A2C, "env.num_img_obs": 1, "sampler.batch_T": 20},
    },
    "atari_lstm_ppo": {"0": {**_PPO, "env.num_img_obs": 1}},
    "mujoco_a2c": {
        "a2c_1M": {
            **_HOPPER,
            "algo.discount": 0.99,
            "algo.learning_rate": 3e-5,
            "algo.clip_grad_norm": 1e6,
            "algo.entropy_loss_coeff": 0.0,
            "algo.value_loss_coeff": 0.5,
            "algo.normalize_advantage": True,
            "model.normalize_observation": False,
            "runner.log_interval_steps": 2e4,
            "sampler.batch_T": 100,
            "sampler.batch_B": 8,
            "sampler.max_decorrelation_steps": 1000,
        }
    },
    "mujoco_ppo": {
        "ppo_1M_serial": _MUJOCO_PPO,
        "ppo_1M_cpu": {**_MUJOCO_PPO, **_ONE_MINIBATCH},
    },
    "mujoco_ddpg": {
        "ddpg_from_td3_1M_serial": _DDPG,
    },
    "mujoco_td3": {
        "td3_1M_serial": _TD3,
        "async_cpu": {**_TD3, **_BSTL, **_ONE_SYNC, "sampler.batch_T": 5, "sampler.batch_B": 3},
    },
    "mujoco_sac": {"sac_1M_serial": _SAC, "sac_serial_bstl": {**_SAC, **_BSTL}},
    "mujoco_sac_v": {
        "async_gpu": {**_SAC_V, **_BSTL, **_ONE_SYNC, "sampler.batch_T": 5, "sampler.batch_B": 3},
    },
}
"""Study -> configuration -> its numbers: the first of each study, and those that differ from it in kind."""
