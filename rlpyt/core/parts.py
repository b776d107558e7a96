"""Interfaces of samplers and algorithms: what a runner may ask of them.

The whole of training is

    run = Run(batch_spec=sampler.batch_spec, n_itr=..., seed=...)
    run = replace(run, example=sampler.initialize(agent, run))
    algo.initialize(agent, run)
    for itr in range(n_itr):
        samples, traj_infos = sampler.obtain_samples(itr)
        agent.train_mode(itr)
        metrics = algo.optimize_agent(itr, samples)

and nobody knows more of the others than stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from typing import ClassVar, Generic, Protocol, Self, TypeVar, cast

import torch

from rlpyt.core.agent import Agent
from rlpyt.core.evaluation import EvalResult, EvaluatorBeside
from rlpyt.functional import CountLike, ScheduleLike, as_schedule
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper
from rlpyt.types import BatchSpec, Kwargs, Run, Samples, StateDict, TrajInfo
from rlpyt.utils.replicas import Replicas

Metrics = Mapping[str, torch.Tensor]
"""Numbers of one optimisation phase, lowerCamelCase names to detached tensors on the device, any shape."""

AgentT = TypeVar("AgentT", bound=Agent)


class Appender(Protocol):
    """Part of an algorithm that keeps batches, and goes to another process."""

    def join(self, role: str) -> None:
        """Say which role this process has, before anything is appended."""

    def append_rows(self, itr: int, samples: Samples) -> None:
        """Store the batch of an iteration."""

    @property
    def seconds_waited(self) -> float:
        """Time spent so far on waiting for the lock."""

    def state_dict(self) -> StateDict:
        """Return what it has beside the replay, to go on with after a resume."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`, or nothing from {}."""


class Descent(Protocol):
    """Steps of an optimiser."""

    @property
    def parameters(self) -> Sequence[torch.nn.Parameter]:
        """What it updates."""


class AppendingFeed(Protocol):
    """Part of an algorithm that takes in batches, of which another process may append them."""

    def appender(self) -> Appender:
        """Return the copy that appends batches in another process; from now on `append` here only prepares `learn`."""


class Remark(str):
    """Entry of a plan that is a caution: what becomes of the setting of that name."""


class Algorithm(ABC, Generic[AgentT]):
    """Learner: takes in batches, and updates the networks of an agent."""

    bootstrap_value: ClassVar[bool] = False
    """Whether the sampler must record the value of the observation after the last row."""
    bootstrap_inputs: ClassVar[bool] = False
    """Whether it must record what the agent sees at that row, for an algorithm that computes the value itself."""
    opt_info_fields: ClassVar[tuple[str, ...]] = ()
    """Names of the metrics that `learn` returns, in the order of their columns."""
    needs_final_rows: ClassVar[bool] = True
    """Whether final observations must be rows of their own; else it also learns where they are in
    `env.final_observation`, and their values in `agent.final_value`."""
    appends_apart: ClassVar[bool] = False
    """Whether another process may append the batches while this one learns, by the appender of `feed`."""
    agent: AgentT
    """Known after `initialize`, as the attributes below."""
    replicas: Replicas = Replicas()
    """This replica and those that it agrees with."""
    descents: Mapping[str, Descent]
    """Optimisers by name, of an algorithm that has some."""
    feed: AppendingFeed | None = None
    """The replay and what is drawn from it, of an algorithm that has one."""
    update_counter: int = 0
    """Gradient steps so far."""
    min_itr_learn: int = 0
    """Iterations at the start without an update; the agent is not evaluated again in them."""
    batch_size: CountLike
    """Size of an update's batch, which an algorithm has as a setting, or sets in `initialize`."""
    rows_of_update: int | None = None
    """Rows that one update consumes, where these are not `batch_size`."""
    rows_beyond: int = 0
    """Rows that all updates so far have consumed beyond `update_counter` times those of one update as it stands."""
    discount: ScheduleLike
    """gamma, per environment step."""

    @abstractmethod
    def initialize(self, agent: AgentT, run: Run) -> None:
        """Build what depends on the agent, which is on its device, and on the batch: optimiser, replay, schedules.

        Raises:
            ValueError: if the hyper-parameters do not fit the batch.
        """

    @abstractmethod
    def append(self, itr: int, samples: Samples) -> None:
        """Take in the batch of an iteration: store it in a replay, or keep it for `learn`."""

    @abstractmethod
    def learn(self, itr: int) -> Metrics:
        """Update the agent after the batch of an iteration; return metrics, without a device synchronisation."""

    def optimize_agent(self, itr: int, samples: Samples) -> Metrics:
        """Take in a batch and learn from it: `append`, then `learn`. A runner calls this, after `agent.train_mode`.

        An override may return numbers, lists of numbers, and a named tuple of them instead of a mapping.
        """
        self.append(itr, samples)
        return self.learn(itr)

    @abstractmethod
    def hyper(self, step: int) -> Hyper:
        """Return the hyper-parameters that may be schedules as they stand at a step, as attributes."""

    def share(self, n_replicas: int) -> Self:
        """Return an algorithm for one of some replicas, whose updates have a share of the batch size.

        Raises:
            ValueError: if the batch size is no multiple of their number.
        """
        raise TypeError(_no_share(self, "batch size"))

    @abstractmethod
    def plan(self) -> dict[str, object]:
        """Return entries of the plan that is printed at the start; a `Remark` is a caution.

        The entry "warnings" has sentences which say what costs this run its learning, and what to set instead.
        """

    def row_numbers(self, n_done: int) -> Mapping[str, float]:
        """Return numbers for the row of the log after `n_done` iterations, the same in all replicas."""
        return {}

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return optimiser, counters and replay."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""

    @abstractmethod
    def optim_state_dict(self) -> StateDict:
        """Return the optimiser's state alone, which a snapshot keeps beside the agent's."""


def rows_per_update(algo: Algorithm[AgentT]) -> int:
    """Return the rows that one update of the iteration consumes."""
    return int(cast(float, algo.batch_size)) if algo.rows_of_update is None else algo.rows_of_update


def rows_consumed(algo: Algorithm[AgentT]) -> int:
    """Return the rows that all updates so far have consumed."""
    return rows_per_update(algo) * algo.update_counter + algo.rows_beyond


def hyper_parameters(algo: Algorithm[AgentT]) -> dict[str, object]:
    """Return the settings of an algorithm as they were given, without those that are weights."""
    settings: tuple[Field[object], ...] = fields(algo) if is_dataclass(algo) else ()
    return {f.name: getattr(algo, f.name) for f in settings if not f.metadata.get("weights")}


def discount_at_start(algo: Algorithm[AgentT]) -> float:
    """Return the discount at step 0, by which the statistics of trajectories are discounted."""
    # As in a run without end: a schedule that begins late is no error yet.
    return as_schedule(algo.discount, n_steps=2**62, name="discount")(0)


class TrajStates:
    """States of the statistics of trajectories, as plain data for a checkpoint: all their attributes."""

    def saved(self, traj_infos: Sequence[TrajInfo]) -> list[StateDict]:
        """Return their states."""
        return [dict(info) for info in traj_infos]

    def restored(self, saved: Sequence[StateDict], new_traj_info: Callable[[], TrajInfo]) -> list[TrajInfo]:
        """Return the trajectories whose states these are, as far as they have one."""
        infos = [new_traj_info() for _ in saved]
        for info, attributes in zip(infos, saved, strict=True):
            info.clear()  # an attribute that comes with the first step may be there, and not in the saved
            info.update(attributes)
        return infos


class Sampler(ABC):
    """Collects batches of rows with an agent in environments."""

    traj_states: TrajStates = TrajStates()
    """How a checkpoint keeps trajectories that were completed here."""
    batch_spec: BatchSpec
    mid_batch_reset: bool
    """Whether an environment goes on with a new episode inside a batch; else it rests until the batch is over."""
    final_rows: ClassVar[bool] = True
    """Whether the final observation of an episode is a row of its own; else it is in `env.final_observation`, and the
    rows are on the device of the environments (`DeviceSampler`)."""
    eval_n_envs: int
    """Evaluation environments; 0 where there is no evaluation."""
    batches: Sequence[Samples]
    """All `run.n_batches` places of the sampler's memory, as numpy, or with `final_rows` False as tensors; known after
    `initialize`. With `run.share_memory` they go to another process by reference, through
    `rlpyt.utils.shared_memory.dumps`."""

    why_not_set_back: str | None = None
    """Why evaluation environments cannot be set back to how they were built; known after `initialize`."""

    n_cut_episodes: int = 0
    """Open episodes so far that ended, truncated in the data, where a state was loaded without their environment, or
    their worker was lost and replaced."""

    @property
    def resets_mid_batch(self) -> bool:
        """Whether an environment goes on inside a batch, all settings together."""
        return self.mid_batch_reset

    @abstractmethod
    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Build and check environments, initialise the agent, allocate the batches; return one row as an example.

        Without `run` it is a run of one iteration with seed 0.
        """

    @abstractmethod
    def obtain_samples(self, itr: int) -> tuple[Samples, Sequence[TrajInfo]]:
        """Collect one batch.

        Returns:
            The rows as torch tensors on the CPU, or with `final_rows` False on the device of the environments: views of
            place itr % run.n_batches, which the call for iteration itr + run.n_batches overwrites. And the trajectories
            completed in it.
        """

    @abstractmethod
    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the evaluation environments; touches nothing of the training ones.

        The result depends on the weights, the seed of the run and `itr` alone, not on earlier evaluations.
        `deterministic` takes the most probable actions.
        """

    def in_background(self, lag: int = 1, affinity: Kwargs | None = None) -> Sampler:
        """Return a sampler that runs this one in a process of its own, `lag` batches ahead of the learner.

        Batch i + lag is collected with the weights after i iterations of learning; 0 collects in turn with the learner.
        `affinity` has cores and device of the process and its workers; None is the learner's device, on any core.
        """
        raise TypeError(_cannot_move(self))

    def running_freely(self, affinity: Kwargs | None = None) -> FreeSampler:
        """Return a sampler that runs this one in a process of its own, while a replay is appended to in another."""
        raise TypeError(_cannot_move(self))

    def share(self, n_replicas: int) -> Self:
        """Return a sampler for one of some replicas, with a share of the environments of a batch.

        Raises:
            ValueError: if the number of environments is no multiple of that of the replicas.
        """
        raise TypeError(_no_share(self, "environments"))

    def evaluator_beside(self, agent: Agent, run: Run) -> EvaluatorBeside:
        """Start a process with evaluation environments of its own, for all replicas, which evaluates during the run.

        The agent is initialised; it is sent with the first evaluation, when the runner has placed it.
        """
        raise TypeError(
            f"{type(self).__name__}: it has no evaluator in a process of its own; expected eval_beside=False, or a "
            "sampler of rlpyt.samplers. A subclass of rlpyt.core.Sampler may define evaluator_beside."
        )

    @abstractmethod
    def plan(self) -> dict[str, object]:
        """Return entries of the plan that is printed at the start: the processes and their devices."""

    @abstractmethod
    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun: its fields are the columns of the log."""

    def env_methods(self, names: Sequence[str]) -> Mapping[str, Callable[..., Buffer]]:
        """Return those of some methods that an environment has, by name; here none.

        They belong to an environment of their own, and are used in the process that learns.
        """
        return {}

    @abstractmethod
    def diagnostics(self) -> Mapping[str, float]:
        """Return numbers of the collection since the last call, the same columns of the log every time.

        Over replicas integers are added up, and of all else the mean is logged.
        """

    @abstractmethod
    def shutdown(self) -> None:
        """Close environments and workers; may be called again, and after a failure."""

    def why_no_state(self) -> str | None:
        """Return why a training environment has no state and truncates its open episode at a resume, or None."""
        return None

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return the state of the training environments, random streams and recurrent states."""

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""


def _no_share(part: object, shared: str) -> str:
    return (
        f"{type(part).__name__}: has no method share(n_replicas), which divides its {shared}; expected one. Write it, "
        "or give the batch sizes of each replica."
    )


def _cannot_move(sampler: Sampler) -> str:
    return (
        f"{type(sampler).__name__} cannot run in a process of its own; expected a sampler that derives from "
        "rlpyt.samplers.BaseSampler. Derive from it, or use MinibatchRl."
    )


class FreeSampler(Sampler):
    """Sampler whose batches another process appends to a replay, with the newest weights, while this one learns.

    `obtain_samples` returns as soon as the updates of its iteration are allowed. Its samples are in the replay already.
    """

    @abstractmethod
    def append_by(self, appender: Appender, min_itr_learn: int, ratio_band: float) -> None:
        """Start to append batches; called once, after `initialize`. The first `min_itr_learn` have no update.

        Either side may be ahead by the fraction `ratio_band` of the batches before the first update.
        """

    @property
    @abstractmethod
    def n_collected(self) -> int:
        """Batches in the replay so far."""
