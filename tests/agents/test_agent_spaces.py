"""Spaces that an agent cannot act in, and models of one's own."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import (
    AtariDqnAgent,
    AtariFfAgent,
    AtariLstmAgent,
    CategoricalPgAgent,
    DqnAgent,
    GaussianPgAgent,
    MujocoFfAgent,
    MujocoLstmAgent,
    PgAgent,
    RecurrentCategoricalPgAgent,
)
from rlpyt.spaces import EnvSpaces
from tests.agents.agent_kinds import ACTIONS, OBSERVATIONS


@pytest.mark.parametrize(
    ("AgentCls", "observation", "action", "message"),
    [
        (CategoricalPgAgent, "vector", "box", r"CategoricalPgAgent: the action space is Box.*Use GaussianPgAgent"),
        (RecurrentCategoricalPgAgent, "vector", "box", "Use GaussianPgAgent"),
        (GaussianPgAgent, "vector", "discrete", r"GaussianPgAgent: .*Discrete.*Use CategoricalPgAgent"),
        (GaussianPgAgent, "vector", "multi", "expected a Box"),
        (DqnAgent, "vector", "box", r"DqnAgent: .*expected Discrete.*policy-gradient"),
        (DqnAgent, "vector", "multi", "expected Discrete"),
        (AtariFfAgent, "vector", "discrete", r"image model.*CategoricalPgAgent or DqnAgent"),
        (AtariLstmAgent, "image", "multi", "image model"),
        (AtariDqnAgent, "nested", "discrete", "image model"),
        (MujocoFfAgent, "nested", "box", "vector model.*GaussianPgAgent"),
        (MujocoLstmAgent, "vector", "box table", "one dimension"),
    ],
)
def test_spaces_that_do_not_fit_are_refused_with_the_agent_that_would(AgentCls, observation, action, message):
    with pytest.raises(TypeError, match=message):
        AgentCls().initialize(EnvSpaces(OBSERVATIONS[observation], ACTIONS[action]))


def test_a_space_that_no_agent_serves_is_refused():
    space = spaces.Dict({"a": spaces.Discrete(2)})
    with pytest.raises(TypeError, match=r"PgAgent: the action space is Dict.*expected Discrete, MultiDiscrete"):
        PgAgent().initialize(EnvSpaces(OBSERVATIONS["vector"], space))


def test_an_unknown_model_argument_is_refused():
    with pytest.raises(TypeError, match="hiden_sizes"):
        PgAgent(model_kwargs={"hiden_sizes": 3}).initialize(EnvSpaces(OBSERVATIONS["vector"], ACTIONS["discrete"]))


class OwnModel(nn.Module):
    """As a user writes it: spaces and arguments in, logits and value out."""

    def __init__(self, observation_space: Any, action_space: Any, bias: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(observation_space.shape[0] + int(action_space.n) + 1, int(action_space.n))
        self.bias = bias

    def forward(self, observation: Any, prev_action: torch.Tensor, prev_reward: torch.Tensor) -> Any:
        x = torch.cat([observation, prev_action, prev_reward[..., None]], -1)
        return self.linear(x) + self.bias, x.sum(-1)


class OwnRecurrentModel(nn.Module):
    """A recurrent one that returns torch's own plain pair of states."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(observation_space.shape[0], 6)
        self.head = nn.Linear(6, int(action_space.n))

    def forward(
        self, observation: Any, prev_action: torch.Tensor, prev_reward: torch.Tensor, rnn_state: Any, starts: Any = None
    ) -> Any:
        T, B = (1, *prev_reward.shape)[-2:]
        x = observation.reshape(T, B, -1)
        outputs = []
        for t in range(T):
            if starts is not None and rnn_state is not None:
                keep = (~starts[t]).float()[:, None]
                rnn_state = (rnn_state[0] * keep, rnn_state[1] * keep)
            output, rnn_state = self.lstm(x[t : t + 1], rnn_state)
            outputs.append(output)
        x = torch.cat(outputs).reshape(*prev_reward.shape, 6)
        return self.head(x), x.sum(-1), rnn_state


def test_a_model_of_ones_own_is_given_spaces_arguments_and_encoded_actions():
    agent = CategoricalPgAgent(ModelCls=OwnModel, model_kwargs={"bias": 0.5})
    agent.initialize(EnvSpaces(OBSERVATIONS["vector"], ACTIONS["discrete"]))
    assert agent.model.bias == 0.5
    _, value = agent(torch.zeros(2, 3), torch.tensor([1, 2]), torch.tensor([0.0, 5.0]))
    assert value.tolist() == [1.0, 6.0]


def test_a_model_of_ones_own_is_trained_and_saved_like_the_others():
    agent = DqnAgent(ModelCls=lambda observation_space, action_space: OwnQ(observation_space, action_space))
    agent.initialize(EnvSpaces(OBSERVATIONS["vector"], ACTIONS["discrete"]))
    assert set(agent.state_dict()["model"]) == set(agent.state_dict()["target"]) == {"linear.weight", "linear.bias"}
    agent.update_obs_rms(torch.zeros(2, 3))


class OwnQ(OwnModel):
    def forward(self, observation: Any, prev_action: torch.Tensor, prev_reward: torch.Tensor) -> Any:
        return super().forward(observation, prev_action, prev_reward)[0]


@pytest.mark.parametrize("kind", ["serial", "cpu2"])
def test_a_plain_pair_is_a_recurrent_state(kind, tmp_path):
    """The whole way: sampling, recording [T, B], training on the state before the first row."""
    from tests.runners.runner_kit import make_algo, make_sampler, rows_of, run

    agent = RecurrentCategoricalPgAgent(ModelCls=OwnRecurrentModel)
    sampler = make_sampler(kind, gymnasium.make, env_kwargs={"id": "CartPole-v1"})
    run(tmp_path, (make_algo("ppo")[0], agent), sampler)
    assert [float(row["klMax"]) < 1 for row in rows_of(tmp_path)] == [True] * 3


@pytest.mark.parametrize(
    ("action", "outputs", "expected"),
    [
        ("discrete", [(3, 5), (3,)], r"gave a tuple of 2: .* for 3 rows.*expected logits \[3, 4\], value \[3\]"),
        (
            "discrete",
            [(3, 4), (3, 1)],
            r"a tensor \[3, 4\], a tensor \[3, 1\] for 3 rows; expected logits \[3, 4\], value \[3\]",
        ),
        ("discrete", [(3, 4)], r"gave a tuple of 1"),
        ("box", [(3, 2), (2,), (3,)], r"expected mean \[3, 2\], log_std \[3, 2\], value \[3\]"),
        ("box", [(3, 2), (3,)], r"gave a tuple of 2"),
    ],
)
def test_a_model_whose_outputs_do_not_fit_is_refused(action, outputs, expected):
    class Odd(nn.Module):
        def __init__(self, observation_space: Any, action_space: Any) -> None:
            super().__init__()

        def forward(self, *inputs: Any) -> Any:
            return tuple(torch.zeros(shape) for shape in outputs)

    with pytest.raises(ValueError, match=rf"PgAgent: the model, a Odd, .*{expected}"):
        PgAgent(ModelCls=Odd).initialize(EnvSpaces(OBSERVATIONS["vector"], ACTIONS[action]))


def test_a_model_that_returns_numpy_is_told_so():
    class InNumpy(OwnModel):
        def forward(self, *inputs: Any) -> Any:
            logits, value = super().forward(*inputs)
            return logits.numpy(), value

    with pytest.raises(ValueError, match=r"gave a tuple of 2: a ndarray, a tensor \[3\] for 3 rows"):
        PgAgent(ModelCls=InNumpy).initialize(EnvSpaces(OBSERVATIONS["vector"], ACTIONS["discrete"]))
