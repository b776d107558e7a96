"""Hooks, parts of the user's that are called while a run goes on, and the run that calls them and may be stopped."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rlpyt.core import EvalResult
from rlpyt.logging.checkpoint_files import Content
from rlpyt.logging.run_directory import outcome_of
from rlpyt.logging.sinks import Row
from rlpyt.runners.diagnostics import LoggedRun
from rlpyt.settings import Settings
from rlpyt.types import StateDict

_LETS_GO_ON = re.compile(r"(n_steps|hooks)\b")


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


class HookedRun(LoggedRun):
    """Run with hooks, as far as they and its stop are concerned."""

    hooks: Sequence[Hook]
    n_itr: int
    first_itr: int

    def __post_init__(self) -> None:
        """Refuse hooks that are none."""
        super().__post_init__()
        given: object = self.hooks
        hooks: Sequence[object] = given if isinstance(given, list | tuple) else [None]
        for hook in hooks:
            if not isinstance(hook, Hook):
                raise TypeError(
                    f"{type(self).__name__}: hooks is {given!r:.100}; expected a list of instances of "
                    "rlpyt.runners.Hook. Derive a class from it, and write hooks=[MyHook()]."
                )
        self.stop_reason = self._asked_to_stop = ""
        """Why the run has stopped at a row of its log; empty if it has not."""
        self._hook_states: Sequence[StateDict] = ()

    def initialize_logging(self) -> None:
        """Start the clocks; an earlier run of this runner may have been stopped."""
        super().initialize_logging()
        self.stop_reason = self._asked_to_stop = ""

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Show the run in a terminal, and call its hooks, until the block ends."""
        steps = self.steps_per_itr
        with self.logger.live_table(self.n_itr * steps, self.first_itr * steps), self._calling_hooks():
            yield

    # ---- stop ----

    def request_stop(self, reason: str) -> None:
        """Stop the run in order at the row of the log that is written now, or next.

        It has its snapshot and its checkpoint then. It counts as finished, and `status.json` has the reason.

        Args:
            reason: why; of several calls the first counts.
        """
        self._asked_to_stop = self._asked_to_stop or reason or "request_stop was called"

    def agree_to_stop(self, n_done: int) -> None:
        """Set `stop_reason` in all replicas, if one of them was asked to stop before the row after `n_done`."""
        if n_done >= self.n_itr:
            return  # the run ends here anyway
        self.stop_reason = next(filter(None, self.agreement.gather(self._asked_to_stop)), "")
        if self.stop_reason:
            self.complete_rows()
            self._note_stop()
            if self.checkpoints is not None:
                self.checkpoints.describe(stopped=self.stop_reason)
            self.logger.notice(f"The run stops after {n_done * self.steps_per_itr:,} steps: {self.stop_reason}.")

    def complete_rows(self) -> None:
        """Write the rows that are under way."""

    def stopped_at(self, manifest: Content, settings: Mapping[str, object]) -> bool:
        """Return whether a run that goes on from a checkpoint was stopped there, and nothing lets it go further."""
        self.stop_reason = manifest.get("stopped", "")
        before = manifest["settings"]
        names = [name for name in {**before, **settings} if _LETS_GO_ON.match(name)]
        if not self.stop_reason or any(before.get(name) != settings.get(name) for name in names):
            self.stop_reason = ""
            return False
        self._note_stop()
        return True

    def _note_stop(self) -> None:
        self.logger.notes["stopped"] = self.stop_reason

    # ---- hooks ----

    @contextmanager
    def _calling_hooks(self) -> Iterator[None]:
        """Call the hooks of replica 0 until the block ends."""
        if self.replicas.rank or not self.hooks:
            yield
            return
        self.logger.on_row = self._call_on_row
        begun: list[Hook] = []
        try:
            for hook in self.hooks:
                self._call("on_start", hook, partial(hook.on_start, self))
                begun.append(hook)
            self._load_hook_states()
            yield
        finally:
            self.logger.on_row = None
            self._end_hooks(begun, sys.exception())

    def _end_hooks(self, begun: Sequence[Hook], error: BaseException | None) -> None:
        """Call `on_end` of every hook, also where another one raises or exits; the first error of the run counts."""
        late: HookError | SystemExit | None = None
        for hook in begun:
            try:
                status = outcome_of(error or late)
                self._call("on_end", hook, partial(hook.on_end, self, status))
            except (HookError, SystemExit) as raised:
                if error or late:
                    self.logger.warn(str(raised) or f"The hook {type(hook).__name__}.on_end has called exit().")
                else:
                    late = raised
        if late:
            raise late

    def _call_on_row(self, row: Row, step: int) -> None:
        for hook in self.hooks:
            self._call("on_row", hook, partial(hook.on_row, self, row, step))

    def evaluation_done(self, result: EvalResult, step: int) -> None:
        """Call the hooks of replica 0 with an evaluation."""
        for hook in self.hooks if not self.replicas.rank else ():
            self._call("on_evaluation", hook, partial(hook.on_evaluation, self, result, step))

    def _call(self, name: str, hook: Hook, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            raise HookError(
                f"The hook {type(hook).__name__}.{name} raised {type(error).__name__}: {error} A run does not go "
                "on without its hooks. Mend it, or leave it out."
            ) from error

    def progress_state(self) -> StateDict:
        """Return where the log stands between two rows, and the states of the hooks, which have begun in replica 0."""
        hooks = self.hooks if not self.replicas.rank else ()
        states = [{"class": type(hook).__name__, "state": hook.state_dict()} for hook in hooks]
        return {**super().progress_state(), "hooks": states}

    def load_progress_state(self, state: StateDict) -> None:
        """Take over what `progress_state` returned; the hooks do when they have begun."""
        super().load_progress_state(state)
        self._hook_states = state.get("hooks", ())

    def _load_hook_states(self) -> None:
        """Give each hook the state of the hook of its class that stood in its place."""
        states, self._hook_states = self._hook_states, ()
        for hook, saved in zip(self.hooks, states, strict=False):
            if saved["class"] == type(hook).__name__:
                hook.load_state_dict(saved["state"])
