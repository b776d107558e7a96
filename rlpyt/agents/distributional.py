"""Deep Q-learning agents whose networks give distributions of the return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.base import BaseAgent, initial_state
from rlpyt.agents.dqn import DqnAgent
from rlpyt.agents.networks import Held
from rlpyt.agents.rules import Atoms, EpsilonGreedyExploration, Exploration, Head, ImplicitQuantileHead, QuantileHead
from rlpyt.core import CategoricalQAgent
from rlpyt.functional import C51
from rlpyt.models import IqnModel
from rlpyt.settings import whole
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.arguments import named_arguments

# The classes `With...` are what an agent is besides a Q-learner: agents with a name of their own, such as
# `RecurrentIqnAgent`, are made of them too, and are no deeper than others.


class GreedyByAtoms(EpsilonGreedyExploration):
    """Epsilon-greedy exploration that refuses to act by hand while the range of the atoms is not known."""

    def begin(self, actor: ModelActor) -> None:
        """Take epsilon, once the range is known."""
        if actor.by_hand and not self.agent.numbers["V_range"].any():
            raise RuntimeError(
                f"{type(self.agent).__name__}: was to act by hand, but the range of its atoms is not known, which the "
                "algorithm gives; expected it with the weights. Give all of agent_state_dict, or call "
                "agent.give_V_min_max(V_min, V_max) first."
            )
        super().begin(actor)


@dataclass(kw_only=True, eq=False)
class WithAtoms(BaseAgent):
    """Network that gives the logits of fixed atoms [.., A, n_atoms]: the value head "c51", of the algorithm's range."""

    kind: ClassVar[str] = "categorical"
    kept_numbers: ClassVar[Mapping[str, int]] = {"annealed": 1, "V_range": 2}
    HeadCls: ClassVar[type[Head]] = Atoms
    ExplorationCls: ClassVar[type[Exploration]] = GreedyByAtoms

    n_atoms: int = 51
    """Atoms of every action's distribution, spread evenly over the range that the algorithm gives; the size of a
    layer, so it takes no schedule."""

    z = Held[torch.Tensor]("head")
    give_V_min_max = Held[Callable[[float, float], None]]("head", "set_range")

    def __post_init__(self) -> None:
        """Check that agent and model have the same number of atoms, at least 2."""
        super().__post_init__()
        whole(self, "n_atoms", 2)
        # The range that `CategoricalDQN` has unless it is given another.
        self.values = C51(-10.0, 10.0, int(self.n_atoms), by_divergence=True)
        other = (self.model_kwargs or {}).get("n_atoms", self.n_atoms)
        if other != self.n_atoms:
            raise ValueError(
                f"{type(self).__name__}: n_atoms is {self.n_atoms}, and {other} in model_kwargs; expected the same. "
                "Correct one of them."
            )

    @named_arguments
    def initialize(self, env_spaces: EnvSpaces) -> None:
        """Build the network and its target; take over the range, if it was given with the weights to start from."""
        super().initialize(env_spaces)
        if "V_range" in (given := initial_state(self)):
            self.give_V_min_max(*given["V_range"])


@dataclass(kw_only=True, eq=False)
class WithQuantiles(BaseAgent):
    """Network that gives quantiles [.., A, n_quantiles] at the midpoints of equal fractions (Dabney et al. 2018)."""

    kind: ClassVar[str] = "quantiles"
    HeadCls: ClassVar[type[Head]] = QuantileHead
    told_to_default: ClassVar[Mapping[str, str]] = {"n_atoms": "n_quantiles"}

    n_quantiles: int = 200
    """Quantiles of every action's distribution; the size of a layer, so it takes no schedule."""

    def __post_init__(self) -> None:
        """Check that the network returns quantiles."""
        super().__post_init__()
        whole(self, "n_quantiles")


@dataclass(kw_only=True, eq=False)
class WithImplicitQuantiles(BaseAgent):
    """Network that gives quantiles at fractions that it is given (`IqnModel`; Dabney et al. 2018)."""

    kind: ClassVar[str] = "implicit quantiles"
    DefaultModelCls: ClassVar[Callable[..., nn.Module] | None] = IqnModel
    HeadCls: ClassVar[type[Head]] = ImplicitQuantileHead


@dataclass(kw_only=True, eq=False)
class CatDqnAgent(WithAtoms, DqnAgent, CategoricalQAgent):
    """`DqnAgent` whose network gives the logits of fixed atoms [.., A, n_atoms] (Bellemare et al. 2017)."""


@dataclass(kw_only=True, eq=False)
class QrDqnAgent(WithQuantiles, DqnAgent):
    """`DqnAgent` whose network gives quantiles [.., A, n_quantiles] at the midpoints of equal fractions.

    Source: Dabney et al. 2018, arXiv:1710.10044.
    """


@dataclass(kw_only=True, eq=False)
class IqnAgent(WithImplicitQuantiles, DqnAgent):
    """`DqnAgent` whose network gives quantiles at fractions that it is given (`IqnModel`; Dabney et al. 2018).

    In acting the fractions are the midpoints of `n_acting_tau` equal parts, so that they are the same for any number of
    workers; in updates they are drawn at random, those that the next action is selected by too.
    """
