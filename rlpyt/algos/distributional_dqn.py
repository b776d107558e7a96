"""Q-learning over distributions of the return: C51, QR-DQN and IQN, feed-forward or recurrent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch

from rlpyt.algos.dqn import DQN, LossAndErrors, greedy_q
from rlpyt.algos.munchausen import munchausen_target
from rlpyt.algos.replay_rows import Outputs, mean_of_rows
from rlpyt.core import CategoricalQAgent, QAgent
from rlpyt.functional import (
    ScheduleLike,
    double_q_value,
    midpoints,
    quantile_huber_loss,
    select_at_indexes,
)
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper
from rlpyt.types import Run


@dataclass(kw_only=True, eq=False)
class CategoricalDQN(DQN):
    """Q-learning over the probabilities of fixed atoms (C51); for agents such as `CatDqnAgent`.

        p_y = projection of the atoms return_ + bootstrap_discount * z with the target network's probabilities
        L = mean(-sum_i p_y,i log p_i(s_t, a_t))

    The priority of a row is KL(p_y || p). With `double_dqn`, `n_step_return=3`, `prioritized_replay` and a dueling and
    noisy network it is Rainbow.

    Sources: Bellemare et al. 2017, arXiv:1707.06887; Hessel et al. 2018, arXiv:1710.02298.
    """

    agent_kind: ClassVar[str] = "categorical"

    V_min: float = -10.0
    """The lowest atom, in units of the return. Fixed for the run, as the network has learned about these atoms."""
    V_max: float = 10.0
    """The highest atom, fixed for the same reason."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("V_min", lambda x: abs(x) < float("inf"), "a finite number")
        self.check("V_max", lambda x: self.V_min < x < float("inf"), f"a finite number above V_min, {self.V_min}")

    def initialize(self, agent: QAgent, run: Run) -> None:
        """Build optimiser and replay, and tell the agent the range of the atoms."""
        super().initialize(agent, run)
        cast(CategoricalQAgent, agent).give_V_min_max(self.V_min, self.V_max)  # by its kind, which has been checked


@dataclass(kw_only=True, eq=False)
class QRDQN(DQN):
    """Q-learning over quantiles of the return at fixed fractions; for agents such as `QrDqnAgent`.

        L = mean(quantile_huber_loss(theta(s_t, a_t), tau, return_ + bootstrap_discount * theta_target(s_{t+n}, a*)))

    TD errors and priorities are computed from the means.

    Source: Dabney et al. 2018, arXiv:1710.10044.
    """

    agent_kind: ClassVar[str] = "quantiles"

    learning_rate: ScheduleLike = 5e-5

    def td_loss(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> LossAndErrors:
        """Return the quantile regression loss of each row, and the absolute TD error of the mean."""
        tau = midpoints(outputs.online.shape[-1], outputs.online.device)
        return _quantile_losses(self, batch, outputs, outputs.online, tau, outputs.next_target, hyper)


@dataclass(kw_only=True, eq=False)
class IQN(DQN):
    """Q-learning over quantiles of the return at random fractions, which the network is given; for `IqnAgent`.

    It has the loss of `QRDQN`. The fractions are drawn for every row of every update.

    Source: Dabney et al. 2018, arXiv:1806.06923.
    """

    agent_kind: ClassVar[str] = "implicit quantiles"

    learning_rate: ScheduleLike = 5e-5

    def td_loss(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> LossAndErrors:
        """Return the quantile regression loss of each row, and the absolute TD error of the mean."""
        online, next_target = outputs.online, outputs.next_target.value
        return _quantile_losses(self, batch, outputs, online.value, online.tau, next_target, hyper)


def _quantile_losses(
    algo: DQN,
    batch: Buffer,
    outputs: Outputs,
    online: torch.Tensor,
    tau: torch.Tensor,
    next_target: torch.Tensor,
    hyper: Hyper,
) -> LossAndErrors:
    """Return the quantile regression loss of each row, and the absolute TD error of the mean."""
    quantiles = select_at_indexes(batch.action, online)
    own: dict[str, torch.Tensor] = {}  # torch cannot compile a call of dict[str, ...]
    if hyper.munchausen is None:
        y = algo.backup(batch, double_q_value(next_target, greedy_q(algo.agent, outputs)))
    else:
        y, bonus = munchausen_target(algo, batch, outputs, next_target, hyper)
        own["munchausen"] = mean_of_rows(bonus, batch)
    loss = quantile_huber_loss(quantiles, tau, y, hyper.delta_clip)
    td_abs_error = (y.mean(-1) - quantiles.mean(-1)).abs()
    return (loss, td_abs_error, own) if own else (loss, td_abs_error)
