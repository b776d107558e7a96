"""Deep Q-learning agents whose networks give distributions of the return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.dqn import DqnAgent
from rlpyt.agents.own_models import check_not_probabilities
from rlpyt.core import CategoricalQAgent
from rlpyt.models import IqnModel
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import EnvSpaces
from rlpyt.types import Kwargs, StateDict


@dataclass(kw_only=True, eq=False)
class CatDqnAgent(DqnAgent, CategoricalQAgent):
    """`DqnAgent` whose network gives the logits of fixed atoms [.., A, n_atoms] (Bellemare et al. 2017)."""

    kind: ClassVar[str] = "categorical"
    kept_numbers: ClassVar[Mapping[str, int]] = {"annealed": 1, "V_range": 2}
    _z, _z_of = torch.empty(0), None  # the atoms, and range and device that they are of

    n_atoms: int = 51
    """Atoms of every action's distribution, spread evenly over the range that the algorithm gives; the size of a
    layer, so it takes no schedule."""

    def __post_init__(self) -> None:
        """Refuse a number of atoms that makes no range, or two of them."""
        super().__post_init__()
        if self.n_atoms < 2:
            raise ValueError(f"{type(self).__name__}: n_atoms is {self.n_atoms}; expected at least 2 atoms.")
        other = (self.model_kwargs or {}).get("n_atoms", self.n_atoms)
        if other != self.n_atoms:
            raise ValueError(
                f"{type(self).__name__}: n_atoms is {self.n_atoms}, and {other} in model_kwargs; expected the same. "
                "Correct one of them."
            )

    def give_V_min_max(self, V_min: float, V_max: float) -> None:
        """Set the range of the atoms, in every process that acts."""
        self.numbers["V_range"][:] = V_min, V_max
        _ = self.z

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over what `state_dict` returned, with the range of the atoms."""
        super().load_state_dict(state_dict)
        _ = self.z

    @property
    def z(self) -> torch.Tensor:
        """Values of the atoms, [n_atoms] float32."""
        if not torch.compiler.is_compiling():  # compiled code cannot read the range; it takes the atoms as they are
            V_min, V_max = self.numbers["V_range"].tolist()
            if self._z_of != (V_min, V_max, self.device):
                self._z = torch.linspace(V_min, V_max, self.n_atoms, device=self.device)
                self._z_of = V_min, V_max, self.device
        return self._z

    def preset_kwargs(self) -> Kwargs:
        """Return the number of atoms and what the user gave."""
        return {"n_atoms": self.n_atoms, **super().preset_kwargs()}

    def make_networks(self) -> None:
        """Build the network and its target; take over the range, if it was given with the weights to start from."""
        super().make_networks()
        if "V_range" in self._initial_state:
            self.give_V_min_max(*self._initial_state["V_range"])

    def _check_outputs(self) -> None:
        super()._check_outputs()
        if type(self).q_values is not CatDqnAgent.q_values:  # an agent of one's own, which may take probabilities
            return
        at_random = self._random_outputs()
        logits = at_random[0] if self.recurrent and at_random is not None else at_random
        if isinstance(logits, torch.Tensor):
            check_not_probabilities(self._the_model, logits, [self.n_atoms])

    def _expected_output(self, n_rows: int) -> str:
        return f"logits of the atoms {[n_rows, self._n_actions, self.n_atoms]} (n_atoms is {self.n_atoms})"

    def _fits(self, output: Buffer, n_rows: int) -> bool:
        atoms_fit = not isinstance(output, torch.Tensor) or output.shape[-1:] == (self.n_atoms,)
        return atoms_fit and super()._fits(output, n_rows)

    def exploration(self, actor: ModelActor, itr: int) -> torch.Tensor:
        """Return epsilon; refuse to act by hand while the range of the atoms is not known."""
        if actor.by_hand and not self.numbers["V_range"].any():
            raise RuntimeError(
                f"{type(self).__name__}: was to act by hand, but the range of its atoms is not known, which the "
                "algorithm gives; expected it with the weights. Give all of agent_state_dict, or call "
                "agent.give_V_min_max(V_min, V_max) first."
            )
        return super().exploration(actor, itr)

    def q_values(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of each action's distribution, [.., A]."""
        # No matrix product: under autocast one would round probabilities, atoms and values to bfloat16.
        return (output.softmax(-1) * self.z).sum(-1)


@dataclass(kw_only=True, eq=False)
class QrDqnAgent(DqnAgent):
    """`DqnAgent` whose network gives quantiles [.., A, n_quantiles] at the midpoints of equal fractions.

    Source: Dabney et al. 2018, arXiv:1710.10044.
    """

    kind: ClassVar[str] = "quantiles"

    n_quantiles: int = 200
    """Quantiles of every action's distribution; the size of a layer, so it takes no schedule."""

    def __post_init__(self) -> None:
        """Refuse a network without quantiles."""
        super().__post_init__()
        if self.n_quantiles < 1:
            raise ValueError(f"{type(self).__name__}: n_quantiles is {self.n_quantiles}; expected at least 1.")

    def preset_kwargs(self) -> Kwargs:
        """Return the number of quantiles and what the user gave."""
        return {"n_atoms": self.n_quantiles, **super().preset_kwargs()}

    def _expected_output(self, n_rows: int) -> str:
        return f"quantiles [{n_rows}, {self._n_actions}, n]"

    def q_values(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of each action's quantiles, [.., A]."""
        return output.mean(-1)


@dataclass(kw_only=True, eq=False)
class IqnAgent(DqnAgent):
    """`DqnAgent` whose network gives quantiles at fractions that it is given (`IqnModel`; Dabney et al. 2018).

    In acting the fractions are the midpoints of `n_acting_tau` equal parts, so that they are the same for any number of
    workers; in updates they are drawn at random, those that the next action is selected by too.
    """

    kind: ClassVar[str] = "implicit quantiles"

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the default network."""
        return IqnModel(env_spaces.observation, env_spaces.action, **self.default_model_kwargs())

    def _expected_output(self, n_rows: int) -> str:
        return f"Quantiles of rlpyt.models: value [{n_rows}, {self._n_actions}, n] and tau [{n_rows}, n]"

    def q_values(self, output: Buffer) -> torch.Tensor:
        """Return the mean of each action's quantiles, [.., A]."""
        return output.value.mean(-1)
