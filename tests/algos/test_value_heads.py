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
    DdpgAgent,
    DqnAgent,
    IqnAgent,
    MujocoFfAgent,
    PgAgent,
    PqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    RecurrentSacAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import A2C, DDPG, DQN, PPO, PQN, QRDQN, R2D1, SAC, TD3, CategoricalDQN, VTrace
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
    value_loss,
)
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.spaces import EnvSpaces
from tests.algos.small_problems import Metronome, RandomEnv, metronome_values, optimize, set_up, train
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


@pytest.mark.parametrize(
    ("Algo", "head", "of_algo"),
    [
        (CategoricalDQN, C51(-3, 4, 8, by_divergence=True), dict(V_min=-3, V_max=4)),
        (QRDQN, QuantileRegression(8), {}),
        (DQN, Expectation(), {}),
    ],
)
def test_algorithms_of_one_head_have_the_losses_of_that_head(Algo: Any, head: Any, of_algo: Any) -> None:
    algo, by_head = Algo(**of_algo), DQN()
    algo.agent = by_head.agent = SimpleNamespace(values=head, q_values=head.mean)  # type: ignore[assignment]
    shape = (2, M, A) if head.n_outputs is None else (2, M, A, 8)
    online, next_target = torch.randn(shape).unbind(0)
    batch, outputs = rows(torch.randint(A, (M,))), Outputs(online, None, next_target)
    expected = algo.td_loss(batch, outputs, algo.hyper(0))
    assert torch.equal(by_head.td_loss(batch, outputs, algo.hyper(0))[0], expected[0])


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


def test_a_plain_target_of_ones_own_is_encoded() -> None:
    class Myopic(DDPG):
        def q_target(self, batch: Any, outputs: Any, hyper: Any) -> torch.Tensor:
            return batch.return_

    head, online, batch = HLGauss(-3, 4, 8), torch.randn(1, M, 8), rows(torch.zeros(M, 1))
    algo: Any = Myopic()
    units = SimpleNamespace(encode=lambda action: action)
    algo.agent = SimpleNamespace(values=head, distribution=units, q=lambda features, action: online)
    losses = algo.q_losses(batch, Outputs(None, None, None), algo.hyper(0))[0]
    rows_loss = head.loss(online, head.encode(batch.return_))
    torch.testing.assert_close(losses, (rows_loss * batch.is_weights).mean(-1))


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


def test_the_loss_of_a_number_is_that_of_before() -> None:
    value, return_, valid = torch.randn(5), torch.randn(5), torch.tensor([1, 0, 1, 1, 1]).bool()
    agent: Any = SimpleNamespace(values=Expectation())
    assert torch.equal(loss_of_values(agent, value, return_, valid)[0], value_loss(value, return_, valid))


# ---- whole runs ----

BOX = spaces.Box(-1, 1, (2,))
SMALL: dict[str, Any] = dict(hidden_sizes=8)
NETS: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)
REPLAY: dict[str, Any] = dict(replay_size=500, min_steps_learn=32, batch_size=16, replay_ratio=1)
SEQUENCES: dict[str, Any] = dict(
    replay_size=500, min_steps_learn=96, batch_T=4, batch_B=2, warmup_T=4, store_rnn_state_interval=4, replay_ratio=1
)
RUNS: dict[str, Any] = {
    "DQN": (DQN, REPLAY, DqnAgent, dict(model_kwargs=dict(SMALL, dueling=True, noisy=True)), None),
    "DQN scaled, prioritised": (
        DQN,
        dict(REPLAY, value_scale_eps=0.01, n_step_return=3, prioritized_replay=True, double_dqn=True),
        DqnAgent,
        dict(model_kwargs=SMALL),
        None,
    ),
    "R2D1": (
        R2D1,
        dict(SEQUENCES, input_priorities=False),
        R2d1Agent,
        dict(model_kwargs=dict(SMALL, rnn_size=6)),
        None,
    ),
    "DDPG": (DDPG, REPLAY, DdpgAgent, NETS, BOX),
    "TD3": (TD3, REPLAY, Td3Agent, NETS, BOX),
    "SAC": (SAC, REPLAY, SacAgent, NETS, BOX),
    "REDQ": (SAC, dict(REPLAY, n_target_q=2, q_of_policy="mean"), SacAgent, dict(NETS, n_q=4), BOX),
    "SAC LSTM": (SAC, SEQUENCES, RecurrentSacAgent, dict(NETS, feature_kwargs=dict(rnn_size=6)), BOX),
    "A2C": (A2C, {}, PgAgent, dict(model_kwargs=SMALL), None),
    "PPO": (PPO, {}, PgAgent, dict(model_kwargs=SMALL), BOX),
    "PPO LSTM": (PPO, {}, RecurrentCategoricalPgAgent, dict(model_kwargs=dict(SMALL, rnn_size=6)), None),
    "VTrace": (VTrace, {}, PgAgent, dict(model_kwargs=SMALL), None),
    "PQN": (PQN, dict(minibatches=2), PqnAgent, dict(model_kwargs=SMALL), None),
}


def test_c51_tells_how_much_of_its_targets_is_outside_of_its_range() -> None:
    shares = []
    for V_max in (0.5, 1e3):
        algo, agent = CategoricalDQN(**REPLAY, V_min=-V_max, V_max=V_max), CatDqnAgent(n_atoms=5)
        sampler = set_up(algo, agent, RandomEnv, n_itr=5)
        metrics = [optimize(algo, itr, sampler.obtain_samples(itr)[0]) for itr in range(5)]
        assert agent.values == C51(-V_max, V_max, 5, by_divergence=True)
        shares.append(float(metrics[-1][TARGETS_OUTSIDE].mean()))
    assert shares[0] > 0.1
    assert shares[1] == 0.0


@pytest.mark.parametrize(("kind", "head"), crossed(list(RUNS), HEADS, strength=1), ids=name_of)
def test_every_algorithm_trains_by_every_head(kind: str, head: Any) -> None:
    Algo, of_algo, Agent, of_agent, action_space = RUNS[kind]
    algo, agent = Algo(**of_algo), Agent(value_head=head, **of_agent)
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=action_space), n_itr=5)
    before = [x.clone() for x in agent.parameters()]
    metrics: dict[str, Any] = {}
    for itr in range(5):
        samples, _ = sampler.obtain_samples(itr)
        metrics |= optimize(algo, itr, samples)
    assert algo.update_counter > 2
    assert set(algo.opt_info_fields) <= metrics.keys()
    assert (TARGETS_OUTSIDE in metrics) == isinstance(head, TwoHot)
    assert all(x.isfinite().all() for x in metrics.values())
    moved = [not torch.equal(x, y) for x, y in zip(before, agent.parameters(), strict=True)]
    assert sum(moved) > len(moved) / 2
    if kind.startswith(("A2C", "PPO", "VTrace")):
        info = samples.agent.agent_info
        assert info.value.shape == samples.env.reward.shape
        assert samples.agent.bootstrap_value is None or samples.agent.bootstrap_value.shape == (1, 4)


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


@pytest.mark.parametrize("kind", ["DQN", "SAC", "PPO"])
def test_a_run_goes_on_from_its_state(kind: str) -> None:
    Algo, of_algo, Agent, of_agent, action_space = RUNS[kind]
    first, second = (Agent(value_head="hl_gauss:-3,4,8", **of_agent) for _ in range(2))
    for agent in (first, second):
        set_up(Algo(**of_algo), agent, RandomEnv, dict(action_space=action_space), seed=agent is first)
    second.load_state_dict(first.state_dict())
    assert second.values == HLGauss(-3, 4, 8)
    for x, y in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(x, y)


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
    algo = DQN(**REPLAY, prioritized_replay=True, input_priorities=True)
    with pytest.raises(ValueError, match=r"^DQN: input_priorities is True, and the agent's value_head TwoHot\(.*"):
        set_up(algo, DqnAgent(value_head=TwoHot(0, 1)), RandomEnv)


def test_value_clip_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^PPO: value_clip is 0.2, and the agent's value_head C51\(.* Leave value_clip"
    ):
        set_up(PPO(value_clip=0.2), PgAgent(value_head=C51(0, 1)), RandomEnv)


class OneOutput(torch.nn.Module):
    """Gives single numbers, whatever the head is."""

    def __init__(self, action_size: int = A) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, A)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return self.layer(observation)


class OneOutputPolicy(OneOutput):
    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return self.layer(observation), observation.sum(-1)


class OneOutputQ(OneOutput):
    def forward(self, observation: Any, prev_action: Any, prev_reward: Any, action: Any = None) -> Any:
        return observation.sum(-1).expand(2, -1)


@pytest.mark.parametrize(
    ("agent", "action", "what"),
    [
        (
            DqnAgent(OneOutput, value_head="two_hot:0,1,7"),
            spaces.Discrete(A),
            r"outputs \[3, 3, 7\] of TwoHot\(V_min=0",
        ),
        (PgAgent(OneOutputPolicy, value_head="c51:0,1,7"), spaces.Discrete(A), r"value \[3, 7\]"),
        (
            SacAgent(QModelCls=OneOutputQ, value_head="two_hot:0,1,7"),
            BOX,
            r"expected \[2, 3, 7\].* TwoHot\(.*n_atoms outputs",
        ),
        (MujocoFfAgent(value_head="two_hot:0,1,7"), BOX, r"value \[3, 7\]"),
    ],
    ids=["q", "policy", "action values", "model of rlpyt 0.1"],
)
def test_a_model_with_other_outputs_is_refused(agent: Any, action: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        agent.initialize(EnvSpaces(spaces.Box(-1, 1, (3,)), action))


def test_a_model_of_ones_own_is_told_the_number_of_outputs() -> None:
    class Told(OneOutput):
        def __init__(self, n_atoms: int) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, A * n_atoms)
            self.n_atoms = n_atoms

        def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
            return self.layer(observation).unflatten(-1, (A, self.n_atoms))

    agent = DqnAgent(Told, value_head=HLGauss(0, 1, 9))
    agent.initialize(EnvSpaces(spaces.Box(-1, 1, (3,)), spaces.Discrete(A)))
    assert agent(torch.zeros(2, 3), torch.zeros(2).long(), torch.zeros(2)).shape == (2, A, 9)
