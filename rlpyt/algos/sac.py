"""Soft actor-critic from a replay, feed-forward or recurrent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import torch

from rlpyt.algos.metrics import Numbers
from rlpyt.algos.qpg import QLosses, QpgAlgo, bootstrapped, bounded_target, losses_of_values
from rlpyt.algos.replay_rows import Outputs, for_atoms, legal_at_rows, log_policy, mean_loss, mean_of_rows
from rlpyt.core import ChoiceAgent, QpgPolicyAgent
from rlpyt.functional import (
    CountLike,
    ScheduleLike,
    ValueTarget,
    clipped_double_q,
    expected_soft_value,
    soft_policy_loss,
    soft_value,
    temperature_loss,
)
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper, whole
from rlpyt.types import AgentInputs, Run

Q_POLICIES = ("min", "mean")


@dataclass(kw_only=True, eq=False)
class SAC(QpgAlgo[QpgPolicyAgent]):
    """Soft actor-critic; for agents such as `SacAgent`, and `DiscreteSacAgent` where actions are discrete.

        V(s) = min_i Q_target,i(s, a) - alpha log pi(a | s),    a ~ pi(s)
        L_pi = mean(alpha log pi(a | s_t) - min_i Q_i(s_t, a)),    a ~ pi(s_t)
        L_alpha = -log alpha * mean(log pi(a | s_t) + target_entropy)

    Densities are of actions in units of their bounds. An n-step return has no entropy of the rows between. Where
    actions are discrete, means over all of them by their probabilities stand in the place of drawn ones.

    REDQ is `n_q=10` of the agent with `n_target_q=2, q_of_policy="mean", replay_ratio=20 * batch_size,
    policy_update_interval=20`; DroQ is `q_model_kwargs=dict(dropout=0.01, layer_norm=True)` of the agent with
    `q_of_policy="mean", replay_ratio=20 * batch_size, policy_update_interval=20`. CrossQ is `joint_pass=True,
    policy_update_interval=3, optim_kwargs=dict(betas=(0.5, 0.999))` with learning rates of 1e-3, and of the agent
    `has_targets=False` with `layers="batch_norm"` in `model_kwargs` and `q_model_kwargs`. XQC is `joint_pass=True,
    policy_update_interval=3, normalize_reward=True` with `layers="xqc"` there and `value_head="c51:-5,5,101"`.

    Sources: Haarnoja et al. 2018, arXiv:1812.05905; REDQ Chen et al. 2021, arXiv:2101.05982; DroQ Hiraoka et al. 2022,
    arXiv:2110.02034; CrossQ Bhatt et al. 2024, arXiv:1902.05605; XQC Palenicek et al. 2025, arXiv:2509.25174; discrete
    actions Christodoulou 2019, arXiv:1910.07207.
    """

    opt_info_fields: ClassVar[tuple[str, ...]] = (
        *("q1Loss", "q2Loss", "piLoss", "qGradNorm", "piGradNorm"),
        *("q1", "q2", "piMu", "piLogStd", "qMeanDiff", "alpha", "entropy"),
    )
    agent_kinds: ClassVar[tuple[str, ...]] = ("squashed Gaussian policy", ChoiceAgent.kind)
    q_metric_names: ClassVar[Sequence[str]] = ("q1Loss", "q2Loss", "qGradNorm", "q1", "q2", "qMeanDiff")
    next_features: ClassVar[bool] = True

    batch_size: CountLike = 256
    min_steps_learn: int = int(1e4)
    replay_ratio: ScheduleLike = 256.0
    learning_rate: ScheduleLike = 3e-4
    q_learning_rate: ScheduleLike = 3e-4
    alpha_learning_rate: ScheduleLike = 3e-4
    """Of log alpha."""
    target_update_tau: ScheduleLike = 0.005
    fixed_alpha: ScheduleLike | None = None
    """Weight of the entropy, from 0; None learns it. A run that begins with a number or a schedule keeps to one."""
    target_entropy: ScheduleLike = "auto"
    """Of the policy, in nats, where alpha is learned; "auto" is -1 for every dimension of the actions whose
    bounds differ. Where actions are discrete it is a fraction, from 0 to 1, of the largest entropy, which is the log of
    the number of legal actions at a row; "auto" is 0.3."""
    alpha_init: float = 1.0
    """Where alpha starts from, above 0, where it is learned; so it cannot change during the run."""
    action_prior: str = "uniform"
    """"uniform", or "gaussian", whose log-density N(a; 0, I) is added to what the policy climbs."""
    reward_scale: ScheduleLike = 1.0
    """Factor of the rewards."""
    n_target_q: int | None = None
    """Number of action values whose minimum is V, drawn at every update; None is all."""
    joint_pass: bool = False
    """Whether one forward pass gives action values of rows and of the rows that are bootstrapped from, so that batch
    normalisation takes the statistics of both. Those bootstrapped from are of targets, by a joint pass of their own
    (XQC), or of the weights that are trained where the agent has no targets (CrossQ)."""
    q_of_policy: str = "min"
    """Of all action values, what the policy climbs: "min", or "mean" as in REDQ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("alpha_learning_rate", lambda x: 0.0 <= x < float("inf"), "a number from 0")
        self.check("fixed_alpha", lambda x: x >= 0.0, "a number from 0 (None to learn it)")
        self.check("alpha_init", lambda x: 0.0 < x < float("inf"), "above 0")
        self.check("reward_scale", lambda x: 0.0 < x < float("inf"), "above 0")
        self.check("target_entropy", lambda x: abs(x) < float("inf"), 'a finite number or "auto"')
        if self.fixed_alpha is not None and (self.target_entropy != "auto" or self.alpha_init != 1.0):
            raise ValueError(
                f"{type(self).__name__}: target_entropy is {self.target_entropy!r} and alpha_init {self.alpha_init}, "
                f"but fixed_alpha {self.fixed_alpha} is not learned; expected one or the other. Leave out what is not "
                "meant."
            )
        if self.n_target_q is not None:
            whole(self, "n_target_q")
        for name, values in dict(q_of_policy=Q_POLICIES, action_prior=("uniform", "gaussian")).items():
            if getattr(self, name) not in values:
                raise ValueError(f"{type(self).__name__}: {name} is {getattr(self, name)!r}; expected one of {values}.")

    def initialize(self, agent: QpgPolicyAgent, run: Run) -> None:
        """Build optimisers and replay; refuse more target values than there are."""
        discrete = agent.kind == ChoiceAgent.kind
        self.actions = AllActions(self, agent) if discrete else SampledActions(self, agent)
        self.random_target = self.random_policy = not discrete
        names = type(self).opt_info_fields
        if discrete:
            names = tuple(name for name in names if name not in SampledActions.metrics)
        self.opt_info_fields = names  # type: ignore[misc]  # those of this agent's policy
        super().initialize(agent, run)
        self.n_drawn_q = None if self.n_target_q is None else int(self.n_target_q)
        if self.n_target_q is not None and self.n_target_q > agent.n_q:
            raise ValueError(
                f"{type(self).__name__}: n_target_q is {self.n_target_q} of the agent's {agent.n_q} networks of action "
                "values; expected at most as many. Lower it, or raise n_q of the agent."
            )

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimisers, one more for log alpha if it is learned."""
        super().optim_initialize(rank)
        log_alpha = torch.tensor(math.log(self.alpha_init), device=self.agent.device)
        self.log_alpha = torch.nn.Parameter(log_alpha, requires_grad=self.fixed_alpha is None)
        self.descents.kept["log_alpha"] = self.log_alpha
        if self.fixed_alpha is None:
            # Weight decay would move alpha to 1.
            self.descents.add("alpha", [{"params": [self.log_alpha], "weight_decay": 0.0}], rate="alpha_learning_rate")

    def schedule_of(self, name: str) -> ScheduleLike | None:
        """Return the given schedule, or for a target entropy of "auto" the number of this action space."""
        if name == "target_entropy" and self.target_entropy == "auto":
            return self.actions.auto_entropy if "agent" in vars(self) else 0.0
        return super().schedule_of(name)

    def q_losses(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> QLosses:
        """Return losses, action values and y; with `joint_pass` the values of both rows come from one pass."""
        if not self.joint_pass:
            return super().q_losses(batch, outputs, hyper)
        agent = self.agent
        with torch.no_grad(), agent.evaluating(pi=True):
            next_action, log_prob, _ = act(agent, outputs.next_online, outputs.noise)
        actions = torch.cat([agent.distribution.encode(batch.action), next_action])
        output, next_output = agent.q(joined(outputs.online, outputs.next_online), actions).chunk(2, dim=1)
        if agent.has_targets:
            rows = joined(agent.target_features(*batch.agent_inputs), outputs.next_target)
            _, next_output = agent.target_q(rows, actions).chunk(2, dim=1)
        return losses_of_values(self, batch, output, soft_target(self, batch, next_output, log_prob, hyper))

    def q_target(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> torch.Tensor | ValueTarget:
        """Return y by the smallest target value of actions of the policy, its entropy, and the scaled rewards."""
        return self.actions.target(batch, outputs, hyper)

    def update_policy(self, batch: Buffer, features: AgentInputs, hyper: Hyper) -> Numbers:
        """Climb the action values and the entropy; move alpha to where the entropy is the target's."""
        # Values of other actions than those of the replay: a joint pass does not take in their statistics.
        with self.agent.evaluating(q=True) if self.joint_pass else nullcontext():
            step = self.actions.policy_step(batch, features, hyper)
        loss, alpha = step.loss, alpha_of(self, hyper)
        grad_norm = self.descents.step("pi", loss, hyper)
        log_prob = step.log_prob.detach()
        if hyper.fixed_alpha is None:
            entropy_gap = mean_loss(log_prob + step.target_entropy, batch)
            alpha_loss = temperature_loss(self.log_alpha, entropy_gap)
            self.descents["alpha"](alpha_loss, hyper.alpha_learning_rate, float("inf"))
        return {
            "piLoss": loss.detach(),
            "piGradNorm": grad_norm,
            **step.metrics,
            "alpha": torch.zeros_like(loss.detach()) + alpha,
            "entropy": -mean_of_rows(log_prob, batch),
        }


# ---- actions of the policy: samples of it, or all of them ----


class PolicyStep(NamedTuple):
    """What a step of the policy, and of alpha, is computed from."""

    loss: torch.Tensor
    """Of the policy, with gradient."""
    log_prob: torch.Tensor
    """Of each row, [M] or [T, M]: log-density of its action, or minus the entropy."""
    target_entropy: float | torch.Tensor
    """In nats; of each row where actions are discrete."""
    metrics: Numbers
    """What this kind of policy has beside."""


class SampledActions:
    """Samples of a continuous policy, one for each row, by which SAC computes soft values and the policy's loss."""

    metrics: ClassVar[tuple[str, ...]] = ("piMu", "piLogStd")

    def __init__(self, algo: SAC, agent: QpgPolicyAgent) -> None:
        self._algo, self._agent = algo, agent

    @property
    def auto_entropy(self) -> float:
        """-1 for every dimension of the actions whose bounds differ."""
        return -float(self._agent.distribution.n_free)

    @torch.no_grad()
    def target(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> torch.Tensor | ValueTarget:
        """Return y, [M] or [T, M], or what stands for it; see `QpgAlgo.q_target`."""
        action, log_prob, _ = act(self._agent, outputs.next_online, outputs.noise)
        return soft_target(self._algo, batch, self._agent.target_q(outputs.next_target, action), log_prob, hyper)

    def policy_step(self, batch: Buffer, features: AgentInputs, hyper: Hyper) -> PolicyStep:
        """Return loss and entropy at rows of features, and the means of what a Gaussian policy gives."""
        algo, values = self._algo, self._agent.values
        action, log_prob, dist_info = act(self._agent, features, algo.draws.policy)
        q = q_of_policy(algo, values.mean(self._agent.q(features, action)))
        if algo.action_prior == "gaussian":
            q = q - 0.5 * action.square().sum(-1)  # log N(a; 0, I) but for a constant
        loss = mean_loss(soft_policy_loss(q, log_prob, alpha_of(algo, hyper)), batch)
        means = (mean_of_rows(x.detach().mean(-1), batch) for x in (dist_info.mean, dist_info.log_std))
        return PolicyStep(loss, log_prob, hyper.target_entropy, dict(zip(self.metrics, means, strict=True)))


class AllActions:
    """All actions of a discrete policy, whose means by their probabilities stand in the place of samples.

    Source: Christodoulou 2019, arXiv:1910.07207.

    Raises:
        ValueError: if a setting has no meaning for discrete actions.
    """

    auto_entropy = 0.3  # of the largest entropy

    def __init__(self, algo: SAC, agent: QpgPolicyAgent) -> None:
        self._algo, self._agent = algo, cast(ChoiceAgent, agent)  # by its kind, which has been checked
        if algo.joint_pass or algo.action_prior != "uniform":
            given = "joint_pass is True" if algo.joint_pass else f"action_prior is {algo.action_prior!r}"
            raise ValueError(
                f"{type(algo).__name__}: {given}, and the actions are discrete; expected the default. Leave it out."
            )
        if algo.target_entropy != "auto":
            algo.check("target_entropy", lambda x: 0.0 <= x <= 1.0, "a fraction of the largest entropy, in [0, 1]")

    @torch.no_grad()
    def target(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> torch.Tensor | ValueTarget:
        """Return y, [M] or [T, M], or what stands for it; see `QpgAlgo.q_target`."""
        agent, drawn = self._agent, self._algo.draws.target_q
        log_prob = log_policy(agent.pi(outputs.next_online), outputs.next_legal)
        q = agent.values.mean(agent.target_all_q(outputs.next_target))
        q = clipped_double_q(q if drawn is None else q[drawn])
        value = expected_soft_value(q, log_prob, alpha_of(self._algo, hyper))
        y = bounded_target(scaled(batch, hyper), value, hyper)
        return y if agent.values.n_outputs is None else agent.values.encode(y)

    def policy_step(self, batch: Buffer, features: AgentInputs, hyper: Hyper) -> PolicyStep:
        """Return loss and entropy at rows of features."""
        algo, agent = self._algo, self._agent
        log_prob = log_policy(agent.pi(features), legal_at_rows(agent, batch, int(algo.warmup_T)))
        with torch.no_grad():
            q = q_of_policy(algo, agent.values.mean(agent.all_q(features)))
            entropy = expected_soft_value(torch.zeros_like(q), log_prob, 1.0)
            largest = (log_prob > -torch.inf).sum(-1).log()
        loss = mean_loss(-expected_soft_value(q, log_prob, alpha_of(algo, hyper)), batch)
        return PolicyStep(loss, -entropy, hyper.target_entropy * largest, {})


@torch.no_grad()
def soft_target(
    algo: SAC, batch: Buffer, output: torch.Tensor, log_prob: torch.Tensor, hyper: Hyper
) -> torch.Tensor | ValueTarget:
    """Return y or what stands for it, by outputs [n_q, ...] for the next values, and log-densities [...] there."""
    if algo.draws.target_q is not None:
        output = output[algo.draws.target_q]
    alpha = alpha_of(algo, hyper)

    def backup(next_q: torch.Tensor) -> torch.Tensor:
        return bounded_target(scaled(batch, hyper), soft_value(next_q, for_atoms(log_prob, next_q), alpha), hyper)

    return bootstrapped(algo.agent, algo.agent.values.lowest(output), backup)


def joined(*rows: AgentInputs) -> AgentInputs:
    """Return rows of features one after the other."""
    return AgentInputs(*map(torch.cat, zip(*rows, strict=True)))


def scaled(batch: Buffer, hyper: Hyper) -> Buffer:
    """Return a batch whose rewards are multiplied by `reward_scale`."""
    return batch._replace(return_=batch.return_ * hyper.reward_scale)


def q_of_policy(algo: SAC, q: torch.Tensor) -> torch.Tensor:
    """Return what the policy climbs of the values [n_q, ...] of all networks."""
    return q.mean(0) if algo.q_of_policy == "mean" else clipped_double_q(q)


def act(
    agent: QpgPolicyAgent, features: AgentInputs, noise: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, Buffer]:
    """Return actions of the policy at rows of features, their log-densities, and the policy's parameters."""
    distribution = agent.distribution
    dist_info = distribution.DistInfo(*agent.pi(features))
    return *distribution.sample_with_log_prob(dist_info, noise), dist_info


def alpha_of(algo: SAC, hyper: Hyper) -> float | torch.Tensor:
    """Return the weight of the entropy as it stands."""
    return algo.log_alpha.detach().exp() if hyper.fixed_alpha is None else hyper.fixed_alpha
