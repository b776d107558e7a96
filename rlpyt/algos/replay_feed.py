"""Replay of an algorithm, between the batches of a sampler and those of its updates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, cast

import torch

from rlpyt.algos.augmentation import RandomShift, check_images
from rlpyt.algos.base import AnyAlgorithm
from rlpyt.algos.metrics import OptInfo, stack_metrics
from rlpyt.algos.remarks import about, rounded_settings, unfinished_line, unused_prefetch, unused_settings
from rlpyt.algos.replay_checks import check_sequences, check_unique_draws
from rlpyt.algos.replay_rows import is_of_sequences
from rlpyt.algos.replay_settings import ReplaySettings, draws_of, rows_of_draw, whole_count
from rlpyt.algos.replay_thread import ReplayThread
from rlpyt.algos.returned import update_metrics
from rlpyt.core import Agent, Metrics, Remark, Replay, example_inputs, rows_consumed
from rlpyt.functional import sequence_priority
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper, chosen
from rlpyt.types import Places, Run, Samples, StateDict
from rlpyt.utils.arrays import buffer_to
from rlpyt.utils.device_copy import CopyToCpu, CopyToDevice
from rlpyt.utils.seeds import Role, numpy_generator

Number = float | torch.Tensor
"""Metric, or numbers of one."""
Errors = Callable[[Samples, Hyper], torch.Tensor]
"""Absolute TD errors [T, B] that `Replay.append_samples` takes with a batch of T rows."""


def check_run(settings: ReplaySettings, agent: Agent, run: Run) -> None:
    """Refuse a sampler without final observations, and sequences and agent that do not fit each other.

    Raises:
        ValueError: if there are such.
    """
    name = type(settings).__name__
    if not run.mid_batch_reset:
        raise ValueError(
            f"{name}: the sampler lets environments rest until its batch is over (mid_batch_reset=False), and the "
            "final observation of an episode that ends with the batch reaches no replay; expected "
            "mid_batch_reset=True."
        )
    check_sequences(name, agent, settings.batch_T, settings.batch_B)


class Intervals:
    """Counts of updates since what is done every so many of them was done last, by its name."""

    def __init__(self) -> None:
        self.last_done: dict[str, int] = {}

    def is_due(self, what: str, n_updates: int, interval: float) -> bool:
        """Return whether something is to be done after this update, and take it as done then.

        Args:
            what: its name.
            n_updates: that were taken so far, this one included.
            interval: updates from one time to the next, as it stands.
        """
        n = whole_count(interval)
        # Without a last time the interval is taken to have been this one from the start.
        due = n_updates - self.last_done.get(what, (n_updates - 1) // n * n) >= n
        if due:
            self.last_done[what] = n_updates
        return due


class ReplayFeed:
    """Replay of an algorithm, and the batches that its updates draw from it.

    Args:
        algo: whose `update` takes the batches; with the settings of `ReplaySettings`, and initialised.
        run: of the algorithm.
        errors: gives new rows their priorities, where the settings say so.
    """

    def __init__(self, algo: AnyAlgorithm, run: Run, errors: Errors | None = None) -> None:
        assert run.example is not None
        self.algo, self.settings = algo, cast(ReplaySettings, algo)
        self.errors = errors
        self.intervals = Intervals()
        agent: Agent = algo.agent
        self.agent = agent
        self._draws = 0
        self._set_draws(algo.hyper(0))
        settings = self.settings
        self.augmentation = RandomShift(int(settings.random_shift)) if settings.random_shift else settings.augment
        if settings.random_shift:
            check_images(type(algo).__name__, int(settings.random_shift), example_inputs(agent.env_spaces)[0])
        algo.min_itr_learn = max(0, math.ceil(settings.min_steps_learn / algo.steps_per_itr) - 1)
        rng = numpy_generator(run.seed, Role.ALGO, run.rank)
        settings.lock, self._is_appended_apart = run.lock, False
        self._thread: ReplayThread[tuple[Buffer, CopyToDevice]] | None = None
        vars(algo).pop("replay", None)
        settings.initialize_replay_buffer(run.example, run.batch_spec, run.world_size, rng)
        replay = vars(algo).get("replay")
        if not isinstance(replay, Replay):
            raise TypeError(
                f"{type(algo).__name__}: initialize_replay_buffer set self.replay to {replay!r:.100}; expected an "
                "rlpyt.core.Replay, such as a ReplayBuffer of parts, which may be your own (docs/replay.md). For "
                "another memory use RlAlgorithm."
            )
        self._check_updates(run.n_itr)

    @property
    def replay(self) -> Replay:
        """The one of the algorithm, which a script may exchange."""
        return self.settings.replay

    def _check_updates(self, n_itr: int) -> None:
        """Refuse a run without updates, and one whose first update finds nothing to draw in the replay."""
        algo, settings = self.algo, self.settings
        name, (T, B) = type(algo).__name__, algo.batch_spec
        # At the ends of the run: a schedule may have iterations without an update in between.
        first, last = (algo.hyper(itr * algo.steps_per_itr) for itr in (algo.min_itr_learn, n_itr - 1))
        if max(self.n_updates(first), self.n_updates(last)) < 1:
            ratio, rows = float(first.replay_ratio), draws_of(settings, first) * rows_of_draw(settings)
            size = "batch_B, batch_T or warmup_T" if self.agent.recurrent else "batch_size"
            raise ValueError(
                f"{name}: {T} x {B} rows an iteration at replay_ratio {ratio:g} are {ratio * T * B:g} rows to consume, "
                f"which is no update of batch_size {rows}; expected at least one. Collect more rows an "
                f"iteration, lower {size}, or raise replay_ratio to {rows / (T * B):g}."
            )
        if algo.min_itr_learn >= n_itr:
            raise ValueError(
                f"{name}: min_steps_learn is {settings.min_steps_learn:,}, but the run has only {algo.n_steps:,} "
                "steps: there would be no update at all. Lower min_steps_learn or raise n_steps."
            )
        held, least, room = (algo.min_itr_learn + 1) * T, self.replay.least_rows, self.replay.size // B
        if not self.agent.recurrent and room <= least:
            enough = (least + 1) * B * algo.replicas.world_size
            raise ValueError(
                f"{name}: replay_size is {settings.replay_size:,}, which is room for {room} rows of each environment, "
                f"so that one of them may be drawn; expected at least {least + 1} rows, as that one may be the final "
                f"row of an episode, with nothing to learn from. Raise replay_size to {enough:,} or more."
            )
        if held < least:
            raise ValueError(
                f"{name}: the first update would find {held} rows of each environment in the replay; expected at least "
                f"{least} with n_step_return {settings.n_step_return}. Raise min_steps_learn to "
                f"{least * algo.steps_per_itr // T:,} or more."
            )
        if settings.unique_draws:
            check_unique_draws(name, self.replay, B, held, draws_of(settings, first))

    # ---- batches of the sampler ----

    def append(self, itr: int, samples: Samples) -> None:
        """Give the replay the hyper-parameters as they stand at this iteration, and store a batch."""
        hyper = self.algo.hyper(itr * self.algo.steps_per_itr)
        # First, as the priorities of new sequences are computed with eta.
        self._set_hyper(hyper)
        if not self._is_appended_apart:
            self.append_rows(samples, hyper)
            self.agent.networks.update_obs_rms(samples.env.observation, samples.env.valid)

    def append_rows(self, samples: Samples, hyper: Hyper) -> None:
        """Store a batch in the replay: the part of `append` that another process may do."""
        errors = None if self.errors is None else self.errors(samples, hyper)
        self.replay.append_samples(self.settings.samples_to_buffer(samples), errors)

    def appender(self) -> ReplayAppender:
        """Return what appends batches in another process from now on; here, `append` only makes ready for `learn`."""
        appender = ReplayAppender(self)
        self._is_appended_apart = True
        return appender

    def _set_hyper(self, hyper: Hyper) -> None:
        self._set_draws(hyper)
        self.replay.set_hyper(discount=hyper.discount, alpha=hyper.pri_alpha, beta=hyper.pri_beta, eta=hyper.pri_eta)

    def _set_draws(self, hyper: Hyper) -> None:
        before, self._draws = self._draws, draws_of(self.settings, hyper)
        if self._draws != before:
            of_draw = rows_of_draw(self.settings)
            self.algo.rows_of_update = self._draws * of_draw
            # What the updates so far have consumed stays what it was.
            self.algo.rows_beyond -= (self._draws - before) * of_draw * self.algo.update_counter

    # ---- batches of updates ----

    def learn(self, itr: int) -> Metrics:
        """Take the updates that the replay ratio asks for; none before `min_steps_learn`."""
        algo = self.algo
        if itr < algo.min_itr_learn:
            return OptInfo()
        hyper = algo.hyper(itr * algo.steps_per_itr)
        # Again, as a script may learn without a new batch, or from the replay of another algorithm.
        self._set_hyper(hyper)
        metrics: dict[str, list[Any]] = defaultdict(list)
        n_updates = self.n_updates(hyper)
        with self._drawing_ahead(n_updates):
            for _ in range(n_updates):
                batch = self.sample_batch()
                self.agent.networks.draw_randomness(algo.generator)
                for name, value in update_metrics(algo, "update", algo.update(batch, hyper)).items():
                    metrics[name].append(self._weighted_metric(value))
        # Other calls of the networks, between updates, do not move the stream.
        self.agent.networks.draw_randomness(None)
        return stack_metrics(metrics)

    def _weighted_metric(self, value: Number) -> Number:
        """Return a metric of an update so that the replicas' mean is that over all rows; one of rows as it is."""
        if self.algo.loss_weight == 1.0:
            return value
        x = torch.as_tensor(value)
        return value if x.dim() else self.algo.descents.weighted(x)

    def n_updates(self, hyper: Hyper) -> int:
        """Return the number of updates of an iteration, which the replay ratio asks for."""
        # The ratio counts rows of all replicas, and every replica consumes a batch an update.
        rows = draws_of(self.settings, hyper) * rows_of_draw(self.settings)
        return round(hyper.replay_ratio * self.algo.batch_spec.size / rows)

    def sample_batch(self) -> Buffer:
        """Return the batch of one update: transitions or sequences on the agent's device, augmented if asked for."""
        batch = self._drawn_batch()
        if self.augmentation is None:
            return batch
        names, n_leading = (("all_inputs",), 2) if is_of_sequences(batch) else (("agent_inputs", "target_inputs"), 1)
        generator = self.algo.generator
        changed = {name: self.augmentation(batch[name].observation, n_leading, generator) for name in names}
        return batch._replace(**{name: batch[name]._replace(observation=x) for name, x in changed.items()})

    @property
    def draws_ahead(self) -> bool:
        """Whether a thread draws the batches of an iteration that has several updates."""
        late = self.settings.late_priorities
        return bool(self.settings.prefetch and (late or not self.replay.takes_priorities))

    @contextmanager
    def _drawing_ahead(self, n_updates: int) -> Iterator[None]:
        """Let a thread draw the batches of the updates of an iteration, where settings and number allow it."""
        if not self.draws_ahead or n_updates < 2:
            yield
            return
        with ReplayThread(self._draw, n_updates) as thread:
            self._thread = thread
            try:
                yield
            finally:
                self._thread = None

    def _draw(self) -> tuple[Buffer, CopyToDevice]:
        """Return a batch as it was drawn, and the copy to the agent's device of all that is needed there."""
        drawn = self.replay.sample_batch(self._draws)
        return drawn, CopyToDevice(drawn._replace(**dict.fromkeys(self._stays_on_cpu())), self.agent.device)

    def _stays_on_cpu(self) -> tuple[str, ...]:
        # The replay is on the CPU; and the recurrent core reads there where to cut, without a synchronisation.
        return ("places", "episode_start") if self.agent.recurrent else ("places",)

    def _drawn_batch(self) -> Buffer:
        drawn, copy = self._draw() if self._thread is None else self._thread.next_batch()
        batch = copy.arrived()._replace(**{name: drawn[name] for name in self._stays_on_cpu()})
        rows = self.algo.global_rows
        if rows.alone:
            return batch
        valid = drawn.valid if is_of_sequences(drawn) else None
        self.algo.loss_weight, is_weights = rows.weigh_draws(valid, drawn.is_weights)
        return batch._replace(is_weights=buffer_to(is_weights, self.agent.device))

    def update_priorities(self, batch: Buffer, td_abs_error: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """Give the rows or sequences of a batch their new priorities, [M], and return them."""
        priority = td_abs_error
        if td_abs_error.dim() > 1:
            priority = sequence_priority(td_abs_error, batch.valid, hyper.pri_eta)
        if not self.replay.takes_priorities:
            return priority
        if self._thread is None:
            self.replay.update_priorities(batch.places, priority.cpu())
        else:
            self._thread.submit(self._set_priorities, batch.places, CopyToCpu(priority))
        return priority

    def _set_priorities(self, places: Places, priority: CopyToCpu) -> None:
        self.replay.update_priorities(places, priority.arrived())

    def is_due(self, what: str, interval: float) -> bool:
        """Return whether something that is done every so many updates is to be done after this one."""
        return self.intervals.is_due(what, self.algo.update_counter, interval)

    # ---- plan ----

    def plan(self) -> dict[str, object]:
        """Return what will be done an iteration, what becomes of settings, and what costs the run its learning."""
        algo, settings = self.algo, self.settings
        first, last = (algo.hyper(itr * algo.steps_per_itr) for itr in (algo.min_itr_learn, algo.n_itr - 1))
        n_updates = self.n_updates(first)
        rows, rows_at_end = (draws_of(settings, hyper) * rows_of_draw(settings) for hyper in (first, last))
        moving = {"rows an update": f"{rows:,} at first, {rows_at_end:,} at the end"} if rows != rows_at_end else {}
        return {
            **moving,
            "updates an iteration": n_updates,
            "replay ratio": f"{n_updates * rows / algo.batch_spec.size:g}",
            "updates a step": f"{n_updates / algo.steps_per_itr:.3g}",
            "first update at step": (algo.min_itr_learn + 1) * algo.steps_per_itr,
            "replay rows": self.replay.size,
            "replay bytes": self.replay.nbytes,
            **{name: Remark(text) for name, text in self._remarks().items()},
            "warnings": self._warnings(),
        }

    def _remarks(self) -> dict[str, str]:
        """Return what becomes of settings that other settings or the batch change."""
        algo, settings = self.algo, self.settings
        first, at_start = (algo.min_itr_learn + 1) * algo.steps_per_itr, algo.hyper(0)
        rows = draws_of(settings, at_start) * rows_of_draw(settings)
        rounded = {
            "replay_ratio": (
                settings.replay_ratio,
                self.n_updates(at_start) * rows / algo.batch_spec.size,
                "updates an iteration",
            ),
            "min_steps_learn": (settings.min_steps_learn, first, "iterations"),
        }
        # An index of one's own may take priorities without the setting.
        prioritized = settings.prioritized_replay or self.replay.takes_priorities
        n_updates = max(self.n_updates(algo.hyper(step)) for step in (first, algo.n_steps))
        has_beta = settings.pri_beta is not None
        unused = unused_settings(
            chosen(algo),
            prioritized=prioritized,
            sequences=settings.batch_T is not None,
            has_beta=has_beta,
            asks_for_cpu=settings.replay_on_device and self.agent.device.type == "cpu",
        )
        line_is_used = prioritized and not has_beta and settings.pri_beta_init != settings.pri_beta_final
        line = unfinished_line("pri_beta_steps", settings.pri_beta_steps, algo.n_steps) if line_is_used else {}
        prefetch = unused_prefetch(self.draws_ahead, n_updates) if settings.prefetch else {}
        return {**rounded_settings(rounded), **unused, **line, **prefetch}

    def _warnings(self) -> list[str]:
        """Return which settings cost the run its learning, and what to set instead."""
        algo = self.algo
        found, first = list[str](), (algo.min_itr_learn + 1) * algo.steps_per_itr
        if 4 * first > 3 * algo.n_steps:
            found.append(
                f"the first update comes after {first:,} of {algo.n_steps:,} steps (min_steps_learn), so most of the "
                f"run learns nothing. Set min_steps_learn to about {about(algo.n_steps / 10)}, or raise n_steps."
            )
        ends = [algo.hyper(step) for step in (first, algo.n_steps)]
        of_run = max(map(self.n_updates, ends)) * (algo.n_itr - algo.min_itr_learn)
        interval = min(round(hyper.target_update_interval) for hyper in ends)
        if interval > of_run:
            found.append(
                f"the target network never moves: it does every {interval:,.0f} updates "
                f"(target_update_interval), and the run takes {of_run:,}. Set target_update_interval to about "
                f"{about(of_run / 20)}, or raise n_steps."
            )
        return found

    # ---- state ----

    def state_dict(self) -> StateDict:
        """Return the replay, and counters."""
        counters = {"last_done": dict(self.intervals.last_done), "rows_consumed": rows_consumed(self.algo)}
        return {**counters, "replay": self.replay.state_dict()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over the result of `state_dict`; a replay unlike this one is refused before anything was changed."""
        self.replay.load_state_dict(state_dict["replay"])
        # Checkpoints of earlier versions have neither: their batches and intervals were those of the whole run.
        self.intervals.last_done = dict(state_dict.get("last_done", {}))
        consumed = (self.algo.rows_of_update or 0) * state_dict["update_counter"]
        self.algo.rows_beyond = state_dict.get("rows_consumed", consumed) - consumed


class Target:
    """Target networks of an agent, which follow its networks every so many updates.

    Args:
        feed: counts the updates.
    """

    def __init__(self, feed: ReplayFeed) -> None:
        self.feed = feed

    def after_update(self, hyper: Hyper) -> None:
        """Move the targets where that is due after an update."""
        if self.feed.is_due("target", hyper.target_update_interval):
            self.feed.agent.update_target(hyper.target_update_tau)


class ReplayAppender:
    """Copy of an algorithm for another process, where it appends to the same replay and does nothing else.

    Rows whose errors are not known yet are kept there, where new rows get priorities from errors.
    """

    def __init__(self, feed: ReplayFeed) -> None:
        algo = feed.algo
        left_out: dict[int, object] = {id(algo.descents): {}, id(algo.generator): None}
        copies = {id(algo.agent): algo.agent.acting_copy(), id(feed.replay): feed.replay.appending_copy()}
        lock = feed.settings.lock
        try:
            self._feed = deepcopy(feed, {**left_out, **copies, id(lock): lock})
        except TypeError as error:
            raise TypeError(
                f"{type(algo).__name__}: it cannot be copied for the process that appends to the replay: {error}. Take "
                'out what an attribute of yours holds (a file, a lock), or give lag=1 in the place of "free".'
            ) from error

    def join(self, role: str) -> None:
        """Take part in the lock of the replay."""
        self._feed.settings.lock.join(role)

    def append_rows(self, itr: int, samples: Samples) -> None:
        """Store the batch of an iteration."""
        hyper = self._feed.algo.hyper(itr * self._feed.algo.steps_per_itr)
        # The other hyper-parameters decide what is drawn: the learner sets them. alpha is shared.
        self._feed.replay.set_hyper(eta=hyper.pri_eta)
        self._feed.append_rows(samples, hyper)

    @property
    def seconds_waited(self) -> float:
        """Time spent so far on waiting for the lock."""
        return self._feed.settings.lock.seconds_waited
