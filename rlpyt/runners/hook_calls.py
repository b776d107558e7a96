"""Calls of the hooks of a run, and the request to stop it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from rlpyt.core import EvalResult
from rlpyt.logging.checkpoint_files import Content
from rlpyt.logging.run_directory import outcome_of
from rlpyt.logging.sinks import Row
from rlpyt.runners.hooks import Hook, HookedRun
from rlpyt.runners.training import Training
from rlpyt.types import StateDict

_LETS_GO_ON = re.compile(r"(n_steps|hooks)\b")


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

        `complete_rows` writes a row that was begun.
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
