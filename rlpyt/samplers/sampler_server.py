"""Server of a sampler's process: it runs the sampler, and sends home what is logged there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Generic, NamedTuple, TypeAlias

import psutil
import torch

from rlpyt.core import Agent, EvalResult, Sampler
from rlpyt.logging import Logger, log_to
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.spaces import EnvSpaces
from rlpyt.types import Run, Samples, StateDict, TrajInfo
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arrays import buffer_func, buffer_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.bell import Bell
from rlpyt.utils.calls import Call, CallServer, R
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import allowed_cpus, available_cpus
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role, global_streams, set_global_streams, set_seed, stream_seed
from rlpyt.utils.shared_memory import shared_array
from rlpyt.utils.watched import Picklable


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
    """Reply to a request for a batch."""

    samples: Samples | None
    """None where they are the rows in shared memory; else the rows that a sampler of the user's has made of them."""
    traj_infos: list[TrajInfo]
    waited: float
    """Seconds between the batch before and this request."""
    hand_over: float
    """Seconds of taking the weights."""
    version: int
    """Of the weights that collected it."""


class Answer(NamedTuple, Generic[R]):
    """Reply to any call."""

    value: R
    texts: list[str]
    """Lines that were logged meanwhile."""


AnyAnswer: TypeAlias = Answer[Picklable]
"""Reply to a call that the caller knows."""
WARNING = "WARNING: "


class SamplerServer(CallServer):
    """Sampler in a process of its own, which answers the requests of a `BackgroundSampler`.

    Args:
        rank: of the process.
        progress: where its life is noted for the process that learns.
        sampler: not initialised.
        agent: not initialised.
    """

    def __init__(self, rank: int, progress: Progress, sampler: Sampler, agent: Agent) -> None:
        self._sampler, self._agent, self._progress = sampler, agent, progress
        self._logger = Logger()
        self._logger.texts = []
        log_to(self._logger)
        self._version: int | None = None  # of the weights that the agent has
        self._bell: Bell | None = None  # rung after every batch, where a copier waits for them
        self._idle_since = perf_counter()
        self._waited = 0.0  # from the end of the last request to the one at hand

    def __call__(self, request: Call[CallServer, R]) -> Answer[R]:  # type: ignore[override]  # with what was logged
        """Answer one request."""
        self._waited = perf_counter() - self._idle_since
        try:
            value = request.on(self)
        except Exception as error:
            for text in self._take_texts():
                error.add_note(f"Logged before: {text}")
            raise
        self._idle_since = perf_counter()
        return Answer(value, self._take_texts())

    def _take_texts(self) -> list[str]:
        texts, self._logger.texts = self._logger.texts, []
        return texts or []

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
        self._agent.__setstate__(vars(agent))  # the sampler holds on to its own agent
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
        if version is None or version != self._version:
            self._version = self._weights.take(self._agent, version)
        assert self._version is not None
        taken = perf_counter() - start
        samples, traj_infos = self._sampler.obtain_samples(itr)
        place = self._places[itr % len(self._places)]
        shared = _addresses(place) == _addresses(samples)
        if self._bell is not None:
            if self._sampler.own_rows:
                for own, leaf in zip(buffer_leaves(place), buffer_leaves(samples), strict=True):
                    own.copy_(leaf)
            elif not shared:
                name = type(self._sampler).__name__
                raise TypeError(
                    f"{name}.obtain_samples returned rows of its own, and the rows in the sampler's memory are what "
                    "another process appends to the replay; expected these. Write own_rows = True into the class, or "
                    "give the runner lag=1 or another number."
                )
            self._bell.ring(itr + 1)
        sent = None if shared or self._bell is not None else numpify_buffer(samples)
        return Batch(sent, list(traj_infos), self._waited, taken, self._version)

    def ring(self, bell: Bell) -> list[Samples] | None:
        """Ring a bell after every batch from now on; return where others then read it, if not in the places.

        Rows that a sampler of the user's makes itself lie apart, as the next batch begins with the last row of a place.
        """
        self._bell = bell
        if not self._sampler.own_rows:
            return None
        batches = [buffer_func(samples, lambda x: shared_array(x.shape, x.dtype)) for samples in self._sampler.batches]
        self._places = [torchify_buffer(samples) for samples in batches]
        return batches

    def evaluate(self, itr: int, version: int, deterministic: bool) -> EvalResult:
        """Run whole episodes with a version of the weights."""
        self._weights.take(self._agent, version)
        self._version = None  # the learner may publish other weights under the same number
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
