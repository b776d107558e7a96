"""Rows on the device of a simulator, and the loop that fills them without waiting for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from rlpyt.core import Actor, Agent
from rlpyt.envs import EnvError
from rlpyt.envs.device_env import DeviceEnv, DeviceStep
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.samplers.device_statistics import DeviceStatistics
from rlpyt.spaces import null_action
from rlpyt.types import AgentInputs, AgentSamples, EnvSamples, Samples, StateDict, TrajInfo
from rlpyt.utils.arrays import broadcast_mask, buffer_from_example, buffer_leaves, buffer_to, torchify_buffer

_N_CHECKS = 3


class _Step(NamedArrayTuple):
    """What a step adds to a row, [T, B]."""

    action: Buffer
    agent_info: Buffer
    reward: Buffer
    terminated: Buffer
    truncated: Buffer
    env_info: Buffer
    final_observation: Buffer
    missing: Buffer
    """Rows that truncated an episode whose final observation is not known."""


class DeviceRows:
    """Rows of one batch on a device. Previous actions and rewards have memory of their own, as every row is a step.

    Args:
        example: one row, as numpy, without leading dimensions.
        T: time steps.
        B: environments.
        device: of all but `valid`, which is True everywhere: algorithms read it on the CPU, without waiting.
        values: whether there are places for values, and for what the agent sees after the batch.
    """

    def __init__(self, example: Samples, T: int, B: int, device: torch.device, values: bool = False) -> None:
        self.T, self.B = T, B

        def allocate(leaf: Buffer, length: int) -> Buffer:
            return buffer_to(torchify_buffer(buffer_from_example(leaf, (length, B))), device)

        (action, agent_info), env = (example.agent.action, example.agent.agent_info), example.env
        flag = env.valid
        self.inputs: AgentInputs = allocate(AgentInputs(env.observation, action, env.reward), T + 1)
        """[T + 1, B], what the agent sees at every row and after the last."""
        step = _Step(action, agent_info, env.reward, flag, flag, env.env_info, env.observation, flag)
        self.steps: _Step = allocate(step, T)
        self.at = [(self.inputs[t], self.steps[t], self.inputs[t + 1]) for t in range(T)]
        """What the agent sees at a row, what its step adds, and what the agent sees next; to index costs time."""
        before, steps = self.inputs[:-1], self.steps
        self.samples = Samples(
            AgentSamples(
                action=steps.action,
                prev_action=before.prev_action,
                agent_info=steps.agent_info,
                bootstrap_value=torch.zeros(1, B, device=device) if values else None,
                bootstrap_inputs=self.inputs[-1:] if values else None,
                final_value=torch.zeros(T, B, device=device) if values else None,
            ),
            EnvSamples(
                observation=before.observation,
                reward=steps.reward,
                prev_reward=before.prev_reward,
                terminated=steps.terminated,
                truncated=steps.truncated,
                valid=torch.ones(T, B, dtype=torch.bool),
                env_info=steps.env_info,
                final_observation=steps.final_observation,
            ),
        )
        """The batch as the algorithm sees it."""

    def begin(self) -> None:
        """Turn the row after the last batch into the first of the next."""
        _copy(self.inputs[0], self.inputs[-1])
        self.steps.missing.zero_()


class DeviceCollector:
    """Steps a batched environment with an agent on its device, batch after batch.

    Inside a batch nothing waits for the device, unless the environment does. After it the host waits to learn which
    episodes have ended or were truncated, and one copy brings their statistics and what was wrong.

    Args:
        agent: acts.
        env: the environments.
        actor: of them.
        rows: of them.
        statistics: of the episodes.
    """

    def __init__(
        self, agent: Agent, env: DeviceEnv, actor: Actor, rows: DeviceRows, statistics: DeviceStatistics
    ) -> None:
        self.agent, self.env, self.actor, self.rows, self.statistics = agent, env, actor, rows, statistics
        self._null_action = buffer_leaves(buffer_to(torchify_buffer(null_action(env.spaces.action)), env.device))
        self.n_estimated = 0
        """Truncated episodes, since it was set to 0, for whose final observation the one before it stood."""

    def reset(self, seed: int) -> None:
        """Begin an episode in every environment; the first observations are in the row after the batch."""
        after: AgentInputs = self.rows.inputs[-1]
        _copy(after.observation, self.env.reset(seed))
        for leaf, null in zip(buffer_leaves(after.prev_action), self._null_action, strict=True):
            leaf.copy_(null.expand_as(leaf))
        after.prev_reward.zero_()
        self.statistics.reset()

    @torch.no_grad()
    def collect(self, itr: int) -> Sequence[TrajInfo]:
        """Fill the rows, and return the trajectories that were completed, in order.

        Raises:
            EnvError: if an environment has given a number that is not finite, or truncated an episode without its final
                observation.
        """
        rows, actor, steps, agent = self.rows, self.actor, self.rows.steps, self.agent
        outside = agent.compute.without_autocast(agent.device)
        with agent.compute.autocast(agent.device):
            rows.begin()
            for t, (inputs, row, following) in enumerate(rows.at):
                action, agent_info = actor.step(*inputs)
                _copy(row.action, action)
                _copy(row.agent_info, agent_info)
                with outside:
                    self._finish(t, inputs.observation, row, following, self.env.step(action))
            done, cut = steps.terminated | steps.truncated, steps.truncated & ~steps.terminated
            # Here this process waits for the device, and there is little to wait for afterwards.
            at = done.nonzero().unbind(1)
            if rows.samples.agent.final_value is not None:
                self._record_values(*cut.nonzero().unbind(1))
        return self._completed(itr, done, cut, *at)

    def _finish(self, t: int, before: Buffer, row: _Step, following: AgentInputs, step: DeviceStep) -> None:
        """Write what a step gave, and what the agent sees next."""
        ends = self.env.ends
        row.reward.copy_(step.reward)
        row.terminated.copy_(step.terminated)
        row.truncated.copy_(step.truncated)
        done = row.terminated | row.truncated
        final, given = ends.final(step, before)
        if final is None:
            row.missing.copy_(row.truncated)
        else:
            _copy(row.final_observation, final)
            if given is not None:
                torch.logical_and(row.truncated, ~given, out=row.missing)
        if row.env_info is not None:
            for key, leaf in row.env_info.items():
                leaf.copy_(self.env.from_info(step, key, leaf))
        self.statistics.note(t, step)
        logged = step.info.get("log")
        observation, told = ends.next_observation(step, done, row.final_observation)
        _copy(following.observation, observation)
        if told.get("log") is not logged:  # steps and resets may have one info
            self.statistics.note_log(told)
        actions = zip(*map(buffer_leaves, (following.prev_action, row.action)), self._null_action, strict=True)
        for leaf, x, null in actions:
            torch.where(broadcast_mask(done, x), null, x, out=leaf)
        following.prev_reward.copy_(row.reward).masked_fill_(done, 0.0)
        self.actor.reset_where(done)

    def _record_values(self, t: torch.Tensor, b: torch.Tensor) -> None:
        """Record the values of the row after the batch, and of the final observations of truncated rows [M]."""
        rows, agent = self.rows, self.rows.samples.agent
        agent.bootstrap_value[0] = self.actor.value(*rows.inputs[-1])
        agent.final_value.zero_()
        if len(t):
            step: _Step = rows.steps[t, b]
            rnn_state = step.agent_info.prev_rnn_state if self.agent.recurrent else None
            following = AgentInputs(step.final_observation, step.action, step.reward)
            agent.final_value[t, b] = self.actor.value_after(rows.inputs[t, b], rnn_state, following).float()

    # ---- what has ended, and what is wrong ----

    def _completed(
        self, itr: int, done: torch.Tensor, cut: torch.Tensor, t: torch.Tensor, b: torch.Tensor
    ) -> Sequence[TrajInfo]:
        """Return the trajectories that ended with rows [M]; refuse rows of which something is wrong."""
        table = self.statistics.ended(self.rows.steps.reward, done, t, b)
        # One copy for all; numbers of steps and places are whole in float64.
        checks, ended = torch.cat([self._checks(cut), table.flatten()]).cpu().split([_N_CHECKS, table.numel()])
        self._refuse(cut, *checks.tolist())
        return self.statistics.trajectories(itr, ended.view(table.shape).numpy())

    def _checks(self, cut: torch.Tensor) -> torch.Tensor:
        """Return three numbers of the batch, float64, that tell whether something is wrong.

        They are one that is not finite if any observation or reward is not, and else seldom; the truncated rows `cut`
        [T, B] without a final observation; and all truncated rows.
        """
        steps = self.rows.steps
        leaves = buffer_leaves((steps.reward, self.rows.inputs.observation, steps.final_observation))
        mean = torch.stack([x.mean() for x in leaves if x.is_floating_point()]).sum()
        return torch.stack([x.double() for x in (mean, (steps.missing & cut).sum(), cut.sum())])

    def _refuse(self, cut: torch.Tensor, mean: float, n_missing: float, n_cut: float) -> None:
        name = self.env.name
        if n_missing:
            missing = _places(self.rows.steps.missing & cut)
            raise EnvError(
                f"{name}: an episode of environment {missing[0]} was truncated ({len(missing)} environments had such "
                "an end in this batch), and info had no final_obs for it; expected the observation that the last "
                "action led to. Let the simulator hand it over (docs/howto/device_simulators.md has the setting of "
                'each), or give ends="last_observation", which takes the one before it.'
            )
        if not math.isfinite(mean) and (wrong := self._wrong(cut)):
            raise EnvError(
                f"{name}: environment {wrong[0]} gave an observation or a reward that is not finite ({len(wrong)} "
                "environments did in this batch); expected numbers. Look for an unstable simulation, such as a state "
                "that should have terminated the episode."
            )
        self.n_estimated += int(n_cut) if self.env.ends.estimated else 0

    def _wrong(self, cut: torch.Tensor) -> list[int]:
        """Return the environments of which a number is not finite; of final observations those of `cut` count."""
        rows = self.rows
        wrong = [_not_finite(rows.steps.reward)]
        for x, final in zip(*map(buffer_leaves, (rows.inputs.observation, rows.steps.final_observation)), strict=True):
            wrong += [_not_finite(x), _not_finite(final) & cut]
        return _places(torch.cat(wrong))

    # ---- state ----

    def state_dict(self) -> StateDict:
        """Return the states of environments, actor and open episodes."""
        after = [leaf.to("cpu", copy=True) for leaf in buffer_leaves(self.rows.inputs[-1])]
        open_ = self.statistics.open.to("cpu", copy=True)
        return {"after": after, "open": open_, "actor": self.actor.state_dict(), "env": self.env.state()}

    @torch.no_grad()
    def load_state_dict(self, state_dict: StateDict, seed: int) -> int:
        """Load the result of `state_dict`; return how many open episodes are lost, as environments have no state.

        These begin anew by a seed.
        """
        self.actor.load_state_dict(state_dict["actor"])
        if state_dict["env"] is None or self.env.why_no_state() is not None:
            self.reset(seed)
            self.actor.reset_where(torch.ones(self.rows.B, dtype=torch.bool, device=self.env.device))
            return int((state_dict["open"][0] > 0).sum())
        self.env.load_state(state_dict["env"])
        _copy(self.rows.inputs[-1], tuple(state_dict["after"]))
        self.statistics.open.copy_(state_dict["open"])
        return 0


def _places(where: torch.Tensor) -> list[int]:
    """Return the environments for which a row of `where` [N, B] is True."""
    places: list[int] = where.any(0).nonzero().squeeze(1).tolist()
    return places


def _not_finite(x: torch.Tensor) -> torch.Tensor:
    """Return where [T, B] a number of x [T, B, ...] is not finite."""
    return ~x.isfinite().flatten(2).all(2) if x.dim() > 2 else ~x.isfinite()


def _copy(out: Buffer, buffer: Buffer) -> None:
    for dest, src in zip(*map(buffer_leaves, (out, buffer)), strict=True):
        dest.copy_(src)
