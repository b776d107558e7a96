"""What SAC computes where actions are discrete: means over all actions of the policy in the place of samples.

Source: Christodoulou 2019, arXiv:1910.07207.
"""

from __future__ import annotations

import torch

from rlpyt.algos.replay_rows import Outputs, legal_at_rows, log_policy, mean_loss
from rlpyt.core import ChoiceAgent
from rlpyt.functional import clipped_double_q, expected_soft_value
from rlpyt.namedarraytuple import Buffer
from rlpyt.types import AgentInputs


@torch.no_grad()
def value_of_choices(
    agent: ChoiceAgent, outputs: Outputs, drawn: torch.Tensor | None, alpha: float | torch.Tensor
) -> torch.Tensor:
    """Return V, [M] or [T, M], at the rows that are bootstrapped from, by the smallest target value of each action.

    Args:
        agent: of the outputs.
        outputs: of its features and their target.
        drawn: indexes of the networks whose smallest value counts; None of all.
        alpha: weight of the entropy.
    """
    log_prob = log_policy(agent.pi(outputs.next_online), outputs.next_legal)
    q = agent.values.mean(agent.target_all_q(outputs.next_target))
    return expected_soft_value(clipped_double_q(q if drawn is None else q[drawn]), log_prob, alpha)


def policy_loss_of_choices(
    agent: ChoiceAgent,
    batch: Buffer,
    features: AgentInputs,
    alpha: float | torch.Tensor,
    q_of_policy: str,
    warmup_T: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss of the policy at rows of features, and of each row minus its entropy, and the largest entropy."""
    log_prob = log_policy(agent.pi(features), legal_at_rows(agent, batch, warmup_T))
    with torch.no_grad():
        q = agent.values.mean(agent.all_q(features))
        q = q.mean(0) if q_of_policy == "mean" else clipped_double_q(q)
        entropy = expected_soft_value(torch.zeros_like(q), log_prob, 1.0)
        largest = (log_prob > -torch.inf).sum(-1).log()
    return mean_loss(-expected_soft_value(q, log_prob, alpha), batch), -entropy, largest
