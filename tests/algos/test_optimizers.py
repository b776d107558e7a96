"""Optimisers of one's own, in place of what the settings would build, and learning rates by parameter group."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, DdpgAgent, DqnAgent, SacAgent, Td3Agent
from rlpyt.algos import A2C, DDPG, DQN, PPO, SAC, TD3, RlAlgorithm, VTrace
from rlpyt.algos.gradient_descent import GradientDescent
from tests.algos.small_problems import RandomEnv, batches, check_parameters, learn_from, optimize, parameters64, set_up
from tests.pairs import crossed

N_ITR = 10
Q_SETTINGS: dict[str, Any] = dict(batch_size=16, min_steps_learn=64, replay_size=500)
BOX: dict[str, Any] = dict(action_space=spaces.Box(-1, 1, (2,)))
SMALL: dict[str, Any] = dict(hidden_sizes=8)
ONE_OPTIMISER: dict[str, Any] = {
    "A2C": (A2C, {}, CategoricalPgAgent),
    "VTrace": (VTrace, {}, CategoricalPgAgent),
    "PPO": (PPO, dict(epochs=1), CategoricalPgAgent),
    "DQN": (DQN, dict(**Q_SETTINGS, replay_ratio=1), DqnAgent),
}
SEVERAL: dict[str, Any] = {
    name: (AlgoCls, dict(**Q_SETTINGS, replay_ratio=1), AgentCls)
    for name, AlgoCls, AgentCls in (("DDPG", DDPG, DdpgAgent), ("TD3", TD3, Td3Agent), ("SAC", SAC, SacAgent))
}


def of(Rule: Any, AlgoCls: Any) -> Any:
    """Return the algorithm with what a rule overrides."""
    return type(Rule.__name__, (Rule, AlgoCls), {})


def learned(
    AlgoCls: Any, settings: dict[str, Any], AgentCls: Any, n_itr: int = 6, size: int = 8
) -> tuple[Any, Any, Any]:
    """Return algorithm, agent, and the agent's networks, with a hidden layer of a size, as they began."""
    several, hidden = AgentCls in (DdpgAgent, Td3Agent, SacAgent), dict(hidden_sizes=size)
    agent = AgentCls(model_kwargs=hidden, **(dict(q_model_kwargs=hidden) if several else {}))
    algo = AlgoCls(**settings)
    sampler = set_up(algo, agent, RandomEnv, BOX if several else None, n_itr=N_ITR)
    before = [deepcopy(module.state_dict()) for module in agent.networks.modules()]
    learn_from(algo, sampler, n_itr)
    return algo, agent, before


def moved(module: torch.nn.Module, before: dict[str, torch.Tensor]) -> list[bool]:
    return [not torch.equal(parameter, before[name]) for name, parameter in module.named_parameters()]


class Grouped(RlAlgorithm):
    """Sets an optimiser with groups after the library's own."""

    def optim_initialize(self, rank: int = 0) -> None:
        super().optim_initialize(rank)
        first, second, *rest = self.agent.parameters()
        groups = [dict(params=rest), dict(params=[first], lr=1e-4), dict(params=[second], lr=0.0)]
        self.optimizer = torch.optim.SGD(groups, lr=self.hyper(0).learning_rate, momentum=0.9)


class AddedGroup(RlAlgorithm):
    """Adds a group of half the rate to the optimiser that stands."""

    def optim_initialize(self, rank: int = 0) -> None:
        first, *rest = self.agent.parameters()
        self.descents.add("model", rest)
        self.optimizer.add_param_group(dict(params=[first], lr=self.hyper(0).learning_rate / 2))


@pytest.mark.parametrize("kind", ONE_OPTIMISER)
def test_groups_of_an_optimiser_of_ones_own_keep_their_ratio_to_the_learning_rate(kind):
    AlgoCls, settings, AgentCls = ONE_OPTIMISER[kind]
    algo, agent, before = learned(of(Grouped, AlgoCls), dict(learning_rate="lin_1e-2", **settings), AgentCls)
    now = algo.hyper(5 * algo.steps_per_itr).learning_rate  # half of the run: all rates at half
    rates = [group["lr"] for group in algo.optimizer.param_groups]
    assert now == pytest.approx(5e-3)
    assert rates == pytest.approx([now, 5e-5, 0.0])
    assert moved(agent.model, before[0])[:3] == [True, False, True]
    saved = algo.optim_state_dict()
    assert all("momentum_buffer" in state for state in saved["state"].values())
    assert len(saved["state"]) == len(before[0])


class HalfStopped(RlAlgorithm):
    def optim_initialize(self, rank: int = 0) -> None:
        super().optim_initialize(rank)
        self.descents["pi"].optimizer = torch.optim.SGD(self.agent.pi_parameters(), lr=0.0)
        first, *rest = self.agent.q_parameters()
        groups = [dict(params=rest), dict(params=[first], lr=self.hyper(0).q_learning_rate / 10)]
        self.descents.add("q", groups, rate="q_learning_rate")


@pytest.mark.parametrize("kind", SEVERAL)
def test_optimisers_of_several_may_be_set_one_by_one(kind):
    AlgoCls, settings, AgentCls = SEVERAL[kind]
    algo, agent, (pi, q, *_) = learned(of(HalfStopped, AlgoCls), {**settings, "q_learning_rate": "lin_1e-2"}, AgentCls)
    assert algo.update_counter > 0
    assert not any(moved(agent.model, pi))
    assert all(moved(agent.q_model, q))
    assert [g["lr"] for g in algo.descents["q"].optimizer.param_groups] == pytest.approx([5e-3, 5e-4])
    assert not algo.optim_state_dict()["pi"]["state"]


class Mistaken(RlAlgorithm):
    def optim_initialize(self, rank: int = 0) -> None:
        super().optim_initialize(rank)
        self.optimizer = torch.optim.SGD(self.agent.parameters(), lr=1e-3)


@pytest.mark.parametrize("kind", SEVERAL)
def test_one_optimiser_for_several_is_refused(kind):
    AlgoCls, settings, AgentCls = SEVERAL[kind]
    with pytest.raises(AttributeError, match=r'Mistaken: given an `optimizer`.*self.descents\["pi"\].optimizer'):
        learned(of(Mistaken, AlgoCls), settings, AgentCls)
    with pytest.raises(AttributeError, match=rf"{kind}: asked for its `optimizer`"):
        learned(AlgoCls, settings, AgentCls)[0].optimizer.param_groups  # noqa: B018


def test_ratios_are_the_same_after_a_state_was_loaded():
    def parts(seed: int) -> tuple[Any, Any, Any]:
        algo, agent = of(AddedGroup, A2C)(learning_rate="lin_1e-2"), CategoricalPgAgent()
        return algo, agent, set_up(algo, agent, RandomEnv, n_itr=N_ITR, seed=seed)

    algo, agent, sampler = parts(0)
    collected = batches(sampler, 8)
    for itr in range(4):
        optimize(algo, itr, collected[itr])
    states = deepcopy((algo.state_dict(), agent.state_dict()))
    other, other_agent, _ = parts(1)
    other.load_state_dict(states[0])
    other_agent.load_state_dict(states[1])
    for itr in range(4, 8):
        optimize(algo, itr, collected[itr])
        optimize(other, itr, collected[itr])
    check_parameters(other_agent, parameters64(agent), rtol=0, atol=0)
    now = algo.hyper(7 * algo.steps_per_itr).learning_rate
    assert [group["lr"] for group in other.optimizer.param_groups] == pytest.approx([now, now / 2])


def test_a_rate_that_is_set_in_a_group_is_refused_and_a_setting_or_ratio_is_taken():
    algo, agent = A2C(), CategoricalPgAgent()
    collected = batches(set_up(algo, agent, RandomEnv, n_itr=N_ITR), 4)
    optimize(algo, 0, collected[0])
    copy = deepcopy(algo)
    algo.optimizer.param_groups[0]["lr"] = 0.5  # as a scheduler of torch does, too
    with pytest.raises(ValueError, match=r"was set to [0-9e.-]+, and every step sets it to 1 of the algorithm's"):
        optimize(algo, 1, collected[1])
    copy.learning_rate = 0.5
    optimize(copy, 1, collected[1])
    copy.optimizer.param_groups[0]["lr_scale"] = 0.1
    optimize(copy, 2, collected[2])
    assert copy.optimizer.param_groups[0]["lr"] == 0.05
    # What a state has is loaded over it.
    algo.load_state_dict(copy.state_dict())
    optimize(algo, 1, collected[1])
    assert algo.optimizer.param_groups[0]["lr"] == algo.learning_rate


def test_a_descent_of_one_s_own_beside_the_first_is_saved_and_loaded():
    class WithAnother(A2C):
        def optim_initialize(self, rank: int = 0) -> None:
            super().optim_initialize(rank)
            self.extra = torch.nn.Parameter(torch.ones(2))
            self.descents.add("extra", [self.extra])

        def gradient_step(self, loss: torch.Tensor, hyper: Any) -> torch.Tensor:
            self.descents["extra"](self.extra.square().sum(), 0.1, 1.0)
            return super().gradient_step(loss, hyper)

    algo, _, _ = learned(WithAnother, {}, CategoricalPgAgent)
    other, _, _ = learned(WithAnother, {}, CategoricalPgAgent, n_itr=0)
    other.descents.load_state_dict(algo.optim_state_dict())
    assert other.descents["extra"].state_dict()["state"][0]["step"] == 6
    with pytest.raises(ValueError, match=r"WithAnother: the state of the optimisers has no 'extra'"):
        other.descents.load_state_dict(algo.optimizer.state_dict())


@pytest.mark.parametrize(("kind", "itr"), crossed([*ONE_OPTIMISER, *SEVERAL], [0, 4], strength=1))
def test_networks_that_are_frozen_for_a_while_stay_and_others_learn(kind, itr):
    """Of several optimisers those of the policy's network, so that its action values learn alone."""
    several = kind in SEVERAL
    AlgoCls, settings, AgentCls = (SEVERAL if several else ONE_OPTIMISER)[kind]
    algo, agent = AlgoCls(**settings), AgentCls(model_kwargs=SMALL)
    collected = batches(set_up(algo, agent, RandomEnv, BOX if several else None, n_itr=N_ITR), N_ITR)
    for i, samples in enumerate(collected):
        if i == itr:
            agent.model.requires_grad_(False)
            before = [deepcopy(module.state_dict()) for module in agent.networks.modules()]
        if i == N_ITR - 2:
            assert not any(moved(agent.model, before[0]))
            assert not several or all(moved(agent.q_model, before[1]))
            agent.model.requires_grad_(True)
        optimize(algo, i, samples)
    assert any(moved(agent.model, before[0]))


class WithRatios(RlAlgorithm):
    def optim_initialize(self, rank: int = 0) -> None:
        first, *rest = self.agent.parameters()
        self.descents.add("model", [dict(params=rest), dict(params=[first], lr_scale=0.1)])


def test_a_schedule_that_begins_at_zero():
    """All groups at its rate follow it; another rate would have no ratio to it."""
    warm_up = dict(learning_rate="lin_0_1e-2")
    algo, agent, before = learned(of(WithRatios, A2C), warm_up, CategoricalPgAgent)
    assert [group["lr"] for group in algo.optimizer.param_groups] == pytest.approx([5e-3, 5e-4])
    assert all(moved(agent.model, before[0]))
    with pytest.raises(ValueError, match=r"lr 0.0001, and the algorithm's learning rate is 0 .*Give the group its r"):
        learned(of(Grouped, A2C), warm_up, CategoricalPgAgent)


class Slow(torch.optim.SGD):
    """Optimiser that wraps another one, and whose state has another form than torch's: nothing but `inner`."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__([{"params": list(params), "eps": None}], lr=lr)  # groups that say that there is no eps
        self.inner = torch.optim.Adam([x for group in self.param_groups for x in group["params"]], lr=lr)

    def step(self, closure: Any = None) -> Any:
        self.inner.step()

    def state_dict(self) -> Any:
        return {"inner": self.inner.state_dict()}

    def load_state_dict(self, state_dict: Any) -> None:
        (state,) = state_dict.values()
        self.inner.load_state_dict(state)


@pytest.mark.parametrize("OptimCls", [torch.optim.Adafactor, Slow])
def test_an_optimiser_without_eps_or_with_a_state_of_its_own_form_learns_and_goes_on(OptimCls):
    kind = (A2C, dict(OptimCls=OptimCls), CategoricalPgAgent)
    algo, agent, before = learned(*kind)
    assert algo.plan()["optimiser"] == OptimCls.__name__
    assert all(moved(agent.model, before[0]))
    other, _, _ = learned(*kind, n_itr=0)
    other.descents.load_state_dict(algo.optim_state_dict())
    if OptimCls is Slow:
        (mine, *_), (its, *_) = (x.optimizer.inner.state.values() for x in (algo, other))
        assert torch.equal(mine["exp_avg"], its["exp_avg"])
        with pytest.raises(ValueError, match=r"Slow: it is of Adam; expected one of Slow"):
            other.descents.load_state_dict(descent_of("ab").state_dict())


def test_no_optimiser_is_refused():
    class Mine(A2C):
        def optim_initialize(self, rank: int = 0) -> None:
            pass

    with pytest.raises(RuntimeError, match=r"Mine: gradient_step has no optimiser; .* Write self.optimizer = ..."):
        learned(Mine, {}, CategoricalPgAgent)


# ---- states of other networks and optimisers ----

OPTIMISERS: dict[str, Any] = {
    "Adam": dict(),
    "AdamW": dict(OptimCls=torch.optim.AdamW),
    "SGD": dict(OptimCls=torch.optim.SGD, optim_kwargs=dict(momentum=0.9)),
    "RMSprop": dict(OptimCls=torch.optim.RMSprop),
}


def with_hidden(kind: str, size: int, n_itr: int, **settings: Any) -> Any:
    """Return an algorithm whose networks have a hidden layer of a size, after some iterations."""
    AlgoCls, given, AgentCls = (SEVERAL if kind in SEVERAL else ONE_OPTIMISER)[kind]
    return learned(AlgoCls, {**given, **settings}, AgentCls, n_itr, size)[0]


@pytest.mark.parametrize(("kind", "optimiser"), crossed(["A2C", "PPO", "DQN", "SAC"], list(OPTIMISERS), strength=1))
def test_the_state_of_networks_of_other_sizes_is_refused(kind, optimiser):
    """A fused step does not compare sizes, and writes beyond the moments."""
    saved = with_hidden(kind, 8, 6, **OPTIMISERS[optimiser]).state_dict()["optimizer"]
    for size in (4, 16):
        message = rf"{optimiser}: \w+ of the parameter '[\w.]+weight' has shape \(.*\); expected .*, \(.*\). A"
        with pytest.raises(ValueError, match=message):
            with_hidden(kind, size, 0, **OPTIMISERS[optimiser], initial_optim_state_dict=saved)
    equal = with_hidden(kind, 8, 0, **OPTIMISERS[optimiser], initial_optim_state_dict=saved)
    assert list(equal.optim_state_dict()) == list(saved)


def descent_of(names: str, Cls: Any = torch.optim.Adam, groups: int = 1, size: int = 3, **settings: Any) -> Any:
    """Return the gradient steps of parameters of one size and of these names, after one of them."""
    net = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(size)) for name in names})
    parameters = [net[name] for name in names]
    split = [dict(params=parameters[i::groups]) for i in range(groups)]
    descent = GradientDescent(Cls(split, lr=0.1, **settings), 0.1, modules=[net])
    descent(sum((i + 1) * x.sum() for i, x in enumerate(parameters)), 0.1, 1.0)
    return descent


OTHERS: dict[str, Any] = {
    "order": (descent_of("ba"), "it has the parameter 'b' in the place of 'a'; expected the same names"),
    "number": (descent_of("abc"), "its parameter group 0 has 3 parameters; expected 2"),
    "groups": (descent_of("ab", groups=2), "it has 2 parameter groups; expected 1"),
    "AdamW": (descent_of("ab", torch.optim.AdamW), "it is of AdamW; expected one of Adam"),
    "SGD": (descent_of("ab", torch.optim.SGD, momentum=0.9), "it is of SGD; expected one of Adam"),
    "RAdam": (descent_of("ab", torch.optim.RAdam), "it is of RAdam; expected one of Adam"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_other_parameters_or_of_another_optimiser_is_refused(other):
    descent, (written, message) = descent_of("ab"), OTHERS[other]
    before = deepcopy(descent.state_dict())
    with pytest.raises(ValueError, match=f"Loading the state of the optimiser Adam: {message}"):
        descent.load_state_dict(written.state_dict())
    assert str(descent.state_dict()) == str(before)
    written.load_state_dict(written.state_dict())


def test_a_state_of_torch_is_taken_and_what_is_no_state_is_refused():
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(3)) for _ in range(2)], lr=0.1)
    descent_of("ab").load_state_dict(optimizer.state_dict())
    with pytest.raises(ValueError, match=r"it has no 'state' and no 'param_groups', but 'weight'; expected both"):
        descent_of("ab").load_state_dict({"weight": torch.ones(2)})
    with pytest.raises(TypeError, match=r"A2C: the state of the optimisers is 'params.pkl'; expected the result of"):
        with_hidden("A2C", 8, 0, initial_optim_state_dict="params.pkl")


# ---- parameters whose memory is not their own, or has gaps ----

TWELVE = torch.linspace(-1, 1, 12)
LAYOUTS: dict[str, Any] = {
    "slice": lambda: TWELVE.clone().view(3, 4)[:, :2],
    "channels": lambda: TWELVE.clone().view(1, 3, 2, 2)[:, :2],
    "every second": lambda: TWELVE.clone()[::2],
    "transposed": lambda: TWELVE.clone().view(3, 4).t(),
    "channels last": lambda: TWELVE.clone().view(1, 3, 2, 2).contiguous(memory_format=torch.channels_last),
    "transposed slice": lambda: TWELVE.clone().view(3, 4)[:2].t()[1:],
}
FUSED: dict[str, Any] = {
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "SGD": lambda x, **kwargs: torch.optim.SGD(x, momentum=0.9, **kwargs),
}


def weights_after(parameter: torch.nn.Parameter, optimizer: Any, taken: Any, n: int = 5) -> torch.Tensor:
    """Return a parameter after steps down a loss whose gradient is another one in every element and at every step."""
    for i in range(n):
        scale = torch.arange(parameter.numel()).view(parameter.shape) + i + 1.0
        loss = (scale * parameter.square()).sum()
        if taken is None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        else:
            taken(loss, 0.1, float("inf"))
    return parameter.detach()


@pytest.mark.parametrize(("layout", "fused"), crossed(list(LAYOUTS), list(FUSED), strength=1))
def test_a_parameter_of_any_layout_gets_the_steps_of_torch_s_default(layout, fused):
    one, other = (torch.nn.Parameter(LAYOUTS[layout]()) for _ in range(2))
    beside = torch.nn.Parameter(torch.ones(2))
    descent = GradientDescent(FUSED[fused]([one, beside], lr=0.1, fused=True), 0.1)
    plain = FUSED[fused]([other], lr=0.1)
    torch.testing.assert_close(weights_after(one, None, descent), weights_after(other, plain, None))
    assert torch.equal(beside, torch.ones(2))  # no part of the loss
    # A state goes on with the implementation of here.
    state = deepcopy(descent.state_dict())
    state["param_groups"][0]["fused"] = True
    descent.load_state_dict(state)
    torch.testing.assert_close(weights_after(one, None, descent), weights_after(other, plain, None))
    assert one.stride() == LAYOUTS[layout]().stride()
    # Laid out anew between two steps, it keeps its moments.
    one.data = one.data.contiguous()
    torch.testing.assert_close(weights_after(one, None, descent), weights_after(other, plain, None))


def test_an_expanded_parameter_and_a_sparse_gradient_are_refused_by_name():
    net = torch.nn.Module()
    net.log_std = torch.nn.Parameter(torch.zeros(1).expand(8))
    with pytest.raises(ValueError, match=r"elements of the parameter 'log_std' share memory, .* \(8,\) .*clone"):
        GradientDescent(torch.optim.Adam(net.parameters(), lr=0.1, fused=True), 0.1, modules=[net])
    net.log_std.requires_grad_(False)  # it takes no steps
    GradientDescent(torch.optim.Adam(net.parameters(), lr=0.1, fused=True), 0.1, modules=[net])
    net = torch.nn.Sequential(torch.nn.Embedding(5, 2, sparse=True), torch.nn.Linear(2, 1))
    descent = GradientDescent(torch.optim.SGD(net.parameters(), lr=0.1), 0.1, modules=[net])
    with pytest.raises(TypeError, match=r"the gradient of the parameter '0.weight' is sparse; .* Leave sparse=True"):
        descent(net(torch.tensor([1, 2])).sum(), 0.1, 1.0)
