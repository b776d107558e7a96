"""Hooks, parts of the user's that are called while a run goes on: their base, those that the library has, the calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch

from rlpyt.core import Agent, Algorithm, EvalResult, Sampler
from rlpyt.logging import Logger
from rlpyt.logging.run_directory import outcome_of
from rlpyt.logging.sinks import Row
from rlpyt.runners.training import Training
from rlpyt.settings import Settings, whole
from rlpyt.types import StateDict
from rlpyt.utils.arrays import numpify_buffer
from rlpyt.utils.packages import optional_package
from rlpyt.utils.replicas import Replicas

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class HookedRun(Protocol):
    """Runner as its hooks see it."""

    algo: Algorithm[Agent]
    agent: Agent
    sampler: Sampler
    training: Training
    """What works in the run; `AsyncRl`, and replicas that divide batch sizes, do not work with `algo` and `sampler`."""
    logger: Logger
    n_itr: int
    first_itr: int
    """Iterations that were done when the run went on from a checkpoint; 0 for one that began."""
    log_interval_itrs: int

    @property
    def stop_reason(self) -> str:
        """Why the run has stopped at a row of its log; empty if it has not."""

    @property
    def replicas(self) -> Replicas:
        """This replica of the run and the others."""

    @property
    def steps_per_itr(self) -> int:
        """Environment steps of one iteration, all replicas counted."""

    def request_stop(self, reason: str) -> None:
        """Stop the run in order at the row of the log that is written now, or next."""


@dataclass(eq=False)
class Hook(Settings):
    """Part that is called while a run goes on. A subclass overrides the calls that it needs.

    Calls come from replica 0 alone. A call may read all parts of the runner, and end the run by
    `runner.request_stop(why)`. It must draw no random numbers from global generators, and change no part: the numbers
    of the run would change. What it raises ends the run.
    """

    def on_start(self, runner: HookedRun) -> None:
        """Begin: all parts are built, and no row is written. What an earlier run has left here is to be forgotten."""

    def on_row(self, runner: HookedRun, row: Row, step: int) -> None:
        """Look at a row of the log, which was just written: values by column name; `step` is its CumSteps."""

    def on_evaluation(self, runner: HookedRun, result: EvalResult, step: int) -> None:
        """Look at the evaluation of all replicas of the agent after `step` steps; its row is written next."""

    def on_end(self, runner: HookedRun, status: str) -> None:
        """Clean up: the sampler is closed already. A hook whose `on_start` has raised, or never came, is not called.

        The status is "finished" (`runner.stop_reason` says whether it was stopped), "failed", "interrupted" or
        "preempted", by a checkpoint from which the run goes on.
        """

    def state_dict(self) -> StateDict:
        """Return what a checkpoint keeps of the hook, as plain data."""
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, after `on_start` of a run that goes on."""


@dataclass(eq=False)
class StopOnReturn(Hook):
    """Hook that stops the run once a column of the log reaches a threshold.

    Raises:
        ValueError: if `n_rows` is below 1.
        LookupError: if the log has no such column.
    """

    threshold: float
    """Value from which the run is good enough."""
    column: str = "ReturnAverage"
    """Column of `progress.csv`."""
    n_rows: int = 1
    """Rows in a row that must reach it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("threshold", lambda x: x == x, "a number")
        whole(self, "n_rows")
        self._n_reached = 0

    def on_start(self, runner: HookedRun) -> None:
        """Forget the rows of an earlier run."""
        self._n_reached = 0

    def on_row(self, runner: HookedRun, row: Row, step: int) -> None:
        """Stop the run if the last rows have all reached the threshold."""
        if self.column not in row:
            raise LookupError(f"column is {self.column!r}; expected one of {', '.join(row)}.")
        value = row[self.column]
        reached = not isinstance(value, str) and value >= self.threshold
        self._n_reached = self._n_reached + 1 if reached else 0
        if self._n_reached >= self.n_rows:
            runner.request_stop(f"{self.column} is {value:.6g}, and {self.threshold:.6g} was to be reached")

    def state_dict(self) -> StateDict:
        """Return how many of the last rows have reached the threshold."""
        return {"n_reached": self._n_reached}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""
        self._n_reached = state_dict["n_reached"]


@dataclass(eq=False)
class EventHook(Hook):
    """Base of hooks that write for TensorBoard at rows of the log, into the folder `folder` of the run.

    A subclass defines `write`, and may define `prepare`. With `eval_beside` rows are written late, and what is shown is
    the agent of that moment.

    Raises:
        ImportError: if tensorboard is not installed.
    """

    folder: ClassVar[str]
    every_n_rows: int = field(default=1, kw_only=True)
    """Rows of the log from one write to the next; the first row has one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._every = whole(self, "every_n_rows")
        self._package = optional_package("torch.utils.tensorboard", type(self).__name__, "tensorboard")
        self._writer: SummaryWriter | None = None
        self._n_rows = 0

    def prepare(self, runner: HookedRun) -> None:
        """Make ready what `write` needs, in a run that has a folder."""

    def write(self, writer: SummaryWriter, runner: HookedRun, step: int) -> None:
        """Write what belongs to a row of the log."""
        raise NotImplementedError

    def on_start(self, runner: HookedRun) -> None:
        """Open the event file; what was written of steps after a checkpoint is purged."""
        if runner.logger.directory is None:
            return
        self.prepare(runner)
        purge_step = runner.first_itr * runner.steps_per_itr + 1 if runner.first_itr else None
        self._writer = self._package.SummaryWriter(str(runner.logger.directory / self.folder), purge_step=purge_step)
        self._n_rows = 0

    def on_row(self, runner: HookedRun, row: Row, step: int) -> None:
        """Write at the first row, and at every so many after it."""
        self._n_rows += 1
        if self._writer is not None and (self._n_rows - 1) % self._every == 0:
            self.write(self._writer, runner, step)
            self._writer.flush()

    def on_end(self, runner: HookedRun, status: str) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def state_dict(self) -> StateDict:
        """Return how many rows there were, so that a run that goes on keeps the distance."""
        return {"n_rows": self._n_rows}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned."""
        self._n_rows = state_dict.get("n_rows", 0)  # older checkpoints have none


@dataclass(eq=False)
class Histograms(EventHook):
    """Hook that writes histograms for TensorBoard at rows of the log, into the folder `histograms` of the run."""

    folder: ClassVar[str] = "histograms"
    parameters: bool = True
    """Whether of every parameter of the agent's networks."""
    gradients: bool = True
    """Whether of its gradient in the last update, where the optimiser has left it."""
    actions: bool = True
    """Whether of the actions of the newest batch."""

    def write(self, writer: SummaryWriter, runner: HookedRun, step: int) -> None:
        """Write the histograms."""

        def add(tag: str, values: torch.Tensor) -> None:
            if values.isfinite().all():
                writer.add_histogram(tag, values.detach().float().cpu(), step)

        for i, module in enumerate(runner.agent.networks.modules()):
            for name, parameter in module.named_parameters():
                place = f"{type(module).__name__}_{i}/{name}"
                if self.parameters:
                    add(f"Parameters/{place}", parameter)
                if self.gradients and parameter.grad is not None:
                    add(f"Gradients/{place}", parameter.grad)
        if self.actions and step:
            batches = runner.training.sampler.batches
            samples = batches[(step // runner.steps_per_itr - 1) % len(batches)]
            actions, valid = map(numpify_buffer, (samples.agent.action, samples.env.valid))
            actions = actions[valid]
            for i, column in enumerate(actions.reshape(len(actions), -1).T):
                writer.add_histogram(f"Actions/{i}", column, step)


class HookError(RuntimeError):
    """Error of a run that ends as one of its hooks has raised; the message names the hook and the call."""


def check_hooks(runner: str, hooks: object) -> None:
    """Raise TypeError if it is no list, or one of the hooks is something else."""
    every: Sequence[object] = hooks if isinstance(hooks, list | tuple) else [None]
    if not all(isinstance(hook, Hook) for hook in every):
        raise TypeError(
            f"{runner}: hooks is {hooks!r:.100}; expected a list of instances of rlpyt.runners.Hook. Derive a class "
            "from it, and write hooks=[MyHook()]."
        )


class HookCalls:
    """Calls of the hooks of a run, by replica 0; they are given the runner."""

    def __init__(self, hooks: Sequence[Hook], runner: HookedRun) -> None:
        self._hooks = hooks if not runner.replicas.rank else ()
        self._runner = runner
        self._states: Sequence[StateDict] = ()  # of a checkpoint, for hooks that have not begun

    @contextmanager
    def following(self) -> Iterator[None]:
        """Call the hooks until the block ends."""
        if not self._hooks:
            yield
            return
        self._runner.logger.on_row = self._on_row
        begun: list[Hook] = []
        try:
            for hook in self._hooks:
                _call("on_start", hook, partial(hook.on_start, self._runner))
                begun.append(hook)
            # Each hook gets the state of the hook of its class that stood in its place.
            for hook, saved in zip(self._hooks, self._states, strict=False):
                if saved["class"] == type(hook).__name__:
                    hook.load_state_dict(saved["state"])
            yield
        finally:
            self._runner.logger.on_row = None
            self._end(begun, sys.exception())

    def _end(self, begun: Sequence[Hook], error: BaseException | None) -> None:
        """Call `on_end` of every hook, also where another one raises or exits; the first error of the run counts."""
        late: HookError | SystemExit | None = None
        for hook in begun:
            try:
                _call("on_end", hook, partial(hook.on_end, self._runner, outcome_of(error or late)))
            except (HookError, SystemExit) as raised:
                if error or late:
                    self._runner.logger.warn(str(raised) or f"The hook {type(hook).__name__}.on_end has called exit().")
                else:
                    late = raised
        if late:
            raise late

    def _on_row(self, row: Row, step: int) -> None:
        for hook in self._hooks:
            _call("on_row", hook, partial(hook.on_row, self._runner, row, step))

    def on_evaluation(self, result: EvalResult, step: int) -> None:
        """Call the hooks with an evaluation."""
        for hook in self._hooks:
            _call("on_evaluation", hook, partial(hook.on_evaluation, self._runner, result, step))

    def states(self) -> list[StateDict]:
        """Return the states of the hooks, which have begun."""
        return [{"class": type(hook).__name__, "state": hook.state_dict()} for hook in self._hooks]

    def load_states(self, states: Sequence[StateDict]) -> None:
        """Give the hooks the states that `states` returned, once they have begun."""
        self._states = states


def _call(name: str, hook: Hook, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:
        raise HookError(
            f"The hook {type(hook).__name__}.{name} raised {type(error).__name__}: {error} A run does not go "
            "on without its hooks. Mend it, or leave it out."
        ) from error
