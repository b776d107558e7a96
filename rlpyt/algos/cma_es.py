"""CMA-ES: a search over the parameters of a policy, without a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch

from rlpyt.algos.metrics import OptInfo
from rlpyt.algos.search_distribution import SearchDistribution, covariance_bytes
from rlpyt.algos.whole_episodes import WholeEpisodes
from rlpyt.core import Algorithm, Metrics, PopulationPolicyAgent
from rlpyt.functional import ScheduleLike
from rlpyt.settings import Scheduled, Settings, whole
from rlpyt.types import Run, Samples, StateDict
from rlpyt.utils.arrays import buffer_to
from rlpyt.utils.seeds import Role, stream_seed


@dataclass(kw_only=True, eq=False)
class CMAES(Settings, Scheduled, Algorithm[PopulationPolicyAgent]):
    """Covariance matrix adaptation evolution strategy, by the package `cmaes` (`pip install rlpyt[cmaes]`).

    Every environment of the batch acts with the parameters of one individual, x_i ~ N(mean, sigma^2 C). The fitness of
    an individual is the mean return, without discount, of `n_episodes` whole episodes in each of its environments. A
    generation ends when all environments have them. It may take several batches, and an episode counts only if one
    individual of the generation acted in all of it. Those under way at the end of a generation are lost: with a sampler
    that waits for the batch to reset (`WaitResetCollector`) and a batch_T of the longest episode, none is. `GpuSampler`
    refuses `restart_workers`, unless it has action servers: a lost worker's episode could not be told from a whole.

    Source: Hansen 2016, arXiv:1604.00772.
    """

    noun: ClassVar[str] = "hyper-parameter"
    opt_info_fields: ClassVar[tuple[str, ...]] = ("fitness", "bestFitness", "sigma")
    discount = 1.0  # of the trajectories' statistics

    sigma: float = 0.5
    """Step size at the start, the standard deviation of every parameter."""
    n_episodes: int = 1
    """Whole episodes of each environment in a generation."""
    separable: bool = False
    """Whether only the diagonal of the covariance matrix is adapted (`cmaes.SepCMA`). It must be so above 2,000
    parameters: an update of the full matrix takes 8 (2 population_size + 8) bytes for each of its entries."""
    weight_func: Callable[[int], float] | None = None
    """Weight of an individual in the new mean and covariance by its rank, 1 for the least fit to population_size for
    the fittest. They are divided by their sum. None takes those of the package, which are below 0 in the covariance for
    the less fit half."""
    mean_rate: ScheduleLike = 1.0
    """Part of the way that the mean goes to the weighted mean of a generation, in (0, 1]."""
    covariance_rate: ScheduleLike = 1.0
    """Factor, in [0, 1], of the rates at which the covariance matrix learns, which follow from the numbers of
    parameters and individuals."""
    evaluated: str = "mean"
    """What evaluation and snapshots act with: "mean" of the distribution, or "best", the fittest individual so far."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("sigma", lambda x: 0.0 < x < float("inf"), "a number above 0")
        whole(self, "n_episodes")
        self.check("mean_rate", lambda x: 0.0 < x <= 1.0, "a number in (0, 1]")
        self.check("covariance_rate", lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        if not (self.weight_func is None or callable(self.weight_func)):
            raise TypeError(
                f"{type(self).__name__}: weight_func is {self.weight_func!r}; expected a function of the rank of an "
                "individual, such as lambda rank: rank**2."
            )
        if self.evaluated not in ("mean", "best"):
            raise ValueError(
                f'{type(self).__name__}: evaluated is {self.evaluated!r}; expected "mean" or "best". Give one of them.'
            )

    def initialize(self, agent: PopulationPolicyAgent, run: Run) -> None:
        """Begin the search at the agent's parameters; see `rlpyt.core.Algorithm`."""
        if agent.kind != PopulationPolicyAgent.kind:
            raise TypeError(
                f"{type(self).__name__}: the agent, a {type(agent).__name__}, has no population; expected one. Give "
                "the runner a PopulationAgent, or a subclass."
            )
        n_envs = run.batch_spec.B * run.world_size
        if n_envs % agent.population_size:
            raise ValueError(
                f"{type(self).__name__}: the batch has {n_envs} environments (batch_B), and the agent's "
                f"population_size is {agent.population_size}; expected a multiple of it, so that every individual has "
                "as many environments. Change one of them."
            )
        self.agent, self.replicas, self.descents = agent, run.replicas, {}
        agent.networks.join(run.replicas)
        self.batch_size, self.update_counter = run.batch_spec.size, 0
        self._steps_per_itr, self._envs_of_each = run.steps_per_itr, n_envs // agent.population_size
        self.bind(run.n_steps)
        agent.bind(run.n_steps, run.steps_per_itr)
        # Replicas make the same search, each with the returns of all.
        mean = self.replicas.broadcast(_vector(agent).numpy())
        seed = stream_seed(run.seed, Role.ALGO)
        self.search = SearchDistribution(
            mean, float(self.sigma), agent.population_size, seed, self.separable, self.weight_func
        )
        self.episodes = WholeEpisodes(run.batch_spec.B, whole(self, "n_episodes"))
        self._best, self._best_fitness = mean.copy(), -float("inf")
        self._begin_generation()

    def _begin_generation(self) -> None:
        self._individuals = self.search.ask()
        self.agent.set_population(torch.from_numpy(self._individuals), self.search.generation)
        self.episodes.next_generation()

    def append(self, itr: int, samples: Samples) -> None:
        """Add up the returns of the batch, and keep it for `learn`."""
        self.samples = samples
        self.episodes.take(samples, self.search.generation)

    def learn(self, itr: int) -> Metrics:
        """End the generation if all environments of all replicas have their episodes."""
        observation, valid = buffer_to((self.samples.env.observation, self.samples.env.valid), self.agent.device)
        self.agent.networks.update_obs_rms(observation, valid)
        if self.replicas.any(not self.episodes.complete.all()):
            return OptInfo()
        fitness = self._fitness()
        best = int(fitness.argmax())
        if fitness[best] > self._best_fitness:
            self._best, self._best_fitness = self._individuals[best].copy(), float(fitness[best])
        hyper = self.hyper(itr * self._steps_per_itr)
        self.search.tell(self._individuals, fitness, hyper.mean_rate, hyper.covariance_rate)
        self.update_counter += 1
        self.agent.set_parameters(torch.from_numpy(self.search.mean if self.evaluated == "mean" else self._best))
        self._begin_generation()
        numbers = {"fitness": fitness, "bestFitness": self._best_fitness, "sigma": self.search.sigma}
        return OptInfo({name: torch.as_tensor(x, dtype=torch.float64) for name, x in numbers.items()})

    def _fitness(self) -> np.ndarray:
        """Return the mean return of every individual, over its environments in all replicas."""
        of_replicas = self.replicas.gather((self.episodes.individual, self.episodes.returns.mean(1)))
        individual, returns = (np.concatenate(x) for x in zip(*of_replicas, strict=True))
        sums: np.ndarray = np.bincount(individual, returns, self.agent.population_size)
        return sums / self._envs_of_each

    def share(self, n_replicas: int) -> Self:
        """Return itself: the batch of every replica counts whole."""
        return self

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Algorithm`."""
        n_parameters, n = self._individuals.shape[1], self.agent.population_size
        gigabytes = covariance_bytes(n_parameters, n) / 1e9
        return {
            "rows an iteration": self._steps_per_itr,
            "individuals": n,
            "episodes of an individual": self._envs_of_each * whole(self, "n_episodes"),
            "covariance": "diagonal" if self.separable else f"full, {gigabytes:.3g} GB for an update",
        }

    def state_dict(self) -> StateDict:
        """Return the search distribution, the generation at hand, its returns so far, and the fittest individual."""
        return {
            "search": self.search.state_dict(),
            "individuals": self._individuals.copy(),
            "episodes": self.episodes.state_dict(),
            "best": self._best.copy(),
            "best_fitness": self._best_fitness,
            "update_counter": self.update_counter,
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`."""
        self.search.load_state_dict(state_dict["search"])
        self._individuals = np.asarray(state_dict["individuals"]).copy()
        self.episodes.load_state_dict(state_dict["episodes"])
        self._best, self._best_fitness = np.asarray(state_dict["best"]).copy(), state_dict["best_fitness"]
        self.update_counter = state_dict["update_counter"]
        self.agent.set_population(torch.from_numpy(self._individuals), self.search.generation)

    def optim_state_dict(self) -> StateDict:
        """Return the state of the search distribution."""
        return self.search.state_dict()


def _vector(agent: PopulationPolicyAgent) -> torch.Tensor:
    """Return the model's parameters [D] as float64, on the CPU."""
    return torch.cat([x.detach().reshape(-1) for x in agent.parameters()]).cpu().double()
