"""Actors: an agent's model, run in some environments, with all that is kept of these from step to step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlpyt.agents.networks import rnn_from_rows, rnn_to_rows
from rlpyt.core import Actor, Agent
from rlpyt.models import NoisyLinear, RandomModule
from rlpyt.namedarraytuple import Buffer
from rlpyt.types import AgentInputs, AgentStep, StateDict
from rlpyt.utils.arrays import broadcast_mask, buffer_func, buffer_leaves, buffer_to
from rlpyt.utils.seeds import Role, checked_stream, torch_generator

Draw = Callable[[int, torch.Generator], torch.Tensor]
"""Function that returns noise [B, ...] of a number of environments, such as a distribution's `draw_noise`."""


def of_its_kind(agent: Agent) -> Any:
    """Return an agent with the settings, networks and parts that its kind has beside those of any agent."""
    return agent


class ModelActor(Actor):
    """Actor that runs the agent's model, and acts by `agent.act` and `agent.exploration`.

    Every actor draws the noise of ALL environments of the run and keeps its own part. So an environment sees the same
    noise however the environments are dealt to workers.

    The arguments are those of `rlpyt.core.Agent.actor`, and whether a script steps the environments, `by_hand`.
    """

    exploration_state: torch.Tensor | None
    """What exploration keeps from step to step, [B, ...] or None; zero at the start of an episode."""

    def __init__(
        self,
        agent: Agent,
        env_ranks: Sequence[int],
        global_B: int,
        seed: int,
        *,
        evaluation: bool = False,
        restarts: int = 0,
        by_hand: bool = False,
        device: torch.device | None = None,
    ) -> None:
        self.device = device or torch.device("cpu")
        """Where the environments are, and everything that acting returns."""
        self.agent = of_its_kind(agent)
        self.agent.networks.encode_by(self.agent.distribution)  # a subclass may have another one since `initialize`
        self.env_ranks = list(env_ranks)
        self.global_B, self.seed, self.evaluation, self.by_hand = global_B, seed, evaluation, by_hand
        self.restarts, self.itr, self.deterministic = restarts, 0, False
        self.exploration: Any = None
        """What `agent.exploration.begin` has set for a batch, or an evaluation."""
        role = Role.EVAL_ACTIONS if evaluation else Role.ACTIONS
        self.generator = torch_generator(seed, role, restarts, self.device)
        """Stream of the noise. What is drawn from it beside `draw` is the same in all actors at the same step."""
        everyone = self.env_ranks == list(range(global_B))
        self._mine = None if everyone else buffer_to(torch.tensor(self.env_ranks), self.device)
        self._noisy_layers: list[NoisyLinear] = []
        B = len(self.env_ranks)
        self.rnn_state = buffer_func(self.agent.rnn_state_example(), lambda x: x.new_zeros(x.shape[0], B, *x.shape[2:]))
        """Recurrent state before the next step, [N, B, H] leaves on the model's device; None without one."""
        self.exploration_state = buffer_to(self.agent.exploration.state(B), self.device)

    # ---- acting ----

    def begin(self, itr: int, deterministic: bool = False) -> None:
        """Make ready for a batch or an evaluation."""
        agent, networks = self.agent, self.agent.networks
        if any([network.training for network in networks.acting.values()]):
            networks.layers.set_training(networks.acting, False)
        self.itr, self.deterministic = itr, deterministic
        self.rnn_state = buffer_to(self.rnn_state, networks.device)
        for layer in networks.layers.of(agent.model, RandomModule):
            layer.draw(None)
        self._noisy_layers = [] if self.evaluation else agent.exploration.noisy_layers()
        if self.evaluation:
            if not self.by_hand:
                # A stream for every evaluation: how many steps an earlier one took in this worker decides nothing.
                self.generator = torch_generator(self.seed, Role.EVAL_ACTIONS, itr, self.device)
            self.reset()
        agent.exploration.begin(self)
        if isinstance(self.exploration, torch.Tensor):
            self.exploration = buffer_to(self.exploration, self.device)

    @torch.no_grad()
    def step(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> AgentStep:
        """Select actions [B]; everything returned is on the device of the environments."""
        agent = self.agent
        for layer in self._noisy_layers:
            layer.draw(self.generator)
        output, next_rnn_state = self._forward((observation, prev_action, prev_reward), self.rnn_state)
        action, info = agent.act(output, self), agent.agent_info(output)
        if agent.recurrent:
            info = info._replace(prev_rnn_state=self._from_model(rnn_to_rows(self.rnn_state)))
            self.rnn_state = next_rnn_state
        return AgentStep(action, info)

    @torch.no_grad()
    def value(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> torch.Tensor:
        """Return the values [B] of the rows; an agent that records none is refused."""
        return self._value((observation, prev_action, prev_reward), self.rnn_state)

    @torch.no_grad()
    def value_after(self, row: AgentInputs, rnn_state: Buffer, following: AgentInputs) -> torch.Tensor:
        """Return the values [M] of rows that follow others; see `rlpyt.core.Actor`."""
        after = self._forward(tuple(row), rnn_from_rows(rnn_state))[1] if self.agent.recurrent else None
        return self._value(tuple(following), after)

    def _value(self, inputs: tuple[Buffer, ...], rnn_state: Buffer) -> torch.Tensor:
        info = self.agent.agent_info(self._forward(inputs, rnn_state)[0])
        if "value" not in info:
            raise TypeError(
                f"{type(self.agent).__name__}: gives no values of states; expected a policy-gradient agent for that."
            )
        return info.value

    def _forward(self, inputs: tuple[Buffer, ...], rnn_state: Buffer) -> tuple[Buffer, Buffer]:
        """Return the outputs for `agent.act` of rows [B, ...], where these are, and the next state, where the model is.

        The state is that before the rows, [N, B, H] leaves.
        """
        agent, networks = self.agent, self.agent.networks
        inputs = networks.to_model(inputs)
        output, next_rnn_state = networks.run(agent.exploration.model(self), inputs, rnn_state)
        return self._from_model(agent.head.read_at(inputs[0], output)), next_rnn_state

    def _from_model(self, outputs: Buffer) -> Buffer:
        return outputs if self.agent.networks.device == self.device else buffer_to(outputs, self.device)

    def draw(self, draw_noise: Draw) -> torch.Tensor:
        """Return the noise [B, ...] of one step; `draw_noise(batch_size, generator)` is the distribution's."""
        noise = draw_noise(self.global_B, self.generator)
        return noise if self._mine is None else noise[self._mine]

    def reset(self) -> None:
        """Set the states of all environments to zero."""
        self.rnn_state = buffer_func(self.rnn_state, torch.zeros_like)
        self.exploration_state = buffer_func(self.exploration_state, torch.zeros_like)

    @torch.no_grad()
    def reset_one(self, idx: int) -> None:
        """Set the states of one environment to zero."""
        for state in buffer_leaves(self.rnn_state):
            state[:, idx] = 0
        if self.exploration_state is not None:
            self.exploration_state[idx] = 0

    @torch.no_grad()
    def reset_where(self, ended: torch.Tensor) -> None:
        """Set the states of some environments to zero, without waiting for their device."""
        for state in buffer_leaves(self.rnn_state):
            state.masked_fill_(broadcast_mask(ended[None], state), 0)
        if self.exploration_state is not None:
            self.exploration_state.masked_fill_(broadcast_mask(ended, self.exploration_state), 0)

    # ---- state ----

    def state_dict(self) -> StateDict:
        """Return random stream, recurrent state and exploration state."""
        leaves = [leaf.clone() for leaf in buffer_leaves(self.rnn_state)]
        exploration = buffer_func(self.exploration_state, torch.clone)
        return {"generator": self.generator.get_state(), "rnn_state": leaves, "exploration_state": exploration}

    @torch.no_grad()
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""
        self.generator.set_state(checked_stream(state_dict["generator"]))
        for leaf, saved in zip(buffer_leaves(self.rnn_state), state_dict["rnn_state"], strict=True):
            leaf.copy_(saved)
        if self.exploration_state is not None:
            self.exploration_state.copy_(state_dict["exploration_state"])
