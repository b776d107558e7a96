"""Q-learning on policy, in many environments at once, without a replay and without a target network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.epsilon import EpsilonSettings, epsilon_numbers, explore, with_epsilon
from rlpyt.algos.metrics import Numbers, stack_metrics
from rlpyt.algos.minibatching import Minibatching, MinibatchSettings
from rlpyt.algos.policy_gradient import (
    LossInputs,
    UpdateRows,
    episode_starts,
    loss_of_values,
    next_values,
    rows_on_device,
    step_down,
)
from rlpyt.core import Metrics, QAgent
from rlpyt.functional import (
    CountLike,
    ScheduleLike,
    lambda_return,
    select_at_indexes,
    valid_mean,
)
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper, whole_count
from rlpyt.types import AgentInputs, Run, Samples


@dataclass(kw_only=True, eq=False)
class PQN(MinibatchSettings, EpsilonSettings, RlAlgorithm[QAgent]):
    """Parallelised Q-network: Q(lambda) on the rows of a batch, in several epochs of minibatches.

        G_t = reward_scale r_t + discount ((1 - q_lambda) max_a Q(s_t+1, a) + q_lambda G_t+1)
        L = mean((G_t - Q(s_t, a_t))^2 / 2)

    The returns G are those of the Q-values that the agent acted by, and stand still while a batch is learned from. They
    bootstrap from max_a Q alone where the batch ends or an episode is truncated, and end where it terminates. The paper
    has layer normalisation in the network in the place of a target (`model_kwargs=dict(layer_norm=True)` of the agent).

    A feed-forward agent's minibatches are random valid rows of the whole batch; a recurrent one's are whole sequences
    of random environments.

    Sources: Gallici et al. 2024, arXiv:2407.04811; the returns are those of Peng and Williams 1996.
    """

    bootstrap_value: ClassVar[bool] = True
    needs_final_rows: ClassVar[bool] = False
    agent_kind: ClassVar[str] = "q and no target"
    """Kind that the agent must have: what its network gives."""
    opt_info_fields: ClassVar[tuple[str, ...]] = ("loss", "gradNorm", "tdAbsErr")

    learning_rate: ScheduleLike = 2.5e-4
    """Of the optimiser."""
    clip_grad_norm: ScheduleLike = 10.0
    OptimCls: Callable[..., torch.optim.Optimizer] = torch.optim.RAdam
    """Called with the parameters, `lr`, and `optim_kwargs`; rectified Adam is the paper's. Compiled updates need
    `torch.optim.Adam` or `AdamW`. Fixed for the run, as the optimiser is built once."""
    q_lambda: ScheduleLike = 0.65
    """lambda of the returns, in [0, 1]; 0 is the one-step target, 1 the discounted return."""
    reward_scale: ScheduleLike = 1.0
    """Factor of the rewards, above 0."""
    minibatches: int = 32
    epochs: CountLike = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("q_lambda", lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        self.check("reward_scale", lambda x: 0.0 < x < float("inf"), "above 0")

    def initialize(self, agent: QAgent, run: Run) -> None:
        """Build the optimiser; refuse an agent of another kind, and minibatches that do not divide the batch."""
        if agent.kind != self.agent_kind:
            raise TypeError(
                f"{type(self).__name__}: the agent is a {type(agent).__name__}; expected a PqnAgent, whose network "
                "gives Q-values without a target beside it. Give the runner a PqnAgent with the same model_kwargs."
            )
        super().initialize(agent, run)
        self.exploration = explore(self)
        self.minibatching = Minibatching(self, int(self.minibatches))
        self.batch_size = self.minibatching.batch_size

    def learn(self, itr: int) -> Metrics:
        """Take `epochs * minibatches` gradient steps on the batch."""
        hyper = self.hyper(itr * self.steps_per_itr)
        batch, init_rnn_state = self.loss_inputs(self.samples, hyper)
        metrics: dict[str, list[torch.Tensor]] = defaultdict(list)
        for _ in range(whole_count(hyper.epochs)):
            rows = self.minibatching.rows(batch, init_rnn_state, self.samples.env.valid)
            self.minibatching.take_updates(rows, hyper, metrics)
        # After the updates: their first Q-values are those that the agent acted by.
        self.agent.networks.update_obs_rms(batch.agent_inputs.observation, batch.valid)
        return stack_metrics(metrics)

    def loss_inputs(self, samples: Samples, hyper: Hyper) -> tuple[LossInputs, Buffer]:
        """Return a batch with its returns, on the agent's device, and the recurrent state before its first row."""
        (agent, env), init_rnn_state = rows_on_device(self.agent, samples)
        value = agent.agent_info.value
        return_ = lambda_return(
            env.reward * hyper.reward_scale,
            next_values(value, agent.bootstrap_value, agent.final_value, env.truncated),
            env.terminated,
            env.truncated,
            discount=hyper.discount,
            lambda_=hyper.q_lambda,
        )
        inputs = LossInputs(
            agent_inputs=AgentInputs(env.observation, agent.prev_action, env.prev_reward),
            action=agent.action,
            return_=return_,
            valid=env.valid,
            episode_start=episode_starts(samples) if self.agent.recurrent else None,
        )
        return inputs, init_rnn_state

    def update(self, batch: UpdateRows, hyper: Hyper) -> Numbers:
        """Take one gradient step down the loss of rows; return its metrics."""
        return step_down(self, batch, hyper)

    def loss(self, batch: LossInputs, init_rnn_state: Buffer, hyper: Hyper) -> tuple[torch.Tensor, Numbers]:
        """Return the loss of a minibatch, a mean over its valid rows, and its metrics: means too."""
        rnn = (init_rnn_state, batch.episode_start) if self.agent.recurrent else ()
        output = select_at_indexes(batch.action, self.agent(*batch.agent_inputs, *rnn))
        loss, own = loss_of_values(self.agent, output, batch.return_, batch.valid)
        td_abs_error = (batch.return_ - self.agent.values.mean(output.detach())).abs()
        return loss, {"loss": loss.detach(), "tdAbsErr": valid_mean(td_abs_error, batch.valid), **own}

    def row_numbers(self, n_done: int) -> dict[str, float]:
        """Return the learning rate, and the epsilon that the next batch is collected with."""
        return super().row_numbers(n_done) | epsilon_numbers(self, n_done)

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Algorithm`."""
        updates = whole_count(self.hyper(0).epochs) * int(self.minibatches)
        return with_epsilon(self, {**super().plan(), "updates an iteration": updates})
