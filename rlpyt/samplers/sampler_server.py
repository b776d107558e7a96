"""Server of a sampler's process: it runs the sampler, and sends home what is logged there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple, TypeAlias

import psutil
import torch

from rlpyt.core import Agent, EvalResult, Sampler
from rlpyt.logging import Logger, log_to
from rlpyt.namedarraytuple import Buffer
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.spaces import EnvSpaces
from rlpyt.types import Run, Samples, StateDict, TrajInfo
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arrays import buffer_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.bell import Bell
from rlpyt.utils.calls import Call, CallServer, R
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import allowed_cpus, available_cpus
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role, global_streams, set_global_streams, set_seed, stream_seed


class ProcessSettings(NamedTuple):
    """Settings by which a process with a sampler is started and watched."""

    start_method: str = "forkserver"
    """"forkserver", "spawn" or "fork"."""
    stall_seconds: float = 300.0
    """Seconds without progress after which the process counts as lost."""
    acts_here: bool = True
    """Whether it runs the network, and not workers alone."""


class Description(NamedTuple):
    """Facts of a sampler that was initialised in another process."""

    example: Samples
    env_spaces: EnvSpaces
    batches: Sequence[Samples]
    traj_info: TrajInfo
    """One that has not begun."""
    plan: Mapping[str, object]
    why_not_set_back: str | None


class Batch(NamedTuple):
    """Batch that was collected in another process."""

    samples: Buffer
    """In a reply None where they are the rows in shared memory; else the rows that a sampler of the user's has made."""
    traj_infos: list[TrajInfo]
    waited: float
    """Seconds between the batch before and this request."""
    hand_over: float
    """Seconds of taking the weights."""
    version: int
    """Of the weights that collected it."""


Answer: TypeAlias = tuple[R, list[str]]
"""Reply to any call, and the lines that were logged meanwhile."""
WARNING = "WARNING: "


class SamplerServer(CallServer):
    """Sampler in a process of its own, which answers the requests of a `BackgroundSampler`.

    Args:
        rank: of the process.
        progress: where its life is noted for the process that learns.
        sampler: not initialised.
        agent: not initialised.
        bell: rung after every batch, where a copier waits for them.
    """

    def __init__(self, rank: int, progress: Progress, sampler: Sampler, agent: Agent, bell: Bell | None = None) -> None:
        self._sampler, self._agent, self._progress, self._bell = sampler, agent, progress, bell
        self._logger = Logger()
        self._logger.texts = []
        log_to(self._logger)
        self._idle_since = perf_counter()
        self._waited = 0.0  # from the end of the last request to the one at hand

    def __call__(self, request: Call[CallServer, R]) -> Answer[R]:  # type: ignore[override]  # with what was logged
        """Answer one request."""
        self._waited = perf_counter() - self._idle_since
        try:
            return request.on(self), self._logger.texts or []
        except Exception as error:
            for text in self._logger.texts or []:
                error.add_note(f"Logged before: {text}")
            raise
        finally:
            self._logger.texts = []
            self._idle_since = perf_counter()

    def initialize(self, run: Run) -> Description:
        """Build the environments; return what there is to know of them."""
        # Users' code may draw from the global generators; those of the process that learns have the seed of the run.
        set_seed(stream_seed(run.seed, Role.SAMPLER, run.rank))
        sampler = self._sampler
        example = sampler.initialize(self._agent, replace(run, progress=self._progress))
        cores = Affinity.from_mapping(run.affinity)
        torch.set_num_threads(cores.master_torch_threads or 1)
        if cores.set_affinity and cores.master_cpus:  # after the workers have started, which would inherit it
            cpus = allowed_cpus(cores.master_cpus, "affinity's master_cpus of the sampler")
            psutil.Process().cpu_affinity(cpus or available_cpus())
        self._places: list[Samples] = [torchify_buffer(samples) for samples in sampler.batches]
        spaces, plan = self._agent.env_spaces, dict(sampler.plan())
        traj_info = sampler.new_traj_info()
        return Description(example, spaces, sampler.batches, traj_info, plan, sampler.why_not_set_back)

    def act(self, agent: Agent, weights: WeightStore, compute: ComputeSettings) -> None:
        """Act as the agent of the run, which is placed now, with all that its copy has, and by these weights."""
        for name, value in vars(agent).items():  # the sampler holds on to its own agent
            setattr(self._agent, name, value)
        self._weights = weights
        self._agent.to_device(compute)

    def diagnostics(self) -> Mapping[str, float]:
        """Return the sampler's own columns of the log."""
        return self._sampler.diagnostics()

    def state_dict(self) -> StateDict:
        """Return the state of the sampler and of this process's generators."""
        return {**self._sampler.state_dict(), "process": global_streams()}

    def why_no_state(self) -> str | None:
        """Return why training environments have no state; None if they have one."""
        return self._sampler.why_no_state()

    def collect(self, itr: int, version: int | None) -> Batch:
        """Collect the batch of an iteration.

        Args:
            itr: iteration.
            version: of the weights; None is the newest.
        """
        start = perf_counter()
        version = self._weights.take(self._agent, version)
        taken = perf_counter() - start
        samples, traj_infos = self._sampler.obtain_samples(itr)
        sent = None if _addresses(self._places[itr % len(self._places)]) == _addresses(samples) else samples
        if self._bell is not None:
            if sent is not None:
                raise TypeError(
                    f"{type(self._sampler).__name__}.obtain_samples returned rows of its own, and the rows in the "
                    'sampler\'s memory are what another process appends to the replay with lag="free"; expected these. '
                    "Give the runner lag=1, or another number."
                )
            self._bell.ring(itr + 1)
        return Batch(sent and numpify_buffer(sent), list(traj_infos), self._waited, taken, version)

    def evaluate(self, itr: int, version: int, deterministic: bool) -> EvalResult:
        """Run whole episodes with a version of the weights."""
        self._weights.take(self._agent, version)
        # A method of the user's may lack the argument, and needs none where nothing is asked of it.
        return self._sampler.evaluate_agent(itr, **({"deterministic": True} if deterministic else {}))

    def load_state_dict(self, state_dict: StateDict) -> int:
        """Let the sampler go on, and last the global generators; return how many episodes ended by that."""
        self._sampler.load_state_dict(state_dict)
        set_global_streams(state_dict["process"])
        return self._sampler.n_cut_episodes

    def close(self) -> None:
        """Close environments and workers."""
        self._sampler.shutdown()


def _addresses(samples: Samples) -> list[int]:
    return [leaf.data_ptr() for leaf in buffer_leaves(samples)]
