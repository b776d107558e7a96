"""The updates of A2C and PPO once more, in float64 and row by row, from the papers alone.

Nothing of `rlpyt.functional`, of the models or of the distributions is used: the networks are written out from the
names of their parameters.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces

from rlpyt.types import Samples

Parameters = dict[str, torch.Tensor]


def mlp(p: Parameters, name: str, x: torch.Tensor, nonlinearity: Any, hidden_only: bool = False) -> torch.Tensor:
    """Linear layers with the nonlinearity between them (and after the last, where all of them are hidden)."""
    layers = sorted({int(key.split(".")[1]) for key in p if key.startswith(f"{name}.")})
    for layer in layers:
        x = x @ p[f"{name}.{layer}.weight"].T + p[f"{name}.{layer}.bias"]
        if layer != layers[-1] or hidden_only:
            x = nonlinearity(x)
    return x


def encode(action: torch.Tensor, space: Any) -> torch.Tensor:
    """An action as a network takes it: one-hot, or in units of the bounds."""
    if isinstance(space, spaces.Discrete):
        return torch.nn.functional.one_hot(action, int(space.n)).double()
    if isinstance(space, spaces.MultiDiscrete):
        parts = zip(action.unbind(-1), space.nvec.tolist(), strict=True)
        return torch.cat([torch.nn.functional.one_hot(a, n).double() for a, n in parts], -1)
    low, high = torch.as_tensor(space.low).double(), torch.as_tensor(space.high).double()
    return 2 * (action.double() - low) / (high - low) - 1


def log_prob_and_entropy(params: list[torch.Tensor], action: torch.Tensor, space: Any) -> Any:
    """Of actions [...] under the parameters that a network gave."""
    if isinstance(space, spaces.Box):
        scale = torch.as_tensor((space.high - space.low) / 2).double()
        middle = torch.as_tensor((space.high + space.low) / 2).double()
        normal = torch.distributions.Normal(middle + scale * params[0], scale * params[1].exp())
        return normal.log_prob(action.double()).sum(-1), normal.entropy().sum(-1)
    sizes = space.nvec.tolist() if isinstance(space, spaces.MultiDiscrete) else [int(space.n)]
    choices = action.reshape(*params[0].shape[:-1], len(sizes)).unbind(-1)
    parts = [torch.distributions.Categorical(logits=logits) for logits in params[0].split(sizes, -1)]
    log_prob = torch.stack([part.log_prob(choice) for part, choice in zip(parts, choices, strict=True)]).sum(0)
    return log_prob, torch.stack([part.entropy() for part in parts]).sum(0)


def rnn_step(p: Parameters, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor | None) -> Any:
    """One step of an LSTM, or of a GRU where there are no cells; x [I], h and c [H]."""
    from_x = p["core.rnn.weight_ih_l0"] @ x + p["core.rnn.bias_ih_l0"]
    from_h = p["core.rnn.weight_hh_l0"] @ h + p["core.rnn.bias_hh_l0"]
    if c is not None:
        i, f, g, o = (from_x + from_h).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    (xr, xz, xn), (hr, hz, hn) = from_x.chunk(3), from_h.chunk(3)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    return (1 - z) * (xn + r * hn).tanh() + z * h, None


def forward(p: Parameters, samples: Samples, action_space: Any, recurrent: bool) -> tuple[list[torch.Tensor], Any]:
    """Parameters of the policy and values [T, B] of the default model with tanh layers."""
    x = samples.env.observation.double()
    if recurrent:
        x = mlp(p, "trunk", x, torch.tanh, hidden_only=True)
        prev_action = encode(samples.agent.prev_action, action_space)
        x = torch.cat([x, prev_action, samples.env.prev_reward.double().unsqueeze(-1)], -1)
        x = unroll(p, x, samples)
    policy, value = mlp(p, "policy", x, torch.tanh), mlp(p, "value", x, torch.tanh)[..., 0]
    return [policy, p["log_std"].expand_as(policy)] if "log_std" in p else [policy], value


def unroll(p: Parameters, x: torch.Tensor, samples: Samples) -> torch.Tensor:
    """The recurrent layer over [T, B], environment by environment; zero state after every final row."""
    T, B = samples.env.reward.shape
    rows = []
    for b in range(B):
        first = samples.agent.agent_info.prev_rnn_state[0][b]
        h, c = first.h[0].double(), None if first.c is None else first.c[0].double()
        for t in range(T):
            if t > 0 and not samples.env.valid[t - 1, b]:
                h, c = torch.zeros_like(h), None if c is None else torch.zeros_like(c)
            h, c = rnn_step(p, x[t, b], h, c)
            rows.append(h)
    return torch.stack(rows).reshape(B, T, -1).transpose(0, 1)


def advantages(samples: Samples, discount: float, gae_lambda: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns [T, B], summed up forward from every row; NaN in rows that are not valid."""
    value = torch.cat([samples.agent.agent_info.value, samples.agent.bootstrap_value]).double()
    env, (T, B) = samples.env, samples.env.reward.shape
    advantage = torch.full((T, B), torch.nan, dtype=torch.float64)
    for t in range(T):
        for b in range(B):
            if not env.valid[t, b]:
                continue
            total, weight = 0.0, 1.0
            for k in range(t, T):
                next_value = 0.0 if env.terminated[k, b] else float(value[k + 1, b])
                total += weight * (float(env.reward[k, b]) + discount * next_value - float(value[k, b]))
                weight *= discount * gae_lambda
                if env.terminated[k, b] or env.truncated[k, b]:
                    break
            advantage[t, b] = total
    return advantage, advantage + value[:-1]


def loss(p: Parameters, samples: Samples, space: Any, recurrent: bool, ppo: bool, h: dict[str, Any]) -> torch.Tensor:
    """The loss of A2C, or that of PPO over all rows at once, with hyper-parameters h."""
    valid = samples.env.valid
    advantage, return_ = (x[valid] for x in advantages(samples, h["discount"], h["gae_lambda"]))
    if h["normalize_advantage"]:
        advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    params, value = forward(p, samples, space, recurrent)
    log_prob, entropy = (x[valid] for x in log_prob_and_entropy(params, samples.agent.action, space))
    value = value[valid]
    square = (return_ - value) ** 2
    if ppo:
        old_params = [x.double() for x in samples.agent.agent_info.dist_info]
        old_log_prob = log_prob_and_entropy(old_params, samples.agent.action, space)[0][valid]
        ratio, eps = torch.exp(log_prob - old_log_prob), h["ratio_clip"]
        pi_loss = -torch.minimum(ratio * advantage, ratio.clip(1 - eps, 1 + eps) * advantage).mean()
        if h["value_clip"] is not None:
            old = samples.agent.agent_info.value.double()[valid]
            moved = old + torch.clip(value - old, -h["value_clip"], h["value_clip"])
            square = torch.maximum(square, (return_ - moved) ** 2)
    else:
        pi_loss = -(log_prob * advantage).mean()
    return pi_loss + h["value_loss_coeff"] * 0.5 * square.mean() - h["entropy_loss_coeff"] * entropy.mean()


def sgd_step(p: Parameters, loss: torch.Tensor, learning_rate: float, clip: float) -> tuple[Parameters, float]:
    """The parameters after one step down the clipped gradient, and the gradient's norm before clipping."""
    grads = torch.autograd.grad(loss, list(p.values()), allow_unused=True)
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads if g is not None))
    scale = learning_rate * min(1.0, clip / norm)
    moved = {k: x if g is None else x - scale * g for (k, x), g in zip(p.items(), grads, strict=True)}
    return {k: x.detach().requires_grad_() for k, x in moved.items()}, norm
