"""Munchausen targets: the policy is soft, and rewards have a share of the log-probability of the action that was taken.

Source: Vieillard et al. 2020, arXiv:2007.14430.
"""

from __future__ import annotations

from typing import Protocol

import torch

from rlpyt.algos.replay_rows import Outputs, legal_at_rows, log_policy
from rlpyt.algos.replay_settings import ReplaySettings, has_input_priorities
from rlpyt.core import QAgent
from rlpyt.functional import expected_soft_value, select_at_indexes
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper, refuse_together


class _Learner(Protocol):
    """What the targets need of an algorithm."""

    agent: QAgent
    warmup_T: int
    munchausen_lowest: float

    def backup(self, batch: Buffer, next_value: torch.Tensor) -> torch.Tensor: ...


@torch.no_grad()
def munchausen_target(
    algo: _Learner, batch: Buffer, outputs: Outputs, next_values: torch.Tensor, hyper: Hyper
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return y, and what is added to the rewards.

        y = return_ + munchausen * clip(tau log pi(a_t | s_t), lowest, 0)
            + bootstrap_discount * sum_a pi(a | s') (Q_target(s', a) - tau log pi(a | s'))
        pi = softmax(Q_target / tau)

    Of a return of n rewards the first alone is added to, that of the action whose value is trained.

    Args:
        algo: with its agent.
        batch: transitions or sequences.
        outputs: of the networks, those of the target at the rows themselves among them.
        next_values: of the target network at the rows that are bootstrapped from, [.., A], or [.., A, N] for samples of
            the return.
        hyper: the hyper-parameters as they stand.

    Returns:
        y: [M] or [T, M], or with a last dimension N.
        bonus: [M] or [T, M], from `munchausen * lowest` to 0.
    """
    agent, tau = algo.agent, hyper.munchausen_tau
    log_pi = log_policy(agent.q_values(outputs.target) / tau, legal_at_rows(agent, batch, int(algo.warmup_T)))
    bonus = hyper.munchausen * (tau * select_at_indexes(batch.action, log_pi)).clamp(algo.munchausen_lowest, 0.0)
    next_log_pi = log_policy(agent.q_values(outputs.next_target) / tau, outputs.next_legal)
    if next_values.dim() > next_log_pi.dim():
        values, next_log_pi = next_values.movedim(-1, 0), next_log_pi.expand(next_values.shape[-1], *next_log_pi.shape)
        next_value = expected_soft_value(values, next_log_pi, tau).movedim(0, -1)
    else:
        next_value = expected_soft_value(next_values, next_log_pi, tau)
    return algo.backup(batch._replace(return_=batch.return_ + bonus), next_value), bonus


def check_munchausen(algo: ReplaySettings, agent_kind: str) -> None:
    """Refuse settings beside which Munchausen targets have no meaning."""
    others = {
        "double_dqn": "no action is the best of a soft policy",
        "value_scale_eps": "the policy is one over values in units of the return",
    }
    who = type(algo).__name__
    if agent_kind == "categorical":
        raise ValueError(
            f"{who}: munchausen is set, and the targets are projected from the atoms of one action; expected None. Use "
            'DQN with value_head="hl_gauss" of the agent, or QRDQN or IQN.'
        )
    if has_input_priorities(algo):  # None may mean it, too
        raise ValueError(
            f"{who}: munchausen and input_priorities are set; expected one of them, as the target network's values are "
            "not recorded. Set input_priorities=False, or leave munchausen out."
        )
    refuse_together(algo, "munchausen", {name: f"{why}. Leave one out." for name, why in others.items()})
