"""What the machine allows: environments with a network in a bare loop, and bare updates on one fixed batch.

No library, no storage, no log, no bookkeeping of episodes: the same networks, losses of the same shape, a fused Adam.
Environments and updates are timed one after the other and added up, as synchronous runs do them in turn. Nothing is
learned. Pong is this library's `AtariEnv`, the quickest at hand; on two cores two processes step it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import torch
from networks import N_ACTIONS, Nature, TwoNetworks, draw, mlp
from torch import Tensor, nn
from torch.nn import functional as F
from workloads import REPLAY_ONLY_SIZE, REPLAY_SIZE, WORKLOADS, Workload

from rlpyt.envs import AtariEnv


def per_second(step: Callable[[], int], seconds: float) -> float:
    """Return the rows per second of a function that returns the rows of a call."""
    step()
    rows, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        rows += step()
    return rows / (time.perf_counter() - start)


def collecting(envs: list[Any], choose: Callable[[Tensor], np.ndarray]) -> Callable[[], int]:
    """Return a function that takes a step in every environment."""
    rows = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)])

    def step() -> int:
        for b, (env, action) in enumerate(zip(envs, choose(torch.from_numpy(rows)), strict=True)):
            observation, _, terminated, truncated, _ = env.step(action)
            rows[b] = env.reset()[0] if terminated or truncated else observation
        return len(envs)

    return torch.no_grad()(step)


def pong_process(n: int, precision: str, seconds: float, pipe: Any) -> None:
    """Send the rows per second of n environments on one thread, beside the other process."""
    torch.set_num_threads(1)
    model = Nature(N_ACTIONS, 1)
    step = collecting([AtariEnv("pong") for _ in range(n)], lambda x: draw(model(x)[0]))
    pipe.recv()
    with autocast(precision):
        pipe.send(per_second(step, seconds))


def autocast(precision: str) -> AbstractContextManager[Any]:
    """Return the context in which networks are called."""
    return torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")


def two_processes(target: Callable[..., None], work: Workload, *arguments: Any) -> float:
    """Return rows per second of two independent processes together, each with half of the environments."""
    context = multiprocessing.get_context("spawn")
    pipes = []
    for _ in range(2):
        pipe, theirs = context.Pipe()
        context.Process(target=target, args=(work.n_envs // 2, *arguments, theirs), daemon=True).start()
        pipes.append(pipe)
    for pipe in pipes:
        pipe.send(None)
    return sum(pipe.recv() for pipe in pipes)


def clipped_loss(pi: Tensor, v: Tensor, action: Tensor, old: Tensor, advantage: Tensor, target: Tensor) -> Tensor:
    """Return the loss of PPO, or with a ratio of one that of A2C."""
    log_prob = pi.log_softmax(-1)
    ratio = (log_prob.gather(-1, action[:, None]).squeeze(-1) - old).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage)
    entropy = -(log_prob.exp() * log_prob).sum(-1).mean()
    return -surrogate.mean() + 0.5 * F.mse_loss(v.squeeze(-1), target) - 0.01 * entropy


def gaussian_loss(mean: Tensor, v: Tensor, action: Tensor, old: Tensor, advantage: Tensor, target: Tensor) -> Tensor:
    """Return the loss of PPO with a Gaussian policy of unit deviation."""
    ratio = (-0.5 * (action - mean).square().sum(-1) - old).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage)
    return -surrogate.mean() + 0.5 * F.mse_loss(v.squeeze(-1), target)


class Step:
    """Backward pass of a loss and a step of Adam."""

    def __init__(self, params: Any, clip: float | None = None) -> None:
        self.params, self.clip = list(params), clip
        self.adam = torch.optim.Adam(self.params, 3e-4, fused=True)

    def __call__(self, loss: Tensor) -> None:
        """Take the step."""
        loss.backward(inputs=self.params)
        if self.clip:
            nn.utils.clip_grad_norm_(self.params, self.clip)
        self.adam.step()
        self.adam.zero_grad()


def on_policy_update(model: nn.Module, loss: Any, batch: Tensor, action: Tensor, precision: str) -> Callable[[], int]:
    """Return a function that takes one minibatch step."""
    step = Step(model.parameters(), clip=0.5)
    old, advantage, target = torch.randn(3, len(batch)).unbind()

    def update() -> int:
        with autocast(precision):
            pi, v = model(batch)
        step(loss(pi, v, action, old, advantage, target))
        return len(batch)

    return update


def dqn_update(make: Callable[[], nn.Module], rows: Tensor, n_actions: int, precision: str) -> Callable[[], int]:
    """Return an update of DQN on rows and next rows [2, B, ..], without copies to the target network."""
    model, target = make(), make()
    x, next_x = rows.unbind()
    action, reward = torch.randint(n_actions, (len(x), 1)), torch.randn(len(x))
    step = Step(model.parameters(), clip=10)

    def q_of(network: nn.Module, x: Tensor) -> Tensor:
        q = network(x)
        return q[0] if isinstance(network, Nature) else q

    def update() -> int:
        with autocast(precision):
            with torch.no_grad():
                y = reward + 0.99 * q_of(target, next_x).amax(-1)
            q = q_of(model, x)
        step(F.smooth_l1_loss(q.gather(-1, action).squeeze(-1), y))
        return 1

    return update


class TwoQ(nn.Module):
    """Two (or one) action-value networks as one batched product a layer."""

    def __init__(self, n: int, *sizes: int) -> None:
        super().__init__()
        layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        self.w = nn.ParameterList([layer.weight.detach().T.repeat(n, 1, 1).contiguous() for layer in layers])
        self.b = nn.ParameterList([layer.bias.detach().repeat(n, 1, 1) for layer in layers])

    def forward(self, x: Tensor) -> Tensor:
        """Return values [n, B]."""
        x = x.expand(len(self.w[0]), *x.shape)
        for w, b in zip(self.w[:-1], self.b[:-1], strict=True):
            x = torch.baddbmm(b, x, w).relu_()
        return torch.baddbmm(self.b[-1], x, self.w[-1]).squeeze(-1)


def q_update(name: str, work: Workload, precision: str) -> Callable[[], int]:
    """Return an update of SAC, TD3 or DDPG on HalfCheetah's shapes."""
    n_obs, n_act, n_q = 17, 6, 1 if name == "ddpg" else 2
    pi, pi_target = (mlp(n_obs, 256, 256, 2 * n_act if name == "sac" else n_act) for _ in range(2))
    q, q_target = (TwoQ(n_q, n_obs + n_act, 256, 256, 1) for _ in range(2))
    log_alpha = torch.zeros((), requires_grad=True)
    q_step, pi_step, alpha_step = Step(q.parameters()), Step(pi.parameters()), Step([log_alpha])
    o, next_o = torch.randn(2, work.batch_size, n_obs).unbind()
    a, r = torch.rand(work.batch_size, n_act) * 2 - 1, torch.randn(work.batch_size)
    count = 0

    def act(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        out, noise = net(x), torch.randn(len(x), n_act)
        if name != "sac":
            return (out.tanh() + 0.2 * noise.clamp(-0.5, 0.5)).clamp(-1, 1), torch.zeros(())
        mean, log_std = out.chunk(2, -1)
        u = mean + log_std.clamp(-20, 2).exp() * noise
        log_prob = (-0.5 * noise.square() - log_std).sum(-1) - 2 * (0.6931 - u - F.softplus(-2 * u)).sum(-1)
        return u.tanh(), log_prob

    def update() -> int:
        nonlocal count
        count += 1
        alpha = log_alpha.detach().exp()
        with autocast(precision), torch.no_grad():
            next_a, log_prob = act(pi if name == "sac" else pi_target, next_o)
            y = r + 0.99 * (q_target(torch.cat([next_o, next_a], -1)).amin(0) - alpha * log_prob)
        with autocast(precision):
            q_loss = 0.5 * (q(torch.cat([o, a], -1)) - y).square().mean(-1).sum()
        q_step(q_loss)
        pairs = list(zip(q_target.parameters(), q.parameters(), strict=True))
        if name != "td3" or count % 2 == 0:
            with autocast(precision):
                new_a, log_prob = act(pi, o)
                new_q = q(torch.cat([o, new_a], -1))
                pi_loss = (alpha * log_prob - (new_q.amin(0) if name == "sac" else new_q[0])).mean()
            pi_step(pi_loss)
            if name == "sac":
                alpha_step(-log_alpha * (log_prob.detach().float().mean() - n_act))
            else:
                pairs += list(zip(pi_target.parameters(), pi.parameters(), strict=True))
        if name != "td3" or count % 2 == 0:
            with torch.no_grad():
                torch._foreach_lerp_([t for t, _ in pairs], [p for _, p in pairs], 0.005)
        return 1

    return update


def cartpole_process(n: int, seconds: float, pipe: Any) -> None:
    """Send the rows per second of n CartPoles on one thread, beside the other process."""
    torch.set_num_threads(1)
    model = TwoNetworks(4, 2)
    step = collecting([gymnasium.make("CartPole-v1") for _ in range(n)], lambda x: draw(model(x.float())[0]))
    pipe.recv()
    pipe.send(per_second(step, seconds))


def gather(work: Workload, seconds: float) -> float:
    """Return rows per second of a plain gather of as many bytes: 4 frames and 4 next ones a row."""
    frames = np.zeros((REPLAY_ONLY_SIZE, 84 * 84), np.uint8) + 1
    rng = np.random.default_rng(0)

    def take() -> int:
        frames.take(rng.integers(len(frames), size=8 * work.batch_size), axis=0)
        return work.batch_size

    return per_second(take, seconds)


def gather_columns(work: Workload, seconds: float) -> float:
    """Return rows per second of plain gathers from a column each: HalfCheetah's transitions with their end and cut."""
    columns = [np.zeros((REPLAY_SIZE, n), np.float32) + 1 for n in (17, 17, 6, 1, 1, 1)]
    rng = np.random.default_rng(0)

    def take() -> int:
        rows = rng.integers(REPLAY_SIZE, size=work.batch_size)
        for column in columns:
            column.take(rows, axis=0)
        return work.batch_size

    return per_second(take, seconds)


def images(name: str, work: Workload, precision: str, seconds: float) -> tuple[float, float]:
    """Return rows per second of collection, and the seconds of all updates of a row."""
    rows = two_processes(pong_process, work, precision, seconds)
    if name == "sampling_pong":
        return rows, 0
    torch.set_num_threads(2)
    if name == "dqn_pong":
        frames = torch.randint(256, (2, work.batch_size, 4, 84, 84), dtype=torch.uint8)
        update = dqn_update(lambda: Nature(N_ACTIONS), frames, N_ACTIONS, precision)
        return rows, work.updates / (work.n_steps * work.n_envs) / per_second(update, seconds)
    model = Nature(N_ACTIONS, 1)
    batch = torch.randint(256, (work.batch_size, 4, 84, 84), dtype=torch.uint8)
    action = torch.randint(N_ACTIONS, (work.batch_size,))
    update = on_policy_update(model, clipped_loss, batch, action, precision)
    return rows, work.epochs / per_second(update, seconds)


def vectors(name: str, work: Workload, precision: str, seconds: float) -> tuple[float, float]:
    """Return rows per second of collection, and the seconds of all updates of a row, on one thread."""
    if name == "sampling_cartpole":
        return two_processes(cartpole_process, work, seconds), 0
    torch.set_num_threads(1)
    if name == "replay_pong":
        return gather(work, seconds), 0
    if name == "replay_half_cheetah":
        return gather_columns(work, seconds), 0
    cartpole = name.endswith("cartpole")
    envs = [gymnasium.make("CartPole-v1" if cartpole else "HalfCheetah-v5") for _ in range(work.n_envs)]
    n_obs, n_act = (4, 2) if cartpole else (17, 6)
    if name == "dqn_cartpole":
        q = mlp(n_obs, 64, 64, n_act)
        rows = per_second(collecting(envs, lambda x: q(x).argmax(-1).numpy()), seconds)
        batch = torch.randn(2, work.batch_size, n_obs)
        update = dqn_update(lambda: mlp(n_obs, 64, 64, n_act), batch, n_act, precision)
        return rows, work.updates / per_second(update, seconds)
    if not name.startswith("ppo"):
        policy = mlp(n_obs, 256, 256, n_act)
        rows = per_second(collecting(envs, lambda x: policy(x.float()).tanh().numpy()), seconds)
        return rows, work.updates / per_second(q_update(name.split("_")[0], work, precision), seconds)
    model = TwoNetworks(n_obs, n_act)
    batch = torch.randn(work.batch_size, n_obs)

    def choose(x: Tensor) -> np.ndarray:
        pi, _ = model(x.float())
        return draw(pi) if cartpole else (pi + torch.randn_like(pi)).clamp(-1, 1).numpy()

    rows = per_second(collecting(envs, choose), seconds)
    action = torch.randint(n_act, (work.batch_size,)) if cartpole else torch.randn(work.batch_size, n_act)
    update = on_policy_update(model, clipped_loss if cartpole else gaussian_loss, batch, action, precision)
    return rows, work.epochs / per_second(update, seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=[name for name in WORKLOADS if name != "start"])
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--setting", choices=["float32", "bfloat16"], default="float32")
    args = parser.parse_args()
    measure = images if args.workload.endswith("pong") and args.workload != "replay_pong" else vectors
    rows, updates = measure(args.workload, WORKLOADS[args.workload], args.setting, args.seconds / 2)
    print(f"NOTE collection {1e6 / rows:,.0f} us a step, updates {1e6 * updates:,.0f}")
    print(f"RESULT {1 / (1 / rows + updates):.6g}", flush=True)
