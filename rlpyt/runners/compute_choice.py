"""Choice of device, precision, memory format and threads for this machine, by timing updates of the run."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from rlpyt.core import Agent, Algorithm, example_inputs
from rlpyt.logging import silent_context
from rlpyt.runners.rehearsal import network_pass_of, seconds_of, update_of
from rlpyt.runners.training import Training
from rlpyt.types import Kwargs, Run
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.compute import ComputeSettings, have_images
from rlpyt.utils.processes import available_cores, available_threads
from rlpyt.utils.seeds import global_streams, set_global_streams

# Rows that are timed at most: enough that overhead does not decide, few enough that the choice takes a second or two.
_IMAGES, _VECTORS = 128, 1024
_PASS = 128
_WORTH = 1.05  # settings must be faster than the best before by this factor, so that few starts choose otherwise


@dataclass(frozen=True)
class Choice:
    """Settings of a run, and what was timed to choose them."""

    settings: ComputeSettings = field(default_factory=ComputeSettings)
    plan: Mapping[str, str] = field(default_factory=dict)
    """Entry of the plan; none where nothing was timed."""


def compute_of_run(
    given: ComputeSettings | str | None, training: Training, run: Run, affinity: Affinity, before: Kwargs | None
) -> Choice:
    """Return the settings that were given, or that replica 0 measures while the others leave it the cores.

    Args:
        given: settings, "fastest" to time bfloat16 too, or None.
        training: whose agent is initialised, and its algorithm is not.
        run: with the example of a row.
        affinity: of this process.
        before: the settings of a run that goes on, which are taken if all replicas have cores for them.
    """
    if isinstance(given, ComputeSettings):
        return Choice(given)
    agreement = training.agreement
    if before and agreement.any(before["torch_threads"] > available_cores()) == [False]:
        return Choice(ComputeSettings(**{**before, "device": affinity.device}))
    choice = Choice()
    if agreement.replicas.rank == 0:
        n_busy = training.collecting.n_busy(training.sampler)
        of = training.algo, run
        choice = choose_settings(training.agent, affinity, n_busy, of=of, bfloat16=given is not None)
    choice = agreement.broadcast(choice)
    return replace(choice, settings=replace(choice.settings, device=affinity.device))


def choose_settings(
    agent: Agent,
    affinity: Affinity,
    n_busy: int = 0,
    *,
    of: tuple[Algorithm[Agent], Run] | None = None,
    bfloat16: bool = False,
) -> Choice:
    """Return settings for an initialised agent; agent, algorithm and random streams stay as they are.

    Networks on images are timed in both memory formats. Networks on vectors have one thread. A CUDA device is used
    where the affinity names one.

    Args:
        agent: initialised, still on the CPU.
        affinity: its `cuda_idx` and `master_torch_threads` are obeyed.
        n_busy: cores that other processes of the run keep busy while this one learns.
        of: the algorithm, not initialised, and the run, whose updates are timed; None times the network alone.
        bfloat16: whether it is timed too, beside float32.
    """
    images = have_images(example_inputs(agent.env_spaces)[0])
    threads = affinity.master_torch_threads or (max(1, available_threads() - n_busy) if images else 1)
    base = ComputeSettings(device=affinity.device, torch_threads=threads)
    if not images and not bfloat16:
        return Choice(base)
    candidates = {"float32": base}
    if images:
        candidates["channels-last"] = replace(base, channels_last=True)
    if bfloat16:
        candidates["bfloat16"] = replace(base, channels_last=images, precision="bfloat16")
    torch.set_num_threads(threads)
    agent.to_device(base)  # before the streams are noted, as it may start those of a GPU
    with _all_stays(agent), silent_context():
        seconds, what = _timed(agent, list(candidates.values()), of, _IMAGES if images else _VECTORS)
    gc.collect()  # the copies refer to each other: their optimisers and replays would stay beside those of the run
    best, best_seconds, times = base, float("inf"), []
    for (name, settings), x in zip(candidates.items(), seconds, strict=bool(seconds)):
        times.append(f"{name} {1e3 * x:.3g} ms")
        if x * _WORTH < best_seconds:
            best, best_seconds = settings, x
    return Choice(best, {"timed": what + ", ".join(times)})


def _timed(
    agent: Agent, candidates: Sequence[ComputeSettings], of: tuple[Algorithm[Agent], Run] | None, max_rows: int
) -> tuple[list[float], str]:
    """Return the seconds of each of the candidates, none where all attempts failed, and what takes them."""
    device, failed = candidates[0].device, ""
    if of is not None:
        try:
            algo, run = of
            made = [update_of(algo, agent, run, settings, max_rows) for settings in candidates]
            steps = [step for step in made if step is not None]
            if steps:
                return seconds_of([step.take for step in steps], device), f"an update of {steps[0].n_rows:,} rows: "
        except Exception as error:  # what a user's algorithm expects of rows, made-up ones may not have
            failed = f", as an update of made-up rows failed ({_line(error)})"
    try:
        passes = [network_pass_of(agent, settings, _PASS) for settings in candidates]
        return seconds_of(passes, device), f"a pass of the network over {_PASS} rows{failed}: "
    except Exception as error:
        return [], f"nothing, as a pass of the network over null rows failed ({_line(error)})"


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


@contextmanager
def _all_stays(agent: Agent) -> Iterator[None]:
    """Let global streams, and an agent's streams and buffers, stand after the block where they stand before it."""
    before, rewind = global_streams(), agent.networks.rewinder()
    try:
        yield
    finally:
        rewind()  # a hook that is a lambda reaches from a copy of the model back to its original
        set_global_streams(before)
