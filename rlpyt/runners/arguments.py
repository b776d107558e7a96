"""Checks of the arguments of a runner, and of the results of the user's own parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from numbers import Real

from rlpyt.core import Agent, Algorithm, EvalResult, Sampler
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.launched import Launched


def check_parts(runner: str, algo: object, agent: object, sampler: object) -> None:
    """Refuse parts of another kind, or in another order.

    Raises:
        TypeError: if a part is of another kind.
    """
    for name, part, kind in (("algo", algo, Algorithm), ("agent", agent, Agent), ("sampler", sampler, Sampler)):
        if not isinstance(part, kind):
            raise TypeError(
                f"{runner}: {name} is {part!r:.100}; expected an instance of {kind.__name__}. The order is algo, "
                "agent, sampler; each may be given by name."
            )


def check_numbers(runner: str, n_steps: float, log_interval_steps: float, seed: float | None) -> None:
    """Refuse numbers that are too small, not finite or not whole.

    Raises:
        ValueError: if a number is out of range.
        TypeError: if a value is no number.
    """
    for name, value in (("n_steps", n_steps), ("log_interval_steps", log_interval_steps), ("seed", seed)):
        if not isinstance(value, Real) and not (name == "seed" and value is None):
            raise TypeError(f"{runner}: {name} is {value!r}; expected a number.")
    for name, steps, most in (("n_steps", n_steps, 2**62), ("log_interval_steps", log_interval_steps, inf)):
        if not 1 <= steps <= most:
            raise ValueError(f"{runner}: {name} is {steps!r}; expected a number of steps from 1.")
    if seed is not None and not (seed >= 0 and seed % 1 == 0):
        raise ValueError(f"{runner}: seed is {seed!r}; expected a whole number from 0, or None for one that is drawn.")


def check_compute(runner: str, settings: object, device: str) -> None:
    """Refuse settings of the computation of another kind, and a device that is not there, before any worker starts.

    Args:
        runner: name of its class, for messages.
        settings: as they were given.
        device: of the affinity, where they are chosen.

    Raises:
        TypeError: if the settings are none.
        ValueError: if the device is not there.
    """
    if not isinstance(settings, ComputeSettings | None) and settings != "fastest":
        raise TypeError(
            f"{runner}: settings is {settings!r:.100}; expected rlpyt.utils.ComputeSettings(...), None, which is by "
            'rule, or "fastest", which also takes bfloat16 for images. Give one.'
        )
    if not isinstance(settings, ComputeSettings):
        ComputeSettings(device=device)


def check_positions(runner: str, args: Sequence[object]) -> None:
    """Refuse a number in the place of the algorithm, where rlpyt 0.1 had `log_traj_window`.

    Raises:
        TypeError: if the first argument is a number.
    """
    if args and isinstance(args[0], Real):
        raise TypeError(
            f"{runner}: got {args[0]!r} without a name; expected algo, agent, sampler and n_steps in this order. Write "
            f"log_traj_window={args[0]!r}, which was the first argument in rlpyt 0.1."
        )


def check_parameters(parameters: object, agent: str) -> None:
    """Refuse what `parameters` of an agent returned if it is a dictionary, of whose keys nothing can be learned.

    Args:
        parameters: as it was returned.
        agent: name of the agent's class, for messages.

    Raises:
        TypeError: if it is one.
    """
    if isinstance(parameters, Mapping):
        raise TypeError(
            f"{agent}.parameters returned a dictionary with the keys {', '.join(map(str, parameters))}; expected an "
            "iterable of tensors. Return all parameters one after the other, and groups of them from a method of "
            "another name, which optim_initialize of the algorithm reads."
        )


def check_evaluation(source: str, result: object) -> None:
    """Refuse the result of an own sampler's evaluation if it is no `EvalResult`.

    Raises:
        TypeError: if it is another type.
    """
    if not isinstance(result, EvalResult):
        raise TypeError(
            f"{source} returned {result!r:.100}; expected rlpyt.core.EvalResult(traj_infos, steps, unfinished): the "
            "whole episodes, steps taken, and episodes that were cut off. Return one."
        )


def check_launched(runner: str, n_replicas: int, max_time: float) -> None:
    """Refuse a run that the launcher which has started this process, if one has, would repeat.

    Args:
        runner: name of its class, for messages.
        n_replicas: of the run.
        max_time: minutes after which it ends to go on later; inf for none.

    Raises:
        ValueError: if each of the launcher's processes would make the same run on its own, or if torchrun would start
            the run again at the end of its time.
    """
    launched = Launched.from_environment()
    if launched is None:
        return
    if launched.world_size > 1 and n_replicas == 1:
        raise ValueError(
            f"{runner}: this is process {launched.rank} of {launched.world_size} of a launcher such as torchrun "
            "(RANK and WORLD_SIZE are set), and each would train alone, with the same results. Use SyncRl or "
            "SyncRlEval, whose replicas they become, or start the script without the launcher."
        )
    if launched.max_restarts > 0 and max_time < inf:
        raise ValueError(
            f"{runner}: max_time is {max_time:g}, and torchrun has --max-restarts={launched.max_restarts}; expected "
            "one of them. At the end of its time a run ends with exit code 85, which torchrun takes for a failure: it "
            "would start the run again, for max_time more. Leave --max-restarts out, or max_time."
        )
