"""What every full model can be asked, and the way that most of them go: encoder, trunk, recurrent core."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlpyt.models.encoders import Encoder
from rlpyt.models.recurrent import RecurrentCore, RnnState
from rlpyt.utils.arguments import NamedArguments


class Model(nn.Module, metaclass=NamedArguments):
    """Base of full models.

    A model is called with `(observation, prev_action, prev_reward)`, a recurrent one with `rnn_state` and
    `episode_start` as well, all with the same leading dimensions [], [B] or [T, B], and what it returns has them too:

        logits, value                   for discrete actions
        mean, log_std, value            for continuous actions
        q                               for Q-learning

    A recurrent model returns its next state after these. The state has no time dimension, and always B: [N, B, H].

    `prev_action` is [..., A] float, encoded (one-hot where actions are discrete), `prev_reward` [...] float.
    A subclass may use the three parts through `features`, or none of them.

    Args:
        encoder: features of the observation.
        trunk: over the features.
        core: over what the trunk gives, the previous action and the previous reward.
    """

    output_size: int
    """Number of features, of a model that gives features and no more, such as `QpgAgent.make_body` returns."""

    def __init__(
        self, encoder: Encoder | None = None, trunk: nn.Module | None = None, core: RecurrentCore | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.trunk, self.core = encoder, trunk, core

    @property
    def recurrent(self) -> bool:
        """Whether the model carries a state from row to row."""
        return self.core is not None

    @property
    def uses_prev_action(self) -> bool:
        """Whether the model looks at the previous action; where not, it is not encoded for it."""
        return self.core is not None

    def initial_rnn_state(self, batch_size: int) -> RnnState | None:
        """Return the state at the start of an episode, zeros; None for a model that has none."""
        return None if self.core is None else self.core.initial_rnn_state(batch_size)

    def update_obs_rms(self, observation: Any, valid: torch.Tensor | None = None) -> None:
        """Take observations [...] into the running statistics, if there are any, where `valid` [...] is True."""
        if self.encoder is not None:
            self.encoder.update_obs_rms(observation, valid)

    def features(
        self,
        observation: Any,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, RnnState | None]:
        """Return what the heads work on, [..., F], and the next state (None without a core)."""
        x = observation if self.encoder is None else self.encoder(observation)
        if self.trunk is not None:
            x = self.trunk(x)
        if self.core is None:
            return x, None
        x = torch.cat([x, prev_action, prev_reward.unsqueeze(-1)], -1)
        T, B = (1, 1, *prev_reward.shape)[-2:]
        if episode_start is not None:
            episode_start = episode_start.reshape(T, B)
        output, next_rnn_state = self.core(x.reshape(T, B, -1), rnn_state, episode_start)
        return output.reshape(*prev_reward.shape, -1), next_rnn_state
