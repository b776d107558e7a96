"""The base of all samplers: their settings, the checks before anything starts, and how the pieces are put together."""

from __future__ import annotations

import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium.spaces import Box

from rlpyt.core import Agent, EvalResult, EvaluatorBeside, FreeSampler, Sampler
from rlpyt.envs import info_recorder
from rlpyt.logging import Logger, ProgBarCounter, current_logger
from rlpyt.logging.space_record import record_spaces
from rlpyt.samplers.background import BackgroundSampler
from rlpyt.samplers.background_server import MovableSampler
from rlpyt.samplers.buffer import Rows, allocate_rows, example_of, samples_of
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.evaluator import Evaluator
from rlpyt.samplers.evaluator_process import EvaluatorProcess
from rlpyt.samplers.fleet import Check
from rlpyt.samplers.fleet_spec import EvalSize, FleetRole, FleetSpec, Specs, quotas
from rlpyt.samplers.free import FreeBackgroundSampler
from rlpyt.samplers.parts import CompletedTraj, in_order
from rlpyt.samplers.state_keeper import StateHolder, StateKeeper
from rlpyt.samplers.stopwatch import ACTIVITIES
from rlpyt.settings import Settings
from rlpyt.types import SUCCESS_KEYS, BatchSpec, Kwargs, Run, Samples, StateDict, TrajInfo, as_success, traj_info_maker
from rlpyt.utils.arrays import torchify_buffer
from rlpyt.utils.checks import share_of, whole_number
from rlpyt.utils.compute import torch_threads
from rlpyt.utils.replicas import Replicas

_LONG_SECONDS = 5.0  # without a word; more is announced


@dataclass(eq=False)
class BaseSampler(Settings, MovableSampler):
    """Settings of all samplers, and the order in which a sampler is put together.

    A subclass says where the work runs: `start` builds and checks the fleets, `build` puts collector and evaluator
    over them, and `shutdown` closes them. A subclass whose collector runs in another process also says how to `collect`
    and how to `run_evaluation`.

    Raises:
        ValueError: if the sizes do not go together.
        TypeError: if EnvCls cannot be called.
    """

    default_acting_threads: ClassVar[int | None] = None
    """Torch threads while collecting where none were given; None leaves them as the run has set them."""
    shares_memory: ClassVar[bool] = False
    """Whether other processes write the rows."""

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
    resets it while the algorithm learns, for resets that take long. `WaitResetCollector` sets it to False."""
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
        """Refuse values that cannot be meant; a subclass adds its own checks and calls this."""
        super().__post_init__()
        if not callable(self.EnvCls):
            raise TypeError(
                f"{type(self).__name__}: EnvCls is {self.EnvCls!r}; expected a callable that returns an environment."
            )
        self._check_kind("TrajInfoCls", callable, "a class, or another callable that returns a TrajInfo")
        for name in ("CollectorCls", "eval_CollectorCls"):
            self._check_kind(name, lambda x: x is None or isinstance(x, type), "a class, or None for the usual one")
        for name in ("env_kwargs", "eval_env_kwargs", "eval_env_overrides"):
            self._check_kind(
                name, lambda x: isinstance(x, Mapping | None), "a dictionary of the environment's arguments"
            )
        if self.eval_env_kwargs is not None and self.eval_env_overrides:
            raise ValueError(
                f"{type(self).__name__}: got eval_env_kwargs {self.eval_env_kwargs!r:.100} and eval_env_overrides "
                f"{self.eval_env_overrides!r:.100}; expected one of them: all arguments of evaluation environments, or "
                "those that differ from training. Set the other to None."
            )
        self.batch_spec = BatchSpec(self._whole("batch_T"), self._whole("batch_B"))
        self._whole("max_decorrelation_steps", 0)
        self.eval_size()
        if self.acting_threads is not None:
            self._whole("acting_threads")
        self._asked_mid_batch_reset = self.mid_batch_reset
        # A WaitResetCollector is another way to say it, of rlpyt 0.1.
        self.mid_batch_reset = bool(self.mid_batch_reset and (self.CollectorCls or Collector).mid_batch_reset)  # type: ignore[union-attr]
        self._gives_score = False
        self._gives_success = False
        self._traj_info_kwargs: Kwargs = {}
        self._specs: Specs = {}
        self._evaluates_beside = False
        self._collector: Collector  # set by `build`
        self._evaluator: Evaluator

    @property
    def evaluation_kwargs(self) -> Kwargs:
        """Arguments of the evaluation environments: those of training, but for what evaluation was given of its own."""
        if self.eval_env_kwargs is not None:
            return self.eval_env_kwargs
        return {**(self.env_kwargs or {}), **(self.eval_env_overrides or {})}

    def replace(self, **changes: Any) -> Self:
        """Return a new sampler with some settings changed; see `Settings.replace`.

        Raises:
            ValueError: if `env_kwargs` changes an argument for which `eval_env_kwargs` has the old value too, so that
                the agent would be evaluated in another environment than it is trained in.
        """
        if changes.get("eval_env_kwargs", self.eval_env_kwargs) is not None and "env_kwargs" in changes:
            self._check_evaluation_follows(changes["env_kwargs"] or {}, changes.get("eval_env_kwargs"))
        return super().replace(**changes)

    def _check_evaluation_follows(self, env_kwargs: Kwargs, eval_env_kwargs: Kwargs | None) -> None:
        old, evaluation = self.env_kwargs or {}, self.eval_env_kwargs or {}
        asked = evaluation if eval_env_kwargs is None else eval_env_kwargs
        # By their texts: a value may be an array, which has no one answer to ==. A large one is to be written whole.
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            changed = [key for key, x in old.items() if key not in env_kwargs or repr(env_kwargs[key]) != repr(x)]
            left = [
                key
                for key in changed
                if key in evaluation and repr(old[key]) == repr(evaluation[key]) == repr(asked.get(key))
            ]
        if left:
            raise ValueError(
                f"{type(self).__name__}: env_kwargs changes {', '.join(left)} of the training environments, and "
                f"eval_env_kwargs has {', '.join(f'{key}={old[key]!r:.60}' for key in left)} as before, so that the "
                "agent would be evaluated in another environment than it is trained in; expected both to change. "
                "Change eval_env_kwargs too; or set it to None, and name in eval_env_overrides what evaluation has of "
                "its own: all else follows training."
            )

    def given(self) -> dict[str, Any]:
        """Return all settings by name, `mid_batch_reset` without what the `CollectorCls` has changed."""
        changed = self._asked_mid_batch_reset and not (self.CollectorCls or Collector).mid_batch_reset  # type: ignore[union-attr]
        given = super().given()
        return given | {"mid_batch_reset": True} if changed and "mid_batch_reset" in given else given

    def _check_kind(self, name: str, holds: Callable[[Any], bool], expected: str) -> None:
        value = getattr(self, name)
        if not holds(value):
            raise TypeError(f"{type(self).__name__}: {name} is {value!r:.100}; expected {expected}.")

    def _whole(self, name: str, least: int = 1, expected: str | None = None) -> int:
        return whole_number(type(self).__name__, name, getattr(self, name), least, expected)

    def eval_size(self) -> EvalSize:
        """Return how much an evaluation runs.

        Raises:
            ValueError: if it has no end, or no step for every environment.
        """
        name = type(self).__name__
        n_envs, max_steps, max_trajectories = self._whole("eval_n_envs", 0), None, None
        if self.eval_max_trajectories is not None:
            expected = "the number of episodes of one evaluation, from 1, or None for as many as eval_max_steps allows"
            max_trajectories = self._whole("eval_max_trajectories", 1, expected)
        if self.eval_max_steps is not None:
            max_steps = self._whole("eval_max_steps", 0, "a whole number of steps, or None for no limit")
        if n_envs > 0 and not max_steps and max_trajectories is None:
            raise ValueError(
                f"{name}: eval_n_envs is {n_envs}, but neither eval_max_trajectories nor eval_max_steps says when an "
                "evaluation ends. Give eval_max_trajectories, for example 100."
            )
        least = min(n_envs, max_trajectories or n_envs)
        if n_envs > 0 and max_steps and max_steps < least:
            raise ValueError(
                f"{name}: eval_max_steps is {max_steps}, shared by {least} evaluation environments; expected at least "
                "one step for each, and better enough for whole episodes. Raise it, or lower eval_n_envs."
            )
        return EvalSize(least, max_steps, max_trajectories)

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return self.batch_spec.size

    def share(self, n_replicas: int) -> Self:
        """Return a sampler for one of some replicas; see `rlpyt.core.Sampler.share`."""
        return self.replace(batch_B=share_of(type(self).__name__, "batch_B", self.batch_spec.B, n_replicas))

    # ---- in a process of its own ----

    @property
    def returns_its_places(self) -> bool:
        """Whether batches are the rows in memory: not where a subclass has its own way to return them."""
        return type(self).obtain_samples is BaseSampler.obtain_samples

    def in_background(self, lag: int = 1, affinity: Kwargs | None = None) -> Sampler:
        """Return a sampler that runs this one in a process of its own; see `rlpyt.core.Sampler.in_background`."""
        # One that has run before holds on to what it had then.
        return BackgroundSampler(self.replace() if self._specs else self, lag, affinity)

    def running_freely(self, affinity: Kwargs | None = None) -> FreeSampler:
        """Return a sampler that runs this one in a process of its own; see `rlpyt.core.Sampler.running_freely`."""
        return FreeBackgroundSampler(self.replace() if self._specs else self, affinity)

    # ---- set-up ----

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Build and check environments, initialise the agent, allocate the batches; return one row as an example."""
        run = run or Run(batch_spec=self.batch_spec)
        self._traj_info_kwargs = dict(run.traj_info_kwargs)
        self._specs, self._evaluates_beside = self.make_specs(run), run.eval_beside
        self._keeper = StateKeeper(type(self).__name__)
        check = self.start(self._specs, run.affinity)
        self.why_not_set_back = check.why_not_set_back
        self._tell(check)
        example = self._make_example(agent, check)
        rows = self._allocate(example, run)
        self.batches = [samples_of(place) for place in rows[FleetRole.TRAIN].places]
        self._torch_batches: list[Samples] = [torchify_buffer(samples) for samples in self.batches]
        self.build(agent, check, rows)
        return example

    def make_specs(self, run: Run) -> Specs:
        """Return the fleets of this replica."""
        B, size = self.batch_spec.B, self.eval_size()
        train = FleetSpec(
            role=FleetRole.TRAIN,
            EnvCls=self.EnvCls,
            env_kwargs=self.env_kwargs,
            env_ranks=list(range(run.rank * B, (run.rank + 1) * B)),
            global_B=B * run.world_size,
            seed=run.seed,
            LoopCls=self.CollectorCls or Collector,
            TrajInfoCls=self.TrajInfoCls,
            traj_info_kwargs=dict(run.traj_info_kwargs),
            env_info_keys=self.env_info_keys,
            max_decorrelation_steps=self._whole("max_decorrelation_steps", 0),
            mid_batch_reset=self.mid_batch_reset,
            saves_state=run.saves_state,
            evaluates=size.n_envs > 0,
        )
        if not size.n_envs or run.eval_beside:
            return {FleetRole.TRAIN: train}
        evaluation = FleetSpec(
            role=FleetRole.EVAL,
            EnvCls=self.EnvCls,
            env_kwargs=self.evaluation_kwargs,
            env_ranks=list(range(size.n_envs)),  # of all replicas
            global_B=size.n_envs,
            seed=run.seed,
            LoopCls=self.eval_CollectorCls or Evaluator,
            TrajInfoCls=self.TrajInfoCls,
            traj_info_kwargs=dict(run.traj_info_kwargs),
            quotas=quotas(size.n_envs, size.max_trajectories),
            max_T=size.max_T,
        )
        share = evaluation.deal(run.world_size)[run.rank]
        return {FleetRole.TRAIN: train, **({FleetRole.EVAL: share} if share.env_ranks else {})}

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
    def build(self, agent: Agent, check: Check, rows: Mapping[FleetRole, Rows]) -> None:
        """Put collector and evaluator together over the fleets; or hand workers what they need for theirs.

        Args:
            agent: initialised.
            check: what `start` returned.
            rows: the memory of the batch, and that of an evaluation where there is one.
        """

    def _tell(self, check: Check) -> None:
        """Log what the check has found, and how long the random steps before the first batch take, if it is long."""
        logger = current_logger()
        for text in check.examples.advice.values():
            _advise(logger, text)
        if self.eval_size().n_envs and check.why_not_set_back:
            logger.log(
                "Evaluations reset their environments, and do not set them back to how they were built. "
                f"{check.why_not_set_back} What it keeps through a reset with a seed, such as running statistics of a "
                "wrapper, goes on from one evaluation to the next, and begins anew where the run is resumed."
            )
        most = self._specs[FleetRole.TRAIN].max_decorrelation_steps
        # One after the other in a process, with as many steps as are drawn for each; a vector environment steps all.
        n_steps = most if check.steps_all else self._envs_of_process() * most / 2
        if (seconds := n_steps * check.examples.step_seconds) > _LONG_SECONDS:
            logger.log(
                f"Before the first batch every environment takes 1 to {most} random steps (max_decorrelation_steps), "
                f"so that their episodes do not end together: about {seconds:.0f} s. 0 turns this off."
            )

    def _envs_of_process(self) -> int:
        """Return how many training environments are stepped in one process."""
        return len(self._specs[FleetRole.TRAIN].env_ranks)

    def _make_example(self, agent: Agent, check: Check) -> Samples:
        """Initialise the agent for the spaces, and return one row of the samples."""
        env, spec = check.examples, self._specs[FleetRole.TRAIN]
        self._gives_score = "game_score" in env.info
        self._gives_success = any(as_success(env.info.get(name)) is not None for name in SUCCESS_KEYS)
        agent.initialize(env.spaces)
        record_spaces(env.spaces)
        recorder = info_recorder(spec.env_info_keys, env.info, env.ignored_info)
        if recorder.notice:
            current_logger().log(f"{recorder.notice} Name what is wanted in env_info_keys.")
        action = env.spaces.action
        if isinstance(action, Box) and not ((action.low == -1).all() and (action.high == 1).all()):
            text = f"Agents of rlpyt scale actions to the bounds of {action}: an environment must not scale them again."
            current_logger().log(text)
        return example_of(agent, env.spaces, recorder.example)

    def _allocate(self, example: Samples, run: Run) -> dict[FleetRole, Rows]:
        """Allocate the rows of every fleet."""
        train = allocate_rows(
            example,
            *self.batch_spec,
            bootstrap_value=run.bootstrap_value,
            bootstrap_inputs=run.bootstrap_inputs,
            share_memory=self.shares_memory or run.share_memory,
            n_places=run.n_batches,
        )
        rows = {FleetRole.TRAIN: train}
        if FleetRole.EVAL in self._specs:
            example = example._replace(env=example.env._replace(env_info=None))
            n_envs = len(self._specs[FleetRole.EVAL].env_ranks)
            rows[FleetRole.EVAL] = allocate_rows(example, 1, n_envs, share_memory=self.shares_memory)
        return rows

    # ---- work ----

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Collect one batch; see `rlpyt.core.Sampler.obtain_samples`."""
        self._check_running()
        completed = self.collect(itr)
        self._keeper.next_itr = itr + 1
        return self._torch_batches[itr % len(self._torch_batches)], in_order(itr, completed)

    def collect(self, itr: int, first_t: int | None = None) -> list[CompletedTraj]:
        """Fill the rows of the batch, and let environments that rest be reset; see `Collector.collect_batch`."""
        with torch_threads(self._n_threads()):
            # A loop of the user's may lack the argument, and needs none where no batch is resumed.
            completed = self._collector.collect_batch(itr, *(() if first_t is None else (first_t,)))
        if not self.mid_batch_reset:
            self._collector.wake()
            self._collector.stopwatch.lap(self._collector.parts[0].envs.waits_for)
        return completed

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the evaluation environments; see `rlpyt.core.Sampler.evaluate_agent`."""
        self._check_running()
        if not self.eval_size().n_envs or self._evaluates_beside:
            raise RuntimeError(
                f"{type(self).__name__}: evaluation was asked for, but there are no evaluation environments here; "
                f"eval_n_envs is {self.eval_n_envs}. Set it above 0, and the runner's eval_beside to False."
            )
        if FleetRole.EVAL not in self._specs:
            return EvalResult([], 0, 0)  # there are more replicas than evaluation environments
        bar = ProgBarCounter(self._specs[FleetRole.EVAL].amount, "evaluation")
        try:
            return self.run_evaluation(itr, bar.update, deterministic)
        finally:
            bar.stop()

    def evaluator_beside(self, agent: Agent, run: Run) -> EvaluatorBeside:
        """Start a process that evaluates while the run goes on; see `rlpyt.core.Sampler.evaluator_beside`."""
        return EvaluatorProcess(agent, self._whole_evaluation(run), run)

    def _whole_evaluation(self, run: Run) -> FleetSpec:
        """Return the evaluation environments of all replicas."""
        spec = self.make_specs(replace(run, eval_beside=False, replicas=Replicas()))[FleetRole.EVAL]
        return replace(spec, sets_back=self.why_not_set_back is None)

    def run_evaluation(
        self, itr: int, on_progress: Callable[[int], None], deterministic: bool, after_loss: bool = False
    ) -> EvalResult:
        """Run every environment's quota of episodes, seeded by the iteration; see `Evaluator.evaluate`."""
        spec = self._specs[FleetRole.EVAL]
        with torch_threads(self._n_threads()):
            self._evaluator.start(spec.restart_seeds() if after_loss else spec.seeds(itr))
            return self._evaluator.evaluate(itr, on_progress, deterministic)

    def _n_threads(self) -> int | None:
        """Return the torch threads while collecting; None leaves them as the run has set them."""
        return self.default_acting_threads if self.acting_threads is None else self._whole("acting_threads")

    def _check_running(self) -> None:
        if not self.running:
            raise RuntimeError(
                f"{type(self).__name__}: it was asked for work, but it is not running; call initialize first, and "
                "shutdown last."
            )

    # ---- what it tells ----

    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun."""
        traj_info = traj_info_maker(self.TrajInfoCls, self._traj_info_kwargs)()
        if self._gives_score:
            traj_info.GameScore = 0.0
        if self._gives_success:
            traj_info.Success = 0.0
        return traj_info

    def plan(self) -> dict[str, object]:
        """Return where the work will run."""
        return {"sampler": type(self).__name__}

    def diagnostics(self) -> dict[str, float]:
        """Return what is to be logged of the collection since the last call, by column."""
        if not self.time_breakdown:
            return {}
        times = self.times()
        return {f"{name.capitalize()}Time": times[name] for name in ACTIVITIES}

    def times(self) -> dict[str, float]:
        """Return the seconds of every activity since the last call; see `rlpyt.samplers.stopwatch`."""
        return self._collector.stopwatch.take()

    # ---- state ----

    @property
    def holder(self) -> StateHolder:
        """What holds the state of the training environments."""
        self._check_running()
        return self._collector

    def why_no_state(self) -> str | None:
        """Return why training environments have no state; see `rlpyt.core.Sampler.why_no_state`."""
        return self._keeper.noted(self.holder.why_no_state())

    def state_dict(self) -> StateDict:
        """Return where training environments, streams and recurrent states stand; an evaluation leaves no state."""
        return self._keeper.saved(self.holder.state_dict(), self._specs[FleetRole.TRAIN])

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, of any number of workers and any class of sampler."""
        self.n_cut_episodes += self._keeper.load(state_dict, self._specs[FleetRole.TRAIN], self.holder)


def _advise(logger: Logger, text: str) -> None:
    """Warn in the log; where a script has none, as Python does, unless a package has made warnings errors."""
    if logger.directory is None and not logger.is_silent:
        try:
            warnings.warn(text, stacklevel=2)
            return
        except UserWarning:
            pass
    logger.warn(text)
