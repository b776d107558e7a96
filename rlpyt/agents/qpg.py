"""A policy and action values over shared features, with targets: the agents of DDPG, TD3 and SAC."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import nn

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.base import BaseAgent
from rlpyt.agents.own_models import (
    INPUTS,
    Q_INPUTS,
    RNN_INPUTS,
    build_model,
    check_apart,
    check_call,
    copy_of_kwargs,
    described,
    drop_inputs,
    shape_of,
    told_call,
)
from rlpyt.agents.rnn_rows import rnn_from_rows
from rlpyt.agents.weights import Network
from rlpyt.core import QpgPolicyAgent
from rlpyt.distributions import ActionUnits
from rlpyt.models import (
    ActorModel,
    Encoder,
    FeatureModel,
    Model,
    MuMlpModel,
    QofMuMlpModel,
    set_training,
    takes_n_models,
    update_target,
    uses_prev_action,
)
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentInputs, Kwargs, StateDict

BEST, EXPLORE, FIRST = "best", "explore", "first"
"""Ways to act: by the policy alone, with its exploration, and before the first update."""


@dataclass(kw_only=True, eq=False)
class QpgAgent(BaseAgent, QpgPolicyAgent):
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
    pretrain_std: float | None = None
    """Standard deviation of the noise before the first update, when no schedule has begun; None spreads actions
    evenly."""

    kept_numbers: ClassVar[Mapping[str, int]] = {"annealed": 1}
    PolicyCls: ClassVar[Callable[..., nn.Module]] = MuMlpModel
    policy_outputs: ClassVar[Sequence[str]] = ()
    """What the policy gives, [..., A] each, as a tuple if there are several; checked at the start unless empty."""
    hidden_sizes: ClassVar[Sequence[int]] = (400, 300)
    has_target_policy: ClassVar[bool] = True
    distribution: ActionUnits = field(init=False, repr=False)

    model = Network[ActorModel]("acting", "model")
    q_model = Network[nn.Module]("learning", "q_model")
    target_model = Network[ActorModel]("learning", "target")
    target_q_model = Network[nn.Module]("learning", "target_q")

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        if self.n_q < 1:
            raise ValueError(f"{type(self).__name__}: n_q is {self.n_q}; expected at least 1 network of action values.")
        self.check_not_negative("pretrain_std")
        self.q_model_kwargs, self.feature_kwargs = dict(self.q_model_kwargs or {}), dict(self.feature_kwargs or {})
        self._pretrained = self.initial_model_state_dict is not None

    def check_not_negative(self, *names: str) -> None:
        """Refuse standard deviations and bounds below 0; None is taken."""
        for name in names:
            if getattr(self, name) is not None:
                self.check(name, lambda x: x >= 0.0, "a number from 0")

    # ---- building ----

    def make_distribution(self, env_spaces: EnvSpaces) -> ActionUnits:
        """Return the units of the actions; refuse a space without finite bounds."""
        return ActionUnits.from_space(env_spaces.action)

    def preset_kwargs(self) -> Kwargs:
        """Return the sizes of the default policy's layers, and what the user gave."""
        return {"hidden_sizes": self.hidden_sizes, **super().preset_kwargs()}

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the policy used where no ModelCls was given."""
        offered = self.make_env_to_model_kwargs(env_spaces)
        return build_model(f"{type(self).__name__}: the policy", type(self).PolicyCls, offered, self.preset_kwargs())

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> Kwargs:
        """Return the sizes of features and actions."""
        return {"observation_shape": (self._feature_size,), "action_size": self.distribution.dim}

    def make_body(self) -> Model:
        """Return a new network of features: a `Model` with an `output_size`, recurrent if the agent is.

        It finds `self.env_spaces`, `self.distribution.dim`, which is A, and `self.feature_kwargs`.
        """
        kwargs = self.with_recurrence(copy_of_kwargs(self.feature_kwargs or {}), "feature_kwargs")
        body = FeatureModel(self.env_spaces.observation, self.distribution.dim, **kwargs)
        if body.recurrent != bool(self.recurrent):
            raise ValueError(
                f"{type(self).__name__}: feature_kwargs has recurrent={kwargs.get('recurrent')!r}; expected "
                f"{'lstm or gru' if self.recurrent else 'None'}. Recurrent are agents with recurrent=True, such as "
                "RecurrentDdpgAgent, RecurrentTd3Agent and RecurrentSacAgent, and they alone."
            )
        return body

    def make_model(self) -> ActorModel:
        """Return features and policy."""
        body = self.make_body()
        if not isinstance(body, Model) or not hasattr(body, "output_size"):
            raise TypeError(
                f"{type(self).__name__}: make_body returned a {type(body).__name__}; expected a Model of rlpyt.models "
                "with an `output_size`, the number of features. Derive its class from Model, and set this there."
            )
        if isinstance(body.encoder, Encoder):
            body.encoder.fit_to(self.env_spaces.observation)
        drop_inputs(body)
        self._feature_size = body.output_size
        return ActorModel(body, super().make_model())

    def make_q_model(self) -> nn.Module:
        """Return the networks of action values."""
        offered = {**self.make_env_to_model_kwargs(self.env_spaces), "n_models": self.n_q}
        sizes = {"hidden_sizes": self.hidden_sizes} if self.QModelCls is None else {}
        kwargs = {**sizes, **(self.q_model_kwargs or {})}
        model = build_model(f"{type(self).__name__}: QModelCls", self.QModelCls or QofMuMlpModel, offered, kwargs)
        drop_inputs(model, Q_INPUTS)
        return model

    def make_networks(self) -> None:
        """Build the networks and their targets, which start as copies."""
        super().make_networks()
        q_models = self.make_q_model(), self.make_q_model()
        self.learning["q_model"] = q_models[0]
        # Asked once, because `encode` is called at every step.
        self._encodes = any(map(uses_prev_action, (self.model.body, self.model.pi, self.q_model)))
        initial_q = self.initial_q_model_state_dict or self._initial_state.get("q_model")
        if initial_q is not None:
            self.q_model.load_state_dict(initial_q)
        self.learning["target"], self.learning["target_q"] = self.make_model(), q_models[1]
        if not self.has_target_policy:
            self.target_model.pi = nn.Identity()
        check_apart(f"{type(self).__name__}: make_body", self.model.body, self.target_model.body)
        check_apart(f"{type(self).__name__}: ModelCls", self.model.pi, self.target_model.pi)
        check_apart(f"{type(self).__name__}: QModelCls", self.q_model, self.target_q_model)
        for target in (self.target_model, self.target_q_model):
            target.requires_grad_(False)
        self.target_model.eval()
        self.update_target()
        self._check_outputs()

    @torch.no_grad()
    def _check_outputs(self) -> None:
        """Refuse networks of other arguments or outputs: another shape may fit a target, and mean something else."""
        who = type(self).__name__
        check_call(f"{who}: the body", self.model.body, RNN_INPUTS if self.recurrent else INPUTS)
        policy = f"{who}: the policy, a {type(self.model.pi).__name__},"
        action_values = f"{who}: the action values, a {type(self.q_model).__name__},"
        check_call(policy, self.model.pi, INPUTS)
        check_call(action_values, self.q_model, Q_INPUTS)
        for module in self.modules():
            module.eval()
        inputs, action = self.example_inputs(3), torch.zeros(3, self.distribution.dim)
        with told_call(f"{who}: the body", observation=inputs[0]):
            rows = self.features(*inputs)
        with told_call(policy, features=rows.observation):
            output = self.pi(rows)
        self._check_policy(output)
        with told_call(action_values, features=rows.observation, action=action):
            q = self.q(rows, action)
        if q.shape != (self.n_q, 3):
            raise ValueError(
                f"{action_values} are {list(q.shape)} for 3 "
                f"rows; expected [{self.n_q}, 3], of n_q = {self.n_q} networks. Let it make n_models networks, and "
                "leave out a last dimension of 1."
            )

    def _check_policy(self, output: Buffer) -> None:
        """Refuse a policy that does not give `policy_outputs` for 3 rows."""
        given = list(output) if isinstance(output, tuple | list) and len(self.policy_outputs) > 1 else [output]
        shape = (3, self.distribution.dim)
        if self.policy_outputs and [shape_of(x) for x in given] != [shape] * len(self.policy_outputs):
            raise ValueError(
                f"{type(self).__name__}: the policy, a {type(self.model.pi).__name__}, gave {described(output)} for 3 "
                f"rows; expected {', '.join(f'{name} {list(shape)}' for name in self.policy_outputs)}. Let its forward "
                "return this."
            )

    def unrolled(self) -> Sequence[nn.Module]:
        """Return the features and their target."""
        return [self.model.body, self.target_model.body]

    def pi_parameters(self) -> list[nn.Parameter]:
        """Return the weights of the policy."""
        return list(self.model.pi.parameters())

    def q_parameters(self) -> list[nn.Parameter]:
        """Return the weights of features and action values."""
        return [*self.model.body.parameters(), *self.q_model.parameters()]

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return all that optimisers update."""
        return [*self.pi_parameters(), *self.q_parameters()]

    def encode(self, prev_action: Buffer) -> Buffer:
        """Return previous actions in units of the bounds, where a network may look at them."""
        return self.distribution.encode(prev_action) if self._encodes else prev_action

    # ---- for algorithms ----

    def __call__(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer, *rnn: Buffer) -> Buffer:
        """Return what the policy gives at the rows, and the values of the null action, with gradient."""
        rows = self.features(observation, prev_action, prev_reward, *rnn)
        return self.pi(rows), self.q(rows, rows.observation.new_zeros(*rows.prev_reward.shape, self.distribution.dim))

    def features(
        self,
        observation: Buffer,
        prev_action: Buffer,
        prev_reward: Buffer,
        init_rnn_state: Buffer = None,
        episode_start: Buffer = None,
    ) -> AgentInputs:
        """Return the rows with their features in place of the observation, with gradient.

        Args:
            observation: [T, B, ...] or [B, ...], as are the previous action and reward.
            prev_action: in row form.
            prev_reward: float32.
            init_rnn_state: of a recurrent agent, before the first row, [B, N, H] leaves; None is zero.
            episode_start: [T, B] bool, rows before which the state is zero.
        """
        return self._features(self.model, (observation, prev_action, prev_reward), init_rnn_state, episode_start)

    @torch.no_grad()
    def target_features(
        self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer, *rnn: Buffer
    ) -> AgentInputs:
        """Return the same by the target's features."""
        return self._features(self.target_model, (observation, prev_action, prev_reward), *rnn)

    def _features(
        self,
        model: ActorModel,
        inputs: tuple[Buffer, Buffer, Buffer],
        init_rnn_state: Buffer = None,
        episode_start: Buffer = None,
    ) -> AgentInputs:
        x, _ = self._forward(model.body, inputs, rnn_from_rows(init_rnn_state), episode_start)
        _, prev_action, prev_reward = inputs
        return AgentInputs(x, self.encode(prev_action), prev_reward)

    def pi(self, rows: AgentInputs) -> Buffer:
        """Return what the policy gives at rows of features, whose gradient stops there."""
        with self.autocast():
            return self.model.pi(rows.observation.detach(), rows.prev_action, rows.prev_reward)

    def q(self, rows: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return the values [n_q, ...] of actions [..., A], in units of the bounds, at rows of features."""
        with self.autocast():
            return self.q_model(*rows, self.distribution.rest_fixed(action))

    def first_q(self, rows: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return the values [...] of the first network. Where the networks take `n_models`, no other is computed."""
        alone = {"n_models": 1} if takes_n_models(self.q_model) else {}
        with self.autocast():
            return self.q_model(*rows, self.distribution.rest_fixed(action), **alone)[0]

    @torch.no_grad()
    def target_q(self, rows: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return the same by the target networks, at rows of the target's features."""
        with self.autocast():
            return self.target_q_model(*rows, self.distribution.rest_fixed(action))

    @torch.no_grad()
    def update_target(self, tau: float = 1.0) -> None:
        """Move the targets by the fraction `tau` to the networks; 1 copies."""
        update_target(self.target_q_model, self.q_model, tau)
        if self.has_target_policy:
            update_target(self.target_model, self.model, tau)
        else:
            update_target(self.target_model.body, self.model.body, tau)

    # ---- acting ----

    def act(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return actions [B] in the way that `exploration` said."""
        if actor.exploration == BEST:
            return self.best_action(output)
        return self.explore(output, actor) if actor.exploration == EXPLORE else self._first_action(output, actor)

    @abstractmethod
    def best_action(self, output: Buffer) -> torch.Tensor:
        """Return the actions [B] to evaluate the policy with."""

    @abstractmethod
    def explore(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return the actions [B] to learn from."""

    def _first_action(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return actions before the first update."""
        units = self.distribution
        if self.pretrain_std is None:
            return units.decode(actor.draw(units.draw_uniform))
        x = units.encode(self.best_action(output)) + self.pretrain_std * actor.draw(units.draw_noise)
        return units.decode(x.clamp(-1, 1))

    def exploration(self, actor: ModelActor, itr: int) -> str:
        """Return the way to act.

        An evaluation before the first iteration is as in training while nothing was learned yet, unless it is
        deterministic. Other evaluations are by the policy alone.
        """
        has_learned = self._pretrained or self.fraction > 0.0
        if actor.evaluation and (itr > 0 or has_learned or actor.deterministic):
            return BEST
        return EXPLORE if has_learned else FIRST

    def train_mode(self, itr: int) -> None:
        """Make ready for updates; the target's action values have dropout too, as DroQ has it."""
        super().train_mode(itr)
        if not self.q_model.training:
            set_training(self.q_model, True)
            set_training(self.target_q_model, True)
