"""All agents with all the spaces that they serve."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlpyt.agents import (
    AtariCatDqnAgent,
    AtariDqnAgent,
    AtariFfAgent,
    AtariLstmAgent,
    AtariR2d1Agent,
    CatDqnAgent,
    CategoricalPgAgent,
    DdpgAgent,
    DiscreteSacAgent,
    DqnAgent,
    GaussianPgAgent,
    IqnAgent,
    MujocoFfAgent,
    MujocoLstmAgent,
    PgAgent,
    PqnAgent,
    QpgAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCatDqnAgent,
    RecurrentCategoricalPgAgent,
    RecurrentDdpgAgent,
    RecurrentGaussianPgAgent,
    RecurrentIqnAgent,
    RecurrentQrDqnAgent,
    RecurrentSacAgent,
    RecurrentTd3Agent,
    SacAgent,
    Td3Agent,
)
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentInputs
from rlpyt.utils.arrays import buffer_func
from tests.random_kit import random_rows

OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1, 1, (3,), np.float32),
    "image": spaces.Box(0, 255, (2, 40, 40), np.uint8),
    "nested": spaces.Dict(
        {
            "v": spaces.Box(-1, 1, (2,), np.float64),
            "ale.lives": spaces.Discrete(4, start=1),
            "pair": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(0, 255, (1, 40, 40), np.uint8)]),
        }
    ),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4, start=-1),
    "multi": spaces.MultiDiscrete([2, 4, 3]),
    "table": spaces.MultiDiscrete(np.array([[2, 4], [3, 3]])),
    "binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32)),
    "box table": spaces.Box(-1, 1, (2, 2), np.float64),
}
CATEGORICAL = ("discrete", "multi", "table", "binary")
CONTINUOUS = ("box", "box table")
SMALL: dict[str, Any] = {"hidden_sizes": 8, "fc_sizes": 8}
RECURRENT = {**SMALL, "rnn_size": 8}
MU_AND_PI: dict[str, Any] = {"hidden_sizes": 8}
Q_LEARNERS = ("Dqn", "AtariDqn", "R2d1", "AtariR2d1", "CatDqn", "AtariCatDqn", "QrDqn", "Iqn", "RecurrentCatDqn",
              "RecurrentQrDqn", "RecurrentIqn", "Ddpg", "Td3", "Sac", "RecurrentDdpg", "RecurrentTd3",
              "RecurrentSac", "DiscreteSac")  # fmt: skip
"""How the kinds begin whose agents have no noise in evaluation but for one step in a thousand, and give no value."""
GREEDY = (*Q_LEARNERS, "Pqn")
"""And those that record the value of the best action."""


class PolicyAlone(QpgAgent):
    """Says what the policy gives and leaves the action values away, which workers do not have."""

    def __call__(self, *inputs: Any) -> Any:
        return self.pi(self.features(*inputs))

    def q_values(self, outputs: Any) -> Any:
        """What is recorded of the outputs: all of them."""
        return outputs


def alone(AgentCls: Any) -> Any:
    """Return the class that says what its policy gives, under its name without "Agent"."""
    return type(AgentCls.__name__.removesuffix("Agent"), (PolicyAlone, AgentCls), {"__module__": __name__})


Ddpg, Td3, Sac, DiscreteSac = map(alone, (DdpgAgent, Td3Agent, SacAgent, DiscreteSacAgent))
RecurrentDdpg, RecurrentTd3, RecurrentSac = map(alone, (RecurrentDdpgAgent, RecurrentTd3Agent, RecurrentSacAgent))
SERVES: list[tuple[Any, dict[str, Any], tuple[str, ...], tuple[str, ...]]] = [
    (PgAgent, SMALL, ("vector",), ("discrete", "multi", "box")),
    (CategoricalPgAgent, SMALL, ("vector", "image", "nested"), ("discrete",)),
    (CategoricalPgAgent, SMALL, ("vector",), CATEGORICAL),
    (RecurrentCategoricalPgAgent, {**SMALL, "rnn_size": 8}, ("vector", "nested"), ("discrete", "table")),
    (RecurrentCategoricalPgAgent, {**SMALL, "rnn_size": 8, "recurrent": "gru"}, ("vector",), ("binary",)),
    (GaussianPgAgent, SMALL, ("vector", "nested"), CONTINUOUS),
    (RecurrentGaussianPgAgent, {**SMALL, "rnn_size": 8}, ("image", "vector"), CONTINUOUS),
    (DqnAgent, SMALL, ("vector", "image", "nested"), ("discrete",)),
    (DqnAgent, {**SMALL, "dueling": True}, ("vector",), ("discrete",)),
    (DqnAgent, {**SMALL, "noisy": True}, ("vector",), ("discrete",)),
    (PqnAgent, {**SMALL, "layer_norm": True}, ("vector", "image", "nested"), ("discrete",)),
    (R2d1Agent, RECURRENT, ("vector", "nested"), ("discrete",)),
    (R2d1Agent, {**RECURRENT, "recurrent": "gru", "noisy": True, "dueling": True}, ("vector",), ("discrete",)),
    (CatDqnAgent, SMALL, ("vector", "image"), ("discrete",)),
    (CatDqnAgent, {**SMALL, "noisy": True, "dueling": True}, ("vector",), ("discrete",)),
    (QrDqnAgent, SMALL, ("vector",), ("discrete",)),
    (IqnAgent, {**SMALL, "n_acting_tau": 4}, ("vector",), ("discrete",)),
    (IqnAgent, {**SMALL, "dueling": True, "noisy": True}, ("vector",), ("discrete",)),
    (RecurrentCatDqnAgent, RECURRENT, ("vector",), ("discrete",)),
    (RecurrentQrDqnAgent, RECURRENT, ("vector",), ("discrete",)),
    (RecurrentIqnAgent, RECURRENT, ("vector",), ("discrete",)),
    (AtariCatDqnAgent, {"fc_sizes": 8}, ("image",), ("discrete",)),
    (AtariR2d1Agent, {"fc_size": 8, "lstm_size": 8, "head_size": 8}, ("image",), ("discrete",)),
    (AtariFfAgent, {}, ("image",), ("discrete",)),
    (AtariLstmAgent, {}, ("image",), ("discrete",)),
    (AtariDqnAgent, {}, ("image",), ("discrete",)),
    (MujocoFfAgent, {}, ("vector",), ("box",)),
    (MujocoLstmAgent, {}, ("vector",), ("box",)),
    (Ddpg, MU_AND_PI, ("vector", "nested"), ("box",)),
    (Td3, MU_AND_PI, ("vector",), ("box table",)),
    (Sac, MU_AND_PI, ("vector", "image", "nested"), CONTINUOUS),
    (DiscreteSac, MU_AND_PI, ("vector", "nested"), ("discrete",)),
    (RecurrentDdpg, MU_AND_PI, ("vector",), ("box table",)),
    (RecurrentTd3, MU_AND_PI, ("nested",), ("box",)),
    (RecurrentSac, MU_AND_PI, ("vector", "image"), ("box",)),
]
VARIED = {"dueling", "recurrent", "noisy"}
KINDS = {
    f"{AgentCls.__name__}{'+' * len(kwargs.keys() & VARIED)} {o} {a}": (AgentCls, kwargs, o, a)
    for AgentCls, kwargs, observations, actions in SERVES
    for o in observations
    for a in actions
}
ONE_OF_A_KIND = list({AgentCls: kind for kind, (AgentCls, *_) in KINDS.items()}.values())
"""The last one of each class."""


def make_agent(kind: str, seed: int = 0, **kwargs: Any) -> Any:
    """Return an initialised agent of a kind; its weights follow the seed."""
    AgentCls, model_kwargs, _observation, _action = KINDS[kind]
    torch.manual_seed(seed)
    if issubclass(AgentCls, QpgAgent):
        recurrent = {"rnn_size": 8} if AgentCls.recurrent else {}
        kwargs = {"q_model_kwargs": MU_AND_PI, "feature_kwargs": {"image_feature_size": 8, **recurrent}, **kwargs}
    if issubclass(AgentCls, DdpgAgent):
        kwargs = {"action_noise_correlation": 0.5, **kwargs}
    agent = AgentCls(model_kwargs=model_kwargs, **kwargs)
    agent.initialize(spaces_of(kind))
    if isinstance(agent, QpgAgent):
        agent.anneal_exploration(1.0)  # past the first actions, which are the same for all
    if isinstance(agent, CatDqnAgent):
        agent.give_V_min_max(-2.0, 3.0)
    return agent


class Sampled:
    """Agent with the actors that a sampler would hold, in training and in evaluation; one of them acts now.

    All that is not about acting is asked of the agent.
    """

    def __init__(self, agent: Any, global_B: int = 1, ranks: Any = None, seed: int = 0, n_eval: int = 2) -> None:
        self.agent = agent
        self.now: Any = None
        self.actors: dict[bool, Any] = {}
        self.take(global_B, ranks, seed)
        self.take(n_eval, None, seed, evaluation=True)

    def take(self, global_B: int, ranks: Any = None, seed: int = 0, evaluation: bool = False) -> None:
        """Have a new actor, of all environments unless ranks are given."""
        ranks = range(global_B) if ranks is None else ranks
        self.actors[evaluation] = self.agent.actor(ranks, global_B, seed, evaluation=evaluation)

    def begin(self, itr: int) -> None:
        """Begin a batch."""
        self.now = self.actors[False]
        self.now.begin(itr)

    def begin_evaluation(self, itr: int) -> None:
        self.now = self.actors[True]
        self.now.begin(itr)

    def __call__(self, *inputs: Any) -> Any:
        return self.agent(*inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now if name in ("step", "value", "reset", "reset_one") else self.agent, name)


def spaces_of(kind: str) -> EnvSpaces:
    *_, observation, action = KINDS[kind]
    return EnvSpaces(OBSERVATIONS[observation], ACTIONS[action])


def random_inputs(env_spaces: EnvSpaces, *lead: int, seed: int = 0) -> AgentInputs:
    """Return random observations, actions and rewards [*lead, ...] as numpy."""
    observation, action = (random_rows(space, *lead, seed=seed) for space in env_spaces)
    reward = np.random.default_rng(seed).normal(size=lead).astype(np.float32)
    return AgentInputs(buffer_func(observation, torch.Tensor.numpy), buffer_func(action, torch.Tensor.numpy), reward)
