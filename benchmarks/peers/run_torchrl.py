"""TorchRL: loops of collector, loss module and replay buffer as its own example scripts write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ale_py
import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing, DtypeObservation, FrameStackObservation
from tensordict.nn import AddStateIndependentNormalScale, TensorDictModule, TensorDictSequential
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import GymWrapper
from torchrl.modules import (
    MLP,
    ActorValueOperator,
    AdditiveGaussianModule,
    ConvNet,
    EGreedyModule,
    IndependentNormal,
    ProbabilisticActor,
    QValueActor,
    TanhModule,
    TanhNormal,
    ValueOperator,
)
from torchrl.objectives import A2CLoss, ClipPPOLoss, DDPGLoss, DQNLoss, HardUpdate, SACLoss, SoftUpdate, TD3Loss
from torchrl.objectives.value import GAE
from workloads import ATARI, REPLAY_SIZE, Clock, Workload, run_from_command_line, target_interval

LEARNED = ("observation", "action", "action_log_prob", "advantage", "value_target")


def make_pong() -> GymWrapper:
    """Return Pong with 4 stacked frames of 84 x 84."""
    gymnasium.register_envs(ale_py)
    env = AtariPreprocessing(gymnasium.make(ATARI), frame_skip=4)
    return GymWrapper(FrameStackObservation(env, 4), categorical_action_encoding=True)


def make_vector(name: str) -> GymWrapper:
    """Return a plain environment, its observations in single precision."""
    env = DtypeObservation(gymnasium.make(name), np.float32)
    return GymWrapper(env, categorical_action_encoding=True)


def many(make: Callable[[], GymWrapper], work: Workload) -> GymWrapper:
    """Return the environments of a workload: gymnasium's batch was faster than TorchRL's SerialEnv and ParallelEnv."""
    if work.n_envs == 1:
        return make()
    mode = gymnasium.vector.AutoresetMode.DISABLED
    envs = gymnasium.vector.SyncVectorEnv([lambda: make()._env] * work.n_envs, autoreset_mode=mode)
    return GymWrapper(envs, categorical_action_encoding=True)


def collect(env: Any, policy: Any, frames: int, **settings: Any) -> Collector:
    """Return an endless collector of `frames` steps a batch, of all environments together."""
    settings |= {"track_traj_ids": False, "auto_register_policy_transforms": False}
    return Collector(env, policy, frames_per_batch=frames, total_frames=-1, **settings)


class Scale(nn.Module):
    """Bytes to [0, 1]."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Divide."""
        return pixels.float() / 255


def nature() -> nn.Module:
    """Return the Nature network up to its layer of 512."""
    conv = ConvNet(
        in_features=4, num_cells=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1], activation_class=nn.ReLU
    )
    return nn.Sequential(Scale(), conv, nn.Linear(3136, 512), nn.ReLU())


def pong_networks(env: Any) -> tuple[Any, Any, Any, Any]:
    """Return the policy, the value network, and what the loss takes so that both heads share one pass of the trunk."""
    trunk = TensorDictModule(nature(), ["observation"], ["hidden"])
    head = TensorDictModule(nn.Linear(512, env.action_spec_unbatched.space.n), ["hidden"], ["logits"])
    head = ProbabilisticActor(
        head, ["logits"], distribution_class=torch.distributions.Categorical, spec=env.action_spec_unbatched,
        return_log_prob=True,
    )  # fmt: skip
    value = ValueOperator(nn.Linear(512, 1), ["hidden"])
    both = ActorValueOperator(trunk, head, value)
    return both.get_policy_operator(), both.get_value_operator(), both.get_policy_operator(), value


def vector_networks(env: Any) -> tuple[Any, Any, Any, Any]:
    """Return the policy and the value network, twice."""
    size, spec = env.observation_spec["observation"].shape[-1], env.action_spec_unbatched
    mlp = partial(MLP, in_features=size, num_cells=[64, 64], activation_class=nn.Tanh)
    if hasattr(spec.space, "n"):
        body, keys, law = mlp(out_features=spec.space.n), ["logits"], torch.distributions.Categorical
    else:
        n = spec.shape[-1]
        body = nn.Sequential(mlp(out_features=n), AddStateIndependentNormalScale(n, scale_lb=1e-8))
        keys, law = ["loc", "scale"], IndependentNormal
    actor = ProbabilisticActor(
        TensorDictModule(body, ["observation"], keys), keys, distribution_class=law, spec=spec, return_log_prob=True
    )
    value = ValueOperator(mlp(out_features=1), ["observation"])
    return actor, value, actor, value


def on_policy(
    env: Any, networks: tuple[Any, Any, Any, Any], loss: Any, optimizer: Any, lmbda: float, work: Workload, clock: Clock
) -> None:
    """Collect, estimate advantages once, and go through the minibatches of each epoch."""
    policy, value, _, _ = networks
    steps = work.n_envs * work.n_steps
    advantage = GAE(gamma=0.99, lmbda=lmbda, value_network=value, average_gae=False)
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(steps), sampler=SamplerWithoutReplacement(), batch_size=work.batch_size
    )
    whole = work.batch_size == steps
    for i, data in enumerate(collect(env, policy, steps), 1):
        with torch.no_grad():
            data = advantage(data).select(*LEARNED).reshape(-1)
        if not whole:
            buffer.extend(data)
        for _ in range(work.epochs):
            for batch in [data] if whole else buffer:
                losses = loss(batch)
                optimizer.zero_grad()
                keys = [key for key in losses.keys() if key.startswith("loss_")]  # noqa: SIM118  # no Mapping
                sum(losses[key] for key in keys).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
        clock.tick(i * steps)


def ppo(env: Any, networks: Any, clip: float, learning_rate: float, work: Workload, clock: Clock) -> None:
    """Clipped PPO."""
    loss = ClipPPOLoss(
        networks[2], networks[3], clip_epsilon=clip, entropy_bonus=False, critic_coeff=0.5, loss_critic_type="l2",
        normalize_advantage=True, log_explained_variance=False,
    )  # fmt: skip
    optimizer = torch.optim.Adam(loss.parameters(), learning_rate, eps=1e-5)
    on_policy(env, networks, loss, optimizer, 0.95, work, clock)


def ppo_pong(work: Workload, clock: Clock) -> None:
    """PPO with the Nature network."""
    torch.set_num_threads(work.cores)
    env = many(make_pong, work)
    ppo(env, pong_networks(env), 0.1, 2.5e-4, work, clock)


def ppo_vector(name: str, work: Workload, clock: Clock) -> None:
    """PPO with two networks of 64 x 64."""
    torch.set_num_threads(work.cores)
    env = many(partial(make_vector, name), work)
    ppo(env, vector_networks(env), 0.2, 3e-4, work, clock)


def a2c_pong(work: Workload, clock: Clock) -> None:
    """A2C with RMSprop: one update of each batch."""
    torch.set_num_threads(work.cores)
    env = many(make_pong, work)
    networks = pong_networks(env)
    loss = A2CLoss(networks[2], networks[1], entropy_bonus=False, critic_coeff=0.5, loss_critic_type="l2")
    optimizer = torch.optim.RMSprop(loss.parameters(), 7e-4, alpha=0.99, eps=1e-5)
    on_policy(env, networks, loss, optimizer, 1.0, work, clock)


def off_policy(env: Any, policy: Any, update: Callable[[Any, int], None], work: Workload, clock: Clock) -> None:
    """Collect, store, and make the updates that are due; `policy` ends with its exploration."""
    steps = work.n_envs * work.n_steps
    buffer = ReplayBuffer(storage=LazyTensorStorage(REPLAY_SIZE), batch_size=work.batch_size)
    for i, data in enumerate(collect(env, policy, steps, init_random_frames=work.min_steps_learn), 1):
        if hasattr(policy[-1], "step"):
            policy[-1].step(steps)
        buffer.extend(data.reshape(-1))
        if i * steps > work.min_steps_learn:
            for k in range(i * work.updates, (i + 1) * work.updates):
                update(buffer.sample(), k)
        clock.tick(i * steps)


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Take a step down a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def dqn_pong(work: Workload, clock: Clock) -> None:
    """DQN over stacked frames."""
    torch.set_num_threads(work.cores)
    env = many(make_pong, work)
    spec = env.action_spec_unbatched
    net = nn.Sequential(nature(), nn.Linear(512, spec.space.n))
    q = QValueActor(net, in_keys=["observation"], spec=spec)
    explore = EGreedyModule(spec, eps_init=1.0, eps_end=0.05, annealing_num_steps=100_000)
    loss = DQNLoss(q, loss_function="smooth_l1", delay_value=True)
    loss.make_value_estimator(gamma=0.99)
    target = HardUpdate(loss, value_network_update_interval=target_interval(work))
    optimizer = torch.optim.Adam(loss.parameters(), 1e-4)

    def update(batch: Any, k: int) -> None:
        optimizer.zero_grad()
        loss(batch)["loss"].backward()
        nn.utils.clip_grad_norm_(loss.parameters(), 10)
        optimizer.step()
        target.step()

    off_policy(env, TensorDictSequential(q, explore), update, work, clock)


def cheetah_networks(width: int) -> tuple[Any, Any, Any]:
    """Return HalfCheetah, the body of an actor that puts out `width` values an action, and a Q network."""
    env = make_vector("HalfCheetah-v5")
    size, n = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    mlp = partial(MLP, num_cells=[256, 256], activation_class=nn.ReLU)
    q = ValueOperator(mlp(in_features=size + n, out_features=1), in_keys=["observation", "action"])
    return env, mlp(in_features=size, out_features=width * n), q


def sac_half_cheetah(work: Workload, clock: Clock) -> None:
    """SAC with two Q networks and a learned temperature."""
    torch.set_num_threads(work.cores)
    env, body, q = cheetah_networks(2)
    spec, keys = env.action_spec, ["loc", "scale"]
    body = TensorDictModule(nn.Sequential(body, NormalParamExtractor()), ["observation"], keys)
    law = {"low": spec.space.low, "high": spec.space.high, "tanh_loc": False}
    actor = ProbabilisticActor(body, keys, spec=spec, distribution_class=TanhNormal, distribution_kwargs=law)
    loss = SACLoss(actor, q, loss_function="l2")
    loss.make_value_estimator(gamma=0.99)
    target = SoftUpdate(loss, eps=0.995)
    optimizer = torch.optim.Adam(loss.parameters(), 3e-4)

    def update(batch: Any, k: int) -> None:
        losses = loss(batch)
        descend(optimizer, losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"])
        target.step()

    off_policy(env, actor, update, work, clock)


def deterministic(delay: int, work: Workload, clock: Clock) -> None:
    """TD3 (two Q networks, the actor at every second update), or with a delay of 1 DDPG."""
    torch.set_num_threads(work.cores)
    env, body, q = cheetah_networks(1)
    spec = env.action_spec
    actor = TensorDictSequential(
        TensorDictModule(body, ["observation"], ["param"]), TanhModule(["param"], out_keys=["action"], spec=spec)
    )
    noise = AdditiveGaussianModule(spec, sigma_init=0.1, sigma_end=0.1, annealing_num_steps=1)
    if delay > 1:
        loss = TD3Loss(actor, q, action_spec=spec, loss_function="l2", delay_actor=True, delay_qvalue=True)
        q_params, q_loss, actor_loss = loss.qvalue_network_params, loss.value_loss, loss.actor_loss
    else:
        loss = DDPGLoss(actor, q, loss_function="l2", delay_actor=True, delay_value=True)
        q_params, q_loss, actor_loss = loss.value_network_params, loss.loss_value, loss.loss_actor
    loss.make_value_estimator(gamma=0.99)
    target = SoftUpdate(loss, eps=0.995)
    q_optimizer = torch.optim.Adam(q_params.flatten_keys().values(), 1e-3)
    actor_optimizer = torch.optim.Adam(loss.actor_network_params.flatten_keys().values(), 1e-3)

    def update(batch: Any, k: int) -> None:
        descend(q_optimizer, q_loss(batch)[0])
        if k % delay == 0:
            descend(actor_optimizer, actor_loss(batch)[0])
            target.step()

    off_policy(env, TensorDictSequential(actor, noise), update, work, clock)


if __name__ == "__main__":
    run_from_command_line(
        {
            "ppo_pong": ppo_pong,
            "a2c_pong": a2c_pong,
            "dqn_pong": dqn_pong,
            "ppo_cartpole": partial(ppo_vector, "CartPole-v1"),
            "ppo_half_cheetah": partial(ppo_vector, "HalfCheetah-v5"),
            "sac_half_cheetah": sac_half_cheetah,
            "td3_half_cheetah": partial(deterministic, 2),
            "ddpg_half_cheetah": partial(deterministic, 1),
            "start": partial(ppo_vector, "CartPole-v1"),
        }
    )
