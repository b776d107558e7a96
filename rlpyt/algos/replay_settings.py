"""Settings of a replay, beside those of an algorithm, and the replay that is made of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import ClassVar, Self, cast

import numpy as np
import torch

from rlpyt.algos.augmentation import Augmentation
from rlpyt.algos.base import AnyAlgorithm
from rlpyt.algos.metrics import part_of
from rlpyt.core import Replay
from rlpyt.functional import CountLike, Linear, ScheduleLike
from rlpyt.namedarraytuple import Buffer
from rlpyt.replays import (
    DeviceReplay,
    Hindsight,
    HindsightTransitions,
    Index,
    PrioritizedIndex,
    Reading,
    ReplayBuffer,
    RowStorage,
    SamplesToBuffer,
    Sequences,
    StoredData,
    Transitions,
    UniformIndex,
    mapped_file,
)
from rlpyt.replays.hindsight import FUNCTIONS, Strategy, as_hindsight
from rlpyt.settings import Hyper, Scheduled, Settings, check_count, refuse_together, whole, whole_count
from rlpyt.spaces import frame_counts, null_action
from rlpyt.types import BatchSpec, Run, Samples
from rlpyt.utils.arrays import buffer_from_example, buffer_func, buffer_leaves, build_array
from rlpyt.utils.checks import share_of
from rlpyt.utils.rw_lock import NoLock
from rlpyt.utils.shared_memory import free_memory, total_memory

_NO_SEQUENCES = "Use a feed-forward agent, or leave hindsight out."
_NOT_WITH_HINDSIGHT = {
    "ReadingCls": "both say how rows are read. Leave one out.",
    "replay_on_device": "goals are looked up in memory. Leave replay_on_device out.",
    "batch_T": f"transitions are given other goals, and sequences are not. {_NO_SEQUENCES}",
}


@dataclass(kw_only=True, eq=False)
class StorageSettings:
    """Settings of the rows of a replay, and of how batches are made of them."""

    group: ClassVar[str] = "replay"

    replay_size: int = int(1e6)
    """Rows that the replay holds, all environments counted."""
    frame_stack: int | None = None
    """Frames in an observation's stack, of which the replay keeps each once; None asks the observation space
    (`AtariEnv` and the vector environments of Atari tell), 1 keeps whole observations."""
    replay_folder: str | None = None
    """Where a replay larger than the memory lies, in a file; None keeps it in memory."""
    replay_on_device: bool = False
    """Whether the agent's device has a copy of the observations, from which batches are gathered there. It has to hold
    them all."""
    prefetch: bool = False
    """Whether a thread draws the batch of the next update while an update computes. Batches are the same. It needs
    several updates an iteration, and a replay without priorities or `late_priorities`."""
    random_shift: int = 0
    """Pixels by which the images of a batch are shifted at random, once an update (DrQ with K = M = 1); 0 does not."""
    augment: Augmentation | None = None
    """Random change of the observations of a batch, once an update; None is `RandomShift(random_shift)`."""
    hindsight: Hindsight | Strategy | None = None
    """Goals that most transitions are given in hindsight, with the rewards for them (HER), where observations have
    `achieved_goal` and `desired_goal`: an `rlpyt.replays.Hindsight`, or the name of its strategy, "future", "final" or
    "episode"; None trains on the goals that were set."""
    stored_data: StoredData | str | None = None
    """Steps recorded before the run: an `rlpyt.replays.StoredData`, a file of it that ends in .npz, or the name of a
    local Minari dataset; None starts with an empty replay."""
    stored_fraction: float | None = None
    """Fraction of every batch that is drawn from the stored data, which then lie apart and stay (RLPD: 0.5); None
    writes them into the replay before the first batch, so that new rows overwrite them once it is full."""
    ReplayCls: Callable[..., Replay] | None = None
    """Makes the replay, called with what `ReplayBuffer` is called with; None is `ReplayBuffer`."""
    IndexCls: Callable[[np.random.Generator], Index] | None = None
    """Makes an index of one's own, called with the replay's random stream; None is the library's."""
    ReadingCls: Callable[..., Reading] | None = None
    """Makes a reading of one's own, called with `n_step_return`; or for sequences with `batch_T`, `warmup_T`,
    `n_step_return` and `store_rnn_state_interval`. None is `Transitions` or `Sequences`."""


@dataclass(kw_only=True, eq=False)
class PrioritySettings:
    """Settings of a prioritised replay."""

    group: ClassVar[str] = "priorities"

    prioritized_replay: bool = False
    """Whether rows are drawn in proportion to priority ** pri_alpha (Schaul et al. 2016)."""
    pri_alpha: ScheduleLike = 0.6
    """Exponent of the priorities, from 0; what a schedule gives holds for all priorities, those set before too."""
    pri_beta: ScheduleLike | None = None
    """Exponent of the importance weights; None is a line from `pri_beta_init` to `pri_beta_final`."""
    pri_beta_init: float = 0.4
    """Exponent of the importance weights at the start."""
    pri_beta_final: float = 1.0
    """The same after `pri_beta_steps`."""
    pri_beta_steps: float = 50e6
    """Steps from the one to the other: the length of a line, so it takes no schedule; give `pri_beta` one."""
    default_priority: float | None = None
    """Priority of new rows, fixed for the run; None is the largest given so far, 1 at first."""
    input_priorities: bool | None = False
    """Whether new rows get priorities from what the agent recorded as it acted; None where replay is prioritised."""
    unique_draws: bool = False
    """Whether no row comes twice in one prioritised batch."""
    late_priorities: bool = False
    """With `prefetch`, whether a batch is drawn before the priorities of the update before it are known."""


@dataclass(kw_only=True, eq=False)
class SequenceSettings:
    """Settings of an algorithm that learns from sequences."""

    group: ClassVar[str] = "sequences"

    batch_T: int | None = None
    """Rows of a sequence to train on."""
    batch_B: CountLike | None = None
    """Sequences an update, a whole number; what a schedule gives is rounded, to at least 1."""
    warmup_T: int = 0
    """Rows before them that bring the recurrent state up to date, without a loss."""
    store_rnn_state_interval: int = 1
    """Time steps from one recurrent state that the replay keeps to the next; sequences begin there. 0 keeps none:
    sequences begin anywhere with a state of zeros."""
    pri_eta: ScheduleLike = 0.9
    """Weight of the largest against the mean TD error in the priority of a sequence."""


@dataclass(kw_only=True, eq=False)
class ReplaySettings(StorageSettings, PrioritySettings, SequenceSettings, Settings, Scheduled):
    """Settings of the algorithms with a replay, beside those of `RlAlgorithm`, and how the replay is made of them.

    The size of the replay and the lengths of its sequences are fixed for the run, because memory is allocated by them.
    """

    group: ClassVar[str] = "replay"
    fixed: ClassVar[Mapping[str, str]] = {
        "n_step_return": ", as the replay keeps that many rows ahead of those that are drawn. Give one number; for "
        "another one later, start a second run from the weights of the first (initial_model_state_dict of the agent)",
        "replay_size": ", as its memory is allocated once. Give the largest number of rows",
        "batch_T": ", as the replay is laid out by it. Give a number, and schedule batch_B or replay_ratio",
    }

    appends_apart: ClassVar[bool] = True
    needs_final_rows: ClassVar[bool] = False

    batch_size: CountLike = 32
    """Transitions an update, a whole number; what a schedule gives is rounded, to at least 1. Not used with sequences:
    an update takes batch_B of them."""
    min_steps_learn: int = int(5e4)
    """Steps, all environments counted, that the first update waits for."""
    replay_ratio: ScheduleLike = 8.0
    """Rows consumed by updates for every row collected, rounded to whole updates an iteration. Warm-up rows count, and
    so do the final rows of episodes among those collected."""
    n_step_return: int = 1
    """Rewards in the target before the bootstrap. Fixed for the run, as the replay reads that many rows ahead."""
    target_update_tau: ScheduleLike = 1.0
    """Fraction by which the target networks move at every target update; 1 copies."""
    target_update_interval: CountLike = 1
    """Updates between target updates, a whole number; what a schedule gives is rounded, to at least 1."""
    normalize_reward: bool = False
    """Whether the returns of a batch are divided by the running scale of the returns, as it stands when it is drawn;
    action values are then in those units, which the metric `rewardFactor` tells. Single rewards stay as they came."""
    return_limit: float | None = None
    """With `normalize_reward`, the largest size that a discounted sum of scaled rewards has had, such as 5 for a value
    head from -5 to 5; None sets none."""
    reset_interval: CountLike | None = None
    """Updates between resets of parameters, a whole number: networks are drawn anew and learn again from the replay, as
    high replay ratios ask for; None never does."""
    reset_networks: tuple[str, ...] = ()
    """Networks that are reset, such as "model" or "q_model", or parts of them, such as "model.head"; none is all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("replay_size", "n_step_return"):
            whole(self, name)
        for name in ("batch_size", "batch_B", "target_update_interval", "reset_interval"):
            check_count(self, name)
        for name in ("min_steps_learn", "warmup_T", "store_rnn_state_interval", "random_shift"):
            whole(self, name, least=0)
        for name in ("batch_T", "frame_stack"):
            if getattr(self, name) is not None:
                whole(self, name)
        self.check("replay_ratio", lambda x: 0.0 < x < float("inf"), "above 0")
        self.check("target_update_tau", lambda x: 0.0 < x <= 1.0, "a number in (0, 1]")
        self.check("pri_alpha", lambda x: x >= 0.0, "a number from 0")
        for name in ("pri_beta", "pri_beta_init", "pri_beta_final", "pri_eta"):
            self.check(name, lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        self.check("pri_beta_steps", lambda x: x >= 1.0, "at least 1 step")
        _check_reward_scale(self)
        if self.random_shift:
            refuse_together(
                self, "random_shift", {"augment": "both change the observations of a batch. Leave one out."}
            )
        needs = ("default_priority", "unique_draws", "input_priorities", "late_priorities")
        given = [n for n in needs if getattr(self, n)]
        if given and not self.prioritized_replay:
            raise ValueError(
                f"{type(self).__name__}: {', '.join(given)} set with prioritized_replay=False, where there are no "
                "priorities; expected prioritized_replay=True. Set it, or leave the other out."
            )
        if self.late_priorities and not self.prefetch:
            raise ValueError(
                f"{type(self).__name__}: late_priorities is True with prefetch=False, where every batch is drawn after "
                "the update before it; expected both. Give prefetch=True, or leave late_priorities out."
            )
        _check_parts(self)

    def schedule_of(self, name: str) -> ScheduleLike | None:
        """Return the given schedule, or without `pri_beta` the line from `pri_beta_init` to `pri_beta_final`."""
        if name == "pri_beta" and self.pri_beta is None:
            return Linear(self.pri_beta_init, self.pri_beta_final, steps=self.pri_beta_steps)
        return super().schedule_of(name)

    def share(self, n_replicas: int) -> Self:
        """Return an algorithm with a share of the batch size; see `rlpyt.core.Algorithm.share`."""
        name = _batch_setting(self)
        size = getattr(self, name)
        if not isinstance(size, Real):
            raise TypeError(
                f"{type(self).__name__}: {name} is {size!r}, given for {n_replicas} replicas together; expected a "
                "number, as a schedule is not divided among them. Give a number, or with "
                'batch_sizes="replica" the schedule of one replica.'
            )
        return self.replace(**{name: share_of(type(self).__name__, name, cast(int, size), n_replicas)})

    # ---- the replay ----

    lock = NoLock()  # of the run: whether another process appends to the replay
    final_rows = True  # of the run: else the replay is on the device of its rows
    goals = cast("Hindsight | None", None)  # `hindsight`, with the functions of the run's environments

    @property
    def replay_buffer(self) -> Replay:
        """The replay, by the name that it had in rlpyt 0.1."""
        return self.replay

    @replay_buffer.setter
    def replay_buffer(self, replay: Replay) -> None:
        self.replay: Replay = replay

    def initialize_replay_buffer(
        self, examples: Samples, batch_spec: BatchSpec, world_size: int, rng: np.random.Generator
    ) -> None:
        """Set `self.replay`, an `rlpyt.core.Replay`: here the one of the settings.

        Args:
            examples: one row.
            batch_spec: of this replica.
            world_size: replicas, each of which holds its share of `replay_size`.
            rng: the random stream of the replay.
        """
        example = part_of(self, "samples_to_buffer", self.samples_to_buffer(examples), SamplesToBuffer)
        n_steps = math.ceil(self.replay_size / world_size / batch_spec.B)
        make = make_replay if self.final_rows else make_device_replay
        self.replay = make(self, example, n_steps, batch_spec.B, rng)

    def samples_to_buffer(self, samples: Samples) -> SamplesToBuffer:
        """Return the rows of a batch that the replay stores."""
        agent, env = samples
        return SamplesToBuffer(
            observation=env.observation,
            action=agent.action,
            reward=env.reward,
            terminated=env.terminated,
            truncated=env.truncated,
            valid=env.valid,
            prev_rnn_state=getattr(agent.agent_info, "prev_rnn_state", None),
            prev_action=agent.prev_action,
            prev_reward=env.prev_reward,
            final_observation=env.final_observation,
        )


def _check_parts(settings: ReplaySettings) -> None:
    """Check that the parts can be made, and that no setting is meant for an index of one's own."""
    for name in ("ReplayCls", "IndexCls", "ReadingCls"):
        part = getattr(settings, name)
        if part is not None and not callable(part):
            raise TypeError(
                f"{type(settings).__name__}: {name} is {part!r:.100}; expected a class, or a function that makes one "
                "(docs/howto/replay.md). Give the class itself."
            )
    if settings.hindsight is not None:
        as_hindsight(settings.hindsight, type(settings).__name__)
        refuse_together(settings, "hindsight", _NOT_WITH_HINDSIGHT)
    _check_stored_data(settings)
    if settings.IndexCls is not None:
        why = (
            "IndexCls is called with the random stream alone. Give IndexCls=functools.partial(MyIndex, ...) what it "
            "needs."
        )
        refuse_together(settings, "IndexCls", dict.fromkeys(("default_priority", "unique_draws"), why))


def _check_reward_scale(settings: ReplaySettings) -> None:
    who, limit = type(settings).__name__, settings.return_limit
    if limit is not None:
        settings.check("return_limit", lambda x: 0.0 < x < float("inf"), "above 0")
        if not settings.normalize_reward:
            raise ValueError(
                f"{who}: return_limit is {limit}, and normalize_reward False, without which it is not used; expected "
                "both. Set normalize_reward=True, or leave return_limit out."
            )
    if settings.normalize_reward and has_input_priorities(settings):
        raise ValueError(
            f"{who}: normalize_reward and input_priorities are set; expected one of them, as values that were recorded "
            "are in the units of then. Leave one out."
        )


def _check_stored_data(settings: ReplaySettings) -> None:
    who, data, fraction = type(settings).__name__, settings.stored_data, settings.stored_fraction
    if not isinstance(data, StoredData | str | None):
        raise TypeError(
            f"{who}: stored_data is {data!r:.100}; expected an rlpyt.replays.StoredData, a file of it, or the name of "
            "a Minari dataset. Write StoredData.from_minari(dataset), or StoredData.from_arrays(...)."
        )
    if fraction is not None and (isinstance(fraction, bool) or not 0 < fraction <= 1 or data is None):
        raise ValueError(
            f"{who}: stored_fraction is {fraction!r} and stored_data {data!r:.100}; expected a number in (0, 1], such "
            "as 0.5, with stored data. Leave it out to write stored data into the replay."
        )
    if data is not None and fraction is None and has_input_priorities(settings):
        raise ValueError(
            f"{who}: stored_data is to be written into a replay with input_priorities, and nobody has recorded values "
            "of stored rows; expected one of them. Give stored_fraction=0.5, say, or leave input_priorities out."
        )


def hindsight_of_run(settings: ReplaySettings, run: Run) -> Hindsight | None:
    """Return how goals are chosen in hindsight, with functions that fit the goals of the run; None where they are not.

    Raises:
        TypeError: if observations have no goals, or no function gives rewards for them.
        ValueError: if a function does not take several goals at once, or the agent is recurrent.
    """
    if settings.hindsight is None or run.example is None:
        return None
    agent = cast(AnyAlgorithm, settings).agent
    if agent.recurrent:
        raise ValueError(
            f"{type(settings).__name__}: hindsight is set, and the agent, a {type(agent).__name__}, is recurrent: it "
            f"learns from sequences; expected one that learns from transitions. {_NO_SEQUENCES}"
        )
    hindsight = as_hindsight(settings.hindsight, type(settings).__name__)
    if None in (hindsight.compute_reward, hindsight.compute_terminated):
        hindsight = hindsight.with_functions(run.env_methods(FUNCTIONS))
    return hindsight.fitting(run.example.env.observation)


def make_replay(
    settings: ReplaySettings,
    example: SamplesToBuffer,
    n_steps: int,
    B: int,
    rng: np.random.Generator,
    input_priorities: bool = True,
) -> Replay:
    """Return the replay of an algorithm's settings.

    Args:
        settings: of an algorithm that is initialised.
        example: a row.
        n_steps: time steps to hold of each environment.
        B: environments.
        rng: the random stream of the replay.
        input_priorities: whether new rows may come with errors, where the settings say so.
    """
    algo, lock = cast(AnyAlgorithm, settings), settings.lock
    reading = _reading(settings, bool(algo.agent.recurrent), rng)
    n_frames = frame_counts(algo.agent.env_spaces.observation)
    if settings.frame_stack is not None:
        n_frames = int(settings.frame_stack)
    allocate = partial(buffer_from_example, share_memory=lock.shared)
    make_storage = partial(
        RowStorage,
        example,
        T=math.ceil(n_steps / reading.interval) * reading.interval,
        B=B,
        n_frames=n_frames,
        rnn_state_interval=int(settings.store_rnn_state_interval) if algo.agent.recurrent else 0,
    )
    device = _replay_device(settings, algo.agent.device)
    if settings.replay_folder is None:
        has_frames = any(n > 1 for n in buffer_leaves(n_frames))
        advice = check_memory(algo, make_storage(allocate=_nominal), example.observation, has_frames, lock.shared)
        try:
            storage = make_storage(allocate=allocate, device=device)
        except MemoryError as error:
            raise ValueError(f"{type(algo).__name__}: making the replay: {error}. {advice}") from error
    else:
        storage = make_storage(allocate=mapped_file(settings.replay_folder), device=device)
    hyper = algo.hyper(0)
    index = _index(settings, rng, hyper)
    index.divides_by_largest = algo.global_rows.alone
    make: Callable[..., Replay] = settings.ReplayCls or ReplayBuffer
    if lock.shared:
        make = partial(make, allocate=allocate, lock=lock)
    of_new = input_priorities and has_input_priorities(settings)
    replay = make(storage, index, reading, discount=hyper.discount, input_priorities=of_new, eta=hyper.pri_eta)
    return cast(Replay, part_of(settings, "ReplayCls", replay, Replay))


_NOT_ON_DEVICE = (
    *("hindsight", "stored_data", "replay_folder", "ReplayCls", "IndexCls", "ReadingCls"),
    *("input_priorities", "unique_draws", "default_priority", "prefetch"),
)
"""Settings that a replay on the device of its rows does not have."""


def make_device_replay(
    settings: ReplaySettings, example: SamplesToBuffer, n_steps: int, B: int, rng: np.random.Generator
) -> Replay:
    """Return the replay of rows that are on the agent's device; for the arguments see `make_replay`.

    Raises:
        ValueError: if a setting asks for what it does not have.
    """
    algo = cast(AnyAlgorithm, settings)
    given = [name for name in _NOT_ON_DEVICE if getattr(settings, name) not in (None, False)]
    if given:
        raise ValueError(
            f"{type(settings).__name__}: {', '.join(given)} set, and the rows are on the device of the environments "
            "(DeviceSampler), whose replay draws transitions or sequences, uniformly or by priorities; expected none. "
            "Leave them out, or use SerialSampler or CpuSampler."
        )
    hyper, device = algo.hyper(0), torch.empty(0, device=algo.agent.device).device
    sequences = cast(Sequences, _reading(settings, True, rng)) if algo.agent.recurrent else None
    interval = 1 if sequences is None else sequences.interval
    replay = DeviceReplay(
        example if settings.store_rnn_state_interval else example._replace(prev_rnn_state=None),
        math.ceil(n_steps / interval) * interval,
        B,
        device,
        null_action(algo.agent.env_spaces.action),
        n_step_return=int(settings.n_step_return),
        discount=hyper.discount,
        generator=torch.Generator(device).manual_seed(int(rng.integers(2**62))),
        alpha=hyper.pri_alpha if settings.prioritized_replay else None,
        beta=hyper.pri_beta,
        sequences=sequences,
    )
    replay.divides_by_largest = algo.global_rows.alone
    return replay


def _reading(settings: ReplaySettings, recurrent: bool, rng: np.random.Generator) -> Reading:
    """Return the reading of the replay: transitions, or sequences for a recurrent agent."""
    if settings.goals is not None:
        return HindsightTransitions(int(settings.n_step_return), settings.goals, rng)
    lengths: tuple[float | None, ...] = (settings.n_step_return,)
    if recurrent:
        lengths = (settings.batch_T, settings.warmup_T, *lengths, settings.store_rnn_state_interval)
    make: Callable[..., Reading] = settings.ReadingCls or (Sequences if recurrent else Transitions)
    return cast(Reading, part_of(settings, "ReadingCls", make(*(int(n or 0) for n in lengths)), Reading))


def _index(settings: ReplaySettings, rng: np.random.Generator, hyper: Hyper) -> Index:
    """Return the index of the replay, which draws from the replay's own random stream."""
    index: Index = UniformIndex(rng)
    if settings.IndexCls is not None:
        index = part_of(settings, "IndexCls", settings.IndexCls(rng), Index)
        index.alpha, index.beta = hyper.pri_alpha, hyper.pri_beta
    elif settings.prioritized_replay:
        given = settings.default_priority, settings.unique_draws
        index = PrioritizedIndex(rng, hyper.pri_alpha, hyper.pri_beta, *given)
    if settings.prioritized_replay and not index.takes_priorities:
        raise ValueError(
            f"{type(settings).__name__}: prioritized_replay is True, but its index, a {type(index).__name__}, takes no "
            "priorities; expected both or neither. Leave prioritized_replay out, or return another index."
        )
    return index


def _replay_device(settings: ReplaySettings, device: torch.device) -> torch.device | None:
    """Return the device for a copy of the observations, or None if there is no copy, as on the CPU."""
    if settings.replay_on_device and settings.lock.shared:
        raise ValueError(
            f"{type(settings).__name__}: replay_on_device is True, and another process appends to the replay, which "
            "does not reach the device of this one; expected False. Leave it out, or give the runner another lag."
        )
    return device if settings.replay_on_device and device.type != "cpu" else None


# ---- its memory ----


def _nominal(example: Buffer, leading_dims: int | Sequence[int]) -> Buffer:
    """Return arrays of the size of those that `buffer_from_example` makes, which take no memory; to read alone."""
    lead = (leading_dims,) if isinstance(leading_dims, int) else tuple(leading_dims)
    return buffer_func(example, lambda x: np.broadcast_to(one := build_array(x, ()), lead + one.shape))


def check_memory(algo: AnyAlgorithm, nominal: RowStorage, observation: Buffer, has_frames: bool, shared: bool) -> str:
    """Raise an error if the replay does not fit into the memory, warn if it may not, and return advice.

    Memory that is private is taken when rows are written, so that a run would be killed in the middle. Shared memory is
    taken at the start.

    Args:
        algo: with the replay.
        nominal: has the sizes of the storage that will be made.
        observation: one of a row.
        has_frames: whether each frame of a stack is kept once.
        shared: whether it lies in shared memory.
    """
    n_rows, run_rows, n_here = nominal.T * nominal.B, algo.n_itr * algo.batch_spec.size, algo.replicas.n_on_this_machine
    ways_out = "Lower replay_size"
    if run_rows < n_rows:
        ways_out += f" (the run has {run_rows:,} rows)"
    stacks = [x.shape[0] for x in buffer_leaves(observation) if x.ndim >= 3 and x.shape[0] > 1]
    if stacks and not has_frames:
        n = stacks[0]
        ways_out += f", give frame_stack={n}, to keep each frame once, if the observation is a stack of {n} frames"
    ways_out += ", or give replay_folder, to keep the replay in a file."
    filled = 1.0 if shared else min(1.0, run_rows / n_rows)
    needed, free, total = n_here * math.ceil(nominal.nbytes * filled), free_memory(), total_memory()
    if needed <= free:
        return ways_out
    who = f"{type(algo).__name__}: a replay of {n_rows:,} rows (replay_size)"
    many = f", in {n_here} replicas on this machine," if n_here > 1 else ""
    text = f"{who} needs {needed:,} bytes of memory{many} and this process can have {{:,}}{{}}. {ways_out}"
    if shared or needed > total:
        raise ValueError(text.format(free if shared else total, " at most"))
    warnings.warn(text.format(free, " now: the run may be killed when the replay fills up"), stacklevel=2)
    return ways_out


# ---- what settings amount to ----


def has_input_priorities(settings: ReplaySettings) -> bool:
    """Return whether new rows get priorities from what the agent recorded."""
    given = settings.input_priorities
    return bool(settings.prioritized_replay if given is None else given)


def _batch_setting(settings: ReplaySettings) -> str:
    """Return the name of the setting that is the size of an update's batch: transitions, or sequences."""
    return "batch_size" if settings.batch_B is None else "batch_B"


def draws_of(settings: ReplaySettings, hyper: Hyper) -> int:
    """Return the transitions or sequences that an update draws, as it stands."""
    return whole_count(vars(hyper)[_batch_setting(settings)])


def rows_of_draw(settings: ReplaySettings) -> int:
    """Return the rows that count for what an update draws: one of a transition, all of a sequence with its warm-up."""
    of_sequences = settings.batch_T is not None and settings.batch_B is not None
    return int(settings.warmup_T) + int(settings.batch_T or 0) if of_sequences else 1


def rows_of_update(settings: ReplaySettings, hyper: Hyper) -> int:
    """Return the rows that an update consumes, as it stands."""
    return draws_of(settings, hyper) * rows_of_draw(settings)
