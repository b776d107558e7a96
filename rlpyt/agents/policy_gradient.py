"""Policy-gradient agents: a distribution over actions and a value, feed-forward or recurrent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import gymnasium
import numpy as np
import torch
from torch import nn

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.by_hand import one_or_many
from rlpyt.agents.model_kwargs import image_model_kwargs, vector_model_kwargs
from rlpyt.agents.own_models import (
    INPUTS,
    RNN_INPUTS,
    check_call,
    check_not_probabilities,
    check_rnn_state,
    shape_of,
)
from rlpyt.agents.rnn_rows import rnn_from_rows, rnn_to_rows
from rlpyt.distributions import Categorical, Gaussian, MultiCategorical
from rlpyt.models import (
    AtariFfModel,
    AtariLstmModel,
    MujocoFfModel,
    MujocoLstmModel,
    PgModel,
    RunningMeanStdModel,
    encoded_action_size,
)
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentStep


class AgentInfo(NamedArrayTuple):
    """What a feed-forward agent records with every action."""

    dist_info: Any
    value: Any


class AgentInfoRnn(NamedArrayTuple):
    """What a recurrent agent records: also its state before the row, [B, N, H] leaves."""

    dist_info: Any
    value: Any
    prev_rnn_state: Any


class PgAgent(BaseAgent):
    """Acts by sampling from a distribution whose parameters the model gives, beside a value.

    The default model and the distribution follow the spaces: `Discrete`, `MultiDiscrete` and `MultiBinary` actions get
    categorical distributions, `Box` a diagonal Gaussian. A model of one's own returns `(logits, value)`, or `(mean,
    log_std, value)`; a recurrent one also its next state, in torch's layout [N, B, H]: a tensor, or a tuple of them,
    named or plain.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reward_rms = RunningMeanStdModel(())

    def make_networks(self) -> None:
        """Build the model, and check that what it gives fits the distribution."""
        super().make_networks()
        self._check_outputs()

    def _check_outputs(self) -> None:
        check_call(self._the_model, self.model, RNN_INPUTS if self.recurrent else INPUTS)
        outputs = self._outputs()
        size = encoded_action_size(self.env_spaces.action)
        names = [*self.distribution.DistInfo._fields, "value"]
        shapes = [*[(3, size)] * (len(names) - 1), (3,)]
        given = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
        got = [shape_of(output) for output in given[: len(names)]]
        if got != shapes or len(given) != len(names) + self.recurrent:
            expected = ", ".join(f"{name} {list(shape)}" for name, shape in zip(names, shapes, strict=True))
            raise ValueError(
                f"{self._the_model} gave {len(given)} outputs for 3 rows, first {[list(shape) for shape in got]}; "
                f"expected {expected}{', and its next state' if self.recurrent else ''}. Let its forward return these."
            )
        if self.recurrent:
            check_rnn_state(self._the_model, given[-1], 3)
        sizes = self._logit_sizes()
        at_random = self._random_outputs() if sizes else None
        if at_random is not None:
            check_not_probabilities(self._the_model, at_random[0], sizes)

    def _logit_sizes(self) -> list[int]:
        """Return how many logits each choice has; none of distributions that take no logits, or are one's own."""
        distribution = self.distribution
        if type(distribution) is Categorical:
            return [distribution.dim]
        return distribution.dims if type(distribution) is MultiCategorical else []

    def worker_copy(self) -> Self:
        """Return a copy that acts in another process, which has no statistics of rewards."""
        clone = super().worker_copy()
        clone.reward_rms = RunningMeanStdModel(())
        return clone

    def make_distribution(self, env_spaces: EnvSpaces) -> Categorical | MultiCategorical | Gaussian:
        """Return the distribution for the action space."""
        space = env_spaces.action
        if isinstance(space, gymnasium.spaces.Discrete):
            return Categorical(int(space.n))
        if isinstance(space, gymnasium.spaces.MultiDiscrete):
            return MultiCategorical(space.nvec)
        if isinstance(space, gymnasium.spaces.MultiBinary):
            return MultiCategorical(np.full(space.shape, 2))
        if isinstance(space, gymnasium.spaces.Box):
            return Gaussian.from_space(space)
        raise TypeError(
            f"{type(self).__name__}: the action space is {space}; expected Discrete, MultiDiscrete, MultiBinary or Box."
        )

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the default model; a recurrent agent's has an LSTM (or `model_kwargs=dict(recurrent="gru")`)."""
        recurrent = {"recurrent": "lstm"} if self.recurrent else {}
        return PgModel(env_spaces.observation, env_spaces.action, **{**recurrent, **self.model_kwargs})

    def __call__(
        self,
        observation: Any,
        prev_action: Any,
        prev_reward: Any,
        init_rnn_state: Any = None,
        episode_start: Any = None,
    ) -> tuple[Any, torch.Tensor]:
        """Return distribution parameters and value, with gradient.

        Args:
            observation: [T, B, ...] or [B, ...], as are the previous action and reward.
            prev_action: in row form.
            prev_reward: float32.
            init_rnn_state: of a recurrent agent, before the first row, [B, N, H] leaves.
            episode_start: [T, B] bool, rows before which the state is zero.
        """
        rnn = (rnn_from_rows(init_rnn_state), episode_start) if self.recurrent else ()
        dist_info, value, _ = self._forward(observation, prev_action, prev_reward, *rnn)
        return dist_info, value

    def _forward(self, observation: Any, prev_action: Any, prev_reward: Any, *rnn: Any) -> tuple[Any, Any, Any]:
        encoded = self.encode(prev_action)
        with self.autocast():
            outputs = self.model(observation, encoded, prev_reward, *rnn)
        *params, value, next_rnn_state = outputs if self.recurrent else (*outputs, None)
        return self.distribution.DistInfo(*params), value, next_rnn_state

    @one_or_many
    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> AgentStep:
        """Select actions for the environments in charge, [B]; everything returned is on the CPU.

        By hand, without a sampler, one row without B gives one action; see `BaseAgent`.
        """
        group = self._group
        inputs = self.to_model((observation, prev_action, prev_reward))
        rnn = (group.rnn_state,) if self.recurrent else ()
        dist_info, value, next_rnn_state = self._forward(*inputs, *rnn)
        dist_info, value = self.from_model((dist_info, value))
        if self.deterministic:
            action = self.distribution.mode(dist_info)
        else:
            action = self.distribution.sample(dist_info, self.draw_noise())
        if not self.recurrent:
            return AgentStep(action, AgentInfo(dist_info, value))
        prev_rnn_state = self.from_model(rnn_to_rows(group.rnn_state))
        group.rnn_state = next_rnn_state
        return AgentStep(action, AgentInfoRnn(dist_info, value, prev_rnn_state))

    @one_or_many
    @torch.no_grad()
    def value(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Return the value [B] of the rows; the recurrent state stays where it is."""
        inputs = self.to_model((observation, prev_action, prev_reward))
        rnn = (self._group.rnn_state,) if self.recurrent else ()
        return self.from_model(self._forward(*inputs, *rnn)[1])

    def modules(self) -> list[nn.Module]:
        """Return the model, and the statistics that an algorithm may normalise rewards by."""
        return [self.model, self.reward_rms]

    def state_dict(self) -> dict[str, Any]:
        """Return the model's weights and normalising statistics, those of the rewards among them."""
        return {**super().state_dict(), "reward_rms": self.reward_rms.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self.reward_rms.load_state_dict(state_dict["reward_rms"])


class CategoricalPgAgent(PgAgent):
    """Policy-gradient agent for discrete actions."""

    def make_distribution(self, env_spaces: EnvSpaces) -> Any:
        """Return the categorical distribution, and refuse a continuous space."""
        if isinstance(env_spaces.action, gymnasium.spaces.Box):
            raise TypeError(
                f"{type(self).__name__}: the action space is {env_spaces.action}; expected a discrete one. "
                "Use GaussianPgAgent."
            )
        return super().make_distribution(env_spaces)


class GaussianPgAgent(PgAgent):
    """Policy-gradient agent for continuous actions."""

    def make_distribution(self, env_spaces: EnvSpaces) -> Any:
        """Return the Gaussian distribution, and refuse a discrete space."""
        if not isinstance(env_spaces.action, gymnasium.spaces.Box):
            raise TypeError(
                f"{type(self).__name__}: the action space is {env_spaces.action}; expected a Box. "
                "Use CategoricalPgAgent."
            )
        return super().make_distribution(env_spaces)


class RecurrentCategoricalPgAgent(CategoricalPgAgent):
    """`CategoricalPgAgent` whose model carries a state."""

    recurrent = True


class RecurrentGaussianPgAgent(GaussianPgAgent):
    """`GaussianPgAgent` whose model carries a state."""

    recurrent = True


class AtariFfAgent(CategoricalPgAgent):
    """`CategoricalPgAgent` with the small convolutional model of A3C (Mnih et al. 2016)."""

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the model for these sizes."""
        return AtariFfModel(**self.make_env_to_model_kwargs(env_spaces), **self.model_kwargs)

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the image's shape and the number of actions."""
        return image_model_kwargs(env_spaces)


class AtariLstmAgent(RecurrentCategoricalPgAgent):
    """`RecurrentCategoricalPgAgent` with the convolutional LSTM model."""

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the model for these sizes."""
        return AtariLstmModel(**self.make_env_to_model_kwargs(env_spaces), **self.model_kwargs)

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the image's shape and the number of actions."""
        return image_model_kwargs(env_spaces)


class MujocoFfAgent(GaussianPgAgent):
    """`GaussianPgAgent` with separate networks for policy and value."""

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the model for these sizes."""
        return MujocoFfModel(**self.make_env_to_model_kwargs(env_spaces), **self.model_kwargs)

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the observation's shape and the number of action dimensions."""
        return vector_model_kwargs(env_spaces)


class MujocoLstmAgent(RecurrentGaussianPgAgent):
    """`RecurrentGaussianPgAgent` with a shared LSTM."""

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the model for these sizes."""
        return MujocoLstmModel(**self.make_env_to_model_kwargs(env_spaces), **self.model_kwargs)

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the observation's shape and the number of action dimensions."""
        return vector_model_kwargs(env_spaces)


AlternatingRecurrentCategoricalPgAgent = RecurrentCategoricalPgAgent
AlternatingRecurrentGaussianPgAgent = RecurrentGaussianPgAgent
AlternatingAtariLstmAgent = AtariLstmAgent
AlternatingMujocoLstmAgent = MujocoLstmAgent
"""Their names in rlpyt 0.1 under an `AlternatingSampler`, which any agent serves now."""
