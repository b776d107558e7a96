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
from tests.algos.reference import encode, mlp, rnn_step
from tests.algos.small_problems import RandomEnv
from tests.samplers.sampler_kit import assert_equal_batches, collect, running

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


def extreme(agent: Any, size: float = 100.0) -> None:
    """Let the policy say the same everywhere, as near to the bounds as it can get."""
    with torch.no_grad():
        for parameter in agent.model.pi.parameters():
            parameter.mul_(size)


# ---- bounds ----


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("way", ["first", "first by the policy", "explores", "evaluates"])
def test_actions_keep_within_the_bounds(kind, box, way):
    """To float32's precision: samplers clip what rounding leaves."""
    space, n = BOXES[box], 64
    noisy: dict[str, Any] = {} if "SAC" in kind else dict(action_std=2.0)
    pretrain = dict(pretrain_std=2.0) if way == "first by the policy" else {}
    agent = acting(kind, space, n, began=not way.startswith("first"), **noisy, **pretrain)
    extreme(agent)
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


@pytest.mark.parametrize("kind", AGENTS)
def test_first_actions_may_be_the_policy_s_with_noise(kind):
    n = 4000
    agent = acting(kind, n=n, began=False, pretrain_std=0.05)
    inputs = inputs_of(n=n)
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


@pytest.mark.parametrize("kind", ["DDPG", "TD3", "recurrent TD3"])
@pytest.mark.parametrize("std", [0.05, 0.2])
def test_noise_is_gaussian_with_the_deviation_that_was_given_and_uncorrelated(kind, std):
    noise = noise_of(acting(kind, n=500, action_std=std), 500, 20)
    N = noise.numel()
    assert noise.mean().item() == pytest.approx(0, abs=4 * std / N**0.5)
    assert noise.std().item() == pytest.approx(std, rel=4 / (2 * N) ** 0.5)
    assert ((noise / std) ** 4).mean().item() == pytest.approx(3, abs=0.4)
    assert (noise[1:] * noise[:-1]).mean().item() / std**2 == pytest.approx(0, abs=4 / N**0.5)
    assert (noise[:, 1:] * noise[:, :-1]).mean().item() / std**2 == pytest.approx(0, abs=4 / N**0.5)


def test_the_default_noise_is_a_tenth_of_half_the_range():
    assert noise_of(acting("TD3", n=2000), 2000, 5).std().item() == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize("correlation", [0.5, 0.85])
def test_correlated_noise_is_an_ar1_process_that_begins_at_zero(correlation):
    """Its variance after k steps is (1 - c^(2k)) std^2, and its autocorrelation c^lag."""
    std, n = 0.1, 4000
    noise = noise_of(acting("DDPG", n=n, action_std=std, action_noise_correlation=correlation), n, 40)
    for k in (1, 2, 5, 40):
        expected = std * (1 - correlation ** (2 * k)) ** 0.5
        assert noise[k - 1].std().item() == pytest.approx(expected, rel=0.06), k
    late = noise[-10:]
    for lag in (1, 2, 4):
        share = (late[lag:] * late[:-lag]).mean() / late.square().mean()
        assert share.item() == pytest.approx(correlation**lag, abs=0.04), lag


def test_correlated_noise_begins_anew_with_an_episode_and_only_there():
    std, c, n = 0.1, 0.9, 2000
    agent = acting("DDPG", n=n, action_std=std, action_noise_correlation=c)
    noise = noise_of(agent, n, 40, reset_every=20)
    fresh = std * (1 - c * c) ** 0.5
    assert noise[20, ::2].std().item() == pytest.approx(fresh, rel=0.1)
    assert noise[20, 1::2].std().item() == pytest.approx(std, rel=0.1)
    agent.reset()
    assert encode(agent.step(*inputs_of(n=n)).action, ASYMMETRIC).std().item() == pytest.approx(fresh, rel=0.1)


def test_noise_is_clipped_and_its_process_is_not():
    clipped = noise_of(acting("DDPG", n=500, action_std=0.3, action_noise_clip=0.2), 500, 5)
    assert clipped.abs().max().item() == pytest.approx(0.2, abs=1e-5)
    assert (clipped.abs() > 0.2 - 1e-5).double().mean().item() == pytest.approx(0.505, abs=0.05)
    kwargs: dict[str, Any] = dict(action_std=0.3, action_noise_correlation=0.8)
    free = noise_of(acting("DDPG", n=500, **kwargs), 500, 10)
    clipped = noise_of(acting("DDPG", n=500, **kwargs, action_noise_clip=0.2), 500, 10)
    torch.testing.assert_close(clipped, free.clamp(-0.2, 0.2), rtol=0, atol=1e-5)


def test_samples_of_sac_are_those_of_its_policy():
    n = 20_000
    agent, inputs = acting("SAC", n=n), inputs_of(n=n)
    inputs[0][:] = inputs[0][0]
    action, info = agent.step(*inputs)
    mean, std = info.dist_info.mean[0].item(), info.dist_info.log_std[0].exp().item()
    u = encode(action, ASYMMETRIC).atanh()
    assert u.mean().item() == pytest.approx(mean, abs=4 * std / n**0.5)
    assert u.std().item() == pytest.approx(std, rel=0.03)


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
def test_evaluation_before_the_run_is_even_at_random(kind):
    agent, inputs = acting(kind, n=200, began=False), inputs_of(n=200)
    agent.begin_evaluation(0)
    x = encode(actions(agent, inputs, 10), ASYMMETRIC)
    assert x.std().item() == pytest.approx(1 / 3**0.5, rel=0.05)


# ---- samplers ----

BOX = BOXES["per dimension"]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "DDPG correlated": ("DDPG", dict(action_std=0.3, action_noise_correlation=0.7)),
    "TD3": ("TD3", dict(action_std=0.3, action_noise_clip=0.4)),
    "SAC": ("SAC", {}),
    "recurrent DDPG correlated": ("recurrent DDPG", dict(action_std=0.3, action_noise_correlation=0.7)),
    "recurrent SAC": ("recurrent SAC", dict(pretrain_std=0.3)),
}


def collected(kind: str, sampler_kind: str, **options: Any) -> list[Any]:
    """Batches of an agent whose learning begins after the first, when workers have long started."""
    name, kwargs = KINDS[kind]
    agent = build(name, **kwargs)
    with running(sampler_kind, agent, RandomEnv, T=8, B=B, env_kwargs=dict(action_space=BOX), **options) as sampler:
        first = collect(sampler, 1)
        agent.anneal_exploration(1.0)
        return first + collect(sampler, 2, first=1)


def distance(kind: str, samples: Any) -> torch.Tensor:
    """How far actions are from the policy's best, in units of the bounds, at valid rows."""
    info = samples.agent.agent_info
    best = info.dist_info.mean.tanh() if "SAC" in kind else info.mu
    return (encode(samples.agent.action, BOX) - best.double())[samples.env.valid].abs()


@pytest.mark.parametrize("kind", ["TD3", "DDPG correlated", "recurrent SAC"])
def test_every_sampler_gives_the_same_rows(kind):
    expected = collected(kind, "serial")
    for sampler_kind in ("cpu2", "cpu3", "gpu2", "alternating2"):
        # Kernels for other numbers of rows round otherwise.
        here: dict[str, Any] = {} if kind == "recurrent SAC" else dict(start_method="here")
        assert_equal_batches(collected(kind, sampler_kind, **here), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["DDPG correlated", "TD3"])
@pytest.mark.parametrize("sampler_kind", ["serial", "cpu2"])
def test_first_actions_end_in_workers_too(kind, sampler_kind):
    before, *after = (samples for samples, _ in collected(kind, sampler_kind))
    assert distance(kind, before).max() > 0.9
    assert all(distance(kind, samples).mean() < 0.5 * distance(kind, before).mean() for samples in after)


@pytest.mark.parametrize("sampler_kind", ["serial", "cpu2"])
@pytest.mark.parametrize("kind", ["DDPG correlated", "recurrent DDPG correlated"])
def test_noise_begins_anew_where_an_episode_does_in_every_sampler(kind, sampler_kind):
    """The noise of rows, less 0.7 times that of the rows before, has the deviation of what was drawn anew."""
    name, kwargs = KINDS[kind]
    agent = build(name, **{**kwargs, "action_std": 0.02})
    agent.anneal_exploration(1.0)
    with running(sampler_kind, agent, RandomEnv, T=200, B=B, env_kwargs=dict(action_space=BOX)) as sampler:
        ((samples, _),) = collect(sampler, 1)
    noise = encode(samples.agent.action, BOX) - samples.agent.agent_info.mu.double()
    valid = samples.env.valid
    starts = valid[1:] & ~valid[:-1]
    goes_on = valid[1:] & valid[:-1]
    fresh = 0.02 * (1 - 0.49) ** 0.5
    assert noise[1:][starts].std().item() == pytest.approx(fresh, rel=0.2)
    assert (noise[1:] - 0.7 * noise[:-1])[goes_on].std().item() == pytest.approx(fresh, rel=0.1)
    product = (noise[1:] * noise[:-1])[goes_on].mean() / noise[valid].square().mean()
    assert product.item() > 0.4


@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize("sampler_kind", ["serial", "cpu2", "alternating2"])
def test_the_recorded_state_is_the_one_before_the_row(kind, sampler_kind):
    """Unrolled in float64 from the run's first row; what is recorded of the policy follows from state and row."""
    agent = build(kind)
    with running(sampler_kind, agent, RandomEnv, T=12, B=B, env_kwargs=dict(action_space=BOX)) as sampler:
        batches = [samples for samples, _ in collect(sampler, 2)]
    p = {name.removeprefix("body."): x.double() for name, x in agent.model.state_dict().items()}
    policy = {name.removeprefix("pi."): x for name, x in p.items() if name.startswith("pi.")}
    seen = 0
    for b in range(B):
        h = c = torch.zeros(6).double()
        before = False
        for samples in batches:
            info = samples.agent.agent_info
            for t in range(12):
                if samples.env.valid[t, b] and not before:
                    h = c = torch.zeros(6).double()
                    seen += 1
                before = bool(samples.env.valid[t, b])
                torch.testing.assert_close(info.prev_rnn_state.h[t, b, 0].double(), h, rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(info.prev_rnn_state.c[t, b, 0].double(), c, rtol=1e-4, atol=1e-5)
                previous = encode(samples.agent.prev_action[t, b], BOX)
                reward = samples.env.prev_reward[t, b].double()[None]
                h, c = rnn_step(p, torch.cat([samples.env.observation[t, b].double(), previous, reward]), h, c)
                output = mlp(policy, "mlp", h, torch.relu)
                recorded = torch.cat(list(info.dist_info), -1) if "SAC" in kind else info.mu
                expected = output if "SAC" in kind else output.tanh()
                torch.testing.assert_close(recorded[t, b].double(), expected, rtol=1e-4, atol=1e-5)
    assert seen > B


# ---- for algorithms ----


@pytest.mark.parametrize("kind", AGENTS)
def test_what_policy_and_values_say_of_rows_under_any_leading_dimensions(kind):
    agent = acting(kind, n_q=3)
    agent.train_mode(0)
    one = inputs_of()
    rows = [torch.stack([x, x]) for x in one]
    output, q = agent(*rows)
    assert q.shape == (3, 2, B)
    assert all(x.shape == (2, B, 1) for x in (output if "SAC" in kind else [output]))
    features = agent.features(*one)
    torch.testing.assert_close(agent.q(features, torch.zeros(B, 1)), q[:, 0])
    torch.testing.assert_close(agent.first_q(features, torch.zeros(B, 1)), q[0, 0])
    assert not agent.target_q(agent.target_features(*one), torch.zeros(B, 1)).requires_grad


@pytest.mark.parametrize("kind", AGENTS)
def test_weights_of_policy_and_values_may_be_given(kind):
    first = acting(kind)
    # Others than a new agent's own, which follow the seed.
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(0.5)
    state = first.state_dict()
    given: dict[str, Any] = dict(initial_model_state_dict=state["model"], initial_q_model_state_dict=state["q_model"])
    agent = acting(kind, **given)
    for name in ("model", "q_model"):
        assert all(torch.equal(x, state[name][key]) for key, x in agent.state_dict()[name].items())
    assert all(torch.equal(x, state["q_model"][key]) for key, x in agent.target_q_model.state_dict().items())
    new = acting(kind).state_dict()
    assert all(not torch.equal(x, new[name][key]) for name in ("model", "q_model") for key, x in state[name].items())


@pytest.mark.parametrize("kind", ["DDPG", "TD3", "SAC"])
def test_defaults_are_those_of_the_papers(kind):
    agent = AGENTS[kind]()
    agent.initialize(EnvSpaces(VECTOR, ASYMMETRIC))
    sizes = [x.shape[0] for name, x in agent.model.pi.state_dict().items() if "weight" in name]
    assert sizes == dict(DDPG=[400, 300, 1], TD3=[400, 300, 1], SAC=[256, 256, 2])[kind]
    values = [tuple(x.shape) for name, x in agent.q_model.state_dict().items() if "weight" in name]
    hidden = sizes[:2]
    assert values == [(n := 1 if kind == "DDPG" else 2, 4, hidden[0]), (n, *hidden), (n, hidden[1], 1)]
    assert agent.distribution.dim == 1


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


@pytest.mark.parametrize(
    ("kind", "kwargs", "message"),
    [
        ("DDPG", dict(n_q=0), "DdpgAgent: n_q is 0; expected a whole number from 1"),
        ("SAC", dict(n_q=-1), "SacAgent: n_q is -1; expected a whole number from 1"),
        ("DDPG", dict(action_std=-0.1), r"DdpgAgent: action_std is -0.1; expected a number from 0"),
        ("TD3", dict(action_std=math.nan), r"Td3Agent: action_std.* got value=nan; expected a number"),
        ("TD3", dict(action_noise_correlation=1.0), r"action_noise_correlation is 1.0; expected .*in \[0, 1\)"),
        ("DDPG", dict(action_noise_correlation=-0.1), r"action_noise_correlation is -0.1; expected .*in \[0, 1\)"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(kind, kwargs, message):
    with pytest.raises(ValueError, match=message):
        build(kind, **kwargs)


NEGATIVE: list[tuple[str, dict[str, Any]]] = [
    ("SAC", dict(pretrain_std=-0.5)),
    ("DDPG", dict(action_noise_clip=-0.1)),
    ("TD3", dict(target_noise_std=-0.2)),
    ("TD3", dict(target_noise_clip=-0.5)),
]


@pytest.mark.parametrize(("kind", "kwargs"), NEGATIVE)
def test_negative_deviations_and_bounds_are_refused(kind, kwargs):
    with pytest.raises(ValueError, match=next(iter(kwargs))):
        build(kind, **kwargs)


@pytest.mark.parametrize("kind", AGENTS)
def test_spaces_without_bounds_are_refused(kind):
    for low, high in ((-np.inf, np.inf), (0, np.inf), (-np.inf, 0)):
        box = spaces.Box(np.array([-1, low], np.float32), np.array([1, high], np.float32))
        with pytest.raises(
            ValueError, match=r"actions to their bounds: got low .*expected finite numbers.*Leave out .*ClipAction"
        ):
            build(kind).initialize(EnvSpaces(VECTOR, box))


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_a_single_bound_of_float32_s_largest_number_is_refused(low):
    box = spaces.Box(np.float32(low), np.finfo(np.float32).max, (2,))
    with pytest.raises(ValueError, match="expected finite numbers"):
        build("SAC").initialize(EnvSpaces(VECTOR, box))


@pytest.mark.parametrize("kind", AGENTS)
def test_reversed_bounds_are_refused(kind):
    """Gymnasium refuses them at the start, but not where an environment changes them after."""
    box = spaces.Box(-1, 1, (2,))
    box.low[1], box.high[1] = 2.0, -2.0
    with pytest.raises(ValueError, match="low <= high"):
        build(kind).initialize(EnvSpaces(VECTOR, box))


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)], ids=str)
def test_discrete_actions_are_refused(kind, space):
    with pytest.raises(TypeError, match=r"the action space is .*; expected a Box\. Use an agent for discrete actions"):
        build(kind).initialize(EnvSpaces(VECTOR, space))


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


@pytest.mark.parametrize("QModelCls", [Sums, Shifted])
def test_the_first_of_action_values_of_one_s_own(QModelCls):
    """The policy climbs what is learned, whatever of the default networks a class takes over."""
    sizes = dict(hidden_sizes=8) if QModelCls is Shifted else {}
    agent = acting("TD3", QModelCls=QModelCls, q_model_kwargs=sizes)
    features, action = agent.features(*inputs_of()), torch.full((B, 1), 0.5)
    torch.testing.assert_close(agent.first_q(features, action), agent.q(features, action)[0])


@pytest.mark.parametrize(("QModelCls", "computed"), [(None, 1), (Shifted, 2)])
def test_the_first_action_values_are_computed_alone_where_the_networks_say_so(QModelCls, computed):
    agent = acting("TD3", QModelCls=QModelCls, q_model_kwargs=dict(hidden_sizes=8))
    features, action = agent.features(*inputs_of()), torch.full((B, 1), 0.5)
    seen: list[int] = []
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
    given = acting(kind).model.state_dict()
    agent = acting(kind, began=False, initial_model_state_dict=given)
    twin = acting(kind)
    twin.model.load_state_dict(given)
    assert torch.equal(actions(agent, inputs_of(), 3), actions(twin, inputs_of(), 3))
    agent.begin_evaluation(0)
    twin.begin_evaluation(1)
    assert torch.equal(agent.step(*inputs_of()).action, twin.step(*inputs_of()).action)


@pytest.mark.parametrize("shape", [(1, 3, 1), (3, 1), (3,), (2, 3, 1)])
@pytest.mark.parametrize("kind", ["TD3", "SAC", "recurrent SAC"])
def test_action_values_of_another_shape_are_refused(kind, shape):
    class Odd(nn.Module):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__()
            self.q = nn.Parameter(torch.zeros(shape))

        def forward(self, *inputs: Any) -> torch.Tensor:
            return self.q

    agent = build(kind, QModelCls=Odd, q_model_kwargs={})
    with pytest.raises(ValueError, match=r"the action values, a Odd, are \[.*\] for 3 rows; expected \[2, 3\]"):
        agent.initialize(EnvSpaces(VECTOR, ASYMMETRIC))


def test_recurrent_features_are_for_recurrent_agents_alone():
    for kind, recurrent in (("SAC", "lstm"), ("TD3", "gru"), ("recurrent TD3", None)):
        agent = build(kind, feature_kwargs=dict(recurrent=recurrent))
        with pytest.raises(ValueError, match=rf"has recurrent={recurrent!r}; expected .*RecurrentTd3Agent"):
            agent.initialize(EnvSpaces(VECTOR, ASYMMETRIC))


def test_targets_are_optional():
    class WithoutTargets(SacAgent):
        has_targets = False

    agent = WithoutTargets(model_kwargs=dict(hidden_sizes=8), q_model_kwargs=dict(hidden_sizes=8))
    agent.initialize(EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32)))
    assert list(agent.state_dict()) == ["model", "annealed", "q_model"]
    rows = agent.features(*example_inputs(agent.env_spaces, 4))
    assert agent.q(rows, torch.zeros(4, 2)).shape == (2, 4)
    agent.train_mode(0)
    agent.update_target(0.1)
    with pytest.raises(AttributeError, match=r"WithoutTargets has no network 'target_q'"):
        agent.target_q(rows, torch.zeros(4, 2))
