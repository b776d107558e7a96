"""Checks of the arguments of a runner, and of what a user's own parts return; `runner` is the name of its class."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from rlpyt.core import Agent, Algorithm, EvalResult, Sampler
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.launched import Launched


def check_parts(runner: str, algo: object, agent: object, sampler: object) -> None:
    """Raise TypeError for parts of another kind, or in another order."""
    for name, part, kind in (("algo", algo, Algorithm), ("agent", agent, Agent), ("sampler", sampler, Sampler)):
        if not isinstance(part, kind):
            raise TypeError(
                f"{runner}: {name} is {part!r:.100}; expected an instance of {kind.__name__}. The order is algo, "
                "agent, sampler; each may be given by name."
            )


def check_compute(runner: str, settings: object, device: str) -> None:
    """Raise TypeError for settings that are none, and ValueError where they are by rule for a device that is not there.

    It comes before any worker starts. The device is that of the affinity.
    """
    if not isinstance(settings, ComputeSettings | None) and settings != "fastest":
        raise TypeError(
            f"{runner}: settings is {settings!r:.100}; expected rlpyt.utils.ComputeSettings(...), None, which is by "
            'rule, or "fastest", which also takes bfloat16 for images. Give one.'
        )
    if not isinstance(settings, ComputeSettings):
        ComputeSettings(device=device)


def check_parameters(parameters: object, agent: str) -> None:
    """Raise TypeError if `parameters` of an agent returned a dictionary, of whose keys nothing can be learned."""
    if isinstance(parameters, Mapping):
        raise TypeError(
            f"{agent}.parameters returned a dictionary with the keys {', '.join(map(str, parameters))}; expected an "
            "iterable of tensors. Return all parameters one after the other, and groups of them from a method of "
            "another name, which optim_initialize of the algorithm reads."
        )


def check_evaluation(source: str, result: object) -> None:
    """Raise TypeError if the evaluation of an own sampler returned no `EvalResult`."""
    if not isinstance(result, EvalResult):
        raise TypeError(
            f"{source} returned {result!r:.100}; expected rlpyt.core.EvalResult(traj_infos, steps, unfinished): the "
            "whole episodes, steps taken, and episodes that were cut off. Return one."
        )


def check_launched(runner: str, n_replicas: int, max_time: float) -> None:
    """Raise ValueError for a run that each process of a launcher would make on its own, or torchrun start again."""
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
