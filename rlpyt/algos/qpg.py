"""Base of DDPG, TD3 and SAC: action values learned from a replay, and a policy that climbs them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import torch

from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.loss_after import LossAfter
from rlpyt.algos.metrics import Numbers, tensors_and_metrics
from rlpyt.algos.replay_feed import OffPolicyAlgo, ReplayFeed, Target
from rlpyt.algos.replay_rows import Outputs, for_atoms, mean_loss, mean_of_rows, run_over
from rlpyt.algos.replay_settings import ReplaySettings, has_input_priorities
from rlpyt.core import QpgPolicyAgent
from rlpyt.functional import Backup, CountLike, ScheduleLike, ValueTarget, td_target
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper, check_count
from rlpyt.types import AgentInputs, Run
from rlpyt.utils.arrays import buffer_to

QLosses = tuple[torch.Tensor, torch.Tensor, torch.Tensor] | tuple[torch.Tensor, torch.Tensor, torch.Tensor, Numbers]
"""Losses, action values, their targets, and further metrics if there are any."""
QpgT = TypeVar("QpgT", bound=QpgPolicyAgent)


class Draws(NamedTuple):
    """Random numbers of one update, drawn before it: compiled code draws none."""

    target: torch.Tensor | None = None
    """Standard normal numbers [M, A] or [T, M, A] of the actions that are bootstrapped from."""
    policy: torch.Tensor | None = None
    """Of the actions of the policy's step; None where it is not due."""
    target_q: torch.Tensor | None = None
    """Indexes of the networks of action values whose minimum is V; None of all."""


@dataclass(kw_only=True, eq=False)
class QpgAlgo(ReplaySettings, RlAlgorithm[QpgT]):
    """Base of DDPG, TD3 and SAC.

        y_t = r_t + ... + discount^(n-1) r_{t+n-1} + discount^n V(s_{t+n})
        L_q = sum_i mean(0.5 * (y_t - Q_i(s_t, a_t))^2)

    A subclass defines y and the step of the policy. Actions are in units of their bounds. The policy takes its step
    after the action values, at the features from before their step.
    """

    counted_descent: ClassVar[str] = "q"
    agent_kinds: ClassVar[tuple[str, ...]]
    """Kinds of which the agent must have one: what its policy is."""
    TargetCls: ClassVar[type[Target]] = Target
    """Says when the target networks move."""
    q_metric_names: ClassVar[Sequence[str]] = ("qLoss", "qGradNorm")
    """Metrics of a step of the action values, of those that `rlpyt.algos.qpg.q_metrics` has."""
    next_features: ClassVar[bool] = False
    """Whether V takes the features in training, beside the target's."""
    random_target = False
    """Whether V takes noise."""
    random_policy = False
    """Whether a step of the policy takes noise."""
    joint_pass = False
    """Whether one pass gives the action values of a row and of the next."""
    n_drawn_q = cast(int | None, None)
    """Number of target values that V is made of, drawn at every update; None is all."""

    learning_rate: ScheduleLike = 1e-4
    """Of the policy."""
    q_learning_rate: ScheduleLike = 1e-3
    """Of the action values, and of the features that they share with the policy."""
    clip_grad_norm: ScheduleLike = float("inf")
    """Largest L2 norm of the gradient of the policy, and of the gradient of all action values together."""
    target_update_tau: ScheduleLike = 0.01
    """Fraction by which the targets move at every target update; 1 copies."""
    policy_update_interval: CountLike = 1
    """Updates of the action values between updates of the policy, a whole number; what a schedule gives is rounded, to
    at least 1."""
    q_target_clip: ScheduleLike = 1e6
    """Bound of the target y."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "policy_update_interval")
        self.check("q_learning_rate", lambda x: 0.0 <= x < float("inf"), "a number from 0")
        self.check("q_target_clip", lambda x: x > 0.0, "above 0")
        if has_input_priorities(self):
            raise ValueError(
                f"{type(self).__name__}: input_priorities is True; expected False, as no action values are known when "
                "an action is taken. Leave it out."
            )

    def initialize(self, agent: QpgT, run: Run) -> None:
        """Build optimisers and replay; refuse an agent whose policy is of another kind."""
        if agent.kind not in self.agent_kinds:
            has = f"a {agent.kind}" if isinstance(agent, QpgPolicyAgent) else "no policy with action values"
            raise TypeError(
                f"{type(self).__name__}: the agent, a {type(agent).__name__}, has {has}; expected one with a "
                f"{' or a '.join(self.agent_kinds)}. DDPG goes with DdpgAgent, TD3 with Td3Agent, SAC with SacAgent or "
                "DiscreteSacAgent, and with their recurrent forms."
            )
        check_targets(agent, type(self).__name__, self.joint_pass)
        super().initialize(agent, run)
        self.exploration = partial(begun, self)
        agent.explore_by(self.exploration)  # before the replay is built: it lets go of an earlier start's
        self.feed: ReplayFeed = ReplayFeed(self, run)
        self.target: Target | None = self.TargetCls(self.feed) if agent.has_targets else None

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimisers, one for the policy and one for the action values."""
        self.descents.add("pi", self.agent.pi_parameters())
        self.descents.add("q", self.agent.q_parameters(), rate="q_learning_rate")

    def update(self, batch: Buffer, hyper: Hyper) -> Numbers:
        """Take one step of the action values, and where they are due of the policy and the targets."""
        policy_is_due = self.feed.is_due("policy", hyper.policy_update_interval, self.update_counter + 1)
        self.draws = draw(self, batch, policy_is_due)
        metrics, td_abs_error = self.compiled(take_steps, self, batch, hyper, policy_is_due)
        self.feed.update_priorities(batch, td_abs_error, hyper)
        if self.target is not None:
            self.target.after_update(hyper)
        return metrics

    def q_losses(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> QLosses:
        """Return the losses [n_q] of the action values, these [n_q, ...], and their target y, [M] or [T, M].

        A mapping of further metrics may follow, by name.
        """
        y = self.q_target(batch, outputs, hyper)
        return losses_of_values(
            self, batch, self.agent.q(outputs.online, self.agent.distribution.encode(batch.action)), y
        )

    @abstractmethod
    def q_target(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> torch.Tensor | ValueTarget:
        """Return y, [M] or [T, M], without gradient, or what stands for it; `bounded_target` makes it of V."""

    @abstractmethod
    def update_policy(self, batch: Buffer, features: AgentInputs, hyper: Hyper) -> Numbers:
        """Take one step of the policy at rows of features without gradient; return its metrics."""


AnyQpgAlgo = QpgAlgo[Any]
OffPolicyAlgo.register(QpgAlgo)  # type: ignore[type-abstract]


def losses_of_values(algo: AnyQpgAlgo, batch: Buffer, output: torch.Tensor, y: torch.Tensor | ValueTarget) -> QLosses:
    """Return what `QpgAlgo.q_losses` does, by outputs [n_q, ...] for action values, and y or what stands for it."""
    values = algo.agent.values
    target = y if isinstance(y, ValueTarget) else values.encode(y)
    losses = mean_loss(values.loss(output, target), batch), values.mean(output), target.value
    own = target.metrics(partial(mean_of_rows, batch=batch))
    return (*losses, own) if own else losses


def check_targets(agent: QpgPolicyAgent, who: str, joint_pass: bool) -> None:
    """Refuse batch normalisation and an agent without targets where there is no joint pass, and one of sequences."""
    if agent.has_batch_norm and not joint_pass:
        raise ValueError(
            f"{who}: the agent, a {type(agent).__name__}, has batch normalisation, whose statistics would be of one "
            "row of a transition and not of the next, so that learning diverges; expected none. Give SAC "
            'joint_pass=True, as CrossQ and XQC have it, or leave layers="batch_norm" or "xqc" out.'
        )
    if not agent.has_targets and not joint_pass:
        raise ValueError(
            f"{who}: the agent, a {type(agent).__name__}, has no target networks; expected some. Give the agent "
            "has_targets=True, or SAC joint_pass=True."
        )
    if joint_pass and agent.recurrent:
        raise ValueError(
            f"{who}(joint_pass=True): the agent, a {type(agent).__name__}, is recurrent; expected one that is not, as "
            "batch normalisation would count the rows of sequences that are not trained on. Give it SacAgent."
        )


def draw(algo: AnyQpgAlgo, batch: Buffer, policy_is_due: bool) -> Draws:
    """Return the random numbers of an update."""
    target, drawn = draw_noise(algo, batch) if algo.random_target else None, None
    if algo.n_drawn_q is not None:
        drawn = torch.randperm(algo.agent.n_q, generator=algo.generator)[: algo.n_drawn_q]
        drawn = buffer_to(drawn, algo.agent.device)
    return Draws(target, draw_noise(algo, batch) if algo.random_policy and policy_is_due else None, drawn)


def take_steps(algo: AnyQpgAlgo, batch: Buffer, hyper: Hyper, policy_is_due: bool) -> tuple[Numbers, torch.Tensor]:
    """Take the steps of an update with `algo.draws`; return its metrics, and absolute TD errors [M] or [T, M]."""
    agent = algo.agent
    networks = agent.features, None if algo.target is None else agent.target_features
    outputs = run_over(batch, agent, *networks, with_next=algo.next_features, warmup_T=int(algo.warmup_T))
    outputs = outputs._replace(noise=algo.draws.target)

    after = LossAfter(algo)
    losses, q, y, own = tensors_and_metrics(algo, "q_losses", algo.q_losses(batch, outputs, hyper), 3)
    loss = losses.sum()
    grad_norm, q = algo.gradient_step(loss, hyper), q.detach()
    metrics = {**q_metrics(algo.q_metric_names, batch, q, losses.detach(), grad_norm), **own}
    if after.is_on:  # at the features of before: those of a vector are the vector
        metrics |= after.metrics(loss, lambda: algo.q_losses(batch, outputs, hyper)[0].sum())

    if policy_is_due:
        features = outputs.online._replace(observation=outputs.online.observation.detach())
        metrics |= tensors_and_metrics(algo, "update_policy", algo.update_policy(batch, features, hyper), 0)[0]
    return metrics, (y - q).abs().mean(0)


def begun(algo: AnyQpgAlgo, itr: int) -> float | None:
    """Return 1 where learning has begun by the end of an iteration; None leaves the agent as it is."""
    return 1.0 if itr >= algo.min_itr_learn else None


def bounded_target(batch: Buffer, next_value: torch.Tensor, hyper: Hyper) -> torch.Tensor:
    """Return y of the values [M] or [T, M] of the rows that are bootstrapped from, or of atoms of them."""
    return_, discount = (for_atoms(x, next_value) for x in (batch.return_, batch.bootstrap_discount))
    y = td_target(return_, discount, next_value)
    return y.clamp(-hyper.q_target_clip, hyper.q_target_clip)


def bootstrapped(agent: QpgPolicyAgent, next_output: torch.Tensor, backup: Backup) -> torch.Tensor | ValueTarget:
    """Return y by outputs at the rows that are bootstrapped from; with a `value_head` what stands for it."""
    target = agent.values.bootstrap(next_output, backup)
    return target.value if agent.values.n_outputs is None else target


def draw_noise(algo: AnyQpgAlgo, batch: Buffer) -> torch.Tensor:
    """Return standard normal numbers [M, A] or [T, M, A] for actions at the rows of a batch."""
    noise = torch.randn(*batch.return_.shape, algo.agent.distribution.dim, generator=algo.generator)
    return noise.to(algo.agent.device, non_blocking=True)


def q_metrics(
    names: Sequence[str], batch: Buffer, q: torch.Tensor, losses: torch.Tensor, grad_norm: torch.Tensor
) -> Numbers:
    """Return metrics of a step of action values q [n_q, ...], whose losses are [n_q], by name."""
    q1, q2 = q[0], q[-1]
    made = {
        "qLoss": lambda: losses.sum(),
        "q1Loss": lambda: losses[0],
        "q2Loss": lambda: losses[-1],
        "qGradNorm": lambda: grad_norm,
        "q1": lambda: mean_of_rows(q1, batch),
        "q2": lambda: mean_of_rows(q2, batch),
        "qMeanDiff": lambda: mean_of_rows((q1 - q2).abs(), batch),
    }
    return {name: made[name]() for name in names}
