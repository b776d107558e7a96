"""Sampler and learner that run freely within a band, with a copier between the sampler and the replay.

The learner asks sampler and copier for batches as far ahead as the band allows. So neither of them waits for the
learner to look up from an update: the sampler tells the copier of every batch (`Bell`), and the learner reads both
replies between two iterations.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

import torch

from rlpyt.core import Agent, Appender, FreeSampler
from rlpyt.samplers.background import BackgroundSampler
from rlpyt.samplers.background_server import Answer, Batch, MovableSampler, SamplerServer
from rlpyt.samplers.copier import Appended, CopierProcess, CopierServer
from rlpyt.types import Kwargs, Run, Samples, StateDict, TrajInfo
from rlpyt.utils.arrays import torchify_buffer
from rlpyt.utils.bell import Bell
from rlpyt.utils.calls import call
from rlpyt.utils.processes import Worker, receive_ready, stop_workers
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.rw_lock import NoLock

MOST_AHEAD = 8
"""Batches that one side may be ahead of the other at most: so many, and one more, lie in shared memory."""
_VERSIONS = 3  # of the weights: one in use, one complete, one being written
_DEATH_SECONDS = 1.0  # from the release of a dead process's locks until its end is seen


class FreeBackgroundSampler(BackgroundSampler, FreeSampler):
    """Sampler in a process of its own whose batches a copier appends to a replay, each with the newest weights.

    Args:
        sampler: not initialised; it is sent to the process and stays as it is here.
        affinity: as for `BackgroundSampler`.
    """

    def __init__(self, sampler: MovableSampler, affinity: Kwargs | None = None) -> None:
        super().__init__(sampler, MOST_AHEAD, affinity)
        self.n_versions = _VERSIONS
        self._copier: CopierProcess | None = None
        self._appending = 0  # requests to the copier under way
        self._n_appended = 0  # batches in the replay
        self._waiting: deque[tuple[int, Batch]] = deque()  # collected, with their iteration, and not yet handed over
        self._n_handed_over = 0  # batches whose places may be written again
        self._ended: list[TrajInfo] = []
        self._copier_time = self._copier_waited = self._own_wait = 0.0
        self._lock = NoLock()
        self._replicas = Replicas()

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Start the process and the sampler in it; see `BackgroundSampler.initialize`."""
        run = run or Run(batch_spec=self.batch_spec)
        self._lock, self._replicas = run.lock, run.replicas
        self._lock.explain = self._explain
        return super().initialize(agent, replace(run, lock=NoLock()))

    def append_by(self, appender: Appender, min_itr_learn: int, ratio_band: float) -> None:
        """Start the copier; see `rlpyt.core.FreeSampler.append_by`."""
        self._min_itr_learn = min_itr_learn
        self.band = int(min(MOST_AHEAD, max(1.0, ratio_band * (min_itr_learn + 1))))
        bell = Bell()
        batches = self._ask(self.sampler.stall_seconds, call(SamplerServer.ring, bell))
        if batches is not None:
            self.batches, self._torch_batches = batches, [torchify_buffer(samples) for samples in batches]
        sent = appender, self.batches, bell
        self._copier = CopierProcess(1, CopierServer, sent, self.sampler.process_start_method)

    # ---- work ----

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Wait until the band allows the updates of an iteration; return the batch handed over last.

        Args:
            itr: the iteration, one more than in the last call.
        """
        self._begin(itr)
        needed = self._needed(itr)
        with self.coupling.hands_over():
            self._take_in(wait=False)
            self._ask_ahead()
        with self.coupling.optimizer_waits():
            while self._n_ready < needed:
                self._take_in(wait=True)
            n_ready = self._n_ready_in_all()
        with self.coupling.hands_over():
            self._hand_over(n_ready)
            self._ask_ahead()
        self._itr = itr + 1
        ended, self._ended = self._ended, []
        newest = max(self._n_handed_over - 1, 0)
        return self._torch_batches[newest % len(self._torch_batches)], ended

    def _needed(self, itr: int) -> int:
        """Return the batches that must be in the replay before the updates of an iteration."""
        if itr + 1 >= self._n_itr:
            return self._n_itr  # the run ends with as many batches as iterations
        least = itr + 1 - self.band
        return max(least, self._min_itr_learn + 1) if itr >= self._min_itr_learn else least

    def _ask_ahead(self) -> None:
        """Ask for all batches that the band allows, and that there is a place for."""
        assert self._copier is not None, "append_by comes first"
        last = min(self._itr + self.band, self._n_handed_over + len(self.batches) - 1, self._n_itr - 1)
        while self._next <= last:
            self._send(call(SamplerServer.collect, self._next, None))
            self._copier.send(call(CopierServer.append, self._next))
            self._asked.append((self._next, self._itr))
            self._appending += 1
            self._next += 1

    def _take_in(self, wait: bool) -> None:
        """Take in the replies that have arrived, or wait for the first."""
        while workers := self._at_work():
            replies = receive_ready(workers, self.sampler.stall_seconds, wait)
            for _, reply in replies:
                self._note(reply)
            if wait or not replies:
                return

    def _at_work(self) -> list[Worker]:
        """Return the processes that have a request under way."""
        sampler, workers = self._running_process, list[Worker]()
        if self._asked:
            itr = self._asked[0][0]
            sampler.doing = f"at the batch of iteration {itr} (step {itr * self._steps_per_itr:,})"
            workers.append(sampler)
        if self._copier is not None and self._appending:
            workers.append(self._copier)
        return workers

    def _note(self, reply: Answer | Appended) -> None:
        if isinstance(reply, Appended):
            self._appending -= 1
            self._n_appended += 1
            self._copier_time += reply.seconds
            self._copier_waited += reply.waited
            return
        batch: Batch = self._logged(reply)
        itr, _ = self._asked.popleft()
        self._waiting.append((itr, batch))
        self._ended += batch.traj_infos
        self.coupling.sampler_wait += batch.waited
        self.coupling.hand_over += batch.hand_over

    @property
    def _n_ready(self) -> int:
        """Batches of which both are known: that they are in the replay, and what the sampler says of them."""
        return min(self._n_appended, self._n_handed_over + len(self._waiting))

    def _n_ready_in_all(self) -> int:
        """Return the batches ready in all replicas, which hand over equally many: their normalisers stay equal."""
        return int(-self._replicas.largest(torch.tensor(-self._n_ready)))

    def _hand_over(self, n: int) -> None:
        """Give back the places of the first n batches of the run, after the agent's normalisers have seen them."""
        while self._n_handed_over < n:
            itr, batch = self._waiting.popleft()
            env = self._torch_batches[itr % len(self._torch_batches)].env
            self._agent.update_obs_rms(env.observation, env.valid)
            self.coupling.note_age(self._itr - batch.version)
            self._n_handed_over += 1

    def _settle(self) -> None:
        """Wait until no batch is under way."""
        while self._asked or self._appending:
            self._take_in(wait=True)

    def _explain(self) -> str:
        """Raise the error of a process that has died or raised, or say where the copier is; for errors of the lock."""
        end = time.monotonic() + _DEATH_SECONDS
        while time.monotonic() < end:
            self._take_in(wait=False)
            time.sleep(0.01)
        return f" {self._copier.seen_at()} did not go on." if self._copier is not None else ""

    # ---- what it tells ----

    @property
    def n_collected(self) -> int:
        """Batches in the replay so far."""
        return self._n_appended

    def plan(self) -> dict[str, object]:
        """Return where the work runs."""
        return {**super().plan(), "lag": "free"}

    def diagnostics(self) -> dict[str, float]:
        """Return how both sides keep step, and the times of copier and lock."""
        own_wait = self._lock.seconds_waited
        columns = {
            "CopierTime": self._copier_time,
            "LockTime": self._copier_waited + own_wait - self._own_wait,
            **super().diagnostics(),
        }
        self._copier_time = self._copier_waited = 0.0
        self._own_wait = own_wait
        return columns

    # ---- end and state ----

    def shutdown(self) -> None:
        """Stop both processes."""
        copier, self._copier = self._copier, None
        self._lock.explain = str
        try:
            if copier is not None:
                stop_workers([copier], seconds=1.0)
        finally:
            super().shutdown()

    def state_dict(self) -> StateDict:
        """Return the state of the sampler after the batches under way, which are in the replay and handed over then."""
        state = super().state_dict()
        self._hand_over(self._n_ready_in_all())
        return {**state, "ended": self.saved_trajs(self._ended), "ages": list(self.coupling.ages)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, before the first batch."""
        super().load_state_dict(state_dict)
        self._n_appended = self._n_handed_over = self._next
        self._ended = self.restored_trajs(state_dict["ended"])
