"""Models of a user's own, those of rlpyt 0.1 among them: what they are given, and what is said if they do not fit."""

from __future__ import annotations

import pickle
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import (
    AtariDqnAgent,
    AtariFfAgent,
    AtariLstmAgent,
    CatDqnAgent,
    CategoricalPgAgent,
    DdpgAgent,
    DqnAgent,
    GaussianPgAgent,
    IqnAgent,
    MujocoFfAgent,
    MujocoLstmAgent,
    PgAgent,
    PopulationAgent,
    QHead,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    RecurrentSacAgent,
    SacAgent,
    export_policy,
)
from rlpyt.agents.own_models import build_model
from rlpyt.algos import PPO
from rlpyt.core import example_inputs
from rlpyt.models import FeatureModel, Model, MujocoFfModel
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.spaces import EnvSpaces
from tests.agents.agent_kinds import ACTIONS, OBSERVATIONS
from tests.algos.small_problems import RandomEnv, optimize, set_up

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
    DdpgAgent(ModelCls=OldMu, QModelCls=OldQOfMu).initialize(BOX)
    sizes = dict(observation_shape=(4,), action_size=2)
    GaussianPgAgent(ModelCls=MujocoFfModel, model_kwargs=sizes).initialize(BOX)  # as scripts of 0.1 had it


class Pops(OldQ):
    """Takes settings out of the dictionary that configures it, as many code bases do."""

    def __init__(self, config: dict[str, Any], observation_shape: Any = None, action_size: int = 0) -> None:
        super().__init__()
        self.scale = config.pop("scale", 1.0)


class PopsMu(Pops):
    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return self.pi(observation)[..., :2].tanh()


class PopsQ(Pops):
    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, action: Any = None) -> Any:
        return self.v(observation).squeeze(-1)[None]


def test_every_network_gets_the_settings_that_were_given() -> None:
    config = {"scale": 3.0}
    kwargs: dict[str, Any] = dict(config=config)
    q_learner = DqnAgent(ModelCls=Pops, model_kwargs=kwargs)
    q_learner.initialize(DISCRETE)
    agent = DdpgAgent(ModelCls=PopsMu, model_kwargs=kwargs, QModelCls=PopsQ, q_model_kwargs=kwargs)
    agent.initialize(BOX)
    networks: list[Any] = [network for one in (q_learner, agent) for network in one.networks.modules()]
    assert {getattr(network, "scale", None) or network.pi.scale for network in networks} == {3.0}
    assert len(networks) == 2 + 4
    assert config == {"scale": 3.0}
    # What the user gives comes before what the agent tells; what cannot be copied is handed on.
    model: Any = build_model("", nn.Linear, {"in_features": 3, "out_features": 4, "unknown": 5}, {"out_features": 7})
    assert (model.in_features, model.out_features) == (3, 7)
    model = build_model("", OfAll, {}, dict(lock=threading.Lock()))
    assert model.hidden == 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_network_and_its_target_are_apart(wrapped: bool) -> None:
    net, mu, q = OldQ(), OldMu(), OldQOfMu((4,), 2)

    def again(module: Any) -> Any:
        """Return a function that returns the same module, or a new one around it."""

        class Around(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = module

            def forward(self, *inputs: Any) -> Any:
                return self.inner(*inputs)

        return Around if wrapped else lambda: module

    for agent, spaces_ in (
        (DqnAgent(ModelCls=again(net)), DISCRETE),
        (DdpgAgent(ModelCls=again(mu)), BOX),
        (SacAgent(QModelCls=again(q)), BOX),
    ):
        said = "weights of the first, inner" if wrapped else "the same module again"
        with pytest.raises(ValueError, match=rf"{type(agent).__name__}: Q?ModelCls returned .*{said}.*new module"):
            agent.initialize(spaces_)
    for parameter in net.parameters():
        assert parameter.requires_grad  # it was not taken for a target
    net.requires_grad_(False)
    if wrapped:
        DqnAgent(ModelCls=again(net)).initialize(DISCRETE)  # what does not learn may be shared


class Needs(Old):
    def __init__(self, n_in: int, n_out: int = 3) -> None:
        super().__init__()


class PassesOn(Old):
    def __init__(self, size: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)


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
    BodyCls = OldRnnBody


of_anything: Any = PgAgent


class NoBodyAgent(SacAgent):
    BodyCls = nn.Identity


@pytest.mark.parametrize(
    ("make", "env_spaces", "said"),
    [
        # arguments
        (lambda: PgAgent(Needs), DISCRETE, r"ModelCls, Needs, takes n_in, n_out, and n_in was not given; .*obs"),
        (
            lambda: PgAgent(Needs, {"n_in": 4, "n_outs": 3}),
            DISCRETE,
            r"Needs has no argument 'n_outs'. Did you mean n_out\?",
        ),
        (lambda: PgAgent(PassesOn), DISCRETE, "PassesOn has no argument 'observation_space'. It has: size, hidden"),
        (lambda: PgAgent(None, {"hiden_sizes": 3}), DISCRETE, r"PgModel has no argument 'hiden_sizes'. Did .*hidden_s"),
        (lambda: PgAgent(Old()), DISCRETE, "ModelCls is an object, a Old; expected a class, or a function that ret"),
        (lambda: of_anything("Old"), DISCRETE, "ModelCls is the object 'Old'; expected a class"),
        (
            lambda: of_anything(lambda: 3),
            DISCRETE,
            "ModelCls, .*lambda.*, returned the object 3; expected a torch.nn.M",
        ),
        (lambda: SacAgent(model_kwargs={"n_layers": 3}), BOX, "the policy: PiMlpModel has no argument 'n_layers'"),
        (lambda: SacAgent(q_model_kwargs={"n_layers": 3}), BOX, "QModelCls: QofMuMlpModel has no argument 'n_layers'"),
        (NoBodyAgent, BOX, "NoBodyAgent: BodyCls made a Identity; expected a Model"),
        # what forward is called with
        (
            lambda: RecurrentCategoricalPgAgent(OldRnn),
            DISCRETE,
            r"a OldRnn, has forward\(obs.*, init_rnn_state.*\).*Add `episode_start=None` as its last",
        ),
        (lambda: R2d1Agent(OldRnn), DISCRETE, r"R2d1Agent: the model.*Add `episode_start=None`"),
        (
            lambda: RecurrentBodyAgent(feature_kwargs=dict(recurrent="gru")),
            BOX,
            r"RecurrentBodyAgent: the body.*Add `episode_start=None`",
        ),
        (lambda: CategoricalPgAgent(OldRnn), DISCRETE, r"the model, a OldRnn, .*Write forward\(self, observation, "),
        (lambda: DdpgAgent(QModelCls=OldMu), BOX, r"a OldMu, .* 4 arguments by position.*or forward\(self, features, "),
        (lambda: R2d1Agent(sequential), DISCRETE, r"forward.*5 arguments by position"),
        (
            lambda: DqnAgent(OptionalRow),
            DISCRETE,
            r"forward\(self, observation, prev_action, prev_reward\), or forward\(self, observation\) without",
        ),
    ],
)
def test_what_a_model_takes_is_said_where_it_is_given_something_else(make: Any, env_spaces: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make().initialize(env_spaces)


class Failing(nn.Module):
    """Reads more numbers than there are."""

    def __init__(self, observation_shape: Any = None, action_size: Any = None) -> None:
        super().__init__()
        self.net = nn.Linear(9, 1)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, action: Any = None) -> Any:
        return self.net(observation["cart"] if isinstance(observation, NamedArrayTuple) else observation)


CART = EnvSpaces(spaces.Dict({"cart": VECTOR, "last-move": spaces.Discrete(2)}), spaces.Discrete(A))


CART_ROWS = "observation {cart: [3, 4] float32, last-move: [3] int64}, prev_action [3, 3] float32, prev_reward [3]"
Q_ROWS = "features [3, 4] float32, prev_action [3, 2] float32, prev_reward [3] float32, action [3, 2] float32."


@pytest.mark.parametrize(
    ("agent", "env_spaces", "said"),
    [
        (PgAgent(ModelCls=Failing), CART, f"PgAgent: the model, a Failing, raised this .* with {CART_ROWS}"),
        (DqnAgent(ModelCls=Failing), DISCRETE, "DqnAgent: the model, a Failing, .* observation [3, 4] float32"),
        (DdpgAgent(ModelCls=Failing), BOX, "DdpgAgent: the policy, a Failing, .* with features [3, 4] float32, prev_a"),
        (DdpgAgent(QModelCls=Failing), BOX, f"DdpgAgent: the action values, a Failing, .* {Q_ROWS}"),
    ],
)
def test_an_error_inside_of_a_model_tells_what_it_was_called_with(agent: Any, env_spaces: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as raised:
        agent.initialize(env_spaces)
    assert re.fullmatch(re.escape(said).replace(r"\.\*", ".*") + ".*", raised.value.__notes__[0])


class PiV(Old):
    def forward(self, x: Any) -> Any:  # type: ignore[override]
        return self.pi(x), self.v(x).squeeze(-1)


class QOfPair(OldQOfMu):
    def forward(self, x: Any, action: Any) -> Any:  # type: ignore[override]
        return super().forward(x, None, None, action)


def sequential(observation_space: Any, action_space: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, A))


def mu_of_features(observation_shape: Any, action_size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, action_size), nn.Tanh())


class OwnDefault(DqnAgent):
    DefaultModelCls = sequential


class FirstTwo(Model):
    output_size = 2

    def forward(self, x: Any) -> Any:
        return x[..., :2]


class OwnBody(SacAgent):
    BodyCls = FirstTwo


@pytest.mark.parametrize(
    ("agent", "env_spaces", "weight"),
    [
        (DqnAgent(ModelCls=sequential), DISCRETE, "0.weight"),
        (OwnDefault(), DISCRETE, "0.weight"),
        (PopulationAgent(ModelCls=sequential), DISCRETE, "0.weight"),
        (CategoricalPgAgent(ModelCls=PiV), DISCRETE, "pi.weight"),
        (DdpgAgent(ModelCls=mu_of_features, QModelCls=QOfPair), BOX, "0.weight"),
    ],
)
def test_forward_may_take_the_observation_alone(agent: Any, env_spaces: EnvSpaces, weight: str, tmp_path: Path) -> None:
    agent.initialize(env_spaces)
    rows = example_inputs(agent.env_spaces, 5)
    given = agent(*rows)
    copy = pickle.loads(pickle.dumps(agent.model))  # as workers get it
    module = agent.model.pi if isinstance(agent, DdpgAgent) else agent.model
    assert next(iter(module.state_dict())) == weight, "a wrapper would give weights other names"
    other = copy.pi if isinstance(agent, DdpgAgent) else copy
    torch.testing.assert_close(other(*rows), module(*rows))
    if isinstance(agent, DdpgAgent):
        assert given[1].shape == (1, 5)
    export_policy(agent, tmp_path / "policy.pt2")
    body = OwnBody()
    body.initialize(BOX)
    assert body.features(*example_inputs(body.env_spaces, 3)).observation.shape == (3, 2)


class OptionalRow(OldQ):
    def forward(self, x: Any, prev_action: Any = None) -> Any:  # type: ignore[override]
        return self.pi(x)


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


def q_of_shape(*shape: int) -> Any:
    return gives(lambda x: torch.zeros(shape))


@pytest.mark.parametrize(
    ("agent", "env_spaces", "said"),
    [
        (DqnAgent(gives(lambda x: (zeros(A)(x),))), DISCRETE, r"a tuple of 1: a tensor .*expected q \[3, 3\], no tup"),
        (DqnAgent(gives(zeros(A + 1))), DISCRETE, r"gave a tensor \[3, 4\] for 3 rows; expected q \[3, 3\]"),
        (CatDqnAgent(gives(zeros(A))), DISCRETE, r"expected logits of the atoms \[3, 3, 51\]"),
        (CatDqnAgent(gives(zeros(A, 1))), DISCRETE, r"gave a tensor \[3, 3, 1\] for 3 rows; expected logits of the at"),
        (QrDqnAgent(gives(zeros(A))), DISCRETE, r"expected quantiles \[3, 3, n\]"),
        (IqnAgent(gives(zeros(A, 8))), DISCRETE, r"Quantiles of rlpyt.models: value \[3, 3, n\] and tau \[3, n\]"),
        (R2d1Agent(gives(zeros(A))), DISCRETE, r"expected q \[3, 3\], and its next state, as a tuple"),
        (R2d1Agent(gives(lambda x: (zeros(A)(x), STATE.mT))), DISCRETE, r"of shapes \[\[1, 5, 3\]\] .*\[N, 3, H\]"),
        (
            RecurrentCategoricalPgAgent(gives(lambda x: (zeros(A)(x), zeros()(x), None))),
            DISCRETE,
            r"a next state of shapes \[\]",
        ),
        (
            PgAgent(gives(lambda x: (zeros(A)(x), zeros(1)(x)))),
            DISCRETE,
            r"the model, a Gives, .*a tensor \[3, 1\] for 3 rows; expected logits \[3, 3\], value \[3\]",
        ),
        (
            PgAgent(gives(lambda x: (zeros(A)(x).numpy(), zeros()(x)))),
            DISCRETE,
            "a tuple of 2: an array float32 .*, a tensor",
        ),
        (
            PgAgent(gives(lambda x: (zeros(2)(x), torch.zeros(2), zeros()(x)))),
            BOX,
            r"expected mean \[3, 2\], log_std \[3, 2\], value \[3\]",
        ),
        (DdpgAgent(gives(lambda x: (zeros(2)(x), zeros(2)(x)))), BOX, r"the policy, .*a tuple of 2: .*mu \[3, 2\]"),
        (SacAgent(gives(zeros(4))), BOX, r"gave a tensor \[3, 4\] .*expected mean \[3, 2\], log_std \[3, 2\]"),
        (SacAgent(QModelCls=q_of_shape(1, 3, 1)), BOX, r"the action values, .* \[1, 3, 1\] for 3 rows; expected \[2"),
        (RecurrentSacAgent(QModelCls=q_of_shape(3)), BOX, r"the action values, .* \[3\] for 3 rows; expected \[2, 3\]"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(agent: Any, env_spaces: EnvSpaces, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        agent.initialize(env_spaces)


# ---- probabilities ----


def pg(logits: Any) -> Any:
    return lambda x: (logits(x), x.sum(-1))


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x[:, :A].softmax(-1)


class First(QHead):
    def read(self, output: Any) -> Any:
        return output[0]


class TwoHeads(DqnAgent):
    HeadCls = First


def test_outputs_that_fit_are_taken() -> None:
    DqnAgent(ModelCls=gives(zeros(A))).initialize(DISCRETE)
    CatDqnAgent(ModelCls=gives(zeros(A, 5)), n_atoms=5).initialize(DISCRETE)
    R2d1Agent(ModelCls=gives(lambda x: (zeros(A)(x), torch.zeros(1, len(x), 5)))).initialize(DISCRETE)
    SacAgent(ModelCls=gives(lambda x: [zeros(2)(x), zeros(2)(x)])).initialize(BOX)
    TwoHeads(ModelCls=gives(lambda x: (zeros(A)(x), zeros(7)(x)))).initialize(DISCRETE)
    small = EnvSpaces(spaces.Box(0, 255, (1, 8, 8), np.uint8), DISCRETE.action)
    AtariFfAgent(ModelCls=lambda output_size: gives(lambda x: (zeros(output_size)(x), zeros()(x)))()).initialize(small)


def softmax_of_choices(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:, :2].softmax(-1), torch.ones(len(x), 1), x[:, 1:].softmax(-1)], -1)


def atoms(x: torch.Tensor) -> torch.Tensor:
    return x[:, None].expand(-1, A, -1).softmax(-1)


LOGITS: dict[str, list[Any]] = {
    "refused": [
        CategoricalPgAgent(gives(pg(softmax))),
        CatDqnAgent(ModelCls=gives(atoms), n_atoms=4),
        RecurrentCategoricalPgAgent(gives(lambda x: (*pg(softmax)(x), torch.zeros(1, len(x), 2)))),
    ],
    "warned of": [
        lambda x: torch.full((len(x), A), 1 / A),  # a softmax over a head of zeros, or what is meant
        lambda x: nn.functional.one_hot((x[:, 0] > 0).long(), A).float(),
    ],
    "taken": [
        lambda x: x[:, :A],
        lambda x: torch.zeros(len(x), A),
        lambda x: x[:, :A].log_softmax(-1),
        lambda x: x[:, :A].sigmoid(),
        lambda x: softmax(x) * 2,
        lambda x: softmax(x) / (x.abs().sum() == 0),  # NaN but for null rows
    ],
}


def test_probabilities_for_logits_are_refused_and_what_may_be_meant_is_warned_of() -> None:
    said = r"these look like probabilities; expected logits.*or the logarithm"
    for agent in LOGITS["refused"]:
        with pytest.raises(ValueError, match=said):
            agent.initialize(DISCRETE)
    with pytest.raises(ValueError, match=said):
        CategoricalPgAgent(gives(pg(softmax_of_choices))).initialize(CHOICES)
    for logits in LOGITS["warned of"]:
        with pytest.warns(UserWarning, match="look like probabilities"):
            CategoricalPgAgent(gives(pg(logits))).initialize(DISCRETE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for logits in LOGITS["taken"]:
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


# ---- spaces ----


@pytest.mark.parametrize(
    ("AgentCls", "observation", "action", "message"),
    [
        (CategoricalPgAgent, "vector", "box", r"CategoricalPgAgent: the action space is Box.*Use GaussianPgAgent"),
        (RecurrentCategoricalPgAgent, "vector", "box", "Use GaussianPgAgent"),
        (GaussianPgAgent, "vector", "discrete", r"GaussianPgAgent: .*Discrete.*expected a Box.*Use CategoricalPgAgent"),
        (PgAgent, "vector", None, r"PgAgent: the action space is Text.*expected Discrete, MultiDiscrete"),
        (DqnAgent, "vector", "box", r"DqnAgent: .*expected Discrete.*policy-gradient"),
        (SacAgent, "vector", "multi", r"the action space is .*; expected a Box\. Use an agent for discrete actions"),
        (DdpgAgent, "vector", "binary", r"the action space is .*; expected a Box\. Use an agent for discrete actions"),
        (AtariFfAgent, "vector", "discrete", r"image model.*CategoricalPgAgent or DqnAgent"),
        (AtariLstmAgent, "image", "multi", "image model"),
        (AtariDqnAgent, "nested", "discrete", "image model"),
        (MujocoFfAgent, "nested", "box", "vector model.*GaussianPgAgent"),
        (MujocoLstmAgent, "vector", "box table", "one dimension"),
    ],
)
def test_spaces_that_do_not_fit_are_refused_with_the_agent_that_would(AgentCls, observation, action, message):
    space = ACTIONS[action] if action else spaces.Text(2)
    with pytest.raises(TypeError, match=message):
        AgentCls().initialize(EnvSpaces(OBSERVATIONS[observation], space))


# ---- states ----


class PairOfStates(nn.Module):
    """Recurrent model that returns torch's own plain pair of states."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(observation_space.shape[0], 6)
        self.head = nn.Linear(6, int(action_space.n))

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, rnn_state: Any, starts: Any = None) -> Any:
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


@pytest.mark.parametrize("options", [{}, dict(n_workers=2, start_method="here")])
def test_a_plain_pair_is_a_recurrent_state(options: dict[str, Any]) -> None:
    """The whole way: sampling, recording [T, B], training on the state before the first row."""
    agent, algo = RecurrentCategoricalPgAgent(ModelCls=PairOfStates), PPO(minibatches=2, epochs=1)
    SamplerCls = CpuSampler if options else SerialSampler
    sampler = set_up(algo, agent, RandomEnv, SamplerCls=SamplerCls, **options)
    try:
        for itr in range(3):
            kl = optimize(algo, itr, sampler.obtain_samples(itr)[0])["kl"]
            assert kl[0] < 1e-6, "the first update's ratios are 1"
    finally:
        sampler.shutdown()
