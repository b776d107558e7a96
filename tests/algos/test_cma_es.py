"""CMA-ES: who is credited with which return, and where the search goes from there."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from cmaes import CMA, SepCMA
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, PopulationAgent
from rlpyt.agents.population import PopulationInfo
from rlpyt.algos import CMAES
from rlpyt.algos.search_distribution import FULL_COVARIANCE_LIMIT, SearchDistribution
from rlpyt.algos.whole_episodes import WholeEpisodes
from rlpyt.core import example_inputs
from rlpyt.runners import AsyncRl, MinibatchRl, SyncRl
from rlpyt.samplers import WaitResetCollector
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentSamples, EnvSamples, Samples
from rlpyt.utils.arrays import buffer_func, torchify_buffer
from rlpyt.utils.seeds import Role, stream_seed
from tests.agents.agent_kinds import ACTIONS, OBSERVATIONS, SMALL, random_inputs
from tests.algos.small_problems import build
from tests.runners.runner_kit import make_sampler

N = 4


class Telling(gymnasium.Env[Any, Any]):
    """An episode's return is the mean of its actions, in as many steps as it has: mixed if individuals take turns."""

    observation_space = spaces.Box(1, 1, (1,))
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.length, self.t = int(self.np_random.integers(2, 12)), 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        ends = self.t == self.length
        return np.ones(1, np.float32), float(action[0]) / self.length, ends and self.t % 2 == 0, ends, {}


def value_of(individuals: np.ndarray) -> np.ndarray:
    """Return what one individual's episodes return: tanh(weight + bias)."""
    return np.tanh(individuals.sum(-1))


class Recorded(CMAES):
    """Keeps the fitness of every generation beside its individuals."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        self.generations: list[tuple[np.ndarray, np.ndarray]] = []
        super().initialize(*args, **kwargs)

    def _fitness(self) -> np.ndarray:
        fitness = super()._fitness()
        self.generations.append((self._individuals, fitness))
        return fitness


def linear(**kwargs: Any) -> PopulationAgent:
    return PopulationAgent(model_kwargs=dict(hidden_sizes=()), population_size=N, **kwargs)


def searched(
    kind: str = "serial", Runner: Any = MinibatchRl, EnvCls: Any = Telling, B: int = 8, n_itr: int = 40, T: int = 7,
    **settings: Any,
) -> Any:  # fmt: skip
    """Return a run, trained."""
    names = ("CollectorCls", "max_decorrelation_steps", "start_method")
    options = {k: settings.pop(k) for k in names if k in settings}
    of_runner = {k: settings.pop(k) for k in ("lag", "n_replicas") if k in settings}
    sampler = make_sampler(kind, EnvCls, T=T, B=B, **options)
    n_steps = n_itr * T * B * of_runner.get("n_replicas", 1)
    runner = Runner(Recorded(**settings), linear(), sampler, n_steps=n_steps, seed=5, **of_runner)
    runner.train()
    return runner


# ---- credit ----


def batch(**rows: Any) -> Samples:
    """Return rows [T, 1] of one environment; what is left out is that of individual 1 in generation 3."""
    T = len(rows["reward"])
    constant = dict(done=[0] * T, valid=[1] * T, individual=[1] * T, generation=[3] * T, restarts=[0] * T)
    x = {name: np.array(column)[:, None] for name, column in {**constant, **rows}.items()}
    done, valid = x["done"].astype(bool), x["valid"].astype(bool)
    info = PopulationInfo(x["individual"], x["generation"], x["restarts"])
    env = EnvSamples(None, x["reward"].astype(np.float32), None, done, done & False, valid, None)
    return Samples(AgentSamples(None, None, info, None), env)


def credited(*batches: Samples) -> list[float]:
    episodes = WholeEpisodes(1, 2)
    episodes.take(batch(reward=[9], done=[1]), 3)  # the first of a run never counts
    assert not episodes.counts.any()
    for samples in batches:
        restored = WholeEpisodes(1, 2)
        restored.load_state_dict(episodes.state_dict())  # a checkpoint at every border
        episodes = restored
        episodes.take(samples, 3)
    assert (episodes.individual[episodes.counts > 0] == 1).all()
    return episodes.returns[0, : episodes.counts[0]].tolist()


REWARDS: dict[str, Any] = dict(reward=[0, 1, 2, 50, 4, 8], done=[0, 0, 1, 0, 0, 1], valid=[0, 1, 1, 0, 1, 1])
"""Two episodes; the rewards of final rows, which are not valid, are no rewards."""


def part(first: int | None, end: int | None) -> Samples:
    return batch(**{name: column[first:end] for name, column in REWARDS.items()})


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([batch(**REWARDS)], [3, 12]),
        ([part(None, 5), part(5, None)], [3, 12]),  # the same over a border
        ([batch(reward=[1, 2, 3, 4], done=[1, 1, 1, 1])], [1, 2]),
        ([batch(reward=[1, 2], done=[1, 0])], [1]),
        # an episode of two generations is nobody's
        ([batch(reward=[1, 2], generation=[2, 2]), batch(reward=[4, 8, 16], done=[1, 0, 1])], [24]),
        ([batch(reward=[1, 2], done=[0, 1], generation=[2, 2]), batch(reward=[5], done=[1])], [5]),
        # one that a lost worker cut off is marked as truncated in the batch: the row after it is of the next process
        ([batch(reward=[1, 0, 2, 4], done=[1, 0, 0, 1], valid=[1, 0, 1, 1], restarts=[0, 1, 1, 1])], [6]),
        # and between two batches by nothing but a row that is not valid
        (
            [batch(reward=[1]), batch(reward=[0, 2, 4], done=[0, 0, 1], valid=[0, 1, 1], restarts=[1, 1, 1])],
            [6],
        ),
    ],
)
def test_returns_are_of_whole_episodes_of_one_individual(batches, expected):
    assert credited(*batches) == expected


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("serial", dict(n_episodes=1)),
        ("cpu2", dict(n_episodes=2, start_method="here")),
        pytest.param("halves", dict(n_episodes=2), marks=pytest.mark.nightly),
        pytest.param("gpu2", dict(n_episodes=1, start_method="here"), marks=pytest.mark.nightly),
        pytest.param("alternating2", dict(n_episodes=2, start_method="here"), marks=pytest.mark.nightly),
        ("serial", dict(Runner=AsyncRl, lag=2)),  # batches are behind
    ],
)
def test_every_return_is_that_of_the_individual(kind, settings):
    generations = searched(kind, max_decorrelation_steps=5, **settings).algo.generations
    assert len(generations) >= 6
    for individuals, fitness in generations:
        np.testing.assert_allclose(fitness, value_of(individuals), atol=1e-5)
    if "lag" not in settings:
        expected = searched(max_decorrelation_steps=5, n_episodes=settings["n_episodes"]).algo.generations
        for one, other in zip(generations, expected, strict=True):
            np.testing.assert_allclose(one[0], other[0], rtol=1e-4)


class Rising(Telling):
    """Every episode returns one more than the one before."""

    n_before = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *_, terminated, truncated, info = super().step(action)
        ends = terminated or truncated
        self.n_before += ends
        return np.ones(1, np.float32), float(self.n_before if ends else 0), ends, False, info


def test_a_fitness_is_the_mean_of_all_episodes_that_count():
    generations = searched(EnvCls=Rising, B=N, n_episodes=2).algo.generations
    fitness = np.array([fitness for _, fitness in generations])
    assert (fitness % 1 == 0.5).all()
    assert fitness[0].min() >= 2.5  # the first episode of the run does not count


def test_environments_that_rest_lose_no_episode():
    runner = searched(T=12, B=N, n_itr=10, CollectorCls=WaitResetCollector)
    assert runner.algo.update_counter == 9  # the first episode of the run does not count


# ---- the search ----


@pytest.mark.parametrize(("separable", "Cma"), [(False, CMA), (True, SepCMA)])
def test_the_path_is_that_of_the_package(separable, Cma):
    runner = searched(separable=separable, sigma=0.3)
    algo = runner.algo
    torch.manual_seed(stream_seed(5, Role.MODEL))
    own = linear()
    own.initialize(runner.agent.env_spaces)
    mean = torch.nn.utils.parameters_to_vector(own.parameters()).detach().double().numpy()
    reference = Cma(mean=mean.copy(), sigma=0.3, seed=stream_seed(5, Role.ALGO), population_size=N)
    for individuals, fitness in algo.generations:
        x = [reference.ask() for _ in range(N)]
        np.testing.assert_array_equal(individuals, x)
        reference.tell([(x, -f) for x, f in zip(x, fitness, strict=True)])
    reference.ask()  # the package makes the matrix symmetric there
    np.testing.assert_array_equal(algo.search.mean, reference.mean)
    np.testing.assert_array_equal(vars(algo.search._cma)["_C"], reference._C)
    assert value_of(algo.search.mean) > value_of(mean)


def new_search(separable: bool = False, **kwargs: Any) -> SearchDistribution:
    return SearchDistribution(np.arange(3.0), 0.3, N, seed=1, separable=separable, **kwargs)


@pytest.mark.parametrize("separable", [False, True])
def test_weights_by_rank_and_rates(separable):
    search, plain = (new_search(separable, weight_func=f) for f in (lambda rank: rank**2, None))
    x, fitness = search.ask(), np.array([2.0, 9.0, 4.0, 3.0])
    weights = np.array([1, 16, 9, 4]) / 30  # squares of the ranks
    search.tell(x, fitness, mean_rate=0.5, covariance_rate=0.0)
    np.testing.assert_allclose(search.mean, np.arange(3) + 0.5 * weights @ (x - np.arange(3)))
    C = vars(search._cma)["_C"]
    np.testing.assert_allclose(C, np.ones(3) if separable else np.eye(3))  # it has learned nothing
    np.testing.assert_array_equal(plain.ask(), x)
    # the step size grows with the length of the path, which weights make longer or shorter
    other = new_search(separable, weight_func=lambda rank: rank**2)
    other.ask()
    other.tell(x, fitness)
    path = np.linalg.norm(vars(other._cma)["_p_sigma"])
    n_effective, c = 1 / (weights**2).sum(), vars(other._cma)["_c_sigma"]
    y = weights @ (x - np.arange(3)) / 0.3
    assert path == pytest.approx(np.sqrt(c * (2 - c) * n_effective) * np.linalg.norm(y))
    assert not np.allclose(vars(other._cma)["_C"], C)


class Gives(torch.nn.Module):
    """A policy whose forward gives the action itself, of the observation alone."""

    def __init__(self, action_space: Any) -> None:
        super().__init__()
        self.is_box = isinstance(action_space, spaces.Box)
        self.net = torch.nn.Linear(3, *action_space.shape)

    def forward(self, x: Any) -> Any:
        y = self.net(x)
        return 3 * y.tanh() if self.is_box else (y > 0).long()


@pytest.mark.parametrize(
    "space",
    [spaces.MultiDiscrete([2, 2, 4]), spaces.Box(np.array([-2, -2], np.float32), np.array([1, 4], np.float32))],
)
def test_a_model_may_return_the_action(space):
    agent = PopulationAgent(ModelCls=Gives, population_size=N, box_units="environment")
    agent.initialize(EnvSpaces(spaces.Box(-1, 1, (3,)), space))
    D = sum(parameter.numel() for parameter in agent.parameters())
    agent.set_population(torch.randn(N, D, generator=torch.Generator().manual_seed(0)), 0)
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    actor = agent.actor(range(8), 8, seed=0)
    actor.begin(0)
    action = actor.step(x, *example_inputs(agent.env_spaces, 8)[1:]).action
    for b in range(8):
        agent.set_parameters(agent.population.individuals[b % N].clone())
        expected = agent.model(x[b : b + 1])[0]
        if isinstance(space, spaces.Box):
            expected = expected.clamp(torch.tensor(space.low), torch.tensor(space.high))
        torch.testing.assert_close(action[b], expected)
    assert len(action.unique(dim=0)) > 1


@pytest.mark.parametrize(("name", "value"), [("_popsize", 10**12), ("_n_dim", 7)])
def test_a_state_keeps_the_sizes_of_the_search(name, value):
    search = new_search()
    state = search.state_dict()
    state["attributes"][name] = value
    with pytest.raises(ValueError, match=name):
        search.load_state_dict(state)
    with pytest.raises(ValueError, match="same setting of separable"):
        search.load_state_dict(new_search(separable=True).state_dict())


def test_rates_of_a_state_are_not_those_of_the_next_generation():
    first, second = new_search(), new_search()
    first.ask()
    first.tell(np.eye(4)[:, :3], np.arange(4.0), mean_rate=0.5, covariance_rate=0.1)
    second.load_state_dict(first.state_dict())
    for search in (first, second):
        search.tell(search.ask(), np.arange(4.0))
    np.testing.assert_array_equal(first.mean, second.mean)
    assert vars(second._cma)["_c1"] == vars(new_search()._cma)["_c1"]


def test_normalisers_take_in_the_observations():
    agent = PopulationAgent(model_kwargs=dict(hidden_sizes=4, normalize_observation=True), population_size=N)
    MinibatchRl(CMAES(), agent, make_sampler("serial", Telling, T=7, B=N), 3 * 7 * N, seed=5).train()
    (mean,) = [x for name, x in agent.model.named_buffers() if name.endswith("mean")]
    assert mean.item() == pytest.approx(1.0, abs=0.1)  # observations are 1


@pytest.mark.parametrize("evaluated", ["mean", "best"])
def test_what_is_evaluated(evaluated):
    runner = searched(evaluated=evaluated)
    every = np.concatenate([individuals for individuals, _ in runner.algo.generations])
    fitness = np.concatenate([fitness for _, fitness in runner.algo.generations])
    expected = runner.algo.search.mean if evaluated == "mean" else every[fitness.argmax()]
    parameters = torch.nn.utils.parameters_to_vector(runner.agent.parameters()).detach().numpy()
    np.testing.assert_array_equal(parameters, expected.astype(np.float32))
    actor = runner.agent.actor([0], 1, seed=0, evaluation=True)
    actor.begin(0)
    action = actor.step(torch.ones(1, 1), torch.zeros(1, 1), torch.zeros(1)).action
    assert action.item() == pytest.approx(value_of(expected), abs=1e-6)


@pytest.mark.nightly
def test_two_replicas_search_together():
    alone = searched(B=8, n_itr=20).algo
    together = searched(B=4, n_itr=20, Runner=SyncRl, n_replicas=2).algo
    assert together.update_counter == alone.update_counter
    np.testing.assert_array_equal(together.search.mean, alone.search.mean)


@pytest.mark.parametrize(("observation", "action"), [("vector", "discrete"), ("image", "table"), ("nested", "box")])
def test_every_environment_acts_with_its_individual(observation, action):
    agent = PopulationAgent(model_kwargs=SMALL, population_size=N)
    env_spaces = EnvSpaces(OBSERVATIONS[observation], ACTIONS[action])
    agent.initialize(env_spaces)
    size = sum(parameter.numel() for parameter in agent.parameters())
    individuals = torch.randn(N, size, generator=torch.Generator().manual_seed(0))
    agent.set_population(individuals, 7)
    inputs = tuple(torchify_buffer(random_inputs(env_spaces, 6)))
    ranks = [0, 2, 3, 4, 5, 7]  # those of one worker
    actor = agent.actor(ranks, 8, seed=0)
    actor.begin(0)
    step = actor.step(*inputs)
    assert step.agent_info.individual.tolist() == [0, 2, 3, 0, 1, 3]
    assert set(step.agent_info.generation.tolist()) == {7}
    for row, rank in enumerate(ranks):
        agent.set_parameters(individuals[rank % N])
        alone = agent.actor([0], 1, seed=0, evaluation=True)
        alone.begin(1)
        expected = alone.step(*buffer_func(inputs, lambda x, row=row: x[row : row + 1]))
        torch.testing.assert_close(step.action[row], expected.action[0], rtol=1e-4, atol=1e-5)
        assert expected.agent_info.individual.tolist() == [-1]


# ---- what is refused ----


@pytest.mark.parametrize(
    ("make", "error", "expected"),
    [
        (lambda: CMAES(sigma=0.0), ValueError, "sigma is 0.0; expected a number above 0"),
        (lambda: CMAES(n_episodes=0), ValueError, "n_episodes is 0; expected a whole number from 1"),
        (lambda: CMAES(evaluated="last"), ValueError, "evaluated is 'last'; expected \"mean\" or \"best\""),
        (lambda: CMAES(mean_rate=0), ValueError, r"mean_rate is 0; expected a number in \(0, 1\]"),
        (lambda: CMAES(covariance_rate=1.5), ValueError, r"covariance_rate is 1.5; expected a number in \[0, 1\]"),
        (lambda: build(CMAES, weight_func=2), TypeError, "weight_func is 2; expected a function of the rank"),
        (lambda: new_search(weight_func=lambda rank: 4 - rank), ValueError, r"of which 4 is the fittest"),
        (lambda: new_search(weight_func=lambda _: np.nan), ValueError, r"weight_func gave \[.*\] for the ranks 1 to 4"),
        (lambda: PopulationAgent(box_units="torque"), ValueError, 'box_units is .torque.; expected "bounds" or'),
        (lambda: PopulationAgent(population_size=1), ValueError, "population_size is 1; expected a whole number"),
        (lambda: PopulationAgent(recurrent=True), ValueError, "recurrent is True; expected False"),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(make, error, expected):
    with pytest.raises(error, match=expected):
        make()


@pytest.mark.parametrize(
    ("agent", "B", "error", "expected"),
    [
        (linear(), 6, ValueError, "6 environments .* population_size is 4; expected a multiple"),
        (CategoricalPgAgent(), 4, TypeError, "CategoricalPgAgent, has no population"),
        (PopulationAgent(model_kwargs=dict(hidden_sizes=(60, 60)), population_size=N), 4, ValueError,
         f"3,841 parameters, .* 1.9 GB; expected at most {FULL_COVARIANCE_LIMIT:,}. Set separable=True"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(agent, B, error, expected):
    EnvCls, kwargs = (gymnasium.make, dict(id="CartPole-v1")) if B == 4 and error is TypeError else (Telling, {})
    sampler = make_sampler("serial", EnvCls, T=3, B=B, env_kwargs=kwargs)
    with pytest.raises(error, match=expected):
        MinibatchRl(CMAES(), agent, sampler, n_steps=100, seed=1).train()


def test_lost_workers_whose_episodes_would_count_are_refused():
    sampler = make_sampler("gpu2", Telling, T=3, B=4, restart_workers=1)
    with pytest.raises(ValueError, match=r"restart_workers is 1, and the agent has a population; expected 0"):
        MinibatchRl(CMAES(), linear(), sampler, n_steps=12, seed=5).train()
    assert not sampler.running


def test_rates_follow_their_schedules_in_a_run():
    algo = searched(n_itr=10, mean_rate="lin_1_0.5", weight_func=lambda rank: rank**2).algo
    # that of the iteration that ended the last generation
    assert vars(algo.search._cma)["_cm"] in [algo.hyper(itr * 7 * 8).mean_rate for itr in range(4, 10)]
    assert not np.array_equal(algo.search.mean, searched(n_itr=10).algo.search.mean)
