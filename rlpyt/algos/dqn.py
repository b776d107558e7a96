"""Deep Q-learning from a replay, feed-forward or recurrent."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.epsilon import EpsilonSettings, epsilon_numbers, explore, with_epsilon
from rlpyt.algos.loss_after import LossAfter
from rlpyt.algos.metrics import Numbers, own_and_named_metrics, tensors_and_metrics
from rlpyt.algos.munchausen import check_munchausen, munchausen_target
from rlpyt.algos.replay_feed import OffPolicyAlgo, ReplayFeed, Target
from rlpyt.algos.replay_rows import Outputs, bootstrap_rows, for_atoms, mean_loss, mean_of_rows, run_over
from rlpyt.algos.replay_settings import ReplaySettings, has_input_priorities, rows_of_update
from rlpyt.core import QAgent
from rlpyt.functional import (
    CountLike,
    ScheduleLike,
    double_q_value,
    mask_illegal,
    select_at_indexes,
    td_target,
    valid_mean,
    value_rescale,
    value_rescale_inverse,
)
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.replays import n_step_of_rows
from rlpyt.settings import Hyper
from rlpyt.types import Run, Samples, StateDict
from rlpyt.utils.arrays import buffer_func, numpify_buffer, torchify_buffer


class ActedRows(NamedArrayTuple):
    """Rows that the errors of new rows are computed from, [T, B]."""

    q: Buffer
    action: Buffer
    reward: Buffer
    terminated: Buffer
    truncated: Buffer
    valid: Buffer


class ErrorBatch(NamedTuple):
    """Batch of new rows, with the fields that `td_loss` needs for their errors, [T, B]."""

    action: torch.Tensor
    return_: torch.Tensor
    bootstrap_discount: torch.Tensor


LossAndErrors = tuple[torch.Tensor, torch.Tensor] | tuple[torch.Tensor, torch.Tensor, Numbers]
"""A loss, absolute TD errors, and further metrics if there are any."""


@dataclass(kw_only=True, eq=False)
class DQN(ReplaySettings, EpsilonSettings, RlAlgorithm[QAgent]):
    """Deep Q-learning, with double Q-learning, n-step returns and prioritised replay as options.

        y_t = r_t + ... + discount^(n-1) r_{t+n-1} + discount^n max_a Q_target(s_{t+n}, a)
        L = mean(huber(y_t - Q(s_t, a_t)))

    Dueling and noisy networks are the model's matter (`model_kwargs=dict(dueling=True, noisy=True)`).

    Sources: Mnih et al. 2015, Nature 518; van Hasselt et al. 2016, arXiv:1509.06461; Schaul et al. 2016,
    arXiv:1511.05952; for recurrent agents Kapturowski et al. 2019 (R2D2).
    """

    opt_info_fields: ClassVar[tuple[str, ...]] = ("loss", "gradNorm", "tdAbsErr")
    agent_kind: ClassVar[str] = "q"
    """Kind that the agent must have: what its network gives."""
    TargetCls: ClassVar[type[Target]] = Target
    """Says when the target network moves."""

    learning_rate: ScheduleLike = 2.5e-4
    """Of the optimiser."""
    clip_grad_norm: ScheduleLike = 10.0
    optim_kwargs: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the optimiser. Adam gets an eps of 0.01 / rows of an update, 3.1e-4 with batch size 32,
    unless one is given; where rewards are far below 1 in size, give a smaller one."""
    delta_clip: ScheduleLike | None = 1.0
    """TD error from which the loss grows linearly (Huber); None for the square."""
    target_update_interval: CountLike = 312
    """Updates between target updates, a whole number; what a schedule gives is rounded, to at least 1. 312 with batch
    size 32 and replay ratio 8 is every 1,248 steps."""
    double_dqn: bool = False
    """Whether the network in training selects the action whose target value is taken."""
    munchausen: ScheduleLike | None = None
    """Weight, such as 0.9, of the log-probability of the action in the rewards, from 0; targets are then of the soft
    policy over the target network's values (Munchausen DQN, and with `IQN` M-IQN). None has neither."""
    munchausen_tau: ScheduleLike = 0.03
    """Temperature of that policy, above 0, in units of the return."""
    munchausen_lowest: float = -1.0
    """Smallest log-probability times temperature that counts, below 0; what is added to a reward is from
    `munchausen * munchausen_lowest` to 0."""
    value_scale_eps: float | None = None
    """Scales the network's values by h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x, as rewards without clipping need; None
    does not. Fixed for the run, as what the network has learned is in that scale."""

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        self.check("delta_clip", lambda x: x > 0.0, "above 0 (None for the square)")
        self.check("munchausen", lambda x: x >= 0.0, "from 0 (None for no such rewards)")
        self.check("munchausen_tau", lambda x: x > 0.0, "above 0")
        self.check("munchausen_lowest", lambda x: x < 0.0, "below 0")
        if self.value_scale_eps is not None:
            self.check("value_scale_eps", lambda x: x >= 0.0, "from 0 (None for no scaling)")
        if self.munchausen is not None:
            check_munchausen(self, self.agent_kind)
        if has_input_priorities(self) and self.agent_kind != "q":
            raise ValueError(
                f"{type(self).__name__}: input_priorities is True; expected False, as only the errors of DQN and R2D1 "
                "follow from Q-values. Leave it out."
            )

    def initialize(self, agent: QAgent, run: Run) -> None:
        """Build optimiser and replay; refuse an agent that is no Q-learner of the right kind."""
        name = type(self).__name__
        if agent.kind != self.agent_kind:
            kind = f"one whose network gives {agent.kind}" if isinstance(agent, QAgent) else "no Q-learner"
            raise TypeError(
                f"{name}: the agent, a {type(agent).__name__}, is {kind}; expected one whose network gives "
                f"{self.agent_kind}. DQN and R2D1 go with DqnAgent and R2d1Agent, CategoricalDQN with CatDqnAgent, "
                "QRDQN with QrDqnAgent, IQN with IqnAgent."
            )
        super().initialize(agent, run)
        self.exploration = explore(self)  # before the replay is built: it lets go of an earlier start's
        if has_input_priorities(self) and agent.values.n_outputs is not None:
            raise ValueError(
                f"{name}: input_priorities is True, and the agent's value_head {agent.values}; expected False, as only "
                "errors of values that are single numbers follow from recorded Q-values. Leave one out."
            )
        if self.munchausen is not None and agent.values.follows_returns:
            raise ValueError(
                f"{name}: munchausen is set, and the agent's value_head {agent.values} follows one action's return; "
                'expected "expectation", "two_hot" or "hl_gauss". Use QRDQN or IQN for quantiles.'
            )
        # New rows on a device have the largest priority so far.
        self.new_errors = NewErrors(self) if has_input_priorities(self) and run.final_rows else None
        self.feed: ReplayFeed = ReplayFeed(self, run, self.new_errors)
        self.target: Target | None = self.TargetCls(self.feed)

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimiser, with Adam's epsilon at 0.01 / rows of an update, all replicas counted, unless given."""
        rows = rows_of_update(self, self.hyper(0)) * self.replicas.world_size
        adam = self.OptimCls is torch.optim.Adam
        self.descents.add("model", self.agent.parameters(), defaults={"eps": 0.01 / rows} if adam else {})

    # ---- update ----

    def update(self, batch: Buffer, hyper: Hyper) -> Numbers:
        """Take one step down the loss of a batch, update priorities, and the target network where it is due."""
        after = LossAfter(self)
        metrics, td_abs_error, own = self.compiled(take_steps, self, batch, hyper)
        metrics["priority"] = self.feed.update_priorities(batch, td_abs_error, hyper)
        own |= after.metrics(metrics["loss"], lambda: tensors_and_metrics(self, "loss", self.loss(batch, hyper), 2)[0])
        if self.target is not None:
            self.target.after_update(hyper)
        return own_and_named_metrics(self, metrics, own)

    def loss(self, batch: Buffer, hyper: Hyper) -> LossAndErrors:
        """Return the loss of a batch of transitions or sequences, and its rows' absolute TD errors [M] or [T, M].

        A mapping of further metrics may follow, by name.
        """
        agent = self.agent
        target = None if self.target is None else agent.target
        outputs = run_over(
            batch, agent, agent, target,
            with_next=self.double_dqn, warmup_T=int(self.warmup_T), with_target=self.munchausen is not None,
        )  # fmt: skip
        loss, td_abs_error, own = tensors_and_metrics(self, "td_loss", self.td_loss(batch, outputs, hyper), 2)
        mean, errors = mean_loss(loss, batch), td_abs_error.detach()
        return (mean, errors, own) if own else (mean, errors)

    def td_loss(self, batch: Buffer, outputs: Outputs, hyper: Hyper) -> LossAndErrors:
        """Return the loss and the absolute TD error of each row, [M] or [T, M]; a variant of Q-learning has its own.

        A mapping of further metrics may follow, by name: numbers or tensors.

        Args:
            batch: `SamplesFromReplay` or `SequencesFromReplay` on the agent's device; or, for the errors of new rows,
                an `ErrorBatch`, which has no more than action, return_ and bootstrap_discount.
            outputs: of the networks at the rows of the batch.
            hyper: the hyper-parameters as they stand.
        """
        values = self.agent.values
        own: dict[str, torch.Tensor] = {}  # torch cannot compile a call of dict[str, ...]
        if hyper.munchausen is None:
            next_output = double_q_value(outputs.next_target, greedy_q(self.agent, outputs))
            target = values.bootstrap(next_output, partial(self.backup, batch))
        else:
            next_q = self.agent.q_values(outputs.next_target)
            y, bonus = munchausen_target(self, batch, outputs, next_q, hyper)
            target, own["munchausen"] = values.encode(y), mean_of_rows(bonus, batch)
        output = select_at_indexes(batch.action, outputs.online)
        loss = values.loss(output, target, hyper.delta_clip)
        td_abs_error = values.td_error(output, target, loss)
        own |= target.metrics(partial(mean_of_rows, batch=batch))
        return (loss, td_abs_error, own) if own else (loss, td_abs_error)

    @torch.no_grad()
    def backup(self, batch: Buffer, next_value: torch.Tensor) -> torch.Tensor:
        """Return return_ + bootstrap_discount * next_value, [M] or [T, M], of every atom if there are atoms."""
        return_, discount = (for_atoms(x, next_value) for x in (batch.return_, batch.bootstrap_discount))
        eps = self.value_scale_eps
        if eps is None:
            return td_target(return_, discount, next_value)
        return value_rescale(td_target(return_, discount, value_rescale_inverse(next_value, eps)), eps)

    # ---- what is told of a run, and its state ----

    def row_numbers(self, n_done: int) -> dict[str, float]:
        """Return the learning rate, and the epsilon that the next batch is collected with."""
        return super().row_numbers(n_done) | epsilon_numbers(self, n_done)

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Algorithm`."""
        return with_epsilon(self, super().plan())

    def state_dict(self) -> StateDict:
        """Return optimiser, counter, random stream, replay, and the rows whose errors are not known yet."""
        recent = None if self.new_errors is None else self.new_errors.recent
        return {**super().state_dict(), "recent": None if recent is None else tuple(recent)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""
        super().load_state_dict(state_dict)
        recent = state_dict["recent"]
        if self.new_errors is not None:
            self.new_errors.recent = None if recent is None else ActedRows(*(x.clone() for x in recent))


OffPolicyAlgo.register(DQN)


def take_steps(algo: DQN, batch: Buffer, hyper: Hyper) -> tuple[Numbers, torch.Tensor, Numbers]:
    """Take one step down the loss of a batch; return metrics, its rows' absolute TD errors, and own metrics."""
    loss, td_abs_error, own = tensors_and_metrics(algo, "loss", algo.loss(batch, hyper), 2)
    of_sequences = td_abs_error.dim() > 1
    metrics = {
        "loss": loss.detach(),
        "gradNorm": algo.gradient_step(loss, hyper),
        "tdAbsErr": valid_mean(td_abs_error, batch.valid, dim=0) if of_sequences else td_abs_error,
    }
    return metrics, td_abs_error, own


@torch.no_grad()
def greedy_q(agent: QAgent, outputs: Outputs) -> torch.Tensor:
    """Return the q [..., A] that choose the action whose target value is taken, of illegal ones minus infinity."""
    q = agent.q_values(outputs.next_target if outputs.next_online is None else outputs.next_online)
    return q if outputs.next_legal is None else mask_illegal(q, outputs.next_legal)


class NewErrors:
    """Absolute TD errors of new rows, from the Q-values that the agent acted by.

    Args:
        algo: whose `td_loss` gives them, as for the learner.
    """

    def __init__(self, algo: DQN) -> None:
        self._algo = algo
        self.recent: ActedRows | None = None
        """The newest n_step_return rows, whose returns are not complete."""

    @torch.no_grad()
    def __call__(self, samples: Samples, hyper: Hyper) -> torch.Tensor:
        """Return the errors [T, B] of the newest rows whose n-step returns are complete.

        The newest n_step_return rows of the batch wait for the next one.
        """
        n, T = int(self._algo.n_step_return), samples.env.reward.shape[0]
        env = samples.env
        rows = ActedRows(
            samples.agent.agent_info.q, samples.agent.action, env.reward, env.terminated, env.truncated, env.valid
        )
        recent = buffer_func(rows, lambda x: x.new_zeros(n, *x.shape[1:])) if self.recent is None else self.recent
        rows = ActedRows(*(torch.cat(pair) for pair in zip(recent, rows, strict=True)))
        # As `RowStorage.write` does, where an environment was lost between two batches.
        rows.truncated[n - 1] |= rows.valid[n - 1] & ~rows.terminated[n - 1] & ~rows.valid[n]
        self.recent = buffer_func(rows[T:], torch.clone)
        starts = np.arange(T)[:, None], np.arange(rows.reward.shape[1])
        n_step = torchify_buffer(n_step_of_rows(numpify_buffer(rows), *starts, n, hyper.discount))
        batch = ErrorBatch(rows.action[:T], n_step.return_, n_step.bootstrap_discount)
        target = rows.q[bootstrap_rows(n_step.steps)]
        return self._algo.td_loss(batch, Outputs(rows.q[:T], None, target), hyper)[1]
