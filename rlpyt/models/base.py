"""Interface of full models, and their common structure: encoder, trunk, recurrent core."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from rlpyt.models.encoders import Encoder, Observation
from rlpyt.models.recurrent import RecurrentCore, RnnState
from rlpyt.utils.arguments import SuggestsArguments


class Model(SuggestsArguments, nn.Module):
    """Base of full models.

    A model is called with `(observation, prev_action, prev_reward)`. A recurrent model is also given `rnn_state` and
    `episode_start`. All have the same leading dimensions [], [B] or [T, B], and so have the outputs:

        logits, value                   for discrete actions
        mean, log_std, value            for continuous actions
        q                               for Q-learning

    A recurrent model returns its next state after these. The state has no time dimension, but always B: [N, B, H].

    `prev_action` is [..., A] float, encoded (one-hot where actions are discrete), `prev_reward` is [...] float.
    A subclass uses the three parts through `features`, or leaves them out.

    A model declares what it uses of its arguments (`uses_prev_action`, `takes_n_models`). Agents rely on it.

    Args:
        encoder: computes features of the observation; None takes the observation itself.
        trunk: layers over these features.
        core: recurrent layers over the output of the trunk, the previous action and the previous reward.
        value_encoder: computes features of what a value sees of the observation, and the policy does not. They are not
            among those of `features`; None is nothing.
    """

    output_size: int
    """Number of features, of a model that returns features only, such as the one of `QpgAgent.BodyCls`."""
    takes_n_models: bool = False
    """Whether `forward` of an ensemble takes `n_models` and then computes only the first so many networks."""

    def __init__(
        self,
        encoder: Encoder | None = None,
        trunk: nn.Module | None = None,
        core: RecurrentCore | None = None,
        value_encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.trunk, self.core, self.value_encoder = encoder, trunk, core, value_encoder

    @property
    def recurrent(self) -> bool:
        """Whether the model carries a state from row to row."""
        return self.core is not None

    @property
    def uses_prev_action(self) -> bool:
        """Whether the model reads the previous action; otherwise the agent does not encode it.

        By default a model with a core does. A subclass may declare it as a class attribute.
        """
        return self.core is not None

    def initial_rnn_state(self, batch_size: int) -> RnnState | None:
        """Return the state at the start of an episode: zeros, or None for a model without a state."""
        return None if self.core is None else self.core.initial_rnn_state(batch_size)

    def update_obs_rms(self, observation: Observation, valid: torch.Tensor | None = None) -> None:
        """Add observations [...] to the running statistics, if there are any, where `valid` [...] is True."""
        for encoder in (self.encoder, self.value_encoder):
            if encoder is not None:
                encoder.update_obs_rms(observation, valid)

    def reading(self) -> list[str]:
        """Return in words how every part of an observation is read, of which the encoders are ours."""
        of_both, of_value = (x.reading() if isinstance(x, Encoder) else [] for x in (self.encoder, self.value_encoder))
        return [*of_both, *(f"{text}, of the value alone" for text in of_value)]

    def features(
        self,
        observation: Observation,
        prev_action: torch.Tensor,
        prev_reward: torch.Tensor,
        rnn_state: RnnState | None = None,
        episode_start: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, RnnState | None]:
        """Return the inputs of the heads, [..., F], and the next state (None without a core)."""
        x = cast(torch.Tensor, observation) if self.encoder is None else self.encoder(observation)
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


def uses_prev_action(model: nn.Module) -> bool:
    """Return whether a network may read the previous action: as a `Model` declares it, True for any other module."""
    return not isinstance(model, Model) or model.uses_prev_action


def takes_n_models(model: nn.Module) -> bool:
    """Return whether a network takes `n_models`: as a `Model` declares it, False for any other module."""
    return isinstance(model, Model) and model.takes_n_models
