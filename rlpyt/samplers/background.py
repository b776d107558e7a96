"""Samplers in a process of their own, which collects the next batches while this one learns from the last.

Batch i + lag is collected with version i of the weights, those after i iterations of learning. So up to `lag` requests
wait in the pipe, and lag + 1 versions of the weights and lag + 1 batches lie in shared memory.
"""

from __future__ import annotations

from collections import deque
from copy import copy, deepcopy
from dataclasses import replace
from typing import NamedTuple

import torch

from rlpyt.core import Agent, EvalResult, EvaluatorBeside
from rlpyt.logging import current_logger
from rlpyt.logging.space_record import record_spaces
from rlpyt.samplers.background_server import WARNING, Answer, AnyAnswer, Batch, MovableSampler, SamplerServer
from rlpyt.samplers.traj_state import TrajKeeper
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import Kwargs, Run, Samples, StateDict, TrajInfo
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.arrays import buffer_func, buffer_leaves, torchify_buffer
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


class Arrived(NamedTuple):
    """Batch that was collected, and is not yet learned from."""

    samples: Samples
    traj_infos: list[TrajInfo]
    version: int
    """Of the weights that collected it."""


class BackgroundSampler(TrajKeeper):
    """Sampler that runs another one in a process of its own, some batches ahead of the learner.

    Args:
        sampler: not initialised; it is sent to the process and stays as it is here.
        lag: iterations of learning that the weights of the sampler are behind; 0 collects in turn with the learner.
        affinity: cores and device of the process and its workers; None is the device of the learner, on any core.
    """

    def __init__(self, sampler: MovableSampler, lag: int, affinity: Kwargs | None = None) -> None:
        self.sampler, self.lag, self.affinity = sampler, lag, dict(affinity or {})
        self.n_versions = lag + 1
        self.batch_spec, self.mid_batch_reset = sampler.batch_spec, sampler.mid_batch_reset
        self.eval_n_envs = sampler.eval_n_envs
        self.coupling = Coupling()
        self._process: SamplerProcess | None = None
        self._acts = False  # whether the process has the agent as the run has placed it
        self._asked: deque[tuple[int, int]] = deque()  # itr and version of batches under way
        self._arrived: dict[int, Arrived] = {}
        self._itr = 0  # of the batch that is handed over next, and version of the weights of now
        self._next = 0  # itr of the first batch not yet asked for
        self._has_diagnostics = True

    # ---- set-up ----

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Start the process and the sampler in it, and initialise the agent here for the same spaces."""
        run = run or Run(batch_spec=self.batch_spec)
        self._agent, self._n_itr, self._steps_per_itr = agent, run.n_itr, run.steps_per_itr
        args, start_method = (self.sampler, agent), self.sampler.process_start_method
        self._process = SamplerProcess(0, SamplerServer, args, start_method, has_workers=True, role="Sampler")
        run = replace(run, n_batches=self.lag + 1, share_memory=True, affinity=self.affinity)
        self._description = self._ask(_START_SECONDS, call(SamplerServer.initialize, run))
        self.batches = self._description.batches
        self._torch_batches: list[Samples] = [torchify_buffer(samples) for samples in self.batches]
        agent.initialize(self._description.env_spaces)
        record_spaces(agent.env_spaces)
        return self._description.example

    def _start_acting(self) -> None:
        """Send the agent, once the run has placed it in its precision and memory format."""
        if self._acts:
            return
        self._weights = WeightStore(self._agent.acting_copy(), self.n_versions)
        compute = replace(self._agent.compute, device=self._device())
        self._ask(_START_SECONDS, call(SamplerServer.act, self._weights, compute))
        self._acts = True

    def _device(self) -> str:
        """Return where the process acts; the CPU where its workers, or action servers, do."""
        if not self.sampler.acts_here or "sampler" in self.affinity:
            return "cpu"
        named = "cuda_idx" in self.affinity
        return Affinity.from_mapping(self.affinity).device if named else str(self._agent.device)

    # ---- work ----

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Return one batch, and let the next ones be collected while the caller learns from it.

        Args:
            itr: the iteration, one more than in the last call.
        """
        self._begin(itr)
        with self.coupling.hands_over():
            last = max(itr, min(itr + self.lag, self._n_itr - 1))
            while self._next <= last:
                self._send(call(SamplerServer.collect, self._next, itr))
                self._asked.append((self._next, itr))
                self._next += 1
        with self.coupling.optimizer_waits():
            while itr not in self._arrived:
                self._take_in_next()
        arrived = self._arrived.pop(itr)
        self._itr = itr + 1
        self.coupling.note_age(itr - arrived.version)
        return arrived.samples, arrived.traj_infos

    def _begin(self, itr: int) -> None:
        """Publish the weights of now as the version of an iteration, whose batch is asked for."""
        self._check_running()
        self._check_order(itr)
        self._start_acting()
        with self.coupling.hands_over():
            self._weights.publish(self._agent, itr)

    def _check_order(self, itr: int) -> None:
        if not self._next:
            self._itr = self._next = itr  # a run may begin at any iteration
        if itr != self._itr:
            raise ValueError(
                f"{type(self.sampler).__name__} in the background: batch {itr} was asked for; expected {self._itr}, "
                "as batches are collected ahead. Ask for one after the other."
            )

    def _take_in_next(self) -> None:
        """Wait for the oldest batch under way."""
        itr, version = self._asked[0]
        doing = f"at the batch of iteration {itr} (step {itr * self._steps_per_itr:,})"
        batch: Batch = self._logged(self._receive(self.sampler.stall_seconds, doing))
        self._asked.popleft()
        self.coupling.sampler_wait += batch.waited
        self.coupling.hand_over += batch.hand_over
        samples = self._torch_batches[itr % len(self._torch_batches)]
        if batch.samples is not None:
            samples = torchify_buffer(batch.samples)
        self._arrived[itr] = Arrived(samples, batch.traj_infos, version)

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the process, with the weights of now, after the batches under way."""
        self._check_running()
        self._start_acting()
        self._settle()
        with self.coupling.hands_over():
            # The next batch is asked for with this version; its block is that of a batch already collected.
            self._weights.publish(self._agent, self._itr)
        return self._ask(self.sampler.stall_seconds, call(SamplerServer.evaluate, itr, self._itr, deterministic))

    def evaluator_beside(self, agent: Agent, run: Run) -> EvaluatorBeside:
        """Start a third process, which evaluates while both others go on."""
        sampler = copy(self.sampler)  # which was initialised in its process, and not here
        sampler.why_not_set_back = self._description.why_not_set_back
        return sampler.evaluator_beside(agent, replace(run, affinity=self.affinity))

    def _settle(self) -> None:
        """Wait until no batch is under way."""
        while self._asked:
            self._take_in_next()

    # ---- messages ----

    def _ask(self, timeout: float, request: Call[SamplerServer, R]) -> R:
        self._send(request)
        answer: Answer[R] = self._receive(timeout, f'at the request "{request.method.__name__}"')
        return self._logged(answer)

    def _send(self, request: Call[SamplerServer, R]) -> None:
        self._running_process.send(request)

    def _receive(self, timeout: float, doing: str) -> AnyAnswer:
        process = self._running_process
        process.doing = doing
        answer: AnyAnswer = receive_all([process], timeout)[0]
        return answer

    def _logged(self, answer: Answer[R]) -> R:
        """Log what was logged in the process, and return the reply."""
        for text in answer.texts:
            if text.startswith(WARNING):
                current_logger().warn(text.removeprefix(WARNING))
            else:
                current_logger().log(text)
        return answer.value

    @property
    def _running_process(self) -> SamplerProcess:
        self._check_running()
        assert self._process is not None
        return self._process

    def _check_running(self) -> None:
        if self._process is None:
            raise RuntimeError(
                f"{type(self.sampler).__name__} in the background: it was asked for work, but it is not running; call "
                "initialize first, and shutdown last."
            )

    # ---- what it tells ----

    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun."""
        return deepcopy(self._description.traj_info)

    def plan(self) -> dict[str, object]:
        """Return where the work runs."""
        return {**self._description.plan, "lag": self.lag}

    def diagnostics(self) -> dict[str, float]:
        """Return how both sides keep step, and what the sampler itself tells."""
        columns = self.coupling.take()
        # The same columns every time: one without any is not asked again, as it would have to finish its batches first.
        if self._has_diagnostics and self._acts:
            self._settle()
            own = self._ask(self.sampler.stall_seconds, call(SamplerServer.diagnostics))
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
        self._start_acting()
        self._settle()
        return self._ask(self.sampler.stall_seconds, call(SamplerServer.why_no_state))

    def state_dict(self) -> StateDict:
        """Return the state of the sampler after the batches under way, and these batches."""
        self._start_acting()
        self._settle()
        ahead = [
            {
                "itr": itr,
                "version": batch.version,
                "rows": [leaf.clone() for leaf in buffer_leaves(batch.samples)],
                "traj_infos": self.saved_trajs(batch.traj_infos),
            }
            for itr, batch in sorted(self._arrived.items())
        ]
        sampler = self._ask(self.sampler.stall_seconds, call(SamplerServer.state_dict))
        return {
            "sampler": sampler,
            "ahead": ahead,
            "itr": self._itr,
            "next": self._next,
            "ages": list(self.coupling.ages),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, before the first batch."""
        self._start_acting()
        load = call(SamplerServer.load_state_dict, state_dict["sampler"])
        self.n_cut_episodes = self._ask(self.sampler.stall_seconds, load)
        self._itr, self._next = state_dict["itr"], state_dict["next"]
        self.coupling.ages = list(state_dict.get("ages", ()))  # checkpoints from before have none
        for batch in state_dict["ahead"]:
            # In memory of their own: the ring has only the row after the last batch, which the sampler has restored.
            samples = _with_leaves(self._torch_batches[0], [leaf.clone() for leaf in batch["rows"]])
            self._arrived[batch["itr"]] = Arrived(samples, self.restored_trajs(batch["traj_infos"]), batch["version"])


def _with_leaves(example: Samples, leaves: list[torch.Tensor]) -> Samples:
    """Return a batch of these leaves, in the order of `buffer_leaves`."""
    rest = iter(leaves)
    samples: Samples = buffer_func(example, lambda _: next(rest))
    return samples
