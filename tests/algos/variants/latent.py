"""SAC with a model of the world beside it, which is trained on the sequences of the replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from rlpyt.algos import SAC
from rlpyt.functional import ScheduleLike, valid_mean


class LatentModel(nn.Module):
    """Recurrent model of rewards and next observations in a latent space."""

    def __init__(self, n: int, n_actions: int, size: int = 32) -> None:
        super().__init__()
        self.encoder, self.core = nn.Linear(n, size), nn.GRU(size + n_actions, size)
        self.decoder = nn.Linear(size, n + 1)

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        latent, _ = self.core(torch.cat([self.encoder(observation).tanh(), action], -1))
        out = self.decoder(latent)
        return out[..., :-1], out[..., -1]


@dataclass(kw_only=True, eq=False)
class LatentSAC(SAC):
    """SAC for a recurrent agent; its model of the world has an optimiser and a learning rate of its own."""

    opt_info_fields: ClassVar[tuple[str, ...]] = (*SAC.opt_info_fields, "worldLoss")

    world_learning_rate: ScheduleLike = 1e-2
    """Of the model of the world."""

    def optim_initialize(self, rank: int = 0) -> None:
        super().optim_initialize(rank)
        (n,) = self.agent.env_spaces.observation.shape or ()
        self.world = LatentModel(n, self.agent.distribution.dim).to(self.agent.device)
        self.descents.add("world", self.world.parameters(), rate="world_learning_rate")

    def update(self, batch: Any, hyper: Any) -> Any:
        metrics = super().update(batch, hyper)
        loss = self.world_loss(batch)
        self.descents.step("world", loss, hyper)
        return {**metrics, "worldLoss": loss.detach()}

    def world_loss(self, batch: Any) -> torch.Tensor:
        rows, observation = batch.rows, batch.all_inputs.observation
        predicted, reward = self.world(observation, self.agent.distribution.encode(rows.action))
        # The row after a valid one is its successor, the final observation of an episode included.
        error = (predicted[:-1] - observation[1:]).square().mean(-1) + (reward[:-1] - rows.reward[:-1]).square()
        return valid_mean(error, rows.valid[:-1])

    def state_dict(self) -> Any:
        return {**super().state_dict(), "world": self.world.state_dict()}

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        self.world.load_state_dict(state_dict["world"])
