"""Sampler and learner that run freely within a band, with a copier between the sampler and the replay.

The learner asks sampler and copier for batches as far ahead as the band allows. So neither of them waits for the
learner to look up from an update: the sampler tells the copier of every batch (`Bell`), and the learner reads both
replies between two iterations.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch

from rlpyt.core import Appender, FreeSampler, Sampler
from rlpyt.samplers.background import BackgroundSampler, ProcessSettings, SamplerServer
from rlpyt.types import Kwargs, Samples, StateDict, TrajInfo
from rlpyt.utils.arrays import torchify_buffer
from rlpyt.utils.bell import Bell
from rlpyt.utils.calls import CallServer, call
from rlpyt.utils.processes import Worker, receive_all, stop_workers
from rlpyt.utils.progress import Progress
from rlpyt.utils.rw_lock import NoLock
from rlpyt.utils.watched import Picklable

MOST_AHEAD = 8
"""Batches that one side may be ahead of the other at most: so many, and one more, lie in shared memory."""
_VERSIONS = 3  # of the weights: one in use, one complete, one being written
_BEAT_SECONDS = 0.2  # between signs of life of a copier that waits
_DEATH_SECONDS = 1.0  # from the release of a dead process's locks until its end is seen


class CopierServer(CallServer):
    """Copier of batches from the places of a sampler's memory to a replay.

    The bell's count is the number of batches that the sampler has collected so far.
    """

    def __init__(
        self, rank: int, progress: Progress, appender: Appender, batches: Sequence[Samples], bell: Bell
    ) -> None:
        self._progress, self._appender, self._bell = progress, appender, bell
        self._places: list[Samples] = [torchify_buffer(samples) for samples in batches]
        appender.join("copier")
        progress.beat()

    def append(self, itr: int) -> tuple[float, float]:
        """Append the batch of an iteration, once it is collected; return the seconds of that, and of the lock."""
        self._progress.step = itr
        while not self._bell.wait_for(itr + 1, _BEAT_SECONDS):
            self._progress.beat()
        start, waited = time.perf_counter(), self._appender.seconds_waited
        self._appender.append_rows(itr, self._places[itr % len(self._places)])
        waited = self._appender.seconds_waited - waited
        return time.perf_counter() - start - waited, waited

    def state_dict(self) -> StateDict:
        """Return what the copy of the algorithm here has beside the replay."""
        return self._appender.state_dict()

    def close(self) -> None:
        """Do nothing: the replay is the learner's."""


class CopierProcess(Worker):
    """Process of a copier; its errors say at which batch it was."""

    def seen_at(self) -> str:
        """Return at which batch the copier was, for messages."""
        return f"The copier (pid {self.pid}), at the batch of iteration {self.progress.step},"


class FreeBackgroundSampler(BackgroundSampler, FreeSampler):
    """Sampler in a process of its own whose batches a copier appends to a replay, each with the newest weights."""

    n_collected: int = 0

    def __init__(self, sampler: Sampler, settings: ProcessSettings, affinity: Kwargs | None = None) -> None:
        super().__init__(sampler, settings, MOST_AHEAD, affinity)
        self.n_versions, self.bell = _VERSIONS, Bell()
        self._copier: CopierProcess | None = None
        self._n_handed_over = 0  # batches whose places may be written again
        self._ended: list[TrajInfo] = []
        self._copier_seconds = self._copier_waited = self._told_wait = 0.0
        self._lock = NoLock()
        self._appender_state: StateDict = {}

    def append_by(self, appender: Appender, min_itr_learn: int, ratio_band: float) -> None:
        """Start the copier; see `rlpyt.core.FreeSampler.append_by`."""
        self._min_itr_learn = min_itr_learn
        self.band = int(min(MOST_AHEAD, max(1.0, ratio_band * (min_itr_learn + 1))))
        appender.load_state_dict(self._appender_state)
        copier = self._copier = CopierProcess(
            1, CopierServer, (appender, self.batches, self.bell), self.settings.start_method
        )

        def explain() -> str:
            """Raise the error of a process that has died or raised, or say where the copier is."""
            end = time.monotonic() + _DEATH_SECONDS
            while time.monotonic() < end:
                self.take_in(wait=False)
                time.sleep(0.01)
            return f" {copier.seen_at()} did not go on."

        self._lock = self.run.lock
        self._lock.explain = explain

    # ---- work ----

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Wait until the band allows the updates of an iteration; return the batch handed over last."""
        self.begin(itr)
        needed = _needed(itr, self.run.n_itr, self._min_itr_learn, self.band)
        with self.coupling.hands_over():
            while self.take_in(wait=False):
                pass
            self._ask_ahead()
        with self.coupling.optimizer_waits():
            while min(self.n_collected, self.n_arrived) < needed:
                self.take_in()
        self._hand_over()
        with self.coupling.hands_over():
            self._ask_ahead()
        self.itr += 1
        ended, self._ended = self._ended, []
        return self.places[max(self._n_handed_over - 1, 0) % len(self.places)], ended

    def _ask_ahead(self) -> None:
        """Ask for all batches that the band allows, and that there is a place for."""
        assert self._copier is not None, "append_by comes first"
        last = min(self.itr + self.band, self._n_handed_over + MOST_AHEAD, self.run.n_itr - 1)
        while self.next <= last:
            self.process.send(call(SamplerServer.collect, self.next, None))
            self._copier.send(call(CopierServer.append, self.next))
            self.next += 1

    def take_in(self, wait: bool = True, *beside: Worker) -> list[tuple[Worker, Picklable]]:
        """Take in the next batch, and what the copier has appended; see `BackgroundSampler.take_in`."""
        copiers = [self._copier] if self._copier is not None and self.n_collected < self.next else []
        replies = super().take_in(wait, *copiers)
        for worker, reply in replies:
            if worker is self._copier:
                self.n_collected += 1
                seconds, waited = reply
                self._copier_seconds += seconds
                self._copier_waited += waited
        return replies

    def _hand_over(self) -> None:
        """Give back the places of batches that are in the replay, after the agent's normalisers have seen them.

        All replicas hand over equally many: their normalisers stay equal.
        """
        with self.coupling.optimizer_waits():
            n_ready = min(self.n_collected, self.n_arrived)
            n_ready = int(-self.run.replicas.largest(torch.tensor(-n_ready)))
        with self.coupling.hands_over():
            while self._n_handed_over < n_ready:
                batch = self.arrived.popleft()
                self.agent.networks.update_obs_rms(batch.samples.env.observation, batch.samples.env.valid)
                self.coupling.ages.append(self.itr - batch.version)
                self._ended += batch.traj_infos
                self._n_handed_over += 1

    # ---- what it tells ----

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Sampler`."""
        return {**super().plan(), "lag": "free"}

    def diagnostics(self) -> Mapping[str, float]:
        """Return the waits of both sides, the times of copier and lock, and the sampler's own numbers."""
        waited = self._copier_waited + self._lock.seconds_waited
        columns = {"CopierTime": self._copier_seconds, "LockTime": waited - self._told_wait}
        self._copier_seconds, self._told_wait = 0.0, waited
        return {**columns, **super().diagnostics()}

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
        self.settled()
        self._hand_over()
        appender: StateDict = {}
        if self._copier is not None:
            self._copier.send(call(CopierServer.state_dict))
            appender = receive_all([self._copier], self.settings.stall_seconds)[0]
        return {**super().state_dict(), "ended": self.traj_states.saved(self._ended), "appender": appender}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`, before the first batch."""
        super().load_state_dict(state_dict)
        self.n_collected = self._n_handed_over = self.next
        self._appender_state = state_dict.get("appender", {})  # checkpoints from before have none
        self._ended = self.traj_states.restored(state_dict["ended"], self.new_traj_info)


def _needed(itr: int, n_itr: int, min_itr_learn: int, band: int) -> int:
    """Return the batches that must be in the replay before the updates of an iteration."""
    if itr + 1 >= n_itr:
        return n_itr  # the run ends with as many batches as iterations
    return max(itr + 1 - band, min_itr_learn + 1 if itr >= min_itr_learn else 0)
