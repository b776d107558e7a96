"""The base of all samplers: their settings, the checks before anything starts, and how the pieces are put together."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from gymnasium.spaces import Box

from rlpyt.core import Agent, EvalResult, EvaluatorBeside, FreeSampler, Sampler
from rlpyt.envs import env_methods, info_recorder
from rlpyt.logging import ProgBarCounter, current_logger
from rlpyt.logging.space_record import record_spaces
from rlpyt.namedarraytuple import Buffer
from rlpyt.old_rlpyt import check_class
from rlpyt.samplers.background import BackgroundSampler, ProcessSettings
from rlpyt.samplers.buffer import Rows, allocate_rows, example_of, samples_of
from rlpyt.samplers.collector import ACTIVITIES, Collector
from rlpyt.samplers.evaluator import Evaluator, EvaluatorProcess
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import NO_LIMIT, FleetRole, FleetSpec, Specs, quotas
from rlpyt.samplers.free import FreeBackgroundSampler
from rlpyt.samplers.parts import in_order
from rlpyt.samplers.states import TypedTrajStates
from rlpyt.samplers.work import StateKeeper, Work
from rlpyt.samplers.workers import Workers
from rlpyt.settings import Settings
from rlpyt.spaces import MASK, has_mask, leaf_spaces
from rlpyt.types import SUCCESS_KEYS, BatchSpec, Kwargs, Run, Samples, StateDict, TrajInfo, as_number, traj_info_maker
from rlpyt.utils.arrays import torchify_buffer
from rlpyt.utils.checks import share_of, whole_number
from rlpyt.utils.replicas import Replicas


class Evaluates(Protocol):
    """Settings of a sampler that evaluates."""

    env_kwargs: Kwargs | None
    eval_n_envs: int
    eval_env_kwargs: Kwargs | None
    eval_env_overrides: Kwargs | None
    eval_max_steps: int | None
    eval_max_trajectories: int | None


@dataclass(eq=False)
class BaseSampler(Settings, Sampler):
    """Settings of all samplers, and the order in which a sampler is put together.

    A subclass says where the work runs: `start` builds and checks the fleets, `build` returns what collects and
    evaluates with them, such as `rlpyt.samplers.work.WorkHere`, and `shutdown` closes them.

    Raises:
        ValueError: if the sizes do not go together.
        TypeError: if EnvCls cannot be called.
    """

    notes_progress: ClassVar[bool] = False
    """Whether the parts note each step and row, so that another process can see if they stand still."""
    traj_states = TypedTrajStates()

    EnvCls: Callable[..., Any]
    """Any callable that returns an environment (see `rlpyt.envs`), `gymnasium.make` among them."""
    env_kwargs: Kwargs | None
    """Its arguments; None is none."""
    batch_T: int
    """Time steps of a batch."""
    batch_B: int
    """Environments."""
    CollectorCls: Callable[..., Collector] | None = Collector
    """The loop that fills a batch; None is the default."""
    max_decorrelation_steps: int = 100
    """Random steps that every environment takes at most before the first batch; 0 for none."""
    TrajInfoCls: Callable[..., TrajInfo] = TrajInfo
    """The statistics of a trajectory."""
    eval_n_envs: int = 0
    """Evaluation environments; 0 for no evaluation."""
    eval_CollectorCls: Callable[..., Evaluator] | None = Evaluator
    """The loop of an evaluation; None is the default."""
    eval_env_kwargs: Kwargs | None = None
    """All arguments of the evaluation environments; None is those of training. See `eval_env_overrides`."""
    eval_max_steps: int | None = None
    """Steps of one evaluation at most, all environments together."""
    eval_max_trajectories: int | None = None
    """Episodes of one evaluation, dealt evenly to the environments."""
    env_info_keys: Sequence[str] | Mapping[str, Any] = ()
    """Names of numbers in the environments' info that are recorded in `samples.env.env_info`; or a mapping from name
    to an example, for those that only some steps give."""
    mid_batch_reset: bool = True
    """Whether an environment goes on with a new episode inside a batch. False lets it rest until the batch is over, and
    resets it while the algorithm learns, for resets that take long. So does a `WaitResetCollector`."""
    acting_threads: int | None = None
    """Torch threads of this process while it collects; None picks. The workers of `CpuSampler`, which act themselves,
    have one each."""
    time_breakdown: bool = False
    """Log how the time of collecting was spent: columns EnvironmentsTime, NetworkTime, WaitingTime and CopyingTime,
    seconds since the last row of the log, as the mean over the processes that collect."""
    eval_env_overrides: Kwargs | None = field(default=None, kw_only=True)
    """Arguments in which the evaluation environments differ from those of training, such as `dict(clip_reward=False)`;
    all others follow training, also where it is changed later. Not together with `eval_env_kwargs`."""

    def __post_init__(self) -> None:
        """Check the settings; a subclass adds its own checks and calls this."""
        super().__post_init__()
        _check_settings(self)
        self.batch_spec = BatchSpec(whole_setting(self, "batch_T"), whole_setting(self, "batch_B"))
        self.batch_size = self.batch_spec.size
        self._specs: Specs = {}
        self._evaluates_beside = False
        self._first_statistics: dict[str, float] = {}  # that every trajectory of these environments has
        self._workers: Workers[Any] | None = None  # processes of this sampler, where it has any
        self._work: Work | None = None

    def __getstate__(self) -> dict[str, object]:
        """Raise an error for a copy of a sampler that runs: its environments would step in other memory."""
        if self.running:
            raise TypeError(
                f"{type(self).__name__}: it was to be copied or pickled while it runs; expected that before initialize "
                "or after shutdown. To go on twice from here, set up new parts and load the state_dict() of each."
            )
        return vars(self)

    @property
    def resets_mid_batch(self) -> bool:
        """Whether an environment goes on inside a batch; that it does not a `WaitResetCollector` says, too."""
        return bool(self.mid_batch_reset and (self.CollectorCls or Collector).mid_batch_reset)  # type: ignore[union-attr]

    @property
    def evaluation_kwargs(self) -> Kwargs:
        """Arguments of the evaluation environments: those of training, but for what evaluation was given of its own."""
        return evaluation_kwargs(self)

    def replace(self, **changes: Any) -> Self:
        """Return a new sampler with some settings changed; see `Settings.replace`.

        Raises:
            ValueError: if `env_kwargs` changes an argument for which `eval_env_kwargs` has the old value too, so that
                the agent would be evaluated in another environment than it is trained in.
        """
        part = super().replace(**changes)
        if "env_kwargs" in changes and self.eval_env_kwargs is not None and part.eval_env_kwargs is not None:
            _check_evaluation_follows(self, part)
        return part

    def share(self, n_replicas: int) -> Self:
        """Return a sampler for one of some replicas; see `rlpyt.core.Sampler.share`."""
        return self.replace(batch_B=share_of(type(self).__name__, "batch_B", self.batch_spec.B, n_replicas))

    # ---- in other processes ----

    @property
    def process(self) -> ProcessSettings:
        """How a process with this sampler is started and watched."""
        return ProcessSettings()

    def in_background(self, lag: int = 1, affinity: Kwargs | None = None) -> Sampler:
        """Return a sampler that runs this one in a process of its own; see `rlpyt.core.Sampler.in_background`."""
        # One that has run before holds on to what it had then.
        return BackgroundSampler(self.replace() if self._specs else self, self.process, lag, affinity)

    def running_freely(self, affinity: Kwargs | None = None) -> FreeSampler:
        """Return a sampler that runs this one in a process of its own; see `rlpyt.core.Sampler.running_freely`."""
        return FreeBackgroundSampler(self.replace() if self._specs else self, self.process, affinity)

    def evaluator_beside(self, agent: Agent, run: Run) -> EvaluatorBeside:
        """Start a process that evaluates while the run goes on; see `rlpyt.core.Sampler.evaluator_beside`."""
        spec = specs_of(self, replace(run, eval_beside=False, replicas=Replicas()))[FleetRole.EVAL]
        spec = replace(spec, sets_back=self.why_not_set_back is None)
        return EvaluatorProcess(agent, spec, run, self.process)

    # ---- set-up ----

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Build and check environments, initialise the agent, allocate the batches; return one row as an example."""
        run = run or Run(batch_spec=self.batch_spec)
        if self._specs and self.running:  # it is initialised again, or has failed to begin
            self.shutdown()
        self._progress = run.progress
        if run.progress is not None and not self.notes_progress:
            run.progress.beat_from_now()
        self._specs, self._evaluates_beside = specs_of(self, run), run.eval_beside
        self._keeper = StateKeeper(type(self).__name__, self._specs[FleetRole.TRAIN])
        check = self.start(self._specs, run.affinity)
        self.why_not_set_back = check.why_not_set_back
        _tell_check(check, self._specs[FleetRole.TRAIN])
        info = check.examples.info
        self._first_statistics = {"GameScore": 0.0} if "game_score" in info else {}
        if any(as_number(info.get(name)) is not None for name in SUCCESS_KEYS):
            self._first_statistics["Success"] = 0.0
        example = _make_example(agent, check, self._specs[FleetRole.TRAIN])
        rows = _allocate(self, example, self._specs, run)
        self.batches = [samples_of(place) for place in rows[FleetRole.TRAIN].places]
        self._torch_batches: list[Samples] = [torchify_buffer(samples) for samples in self.batches]
        self._work = self.build(agent, check, rows)
        return example

    @abstractmethod
    def start(self, specs: Specs, affinity: Mapping[str, Any]) -> Check:
        """Check one environment, then build all; return the result of the check.

        Args:
            specs: the fleets of this replica.
            affinity: of the run; see `rlpyt.utils.affinity`.

        Raises:
            EnvError: if an environment cannot be built, or has other spaces than the one that was checked.
        """

    @abstractmethod
    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> Work:
        """Return the object that collects and evaluates, over the fleets.

        Args:
            agent: initialised.
            check: what `start` returned.
            rows: the memory of the batch, and that of an evaluation where there is one.
        """

    @property
    def running(self) -> bool:
        """Whether there are environments: after `initialize`, until `shutdown`."""
        return self._workers is not None

    def shutdown(self) -> None:
        """Stop the workers, which close their environments."""
        workers, self._workers, self._work = self._workers, None, None
        if workers is not None:
            workers.pool.stop()

    # ---- work ----

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Collect one batch; see `rlpyt.core.Sampler.obtain_samples`."""
        work = work_of(self)
        completed = work.collect(itr)
        if not self.resets_mid_batch:
            work.wake()
        self._keeper.next_itr = itr + 1
        return self._torch_batches[itr % len(self._torch_batches)], in_order(itr, completed)

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the evaluation environments; see `rlpyt.core.Sampler.evaluate_agent`."""
        work = work_of(self)
        if not self.eval_n_envs or self._evaluates_beside:
            raise RuntimeError(
                f"{type(self).__name__}: evaluation was asked for, but there are no evaluation environments here; "
                f"eval_n_envs is {self.eval_n_envs}. Set it above 0, and the runner's eval_beside to False."
            )
        if FleetRole.EVAL not in self._specs:
            return EvalResult([], 0, 0)  # there are more replicas than evaluation environments
        bar = ProgBarCounter(self._specs[FleetRole.EVAL].amount, "evaluation")
        try:
            return work.evaluate(itr, bar.update, deterministic)
        finally:
            bar.stop()

    # ---- what it tells ----

    def env_methods(self, names: Sequence[str]) -> Mapping[str, Callable[..., Buffer]]:
        """Return methods of an environment that is built for them; see `rlpyt.core.Sampler.env_methods`."""
        return env_methods(self.EnvCls, self.env_kwargs or {}, names)

    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun."""
        kwargs = self._specs[FleetRole.TRAIN].traj_info_kwargs if self._specs else {}
        traj_info = traj_info_maker(self.TrajInfoCls, kwargs)()
        for name, value in self._first_statistics.items():
            setattr(traj_info, name, value)
        return traj_info

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Sampler`."""
        workers = {} if self._workers is None else {"workers": len(self._workers.specs)}
        return {"sampler": type(self).__name__, **workers}

    def diagnostics(self) -> dict[str, float]:
        """Return numbers of the collection since the last call for the log, by column."""
        columns: dict[str, float] = {}
        if self.time_breakdown:
            times = work_of(self).times()
            columns = {f"{name.capitalize()}Time": times[name] for name in ACTIVITIES}
        return columns | ({} if self._workers is None else self._workers.columns())

    # ---- state ----

    def why_no_state(self) -> str | None:
        """Return why training environments have no state; see `rlpyt.core.Sampler.why_no_state`."""
        return self._keeper.noted(work_of(self).why_no_state())

    def state_dict(self) -> StateDict:
        """Return the state of training environments, streams and recurrent states; an evaluation leaves none.

        And how many workers were lost: the seeds of the next depend on it.
        """
        state = self._keeper.saved(work_of(self).state_dict())
        return state if self._workers is None else {**state, "restarts": self._workers.pool.n_restarts}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`, of any number of workers and any class of sampler."""
        self.n_cut_episodes += self._keeper.load(state_dict, work_of(self))
        if self._workers is not None:
            self._workers.pool.count_restarts(state_dict.get("restarts", 0))


def work_of(sampler: BaseSampler) -> Work:
    """Return the object that collects and evaluates for a sampler, which must be running."""
    if not sampler.running or sampler._work is None:
        raise RuntimeError(
            f"{type(sampler).__name__}: it was asked for work, but it is not running; call initialize first, and "
            "shutdown last. In a run where a sampler works in another process, runner.training.sampler collects."
        )
    return sampler._work


def evaluation_kwargs(sampler: Evaluates) -> Kwargs:
    """Return the arguments of the evaluation environments; see `BaseSampler.evaluation_kwargs`."""
    if sampler.eval_env_kwargs is not None:
        return sampler.eval_env_kwargs
    return {**(sampler.env_kwargs or {}), **(sampler.eval_env_overrides or {})}


def whole_setting(sampler: object, name: str, least: int = 1, expected: str | None = None) -> int:
    """Return a setting as an integer; refuse one that is not whole, or too small."""
    return whole_number(type(sampler).__name__, name, getattr(sampler, name), least, expected)


def threads_of(sampler: BaseSampler) -> int | None:
    """Return the torch threads while collecting; None picks."""
    return None if sampler.acting_threads is None else whole_setting(sampler, "acting_threads")


def _check_kind(sampler: object, setting: str, holds: Callable[[Any], bool], expected: str) -> None:
    if not holds(value := getattr(sampler, setting)):
        raise TypeError(f"{type(sampler).__name__}: {setting} is {value!r:.100}; expected {expected}.")


def check_environments(sampler: Evaluates) -> None:
    """Check the settings that say what makes environments, and how those of evaluation differ."""
    name, check_kind = type(sampler).__name__, partial(_check_kind, sampler)
    check_kind("EnvCls", callable, "a callable that returns an environment")
    check_kind("TrajInfoCls", callable, "a class, or another callable that returns a TrajInfo")
    for kwargs in ("env_kwargs", "eval_env_kwargs", "eval_env_overrides"):
        check_kind(kwargs, lambda x: isinstance(x, Mapping | None), "a dictionary of the environment's arguments")
    if sampler.eval_env_kwargs is not None and sampler.eval_env_overrides:
        raise ValueError(
            f"{name}: got eval_env_kwargs {sampler.eval_env_kwargs!r:.100} and eval_env_overrides "
            f"{sampler.eval_env_overrides!r:.100}; expected one of them: all arguments of evaluation environments, or "
            "those that differ from training. Set the other to None."
        )


def _check_settings(sampler: BaseSampler) -> None:
    check_environments(sampler)
    for loop in ("CollectorCls", "eval_CollectorCls"):
        _check_kind(sampler, loop, lambda x: x is None or isinstance(x, type), "a class, or None for the usual one")
        if getattr(sampler, loop) is not None:
            check_class(getattr(sampler, loop))
    whole_setting(sampler, "max_decorrelation_steps", 0)
    eval_size_of(sampler)
    threads_of(sampler)


def _check_evaluation_follows(sampler: BaseSampler, changed: BaseSampler) -> None:
    """Check that the environments of evaluation follow a change of those of training."""
    both = [(one.env_kwargs or {}, one.eval_env_kwargs or {}) for one in (sampler, changed)]
    # By their texts: a value may be an array, which has no one answer to ==. A large one is to be written whole.
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        (old, old_eval), (new, new_eval) = [[{k: repr(x) for k, x in kwargs.items()} for kwargs in one] for one in both]
    left = [k for k, x in old.items() if new.get(k) != x and x == old_eval.get(k) == new_eval.get(k)]
    if left:
        raise ValueError(
            f"{type(sampler).__name__}: env_kwargs changes {', '.join(left)} of the training environments, and "
            f"eval_env_kwargs has {', '.join(f'{key}={old[key]:.60}' for key in left)} as before, so that the agent "
            "would be evaluated in another environment than it is trained in; expected both to change. Change "
            "eval_env_kwargs too; or set it to None, and name in eval_env_overrides what evaluation has of its own: "
            "all else follows training."
        )


def eval_size_of(sampler: Evaluates, one_each: bool = False) -> tuple[int, list[int | None], int]:
    """Return the size of an evaluation: environments, the quota of episodes of each, and its steps at most.

    An environment without an episode to run is left out. With `one_each` they run one each where no number is given.
    """
    name = type(sampler).__name__
    n_envs, max_steps, max_trajectories = whole_setting(sampler, "eval_n_envs", 0), None, None
    if sampler.eval_max_trajectories is not None:
        expected = "the number of episodes of one evaluation, from 1, or None for as many as eval_max_steps allows"
        max_trajectories = whole_setting(sampler, "eval_max_trajectories", 1, expected)
    if sampler.eval_max_steps is not None:
        max_steps = whole_setting(sampler, "eval_max_steps", 0, "a whole number of steps, or None for no limit")
    if n_envs == 0:
        return 0, [], NO_LIMIT
    if one_each and max_trajectories is None:
        max_trajectories = n_envs
    if not max_steps and max_trajectories is None:
        raise ValueError(
            f"{name}: eval_n_envs is {n_envs}, but neither eval_max_trajectories nor eval_max_steps says when an "
            "evaluation ends. Give eval_max_trajectories, for example 100."
        )
    n_envs = min(n_envs, max_trajectories or n_envs)
    if max_steps and max_steps < n_envs:
        raise ValueError(
            f"{name}: eval_max_steps is {max_steps}, shared by {n_envs} evaluation environments; expected at least "
            "one step for each, and better enough for whole episodes. Raise it, or lower eval_n_envs."
        )
    return n_envs, quotas(n_envs, max_trajectories), max_steps // n_envs if max_steps else NO_LIMIT


def specs_of(sampler: BaseSampler, run: Run) -> Specs:
    """Return the fleets of a sampler in one replica of a run."""
    B, (n_envs, env_quotas, max_T) = sampler.batch_spec.B, eval_size_of(sampler)
    evaluation = FleetSpec(
        role=FleetRole.EVAL,
        EnvCls=sampler.EnvCls,
        env_kwargs=sampler.evaluation_kwargs,
        env_ranks=list(range(n_envs)),  # of all replicas
        global_B=n_envs,
        seed=run.seed,
        LoopCls=sampler.eval_CollectorCls or Evaluator,
        TrajInfoCls=sampler.TrajInfoCls,
        traj_info_kwargs=dict(run.traj_info_kwargs),
        quotas=env_quotas,
        max_T=max_T,
    )
    train = replace(
        evaluation,
        role=FleetRole.TRAIN,
        env_kwargs=sampler.env_kwargs,
        env_ranks=list(range(run.rank * B, (run.rank + 1) * B)),
        global_B=B * run.world_size,
        LoopCls=sampler.CollectorCls or Collector,
        quotas=(),
        max_T=NO_LIMIT,
        env_info_keys=sampler.env_info_keys,
        max_decorrelation_steps=whole_setting(sampler, "max_decorrelation_steps", 0),
        mid_batch_reset=sampler.resets_mid_batch,
        saves_state=run.saves_state,
        evaluates=n_envs > 0,
    )
    share = evaluation.deal(run.world_size)[run.rank]
    return {FleetRole.TRAIN: train} | ({FleetRole.EVAL: share} if share.env_ranks and not run.eval_beside else {})


def _tell_check(check: Check, spec: FleetSpec) -> None:
    """Log what the check has found."""
    for text in check.examples.advice.values():
        current_logger().warn(text)
    if spec.evaluates and check.why_not_set_back:
        current_logger().log(
            "Evaluations reset their environments, and do not set them back to how they were built. "
            f"{check.why_not_set_back} What it keeps through a reset with a seed, such as running statistics of a "
            "wrapper, goes on from one evaluation to the next, and begins anew where the run is resumed."
        )


def _make_example(agent: Agent, check: Check, spec: FleetSpec) -> Samples:
    """Initialise the agent for the spaces, and return one row of the samples."""
    env = check.examples
    agent.initialize(env.spaces)
    record_spaces(env.spaces)
    heeded = [MASK] if has_mask(env.spaces) else []
    recorder = info_recorder(spec.env_info_keys, env.info, env.ignored_info, heeded)
    if recorder.notice:
        current_logger().log(f"{recorder.notice} Name what is wanted in env_info_keys.")
    for action in leaf_spaces(env.spaces.action):
        if isinstance(action, Box) and not ((action.low == -1).all() and (action.high == 1).all()):
            text = f"Agents of rlpyt scale actions to the bounds of {action}: an environment must not scale them again."
            current_logger().log(text)
    return example_of(agent, env.spaces, recorder.example)


def _allocate(sampler: BaseSampler, example: Samples, specs: Specs, run: Run) -> dict[FleetRole, Rows]:
    workers_write = sampler._workers is not None
    train = allocate_rows(
        example,
        *sampler.batch_spec,
        bootstrap_value=run.bootstrap_value,
        bootstrap_inputs=run.bootstrap_inputs,
        share_memory=workers_write or run.share_memory,
        n_places=run.n_batches,
    )
    rows = {FleetRole.TRAIN: train}
    if FleetRole.EVAL in specs:
        example = example._replace(env=example.env._replace(env_info=None))
        n_envs = len(specs[FleetRole.EVAL].env_ranks)
        rows[FleetRole.EVAL] = allocate_rows(example, 1, n_envs, share_memory=workers_write)
    return rows
