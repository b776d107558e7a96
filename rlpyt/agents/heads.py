"""Heads: how an agent reads what its networks give, and which actions are best by it."""

from __future__ import annotations

import gymnasium
import torch

from rlpyt.agents.given import of_its_kind
from rlpyt.core import Agent
from rlpyt.distributions import DistInfoLogits, DistInfoStd
from rlpyt.namedarraytuple import Buffer
from rlpyt.types import Kwargs


class Head:
    """Reading of what an agent's networks give; here it is read as it is.

    An agent's class names its head as `HeadCls`.

    Args:
        agent: whose settings, networks and distribution the head finds as `self.agent`.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = of_its_kind(agent)

    def read(self, output: Buffer) -> Buffer:
        """Return what `act` and `agent_info` of the agent take, of what the model gives, on its device."""
        return output

    def best(self, output: Buffer) -> torch.Tensor:
        """Return the actions [B] of a deterministic evaluation, of what `read` returned.

        Raises:
            TypeError: if the head has no such rule.
        """
        raise TypeError(
            f"{type(self).__name__}: has no rule for a deterministic evaluation; expected one. Write best(self, "
            f"output), which returns actions [B] without noise, or act of {type(self.agent).__name__}."
        )

    def model_kwargs(self) -> Kwargs:
        """Return the arguments that the default model is given beside those of the user."""
        return {}

    def loaded(self) -> None:
        """Take in that the agent's state was loaded."""


class PolicyHead(Head):
    """Parameters of a distribution, and a value."""

    def read(self, output: Buffer) -> tuple[Buffer, torch.Tensor]:
        """Return distribution parameters and value."""
        *params, value = output
        return self.agent.distribution.DistInfo(*params), value

    def best(self, output: tuple[Buffer, torch.Tensor]) -> torch.Tensor:
        """Return the most probable actions [B]."""
        mode: torch.Tensor = self.agent.distribution.mode(output[0])
        return mode


# ---- Q-learning ----


class QHead(Head):
    """Values of all actions."""

    def read(self, output: Buffer) -> torch.Tensor:
        """Return q [.., A] of what the network gives: here the same."""
        q: torch.Tensor = output
        return q

    def best(self, output: torch.Tensor) -> torch.Tensor:
        """Return the best actions by q [B, A]."""
        return output.argmax(-1)

    @property
    def n_actions(self) -> int | str:
        """Number of actions; "A" in a space that an agent of one's own acts in."""
        space = self.agent.env_spaces.action
        return int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else "A"

    def fits(self, output: Buffer, n_rows: int) -> bool:
        """Return whether values of all actions follow from an output for rows."""
        try:
            q = self.read(output)
        except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
            return False
        return isinstance(q, torch.Tensor) and (self.n_actions == "A" or q.shape == (n_rows, self.n_actions))

    def expected(self, n_rows: int) -> str:
        """Return in words what the network should give for rows."""
        return f"q {[n_rows, self.n_actions]}"

    def logit_sizes(self) -> list[int]:
        """Return how many logits each choice has, where the network gives logits."""
        return []


class Atoms(QHead):
    """Logits of fixed atoms, evenly over a range (Bellemare et al. 2017); see `CatDqnAgent`."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._z = torch.empty(0)
        self._z_of: tuple[float, float, torch.device] | None = None  # range and device that the atoms are of

    @property
    def z(self) -> torch.Tensor:
        """Values of the atoms, [n_atoms] float32."""
        if not torch.compiler.is_compiling():  # compiled code cannot read the range; it takes the atoms as they are
            networks = self.agent.networks
            V_min, V_max = networks.numbers["V_range"].tolist()
            if self._z_of != (V_min, V_max, networks.device):
                self._z = torch.linspace(V_min, V_max, self.agent.n_atoms, device=networks.device)
                self._z_of = V_min, V_max, networks.device
        return self._z

    def set_range(self, V_min: float, V_max: float) -> None:
        """Set the range of the atoms, in every process that acts."""
        self.agent.networks.numbers["V_range"][:] = V_min, V_max
        self.loaded()

    def loaded(self) -> None:
        """Make the atoms of the range anew."""
        _ = self.z

    def read(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of each action's distribution, [.., A]."""
        # No matrix product: under autocast one would round probabilities, atoms and values to bfloat16.
        return (output.softmax(-1) * self.z).sum(-1)

    def model_kwargs(self) -> Kwargs:
        """Return the number of atoms."""
        return {"n_atoms": self.agent.n_atoms}

    def fits(self, output: Buffer, n_rows: int) -> bool:
        """Return whether an output for rows has the atoms."""
        atoms_fit = not isinstance(output, torch.Tensor) or output.shape[-1:] == (self.agent.n_atoms,)
        return atoms_fit and super().fits(output, n_rows)

    def expected(self, n_rows: int) -> str:
        """Return in words what the network should give for rows."""
        n_atoms = self.agent.n_atoms
        return f"logits of the atoms {[n_rows, self.n_actions, n_atoms]} (n_atoms is {n_atoms})"

    def logit_sizes(self) -> list[int]:
        """Return the number of atoms."""
        return [self.agent.n_atoms]


class QuantileHead(QHead):
    """Quantiles at the midpoints of equal fractions (Dabney et al. 2018); see `QrDqnAgent`."""

    def read(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of each action's quantiles, [.., A]."""
        return output.mean(-1)

    def model_kwargs(self) -> Kwargs:
        """Return the number of quantiles."""
        return {"n_atoms": self.agent.n_quantiles}

    def expected(self, n_rows: int) -> str:
        """Return in words what the network should give for rows."""
        return f"quantiles [{n_rows}, {self.n_actions}, n]"


class ImplicitQuantileHead(QHead):
    """Quantiles at fractions that the network is given; see `IqnAgent`."""

    def read(self, output: Buffer) -> torch.Tensor:
        """Return the mean of each action's quantiles, [.., A]."""
        mean: torch.Tensor = output.value.mean(-1)
        return mean

    def expected(self, n_rows: int) -> str:
        """Return in words what the network should give for rows."""
        return f"Quantiles of rlpyt.models: value [{n_rows}, {self.n_actions}, n] and tau [{n_rows}, n]"


# ---- policies with action values ----


class MuHead(Head):
    """Actions mu [.., A] of a deterministic policy, in units of the bounds."""

    def best(self, output: torch.Tensor) -> torch.Tensor:
        """Return mu as actions."""
        action: torch.Tensor = self.agent.distribution.decode(output)
        return action


class SquashedGaussianHead(Head):
    """Mean and log_std [.., A] of a squashed Gaussian."""

    def read(self, output: Buffer) -> DistInfoStd:
        """Return the parameters of the distribution."""
        return DistInfoStd(*output)

    def best(self, output: DistInfoStd) -> torch.Tensor:
        """Return the squashed mean."""
        mode: torch.Tensor = self.agent.distribution.mode(output)
        return mode


# ---- populations ----


class ChoiceHead(Head):
    """Scores of discrete actions, the discrete actions themselves, or numbers for a Box; see `PopulationAgent`."""

    def best(self, output: torch.Tensor) -> torch.Tensor:
        """Return the actions [B] with the highest scores, or those that the model gives."""
        distribution = self.agent.distribution
        if isinstance(self.agent.env_spaces.action, gymnasium.spaces.Box):
            x = output
            if self.agent.box_units == "environment":
                x = distribution.encode(output.reshape(-1, *distribution.shape))
            action: torch.Tensor = distribution.decode(x.clamp(-1.0, 1.0))
            return action
        if not output.is_floating_point():
            return output.long()
        mode: torch.Tensor = distribution.mode(DistInfoLogits(output))
        return mode
