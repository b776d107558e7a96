"""The updates of DDPG, TD3 and SAC once more, in float64 and row by row, from the papers alone.

A `QpgWatch` trains the library and keeps which rows every update drew; a `QpgReference` then makes the same updates,
all of them from the first weights on, and knows of the library only the names of its parameters. What is drawn at
random is drawn again from the state that the algorithm's stream had.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch

from rlpyt.algos.sac import SAC, alpha_of
from rlpyt.core import hyper_parameters
from rlpyt.types import Samples
from tests.algos.reference import Parameters, Priorities, encode, mlp, n_step, place_of, sequence_features
from tests.algos.small_problems import RandomEnv, copied, joined, optimize, set_up

SCHEDULES = ("learning_rate", "q_learning_rate", "alpha_learning_rate", "clip_grad_norm", "target_update_tau",
             "q_target_clip", "fixed_alpha", "target_entropy", "reward_scale", "discount")  # fmt: skip


def weights64(module: torch.nn.Module, prefix: str = "") -> Parameters:
    """The parameters below a prefix, without it, as float64 leaves."""
    return {
        name.removeprefix(prefix): p.detach().double().requires_grad_()
        for name, p in module.named_parameters()
        if name.startswith(prefix)
    }


def all_weights(agent: Any) -> dict[str, Parameters]:
    """Of features, policy, action values, and of their targets."""
    model, target = agent.model, agent.target_model
    return {
        "body": weights64(model, "body."),
        "pi": weights64(model, "pi."),
        "q": weights64(agent.q_model),
        "target_body": weights64(target, "body."),
        "target_pi": weights64(target, "pi."),
        "target_q": weights64(agent.target_q_model),
    }


class QpgWatch:
    """Trains, and keeps of every update what it drew, the stream's state before it, and the weights after it.

    Args:
        algo: DDPG, TD3 or SAC.
        agent: goes with it.
        n_itr: to train for.
        action_space: of the environment.
        p_end: probability that a step ends the episode.
        settings: of `set_up`.
    """

    def __init__(
        self, algo: Any, agent: Any, n_itr: int, action_space: Any, p_end: float = 0.2, **settings: Any
    ) -> None:
        self.algo, self.agent, self.n_itr = algo, agent, n_itr
        env_kwargs = dict(action_space=action_space, p_end=p_end)
        sampler = set_up(algo, agent, RandomEnv, env_kwargs, n_itr=n_itr, **settings)
        self.first = all_weights(agent)
        self.drawn: list[tuple[Any, torch.Tensor]] = []
        self.metrics: list[dict[str, float]] = []
        self.after: list[tuple[dict[str, Parameters], float]] = []
        self.itrs: list[int] = []
        self.given_update, algo.update = algo.update, self._update
        parts = []
        for itr in range(n_itr):
            parts.append(copied(sampler.obtain_samples(itr)[0]))
            optimize(algo, itr, parts[-1])
            self.itrs += [itr] * (len(self.after) - len(self.itrs))
        self.stream: Samples = joined(parts)

    def _update(self, batch: Any, hyper: Any) -> Any:
        self.drawn.append((batch, self.algo.generator.get_state()))
        metrics = self.given_update(batch, hyper)
        self.metrics.append({name: float(x) for name, x in metrics.items()})
        alpha = alpha_of(self.algo, hyper) if isinstance(self.algo, SAC) else 0.0
        self.after.append((all_weights(self.agent), float(alpha)))
        return metrics

    def places(self, i: int) -> list[tuple[int, int]]:
        """Where the rows, or the first rows of the sequences, of update i were collected."""
        batch = self.drawn[i][0]
        rows = batch.all_inputs.observation[0] if self.agent.recurrent else batch.agent_inputs.observation
        return [place_of(self.stream, row) for row in rows]


class QpgReference:
    """Takes the updates of a watched run again.

    Args:
        watch: a run that is over.
    """

    def __init__(self, watch: QpgWatch) -> None:
        self.watch, self.agent, self.stream = watch, watch.agent, watch.stream
        self.kind = next(c.__name__ for c in type(watch.algo).__mro__ if c.__name__ in ("DDPG", "TD3", "SAC"))
        self.given = hyper_parameters(watch.algo)
        self.space = watch.agent.env_spaces.action
        self.dim = math.prod(self.space.shape)
        self.w = {k: {n: p.detach().clone().requires_grad_() for n, p in ps.items()} for k, ps in watch.first.items()}
        self.log_alpha = torch.tensor(math.log(self.given.get("alpha_init", 1.0))).double().requires_grad_()
        adam = self.given["OptimCls"] is torch.optim.Adam
        OptimCls: Any = torch.optim.Adam if adam else torch.optim.SGD
        groups = {"pi": [*self.w["pi"].values()], "q": [*self.w["body"].values(), *self.w["q"].values()]}
        groups["alpha"] = [self.log_alpha]
        kwargs = self.given["optim_kwargs"]
        self.optimizers = {name: OptimCls(parameters, lr=1.0, **kwargs) for name, parameters in groups.items()}
        self.priorities = Priorities(self.settings(0), *watch.algo.batch_spec, watch.agent.recurrent)

    def settings(self, itr: int) -> Any:
        """The hyper-parameters of an iteration; a schedule is a line, "lin_0.4" to zero, "lin_0.4_0.1" to 0.1."""
        h = SimpleNamespace(**self.given, space=self.space)
        for name in SCHEDULES:
            if isinstance(value := self.given.get(name), str) and value != "auto":
                start, end = [*map(float, value.split("_")[1:]), 0.0][:2]
                setattr(h, name, start + (end - start) * itr / self.watch.n_itr)
        return h

    # ---- networks ----

    def features(self, h: Any, p: Parameters, t0: int, b: int) -> torch.Tensor:
        """Of a row, or of those of a sequence that follow its warm-up."""
        if self.agent.recurrent:
            return sequence_features(h, p, self.stream, t0, b)
        return mlp(p, "trunk", self.stream.env.observation[t0, b][None].double(), torch.relu, hidden_only=True)

    def q(self, p: Parameters, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The values [N, ...], network by network."""
        names = sorted({int(key.split(".")[2]) for key in p})
        values = []
        for i in range(len(p["mlp.layers.0.weight"])):
            y = torch.cat([x, action], -1)
            for layer in names:
                weight, bias = p[f"mlp.layers.{layer}.weight"][i], p[f"mlp.layers.{layer}.bias"][i, 0]
                if len(weight) == 1:  # of a layer normalisation
                    centred = y - y.mean(-1, keepdim=True)
                    y = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight[0] + bias
                else:
                    y = y @ weight + bias
                followed_by_norm = layer + 1 in names and len(p[f"mlp.layers.{layer + 1}.weight"][i]) == 1
                if layer != names[-1] and not followed_by_norm:
                    y = y.relu()
            values.append(y[..., 0])
        return torch.stack(values)

    def mu(self, p: Parameters, x: torch.Tensor) -> torch.Tensor:
        """A deterministic policy's actions."""
        return mlp(p, "mlp", x, torch.relu).tanh()

    def sample(self, p: Parameters, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Actions of a squashed Gaussian, log-densities, and mean and log_std."""
        mean, log_std = mlp(p, "mlp", x, torch.relu).split(self.dim, -1)
        std = log_std.clamp(-20, 2).exp()
        u = mean + std * noise
        log_normal = -((u - mean) ** 2) / (2 * std**2) - std.log() - math.log(2 * math.pi) / 2
        # d tanh(u) / du = 1 / cosh(u)^2
        return u.tanh(), (log_normal + 2 * u.cosh().log()).sum(-1), (mean, log_std)

    # ---- an update ----

    def update(self, i: int) -> tuple[dict[str, float], torch.Tensor | None]:
        """Take update i; return its metrics, and importance weights if there are any."""
        h = self.settings(self.watch.itrs[i])
        places, batch = self.watch.places(i), self.watch.drawn[i][0]
        generator = torch.Generator()
        generator.set_state(self.watch.drawn[i][1])
        rows = self._rows(h, places)
        is_weights = self.priorities.weights(h, places, self.watch.itrs[i])
        # Of all rows [.., M] that the library computes, those to train on, one after the other.
        unrolled = self.agent.recurrent
        shape = (h.batch_T, len(places)) if unrolled else (len(places),)
        pick = [(s, m) if unrolled else (m,) for s, m, *_ in rows]
        action = torch.stack([encode(self.stream.agent.action[t, b], self.space) for _, _, t, b, _ in rows])

        def draw() -> torch.Tensor:
            noise = torch.randn(*shape, self.dim, generator=generator).double()
            return torch.stack([noise[place] for place in pick])

        x = self._features_of(h, self.w["body"], places, rows, False)
        with torch.no_grad():
            next_x = self._features_of(h, self.w["body"], places, rows, True)
            target_x = self._features_of(h, self.w["target_body"], places, rows, True)
            value = self._next_value(h, next_x, target_x, draw, generator)
            ends = [(r, discount) for *_, (r, discount, _) in rows]
            y = torch.tensor([h.__dict__.get("reward_scale", 1.0) * r for r, _ in ends]).double()
            y = (y + torch.tensor([discount for _, discount in ends]).double() * value).clamp(
                -h.q_target_clip, h.q_target_clip
            )
        weight = torch.ones(len(rows)).double()
        if is_weights is not None:
            weight = torch.stack([is_weights[m] for _, m, *_ in rows])
        q = self.q(self.w["q"], x, action)
        errors = (y - q).detach().abs().mean(0)
        losses = torch.stack([(weight * 0.5 * (y - q_i) ** 2).mean() for q_i in q])
        metrics: dict[str, Any] = {"grad": self._step("q", losses.sum(), h.q_learning_rate, h.clip_grad_norm)}
        metrics |= {"q": q.detach(), "losses": losses.detach()}
        self._give_priorities(h, places, rows, errors)
        assert len(batch.action) == shape[0]
        count = i + 1
        result = self._named(metrics)
        if count % h.policy_update_interval == 0:
            result |= self._update_policy(h, x.detach(), weight, draw)
        if count % h.target_update_interval == 0:
            for name in ("body", "q", "pi"):
                for key, target in self.w[f"target_{name}"].items():
                    new = self.w[name][key].detach()
                    target.data = (1 - h.target_update_tau) * target.data + h.target_update_tau * new
        return result, is_weights

    def _rows(self, h: Any, places: list[tuple[int, int]]) -> list[Any]:
        """The rows to train on: of each its place in the batch and in the stream, and its n-step return."""
        length, first = (h.batch_T, h.warmup_T) if self.agent.recurrent else (1, 0)
        return [
            (s, m, t + first + s, b, n_step(h, self.stream, t + first + s, b))
            for s in range(length)
            for m, (t, b) in enumerate(places)
            if self.stream.env.valid[t + first + s, b]
        ]

    def _features_of(self, h: Any, p: Parameters, places: Any, rows: list[Any], ahead: bool) -> torch.Tensor:
        """Of the rows to train on, or of those that are bootstrapped from."""
        if not self.agent.recurrent:
            return torch.cat([self.features(h, p, t + (k if ahead else 0), b) for _, _, t, b, (_, _, k) in rows])
        every = [self.features(h, p, t, b) for t, b in places]
        return torch.stack([every[m][s + (k if ahead else 0)] for s, m, _, _, (_, _, k) in rows])

    def _next_value(self, h: Any, next_x: Any, target_x: Any, draw: Any, generator: Any) -> torch.Tensor:
        target_q = self.w["target_q"]
        if self.kind == "DDPG":
            return self.q(target_q, target_x, self.mu(self.w["target_pi"], target_x))[0]
        if self.kind == "TD3":
            clip = self.agent.target_noise_clip
            noise = (draw() * self.agent.target_noise_std).clamp(-clip, clip)
            action = (self.mu(self.w["target_pi"], target_x) + noise).clamp(-1, 1)
            return self.q(target_q, target_x, action).min(0).values
        action, log_prob, _ = self.sample(self.w["pi"], next_x, draw())
        q = self.q(target_q, target_x, action)
        if h.n_target_q is not None:
            q = q[torch.randperm(len(q), generator=generator)[: h.n_target_q]]
        return q.min(0).values - self.alpha(h) * log_prob

    def alpha(self, h: Any) -> float:
        """The weight of the entropy."""
        return self.log_alpha.detach().exp().item() if h.fixed_alpha is None else h.fixed_alpha

    def _update_policy(self, h: Any, x: torch.Tensor, weight: torch.Tensor, draw: Any) -> dict[str, float]:
        if self.kind != "SAC":
            q = self.q(self.w["q"], x, self.mu(self.w["pi"], x))[0]
            loss = -(weight * q).mean()
            return {"muLoss": loss.item(), "muGradNorm": self._step("pi", loss, h.learning_rate, h.clip_grad_norm)}
        action, log_prob, (mean, log_std) = self.sample(self.w["pi"], x, draw())
        q = self.q(self.w["q"], x, action)
        q = q.mean(0) if h.q_of_policy == "mean" else q.min(0).values
        prior = torch.zeros(()).double()
        if h.action_prior == "gaussian":
            prior = torch.distributions.Normal(0.0, 1.0).log_prob(action).sum(-1) + self.dim * math.log(2 * math.pi) / 2
        alpha = self.alpha(h)
        loss = (weight * (alpha * log_prob - q - prior)).mean()
        log_prob = log_prob.detach()
        norm = self._step("pi", loss, h.learning_rate, h.clip_grad_norm)
        if h.fixed_alpha is None:
            target = -float(self.dim) if h.target_entropy == "auto" else h.target_entropy
            self._step("alpha", -(weight * self.log_alpha * (log_prob + target)).mean(), h.alpha_learning_rate, 1e9)
        result = {"piLoss": loss.item(), "piGradNorm": norm, "alpha": alpha, "entropy": -log_prob.mean()}
        return {**result, "piMu": mean.mean().item(), "piLogStd": log_std.mean().item()}

    def _named(self, m: dict[str, Any]) -> dict[str, float]:
        losses, q = m["losses"], m["q"]
        if self.kind != "SAC":
            return {"qLoss": losses.sum().item(), "qGradNorm": m["grad"]}
        values = {"q1": q[0].mean(), "q2": q[-1].mean(), "qMeanDiff": (q[0] - q[-1]).abs().mean()}
        return {"q1Loss": losses[0].item(), "q2Loss": losses[-1].item(), "qGradNorm": m["grad"], **values}

    def _step(self, name: str, loss: torch.Tensor, learning_rate: float, clip: float) -> float:
        """One step of one optimiser, and the norm of the gradient."""
        group = self.optimizers[name].param_groups[0]
        grads = torch.autograd.grad(loss, group["params"])
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
        for parameter, grad in zip(group["params"], grads, strict=True):
            parameter.grad = grad * min(1.0, clip / (norm + 1e-6))
        group["lr"] = learning_rate
        self.optimizers[name].step()
        return norm

    # ---- priorities ----

    def _give_priorities(self, h: Any, places: list[tuple[int, int]], rows: list[Any], errors: torch.Tensor) -> None:
        mixed = []
        for m in range(len(places)):
            own = [float(e) for (_, n, *_), e in zip(rows, errors, strict=True) if n == m]
            eta = h.pri_eta if self.agent.recurrent else 0.0
            mixed.append(eta * max(own) + (1 - eta) * sum(own) / len(own) if own else 0.0)
        self.priorities.give(places, torch.tensor(mixed))
