"""Hooks, parts of the user's that are called while a run goes on; and the request to stop it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from rlpyt.core import Agent, Algorithm, EvalResult, Sampler
from rlpyt.logging import Logger
from rlpyt.logging.checkpoint_files import Content
from rlpyt.logging.run_directory import outcome_of
from rlpyt.logging.sinks import Row
from rlpyt.runners.training import Training
from rlpyt.settings import Settings
from rlpyt.types import StateDict
from rlpyt.utils.replicas import Replicas

_LETS_GO_ON = re.compile(r"(n_steps|hooks)\b")


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
    stop_reason: str
    """Why the run has stopped at a row of its log; empty if it has not."""

    @property
    def replicas(self) -> Replicas:
        """This replica of the run and the others."""

    @property
    def steps_per_itr(self) -> int:
        """Environment steps of one iteration, all replicas counted."""

    def request_stop(self, reason: str) -> None:
        """Stop the run in order at the row of the log that is written now, or next."""


class HookError(RuntimeError):
    """Error of a run that ends as one of its hooks has raised; the message names the hook and the call."""


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
        """Look at a row of the log, which was just written.

        Args:
            runner: of the run.
            row: values by column name.
            step: CumSteps of the row.
        """

    def on_evaluation(self, runner: HookedRun, result: EvalResult, step: int) -> None:
        """Look at an evaluation, that of all replicas; its row is written next.

        Args:
            runner: of the run.
            result: the episodes.
            step: CumSteps of the agent that was evaluated.
        """

    def on_end(self, runner: HookedRun, status: str) -> None:
        """Clean up: the sampler is closed already. A hook whose `on_start` has raised, or never came, is not called.

        Args:
            runner: of the run; its `stop_reason` says whether it was stopped.
            status: "finished", "failed", "interrupted" or "preempted", by a checkpoint from which it goes on.
        """

    def state_dict(self) -> StateDict:
        """Return what a checkpoint keeps of the hook, as plain data."""
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, after `on_start` of a run that goes on."""


def check_hooks(runner: str, hooks: object) -> None:
    """Refuse hooks that are none.

    Raises:
        TypeError: if it is no list, or one of them is something else.
    """
    every: Sequence[object] = hooks if isinstance(hooks, list | tuple) else [None]
    if not all(isinstance(hook, Hook) for hook in every):
        raise TypeError(
            f"{runner}: hooks is {hooks!r:.100}; expected a list of instances of rlpyt.runners.Hook. Derive a class "
            "from it, and write hooks=[MyHook()]."
        )


class HookCalls:
    """Calls of the hooks of a run, by replica 0.

    Args:
        hooks: of the run.
        runner: of the run, which they are given.
    """

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


class Stop:
    """Request to stop a run at a row of its log, which its replicas agree on."""

    def __init__(self) -> None:
        self.reason = ""
        """Why the run has stopped; empty if it has not."""
        self._request = ""

    def request(self, reason: str) -> None:
        """Stop the run at the next row; of several calls the first counts."""
        self._request = self._request or reason or "request_stop was called"

    def agree(self, training: Training, n_done: int, complete_rows: Callable[[], None]) -> str:
        """Return the reason, if a replica was asked to stop before the row after `n_done` iterations.

        Args:
            training: which stops.
            n_done: iterations that are done.
            complete_rows: writes a row that was begun.
        """
        if n_done >= training.n_itr:
            return ""  # the run ends here anyway
        self.reason = next(filter(None, training.agreement.gather(self._request)), "")
        if self.reason:
            complete_rows()
            training.logger.notes["stopped"] = self.reason
            training.logger.notice(f"The run stops after {n_done * training.steps_per_itr:,} steps: {self.reason}.")
        return self.reason

    def went_before(self, training: Training, manifest: Content, settings: Mapping[str, object]) -> bool:
        """Return whether a run that goes on from a checkpoint was stopped there, and nothing lets it go further."""
        reason, before = manifest.get("stopped", ""), manifest["settings"]
        names = [name for name in {**before, **settings} if _LETS_GO_ON.match(name)]
        if not reason or any(before.get(name) != settings.get(name) for name in names):
            return False
        self.reason = training.logger.notes["stopped"] = reason
        return True
