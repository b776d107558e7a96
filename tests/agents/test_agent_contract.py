"""What samplers, algorithms and runners may expect of any agent, over every agent and the spaces that it serves."""

from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import pytest
import torch

from rlpyt.agents import DqnAgent, PgAgent, QpgAgent
from rlpyt.distributions import Categorical
from rlpyt.testing import check_agent
from rlpyt.utils.arrays import buffer_func, buffer_leaves, torchify_buffer
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.shared_memory import dumps
from tests.agents.acting_copies import Elsewhere
from tests.agents.agent_kinds import GREEDY, KINDS, Q_LEARNERS, Sampled, make_agent, random_inputs, spaces_of
from tests.pairs import others_nightly

B, GLOBAL_B, RANKS = 3, 5, [1, 2, 4]


def of_every_sort() -> list[str]:
    """Return kinds that together have every class, and every observation and action that its base serves."""
    chosen, seen = [], set[Any]()
    for kind, (AgentCls, _, observation, action) in KINDS.items():
        bases = [base for base in (PgAgent, DqnAgent, QpgAgent) if issubclass(AgentCls, base)]
        sorts = {AgentCls, *product(bases, [observation, action])}
        if not sorts <= seen:
            chosen.append(kind)
            seen |= sorts
    return chosen


@pytest.fixture(params=others_nightly(KINDS, of_every_sort()))
def kind(request):
    return request.param


@pytest.fixture
def agent(kind):
    agent = Sampled(make_agent(kind), GLOBAL_B, RANKS, seed=1)
    agent.begin(0)
    return agent


def inputs_of(kind: str, *lead: int, seed: int = 0) -> Any:
    return torchify_buffer(random_inputs(spaces_of(kind), *lead, seed=seed))


def assert_close(a: Any, b: Any, tol: float = 1e-5) -> None:
    leaves_a, leaves_b = buffer_leaves(a), buffer_leaves(b)
    assert len(leaves_a) == len(leaves_b) > 0
    torch.testing.assert_close(leaves_a, leaves_b, rtol=tol, atol=tol)


def differs(a: Any, b: Any) -> bool:
    return any(not torch.equal(x, y) for x, y in zip(buffer_leaves(a), buffer_leaves(b), strict=True))


def outputs_of(agent: Any, inputs: Any) -> Any:
    """Return what the model says, with no state before."""
    with torch.no_grad():
        return agent(*inputs)


def quieten(*agents: Any) -> None:
    """Let noisy networks, which draw noise at every step, be without from now on."""
    for agent in agents:
        agent.networks.draw_randomness(None)
        agent.now._noisy_layers = []


def test_the_contract_of_users_is_kept(kind):
    check_agent(lambda: make_agent(kind, seed=torch.initial_seed()), spaces_of(kind))


def test_an_environment_sees_the_same_noise_whoever_acts_in_it(agent, kind):
    inputs = inputs_of(kind, GLOBAL_B)
    agent.take(GLOBAL_B, seed=1)
    agent.begin(0)
    together = [agent.step(*inputs).action for _ in range(6)]
    for ranks in ([0, 3], RANKS):
        agent.take(GLOBAL_B, ranks, seed=1)
        agent.begin(0)
        for all_actions in together:
            action = agent.step(*inputs[ranks]).action
            torch.testing.assert_close(action, all_actions[ranks], rtol=1e-5, atol=1e-5)
    agent.take(GLOBAL_B, seed=2)
    agent.begin(0)
    assert not all(torch.equal(agent.step(*inputs).action, all_actions) for all_actions in together)


def test_the_model_says_the_same_under_any_leading_dimensions(agent, kind):
    inputs = inputs_of(kind, 2, B)
    agent.train_mode(0)
    state = (agent_state(agent, B), torch.ones(2, B, dtype=torch.bool)) if agent.recurrent else ()
    outputs = agent(*inputs, *state)
    leaves = buffer_leaves(outputs)
    assert all(tuple(leaf.shape[:2]) == (2, B) for leaf in leaves)
    # Of implicit quantiles the fractions are no output of the network.
    assert [leaf.requires_grad for leaf in leaves] == [True] * (len(leaves) - ("Iqn" in kind)) + [False] * (
        "Iqn" in kind
    )
    for t in range(2):
        assert_close(buffer_func(outputs, lambda x, t=t: x[t]), agent(*inputs[t]))


def agent_state(agent: Any, n: int) -> Any:
    """Return a recurrent state that is not zero, [n, N, H]."""
    example = buffer_func(agent.rnn_state_example(), lambda x: x.transpose(0, 1))
    return buffer_func(example, lambda x: torch.full((n, *x.shape[1:]), 0.3))


def test_training_computes_what_sampling_did(agent, kind):
    """Over rows with episode starts anywhere, the parameters recorded in sampling are those of the training pass."""
    T, inputs = 5, inputs_of(kind, 5, B)
    starts = torch.zeros(T, B, dtype=torch.bool)
    starts[2, 0] = starts[2, 1] = starts[4, 2] = True
    infos = []
    quieten(agent)
    agent.step(*inputs[3])  # so that the state before the first row is not zero
    for t in range(T):
        for b in starts[t].nonzero().flatten().tolist():
            agent.reset_one(b)
        infos.append(buffer_func(agent.step(*inputs[t]).agent_info, torch.clone))
    agent.train_mode(0)
    state = (infos[0].prev_rnn_state, starts) if agent.recurrent else ()
    outputs = agent(*inputs, *state)
    if kind.startswith(GREEDY):
        outputs = agent.q_values(outputs)
    if kind.startswith("Pqn"):
        outputs = outputs.amax(-1)
    for t, info in enumerate(infos):
        recorded = [x for name, x in info.items() if name != "prev_rnn_state"]
        # nn.GRU and nn.LSTM take other kernels for one row than for many.
        assert_close(tuple(recorded), buffer_func(outputs, lambda x, t=t: x[t].detach()), tol=1e-4)


def test_value_moves_no_state(agent, kind):
    inputs = inputs_of(kind, 2, B)
    agent.step(*inputs[0])
    before = agent.now.state_dict()
    if kind.startswith(Q_LEARNERS):
        with pytest.raises(TypeError, match=r"gives no values of states; expected a policy-gradient agent"):
            agent.value(*inputs[1])
        return
    value = agent.value(*inputs[1])
    after = agent.now.state_dict()
    assert value.shape == (B,)
    assert torch.equal(before["generator"], after["generator"])
    assert all(map(torch.equal, before["rnn_state"], after["rnn_state"]))
    assert_close(value, agent.step(*inputs[1]).agent_info.value)


def test_reset_one_forgets_one_environment(agent, kind):
    inputs = inputs_of(kind, 2, B)
    agent.step(*inputs[0])
    agent.reset_one(1)
    info = agent.step(*inputs[1]).agent_info
    if agent.recurrent:
        for leaf in buffer_leaves(info.prev_rnn_state):
            assert not leaf[1].any()
            assert leaf[0].any()
            assert leaf[2].any()
    agent.reset()
    if agent.recurrent:
        assert not any(leaf.any() for leaf in buffer_leaves(agent.step(*inputs[1]).agent_info.prev_rnn_state))


def test_no_mode_but_that_of_training_has_dropout(agent, kind):
    def training(network: Any) -> set[bool]:
        return {module.training for module in network.modules()}

    for act in (agent.begin, agent.begin_evaluation):
        agent.train_mode(0)
        assert training(agent.model) == {True}
        act(0)
        assert training(agent.model) == {False}


def test_targets_start_as_copies_that_are_not_trained(agent, kind):
    """Of a DroQ agent the targets of the action values are in training mode, see `QpgAgent.train_mode`."""
    names = {"model": "target_model", "q_model": "target_q_model"}
    targets = {own: target for own, target in names.items() if hasattr(agent, target)}
    assert bool(targets) == kind.startswith(Q_LEARNERS)
    agent.train_mode(0)
    for own, target in targets.items():
        weights = getattr(agent, own).state_dict()
        copies = getattr(agent, target).state_dict()
        if hasattr(agent, "has_target_policy") and not agent.has_target_policy:
            weights = {name: x for name, x in weights.items() if not name.startswith("pi.")}
        assert weights.keys() == copies.keys()
        assert all(torch.equal(x, copies[name]) for name, x in weights.items())
        assert not {x.data_ptr() for x in copies.values()} & {x.data_ptr() for x in weights.values()}
        assert not any(parameter.requires_grad for parameter in getattr(agent, target).parameters())
        if target == "target_model":
            assert not any(module.training for module in agent.target_model.modules())


def test_evaluation_has_its_own_state_and_noise(agent, kind):
    inputs, eval_inputs = inputs_of(kind, 4, B), inputs_of(kind, 2)
    without = [agent.step(*inputs[t]) for t in range(4)]
    agent.take(GLOBAL_B, RANKS, seed=1)
    evaluations = []
    for t in range(4):
        agent.train_mode(t)
        assert agent.model.training
        agent.begin_evaluation(1)
        assert not agent.model.training
        evaluations.append([agent.step(*eval_inputs) for _ in range(t + 1)])
        agent.begin(t)
        assert not agent.model.training
        assert not differs(agent.step(*inputs[t]), without[t])
    # Every evaluation begins at rest, whatever the ones before did.
    for steps in evaluations[1:]:
        assert not differs(steps[0], evaluations[0][0])
    agent.begin_evaluation(2)
    noise = [agent.step(*eval_inputs).action for _ in range(8)]
    agent.begin_evaluation(3)
    if not kind.startswith(GREEDY):  # they are greedy but for one step in a thousand
        assert any(differs(x, agent.step(*eval_inputs).action) for x in noise)


def test_deterministic_evaluations_do_not_depend_on_the_noise(agent, kind):
    if isinstance(agent.agent, QpgAgent):
        agent.anneal_exploration(0.0)  # nothing was learned: before the first iteration it explores
    else:
        agent.agent.eps_eval = 1.0
    inputs = inputs_of(kind, 4, 6)

    def actions(seed: int, itr: int, **options: Any) -> torch.Tensor:
        actor = agent.actor(range(6), 6, seed, evaluation=True)
        actor.begin(itr, **options)
        return torch.stack([actor.step(*inputs[t]).action for t in range(4)])

    first = actions(1, itr=1, deterministic=True)
    for itr in (0, 1):
        assert torch.equal(actions(2 + itr, itr, deterministic=True), first)
    # The noise is taken away by that alone: without it the same agent draws.
    assert not torch.equal(actions(2, itr=0), first)
    if not kind.startswith(GREEDY):
        assert not torch.equal(actions(2, itr=1), actions(3, itr=1))


def test_a_worker_follows_the_weights_when_they_are_published(agent, kind):
    inputs = inputs_of(kind, B)
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
    other = Elsewhere(agent)
    worker = Sampled(other.agent, GLOBAL_B, RANKS, seed=1)
    worker.begin(0)
    before = outputs_of(agent, inputs)
    assert not differs(outputs_of(worker, inputs), before)
    assert not differs(worker.step(*inputs), agent.step(*inputs))
    quieten(agent, worker)
    # An optimiser writes in place, into the master's own memory.
    sum(leaf.float().square().sum() for leaf in buffer_leaves(agent(*inputs))).backward()
    optimizer.step()
    assert differs(outputs_of(agent, inputs), before)
    assert not differs(outputs_of(worker, inputs), before)
    other.publish()
    other.take()
    assert not differs(outputs_of(worker, inputs), outputs_of(agent, inputs))
    # Loaded weights travel the same way.
    agent.load_state_dict(make_agent(kind, seed=9).state_dict())
    other.publish()
    other.take()
    assert not differs(outputs_of(worker, inputs), outputs_of(agent, inputs))


EXACT = ComputeSettings()


def test_lower_precision_gives_float32_results_near_the_exact_ones(agent, kind):
    inputs = inputs_of(kind, B)
    exact = outputs_of(agent, inputs)
    agent.to_device(ComputeSettings(precision="bfloat16", channels_last=True))
    rough = outputs_of(agent, inputs)
    with agent.autocast():
        acted = agent.step(*inputs).agent_info, agent.step(*inputs).agent_info
    assert all(leaf.dtype == torch.float32 for leaf in buffer_leaves((rough, acted)))
    # In digits that bfloat16 has not; log_std of a new Gaussian policy, and the first recurrent state, are 0.
    assert not any(leaf.any() and torch.equal(leaf, leaf.bfloat16().float()) for leaf in buffer_leaves(acted))
    assert_close(rough, exact, tol=0.05)
    agent.to_device(EXACT)
    assert_close(outputs_of(agent, inputs), exact)


def test_a_model_is_never_replaced_and_never_missed_silently(agent, kind):
    AgentCls, model_kwargs, *_ = KINDS[kind]
    new = AgentCls(model_kwargs=model_kwargs)
    with pytest.raises(RuntimeError, match=r"is not initialised.*expected agent.initialize"):
        new.load_state_dict({})
    with pytest.raises(RuntimeError, match=r"is not initialised"):
        new.actor([0], 1, 0)
    new = make_agent(kind)
    new.initialize(spaces_of(kind))  # again, but nothing is lost yet
    new.load_state_dict(agent.state_dict())
    agent.train_mode(0)
    for precious in (new, agent):
        with pytest.raises(RuntimeError, match=r"initialize was called again.*initial_model_state_dict=agent.model"):
            precious.initialize(spaces_of(kind))


def test_a_restarted_worker_has_noise_of_its_own() -> None:
    agent = make_agent(next(iter(KINDS)))
    states = [agent.actor([0], 2, seed=0, restarts=restarts).generator.get_state() for restarts in (0, 0, 1, 2)]
    assert torch.equal(states[0], states[1])
    assert len({tuple(state.tolist()) for state in states}) == 3


def test_a_workers_copy_is_sent_without_the_schedule_and_the_actors_by_hand() -> None:
    agent = make_agent(next(iter(KINDS)))
    agent.explore_by(lambda itr: None)  # which cannot be pickled, as what it belongs to need not be
    agent.sample_mode(0)
    copy = pickle.loads(dumps(agent.acting_copy()))
    assert copy.exploration.fraction_after(0) is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("DqnAgent vector discrete", "model"),
        ("DqnAgent vector discrete", "target_model"),
        ("Ddpg vector box", "model"),
        ("Sac vector box", "q_model"),
    ],
)
def test_a_target_follows_the_network_that_a_subclass_has_put_in_place(kind, name) -> None:
    agent = make_agent(kind)
    other = make_agent(kind, seed=1)
    setattr(agent, name, getattr(other, name))
    agent.update_target(1.0)
    network, target = (getattr(agent, f"{x}{name.removeprefix('target_')}").state_dict() for x in ("", "target_"))
    assert all(torch.equal(weight, network[key]) for key, weight in target.items())


class Reader(torch.nn.Module):
    def forward(self, observation, prev_action, prev_reward):
        return prev_action


class Doubled(Categorical):
    def encode(self, action):
        return 2 * super().encode(action)


class DoubledAgent(DqnAgent):
    def initialize(self, env_spaces):
        super().initialize(env_spaces)
        self.model = Reader()
        self.distribution = Doubled(int(env_spaces.action.n))


@pytest.mark.parametrize("begin", [lambda agent: agent.actor([0], 1, 0), lambda agent: agent.to_device(EXACT)])
def test_previous_actions_are_encoded_by_what_a_subclass_has_put_in_place(begin) -> None:
    agent = make_agent("DqnAgent vector discrete")
    assert agent.networks.encode(torch.tensor([2])).shape == (1,)  # the default model does not read it
    doubled = DoubledAgent()
    doubled.initialize(spaces_of("DqnAgent vector discrete"))
    begin(doubled)
    assert doubled(torch.zeros(1, 3), torch.tensor([2]), torch.zeros(1)).tolist() == [[0.0, 0.0, 2.0, 0.0]]
