"""The loop of training: sample, optimise, log."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import ceil, inf
from typing import Any

import torch

from rlpyt.core import Agent, Algorithm, EvalResult, Metrics, Sampler
from rlpyt.functional import as_schedule
from rlpyt.logging import Logger, ProgBarCounter, current_logger
from rlpyt.old_methods import CheckedSubclasses
from rlpyt.runners.affinity import check_affinity, pinned_to
from rlpyt.runners.arguments import check_evaluation, check_numbers, check_parts, check_positions
from rlpyt.runners.columns import MetricWindow, all_finite, as_metrics, check_names, check_values
from rlpyt.runners.compute_choice import choose_settings, device_of
from rlpyt.runners.signals import termination_as_exception
from rlpyt.types import Run, TrajInfo
from rlpyt.utils.arguments import NamedArguments
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import allowed_cpus, available_cpus
from rlpyt.utils.seeds import make_seed, set_seed


class TrainingDiverged(RuntimeError):
    """A metric of the updates is not finite: the run was stopped before its snapshot was overwritten."""


class MinibatchRlBase(CheckedSubclasses, metaclass=NamedArguments):
    """Wires a sampler, an agent and an algorithm, and runs them.

    Args:
        algo: learns.
        agent: acts.
        sampler: collects.
        n_steps: rows to collect, all environments counted; rounded up to whole iterations.
        seed: of all random streams; None draws one, which is printed.
        affinity: cores and devices, as `rlpyt` has always had them, see `rlpyt.runners.affinity`; all optional.
        log_interval_steps: steps between rows of the log, rounded down to whole iterations; inf for one at the end.
        settings: device, precision, memory format and threads; None chooses them for this machine.

    Raises:
        TypeError: if algo, agent or sampler is something else.
        ValueError: if n_steps or log_interval_steps is below 1, or seed no whole number from 0, or affinity has other
            keys.
    """

    def __init__(
        self,
        algo: Algorithm,
        agent: Agent,
        sampler: Sampler,
        n_steps: float,
        seed: int | None = None,
        affinity: Mapping[str, Any] | None = None,
        log_interval_steps: float = 1e5,
        settings: ComputeSettings | None = None,
    ) -> None:
        check_parts(type(self).__name__, algo, agent, sampler)
        check_numbers(type(self).__name__, n_steps, log_interval_steps, seed)
        check_affinity(affinity or {})
        if settings is None:
            ComputeSettings(device=device_of(affinity or {}))  # refuses a device that is not there, before any worker
        self.algo = algo
        self.agent = agent
        self.sampler = sampler
        self.n_steps = int(n_steps)
        self.seed = make_seed() if seed is None else int(seed)
        self.affinity = dict(affinity or {})
        self.log_interval_steps = log_interval_steps if log_interval_steps == inf else int(log_interval_steps)
        self.settings = settings
        self.world_size = 1
        self.rank = 0
        self._to_give_back = ExitStack()  # what the process had before this run

    def train(self) -> None:
        """Train until `n_steps`; whatever happens, no worker is left behind."""
        with termination_as_exception():
            try:
                n_itr = self.startup()
                for itr in range(n_itr):
                    samples, traj_infos = self.sampler.obtain_samples(itr)
                    self.agent.train_mode(itr)  # an own algorithm need not
                    metrics = self.algo.optimize_agent(itr, samples)
                    self.store_diagnostics(itr, traj_infos, metrics)
                    if (itr + 1) % self.log_interval_itrs == 0 or itr + 1 == n_itr:
                        self.log_diagnostics(itr)
            finally:
                self.shutdown()

    # ---- set-up ----

    def startup(self) -> int:
        """Build everything, check that it fits together, print the plan; return the number of iterations."""
        self.logger: Logger = current_logger()
        set_seed(self.seed)
        self._to_give_back.callback(torch.set_num_threads, torch.get_num_threads())
        # Before anything of torch runs: an OpenMP team larger than needed costs more than it gives.
        torch.set_num_threads(self.settings.torch_threads if self.settings else 1)
        n_itr = self.get_n_itr()
        run = Run(
            batch_spec=self.sampler.batch_spec,
            n_itr=n_itr,
            seed=self.seed,
            world_size=self.world_size,
            rank=self.rank,
            mid_batch_reset=self.sampler.mid_batch_reset,
            bootstrap_value=self.algo.bootstrap_value,
            traj_info_kwargs=self.get_traj_info_kwargs(),
            affinity=self.affinity,
        )
        run = replace(run, example=self.sampler.initialize(agent=self.agent, run=run))
        # After the workers have started, which would inherit it.
        if self.affinity.get("set_affinity", True) and self.affinity.get("master_cpus"):
            cpus = allowed_cpus(self.affinity["master_cpus"], "affinity's master_cpus")
            self._to_give_back.enter_context(pinned_to(cpus or available_cpus()))
        if self.settings is None:
            self.settings = choose_settings(self.agent, self.affinity)
        torch.set_num_threads(self.settings.torch_threads)
        self.agent.to_device(self.settings)
        self.algo.initialize(agent=self.agent, run=run)
        self.print_plan(n_itr)
        self.initialize_logging()
        return n_itr

    def get_traj_info_kwargs(self) -> dict[str, Any]:
        """Return the arguments of TrajInfoCls."""
        return {"discount": as_schedule(self.algo.discount, self.n_steps, name="discount")(0)}

    def get_n_itr(self) -> int:
        """Return the number of iterations, and set the number between rows of the log."""
        self.steps_per_itr = self.sampler.batch_spec.size * self.world_size
        self.n_itr = ceil(self.n_steps / self.steps_per_itr)
        self.log_interval_itrs = max(1, int(min(self.n_itr, self.log_interval_steps / self.steps_per_itr)))
        return self.n_itr

    def print_plan(self, n_itr: int) -> None:
        """Log what will be done, before it is done."""
        assert self.settings is not None
        T, B = self.sampler.batch_spec
        plan = {
            "seed": self.seed,
            "iterations": n_itr,
            "steps": n_itr * self.steps_per_itr,
            "batch": f"T {T} x B {B}",
            **self.algo.plan(),
            **self.sampler.plan(),
            "parameters": sum(p.numel() for p in self.agent.parameters()),
            **self.settings.as_dict(),
        }
        texts = {k: f"{v:,}" if type(v) is int and k != "seed" else v for k, v in plan.items()}
        self.logger.log("plan: " + ", ".join(f"{k} {v}" for k, v in texts.items()))
        algo = {"class": type(self.algo).__name__, **self.algo.hyper_parameters()}
        self.logger.record_params({"plan": plan, "algo": algo})

    def initialize_logging(self) -> None:
        """Start the clocks and the window of statistics; refuse trajectories that collide with metrics."""
        check_names(self.sampler.new_traj_info(), self.algo.opt_info_fields)
        self._metrics = MetricWindow()
        self._cum_completed_trajs = 0
        self._start_time = self._last_time = time.monotonic()
        self._last_steps = self._last_update_counter = 0
        self.pbar = ProgBarCounter(self.log_interval_itrs)

    def shutdown(self) -> None:
        """Stop the workers, close the environments, give back cores and threads; may be called again."""
        with self._to_give_back:
            self.sampler.shutdown()
            if "pbar" in self.__dict__:
                self.pbar.stop()

    # ---- diagnostics ----

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Keep what the next row of the log is made of, and stop a run that has diverged.

        Args:
            itr: the iteration.
            traj_infos: completed in it.
            metrics: of its updates, a dictionary or named tuple of tensors, numbers, or lists of them.
        """
        if traj_infos and not self._cum_completed_trajs:
            check_values(traj_infos[0])  # not only at the first row, which may be hours away
        self._cum_completed_trajs += len(traj_infos)
        metrics = as_metrics(metrics, f"{type(self.algo).__name__}.optimize_agent")
        self._metrics.add(metrics)
        self.check_finite(itr, metrics)
        self.pbar.update(itr % self.log_interval_itrs + 1)

    def check_finite(self, itr: int, metrics: Metrics) -> None:
        """Raise `TrainingDiverged` where a metric is not finite: one synchronisation an iteration."""
        if not all_finite(metrics):
            bad = [name for name, values in metrics.items() if not values.isfinite().all()]
            raise self._diverged(itr, ", ".join(bad))

    def check_weights(self, itr: int) -> None:
        """Raise `TrainingDiverged` where the last update of finite metrics led to weights that are not."""
        if not all(parameter.isfinite().all() for parameter in self.agent.parameters()):
            raise self._diverged(itr, "the agent's weights")

    def _diverged(self, itr: int, what: str) -> TrainingDiverged:
        step = (itr + 1) * self.steps_per_itr
        hyper = ", ".join(f"{k} {v}" for k, v in vars(self.algo.hyper(itr * self.steps_per_itr)).items())
        return TrainingDiverged(
            f"Iteration {itr} (step {step:,}, update {self.algo.update_counter:,}) of {type(self.algo).__name__}: "
            f"{what} not finite; expected finite numbers. Worth looking at: a lower learning_rate or clip_grad_norm, "
            f"the scale of rewards and observations, float32 instead of {self.settings}. The hyper-parameters were: "
            f"{hyper}. Snapshots, if any, are from before."
        )

    def log_diagnostics(self, itr: int) -> None:
        """Write one row of the log, and a snapshot."""
        self.pbar.stop()
        self.check_weights(itr)
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
        new_steps, new_updates = steps - self._last_steps, updates - self._last_update_counter
        rows_per_update = self.algo.batch_size * self.world_size
        nan = float("nan")
        for key, value in {
            "Iteration": n_done,
            "CumTime (s)": time.monotonic() - self._start_time,
            "CumSteps": steps,
            "CumCompletedTrajs": self._cum_completed_trajs,
            "CumUpdates": updates,
            "StepsPerSecond": new_steps / new_time if new_time > 0 else nan,
            "UpdatesPerSecond": new_updates / new_time if new_time > 0 else nan,
            "ReplayRatio": rows_per_update * new_updates / new_steps if new_steps else nan,
            "CumReplayRatio": rows_per_update * updates / steps if steps else nan,
            **self.sampler.diagnostics(),
        }.items():
            self.logger.record_tabular(key, value)
        self._last_steps, self._last_update_counter = steps, updates

    def _log_infos(self, traj_infos: Sequence[TrajInfo]) -> None:
        """Record statistics of trajectories and of the metrics since the last row."""
        statistics = [info.statistics() for info in traj_infos]
        # The same columns in the same order, whatever single trajectories have, or before there are any.
        for name in dict.fromkeys(name for s in (self.sampler.new_traj_info().statistics(), *statistics) for name in s):
            self.logger.record_tabular_misc_stat(name, [s[name] for s in statistics if name in s])
        metrics = self._metrics.take()
        for name in dict.fromkeys([*self.algo.opt_info_fields, *metrics]):
            self.logger.record_tabular_misc_stat(name, metrics.get(name, []))

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


class MinibatchRl(MinibatchRlBase):
    """Logs the statistics of the trajectories that training itself completes.

    Args:
        log_traj_window: how many of the last trajectories the statistics are of.
        *args: see `MinibatchRlBase`.
        **kwargs: see `MinibatchRlBase`.
    """

    def __init__(self, *args: Any, log_traj_window: int = 100, **kwargs: Any) -> None:
        check_positions(type(self).__name__, args)
        super().__init__(*args, **kwargs)
        if not log_traj_window >= 1:
            raise ValueError(
                f"{type(self).__name__}: log_traj_window is {log_traj_window!r}; expected a number of trajectories "
                "from 1."
            )
        self.log_traj_window = int(log_traj_window)

    def initialize_logging(self) -> None:
        """Start the clocks and the window of trajectories."""
        super().initialize_logging()
        self._traj_infos: deque[TrajInfo] = deque(maxlen=self.log_traj_window)
        self._new_completed_trajs = 0

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Keep the last trajectories."""
        self._new_completed_trajs += len(traj_infos)
        self._traj_infos.extend(traj_infos)
        super().store_diagnostics(itr, traj_infos, metrics)

    def log_row(self, n_done: int) -> None:
        """Write one row of the log."""
        now = time.monotonic()
        with self.logger.tabular_prefix("Diagnostics/"):
            self.logger.record_tabular("NewCompletedTrajs", self._new_completed_trajs)
            self.logger.record_tabular("StepsInTrajWindow", sum(info.Length for info in self._traj_infos))
            self.log_counters(n_done, now - self._last_time)
        self._log_infos(list(self._traj_infos))
        self.logger.dump_tabular(n_done * self.steps_per_itr)
        self._new_completed_trajs = 0
        self._last_time = time.monotonic()


class MinibatchRlEval(MinibatchRlBase):
    """Evaluates the agent before the first iteration and at every row of the log, and logs those trajectories.

    Rows before the first update have none, as the agent is still the one of the first evaluation.

    Args:
        eval_deterministic: whether evaluations take the most probable action instead of a sampled one.
        *args: see `MinibatchRlBase`.
        **kwargs: see `MinibatchRlBase`.

    Raises:
        ValueError: if the sampler has no evaluation environments.
    """

    def __init__(self, *args: Any, eval_deterministic: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.eval_deterministic = eval_deterministic
        if self.sampler.eval_n_envs < 1:
            raise ValueError(
                f"{type(self).__name__}: the sampler's eval_n_envs is {self.sampler.eval_n_envs}; expected at least 1. "
                "Set it and eval_max_trajectories, or use MinibatchRl, which logs training's own trajectories."
            )

    def startup(self) -> int:
        """Build everything, and evaluate the agent as it starts."""
        n_itr = super().startup()
        self.pbar.stop()  # the evaluation shows a bar of its own
        self.log_row(0)
        self.pbar = ProgBarCounter(self.log_interval_itrs)
        return n_itr

    def initialize_logging(self) -> None:
        """Start the clocks."""
        super().initialize_logging()
        self._cum_eval_time = 0.0

    def evaluate_agent(self, itr: int) -> EvalResult:
        """Run an evaluation and count its time."""
        start = time.monotonic()
        # An own sampler's method may have no such argument, and needs none where nothing is asked of it.
        options = {"deterministic": True} if self.eval_deterministic else {}
        result = self.sampler.evaluate_agent(itr, **options)
        check_evaluation(f"{type(self.sampler).__name__}.evaluate_agent", result)
        self._cum_eval_time += time.monotonic() - start
        if result.unfinished:
            self.logger.warn_once(
                "unfinished evaluation",
                f"{result.unfinished} episodes of the evaluation's quota were cut off by eval_max_steps and are not in "
                "its statistics, which favours short ones. Raise eval_max_steps or lower eval_max_trajectories.",
            )
        return result

    def log_row(self, n_done: int) -> None:
        """Evaluate, and write one row of the log."""
        train_time = time.monotonic() - self._last_time
        unchanged = 0 < n_done <= self.algo.min_itr_learn
        if unchanged and n_done == self.log_interval_itrs:
            self.logger.log(
                "The agent is the one evaluated at step 0 until the first update; it is not evaluated again."
            )
        result = EvalResult([], 0, 0) if unchanged else self.evaluate_agent(n_done)
        with self.logger.tabular_prefix("Diagnostics/"):
            self.logger.record_tabular("StepsInEval", result.steps)
            self.logger.record_tabular("TrajsInEval", len(result.traj_infos))
            self.logger.record_tabular("TrajsUnfinishedInEval", result.unfinished)
            self.logger.record_tabular("CumEvalTime", self._cum_eval_time)
            self.logger.record_tabular("CumTrainTime", time.monotonic() - self._start_time - self._cum_eval_time)
            self.log_counters(n_done, train_time)
        self._log_infos(result.traj_infos)
        self.logger.dump_tabular(n_done * self.steps_per_itr)
        self._last_time = time.monotonic()
