"""Base of the runners: set-up, the loop of training, and what every row of the log has."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import ceil, inf
from signal import SIGTERM, SIGUSR1
from typing import Any, Literal, Self, cast

import torch

from rlpyt.core import AgentByHand, Algorithm, Remark, Sampler, discount_at_start, hyper_parameters, rows_per_update
from rlpyt.logging import Logger, current_logger, silent_context
from rlpyt.logging.checkpoint_files import Content
from rlpyt.logging.segments import CheckpointError
from rlpyt.old_names import serve_old_names
from rlpyt.run_records import printable
from rlpyt.runners.agreement import Agreement
from rlpyt.runners.arguments import check_compute, check_launched, check_numbers, check_parameters, check_parts
from rlpyt.runners.checkpointing import RunCheckpoints, check_same
from rlpyt.runners.compute_choice import Choice, choose_settings
from rlpyt.runners.hints import discount_warning
from rlpyt.runners.hooked import Hook
from rlpyt.runners.plan import PlanTable, plan_of_job, plan_of_replicas
from rlpyt.runners.record import at_default, class_names_of, record_of, settings_of
from rlpyt.runners.resume import ResumableRun
from rlpyt.runners.signals import Preempted, Preemption, signals_as_exceptions
from rlpyt.types import Kwargs, Run, StateDict
from rlpyt.utils.affinity import Affinity, pinned_to
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.launched import end_with_launcher
from rlpyt.utils.processes import allowed_cpus, available_cores, available_cpus
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.rw_lock import NoLock
from rlpyt.utils.seeds import global_streams, make_seed, set_global_streams, set_seed

serve_old_names(__name__)


@dataclass(eq=False)
class MinibatchRlBase(ResumableRun):
    """Runner of a sampler, an agent and an algorithm in one process: it samples, optimises and logs in turn.

    The settings stay as they were given, but for a seed that was drawn. What was chosen for them is in attributes of
    the run: `compute` has the device and precision, `n_itr`, `steps_per_itr` and `log_interval_itrs` the length.

    Raises:
        TypeError: if algo, agent or sampler is something else.
        ValueError: if n_steps or log_interval_steps is below 1, the seed is not a whole number from 0, or the affinity
            has other keys.
    """

    algo: Algorithm[Any]
    """Learns from the samples."""
    agent: AgentByHand
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
    """Device, precision and so on; None chooses them for this machine in float32, "fastest" also in bfloat16."""
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
        """Refuse settings that cannot be meant, and draw the seed if none was given."""
        super().__post_init__()
        check_parts(type(self).__name__, self.algo, self.agent, self.sampler)
        check_numbers(type(self).__name__, self.n_steps, self.log_interval_steps, self.seed)
        self.check("checkpoint_interval_steps", lambda x: x >= 1, "a number of steps from 1, or inf for none")
        for name in ("checkpoint_interval_minutes", "max_time"):
            if getattr(self, name) is not None:
                self.check(name, lambda x: x > 0, "a number of minutes above 0, or inf for none")
        self.whole("checkpoint_keep")
        self.cores = Affinity.from_mapping(self.own_affinity())
        check_compute(type(self).__name__, self.settings, self.cores.device)
        self.given_seed = self.seed
        self.seed = make_seed() if self.seed is None else int(self.seed)
        self.replicas = Replicas()
        self.preemption = Preemption()
        self.checkpoints: RunCheckpoints | None = None  # set by a run that saves some
        self.lock = NoLock()  # of what the algorithm shares with other processes
        self._of_all: tuple[Algorithm[AgentByHand], Sampler] | None = None  # where each replica has a share of them
        self._to_give_back = ExitStack()  # undoes what the run has changed in this process

    def replace(self, **changes: object) -> Self:
        """Return a new runner with the same settings except for these changes; it draws its seed if this one did."""
        return super().replace(**{"seed": self.given_seed, **changes})

    @property
    def replicas(self) -> Replicas:
        """This replica of the run and the others; set before `startup`."""
        return self.agreement.replicas

    @replicas.setter
    def replicas(self, replicas: Replicas) -> None:
        self.agreement = Agreement(replicas)

    def train(self) -> None:
        """Train until `n_steps`; no worker is left behind, also where the run fails."""
        check_launched(type(self).__name__, self.replicas.world_size, self.max_time)
        end_with_launcher()
        with signals_as_exceptions(self.defer):
            try:
                with self.agreement.stopping_together():
                    n_itr = self.startup()
                    for itr in range(self.first_itr, n_itr):
                        samples, traj_infos = self.sampler.obtain_samples(itr)
                        with self.agreement.together(itr * self.steps_per_itr):
                            self.agent.train_mode(itr)
                            metrics = self.algo.optimize_agent(itr, samples)
                        self.store_diagnostics(itr, traj_infos, metrics)
                        self.check_finite(itr)
                        if (itr + 1) % self.log_interval_itrs == 0 or itr + 1 == n_itr:
                            self.log_diagnostics(itr)
                            self.agree_to_stop(itr + 1)
                        self.save_due_checkpoint(itr + 1)
                        if self.stop_reason:
                            break
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
        manifest = self.open_checkpoints()
        self.seed = manifest["seed"] if manifest else self.agreement.broadcast(self.seed)
        assert self.seed is not None
        set_seed(self.seed, rank)
        self._to_give_back.callback(torch.set_num_threads, torch.get_num_threads())
        # Until they are known: a larger OpenMP team costs more than it gives, and weights are drawn as by one thread.
        torch.set_num_threads(1)
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
            mid_batch_reset=self.sampler.resets_mid_batch,
            bootstrap_value=self.algo.bootstrap_value,
            bootstrap_inputs=self.algo.bootstrap_inputs,
            traj_info_kwargs=self.get_traj_info_kwargs(),
            affinity=self.own_affinity() or {},
            eval_beside=self.evaluates_beside,
            saves_state=self.checkpoints is not None,
        )
        run = replace(run, example=self.sampler.initialize(agent=self.agent, run=run))
        check_parameters(self.agent.parameters(), type(self.agent).__name__)
        self.start_evaluator(run)
        # After the workers have started, which would inherit it.
        if self.cores.set_affinity and self.cores.master_cpus:
            cpus = allowed_cpus(self.cores.master_cpus, "affinity's master_cpus")
            self._to_give_back.enter_context(pinned_to(cpus or available_cpus()))
        self.choice = self.choose_compute(run, manifest["compute"] if manifest else None)
        self.compute = self.choice.settings
        torch.set_num_threads(self.compute.torch_threads)
        self.agent.to_device(self.compute)
        with self.agreement.together(step=0):
            self.algo.initialize(agent=self.agent, run=run)
        self.agreement.share_weights(self.agent, self.algo)
        self.print_plan(n_itr)
        self.initialize_logging()
        self._to_give_back.callback(lambda: self.pbar.stop())  # the bar that is shown then
        planned = self.agent.input_description()
        self.first_itr = self.begin_checkpoints(manifest)
        if (reading := self.agent.input_description()) != planned:
            self.logger.log(
                f"The weights of the checkpoint go on with what they were trained on: observation {reading}"
            )
        self._to_give_back.enter_context(self.followed())
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

    def get_traj_info_kwargs(self) -> Kwargs:
        """Return the arguments of TrajInfoCls."""
        return {"discount": discount_at_start(self.algo)}

    def choose_compute(self, run: Run, before: Kwargs | None = None) -> Choice:
        """Return the settings that were given, or that replica 0 measures while the others leave it the cores.

        Args:
            run: with the example of a row.
            before: the settings of a run that goes on, which are taken if all replicas have cores for them.
        """
        if isinstance(self.settings, ComputeSettings):
            return Choice(self.settings)
        if before and self.agreement.any(before["torch_threads"] > available_cores()) == [False]:
            return Choice(ComputeSettings(**{**before, "device": self.cores.device}))
        choice = self.agreement.broadcast(self.measure_compute(run) if self.replicas.rank == 0 else Choice())
        return replace(choice, settings=replace(choice.settings, device=self.cores.device))

    def measure_compute(self, run: Run, n_busy: int = 0) -> Choice:
        """Return the settings that are the fastest for this run on this machine, with `n_busy` cores left alone."""
        return choose_settings(self.agent, self.cores, n_busy, of=(self.algo, run), bfloat16=self.settings is not None)

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
        """Log what will be done, before it is done: the plan, cautions below it, and warnings."""
        of_algo = self.algo.plan()
        warnings = cast(list[str], of_algo.pop("warnings", []))
        plan = {
            "seed": self.seed,
            "iterations": n_itr,
            "steps": n_itr * self.steps_per_itr,
            "batch": "T {} x B {}".format(*self.sampler.batch_spec),
            "discount": discount_at_start(self.algo),
            **of_algo,
            **self.sampler.plan(),
            **self.plan(),
            **({"observation": reading} if (reading := self.agent.input_description()) else {}),
            "parameters": sum(p.numel() for p in self.agent.parameters()),
            **self.compute.as_dict(),
            **plan_of_job(self.compute.device),
            **self.choice.plan,
        }
        if (n_replicas := self.replicas.world_size) > 1:
            plan = plan_of_replicas(plan, n_replicas, self.sampler.batch_spec, rows_per_update(self.algo))
        table = PlanTable(plan, {name: text for name, text in of_algo.items() if isinstance(text, Remark)})
        self.logger.log_drawn(table.text(), table.drawn)
        short = discount_warning(self.algo.discount, str(record_of(self)[0]))
        for warning in filter(None, [*warnings, short]):
            self.logger.warn_once(warning, warning)
        algo = {"class": type(self.algo).__name__, **hyper_parameters(self.algo)}
        self.logger.record_params({"plan": plan, "algo": algo, "compute": self.compute.as_dict()})

    def shutdown(self) -> None:
        """Stop the workers, close the environments, give back cores and threads; may be called again."""
        with self._to_give_back:
            self.sampler.shutdown()

    # ---- checkpoints ----

    def open_checkpoints(self) -> Content | None:
        """Open the checkpoints of the run, if it is to have some; return the manifest that it goes on from.

        Raises:
            ValueError: if the settings are not those of the manifest.
            CheckpointError: if there are rows to go on from and no checkpoint.
        """
        self.checkpoints, self.preemption = None, Preemption()
        logger = self.logger
        directory, resumes, has_rows = self.agreement.broadcast((logger.directory, logger.resumes, logger.has_rows))
        intervals = (self.checkpoint_interval_steps, self.checkpoint_interval_minutes, self.max_time)
        if directory is None or not (resumes or any(x not in (inf, None) for x in intervals)):
            return None
        self.checkpoints = RunCheckpoints(directory, self.agreement, self.checkpoint_keep)
        self._to_give_back.callback(self.checkpoints.close)
        self.preemption.begin(self.max_time)  # a signal in the rest of the start is kept for the first iteration
        manifest = self.checkpoints.manifest(has_rows) if resumes else None
        if manifest is not None:
            seed = manifest["seed"] if self.given_seed is None else self.seed
            for change in check_same(manifest["settings"], {**self._compared(), "seed": seed}, at_default(self)):
                self.logger.log(f"Changed since the checkpoint: {change}.")
        return manifest

    def begin_checkpoints(self, manifest: Kwargs | None) -> int:
        """Go on from the newest whole checkpoint, where there is a manifest; return the iterations that are done."""
        if self.checkpoints is None:
            return 0
        intervals = self.checkpoint_interval_steps, self.checkpoint_interval_minutes
        self.checkpoints.set_intervals(self.steps_per_itr, *intervals)
        settings = {**self._compared(), "seed": self.seed}
        self.checkpoints.describe(seed=self.seed, settings=settings, compute=self.compute.as_dict())
        if reasons := [reason for reason in self.agreement.gather(self.sampler.why_no_state()) if reason]:
            self.logger.log(f"{reasons[0]} If the run is resumed, its open episodes are truncated in the data.")
        if manifest is None:
            self.checkpoints.continue_from(None)
            return 0
        saved = self.checkpoints.read_newest()
        try:
            self.load_state_dict(saved.state)
        except (LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
            if type(error).__module__.startswith("rlpyt."):  # of a worker, or of another replica
                raise
            why = printable(f"{type(error).__name__}: {error}")
            raise CheckpointError(
                f"Resuming a run: the state of step {saved.step:,} does not fit the parts of the run: {why}"
            ) from error
        self.checkpoints.continue_from(saved)
        n_done = int(saved.info["itr"])
        ended = ": the run is finished. A larger n_steps lets it go on" if n_done >= self.n_itr else ""
        if not ended and self.stopped_at(saved.info, settings):
            n_done = self.n_itr
            ended = f". It was stopped there: {self.stop_reason}. A larger n_steps or other hooks let it go on"
        self.logger.notice(f"Resumed after {saved.step:,} steps{ended}.")
        return n_done

    def _compared(self) -> dict[str, object]:
        """Return the settings that are the same in all starts of the run, by name."""
        algo, sampler = self._of_all or (self.algo, self.sampler)
        parts: dict[str, object] = {"algo": algo, "agent": self.agent, "sampler": sampler}
        names = {place: x for name, part in parts.items() for place, x in class_names_of(part, name).items()}
        return {**names, **settings_of(self), "replicas": self.replicas.world_size}

    def save_due_checkpoint(self, n_done: int) -> None:
        """Save a checkpoint after `n_done` iterations, if one is due.

        Raises:
            Preempted: if the run was asked to end here.
        """
        if self.checkpoints is None:
            return
        reason, score = self.preemption.reason, self.score(n_done)
        ended = n_done >= self.n_itr or bool(self.stop_reason)
        due, ends = self.agreement.any(self.checkpoints.is_due(n_done, score) or ended, bool(reason))
        if not due and not ends:
            return
        self.check_weights(n_done - 1)
        self.checkpoints.save(n_done, self.state_dict(), score)
        if ends or ended:
            whole = self.checkpoints.finish()
        if ends and not ended:
            reason = next(filter(None, self.agreement.gather(reason)))
            step = f"step {n_done * self.steps_per_itr:,}"
            self.logger.notice(f"{reason}: the run ends at {step}, {'with' if whole else 'WITHOUT'} a checkpoint.")
            raise Preempted(f"{reason}: the run ended at {step}.")

    def defer(self, signum: int) -> bool:
        """Return whether the run ends later for a signal, and not at once."""
        if self.preemption.defer(signum):
            self.logger.forget_place()
            return True
        return signum in (SIGTERM, SIGUSR1) and self.agreement.defer(signum)

    def state_dict(self) -> StateDict:
        """Return all that this replica of the run is: agent, optimisers, replay, environments, streams, counters."""
        return {
            "progress": self.progress_state(),  # first: it may write a row whose evaluation is under way
            "sampler": self.sampler.state_dict(),  # second: it may bring batches under way to an end
            "agent": self.agent.state_dict(),
            "algo": self.algo.state_dict(),
            "logger": self.logger.state_dict(),
            "streams": global_streams(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, after `startup` and before the first iteration."""
        for name, part in (("agent", self.agent), ("algo", self.algo), ("sampler", self.sampler)):
            part.load_state_dict(state_dict[name])
        self.load_progress_state(state_dict["progress"])
        self.logger.load_state_dict(state_dict["logger"])
        set_global_streams(state_dict["streams"])  # last, as the others may draw
