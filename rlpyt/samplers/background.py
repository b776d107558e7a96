"""Sampler in a process of its own, which collects the next batches while this one learns from the last.

Batch i + lag is collected with version i of the weights, those after i iterations of learning. So up to `lag` requests
wait in the pipe, and lag + 1 versions of the weights and lag + 1 batches lie in shared memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple, TypeAlias

import psutil
import torch

from rlpyt.core import Agent, EvalResult, EvaluatorBeside, Sampler
from rlpyt.logging import Logger, current_logger, log_to
from rlpyt.logging.space_record import record_spaces
from rlpyt.namedarraytuple import Buffer
from rlpyt.samplers.states import TypedTrajStates
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.spaces import EnvSpaces
from rlpyt.types import Kwargs, Run, Samples, StateDict, TrajInfo
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arrays import buffer_func, buffer_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.bell import Bell
from rlpyt.utils.calls import Call, CallServer, R, call
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.coupling import Coupling
from rlpyt.utils.processes import Worker, allowed_cpus, available_cpus, receive_all, receive_ready, stop_workers
from rlpyt.utils.progress import Progress
from rlpyt.utils.rw_lock import NoLock
from rlpyt.utils.seeds import Role, global_streams, set_global_streams, set_seed, stream_seed
from rlpyt.utils.watched import Picklable

_START_SECONDS = 600.0  # without progress, while environments are built and workers start
_WARNING = "WARNING: "


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


class SamplerServer(CallServer):
    """Server of a process that runs a sampler, which is not initialised, as is the agent; it sends home what is logged.

    It rings the bell after every batch, where a copier waits for them.
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
        """Collect the batch of an iteration with a version of the weights; None is the newest."""
        start = perf_counter()
        version = self._weights.take(self._agent, version)
        taken = perf_counter() - start
        samples, traj_infos = self._sampler.obtain_samples(itr)
        is_shared = _addresses(samples) == _addresses(self._places[itr % len(self._places)])
        if self._bell is not None:
            if not is_shared:
                raise TypeError(
                    f"{type(self._sampler).__name__}.obtain_samples returned rows of its own, and the rows in the "
                    'sampler\'s memory are what another process appends to the replay with lag="free"; expected these. '
                    "Give the runner lag=1, or another number."
                )
            self._bell.ring(itr + 1)
        sent = None if is_shared else numpify_buffer(samples)
        return Batch(sent, list(traj_infos), self._waited, taken, version)

    def evaluate(self, itr: int, version: int, deterministic: bool) -> EvalResult:
        """Run whole episodes with a version of the weights."""
        self._weights.take(self._agent, version)
        # A method of the user's may lack the argument, and needs none where nothing is asked of it.
        return self._sampler.evaluate_agent(itr, **({"deterministic": True} if deterministic else {}))

    def load_state_dict(self, state_dict: StateDict) -> int:
        """Load the state of the sampler and last of the global generators; return the number of episodes cut."""
        self._sampler.load_state_dict(state_dict)
        set_global_streams(state_dict["process"])
        return self._sampler.n_cut_episodes

    def close(self) -> None:
        """Close environments and workers."""
        self._sampler.shutdown()


class SamplerProcess(Worker):
    """Process of a sampler; its errors say what it was doing."""

    doing: str = "starting"

    def __init__(self, settings: ProcessSettings, *args: object) -> None:
        super().__init__(0, SamplerServer, args, settings.start_method, role="Sampler")
        self.settings = settings

    def seen_at(self) -> str:
        """Return the last known work of the process, for messages."""
        at = self.progress
        seen = f" last seen at environment {at.env_rank}, step {at.step}," if at.step else ""
        return f"The sampler's process (pid {self.pid}), {self.doing},{seen}"

    def ask(self, request: Call[SamplerServer, R], timeout: float | None = None) -> R:
        """Send a call, and return the reply; the timeout is that of the settings, unless another is given."""
        self.send(request)
        self.doing = f'at the request "{request.method.__name__}"'
        answer: Answer[R] = receive_all([self], timeout or self.settings.stall_seconds)[0]
        return logged(answer)


class BackgroundSampler(Sampler):
    """Sampler that runs another one in a process of its own; see `rlpyt.core.Sampler.in_background`.

    The other one is not initialised. It is sent to the process, and stays as it is here.
    """

    traj_states = TypedTrajStates()
    bell: Bell | None = None
    """Rung after every batch, where another process waits for them."""

    def __init__(self, sampler: Sampler, settings: ProcessSettings, lag: int, affinity: Kwargs | None = None) -> None:
        self.sampler, self.settings, self.lag, self.affinity = sampler, settings, lag, dict(affinity or {})
        self.batch_spec, self.mid_batch_reset = sampler.batch_spec, sampler.resets_mid_batch
        self.eval_n_envs = sampler.eval_n_envs
        self.n_versions = lag + 1
        """Versions of the weights that are kept."""
        self.coupling = Coupling()
        self.itr = 0
        """Iteration of the batch that is handed over next, and version of the weights of now."""
        self.next = 0
        """Iteration of the first batch not yet asked for."""
        self.arrived = deque[Batch]()
        """Batches that were collected, and are not yet handed over."""
        self.n_arrived = 0
        """Iteration of the first batch not yet collected, or whose reply is still in the pipe."""
        self._process: SamplerProcess | None = None
        self._weights: WeightStore | None = None  # once the process has the agent as the run has placed it
        self._has_diagnostics = True

    # ---- set-up ----

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Start the process and the sampler in it, and initialise the agent here for the same spaces."""
        self.agent, self.run = agent, run or Run(batch_spec=self.batch_spec)
        self._process = SamplerProcess(self.settings, self.sampler, agent, self.bell)
        theirs = replace(self.run, n_batches=self.lag + 1, share_memory=True, affinity=self.affinity, lock=NoLock())
        self.description = self._process.ask(call(SamplerServer.initialize, theirs), _START_SECONDS)
        self.batches = self.description.batches
        self.places: list[Samples] = [torchify_buffer(samples) for samples in self.batches]
        agent.initialize(self.description.env_spaces)
        record_spaces(agent.env_spaces)
        return self.description.example

    @property
    def process(self) -> SamplerProcess:
        """The running process; there is none before the start, nor after the end."""
        if self._process is None:
            raise RuntimeError(
                f"{type(self.sampler).__name__} in the background: it was asked for work, but it is not running; call "
                "initialize first, and shutdown last."
            )
        return self._process

    def _publish(self) -> None:
        """Publish the weights of now as version `itr`, and send the agent before, once the run has placed it."""
        if self._weights is None:
            copied = self.agent.acting_copy()
            weights = WeightStore(copied, self.n_versions)
            compute = replace(self.agent.compute, device=acting_device(self.agent, self.settings, self.affinity))
            self.process.ask(call(SamplerServer.act, copied, weights, compute), _START_SECONDS)
            self._weights = weights
        with self.coupling.hands_over():
            self._weights.publish(self.agent, self.itr)

    # ---- work ----

    def begin(self, itr: int) -> SamplerProcess:
        """Begin the iteration after the last; return the process, which can have the weights of now."""
        process = self.process
        if not self.next:
            self.itr = self.next = self.n_arrived = itr  # a run may begin at any iteration
        if itr != self.itr:
            raise ValueError(
                f"{type(self.sampler).__name__} in the background: batch {itr} was asked for; expected {self.itr}, "
                "as batches are collected ahead. Ask for one after the other."
            )
        self._publish()
        return process

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Return one batch, and let the next ones be collected while the caller learns from it."""
        process = self.begin(itr)
        with self.coupling.hands_over():
            while self.next <= max(itr, min(itr + self.lag, self.run.n_itr - 1)):
                process.send(call(SamplerServer.collect, self.next, itr))
                self.next += 1
        with self.coupling.optimizer_waits():
            while not self.arrived:
                self.take_in()
        batch = self.arrived.popleft()
        self.itr += 1
        self.coupling.ages.append(itr - batch.version)
        return batch.samples, batch.traj_infos

    def take_in(self, wait: bool = True, *beside: Worker) -> list[tuple[Worker, Picklable]]:
        """Take in the next batch, and return what was received, also from processes beside; nothing if none works."""
        workers = list(beside)
        if (itr := self.n_arrived) < self.next:
            self.process.doing = f"at the batch of iteration {itr} (step {itr * self.run.steps_per_itr:,})"
            workers.append(self.process)
        replies = receive_ready(workers, self.settings.stall_seconds, wait) if workers else []
        for worker, reply in replies:
            if worker is self._process:
                batch: Batch = logged(reply)
                rows = self.places[itr % len(self.places)] if batch.samples is None else torchify_buffer(batch.samples)
                self.arrived.append(batch._replace(samples=rows))
                self.n_arrived += 1
                self.coupling.sampler_wait += batch.waited
                self.coupling.hand_over += batch.hand_over
        return replies

    def settled(self) -> SamplerProcess:
        """Wait until no batch is under way; return the process, which can have the weights of now."""
        process = self.process
        while self.take_in():
            pass
        # The next batch is asked for with this version; its block is that of a batch already collected.
        self._publish()
        return process

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the process, with the weights of now, after the batches under way."""
        return self.settled().ask(call(SamplerServer.evaluate, itr, self.itr, deterministic))

    def env_methods(self, names: Sequence[str]) -> Mapping[str, Callable[..., Buffer]]:
        """Return methods of an environment, which is built here; see `rlpyt.core.Sampler.env_methods`."""
        return self.sampler.env_methods(names)

    def evaluator_beside(self, agent: Agent, run: Run) -> EvaluatorBeside:
        """Start one more process, which evaluates while the others go on."""
        sampler = copy(self.sampler)  # which was initialised in its process, and not here
        sampler.why_not_set_back = self.description.why_not_set_back
        return sampler.evaluator_beside(agent, replace(run, affinity=self.affinity))

    # ---- what it tells ----

    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun."""
        return deepcopy(self.description.traj_info)

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Sampler`."""
        return {**self.description.plan, "lag": self.lag}

    def diagnostics(self) -> Mapping[str, float]:
        """Return the waits of both sides, and the sampler's own numbers."""
        columns = self.coupling.take()
        # The same columns every time: one without any is not asked again, as it would have to finish its batches first.
        if self._has_diagnostics and self._weights is not None:
            own = self.settled().ask(call(SamplerServer.diagnostics))
            self._has_diagnostics = bool(own)
            columns |= own
        return columns

    # ---- end and state ----

    def shutdown(self) -> None:
        """Stop the process, which closes environments and workers."""
        process, self._process = self._process, None
        if process is not None:
            stop_workers([process])

    def why_no_state(self) -> str | None:
        """Return why training environments have no state, after the batches under way."""
        return self.settled().ask(call(SamplerServer.why_no_state))

    def state_dict(self) -> StateDict:
        """Return the state of the sampler after the batches under way, and these batches."""
        sampler = self.settled().ask(call(SamplerServer.state_dict))
        ahead = [
            {
                "itr": itr,
                "version": batch.version,
                "rows": [leaf.clone() for leaf in buffer_leaves(batch.samples)],
                "traj_infos": self.traj_states.saved(batch.traj_infos),
            }
            for itr, batch in enumerate(self.arrived, self.itr)
        ]
        ages = list(self.coupling.ages)
        return {"sampler": sampler, "itr": self.itr, "next": self.next, "ages": ages, "ahead": ahead}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`, before the first batch."""
        self.n_cut_episodes = self.settled().ask(call(SamplerServer.load_state_dict, state_dict["sampler"]))
        self.itr, self.next = state_dict["itr"], state_dict["next"]
        self.n_arrived = self.next
        self.coupling.ages = list(state_dict.get("ages", ()))  # checkpoints from before have none
        for batch in state_dict["ahead"]:
            # In memory of their own: the ring has only the row after the last batch, which the sampler has restored.
            leaves = (leaf.clone() for leaf in batch["rows"])
            samples = buffer_func(self.places[0], lambda _, leaves=leaves: next(leaves))
            traj_infos = self.traj_states.restored(batch["traj_infos"], self.new_traj_info)
            self.arrived.append(Batch(samples, traj_infos, 0.0, 0.0, batch["version"]))


def acting_device(agent: Agent, settings: ProcessSettings, affinity: Kwargs) -> str:
    """Return the device on which the process of a sampler acts; the CPU if its workers or action servers do."""
    if not settings.acts_here or "sampler" in affinity:
        return "cpu"
    return Affinity.from_mapping(affinity).device if "cuda_idx" in affinity else str(agent.device)


def logged(answer: Answer[R]) -> R:
    """Log what was logged in the process, and return the reply."""
    reply, texts = answer
    for text in texts:
        if text.startswith(_WARNING):
            current_logger().warn(text.removeprefix(_WARNING))
        else:
            current_logger().log(text)
    return reply


def _addresses(samples: Samples) -> list[int]:
    return [leaf.data_ptr() for leaf in buffer_leaves(samples)]
