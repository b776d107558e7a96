"""A policy and action values over shared features, with targets: the agents of DDPG, TD3 and SAC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, cast

import torch
from torch import nn

from rlpyt.agents.actor import of_its_kind
from rlpyt.agents.base import BaseAgent, initial_state
from rlpyt.agents.networks import Held, Network
from rlpyt.agents.own_models import check_actor_outputs, check_apart, new_model, new_q_model
from rlpyt.agents.rules import Exploration, PolicyExploration
from rlpyt.agents.value_heads import ValueHeadSettings
from rlpyt.core import Agent, Features, QpgPolicyAgent, ValueAt
from rlpyt.distributions import ActionUnits, Categorical
from rlpyt.models import ActorModel, FeatureModel, MuMlpModel, QofMuMlpModel, takes_n_models, takes_statistics
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Settings, whole
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentInputs, Kwargs, StateDict
from rlpyt.utils.arguments import named_arguments


class ActorCritic:
    """Features, policy and action values of an agent."""

    model = Network[ActorModel]("acting", "model")
    q_model = Network[nn.Module]("learning", "q_model")

    def __init__(self, agent: Agent) -> None:
        self._agent, self.networks = of_its_kind(agent), of_its_kind(agent).networks

    def features(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer, *rnn: Buffer) -> AgentInputs:
        """Return rows with their features in place of the observation; for the arguments see `BaseAgent.__call__`."""
        body = self.model.body
        x = self.networks.run_rows(body, observation, prev_action, prev_reward, *rnn)
        if body.value_encoder is not None:
            with self.networks.autocast():
                x = torch.cat([x, body.value_encoder(observation)], -1)
        return AgentInputs(x, self.networks.encode(prev_action), prev_reward)

    def pi(self, rows: AgentInputs) -> Buffer:
        """Return the outputs of the policy at rows of features, which get no gradient."""
        x, body = rows.observation.detach(), self.model.body
        with self.networks.autocast():
            seen = x if body.value_encoder is None else x[..., : body.output_size]
            return self.model.pi(seen, rows.prev_action, rows.prev_reward)

    def q(self, rows: AgentInputs, action: torch.Tensor, **n_models: int) -> torch.Tensor:
        """Return the values of actions [..., A], in units of the bounds, at rows of features; see `QpgPolicyAgent`."""
        with self.networks.autocast():
            return self.q_model(*rows, self._agent.distribution.rest_fixed(action), **n_models)

    def first_q(self, rows: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return the values of the first network. Where the networks take `n_models`, no other is computed."""
        return self.q(rows, action, **({"n_models": 1} if takes_n_models(self.q_model) else {}))[0]

    @contextmanager
    def evaluating(self, *, pi: bool = False, q: bool = False) -> Iterator[None]:
        """Let policy or action values compute as in evaluation for a while; see `QpgPolicyAgent.evaluating`."""
        networks = [*([self.model.pi] if pi else []), *([self.q_model] if q else [])]
        for network in networks:
            network.eval()
        try:
            yield
        finally:
            for network in networks:
                network.train()

    def pi_parameters(self) -> list[nn.Parameter]:
        """Return the weights of the policy."""
        return list(self.model.pi.parameters())

    def q_parameters(self) -> list[nn.Parameter]:
        """Return the weights of features and action values."""
        return [*self.model.body.parameters(), *self.q_model.parameters()]


class TargetActorCritic(ActorCritic):
    """The same of the targets, without gradient."""

    model = Network[ActorModel]("learning", "target")
    q_model = Network[nn.Module]("learning", "target_q")
    features = torch.no_grad()(ActorCritic.features)
    pi = torch.no_grad()(ActorCritic.pi)
    q = torch.no_grad()(ActorCritic.q)


@dataclass(kw_only=True, eq=False)
class QpgAgent(ValueHeadSettings, BaseAgent, QpgPolicyAgent):
    """Policy with `n_q` networks of action values, over features of the observation that they share.

    The features are trained with the action values; the policy's gradient stops there. Of a vector they are the
    observation itself, so that policy and values have no weight in common; of images they are convolutions, of a
    recurrent agent an LSTM (see `FeatureModel`). Whatever policy and values see and give of actions is in units in
    which the bounds of the space are -1 and 1.

    Before the first update actions are spread evenly over the space, or the policy's with Gaussian noise of
    `pretrain_std`; a policy that starts from given weights acts by itself from the beginning.

    `ModelCls` is the policy. It is called with `observation_shape` (of the features), `action_size` and `model_kwargs`;
    the default one's `hidden_sizes` are the agent's.
    """

    QModelCls: Callable[..., nn.Module] | None = None
    """The action values, called as the policy is, with `q_model_kwargs`; given the number of them as `n_models`, it
    returns [n_models, ...]. None is the default network."""
    q_model_kwargs: Kwargs | None = None
    """Further arguments of the action values."""
    initial_q_model_state_dict: StateDict | None = field(default=None, repr=False, metadata={"weights": True})
    """Weights of the action values to start from."""
    feature_kwargs: Kwargs | None = None
    """Arguments of `FeatureModel`."""
    n_q: int = 1
    """Networks of action values; the size of a layer, so it takes no schedule."""
    has_targets: bool = True
    """Whether there are target networks. SAC with `joint_pass` may do without, as CrossQ does."""
    pretrain_std: float | None = None
    """Standard deviation of the noise before the first update, when no schedule has begun; None spreads actions
    evenly."""

    kept_numbers: ClassVar[Mapping[str, int]] = {"annealed": 1}
    other_parts: ClassVar[Mapping[str, Callable[[Agent], object]]] = {
        "online": ActorCritic,
        "targets": TargetActorCritic,
    }
    DefaultQModelCls: ClassVar[Callable[..., nn.Module]] = QofMuMlpModel
    BodyCls: ClassVar[Callable[..., nn.Module]] = FeatureModel
    """The features, a `Model` with an `output_size`, recurrent if the agent is. It is called with those of
    `observation_space` and `action_size` that it takes, and with `feature_kwargs`."""
    DefaultModelCls: ClassVar[Callable[..., nn.Module] | None] = MuMlpModel
    told_to_default: ClassVar[Mapping[str, str]] = {"hidden_sizes": "hidden_sizes"}
    ExplorationCls: ClassVar[type[Exploration]] = PolicyExploration
    policy_outputs: ClassVar[tuple[str, ...]] = ()
    """What the policy gives, [..., A] each, as a tuple if there are several; checked at the start unless empty."""
    hidden_sizes: ClassVar[tuple[int, ...]] = (400, 300)
    has_target_policy: ClassVar[bool] = True
    distribution: ActionUnits | Categorical = field(init=False, repr=False)

    model = Network[ActorModel]("acting", "model")
    q_model = Network[nn.Module]("learning", "q_model")
    target_model, target_q_model = Held[ActorModel]("targets", "model"), Held[nn.Module]("targets", "q_model")
    features, target_features = Held[Features]("online"), Held[Features]("targets", "features")
    pi = Held[Callable[[AgentInputs], Buffer]]("online")
    q, first_q = Held[ValueAt]("online"), Held[ValueAt]("online")
    target_q = Held[ValueAt]("targets", "q")
    evaluating = Held[Callable[..., AbstractContextManager[None]]]("online")
    pi_parameters = Held[Callable[[], list[nn.Parameter]]]("online")
    q_parameters = Held[Callable[[], list[nn.Parameter]]]("online")
    update_target = Held[Callable[..., None]]("networks", "update_targets")

    def __post_init__(self) -> None:
        """Validate the settings."""
        super().__post_init__()
        whole(self, "n_q")
        check_not_negative(self, "pretrain_std")
        self.q_model_kwargs, self.feature_kwargs = dict(self.q_model_kwargs or {}), dict(self.feature_kwargs or {})
        self._feature_size = 0

    def make_distribution(self, env_spaces: EnvSpaces) -> ActionUnits | Categorical:
        """Return the units of the actions; refuse a space without finite bounds."""
        return ActionUnits.from_space(env_spaces.action)

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> Kwargs:
        """Return the sizes of features and actions."""
        return {"observation_shape": (self._feature_size,), "action_size": self.distribution.dim}

    @named_arguments
    def initialize(self, env_spaces: EnvSpaces) -> None:
        """Build the networks and their targets, which start as copies."""
        super().initialize(env_spaces)
        networks = self.networks
        self.q_model = q_model = new_q_model(self)
        layers = (layer for network in networks.modules() for layer in network.modules())
        self.has_batch_norm = any(map(takes_statistics, layers))
        target_q = new_q_model(self) if self.has_targets else None
        initial_q = self.initial_q_model_state_dict or initial_state(self).get("q_model")
        if initial_q is not None:
            q_model.load_state_dict(initial_q)
        networks.unrolled, networks.with_dropout = ["model.body"], ["model", "q_model"]
        networks.encode_by(self.distribution, "model.body", "model.pi", "q_model")
        if target_q is not None:
            add_targets(self, cast(ActorModel, new_model(self)), target_q)
        networks.update_targets()
        check_actor_outputs(self)

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return all that optimisers update."""
        return [*self.pi_parameters(), *self.q_parameters()]

    def __call__(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer, *rnn: Buffer) -> Buffer:
        """Return the outputs of the policy at the rows, and the values of the null action, with gradient."""
        rows = self.features(observation, prev_action, prev_reward, *rnn)
        return self.pi(rows), self.q(rows, rows.observation.new_zeros(*rows.prev_reward.shape, self.distribution.dim))


def add_targets(agent: QpgAgent, target: ActorModel, target_q: nn.Module) -> None:
    """Give an agent target networks, which follow its own."""
    networks, model, who = agent.networks, agent.model, type(agent).__name__
    if not agent.has_target_policy:
        target.pi = nn.Identity()
    check_apart(f"{who}: BodyCls", model.body, target.body)
    check_apart(f"{who}: ModelCls", model.pi, target.pi)
    check_apart(f"{who}: QModelCls", agent.q_model, target_q)
    networks.add_target("target", target.eval(), part="" if agent.has_target_policy else "body")
    networks.add_target("target_q", target_q, network="q_model")
    networks.unrolled.append("target.body")
    networks.with_dropout.append("target_q")  # as DroQ has it


def check_not_negative(agent: Settings, *names: str) -> None:
    """Check that standard deviations and bounds are at least 0, or None."""
    for name in names:
        if getattr(agent, name) is not None:
            agent.check(name, lambda x: x >= 0.0, "a number from 0")
