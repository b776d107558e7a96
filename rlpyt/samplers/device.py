"""The sampler of simulators whose data stay on their device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
import torch

from rlpyt.core import Agent, EvalResult, Remark, Sampler
from rlpyt.envs.device_env import ENDS, DeviceEnv
from rlpyt.envs.info import info_recorder
from rlpyt.envs.rsl_rl import RslRlEnv
from rlpyt.logging.space_record import record_spaces
from rlpyt.samplers.base import check_environments, eval_size_of, evaluation_kwargs, whole_setting
from rlpyt.samplers.buffer import example_of
from rlpyt.samplers.device_collector import DeviceCollector, DeviceRows
from rlpyt.samplers.device_statistics import DeviceStatistics
from rlpyt.samplers.states import TypedTrajStates
from rlpyt.settings import Settings
from rlpyt.spaces import MASK, choice_sizes, has_mask, null_action
from rlpyt.types import BatchSpec, Info, Kwargs, Run, Samples, StateDict, TrajInfo, traj_info_maker
from rlpyt.utils.arguments import own_names
from rlpyt.utils.arrays import buffer_func, buffer_to, numpify_buffer, torchify_buffer
from rlpyt.utils.checks import share_of
from rlpyt.utils.seeds import Role, stream_seed


@dataclass(eq=False)
class DeviceSampler(Settings, Sampler):
    """Sampler of one object with many environments whose tensors stay on its device, as those of GPU simulators do.

    Environments, agent and rows are on that device, and nothing is copied to the host inside a batch. Such environments
    step in lock step. So the row after the end of an episode begins the next one, and every row is trained on. What
    the last action of a truncated episode led to is in `samples.env.final_observation`, and its value in
    `samples.agent.final_value`.

    Raises:
        ValueError: if the sizes do not go together.
        TypeError: if EnvCls cannot be called, or TrajInfoCls reads single steps.
    """

    traj_states = TypedTrajStates()
    mid_batch_reset = True
    final_rows: ClassVar[bool] = False

    EnvCls: Callable[..., object]
    """A callable that returns an object with many environments (docs/howto/device_simulators.md); called with
    `num_envs` if it names such a parameter."""
    env_kwargs: Kwargs | None
    """Its other arguments; None is none."""
    batch_T: int
    """Time steps of a batch."""
    batch_B: int
    """Environments, the `num_envs` of the object."""
    ends: str = field(default="auto", kw_only=True)
    """How episodes end: "final_obs" for simulators that reset themselves and hand the final observation over in info;
    "reset" for those that are reset from outside; "last_observation" for those that lose it, where the observation
    before it stands for it; "auto" is one of the first two."""
    TrajInfoCls: Callable[..., TrajInfo] = field(default=TrajInfo, kw_only=True)
    """The statistics of a trajectory. They are computed on the device: a class with a method `step` is refused."""
    env_info_keys: Sequence[str] = field(default=(), kw_only=True)
    """Names of tensors [num_envs, ...] in the info of every step that are recorded in `samples.env.env_info`."""
    compile_env: bool = field(default=False, kw_only=True)
    """Whether `step` of the object is compiled by torch.compile, for simulators whose steps torch computes. The first
    step then takes half a minute longer, and rounding may differ."""
    eval_n_envs: int = field(default=0, kw_only=True)
    """Environments of another such object, for evaluation; 0 for no evaluation."""
    eval_env_kwargs: Kwargs | None = field(default=None, kw_only=True)
    """All arguments of the evaluation environments; None is those of training. See `eval_env_overrides`."""
    eval_env_overrides: Kwargs | None = field(default=None, kw_only=True)
    """Arguments in which the evaluation environments differ from those of training."""
    eval_max_trajectories: int | None = field(default=None, kw_only=True)
    """Episodes of one evaluation, dealt evenly to the environments; None is one for each."""
    eval_max_steps: int | None = field(default=None, kw_only=True)
    """Steps of one evaluation at most, all environments together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.batch_spec = BatchSpec(whole_setting(self, "batch_T"), whole_setting(self, "batch_B"))
        name = type(self).__name__
        check_environments(self)
        self._eval_size = eval_size_of(self, one_each=True)
        if self.ends not in ("auto", *ENDS):
            raise ValueError(f'{name}: ends is {self.ends!r}; expected "auto" or one of {list(ENDS)}.')
        if "step" in own_names(type(traj_info_maker(self.TrajInfoCls)())):
            raise TypeError(
                f"{name}: TrajInfoCls is {self.TrajInfoCls!r:.100}, whose method step reads every step on the host; "
                "expected the statistics of TrajInfo, which are computed on the device. Record what you need by "
                "env_info_keys."
            )
        self._run = Run(batch_spec=self.batch_spec)
        self._open: list[DeviceEnv] = []
        self._training: DeviceCollector | None = None
        self._evaluation: DeviceCollector | None = None
        self._next_itr = 0

    def share(self, n_replicas: int) -> Self:
        """Return a sampler for one of some replicas; see `rlpyt.core.Sampler.share`."""
        return self.replace(batch_B=share_of(type(self).__name__, "batch_B", self.batch_spec.B, n_replicas))

    # ---- set-up ----

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Build the environments and take a step, initialise the agent, allocate the rows; return one as an example."""
        self.shutdown()
        self._run = run = run or Run(batch_spec=self.batch_spec, final_rows=False)
        B = self.batch_spec.B
        env = DeviceEnv(self.EnvCls, self.env_kwargs, B, self.ends, self.compile_env)
        self._open.append(env)
        # One step of all, by which mistakes show before anything is built on them.
        env.reset(self._seed(Role.ENV))
        null = buffer_to(torchify_buffer(null_action(env.spaces.action)), env.device)
        with torch.no_grad():  # as in batches: a compiled step would be compiled again
            info = env.step(buffer_func(null, lambda x: x.expand(B, *x.shape).clone())).info
        if MASK in info and choice_sizes(env.spaces.action) and not has_mask(env.spaces):
            raise ValueError(
                f"{type(self).__name__}: info of {env.name} has {MASK!r}, and its observation has not; expected the "
                "legal actions in the observation, where the networks see them. Make it a Dict with this key."
            )
        agent.initialize(env.spaces)
        record_spaces(env.spaces)
        tensors = {key: x for key, x in info.items() if isinstance(x, torch.Tensor) and x.shape[:1] == (B,)}
        seen = {key: numpify_buffer(x.new_zeros(x.shape[1:])) for key, x in tensors.items()}
        example = example_of(agent, env.spaces, info_recorder(self.env_info_keys, seen).example)
        values = run.bootstrap_value or run.bootstrap_inputs
        self._training = self._collector(agent, env, example, info, values=values)
        if self.eval_n_envs and not run.rank:
            beside = DeviceEnv(self.EnvCls, evaluation_kwargs(self), self._eval_size[0], self.ends, self.compile_env)
            if isinstance(beside.env, RslRlEnv):
                beside.env.random_lengths = False  # an evaluation runs whole episodes
            self._open.append(beside)
            beside.reset(self._seed(Role.EVAL_ENV))
            self._evaluation = self._collector(agent, beside, example, info, evaluation=True)
        self._training.reset(self._seed(Role.ENV))
        self.batches = [self._training.rows.samples]
        return example

    def _collector(
        self, agent: Agent, env: DeviceEnv, example: Samples, info: Info, evaluation: bool = False, values: bool = False
    ) -> DeviceCollector:
        first = 0 if evaluation else self._run.rank * env.n
        global_B = env.n if evaluation else self._run.world_size * env.n
        ranks = list(range(first, first + env.n))
        actor = agent.actor(ranks, global_B, self._run.seed, evaluation=evaluation, device=env.device)
        actor.reset()
        rows = DeviceRows(example, self.batch_spec.T, env.n, env.device, values)
        new = traj_info_maker(self.TrajInfoCls, self._run.traj_info_kwargs)
        statistics = DeviceStatistics(env, rows.T, new, ranks, info)
        return DeviceCollector(agent, env, actor, rows, statistics)

    def _seed(self, role: Role, itr: int = 0) -> int:
        return stream_seed(self._run.seed, role, self._run.rank, itr)

    def shutdown(self) -> None:
        """Close the environments."""
        while self._open:
            self._open.pop().close()
        self._training = self._evaluation = None

    # ---- work ----

    def obtain_samples(self, itr: int) -> tuple[Samples, Sequence[TrajInfo]]:
        """Collect one batch; the rows are on the device of the environments; see `rlpyt.core.Sampler.obtain_samples`.

        Raises:
            EnvError: if the environments have given something that cannot be trained on.
            ValueError: if the agent is on another device.
        """
        collector = self._running()
        self._check_device(collector)
        self._next_itr = itr + 1
        collector.actor.begin(itr)
        return collector.rows.samples, collector.collect(itr)

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the evaluation environments, of which each has its quota.

        Environments that have run theirs are stepped on with the others, and what they do counts no more.
        """
        self._running()
        collector = self._evaluation
        if collector is None:
            if self.eval_n_envs and self._run.rank:
                return EvalResult([], 0, 0)  # replica 0 evaluates
            raise RuntimeError(
                f"{type(self).__name__}: evaluation was asked for, but eval_n_envs is {self.eval_n_envs}. Set it "
                "above 0."
            )
        (n, env_quotas, max_T), T = self._eval_size, collector.rows.T
        left = np.array(env_quotas)
        steps, completed, done_T = np.zeros(n, np.int64), list[TrajInfo](), 0
        collector.actor.begin(itr, deterministic)
        collector.reset(self._seed(Role.EVAL_ENV, itr))
        while (left > 0).any() and done_T < max_T:
            for info in collector.collect(itr):
                assert info.ended_at is not None
                _, t, b = info.ended_at
                if left[b] and done_T + t < max_T:
                    completed.append(info)
                    left[b] -= 1
                    steps[b] = done_T + t + 1
            done_T = min(done_T + T, max_T)
            steps[left > 0] = done_T
        return EvalResult(completed, int(steps.sum()), int(left.sum()))

    def _running(self) -> DeviceCollector:
        if self._training is None:
            raise RuntimeError(
                f"{type(self).__name__}: it was asked for work, but it is not running; call initialize first, and "
                "shutdown last."
            )
        return self._training

    def _check_device(self, collector: DeviceCollector) -> None:
        agent, env = collector.agent, collector.env
        here = torch.empty(0, device=agent.device).device
        if here != env.device:
            raise ValueError(
                f"{type(self).__name__}: the agent is on {here} and {env.name} on {env.device}; expected one device. "
                f'Give the runner settings=ComputeSettings(device="{env.device}"), or env_kwargs the other device.'
            )

    # ---- what it tells ----

    def new_traj_info(self) -> TrajInfo:
        """Return the statistics of a trajectory that has not begun."""
        info = traj_info_maker(self.TrajInfoCls, self._run.traj_info_kwargs)()
        if self._training is not None:
            for name in self._training.statistics.others:
                info[name] = 0.0
        return info

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Sampler`."""
        env = self._running().env
        entries: dict[str, object] = {"sampler": f"{type(self).__name__}, {env.n} environments on {env.device}"}
        if env.ends.estimated:
            entries["ends"] = Remark("the observation before the final one stands for it where an episode is truncated")
        return entries

    def diagnostics(self) -> dict[str, float]:
        """Return the means of what the simulator logs, and how many truncated episodes had no final observation.

        Both are since the last call; the second is there for simulators that have none.
        """
        collector = self._running()
        numbers = collector.statistics.log.take()
        if collector.env.ends.estimated:
            numbers["EstimatedFinals"], collector.n_estimated = collector.n_estimated, 0
        return numbers

    # ---- state ----

    def why_no_state(self) -> str | None:
        """Return why the environments have no state; see `rlpyt.core.Sampler.why_no_state`."""
        return self._running().env.why_no_state()

    def state_dict(self) -> StateDict:
        """Return the state of environments, actor and open episodes."""
        return {**self._running().state_dict(), "itr": self._next_itr}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`; environments without a state begin new episodes, by a seed of their own."""
        self._next_itr = state_dict.get("itr", 0)  # older checkpoints have none
        self.n_cut_episodes += self._running().load_state_dict(state_dict, self._seed(Role.SAMPLER, self._next_itr))
