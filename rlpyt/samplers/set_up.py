"""Set-up of a sampler between its check and its work: what is said, what a row is like, and its memory."""

from __future__ import annotations

import warnings

from gymnasium.spaces import Box

from rlpyt.core import Agent
from rlpyt.envs import info_recorder
from rlpyt.logging import Logger, current_logger
from rlpyt.logging.space_record import record_spaces
from rlpyt.samplers.buffer import Rows, allocate_rows, example_of
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import FleetRole, FleetSpec, Specs
from rlpyt.types import BatchSpec, Run, Samples

_LONG_SECONDS = 5.0  # without a word; more is announced


def tell_check(check: Check, spec: FleetSpec) -> None:
    """Log what the check has found, and how long the random steps before the first batch take, if it is long.

    Args:
        check: of the environments.
        spec: of those of training.
    """
    logger = current_logger()
    for text in check.examples.advice.values():
        _advise(logger, text)
    if spec.evaluates and check.why_not_set_back:
        logger.log(
            "Evaluations reset their environments, and do not set them back to how they were built. "
            f"{check.why_not_set_back} What it keeps through a reset with a seed, such as running statistics of a "
            "wrapper, goes on from one evaluation to the next, and begins anew where the run is resumed."
        )
    most = spec.max_decorrelation_steps
    # One after the other in a process, with as many steps as are drawn for each; a vector environment steps all.
    n_envs = check.most_in_a_process or len(spec.env_ranks)
    n_steps = most if check.steps_all else n_envs * most / 2
    if (seconds := n_steps * check.examples.step_seconds) > _LONG_SECONDS:
        logger.log(
            f"Before the first batch every environment takes 1 to {most} random steps (max_decorrelation_steps), "
            f"so that their episodes do not end together: about {seconds:.0f} s. 0 turns this off."
        )


def make_example(agent: Agent, check: Check, spec: FleetSpec) -> Samples:
    """Initialise the agent for the spaces, and return one row of the samples.

    Args:
        agent: not initialised yet.
        check: of the environments.
        spec: of those of training.
    """
    env = check.examples
    agent.initialize(env.spaces)
    record_spaces(env.spaces)
    recorder = info_recorder(spec.env_info_keys, env.info, env.ignored_info)
    if recorder.notice:
        current_logger().log(f"{recorder.notice} Name what is wanted in env_info_keys.")
    action = env.spaces.action
    if isinstance(action, Box) and not ((action.low == -1).all() and (action.high == 1).all()):
        text = f"Agents of rlpyt scale actions to the bounds of {action}: an environment must not scale them again."
        current_logger().log(text)
    return example_of(agent, env.spaces, recorder.example)


def allocate_fleets(
    example: Samples, specs: Specs, run: Run, batch_spec: BatchSpec, shares_memory: bool
) -> dict[FleetRole, Rows]:
    """Allocate the rows of every fleet.

    Args:
        example: one row.
        specs: of the fleets.
        run: says how many batches there are, and what they record.
        batch_spec: of a batch.
        shares_memory: whether other processes write the rows.
    """
    train = allocate_rows(
        example,
        *batch_spec,
        bootstrap_value=run.bootstrap_value,
        bootstrap_inputs=run.bootstrap_inputs,
        share_memory=shares_memory or run.share_memory,
        n_places=run.n_batches,
    )
    rows = {FleetRole.TRAIN: train}
    if FleetRole.EVAL in specs:
        example = example._replace(env=example.env._replace(env_info=None))
        n_envs = len(specs[FleetRole.EVAL].env_ranks)
        rows[FleetRole.EVAL] = allocate_rows(example, 1, n_envs, share_memory=shares_memory)
    return rows


def _advise(logger: Logger, text: str) -> None:
    """Warn in the log; where a script has none, as Python does, unless a package has made warnings errors."""
    if logger.directory is None and not logger.is_silent:
        try:
            warnings.warn(text, stacklevel=2)
            return
        except UserWarning:
            pass
    logger.warn(text)
