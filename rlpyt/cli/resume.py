"""Command `rlpyt resume`."""

from __future__ import annotations

from typing import Annotated

from rlpyt.cli.arguments import Modules, Names, Run, Steps, named
from rlpyt.cli.named import recorded_trackers, tracking_of
from rlpyt.cli.next_steps import next_steps
from rlpyt.cli.trained import reading_records
from rlpyt.cli.values import Values
from rlpyt.logging import TensorBoardSink, Verbosity
from rlpyt.runners import MinibatchRlBase
from rlpyt.runners.from_params import read_params


def resume(
    run: Run,
    *,
    n_steps: Steps = None,
    track: Names = (),
    verbosity: Annotated[Verbosity | None, named("{table,lines,quiet}")] = None,
    trust: Modules = (),
) -> int:
    """Go on with a run from its newest checkpoint, to its end.

    Args:
        run: directory of the run, such as data/ppo_CartPole-v1/run_0.
        n_steps: where the run ends now; the default is what it was started with.
        track: trackers of this start, in place of those of rlpyt train; see there.
        verbosity: what is printed: table, lines or quiet; the default is what the run had.
        trust: modules of yours that the settings of the run may name, such as the one of an environment.
    """
    changes: Values = {} if n_steps is None else {"n_steps": n_steps}
    with reading_records(trust):
        params = read_params(run)
        recorded = recorded_trackers(params)
        group = run.resolve().parent.name
        tracking = tracking_of(track or recorded, params.get("name") or group, group, recorded=not track)
        sinks = tracking.sinks
        if tracking.use_summary_writer and "tensorboard" not in recorded:  # else the record lets the run write it
            sinks.append(TensorBoardSink(run))
        runner = MinibatchRlBase.resume(run, trusted=trust, sinks=sinks, verbosity=verbosity, **changes)
    if runner.logger.directory is not None:  # else another process keeps the records
        print(*next_steps(run, str(run)), sep="\n")
    return 0
