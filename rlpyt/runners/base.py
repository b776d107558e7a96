"""Base of the runners: set-up, the loop of training, and what every row of the log has."""

from __future__ import annotations

import gc
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar

import torch

from rlpyt.core import Agent, Algorithm, Metrics, Sampler
from rlpyt.logging import Logger, ProgBarCounter, current_logger, silent_context
from rlpyt.old_methods import CheckedSubclasses
from rlpyt.old_names import serve_old_names
from rlpyt.runners.agreement import Agreement, TrainingDiverged
from rlpyt.runners.arguments import check_launched, check_numbers, check_parts
from rlpyt.runners.columns import (
    MetricWindow,
    all_finite,
    as_metrics,
    check_names,
    check_values,
    merged_metrics,
    merged_numbers,
)
from rlpyt.runners.compute_choice import choose_settings
from rlpyt.runners.plan import plan_of_replicas
from rlpyt.runners.record import record_of, settings_of
from rlpyt.runners.signals import termination_as_exception
from rlpyt.settings import Settings
from rlpyt.types import Kwargs, Run, TrajInfo
from rlpyt.utils.affinity import Affinity, pinned_to
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import allowed_cpus, available_cpus
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.rw_lock import NoLock
from rlpyt.utils.seeds import make_seed, set_seed

serve_old_names(__name__)


@dataclass(eq=False)
class MinibatchRlBase(Settings, CheckedSubclasses):
    """Runner of a sampler, an agent and an algorithm in one process: it samples, optimises and logs in turn.

    The settings stay as they were given, but for a seed that was drawn. What was chosen for them is in attributes of
    the run: `compute` has the device and precision, `n_itr`, `steps_per_itr` and `log_interval_itrs` the length.

    Raises:
        TypeError: if algo, agent or sampler is something else.
        ValueError: if n_steps or log_interval_steps is below 1, the seed is not a whole number from 0, or the affinity
            has other keys.
    """

    joins_group: ClassVar[bool] = False
    """Whether the processes that a launcher starts become replicas of one run."""

    algo: Algorithm[Any]
    """Learns from the samples."""
    agent: Agent
    """Acts in the environments."""
    sampler: Sampler
    """Collects the samples."""
    n_steps: float
    """Environment steps of the run, all environments counted; rounded up to whole iterations."""
    seed: int | None = None
    """Of all random streams. None draws one: `seed` then holds the drawn seed, and `given_seed` is None."""
    affinity: Kwargs | Sequence[Kwargs] | None = None
    """Cores and devices, a dictionary with fields of `rlpyt.utils.affinity.Affinity`; None leaves all to the runner.
    `SyncRl` takes a list, one for each replica; `AsyncRl` also one with the parts "optimizer" and "sampler"."""
    log_interval_steps: float = 1e5
    """Steps between rows of the log, rounded down to whole iterations; inf writes one row at the end."""
    settings: ComputeSettings | None = None
    """Device, precision, memory format and threads; None chooses them for this machine."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot be meant, and draw the seed if none was given."""
        super().__post_init__()
        check_parts(type(self).__name__, self.algo, self.agent, self.sampler)
        check_numbers(type(self).__name__, self.n_steps, self.log_interval_steps, self.seed)
        check_launched(type(self).__name__, self.joins_group)
        self.cores = Affinity.from_mapping(self.own_affinity())
        if self.settings is None:
            ComputeSettings(device=self.cores.device)  # refuses a device that is not there, before any worker
        self.given_seed = self.seed
        self.seed = make_seed() if self.seed is None else int(self.seed)
        self.replicas = Replicas()
        self.lock = NoLock()  # of what the algorithm shares with other processes
        self._of_all: tuple[Algorithm[Agent], Sampler] | None = None  # where each replica has a share of them
        self._to_give_back = ExitStack()  # undoes what the run has changed in this process

    @property
    def replicas(self) -> Replicas:
        """This replica of the run and the others; set before `startup`."""
        return self.agreement.replicas

    @replicas.setter
    def replicas(self, replicas: Replicas) -> None:
        self.agreement = Agreement(replicas)

    def train(self) -> None:
        """Train until `n_steps`; no worker is left behind, also where the run fails."""
        with termination_as_exception(self.agreement.defer):
            try:
                with self.agreement.stopping_together():
                    n_itr = self.startup()
                    for itr in range(n_itr):
                        samples, traj_infos = self.sampler.obtain_samples(itr)
                        with self.agreement.together(itr * self.steps_per_itr):
                            self.agent.train_mode(itr)
                            metrics = self.algo.optimize_agent(itr, samples)
                        self.store_diagnostics(itr, traj_infos, metrics)
                        self.check_finite(itr)
                        if (itr + 1) % self.log_interval_itrs == 0 or itr + 1 == n_itr:
                            self.log_diagnostics(itr)
                    self.agreement.agree()
            finally:
                self.shutdown()

    # ---- set-up ----

    def own_affinity(self) -> Kwargs | None:
        """Return the affinity of this process."""
        return self.affinity  # type: ignore[return-value]  # a list is refused

    def startup(self) -> int:
        """Build all parts, check that they fit together, print the plan; return the number of iterations."""
        gc.collect()  # the parts of an earlier run refer to each other: its replay would stay beside the new one
        rank = self.replicas.rank
        self.logger: Logger = self._to_give_back.enter_context(silent_context()) if rank else current_logger()
        self.seed = self.agreement.broadcast(self.seed)
        assert self.seed is not None
        set_seed(self.seed, rank)
        self._to_give_back.callback(torch.set_num_threads, torch.get_num_threads())
        # Before anything of torch runs: an OpenMP team larger than needed costs more than it gives.
        torch.set_num_threads(self.settings.torch_threads if self.settings else 1)
        n_itr = self.n_itr = self.agreement.broadcast(self.get_n_itr())
        self.log_interval_itrs = max(1, int(min(n_itr, self.log_interval_steps / self.steps_per_itr)))
        self.record_settings()
        if self.replicas.world_size > 1:
            self.agreement.check_settings({**settings_of(self), "seed": self.given_seed})
        run = Run(
            batch_spec=self.sampler.batch_spec,
            n_itr=n_itr,
            seed=self.seed,
            replicas=self.replicas,
            lock=self.lock,
            mid_batch_reset=self.sampler.mid_batch_reset,
            bootstrap_value=self.algo.bootstrap_value,
            bootstrap_inputs=self.algo.bootstrap_inputs,
            traj_info_kwargs=self.get_traj_info_kwargs(),
            affinity=self.own_affinity() or {},
            eval_beside=self.evaluates_beside,
        )
        run = replace(run, example=self.sampler.initialize(agent=self.agent, run=run))
        self.start_evaluator(run)
        # After the workers have started, which would inherit it.
        if self.cores.set_affinity and self.cores.master_cpus:
            cpus = allowed_cpus(self.cores.master_cpus, "affinity's master_cpus")
            self._to_give_back.enter_context(pinned_to(cpus or available_cpus()))
        self.compute = self.settings or self.choose_compute()
        torch.set_num_threads(self.compute.torch_threads)
        self.agent.to_device(self.compute)
        with self.agreement.together(step=0):
            self.algo.initialize(agent=self.agent, run=run)
        self.agreement.share_weights(self.agent, self.algo)
        self.print_plan(n_itr)
        self.initialize_logging()
        return n_itr

    def take_share(self, *, of_algo: bool = True) -> None:
        """Take the batch sizes that were given for those of all replicas: sampler and algorithm get their shares.

        It is called before `startup`, whose record keeps what was given.

        Args:
            of_algo: whether the algorithm gets one, and not only the sampler.

        Raises:
            ValueError: if a batch size is no multiple of the number of replicas.
            TypeError: if a part has no share.
        """
        algo, sampler = self._of_all = self._of_all or (self.algo, self.sampler)
        n = self.replicas.world_size
        self.algo = algo.share(n) if of_algo and n > 1 else algo
        self.sampler = sampler.share(n) if n > 1 else sampler

    def given(self) -> dict[str, object]:
        """Return all settings by name, as they were given."""
        return super().given() | (dict(zip(("algo", "sampler"), self._of_all, strict=True)) if self._of_all else {})

    @property
    def evaluates_beside(self) -> bool:
        """Whether evaluations run in a process of their own."""
        return False

    def start_evaluator(self, run: Run) -> None:
        """Start the process that evaluates, where there is one."""

    def get_traj_info_kwargs(self) -> dict[str, Any]:
        """Return the arguments of TrajInfoCls."""
        return {"discount": self.algo.discount_at_start()}

    def choose_compute(self) -> ComputeSettings:
        """Return the settings that replica 0 chooses by measurement, with this replica's own device."""
        first = self.replicas.rank == 0  # the others wait, and leave it the cores
        chosen = self.agreement.broadcast(self.measure_compute() if first else ComputeSettings())
        return replace(chosen, device=self.cores.device)

    def measure_compute(self) -> ComputeSettings:
        """Return the device, precision, memory format and threads that are the fastest on this machine."""
        return choose_settings(self.agent, self.cores)

    @property
    def steps_per_itr(self) -> int:
        """Environment steps of one iteration, all replicas counted."""
        return self.sampler.batch_spec.size * self.replicas.world_size

    def get_n_itr(self) -> int:
        """Return the number of iterations."""
        return ceil(int(self.n_steps) / self.steps_per_itr)

    def record_settings(self) -> None:
        """Write the settings of all parts into params.json, and log which of them cannot be written."""
        record, missing = record_of(self)
        self.logger.record_params({"runner": record})
        if missing and self.logger.directory is not None:
            self.logger.log(
                "params.json cannot hold these settings, so runner_from_params must be given them: "
                + "; ".join(missing)
            )

    def plan(self) -> dict[str, object]:
        """Return what the plan says of the runner itself."""
        return {}

    def print_plan(self, n_itr: int) -> None:
        """Log what will be done, before it is done."""
        T, B = self.sampler.batch_spec
        plan = {
            "seed": self.seed,
            "iterations": n_itr,
            "steps": n_itr * self.steps_per_itr,
            "batch": f"T {T} x B {B}",
            **self.algo.plan(),
            **self.sampler.plan(),
            **self.plan(),
            "parameters": sum(p.numel() for p in self.agent.parameters()),
            **self.compute.as_dict(),
        }
        n_replicas = self.replicas.world_size
        if n_replicas > 1:
            plan = plan_of_replicas(plan, n_replicas, self.sampler.batch_spec, self.algo.rows_per_update)
        texts = {k: f"{v:,}" if type(v) is int and k != "seed" else v for k, v in plan.items()}
        self.logger.log("plan: " + ", ".join(f"{k} {v}" for k, v in texts.items()))
        algo = {"class": type(self.algo).__name__, **self.algo.hyper_parameters()}
        self.logger.record_params({"plan": plan, "algo": algo, "compute": self.compute.as_dict()})

    def initialize_logging(self) -> None:
        """Start the clocks and the window of statistics; refuse trajectories that collide with metrics."""
        check_names(self.sampler.new_traj_info(), self.algo.opt_info_fields)
        self._metrics = MetricWindow()
        self._cum_completed_trajs = 0  # of this replica
        self._start_time = self._last_time = time.monotonic()
        self._last_steps = self._last_update_counter = 0
        self.pbar = ProgBarCounter(self.log_interval_itrs)
        self._to_give_back.callback(lambda: self.pbar.stop())  # the bar that is shown then

    def shutdown(self) -> None:
        """Stop the workers, close the environments, give back cores and threads; may be called again."""
        with self._to_give_back:
            self.sampler.shutdown()

    # ---- diagnostics ----

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Keep what the next row of the log is made of.

        Args:
            itr: the iteration.
            traj_infos: trajectories completed in it.
            metrics: metrics of its updates, a dictionary or named tuple of tensors, numbers, or lists of them.
        """
        if traj_infos and not self._cum_completed_trajs:
            check_values(traj_infos[0])  # not only at the first row, which may be hours away
        self._cum_completed_trajs += len(traj_infos)
        self._metrics.add(as_metrics(metrics, f"{type(self.algo).__name__}.optimize_agent"))
        self.pbar.update(itr % self.log_interval_itrs + 1)

    def check_finite(self, itr: int) -> None:
        """Raise `TrainingDiverged` if a metric stored last is not finite: one synchronisation an iteration."""
        if not all_finite(self._metrics.newest):
            bad = [name for name, values in self._metrics.newest.items() if not values.isfinite().all()]
            raise self._diverged(itr, ", ".join(bad))

    def check_weights(self, itr: int) -> None:
        """Raise `TrainingDiverged` if a weight is not finite, which the metrics of the last update do not show."""
        if not all(parameter.isfinite().all() for parameter in self.agent.parameters()):
            raise self._diverged(itr, "the agent's weights")

    def _diverged(self, itr: int, what: str) -> TrainingDiverged:
        step = (itr + 1) * self.steps_per_itr
        hyper = ", ".join(f"{k} {v}" for k, v in vars(self.algo.hyper(itr * self.steps_per_itr)).items())
        return TrainingDiverged(
            f"Iteration {itr} (step {step:,}, update {self.algo.update_counter:,}) of {type(self.algo).__name__}: "
            f"{what} not finite; expected finite numbers. Worth looking at: a lower learning_rate or clip_grad_norm, "
            f"the scale of rewards and observations, float32 instead of {self.compute}. The hyper-parameters were: "
            f"{hyper}. Snapshots, if any, are from before."
        )

    def log_diagnostics(self, itr: int) -> None:
        """Write one row of the log, and a snapshot."""
        self.pbar.stop()
        self.check_weights(itr)
        self.agreement.check_weights(self.agent, self.algo)
        self.save_itr_snapshot(itr)
        self.log_row(itr + 1)
        self.pbar = ProgBarCounter(self.log_interval_itrs)

    @abstractmethod
    def log_row(self, n_done: int) -> None:
        """Write one row of the log after `n_done` iterations."""

    def log_counters(self, n_done: int, new_time: float) -> None:
        """Record the counters and speeds since the last row."""
        steps = n_done * self.steps_per_itr
        updates = self.algo.update_counter
        collected = self.steps_collected(n_done)
        new_steps, new_updates = collected - self._last_steps, updates - self._last_update_counter
        rows_per_update = self.algo.rows_per_update * self.replicas.world_size
        nan = float("nan")
        trajs, diagnostics, warnings = zip(
            *self.agreement.gather(
                (self._cum_completed_trajs, self.sampler.diagnostics(), self.logger.take_warnings())
            ),
            strict=True,
        )
        for rank, text in ((rank, text) for rank, texts in enumerate(warnings) for text in texts):
            self.logger.warn(f"Replica {rank}: {text}")
        for key, value in {
            "Iteration": n_done,
            "CumTime (s)": time.monotonic() - self._start_time,
            "CumSteps": steps,
            "CumCompletedTrajs": sum(trajs),
            "CumUpdates": updates,
            "StepsPerSecond": new_steps / new_time if new_time > 0 else nan,
            "UpdatesPerSecond": new_updates / new_time if new_time > 0 else nan,
            "ReplayRatio": rows_per_update * new_updates / new_steps if new_steps else nan,
            "CumReplayRatio": rows_per_update * updates / collected if collected else nan,
            **merged_numbers(diagnostics),
        }.items():
            self.logger.record_tabular(key, value)
        self._last_steps, self._last_update_counter = collected, updates

    def steps_collected(self, n_done: int) -> int:
        """Return the environment steps collected after `n_done` iterations, by which speed and ratio are counted."""
        return n_done * self.steps_per_itr

    def _log_infos(self, traj_infos: Sequence[TrajInfo]) -> None:
        """Record statistics of trajectories and of the metrics since the last row."""
        self._log_trajs(traj_infos)
        metrics = self._take_metrics()
        for name in dict.fromkeys([*self.algo.opt_info_fields, *metrics]):
            self.logger.record_tabular_misc_stat(name, metrics.get(name, []))

    def _log_trajs(self, traj_infos: Sequence[TrajInfo]) -> None:
        """Record statistics of trajectories."""
        statistics = [info.statistics() for info in traj_infos]
        # The same columns in the same order, whatever single trajectories have, or before there are any.
        for name in dict.fromkeys(name for s in (self.sampler.new_traj_info().statistics(), *statistics) for name in s):
            self.logger.record_tabular_misc_stat(name, [s[name] for s in statistics if name in s])

    def _take_metrics(self) -> dict[str, torch.Tensor]:
        """Return the metrics of all replicas since the last row."""
        own = self._metrics.take()
        if self.replicas.world_size == 1:
            return own
        on_cpu = {name: values.cpu() for name, values in own.items()}
        return merged_metrics(*zip(*self.agreement.gather((on_cpu, self._metrics.of_rows)), strict=True))

    # ---- snapshots ----

    def get_itr_snapshot(self, itr: int) -> dict[str, Any]:
        """Return what a snapshot holds."""
        return {
            "itr": itr,
            "cum_steps": (itr + 1) * self.steps_per_itr,
            "agent_state_dict": self.agent.state_dict(),
            "optimizer_state_dict": self.algo.optim_state_dict(),
        }

    def save_itr_snapshot(self, itr: int) -> None:
        """Save a snapshot as the logger's mode says; before the first update that of the first row alone."""
        if not self.algo.min_itr_learn >= itr + 1 > self.log_interval_itrs:
            self.logger.save_itr_params(itr, self.get_itr_snapshot(itr))
