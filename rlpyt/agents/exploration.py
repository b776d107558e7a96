"""Rules of exploration: how actions to learn from depart from the best ones, and how far that has been annealed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.given import of_its_kind
from rlpyt.agents.networks import Numbers
from rlpyt.core import Agent
from rlpyt.models import NoisyLinear
from rlpyt.namedarraytuple import Buffer

BEST, EXPLORE, FIRST = "best", "explore", "first"
"""Ways to act of a policy with action values: by the policy alone, exploring, and before the first update."""


class Annealing:
    """Count of how far exploration has gone from its first (0) to its last value (1), in every process that acts.

    Args:
        numbers: of the agent.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._schedule: Callable[[int], float | None] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state of a copy, without the algorithm's schedule: it holds the replay, and sets it again."""
        return {**vars(self), "_schedule": None}

    @property
    def fraction(self) -> float:
        """How far it has gone, from 0 to 1."""
        return float(self._numbers["annealed"][0])

    def set(self, fraction: float) -> None:
        """Set how far it has gone."""
        self._numbers["annealed"][:] = fraction

    def follow(self, schedule: Callable[[int], float | None]) -> None:
        """Follow a schedule over iterations; see `rlpyt.core.ExploringAgent.explore_by`."""
        self._schedule = schedule

    def after(self, itr: int) -> float | None:
        """Return how far it has gone after an iteration by the schedule; None leaves it as it is."""
        return None if self._schedule is None else self._schedule(itr)


class Exploration:
    """Rule of exploration of an agent, for all its actors; here it does nothing.

    A rule keeps nothing itself: what it keeps of environments from step to step is `actor.exploration_state`, and what
    holds for a batch or an evaluation `actor.exploration`. An agent's class names its rule as `ExplorationCls`.

    Args:
        agent: whose settings, networks and distribution the rule finds as `self.agent`.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = of_its_kind(agent)

    def begin(self, actor: ModelActor) -> None:
        """Set `actor.exploration` where a batch, or an evaluation, begins."""

    def state(self, n_rows: int) -> torch.Tensor | None:
        """Return the null state [n_rows, ...] that is kept from step to step; None for a rule without one."""
        return None

    def model(self, actor: ModelActor) -> nn.Module:
        """Return the network that acts."""
        model: nn.Module = self.agent.model
        return model

    def noisy_layers(self) -> list[NoisyLinear]:
        """Return the layers whose noise is drawn at every step of training's environments."""
        return []

    def action(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return actions [B] to learn from, of what `agent.act` takes.

        Raises:
            TypeError: if the rule has none.
        """
        raise TypeError(
            f"{type(self).__name__}: has no rule for actions; expected one. Write action(self, output, actor), or act "
            f"of {type(self.agent).__name__}."
        )

    def mean_epsilon(self, fraction: float, n_envs: int) -> float | None:
        """Return the mean probability of a random action, for the log; see `rlpyt.core.QAgent.mean_epsilon`."""
        return None


class EpsilonGreedyExploration(Exploration):
    """Random actions with probability epsilon, which may be another one in each environment; see `DqnAgent`."""

    def begin(self, actor: ModelActor) -> None:
        """Take epsilon [B] or [1]: in evaluation `eps_eval`, and 1 before a run's first iteration.

        A deterministic evaluation has epsilon 0, before the first iteration too.
        """
        if not actor.evaluation:
            actor.exploration = self.epsilon(actor)
            return
        epsilon = self.agent.eps_eval if actor.itr > 0 or actor.by_hand else 1.0
        actor.exploration = torch.tensor([0.0 if actor.deterministic else epsilon])

    def noisy_layers(self) -> list[NoisyLinear]:
        """Return the noisy layers of the network."""
        return [layer for layer in self.agent.model.modules() if isinstance(layer, NoisyLinear)]

    def action(self, output: torch.Tensor, actor: ModelActor) -> torch.Tensor:
        """Return the best actions by q [B, A], and random ones with probability epsilon."""
        distribution = self.agent.distribution
        action: torch.Tensor = distribution.sample(output, actor.exploration, actor.draw(distribution.draw_noise))
        return action

    def epsilon(self, actor: ModelActor | None = None) -> torch.Tensor:
        """Return epsilon of an actor's environments, [B] or [1], as it stands for training; None is one by hand."""
        agent = self.agent
        if agent.eps_train is not None:
            return torch.tensor(agent.numbers["eps_train"], dtype=torch.float32)
        actor = actor or agent.by_hand.actor
        final = self._final_epsilon(actor.global_B)
        final = final if agent.eps_final_min is None else final[actor.env_ranks]
        return agent.eps_init + agent.fraction * (final - agent.eps_init)

    def mean_epsilon(self, fraction: float, n_envs: int) -> float | None:
        """Return the mean epsilon over all environments of a run."""
        agent = self.agent
        if agent.eps_train is not None:  # as it stands: the fraction is of the way that it replaces
            return float(agent.numbers["eps_train"][0])
        eps_init: float = agent.eps_init
        return eps_init + fraction * (self._final_epsilon(n_envs).double().mean().item() - eps_init)

    def _final_epsilon(self, n_envs: int) -> torch.Tensor:
        """Return the final epsilon of the environments of a run, [n_envs], or [1] where all have the same."""
        agent = self.agent
        if agent.eps_final_min is None:
            return torch.tensor([agent.eps_final])
        return torch.logspace(np.log10(agent.eps_final_min), np.log10(agent.eps_final), n_envs)


class BestActions(Exploration):
    """No exploration: always the best actions."""

    def action(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return the best actions."""
        best: torch.Tensor = self.agent.head.best(output)
        return best


class Sampling(Exploration):
    """Samples of the distribution, as a policy gradient asks for."""

    def action(self, output: tuple[Buffer, torch.Tensor], actor: ModelActor) -> torch.Tensor:
        """Return samples."""
        return sample(output[0], actor)


def sample(dist_info: Buffer, actor: ModelActor) -> torch.Tensor:
    """Return actions [B] of the agent's distribution, with the noise of an actor's environments."""
    distribution = actor.agent.distribution
    action: torch.Tensor = distribution.sample(dist_info, actor.draw(distribution.draw_noise))
    return action


class PolicyExploration(BestActions):
    """Samples of the policy, and before the first update of the whole action space; see `QpgAgent`."""

    def begin(self, actor: ModelActor) -> None:
        """Choose the way to act.

        An evaluation before the first iteration is as in training while nothing was learned yet, unless it is
        deterministic. Other evaluations are by the policy alone. A policy that starts from given weights has learned.
        """
        agent = self.agent
        has_learned = agent._starts_trained or agent.fraction > 0.0
        best = actor.evaluation and (actor.itr > 0 or has_learned or actor.deterministic)
        actor.exploration = BEST if best else EXPLORE if has_learned else FIRST

    def action(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return actions [B] in the way that `begin` chose."""
        if actor.exploration == BEST:
            return super().action(output, actor)
        return self.explore(output, actor) if actor.exploration == EXPLORE else self._first_action(output, actor)

    def explore(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return the actions [B] to learn from, once updates have begun: samples of the policy."""
        return sample(output, actor)

    def _first_action(self, output: Buffer, actor: ModelActor) -> torch.Tensor:
        """Return actions before the first update."""
        units, std = self.agent.distribution, self.agent.pretrain_std
        x = actor.draw(units.draw_uniform if std is None else units.draw_noise)
        if std is not None:
            x = (units.encode(self.agent.head.best(output)) + std * x).clamp(-1, 1)
        action: torch.Tensor = units.decode(x)
        return action


class GaussianNoise(PolicyExploration):
    """Noise added to a deterministic policy in units of the bounds, and clipped to them.

        noise_t = action_noise_correlation * noise_{t-1} + sqrt(1 - action_noise_correlation^2) * action_std * N(0, I)

    from noise_0 = 0 where an episode starts: with a correlation c an AR(1) process, which is the Ornstein-Uhlenbeck
    process of theta = 1 - c with time steps of 1; its standard deviation tends to action_std.
    """

    def state(self, n_rows: int) -> torch.Tensor | None:
        """Return the noise of the step before, zero; None where steps are independent."""
        return torch.zeros(n_rows, self.agent.distribution.dim) if self.agent.action_noise_correlation else None

    def explore(self, output: torch.Tensor, actor: ModelActor) -> torch.Tensor:
        """Return mu with noise."""
        agent = self.agent
        noise = actor.draw(agent.distribution.draw_noise) * agent.numbers["action_std"].item()
        if actor.exploration_state is not None:
            c = agent.action_noise_correlation
            noise = actor.exploration_state = c * actor.exploration_state + (1 - c * c) ** 0.5 * noise
        if agent.action_noise_clip is not None:
            noise = noise.clamp(-agent.action_noise_clip, agent.action_noise_clip)
        action: torch.Tensor = agent.distribution.decode((output + noise).clamp(-1, 1))
        return action
