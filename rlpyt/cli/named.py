"""Parts that a command line names, with their settings in brackets: hooks of a run, and trackers of its rows.

    StopOnReturn(475)    StopOnReturn(threshold=475,n_rows=2)    Histograms    wandb(project=mine,mode=offline)

A name is one of a table. So a text imports no module of its choice, also where it stands in the record of a run.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from rlpyt.cli.play import drawing_kwargs
from rlpyt.cli.text import did_you_mean
from rlpyt.cli.values import Values, kinds_of, metavar_of, split, value_of
from rlpyt.logging import MlflowSink, Sink, TrackioSink, WandbSink
from rlpyt.runners import Hook, MinibatchRlBase
from rlpyt.samplers import BaseSampler
from rlpyt.settings import hint_of
from rlpyt.utils.packages import optional_package

HOOKS = {"StopOnReturn": "rlpyt.runners", "Histograms": "rlpyt.runners", "EpisodeVideo": "rlpyt.results"}
"""Hook -> module that has it."""
TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")
SERVERS = ("tracking_uri", "space_id", "entity")
"""Settings of trackers that say where rows are sent, or to whom: a record must not choose that."""


class Named(NamedTuple):
    """Name of a part, and what stands in its brackets."""

    name: str
    settings: str


class Tracking(NamedTuple):
    """Destinations of the rows of a run, beside its own files."""

    use_summary_writer: bool
    sinks: list[Sink]
    texts: list[str]
    """Trackers as they were named, for the record."""


def with_hooks(runner: MinibatchRlBase, given: Sequence[str | Hook]) -> MinibatchRlBase:
    """Return the runner with the hooks that are given, most by name; where none is, with those that it has.

    `EpisodeVideo` plays in the environment of the run's evaluations.
    """
    hooks = [hook for hook in given if isinstance(hook, Hook)]
    texts = [text for text in given if isinstance(text, str)]
    for part in _named("--hooks", texts, HOOKS, "StopOnReturn(475,n_rows=2). A hook of your own needs a script"):
        of_run: Values = {}
        if part.name == "EpisodeVideo":
            sampler = vars(runner)["sampler"]
            assert isinstance(sampler, BaseSampler)
            of_run = {"EnvCls": sampler.EnvCls, "env_kwargs": drawing_kwargs(sampler.EnvCls, sampler.evaluation_kwargs)}
        cls = vars(importlib.import_module(HOOKS[part.name]))[part.name]
        hooks.append(cls(**_settings("--hooks", part, cls, of_run)))
    return runner.replace(hooks=hooks) if hooks else runner


def tracking_of(texts: Sequence[str], project: str, group: str, recorded: bool = False) -> Tracking:
    """Return the sinks of the trackers that are named; none is opened yet.

    Args:
        texts: such as "tensorboard" and "wandb(project=mine)".
        project: or experiment of the tracker, where the text names none.
        group: of the tracker's run, where the text names none.
        recorded: whether the texts are those of a record, which may come from elsewhere.
    """
    has_tensorboard, sinks = False, list[Sink]()
    for part in _named("--track", texts, TRACKERS, "wandb(project=mine)"):
        if part.name == "tensorboard":
            if part.settings:
                raise ValueError(f"--track: got tensorboard({part.settings}); expected no settings.")
            optional_package("torch.utils.tensorboard", "--track tensorboard", "tensorboard")
            has_tensorboard = True
        else:
            cls: Any = {"wandb": WandbSink, "mlflow": MlflowSink, "trackio": TrackioSink}[part.name]
            own = {"experiment": project} if part.name == "mlflow" else {"project": project, "group": group}
            sinks.append(cls(**_settings("--track", part, cls, {}, own, recorded)))
    return Tracking(has_tensorboard, sinks, list(texts))


def recorded_trackers(params: Mapping[str, object]) -> tuple[str, ...]:
    """Return the trackers that the params.json of a run names, as texts for `tracking_of`."""
    texts, logger = params.get("track", []), params.get("logger")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the record of the run has {texts!r:.100} under 'track'; expected a list of trackers.")
    has_tensorboard = isinstance(logger, dict) and logger.get("use_summary_writer") is True
    named = [part.name for part in _named("--track", texts, TRACKERS, "wandb(project=mine)")]
    return tuple([*texts, *(["tensorboard"] if has_tensorboard and "tensorboard" not in named else [])])


def _named(option: str, texts: Sequence[str], known: Iterable[str], example: str) -> list[Named]:
    """Return the parts that texts name; several in one text stand between commas."""
    found, known = [], [*known]
    for text in (part.strip() for word in texts for part in split(word)):
        match = re.fullmatch(r"(\w+)\s*(?:\((.*)\))?", text, re.DOTALL)
        if match is None or match[1] not in known:
            hint = did_you_mean(re.split(r"\W", text)[0].replace("_", ""), known, n=1)
            raise ValueError(
                f"{option}: got {text!r}{hint} Expected some of {', '.join(known)}, with settings in brackets where "
                f"there are some, such as {example}."
            )
        found.append(Named(match[1], match[2] or ""))
    return found


def _settings(
    option: str, part: Named, cls: Any, given: Values, defaults: Values | None = None, recorded: bool = False
) -> Values:
    """Return the settings that stand in the brackets of a part: some in the order of the fields, others as key=value.

    `given` are those that a command line does not carry; they are returned, too.
    """
    hints = {f.name: hint_of(cls, f) for f in fields(cls) if f.init and f.name not in given}
    hints = {key: hint for key, hint in hints.items() if kinds_of(hint) - {type(None)}}
    found: Values = {}
    for place, text in enumerate(split(part.settings) if part.settings.strip() else ()):
        key, equals, value = (word.strip() for word in text.partition("="))
        if not equals:
            key, value = [*hints, ""][min(place, len(hints))], text.strip()
        if key not in hints or key in found:
            hint = did_you_mean(key, hints, f"; expected some of {', '.join(hints)}.", n=2)
            raise ValueError(f"{option}: got {text.strip()!r} as a setting of {part.name}{hint}")
        if recorded and key in SERVERS:
            raise ValueError(
                f"the record of the run has {text.strip()!r} for {part.name}; expected no {key}, as a record must not "
                "choose where rows are sent. If it is yours, give --track again, with it."
            )
        try:
            found[key] = value_of(value, kinds_of(hints[key]))
        except ValueError as error:
            raise ValueError(f"{option}: {key} of {part.name}: {error}") from error
    found = {**(defaults or {}), **found}
    needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING and f.name in hints]
    if missing := [key for key in needed if key not in found]:
        example = ",".join(f"{key}={metavar_of(kinds_of(hints[key]), hints[key])}" for key in missing)
        raise ValueError(f"{option}: {part.name} lacks {', '.join(missing)}; expected {part.name}({example}).")
    return {**given, **found}
