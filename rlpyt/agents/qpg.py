"""A policy and action values over shared features, with targets: what the agents of DDPG, TD3 and SAC are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import nn

from rlpyt.agents.by_hand import one_or_many
from rlpyt.agents.env_group import EnvGroup
from rlpyt.agents.off_policy import OffPolicyAgent
from rlpyt.agents.own_models import INPUTS, RNN_INPUTS, build_model, check_call, described, shape_of
from rlpyt.agents.rnn_rows import rnn_from_rows
from rlpyt.distributions import ActionUnits
from rlpyt.models import ActorModel, FeatureModel, Model, MuMlpModel, QofMuMlpModel, update_target
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentInputs, AgentStep


class QpgAgent(OffPolicyAgent):
    """A policy and `n_q` networks of action values, over features of the observation that they share.

    The features are trained with the action values; the policy's gradient stops there. Of a vector they are the
    observation itself, so that policy and values have no weight in common; of images they are convolutions, of a
    recurrent agent an LSTM (see `FeatureModel`). Whatever policy and values see and give of actions is in units in
    which the bounds of the space are -1 and 1.

    Before the first update actions are spread evenly over the space, or the policy's with Gaussian noise of
    `pretrain_std`; a policy that starts from given weights acts by itself from the beginning.

    Args:
        ModelCls: the policy, called with `observation_shape` (of the features), `action_size` and `model_kwargs`.
        QModelCls: the action values, likewise with `q_model_kwargs`; given the number of them as `n_models`, it
            returns [n_models, ...].
        model_kwargs: of the policy; the default one's `hidden_sizes` are the agent's.
        q_model_kwargs: of the action values, likewise.
        initial_model_state_dict: weights of features and policy to start from; or all that `agent.state_dict()`
            returned, of which the weights of the action values are taken too.
        initial_q_model_state_dict: weights of the action values.
        feature_kwargs: of `FeatureModel`.
        n_q: networks of action values.
        pretrain_std: standard deviation of the noise before the first update; None spreads actions evenly.
    """

    kind: str
    """What the policy is, which an algorithm must fit."""
    PolicyCls: Callable[..., nn.Module] = MuMlpModel
    policy_outputs: Sequence[str] = ()
    """What the policy gives, [..., A] each, as a tuple if there are several; checked at the start unless empty."""
    hidden_sizes: Sequence[int] = (400, 300)
    has_target_policy: bool = True
    distribution: ActionUnits
    model: ActorModel

    def __init__(
        self,
        ModelCls: Callable[..., nn.Module] | None = None,
        QModelCls: Callable[..., nn.Module] | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        q_model_kwargs: Mapping[str, Any] | None = None,
        initial_model_state_dict: Mapping[str, Any] | None = None,
        initial_q_model_state_dict: Mapping[str, Any] | None = None,
        *,
        feature_kwargs: Mapping[str, Any] | None = None,
        n_q: int = 1,
        pretrain_std: float | None = None,
    ) -> None:
        sizes, q_sizes = ({"hidden_sizes": self.hidden_sizes} if Cls is None else {} for Cls in (ModelCls, QModelCls))
        super().__init__(ModelCls, {**sizes, **(model_kwargs or {})}, initial_model_state_dict)
        if n_q < 1:
            raise ValueError(f"{type(self).__name__}: n_q is {n_q}; expected at least 1 network of action values.")
        self.check_not_negative(pretrain_std=pretrain_std)
        self.QModelCls = QModelCls or QofMuMlpModel
        self.q_model_kwargs = {**q_sizes, **(q_model_kwargs or {})}
        self.feature_kwargs = {**({"recurrent": "lstm"} if self.recurrent else {}), **(feature_kwargs or {})}
        self.initial_q_model_state_dict = initial_q_model_state_dict
        self.n_q = n_q
        self.pretrain_std = pretrain_std
        self._explores = False
        self._pretrained = initial_model_state_dict is not None

    def check_not_negative(self, **values: float | None) -> None:
        """Refuse standard deviations and bounds below 0."""
        for name, value in values.items():
            if value is not None and not value >= 0:
                raise ValueError(f"{type(self).__name__}: {name} is {value}; expected a number from 0.")

    # ---- building ----

    def make_distribution(self, env_spaces: EnvSpaces) -> ActionUnits:
        """Return the units of the actions; refuse a space without finite bounds."""
        return ActionUnits.from_space(env_spaces.action)

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the policy used where no ModelCls was given."""
        offered = self.make_env_to_model_kwargs(env_spaces)
        return build_model(f"{type(self).__name__}: the policy", self.PolicyCls, offered, self.model_kwargs)

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the sizes of features and actions."""
        return {"observation_shape": (self._feature_size,), "action_size": self.distribution.dim}

    def make_body(self) -> Model:
        """Return a new network of features: a `Model` with an `output_size`, recurrent if the agent is.

        It finds `self.env_spaces`, `self.distribution.dim`, which is A, and `self.feature_kwargs`.
        """
        body = FeatureModel(self.env_spaces.observation, self.distribution.dim, **self.feature_kwargs)
        if body.recurrent != self.recurrent:
            raise ValueError(
                f"{type(self).__name__}: feature_kwargs has recurrent={self.feature_kwargs.get('recurrent')!r}; "
                f"expected {'lstm or gru' if self.recurrent else 'None'}. Recurrent are RecurrentDdpgAgent, "
                "RecurrentTd3Agent and RecurrentSacAgent, and they alone."
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
        self._feature_size = body.output_size
        return ActorModel(body, super().make_model())

    def make_q_model(self) -> nn.Module:
        """Return the networks of action values."""
        offered = {**self.make_env_to_model_kwargs(self.env_spaces), "n_models": self.n_q}
        return build_model(f"{type(self).__name__}: QModelCls", self.QModelCls, offered, self.q_model_kwargs)

    def make_networks(self) -> None:
        """Build the networks and their targets, which start as copies."""
        super().make_networks()
        self.q_model, self.target_q_model = self.make_q_model(), self.make_q_model()
        initial_q = self.initial_q_model_state_dict or self._initial_state.get("q_model")
        if initial_q is not None:
            self.q_model.load_state_dict(initial_q)
        self.target_model = self.make_model()
        if not self.has_target_policy:
            self.target_model.pi = nn.Identity()
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
        check_call(f"{who}: the policy, a {type(self.model.pi).__name__},", self.model.pi, INPUTS)
        action_inputs = (*INPUTS, "action")
        check_call(f"{who}: the action values, a {type(self.q_model).__name__},", self.q_model, action_inputs)
        for module in self.modules():
            module.eval()
        rows = self.features(*self.example_inputs(3))
        self._check_policy(self.pi(rows))
        q = self.q(rows, torch.zeros(3, self.distribution.dim))
        if q.shape != (self.n_q, 3):
            raise ValueError(
                f"{type(self).__name__}: the action values, a {type(self.q_model).__name__}, are {list(q.shape)} for 3 "
                f"rows; expected [{self.n_q}, 3], of n_q = {self.n_q} networks. Let it make n_models networks, and "
                "leave out a last dimension of 1."
            )

    def _check_policy(self, output: Any) -> None:
        """Refuse a policy that does not give `policy_outputs` for 3 rows."""
        given = list(output) if isinstance(output, tuple | list) and len(self.policy_outputs) > 1 else [output]
        shape = (3, self.distribution.dim)
        if self.policy_outputs and [shape_of(x) for x in given] != [shape] * len(self.policy_outputs):
            raise ValueError(
                f"{type(self).__name__}: the policy, a {type(self.model.pi).__name__}, gave {described(output)} for 3 "
                f"rows; expected {', '.join(f'{name} {list(shape)}' for name in self.policy_outputs)}. Let its forward "
                "return this."
            )

    def modules(self) -> list[nn.Module]:
        """Return all networks and targets."""
        return [self.model, self.q_model, self.target_model, self.target_q_model]

    def unrolled(self) -> tuple[nn.Module, nn.Module]:
        """Return the features and their target."""
        return self.model.body, self.target_model.body

    def pi_parameters(self) -> list[nn.Parameter]:
        """Return the weights of the policy."""
        return list(self.model.pi.parameters())

    def q_parameters(self) -> list[nn.Parameter]:
        """Return the weights of features and action values."""
        return [*self.model.body.parameters(), *self.q_model.parameters()]

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return all that optimisers update."""
        return [*self.pi_parameters(), *self.q_parameters()]

    def encode(self, prev_action: Any) -> Any:
        """Return previous actions in units of the bounds, where a network may look at them."""
        own = self.ModelCls is not None or self.QModelCls is not QofMuMlpModel
        return self.distribution.encode(prev_action) if own or self.model.body.uses_prev_action else prev_action

    # ---- for algorithms ----

    def __call__(self, observation: Any, prev_action: Any, prev_reward: Any, *rnn: Any) -> Any:
        """Return what the policy gives at the rows, and the values of the null action, with gradient."""
        rows = self.features(observation, prev_action, prev_reward, *rnn)
        return self.pi(rows), self.q(rows, rows.observation.new_zeros(*rows.prev_reward.shape, self.distribution.dim))

    def features(
        self,
        observation: Any,
        prev_action: Any,
        prev_reward: Any,
        init_rnn_state: Any = None,
        episode_start: Any = None,
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
    def target_features(self, observation: Any, prev_action: Any, prev_reward: Any, *rnn: Any) -> AgentInputs:
        """Return the same by the target's features."""
        return self._features(self.target_model, (observation, prev_action, prev_reward), *rnn)

    def _features(
        self, model: ActorModel, inputs: tuple[Any, Any, Any], init_rnn_state: Any = None, episode_start: Any = None
    ) -> AgentInputs:
        x, _ = self._forward(model.body, inputs, rnn_from_rows(init_rnn_state), episode_start)
        _, prev_action, prev_reward = inputs
        return AgentInputs(x, self.encode(prev_action), prev_reward)

    def pi(self, rows: AgentInputs) -> Any:
        """Return what the policy gives at rows of features, whose gradient stops there."""
        with self.autocast():
            return self.model.pi(rows.observation.detach(), rows.prev_action, rows.prev_reward)

    def q(self, rows: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return the values [n_q, ...] of actions [..., A], in units of the bounds, at rows of features."""
        with self.autocast():
            return self.q_model(*rows, self.distribution.rest_fixed(action))

    def first_q(self, rows: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return the values [...] that the first network gives; of the default networks no other is computed."""
        alone = {"n_models": 1} if self.QModelCls is QofMuMlpModel else {}
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

    @one_or_many
    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> AgentStep:
        """Select actions for the environments in charge, [B]; everything returned is on the CPU."""
        inputs = self.to_model((observation, prev_action, prev_reward))
        output, next_rnn_state = self._forward(self.model, inputs, self._group.rnn_state)
        output = self.from_model(output)
        if not self._explores:
            action = self.best_action(output)
        elif self._began:
            action = self.explore(output, self._group)
        else:
            action = self._first_action(output, self._group)
        return self._recorded(action, self.agent_info(output), next_rnn_state)

    @abstractmethod
    def agent_info(self, output: Any) -> NamedArrayTuple:
        """Return what is recorded of the policy's output."""

    @abstractmethod
    def best_action(self, output: Any) -> torch.Tensor:
        """Return the actions [B] to evaluate the policy with."""

    @abstractmethod
    def explore(self, output: Any, group: EnvGroup) -> torch.Tensor:
        """Return the actions [B] to learn from."""

    def _first_action(self, output: Any, group: EnvGroup) -> torch.Tensor:
        """Return actions before the first update."""
        units = self.distribution
        if self.pretrain_std is None:
            return units.decode(group.draw(units.draw_uniform))
        x = units.encode(self.best_action(output)) + self.pretrain_std * group.draw(units.draw_noise)
        return units.decode(x.clamp(-1, 1))

    def sample_mode(self, itr: int) -> None:
        """Act in the training environments, and explore."""
        self._explores = True
        super().sample_mode(itr)

    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        """Act in the evaluation environments, by the policy alone.

        Before the first iteration it is as in training while nothing was learned yet, unless it is deterministic.
        """
        self._explores = itr == 0 and not self._has_learned and not deterministic
        super().eval_mode(itr, deterministic)

    @property
    def _has_learned(self) -> bool:
        return self._pretrained or self.progress > 0.0

    def _take(self, group: EnvGroup) -> None:
        super()._take(group)
        self._began = self._has_learned

    def train_mode(self, itr: int) -> None:
        """Make ready for updates; the target's action values have dropout too, as DroQ has it."""
        super().train_mode(itr)
        if not self.q_model.training:
            self.q_model.train()
            self.target_q_model.train()

    # ---- processes and state ----

    def worker_copy(self) -> Self:
        """Return a copy that acts in another process, which has only features and policy."""
        clone = super().worker_copy()
        clone.q_model = clone.target_q_model = nn.Module()
        clone.target_model = ActorModel(Model(), nn.Module())
        clone.initial_q_model_state_dict = None
        return clone

    def state_dict(self) -> dict[str, Any]:
        """Return all networks and targets, and whether learning has begun."""
        own = {name: module.state_dict() for name, module in self._more().items()}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict(state_dict)
        for name, module in self._more().items():
            module.load_state_dict(state_dict[name])

    def _more(self) -> dict[str, nn.Module]:
        return {"q_model": self.q_model, "target": self.target_model, "target_q": self.target_q_model}
