"""Agents of DDPG, TD3 and SAC as they act: bounds, noise, first actions, workers, recurrent states, and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import (
    DdpgAgent,
    RecurrentDdpgAgent,
    RecurrentSacAgent,
    RecurrentTd3Agent,
    SacAgent,
    Td3Agent,
)
from rlpyt.core import example_inputs
from rlpyt.models import QofMuMlpModel
from rlpyt.spaces import EnvSpaces
from tests.agents.agent_kinds import Sampled
from tests.algos.reference import encode
from tests.pairs import crossed

B = 4
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
ASYMMETRIC = spaces.Box(np.float32(-0.1), np.float32(3.0), (1,))
BOXES: dict[str, spaces.Box] = {
    "asymmetric": ASYMMETRIC,
    "per dimension": spaces.Box(np.array([-0.1, -2, 0], np.float32), np.array([3, 5, 0.01], np.float32)),
    "table": spaces.Box(
        np.array([[-1, 2], [0, -9]], np.float64), np.array([[1, 3], [1e3, 0]], np.float64), dtype=np.float64
    ),
}
AGENTS: dict[str, Any] = {
    "DDPG": DdpgAgent,
    "TD3": Td3Agent,
    "SAC": SacAgent,
    "recurrent DDPG": RecurrentDdpgAgent,
    "recurrent TD3": RecurrentTd3Agent,
    "recurrent SAC": RecurrentSacAgent,
}
RECURRENT = [kind for kind in AGENTS if kind.startswith("recurrent")]


def build(kind: str, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    small: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=8), q_model_kwargs=dict(hidden_sizes=8))
    if kind in RECURRENT:
        small["feature_kwargs"] = dict(rnn_size=6)
    return AGENTS[kind](**{**small, **kwargs})


def acting(kind: str, space: Any = ASYMMETRIC, n: int = B, began: bool = True, **kwargs: Any) -> Any:
    """Return an agent in charge of n environments, past its first actions or before them."""
    agent = build(kind, **kwargs)
    agent.initialize(EnvSpaces(VECTOR, space))
    agent.anneal_exploration(float(began))
    sampled = Sampled(agent, n, seed=1, n_eval=n)
    sampled.begin(1)
    return sampled


def inputs_of(space: Any = ASYMMETRIC, n: int = B) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    observation = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    return observation, torch.zeros(n, *space.shape), torch.zeros(n)


def actions(agent: Any, inputs: Any, steps: int) -> torch.Tensor:
    return torch.stack([agent.step(*inputs).action for _ in range(steps)])


# ---- bounds ----


@pytest.mark.parametrize(
    ("kind", "box", "way"),
    crossed(list(AGENTS), list(BOXES), ["first", "first by the policy", "explores", "evaluates"]),
)
def test_actions_keep_within_the_bounds(kind, box, way):
    """To float32's precision: samplers clip what rounding leaves."""
    space, n = BOXES[box], 64
    noisy: dict[str, Any] = {} if "SAC" in kind else dict(action_std=2.0)
    pretrain = dict(pretrain_std=2.0) if way == "first by the policy" else {}
    agent = acting(kind, space, n, began=not way.startswith("first"), **noisy, **pretrain)
    with torch.no_grad():  # a policy that says the same everywhere, as near to the bounds as it can get
        for parameter in agent.model.pi.parameters():
            parameter.mul_(100)
    if way == "evaluates":
        agent.begin_evaluation(1)
    action = actions(agent, inputs_of(space, n), 20)
    assert action.shape == (20, n, *space.shape)
    assert action.dtype == torch.float32
    low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
    slack = 1e-6 * (high - low)
    assert ((action >= low - slack) & (action <= high + slack)).all()
    if way.startswith("first"):
        spread = action.flatten(0, 1).amax(0) - action.flatten(0, 1).amin(0)
        assert (spread > 0.9 * (high - low)).all()


# ---- first actions ----


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("box", BOXES)
def test_first_actions_are_even_over_the_whole_range(kind, box):
    """In each dimension by the Kolmogorov-Smirnov distance, below its quantile of 0.999; and one tells no other."""
    space, n, steps = BOXES[box], 50, 40
    x = encode(actions(acting(kind, space, n, began=False), inputs_of(space, n), steps), space)
    x = x.reshape(n * steps, -1)
    N = len(x)
    for column in x.T:
        ordered = (column.sort().values + 1) / 2
        steps_of = torch.arange(1, N + 1) / N
        assert max((steps_of - ordered).max(), (ordered - steps_of + 1 / N).max()) < 1.95 / math.sqrt(N)
    if x.shape[1] > 1:
        correlation = torch.corrcoef(x.T) - torch.eye(x.shape[1]).double()
        assert correlation.abs().max() < 4 / math.sqrt(N)


@pytest.mark.parametrize("kind", ["TD3", "recurrent SAC"])
def test_first_actions_may_be_the_policy_s_with_noise(kind):
    agent, inputs = acting(kind, n=4000, began=False, pretrain_std=0.05), inputs_of(n=4000)
    agent.begin_evaluation(1)
    best = encode(agent.step(*inputs).action, ASYMMETRIC)
    agent.begin(1)
    noise = encode(agent.step(*inputs).action, ASYMMETRIC) - best
    assert noise.mean().item() == pytest.approx(0, abs=0.004)
    assert noise.std().item() == pytest.approx(0.05, rel=0.06)


@pytest.mark.parametrize("kind", AGENTS)
def test_first_actions_end_with_the_next_batch_after_learning_began(kind):
    agent, inputs = acting(kind, began=False), inputs_of()
    with torch.no_grad():  # a policy that is easily told from chance
        for parameter in agent.model.pi.parameters():
            parameter.zero_()
        list(agent.model.pi.parameters())[-1][-1:] = -20.0 if "SAC" in kind else 0.0
    middle = 1.45
    assert (actions(agent, inputs, 10) - middle).abs().max() > 1
    agent.anneal_exploration(1.0)
    agent.begin(2)
    assert (actions(agent, inputs, 10) - middle).abs().max() < 1.55 * 0.5
    other = acting(kind, began=False)
    other.load_state_dict(agent.state_dict())
    other.begin(0)
    assert (actions(other, inputs, 10) - middle).abs().max() < 1.55 * 0.5


# ---- noise ----


def noise_of(agent: Any, n: int, steps: int, reset_every: int = 0) -> torch.Tensor:
    """The noise [steps, n] on a policy of zeros, in units of the bounds."""
    with torch.no_grad():
        for parameter in agent.model.pi.parameters():
            parameter.zero_()
    rows = []
    for t in range(steps):
        if reset_every and t % reset_every == 0:
            for b in range(0, n, 2):
                agent.reset_one(b)
        rows.append(encode(agent.step(*inputs_of(n=n)).action, ASYMMETRIC)[:, 0])
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("kind", "given", "c"),
    [("TD3", None, 0.0), ("recurrent TD3", 0.05, 0.0), ("DDPG", 0.2, 0.0), ("DDPG", 0.1, 0.5), ("TD3", 0.1, 0.85)],
)
def test_noise_is_an_ar1_process_that_begins_at_zero_with_every_episode(kind, given, c):
    """What is new in a step is Gaussian, and tells nothing of any other."""
    n, every, std = 1000, 10, given or 0.1
    settings = {} if given is None else dict(action_std=given, action_noise_correlation=c)
    agent = acting(kind, n=n, **settings)
    noise = noise_of(agent, n, 40, reset_every=every)
    before = torch.cat([torch.zeros(1, n), noise[:-1]])
    before[::every, ::2] = 0  # of every second environment an episode has begun
    new = (noise - c * before) / (std * (1 - c * c) ** 0.5)
    small = 4 / new.numel() ** 0.5
    assert new.mean().item() == pytest.approx(0, abs=small)
    assert new.std().item() == pytest.approx(1, rel=small)
    assert (new**4).mean().item() == pytest.approx(3, abs=0.2)
    assert (new[1:] * new[:-1]).mean().item() == pytest.approx(0, abs=small)
    assert (new[:, 1:] * new[:, :-1]).mean().item() == pytest.approx(0, abs=small)
    assert new[::every, ::2].std().item() == pytest.approx(1, rel=0.1)
    agent.reset()
    assert noise_of(agent, n, 1).std().item() == pytest.approx(std * (1 - c * c) ** 0.5, rel=0.1)


def test_noise_is_clipped_and_its_process_is_not():
    clipped = noise_of(acting("DDPG", n=500, action_std=0.3, action_noise_clip=0.2), 500, 5)
    assert clipped.abs().max().item() == pytest.approx(0.2, abs=1e-5)
    assert (clipped.abs() > 0.2 - 1e-5).double().mean().item() == pytest.approx(0.505, abs=0.05)
    kwargs: dict[str, Any] = dict(action_std=0.3, action_noise_correlation=0.8)
    free = noise_of(acting("DDPG", n=500, **kwargs), 500, 10)
    clipped = noise_of(acting("DDPG", n=500, **kwargs, action_noise_clip=0.2), 500, 10)
    torch.testing.assert_close(clipped, free.clamp(-0.2, 0.2), rtol=0, atol=1e-5)


# ---- evaluation ----


@pytest.mark.parametrize("kind", AGENTS)
def test_evaluation_is_by_the_policy_alone(kind):
    correlated: dict[str, Any] = {} if "SAC" in kind else dict(action_noise_correlation=0.5)
    agent, inputs = acting(kind, **correlated), inputs_of()
    agent.begin_evaluation(1)
    first = agent.step(*inputs)
    agent.begin_evaluation(2)
    again = agent.step(*inputs)
    assert torch.equal(first.action, again.action)
    output = again.agent_info.dist_info.mean.tanh() if "SAC" in kind else again.agent_info.mu
    torch.testing.assert_close(encode(again.action, ASYMMETRIC), output.double(), rtol=1e-4, atol=1e-5)
    agent.begin(2)
    assert not torch.equal(agent.step(*inputs).action, agent.step(*inputs).action)


@pytest.mark.parametrize("kind", AGENTS)
def test_dropout_of_the_values_is_on_in_training_and_never_in_the_policy_s_acting(kind):
    agent = acting(kind, q_model_kwargs=dict(hidden_sizes=64, dropout=0.5, layer_norm=True))
    rows, action = agent.features(*inputs_of()), torch.zeros(B, 1)
    agent.train_mode(0)
    assert not torch.equal(agent.q(rows, action), agent.q(rows, action))
    assert not torch.equal(agent.target_q(rows, action), agent.target_q(rows, action))
    agent.begin_evaluation(1)
    first = agent.step(*inputs_of()).action
    agent.begin_evaluation(1)
    assert torch.equal(agent.step(*inputs_of()).action, first)


# ---- refusals ----


class Memo(nn.Module):
    """A policy of one's own that keeps what it was given."""

    def __init__(self, observation_shape: Any, action_size: int) -> None:
        super().__init__()
        self.mu = nn.Linear(observation_shape[0], action_size)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        self.prev_action = prev_action
        return self.mu(observation).tanh()


class Sums(nn.Module):
    """Action values of one's own."""

    def __init__(self, observation_shape: Any, action_size: int, n_models: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.arange(n_models) + 1.0)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, action: Any) -> Any:
        return self.bias[:, None] + observation.sum(-1) + action.sum(-1)


class Shifted(QofMuMlpModel):
    """The default action values with something added."""

    def forward(self, *args: Any) -> torch.Tensor:
        return super().forward(*args) + 7


@pytest.mark.parametrize(("QModelCls", "computed"), [(None, 1), (Shifted, 2), (Sums, 0)])
def test_the_first_action_values_are_computed_alone_where_the_networks_say_so(QModelCls, computed):
    """The policy climbs what is learned, whatever of the default networks a class takes over."""
    agent = acting("TD3", QModelCls=QModelCls, q_model_kwargs={} if QModelCls is Sums else dict(hidden_sizes=8))
    features, action = agent.features(*inputs_of()), torch.full((B, 1), 0.5)
    torch.testing.assert_close(agent.first_q(features, action), agent.q(features, action)[0])
    seen: list[int] = []
    if computed:
        agent.q_model.mlp.register_forward_hook(lambda module, args, output: seen.append(len(output)))
        agent.first_q(features, action)
        assert seen == [computed]


@pytest.mark.parametrize(("QModelCls", "encoded"), [(None, False), (Shifted, True), (Sums, True)])
def test_previous_actions_are_encoded_where_a_network_may_read_them(QModelCls, encoded):
    sizes = {} if QModelCls is Sums else dict(hidden_sizes=8)
    agent = build("TD3", QModelCls=QModelCls, q_model_kwargs=sizes)
    agent.initialize(EnvSpaces(VECTOR, spaces.Box(np.float32(-0.1), np.float32(3.0), (1,))))
    expected = torch.tensor([[1.0]]) if encoded else torch.tensor([[3.0]])
    torch.testing.assert_close(agent.networks.encode(torch.tensor([[3.0]])), expected)


def test_a_policy_of_one_s_own_is_given_previous_actions_in_units_in_acting_and_in_learning():
    agent = acting("DDPG", n=2, ModelCls=Memo, model_kwargs={})
    inputs = torch.zeros(2, *VECTOR.shape), torch.tensor([[3.0], [-0.1]]), torch.zeros(2)
    agent.step(*inputs)
    expected = torch.tensor([[1.0], [-1.0]])
    torch.testing.assert_close(agent.model.pi.prev_action, expected)
    agent.pi(agent.features(*inputs))
    torch.testing.assert_close(agent.model.pi.prev_action, expected)
    torch.testing.assert_close(agent.target_features(*inputs).prev_action, expected)


@pytest.mark.parametrize("kind", AGENTS)
def test_given_weights_act_and_are_evaluated_by_themselves_from_the_beginning(kind):
    twin = acting(kind)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(0.1)  # others than a new agent's own, which follow the seed
    model, q_model = twin.model.state_dict(), twin.q_model.state_dict()
    agent = acting(kind, began=False, initial_model_state_dict=model, initial_q_model_state_dict=q_model)
    for network in (agent.q_model, agent.target_q_model):
        assert all(torch.equal(x, q_model[name]) for name, x in network.state_dict().items())
    assert torch.equal(actions(agent, inputs_of(), 3), actions(twin, inputs_of(), 3))
    agent.begin_evaluation(0)
    twin.begin_evaluation(1)
    assert torch.equal(agent.step(*inputs_of()).action, twin.step(*inputs_of()).action)


def test_targets_are_optional():
    agent = SacAgent(has_targets=False, model_kwargs=dict(hidden_sizes=8), q_model_kwargs=dict(hidden_sizes=8))
    agent.initialize(EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32)))
    assert list(agent.state_dict()) == ["model", "annealed", "q_model"]
    rows = agent.features(*example_inputs(agent.env_spaces, 4))
    assert agent.q(rows, torch.zeros(4, 2)).shape == (2, 4)
    agent.train_mode(0)
    agent.update_target(0.1)
    with pytest.raises(AttributeError, match=r"SacAgent has no network 'target_q'"):
        agent.target_q(rows, torch.zeros(4, 2))
