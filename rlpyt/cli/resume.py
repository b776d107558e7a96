"""Command `rlpyt resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from rlpyt.cli.arguments import Modules, Steps
from rlpyt.cli.trained import reading_records
from rlpyt.cli.values import Values
from rlpyt.runners import MinibatchRlBase


def resume(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    n_steps: Steps = None,
    trust: Modules = (),
) -> int:
    """Go on with a run from its newest checkpoint, to its end.

    Args:
        run: directory of the run, such as data/ppo_CartPole-v1/run_0.
        n_steps: where the run ends now; the default is what it was started with.
        trust: modules of yours that the settings of the run may name, such as the one of an environment.
    """
    changes: Values = {} if n_steps is None else {"n_steps": n_steps}
    with reading_records(trust):
        MinibatchRlBase.resume(run, trusted=trust, **changes)
    return 0
