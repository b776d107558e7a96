"""Interfaces of actors and agents: what samplers, algorithms and runners may ask of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, Self

import torch
from gymnasium.spaces import Box

from rlpyt.functional import Expectation, ValueHead
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces, Space, leaf_spaces, null_action, null_value
from rlpyt.types import AgentInputs, AgentStep, StateDict, TrajInfo
from rlpyt.utils.arrays import buffer_func, torchify_buffer
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.replicas import Replicas

Features = Callable[..., AgentInputs]
"""Function of observation, previous action and reward, and of a recurrent agent the state before the first row and
`episode_start`, which returns rows with their features in place of the observation."""
ValueAt = Callable[[AgentInputs, torch.Tensor], torch.Tensor]
"""Function of rows of features and of actions [..., A]."""


class RewardStatistics(Protocol):
    """Running statistics of rewards, such as `rlpyt.models.RunningMeanStdModel`."""

    var: torch.Tensor
    """Variance so far."""
    var_clip: float
    """Least variance to divide by."""

    def update(self, x: torch.Tensor, valid: torch.Tensor | None = None) -> None:
        """Take in values [...], where `valid` [...] is True."""


class MasksOfActions(Protocol):
    """Masks of legal actions in the observations of an agent."""

    def legal(self, observation: Buffer) -> torch.Tensor:
        """Return which actions are legal at observations [..], bool [.., A], of several choices concatenated.

        All are where a mask forbids all, as in a final observation, after which there is no action.
        """


class Actor(ABC):
    """Actions of an agent in some environments, with their random stream, recurrent state and exploration.

    `begin` comes first, before every batch and every evaluation.
    """

    @abstractmethod
    def begin(self, itr: int, deterministic: bool = False) -> None:
        """Make ready for a batch, or for an evaluation from fresh episodes, with the agent's exploration of now.

        `itr` picks the random stream of an evaluation. `deterministic` takes the most probable action.
        """

    @abstractmethod
    def step(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> AgentStep:
        """Select the actions of all environments, [B]; advances the recurrent state."""

    @abstractmethod
    def value(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> torch.Tensor:
        """Return the values [B] of the rows; the recurrent state stays where it is."""

    def reset(self) -> None:  # noqa: B027
        """Forget the episodes of all environments; called once before the first batch, too, then `begin`."""

    @abstractmethod
    def reset_one(self, idx: int) -> None:
        """Forget the episode of one environment, numbered from 0 among these."""

    def reset_where(self, ended: torch.Tensor) -> None:
        """Forget the episodes of the environments where `ended` [B] bool is True, without waiting for its device."""
        raise TypeError(_not_on_device(self, "reset_where"))

    def value_after(self, row: AgentInputs, rnn_state: Buffer, following: AgentInputs) -> torch.Tensor:
        """Return the values [M] of rows that follow others, of which a recurrent agent recorded its state.

        Args:
            row: the rows before, [M].
            rnn_state: recorded before them, [M, N, H] leaves; None of a feed-forward agent.
            following: the rows that are valued, [M].
        """
        raise TypeError(_not_on_device(self, "value_after"))

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return random stream, recurrent state and exploration state."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""


def _not_on_device(actor: Actor, method: str) -> str:
    return (
        f"{type(actor).__name__}: has no method {method}, which a DeviceSampler calls; expected one. Let the agent act "
        "by rlpyt.agents.ModelActor, or use another sampler."
    )


class AgentNetworks(ABC):
    """Networks of an agent, as samplers, algorithms and runners handle them."""

    device: torch.device
    """Where they are."""
    masks: MasksOfActions | None = None
    """Masks of legal actions in the observations; None where they have none."""
    in_hindsight: bool = False
    """Whether batches have achieved goals in the place of desired ones, so that normalisers take in both."""

    @abstractmethod
    def modules(self) -> Sequence[torch.nn.Module]:
        """Return all networks, targets included."""

    @abstractmethod
    def acting_modules(self) -> torch.nn.Module:
        """Return all whose state the processes that act are sent before every batch: networks, numbers as buffers."""

    @abstractmethod
    def join(self, replicas: Replicas) -> None:
        """Connect the normalisers, which then pool the batches of all replicas; an algorithm calls it, on the device.

        Raises:
            TypeError: if a layer takes statistics of one replica's batches alone, as batch normalisation does.
        """

    @abstractmethod
    def update_obs_rms(self, observation: Buffer, valid: torch.Tensor | None = None) -> None:
        """Update the normalisers by the observations of a batch where `valid` is True."""

    @abstractmethod
    def draw_randomness(self, generator: torch.Generator | None) -> None:
        """Draw what the networks are random in for the next update; None turns the randomness off."""

    @abstractmethod
    def warm_up(self, inputs: AgentInputs, init_rnn_state: Buffer, episode_start: Buffer) -> tuple[Buffer, ...]:
        """Return the recurrent states of network and target network after [T, B] rows, both from one state before."""

    @abstractmethod
    def rewinder(self) -> Callable[[], None]:
        """Return an undo function for what forward passes move from now on: own random streams, and buffers."""

    @abstractmethod
    def input_description(self) -> str:
        """Return in words how an observation is read, for the plan of a run; "" where that is not known."""


class Agent(ABC):
    """Networks, a distribution over actions, and the rule by which actions follow from what the networks give."""

    kind: ClassVar[str] = ""
    """What the networks give, which an algorithm must fit."""
    recurrent: bool | str
    """Whether the model carries a state from row to row; of some agents the kind of its layer, such as "gru"."""
    networks: AgentNetworks
    env_spaces: EnvSpaces
    """Spaces of one environment; known after `initialize`."""
    distribution: Any
    """Over the action space; known after `initialize`."""
    device: torch.device
    """Where the networks are."""
    compute: ComputeSettings = ComputeSettings()
    """What `to_device` was given."""
    values: ValueHead = Expectation()
    """How what the networks give as values is read, and trained."""
    anneal_exploration: Callable[[float], None]
    """Sets how far exploration has gone from its first (0) to its last value (1), in every process that acts."""
    explore_by: Callable[[Callable[[int], float | None]], None]
    """Lets `train_mode(itr)` set how far exploration has gone, by a function of itr; None leaves it as it is."""
    update_target: Callable[..., None]
    """Moves the targets, if there are any, by the fraction `tau` to the networks; 1, the default, copies."""

    @abstractmethod
    def initialize(self, env_spaces: EnvSpaces) -> None:
        """Build the networks and the distribution; TypeError if the agent cannot act in the action space."""

    @abstractmethod
    def bind(self, n_steps: int, steps_per_itr: int = 1) -> None:
        """Bind scheduled settings to the length of a run and of its iterations, in environment steps."""

    @abstractmethod
    def actor(
        self,
        env_ranks: Sequence[int],
        global_B: int,
        seed: int,
        *,
        evaluation: bool = False,
        restarts: int = 0,
        device: torch.device | None = None,
    ) -> Actor:
        """Return an actor for environments that are stepped together.

        Args:
            env_ranks: their ranks among all environments of the run.
            global_B: environments over all workers and replicas.
            seed: of the run.
            evaluation: whether they are the evaluation's.
            restarts: which restart of a lost worker this is, from 1, with a stream of its own; 0 for none.
            device: of the environments, where actions are drawn and returned; None is the CPU.
        """

    @abstractmethod
    def acting_copy(self) -> Self:
        """Return a copy on the CPU that acts in another process, with the networks that act and weights of its own."""

    @abstractmethod
    def __call__(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer, *rnn: Buffer) -> Buffer:
        """Return the outputs of the model, with gradient, on the device: distribution parameters, values."""

    @abstractmethod
    def train_mode(self, itr: int) -> None:
        """Make ready for the updates of an iteration; a runner calls it after the batch, before they begin."""

    @abstractmethod
    def to_device(self, settings: ComputeSettings) -> None:
        """Move the networks to the device, in the precision and memory format of the run."""

    @abstractmethod
    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """Return the parameters that an optimiser updates."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return all learned and normalising state."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""

    def __setstate__(self, state: StateDict) -> None:
        """Take over the attributes of a copy, when it is copied or sent to the process of a sampler."""
        for name, value in state.items():
            setattr(self, name, value)

    # ---- for scripts, which act without a sampler, once the agent was trained or loaded ----

    @abstractmethod
    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        """Make ready to act as in evaluation, from fresh episodes; `itr` has no effect on Q-learners here."""

    @abstractmethod
    def sample_mode(self, itr: int) -> None:
        """Make ready to act as in training, where the episodes stand."""

    @abstractmethod
    def step(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> AgentStep:
        """Select actions for rows [B, ...], or the action for one row without B; None for what comes before."""

    @abstractmethod
    def value(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> torch.Tensor:
        """Return the values [B] of rows, or [] of one row; the recurrent state stays where it is."""

    @abstractmethod
    def play(self, env: object, n_episodes: int = 1, *, seed: int = 0, deterministic: bool = True) -> list[TrajInfo]:
        """Run whole episodes in an environment of the caller's, and return their statistics."""

    @abstractmethod
    def reset(self) -> None:
        """Forget the episodes of all environments."""

    @abstractmethod
    def reset_one(self, idx: int) -> None:
        """Forget the episode of one environment."""


def example_inputs(env_spaces: EnvSpaces, n_rows: int = 1) -> tuple[Buffer, Buffer, Buffer]:
    """Return null observations, previous actions (not encoded) and rewards, tensors [n_rows, ...]."""
    row = (null_value(env_spaces.observation), null_action(env_spaces.action), 0.0)
    observation, action, reward = buffer_func(torchify_buffer(row), lambda x: x.expand(n_rows, *x.shape))
    return observation, as_given(env_spaces.action, action), reward.float()


def as_given(space: Space, action: Buffer) -> Buffer:
    """Return actions of a space in the dtypes that agents give and rows have: float32 for a Box, of integers too."""
    parts = iter(leaf_spaces(space))
    return buffer_func(action, lambda x: x.float() if isinstance(next(parts), Box) else x)


class PolicyAgent(Agent):
    """Policy with a value, as A2C and PPO ask of an agent."""

    kind: ClassVar[str] = "policy"
    reward_rms: RewardStatistics
    """Statistics that rewards may be normalised by."""


class PopulationPolicyAgent(Agent):
    """Policy whose training environments act with the parameters of different individuals, as CMAES asks of an agent.

    What it records beside every action has the fields `individual` (number of the one that acted), `generation` (of it)
    and `restarts` (of the process that acted). Evaluation acts with the model's own parameters.
    """

    kind: ClassVar[str] = "population"
    population_size: int
    """Individuals; environment number b of the run acts with individual b % population_size."""
    set_population: Callable[[torch.Tensor, int], None]
    """Lets the training environments act with individuals [population_size, n_parameters] of a generation from the next
    batch on."""
    set_parameters: Callable[[torch.Tensor], None]
    """Sets the model's own parameters [n_parameters], in the order of `parameters()`."""


class QAgent(Agent):
    """Q-learner, as DQN asks of an agent."""

    kind: ClassVar[str] = "q"
    """What the network gives: "q", "categorical", "quantiles", "implicit quantiles", or "q and no target"."""
    q_values: Callable[[Buffer], torch.Tensor]
    """Returns q [.., A] of what a network gives."""
    target: Callable[..., Buffer]
    """Returns what the target network gives; arguments are those of `__call__`."""
    mean_epsilon: Callable[[float, int], float | None]
    """Returns the mean probability of a random action over all environments of a run, for the log: at a fraction of
    exploration, with a number of training environments; None where the agent explores in another way."""


class CategoricalQAgent(QAgent):
    """Q-learner over the probabilities of fixed atoms, as C51 asks of an agent."""

    kind: ClassVar[str] = "categorical"
    give_V_min_max: Callable[[float, float], None]
    """Sets the range of the atoms, in every process that acts."""


class QpgPolicyAgent(Agent):
    """Policy with action values, as DDPG, TD3 and SAC ask of an agent; rows are `AgentInputs` of features."""

    has_targets: bool = True
    """Whether there are target networks; SAC with `joint_pass`, as CrossQ, may learn by `features` and `q` alone."""
    has_batch_norm: bool = False
    """Whether networks take the statistics of the rows of a pass."""
    n_q: int
    """Networks of action values."""
    features: Features
    """Returns rows with their features in place of the observation."""
    target_features: Features
    """Returns the same by the target."""
    pi: Callable[[AgentInputs], Buffer]
    """Returns what the policy gives at rows of features."""
    q: ValueAt
    """Returns action values [n_q, ...], or the outputs [n_q, ..., N] that `values` reads them of."""
    first_q: ValueAt
    """Returns those of the first network alone, without n_q."""
    target_q: ValueAt
    """Returns the same as `q` by the target."""
    evaluating: Callable[..., AbstractContextManager[None]]
    """Returns a context in which the policy (`pi=True`), or the action values (`q=True`), compute as in evaluation, and
    after it as in training: batch normalisation by its running statistics, which stay as they are, and no dropout."""
    pi_parameters: Callable[[], Sequence[torch.nn.Parameter]]
    """Returns the weights of the policy."""
    q_parameters: Callable[[], Sequence[torch.nn.Parameter]]
    """Returns the weights of features and action values."""


class ChoiceAgent(QpgPolicyAgent):
    """Policy over discrete actions, with the values of all of them, as SAC asks of an agent of these.

    Where a function of action values takes actions [..., A], these are one-hot.
    """

    kind: ClassVar[str] = "categorical policy"
    all_q: Callable[[AgentInputs], torch.Tensor]
    """Returns the values [n_q, ..., A] of all actions at rows of features, or the outputs [n_q, ..., A, N] that
    `values` reads them of."""
    target_all_q: Callable[[AgentInputs], torch.Tensor]
    """Returns the same by the target."""


class MuAgent(QpgPolicyAgent):
    """Deterministic policy with action values, as DDPG and TD3 ask of an agent."""

    target_mu: Callable[[AgentInputs], torch.Tensor]
    """Returns mu of the target policy, [..., A]."""


class NoisyTargetAgent(QpgPolicyAgent):
    """Deterministic policy whose target has noise, as TD3 asks of an agent."""

    target_mu: Callable[[AgentInputs], torch.Tensor]
    """Returns mu of the target policy, [..., A]."""
    smoothed: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """Returns actions [..., A] of the target policy, in units of the bounds, with clipped noise: of mu [..., A], which
    the target policy gives, and of noise of standard deviation 1."""
