"""Rule by which a run computes where it was given no settings: it asks the spaces and the machine, and no clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from rlpyt.core import Agent, example_inputs
from rlpyt.logging import current_logger
from rlpyt.runners.training import Training
from rlpyt.types import Kwargs
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arrays import buffer_to
from rlpyt.utils.compute import ComputeSettings, have_images
from rlpyt.utils.processes import available_cores, available_threads
from rlpyt.utils.seeds import global_streams, set_global_streams


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


def compute_of_run(
    given: ComputeSettings | str | None, training: Training, affinity: Affinity, before: Kwargs | None
) -> ComputeSettings:
    """Return the settings that were given, or those that the rule gives to replica 0, on the device of this one.

    Those of a run that goes on, `before`, are taken if all replicas have cores for them.
    """
    agreement = training.agreement
    if isinstance(given, ComputeSettings):
        return replace(given, device=affinity.device_of_replica(given.device, agreement.replicas.world_size))
    if before and agreement.any(before["torch_threads"] > available_cores()) == [False]:
        return ComputeSettings(**{**before, "device": affinity.device})
    settings = ComputeSettings()
    if agreement.replicas.rank == 0:
        # The process of a sampler without workers counts.
        n_busy = int(str(training.sampler.plan().get("workers", 1))) if training.collecting.apart else 0
        settings = settings_by_rule(training.agent, affinity, n_busy, fastest=given is not None)
    return replace(agreement.broadcast(settings), device=affinity.device)


def settings_by_rule(agent: Agent, affinity: Affinity, n_busy: int = 0, *, fastest: bool = False) -> ComputeSettings:
    """Return the settings for an initialised agent, whose networks may be left in them.

    Networks on images compute in channels-last with a thread for each core that is free, all others with one thread.
    Other processes of the run keep `n_busy` cores busy while this one learns. The precision is float32, or with
    `fastest` bfloat16 for images, where the processor has instructions for it. The device is the affinity's, as are
    threads that it names.
    """
    device, threads = affinity.device, affinity.master_torch_threads
    if not have_images(example_inputs(agent.env_spaces)[0]):
        return ComputeSettings(device=device, torch_threads=threads or 1)
    threads = threads or max(1, available_threads() - n_busy)
    precision = "bfloat16" if fastest and _multiplies_bfloat16(device) else "float32"
    settings = ComputeSettings(device=device, torch_threads=threads, precision=precision, channels_last=True)
    return settings if _can_compute(agent, settings) else replace(settings, channels_last=False)


def _multiplies_bfloat16(device: str) -> bool:
    if device.startswith("cuda"):
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return "bf16" in Path("/proc/cpuinfo").read_text()  # amx_bf16, avx512_bf16; bf16 of ARM


def _can_compute(agent: Agent, settings: ComputeSettings) -> bool:
    """Return whether a pass of the networks works in channels-last; a user's model may not, as one that calls `view`.

    Global streams, and the agent's streams and buffers, stay as they are.
    """
    agent.to_device(replace(settings, channels_last=False))  # before streams are noted: it may start those of a GPU
    streams, rewind = global_streams(), agent.networks.rewinder()
    try:
        agent.to_device(settings)  # fails with weights of five dimensions
        with torch.no_grad():
            agent(*buffer_to(example_inputs(agent.env_spaces, 2), settings.device))
    except Exception as error:
        current_logger().log(
            "Images are computed in torch's plain memory format, as a pass of the network in channels-last raised "
            f"{type(error).__name__}: {error}"
        )
        return False
    finally:
        rewind()
        set_global_streams(streams)
    return True
