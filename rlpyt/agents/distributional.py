"""Deep Q-learning agents whose networks give distributions of the return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from rlpyt.agents.dqn import DqnAgent
from rlpyt.agents.env_group import EnvGroup
from rlpyt.agents.model_kwargs import image_model_kwargs
from rlpyt.agents.own_models import check_not_probabilities
from rlpyt.models import AtariCatDqnModel, IqnModel
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.shared_memory import shared_array


class CatDqnAgent(DqnAgent):
    """`DqnAgent` whose network gives the logits of fixed atoms [.., A, n_atoms] (Bellemare et al. 2017).

    Args:
        *args: see `DqnAgent`.
        n_atoms: of every action's distribution, spread evenly over the range that the algorithm gives.
        **kwargs: see `DqnAgent`.
    """

    kind = "categorical"

    def __init__(self, *args: Any, n_atoms: int = 51, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if n_atoms < 2:
            raise ValueError(f"{type(self).__name__}: n_atoms is {n_atoms}; expected at least 2 atoms.")
        if self.model_kwargs.get("n_atoms", n_atoms) != n_atoms:
            raise ValueError(
                f"{type(self).__name__}: n_atoms is {n_atoms}, and {self.model_kwargs['n_atoms']} in model_kwargs; "
                "expected the same. Correct one of them."
            )
        self.n_atoms = n_atoms
        self._V_range = np.zeros(2)  # in shared memory where workers act, as the algorithm gives it after they started

    def give_V_min_max(self, V_min: float, V_max: float) -> None:
        """Set the range of the atoms, in every process that acts."""
        self._V_range[:] = V_min, V_max

    @property
    def z(self) -> torch.Tensor:
        """Where the atoms stand, [n_atoms] float32."""
        V_min, V_max = self._V_range.tolist()
        return torch.linspace(V_min, V_max, self.n_atoms, device=self.device)

    def default_model_kwargs(self) -> dict[str, Any]:
        """Return the arguments of the default model."""
        return {"n_atoms": self.n_atoms, **super().default_model_kwargs()}

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

    def _fits(self, output: Any, n_rows: int) -> bool:
        atoms_fit = not isinstance(output, torch.Tensor) or output.shape[-1:] == (self.n_atoms,)
        return atoms_fit and super()._fits(output, n_rows)

    def _take(self, group: EnvGroup) -> None:
        super()._take(group)
        if group.by_hand and not self._V_range.any():
            raise RuntimeError(
                f"{type(self).__name__}: was to act by hand, but the range of its atoms is not known, which the "
                "algorithm gives; expected it with the weights. Give all of agent_state_dict, or call "
                "agent.give_V_min_max(V_min, V_max) first."
            )

    def q_values(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of each action's distribution, [.., A]."""
        # No matrix product: under autocast one would round probabilities, atoms and values to bfloat16.
        return (output.softmax(-1) * self.z).sum(-1)

    def worker_copy(self) -> Self:
        """Return a copy that acts in another process, and follows this one's range."""
        shared = shared_array(2, np.float64)
        shared[:] = self._V_range
        self._V_range = shared
        return super().worker_copy()

    def state_dict(self) -> dict[str, Any]:
        """Return what `DqnAgent` does, and the range."""
        return {**super().state_dict(), "V_range": self._V_range.tolist()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self.give_V_min_max(*state_dict["V_range"])


class AtariCatDqnAgent(CatDqnAgent):
    """`CatDqnAgent` with the Nature network."""

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the network for these sizes."""
        kwargs = {"n_atoms": self.n_atoms, **self.model_kwargs}
        return AtariCatDqnModel(**self.make_env_to_model_kwargs(env_spaces), **kwargs)

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the image's shape and the number of actions."""
        return image_model_kwargs(env_spaces)


class QrDqnAgent(DqnAgent):
    """`DqnAgent` whose network gives quantiles [.., A, n_quantiles] at the midpoints of equal fractions.

    Args:
        *args: see `DqnAgent`.
        n_quantiles: of every action's distribution.
        **kwargs: see `DqnAgent`.

    Source: Dabney et al. 2018, arXiv:1710.10044.
    """

    kind = "quantiles"

    def __init__(self, *args: Any, n_quantiles: int = 200, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if n_quantiles < 1:
            raise ValueError(f"{type(self).__name__}: n_quantiles is {n_quantiles}; expected at least 1.")
        self.n_quantiles = n_quantiles

    def default_model_kwargs(self) -> dict[str, Any]:
        """Return the arguments of the default model."""
        return {"n_atoms": self.n_quantiles, **super().default_model_kwargs()}

    def _expected_output(self, n_rows: int) -> str:
        return f"quantiles [{n_rows}, {self._n_actions}, n]"

    def q_values(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of each action's quantiles, [.., A]."""
        return output.mean(-1)


class IqnAgent(DqnAgent):
    """`DqnAgent` whose network gives quantiles at fractions that it is given (`IqnModel`; Dabney et al. 2018).

    In acting the fractions are the midpoints of `n_acting_tau` equal parts, so that they are the same for any number of
    workers; in updates they are drawn at random, those that the next action is selected by too.
    """

    kind = "implicit quantiles"

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the default network."""
        return IqnModel(env_spaces.observation, env_spaces.action, **self.default_model_kwargs())

    def _expected_output(self, n_rows: int) -> str:
        return f"Quantiles of rlpyt.models: value [{n_rows}, {self._n_actions}, n] and tau [{n_rows}, n]"

    def q_values(self, output: Any) -> torch.Tensor:
        """Return the mean of each action's quantiles, [.., A]."""
        return output.value.mean(-1)


class RecurrentCatDqnAgent(CatDqnAgent):
    """`CatDqnAgent` whose model carries a state."""

    recurrent = True


class RecurrentQrDqnAgent(QrDqnAgent):
    """`QrDqnAgent` whose model carries a state."""

    recurrent = True


class RecurrentIqnAgent(IqnAgent):
    """`IqnAgent` whose model carries a state."""

    recurrent = True
