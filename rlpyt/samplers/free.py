"""Sampler and learner that run freely within a band, with a copier between the sampler and the replay.

The learner asks sampler and copier for batches as far ahead as the band allows. So neither of them waits for the
learner to look up from an update: the sampler tells the copier of every batch (`Bell`), and the learner reads both
replies between two iterations.
"""

from __future__ import annotations

import time
from collections import deque
from copy import deepcopy
from dataclasses import replace

import torch

from rlpyt.core import Agent, Appender, EvalResult, EvaluatorBeside, FreeSampler, Sampler
from rlpyt.samplers.copier import Appended, CopierProcess, CopierServer
from rlpyt.samplers.remote_sampler import RemoteSampler
from rlpyt.samplers.sampler_server import Answer, Batch, ProcessSettings, SamplerServer
from rlpyt.samplers.traj_state import TypedTrajStates
from rlpyt.types import Kwargs, Run, Samples, StateDict, TrajInfo
from rlpyt.utils.bell import Bell
from rlpyt.utils.calls import call
from rlpyt.utils.processes import Worker, receive_ready, stop_workers
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.rw_lock import NoLock

MOST_AHEAD = 8
"""Batches that one side may be ahead of the other at most: so many, and one more, lie in shared memory."""
_VERSIONS = 3  # of the weights: one in use, one complete, one being written
_DEATH_SECONDS = 1.0  # from the release of a dead process's locks until its end is seen


class FreeBackgroundSampler(FreeSampler):
    """Sampler in a process of its own whose batches a copier appends to a replay, each with the newest weights.

    Args:
        sampler: not initialised; it is sent to the process and stays as it is here.
        settings: of the process.
        affinity: as for `BackgroundSampler`.
    """

    traj_states = TypedTrajStates()

    def __init__(self, sampler: Sampler, settings: ProcessSettings, affinity: Kwargs | None = None) -> None:
        self.remote = RemoteSampler(sampler, settings, affinity, MOST_AHEAD + 1, _VERSIONS)
        self.coupling = self.remote.coupling
        self.batch_spec, self.mid_batch_reset = sampler.batch_spec, sampler.resets_mid_batch
        self.eval_n_envs = sampler.eval_n_envs
        self._copier: CopierProcess | None = None
        self._appending = 0  # requests to the copier under way
        self._waiting: deque[tuple[int, Batch]] = deque()  # collected, with their iteration, and not yet handed over
        self._n_appended = 0  # batches in the replay
        self._n_handed_over = 0  # batches whose places may be written again
        self._ended: list[TrajInfo] = []
        self._copier_seconds = self._copier_waited = self._told_wait = 0.0
        self._lock = NoLock()
        self._replicas = Replicas()

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Start the process and the sampler in it, and initialise the agent here for the same spaces."""
        run = run or Run(batch_spec=self.batch_spec)
        self._lock, self._replicas = run.lock, run.replicas
        self._lock.explain = self._explain
        example = self.remote.initialize(agent, replace(run, lock=NoLock()))
        self.batches = self.remote.batches
        return example

    def append_by(self, appender: Appender, min_itr_learn: int, ratio_band: float) -> None:
        """Start the copier; see `rlpyt.core.FreeSampler.append_by`."""
        self._min_itr_learn = min_itr_learn
        self.band = int(min(MOST_AHEAD, max(1.0, ratio_band * (min_itr_learn + 1))))
        bell = Bell()
        batches = self.remote.ask(call(SamplerServer.ring, bell))
        if batches is not None:
            self.remote.show(batches)
            self.batches = batches
        sent = appender, self.batches, bell
        self._copier = CopierProcess(1, CopierServer, sent, self.remote.settings.start_method)

    # ---- work ----

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Wait until the band allows the updates of an iteration; return the batch handed over last.

        Args:
            itr: the iteration, one more than in the last call.
        """
        self.remote.begin(itr)
        needed = _needed(itr, self.remote.n_itr, self._min_itr_learn, self.band)
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
        self.remote.itr = itr + 1
        ended, self._ended = self._ended, []
        return self.remote.batch_of(max(self._n_handed_over - 1, 0)), ended

    def _ask_ahead(self) -> None:
        """Ask for all batches that the band allows, and that there is a place for."""
        remote, copier = self.remote, self._copier
        assert copier is not None, "append_by comes first"
        last = min(remote.itr + self.band, self._n_handed_over + len(self.batches) - 1, remote.n_itr - 1)
        while remote.next <= last:
            remote.ask_for_next(version=None)
            copier.send(call(CopierServer.append, remote.next - 1))
            self._appending += 1

    def _take_in(self, wait: bool) -> None:
        """Take in the replies that have arrived, or wait for the first."""
        while True:
            workers = list[Worker]()
            if self.remote.asked:
                self.remote.process.doing = self.remote.at_oldest
                workers.append(self.remote.process)
            if self._copier is not None and self._appending:
                workers.append(self._copier)
            replies = receive_ready(workers, self.remote.settings.stall_seconds, wait) if workers else []
            for _, reply in replies:
                self._note(reply)
            if wait or not replies:
                return

    def _note(self, reply: Answer | Appended) -> None:
        if isinstance(reply, Appended):
            self._appending -= 1
            self._n_appended += 1
            self._copier_seconds += reply.seconds
            self._copier_waited += reply.waited
            return
        batch: Batch = self.remote.logged(reply)
        itr, _ = self.remote.asked.popleft()
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
            env = self.remote.batch_of(itr).env
            self.remote.agent.networks.update_obs_rms(env.observation, env.valid)
            self.coupling.note_age(self.remote.itr - batch.version)
            self._n_handed_over += 1

    def _settled(self) -> RemoteSampler:
        """Wait until no batch is under way."""
        while self.remote.asked or self._appending:
            self._take_in(wait=True)
        return self.remote

    def _explain(self) -> str:
        """Raise the error of a process that has died or raised, or say where the copier is; for errors of the lock."""
        end = time.monotonic() + _DEATH_SECONDS
        while time.monotonic() < end:
            self._take_in(wait=False)
            time.sleep(0.01)
        return f" {self._copier.seen_at()} did not go on." if self._copier is not None else ""

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the process, with the weights of now, after the batches under way."""
        return self._settled().evaluate(itr, deterministic)

    def evaluator_beside(self, agent: Agent, run: Run) -> EvaluatorBeside:
        """Start one more process, which evaluates while the others go on."""
        return self.remote.evaluator_beside(agent, run)

    # ---- what it tells ----

    @property
    def n_collected(self) -> int:
        """Batches in the replay so far."""
        return self._n_appended

    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun."""
        return deepcopy(self.remote.description.traj_info)

    def plan(self) -> dict[str, object]:
        """Return where the work runs."""
        return {**self.remote.description.plan, "lag": "free"}

    def diagnostics(self) -> dict[str, float]:
        """Return how both sides keep step, the times of copier and lock, and what the sampler itself tells."""
        waited = self._copier_waited + self._lock.seconds_waited
        columns = {"CopierTime": self._copier_seconds, "LockTime": waited - self._told_wait, **self.coupling.take()}
        self._copier_seconds, self._told_wait = 0.0, waited
        return {**columns, **self.remote.diagnostics(self._settled)}

    # ---- end and state ----

    def shutdown(self) -> None:
        """Stop both processes."""
        copier, self._copier = self._copier, None
        self._lock.explain = str
        try:
            if copier is not None:
                stop_workers([copier], seconds=1.0)
        finally:
            self.remote.stop()

    def why_no_state(self) -> str | None:
        """Return why training environments have no state, after the batches under way."""
        return self._settled().why_no_state()

    def state_dict(self) -> StateDict:
        """Return the state of the sampler after the batches under way, which are in the replay and handed over then."""
        state = self._settled().state_dict()
        self._hand_over(self._n_ready_in_all())
        ended, ages = self.traj_states.saved(self._ended), list(self.coupling.ages)
        return {**state, "ahead": [], "ended": ended, "ages": ages}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, before the first batch."""
        self.n_cut_episodes = self.remote.load_state_dict(state_dict)
        self._n_appended = self._n_handed_over = self.remote.next
        self._ended = self.traj_states.restored(state_dict["ended"], self.new_traj_info)


def _needed(itr: int, n_itr: int, min_itr_learn: int, band: int) -> int:
    """Return the batches that must be in the replay before the updates of an iteration."""
    if itr + 1 >= n_itr:
        return n_itr  # the run ends with as many batches as iterations
    return max(itr + 1 - band, min_itr_learn + 1 if itr >= min_itr_learn else 0)
