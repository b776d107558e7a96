"""The updates of A2C, PPO, V-trace and the deep Q family once more, in float64, row by row, from the papers alone.

Nothing of `rlpyt.functional`, of the models or of the distributions is used: the networks are written out from the
names of their parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from gymnasium import spaces

from rlpyt.core import hyper_parameters
from rlpyt.types import Samples

Parameters = dict[str, torch.Tensor]


def mlp(p: Parameters, name: str, x: torch.Tensor, nonlinearity: Any, hidden_only: bool = False) -> torch.Tensor:
    """Linear layers with the nonlinearity between them (and after the last, where all of them are hidden)."""
    layers = sorted({int(key.removeprefix(f"{name}.").split(".")[0]) for key in p if key.startswith(f"{name}.")})
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


def loss(
    p: Parameters, samples: Samples, space: Any, recurrent: bool, ppo: bool, h: dict[str, Any]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of A2C, or that of PPO over all rows at once, with hyper-parameters h, and its terms."""
    valid = samples.env.valid
    advantage, return_ = (x[valid] for x in advantages(samples, h["discount"], h["gae_lambda"]))
    if h["normalize_advantage"]:
        advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    params, value = forward(p, samples, space, recurrent)
    log_prob, entropy = (x[valid] for x in log_prob_and_entropy(params, samples.agent.action, space))
    value, old = value[valid], samples.agent.agent_info.value.double()[valid]
    square = (return_ - value) ** 2
    terms = {
        "entropy": entropy.mean(),
        "perplexity": entropy.exp().mean(),
        "explainedVariance": 1 - (return_ - old).var(correction=0) / return_.var(correction=0),
    }
    if ppo:
        old_params = [x.double() for x in samples.agent.agent_info.dist_info]
        old_log_prob = log_prob_and_entropy(old_params, samples.agent.action, space)[0][valid]
        ratio, eps = torch.exp(log_prob - old_log_prob), h["ratio_clip"]
        pi_loss = -torch.minimum(ratio * advantage, ratio.clip(1 - eps, 1 + eps) * advantage).mean()
        terms |= {"kl": (ratio - 1 - ratio.log()).mean(), "clipFraction": ((ratio - 1).abs() > eps).double().mean()}
        if h["value_clip"] is not None:
            moved = old + torch.clip(value - old, -h["value_clip"], h["value_clip"])
            square = torch.maximum(square, (return_ - moved) ** 2)
    else:
        pi_loss = -(log_prob * advantage).mean()
    v_loss = 0.5 * square.mean()
    total = pi_loss + h["value_loss_coeff"] * v_loss - h["entropy_loss_coeff"] * terms["entropy"]
    return total, {**terms, "valueLoss": v_loss}


def with_the_row_after(samples: Samples) -> Samples:
    """The batch with one row more, of which only what the agent sees has a meaning."""
    after, env, agent = samples.agent.bootstrap_inputs, samples.env, samples.agent
    env = env._replace(
        observation=torch.cat([env.observation, after.observation]),
        prev_reward=torch.cat([env.prev_reward, after.prev_reward]),
        reward=torch.cat([env.reward, env.reward[-1:]]),
    )
    return samples._replace(
        env=env, agent=agent._replace(prev_action=torch.cat([agent.prev_action, after.prev_action]))
    )


def v_trace_loss(
    p: Parameters, samples: Samples, space: Any, recurrent: bool, h: dict[str, Any]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of V-trace and its terms: equation 1 backward, as in remark 1, with h["gae_lambda"] of remark 2."""
    env, (T, B) = samples.env, samples.env.reward.shape
    params, values = forward(p, with_the_row_after(samples), space, recurrent)
    log_prob, entropy = log_prob_and_entropy([x[:-1] for x in params], samples.agent.action, space)
    old_params = [x.double() for x in samples.agent.agent_info.dist_info]
    old_log_prob, _ = log_prob_and_entropy(old_params, samples.agent.action, space)
    ratio, V = torch.exp(log_prob - old_log_prob).detach(), values.detach()
    target, advantage = (torch.full((T, B), torch.nan, dtype=torch.float64) for _ in range(2))
    for b in range(B):
        for t in reversed(range(T)):
            if not env.valid[t, b]:
                continue
            done = bool(env.terminated[t, b] or env.truncated[t, b])
            last, after = done or t == T - 1, 0.0 if env.terminated[t, b] else float(V[t + 1, b])
            rho, c = min(h["rho_bar"], float(ratio[t, b])), min(h["c_bar"], float(ratio[t, b]))
            correction = 0.0 if last else float(target[t + 1, b] - V[t + 1, b])
            reward, now = float(env.reward[t, b]), float(V[t, b])
            delta = rho * (reward + h["discount"] * after - now)
            target[t, b] = now + delta + h["discount"] * h["gae_lambda"] * c * correction
            advantage[t, b] = reward + h["discount"] * (after + h["gae_lambda"] * correction) - now
    valid = env.valid
    advantage, ratio, V = advantage[valid], ratio[valid], V[:-1][valid]
    if h["normalize_advantage"]:
        advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    weight = ratio.clip(max=h["pg_rho_bar"])
    pi_loss = -(log_prob[valid] * weight * advantage).mean()
    v_loss, mean_entropy = 0.5 * ((target[valid] - values[:-1][valid]) ** 2).mean(), entropy[valid].mean()
    return pi_loss + h["value_loss_coeff"] * v_loss - h["entropy_loss_coeff"] * mean_entropy, {
        "valueLoss": v_loss,
        "entropy": mean_entropy,
        "perplexity": entropy[valid].exp().mean(),
        "rho": ratio.clip(max=h["rho_bar"]).mean(),
        "rhoClipped": (ratio > h["rho_bar"]).double().mean(),
        "kl": (ratio - 1 - ratio.log()).mean(),
        "explainedVariance": 1 - (target[valid] - V).var(correction=0) / target[valid].var(correction=0),
    }


def sgd_step(p: Parameters, loss: torch.Tensor, learning_rate: float, clip: float) -> tuple[Parameters, float]:
    """The parameters after one step down the clipped gradient, and the gradient's norm before clipping."""
    grads = torch.autograd.grad(loss, list(p.values()), allow_unused=True)
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads if g is not None))
    scale = learning_rate * min(1.0, clip / norm)
    moved = {k: x if g is None else x - scale * g for (k, x), g in zip(p.items(), grads, strict=True)}
    return {k: x.detach().requires_grad_() for k, x in moved.items()}, norm


# ---- the deep Q family: every network gives [.., A, N], N = 1 for plain Q-values ----


class QUpdate(NamedTuple):
    """What an update of the deep Q family was made from, as it was before the update."""

    batch: Any
    online: Parameters
    target: Parameters
    online_taus: list[torch.Tensor]
    """Fractions that the network drew, one tensor a forward pass."""
    target_taus: list[torch.Tensor]


def with_noise(p: Parameters, noise: Mapping[str, torch.Tensor]) -> Parameters:
    """The weights that noisy layers act as, as functions of their parameters: mu + sigma * noise."""
    acting = dict(p)
    for name in [key.removesuffix("weight_sigma") for key in p if key.endswith("weight_sigma")]:
        out, into = noise[f"{name}output_noise"].double(), noise[f"{name}input_noise"].double()
        acting[f"{name}weight"] = p[f"{name}weight"] + p[f"{name}weight_sigma"] * torch.outer(out, into)
        acting[f"{name}bias"] = p[f"{name}bias"] + p[f"{name}bias_sigma"] * out
        del acting[f"{name}weight_sigma"], acting[f"{name}bias_sigma"]
    return acting


def q_head(p: Parameters, x: torch.Tensor, n_actions: int) -> torch.Tensor:
    """What the head gives of features [.., F], [.., A, N]."""
    if "head.value.0.weight" not in p:
        return mlp(p, "head.q", x, torch.relu).unflatten(-1, (n_actions, -1))
    scale = 2**-0.5  # of the gradient alone
    x = scale * x + (1 - scale) * x.detach()
    value = mlp(p, "head.value", x, torch.relu).unsqueeze(-2)
    hidden = mlp(p, "head.advantage_hidden", x, torch.relu, hidden_only=True)
    advantage = hidden @ p["head.advantage.weight"].T + p.get("head.advantage.bias", torch.zeros(()).double())
    advantage = advantage.unflatten(-1, (n_actions, -1))
    return value + advantage - advantage.mean(-2, keepdim=True)


def q_output(p: Parameters, x: torch.Tensor, n_actions: int, tau: torch.Tensor | None) -> torch.Tensor:
    """What a network gives of features [.., F], [.., A, N]; of IQN at the fractions tau [.., N]."""
    if tau is None:
        return q_head(p, x, n_actions)
    i = torch.arange(p["embedding.0.weight"].shape[1]).double()
    phi = mlp(p, "embedding", (math.pi * i * tau.double().unsqueeze(-1)).cos(), torch.relu, hidden_only=True)
    return q_head(p, x.unsqueeze(-2) * phi, n_actions).squeeze(-1).transpose(-1, -2)


def atoms(h: Any, N: int) -> torch.Tensor:
    """Where the atoms of a categorical distribution stand."""
    return h.V_min + (h.V_max - h.V_min) * torch.arange(N).double() / (N - 1)


def mean_q(h: Any, output: torch.Tensor) -> torch.Tensor:
    """The Q-values [.., A] of [.., A, N]."""
    if h.agent_kind == "categorical":
        return (output.softmax(-1) * atoms(h, output.shape[-1])).sum(-1)
    return output.mean(-1)


def n_step(h: Any, stream: Samples, t: int, b: int) -> tuple[float, float, int]:
    """Return, discount of the bootstrap (0 after termination) and steps to its row, from the rows as collected."""
    total, env = 0.0, stream.env
    for k in range(h.n_step_return):
        total += h.discount**k * float(env.reward[t + k, b])
        if env.terminated[t + k, b]:
            return total, 0.0, k + 1
        if env.truncated[t + k, b]:
            break
    return total, h.discount ** (k + 1), k + 1


def backup(h: Any, return_: float, discount: float, x: torch.Tensor) -> torch.Tensor:
    """The target of values x, on the network's scale."""
    eps = h.value_scale_eps
    if eps is None:
        return return_ + discount * x
    raw = x.sign() * ((((1 + 4 * eps * (x.abs() + 1 + eps)).sqrt() - 1) / (2 * eps)).square() - 1)
    y = return_ + discount * raw
    return y.sign() * ((y.abs() + 1).sqrt() - 1) + eps * y


def huber(u: torch.Tensor, clip: float | None) -> torch.Tensor:
    """The square, or from clip on a line."""
    return u**2 / 2 if clip is None else torch.where(u.abs() <= clip, u**2 / 2, clip * (u.abs() - clip / 2))


def q_row_loss(
    h: Any, now: torch.Tensor, tau: torch.Tensor | None, target: torch.Tensor, return_: float, discount: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and error of one row from what stands for its action, [N], and for the best next action, [M]."""
    N, target = len(now), target.detach()
    if h.agent_kind == "categorical":
        place = (backup(h, return_, discount, atoms(h, N)).clip(h.V_min, h.V_max) - h.V_min) / (h.V_max - h.V_min)
        near = (1 - (place * (N - 1) - torch.arange(N)[:, None]).abs()).clip(min=0)  # of atom i to target atom j
        p, log_p = near @ target.softmax(-1), now.log_softmax(-1)
        return -(p * log_p).sum(), (torch.special.xlogy(p, p) - p * log_p).sum().detach()
    y = backup(h, return_, discount, target)
    if h.agent_kind == "q":
        return huber(y - now, h.delta_clip)[0], (y - now)[0].detach().abs()
    tau = (torch.arange(N) + 0.5).double() / N if tau is None else tau.double()
    total = torch.zeros(()).double()
    for i in range(N):
        u = y - now[i]
        size = u.abs() if h.delta_clip is None else huber(u, h.delta_clip) / h.delta_clip
        total = total + (torch.where(u < 0, 1 - tau[i], tau[i]) * size).mean()
    return total, (y.mean() - now.mean()).detach().abs()


def place_of(stream: Samples, observation: torch.Tensor) -> tuple[int, int]:
    """Where an observation, which comes only once, was collected."""
    ((t, b),) = (stream.env.observation == observation).all(-1).nonzero().tolist()
    return t, b


def transition_losses(h: Any, u: QUpdate, stream: Samples) -> tuple[list[Any], torch.Tensor, torch.Tensor]:
    """Places, losses [M] and errors [M] of the transitions drawn."""
    places, losses = [], []
    for m, observation in enumerate(u.batch.agent_inputs.observation):
        t, b = place_of(stream, observation)
        assert stream.env.valid[t, b]
        return_, discount, k = n_step(h, stream, t, b)

        def output(p: Parameters, row: int, taus: list[torch.Tensor], i: int, b: int = b, m: int = m) -> Any:
            tau = taus[i][m] if taus else None
            x = mlp(p, "trunk", stream.env.observation[row, b].double(), torch.relu, hidden_only=True)
            return q_output(p, x, h.n_actions, tau), tau

        now, tau = output(u.online, t, u.online_taus, 0)
        target, _ = output(u.target, t + k, u.target_taus, 0)
        chooser = output(u.online, t + k, u.online_taus, 1)[0] if h.double_dqn else target
        best = int(mean_q(h, chooser).argmax())
        places.append((t, b))
        losses.append(q_row_loss(h, now[stream.agent.action[t, b]], tau, target[best], return_, discount))
    return places, torch.stack([x for x, _ in losses]), torch.stack([x for _, x in losses])


def sequence_features(h: Any, p: Parameters, stream: Samples, t0: int, b: int) -> torch.Tensor:
    """What the recurrent layer gives after the warm-up, [batch_T + n, H], unrolled from the state of the actor."""
    rows = slice(t0, t0 + h.warmup_T + h.batch_T + h.n_step_return)
    x = mlp(p, "trunk", stream.env.observation[rows, b].double(), torch.relu, hidden_only=True)
    prev_action = encode(stream.agent.prev_action[rows, b], h.space)
    x = torch.cat([x, prev_action, stream.env.prev_reward[rows, b, None].double()], -1)
    rnn = stream.agent.agent_info.prev_rnn_state
    state = rnn.h[t0, b, 0].double()
    cells = None if rnn.c is None else rnn.c[t0, b, 0].double()
    if not h.store_rnn_state_interval:
        state, cells = torch.zeros_like(state), None if cells is None else torch.zeros_like(cells)
    outputs = []
    for r in range(len(x)):
        if r and stream.env.valid[t0 + r, b] and not stream.env.valid[t0 + r - 1, b]:
            state, cells = torch.zeros_like(state), None if cells is None else torch.zeros_like(cells)
        if r == h.warmup_T:
            state, cells = state.detach(), None if cells is None else cells.detach()
        state, cells = rnn_step(p, x[r], state, cells)
        outputs.append(state)
    return torch.stack(outputs[h.warmup_T :])


def sequence_losses(h: Any, u: QUpdate, stream: Samples) -> tuple[list[Any], torch.Tensor, torch.Tensor]:
    """Places, losses and errors [batch_T, M] of the sequences drawn; NaN in rows that are not trained on."""
    observation, i = u.batch.all_inputs.observation, int(h.warmup_T > 0)
    places = [place_of(stream, first) for first in observation[0]]
    losses = torch.full((h.batch_T, len(places)), torch.nan).double()
    errors = losses.clone()
    for m, (t0, b) in enumerate(places):
        assert torch.equal(observation[:, m], stream.env.observation[t0 : t0 + len(observation), b])
        taus = [x[i][:, m] if x else None for x in (u.online_taus, u.target_taus)]
        online, target = (
            q_output(p, sequence_features(h, p, stream, t0, b), h.n_actions, tau)
            for p, tau in zip((u.online, u.target), taus, strict=True)
        )
        greedy = mean_q(h, online if h.double_dqn else target).argmax(-1)
        for s in range(h.batch_T):
            t = t0 + h.warmup_T + s
            if not stream.env.valid[t, b]:
                continue
            return_, discount, k = n_step(h, stream, t, b)
            tau = None if taus[0] is None else taus[0][s]
            now = online[s][stream.agent.action[t, b]]
            losses[s, m], errors[s, m] = q_row_loss(h, now, tau, target[s + k][greedy[s + k]], return_, discount)
    return places, losses, errors


class Priorities:
    """What a prioritised replay knows: what was given, and of the rest the largest when it came into reach.

    Args:
        h: hyper-parameters.
        batch_T: time steps of a batch of the sampler.
        B: its environments.
        recurrent: whether places are of sequences.
    """

    def __init__(self, h: Any, batch_T: int, B: int, recurrent: bool) -> None:
        self.batch_T, self.size = batch_T, batch_T * B
        self.rows_after = h.n_step_return + (h.warmup_T + h.batch_T - 1 if recurrent else 0)
        self.given: dict[tuple[int, int], float] = {}
        self.now, self.largest = 1.0, list[float]()
        """Largest priority now, and before the updates of every iteration."""

    def weights(self, h: Any, places: list[tuple[int, int]], itr: int) -> torch.Tensor | None:
        """The importance weights of a draw."""
        self.largest += [self.now] * (itr + 1 - len(self.largest))
        if not h.prioritized_replay:
            return None
        share = min(1.0, itr * self.size / h.pri_beta_steps)
        beta = h.pri_beta_init + share * (h.pri_beta_final - h.pri_beta_init)
        of_new = [self.largest[(t + self.rows_after) // self.batch_T] for t, _ in places]
        p = torch.tensor([self.given.get(place, x) for place, x in zip(places, of_new, strict=True)]).double()
        p = p**h.pri_alpha
        return (p.min() / p) ** beta

    def give(self, places: list[tuple[int, int]], priorities: torch.Tensor) -> None:
        """Take over the priorities of an update; of a place drawn twice the last counts."""
        self.given.update(zip(places, priorities.clip(min=1e-6).tolist(), strict=True))
        self.now = max(self.now, float(priorities.max()))


def settings_of(algo: Any, n_actions: int, **changes: Any) -> Any:
    """The hyper-parameters of an algorithm, some of them changed."""
    own = {"agent_kind": algo.agent_kind, "n_actions": n_actions, "space": spaces.Discrete(n_actions)}
    return SimpleNamespace(**{**hyper_parameters(algo), **own, **changes})
