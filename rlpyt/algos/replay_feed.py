"""Replay of an algorithm, between the batches of a sampler and those of its updates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Protocol, TypeVar, cast

import torch

from rlpyt.algos.augmentation import Augmented, RandomShift, check_images
from rlpyt.algos.base import AnyAlgorithm, RlAlgorithm
from rlpyt.algos.feed_part import FeedPart
from rlpyt.algos.metrics import OptInfo, stack_metrics, tensors_and_metrics
from rlpyt.algos.plan_texts import about, number_text, unfinished_line
from rlpyt.algos.replay_rows import is_of_sequences
from rlpyt.algos.replay_settings import (
    ReplaySettings,
    draws_of,
    hindsight_of_run,
    make_replay,
    rows_of_draw,
    rows_of_update,
)
from rlpyt.algos.replay_thread import ReplayThread
from rlpyt.algos.resets import Resets
from rlpyt.algos.return_scale import ReturnScale
from rlpyt.core import Agent, Metrics, Remark, Replay, example_inputs, rows_consumed
from rlpyt.functional import sequence_priority
from rlpyt.namedarraytuple import Buffer
from rlpyt.replays.stored_rows import StoredRows
from rlpyt.settings import Hyper, chosen, whole_count
from rlpyt.types import Places, Run, Samples, StateDict
from rlpyt.utils.arrays import buffer_to
from rlpyt.utils.device_copy import CopyToCpu, CopyToDevice
from rlpyt.utils.seeds import Role, numpy_generator

ExploringT = TypeVar("ExploringT", bound=Agent)
_BETA_LINE = ("pri_beta_init", "pri_beta_final", "pri_beta_steps")


class Errors(Protocol):
    """Function that gives new rows their first errors."""

    recent: Buffer
    """Rows whose errors are not known yet; None where there are none."""

    def __call__(self, samples: Samples, hyper: Hyper, /) -> torch.Tensor:
        """Return the absolute TD errors [T, B] that `Replay.append_samples` takes with a batch of T rows."""


class ReplayFeed:
    """Replay of an algorithm, and the batches that its updates draw from it.

    Args:
        algo: whose `update` takes the batches; with the settings of `ReplaySettings`, and initialised.
        run: of the algorithm.
        errors: gives new rows their priorities, where the settings say so.

    Raises:
        ValueError: if sampler, agent, settings and length of the run do not fit, so that a run would learn nothing.
    """

    def __init__(self, algo: AnyAlgorithm, run: Run, errors: Errors | None = None) -> None:
        self.algo = algo = cast(OffPolicyAlgo[Any], algo)
        self.agent: Agent = algo.agent
        self.errors = errors
        self.last_done: dict[str, int] = {}
        """Updates when what is done every so many of them was done last, by its name."""
        algo.goals = hindsight_of_run(algo, run)
        self.agent.networks.in_hindsight = algo.goals is not None
        _check_run(algo, run)
        assert run.example is not None
        self.draws = ReplayDraws(algo)
        algo.min_itr_learn = max(0, math.ceil(algo.min_steps_learn / algo.steps_per_itr) - 1)
        algo.lock, algo.final_rows, self._is_appended_apart = run.lock, run.final_rows, False
        vars(algo).pop("replay", None)
        rng = numpy_generator(run.seed, Role.ALGO, run.rank)
        algo.initialize_replay_buffer(run.example, run.batch_spec, run.world_size, rng)
        replay = vars(algo).get("replay")
        if not isinstance(replay, Replay):
            raise TypeError(
                f"{type(algo).__name__}: initialize_replay_buffer set self.replay to {replay!r:.100}; expected an "
                "rlpyt.core.Replay, such as a ReplayBuffer of parts, which may be your own (docs/howto/replay.md). For "
                "another memory use RlAlgorithm."
            )
        stored_T, stored_rows = 0, None  # time steps that the replay holds at the start
        if algo.stored_data is not None:
            make = partial(make_replay, algo, B=1, rng=rng, input_priorities=False)
            stored = StoredRows(type(algo).__name__, algo.stored_data, algo.stored_fraction, make)
            algo.replay, stored_T, stored_rows = stored.add_to(replay, self.agent, run)
        self.parts = _parts(self, run, stored_rows)
        """Of which each prepares the batch of an update after those before it."""
        self._check_updates(run.n_itr, stored_T)

    @property
    def replay(self) -> Replay:
        """The one of the algorithm, which a script may exchange."""
        return self.algo.replay

    # ---- batches of the sampler ----

    def append(self, itr: int, samples: Samples) -> None:
        """Give the replay the hyper-parameters as they stand at this iteration, and store a batch."""
        hyper = self.algo.hyper(itr * self.algo.steps_per_itr)
        # First, as the priorities of new sequences are computed with eta.
        self._set_hyper(hyper)
        if not self._is_appended_apart:
            self.append_rows(samples, hyper)
            self.agent.networks.update_obs_rms(samples.env.observation, samples.env.valid)
            for part in self.parts:
                part.append(samples, hyper)

    def append_rows(self, samples: Samples, hyper: Hyper) -> None:
        """Store a batch in the replay: the part of `append` that another process may do."""
        errors = None if self.errors is None else self.errors(samples, hyper)
        self.replay.append_samples(self.algo.samples_to_buffer(samples), errors)

    def appender(self) -> ReplayAppender:
        """Return the copy that appends batches in another process; from now on `append` here only prepares `learn`."""
        appender = ReplayAppender(self)
        self._is_appended_apart = True
        return appender

    def _set_hyper(self, hyper: Hyper) -> None:
        self.draws.set_size(hyper)
        self.replay.set_hyper(discount=hyper.discount, alpha=hyper.pri_alpha, beta=hyper.pri_beta, eta=hyper.pri_eta)

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
        with self.draws.ahead(n_updates):
            for _ in range(n_updates):
                batch = self.sample_batch()
                self.agent.networks.draw_randomness(algo.generator)
                for name, value in tensors_and_metrics(algo, "update", algo.update(batch, hyper), 0)[0].items():
                    metrics[name].append(self._weighted(value))
                for part in self.parts:
                    part.after_update(hyper)
        for part in self.parts:
            metrics |= {name: [x] for name, x in part.metrics().items()}
        # Other calls of the networks, between updates, do not move the stream.
        self.agent.networks.draw_randomness(None)
        return stack_metrics(metrics)

    def _weighted(self, metric: float | torch.Tensor) -> float | torch.Tensor:
        """Return a metric so that the replicas' mean is that over all rows; one of each row as it is."""
        if self.algo.loss_weight == 1.0 or (x := torch.as_tensor(metric)).dim():
            return metric
        return self.algo.descents.weighted(x)

    def n_updates(self, hyper: Hyper) -> int:
        """Return the number of updates of an iteration, which the replay ratio asks for."""
        # The ratio counts rows of all replicas, and every replica consumes a batch an update.
        return round(hyper.replay_ratio * self.algo.batch_spec.size / rows_of_update(self.algo, hyper))

    def sample_batch(self) -> Buffer:
        """Return the batch of one update: transitions or sequences on the agent's device, augmented if asked for."""
        batch = self.draws.batch()
        for part in self.parts:
            batch = part.prepare(batch)
        return batch

    def update_priorities(self, batch: Buffer, td_abs_error: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """Give the rows or sequences of a batch their new priorities, [M], and return them."""
        priority = td_abs_error
        if td_abs_error.dim() > 1:
            priority = sequence_priority(td_abs_error, batch.valid, hyper.pri_eta)
        self.draws.set_priorities(batch.places, priority)
        return priority

    def is_due(self, what: str, interval: float, n_updates: int) -> bool:
        """Return whether something that is done every so many updates is due at this one; it is taken as done."""
        n = whole_count(interval)
        # Without a last time the interval is taken to have been this one from the start.
        due = n_updates - self.last_done.get(what, (n_updates - 1) // n * n) >= n
        if due:
            self.last_done[what] = n_updates
        return due

    # ---- what is told of a run ----

    def _check_updates(self, n_itr: int, stored_T: int) -> None:
        """Check that the run has updates, and that its first one finds rows to draw in the replay."""
        algo, B = self.algo, self.algo.batch_spec.B
        name, T = type(algo).__name__, algo.batch_spec.T
        # At the ends of the run: a schedule may have iterations without an update in between.
        first, last = (algo.hyper(itr * algo.steps_per_itr) for itr in (algo.min_itr_learn, n_itr - 1))
        if max(self.n_updates(first), self.n_updates(last)) < 1:
            ratio, rows = float(first.replay_ratio), rows_of_update(algo, first)
            size = "batch_B, batch_T or warmup_T" if self.agent.recurrent else "batch_size"
            raise ValueError(
                f"{name}: {T} x {B} rows an iteration at replay_ratio {ratio:g} are {ratio * T * B:g} rows to consume, "
                f"which is no update of batch_size {rows}; expected at least one. Collect more rows an "
                f"iteration, lower {size}, or raise replay_ratio to {rows / (T * B):g}."
            )
        if algo.min_itr_learn >= n_itr:
            raise ValueError(
                f"{name}: min_steps_learn is {algo.min_steps_learn:,}, but the run has only {algo.n_steps:,} "
                "steps: there would be no update at all. Lower min_steps_learn or raise n_steps."
            )
        held, least, room = stored_T + (algo.min_itr_learn + 1) * T, self.replay.least_rows, self.replay.size // B
        if not self.agent.recurrent and room <= least:
            enough = (least + 1) * B * algo.replicas.world_size
            raise ValueError(
                f"{name}: replay_size is {algo.replay_size:,}, which is room for {room} rows of each environment, "
                f"so that one of them may be drawn; expected at least {least + 1} rows, as that one may be the final "
                f"row of an episode, with nothing to learn from. Raise replay_size to {enough:,} or more."
            )
        if held < least:
            raise ValueError(
                f"{name}: the first update would find {held} rows of each environment in the replay; expected at least "
                f"{least} with n_step_return {algo.n_step_return}. Raise min_steps_learn to "
                f"{least * algo.steps_per_itr // T:,} or more."
            )
        held, interval, draws = min(held, room), self.replay.interval, draws_of(algo, first)
        places = ((held - least) // interval + 1) * B
        if algo.unique_draws and draws > places:
            rows = least + (math.ceil(draws / B) - 1) * interval
            raise ValueError(
                f"{name}: unique_draws is True, and an update draws {draws} different places of "
                f"the replay; expected at most the {places} that {held} rows of each of {B} environments have at the "
                f"first one. Raise min_steps_learn and replay_size to {rows * B:,} or more, so that {rows} rows of "
                "each are held, or leave unique_draws out."
            )

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan: the work of an iteration, cautions about settings, and warnings."""
        algo = self.algo
        first, last = (algo.hyper(itr * algo.steps_per_itr) for itr in (algo.min_itr_learn, algo.n_itr - 1))
        n_updates, rows, rows_at_end = self.n_updates(first), rows_of_update(algo, first), rows_of_update(algo, last)
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
        """Return cautions about settings that other settings, or the batch, change."""
        algo, at_start = self.algo, self.algo.hyper(0)
        first_step = (algo.min_itr_learn + 1) * algo.steps_per_itr
        ratio = self.n_updates(at_start) * rows_of_update(algo, at_start) / algo.batch_spec.size
        of_run: dict[str, tuple[object, float, str]] = {
            "replay_ratio": (algo.replay_ratio, ratio, "updates an iteration"),
            "min_steps_learn": (algo.min_steps_learn, first_step, "iterations"),
        }
        rounded = {
            name: f"{number_text(float(given))} rounded to {number_text(made)}, whole {units}"
            for name, (given, made, units) in of_run.items()
            if isinstance(given, Real) and made != given
        }
        # An index of one's own may take priorities without the setting.
        prioritized = algo.prioritized_replay or self.replay.takes_priorities
        reasons: dict[str, str] = {}
        if algo.batch_T is not None:
            reasons["batch_size"] = "an update takes batch_B sequences of warmup_T + batch_T rows"
        elif prioritized:
            reasons["pri_eta"] = "it is for sequences"
        if algo.replay_on_device and self.agent.device.type == "cpu":
            reasons["replay_on_device"] = "the agent is on the CPU, as the replay is"
        if algo.pri_beta is not None:
            reasons |= dict.fromkeys(_BETA_LINE, "pri_beta is given")
        if not prioritized:
            reasons |= dict.fromkeys(("pri_alpha", "pri_beta", *_BETA_LINE, "pri_eta"), "prioritized_replay is False")
        n_updates = max(self.n_updates(algo.hyper(step)) for step in (first_step, algo.n_steps))
        if algo.prefetch and not self.draws.may_be_ahead:
            reasons["prefetch"] = "a prioritised batch waits for the priorities of the update before it"
        elif algo.prefetch and n_updates < 2:
            reasons["prefetch"] = "an iteration has one update"
        given = chosen(algo)
        unused = {name: f"not used, {reason}" for name, reason in reasons.items() if name in given}
        line_is_used = prioritized and algo.pri_beta is None and algo.pri_beta_init != algo.pri_beta_final
        line = unfinished_line("pri_beta_steps", algo.pri_beta_steps, algo.n_steps) if line_is_used else {}
        return {**rounded, **unused, **line}

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
        counters = {"last_done": dict(self.last_done), "rows_consumed": rows_consumed(self.algo)}
        of_parts = {name: x for part in self.parts for name, x in part.state_dict().items()}
        return {**counters, **of_parts, "replay": self.replay.state_dict()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`; a replay unlike this one is refused before anything was changed."""
        self.replay.load_state_dict(state_dict["replay"])
        # Checkpoints of earlier versions have neither: their batches and intervals were those of the whole run.
        self.last_done = dict(state_dict.get("last_done", {}))
        for part in self.parts:
            part.load_state_dict(state_dict)
        consumed = (self.algo.rows_of_update or 0) * state_dict["update_counter"]
        self.algo.rows_beyond = state_dict.get("rows_consumed", consumed) - consumed


def _parts(feed: ReplayFeed, run: Run, stored: Buffer) -> list[FeedPart]:
    """Return the parts that the settings ask for; `stored` has rows [T, B] of stored data, or is None.

    Raises:
        ValueError: if another process appends to the replay, and rewards are to be scaled by the rows that come by
            here; or there are no images to shift, or no such networks to reset.
    """
    algo, parts = feed.algo, list[FeedPart]()
    who = type(algo).__name__
    if algo.normalize_reward:
        if run.lock.shared:
            raise ValueError(
                f"{who}: normalize_reward is True, and another process appends to the replay; expected a learner that "
                'appends itself. Give AsyncRl lag=1 in the place of "free", or scale the rewards by hand.'
            )
        scale = ReturnScale(run.batch_spec.B, algo.return_limit, run.replicas)
        if stored is not None:
            scale.take_in(stored, torch.zeros(stored.reward.shape[1]), algo.hyper(0).discount)
        parts.append(scale)
    if algo.random_shift:
        check_images(who, int(algo.random_shift), example_inputs(feed.agent.env_spaces)[0])
    change = RandomShift(int(algo.random_shift)) if algo.random_shift else algo.augment
    if change is not None:
        parts.append(Augmented(change, algo.generator))
    return [*parts, Resets(algo, algo.reset_networks, run.seed, feed.is_due)]


class ReplayDraws:
    """Draws of an algorithm from its replay: batches on the agent's device, and the priorities that go back.

    Args:
        algo: with its replay.
    """

    def __init__(self, algo: OffPolicyAlgo[Any]) -> None:
        self._algo, self._agent, self._n = algo, algo.agent, 0
        self.thread: ReplayThread[tuple[Buffer, CopyToDevice | None]] | None = None
        """Draws ahead, while it is not None."""
        self.set_size(algo.hyper(0))

    def set_size(self, hyper: Hyper) -> None:
        """Take the size of a batch as it stands."""
        algo, before, self._n = self._algo, self._n, draws_of(self._algo, hyper)
        if self._n != before:
            of_draw = rows_of_draw(algo)
            algo.rows_of_update = self._n * of_draw
            # What the updates so far have consumed stays what it was.
            algo.rows_beyond -= (self._n - before) * of_draw * algo.update_counter

    @property
    def may_be_ahead(self) -> bool:
        """Whether a thread draws the batches of an iteration that has several updates."""
        return bool(self._algo.prefetch and (self._algo.late_priorities or not self._algo.replay.takes_priorities))

    @contextmanager
    def ahead(self, n_updates: int) -> Iterator[None]:
        """Draw the batches of an iteration in a thread while the context is open, if the settings allow it."""
        if not self.may_be_ahead or n_updates < 2:
            yield
            return
        with ReplayThread(self._draw, n_updates) as thread:
            self.thread = thread
            try:
                yield
            finally:
                self.thread = None

    def batch(self) -> Buffer:
        """Return a batch; among replicas its weights are those among all draws."""
        drawn, copy = self._draw() if self.thread is None else self.thread.next_batch()
        batch = drawn
        if copy is not None:
            batch = copy.arrived()._replace(**{name: drawn[name] for name in self._stays_on_cpu()})
        rows = self._algo.global_rows
        if rows.alone:
            return batch
        valid = drawn.valid if is_of_sequences(drawn) else None
        self._algo.loss_weight, is_weights = rows.weigh_draws(valid, drawn.is_weights)
        return batch._replace(is_weights=buffer_to(is_weights, self._agent.device))

    def set_priorities(self, places: Places, priority: torch.Tensor) -> None:
        """Give places their new priorities [M], where the replay takes any."""
        replay = self._algo.replay
        if not replay.takes_priorities:
            return
        if self.thread is None:
            replay.update_priorities(places, priority if replay.on_device else priority.cpu())
        else:
            copy = CopyToCpu(priority)
            self.thread.submit(lambda: replay.update_priorities(places, copy.arrived()))

    def _draw(self) -> tuple[Buffer, CopyToDevice | None]:
        """Return a batch as it was drawn, and the copy of what is needed on the agent's device; None on the CPU."""
        replay = self._algo.replay
        drawn = replay.sample_batch(self._n)
        if self._agent.device.type == "cpu" or replay.on_device:
            return drawn, None
        return drawn, CopyToDevice(drawn._replace(**dict.fromkeys(self._stays_on_cpu())), self._agent.device)

    def _stays_on_cpu(self) -> tuple[str, ...]:
        # The replay is on the CPU; and the recurrent core reads there where to cut, without a synchronisation.
        return ("places", "episode_start") if self._agent.recurrent else ("places",)


class Target:
    """Target networks of an agent, which follow its networks every so many updates.

    Args:
        feed: counts the updates.
    """

    def __init__(self, feed: ReplayFeed) -> None:
        self.feed = feed

    def is_due(self, n_updates: int, hyper: Hyper) -> bool:
        """Return whether the targets move after the update of this number, counted from 1."""
        return self.feed.is_due("target", hyper.target_update_interval, n_updates)

    def after_update(self, hyper: Hyper) -> None:
        """Move the targets where that is due after an update."""
        if self.is_due(self.feed.algo.update_counter, hyper):
            self.feed.agent.update_target(hyper.target_update_tau)


class ReplayAppender:
    """Copy of an algorithm for another process, where it appends to the same replay and does nothing else.

    Rows whose errors are not known yet are kept there, where new rows get priorities from errors.
    """

    def __init__(self, feed: ReplayFeed) -> None:
        algo = feed.algo
        left_out: dict[int, object] = {id(algo.descents): {}, id(algo.generator): None}
        copies = {id(algo.agent): algo.agent.acting_copy(), id(feed.replay): feed.replay.appending_copy()}
        try:
            self._feed = deepcopy(feed, {**left_out, **copies, id(algo.lock): algo.lock})
        except TypeError as error:
            raise TypeError(
                f"{type(algo).__name__}: it cannot be copied for the process that appends to the replay: {error}. Take "
                'out what an attribute of yours holds (a file, a lock), or give lag=1 in the place of "free".'
            ) from error

    def join(self, role: str) -> None:
        """Take part in the lock of the replay."""
        self._feed.algo.lock.join(role)

    def append_rows(self, itr: int, samples: Samples) -> None:
        """Store the batch of an iteration."""
        hyper = self._feed.algo.hyper(itr * self._feed.algo.steps_per_itr)
        # The other hyper-parameters decide what is drawn: the learner sets them. alpha is shared.
        self._feed.replay.set_hyper(eta=hyper.pri_eta)
        self._feed.append_rows(samples, hyper)

    def state_dict(self) -> StateDict:
        """Return the rows whose errors are not known yet, which no other process has."""
        recent = None if self._feed.errors is None else self._feed.errors.recent
        return {} if recent is None else {"recent": tuple(x.clone() for x in recent)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""
        if self._feed.errors is not None:
            self._feed.errors.recent = state_dict.get("recent")

    @property
    def seconds_waited(self) -> float:
        """Time spent so far on waiting for the lock."""
        return self._feed.algo.lock.seconds_waited


@dataclass(kw_only=True, eq=False)
class OffPolicyAlgo(ReplaySettings, RlAlgorithm[ExploringT]):
    """Base of an algorithm of one's own that learns from a replay; it has its own `update`.

    A feed-forward agent learns from transitions; a recurrent one from sequences, for which `batch_T` and `batch_B` must
    be given. `DQN`, `DDPG`, `TD3` and `SAC` are made the same way, and count as subclasses of this one.
    """

    def initialize(self, agent: ExploringT, run: Run) -> None:
        """Build optimiser and replay; refuse settings that do not fit the agent, and a run without updates."""
        super().initialize(agent, run)
        self.feed: ReplayFeed = ReplayFeed(self, run)


def _check_run(algo: ReplaySettings, run: Run) -> None:
    """Check that the sampler gives final observations, and that sequences and agent fit each other."""
    name, agent = type(algo).__name__, cast(AnyAlgorithm, algo).agent
    if not run.mid_batch_reset:
        raise ValueError(
            f"{name}: the sampler lets environments rest until its batch is over (mid_batch_reset=False), and the "
            "final observation of an episode that ends with the batch reaches no replay; expected "
            "mid_batch_reset=True."
        )
    given = [x is not None for x in (algo.batch_T, algo.batch_B)]
    what = f"{name}: batch_T is {algo.batch_T}, batch_B is {algo.batch_B}, and the agent, a {type(agent).__name__},"
    if agent.recurrent and not all(given):
        raise ValueError(
            f"{what} is recurrent: it learns from sequences; expected both. Give batch_T=40, batch_B=32, warmup_T=20, "
            "store_rnn_state_interval=20, say."
        )
    if not agent.recurrent and any(given):
        raise ValueError(
            f"{what} is feed-forward: it learns from transitions, batch_size of them an update; expected neither. Set "
            "both to None, or use a recurrent agent."
        )
