"""Proximal policy optimisation: several epochs of minibatches on every batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import torch

from rlpyt.algos.metrics import Numbers, stack_metrics
from rlpyt.algos.minibatching import Minibatching, MinibatchSettings
from rlpyt.algos.policy_gradient import LossInputs, PolicyGradientAlgo, actor_critic_loss, loss_of_values
from rlpyt.core import Metrics, PolicyAgent
from rlpyt.functional import (
    CountLike,
    Linear,
    ScheduleLike,
    approx_kl,
    clip_fraction,
    clipped_value_loss,
    ppo_clip_loss,
)
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper, whole_count
from rlpyt.types import Run


@dataclass(kw_only=True, eq=False)
class PPO(MinibatchSettings, PolicyGradientAlgo):
    """Proximal policy optimisation with the clipped surrogate.

        L = -mean(min(r_t A_t, clip(r_t, 1 - ratio_clip, 1 + ratio_clip) A_t))
            + value_loss_coeff L_V - entropy_loss_coeff H,        r_t = pi(a_t | s_t) / pi_old(a_t | s_t)

    A feed-forward agent's minibatches are random valid rows of the whole batch; a recurrent one's are whole sequences
    of random environments.

    Source: Schulman et al. 2017, arXiv:1707.06347.
    """

    opt_info_fields: ClassVar[tuple[str, ...]] = (*PolicyGradientAlgo.opt_info_fields, "kl", "clipFraction")

    value_loss_coeff: ScheduleLike = 1.0
    minibatches: int = 4
    epochs: CountLike = 4
    ratio_clip: ScheduleLike = 0.1
    """Clip of the probability ratio around 1."""
    linear_lr_schedule: bool = True
    """Whether learning rate and ratio clip, where given as plain numbers, go to zero linearly over the run."""
    value_clip: ScheduleLike | None = None
    """Clip of the value's move away from the one that acted; None for none."""
    target_kl: ScheduleLike | None = None
    """Estimated KL divergence from the policy that acted at which the epochs of a batch stop; None for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("ratio_clip", lambda x: x > 0.0, "above 0")
        for name in ("value_clip", "target_kl"):
            self.check(name, lambda x: x > 0.0, "above 0 (None for none)")

    def initialize(self, agent: PolicyAgent, run: Run) -> None:
        """Build the optimiser; refuse minibatches that do not divide the batch."""
        super().initialize(agent, run)
        if self.value_clip is not None and agent.values.n_outputs is not None:
            raise ValueError(
                f"PPO: value_clip is {self.value_clip!r}, and the agent's value_head {agent.values}; expected one of "
                "them, as a move of the mean is no move of a distribution. Leave value_clip out."
            )
        self.minibatching = Minibatching(self, int(self.minibatches))
        self.batch_size = self.minibatching.batch_size

    def schedule_of(self, name: str) -> ScheduleLike | None:
        """Return the given schedule, or with `linear_lr_schedule` a line to zero for a plain rate or clip."""
        value: Any = getattr(self, name)
        if name in ("learning_rate", "ratio_clip") and self.linear_lr_schedule and isinstance(value, Real):
            return Linear(float(value))
        return super().schedule_of(name)

    def learn(self, itr: int) -> Metrics:
        """Take `epochs * minibatches` gradient steps on the batch, or fewer where the KL divergence grows too large."""
        hyper = self.hyper(itr * self.steps_per_itr)
        batch, init_rnn_state = self.loss_inputs(self.samples, hyper)
        explained = self.global_rows.explained_variance(batch.old_value, batch.return_, batch.valid)
        with torch.no_grad():
            old_log_prob = self.agent.distribution.log_prob(batch.action, batch.old_dist_info)
        batch = batch._replace(old_log_prob=old_log_prob)
        metrics: dict[str, list[torch.Tensor]] = defaultdict(list)
        for _ in range(whole_count(hyper.epochs)):
            rows = self.minibatch_rows(batch, init_rnn_state, self.samples.env.valid)
            self.minibatching.take_updates(rows, hyper, metrics)
            # By all replicas' last rows. One synchronisation, and only where a limit was set.
            kls = metrics.get("kl", []) if hyper.target_kl is not None else []
            if kls and self.global_rows.mean(kls[-1]) > hyper.target_kl:
                break
        # After the updates: the first ratio of the next batch is exactly 1 only if acting and learning normalise alike.
        self.agent.networks.update_obs_rms(batch.agent_inputs.observation, batch.valid)
        if metrics:  # there was a valid row
            metrics["explainedVariance"].append(explained)
        return stack_metrics(metrics)

    def minibatch_rows(
        self, batch: LossInputs, init_rnn_state: Buffer, valid: torch.Tensor
    ) -> Iterator[tuple[LossInputs, Buffer]]:
        """Yield the batch in random minibatches; see `Minibatching.rows`."""
        return self.minibatching.rows(batch, init_rnn_state, valid)

    def loss(
        self, batch: LossInputs, init_rnn_state: Buffer, hyper: Hyper
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss of a minibatch and its metrics."""
        dist_info, output = self.forward(batch, init_rnn_state)
        log_prob, entropy = self.agent.distribution.log_prob_and_entropy(batch.action, dist_info)
        pi_loss = ppo_clip_loss(
            log_prob, batch.old_log_prob, batch.advantage, ratio_clip=hyper.ratio_clip, valid=batch.valid
        )
        of_values: Numbers = {}
        if hyper.value_clip is None:
            v_loss, of_values = loss_of_values(self.agent, output, batch.return_, batch.valid)
        else:
            v_loss = clipped_value_loss(
                output, batch.old_value, batch.return_, value_clip=hyper.value_clip, valid=batch.valid
            )
        loss, metrics = actor_critic_loss(pi_loss, v_loss, entropy, batch.valid, hyper)
        with torch.no_grad():
            kl = approx_kl(log_prob, batch.old_log_prob, batch.valid)
            clipped = clip_fraction(log_prob, batch.old_log_prob, ratio_clip=hyper.ratio_clip, valid=batch.valid)
        return loss, {**metrics, **of_values, "kl": kl, "clipFraction": clipped}

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Algorithm`."""
        # A subclass without a clip leaves clipFraction out of its metrics.
        names = ("learning_rate", "ratio_clip") if "clipFraction" in self.opt_info_fields else ("learning_rate",)
        falling = {name: x for name in names if self.schedule_of(name) is not (x := getattr(self, name))}
        lines = {name: f"{x:g} -> 0 over the run (linear_lr_schedule)" for name, x in falling.items()}
        return {
            **super().plan(),
            "updates an iteration": whole_count(self.hyper(0).epochs) * int(self.minibatches),
            **lines,
        }
