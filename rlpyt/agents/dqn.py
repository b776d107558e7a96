"""The deep Q-learning agent: a Q network, its target, and epsilon-greedy exploration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import gymnasium
import torch
from torch import nn

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.networks import Held, Network
from rlpyt.agents.own_models import check_apart, check_q_outputs, new_model
from rlpyt.agents.rules import EpsilonGreedyExploration, Exploration, Head, QHead
from rlpyt.agents.value_heads import ValueHeadSettings
from rlpyt.core import QAgent
from rlpyt.distributions import EpsilonGreedy
from rlpyt.functional import ScheduleLike
from rlpyt.models import QModel
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.arguments import named_arguments

_DISTRIBUTIONS = ("categorical", "quantiles", "implicit quantiles")  # kinds of agents with one of their own


class DqnAgentInfo(NamedArrayTuple):
    """Record of a Q-learner beside every action; of a recurrent agent also its state before the row."""

    q: Buffer
    prev_rnn_state: Buffer = None


@dataclass(kw_only=True, eq=False)
class DqnAgent(ValueHeadSettings, BaseAgent, QAgent):
    """Q-learner that acts greedily by a Q network, and at random with probability epsilon.

    A model of one's own returns q [.., A]; a recurrent one also its next state, in torch's layout [N, B, H]. Where it
    has `NoisyLinear` layers, their noise is drawn at every step, the same in all environments.

    Epsilon goes from `eps_init` to `eps_final` as the algorithm's exploration schedule goes from 0 to 1; or it is any
    function of the step, `eps_train`.
    """

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("eps_init", "eps_final"), ", as it is an end of epsilon's way. Give eps_train the schedule"
    )

    eps_init: float = 1.0
    """Epsilon at the start."""
    eps_final: float = 0.01
    """Epsilon at the end of the algorithm's schedule."""
    eps_final_min: float | None = None
    """Smallest final epsilon. Every environment has a final epsilon of its own, spaced evenly on a log scale from this
    to `eps_final` (Horgan et al. 2018, Ape-X). None is the same epsilon everywhere."""
    eps_train: ScheduleLike | None = None
    """Epsilon in training, the same in all environments, in the place of the way from `eps_init` to `eps_final`; None
    is that way. The value of a batch is that at its first step."""
    eps_eval: float = 0.001
    """Epsilon in evaluation; before the first iteration of a run it is 1 there."""

    has_targets: ClassVar[bool] = True
    """Whether there is a target network."""
    kept_numbers: ClassVar[Mapping[str, int]] = {"annealed": 1}
    DefaultModelCls: ClassVar[Callable[..., nn.Module] | None] = QModel
    HeadCls: ClassVar[type[Head]] = QHead
    ExplorationCls: ClassVar[type[Exploration]] = EpsilonGreedyExploration

    target_model = Network[nn.Module]("learning", "target")
    q_values = Held[Callable[[Buffer], torch.Tensor]]("head", "read")
    target = Held[Callable[..., Buffer]]("networks")
    update_target = Held[Callable[..., None]]("networks", "update_targets")
    epsilon = Held[Callable[..., torch.Tensor]]("exploration")
    mean_epsilon = Held[Callable[[float, int], float | None]]("exploration")

    def __post_init__(self) -> None:
        """Check that the epsilons are probabilities."""
        super().__post_init__()
        for name in ("eps_init", "eps_final", "eps_train", "eps_eval"):
            self.check(name, lambda x: 0.0 <= x <= 1.0, "a probability in [0, 1]")
        if self.eps_final_min is not None and not 0.0 < self.eps_final_min <= self.eps_final:
            raise ValueError(
                f"{type(self).__name__}: eps_final_min is {self.eps_final_min}; expected more than 0 and at most "
                f"eps_final, {self.eps_final}."
            )
        if self.eps_final_min is not None and self.eps_train is not None:
            raise ValueError(
                f"{type(self).__name__}: eps_final_min is {self.eps_final_min} and eps_train {self.eps_train!r}; "
                "expected one of them, as eps_train is the epsilon of all environments. Leave one out."
            )
        if self.values.n_outputs is not None and self.kind in _DISTRIBUTIONS:
            raise ValueError(
                f"{type(self).__name__}: value_head is {self.value_head!r}; expected none, as the agent has a "
                "distribution of its own. Leave it out, or take a DqnAgent with the DQN algorithm."
            )

    def make_distribution(self, env_spaces: EnvSpaces) -> EpsilonGreedy:
        """Return the epsilon-greedy distribution, and refuse a space that is not Discrete."""
        if not isinstance(env_spaces.action, gymnasium.spaces.Discrete):
            raise TypeError(
                f"{type(self).__name__}: the action space is {env_spaces.action}; expected Discrete. "
                "Q-learning over actions needs to count them; use a policy-gradient agent, such as PgAgent with A2C, "
                "PPO or VTrace, which takes MultiDiscrete, Box, Dict and Tuple actions too."
            )
        return EpsilonGreedy(int(env_spaces.action.n))

    @named_arguments
    def initialize(self, env_spaces: EnvSpaces) -> None:
        """Build the network and, where there is one, its target, which starts as a copy."""
        super().initialize(env_spaces)
        if self.has_targets:
            target = new_model(self).eval()
            check_apart(f"{type(self).__name__}: ModelCls", self.model, target)
            self.networks.add_target("target", target)
            self.networks.unrolled.append("target")
            self.networks.update_targets()
        check_q_outputs(self)

    def agent_info(self, output: torch.Tensor) -> NamedArrayTuple:
        """Return q."""
        return DqnAgentInfo(output)
