"""Interfaces of actors and agents: what samplers, algorithms and runners may ask of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, Self

import torch

from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentInputs, AgentStep, StateDict, TrajInfo
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.replicas import Replicas


class RewardStatistics(Protocol):
    """Running statistics of rewards, such as `rlpyt.models.RunningMeanStdModel`."""

    var: torch.Tensor
    """Variance so far."""
    var_clip: float
    """Least variance to divide by."""

    def update(self, x: torch.Tensor, valid: torch.Tensor | None = None) -> None:
        """Take in values [...], where `valid` [...] is True."""


class Actor(ABC):
    """Actions of an agent in some environments, with their random stream, recurrent state and exploration.

    `begin` comes first, before every batch and every evaluation.
    """

    @abstractmethod
    def begin(self, itr: int, deterministic: bool = False) -> None:
        """Make ready for a batch, or for an evaluation from fresh episodes, with the agent's exploration of now.

        Args:
            itr: the iteration, which picks the random stream of an evaluation.
            deterministic: whether to take the most probable action, without exploration, instead of a sampled one.
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

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return random stream, recurrent state and exploration state."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""


class Agent(ABC):
    """Networks, a distribution over actions, and the rule by which actions follow from what the networks give."""

    kind: ClassVar[str] = ""
    """What the networks give, which an algorithm must fit."""
    recurrent: bool | str
    """Whether the model carries a state from row to row; of some agents the kind of its layer, such as "gru"."""
    env_spaces: EnvSpaces
    """Spaces of one environment; known after `initialize`."""
    distribution: Any
    """Over the action space; known after `initialize`."""
    device: torch.device
    """Where the networks are."""
    compute: ComputeSettings = ComputeSettings()
    """What `to_device` was given."""

    @abstractmethod
    def initialize(self, env_spaces: EnvSpaces) -> None:
        """Build the networks and the distribution for the spaces of one environment.

        Raises:
            TypeError: if the agent cannot act in the action space.
        """

    @abstractmethod
    def bind(self, n_steps: int, steps_per_itr: int = 1) -> None:
        """Bind scheduled settings to the length of a run and of its iterations, in environment steps."""

    # ---- acting ----

    @abstractmethod
    def actor(
        self, env_ranks: Sequence[int], global_B: int, seed: int, *, evaluation: bool = False, restarts: int = 0
    ) -> Actor:
        """Return an actor for environments that are stepped together.

        Args:
            env_ranks: their ranks among all environments of the run.
            global_B: environments over all workers and replicas.
            seed: of the run.
            evaluation: whether they are the evaluation's.
            restarts: which restart of a lost worker this is, from 1, with a stream of its own; 0 for none.
        """

    @abstractmethod
    def acting_copy(self) -> Self:
        """Return a copy on the CPU that acts in another process, with the networks that act and weights of its own."""

    @abstractmethod
    def acting_modules(self) -> torch.nn.Module:
        """Return all whose state the processes that act are sent before every batch: networks, numbers as buffers."""

    # ---- learning ----

    @abstractmethod
    def __call__(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer, *rnn: Buffer) -> Buffer:
        """Return what the model gives, with gradient, on the device: distribution parameters, values."""

    @abstractmethod
    def train_mode(self, itr: int) -> None:
        """Make ready for the updates of an iteration; a runner calls it after the batch, before they begin."""

    @abstractmethod
    def join(self, replicas: Replicas) -> None:
        """Let the normalisers take in the batches of all replicas, which update them together from now on.

        An algorithm calls it, with the networks built and on their device; not for copies in other processes.

        Raises:
            TypeError: if a layer takes statistics of one replica's batches alone, as batch normalisation does.
        """

    @abstractmethod
    def update_obs_rms(self, observation: Buffer, valid: torch.Tensor | None = None) -> None:
        """Let the normalisers take in a batch of observations, where `valid` is True."""

    @abstractmethod
    def draw_randomness(self, generator: torch.Generator | None) -> None:
        """Draw what the networks are random in for the next update; None turns the randomness off."""

    def rewinder(self) -> Callable[[], None]:
        """Return a function that undoes what forward passes of the networks move from now on.

        These are random streams of their own (dropout), and buffers, such as the means of a batch normalisation.
        """
        return lambda: None

    @abstractmethod
    def example_inputs(self, n_rows: int = 1) -> tuple[Buffer, Buffer, Buffer]:
        """Return null observations, previous actions and previous rewards, tensors [n_rows, ...]."""

    @abstractmethod
    def to_device(self, settings: ComputeSettings) -> None:
        """Move the networks to the device, in the precision and memory format of the run."""

    @abstractmethod
    def modules(self) -> Sequence[torch.nn.Module]:
        """Return all networks, targets included."""

    @abstractmethod
    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """Return what an optimiser updates."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return all learned and normalising state."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""


class AgentByHand(Agent):
    """Agent that a script may act with too, without a sampler, once it was trained or loaded."""

    def input_description(self) -> str:
        """Return in words how the networks read an observation, for the plan of a run; "" where that is not known."""
        return ""

    @abstractmethod
    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        """Make ready to act as in evaluation, from fresh episodes.

        Args:
            itr: the iteration; by hand it has no effect on Q-learners.
            deterministic: whether to take the most probable action, without exploration, instead of a sampled one.
        """

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
        """Run whole episodes in an environment of the caller's, and return their statistics.

        Args:
            env: any single environment that a sampler takes; it stays open.
            n_episodes: how many.
            seed: of the first episode; the next ones have the next seeds.
            deterministic: whether to take the most probable action, without exploration, instead of a sampled one.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget the episodes of all environments."""

    @abstractmethod
    def reset_one(self, idx: int) -> None:
        """Forget the episode of one environment."""


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

    @abstractmethod
    def set_population(self, individuals: torch.Tensor, generation: int) -> None:
        """Let the training environments act with individuals [population_size, n_parameters] from the next batch on."""

    @abstractmethod
    def set_parameters(self, parameters: torch.Tensor) -> None:
        """Set the model's own parameters [n_parameters], in the order of `parameters()`."""


class ExploringAgent(Agent):
    """Agent whose exploration an algorithm anneals."""

    @abstractmethod
    def anneal_exploration(self, fraction: float) -> None:
        """Set how far exploration has gone from its first (0) to its last value (1), in every process that acts."""

    @abstractmethod
    def explore_by(self, schedule: Callable[[int], float | None]) -> None:
        """Let `train_mode(itr)` set how far exploration has gone after iteration itr; None leaves it as it is."""

    @abstractmethod
    def warm_up(self, inputs: AgentInputs, init_rnn_state: Buffer, episode_start: Buffer) -> tuple[Buffer, Buffer]:
        """Return the recurrent states of network and target network after [T, B] rows, both from one state before."""

    @abstractmethod
    def update_target(self, tau: float = 1.0) -> None:
        """Move the targets by the fraction `tau` to the networks; 1 copies."""


class QAgent(ExploringAgent):
    """Q-learner, as DQN asks of an agent."""

    kind: ClassVar[str] = "q"
    """What the network gives: "q", "categorical", "quantiles" or "implicit quantiles"."""

    @abstractmethod
    def q_values(self, output: Buffer) -> torch.Tensor:
        """Return q [.., A] of what a network gives."""

    @abstractmethod
    def target(self, *inputs: Any) -> Buffer:
        """Return what the target network gives; arguments are those of `__call__`."""

    def mean_epsilon(self, fraction: float, n_envs: int) -> float | None:
        """Return the mean probability of a random action over all environments of a run, for the log.

        Args:
            fraction: how far exploration has gone, from 0 to 1.
            n_envs: training environments of the run.

        Returns:
            None where the agent explores in another way.
        """
        return None


class CategoricalQAgent(QAgent):
    """Q-learner over the probabilities of fixed atoms, as C51 asks of an agent."""

    kind: ClassVar[str] = "categorical"

    @property
    @abstractmethod
    def z(self) -> torch.Tensor:
        """Values of the atoms, [n_atoms] float32, on the device."""

    @abstractmethod
    def give_V_min_max(self, V_min: float, V_max: float) -> None:
        """Set the range of the atoms, in every process that acts."""


class QpgPolicyAgent(ExploringAgent):
    """Policy with action values, as DDPG, TD3 and SAC ask of an agent; rows are `AgentInputs` of features."""

    n_q: int
    """Networks of action values."""

    @abstractmethod
    def features(self, *inputs: Any) -> AgentInputs:
        """Return rows with their features in place of the observation."""

    @abstractmethod
    def target_features(self, *inputs: Any) -> AgentInputs:
        """Return the same by the target."""

    @abstractmethod
    def pi(self, features: AgentInputs) -> Buffer:
        """Return what the policy gives."""

    @abstractmethod
    def q(self, features: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return action values [n_q, ...]."""

    @abstractmethod
    def first_q(self, features: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return those [...] of the first network alone."""

    @abstractmethod
    def target_q(self, features: AgentInputs, action: torch.Tensor) -> torch.Tensor:
        """Return the same as `q` by the target."""

    @abstractmethod
    def pi_parameters(self) -> Sequence[torch.nn.Parameter]:
        """Return the weights of the policy."""

    @abstractmethod
    def q_parameters(self) -> Sequence[torch.nn.Parameter]:
        """Return the weights of features and action values."""


class MuAgent(QpgPolicyAgent):
    """Deterministic policy with action values, as DDPG and TD3 ask of an agent."""

    @abstractmethod
    def target_mu(self, features: AgentInputs) -> torch.Tensor:
        """Return mu of the target policy, [..., A]."""


class NoisyTargetAgent(MuAgent):
    """Deterministic policy whose target has noise, as TD3 asks of an agent."""

    @abstractmethod
    def smoothed(self, mu: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return actions [..., A] of the target policy, in units of the bounds, with clipped noise.

        Args:
            mu: [..., A] float, what the target policy gives.
            noise: [..., A] float, of standard deviation 1.
        """
