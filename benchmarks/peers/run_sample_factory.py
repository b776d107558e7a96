"""Sample Factory: its APPO with the settings of these workloads, ticked by an observer of its runner."""

from __future__ import annotations

import tempfile
from typing import Any

import ale_py  # noqa: F401  # registers the games
import gymnasium
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStack
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.envs.env_wrappers import NumpyObsWrapper
from sample_factory.train import make_runner
from workloads import ATARI, Clock, Workload, run_from_command_line

CHEETAH = "HalfCheetah-v4"  # the newest version in the Gymnasium 0.29 that Sample Factory asks for


class OnTrainingStep(AlgoObserver):
    """Ticks after each training iteration: all epochs of all minibatches of one batch of rollouts."""

    def __init__(self, clock: Clock, steps: int) -> None:
        self.clock, self.steps = clock, steps

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Count in steps of the environments, not in frames."""
        self.clock.tick(training_iteration_since_resume * self.steps)


def make_vector(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> gymnasium.Env:
    """Return a plain environment."""
    return gymnasium.make(name, render_mode=render_mode)


def make_pong(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> gymnasium.Env:
    """Return Pong with 4 stacked frames of 84 x 84."""
    env = AtariPreprocessing(gymnasium.make(name, render_mode=render_mode), frame_skip=4)
    return NumpyObsWrapper(FrameStack(env, 4))


def train(env: str, make_env: Any, work: Workload, clock: Clock, **settings: Any) -> None:
    """Run APPO until the clock ends the process."""
    torch.set_num_threads(work.cores)
    register_env(env, make_env)
    steps = work.n_envs * work.n_steps
    settings = {
        "train_dir": tempfile.mkdtemp(),
        "device": "cpu",
        "rollout": min(work.n_steps, work.batch_size),  # a minibatch has to hold whole rollouts
        "batch_size": work.batch_size,
        "num_batches_per_epoch": steps // work.batch_size,
        "num_epochs": work.epochs,
        "serial_mode": True,
        "async_rl": False,
        "num_workers": 1,
        "num_envs_per_worker": work.n_envs,
        "worker_num_splits": 1,
        "decorrelate_envs_on_one_worker": False,
        "set_workers_cpu_affinity": False,
        "use_rnn": False,
        "shuffle_minibatches": True,
        "normalize_input": False,
        "normalize_returns": False,
        "value_bootstrap": True,
        "exploration_loss_coeff": 0.0,
        "value_loss_coeff": 0.5,
        "max_grad_norm": 0.5,
        "adam_eps": 1e-5,
        **settings,
    }
    arguments = ["--algo=APPO", f"--env={env}", "--experiment=bench"]
    for name, value in settings.items():
        arguments += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    parser, _ = parse_sf_args(arguments)
    _, runner = make_runner(parse_full_cfg(parser, arguments))
    runner.register_observer(OnTrainingStep(clock, steps))
    if runner.init() == ExperimentStatus.SUCCESS:
        runner.run()


def ppo_pong(work: Workload, clock: Clock) -> None:
    """Clipped PPO with the Nature network."""
    train(
        ATARI,
        make_pong,
        work,
        clock,
        encoder_conv_architecture="convnet_atari",
        encoder_conv_mlp_layers=[512],
        nonlinearity="relu",
        obs_scale=255.0,
        learning_rate=2.5e-4,
        ppo_clip_ratio=0.1,
    )


def ppo_vector(env: str, work: Workload, clock: Clock) -> None:
    """PPO with two networks of 64 x 64."""
    train(
        env,
        make_vector,
        work,
        clock,
        encoder_mlp_layers=[64, 64],
        actor_critic_share_weights=False,
        adaptive_stddev=False,
        nonlinearity="tanh",
        learning_rate=3e-4,
        ppo_clip_ratio=0.2,
    )


if __name__ == "__main__":
    run_from_command_line(
        {
            "ppo_pong": ppo_pong,
            "ppo_cartpole": lambda work, clock: ppo_vector("CartPole-v1", work, clock),
            "ppo_half_cheetah": lambda work, clock: ppo_vector(CHEETAH, work, clock),
            "start": lambda work, clock: ppo_vector("CartPole-v1", work, clock),
        }
    )
