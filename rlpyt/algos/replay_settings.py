"""Settings of a replay, and the replay that is built from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch

from rlpyt.algos.augmentation import Augmentation
from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.replay_checks import check_memory, check_parts, nominal, ways_to_less_memory
from rlpyt.algos.returned import part_of
from rlpyt.core import AgentT, Replay
from rlpyt.functional import CountLike, Linear, ScheduleLike, as_schedule
from rlpyt.namedarraytuple import Buffer
from rlpyt.replays import (
    Index,
    PrioritizedIndex,
    Reading,
    ReplayBuffer,
    RowStorage,
    SamplesToBuffer,
    Sequences,
    Transitions,
    UniformIndex,
    mapped_file,
)
from rlpyt.settings import Hyper
from rlpyt.spaces import frame_counts
from rlpyt.types import BatchSpec, Samples, StateDict
from rlpyt.utils.arrays import buffer_from_example, buffer_leaves
from rlpyt.utils.rw_lock import NoLock

_REHEARSAL_B = 8  # environments whose rows are made up
_FRAMES = 16  # more than a stack of them has


@dataclass(kw_only=True, eq=False)
class ReplaySettings(RlAlgorithm[AgentT]):
    """Base of the algorithms with a replay: its settings, and the replay itself.

    The size of the replay and the lengths of its sequences are fixed for the run, because memory is allocated by them.
    """

    fixed: ClassVar[Mapping[str, str]] = {
        "n_step_return": ", as the replay keeps that many rows ahead of those that are drawn. Give one number; for "
        "another one later, start a second run from the weights of the first (initial_model_state_dict of the agent)",
        "replay_size": ", as its memory is allocated once. Give the largest number of rows",
        "batch_T": ", as the replay is laid out by it. Give a number, and schedule batch_B or replay_ratio",
    }

    batch_size: CountLike = 32
    """Transitions an update, a whole number; what a schedule gives is rounded, to at least 1. Not used with sequences:
    an update takes batch_B of them."""
    min_steps_learn: int = int(5e4)
    """Steps, all environments counted, that the first update waits for."""
    replay_size: int = int(1e6)
    """Rows that the replay holds, all environments counted."""
    replay_ratio: ScheduleLike = 8.0
    """Rows consumed by updates for every row collected, rounded to whole updates an iteration. Warm-up rows count, and
    so do the final rows of episodes among those collected."""
    n_step_return: int = 1
    """Rewards in the target before the bootstrap. Fixed for the run, as the replay reads that many rows ahead."""
    target_update_tau: ScheduleLike = 1.0
    """Fraction by which the target networks move at every target update; 1 copies."""
    target_update_interval: CountLike = 1
    """Updates between target updates, a whole number; what a schedule gives is rounded, to at least 1."""
    frame_stack: int | None = None
    """Frames in an observation's stack, of which the replay keeps each once; None asks the observation space
    (`AtariEnv` and the vector environments of Atari tell), 1 keeps whole observations."""
    replay_folder: str | None = None
    """Where a replay larger than the memory lies, in a file; None keeps it in memory."""
    replay_on_device: bool = False
    """Whether the agent's device has a copy of the observations, from which batches are gathered there. It has to hold
    them all."""

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

    prefetch: bool = False
    """Whether a thread draws the batch of the next update while an update computes. Batches are the same. It needs
    several updates an iteration, and a replay without priorities or `late_priorities`."""
    late_priorities: bool = False
    """With `prefetch`, whether a batch is drawn before the priorities of the update before it are known."""

    ReplayCls: Callable[..., Replay] | None = None
    """Makes the replay, called with what `ReplayBuffer` is called with; None is `ReplayBuffer`."""
    IndexCls: Callable[[np.random.Generator], Index] | None = None
    """Makes an index of one's own, called with the replay's random stream; None is the library's."""

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

    random_shift: int = 0
    """Pixels by which the images of a batch are shifted at random, once an update (DrQ with K = M = 1); 0 does not."""
    augment: Augmentation | None = None
    """Random change of the observations of a batch, once an update; None is `RandomShift(random_shift)`."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        for name in ("replay_size", "n_step_return"):
            self.whole(name)
        for name in ("batch_size", "batch_B", "target_update_interval"):
            self.check_count(name)
        for name in ("min_steps_learn", "warmup_T", "store_rnn_state_interval", "random_shift"):
            self.whole(name, least=0)
        for name in ("batch_T", "frame_stack"):
            if getattr(self, name) is not None:
                self.whole(name)
        self.check("replay_ratio", lambda x: 0.0 < x < float("inf"), "above 0")
        self.check("target_update_tau", lambda x: 0.0 < x <= 1.0, "a number in (0, 1]")
        self.check("pri_alpha", lambda x: x >= 0.0, "a number from 0")
        for name in ("pri_beta", "pri_beta_init", "pri_beta_final", "pri_eta"):
            self.check(name, lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        self.check("pri_beta_steps", lambda x: x >= 1.0, "at least 1 step")
        if self.random_shift and self.augment is not None:
            raise ValueError(
                f"{type(self).__name__}: random_shift is {self.random_shift} and augment is {self.augment!r}; expected "
                "one of them. Leave one out."
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
        unused = [n for n in ("default_priority", "unique_draws") if getattr(self, n)]
        check_parts(type(self).__name__, {"ReplayCls": self.ReplayCls, "IndexCls": self.IndexCls}, unused)

    def check_count(self, name: str) -> None:
        """Refuse a count, whose schedule is rounded, that does not begin with a whole number from 1."""
        self.check(name, lambda x: x >= 1 and x % 1 == 0, "a whole number from 1")

    def schedule_of(self, name: str) -> ScheduleLike | None:
        """Return what was given, or where there is no `pri_beta` the line from `pri_beta_init` to `pri_beta_final`."""
        if name == "pri_beta" and self.pri_beta is None:
            return Linear(self.pri_beta_init, self.pri_beta_final, steps=self.pri_beta_steps)
        return super().schedule_of(name)

    @property
    def has_input_priorities(self) -> bool:
        """Whether new rows get priorities from what the agent recorded."""
        return bool(self.prioritized_replay if self.input_priorities is None else self.input_priorities)

    @property
    def rows_per_update(self) -> int:
        """Rows that one update of the iteration consumes: `batch_size`, or `batch_B` sequences with their warm-up."""
        if self.batch_T is None or self.batch_B is None:
            return self.draws_per_update
        return int(self.warmup_T + self.batch_T) * self.draws_per_update

    @property
    def rows_per_draw(self) -> int:
        """Rows that count for what an update draws: one of a transition, those of a sequence with its warm-up."""
        return self.rows_per_update // self.draws_per_update

    def batch_settings(self) -> Sequence[str]:
        """Return the names of the settings that are the size of an update's batch."""
        return ("batch_size",) if self.batch_B is None else ("batch_B",)

    @property
    def draws_per_update(self) -> int:
        """Transitions or sequences that one update of the iteration draws."""
        if self._draws:
            return self._draws
        (name,) = self.batch_settings()
        schedule = self.schedule_of(name)
        assert schedule is not None
        return _count(as_schedule(schedule, self._n_steps, name)(0))

    def draws_of(self, hyper: Hyper) -> int:
        """Return the transitions or sequences that an update draws, as it stands."""
        (name,) = self.batch_settings()
        return _count(vars(hyper)[name])

    def is_due(self, what: str, interval: float) -> bool:
        """Return whether something that is done every `interval` updates is to be done after this one.

        Args:
            what: its name, which the count since the last time goes by.
            interval: as it stands.
        """
        n, now = _count(interval), self.update_counter
        # Without a last time the interval is taken to have been this one from the start.
        due = now - self._last_done.get(what, (now - 1) // n * n) >= n
        if due:
            self._last_done[what] = now
        return due

    @property
    def draws_ahead(self) -> bool:
        """Whether a thread draws the batches of an iteration that has several updates."""
        return bool(self.prefetch and (self.late_priorities or not self.replay.takes_priorities))

    def rehearsal(self, agent: AgentT, batch_spec: BatchSpec, max_rows: int) -> tuple[Self, BatchSpec]:
        """Return one that draws an update from a small replay; see `rlpyt.core.Algorithm.rehearsal`."""
        own = self.replace(min_steps_learn=0, replay_folder=None)
        if self.batch_T is None:
            own.batch_size = min(own.draws_per_update, max_rows)
        else:
            own.batch_B = max(1, min(own.draws_per_update, max_rows // own.rows_per_draw))
        n_draws, interval = own.draws_per_update, max(1, int(self.store_rnn_state_interval))
        B = min(n_draws, _REHEARSAL_B)
        of_sequence = int(self.warmup_T) + int(self.batch_T or 0) + int(self.n_step_return)
        T = math.ceil(n_draws / B) * interval + of_sequence + interval + _FRAMES  # a place of its own for every draw
        return own.replace(replay_size=2 * T * B, replay_ratio=own.rows_per_update / (T * B)), BatchSpec(T, B)

    # ---- the replay ----

    lock = NoLock()  # of the run: whether another process appends to the replay
    _draws = 0  # of an update in this iteration; 0 before a run

    def initialize_replay_buffer(self, examples: Samples, batch_spec: BatchSpec, world_size: int, rng: Any) -> None:
        """Allocate the replay: this replica's share of `replay_size`."""
        reading = part_of(self, "reading", self.reading(), Reading)
        interval = int(self.store_rnn_state_interval) if self.agent.recurrent else 0
        n_frames = (
            frame_counts(self.agent.env_spaces.observation) if self.frame_stack is None else int(self.frame_stack)
        )
        allocate = partial(buffer_from_example, share_memory=self.lock.shared)
        example = part_of(self, "samples_to_buffer", self.samples_to_buffer(examples), SamplesToBuffer)
        make_storage = partial(
            RowStorage,
            example,
            T=math.ceil(self.replay_size / world_size / batch_spec.B / reading.interval) * reading.interval,
            B=batch_spec.B,
            n_frames=n_frames,
            rnn_state_interval=interval,
        )
        device = self._replay_device()
        if self.replay_folder is None:
            has_frames = any(n > 1 for n in buffer_leaves(n_frames))
            advice = self._check_memory(make_storage(allocate=nominal), example.observation, has_frames)
            try:
                storage = make_storage(allocate=allocate, device=device)
            except MemoryError as error:
                raise ValueError(f"{type(self).__name__}: making the replay: {error}. {advice}") from error
        else:
            storage = make_storage(allocate=mapped_file(self.replay_folder), device=device)
        index, hyper = part_of(self, "index", self.index(rng), Index), self.hyper(0)
        if self.prioritized_replay and not index.takes_priorities:
            raise ValueError(
                f"{type(self).__name__}: prioritized_replay is True, but its index, a {type(index).__name__}, takes no "
                "priorities; expected both or neither. Leave prioritized_replay out, or return another index."
            )
        index.divides_by_largest = self.global_rows.alone
        make_replay: Callable[..., Replay] = self.ReplayCls or ReplayBuffer
        if self.lock.shared:
            make_replay = partial(make_replay, allocate=allocate, lock=self.lock)
        replay = make_replay(
            storage,
            index,
            reading,
            discount=hyper.discount,
            input_priorities=self.has_input_priorities,
            eta=hyper.pri_eta,
        )
        self.replay: Replay = part_of(self, "ReplayCls", replay, Replay)

    def _check_memory(self, nominal_storage: RowStorage, observation: Buffer, has_frames: bool) -> str:
        """Refuse a replay that does not fit into the memory, and warn of one that may not; return what would help.

        Args:
            nominal_storage: has the sizes of the one that will be made.
            observation: one of a row.
            has_frames: whether each frame of a stack is kept once.
        """
        n_bytes, n_rows = nominal_storage.nbytes, nominal_storage.T * nominal_storage.B
        run_rows = self.n_itr * self.batch_spec.size
        ways_out = ways_to_less_memory(buffer_leaves(observation), has_frames, n_rows, run_rows)
        check_memory(
            n_bytes,
            math.ceil(n_bytes * min(1.0, run_rows / n_rows)),
            f"{type(self).__name__}: a replay of {n_rows:,} rows (replay_size)",
            ways_out,
            self.replicas.n_on_this_machine,
            is_shared=self.lock.shared,
        )
        return ways_out

    def _replay_device(self) -> torch.device | None:
        """Return where a copy of the observations shall be; None for none, as on the CPU, where they are."""
        if self.replay_on_device and self.lock.shared:
            raise ValueError(
                f"{type(self).__name__}: replay_on_device is True, and another process appends to the replay, which "
                "does not reach the device of this one; expected False. Leave it out, or give the runner another lag."
            )
        return self.agent.device if self.replay_on_device and self.agent.device.type != "cpu" else None

    @property
    def replay_buffer(self) -> Replay:
        """The replay, by its name in rlpyt 0.1."""
        return self.replay

    @replay_buffer.setter
    def replay_buffer(self, replay: Replay) -> None:
        self.replay = replay

    def reading(self) -> Reading:
        """Return the reading of the replay: transitions, or sequences for a recurrent agent."""
        if not self.agent.recurrent:
            return Transitions(int(self.n_step_return))
        assert self.batch_T is not None
        lengths = (self.batch_T, self.warmup_T, self.n_step_return, self.store_rnn_state_interval)
        return Sequences(*map(int, lengths))

    def index(self, rng: np.random.Generator) -> Index:
        """Return the index of the replay, which draws from `rng`, the replay's own random stream."""
        hyper = self.hyper(0)
        if self.IndexCls is not None:
            index = part_of(self, "IndexCls", self.IndexCls(rng), Index)
            index.alpha, index.beta = hyper.pri_alpha, hyper.pri_beta
            return index
        if not self.prioritized_replay:
            return UniformIndex(rng)
        return PrioritizedIndex(rng, hyper.pri_alpha, hyper.pri_beta, self.default_priority, self.unique_draws)

    def samples_to_buffer(self, samples: Samples) -> SamplesToBuffer:
        """Return the rows of a batch that the replay stores."""
        agent, env = samples
        rnn_state = agent.agent_info.prev_rnn_state if self.agent.recurrent else None
        return SamplesToBuffer(
            observation=env.observation,
            action=agent.action,
            reward=env.reward,
            terminated=env.terminated,
            truncated=env.truncated,
            valid=env.valid,
            prev_rnn_state=rnn_state,
            prev_action=agent.prev_action,
            prev_reward=env.prev_reward,
        )

    def _check_replay(self) -> None:
        """Refuse what an `initialize_replay_buffer` of one's own set, where it is no replay."""
        replay = vars(self).get("replay")
        if not isinstance(replay, Replay):
            raise TypeError(
                f"{type(self).__name__}: initialize_replay_buffer set self.replay to {replay!r:.100}; expected an "
                "rlpyt.core.Replay, such as a ReplayBuffer of parts, which may be your own (docs/replay.md). For "
                "another memory use RlAlgorithm."
            )

    def state_dict(self) -> StateDict:
        """Return optimiser, counters, random stream and replay."""
        counters = {"last_done": dict(self._last_done), "rows_consumed": self.rows_consumed}
        return {**super().state_dict(), **counters, "replay": self.replay.state_dict()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over the result of `state_dict`; a replay unlike this one is refused before anything was changed."""
        self.replay.load_state_dict(state_dict["replay"])
        super().load_state_dict(state_dict)
        # Checkpoints of earlier versions have neither: their batches and intervals were those of the whole run.
        self._last_done = dict(state_dict.get("last_done", {}))
        self._rows_beyond = 0
        self._rows_beyond = state_dict.get("rows_consumed", self.rows_consumed) - self.rows_consumed


def _count(x: float) -> int:
    """Return what a schedule gives of something that is counted."""
    return max(1, round(x))
