"""PPO on a torch-batched cart-pole of 4,096 environments: this library beside skrl and rsl_rl.

make bench-device

It runs this script in the environment of each library in turn: `python benchmarks/device_ppo.py skrl`. All have two
networks of 64 x 64 units with tanh, Gaussian actions, batches of 24 steps, five epochs of four minibatches, and log
nothing while the clock runs. It goes from the first step of one batch to that of another. On the CPU it is the
process's CPU time on one thread, which other work on the machine changes less than the time on the wall; with
`--device cuda:0` it is that time, with a wait for the GPU at the first step of each batch.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from device_cartpole import CartPole
from torch import nn

T, B, WARM_UP, BATCHES = 24, 4096, 3, 12
EPOCHS, MINIBATCHES, LEARNING_RATE, NORM = 5, 4, 1e-3, 1.0
DISCOUNT, GAE_LAMBDA, RATIO_CLIP, ENTROPY = 0.99, 0.95, 0.2, 0.01


class Timed(CartPole):
    """Cart-pole that notes the time at the first step of each batch, and the steps of the last episodes."""

    times: list[float]
    where = "cpu"

    def __init__(self, num_envs: int = B) -> None:
        super().__init__(num_envs, Timed.where, continuous=True)
        self.n_steps, self.lengths = 0, torch.zeros(num_envs, device=Timed.where)
        Timed.times, Timed.made = [], self

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        if self.n_steps % T == 0:
            if Timed.where == "cpu":
                Timed.times.append(time.process_time())
            else:
                torch.cuda.synchronize()
                Timed.times.append(time.perf_counter())
        self.n_steps += 1
        before = self.t + 1
        result = super().step(action)
        self.lengths = torch.where(self.t == 0, before, self.lengths)
        return result


def rlpyt(compiled: bool = False) -> None:
    """Train with this library."""
    from rlpyt.agents import GaussianPgAgent
    from rlpyt.algos import PPO
    from rlpyt.runners import MinibatchRl
    from rlpyt.samplers import DeviceSampler
    from rlpyt.utils import ComputeSettings

    algo = PPO(
        discount=DISCOUNT,
        learning_rate=LEARNING_RATE,
        gae_lambda=GAE_LAMBDA,
        entropy_loss_coeff=ENTROPY,
        clip_grad_norm=NORM,
        minibatches=MINIBATCHES,
        epochs=EPOCHS,
        ratio_clip=RATIO_CLIP,
        linear_lr_schedule=False,
        normalize_advantage=True,
    )
    agent = GaussianPgAgent(model_kwargs=dict(hidden_sizes=[64, 64], share_trunk=False))
    n_steps = (WARM_UP + BATCHES + 1) * T * B
    settings = ComputeSettings(device=Timed.where, compile=compiled)
    sampler = DeviceSampler(Timed, {}, T, B)
    MinibatchRl(algo, agent, sampler, n_steps=n_steps, log_interval_steps=n_steps, settings=settings).train()


def skrl() -> None:
    """Train with skrl."""
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.envs.wrappers.torch.base import Wrapper
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
    from skrl.trainers.torch import SequentialTrainer

    class Env(Wrapper):
        num_agents = 1
        num_envs = B
        observation_space = CartPole.single_observation_space
        state_space = None
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

        def reset(self) -> Any:
            return self._env.reset(seed=0)

        def step(self, actions: torch.Tensor) -> Any:
            observation, reward, terminated, truncated, _ = self._env.step(actions)
            return observation, reward[:, None], terminated[:, None], truncated[:, None], {}

        def state(self) -> None:
            return None

        def render(self) -> None:
            pass

        def close(self) -> None:
            pass

    class Policy(GaussianMixin, Model):
        def __init__(self, **kwargs: Any) -> None:
            Model.__init__(self, **kwargs)
            GaussianMixin.__init__(self)
            self.net, self.log_std = mlp(), nn.Parameter(torch.zeros(1))

        def compute(self, inputs: Any, role: str) -> Any:
            return self.net(inputs["observations"]), {"log_std": self.log_std}

    class Value(DeterministicMixin, Model):
        def __init__(self, **kwargs: Any) -> None:
            Model.__init__(self, **kwargs)
            DeterministicMixin.__init__(self)
            self.net = mlp()

        def compute(self, inputs: Any, role: str) -> Any:
            return self.net(inputs["observations"]), {}

    env = Env(Timed())
    spaces = dict(observation_space=env.observation_space, action_space=env.action_space, device=Timed.where)
    cfg = PPO_CFG(
        rollouts=T,
        learning_epochs=EPOCHS,
        mini_batches=MINIBATCHES,
        discount_factor=DISCOUNT,
        gae_lambda=GAE_LAMBDA,
        learning_rate=LEARNING_RATE,
        grad_norm_clip=NORM,
        ratio_clip=RATIO_CLIP,
        value_clip=0.0,
        entropy_loss_scale=ENTROPY,
        value_loss_scale=1.0,
        experiment=dict(write_interval=0, checkpoint_interval=0),
    )
    agent = PPO(
        models=dict(policy=Policy(**spaces), value=Value(**spaces)),
        memory=RandomMemory(memory_size=T, num_envs=B, device=Timed.where),
        cfg=cfg,
        **spaces,
    )
    trainer_cfg = dict(timesteps=(WARM_UP + BATCHES + 1) * T, headless=True, disable_progressbar=True)
    SequentialTrainer(cfg=trainer_cfg, env=env, agents=agent).train()


def rsl_rl(compiled: bool = False) -> None:
    """Train with rsl_rl, whose models alone can be compiled."""
    from rsl_rl.runners import OnPolicyRunner
    from tensordict import TensorDict

    class Env:
        num_envs, num_actions, max_episode_length, device, cfg = B, 1, 500, Timed.where, None

        def __init__(self) -> None:
            self.env = Timed()
            self.observation = self.env.reset(seed=0)[0]

        @property
        def episode_length_buf(self) -> torch.Tensor:
            return self.env.t

        def get_observations(self) -> TensorDict:
            return TensorDict({"policy": self.observation}, batch_size=[B])

        def step(self, actions: torch.Tensor) -> Any:
            self.observation, reward, terminated, truncated, _ = self.env.step(actions)
            return self.get_observations(), reward, (terminated | truncated).long(), {"time_outs": truncated}

    model = dict(class_name="MLPModel", hidden_dims=[64, 64], activation="tanh")
    settings: dict[str, Any] = dict(
        num_steps_per_env=T,
        torch_compile_mode="default" if compiled else None,
        save_interval=10**9,
        obs_groups=dict(actor=["policy"], critic=["policy"]),
        actor=dict(model, distribution_cfg=dict(class_name="GaussianDistribution", init_std=1.0, std_type="log")),
        critic=model,
        algorithm=dict(
            class_name="PPO",
            num_learning_epochs=EPOCHS,
            num_mini_batches=MINIBATCHES,
            clip_param=RATIO_CLIP,
            gamma=DISCOUNT,
            lam=GAE_LAMBDA,
            entropy_coef=ENTROPY,
            learning_rate=LEARNING_RATE,
            max_grad_norm=NORM,
            use_clipped_value_loss=False,
            schedule="fixed",
        ),
    )
    OnPolicyRunner(Env(), settings, log_dir=None, device=Timed.where).learn(WARM_UP + BATCHES + 1)


def mlp() -> nn.Sequential:
    """Return the network of a policy or a value."""
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


def main() -> None:
    """Print the speed of a library."""
    parser = argparse.ArgumentParser(description="PPO on 4,096 cart-poles: steps per second.")
    libraries: dict[str, Callable[[], None]] = dict(
        rlpyt=rlpyt,
        skrl=skrl,
        rsl_rl=rsl_rl,
        rlpyt_compiled=partial(rlpyt, True),
        rsl_rl_compiled=partial(rsl_rl, True),
    )
    parser.add_argument("library", choices=libraries)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    Timed.where = args.device
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()):
        libraries[args.library]()
    seconds = np.diff(Timed.times[WARM_UP:])
    length = Timed.made.lengths.mean()
    clock = "CPU time" if args.device == "cpu" else "wall time"
    print(f"{args.library:15s} {T * B / np.median(seconds):10,.0f} steps/s of {clock}; episodes of {length:.0f} steps")


if __name__ == "__main__":
    main()
