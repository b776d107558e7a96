"""Server of a sampler's process: it runs the sampler, and sends home what is logged there."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import ClassVar, Generic, NamedTuple, TypeAlias

import psutil
import torch

from rlpyt.core import Agent, EvalResult
from rlpyt.logging import Logger, log_to
from rlpyt.samplers.traj_state import TrajKeeper
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

_BEAT_SECONDS = 0.5


class MovableSampler(TrajKeeper):
    """Sampler that may run in a process of its own."""

    acts_here: ClassVar[bool] = True
    """Whether this process runs the network, and not workers alone."""
    why_not_set_back: str | None = None
    """Why evaluation environments cannot be set back to how they were built; known after `initialize`."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether there are environments: after `initialize`, until `shutdown`."""

    def __getstate__(self) -> dict[str, object]:
        """Refuse to copy a sampler that runs: a copy's batches would be other memory than its environments step in."""
        if self.running:
            raise TypeError(
                f"{type(self).__name__}: it was to be copied or pickled while it runs; expected that before initialize "
                "or after shutdown. To go on twice from here, set up new parts and load the state_dict() of each."
            )
        return vars(self)

    @property
    def process_start_method(self) -> str:
        """How the process is started: "forkserver", "spawn" or "fork"."""
        return "forkserver"

    @property
    def stall_seconds(self) -> float:
        """Seconds without progress after which the process counts as lost."""
        return 300.0

    @property
    def returns_its_places(self) -> bool:
        """Whether `obtain_samples` returns the rows of `batches` as they are, and makes none of its own."""
        return False

    def note_progress(self, progress: Progress) -> bool:
        """Note the environment and row at hand there from now on; return False if that is not possible.

        A sampler with workers watches them itself, and has no need of it.
        """
        return False


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


class _Texts(Logger):
    """Logger that keeps its texts until they are sent home."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []

    def log(self, text: str, with_prefix: bool = True) -> None:
        """Keep a text."""
        self._texts.append(text)

    def warn(self, text: str) -> None:
        """Keep a warning, by which `BackgroundSampler` knows it again."""
        self._texts.append(f"{WARNING}{text}")

    def take(self) -> list[str]:
        """Return the texts since the last call."""
        texts, self._texts = self._texts, []
        return texts


class SamplerServer(CallServer):
    """Sampler in a process of its own, which answers the requests of a `BackgroundSampler`.

    Args:
        rank: of the process.
        progress: where its life is noted for the process that learns.
        sampler: not initialised.
        agent: not initialised.
    """

    def __init__(self, rank: int, progress: Progress, sampler: MovableSampler, agent: Agent) -> None:
        self._sampler, self._agent = sampler, agent
        self._logger = _Texts()
        log_to(self._logger)
        self._version: int | None = None  # of the weights that the agent has
        self._bell: Bell | None = None  # rung after every batch, where a copier waits for them
        self._idle_since = perf_counter()
        self._waited = 0.0  # from the end of the last request to the one at hand
        if not sampler.note_progress(progress):
            threading.Thread(target=_beat, args=(progress,), daemon=True).start()

    def __call__(self, request: Call[CallServer, R]) -> Answer[R]:  # type: ignore[override]  # with what was logged
        """Answer one request."""
        self._waited = perf_counter() - self._idle_since
        try:
            value = request.on(self)
        except Exception as error:
            for text in self._logger.take():
                error.add_note(f"Logged before: {text}")
            raise
        self._idle_since = perf_counter()
        return Answer(value, self._logger.take())

    def initialize(self, run: Run) -> Description:
        """Build the environments; return what there is to know of them."""
        # Users' code may draw from the global generators; those of the process that learns have the seed of the run.
        set_seed(stream_seed(run.seed, Role.SAMPLER, run.rank))
        sampler = self._sampler
        example = sampler.initialize(self._agent, run)
        cores = Affinity.from_mapping(run.affinity)
        torch.set_num_threads(cores.master_torch_threads or 1)
        if cores.set_affinity and cores.master_cpus:  # after the workers have started, which would inherit it
            cpus = allowed_cpus(cores.master_cpus, "affinity's master_cpus of the sampler")
            psutil.Process().cpu_affinity(cpus or available_cpus())
        self._places: list[Samples] = [torchify_buffer(samples) for samples in sampler.batches]
        spaces, plan = self._agent.env_spaces, dict(sampler.plan())
        traj_info = sampler.new_traj_info()
        return Description(example, spaces, sampler.batches, traj_info, plan, sampler.why_not_set_back)

    def act(self, weights: WeightStore, compute: ComputeSettings) -> None:
        """Act by these weights from now on, and compute as the agent of the run, which is placed now."""
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
        shared = self._bell is not None or _addresses(place) == _addresses(samples)
        if self._bell is not None:
            if not self._sampler.returns_its_places:
                for own, leaf in zip(buffer_leaves(place), buffer_leaves(samples), strict=True):
                    own.copy_(leaf)
            self._bell.ring(itr + 1)
        return Batch(None if shared else numpify_buffer(samples), list(traj_infos), self._waited, taken, self._version)

    def ring(self, bell: Bell) -> list[Samples] | None:
        """Ring a bell after every batch from now on; return where others then read it, if not in the places.

        Rows that a sampler of the user's makes itself lie apart, as the next batch begins with the last row of a place.
        """
        self._bell = bell
        if self._sampler.returns_its_places:
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


def _beat(progress: Progress) -> None:
    """Show that this process is not stopped, for ever."""
    beat = threading.Event()
    while True:
        progress.episodes += 1
        beat.wait(_BEAT_SECONDS)
