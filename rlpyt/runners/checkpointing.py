"""Checkpoints of a run: when they are due, what may change from one start to the next, from which one it goes on."""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Container, Mapping
from dataclasses import fields
from math import inf
from pathlib import Path

from rlpyt.logging import current_logger
from rlpyt.logging.checkpoint_files import Content, Saved
from rlpyt.logging.checkpoints import Checkpoints
from rlpyt.logging.segments import CheckpointError
from rlpyt.run_records import CHECKPOINTS, printable
from rlpyt.runners.hooks import HookCalls
from rlpyt.runners.record import GIVEN_WEIGHTS
from rlpyt.runners.rows import Rows
from rlpyt.runners.signals import Preempted, Stop
from rlpyt.runners.training import Training
from rlpyt.types import StateDict
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.seeds import global_streams, set_global_streams

DEFAULT_MINUTES = 10.0
"""Minutes between checkpoints of a run that is to be resumed, where no interval was given."""

# Settings that do not change what an iteration computes, or that a user changes knowingly: the length of the run.
# Evaluations may have other numbers of episodes and steps. In other environments they would be another curve.
_MAY_CHANGE = re.compile(
    r"(n_steps|log_interval_steps|log_traj_window|checkpoint_\w+|max_time|hooks|affinity|settings|replica_timeout"
    r"|eval_beside|algo\.replay_folder|sampler$|sampler\.(n_workers|n_parts|servers|acting_threads|time_breakdown"
    r"|start_method|worker_kind|worker_timeout|restart_workers|restart_seconds|node_timeout|ray_address|eval_n_envs"
    r"|eval_max_\w+))\b"
)
_SECONDS_AFTER_ERROR = 2.0  # for the parts of other replicas, which are written by then or not at all
_SHOWN = 8  # differences in one message


class RunCheckpoints:
    """Checkpoints of one replica of a run: agent, optimisers, replay, environments, streams, counters.

    All replicas save at the same steps, and go on from the same one. `go_on` comes first, then `save_due` after every
    iteration. What is kept, and the steps or minutes between checkpoints, are as in the settings of the runner.
    """

    def __init__(
        self,
        training: Training,
        rows: Rows,
        hooks: HookCalls,
        stop: Stop,
        directory: Path,
        keep: int,
        steps: float,
        minutes: float | None,
    ) -> None:
        self._training, self._rows, self._hooks, self._stop = training, rows, hooks, stop
        self._directory, self._agreement = directory, training.agreement
        replicas, session = self._agreement.replicas, self._agreement.broadcast(secrets.token_hex(8))
        self._files = Checkpoints(directory / CHECKPOINTS, replicas.rank, replicas.world_size, session, keep)
        self._interval_itrs = max(1.0, steps // training.steps_per_itr) if steps < inf else inf
        self._interval_seconds = 60.0 * ((DEFAULT_MINUTES if steps == inf else inf) if minutes is None else minutes)
        self._last = time.monotonic()
        self._best_score = -inf
        self._info: Content = {}

    # ---- going on ----

    def manifest(self, has_rows: bool) -> Content | None:
        """Return what the newest manifest says that can be read; None where the run has neither one nor rows."""
        steps = self._agreement.broadcast(self._files.steps())
        errors = []
        for step in steps:
            try:
                return _of_a_run(self._files.info(step), step)
            except CheckpointError as error:
                errors.append(str(error))
        if steps:
            raise CheckpointError(_none_is_whole(errors))
        if has_rows:
            raise CheckpointError(
                f"Resuming the run in {self._directory}: it has rows and no checkpoint; expected one. Give "
                'resume="auto", which puts the rows aside and starts from the beginning.'
            )
        return None

    def read_newest(self) -> Saved:
        """Return the newest checkpoint that is whole in all replicas, and log what is wrong with later ones."""
        errors = []
        steps = self._agreement.broadcast(self._files.steps())
        for step in self._agreement.broadcast(self._files.unfinished(steps)):
            current_logger().warn(
                f"The checkpoint of step {step:,} has no manifest.json, and the one before is taken: a kill while it "
                "was written leaves it so, or the file was removed."
            )
        for step in steps:
            saved, error = None, ""
            try:
                saved = self._files.read(step)
            except CheckpointError as damage:
                error = str(damage)
            if saved is not None and "itr" not in saved.info:
                error = f"Resuming a run: the manifest of step {step:,} has no 'itr'; expected that of a run."
            found = [text for text in self._agreement.gather(error) if text]
            if not found and saved is not None:
                return saved
            errors += found
            current_logger().warn(f"The checkpoint of step {step:,} is damaged; the one before is taken. {found[0]}")
        raise CheckpointError(_none_is_whole(errors))

    def continue_from(self, saved: Saved | None) -> None:
        """Go on after a checkpoint that was read and loaded; None begins the run."""
        self._files.continue_from(saved)
        best = self._files.best()
        if best is not None:
            self._best_score = self._files.info(best)["score"]
        self._agreement.agree()  # nobody saves before all have removed what is left over

    def go_on(self, manifest: Content | None, settings: Mapping[str, object]) -> int:
        """Go on from the newest whole checkpoint, where there is a manifest; return the iterations that are done.

        `settings` are the same in all starts of the run.
        """
        training, stop = self._training, self._stop
        self._info = {"seed": settings["seed"], "settings": settings, "compute": training.compute.as_dict()}
        if reasons := [reason for reason in self._agreement.gather(training.sampler.why_no_state()) if reason]:
            training.logger.log(f"{reasons[0]} If the run is resumed, its open episodes are truncated in the data.")
        if manifest is None:
            self.continue_from(None)
            return 0
        saved = self.read_newest()
        self._load(saved)
        self.continue_from(saved)
        training.saved_step, n_done = saved.step, int(saved.info["itr"])
        ended = ": the run is finished. A larger n_steps lets it go on" if n_done >= training.n_itr else ""
        if not ended and stop.went_before(training, saved.info, settings):
            n_done = training.n_itr
            ended = f". It was stopped there: {stop.reason}. A larger n_steps or other hooks let it go on"
        training.logger.notice(f"Resumed after {saved.step:,} steps{ended}.")
        return n_done

    def _load(self, saved: Saved) -> None:
        """Take over the state of a checkpoint, before the first iteration."""
        training, state = self._training, saved.state
        try:
            progress = state["progress"]
            for name, part in (("agent", training.agent), ("algo", training.algo), ("sampler", training.sampler)):
                part.load_state_dict(state[name])
            self._rows.log.load_state_dict(progress)
            self._hooks.load_states(progress.get("hooks", ()))
            self._rows.load_state_dict(progress)
            training.logger.load_state_dict(state["logger"])
            set_global_streams(state["streams"])  # last, as the others may draw
        except (LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
            if type(error).__module__.startswith("rlpyt."):  # of a worker, or of another replica
                raise
            why = printable(f"{type(error).__name__}: {error}")
            raise CheckpointError(
                f"Resuming a run: the state of step {saved.step:,} does not fit the parts of the run: {why}"
            ) from error

    # ---- saving ----

    def is_due(self, n_done: int, score: float | None) -> bool:
        """Return whether a checkpoint is due after `n_done` iterations: by an interval, or as it is the best so far."""
        waited = time.monotonic() - self._last
        is_best = score is not None and score > self._best_score
        return is_best or waited >= self._interval_seconds or n_done % self._interval_itrs == 0

    def save_due(self, n_done: int, asked: str) -> None:
        """Save a checkpoint after `n_done` iterations, if one is due.

        `asked` says what asks this replica for the end of this start of the run; where it does in one, all raise
        `Preempted`.
        """
        training, score = self._training, self._rows.score(n_done)
        ended = n_done >= training.n_itr or bool(self._stop.reason)
        due, ends = self._agreement.any(self.is_due(n_done, score) or ended, bool(asked))
        if not due and not ends:
            return
        self._rows.log.check_weights(n_done - 1)
        training.saved_step = n_done * training.steps_per_itr
        if self._stop.reason:
            self._info["stopped"] = self._stop.reason
        self.save(n_done, self._state(), score)
        whole = self.finish() if ends or ended else True
        if ends and not ended:
            asked = next(filter(None, self._agreement.gather(asked)))
            step = f"step {n_done * training.steps_per_itr:,}"
            training.logger.notice(f"{asked}: the run ends at {step}, {'with' if whole else 'WITHOUT'} a checkpoint.")
            raise Preempted(f"{asked}: the run ended at {step}.")

    def _state(self) -> StateDict:
        """Return the state between two iterations."""
        training = self._training
        self._rows.complete()  # first: it may write a row that was begun
        return {
            "progress": {**self._rows.log.state_dict(), "hooks": self._hooks.states(), **self._rows.state_dict()},
            "sampler": training.sampler.state_dict(),  # second: it may bring batches under way to an end
            "agent": training.agent.state_dict(),
            "algo": training.algo.state_dict(),
            "logger": training.logger.state_dict(),
            "streams": global_streams(),
        }

    def save(self, n_done: int, state: StateDict, score: float | None) -> None:
        """Save the state after `n_done` iterations, beside the run; the score is that of its evaluation."""
        step = n_done * self._training.steps_per_itr
        self._warn_of(self._files.save(step, state, {**self._info, "itr": n_done}, score))
        self._best_score = max(self._best_score, -inf if score is None else score)
        self._last = time.monotonic()

    def finish(self) -> bool:
        """Wait until the last checkpoint is written; return whether it is."""
        return self._warn_of(self._files.finish())

    def close(self) -> None:
        """Finish, and end the thread that writes. A run that fails does not wait for replicas, which may be dead."""
        self._warn_of(self._files.close(None if sys.exception() is None else _SECONDS_AFTER_ERROR))

    def _warn_of(self, missing: str | None) -> bool:
        if missing is not None:
            current_logger().warn(missing)
        return missing is None


def _of_a_run(info: Content, step: int) -> Content:
    """Return what the manifest of a checkpoint says; raise CheckpointError if it is that of something else."""
    missing = [key for key in ("seed", "settings", "compute", "itr") if key not in info]
    chosen = info.get("compute", {})
    names = {f.name: type(f.default) for f in fields(ComputeSettings)}
    wrong = [key for key, x in chosen.items() if key not in names or (key != "tf32" and type(x) is not names[key])]
    if missing or wrong or "torch_threads" not in chosen:
        what = f"without {', '.join(missing)}" if missing else f"with the computation {printable(chosen):.200}"
        raise CheckpointError(f"Resuming a run: the manifest of step {step:,} is {what}; expected that of a run.")
    return info


def check_same(saved: Mapping[str, object], now: Mapping[str, object], at_default: Container[str]) -> list[str]:
    """Return what has changed in the settings of a run, and raise ValueError if it would be another run with them.

    One of those `at_default` may be missing in a checkpoint of an earlier version, which did not have it: a new setting
    does by default what was done before.
    """
    texts = changes_of(saved, now, at_default)
    refused = [text for name, text in texts.items() if not may_change(name)]
    if refused:
        more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise ValueError(
            f"Resuming a run with other settings: {'; '.join(refused[:_SHOWN])}{more}. Expected the settings of the "
            "run that saved the checkpoint. Give them again, or another run_ID for a new run."
        )
    return list(texts.values())


def changes_of(saved: Mapping[str, object], now: Mapping[str, object], at_default: Container[str]) -> dict[str, str]:
    """Return what has changed in settings, by their places; see `check_same`."""
    different = [name for name in {**saved, **now} if saved.get(name) != now.get(name)]
    names = [name for name in different if name in saved or not (name in at_default or now[name] == GIVEN_WEIGHTS)]
    return {name: f"{printable(name)} is {now.get(name)!r:.100}, and was {saved.get(name)!r:.100}" for name in names}


def may_change(place: str) -> bool:
    """Return whether a run may go on with another value of a setting."""
    return _MAY_CHANGE.match(place) is not None


def _none_is_whole(errors: list[str]) -> str:
    text = " ".join(dict.fromkeys(errors))
    return f"Resuming a run: it has checkpoints, and none of them is whole; expected at least one. {text}"
