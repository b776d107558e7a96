"""Base of all agents: a model, a distribution over actions, and how actions follow from what the model gives."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field, fields
from numbers import Real
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from torch import nn

from rlpyt.agents.action_masks import masks_of
from rlpyt.agents.actor import ModelActor
from rlpyt.agents.by_hand import ByHand, check_spaces
from rlpyt.agents.networks import Held, Network, Networks, Numbers, check_state
from rlpyt.agents.own_models import new_model
from rlpyt.agents.rules import Exploration, Head
from rlpyt.core import Agent, example_inputs
from rlpyt.envs import EnvAdapter
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.old_rlpyt import check_class, compat
from rlpyt.settings import Scheduled, Settings, scheduled
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentStep, Kwargs, StateDict, TrajInfo
from rlpyt.utils.arguments import named_arguments, own_names
from rlpyt.utils.arrays import buffer_func, buffer_to
from rlpyt.utils.compute import ComputeSettings


@dataclass(eq=False)
class BaseAgent(Settings, Scheduled, Agent):
    """Model that is called with `(observation, prev_action, prev_reward[, rnn_state])`, and the rule to act by it.

    A subclass says which distribution goes with an action space, and what is recorded of what the model gives
    (`agent_info`). Its class names the parts that it is made of: how outputs are read (`HeadCls`), how it explores
    (`ExplorationCls`), and which model it has by default (`DefaultModelCls`). The previous action reaches the model
    encoded by the distribution (one-hot where actions are discrete).

    All networks are in `networks`: those that act in `networks.acting`, those that only learn (targets, action values)
    in `networks.learning`. A worker's copy has `acting`, kept up to date, and nothing of `learning`.
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
    kept_numbers: ClassVar[Mapping[str, int]] = {}
    """Numbers that acting needs in every process and that belong to the agent's state: name and how many."""
    scheduled_in_updates: ClassVar[tuple[str, ...]] = ()
    """Settings with a schedule that updates read and actions do not: they have the value of the step at which the
    iteration began, as the algorithm's settings have it. The others have that of the next batch."""

    DefaultModelCls: ClassVar[Callable[..., nn.Module] | None] = None
    """Called where no `ModelCls` was given, with `make_env_to_model_kwargs(env_spaces)` and `model_kwargs`."""
    told_to_default: ClassVar[Mapping[str, str]] = {}
    """Its further arguments that are attributes of the agent: the name there, and here."""
    HeadCls: ClassVar[type[Head]] = Head
    ExplorationCls: ClassVar[type[Exploration]] = Exploration
    ActorCls: ClassVar[type[ModelActor]] = ModelActor
    other_parts: ClassVar[Mapping[str, Callable[[Agent], object]]] = {}
    """Further parts, made with the agent as those above are, by the attribute."""

    networks: Networks = field(init=False, repr=False)
    head: Head = field(init=False, repr=False)
    exploration: Exploration = field(init=False, repr=False)
    by_hand: ByHand = field(init=False, repr=False)
    model = Network[nn.Module]("acting", "model")
    acting, learning = Held[nn.ModuleDict]("networks"), Held[nn.ModuleDict]("networks")
    numbers = Held[Numbers]("networks")
    device, compute = Held[torch.device]("networks"), Held[ComputeSettings]("networks")
    autocast = Held[Callable[[], AbstractContextManager[object]]]("networks")
    update_obs_rms = Held[Callable[..., None]]("networks")
    fraction = Held[float]("exploration")
    anneal_exploration = Held[Callable[[float], None]]("exploration", "anneal")
    explore_by = Held[Callable[[Callable[[int], float | None]], None]]("exploration", "follow")
    mode, _mode = Held[str | None]("by_hand"), Held[str | None]("by_hand", "mode")
    deterministic = Held[bool]("by_hand")
    rnn_state = Held[Buffer]("by_hand.actor")
    draw_noise = Held[Callable[[], torch.Tensor]]("by_hand")

    def __post_init__(self) -> None:
        """Check the settings; a subclass calls this first and adds its own checks."""
        super().__post_init__()
        state = self.initial_model_state_dict
        _check_dictionaries(self, model_kwargs=self.model_kwargs, initial_model_state_dict=state)
        self.starts_trained = state is not None  # copies for workers lose the weights, and not this
        self.model_kwargs = dict(self.model_kwargs or {})
        self.networks = Networks(type(self).__name__, self.kept_numbers, list(scheduled(type(self))))
        _set_parts(self)
        self.bind(2**62)  # to a run without end, until an algorithm says how long it is

    # ---- building ----

    @abstractmethod
    def make_distribution(self, env_spaces: EnvSpaces) -> Any:
        """Return the distribution over the action space; refuse a space that the agent cannot act in."""

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> Kwargs:
        """Return the arguments that tell a model the sizes of the spaces, which are without a mask of actions."""
        return {"observation_space": env_spaces.observation, "action_space": env_spaces.action}

    @named_arguments
    def initialize(self, env_spaces: EnvSpaces) -> None:
        """Build networks and distribution for the spaces; a subclass adds its own networks after calling this.

        Raises:
            RuntimeError: if a run has trained the agent, or its state was loaded, which would be lost.
        """
        if self.networks.have_learned:
            raise RuntimeError(
                f"{type(self).__name__}: initialize was called again, after a run has trained the agent or its state "
                "was loaded, and would replace its model; expected an agent for every run. To go on from these weights "
                "make a new agent with initial_model_state_dict=agent.model.state_dict()."
            )
        self.env_spaces = env_spaces = _as_env_spaces(self, env_spaces)
        self.networks.clear()
        _set_parts(self)
        self.distribution = self.make_distribution(env_spaces)
        if self.distribution is None:
            raise TypeError(
                f"{type(self).__name__}.make_distribution returned None; expected a distribution. Return one."
            )
        check_class(type(self.distribution))
        self.networks.recurrent = bool(self.recurrent)
        self.networks.masks = masks_of(env_spaces, type(self).__name__)
        self.model = new_model(self)
        self.networks.encode_by(self.distribution, "model")
        if "model" in (given := initial_state(self)):
            self.model.load_state_dict(given["model"])

    # ---- acting ----

    def actor(
        self,
        env_ranks: Sequence[int],
        global_B: int,
        seed: int,
        *,
        evaluation: bool = False,
        restarts: int = 0,
        device: torch.device | None = None,
    ) -> ModelActor:
        """Return an actor for environments that are stepped together."""
        self.networks.check_built()
        where: Kwargs = {} if device is None else {"device": device}
        actor = self.ActorCls(self, env_ranks, global_B, seed, evaluation=evaluation, restarts=restarts, **where)
        if not own_names(type(self)) & {"step", "value", "sample_mode", "eval_mode", "reset", "reset_one"}:
            return actor
        own = compat("steps").OwnStepActor(self, actor, ByHand(self, actor).acting, evaluation)
        return cast(ModelActor, own)

    def act(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return actions [B]: the best ones in a deterministic evaluation, without a draw, or those of exploration.

        Args:
            output: what the model gave for B rows, as the head reads it, where the environments are: on the CPU, but
                for those of a `DeviceSampler`.
            actor: whose `exploration`, `deterministic` and `draw` say how to explore.
        """
        return self.head.best(output) if actor.deterministic else self.exploration.action(output, actor)

    @abstractmethod
    def agent_info(self, output: Buffer) -> NamedArrayTuple:
        """Return the record that goes with the actions; a recurrent agent's has a field `prev_rnn_state`, left None.

        A field `value` [B] is what `agent.value` and the actors' `value` return.
        """

    @torch.no_grad()
    def rnn_state_example(self) -> Buffer:
        """Return the recurrent state of one environment, [N, 1, H] leaves; None without one."""
        if not self.recurrent:
            return None
        inputs = self.networks.to_model(example_inputs(self.env_spaces))
        return self.networks.run(self.model, inputs)[1]

    # ---- learning ----

    def __call__(
        self,
        observation: Buffer,
        prev_action: Buffer,
        prev_reward: Buffer,
        init_rnn_state: Buffer = None,
        episode_start: Buffer = None,
    ) -> Buffer:
        """Return the outputs of the model, with gradient.

        Args:
            observation: [T, B, ...] or [B, ...], as are the previous action and reward.
            prev_action: in row form.
            prev_reward: float32.
            init_rnn_state: of a recurrent agent, before the first row, [B, N, H] leaves; None is zero.
            episode_start: [T, B] bool, rows before which the state is zero.
        """
        return self.networks.run_rows(self.model, observation, prev_action, prev_reward, init_rnn_state, episode_start)

    def train_mode(self, itr: int) -> None:
        """Make ready for the updates of an iteration, and let exploration and scheduled settings go on."""
        self.by_hand.mode, self.networks.have_learned = "train", True
        self.networks.train()
        if (fraction := self.exploration.fraction_after(itr)) is not None:
            self.anneal_exploration(fraction)
        _set_scheduled(self, (itr + 1) * self._steps_per_itr, itr * self._steps_per_itr)

    def bind(self, n_steps: int, steps_per_itr: int = 1) -> None:
        """Bind scheduled settings to the length of a run and of its iterations, in environment steps."""
        super().bind(n_steps)
        self._steps_per_itr = steps_per_itr
        _set_scheduled(self, 0, 0)

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters that an optimiser updates."""
        return self.model.parameters()

    def to_device(self, settings: ComputeSettings) -> None:
        """Move the networks to the device, in the precision and memory format of the run."""
        self.networks.to_device(settings)
        distribution = getattr(self, "distribution", None)
        self.networks.encode_by(distribution)  # see `ModelActor`
        if distribution is not None:
            # What it copies to the device it copies now: in compiled code that were memory of a CUDA graph, which the
            # graph's next call overwrites.
            distribution.encode(buffer_to(example_inputs(self.env_spaces, 1)[1], self.device))

    def acting_copy(self) -> Self:
        """Return a copy on the CPU that acts in another process, with weights of its own."""
        clone = copy.copy(self)
        weights = [f.name for f in fields(self) if f.metadata.get("weights")]
        clone.__setstate__({"networks": self.networks.acting_copy(), **dict.fromkeys(weights)})
        vars(clone).pop("_given", None)  # which has these, too
        _warn_of_stale_networks(clone)
        return clone

    def __getstate__(self) -> StateDict:
        """Return the state of a copy, which makes its own parts: the algorithm's schedule holds the replay."""
        parts = {"head", "exploration", "by_hand", *self.other_parts}
        return {name: x for name, x in vars(self).items() if name not in parts}

    def __setstate__(self, state: StateDict) -> None:
        """Take over the attributes of a copy, with parts of its own."""
        super().__setstate__(state)
        _set_parts(self)
        self.head.loaded()

    def state_dict(self) -> StateDict:
        """Return the networks' state by name, the numbers that belong to it, and scheduled settings as they stand."""
        now = {name: float(self.numbers[name][0]) for name in _on_schedule(self)}
        return {**self.networks.state_dict(), **({"scheduled": now} if now else {})}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`; a setting that is a plain number here stays it."""
        self.networks.load_state_dict(state_dict)
        self.head.loaded()
        for name in _on_schedule(self):
            # The batch after it is collected before `train_mode` sets them again.
            self.numbers[name][:] = state_dict.get("scheduled", {}).get(name, self.numbers[name])

    # ---- for scripts, which act without a sampler ----

    def sample_mode(self, itr: int) -> None:
        """Make ready to act as in training, where the episodes stand."""
        self.by_hand.sample_mode(itr)

    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        """Make ready to act as in evaluation, from fresh episodes."""
        self.by_hand.eval_mode(itr, deterministic)

    def step(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> AgentStep:
        """Select actions for rows [B, ...]; by hand one row without B gives one action; see `rlpyt.agents.by_hand`."""
        return self.by_hand.of_rows(ModelActor.step, observation, prev_action, prev_reward)

    def value(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> torch.Tensor:
        """Return the values [B] of rows, or [] of one row by hand."""
        return self.by_hand.of_rows(ModelActor.value, observation, prev_action, prev_reward)

    def play(self, env: object, n_episodes: int = 1, *, seed: int = 0, deterministic: bool = True) -> list[TrajInfo]:
        """Run whole episodes in an environment of one's own, such as one that shows them in a window.

            agent.play(gymnasium.make("CartPole-v1", render_mode="human"))

        Args:
            env: any single environment that a sampler takes, or an `EnvAdapter` around one, with the spaces of the
                agent; it stays open. Where its info has `traj_done` False, as after a lost life in Atari, the episode
                goes on after a `reset`, as in an evaluation.
            n_episodes: how many.
            seed: of the first episode; the next ones have the next seeds.
            deterministic: whether to take the most probable action, without exploration, instead of a sampled one.

        Returns:
            The statistics of every episode, such as `Return` and `Length`. The discount is 1, so `DiscountedReturn` is
            the return.
        """
        env = env if isinstance(env, EnvAdapter) else EnvAdapter(env)
        check_spaces(self.env_spaces, env)
        infos = []
        for episode in range(n_episodes):
            self.eval_mode(0, deterministic=deterministic)
            (observation, _), action, reward, traj_done = env.reset(seed=seed + episode), None, None, False
            info = TrajInfo()
            while not traj_done:
                action = self.step(observation, action, reward).action
                observation, reward, terminated, truncated, env_info = env.step(buffer_func(action, np.asarray))
                done = terminated or truncated
                info.step(None, None, reward, done, None, env_info)
                traj_done = done and bool(env_info.get("traj_done", True))
                if done and not traj_done:
                    (observation, _), action, reward = env.reset(), None, None
                    self.reset()
            infos.append(info)
        return infos

    def reset(self) -> None:
        """Forget the episodes of all environments."""
        self.by_hand.actor.reset()

    def reset_one(self, idx: int) -> None:
        """Forget the episode of one environment."""
        self.by_hand.actor.reset_one(idx)


def _check_dictionaries(agent: BaseAgent, **given: object) -> None:
    """Check that arguments are dictionaries, and not the QModelCls that came second in agents of rlpyt 0.1."""
    for name, value in given.items():
        if not isinstance(value, Mapping | None):
            raise TypeError(
                f"{type(agent).__name__}: {name} is {value!r:.100}; expected a dictionary or None. Only ModelCls, "
                "model_kwargs and initial_model_state_dict may come without a name, in this order. Name all others, "
                "as QModelCls=..."
            )


def _as_env_spaces(agent: BaseAgent, given: Any) -> EnvSpaces:
    """Return the spaces of an environment, which may be given as a plain pair."""
    if isinstance(given, tuple) and len(given) == 2:
        return EnvSpaces(*given)
    raise TypeError(
        f"{type(agent).__name__}: initialize was given {given!r:.100}; expected the spaces of an environment. Write "
        "agent.initialize(EnvSpaces(env.observation_space, env.action_space)), with EnvSpaces of rlpyt.envs."
    )


def _set_parts(agent: BaseAgent) -> None:
    """Give an agent new parts, over its networks."""
    for name, Base in (("HeadCls", Head), ("ExplorationCls", Exploration)):
        Cls = getattr(agent, name)
        if not callable(Cls) or (isinstance(Cls, type) and not issubclass(Cls, Base)):
            raise TypeError(
                f"{type(agent).__name__}: {name} is {Cls!r:.100}; expected a class that derives from "
                f"rlpyt.agents.{Base.__name__}. Name the class itself (docs/howto/own_agent.md)."
            )
    agent.head, agent.exploration, agent.by_hand = agent.HeadCls(agent), agent.ExplorationCls(agent), ByHand(agent)
    for name, make in agent.other_parts.items():
        setattr(agent, name, make(agent))


def initial_state(agent: BaseAgent) -> StateDict:
    """Return the state that an agent was given to start from, by the keys of its own state."""
    given = agent.initial_model_state_dict
    if given is None:
        return {}
    check_state(type(agent).__name__, given)
    return given if isinstance(given.get("model"), Mapping) else {"model": given}


def _on_schedule(agent: BaseAgent) -> list[str]:
    """Return the settings that follow a schedule, and no plain number."""
    return [name for name in scheduled(type(agent)) if not isinstance(getattr(agent, name), Real | None)]


def _set_scheduled(agent: BaseAgent, step: int, step_of_updates: int) -> None:
    """Set the numbers of actions as at one step, where the next batch begins, and those of updates as at another."""
    values = vars(agent.hyper(step))
    if agent.scheduled_in_updates:
        of_updates = vars(agent.hyper(step_of_updates))
        values = values | {name: of_updates[name] for name in agent.scheduled_in_updates}
    for name, value in values.items():
        agent.numbers[name][:] = value


def _warn_of_stale_networks(clone: BaseAgent) -> None:
    """Warn of networks that are sent to other processes once, and would act there with the weights of the start."""
    names = [name for name, x in vars(clone).items() if isinstance(x, nn.Module)]
    if names:
        warnings.warn(
            f"{type(clone).__name__}: the workers get its {', '.join(names)} once, and what is learned later "
            "reaches the networks in `networks.acting` alone. Put a network that acts into agent.networks.acting, and "
            "one that only learns into agent.networks.learning (docs/howto/own_agent.md).",
            stacklevel=3,
        )


def as_base_agent(agent: Agent, who: str) -> BaseAgent:
    """Return an agent whose networks a function may reach into; refuse another kind."""
    if not isinstance(agent, BaseAgent):
        raise TypeError(f"{who}: the agent is a {type(agent).__name__}; expected a BaseAgent of rlpyt.agents.")
    return agent
