"""Base of the algorithms that learn from a replay: the loop of updates, and forward passes over their batches."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch

from rlpyt.algos.augmentation import RandomShift, check_images
from rlpyt.algos.metrics import OptInfo, stack_metrics
from rlpyt.algos.remarks import about, rounded_settings, unfinished_line, unused_prefetch, unused_settings
from rlpyt.algos.replay_checks import check_sequences, check_unique_draws
from rlpyt.algos.replay_settings import ReplaySettings
from rlpyt.algos.replay_thread import ReplayThread
from rlpyt.core import Agent, Algorithm, Appender, Metrics, example_inputs
from rlpyt.functional import sequence_priority, valid_mean
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper, chosen
from rlpyt.types import Places, Run, Samples
from rlpyt.utils.arrays import buffer_func, buffer_to
from rlpyt.utils.device_copy import CopyToCpu, CopyToDevice
from rlpyt.utils.seeds import Role, numpy_generator

Number = float | torch.Tensor
"""Metric, or numbers of one."""
ExploringT = TypeVar("ExploringT", bound=Agent)


class Outputs(NamedTuple):
    """Outputs of a network and its target at the rows of a batch, with leading dimensions [M] or [T, M]."""

    online: Buffer
    """Of the network, at the rows, with gradient."""
    next_online: Buffer
    """Of the network, at the rows that are bootstrapped from, without gradient; None if it was not asked for."""
    next_target: Buffer
    """Of the target network, at the rows that are bootstrapped from."""
    noise: torch.Tensor | None = None
    """Standard normal numbers [.., A] of the actions there, for policies that are random."""


@dataclass(kw_only=True, eq=False)
class OffPolicyAlgo(ReplaySettings[ExploringT]):
    """Base of the algorithms that learn from a replay.

    A feed-forward agent learns from transitions; a recurrent one from sequences, for which `batch_T` and `batch_B` must
    be given.
    """

    def initialize(self, agent: ExploringT, run: Run) -> None:
        """Build optimiser and replay; refuse settings that do not fit the agent, and a run without updates."""
        name = type(self).__name__
        if not run.mid_batch_reset:
            raise ValueError(
                f"{name}: the sampler lets environments rest until its batch is over (mid_batch_reset=False), and the "
                "final observation of an episode that ends with the batch reaches no replay; expected "
                "mid_batch_reset=True."
            )
        check_sequences(name, agent, self.batch_T, self.batch_B)
        assert run.example is not None
        self._draws, self._rows_beyond, self._last_done = 0, 0, dict[str, int]()
        super().initialize(agent, run)
        self._draws = self._draws_at_first = self.draws_of(self.hyper(0))
        agent.explore_by(self.exploration_after)  # before the replay is built: it lets go of an earlier start's
        self.augmentation = RandomShift(int(self.random_shift)) if self.random_shift else self.augment
        if self.random_shift:
            check_images(name, int(self.random_shift), example_inputs(agent.env_spaces)[0])
        self.min_itr_learn = max(0, math.ceil(self.min_steps_learn / self.steps_per_itr) - 1)
        rng = numpy_generator(run.seed, Role.ALGO, run.rank)
        self.lock, self._is_appended_apart = run.lock, False
        self._replay_thread: ReplayThread[tuple[Buffer, CopyToDevice]] | None = None
        self.initialize_replay_buffer(run.example, run.batch_spec, run.world_size, rng)
        self._check_replay()
        self._check_updates(run.n_itr)

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take over the attributes of a copy, whose agent explores by it: an agent's copy has no schedule."""
        vars(self).update(state)
        if "agent" in state:
            self.agent.explore_by(self.exploration_after)

    def _check_updates(self, n_itr: int) -> None:
        """Refuse a run without updates, and one whose first update finds nothing to draw in the replay."""
        name, (T, B) = type(self).__name__, self.batch_spec
        # At the ends of the run: a schedule may have iterations without an update in between.
        first, last = (self.hyper(itr * self.steps_per_itr) for itr in (self.min_itr_learn, n_itr - 1))
        if max(self.n_updates(first), self.n_updates(last)) < 1:
            ratio, rows = float(first.replay_ratio), self.draws_of(first) * self.rows_per_draw
            size = "batch_B, batch_T or warmup_T" if self.agent.recurrent else "batch_size"
            raise ValueError(
                f"{name}: {T} x {B} rows an iteration at replay_ratio {ratio:g} are {ratio * T * B:g} rows to consume, "
                f"which is no update of batch_size {rows}; expected at least one. Collect more rows an "
                f"iteration, lower {size}, or raise replay_ratio to {rows / (T * B):g}."
            )
        if self.min_itr_learn >= n_itr:
            raise ValueError(
                f"{name}: min_steps_learn is {self.min_steps_learn:,}, but the run has only {self.n_steps:,} steps: "
                "there would be no update at all. Lower min_steps_learn or raise n_steps."
            )
        held, least, room = (self.min_itr_learn + 1) * T, self.replay.least_rows, self.replay.size // B
        if not self.agent.recurrent and room <= least:
            enough = (least + 1) * B * self.replicas.world_size
            raise ValueError(
                f"{name}: replay_size is {self.replay_size:,}, which is room for {room} rows of each environment, so "
                f"that one of them may be drawn; expected at least {least + 1} rows, as that one may be the final row "
                f"of an episode, with nothing to learn from. Raise replay_size to {enough:,} or more."
            )
        if held < least:
            raise ValueError(
                f"{name}: the first update would find {held} rows of each environment in the replay; expected at least "
                f"{least} with n_step_return {self.n_step_return}. Raise min_steps_learn to "
                f"{least * self.steps_per_itr // T:,} or more."
            )
        if self.unique_draws:
            check_unique_draws(name, self.replay, B, held, self.draws_of(first))

    # ---- learning ----

    def exploration_after(self, itr: int) -> float | None:
        """Return how far exploration has gone after an iteration, from 0 to 1; None leaves the agent as it is."""
        return None

    def append(self, itr: int, samples: Samples) -> None:
        """Give the replay the hyper-parameters as they stand at this iteration, and store a batch."""
        hyper = self.hyper(itr * self.steps_per_itr)
        # First, as the priorities of new sequences are computed with eta.
        self._set_replay_hyper(hyper)
        if not self._is_appended_apart:
            self.append_rows(samples, hyper)
            self.agent.networks.update_obs_rms(samples.env.observation, samples.env.valid)

    def _set_replay_hyper(self, hyper: Hyper) -> None:
        self._draws = self.draws_of(hyper)
        self.replay.set_hyper(discount=hyper.discount, alpha=hyper.pri_alpha, beta=hyper.pri_beta, eta=hyper.pri_eta)

    def append_rows(self, samples: Samples, hyper: Hyper) -> None:
        """Store a batch in the replay: the part of `append` that another process may do."""
        errors = self.input_errors(samples, hyper) if self.has_input_priorities else None
        self.replay.append_samples(self.samples_to_buffer(samples), errors)

    @property
    def appends_apart(self) -> bool:
        """Whether another process may append: not where a subclass has its own way to take in a batch."""
        return type(self).append is OffPolicyAlgo.append and type(self).optimize_agent is Algorithm.optimize_agent

    def appender(self) -> Appender:
        """Return what appends batches in another process from now on; see `rlpyt.core.Algorithm.appender`."""
        if not self.appends_apart:
            return super().appender()  # which raises
        appender = ReplayAppender(self)
        self._is_appended_apart = True
        return appender

    def input_errors(self, samples: Samples, hyper: Hyper) -> torch.Tensor:
        """Return the absolute TD errors [T, B] that `Replay.append_samples` takes with a batch of T rows."""
        raise TypeError(f"{type(self).__name__}: has no priorities of new rows; expected input_priorities=False.")

    def learn(self, itr: int) -> Metrics:
        """Take the updates that the replay ratio asks for; none before `min_steps_learn`."""
        if itr < self.min_itr_learn:
            return OptInfo()
        hyper = self.hyper(itr * self.steps_per_itr)
        # Again, as a script may learn without a new batch, or from the replay of another algorithm.
        self._set_replay_hyper(hyper)
        metrics: dict[str, list[Any]] = defaultdict(list)
        n_updates, n_before = self.n_updates(hyper), self.update_counter
        with self._drawing_ahead(n_updates):
            for _ in range(n_updates):
                batch = self.sample_batch()
                self.agent.networks.draw_randomness(self.generator)
                for name, value in self.update(batch, hyper).items():
                    metrics[name].append(self._weighted_metric(value))
        # Other calls of the networks, between updates, do not move the stream.
        self.agent.networks.draw_randomness(None)
        n_more = self._draws - self._draws_at_first
        self._rows_beyond += (self.update_counter - n_before) * n_more * self.rows_per_draw
        return stack_metrics(metrics)

    def _weighted_metric(self, value: Number) -> Number:
        """Return a metric of an update so that the replicas' mean is that over all rows; one of rows as it is."""
        if self.loss_weight == 1.0:
            return value
        x = torch.as_tensor(value)
        return value if x.dim() else self.weighted(x)

    def n_updates(self, hyper: Hyper) -> int:
        """Return the number of updates of an iteration, which the replay ratio asks for."""
        # The ratio counts rows of all replicas, and every replica consumes a batch an update.
        return round(hyper.replay_ratio * self.batch_spec.size / (self.draws_of(hyper) * self.rows_per_draw))

    @property
    def rows_consumed(self) -> int:
        """Rows that all updates so far have consumed, also where a schedule has changed their number."""
        return self.update_counter * self._draws_at_first * self.rows_per_draw + self._rows_beyond

    @abstractmethod
    def update(self, batch: Buffer, hyper: Hyper) -> dict[str, Any]:
        """Take one update; return its metrics by name, detached tensors or numbers.

        Args:
            batch: of `sample_batch`.
            hyper: the hyper-parameters as they stand.
        """

    def sample_batch(self) -> Buffer:
        """Return the batch of one update: transitions or sequences on the agent's device, augmented if asked for."""
        batch = self._drawn_batch()
        if self.augmentation is None:
            return batch
        names, n_leading = (("all_inputs",), 2) if self.agent.recurrent else (("agent_inputs", "target_inputs"), 1)
        changed = {name: self.augmentation(batch[name].observation, n_leading, self.generator) for name in names}
        return batch._replace(**{name: batch[name]._replace(observation=x) for name, x in changed.items()})

    @contextmanager
    def _drawing_ahead(self, n_updates: int) -> Iterator[None]:
        """Let a thread draw the batches of the updates of an iteration, where settings and number allow it."""
        if not self.draws_ahead or n_updates < 2:
            yield
            return
        with ReplayThread(self._draw, n_updates) as thread:
            self._replay_thread = thread
            try:
                yield
            finally:
                self._replay_thread = None

    def _draw(self) -> tuple[Buffer, CopyToDevice]:
        """Return a batch as it was drawn, and the copy to the agent's device of all that is needed there."""
        drawn = self.replay.sample_batch(self.draws_per_update)
        return drawn, CopyToDevice(drawn._replace(**dict.fromkeys(self._stays_on_cpu())), self.agent.device)

    def _stays_on_cpu(self) -> tuple[str, ...]:
        # The replay is on the CPU; and the recurrent core reads there where to cut, without a synchronisation.
        return ("places", "episode_start") if self.agent.recurrent else ("places",)

    def _drawn_batch(self) -> Buffer:
        thread = self._replay_thread
        drawn, copy = self._draw() if thread is None else thread.next_batch()
        batch = copy.arrived()._replace(**{name: drawn[name] for name in self._stays_on_cpu()})
        if self.global_rows.alone:
            return batch
        valid = drawn.valid if self.agent.recurrent else None
        self.loss_weight, is_weights = self.global_rows.weigh_draws(valid, drawn.is_weights)
        return batch._replace(is_weights=buffer_to(is_weights, self.agent.device))

    def forward(self, batch: Buffer, network: Any, target_network: Any, with_next: bool) -> Outputs:
        """Return what a network and its target give at the rows of a batch.

        Args:
            batch: transitions, or sequences, which are unrolled from the stored state after their warm-up.
            network: called with observation, previous action and reward, and for sequences with the state before the
                first row and `episode_start`; returns [.., M] or [.., T, M] leaves.
            target_network: called with the same arguments, without gradient.
            with_next: whether the network's own outputs at the rows that are bootstrapped from are needed.
        """
        if not self.agent.recurrent:
            online = network(*batch.agent_inputs)
            with torch.no_grad():
                next_ = network(*batch.target_inputs) if with_next else None
            return Outputs(online, next_, target_network(*batch.target_inputs))
        W, T = int(self.warmup_T), len(batch.action)
        state = target_state = batch.init_rnn_state
        if W:
            state, target_state = self.agent.networks.warm_up(batch.all_inputs[:W], state, batch.episode_start[:W])
        inputs, episode_start = batch.all_inputs[W:], batch.episode_start[W:]
        everything = network(*inputs, state, episode_start)
        bootstrap = bootstrap_rows(batch.steps)
        next_ = buffer_func(everything, torch.Tensor.detach)[bootstrap] if with_next else None
        return Outputs(everything[:T], next_, target_network(*inputs, target_state, episode_start)[bootstrap])

    def mean_loss(self, loss: torch.Tensor, batch: Buffer) -> torch.Tensor:
        """Return the means of losses [..., M] or [..., T, M] over the rows to train on, by their importance weights."""
        return self.mean_of_rows(loss if batch.is_weights is None else loss * batch.is_weights, batch)

    def mean_of_rows(self, x: torch.Tensor, batch: Buffer) -> torch.Tensor:
        """Return the means of x [..., M] or [..., T, M] over the rows to train on, all weighing the same."""
        if not self.agent.recurrent:
            return x.mean(-1)
        return valid_mean(x, batch.valid.expand_as(x), dim=(-2, -1))

    def mean_error(self, td_abs_error: torch.Tensor, batch: Buffer) -> torch.Tensor:
        """Return the errors [M] of transitions, or their means over the rows to train on of sequences."""
        return valid_mean(td_abs_error, batch.valid, dim=0) if self.agent.recurrent else td_abs_error

    def update_priorities(self, batch: Buffer, td_abs_error: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """Give the rows or sequences of a batch their new priorities, [M], and return them."""
        priority = td_abs_error
        if self.agent.recurrent:
            priority = sequence_priority(td_abs_error, batch.valid, hyper.pri_eta)
        if not self.replay.takes_priorities:
            return priority
        if self._replay_thread is None:
            self.replay.update_priorities(batch.places, priority.cpu())
        else:
            self._replay_thread.submit(self._set_priorities, batch.places, CopyToCpu(priority))
        return priority

    def _set_priorities(self, places: Places, priority: CopyToCpu) -> None:
        self.replay.update_priorities(places, priority.arrived())

    # ---- plan ----

    def plan(self) -> dict[str, object]:
        """Return what will be done an iteration."""
        first, last = (self.hyper(itr * self.steps_per_itr) for itr in (self.min_itr_learn, self.n_itr - 1))
        n_updates = self.n_updates(first)
        rows, rows_at_end = (self.draws_of(hyper) * self.rows_per_draw for hyper in (first, last))
        moving = {"rows an update": f"{rows:,} at first, {rows_at_end:,} at the end"} if rows != rows_at_end else {}
        return {
            **super().plan(),
            **moving,
            "updates an iteration": n_updates,
            "replay ratio": f"{n_updates * rows / self.batch_spec.size:g}",
            "updates a step": f"{n_updates / self.steps_per_itr:.3g}",
            "first update at step": (self.min_itr_learn + 1) * self.steps_per_itr,
            "replay rows": self.replay.size,
            "replay bytes": self.replay.nbytes,
        }

    def remarks(self) -> dict[str, str]:
        """Return what becomes of settings that other settings or the batch change; see `RlAlgorithm.remarks`."""
        first = (self.min_itr_learn + 1) * self.steps_per_itr
        ratio = self.n_updates(self.hyper(0)) * self.rows_per_draw * self._draws_at_first / self.batch_spec.size
        rounded = {
            "replay_ratio": (self.replay_ratio, ratio, "updates an iteration"),
            "min_steps_learn": (self.min_steps_learn, first, "iterations"),
        }
        # An index of one's own may take priorities without the setting.
        prioritized = self.prioritized_replay or self.replay.takes_priorities
        n_updates = max(self.n_updates(self.hyper(step)) for step in (first, self.n_steps))
        sequences, has_beta = self.batch_T is not None, self.pri_beta is not None
        asks_for_cpu = self.replay_on_device and self.agent.device.type == "cpu"
        of_run = dict(prioritized=prioritized, sequences=sequences, has_beta=has_beta, asks_for_cpu=asks_for_cpu)
        unused = unused_settings(chosen(self), **of_run)
        line_is_used = prioritized and not has_beta and self.pri_beta_init != self.pri_beta_final
        unfinished = unfinished_line("pri_beta_steps", self.pri_beta_steps, self.n_steps) if line_is_used else {}
        prefetch = unused_prefetch(self.draws_ahead, n_updates) if self.prefetch else {}
        return {**super().remarks(), **rounded_settings(rounded), **unused, **unfinished, **prefetch}

    def warnings(self) -> list[str]:
        """Return which settings cost the run its learning; see `rlpyt.core.Algorithm.warnings`."""
        found, first = super().warnings(), (self.min_itr_learn + 1) * self.steps_per_itr
        if 4 * first > 3 * self.n_steps:
            found.append(
                f"the first update comes after {first:,} of {self.n_steps:,} steps (min_steps_learn), so most of the "
                f"run learns nothing. Set min_steps_learn to about {about(self.n_steps / 10)}, or raise n_steps."
            )
        ends = [self.hyper(step) for step in (first, self.n_steps)]
        of_run = max(map(self.n_updates, ends)) * (self.n_itr - self.min_itr_learn)
        interval = min(round(hyper.target_update_interval) for hyper in ends)
        if interval > of_run:
            found.append(
                f"the target network never moves: it does every {interval:,.0f} updates "
                f"(target_update_interval), and the run takes {of_run:,}. Set target_update_interval to about "
                f"{about(of_run / 20)}, or raise n_steps."
            )
        return found


class ReplayAppender:
    """Copy of an algorithm for another process, where it appends to the same replay and does nothing else.

    Rows whose errors are not known yet are kept there, where new rows get priorities from errors.
    """

    def __init__(self, algo: OffPolicyAlgo[Any]) -> None:
        left_out: dict[int, object] = {id(algo.descents): {}, id(algo.generator): None}
        copies = {id(algo.agent): algo.agent.acting_copy(), id(algo.replay): algo.replay.appending_copy()}
        try:
            self._algo = deepcopy(algo, {**left_out, **copies, id(algo.lock): algo.lock})
        except TypeError as error:
            raise TypeError(
                f"{type(algo).__name__}: it cannot be copied for the process that appends to the replay: {error}. Take "
                'out what an attribute of yours holds (a file, a lock), or give lag=1 in the place of "free".'
            ) from error

    def join(self, role: str) -> None:
        """Take part in the lock of the replay."""
        self._algo.lock.join(role)

    def append_rows(self, itr: int, samples: Samples) -> None:
        """Store the batch of an iteration."""
        hyper = self._algo.hyper(itr * self._algo.steps_per_itr)
        # The other hyper-parameters decide what is drawn: the learner sets them. alpha is shared.
        self._algo.replay.set_hyper(eta=hyper.pri_eta)
        self._algo.append_rows(samples, hyper)

    @property
    def seconds_waited(self) -> float:
        """Time spent so far on waiting for the lock."""
        return self._algo.lock.seconds_waited


def bootstrap_rows(steps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index of the rows that lie `steps` [T, M] after rows [T, M]."""
    T, M = steps.shape
    return torch.arange(T, device=steps.device)[:, None] + steps, torch.arange(M, device=steps.device)
