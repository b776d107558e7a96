"""Settings of agents: dataclass fields, schedules in every process, recurrence, and what a new rule or target costs."""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import pickle
import pkgutil
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import rlpyt.agents
from rlpyt.agents import (
    AtariCatDqnAgent,
    BaseAgent,
    CatDqnAgent,
    DdpgAgent,
    DqnAgent,
    MujocoLstmAgent,
    PgAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentSacAgent,
    RecurrentTd3Agent,
    SacAgent,
    Td3Agent,
)
from rlpyt.agents.networks import Network
from rlpyt.agents.rules import Exploration
from rlpyt.models import update_target
from rlpyt.settings import all_settings
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.shared_memory import dumps
from tests.agents.acting_copies import Elsewhere

DISCRETE = EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4))
BOX = EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32))
SMALL: dict[str, Any] = dict(hidden_sizes=8)
SMALL_QPG: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)
MODULES = [importlib.import_module(f"rlpyt.agents.{m.name}") for m in pkgutil.iter_modules(rlpyt.agents.__path__)]
CLASSES = {x for m in MODULES for x in vars(m).values() if inspect.isclass(x) and issubclass(x, BaseAgent)}
CONCRETE = sorted((x for x in CLASSES if not inspect.isabstract(x)), key=lambda x: x.__name__)


# ---- fields ----


def made(AgentCls: Any, env_spaces: EnvSpaces, **settings: Any) -> Any:
    """Return an initialised agent."""
    agent = AgentCls(**settings)
    agent.initialize(env_spaces)
    return agent


@pytest.mark.parametrize("AgentCls", CONCRETE)
def test_an_agent_is_made_again_from_its_settings_and_tells_them_all(AgentCls):
    agent = AgentCls(None, model_kwargs=SMALL)
    settings = all_settings(agent)
    assert settings["model_kwargs"] == SMALL
    assert settings["model_kwargs"] is not SMALL
    assert all_settings(AgentCls(**settings)) == settings
    names = list(inspect.signature(AgentCls).parameters)
    assert names == list(settings)
    assert names[0] == "ModelCls"
    doc = AgentCls.__doc__ or ""
    for name in names:
        assert f"    {name}: " in doc
        assert f"    {name}: \n" not in doc, f"{name} has no docstring"
    # rlpyt 0.1 took three of them without a name.
    state = dict(weight=1)
    agent = AgentCls(dict, SMALL, state)
    assert (agent.ModelCls, agent.model_kwargs, agent.initial_model_state_dict) == (dict, SMALL, state)


@pytest.mark.parametrize("AgentCls", [PgAgent, RecurrentSacAgent])
def test_arguments_that_are_none_are_refused(AgentCls):
    with pytest.raises(
        TypeError, match=rf"{AgentCls.__name__} has no argument 'model_kwarg'. Did you mean model_kwarg"
    ):
        AgentCls(model_kwarg=SMALL)
    with pytest.raises(TypeError, match=r"positional"):
        AgentCls(None, {}, None, False)
    with pytest.raises(TypeError, match=r"model_kwargs is <class 'list'>; expected a dictionary.* as QModelCls="):
        AgentCls(dict, list)  # the agents of DDPG, TD3 and SAC had QModelCls here
    with pytest.raises(TypeError, match=r"initial_model_state_dict is \[4\]; expected a dictionary"):
        AgentCls(dict, SMALL, [4])


# ---- recurrence ----


@pytest.mark.parametrize(
    ("AgentCls", "env_spaces", "kwargs", "layer"),
    [
        (PgAgent, DISCRETE, dict(model_kwargs=SMALL), lambda agent: agent.model.core),
        (DqnAgent, DISCRETE, dict(model_kwargs=SMALL), lambda agent: agent.model.core),
        (SacAgent, BOX, SMALL_QPG, lambda agent: agent.model.body.core),
        (Td3Agent, BOX, SMALL_QPG, lambda agent: agent.model.body.core),
    ],
)
@pytest.mark.parametrize(("recurrent", "n_leaves"), [(True, 2), ("lstm", 2), ("gru", 1)])
def test_recurrence_is_a_setting(AgentCls, env_spaces, kwargs, layer, recurrent, n_leaves):
    agent = made(AgentCls, env_spaces, recurrent=recurrent, **kwargs)
    assert layer(agent) is not None
    assert len(agent.actor([0], 1, seed=0).state_dict()["rnn_state"]) == n_leaves
    feed_forward = made(AgentCls, env_spaces, **kwargs)
    assert not feed_forward.recurrent
    assert feed_forward.actor([0], 1, seed=0).rnn_state is None


class WithGru(DqnAgent):
    recurrent = "gru"


def test_recurrence_may_be_set_in_the_body_of_a_class():
    agents = made(WithGru, DISCRETE, model_kwargs=SMALL), R2d1Agent(), DqnAgent()
    assert [agent.recurrent for agent in agents] == ["gru", True, False]
    assert isinstance(RecurrentSacAgent(), SacAgent)
    made(MujocoLstmAgent, BOX, recurrent="lstm")


@pytest.mark.parametrize(
    ("agent", "env_spaces", "said"),
    [
        (DqnAgent(recurrent="gru", model_kwargs=dict(recurrent="lstm")), DISCRETE,
         r"recurrent is 'gru', and 'lstm' in model_kwargs; expected one of them"),
        (SacAgent(recurrent="gru", feature_kwargs=dict(recurrent="lstm")), BOX, "'gru', and 'lstm' in feature_kwargs"),
        (SacAgent(feature_kwargs=dict(recurrent="lstm")), BOX, r"feature_kwargs has recurrent='lstm'; expected None"),
        (RecurrentTd3Agent(feature_kwargs=dict(recurrent=None)), BOX, r"recurrent=None; expected .*RecurrentTd3Agent"),
        (MujocoLstmAgent(recurrent="gru"), BOX, "MujocoLstmAgent: recurrent is 'gru', and its model .* has an LSTM"),
    ],
)  # fmt: skip
def test_recurrence_must_not_contradict(agent, env_spaces, said):
    with pytest.raises(ValueError, match=said):
        agent.initialize(env_spaces)


# ---- schedules ----


def test_a_loaded_agent_goes_on_with_the_noise_of_its_schedule():
    def noise_after_loading(action_std: Any) -> float:
        agent = made(DdpgAgent, BOX, action_std=action_std, **SMALL_QPG)
        agent.bind(100, 10)
        agent.load_state_dict(state)
        return float(agent.numbers["action_std"][0])

    saved = made(DdpgAgent, BOX, action_std="lin_0.4", **SMALL_QPG)
    saved.bind(100, 10)
    saved.train_mode(4)
    state = pickle.loads(pickle.dumps(saved.state_dict()))
    assert noise_after_loading("lin_0.4") == noise_after_loading(lambda step: 1.0) == pytest.approx(0.2)
    assert noise_after_loading(0.3) == 0.3
    del state["scheduled"]  # as in files of agents without schedules
    assert noise_after_loading("lin_0.4") == pytest.approx(0.4)
    plain = made(DdpgAgent, BOX, **SMALL_QPG)
    assert list(plain.state_dict()) == list(state)


@pytest.mark.parametrize("AgentCls", [DdpgAgent, Td3Agent, RecurrentTd3Agent])
def test_the_noise_follows_its_schedule_in_every_process(AgentCls):
    agent = made(AgentCls, BOX, action_std="lin_0.4", **SMALL_QPG)
    agent.anneal_exploration(1.0)
    with torch.no_grad():
        for parameter in agent.model.pi.parameters():
            parameter.zero_()
    other = Elsewhere(agent)
    worker = other.agent
    n = 4000
    rows = torch.zeros(n, 3), torch.zeros(n, 2), torch.zeros(n)
    for actor in (agent.actor(range(n), n, seed=0), worker.actor(range(n), n, seed=0)):
        agent.bind(n_steps=400, steps_per_itr=100)
        for itr, std in enumerate([0.4, 0.3, 0.2, 0.1]):
            other.publish()
            other.take()
            actor.begin(itr)
            noise = actor.step(*rows).action
            assert noise.clamp(-0.99, 0.99).std().item() == pytest.approx(std, rel=0.05)
            agent.train_mode(itr)
    assert agent.action_std == "lin_0.4"
    assert "action_std" not in agent.state_dict()


@dataclass(kw_only=True, eq=False)
class Counting(DqnAgent):
    most: int | None = None
    fast: bool = False
    own: float = field(default_factory=lambda: torch.ones(3))  # type: ignore[assignment]


@pytest.mark.parametrize("n_versions", [1, 2, 3])
@pytest.mark.parametrize("takes_newest", [True, False])
def test_a_plain_setting_may_be_set_during_a_run_and_reaches_every_process(n_versions, takes_newest):
    agent: Any = Counting(eps_init=0.0, eps_final=0.0)
    agent.initialize(DISCRETE)
    other = Elsewhere(agent, n_versions)
    worker, first, second = other.agent, (0.0, 0.0, None, None, False), (1.0, 0.5, 0.25, 7, True)
    for version, settings in enumerate([first, first, second, first, (0.5, 0, None, 0, False), first], 1):
        agent.eps_init, agent.eps_final, agent.eps_final_min, agent.most, agent.fast = settings
        agent.mood, agent.own_count = f"of {version}", version % 2
        other.publish(version)
        assert other.take(None if takes_newest else version) == version
        mine = worker.eps_init, worker.eps_final, worker.eps_final_min, worker.most, worker.fast
        assert mine == settings
        assert isinstance(worker.most, int | None)
        assert worker.own.tolist() == [1.0, 1.0, 1.0]
        assert type(worker.fast) is bool
        assert (worker.mood, worker.own_count) == (f"of {version}", version % 2), "attributes of one's own, too"


def test_the_noise_of_the_target_follows_its_schedule_with_the_settings_of_the_algorithm():
    def std(step: float) -> float:
        return 0.1 + step / 1000

    agent = made(Td3Agent, BOX, target_noise_std=std, action_std=std, target_noise_clip=0.3, **SMALL_QPG)
    noise = torch.tensor([1.0, -1.0, 9.0])
    assert agent.smoothed(torch.zeros(3), noise).tolist() == pytest.approx([0.1, -0.1, 0.3])
    agent.bind(n_steps=1000, steps_per_itr=50)
    agent.train_mode(1)
    assert agent.smoothed(torch.zeros(3), noise).tolist() == pytest.approx([0.15, -0.15, 0.3])
    assert agent.numbers["action_std"].item() == pytest.approx(0.2), "of the batch after the updates"


# ---- what a variant costs ----


class CountBonus(Exploration):
    """Adds to q what falls with how often each environment has chosen an action in its episode."""

    def state(self, n_rows: int) -> torch.Tensor:
        return torch.zeros(n_rows, self.agent.distribution.dim)

    def action(self, output: torch.Tensor, actor: Any) -> torch.Tensor:
        if actor.evaluation:
            return output.argmax(-1)
        action = (output + 100 / (1 + actor.exploration_state)).argmax(-1)
        actor.exploration_state[torch.arange(len(action)), action] += 1
        return action


class CountingAgent(DqnAgent):
    ExplorationCls = CountBonus


class SlowAndFast(DqnAgent):
    """With a second target network, which moves slowly."""

    slow_model = Network[nn.Module]("learning", "slow")

    def initialize(self, env_spaces: EnvSpaces) -> None:
        super().initialize(env_spaces)
        self.slow_model = copy.deepcopy(self.model).requires_grad_(False).eval()

    def update_target(self, tau: float = 1.0) -> None:
        super().update_target(tau)
        update_target(self.slow_model, self.model, 0.01)


def test_a_new_exploration_rule_is_a_part():
    agent = made(CountingAgent, DISCRETE, model_kwargs=SMALL)
    actor = agent.actor([1, 2], 3, seed=0)
    actor.begin(0)
    rows = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), torch.zeros(2)
    chosen = torch.stack([actor.step(*rows).action for _ in range(4)])
    assert all(sorted(column.tolist()) == [0, 1, 2, 3] for column in chosen.T), "each action once"
    state = actor.state_dict()
    actor.reset_one(0)
    assert actor.exploration_state is not None
    assert actor.exploration_state.sum(-1).tolist() == [0, 4]
    actor.load_state_dict(state)
    assert actor.exploration_state.sum(-1).tolist() == [4, 4]


SETTINGS: list[tuple[Any, dict[str, Any], str]] = [
    (DqnAgent, dict(eps_init=1.5), "DqnAgent: eps_init is 1.5; expected a probability"),
    (DqnAgent, dict(eps_final=-0.1), "eps_final is -0.1"),
    (DqnAgent, dict(eps_eval=2), "eps_eval is 2"),
    (DqnAgent, dict(eps_final=0.1, eps_final_min=0.2), "is 0.2; expected more than 0 and at most eps_final, 0.1"),
    (DqnAgent, dict(eps_final_min=0.0), "eps_final_min is 0.0"),
    (DqnAgent, dict(eps_train=0.1, eps_final_min=0.001), "eps_final_min is 0.001 and eps_train 0.1; expected one of"),
    (DqnAgent, dict(eps_init="lin_1_0.1"), r"eps_init is 'lin_1_0.1' .* Give eps_train the schedule"),
    (DqnAgent, dict(eps_train="lin_2_0"), "eps_train is 'lin_2_0'; expected a probability"),
    (CatDqnAgent, dict(n_atoms=1), "CatDqnAgent: n_atoms is 1; expected a whole number from 2"),
    (CatDqnAgent, dict(model_kwargs=dict(n_atoms=21)), "n_atoms is 51, and 21 in model_kwargs; expected the same"),
    (AtariCatDqnAgent, dict(n_atoms=0), "AtariCatDqnAgent: n_atoms is 0; expected a whole number from 2"),
    (QrDqnAgent, dict(n_quantiles=0), "QrDqnAgent: n_quantiles is 0; expected a whole number from 1"),
    (DdpgAgent, dict(n_q=0), "DdpgAgent: n_q is 0; expected a whole number from 1"),
    (SacAgent, dict(n_q=-1), "SacAgent: n_q is -1; expected a whole number from 1"),
    (DdpgAgent, dict(action_std=-0.1), "DdpgAgent: action_std is -0.1; expected a number from 0"),
    (Td3Agent, dict(action_std=math.nan), "Td3Agent: action_std.* got value=nan; expected a number"),
    (Td3Agent, dict(action_noise_correlation=1.0), r"action_noise_correlation is 1.0; expected .*in \[0, 1\)"),
    (DdpgAgent, dict(action_noise_correlation=-0.1), r"action_noise_correlation is -0.1; expected .*in \[0, 1\)"),
    (SacAgent, dict(pretrain_std=-0.5), "pretrain_std is -0.5"),
    (DdpgAgent, dict(action_noise_clip=-0.1), "action_noise_clip is -0.1"),
    (Td3Agent, dict(target_noise_std=-0.2), "target_noise_std is -0.2"),
    (Td3Agent, dict(target_noise_clip=-0.5), "target_noise_clip is -0.5"),
]


@pytest.mark.parametrize(("AgentCls", "settings", "said"), SETTINGS, ids=[said[:40] for *_, said in SETTINGS])
def test_settings_that_cannot_be_meant_are_refused(AgentCls, settings, said):
    with pytest.raises((ValueError, TypeError), match=said):
        AgentCls(**settings)


def test_a_second_target_is_an_entry_in_what_only_learns():
    agent, other = SlowAndFast(model_kwargs=SMALL), SlowAndFast(model_kwargs=SMALL)
    for one in (agent, other):
        one.initialize(DISCRETE)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(1.0)
    before = {name: x.clone() for name, x in agent.slow_model.state_dict().items()}
    agent.update_target()
    for name, x in agent.slow_model.state_dict().items():
        torch.testing.assert_close(x, before[name] + 0.01)
    other.load_state_dict(agent.state_dict())
    assert all(map(torch.equal, other.slow_model.state_dict().values(), agent.slow_model.state_dict().values()))
    assert agent.slow_model in agent.networks.modules()
    worker = pickle.loads(dumps(agent.acting_copy()))
    assert not worker.learning
    with pytest.raises(
        AttributeError, match=r"SlowAndFast has no network 'slow': it is not initialised, or is a worker's copy"
    ):
        worker.slow_model  # noqa: B018
