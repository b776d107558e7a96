"""Advantage actor-critic, synchronous: one gradient step a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlpyt.algos.policy_gradient import LossInputs, PolicyGradientAlgo, actor_critic_loss, loss_of_values, one_update
from rlpyt.core import Metrics
from rlpyt.functional import policy_gradient_loss
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper


@dataclass(kw_only=True, eq=False)
class A2C(PolicyGradientAlgo):
    """Advantage actor-critic.

        L = -mean(log pi(a_t | s_t) A_t) + value_loss_coeff mean((R_t - V(s_t))^2 / 2)
            - entropy_loss_coeff mean(H(pi(. | s_t)))

    Source: Mnih et al. 2016, arXiv:1602.01783.
    """

    def learn(self, itr: int) -> Metrics:
        """Take one gradient step on the batch; none where no row of any replica is valid."""
        hyper = self.hyper(itr * self.steps_per_itr)
        batch, init_rnn_state = self.loss_inputs(self.samples, hyper)
        metrics = one_update(self, batch, init_rnn_state, hyper)
        if metrics:
            explained = self.global_rows.explained_variance(batch.old_value, batch.return_, batch.valid)
            metrics["explainedVariance"] = explained
        return metrics

    def loss(
        self, batch: LossInputs, init_rnn_state: Buffer, hyper: Hyper
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss and its metrics."""
        dist_info, output = self.forward(batch, init_rnn_state)
        log_prob, entropy = self.agent.distribution.log_prob_and_entropy(batch.action, dist_info)
        pi_loss = policy_gradient_loss(log_prob, batch.advantage, batch.valid)
        v_loss, of_values = loss_of_values(self.agent, output, batch.return_, batch.valid)
        loss, metrics = actor_critic_loss(pi_loss, v_loss, entropy, batch.valid, hyper)
        return loss, metrics | of_values
