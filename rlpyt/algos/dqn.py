"""Deep Q-learning from a replay of transitions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch

from rlpyt.algos.base import RlAlgorithm, stack_metrics
from rlpyt.core import Metrics
from rlpyt.functional import (
    Linear,
    ScheduleLike,
    double_q_value,
    huber_loss,
    q_target_max,
    select_at_indexes,
    td_target,
)
from rlpyt.replays import ReplayBuffer, SamplesFromReplay, SamplesToBuffer
from rlpyt.types import BatchSpec, Samples
from rlpyt.utils.arrays import buffer_to
from rlpyt.utils.seeds import Role, numpy_generator


@runtime_checkable
class QAgent(Protocol):
    """What DQN asks of an agent, beside `rlpyt.core.Agent`."""

    recurrent: bool

    def target(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Return the target network's q [.., A]."""

    def update_target(self, tau: float = 1.0) -> None:
        """Move the target network by the fraction `tau` to the network."""

    def anneal_exploration(self, progress: float) -> None:
        """Set how far exploration has gone from its first (0) to its last value (1)."""


@dataclass(kw_only=True, eq=False)
class DQN(RlAlgorithm):
    """Deep Q-learning, with double Q-learning and n-step returns as options (a dueling network is the model's matter).

        y_t = r_t + ... + discount^(n-1) r_{t+n-1} + discount^n max_a Q_target(s_{t+n}, a)
        L = mean(huber(y_t - Q(s_t, a_t)))

    Sources: Mnih et al. 2015, Nature 518; van Hasselt et al. 2016, arXiv:1509.06461.
    """

    opt_info_fields: ClassVar[tuple[str, ...]] = ("loss", "gradNorm", "tdAbsErr")

    learning_rate: ScheduleLike = 2.5e-4
    """Of the optimiser."""
    clip_grad_norm: ScheduleLike = 10.0
    """Largest L2 norm of the gradient of all parameters."""
    batch_size: int = 32
    """Transitions an update."""
    min_steps_learn: int = int(5e4)
    """Steps, all environments counted, that the first update waits for."""
    delta_clip: ScheduleLike | None = 1.0
    """TD error from which the loss grows linearly (Huber); None for the square."""
    replay_size: int = int(1e6)
    """Rows that the replay holds, all environments counted."""
    replay_ratio: float = 8.0
    """Rows consumed by updates for every row collected."""
    target_update_tau: ScheduleLike = 1.0
    """Fraction by which the target network moves to the network at every target update; 1 copies it."""
    target_update_interval: int = 312
    """Updates between target updates; 312 with batch size 32 and replay ratio 8 is every 1,248 steps."""
    n_step_return: int = 1
    """Rewards in the target before the bootstrap."""
    eps_steps: float = 1e6
    """Steps over which the agent's epsilon goes from its first to its last value."""
    double_dqn: bool = False
    """Whether the network in training selects the action whose target value is taken."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        self.batch_size, self.replay_size = self.whole("batch_size"), self.whole("replay_size")
        self.target_update_interval = self.whole("target_update_interval")
        self.n_step_return = self.whole("n_step_return")
        self.min_steps_learn = self.whole("min_steps_learn", least=0)
        self.check("delta_clip", lambda x: x > 0.0, "above 0 (None for the square)")
        self.check("replay_ratio", lambda x: 0.0 < x < float("inf"), "above 0")
        self.check("eps_steps", lambda x: x >= 1.0, "at least 1 step")
        self.check("target_update_tau", lambda x: 0.0 < x <= 1.0, "a number in (0, 1]")

    def initialize(
        self,
        agent: Any,
        n_itr: int,
        batch_spec: BatchSpec,
        mid_batch_reset: bool = True,
        examples: Samples | None = None,
        world_size: int = 1,
        rank: int = 0,
        seed: int = 0,
    ) -> None:
        """Build optimiser and replay; refuse an agent that is no Q-learner, and a run without updates."""
        if not isinstance(agent, QAgent) or agent.recurrent:
            kind = "recurrent" if isinstance(agent, QAgent) else "no Q-learner"
            raise TypeError(
                f"DQN: the agent, a {type(agent).__name__}, is {kind}; expected a feed-forward Q-learner, as the "
                "replay keeps transitions and no sequences. Give the runner a DqnAgent or a subclass of it."
            )
        if not mid_batch_reset:
            raise ValueError(
                "DQN: the sampler lets environments rest until its batch is over (mid_batch_reset=False), and the "
                "final observation of an episode that ends with the batch reaches no replay; expected "
                "mid_batch_reset=True."
            )
        assert examples is not None
        super().initialize(agent, n_itr, batch_spec, mid_batch_reset, examples, world_size, rank, seed)
        # The ratio counts rows of all replicas, and every replica consumes a batch an update.
        self.updates_per_optimize = round(self.replay_ratio * batch_spec.size / self.batch_size)
        self.min_itr_learn = max(0, math.ceil(self.min_steps_learn / self.steps_per_itr) - 1)
        self.exploration = Linear(0.0, 1.0, steps=self.eps_steps)
        agent.anneal_exploration(self.exploration(0))
        self.initialize_replay_buffer(examples, batch_spec, world_size, numpy_generator(seed, Role.ALGO, rank))
        self._check_updates(n_itr)

    def _check_updates(self, n_itr: int) -> None:
        """Refuse a run without updates, and one whose first update finds nothing to draw in the replay."""
        T, B = self.batch_spec
        if self.updates_per_optimize < 1:
            raise ValueError(
                f"DQN: {T} x {B} rows an iteration at replay_ratio {self.replay_ratio:g} are "
                f"{self.replay_ratio * T * B:g} rows to consume, which is no update of batch_size {self.batch_size}; "
                "expected at least one. Collect more rows an iteration, lower batch_size, or raise replay_ratio to "
                f"{self.batch_size / (T * B):g}."
            )
        if self.min_itr_learn >= n_itr:
            raise ValueError(
                f"DQN: min_steps_learn is {self.min_steps_learn:,}, but the run has only {self.n_steps:,} steps: "
                "there would be no update at all. Lower min_steps_learn or raise n_steps."
            )
        held, least = (self.min_itr_learn + 1) * T, self.replay.storage.rows_before + 1 + self.n_step_return
        if held < least:
            raise ValueError(
                f"DQN: the first update would find {held} rows of each environment in the replay; expected at least "
                f"{least} with n_step_return {self.n_step_return}. Raise min_steps_learn to "
                f"{least * self.steps_per_itr // T:,} or more."
            )

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimiser, with Adam's epsilon at 0.01 / batch_size unless it is given."""
        if self.OptimCls is torch.optim.Adam:
            self.optim_kwargs = {"eps": 0.01 / self.batch_size, **self.optim_kwargs}
        super().optim_initialize(rank)

    def initialize_replay_buffer(self, examples: Samples, batch_spec: BatchSpec, world_size: int, rng: Any) -> None:
        """Allocate the replay: this replica's share of `replay_size`."""
        self.replay = ReplayBuffer.uniform(
            self.samples_to_buffer(examples),
            size=max(1, self.replay_size // world_size),
            B=batch_spec.B,
            n_step_return=self.n_step_return,
            discount=float(self.now(0).discount),
            rng=rng,
        )

    def samples_to_buffer(self, samples: Samples) -> SamplesToBuffer:
        """Return what the replay keeps of a batch."""
        agent, env = samples
        return SamplesToBuffer(env.observation, agent.action, env.reward, env.terminated, env.truncated, env.valid)

    def optimize_agent(self, itr: int, samples: Samples) -> Metrics:
        """Store the batch, and after `min_steps_learn` take the updates that the replay ratio asks for."""
        self.replay.append_samples(self.samples_to_buffer(samples))
        self.agent.update_obs_rms(samples.env.observation, samples.env.valid)
        self.agent.anneal_exploration(self.exploration((itr + 1) * self.steps_per_itr))
        if itr < self.min_itr_learn:
            return {}
        now = self.now(itr * self.steps_per_itr)
        self.replay.discount = now.discount
        self.agent.train_mode(itr)
        metrics: dict[str, list[torch.Tensor]] = defaultdict(list)
        for _ in range(self.updates_per_optimize):
            batch = buffer_to(self.replay.sample_batch(self.batch_size), self.agent.device)
            loss, td_abs_error = self.loss(batch, now)
            metrics["gradNorm"].append(self.gradient_step(loss, now))
            metrics["loss"].append(loss.detach())
            metrics["tdAbsErr"].append(td_abs_error)
            if self.update_counter % self.target_update_interval == 0:
                self.agent.update_target(now.target_update_tau)
        return stack_metrics(metrics)

    def loss(self, batch: SamplesFromReplay, now: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of a batch of transitions, and its absolute TD errors [batch]."""
        q = select_at_indexes(batch.action, self.agent(*batch.agent_inputs))
        delta = self.target(batch) - q
        return huber_loss(delta, now.delta_clip).mean(), delta.detach().abs()

    @torch.no_grad()
    def target(self, batch: SamplesFromReplay) -> torch.Tensor:
        """Return y [batch], what Q is moved to."""
        target_q = self.agent.target(*batch.target_inputs)
        if self.double_dqn:
            next_q = double_q_value(target_q, self.agent(*batch.target_inputs))
        else:
            next_q = q_target_max(target_q)
        return td_target(batch.return_, batch.bootstrap_discount, next_q)

    def plan(self) -> dict[str, Any]:
        """Return what will be done an iteration."""
        return {
            **super().plan(),
            "updates an iteration": self.updates_per_optimize,
            "first update at step": (self.min_itr_learn + 1) * self.steps_per_itr,
            "replay rows": self.replay.size,
            "replay bytes": self.replay.nbytes,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return optimiser, counter, random stream and replay."""
        return {**super().state_dict(), "replay": self.replay.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self.replay.load_state_dict(state_dict["replay"])
