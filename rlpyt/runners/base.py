"""Base of the runners: the loop of training, its start, and what users override of it."""

from __future__ import annotations

import gc
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import ceil, inf
from pathlib import Path
from signal import SIGTERM, SIGUSR1
from typing import Any, Literal, Self

import torch

from rlpyt.core import Agent, Algorithm, Metrics, Sampler, discount_at_start
from rlpyt.logging import Logger, Sink, Verbosity, current_logger, logger_context, plot_progress, silent_context
from rlpyt.logging.segments import CheckpointError
from rlpyt.run_records import CHECKPOINTS
from rlpyt.runners.agreement import Agreement
from rlpyt.runners.checkpointing import RunCheckpoints, check_same
from rlpyt.runners.compute_choice import check_compute, compute_of_run
from rlpyt.runners.from_params import (
    RecordError,
    chose_settings,
    compare_versions,
    logger_settings,
    part_from_record,
    read_params,
)
from rlpyt.runners.hooks import Hook, HookCalls, check_hooks
from rlpyt.runners.plan import log_plan
from rlpyt.runners.record import at_default, settings_of, settings_of_all_starts, write_record
from rlpyt.runners.replica_group import ReplicaGroup
from rlpyt.runners.rows import Rows
from rlpyt.runners.run_log import RunLog
from rlpyt.runners.signals import Preemption, Stop, signals_as_exceptions
from rlpyt.runners.training import InTurn, Training
from rlpyt.settings import Settings, whole
from rlpyt.types import Kwargs, Run, StateDict, TrajInfo
from rlpyt.utils.affinity import pinned_to
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.launched import end_with_launcher
from rlpyt.utils.processes import allowed_cpus, available_cpus
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.seeds import make_seed, set_seed


@dataclass(eq=False)
class MinibatchRlBase(Settings):
    """Runner of a sampler, an agent and an algorithm: it samples, optimises and logs in turn.

    The settings stay as they were given, but for a seed that was drawn. What works in a run is in `training`; `compute`
    has the device and precision, `n_itr`, `steps_per_itr` and `log_interval_itrs` the length.

    Raises:
        TypeError: if algo, agent or sampler is something else.
        ValueError: if n_steps or log_interval_steps is below 1, the seed is not a whole number from 0, or the affinity
            has other keys.
    """

    algo: Algorithm[Any]
    """Learns from the samples."""
    agent: Agent
    """Acts in the environments."""
    sampler: Sampler
    """Collects the samples."""
    n_steps: float
    """Environment steps of the run, all environments counted; rounded up to whole iterations. They are rows, and the
    final observation of an episode is a row: episodes of one step are two."""
    seed: int | None = None
    """Of all random streams. None draws one: `seed` then holds the drawn seed, and `given_seed` is None."""
    affinity: Kwargs | Sequence[Kwargs] | None = None
    """Cores and devices, a dictionary with fields of `rlpyt.utils.affinity.Affinity`; None leaves all to the runner.
    `SyncRl` takes a list, one for each replica; `AsyncRl` also one with the parts "optimizer" and "sampler"."""
    log_interval_steps: float = 1e5
    """Steps between rows of the log, rounded down to whole iterations; inf writes one row at the end."""
    settings: ComputeSettings | Literal["fastest"] | None = None
    """Device, precision and so on. None is the rule: images in channels-last with all threads, vectors with one thread,
    float32, the GPU of the affinity. "fastest" is the same with images in bfloat16, where the processor has
    instructions for it."""
    checkpoint_interval_steps: float = field(default=inf, kw_only=True)
    """Steps between checkpoints, from which the run can be resumed; rounded down to whole iterations."""
    checkpoint_interval_minutes: float | None = field(default=None, kw_only=True)
    """Minutes between checkpoints; whichever comes first. None is 10 where `logger_context` has `resume`, or `max_time`
    is given, and no steps are; else no limit."""
    checkpoint_keep: int = field(default=2, kw_only=True)
    """The newest checkpoints that are kept; if one is damaged, the run can go on from the one before."""
    max_time: float = field(default=inf, kw_only=True)
    """Minutes after which this start of the run ends with a checkpoint and exit code 85; see `Preempted`."""
    hooks: Sequence[Hook] = field(default=(), kw_only=True)
    """Parts that are called at the start, rows, evaluations and end of the run, and may stop it; see `Hook`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        check_hooks(name, self.hooks)
        for setting, kind in (("algo", Algorithm), ("agent", Agent), ("sampler", Sampler)):
            if not isinstance(part := getattr(self, setting), kind):
                raise TypeError(
                    f"{name}: {setting} is {part!r:.100}; expected an instance of {kind.__name__}. The order is algo, "
                    "agent, sampler; each may be given by name."
                )
        self.check("n_steps", lambda x: 1 <= x <= 2**62, "a number of steps from 1")
        self.check("log_interval_steps", lambda x: x >= 1, "a number of steps from 1")
        if self.seed is not None:
            expected = "a whole number from 0, or None for one that is drawn"
            self.check("seed", lambda x: x >= 0 and x % 1 == 0, expected)
        self.check("checkpoint_interval_steps", lambda x: x >= 1, "a number of steps from 1, or inf for none")
        for setting in ("checkpoint_interval_minutes", "max_time"):
            if getattr(self, setting) is not None:
                self.check(setting, lambda x: x > 0, "a number of minutes above 0, or inf for none")
        whole(self, "checkpoint_keep")
        self._group, self._collecting = self._make_parts()
        check_compute(name, self.settings, self._group.cores.device)
        self.given_seed = self.seed
        self.seed = make_seed() if self.seed is None else int(self.seed)
        self.training = Training(self.algo, self.agent, self.sampler, self._collecting, self._group.agreement)
        self._preemption, self._stop = Preemption(), Stop()
        self._undo = ExitStack()  # gives back what the run has changed in this process

    @abstractmethod
    def _make_rows(self) -> Rows:
        """Return what the rows of the log of a training are made by."""

    def _make_parts(self) -> tuple[ReplicaGroup, InTurn]:
        """Return the processes that learn, and how they collect."""
        return ReplicaGroup(type(self).__name__, self.affinity), InTurn()

    def replace(self, **changes: object) -> Self:
        """Return a new runner with the same settings except for these changes; it draws its seed if this one did."""
        return super().replace(**{"seed": self.given_seed, **changes})

    # ---- a run ----

    def train(self) -> None:
        """Train until `n_steps`; no worker and no replica is left behind, also where the run fails."""
        with _running(self) as agreement:
            n_itr = self.startup()
            algo, sampler = self.training.algo, self.training.sampler
            for itr in range(self.first_itr, n_itr):
                samples, traj_infos = sampler.obtain_samples(itr)
                with agreement.together(itr * self.steps_per_itr):
                    self.agent.train_mode(itr)
                    metrics = algo.optimize_agent(itr, samples)
                self.store_diagnostics(itr, traj_infos, metrics)
                self._log.check_finite(itr)
                if (itr + 1) % self.log_interval_itrs == 0 or itr + 1 == n_itr:
                    self.log_diagnostics(itr)
                    self._stop.agree(self.training, itr + 1, self._rows.complete)
                if self._checkpoints is not None:
                    self._checkpoints.save_due(itr + 1, self._preemption.reason)
                if self._stop.reason:
                    break
            agreement.agree()

    def startup(self) -> int:
        """Build all parts, check that they fit together, print the plan; return the number of iterations."""
        gc.collect()  # the parts of an earlier run refer to each other: its replay would stay beside the new one
        undo, agreement, replicas = self._undo, self._group.agreement, self.replicas
        self.logger: Logger = undo.enter_context(silent_context()) if replicas.rank else current_logger()
        algo, sampler = self._group.share_of(self.algo, self.sampler)
        sampler = self._collecting.sampler_of(sampler, self._group.sampler_affinity)
        training = self.training = Training(algo, self.agent, sampler, self._collecting, agreement)
        _check_final_rows(algo, sampler)
        training.logger, training.steps_per_itr = self.logger, self.steps_per_itr
        self._stop = Stop()
        self._hook_calls = HookCalls(self.hooks, self)
        self._rows = self._make_rows()
        manifest = self._open_checkpoints()
        seed, settings = _agree_on_settings(self, manifest)
        set_seed(seed, replicas.rank)
        undo.callback(torch.set_num_threads, torch.get_num_threads())
        # Until they are known: a larger OpenMP team costs more than it gives, and weights are drawn as by one thread.
        torch.set_num_threads(1)
        n_itr = self.n_itr = training.n_itr = agreement.broadcast(self.get_n_itr())
        interval = max(1, int(min(n_itr, self.log_interval_steps / self.steps_per_itr)))
        self.log_interval_itrs = training.log_interval_itrs = interval
        write_record(self, self.logger)
        run = _facts_of(self, seed)
        run = replace(run, example=sampler.initialize(agent=self.agent, run=run))
        _check_parameters(self.agent.parameters(), type(self.agent).__name__)
        self._rows.start(run, undo)
        cores = self._group.cores
        # After the workers have started, which would inherit it.
        if cores.set_affinity and cores.master_cpus:
            cpus = allowed_cpus(cores.master_cpus, "affinity's master_cpus")
            undo.enter_context(pinned_to(cpus or available_cpus()))
        before = manifest["compute"] if manifest else None
        self.compute = training.compute = compute_of_run(self.settings, training, cores, before)
        torch.set_num_threads(self.compute.torch_threads)
        self.agent.to_device(self.compute)
        with agreement.together(step=0):
            algo.initialize(agent=self.agent, run=replace(run, env_methods=sampler.env_methods))
        agreement.share_weights(self.agent, algo)
        log_plan(training, seed, self._rows.plan())
        self.initialize_logging()
        undo.callback(lambda: self._log.end_bar())  # the one that is shown then
        planned = self.agent.networks.input_description()
        self.first_itr = 0 if self._checkpoints is None else self._checkpoints.go_on(manifest, settings)
        if (reading := self.agent.networks.input_description()) != planned:
            self.logger.log(
                f"The weights of the checkpoint go on with what they were trained on: observation {reading}"
            )
        steps = self.steps_per_itr
        undo.enter_context(self.logger.live_table(n_itr * steps, self.first_itr * steps))
        undo.enter_context(self._hook_calls.following())
        if self._rows.first and not self.first_itr:
            self._log.end_bar()  # an evaluation shows one of its own
            self.log_row(0)
            self._log.show_bar()
        self._group.note_done(0, 0)
        self._group.end_of_start()
        self._collecting.start(algo)
        return n_itr

    def _open_checkpoints(self) -> dict[str, Any] | None:
        """Make the checkpoints, if the run is to have some; return the manifest that it goes on from."""
        self._checkpoints, logger = None, self.logger
        directory, resumes, has_rows = self._group.agreement.broadcast(
            (logger.directory, logger.resumes, logger.has_rows)
        )
        steps, minutes = self.checkpoint_interval_steps, self.checkpoint_interval_minutes
        if directory is None or not (resumes or any(x not in (inf, None) for x in (steps, minutes, self.max_time))):
            return None
        self._checkpoints = RunCheckpoints(
            self.training, self._rows, self._hook_calls, self._stop, directory, self.checkpoint_keep, steps, minutes
        )
        self._undo.callback(self._checkpoints.close)
        self._preemption.begin(self.max_time)  # a signal in the rest of the start is kept for the first iteration
        return self._checkpoints.manifest(has_rows) if resumes else None

    def shutdown(self) -> None:
        """Stop the workers, close the environments, give back cores and threads; may be called again."""
        self._group.leave()
        with self._undo:
            self.training.sampler.shutdown()
        self.training.sampler = self.sampler  # what stood for it holds memory that it shared with its process

    @property
    def stop_reason(self) -> str:
        """Why the run has stopped at a row of its log; empty if it has not."""
        return self._stop.reason

    @property
    def steps_per_itr(self) -> int:
        """Environment steps of one iteration, all replicas counted."""
        return self._group.steps_of_all(self.sampler.batch_spec.size)

    @property
    def replicas(self) -> Replicas:
        """This replica of the run and the others."""
        return self._group.replicas

    def get_n_itr(self) -> int:
        """Return the number of iterations."""
        return ceil(int(self.n_steps) / self.steps_per_itr)

    def get_traj_info_kwargs(self) -> Kwargs:
        """Return the arguments of TrajInfoCls."""
        return {"discount": discount_at_start(self.training.algo)}

    def request_stop(self, reason: str) -> None:
        """Stop the run in order at the row of the log that is written now, or next.

        It has its snapshot and its checkpoint then. It counts as finished, and `status.json` has the reason, which is
        that of the first of several calls.
        """
        self._stop.request(reason)

    # ---- the log ----

    def initialize_logging(self) -> None:
        """Start the clocks and the windows of statistics; refuse trajectories that collide with metrics."""
        self._log = RunLog(self.training)
        self._rows.begin(self._log)

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        """Keep what the next row of the log is made of: trajectories completed in an iteration, metrics of its updates.

        The metrics are a dictionary or named tuple of tensors, numbers, or lists of them.
        """
        self._rows.add(itr, traj_infos)
        self._log.add(itr, traj_infos, metrics)
        self._group.note_done(itr + 1, (itr + 1) * self.steps_per_itr)

    def log_diagnostics(self, itr: int) -> None:
        """Write one row of the log, and a snapshot."""
        self._log.end_bar()
        self._log.check_weights(itr)
        self._group.agreement.check_weights(self.agent, self.training.algo)
        self.save_itr_snapshot(itr)
        self.log_row(itr + 1)
        self._log.show_bar()

    def log_row(self, n_done: int) -> None:
        """Write one row of the log after `n_done` iterations."""
        self._rows.write(n_done)

    def _log_infos(self, traj_infos: Sequence[TrajInfo]) -> None:
        """Record statistics of trajectories and of the metrics since the last row."""
        self._rows.record_infos(traj_infos)

    def get_itr_snapshot(self, itr: int) -> StateDict:
        """Return what a snapshot holds."""
        return {
            "itr": itr,
            "cum_steps": (itr + 1) * self.steps_per_itr,
            "agent_state_dict": self.agent.state_dict(),
            "optimizer_state_dict": self.training.algo.optim_state_dict(),
        }

    def save_itr_snapshot(self, itr: int) -> None:
        """Save a snapshot as the logger's mode says; before the first update that of the first row alone."""
        if not self.training.algo.min_itr_learn >= itr + 1 > self.log_interval_itrs:
            self.logger.save_itr_params(itr, self.get_itr_snapshot(itr))

    def plot(self, y: str = "ReturnAverage", x: str = "Diagnostics/CumSteps", file: str = "learning_curve.png") -> Path:
        """Draw a column of the run's log over another, and return the picture; see `rlpyt.logging.plot_progress`."""
        return plot_progress(self.logger.directory, x, y, file)

    # ---- from a record ----

    @classmethod
    def resume(
        cls,
        run_dir: str | os.PathLike[str],
        *,
        known: Iterable[object] = (),
        trusted: Iterable[str] = (),
        sinks: Sequence[Sink] = (),
        verbosity: Verbosity | None = None,
        **changes: object,
    ) -> Self:
        """Go on with a run from its directory alone, to its end; return the runner.

            runner = MinibatchRl.resume("data/run_0", n_steps=2e6)

        Args:
            run_dir: directory of the run, `run_<run_ID>`, with its `params.json` and a checkpoint.
            known: classes and functions of yours that the record may name; see `runner_from_params`.
            trusted: modules of yours that may be imported.
            sinks: further destinations of rows, which the record does not have; see `logger_context`.
            verbosity: what is printed, see `logger_context`; None is that of the record.
            **changes: settings instead of those recorded, as far as they may change.

        Raises:
            CheckpointError: if there is no checkpoint, or none is whole.
            RecordError: if the record is damaged, or names what is not trusted.
            ValueError: if a setting has changed with which the run would be another one.
            TypeError: if the run is one of another class.
        """
        directory = Path(os.path.abspath(run_dir))
        if not directory.name.startswith("run_") or not any((directory / CHECKPOINTS).glob("*/manifest.json")):
            raise CheckpointError(
                f"{cls.__name__}.resume: got {run_dir}; expected the directory of a run, run_<run_ID>, with a "
                "checkpoint. A run saves some if checkpoint_interval_steps or checkpoint_interval_minutes is set."
            )
        params = read_params(directory)
        # The device, precision and threads that the run had chosen are in the checkpoint.
        if chose_settings(params["runner"]):
            changes.setdefault("settings", params["runner"]["settings"].get("settings"))
        runner = runner_from_params(directory, known=known, trusted=trusted, **changes)
        if not isinstance(runner, cls):
            name = type(runner).__name__
            raise TypeError(f"{cls.__name__}.resume: {directory} is a run of {name}; expected {name}.resume.")
        options = logger_settings(directory, params.get("logger", {})) | ({"verbosity": verbosity} if verbosity else {})
        run_ID, name = directory.name.removeprefix("run_"), params.get("name", "")
        with logger_context(directory.parent, run_ID, name, sinks=sinks, resume=True, **options):
            runner.train()
        return runner


@contextmanager
def _running(runner: MinibatchRlBase) -> Iterator[Agreement]:
    """Start and stop all that a training has around it: the other replicas, what signals do, the parts of the run.

    Yields:
        The agreement of the replicas.
    """

    def defer(signum: int) -> bool:
        """Return whether the run ends later for a signal, and not at once."""
        if runner._preemption.defer(signum):
            runner.logger.live.forget_place()
            return True
        return signum in (SIGTERM, SIGUSR1) and runner._group.agreement.defer(signum)

    runner._preemption = Preemption()
    with signals_as_exceptions(defer), runner._group.joined(runner.train, runner.settings):
        runner._group.check_launched(runner.max_time)
        end_with_launcher()
        try:
            with runner._group.agreement.stopping_together():
                yield runner._group.agreement
        finally:
            runner.shutdown()


def _agree_on_settings(runner: MinibatchRlBase, manifest: Mapping[str, Any] | None) -> tuple[int, dict[str, object]]:
    """Return the seed and the settings of a run, the same in all replicas and starts; the runner gets a drawn seed."""
    draws_seed, agreement = runner.given_seed is None, runner._group.agreement
    seed = agreement.broadcast(manifest["seed"] if manifest and draws_seed else runner.seed)
    assert seed is not None  # one was drawn
    settings = {**settings_of_all_starts(runner, runner.replicas.world_size), "seed": seed}
    if manifest is not None:
        for change in check_same(manifest["settings"], settings, at_default(runner)):
            runner.logger.log(f"Changed since the checkpoint: {change}.")
    if draws_seed:
        runner.seed = seed
    if runner.replicas.world_size > 1:
        agreement.check_settings({**settings_of(runner), "seed": runner.given_seed})
    return seed, settings


def _facts_of(runner: MinibatchRlBase, seed: int) -> Run:
    """Return the facts of a run that are known before its sampler is initialised."""
    algo, sampler = runner.training.algo, runner.training.sampler
    return Run(
        batch_spec=sampler.batch_spec,
        n_itr=runner.n_itr,
        seed=seed,
        replicas=runner.replicas,
        lock=runner._collecting.lock,
        mid_batch_reset=sampler.resets_mid_batch,
        final_rows=sampler.final_rows,
        bootstrap_value=algo.bootstrap_value,
        bootstrap_inputs=algo.bootstrap_inputs,
        traj_info_kwargs=runner.get_traj_info_kwargs(),
        affinity=runner._group.affinity() or {},
        eval_beside=runner._rows.beside,
        saves_state=runner._checkpoints is not None,
    )


def _check_final_rows(algo: Algorithm[Agent], sampler: Sampler) -> None:
    """Check that the algorithm learns from rows as the sampler gives them."""
    if algo.needs_final_rows and not sampler.final_rows:
        raise ValueError(
            f"{type(algo).__name__}: it learns from final observations that are rows, and {type(sampler).__name__} "
            "gives them none; expected a sampler that does. Use SerialSampler or CpuSampler; or in an algorithm of "
            "your own set needs_final_rows = False, and read env.final_observation or agent.final_value of the samples."
        )


def _check_parameters(parameters: object, agent: str) -> None:
    """Raise TypeError if `parameters` of an agent returned a dictionary, of whose keys nothing can be learned."""
    if isinstance(parameters, Mapping):
        raise TypeError(
            f"{agent}.parameters returned a dictionary with the keys {', '.join(map(str, parameters))}; expected an "
            "iterable of tensors. Return all parameters one after the other, and groups of them from a method of "
            "another name, which optim_initialize of the algorithm reads."
        )


def runner_from_params(
    path: str | os.PathLike[str], *, known: Iterable[object] = (), trusted: Iterable[str] = (), **changes: object
) -> MinibatchRlBase:
    """Return the runner of an earlier run, with new parts of the same settings; `train` gives the same numbers.

        runner = runner_from_params("data/run_0", known=[MyEnv], n_steps=1e6, algo={"learning_rate": 3e-4})

    The file may come from anywhere: only names of rlpyt, of the networks and optimisers of torch, and of gymnasium's
    environments are looked up in it. Device, precision and threads are those that the run had chosen.

    Args:
        path: the directory of the run, or its params.json.
        known: classes and functions of yours that the record may name, such as the class of an environment.
        trusted: modules of yours that may be imported, with all in them; "my_project" has "my_project.envs" too.
        **changes: settings of the runner by name, instead of those recorded. For `algo`, `agent` and `sampler` either a
            dictionary of settings to change, or another part.

    Raises:
        FileNotFoundError: if there is no params.json.
        RecordError: if the file is damaged, a setting was not recorded and is not given, or names something else.
        TypeError: if a change has a name that the part does not have.
    """
    params = read_params(path)
    record, chosen = params["runner"], params.get("compute")
    if chose_settings(record) and not {"affinity", "settings"} & changes.keys() and chosen:
        try:
            changes = {**changes, "settings": ComputeSettings(**chosen)}
        except (TypeError, ValueError, RuntimeError) as error:
            raise RecordError(f"runner_from_params: {path} has {chosen!r:.100} under 'compute': {error}") from None
    runner = part_from_record(record, known=known, trusted=trusted, **changes)
    if not isinstance(runner, MinibatchRlBase):
        raise RecordError(f"{path}: the record is one of {type(runner).__name__}; expected that of a runner.")
    compare_versions(params.get("versions"))
    return runner
