"""A trained agent from the directory of its run: settings of params.json, spaces, and the newest weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rlpyt.core import Agent
from rlpyt.logging import SnapshotError, current_logger, load_snapshot
from rlpyt.logging.checkpoint_files import CheckpointFiles
from rlpyt.logging.segments import CheckpointError
from rlpyt.logging.space_record import Json, unrecorded_in
from rlpyt.run_records import CHECKPOINTS, refuse_link
from rlpyt.runners.from_params import Reader, RecordError, compare_versions, read_params
from rlpyt.spaces import EnvSpaces
from rlpyt.types import StateDict
from rlpyt.utils.compute import ComputeSettings

_WEIGHTS = {"unrecorded": "weights"}


class _Found(NamedTuple):
    """State of an agent in a file."""

    file: Path
    step: float
    state: StateDict


def load_agent(
    path: str | os.PathLike[str],
    *,
    snapshot: str | None = None,
    device: str = "cpu",
    env_spaces: EnvSpaces | None = None,
    known: Iterable[object] = (),
    trusted: Iterable[str] = (),
    **changes: object,
) -> Agent:
    """Return the agent of a run, ready for `play`, `step`, `rlpyt.samplers.evaluate` or `rlpyt.agents.export_policy`.

        agent = load_agent("data/run_0")
        agent.eval_mode(0, deterministic=True)
        action = agent.step(observation, None, None).action

    Without `eval_mode` the first `step` acts as after `eval_mode(0)`. No environment is made, and no code of the files
    is run: see `runner_from_params`. Networks compute in float32.

    Args:
        path: the directory of the run.
        snapshot: a file in it, such as "itr_99.pkl", or "best" for the checkpoint with the best evaluation. None takes
            the newest snapshot, or the newest checkpoint where that is newer.
        device: where the networks are, such as "cuda:0".
        env_spaces: of the environments; None takes those of params.json.
        known: classes and functions of yours that the record of the agent may name, such as the class of its model.
        trusted: modules of yours that may be imported; see `runner_from_params`.
        **changes: settings of the agent by name, instead of those recorded, such as `eps_eval=0.0`.

    Raises:
        FileNotFoundError: if there is no run, or neither snapshot nor checkpoint.
        RecordError: if params.json is damaged or incomplete, or has names that are not trusted.
        SnapshotError: if the snapshot is damaged.
        CheckpointError: if the best checkpoint is damaged.
        ValueError: if the weights do not fit.
    """
    params = read_params(path, "load_agent")
    directory = Path(path) if Path(path).is_dir() else Path(path).parent
    reader = Reader(known, trusted, "load_agent")
    found = _find(directory, snapshot)  # first: a run that has failed has neither weights nor spaces
    spaces = env_spaces or _spaces(reader, params.get("spaces"), directory)
    agent = _agent(reader, params["runner"]["settings"].get("agent"), found.state, changes)
    try:
        agent.initialize(spaces)
    except Exception as error:  # of a model, whose settings the record has
        raise RecordError(
            f"load_agent: the {type(agent).__name__} that {directory / 'params.json'} describes cannot be built for "
            f"{spaces}: {type(error).__name__}: {error}"
        ) from error
    try:
        agent.load_state_dict(found.state)
    except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"load_agent: the weights of {found.file} do not fit the {type(agent).__name__} that params.json describes "
            f"for {spaces}; expected those of this agent. Were settings changed, or other env_spaces given? {error}"
        ) from error
    agent.to_device(ComputeSettings(device=device))
    compare_versions(params.get("versions"))
    return agent


def _agent(reader: Reader, record: Json, state: StateDict, changes: Mapping[str, object]) -> Agent:
    """Return the agent of a record, which is not initialised."""
    record = record if isinstance(record, dict) else {}
    settings = record.get("settings")
    # An agent that began with given weights acts by them before its first update.
    given = [name for name, x in settings.items() if x == _WEIGHTS] if isinstance(settings, dict) else []
    weights = {name: state if name == "initial_model_state_dict" else None for name in given}
    agent = reader.part(record, "", {**weights, **changes})
    if not isinstance(agent, Agent):
        raise RecordError(f"load_agent: params.json has the record of a {type(agent).__name__}; expected an agent's.")
    return agent


def _spaces(reader: Reader, recorded: Json, directory: Path) -> EnvSpaces:
    recorded = recorded if isinstance(recorded, dict) else {"unrecorded": "there is no entry of them"}
    what = unrecorded_in(recorded)
    if what is not None:
        raise RecordError(
            f"load_agent: {directory / 'params.json'} does not have the spaces of the environments ({what}); expected "
            "them to be given. Write load_agent(..., env_spaces=make_env(EnvCls, env_kwargs).spaces), with make_env of "
            "rlpyt.envs."
        )
    return EnvSpaces(*(reader.value(recorded.get(name), f"spaces.{name}") for name in ("observation", "action")))


def _find(directory: Path, snapshot: str | None) -> _Found:
    """Return the state in a file, of the best checkpoint, or after the most steps."""
    files = CheckpointFiles(directory / CHECKPOINTS)
    if snapshot == "best":
        best = files.best()
        if best is None:
            raise FileNotFoundError(
                f"load_agent: {directory} has no checkpoint with a score; expected one, as a run that evaluates keeps "
                "it. Name a snapshot, or leave it out for the newest."
            )
        return _checkpoint(files, best)
    if snapshot is not None:
        return _snapshot(directory / snapshot)
    numbered = {int(file.stem[4:]): file for file in directory.glob("itr_*.pkl") if file.stem[4:].isdecimal()}
    snapshots = [numbered[max(numbered)]] if numbered else []
    if (directory / "params.pkl").is_file():
        snapshots.append(directory / "params.pkl")
    found = max(map(_snapshot, snapshots), key=lambda x: x.step, default=None)
    for step in files.steps():
        if found is not None and step <= found.step:
            break
        try:
            return _checkpoint(files, step)
        except CheckpointError as error:
            current_logger().warn(f"The checkpoint of step {step:,} is damaged; the one before is taken. {error}")
    if found is None:
        raise FileNotFoundError(
            f"load_agent: {directory} has no params.pkl, itr_<N>.pkl or checkpoint; expected one of them. Was the "
            "run's snapshot_mode 'none', or did it end before the first row of its log?"
        )
    return found


def _snapshot(file: Path) -> _Found:
    refuse_link(file)
    content = load_snapshot(file)
    state = content.get("agent_state_dict") if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping):
        raise ValueError(f"load_agent: {file} has no 'agent_state_dict'; expected a snapshot of a run of this version.")
    steps = content.get("cum_steps", 0)
    if not isinstance(steps, int | float):
        raise SnapshotError(f"load_agent: {file} has 'cum_steps' {steps!r:.100}; expected a number.")
    return _Found(file, steps, dict(state))


def _checkpoint(files: CheckpointFiles, step: int) -> _Found:
    saved = files.read(step, with_rings=False)  # rows of a replay may be gigabytes
    state = saved.state.get("agent")
    if not isinstance(state, dict):
        raise CheckpointError(f"load_agent: {files.place(step)} has no state of an agent; expected that of a run.")
    return _Found(files.place(step), step, state)
