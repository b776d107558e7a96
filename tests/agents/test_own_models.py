"""Models of a user's own, those of rlpyt 0.1 among them: what they are given, and what is said if they do not fit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import (
    AtariFfAgent,
    CatDqnAgent,
    CategoricalPgAgent,
    DdpgAgent,
    DqnAgent,
    GaussianPgAgent,
    IqnAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    RecurrentSacAgent,
    SacAgent,
)
from rlpyt.agents.own_models import build_model
from rlpyt.models import FeatureModel, Model, MujocoFfModel
from rlpyt.spaces import EnvSpaces

A = 3
VECTOR = spaces.Box(-1, 1, (4,), np.float32)
DISCRETE = EnvSpaces(VECTOR, spaces.Discrete(A))
CHOICES = EnvSpaces(VECTOR, spaces.MultiDiscrete([2, 1, 3]))
BOX = EnvSpaces(VECTOR, spaces.Box(-2, 2, (2,), np.float32))


# ---- arguments ----


class Old(nn.Module):
    """A model as rlpyt 0.1 had them: told of no spaces."""

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.hidden = hidden
        self.pi, self.v = nn.Linear(4, A), nn.Linear(4, 1)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return self.pi(observation), self.v(observation).squeeze(-1)


class OldQ(Old):
    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return self.pi(observation)


class OfOneSpace(Old):
    def __init__(self, action_space: Any) -> None:
        super().__init__(int(action_space.n))


class OfAll(Old):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(len(kwargs))


class OldMu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return self.net(observation).tanh()


class OldQOfMu(nn.Module):
    """Action values of one network, which is not told how many to be."""

    def __init__(self, observation_shape: Any, action_size: int) -> None:
        super().__init__()
        self.net = nn.Linear(observation_shape[0] + action_size, 1)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, action: Any) -> Any:
        return self.net(torch.cat([observation, action], -1)).squeeze(-1)[None]


@pytest.mark.parametrize(
    ("agent", "hidden"),
    [
        (CategoricalPgAgent(ModelCls=Old, model_kwargs={"hidden": 5}), 5),
        (CategoricalPgAgent(ModelCls=OfOneSpace), A),
        (CategoricalPgAgent(ModelCls=OfAll), 2),
        (CategoricalPgAgent(ModelCls=lambda: Old(7)), 7),
        (DqnAgent(ModelCls=OldQ), 8),
    ],
)
def test_a_model_is_told_only_what_it_takes(agent: Any, hidden: int) -> None:
    agent.initialize(DISCRETE)
    assert agent.model.hidden == hidden


class Wide(nn.Linear):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out)


def test_the_parts_of_a_policy_with_action_values_too() -> None:
    DdpgAgent(ModelCls=OldMu, QModelCls=OldQOfMu).initialize(BOX)
    sizes = dict(observation_shape=(4,), action_size=2)
    GaussianPgAgent(ModelCls=MujocoFfModel, model_kwargs=sizes).initialize(BOX)  # as scripts of 0.1 had it


def test_what_the_user_gives_comes_before_what_the_agent_tells() -> None:
    model: Any = build_model("", Wide, {"n_in": 3, "n_out": 4, "unknown": 5}, {"n_out": 7})
    assert (model.in_features, model.out_features) == (3, 7)


class Needs(Old):
    def __init__(self, n_in: int, n_out: int = 3) -> None:
        super().__init__()


class PassesOn(Old):
    def __init__(self, size: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)


@pytest.mark.parametrize(
    ("ModelCls", "kwargs", "said"),
    [
        (Needs, {}, r"ModelCls, Needs, takes n_in, n_out, and n_in was not given; .*observation_space"),
        (Needs, {"n_in": 4, "n_outs": 3}, r"ModelCls: Needs has no argument 'n_outs'. Did you mean n_out\?"),
        (PassesOn, {}, "ModelCls: PassesOn has no argument 'observation_space'. It has: size, hidden"),
        (None, {"hiden_sizes": 3}, r"PgModel has no argument 'hiden_sizes'. Did you mean hidden_sizes\?"),
        (Old(), {}, "ModelCls is an object, a Old; expected a class, or a function that returns a new model"),
        ("Old", {}, "ModelCls is the object 'Old'; expected a class"),
        (lambda: 3, {}, "ModelCls, .*lambda.*, returned the object 3; expected a torch.nn.Module"),
    ],
)  # fmt: skip
def test_what_a_model_takes_is_said_where_it_is_given_something_else(ModelCls: Any, kwargs: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        CategoricalPgAgent(ModelCls=ModelCls, model_kwargs=kwargs).initialize(DISCRETE)


def test_default_networks_without_the_argument() -> None:
    with pytest.raises(TypeError, match="SacAgent: the policy: PiMlpModel has no argument 'n_layers'"):
        SacAgent(model_kwargs={"n_layers": 3}).initialize(BOX)
    with pytest.raises(TypeError, match="SacAgent: QModelCls: QofMuMlpModel has no argument 'n_layers'"):
        SacAgent(q_model_kwargs={"n_layers": 3}).initialize(BOX)


# ---- forward ----


class OldRnn(nn.Module):
    """A recurrent model of rlpyt 0.1, which knows of no episode starts."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.pi, self.v = nn.LSTM(4, 6), nn.Linear(6, A), nn.Linear(6, 1)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, init_rnn_state: Any) -> Any:
        x, state = self.lstm(observation[None], init_rnn_state)
        return self.pi(x[0]), self.v(x[0]).squeeze(-1), state


class OldRnnBody(FeatureModel):
    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, rnn_state: Any) -> Any:  # type: ignore[override]
        return super().forward(observation, prev_action, prev_reward, rnn_state)


class RecurrentBodyAgent(RecurrentSacAgent):
    def make_body(self) -> Model:
        return OldRnnBody(self.env_spaces.observation, self.distribution.dim, recurrent="gru")


class NoBodyAgent(SacAgent):
    def make_body(self) -> Any:
        return nn.Linear(4, 4)


def test_forward_must_take_what_it_is_called_with() -> None:
    said = r"a OldRnn, has forward\(observation: .*, init_rnn_state.*\).*Add `episode_start=None` as its last argument"
    with pytest.raises(TypeError, match=said):
        RecurrentCategoricalPgAgent(ModelCls=OldRnn).initialize(DISCRETE)
    with pytest.raises(TypeError, match=r"R2d1Agent: the model.*Add `episode_start=None`"):
        R2d1Agent(ModelCls=OldRnn).initialize(DISCRETE)
    with pytest.raises(TypeError, match=r"RecurrentBodyAgent: the body.*Add `episode_start=None`"):
        RecurrentBodyAgent().initialize(BOX)
    with pytest.raises(
        TypeError, match=r"CategoricalPgAgent: the model, a OldRnn, .*Write forward\(self, observation, "
    ):
        CategoricalPgAgent(ModelCls=OldRnn).initialize(DISCRETE)
    with pytest.raises(TypeError, match=r"the action values, a OldMu, .* 4 arguments by position"):
        DdpgAgent(QModelCls=OldMu).initialize(BOX)
    with pytest.raises(TypeError, match="NoBodyAgent: make_body returned a Linear; expected a Model"):
        NoBodyAgent().initialize(BOX)


# ---- outputs ----


def gives(function: Any) -> Any:
    """Return the class of a model that gives `function(observation)`."""

    class Gives(nn.Module):
        def forward(self, observation: Any, *others: Any) -> Any:
            return function(observation)

    return Gives


def zeros(*shape: int) -> Any:
    return lambda observation: torch.zeros(len(observation), *shape)


STATE = torch.zeros(1, 3, 5)


@pytest.mark.parametrize(
    ("AgentCls", "function", "said"),
    [
        (DqnAgent, lambda x: (torch.zeros(len(x), A),), r"a tuple of 1: a tensor .*expected q \[3, 3\], no tuple"),
        (DqnAgent, zeros(A + 1), r"gave a tensor \[3, 4\] for 3 rows; expected q \[3, 3\]"),
        (CatDqnAgent, zeros(A), r"expected logits of the atoms \[3, 3, 51\]"),
        (CatDqnAgent, zeros(A, 1), r"gave a tensor \[3, 3, 1\] for 3 rows; expected logits of the atoms"),
        (QrDqnAgent, zeros(A), r"expected quantiles \[3, 3, n\]"),
        (IqnAgent, zeros(A, 8), r"expected Quantiles of rlpyt.models: value \[3, 3, n\] and tau \[3, n\]"),
        (R2d1Agent, zeros(A), r"expected q \[3, 3\], and its next state, as a tuple"),
        (R2d1Agent, lambda x: (zeros(A)(x), STATE.mT), r"a next state of shapes \[\[1, 5, 3\]\] .*\[N, 3, H\]"),
        (RecurrentCategoricalPgAgent, lambda x: (zeros(A)(x), zeros()(x), None), r"a next state of shapes \[\]"),
    ],
)  # fmt: skip
def test_outputs_that_do_not_fit_are_refused(AgentCls: Any, function: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AgentCls(ModelCls=gives(function)).initialize(DISCRETE)


def test_policies_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"DdpgAgent: the policy, a Gives, gave a tuple of 2: .*expected mu \[3, 2\]"):
        DdpgAgent(ModelCls=gives(lambda x: (zeros(2)(x), zeros(2)(x)))).initialize(BOX)
    with pytest.raises(ValueError, match=r"gave a tensor \[3, 4\] .*expected mean \[3, 2\], log_std \[3, 2\]"):
        SacAgent(ModelCls=gives(zeros(4))).initialize(BOX)


def test_outputs_that_fit_are_taken() -> None:
    DqnAgent(ModelCls=gives(zeros(A))).initialize(DISCRETE)
    CatDqnAgent(ModelCls=gives(zeros(A, 5)), n_atoms=5).initialize(DISCRETE)
    R2d1Agent(ModelCls=gives(lambda x: (zeros(A)(x), torch.zeros(1, len(x), 5)))).initialize(DISCRETE)
    SacAgent(ModelCls=gives(lambda x: [zeros(2)(x), zeros(2)(x)])).initialize(BOX)


def test_an_agent_of_ones_own_may_take_another_output() -> None:
    class TwoHeads(DqnAgent):
        def q_values(self, output: Any) -> Any:
            return output[0]

    TwoHeads(ModelCls=gives(lambda x: (zeros(A)(x), zeros(7)(x)))).initialize(DISCRETE)


# ---- probabilities ----


def pg(logits: Any) -> Any:
    return lambda x: (logits(x), x.sum(-1))


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x[:, :A].softmax(-1)


def softmax_of_choices(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:, :2].softmax(-1), torch.ones(len(x), 1), x[:, 1:].softmax(-1)], -1)


def atoms(x: torch.Tensor) -> torch.Tensor:
    return x[:, None].expand(-1, A, -1).softmax(-1)


@pytest.mark.parametrize(
    ("agent", "env_spaces"),
    [
        (CategoricalPgAgent(gives(pg(softmax))), DISCRETE),
        (CategoricalPgAgent(gives(pg(softmax_of_choices))), CHOICES),
        (CatDqnAgent(ModelCls=gives(atoms), n_atoms=4), DISCRETE),
        (RecurrentCategoricalPgAgent(gives(lambda x: (*pg(softmax)(x), torch.zeros(1, len(x), 2)))), DISCRETE),
    ],
)
def test_probabilities_for_logits_are_refused(agent: Any, env_spaces: EnvSpaces) -> None:
    with pytest.raises(ValueError, match=r"these look like probabilities; expected logits.*or the logarithm"):
        agent.initialize(env_spaces)


@pytest.mark.parametrize(
    "logits",
    [
        lambda x: torch.full((len(x), A), 1 / A),  # a softmax over a head of zeros, or what is meant
        lambda x: torch.tensor([1.0, 0, 0]).expand(len(x), -1),
        lambda x: nn.functional.one_hot((x[:, 0] > 0).long(), A).float(),
    ],
)
def test_what_may_be_meant_is_warned_of(logits: Any) -> None:
    with pytest.warns(UserWarning, match="look like probabilities"):
        CategoricalPgAgent(gives(pg(logits))).initialize(DISCRETE)


@pytest.mark.parametrize(
    "logits",
    [
        lambda x: x[:, :A],
        lambda x: torch.zeros(len(x), A),
        lambda x: x[:, :A].log_softmax(-1),
        lambda x: x[:, :A].sigmoid(),
        lambda x: softmax(x) * 2,
        lambda x: softmax(x) / (x.abs().sum() == 0),  # NaN but for null rows
    ],
)
def test_logits_are_taken_without_a_word(logits: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CategoricalPgAgent(gives(pg(logits))).initialize(DISCRETE)


def test_the_check_leaves_the_streams_and_an_odd_model_alone() -> None:
    def fails_on_what_never_comes(x: torch.Tensor) -> Any:
        assert not x.any()
        return softmax(x).double() * 0 + torch.rand(len(x), A), x.sum(-1)

    space = DISCRETE.observation
    space.seed(3)
    expected = space.sample()
    space.seed(3)
    torch.manual_seed(0)
    CategoricalPgAgent(gives(pg(lambda x: torch.rand(len(x), A)))).initialize(DISCRETE)
    state = torch.get_rng_state()
    np.testing.assert_array_equal(space.sample(), expected)
    torch.manual_seed(0)
    torch.rand(3, A)  # of the check of shapes
    assert torch.equal(torch.get_rng_state(), state)
    CategoricalPgAgent(gives(fails_on_what_never_comes)).initialize(DISCRETE)


def test_atari_s_names_are_offered_too() -> None:
    class Image(nn.Module):
        def __init__(self, output_size: int) -> None:
            super().__init__()
            self.n = output_size

        def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
            return zeros(self.n)(observation), zeros()(observation)

    AtariFfAgent(ModelCls=Image).initialize(EnvSpaces(spaces.Box(0, 255, (1, 8, 8), np.uint8), spaces.Discrete(A)))
