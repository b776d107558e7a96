"""Tianshou, with the parts and the trainer that its example scripts use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ale_py
import gymnasium
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from tianshou.algorithm.modelfree.a2c import A2C
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.ddpg import DDPG, ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.ppo import PPO
from tianshou.algorithm.modelfree.rainbow import RainbowDQN
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.algorithm.modelfree.sac import SAC, AutoAlpha, SACPolicy
from tianshou.algorithm.modelfree.td3 import TD3
from tianshou.algorithm.optim import AdamOptimizerFactory, RMSpropOptimizerFactory
from tianshou.data import Collector, PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, ShmemVectorEnv
from tianshou.env.atari.atari_network import DQNet, RainbowNet, ScaledObsInputActionReprNet
from tianshou.exploration import GaussianNoise
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import (
    ContinuousActorDeterministic,
    ContinuousActorProbabilistic,
    ContinuousCritic,
)
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch.distributions import Distribution, Independent, Normal
from workloads import ATARI, REPLAY_SIZE, Clock, Workload, run_from_command_line, target_interval

ENDLESS = 10**9


def make_pong() -> gymnasium.Env:
    """Return Pong with 4 stacked frames of 84 x 84: Tianshou's own wrappers do not run with this NumPy."""
    gymnasium.register_envs(ale_py)
    return FrameStackObservation(AtariPreprocessing(gymnasium.make(ATARI), frame_skip=4), 4)


def pong(work: Workload) -> Any:
    """Return the environments in processes, over shared memory."""
    return ShmemVectorEnv([make_pong] * work.n_envs)


def vector(env: str, work: Workload) -> Any:
    """Return the environments in this process."""
    return DummyVectorEnv([partial(gymnasium.make, env)] * work.n_envs)


def nature(n_actions: int, features: int | None = 512) -> Any:
    """Return the Nature network over bytes, up to its layer of 512 or with an output for each action."""
    net = DQNet(4, 84, 84, n_actions, features_only=features is not None, output_dim_added_layer=features)
    return ScaledObsInputActionReprNet(net)


def trained(
    algorithm: Any,
    envs: Any,
    work: Workload,
    clock: Clock,
    Params: Any,
    size: int,
    BufferCls: Callable[..., Any] = VectorReplayBuffer,
    **settings: Any,
) -> None:
    """Collect and learn until the clock ends the process. The trainer counts all steps of the environments."""
    torch.set_num_threads(work.cores)
    frames = dict(ignore_obs_next=True, save_only_last_obs=True, stack_num=4)
    stack: dict[str, Any] = frames if "Pong" in work.title else {}
    collector = Collector(algorithm, envs, BufferCls(size, work.n_envs, **stack), exploration_noise=True)
    done = 0
    if work.min_steps_learn:
        done = collector.collect(n_step=work.min_steps_learn, random=True, reset_before_collect=True).n_collected_steps

    def before_collection(epoch: int, steps: int) -> None:
        clock.tick(done + steps)

    algorithm.run_training(
        Params(
            training_collector=collector,
            max_epochs=ENDLESS,
            epoch_num_steps=50_000,
            collection_step_num_env_steps=work.n_envs * work.n_steps,
            batch_size=work.batch_size,
            test_step_num_episodes=0,
            training_fn=before_collection,
            show_progress=False,
            verbose=False,
            **settings,
        )
    )


def on_policy(algorithm: Any, envs: Any, work: Workload, clock: Clock) -> None:
    """Train with the batches of an on-policy algorithm."""
    steps = work.n_envs * work.n_steps
    trained(algorithm, envs, work, clock, OnPolicyTrainerParams, steps, update_step_num_repetitions=work.epochs)


def off_policy(algorithm: Any, envs: Any, work: Workload, clock: Clock, **settings: Any) -> None:
    """Train from a replay."""
    ratio = work.updates / (work.n_envs * work.n_steps)
    settings["update_step_num_gradient_steps_per_sample"] = ratio
    trained(algorithm, envs, work, clock, OffPolicyTrainerParams, REPLAY_SIZE, **settings)


def of_pixels(envs: Any) -> tuple[Any, Any]:
    """Return the policy and the value network, which share the Nature network."""
    space = envs.action_space[0]
    net = nature(space.n)
    actor = DiscreteActor(preprocess_net=net, action_shape=space.n, softmax_output=False)
    return DiscreteActorPolicy(actor=actor, action_space=space), DiscreteCritic(preprocess_net=net)


def ppo_pong(work: Workload, clock: Clock) -> None:
    """Clipped PPO with the Nature network."""
    envs = pong(work)
    policy, critic = of_pixels(envs)
    optim = AdamOptimizerFactory(lr=2.5e-4, eps=1e-5)
    algorithm = PPO(policy=policy, critic=critic, optim=optim, eps_clip=0.1, max_grad_norm=0.5)
    on_policy(algorithm, envs, work, clock)


def a2c_pong(work: Workload, clock: Clock) -> None:
    """A2C with RMSprop: one update of each batch."""
    envs = pong(work)
    policy, critic = of_pixels(envs)
    optim = RMSpropOptimizerFactory(lr=7e-4, eps=1e-5, alpha=0.99)
    on_policy(A2C(policy=policy, critic=critic, optim=optim, max_grad_norm=0.5), envs, work, clock)


def dqn_pong(work: Workload, clock: Clock) -> None:
    """DQN over a replay that keeps each frame once."""
    envs = pong(work)
    space = envs.action_space[0]
    policy = DiscreteQLearningPolicy(model=nature(space.n, None), action_space=space, eps_training=0.05)
    optim = AdamOptimizerFactory(lr=1e-4)
    off_policy(
        DQN(policy=policy, optim=optim, target_update_freq=target_interval(work), is_double=False), envs, work, clock
    )


def rainbow_pong(work: Workload, clock: Clock) -> None:
    """All parts of Rainbow that Tianshou has."""
    envs = pong(work)
    space = envs.action_space[0]
    net = ScaledObsInputActionReprNet(RainbowNet(c=4, h=84, w=84, action_shape=[space.n]))
    policy = C51Policy(model=net, action_space=space)
    optim = AdamOptimizerFactory(lr=6.25e-5)
    algorithm = RainbowDQN(policy=policy, optim=optim, n_step_return_horizon=3, target_update_freq=500)
    off_policy(algorithm, envs, work, clock, BufferCls=partial(PrioritizedVectorReplayBuffer, alpha=0.5, beta=0.4))


def ppo_vector(env: str, work: Workload, clock: Clock) -> None:
    """PPO with two networks of 64 x 64."""
    envs = vector(env, work)
    space, shape = envs.action_space[0], envs.observation_space[0].shape
    body, other = (Net(state_shape=shape, hidden_sizes=(64, 64), activation=torch.nn.Tanh) for _ in range(2))
    policy: Any
    critic: Any
    if isinstance(space, gymnasium.spaces.Discrete):
        actor = DiscreteActor(preprocess_net=body, action_shape=space.n, softmax_output=False)
        policy, critic = DiscreteActorPolicy(actor=actor, action_space=space), DiscreteCritic(preprocess_net=other)
    else:
        gaussian = ContinuousActorProbabilistic(preprocess_net=body, action_shape=space.shape, unbounded=True)
        policy = ProbabilisticActorPolicy(actor=gaussian, dist_fn=normal, action_space=space)
        critic = ContinuousCritic(preprocess_net=other)
    optim = AdamOptimizerFactory(lr=3e-4, eps=1e-5)
    on_policy(PPO(policy=policy, critic=critic, optim=optim, ent_coef=0.0, max_grad_norm=0.5), envs, work, clock)


def normal(mean_and_std: tuple[torch.Tensor, torch.Tensor]) -> Distribution:
    """Return the distribution of a Gaussian policy."""
    return Independent(Normal(*mean_and_std), 1)


def cheetah(n_critics: int, ActorCls: Callable[..., Any], work: Workload, **actor_settings: Any) -> tuple[Any, ...]:
    """Return HalfCheetah, an actor and critics of 256 x 256, and an optimizer."""
    envs = vector("HalfCheetah-v5", work)
    space, shape = envs.action_space[0], envs.observation_space[0].shape
    body = Net(state_shape=shape, hidden_sizes=(256, 256))
    actor = ActorCls(preprocess_net=body, action_shape=space.shape, max_action=space.high[0], **actor_settings)
    net = partial(Net, state_shape=shape, action_shape=space.shape, hidden_sizes=(256, 256), concat=True)
    return envs, space, actor, *(ContinuousCritic(preprocess_net=net()) for _ in range(n_critics))


def sac_half_cheetah(work: Workload, clock: Clock) -> None:
    """SAC with a learned temperature."""
    envs, space, actor, critic, critic2 = cheetah(
        2, ContinuousActorProbabilistic, work, unbounded=True, conditioned_sigma=True
    )
    optim = AdamOptimizerFactory(lr=3e-4)
    algorithm = SAC(
        policy=SACPolicy(actor=actor, action_space=space),
        policy_optim=optim,
        critic=critic,
        critic_optim=optim,
        critic2=critic2,
        critic2_optim=optim,
        alpha=AutoAlpha(-float(space.shape[0]), 0.0, optim),
    )
    off_policy(algorithm, envs, work, clock)


def deterministic(AlgoCls: Any, work: Workload, clock: Clock) -> None:
    """TD3 (two critics, the actor at every second update) or DDPG."""
    is_twin = AlgoCls is TD3
    envs, space, actor, critic, *critic2 = cheetah(1 + is_twin, ContinuousActorDeterministic, work)
    optim = AdamOptimizerFactory(lr=1e-3)
    policy = ContinuousDeterministicPolicy(actor=actor, action_space=space, exploration_noise=GaussianNoise(sigma=0.1))
    twin = dict(critic2=critic2[0], critic2_optim=optim) if is_twin else {}
    algorithm = AlgoCls(policy=policy, policy_optim=optim, critic=critic, critic_optim=optim, **twin)
    off_policy(algorithm, envs, work, clock)


if __name__ == "__main__":
    run_from_command_line(
        {
            "ppo_pong": ppo_pong,
            "a2c_pong": a2c_pong,
            "dqn_pong": dqn_pong,
            "rainbow_pong": rainbow_pong,
            "ppo_cartpole": partial(ppo_vector, "CartPole-v1"),
            "ppo_half_cheetah": partial(ppo_vector, "HalfCheetah-v5"),
            "sac_half_cheetah": sac_half_cheetah,
            "td3_half_cheetah": partial(deterministic, TD3),
            "ddpg_half_cheetah": partial(deterministic, DDPG),
            "start": partial(ppo_vector, "CartPole-v1"),
        }
    )
