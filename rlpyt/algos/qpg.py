"""What DDPG, TD3 and SAC share: action values learned from a replay, and a policy that climbs them."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from rlpyt.algos.metrics import OptInfo, stack_metrics
from rlpyt.algos.off_policy import OffPolicyAlgo, Outputs
from rlpyt.algos.returned import update_metrics
from rlpyt.core import Metrics, QpgPolicyAgent
from rlpyt.functional import ScheduleLike, random_shift, td_target
from rlpyt.settings import Hyper
from rlpyt.types import AgentInputs, Run, Samples
from rlpyt.utils.arrays import buffer_func, buffer_leaves


@dataclass(kw_only=True, eq=False)
class QpgAlgo(OffPolicyAlgo):
    """Base of DDPG, TD3 and SAC.

        y_t = r_t + ... + discount^(n-1) r_{t+n-1} + discount^n V(s_{t+n})
        L_q = sum_i mean(0.5 * (y_t - Q_i(s_t, a_t))^2)

    A subclass says what V is, and what the policy's loss. Actions are in units of their bounds. The policy's step
    follows that of the action values, at the features from before it.
    """

    agent_kind: ClassVar[str]
    """What the agent's policy must be."""
    next_features: ClassVar[bool] = False
    """Whether V takes the features in training, beside the target's."""

    learning_rate: ScheduleLike = 1e-4
    """Of the policy."""
    q_learning_rate: ScheduleLike = 1e-3
    """Of the action values, and of the features that they share with the policy."""
    clip_grad_norm: ScheduleLike = float("inf")
    """Largest L2 norm of the gradient of the policy, and of that of all action values together."""
    target_update_tau: ScheduleLike = 0.01
    """Fraction by which the targets move at every target update; 1 copies."""
    policy_update_interval: int = 1
    """Updates of the action values between updates of the policy."""
    q_target_clip: ScheduleLike = 1e6
    """Bound of the target y."""
    random_shift: int = 0
    """Pixels by which the images of a batch are shifted at random, once an update (DrQ with K = M = 1); 0 does not."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        self.policy_update_interval = self.whole("policy_update_interval")
        self.random_shift = self.whole("random_shift", least=0)
        self.check("q_learning_rate", lambda x: 0.0 <= x < float("inf"), "a number from 0")
        self.check("q_target_clip", lambda x: x > 0.0, "above 0")
        if self.input_priorities:
            raise ValueError(
                f"{type(self).__name__}: input_priorities is True; expected False, as no action values are known when "
                "an action is taken. Leave it out."
            )

    def initialize(self, agent: Any, run: Run) -> None:
        """Build optimisers and replay; refuse an agent whose policy is of another kind."""
        if not isinstance(agent, QpgPolicyAgent) or agent.kind != self.agent_kind:
            has = f"a {agent.kind}" if isinstance(agent, QpgPolicyAgent) else "no policy with action values"
            raise TypeError(
                f"{type(self).__name__}: the agent, a {type(agent).__name__}, has {has}; expected one with a "
                f"{self.agent_kind}. DDPG goes with DdpgAgent, TD3 with Td3Agent, SAC with SacAgent, and with their "
                "recurrent forms."
            )
        super().initialize(agent, run)
        agent.explore_by(partial(_has_begun, self.min_itr_learn))
        if self.random_shift and not any(is_image(x, 1) for x in buffer_leaves(self.agent.example_inputs()[0])):
            raise ValueError(
                f"{type(self).__name__}: random_shift is {self.random_shift}, but no part of the observations is "
                "an image; expected uint8 [C, height, width]. Leave random_shift out, or wrap the environment."
            )

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimisers, one for the policy and one for the action values."""
        hyper = self.hyper(0)
        self.descents["pi"] = self.make_descent(self.agent.pi_parameters(), hyper.learning_rate)
        self.descents["q"] = self.make_descent(self.agent.q_parameters(), hyper.q_learning_rate)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """There is more than one: `self.descents[name].optimizer`, which may be set."""
        raise AttributeError(
            f"{type(self).__name__}: asked for its `optimizer`, and it has one for each of policy and action values; "
            'expected self.descents["pi"].optimizer or self.descents["q"].optimizer.'
        )

    @optimizer.setter
    def optimizer(self, optimizer: torch.optim.Optimizer | None) -> None:
        raise AttributeError(
            f"{type(self).__name__}: given an `optimizer`, and it has one for each of policy and action values; "
            'expected self.descents["pi"].optimizer or self.descents["q"].optimizer to be set.'
        )

    def optimize_agent(self, itr: int, samples: Samples) -> Metrics:
        """Store the batch, and after `min_steps_learn` take the updates that the replay ratio asks for."""
        hyper = self.hyper(itr * self.steps_per_itr)
        self.agent.train_mode(itr)
        self.append(itr, samples, hyper)
        if itr < self.min_itr_learn:
            return OptInfo()
        metrics: dict[str, list[torch.Tensor]] = defaultdict(list)
        for batch in self.update_batches():
            for name, value in self.update(batch, hyper).items():
                metrics[name].append(value)
        return stack_metrics(metrics)

    def sample_batch(self) -> Any:
        """Draw what one update learns from, with its images shifted if that is asked for."""
        batch = super().sample_batch()
        if not self.random_shift:
            return batch
        names = ["all_inputs"] if self.agent.recurrent else ["agent_inputs", "target_inputs"]
        return batch._replace(**{name: self._shifted(batch[name]) for name in names})

    def _shifted(self, inputs: AgentInputs) -> AgentInputs:
        n_leading = 2 if self.agent.recurrent else 1

        def shift(x: torch.Tensor) -> torch.Tensor:
            if not is_image(x, n_leading):
                return x
            # Of a sequence all rows are shifted alike, so that motion stays what it is.
            return random_shift(x, self.random_shift, self.generator)

        return inputs._replace(observation=buffer_func(inputs.observation, shift))

    def update(self, batch: Any, hyper: Hyper) -> dict[str, torch.Tensor]:
        """Take one step of the action values, and where they are due of the policy and the targets."""
        outputs = self.forward(batch, self.agent.features, self.agent.target_features, self.next_features)
        metrics = update_metrics(self, "update_q", self.update_q(batch, outputs, hyper))
        if self.update_counter % self.policy_update_interval == 0:
            detached = outputs.online._replace(observation=outputs.online.observation.detach())
            metrics |= update_metrics(self, "update_policy", self.update_policy(batch, detached, hyper))
        if self.update_counter % self.target_update_interval == 0:
            self.agent.update_target(hyper.target_update_tau)
        return metrics

    def update_q(self, batch: Any, outputs: Outputs, hyper: Hyper) -> dict[str, torch.Tensor]:
        """Take one step of the action values."""
        y = self.q_target(batch, outputs, hyper)
        q = self.agent.q(outputs.online, self.agent.distribution.encode(batch.action))
        delta = y - q
        losses = self.mean_loss(0.5 * delta.square(), batch)
        grad_norm = self.descents["q"](losses.sum(), hyper.q_learning_rate, hyper.clip_grad_norm)
        self.update_counter += 1
        self.update_priorities(batch, delta.detach().abs().mean(0))
        return self.q_metrics(batch, q.detach(), losses.detach(), grad_norm)

    @torch.no_grad()
    def q_target(self, batch: Any, outputs: Outputs, hyper: Hyper) -> torch.Tensor:
        """Return y, [M] or [T, M]."""
        y = td_target(batch.return_, batch.bootstrap_discount, self.next_value(outputs, hyper))
        return y.clamp(-hyper.q_target_clip, hyper.q_target_clip)

    @abstractmethod
    def next_value(self, outputs: Outputs, hyper: Hyper) -> torch.Tensor:
        """Return V of the rows that are bootstrapped from, [M] or [T, M]."""

    @abstractmethod
    def update_policy(self, batch: Any, features: AgentInputs, hyper: Hyper) -> dict[str, torch.Tensor]:
        """Take one step of the policy at rows of features without gradient; return its metrics."""

    @abstractmethod
    def q_metrics(
        self, batch: Any, q: torch.Tensor, losses: torch.Tensor, grad_norm: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the metrics of a step of the action values q [n_q, ...], whose losses are [n_q]."""


def is_image(x: torch.Tensor, n_leading: int) -> bool:
    """Return whether part of an observation is images, uint8 [C, height, width] under `n_leading` dimensions."""
    return x.dtype == torch.uint8 and x.dim() == n_leading + 3


def _has_begun(min_itr_learn: int, itr: int) -> float | None:
    return 1.0 if itr >= min_itr_learn else None
