"""Twin of a sampler that runs in a process of its own: it starts the process, asks it, and logs what it says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace

from rlpyt.core import Agent, EvalResult, EvaluatorBeside, Sampler
from rlpyt.logging import current_logger
from rlpyt.logging.space_record import record_spaces
from rlpyt.samplers.sampler_server import WARNING, Answer, AnyAnswer, ProcessSettings, SamplerServer
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import Kwargs, Run, Samples, StateDict
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arrays import torchify_buffer
from rlpyt.utils.calls import Call, R, call
from rlpyt.utils.coupling import Coupling
from rlpyt.utils.processes import Worker, receive_all, stop_workers

_START_SECONDS = 600.0  # without progress, while environments are built and workers start


class SamplerProcess(Worker):
    """Process of a sampler; its errors say what it was doing."""

    doing: str = "starting"

    def seen_at(self) -> str:
        """Return what the process was doing, for messages."""
        at = self.progress
        seen = f" last seen at environment {at.env_rank}, step {at.step}," if at.step else ""
        return f"The sampler's process (pid {self.pid}), {self.doing},{seen}"


class RemoteSampler:
    """Twin of a sampler in another process, with the batches that it was asked for.

    Args:
        sampler: not initialised; it is sent to the process and stays as it is here.
        settings: of the process.
        affinity: cores and device of the process and its workers.
        n_batches: that lie in its memory.
        n_versions: of the weights, the last that are kept.
    """

    def __init__(
        self, sampler: Sampler, settings: ProcessSettings, affinity: Kwargs | None, n_batches: int, n_versions: int
    ) -> None:
        self.sampler, self.settings, self.affinity = sampler, settings, dict(affinity or {})
        self.coupling = Coupling()
        self.asked: deque[tuple[int, int]] = deque()
        """Iteration, and version of the weights when it was asked for, of batches under way."""
        self.itr = 0
        """Iteration of the batch that is handed over next, and version of the weights of now."""
        self.next = 0
        """Iteration of the first batch not yet asked for."""
        self.n_itr = 0
        """Iterations of the run; known after `initialize`."""
        self.agent: Agent
        self._n_batches, self._n_versions = n_batches, n_versions
        self._process: SamplerProcess | None = None
        self._acts = False  # whether the process has the agent as the run has placed it
        self._has_diagnostics = True

    # ---- set-up ----

    def initialize(self, agent: Agent, run: Run) -> Samples:
        """Start the process and the sampler in it, and initialise the agent here for the same spaces."""
        self.agent, self.n_itr, self._steps_per_itr = agent, run.n_itr, run.steps_per_itr
        args, start_method = (self.sampler, agent), self.settings.start_method
        self._process = SamplerProcess(0, SamplerServer, args, start_method, has_workers=True, role="Sampler")
        run = replace(run, n_batches=self._n_batches, share_memory=True, affinity=self.affinity)
        self.description = self.ask(call(SamplerServer.initialize, run), _START_SECONDS)
        self.show(self.description.batches)
        agent.initialize(self.description.env_spaces)
        record_spaces(agent.env_spaces)
        return self.description.example

    def show(self, batches: Sequence[Samples]) -> None:
        """Read batches in this memory from now on."""
        self.batches = batches
        self.torch_batches: list[Samples] = [torchify_buffer(samples) for samples in batches]

    def batch_of(self, itr: int) -> Samples:
        """Return the rows in the place of an iteration."""
        return self.torch_batches[itr % len(self.torch_batches)]

    def start_acting(self) -> None:
        """Send agent, weights and device, once the run has placed it in its precision and memory format."""
        if self._acts:
            return
        agent = self.agent.acting_copy()
        self._weights = WeightStore(agent, self._n_versions)
        compute = replace(self.agent.compute, device=self._device())
        self.ask(call(SamplerServer.act, agent, self._weights, compute), _START_SECONDS)
        self._acts = True

    def _device(self) -> str:
        """Return where the process acts; the CPU where its workers, or action servers, do."""
        if not self.settings.acts_here or "sampler" in self.affinity:
            return "cpu"
        named = "cuda_idx" in self.affinity
        return Affinity.from_mapping(self.affinity).device if named else str(self.agent.device)

    # ---- work ----

    def begin(self, itr: int) -> None:
        """Publish the weights of now as the version of an iteration, whose batch is asked for.

        Raises:
            ValueError: if it is not the iteration after the last.
        """
        self.check_running()
        if not self.next:
            self.itr = self.next = itr  # a run may begin at any iteration
        if itr != self.itr:
            raise ValueError(
                f"{type(self.sampler).__name__} in the background: batch {itr} was asked for; expected {self.itr}, "
                "as batches are collected ahead. Ask for one after the other."
            )
        self.start_acting()
        self._publish(itr)

    def _publish(self, itr: int) -> None:
        with self.coupling.hands_over():
            self._weights.publish(self.agent, itr)

    def ask_for_next(self, version: int | None) -> None:
        """Let the process collect the next batch, with a version of the weights; None is the newest there."""
        self.send(call(SamplerServer.collect, self.next, version))
        self.asked.append((self.next, self.itr))
        self.next += 1

    def evaluate(self, itr: int, deterministic: bool) -> EvalResult:
        """Run whole episodes with the weights of now; no batch is under way."""
        self.check_running()
        self.start_acting()
        # The next batch is asked for with this version; its block is that of a batch already collected.
        self._publish(self.itr)
        return self.ask(call(SamplerServer.evaluate, itr, self.itr, deterministic))

    def evaluator_beside(self, agent: Agent, run: Run) -> EvaluatorBeside:
        """Start a third process, which evaluates while both others go on."""
        sampler = copy(self.sampler)  # which was initialised in its process, and not here
        sampler.why_not_set_back = self.description.why_not_set_back
        return sampler.evaluator_beside(agent, replace(run, affinity=self.affinity))

    def diagnostics(self, settle: Callable[[], object]) -> Mapping[str, float]:
        """Return what the sampler tells, after `settle` has waited until no batch is under way."""
        # The same columns every time: one without any is not asked again, as it would have to finish its batches first.
        if not (self._has_diagnostics and self._acts):
            return {}
        settle()
        own = self.ask(call(SamplerServer.diagnostics))
        self._has_diagnostics = bool(own)
        return own

    def why_no_state(self) -> str | None:
        """Return why training environments have no state; no batch is under way."""
        self.start_acting()
        return self.ask(call(SamplerServer.why_no_state))

    def state_dict(self) -> StateDict:
        """Return the state of the sampler, and where both sides stand; no batch is under way."""
        self.start_acting()
        sampler = self.ask(call(SamplerServer.state_dict))
        return {"sampler": sampler, "itr": self.itr, "next": self.next, "ages": list(self.coupling.ages)}

    def load_state_dict(self, state_dict: StateDict) -> int:
        """Take over what `state_dict` returned, before the first batch; return how many episodes ended by that."""
        self.start_acting()
        n_cut = self.ask(call(SamplerServer.load_state_dict, state_dict["sampler"]))
        self.itr, self.next = state_dict["itr"], state_dict["next"]
        self.coupling.ages = list(state_dict.get("ages", ()))  # checkpoints from before have none
        return n_cut

    def stop(self) -> None:
        """Stop the process, which closes environments and workers."""
        process, self._process = self._process, None
        if process is not None:
            stop_workers([process])

    # ---- messages ----

    def ask(self, request: Call[SamplerServer, R], timeout: float | None = None) -> R:
        """Send a call, and return the reply; the timeout is that of the process, unless another is given."""
        self.send(request)
        answer: Answer[R] = self.receive(f'at the request "{request.method.__name__}"', timeout)
        return self.logged(answer)

    def send(self, request: Call[SamplerServer, R]) -> None:
        """Send a call."""
        self.process.send(request)

    def receive(self, doing: str, timeout: float | None = None) -> AnyAnswer:
        """Return the answer to the oldest call; `doing` says for messages what the process is at."""
        self.process.doing = doing
        answer: AnyAnswer = receive_all([self.process], timeout or self.settings.stall_seconds)[0]
        return answer

    @property
    def at_oldest(self) -> str:
        """What the process does at the oldest batch under way, for messages."""
        itr = self.asked[0][0]
        return f"at the batch of iteration {itr} (step {itr * self._steps_per_itr:,})"

    def logged(self, answer: Answer[R]) -> R:
        """Log what was logged in the process, and return the reply."""
        for text in answer.texts:
            if text.startswith(WARNING):
                current_logger().warn(text.removeprefix(WARNING))
            else:
                current_logger().log(text)
        return answer.value

    @property
    def process(self) -> SamplerProcess:
        """The running process."""
        self.check_running()
        assert self._process is not None
        return self._process

    def check_running(self) -> None:
        """Refuse work before the start and after the end."""
        if self._process is None:
            raise RuntimeError(
                f"{type(self.sampler).__name__} in the background: it was asked for work, but it is not running; call "
                "initialize first, and shutdown last."
            )
