"""V-trace actor-critic: one gradient step a batch, on rows of an older policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from rlpyt.algos.policy_gradient import (
    PolicyGradientAlgo,
    actor_critic_loss,
    episode_starts,
    loss_of_values,
    next_values,
    one_update,
    rows_on_device,
)
from rlpyt.core import Metrics
from rlpyt.functional import (
    ScheduleLike,
    approx_kl,
    importance_ratio,
    policy_gradient_loss,
    v_trace,
    valid_mean,
)
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.settings import Hyper
from rlpyt.types import AgentInputs, Samples
from rlpyt.utils.arrays import buffer_cat


class VTraceInputs(NamedArrayTuple):
    """Rows to compute the loss of V-trace on, [T, B] where nothing else is said."""

    agent_inputs: AgentInputs
    """[T + 1, B]; the last row is the one after the batch, of which the value alone counts."""
    action: Buffer
    reward: Buffer
    """Normalised where the algorithm says so."""
    terminated: Buffer
    truncated: Buffer
    valid: Buffer
    old_log_prob: Buffer
    """log-probability of the action under the policy that acted."""
    episode_start: Buffer = None
    """[T + 1, B] bool, for a recurrent agent: its state is zero before these rows."""
    final_value: Buffer = None
    """Of final observations that have no rows, by the network that acted, which is the one in training there."""


@dataclass(kw_only=True, eq=False)
class VTrace(PolicyGradientAlgo):
    """Actor-critic with V-trace targets, the algorithm of IMPALA.

        L = -mean(log pi(a_t | s_t) min(pg_rho_bar, ratio_t) A_t) + value_loss_coeff mean((G_t - V(s_t))^2 / 2)
            - entropy_loss_coeff mean(H(pi(. | s_t))),        ratio_t = pi(a_t | s_t) / mu(a_t | s_t)

    mu is the policy that acted, as it was recorded. Log-probabilities and values are those of the network in training,
    all from one forward pass over the rows of the batch and the one after it. So the rows may be of any age. Where the
    policy that acted is the one in training, the update is that of A2C.

    The state of a recurrent agent before the first row is the one that acting recorded.

    The losses are means over the valid rows.

    Source: Espeholt et al. 2018, arXiv:1802.01561.
    """

    bootstrap_value: ClassVar[bool] = False
    bootstrap_inputs: ClassVar[bool] = True
    opt_info_fields: ClassVar[tuple[str, ...]] = (*PolicyGradientAlgo.opt_info_fields, "rho", "rhoClipped", "kl")

    gae_lambda: ScheduleLike = 1.0
    """lambda of the traces, in [0, 1]; 1 is the paper's."""
    rho_bar: ScheduleLike = 1.0
    """Largest ratio by which a TD error is weighted, above 0."""
    c_bar: ScheduleLike = 1.0
    """Largest ratio in the product along a trace, from 0; the paper has at most `rho_bar`."""
    pg_rho_bar: ScheduleLike = 1.0
    """Largest ratio by which the policy gradient is weighted, above 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rho_bar", "pg_rho_bar"):
            self.check(name, lambda x: x > 0.0, "above 0 (float('inf') for no bound)")
        self.check("c_bar", lambda x: x >= 0.0, "at least 0 (float('inf') for no bound)")

    def learn(self, itr: int) -> Metrics:
        """Take one gradient step on the batch; none where no row of any replica is valid."""
        hyper = self.hyper(itr * self.steps_per_itr)
        batch, init_rnn_state = self.vtrace_inputs(self.samples, hyper)
        return one_update(self, batch, init_rnn_state, hyper)

    def vtrace_inputs(self, samples: Samples, hyper: Hyper) -> tuple[VTraceInputs, Buffer]:
        """Return a batch on the agent's device, and the recurrent state before its first row."""
        if samples.agent.bootstrap_inputs is None:
            raise ValueError(
                f"{type(self).__name__}: the batch has no agent.bootstrap_inputs; expected what the agent sees at the "
                "row after the last one. Let the sampler record it where run.bootstrap_inputs asks for it."
            )
        (agent, env), init_rnn_state = rows_on_device(self.agent, samples)
        inputs = AgentInputs(env.observation, agent.prev_action, env.prev_reward)
        start = None
        if self.agent.recurrent:
            # Where the row after the batch starts an episode, nothing asks for its value.
            start = episode_starts(samples)
            start = torch.cat([start, torch.zeros_like(start[:1])])
        with torch.no_grad():
            old_log_prob = self.agent.distribution.log_prob(agent.action, agent.agent_info.dist_info)
        rows = VTraceInputs(
            agent_inputs=buffer_cat(inputs, agent.bootstrap_inputs),
            action=agent.action,
            reward=env.reward if self.reward_scale is None else self.reward_scale(env, hyper),
            terminated=env.terminated,
            truncated=env.truncated,
            valid=env.valid,
            old_log_prob=old_log_prob,
            episode_start=start,
            final_value=agent.final_value,
        )
        return rows, init_rnn_state

    def loss(
        self, batch: VTraceInputs, init_rnn_state: Buffer, hyper: Hyper
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss and its metrics."""
        dist_info, outputs = self.forward(batch, init_rnn_state)
        values = self.agent.values.mean(outputs)
        log_prob, entropy = self.agent.distribution.log_prob_and_entropy(batch.action, dist_info[:-1])
        value, ratio = values[:-1], importance_ratio(log_prob, batch.old_log_prob)
        advantage, return_ = v_trace(
            batch.reward,
            value,
            next_values(value, values[-1:], batch.final_value, batch.truncated),
            batch.terminated,
            batch.truncated,
            ratio,
            discount=hyper.discount,
            lambda_=hyper.gae_lambda,
            rho_bar=hyper.rho_bar,
            c_bar=hyper.c_bar,
        )
        if self.normalize_advantage:
            advantage = self.global_rows.standardize(advantage, batch.valid)
        pi_loss = policy_gradient_loss(log_prob, ratio.clamp(max=hyper.pg_rho_bar) * advantage, batch.valid)
        v_loss, of_values = loss_of_values(self.agent, outputs[:-1], return_, batch.valid)
        loss, metrics = actor_critic_loss(pi_loss, v_loss, entropy, batch.valid, hyper)
        return loss, {
            **metrics,
            **of_values,
            "explainedVariance": self.global_rows.explained_variance(value, return_, batch.valid),
            "rho": valid_mean(ratio.clamp(max=hyper.rho_bar), batch.valid),
            "rhoClipped": valid_mean(ratio > hyper.rho_bar, batch.valid),
            "kl": approx_kl(log_prob.detach(), batch.old_log_prob, batch.valid),
        }
