"""Base of A2C, PPO and V-trace: advantages of a batch of rows, and the inputs of the loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import torch

from rlpyt.algos.base import Descents, RlAlgorithm
from rlpyt.algos.compiled_update import CompiledUpdate
from rlpyt.algos.loss_after import Learner, LossAfter
from rlpyt.algos.metrics import Numbers, OptInfo, tensors_and_metrics
from rlpyt.algos.return_scale import running_returns
from rlpyt.core import Agent, PolicyAgent, QAgent, Remark
from rlpyt.functional import (
    ScheduleLike,
    episode_start_from_valid,
    generalized_advantage_estimation,
    mean_perplexity,
    valid_mean,
    value_loss,
    zero_invalid,
)
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.settings import Hyper, chosen
from rlpyt.types import AgentInputs, Run, Samples, StateDict
from rlpyt.utils.arrays import buffer_to


class LossInputs(NamedArrayTuple):
    """Rows to compute an on-policy loss on: [T, B], or a minibatch of them."""

    agent_inputs: AgentInputs
    action: Buffer
    return_: Buffer
    valid: Buffer
    """bool, or None where all rows are valid."""
    advantage: Buffer = None
    """Of a policy, as are its parameters and the value when it acted; Q-learning has none of the three."""
    old_dist_info: Buffer = None
    old_value: Buffer = None
    old_log_prob: Buffer = None
    """log-probability of the action under the policy that acted, where the loss compares with it."""
    episode_start: Buffer = None
    """[T, B] bool, for a recurrent agent: its state is zero before these rows."""
    weight: float | None = None
    """Weight of a minibatch's loss among those of the other replicas; None where there is no other."""
    reward: Buffer = None
    """Of the row, as it was collected."""
    terminated: Buffer = None
    truncated: Buffer = None


class UpdateRows(NamedTuple):
    """Batch of one update."""

    rows: Any
    """[T, B], or a minibatch of them: `LossInputs` or `VTraceInputs`."""
    init_rnn_state: Buffer = None
    """Before the first row, [B, N, H] leaves; None for a feed-forward agent."""
    weight: float = 1.0
    """Of the loss among those of the other replicas, of `GlobalRows.weights`."""


@dataclass(kw_only=True, eq=False)
class PolicyGradientAlgo(RlAlgorithm[PolicyAgent]):
    """Base of A2C, PPO and V-trace."""

    bootstrap_value: ClassVar[bool] = True
    needs_final_rows: ClassVar[bool] = False
    agent_kind: ClassVar[str] = PolicyAgent.kind
    """Kind that the agent must have."""
    opt_info_fields: ClassVar[tuple[str, ...]] = (
        *("loss", "gradNorm", "entropy", "perplexity", "valueLoss", "explainedVariance"),
    )

    value_loss_coeff: ScheduleLike = 0.5
    """Weight of the value loss."""
    entropy_loss_coeff: ScheduleLike = 0.01
    """Weight of the entropy bonus."""
    gae_lambda: ScheduleLike = 1.0
    """lambda of generalised advantage estimation, in [0, 1]; 1 is the discounted return."""
    normalize_advantage: bool = False
    """Whether the advantages of a batch are shifted and scaled to mean 0 and standard deviation 1."""
    normalize_reward: bool = False
    """Whether rewards are divided by the standard deviation, over the run so far, of the discounted sum of an episode's
    rewards up to each row."""
    reward_clip: ScheduleLike = 10.0
    """Bound of a normalised reward."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("gae_lambda", lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        self.check("value_loss_coeff", lambda x: x >= 0.0, "at least 0")
        self.check("reward_clip", lambda x: x > 0.0, "above 0")

    def initialize(self, agent: PolicyAgent, run: Run) -> None:
        """Build the optimiser; every update takes the whole batch unless a subclass says otherwise."""
        if agent.kind != self.agent_kind:
            raise TypeError(
                f"{type(self).__name__}: the agent, a {type(agent).__name__}, is no policy with a value; expected one. "
                "Give the runner a CategoricalPgAgent, a GaussianPgAgent, or a subclass. An algorithm for an agent of "
                "your own derives from RlAlgorithm, with bootstrap_value = True if it asks the agent for values."
            )
        super().initialize(agent, run)
        self.batch_size = self.batch_spec.size
        self.reward_scale = RewardScale(self.batch_spec.B, agent) if self.normalize_reward else None

    def loss_inputs(self, samples: Samples, hyper: Hyper) -> tuple[LossInputs, Buffer]:
        """Return a batch with its advantages, on the agent's device, and the recurrent state before its first row."""
        (agent, env), init_rnn_state = rows_on_device(self.agent, samples)
        value = agent.agent_info.value
        advantage, return_ = generalized_advantage_estimation(
            env.reward if self.reward_scale is None else self.reward_scale(env, hyper),
            value,
            next_values(value, agent.bootstrap_value, agent.final_value, env.truncated),
            env.terminated,
            env.truncated,
            discount=hyper.discount,
            gae_lambda=hyper.gae_lambda,
        )
        if self.normalize_advantage:
            advantage = self.global_rows.standardize(advantage, env.valid)
        inputs = LossInputs(
            agent_inputs=AgentInputs(env.observation, agent.prev_action, env.prev_reward),
            action=agent.action,
            return_=return_,
            valid=env.valid,
            advantage=advantage,
            old_dist_info=agent.agent_info.dist_info,
            old_value=value,
            episode_start=episode_starts(samples) if self.agent.recurrent else None,
            reward=env.reward,
            terminated=env.terminated,
            truncated=env.truncated,
        )
        return inputs, init_rnn_state

    def update(self, batch: UpdateRows, hyper: Hyper) -> dict[str, torch.Tensor]:
        """Take one gradient step down the loss of rows; return its metrics."""
        return step_down(self, batch, hyper)

    def loss(self, batch: Buffer, init_rnn_state: Buffer, hyper: Hyper) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss of rows, a mean over the valid ones, and its metrics by name: means too."""
        raise NotImplementedError

    def forward(self, batch: Buffer, init_rnn_state: Buffer) -> tuple[Buffer, torch.Tensor]:
        """Return the current policy's distribution parameters and values at the rows, with gradient."""
        if self.agent.recurrent:
            return self.agent(*batch.agent_inputs, init_rnn_state, batch.episode_start)
        return self.agent(*batch.agent_inputs)

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Algorithm`."""
        unused = "reward_clip" in chosen(self) and not self.normalize_reward
        return {**super().plan(), **({"reward_clip": Remark("not used without normalize_reward")} if unused else {})}

    def state_dict(self) -> StateDict:
        """Return optimiser, counter, random stream, and the running returns of the episodes that go on."""
        scale = self.reward_scale
        running = torch.zeros(self.batch_spec.B, device=self.agent.device) if scale is None else scale.running_return
        return {**super().state_dict(), "running_return": running.clone()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""
        super().load_state_dict(state_dict)
        if self.reward_scale is not None:
            self.reward_scale.running_return.copy_(state_dict["running_return"])


class _OnPolicyLearner(Learner, Protocol):
    """What is asked of an algorithm that takes steps down the loss of on-policy rows."""

    compiled: CompiledUpdate
    descents: Descents
    loss_weight: float

    def loss(self, batch: Buffer, init_rnn_state: Buffer, hyper: Hyper) -> tuple[torch.Tensor, Numbers]: ...
    def gradient_step(self, loss: torch.Tensor, hyper: Hyper) -> torch.Tensor: ...


def step_down(algo: _OnPolicyLearner, batch: UpdateRows, hyper: Hyper) -> Numbers:
    """Take one gradient step down the loss of rows, compiled where the run is; return its metrics."""
    inputs = batch.rows, batch.init_rnn_state, hyper
    after, algo.loss_weight = LossAfter(algo), batch.weight
    loss, metrics = algo.compiled(take_steps, algo, *inputs)
    around = after.metrics(loss, lambda: tensors_and_metrics(algo, "loss", algo.loss(*inputs), 1)[0])
    return metrics | {name: algo.descents.weighted(x) for name, x in around.items()}


def take_steps(
    algo: _OnPolicyLearner, batch: Buffer, init_rnn_state: Buffer, hyper: Hyper
) -> tuple[torch.Tensor, Numbers]:
    """Take one gradient step down the loss of rows; return it, detached, and its metrics."""
    loss, metrics = tensors_and_metrics(algo, "loss", algo.loss(batch, init_rnn_state, hyper), 1)
    metrics = {name: algo.descents.weighted(x) for name, x in metrics.items()}
    metrics["gradNorm"] = algo.gradient_step(loss, hyper)
    return loss.detach(), metrics


def one_update(algo: PolicyGradientAlgo, batch: Buffer, init_rnn_state: Buffer, hyper: Hyper) -> OptInfo:
    """Take one update with a whole batch; none where no row of any replica is valid. Return its metrics."""
    # Read on the CPU: no synchronisation.
    (weight,) = algo.global_rows.weights([int(algo.samples.env.valid.sum())])
    # Without a gradient the momentum of the optimiser would move the weights.
    metrics: Numbers = {}
    if weight is not None:
        updated = algo.update(UpdateRows(batch, init_rnn_state, weight), hyper)
        metrics = tensors_and_metrics(algo, "update", updated, 0)[0]
    # After the update: the policy that acted and the one that learned saw the same normalised observations.
    algo.agent.networks.update_obs_rms(batch.agent_inputs.observation[: len(batch.valid)], batch.valid)
    return OptInfo({name: torch.as_tensor(value).detach() for name, value in metrics.items()})


def loss_of_values(
    agent: PolicyAgent | QAgent, output: torch.Tensor, return_: torch.Tensor, valid: torch.Tensor | None
) -> tuple[torch.Tensor, Numbers]:
    """Return the loss of what the agent gives as values, against returns [...] of the same rows, and its metrics."""
    values = agent.values
    if values.n_outputs is None:
        return value_loss(output, return_, valid), {}
    target = values.encode(return_.detach())
    of_outputs = None if valid is None else valid.unsqueeze(-1).expand_as(output)
    loss = valid_mean(values.loss(zero_invalid(output, of_outputs), target), valid)
    return loss, target.metrics(partial(valid_mean, valid=valid))


def actor_critic_loss(
    pi_loss: torch.Tensor, v_loss: torch.Tensor, entropy: torch.Tensor, valid: torch.Tensor | None, hyper: Hyper
) -> tuple[torch.Tensor, Numbers]:
    """Return the loss of policy, values and entropies of rows with its coefficients, and its metrics."""
    mean_entropy = valid_mean(entropy, valid)
    loss = pi_loss + hyper.value_loss_coeff * v_loss - hyper.entropy_loss_coeff * mean_entropy
    metrics = {
        "loss": loss,
        "valueLoss": v_loss,
        "entropy": mean_entropy,
        "perplexity": mean_perplexity(entropy.detach(), valid),
    }
    return loss, {name: metric.detach() for name, metric in metrics.items()}


class RewardScale:
    """Rewards divided by the standard deviation of an episode's discounted sum of them up to each row.

    They are only scaled: to shift them would change what an episode's length is worth. The agent has the statistics.
    """

    def __init__(self, B: int, agent: PolicyAgent) -> None:
        self.running_return = torch.zeros(B, device=agent.device)
        """[B], sums of the episodes that go on."""
        self._agent = agent

    @torch.no_grad()
    def __call__(self, env: Any, hyper: Hyper) -> torch.Tensor:
        """Return the rewards [T, B] scaled by the agent's statistics, which take the batch in first."""
        running, self.running_return = running_returns(env, self.running_return, hyper.discount)
        rms = self._agent.reward_rms
        rms.update(running, env.valid)
        scale = rms.var.clamp(min=rms.var_clip).rsqrt().float()
        return (env.reward * scale).clamp(-hyper.reward_clip, hyper.reward_clip)


def next_values(
    value: torch.Tensor, bootstrap_value: torch.Tensor, final_value: torch.Tensor | None, truncated: torch.Tensor
) -> torch.Tensor:
    """Return the values [T, B] of what the actions of the rows led to.

    The value after row t is the value of row t + 1. Where the episode ended at t, row t + 1 holds the final
    observation: so a truncated episode bootstraps from its final observation without a special case. Where final
    observations have no rows, as those of a `DeviceSampler`, their values are given.

    Args:
        value: [T, B], of the rows.
        bootstrap_value: [1, B], of the row after the last one.
        final_value: [T, B], of the final observation where a row truncated an episode; None where these have rows.
        truncated: [T, B] bool.
    """
    following = torch.cat([value[1:], bootstrap_value])
    return following if final_value is None else torch.where(truncated, final_value, following)


def episode_starts(samples: Samples) -> torch.Tensor:
    """Return the rows [T, B] before which a recurrent state is zero.

    They are on the CPU, whatever the device: the recurrent core reads the rows to split at without a synchronisation.
    """
    env = samples.env
    return episode_start_from_valid(env.valid, None if env.final_observation is None else env.done.cpu())


def rows_on_device(agent: Agent, samples: Samples) -> tuple[Samples, Buffer]:
    """Return a batch on the agent's device, in one move, and the recurrent state before its first row alone."""
    agent_info = samples.agent.agent_info
    init_rnn_state = None
    if agent.recurrent:
        init_rnn_state = buffer_to(agent_info.prev_rnn_state[0], agent.device)
        agent_info = agent_info._replace(prev_rnn_state=None)
    samples = samples._replace(agent=samples.agent._replace(agent_info=agent_info))
    return buffer_to(samples, agent.device), init_rnn_state
