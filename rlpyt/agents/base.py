"""Base of all agents: building networks for the spaces, devices, state, schedules, and copies in other processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from rlpyt.agents.actor import ModelActor, OwnStepActor
from rlpyt.agents.by_hand import ActsByHand
from rlpyt.agents.given import as_env_spaces, check_dictionaries, check_state
from rlpyt.agents.own_models import INPUTS, build_model, copy_of_kwargs, drop_inputs, random_observations, told_call
from rlpyt.agents.rnn_rows import rnn_from_rows, rnn_to_rows
from rlpyt.agents.weights import HasNetworks, Network, Numbers
from rlpyt.core import Agent, AgentByHand
from rlpyt.models import Encoder, Model, NoisyLinear, draw_randomness, set_training, uses_prev_action
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.old_names import serve_old_names
from rlpyt.settings import Scheduled, Settings, scheduled
from rlpyt.spaces import EnvSpaces, null_action, null_value
from rlpyt.types import Kwargs, StateDict
from rlpyt.utils.arguments import named_arguments
from rlpyt.utils.arrays import buffer_func, torchify_buffer

if TYPE_CHECKING:  # at run time the name is one of rlpyt 0.1 here, which is answered with a warning
    from rlpyt.types import AgentInputs

serve_old_names(__name__)


@dataclass(eq=False)
class BaseAgent(Settings, Scheduled, ActsByHand, HasNetworks, AgentByHand):
    """Model that is called with `(observation, prev_action, prev_reward[, rnn_state])`, and the rule to act by it.

    A subclass says which distribution goes with an action space, how actions follow from what the model gives (`act`),
    and what is recorded of it (`agent_info`). The previous action reaches the model encoded by the distribution
    (one-hot where actions are discrete).

    The networks that act are in `acting`, those that only learn (targets, action values) in `learning`. A worker's copy
    has `acting`, kept up to date, and nothing of `learning`.
    """

    ModelCls: Callable[..., nn.Module] | None = None
    """Called with `model_kwargs`, and with those of `make_env_to_model_kwargs(env_spaces)` that it takes; None is the
    agent's default, which serves any pair of spaces."""
    model_kwargs: Kwargs | None = None
    """Further arguments of the model."""
    initial_model_state_dict: StateDict | None = field(default=None, repr=False, metadata={"weights": True})
    """Weights to start from, as `agent.state_dict()["model"]` returned them; or all that `agent.state_dict()` returned,
    of which only weights are taken."""
    _: KW_ONLY
    recurrent: bool | str = False
    """Whether the model carries a state; "lstm" and "gru" say by which layer, where the model is the default one."""

    in_class_bodies: ClassVar[frozenset[str]] = frozenset({"recurrent"})
    preset: ClassVar[Callable[..., nn.Module] | None] = None
    """Model instead of the default one, called with the sizes of the spaces and `model_kwargs`."""
    sizes_of: ClassVar[Callable[[EnvSpaces], Kwargs] | None] = None
    """Function that tells a ModelCls the sizes of the spaces; None tells it the spaces."""

    model = Network[nn.Module]("acting", "model")

    def __post_init__(self) -> None:
        """Check the settings; a subclass calls this first and adds its own checks."""
        super().__post_init__()
        state = self.initial_model_state_dict
        check_dictionaries(type(self).__name__, model_kwargs=self.model_kwargs, initial_model_state_dict=state)
        self.model_kwargs = dict(self.model_kwargs or {})
        self.forget_networks()
        self.numbers = Numbers({"annealed": 1, **self.kept_numbers, **dict.fromkeys(scheduled(type(self)), 1)})
        self._exploration: Callable[[int], float | None] | None = None
        self.bind(2**62)  # to a run without end, until an algorithm says how long it is

    # ---- building ----

    @abstractmethod
    def make_distribution(self, env_spaces: EnvSpaces) -> Any:
        """Return the distribution over the action space; refuse a space that the agent cannot act in."""

    @abstractmethod
    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the model used where neither ModelCls nor a preset is given."""

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> Kwargs:
        """Return the arguments that tell a ModelCls the sizes of the spaces."""
        sizes_of = type(self).sizes_of  # of the class, as a function in a class is no method of its objects here
        if sizes_of is not None:
            return sizes_of(env_spaces)
        return {"observation_space": env_spaces.observation, "action_space": env_spaces.action}

    def preset_kwargs(self) -> Kwargs:
        """Return the arguments of a preset beside the sizes of the spaces, a copy for every network."""
        return copy_of_kwargs(self.model_kwargs or {})

    def default_model_kwargs(self) -> Kwargs:
        """Return the arguments of the default model beside the spaces."""
        return self.with_recurrence(self.preset_kwargs(), "model_kwargs")

    def with_recurrence(self, kwargs: Kwargs, name: str) -> Kwargs:
        """Return the arguments of a default model with its recurrent layer, an LSTM unless one is named.

        Raises:
            ValueError: if they name another layer than the agent's setting.
        """
        given = kwargs.get("recurrent")
        if isinstance(self.recurrent, str) and given not in (None, self.recurrent):
            raise ValueError(
                f"{type(self).__name__}: recurrent is {self.recurrent!r}, and {given!r} in {name}; expected one of "
                "them. Leave the other out."
            )
        layer = "lstm" if self.recurrent is True else self.recurrent
        return {**({"recurrent": layer} if layer else {}), **kwargs}

    def make_model(self) -> nn.Module:
        """Return a new model for the spaces (a target network is another one)."""
        if self.ModelCls is None and self.preset is None:
            model = self.make_default_model(self.env_spaces)
        else:
            model = self._model_of_sizes(self.make_env_to_model_kwargs(self.env_spaces))
            if isinstance(model, Model) and isinstance(model.encoder, Encoder):
                model.encoder.fit_to(self.env_spaces.observation)  # as the model may have been told the shape alone
        drop_inputs(model)
        return model

    def _model_of_sizes(self, offered: Kwargs) -> nn.Module:
        if self.ModelCls is None:
            assert self.preset is not None
            if self.recurrent not in (True, False, "lstm"):
                raise ValueError(
                    f"{type(self).__name__}: recurrent is {self.recurrent!r}, and its model of rlpyt 0.1 has an LSTM; "
                    "expected True. To choose the layer use an agent with the default model, such as "
                    "RecurrentCategoricalPgAgent, RecurrentGaussianPgAgent or R2d1Agent."
                )
            return type(self).preset(**offered, **self.preset_kwargs())  # type: ignore[misc]
        return build_model(f"{type(self).__name__}: ModelCls", self.ModelCls, offered, self.model_kwargs or {})

    @named_arguments
    def initialize(self, env_spaces: EnvSpaces) -> None:
        """Build networks and distribution for the spaces; see `rlpyt.core.Agent.initialize`.

        Raises:
            RuntimeError: if a run has trained the agent, or its state was loaded, which would be lost.
        """
        if self._has_weights_of_its_own:
            raise RuntimeError(
                f"{type(self).__name__}: initialize was called again, after a run has trained the agent or its state "
                "was loaded, and would replace its model; expected an agent for every run. To go on from these weights "
                "make a new agent with initial_model_state_dict=agent.model.state_dict()."
            )
        self.env_spaces = env_spaces = as_env_spaces(type(self).__name__, env_spaces)
        self.forget_networks()
        self.distribution = self.make_distribution(env_spaces)
        if self.distribution is None:
            raise TypeError(
                f"{type(self).__name__}.make_distribution returned None; expected a distribution. Return one."
            )
        self._mode = self._in_charge = self._in_training = None
        self.make_networks()

    def make_networks(self) -> None:
        """Build the model, with the weights to start from; a subclass adds its own networks and checks."""
        self.acting["model"] = self.make_model()
        if "model" in self._initial_state:
            self.model.load_state_dict(self._initial_state["model"])

    @property
    def _initial_state(self) -> StateDict:
        """State given to start from, by the keys of the agent's own state."""
        given = self.initial_model_state_dict
        if given is None:
            return {}
        check_state(type(self).__name__, given)
        return given if isinstance(given.get("model"), Mapping) else {"model": given}

    def input_description(self) -> str:
        """Return how every part of an observation is read, if the model has an encoder of `rlpyt.models`."""
        model = self.unrolled()[0]
        encoder = model.encoder if isinstance(model, Model) else None
        return "; ".join(encoder.reading()) if isinstance(encoder, Encoder) else ""

    def example_inputs(self, n_rows: int = 1) -> tuple[Buffer, Buffer, Buffer]:
        """Return null observations, previous actions (not encoded) and rewards, [n_rows] leading."""
        row = (null_value(self.env_spaces.observation), null_action(self.env_spaces.action), 0.0)
        observation, action, reward = buffer_func(torchify_buffer(row), lambda x: x.expand(n_rows, *x.shape))
        return observation, action, reward.float()

    @torch.no_grad()
    def _outputs(self, observation: Buffer = None, n_rows: int = 3) -> Buffer:
        """Return what the model gives for observations, null ones by default, with no state before."""
        null, prev_action, prev_reward = self.example_inputs(n_rows)
        rnn = [None] if self.recurrent else []
        self.model.eval()
        inputs = null if observation is None else observation, self.encode(prev_action), prev_reward
        with told_call(self._the_model, **dict(zip(INPUTS, inputs, strict=True))):
            return self.model(*inputs, *rnn)

    def _random_outputs(self, n_rows: int = 8) -> Buffer:
        """Return the same for different observations; None where the model fails on what may never occur."""
        try:
            with torch.random.fork_rng(devices=[]):
                return self._outputs(random_observations(self.env_spaces, n_rows), n_rows)
        except Exception:
            return None

    @property
    def _the_model(self) -> str:
        return f"{type(self).__name__}: the model, a {type(self.model).__name__},"

    # ---- acting ----

    def actor(
        self, env_ranks: Sequence[int], global_B: int, seed: int, *, evaluation: bool = False, restarts: int = 0
    ) -> ModelActor:
        """Return an actor for environments that are stepped together; see `rlpyt.core.Agent.actor`."""
        self.check_initialized()
        return self._actor_class(self, env_ranks, global_B, seed, evaluation=evaluation, restarts=restarts)

    def actor_by_hand(self, n_rows: int, evaluation: bool) -> ModelActor:
        """Return an actor for environments that no sampler steps, with noise that follows torch's global seed."""
        self.check_initialized()
        seed = int(torch.randint(2**31 - 1, ()))
        return self._actor_class(self, range(n_rows), n_rows, seed, evaluation=evaluation, by_hand=True)

    @property
    def _actor_class(self) -> type[ModelActor]:
        ours, own = ActsByHand, type(self)
        methods = (own.step, own.value, own.sample_mode, own.eval_mode, own.reset, own.reset_one)
        library = (ours.step, ours.value, ours.sample_mode, ours.eval_mode, ours.reset, ours.reset_one)
        return ModelActor if methods == library else OwnStepActor

    def exploration(self, actor: ModelActor, itr: int) -> Any:
        """Return what `act` finds in `actor.exploration` until the next batch, or evaluation, begins."""
        return None

    def exploration_state(self, n_rows: int) -> torch.Tensor | None:
        """Return the null state [n_rows, ...] that `act` keeps from step to step; None for a rule without one."""
        return None

    @abstractmethod
    def act(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return actions [B].

        Args:
            output: what the model gave for B rows, after `acts_on`, on the CPU.
            actor: whose `exploration`, `deterministic` and `draw` say how to explore.
        """

    @abstractmethod
    def agent_info(self, output: Buffer) -> NamedArrayTuple:
        """Return what is recorded with the actions; a recurrent agent's has a field `prev_rnn_state`, left None."""

    def acts_on(self, output: Buffer) -> Buffer:
        """Return what `act`, `agent_info` and `value_of` take, of what the model gives for rows, on its device."""
        return output

    def value_of(self, output: Buffer) -> torch.Tensor:
        """Return the values [B] of rows, of what `act` takes.

        Raises:
            TypeError: if the agent has none.
        """
        raise TypeError(f"{type(self).__name__}: gives no values of states; expected a policy-gradient agent for that.")

    def encode(self, prev_action: Buffer) -> Buffer:
        """Return previous actions as the model is given them: one-hot where they are discrete."""
        return self.distribution.encode(prev_action) if uses_prev_action(self.model) else prev_action

    def noisy_layers(self) -> list[NoisyLinear]:
        """Return the layers whose noise is drawn at every step of training's environments."""
        return []

    @torch.no_grad()
    def rnn_state_example(self) -> Buffer:
        """Return the recurrent state of one environment, [N, 1, H] leaves; None without one."""
        if not self.recurrent:
            return None
        return self._forward(self.model, self.to_model(self.example_inputs()))[1]

    def forward_to_act(self, inputs: tuple[Buffer, Buffer, Buffer], rnn_state: Buffer) -> tuple[Buffer, Buffer]:
        """Return what `act` takes for rows [B, ...], on the CPU, and the next recurrent state, on the device."""
        output, next_rnn_state = self._forward(self.model, self.to_model(inputs), rnn_state)
        return self.from_model(self.acts_on(output)), next_rnn_state

    def _forward(
        self, model: nn.Module, inputs: Sequence[Buffer], rnn_state: Buffer = None, episode_start: Buffer = None
    ) -> tuple[Buffer, Buffer]:
        """Return what a network gives and its next recurrent state, in torch's layout; None if there is none."""
        observation, prev_action, prev_reward = inputs
        rnn = (rnn_state, episode_start) if self.recurrent else ()
        with self.autocast():
            output = model(observation, self.encode(prev_action), prev_reward, *rnn)
        if not self.recurrent:
            return output, None
        *first, next_rnn_state = output
        return first[0] if len(first) == 1 else tuple(first), next_rnn_state

    # ---- learning ----

    def __call__(
        self,
        observation: Buffer,
        prev_action: Buffer,
        prev_reward: Buffer,
        init_rnn_state: Buffer = None,
        episode_start: Buffer = None,
    ) -> Buffer:
        """Return what the model gives, with gradient.

        Args:
            observation: [T, B, ...] or [B, ...], as are the previous action and reward.
            prev_action: in row form.
            prev_reward: float32.
            init_rnn_state: of a recurrent agent, before the first row, [B, N, H] leaves; None is zero.
            episode_start: [T, B] bool, rows before which the state is zero.
        """
        inputs = observation, prev_action, prev_reward
        return self._forward(self.model, inputs, rnn_from_rows(init_rnn_state), episode_start)[0]

    def unrolled(self) -> Sequence[nn.Module]:
        """Return the networks that normalise observations and carry the recurrent state: the model, and its target."""
        return [self.model]

    @torch.no_grad()
    def warm_up(self, inputs: AgentInputs, init_rnn_state: Buffer, episode_start: Buffer) -> tuple[Buffer, ...]:
        """Return the recurrent states of network and target network after rows, both from one state before.

        Args:
            inputs: [T, B] rows.
            init_rnn_state: before the first row, [B, N, H] leaves; None is zero.
            episode_start: [T, B] bool, rows before which the state is zero.
        """
        state = rnn_from_rows(init_rnn_state)
        return tuple(rnn_to_rows(self._forward(model, inputs, state, episode_start)[1]) for model in self.unrolled())

    def train_mode(self, itr: int) -> None:
        """Make ready for the updates of an iteration, and let exploration and scheduled settings go on."""
        self._mode = "train"
        self._has_weights_of_its_own = True
        if not self.model.training:  # to visit every layer at every step of a run costs more than to look
            set_training(self.model, True)
        fraction = None if self._exploration is None else self._exploration(itr)
        if fraction is not None:
            self.anneal_exploration(fraction)
        self._set_scheduled((itr + 1) * self._steps_per_itr)

    def bind(self, n_steps: int, steps_per_itr: int = 1) -> None:
        """Bind scheduled settings to the length of a run and of its iterations, in environment steps."""
        super().bind(n_steps)
        self._steps_per_itr = steps_per_itr
        self._set_scheduled(0)

    def _set_scheduled(self, step: int) -> None:
        for name, value in vars(self.hyper(step)).items():
            self.numbers[name][:] = value

    def anneal_exploration(self, fraction: float) -> None:
        """Set how far exploration has gone from its first (0) to its last value (1), in every process that acts."""
        self.numbers["annealed"][:] = fraction

    def explore_by(self, schedule: Callable[[int], float | None]) -> None:
        """Follow a schedule in every `train_mode(itr)`; see `rlpyt.core.ExploringAgent`."""
        self._exploration = schedule

    def _on_schedule(self) -> list[str]:
        """Return the settings that follow a schedule, and no plain number."""
        return [name for name in scheduled(type(self)) if not isinstance(getattr(self, name), Real | None)]

    def state_dict(self) -> StateDict:
        """Return the networks' state by name, the numbers that belong to it, and scheduled settings as they stand."""
        now = {name: float(self.numbers[name][0]) for name in self._on_schedule()}
        return {**super().state_dict(), **({"scheduled": now} if now else {})}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned; a setting that is a plain number here stays it."""
        super().load_state_dict(state_dict)
        for name in self._on_schedule():
            # The batch after it is collected before `train_mode` sets them again.
            self.numbers[name][:] = state_dict.get("scheduled", {}).get(name, self.numbers[name])

    @property
    def fraction(self) -> float:
        """How far exploration has been annealed, from 0 to 1."""
        return float(self.numbers["annealed"][0])

    def update_obs_rms(self, observation: Buffer, valid: torch.Tensor | None = None) -> None:
        """Let the normalisers of network and target, which are the same, take in a batch of observations."""
        for network in self.unrolled():
            if isinstance(network, Model):
                network.update_obs_rms(observation, valid)

    def draw_randomness(self, generator: torch.Generator | None) -> None:
        """Draw what the networks are random in (noisy layers, IQN's fractions, dropout); None turns it off."""
        for network in self.modules():
            draw_randomness(network, generator)

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return what an optimiser updates."""
        return self.model.parameters()

    def leave_behind(self) -> None:
        """Let a worker's copy go without actors."""
        super().leave_behind()
        self._in_charge = self._in_training = None

    def __getstate__(self) -> dict[str, object]:
        """Return the attributes of a copy, without the algorithm's schedule: it holds the replay, and sets it again."""
        return {**vars(self), "_exploration": None}


def as_base_agent(agent: Agent, who: str) -> BaseAgent:
    """Return an agent whose networks a function may reach into.

    Raises:
        TypeError: if it is of another kind.
    """
    if not isinstance(agent, BaseAgent):
        raise TypeError(f"{who}: the agent is a {type(agent).__name__}; expected a BaseAgent of rlpyt.agents.")
    return agent
