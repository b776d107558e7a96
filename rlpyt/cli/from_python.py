"""`rlpyt.train`: a run with the settings of the command line, as one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from rlpyt.cli.choices import TrainChoices, choices_with
from rlpyt.cli.environment import environment
from rlpyt.cli.train import check_names, new_start, run, updated
from rlpyt.runners import MinibatchRlBase
from rlpyt.settings import Settings


def train(
    algorithm: str,
    env: str | Callable[..., object],
    /,
    *,
    n_steps: float | None = None,
    seed: int | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    algo: Mapping[str, object] | Settings | None = None,
    agent: Mapping[str, object] | Settings | None = None,
    sampler: Mapping[str, object] | Settings | None = None,
    **settings: Any,
) -> MinibatchRlBase:
    """Train an agent as `rlpyt train ALGORITHM ENV` does, and return the runner of the finished run.

        runner = rlpyt.train("ppo", "CartPole-v1", n_steps=5e4, algo=dict(learning_rate=3e-4))
        runner.agent.play(gymnasium.make("CartPole-v1", render_mode="human"))

    Settings that are not given are those of the command line for this algorithm and environment. Settings have the
    names and the nesting of params.json. What the run wrote is in `runner.logger.directory`.

    Args:
        algorithm: such as "ppo", "dqn" or "sac"; `rlpyt algos` lists them.
        env: an id of gymnasium, a game of Atari such as "pong", a task such as "dm_control/cheetah-run", or a class or
            function of yours that makes an environment. `rlpyt envs` lists the names.
        n_steps: environment steps of the run.
        seed: of all random streams; None draws one.
        log_dir: folder of the run, which is run_<ID> in it; None is data/<algorithm>_<env>.
        env_kwargs: further arguments of the environment.
        algo: settings of the algorithm to change, such as `dict(learning_rate=3e-4)`, or an algorithm of yours.
        agent: settings of the agent to change, such as `dict(model_kwargs=dict(hidden_sizes=(64, 64)))`, or an agent.
        sampler: settings of the sampler to change, such as `dict(batch_T=64, batch_B=16)`, or a sampler.
        **settings: further settings of the runner, such as `hooks` or `log_interval_steps`, and further options of
            `rlpyt train`, such as `evaluate=True`, `device="cuda:0"`, `sampler_type="cpu"`, `replicas=2`, `lag=1`,
            `run_id="first"`, `resume="auto"` or `smoke=True`. Where workers step the environments, as they do for games
            of Atari, the script calls this under `if __name__ == "__main__":`.

    Returns:
        The runner, with the trained agent as `runner.agent`.

    Raises:
        ValueError: if there is no such algorithm or environment, they do not fit, or a value is refused.
        TypeError: if a setting has an unknown name, or an argument is of another kind.
        RunDirectoryError: if the directory is in use by another run.
    """
    if not isinstance(algorithm, str) or not (isinstance(env, str) or callable(env)):
        raise TypeError(
            f"rlpyt.train: got {algorithm!r:.100} and {env!r:.100}; expected the name of an algorithm, and of an "
            'environment or a class or function that makes one. Write rlpyt.train("ppo", "CartPole-v1"); an algorithm '
            "of your own is the argument algo, and an environment of your own its class."
        )
    options = [f.name for f in fields(TrainChoices)]
    given = {"n_steps": n_steps, "log_dir": None if log_dir is None else os.fspath(log_dir), **settings}
    choices = choices_with(TrainChoices(), given, "rlpyt.train")
    own = {name: x for name, x in settings.items() if name not in options}
    parts = {"algo": algo, "agent": agent, "sampler": sampler}
    changes = {name: part for name, part in parts.items() if isinstance(part, Mapping)}
    whole = {name: x for name, x in {**parts, "seed": seed}.items() if x is not None and name not in changes}

    def changed(runner: MinibatchRlBase) -> MinibatchRlBase:
        check_names(runner, own, options, "rlpyt.train", "{part}=dict({name}=...)")
        return updated(runner, changes).replace(**whole, **own)

    start = new_start(algorithm, environment(env, dict(env_kwargs or {})), choices, changed)
    run(start)
    return start.runner
