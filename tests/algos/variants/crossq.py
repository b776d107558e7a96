"""CrossQ: SAC without target networks, whose action values are normalised over both rows of a transition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rlpyt.algos import SAC, mean_loss
from rlpyt.algos.qpg import bounded_target
from rlpyt.algos.sac import act, alpha_of
from rlpyt.functional import ScheduleLike, clipped_double_q, soft_value, squared_loss
from rlpyt.types import AgentInputs


@dataclass(kw_only=True, eq=False)
class CrossQ(SAC):
    """Source: Bhatt et al. 2024, "CrossQ: batch normalization in deep RL", ICLR."""

    learning_rate: ScheduleLike = 1e-3
    q_learning_rate: ScheduleLike = 1e-3

    def q_losses(self, batch: Any, outputs: Any, hyper: Any) -> Any:
        with torch.no_grad():
            next_action, log_prob, _ = act(self.agent, outputs.next_online, outputs.noise)
        rows = AgentInputs(*(torch.cat(pair) for pair in zip(outputs.online, outputs.next_online, strict=True)))
        action = torch.cat([self.agent.distribution.encode(batch.action), next_action])
        q, next_q = self.agent.q(rows, action).chunk(2, dim=1)
        value = soft_value(clipped_double_q(next_q.detach()), log_prob, alpha_of(self, hyper))
        y = bounded_target(batch, value, hyper)
        return mean_loss(squared_loss(y - q), batch), q, y

    def update_policy(self, batch: Any, features: Any, hyper: Any) -> Any:
        q_model: Any = self.agent.q_model  # type: ignore[attr-defined]
        q_model.eval()  # normalised by the running statistics, which stay as they are
        metrics = super().update_policy(batch, features, hyper)
        q_model.train()
        return metrics
