"""Policy-gradient agents: a distribution over actions and a value, feed-forward or recurrent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from torch import nn

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.base import BaseAgent
from rlpyt.agents.own_models import (
    INPUTS,
    RNN_INPUTS,
    check_call,
    check_not_probabilities,
    check_rnn_state,
    described,
    shape_of,
)
from rlpyt.agents.weights import Network
from rlpyt.core import PolicyAgent
from rlpyt.distributions import Categorical, Gaussian, MultiCategorical, categorical_of
from rlpyt.models import PgModel, RunningMeanStdModel, encoded_action_size
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces


class AgentInfo(NamedArrayTuple):
    """Record of a feed-forward agent beside every action."""

    dist_info: Buffer
    value: Buffer


class AgentInfoRnn(NamedArrayTuple):
    """Record of a recurrent agent: also its state before the row, [B, N, H] leaves."""

    dist_info: Buffer
    value: Buffer
    prev_rnn_state: Buffer


@dataclass(kw_only=True, eq=False)
class PgAgent(BaseAgent, PolicyAgent):
    """Policy that samples from a distribution whose parameters the model gives, beside a value.

    The default model and the distribution follow the spaces: `Discrete`, `MultiDiscrete` and `MultiBinary` actions get
    categorical distributions, `Box` a diagonal Gaussian. A model of one's own returns `(logits, value)`, or `(mean,
    log_std, value)`; a recurrent one also its next state, in torch's layout [N, B, H]: a tensor, or a tuple of them,
    named or plain.
    """

    reward_rms = Network[RunningMeanStdModel]("learning", "reward_rms")

    def make_networks(self) -> None:
        """Build the model and the statistics of rewards, and check that the model's outputs fit the distribution."""
        super().make_networks()
        self.learning["reward_rms"] = RunningMeanStdModel(())
        self._check_outputs()

    def _check_outputs(self) -> None:
        check_call(self._the_model, self.model, RNN_INPUTS if self.recurrent else INPUTS)
        outputs = self._outputs()
        names = [*self.distribution.DistInfo._fields, "value"]
        given = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
        got = [shape_of(output) for output in given[: len(names)]]
        if type(self.distribution) in (Categorical, MultiCategorical, Gaussian):
            size = encoded_action_size(self.env_spaces.action)
            shapes = [*[(3, size)] * (len(names) - 1), (3,)]
        else:  # which alone knows the sizes of its parameters
            shapes = [*got[: len(names) - 1], (3,)]
        if got != shapes or len(given) != len(names) + bool(self.recurrent):
            expected = ", ".join(f"{name} {list(shape)}" for name, shape in zip(names, shapes, strict=False))
            raise ValueError(
                f"{self._the_model} gave {described(outputs)} for 3 rows; "
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

    def make_distribution(self, env_spaces: EnvSpaces) -> Categorical | MultiCategorical | Gaussian:
        """Return the distribution for the action space."""
        space = env_spaces.action
        if (choices := categorical_of(space)) is not None:
            return choices
        if isinstance(space, gymnasium.spaces.Box):
            return Gaussian.from_space(space)
        raise TypeError(
            f"{type(self).__name__}: the action space is {space}; expected Discrete, MultiDiscrete, MultiBinary or Box."
        )

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the default model; a recurrent agent's has an LSTM or the layer that the agent names."""
        return PgModel(env_spaces.observation, env_spaces.action, **self.default_model_kwargs())

    def __call__(
        self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer, *rnn: Buffer
    ) -> tuple[Buffer, torch.Tensor]:
        """Return distribution parameters and value, with gradient; for the arguments see `BaseAgent.__call__`."""
        return self.acts_on(super().__call__(observation, prev_action, prev_reward, *rnn))

    def acts_on(self, output: Buffer) -> tuple[Buffer, torch.Tensor]:
        """Return distribution parameters and value."""
        *params, value = output
        return self.distribution.DistInfo(*params), value

    def act(self, output: tuple[Buffer, torch.Tensor], actor: ModelActor) -> torch.Tensor:
        """Return samples of the distribution, or the most probable actions in a deterministic evaluation."""
        if actor.deterministic:
            return self.best_action(output)
        dist_info, _ = output
        sample: torch.Tensor = self.distribution.sample(dist_info, actor.draw(self.distribution.draw_noise))
        return sample

    def best_action(self, output: tuple[Buffer, torch.Tensor]) -> torch.Tensor:
        """Return the most probable actions [B]."""
        mode: torch.Tensor = self.distribution.mode(output[0])
        return mode

    def agent_info(self, output: tuple[Buffer, torch.Tensor]) -> NamedArrayTuple:
        """Return distribution parameters and value."""
        return AgentInfoRnn(*output, None) if self.recurrent else AgentInfo(*output)

    def value_of(self, output: tuple[Buffer, torch.Tensor]) -> torch.Tensor:
        """Return the values [B]."""
        return output[1]


@dataclass(kw_only=True, eq=False)
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


@dataclass(kw_only=True, eq=False)
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
