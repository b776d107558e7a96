"""Rules of acting: how an agent reads what its networks give, which actions are best by it, and how it explores.

An agent's class names its rules as `HeadCls` and `ExplorationCls`. Each is made with the agent, whose settings,
networks and distribution it finds as `self.agent`.
"""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np
import torch

from rlpyt.agents.actor import ModelActor, of_its_kind
from rlpyt.core import Agent
from rlpyt.distributions import Composite, DistInfoLogits, DistInfoStd
from rlpyt.functional import C51, mask_illegal
from rlpyt.models import NoisyLinear
from rlpyt.namedarraytuple import Buffer

BEST, EXPLORE, FIRST = "best", "explore", "first"
"""Ways to act of a policy with action values: by the policy alone, exploring, and before the first update."""

# ---- exploration ----


class Exploration:
    """Rule of exploration, one object for all actors of an agent; here there is none, and actions are the best ones.

    What acting keeps of environments from step to step is `actor.exploration_state`, and what holds for a batch or an
    evaluation is `actor.exploration`; a rule keeps none of it.
    """

    _schedule: Callable[[int], float | None] | None = None

    def __init__(self, agent: Agent) -> None:
        self.agent = of_its_kind(agent)

    # ---- how far it has gone ----

    @property
    def fraction(self) -> float:
        """How far exploration has gone from its first (0) to its last value (1), in every process that acts."""
        return float(self.agent.numbers["annealed"][0])

    def anneal(self, fraction: float) -> None:
        """Set how far it has gone."""
        self.agent.numbers["annealed"][:] = fraction

    def follow(self, schedule: Callable[[int], float | None]) -> None:
        """Follow a schedule over iterations; see `rlpyt.core.Agent.explore_by`."""
        self._schedule = schedule

    def fraction_after(self, itr: int) -> float | None:
        """Return the fraction of annealing that the schedule has after an iteration; None leaves it as it is."""
        return None if self._schedule is None else self._schedule(itr)

    # ---- acting ----

    def begin(self, actor: ModelActor) -> None:
        """Set `actor.exploration` where a batch, or an evaluation, begins."""

    def state(self, n_rows: int) -> torch.Tensor | None:
        """Return the null state [n_rows, ...] that is kept from step to step; None for a rule without one."""
        return None

    def model(self, actor: ModelActor) -> Buffer:
        """Return the network that acts."""
        return self.agent.model

    def noisy_layers(self) -> list[NoisyLinear]:
        """Return the layers whose noise is drawn at every step of training's environments."""
        return []

    def action(self, output: Buffer, actor: ModelActor) -> Buffer:
        """Return actions [B] to learn from, of what `agent.act` takes."""
        return self.agent.head.best(output)

    def mean_epsilon(self, fraction: float, n_envs: int) -> float | None:
        """Return the mean probability of a random action, for the log; see `rlpyt.core.QAgent`."""
        return None


class EpsilonGreedyExploration(Exploration):
    """Random actions with probability epsilon, which may be another one in each environment; see `DqnAgent`."""

    def begin(self, actor: ModelActor) -> None:
        """Take epsilon [B] or [1]: in evaluation `eps_eval`, and 1 before the first iteration from new weights.

        A deterministic evaluation has epsilon 0, before the first iteration too.
        """
        if not actor.evaluation:
            actor.exploration = self.epsilon(actor)
            return
        has_learned = actor.itr > 0 or actor.by_hand or self.agent.starts_trained
        epsilon = self.agent.eps_eval if has_learned else 1.0
        actor.exploration = torch.tensor([0.0 if actor.deterministic else epsilon])

    def noisy_layers(self) -> list[NoisyLinear]:
        """Return the noisy layers of the network."""
        return self.agent.networks.layers.of(self.agent.model, NoisyLinear)

    def action(self, output: Buffer, actor: ModelActor) -> Buffer:
        """Return the best actions by q [B, A], and random ones with probability epsilon."""
        distribution = self.agent.distribution
        return distribution.sample(output, actor.exploration, actor.draw(distribution.draw_noise))

    def epsilon(self, actor: ModelActor | None = None) -> torch.Tensor:
        """Return epsilon of an actor's environments, [B] or [1], as it stands for training; None is one by hand."""
        agent = self.agent
        if agent.eps_train is not None:
            return torch.tensor(agent.numbers["eps_train"], dtype=torch.float32)
        actor = actor or agent.by_hand.actor
        # In numpy, as every batch begins with this, and may be one row.
        if agent.eps_final_min is None:
            final = np.array([agent.eps_final], np.float32)
        else:
            final = self._final_epsilon(actor.global_B).numpy()[actor.env_ranks]
        return torch.from_numpy(agent.eps_init + agent.fraction * (final - agent.eps_init))

    def mean_epsilon(self, fraction: float, n_envs: int) -> float:
        """Return the mean epsilon over all environments of a run."""
        agent = self.agent
        if agent.eps_train is not None:  # as it stands: the fraction is of the way that it replaces
            return float(agent.numbers["eps_train"][0])
        return float(agent.eps_init + fraction * (self._final_epsilon(n_envs).double().mean().item() - agent.eps_init))

    def _final_epsilon(self, n_envs: int) -> torch.Tensor:
        """Return the final epsilon of the environments of a run, [n_envs], or [1] where all have the same."""
        lowest, final = self.agent.eps_final_min, self.agent.eps_final
        return torch.tensor([final]) if lowest is None else torch.logspace(np.log10(lowest), np.log10(final), n_envs)


class Sampling(Exploration):
    """Samples of the distribution, as a policy gradient asks for."""

    def action(self, output: Buffer, actor: ModelActor) -> Buffer:
        """Return samples."""
        return sample(output[0], actor)


def sample(dist_info: Buffer, actor: ModelActor) -> Buffer:
    """Return actions [B] of the agent's distribution, with the noise of an actor's environments."""
    distribution = actor.agent.distribution
    return distribution.sample(dist_info, actor.draw(distribution.draw_noise))


class PolicyExploration(Exploration):
    """Samples of the policy, and before the first update of the whole action space; see `QpgAgent`."""

    def begin(self, actor: ModelActor) -> None:
        """Choose the way to act.

        An evaluation before the first iteration is as in training while nothing was learned yet, unless it is
        deterministic. Other evaluations are by the policy alone. A policy that starts from given weights has learned.
        """
        has_learned = self.agent.starts_trained or self.agent.fraction > 0.0
        best = actor.evaluation and (actor.itr > 0 or has_learned or actor.deterministic)
        actor.exploration = BEST if best else EXPLORE if has_learned else FIRST

    def action(self, output: Buffer, actor: ModelActor) -> Buffer:
        """Return actions [B] in the way that `begin` chose."""
        if actor.exploration == BEST:
            return super().action(output, actor)
        if actor.exploration == EXPLORE:
            return self.explore(output, actor)
        units, std = self.agent.distribution, self.agent.pretrain_std
        if std is None:
            return units.decode(actor.draw(units.draw_uniform))
        x = units.encode(super().action(output, actor)) + std * actor.draw(units.draw_noise)
        return units.decode(x.clamp(-1, 1))

    def explore(self, output: Buffer, actor: ModelActor) -> Buffer:
        """Return the actions [B] to learn from, once updates have begun: samples of the policy."""
        return sample(output, actor)


class ChoiceExploration(PolicyExploration):
    """Samples of a policy over discrete actions, and before the first update any legal action, each as likely."""

    def action(self, output: DistInfoLogits, actor: ModelActor) -> torch.Tensor:
        """Return actions [B] in the way that `begin` chose."""
        if actor.exploration == FIRST:
            output = DistInfoLogits(output.logits.masked_fill(output.logits > -torch.inf, 0.0))
            return sample(output, actor)
        return super().action(output, actor)


class GaussianNoise(PolicyExploration):
    """Noise added to a deterministic policy in units of the bounds, and clipped to them.

        noise_t = action_noise_correlation * noise_{t-1} + sqrt(1 - action_noise_correlation^2) * action_std * N(0, I)

    from noise_0 = 0 where an episode starts: with a correlation c an AR(1) process, which is the Ornstein-Uhlenbeck
    process of theta = 1 - c with time steps of 1; its standard deviation tends to action_std.
    """

    def state(self, n_rows: int) -> torch.Tensor | None:
        """Return the noise of the step before, zero; None where steps are independent."""
        return torch.zeros(n_rows, self.agent.distribution.dim) if self.agent.action_noise_correlation else None

    def explore(self, output: Buffer, actor: ModelActor) -> Buffer:
        """Return mu with noise."""
        agent, c = self.agent, self.agent.action_noise_correlation
        noise = actor.draw(agent.distribution.draw_noise) * agent.numbers["action_std"].item()
        if actor.exploration_state is not None:
            noise = actor.exploration_state = c * actor.exploration_state + (1 - c * c) ** 0.5 * noise
        if agent.action_noise_clip is not None:
            noise = noise.clamp(-agent.action_noise_clip, agent.action_noise_clip)
        return agent.distribution.decode((output + noise).clamp(-1, 1))


# ---- heads ----


class Head:
    """Reading of what an agent's networks give; here it is read as it is."""

    def __init__(self, agent: Agent) -> None:
        self.agent = of_its_kind(agent)

    def read(self, output: Buffer) -> Buffer:
        """Return the outputs of the model in the form that `act` and `agent_info` take, on its device."""
        return output

    def read_at(self, observation: Buffer, output: Buffer) -> Buffer:
        """Return what `read` does of the outputs at observations [..], so that their illegal actions are never taken.

        Illegal are actions that a mask in the observation forbids.
        """
        read, masks = self.read(output), self.agent.networks.masks
        return read if masks is None else self.restrict(read, masks.legal(observation))

    def restrict(self, read: Buffer, legal: torch.Tensor) -> Buffer:
        """Return what `read` returned, so that actions are never taken where `legal` [.., A] is False.

        The actions of several choices stand one after the other.
        """
        raise TypeError(
            f"{type(self).__name__}: has no rule for masks of actions; expected one, as the observations have the key "
            "action_mask. Write restrict(self, read, legal), or rename the key."
        )

    def best(self, output: Buffer) -> Buffer:
        """Return the actions [B] of a deterministic evaluation, of what `read` returned."""
        raise TypeError(
            f"{type(self).__name__}: has no rule for a deterministic evaluation; expected one. Write best(self, "
            f"output), which returns actions [B] without noise, or act of {type(self.agent).__name__}."
        )

    def loaded(self) -> None:
        """Take in that the agent's state was loaded."""


class PolicyHead(Head):
    """Parameters of a distribution, and a value."""

    def read(self, output: Buffer) -> tuple[Buffer, torch.Tensor]:
        """Return distribution parameters and value."""
        *params, value = output
        return self.agent.distribution.DistInfo(*params), value

    def restrict(self, read: tuple[Buffer, torch.Tensor], legal: torch.Tensor) -> tuple[Buffer, torch.Tensor]:
        """Return the distribution with logits of minus infinity for illegal actions, and the value."""
        (dist_info, value), distribution = read, self.agent.distribution
        if isinstance(distribution, Composite):
            return distribution.restrict(dist_info, legal), value
        if not isinstance(dist_info, DistInfoLogits):
            super().restrict(read, legal)
        return DistInfoLogits(mask_illegal(dist_info.logits, legal)), value

    def best(self, output: Buffer) -> Buffer:
        """Return the most probable actions [B]."""
        return self.agent.distribution.mode(output[0])


class QHead(Head):
    """Values q [.., A] of all actions."""

    expected = "q [{n}, {A}]"
    """What the network should give for n rows and A actions, in words."""
    logit_sizes: tuple[int, ...] = ()
    """How many logits each choice has, where the network gives logits."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        if (n := agent.values.n_outputs) is not None:
            self.expected = f"the outputs [{{n}}, {{A}}, {n}] of {agent.values}"
            self.logit_sizes = (n,)

    def read(self, output: torch.Tensor) -> torch.Tensor:
        """Return the value of each action, [.., A]."""
        return self.agent.values.mean(output)

    def restrict(self, read: torch.Tensor, legal: torch.Tensor) -> torch.Tensor:
        """Return q [.., A] with minus infinity for illegal actions."""
        return mask_illegal(read, legal)

    def best(self, output: torch.Tensor) -> torch.Tensor:
        """Return the best actions by q [B, A]."""
        return output.argmax(-1)


class Atoms(QHead):
    """Logits of fixed atoms, evenly over a range (Bellemare et al. 2017); see `CatDqnAgent`.

    The range is among the agent's numbers, where each process that acts finds it, and `agent.values` follow it.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        n_atoms = self.agent.n_atoms
        self.expected = f"logits of the atoms [{{n}}, {{A}}, {n_atoms}] (n_atoms is {n_atoms})"

    @property
    def z(self) -> torch.Tensor:
        """Values of the atoms, [n_atoms] float32."""
        return self.agent.values.places(torch.empty(0, device=self.agent.device))

    def set_range(self, V_min: float, V_max: float) -> None:
        """Set the range of the atoms, in every process that acts."""
        self.agent.values = C51(V_min, V_max, self.agent.n_atoms, by_divergence=True)
        self.agent.numbers["V_range"][:] = V_min, V_max

    def loaded(self) -> None:
        """Take over the range, once the algorithm has given it."""
        V_min, V_max = self.agent.numbers["V_range"].tolist()
        if (V_min, V_max) not in ((0.0, 0.0), (self.agent.values.V_min, self.agent.values.V_max)):
            self.set_range(V_min, V_max)

    def read(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of each action's distribution, [.., A]."""
        if not torch.compiler.is_compiling():  # compiled code cannot read the range; it takes the atoms as they are
            self.loaded()
        return super().read(output)


class QuantileHead(QHead):
    """Quantiles at the midpoints of equal fractions (Dabney et al. 2018); see `QrDqnAgent`."""

    expected = "quantiles [{n}, {A}, n]"

    def read(self, output: torch.Tensor) -> torch.Tensor:
        """Return the mean of each action's quantiles, [.., A]."""
        return output.mean(-1)


class ImplicitQuantileHead(QHead):
    """Quantiles at fractions that the network is given; see `IqnAgent`."""

    expected = "Quantiles of rlpyt.models: value [{n}, {A}, n] and tau [{n}, n]"

    def read(self, output: Buffer) -> Buffer:
        """Return the mean of each action's quantiles, [.., A]."""
        return output.value.mean(-1)


class MuHead(Head):
    """Actions mu [.., A] of a deterministic policy, in units of the bounds."""

    def best(self, output: Buffer) -> Buffer:
        """Return mu as actions."""
        return self.agent.distribution.decode(output)


class SquashedGaussianHead(Head):
    """Mean and log_std [.., A] of a squashed Gaussian."""

    def read(self, output: Buffer) -> DistInfoStd:
        """Return the parameters of the distribution."""
        return DistInfoStd(*output)

    def best(self, output: Buffer) -> Buffer:
        """Return the squashed mean."""
        return self.agent.distribution.mode(output)


class LogitsHead(Head):
    """Logits [.., A] of a policy over discrete actions."""

    def read(self, output: torch.Tensor) -> DistInfoLogits:
        """Return the parameters of the distribution."""
        return DistInfoLogits(output)

    def restrict(self, read: DistInfoLogits, legal: torch.Tensor) -> DistInfoLogits:
        """Return logits of minus infinity for illegal actions."""
        return DistInfoLogits(mask_illegal(read.logits, legal))

    def best(self, output: DistInfoLogits) -> torch.Tensor:
        """Return the most probable actions [B]."""
        return output.logits.argmax(-1)


class ChoiceHead(Head):
    """Scores of discrete actions, the discrete actions themselves, or numbers for a Box; see `PopulationAgent`."""

    def restrict(self, read: torch.Tensor, legal: torch.Tensor) -> torch.Tensor:
        """Return scores with minus infinity for illegal actions; refuse a model that gives the actions themselves."""
        return mask_illegal(read, legal) if read.is_floating_point() else super().restrict(read, legal)

    def best(self, output: torch.Tensor) -> Buffer:
        """Return the actions [B] with the highest scores, or those that the model gives."""
        distribution = self.agent.distribution
        if isinstance(self.agent.env_spaces.action, gymnasium.spaces.Box):
            in_bounds = self.agent.box_units == "bounds"
            x = output if in_bounds else distribution.encode(output.reshape(-1, *distribution.shape))
            return distribution.decode(x.clamp(-1.0, 1.0))
        return distribution.mode(DistInfoLogits(output)) if output.is_floating_point() else output.long()
