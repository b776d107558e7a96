"""Building of an agent's networks for the spaces of an environment."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import nn

from rlpyt.agents.given import of_its_kind
from rlpyt.agents.own_models import Q_INPUTS, build_model, copy_of_kwargs, drop_inputs
from rlpyt.core import Agent
from rlpyt.models import ActorModel, Encoder, FeatureModel, Model, QofMuMlpModel
from rlpyt.types import Kwargs


class ModelBuilder:
    """Makes networks of an agent, by its settings; its class names the builder as `BuilderCls`.

    Args:
        agent: with its spaces and distribution.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = of_its_kind(agent)
        self.who = type(agent).__name__

    def model(self) -> nn.Module:
        """Return a new model for the spaces (a target network is another one)."""
        agent = self.agent
        offered = agent.make_env_to_model_kwargs(agent.env_spaces)
        if agent.ModelCls is None:
            model = self.default(type(agent).DefaultModelCls, offered)
            knows_space = "observation_space" in offered
        else:
            model = build_model(f"{self.who}: ModelCls", agent.ModelCls, offered, agent.model_kwargs)
            knows_space = False  # it may have been told the shape alone
        if not knows_space and isinstance(model, Model) and isinstance(model.encoder, Encoder):
            model.encoder.fit_to(agent.env_spaces.observation)
        drop_inputs(model)
        return model

    def default(self, DefaultModelCls: Callable[..., nn.Module] | None, offered: Kwargs) -> nn.Module:
        """Return the model used where no ModelCls was given, with its recurrent layer if it takes the choice."""
        if DefaultModelCls is None:
            raise TypeError(f"{self.who}: ModelCls is None, and there is no DefaultModelCls; expected one of them.")
        recurrent = self.agent.recurrent
        kwargs: Kwargs = {**self.agent.head.model_kwargs(), **copy_of_kwargs(self.agent.model_kwargs)}
        if "recurrent" in inspect.signature(DefaultModelCls).parameters:
            kwargs = self.with_recurrence(kwargs, "model_kwargs")
        elif recurrent not in (True, False, "lstm"):
            raise ValueError(
                f"{self.who}: recurrent is {recurrent!r}, and its model of rlpyt 0.1 has an LSTM; "
                "expected True. To choose the layer use an agent with the default model, such as "
                "RecurrentCategoricalPgAgent, RecurrentGaussianPgAgent or R2d1Agent."
            )
        return build_model(f"{self.who}: the model", DefaultModelCls, offered, kwargs)

    def with_recurrence(self, kwargs: Kwargs, name: str) -> Kwargs:
        """Return the arguments of a default model with its recurrent layer, an LSTM unless one is named.

        Raises:
            ValueError: if they name another layer than the agent's setting.
        """
        recurrent, given = self.agent.recurrent, kwargs.get("recurrent")
        if isinstance(recurrent, str) and given not in (None, recurrent):
            raise ValueError(
                f"{self.who}: recurrent is {recurrent!r}, and {given!r} in {name}; expected one of "
                "them. Leave the other out."
            )
        layer = "lstm" if recurrent is True else recurrent
        return {**({"recurrent": layer} if layer else {}), **kwargs}


class ActorBuilder(ModelBuilder):
    """Makes the networks of an agent with features, a policy over them, and action values."""

    def model(self) -> ActorModel:
        """Return features and policy."""
        body = self.body()
        self.agent._feature_size = body.output_size
        return ActorModel(body, super().model())

    def default(self, DefaultModelCls: Callable[..., nn.Module] | None, offered: Kwargs) -> nn.Module:
        """Return the policy used where no ModelCls was given."""
        kwargs = {"hidden_sizes": self.agent.hidden_sizes, **copy_of_kwargs(self.agent.model_kwargs)}
        return build_model(f"{self.who}: the policy", DefaultModelCls, offered, kwargs)

    def body(self) -> Model:
        """Return a new network of features."""
        agent = self.agent
        space, kwargs = agent.env_spaces.observation, copy_of_kwargs(agent.feature_kwargs)
        BodyCls = type(agent).BodyCls  # of the class, as a function in a class is no method of its objects here
        if BodyCls is FeatureModel:
            kwargs = self.with_recurrence(kwargs, "feature_kwargs")
            features = FeatureModel(space, agent.distribution.dim, **kwargs)
            if features.recurrent != bool(agent.recurrent):
                raise ValueError(
                    f"{self.who}: feature_kwargs has recurrent={kwargs.get('recurrent')!r}; expected "
                    f"{'lstm or gru' if agent.recurrent else 'None'}. Recurrent are agents with recurrent=True, such "
                    "as RecurrentDdpgAgent, RecurrentTd3Agent and RecurrentSacAgent, and they alone."
                )
            body: nn.Module = features
        else:
            offered = {"observation_space": space, "action_size": agent.distribution.dim}
            body = build_model(f"{self.who}: BodyCls", BodyCls, offered, kwargs)
        if not isinstance(body, Model) or not hasattr(body, "output_size"):
            raise TypeError(
                f"{self.who}: BodyCls made a {type(body).__name__}; expected a Model of rlpyt.models "
                "with an `output_size`, the number of features. Derive its class from Model, and set this there."
            )
        if isinstance(body.encoder, Encoder):
            body.encoder.fit_to(space)
        drop_inputs(body)
        return body

    def q_model(self) -> nn.Module:
        """Return the networks of action values."""
        agent = self.agent
        offered = {**agent.make_env_to_model_kwargs(agent.env_spaces), "n_models": agent.n_q}
        sizes = {"hidden_sizes": agent.hidden_sizes} if agent.QModelCls is None else {}
        kwargs = {**sizes, **agent.q_model_kwargs}
        model = build_model(f"{self.who}: QModelCls", agent.QModelCls or QofMuMlpModel, offered, kwargs)
        drop_inputs(model, Q_INPUTS)
        return model
