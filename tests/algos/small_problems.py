"""Toy environments whose answers are known, and the shortest way from an environment to batches and updates."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.models.iqn import TauSource
from rlpyt.samplers import SerialSampler
from rlpyt.types import Run, Samples
from rlpyt.utils.arrays import buffer_func
from rlpyt.utils.compute import ComputeSettings
from tests.algos.reference import QUpdate, with_noise

Env = gymnasium.Env[Any, Any]


class RandomEnv(Env):
    """Random observations and rewards, whatever is done; ends at random, by termination, truncation or both."""

    def __init__(self, action_space: Any = None, p_end: float = 0.2) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,))
        self.action_space = deepcopy(action_space) or spaces.Discrete(3)
        self.p_end = p_end

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        ends = self.np_random.random() < self.p_end
        kind = int(self.np_random.integers(3))
        return self._observation(), float(self.np_random.normal()), ends and kind != 0, ends and kind != 1, {}

    def _observation(self) -> np.ndarray:
        return self.np_random.normal(size=3).astype(np.float32)


class Metronome(Env):
    """Reward 1 at every step; every `length` steps the episode ends, by truncation or by termination.

    The observation counts the steps of the episode; where it is truncated the count begins again, as the task goes
    on. With truncation V = 1 / (1 - discount) everywhere; with termination V(t) = (1 - discount^(length - t)) /
    (1 - discount).
    """

    def __init__(self, length: int = 5, truncates: bool = True) -> None:
        self.observation_space = spaces.Discrete(length + 1)
        self.action_space = spaces.Discrete(2)
        self.length, self.truncates, self.t = length, truncates, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.t += 1
        over = self.t == self.length
        observation = self.t % self.length if self.truncates else self.t
        return observation, 1.0, over and not self.truncates, over and self.truncates, {}


def metronome_values(length: int, truncates: bool, discount: float) -> torch.Tensor:
    """V of every observation, [length + 1] float64; NaN where it is of no consequence."""
    if truncates:
        return torch.tensor([1 / (1 - discount)] * length + [torch.nan], dtype=torch.float64)
    left = torch.arange(length, -1, -1, dtype=torch.float64)
    return ((1 - discount**left) / (1 - discount)).masked_fill(left == 0, torch.nan)


class Chain(Env):
    """Five places in a row, start in the middle: the right end pays 1, the left end 0.2; truncated after 20 steps.

    The observation is the place, one-hot. Always going right gives a return of 1 in 3 steps.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (7,))
        self.action_space = spaces.Discrete(2)
        self.place = self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.t = 3, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 1 if action else -1
        self.t += 1
        reward = {0: 0.2, 6: 1.0}.get(self.place, 0.0)
        return self._observation(), reward, reward > 0, self.t == 20, {}

    def _observation(self) -> np.ndarray:
        return np.eye(7, dtype=np.float32)[self.place]


class Cue(Env):
    """Which of two actions pays at the last step is shown at the first step only; episodes take `delay` + 1 steps."""

    def __init__(self, delay: int = 4) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,))
        self.action_space = spaces.Discrete(2)
        self.delay, self.cue, self.t = delay, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cue, self.t = int(self.np_random.integers(2)), 0
        return np.array([2 * self.cue - 1, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        over = self.t == self.delay
        self.t += 1
        asked = np.array([0, self.t == self.delay], np.float32)
        return asked, float(over and action == self.cue), over, False, {}


class Bandit(Env):
    """One step an episode; what pays is worked out by a subclass from the last observation and the action."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        self.observation_space = observation_space or spaces.Box(0, 1, (1,))
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation = self.observe()
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation, self.pay(action), True, False, {}

    def observe(self) -> Any:
        return np.ones(1, np.float32)

    def pay(self, action: Any) -> float:
        raise NotImplementedError


class ContinuousBandit(Bandit):
    """Pays most at 2.5 in bounds that are not symmetric."""

    best = 2.5

    def __init__(self) -> None:
        super().__init__(action_space=spaces.Box(np.float32(-0.1), np.float32(3.0), (1,)))

    def pay(self, action: Any) -> float:
        return -float((action[0] - self.best) ** 2)


class CompositeBandit(Bandit):
    """Pays for a choice, an aim and a nested pair of choices, of which the first has to be the one that is observed."""

    def __init__(self) -> None:
        pair = spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(1)])
        aim = spaces.Box(np.float32(-0.1), np.float32(3.0), (1,))
        super().__init__(spaces.Box(0, 1, (2,)), spaces.Dict({"move": spaces.Discrete(2), "aim": aim, "pair": pair}))

    def observe(self) -> Any:
        return np.eye(2, dtype=np.float32)[self.np_random.integers(2)]

    def pay(self, action: Any) -> float:
        choices, (flag,) = action["pair"]
        right = [action["move"] == self.observation[1], *(choices == (1, 2)), flag == 1]
        return float(np.mean(right)) - abs(float(action["aim"][0]) - 2.0)


class Spot(Bandit):
    """A 20 x 20 image with a bright square in one of four corners, and noise; pays for the number of the corner."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(0, 255, (1, 20, 20), np.uint8), spaces.Discrete(4))

    def observe(self) -> Any:
        image = self.np_random.integers(0, 100, size=(1, 20, 20), dtype=np.uint8)
        self.corner = int(self.np_random.integers(4))
        y, x = 12 * (self.corner // 2) + 2, 12 * (self.corner % 2) + 2
        image[0, y : y + 4, x : x + 4] = 255
        return image

    def pay(self, action: Any) -> float:
        return float(action == self.corner)


class ContinuousSpot(Spot):
    """`Spot` with one action in [-1, 1], which has to be -1 for the left corners and 1 for those on the right."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-1, 1, (1,))

    def pay(self, action: Any) -> float:
        return -abs(float(action[0]) - (2 * (self.corner % 2) - 1))


class TableModel(nn.Module):
    """Given values of a Discrete observation, and a trained table of logits: for policy-gradient agents."""

    def __init__(self, observation_space: Any, action_space: Any, values: Any) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(int(observation_space.n), int(action_space.n)))
        self.values = nn.Parameter(torch.as_tensor(values, dtype=torch.float32).clone(), requires_grad=False)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return self.logits[observation], self.values[observation]


class TableQModel(TableModel):
    """The same value for every action: for Q-learning agents."""

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return self.values[observation].unsqueeze(-1) + 0 * self.logits[observation]


def build(AlgoCls: Any, **hyper_parameters: Any) -> Any:
    """Call the class, past a type checker that knows better."""
    return AlgoCls(**hyper_parameters)


def set_up(
    algo: Any,
    agent: Any,
    EnvCls: Any,
    env_kwargs: Any = None,
    *,
    T: int = 8,
    B: int = 4,
    n_itr: int = 10,
    seed: int = 0,
    SamplerCls: Any = SerialSampler,
    settings: ComputeSettings | None = None,
    **sampler_kwargs: Any,
) -> Any:
    """Wire the parts as a runner does, without its log; return the sampler."""
    torch.manual_seed(seed)
    sampler = SamplerCls(EnvCls, env_kwargs or {}, T, B, **{"max_decorrelation_steps": 0, **sampler_kwargs})
    asked = dict(bootstrap_value=algo.bootstrap_value, bootstrap_inputs=algo.bootstrap_inputs)
    run = run_of(sampler, n_itr=n_itr, seed=seed, **asked)
    run = replace(run, example=sampler.initialize(agent, run), env_methods=sampler.env_methods)
    agent.to_device(settings or ComputeSettings())
    algo.initialize(agent, run)
    return sampler


def run_of(sampler: Any, **facts: Any) -> Run:
    """The facts of a run with a sampler."""
    return Run(batch_spec=sampler.batch_spec, mid_batch_reset=sampler.resets_mid_batch, **facts)


def copied(samples: Samples) -> Samples:
    """A batch in memory of its own, field by field, to change or to keep."""
    return buffer_func(samples, torch.clone)


def batches(sampler: Any, n: int) -> list[Samples]:
    """The next n batches of an agent that does not learn."""
    return [copied(sampler.obtain_samples(itr)[0]) for itr in range(n)]


def joined(parts: Sequence[Any]) -> Any:
    """Batches one after the other, as one long batch (of its bootstrap values, one row a batch)."""
    first = parts[0]
    if isinstance(first, tuple):
        make: Any = type(first)
        return make(*[None if fields[0] is None else joined(fields) for fields in zip(*parts, strict=True)])
    return torch.cat(list(parts))


def train(algo: Any, agent: Any, EnvCls: Any, env_kwargs: Any = None, *, n_itr: int, **kwargs: Any) -> list[float]:
    """Train, and return the mean return of the episodes that each iteration completed."""
    sampler = set_up(algo, agent, EnvCls, env_kwargs, n_itr=n_itr, **kwargs)
    curve = []
    try:
        for itr in range(n_itr):
            samples, infos = sampler.obtain_samples(itr)
            optimize(algo, itr, samples)
            curve.append(float(np.mean([info.Return for info in infos])) if infos else np.nan)
    finally:
        sampler.shutdown()
    return curve


def optimize(algo: Any, itr: int, samples: Samples) -> Any:
    """Let an algorithm learn from a batch as a runner does; return its metrics."""
    algo.agent.train_mode(itr)
    return algo.optimize_agent(itr, samples)


def learn_from(algo: Any, sampler: Any, n_itr: int) -> list[Any]:
    """Let an algorithm learn from the first n batches of a sampler; return the metrics of each."""
    return [optimize(algo, itr, sampler.obtain_samples(itr)[0]) for itr in range(n_itr)]


def end(curve: list[float], n: int) -> float:
    """The mean of the last n iterations."""
    return float(np.nanmean(curve[-n:]))


def shake(agent: Any, size: float = 0.2, seed: int = 1) -> None:
    """Move all parameters at random, so that the policy in training is not the one that acted."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator)


def parameters64(agent: Any) -> dict[str, torch.Tensor]:
    """The model's parameters in float64, leaves of a graph of their own."""
    return {k: p.detach().double().requires_grad_() for k, p in agent.model.named_parameters()}


def check_parameters(agent: Any, expected: dict[str, torch.Tensor], **tolerance: Any) -> None:
    """Hold the model's parameters to the expected ones."""
    for name, parameter in agent.model.named_parameters():
        torch.testing.assert_close(parameter.detach().double(), expected[name].detach(), msg=name, **tolerance)


class Watch:
    """Trains an algorithm of the deep Q family, and keeps what every update was made from and what it left behind.

    Args:
        algo: with the optimiser SGD.
        agent: goes with it.
        n_itr: to train for.
        settings: of `set_up`.
    """

    def __init__(self, algo: Any, agent: Any, n_itr: int, **settings: Any) -> None:
        self.algo, self.agent, self.updates, self.leaves = algo, agent, list[QUpdate](), list[dict[str, Any]]()
        self.given_loss, algo.loss = algo.loss, self._loss
        sampler = set_up(algo, agent, RandomEnv, n_itr=n_itr, **settings)
        collected, metrics = [], []
        for itr in range(n_itr):
            collected.append(copied(sampler.obtain_samples(itr)[0]))
            metrics.append(optimize(algo, itr, collected[-1]))
        self.stream = joined(collected)
        self.metrics = [{k: x[i] for k, x in m.items()} for m in metrics for i in range(len(m.get("loss", ())))]
        self.itrs = [itr for itr, m in enumerate(metrics) for _ in m.get("loss", ())]
        self.after = [*self.leaves[1:], parameters64(agent)]

    def _loss(self, batch: Any, hyper: Any) -> Any:
        leaves, agent = parameters64(self.agent), self.agent
        noise = [dict(model.named_buffers()) for model in agent.networks.modules()]
        target = {k: p.detach().double() for k, p in agent.target_model.named_parameters()}
        taus: list[list[torch.Tensor]] = [[], []]
        hooks = [
            part.register_forward_hook(lambda _module, _inputs, tau, drawn=drawn: drawn.append(tau))
            for model, drawn in zip(agent.networks.modules(), taus, strict=True)
            for part in model.modules()
            if isinstance(part, TauSource)
        ]
        self.leaves.append(leaves)
        self.updates.append(QUpdate(batch, with_noise(leaves, noise[0]), with_noise(target, noise[1]), *taus))
        try:
            return self.given_loss(batch, hyper)
        finally:
            for hook in hooks:
                hook.remove()
