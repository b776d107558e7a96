"""Value heads in the updates of every family: against loops over rows, in whole runs, and what is refused."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces

import rlpyt.algos.sac as sac_module
from rlpyt.agents import (
    CatDqnAgent,
    DqnAgent,
    IqnAgent,
    MujocoFfAgent,
    PgAgent,
    SacAgent,
)
from rlpyt.algos import A2C, DDPG, DQN, PPO, SAC, TD3
from rlpyt.algos.policy_gradient import loss_of_values
from rlpyt.algos.replay_rows import Outputs
from rlpyt.functional import (
    C51,
    TARGETS_OUTSIDE,
    Expectation,
    HLGauss,
    QuantileRegression,
    TwoHot,
    ValueHead,
)
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.spaces import EnvSpaces
from tests.algos.small_problems import Metronome, RandomEnv, learn_from, metronome_values, set_up, train
from tests.algos.test_algo_state import CASES, DQN_KWARGS, started
from tests.functional.test_encoded_values import places_by_loops, softmax_by_loops, two_hot_by_loops
from tests.pairs import crossed, others_nightly

HEADS: list[ValueHead] = [C51(-3, 4, 8), TwoHot(-3, 4, 8), HLGauss(-3, 4, 8), QuantileRegression(5)]
M, A = 6, 3
by_name: Any = pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)


def name_of(value: Any) -> str:
    return value if isinstance(value, str) else type(value).__name__


class Rows(NamedArrayTuple):
    """Transitions, as an update finds them."""

    action: torch.Tensor
    return_: torch.Tensor
    bootstrap_discount: torch.Tensor
    is_weights: Any = None


def rows(action: torch.Tensor) -> Any:
    return Rows(action, torch.randn(M), torch.tensor([0.9, 0.9, 0.0, 0.81, 0.9, 0.0]), torch.rand(M) + 0.5)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def target_by_loops(head: ValueHead, next_output: torch.Tensor, y_of: Any) -> list[float]:
    """Probabilities of the target of one row, whose next value x gives y_of(x)."""
    assert isinstance(head, TwoHot)
    p, places = softmax_by_loops(next_output.tolist()), places_by_loops(head)
    if not isinstance(head, C51):
        y = torch.tensor(y_of(sum(a * b for a, b in zip(p, places, strict=True))))
        return head.probabilities(y).tolist()
    target = [0.0] * head.n_bins
    for place, share in zip(places, p, strict=True):
        for i, near in enumerate(two_hot_by_loops(y_of(place), head.V_min, head.V_max, head.n_bins)):
            target[i] += share * near
    return target


def cross_entropy(target: list[float], output: torch.Tensor) -> float:
    return -sum(a * math.log(b) for a, b in zip(target, softmax_by_loops(output.tolist()), strict=True))


# ---- the loss of an update, row by row ----


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("head", HEADS[:3], ids=lambda head: type(head).__name__)
def test_dqn_against_loops(head: Any, double: bool) -> None:
    algo: Any = DQN(double_dqn=double)
    algo.agent = SimpleNamespace(values=head, q_values=head.mean)
    batch = rows(torch.randint(A, (M,)))
    online, next_online, next_target = torch.randn(3, M, A, 8).unbind(0)
    found, errors, own = algo.td_loss(
        batch, Outputs(online, next_online if double else None, next_target), algo.hyper(0)
    )
    for i in range(M):
        best = int(head.mean(next_online[i] if double else next_target[i]).argmax())

        def y_of(x: float, i: int = i) -> float:
            return float(batch.return_[i]) + float(batch.bootstrap_discount[i]) * x

        output = online[i, batch.action[i]]
        assert found[i].item() == pytest.approx(
            cross_entropy(target_by_loops(head, next_target[i, best], y_of), output), rel=1e-4
        )
        y = y_of(float(head.mean(next_target[i, best])))
        assert errors[i].item() == pytest.approx(abs(y - float(head.mean(output))), rel=1e-3, abs=1e-5)
    assert own.keys() == {TARGETS_OUTSIDE}


@pytest.mark.parametrize("kind", ["DDPG", "TD3", "SAC"])
@pytest.mark.parametrize("head", HEADS[:3], ids=lambda head: type(head).__name__)
def test_action_values_against_loops(head: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Algo: Any = {"DDPG": DDPG, "TD3": TD3, "SAC": SAC}[kind]
    algo = Algo(**(dict(fixed_alpha=0.3, reward_scale=2.0) if kind == "SAC" else {}))
    n_q, mu, log_prob = 1 if kind == "DDPG" else 2, torch.randn(M, 2), torch.randn(M)
    online, target = torch.randn(2, n_q, M, 8).unbind(0)
    units = SimpleNamespace(encode=lambda action: action, n_free=2)
    algo.agent = SimpleNamespace(
        values=head, distribution=units, q=lambda features, action: online, target_q=lambda features, action: target,
        target_mu=lambda features: mu, smoothed=lambda action, noise: action,
    )  # fmt: skip
    algo.draws = SimpleNamespace(target_q=None)
    if kind == "SAC":
        algo.actions = sac_module.SampledActions(algo, algo.agent)
    monkeypatch.setattr(sac_module, "act", lambda *given: (mu, log_prob, None))
    batch = rows(torch.randn(M, 2))
    losses, q, y, own = algo.q_losses(batch, Outputs(None, None, None, torch.zeros(M, 2)), algo.hyper(0))

    expected = [0.0] * n_q
    for i in range(M):
        lowest = min(range(n_q), key=lambda k: float(head.mean(target[k, i])))

        def y_of(x: float, i: int = i) -> float:
            entropy, scale = (0.3 * float(log_prob[i]), 2.0) if kind == "SAC" else (0.0, 1.0)
            return scale * float(batch.return_[i]) + float(batch.bootstrap_discount[i]) * (x - entropy)

        p = target_by_loops(head, target[lowest, i], y_of)
        assert y[i].item() == pytest.approx(y_of(float(head.mean(target[lowest, i]))), rel=1e-3, abs=1e-5)
        for k in range(n_q):
            expected[k] += float(batch.is_weights[i]) * cross_entropy(p, online[k, i]) / M
    assert losses.tolist() == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(q, head.mean(online))
    assert own.keys() == {TARGETS_OUTSIDE}


@by_name
def test_values_leave_out_invalid_rows(head: Any) -> None:
    agent: Any = SimpleNamespace(values=head)
    output = torch.randn(4, 2, head.n_outputs).requires_grad_()
    return_, valid = torch.randn(4, 2), torch.tensor([[1, 1], [0, 1], [1, 0], [1, 1]]).bool()
    with torch.no_grad():
        output[~valid], return_[~valid] = torch.nan, torch.nan
    loss, metrics = loss_of_values(agent, output, return_, valid)
    torch.testing.assert_close(loss, head.loss(output[valid], head.encode(return_[valid])).mean())
    assert set(metrics) == ({TARGETS_OUTSIDE} if isinstance(head, TwoHot) else set())
    loss.backward()
    assert output.grad is not None
    assert output.grad.isfinite().all()
    assert (output.grad[~valid] == 0).all()
    assert (output.grad[valid] != 0).all()


# ---- whole runs ----


BOX = spaces.Box(-1, 1, (2,))


OF_VALUES = (
    *("A2C", "PPO", "PPO LSTM", "VTrace", "PQN", "DQN n-step soft", "DQN scheduled", "DDPG", "TD3", "SAC", "SAC LSTM"),
    "discrete SAC",
)


@pytest.mark.parametrize(("case", "head"), crossed(OF_VALUES, HEADS, strength=1), ids=name_of)
def test_every_algorithm_trains_by_every_head(case: str, head: Any) -> None:
    algo, agent = CASES[case]()
    agent = agent.replace(value_head=head)
    sampler = started(algo, agent)
    before = [x.clone() for x in agent.parameters()]
    metrics: dict[str, Any] = {}
    for own in learn_from(algo, sampler, 6):
        metrics |= own
    assert algo.update_counter > 2
    assert set(algo.opt_info_fields) <= metrics.keys()
    assert (TARGETS_OUTSIDE in metrics) == isinstance(head, TwoHot)
    assert all(x.isfinite().all() for x in metrics.values())
    moved = [not torch.equal(x, y) for x, y in zip(before, agent.parameters(), strict=True)]
    assert sum(moved) > len(moved) / 2


@pytest.mark.parametrize("head", others_nightly(HEADS, (TwoHot(-3, 4, 8), QuantileRegression(5))), ids=name_of)
def test_values_of_a2c_are_learned(head: Any) -> None:
    """Reward 1 at every step of five, discount 0.5: values 1.9375 at the start to 1 at the end."""
    wide = {"V_min": -1.0, "V_max": 5.0} if isinstance(head, TwoHot) else {}
    head = type(head)(**wide)
    algo = A2C(discount=0.5, learning_rate=0.01, entropy_loss_coeff=0.0, optim_kwargs={})
    agent = PgAgent(value_head=head, model_kwargs=dict(hidden_sizes=16))
    train(algo, agent, Metronome, dict(truncates=False), n_itr=300)
    agent.eval_mode(0)
    values = torch.stack([agent.value(torch.tensor(t), None, None) for t in range(5)])
    torch.testing.assert_close(values, metronome_values(5, False, 0.5)[:5].float(), rtol=0, atol=0.1)


# ---- what is refused ----


@pytest.mark.parametrize("Agent", [DqnAgent, PgAgent, SacAgent])
def test_a_head_that_is_none_is_named_with_the_agent(Agent: Any) -> None:
    with pytest.raises(ValueError, match=rf'^{Agent.__name__}: value_head: got "?.hl_gauss.*; expected'):
        Agent(value_head="hl_gauss")


@pytest.mark.parametrize("Agent", [CatDqnAgent, IqnAgent])
def test_agents_with_a_distribution_of_their_own_take_no_head(Agent: Any) -> None:
    with pytest.raises(
        ValueError, match=r"value_head is 'two_hot:0,1'; expected none, .* take a DqnAgent with the DQN"
    ):
        Agent(value_head="two_hot:0,1")
    assert Agent(value_head="expectation").values == (
        C51(-10, 10, by_divergence=True) if Agent is CatDqnAgent else Expectation()
    )


def test_input_priorities_are_refused() -> None:
    algo = DQN(**DQN_KWARGS, prioritized_replay=True, input_priorities=True)
    with pytest.raises(ValueError, match=r"^DQN: input_priorities is True, and the agent's value_head TwoHot\(.*"):
        set_up(algo, DqnAgent(value_head=TwoHot(0, 1)), RandomEnv)


def test_value_clip_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^PPO: value_clip is 0.2, and the agent's value_head C51\(.* Leave value_clip"
    ):
        set_up(PPO(value_clip=0.2), PgAgent(value_head=C51(0, 1)), RandomEnv)


def test_a_model_of_ones_own_is_told_the_number_of_outputs() -> None:
    class Told(torch.nn.Module):
        def __init__(self, n_atoms: int) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, A * n_atoms)
            self.n_atoms = n_atoms

        def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
            return self.layer(observation).unflatten(-1, (A, self.n_atoms))

    env_spaces = EnvSpaces(spaces.Box(-1, 1, (3,)), spaces.Discrete(A))
    agent = DqnAgent(Told, value_head=HLGauss(0, 1, 9))
    agent.initialize(env_spaces)
    assert agent(torch.zeros(2, 3), torch.zeros(2).long(), torch.zeros(2)).shape == (2, A, 9)
    with pytest.raises(ValueError, match=r"outputs \[3, 3, 7\] of TwoHot\(V_min=0"):
        DqnAgent(lambda n_atoms: Told(2), value_head="two_hot:0,1,7").initialize(env_spaces)
    with pytest.raises(ValueError, match=r"value \[3, 7\]"):  # of a model of rlpyt 0.1
        MujocoFfAgent(value_head="two_hot:0,1,7").initialize(env_spaces._replace(action=spaces.Box(-1, 1, (2,))))
