"""Agent of a population: every training environment acts with the parameters of one of several individuals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gymnasium
import torch
from torch import nn
from torch.func import functional_call, vmap

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.base import BaseAgent
from rlpyt.agents.own_models import INPUTS, check_call, described, shape_of
from rlpyt.agents.weights import Network
from rlpyt.core import PopulationPolicyAgent
from rlpyt.distributions import ActionUnits, Categorical, DistInfoLogits, MultiCategorical, categorical_of
from rlpyt.models import PolicyModel, encoded_action_size
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.spaces import EnvSpaces
from rlpyt.types import AgentStep, StateDict
from rlpyt.utils.arrays import buffer_func


class PopulationInfo(NamedArrayTuple):
    """Record beside every action: who acted. All three are -1 in evaluation, which acts with the model's parameters."""

    individual: Buffer
    """int64, number of the individual."""
    generation: Buffer
    """int64, generation of that individual."""
    restarts: Buffer
    """int64, restarts of the process that acted, of which an earlier process may have lost the episode."""


class Population(nn.Module):
    """Parameters of all individuals, which reach the workers as other weights do.

    Args:
        parameters: [D], of every individual until others are set.
        size: individuals.
    """

    individuals: torch.Tensor
    generation: torch.Tensor

    def __init__(self, parameters: torch.Tensor, size: int) -> None:
        super().__init__()
        self.register_buffer("individuals", parameters.detach().float().repeat(size, 1))
        self.register_buffer("generation", torch.zeros((), dtype=torch.int64))


class PopulationActor(ModelActor):
    """Actor whose environments act with the parameters of different individuals; in evaluation with the model's own."""

    agent: PopulationAgent

    def __init__(
        self,
        agent: PopulationAgent,
        env_ranks: Sequence[int],
        global_B: int,
        seed: int,
        *,
        evaluation: bool = False,
        restarts: int = 0,
        by_hand: bool = False,
    ) -> None:
        super().__init__(agent, env_ranks, global_B, seed, evaluation=evaluation, restarts=restarts, by_hand=by_hand)
        self._individual = torch.tensor(self.env_ranks) % agent.population_size
        self._nobody = torch.full_like(self._individual, -1)
        self._restarts = torch.full_like(self._individual, restarts)

    @torch.no_grad()
    def begin(self, itr: int, deterministic: bool = False) -> None:
        """Take the parameters that the environments act with in this batch."""
        super().begin(itr, deterministic)
        if not self.evaluation:
            self._stacked = self.agent.stacked_parameters(self._individual)
            self._generation = torch.full_like(self._individual, int(self.agent.population.generation))

    @torch.no_grad()
    def step(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> AgentStep:
        """Select the best actions [B] of the individuals."""
        agent, inputs = self.agent, (observation, prev_action, prev_reward)
        if self.evaluation:
            output, _ = agent.forward_to_act(inputs, None)
            info = PopulationInfo(self._nobody, self._nobody, self._nobody)
        else:
            output = agent.forward_individuals(self._stacked, inputs)
            info = PopulationInfo(self._individual, self._generation, self._restarts)
        return AgentStep(agent.best_action(output), info)


OfOne = Callable[[StateDict, Buffer], torch.Tensor]
"""Function of the parameters of one individual and of one row."""


def _vectorised(of_one: OfOne, stacked: StateDict, rows: Buffer) -> torch.Tensor:
    return vmap(of_one)(stacked, rows)


def _one_by_one(of_one: OfOne, stacked: StateDict, rows: Buffer) -> torch.Tensor:
    n_rows = len(next(iter(stacked.values())))
    outputs = (of_one({name: x[b] for name, x in stacked.items()}, buffer_func(rows, lambda x, b=b: x[b]))
               for b in range(n_rows))  # fmt: skip
    return torch.stack(list(outputs))


@dataclass(kw_only=True, eq=False)
class PopulationAgent(BaseAgent, PopulationPolicyAgent):
    """Deterministic policy of which every training environment tries other parameters, as `CMAES` asks of an agent.

    Environment number b of the run acts with individual b % population_size. One call of the model, vectorised over the
    individuals (`torch.func`), serves all environments that are stepped together; a model with layers that torch cannot
    vectorise, such as those over images, is called once for each. Evaluation, `step` after `eval_mode` and exported
    policies act with the model's own parameters, which the algorithm sets.

    A model of one's own returns scores of discrete actions, or numbers for a Box, [B, A] (`box_units`). It may also
    return the discrete actions themselves, integers from 0: [B], or [B, n] of several choices. Its normalisers are
    those of all individuals. It may not be recurrent.
    """

    population_size: int = 16
    """Individuals, at least 2. The environments of a batch (batch_B, over all replicas) are a multiple of it."""

    box_units: str = "bounds"
    """Units of what a model returns for a Box: "bounds", in which the bounds are -1 and 1, or "environment", the action
    itself. What lies beyond the bounds is clipped to them."""

    population = Network[Population]("acting", "population")

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        self.whole("population_size", 2)
        if self.recurrent:
            raise ValueError(
                f"{type(self).__name__}: recurrent is {self.recurrent!r}; expected False: its model is feed-forward. "
                "Let the observation have what must be remembered, such as a stack of frames."
            )
        if self.box_units not in ("bounds", "environment"):
            raise ValueError(
                f'{type(self).__name__}: box_units is {self.box_units!r}; expected "bounds" or "environment". Give one '
                "of them."
            )

    def make_distribution(self, env_spaces: EnvSpaces) -> Categorical | MultiCategorical | ActionUnits:
        """Return the choices of a discrete space, or the units of a Box; refuse a space without finite bounds."""
        return categorical_of(env_spaces.action) or ActionUnits.from_space(env_spaces.action)

    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the default model, one small hidden layer: the search is the harder the more parameters there are."""
        return PolicyModel(env_spaces.observation, env_spaces.action, **self.default_model_kwargs())

    def make_networks(self) -> None:
        """Build the model, check what it gives, and let all individuals begin with its parameters."""
        super().make_networks()
        check_call(self._the_model, self.model, INPUTS)
        output, expected = self._outputs(), (3, encoded_action_size(self.env_spaces.action))
        if shape_of(output) != expected and not self._are_choices(output):
            raise ValueError(
                f"{self._the_model} gave {described(output)} for 3 rows; expected a tensor {list(expected)}: scores of "
                "actions, or numbers for the bounds of a Box; or the discrete actions themselves, as integers from 0. "
                "Let its forward return it."
            )
        # Not `parameters_to_vector`, as a parameter that is a slice has no view of one dimension.
        parameters = torch.cat([x.detach().reshape(-1) for x in self.parameters()])
        self.acting["population"] = Population(parameters, self.whole("population_size", 2))
        self._for_each = _vectorised if self._is_vectorisable() else _one_by_one

    def _are_choices(self, output: Buffer) -> bool:
        """Return whether an output for 3 rows is the discrete actions themselves, and no scores of them."""
        space = self.env_spaces.action
        discrete = not isinstance(space, gymnasium.spaces.Box)
        return discrete and shape_of(output) == (3, *(space.shape or ())) and not output.is_floating_point()

    @torch.no_grad()
    def _is_vectorisable(self) -> bool:
        stacked = self.stacked_parameters(torch.zeros(2, dtype=torch.int64))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="There is a performance drop")
            try:
                _vectorised(self._output_of_one, stacked, self._encoded(self.example_inputs(2)))
            except (RuntimeError, ValueError, UserWarning):  # a layer that asks for its memory layout, or for a value
                return False
        return True

    # ---- the search ----

    @torch.no_grad()
    def set_population(self, individuals: torch.Tensor, generation: int) -> None:
        """Set the individuals; see `rlpyt.core.PopulationPolicyAgent`."""
        self.population.individuals.copy_(individuals)
        self.population.generation.fill_(generation)

    @torch.no_grad()
    def set_parameters(self, parameters: torch.Tensor) -> None:
        """Set the model's own parameters; see `rlpyt.core.PopulationPolicyAgent`."""
        for own, new in zip(self.parameters(), self._views(parameters).values(), strict=True):
            own.copy_(new)

    def stacked_parameters(self, individual: torch.Tensor) -> StateDict:
        """Return the parameters of individuals [B] by name, [B, ...] each."""
        rows = self.population.individuals
        return self._views(rows[individual.to(rows.device)])

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the parts [..., *shape] of [..., D] by the name of the model's parameter."""
        named = dict(self.model.named_parameters())
        parts = flat.split([parameter.numel() for parameter in named.values()], -1)
        return {name: part.unflatten(-1, p.shape or (1,)).reshape(*flat.shape[:-1], *p.shape)
                for (name, p), part in zip(named.items(), parts, strict=True)}  # fmt: skip

    # ---- acting ----

    @property
    def _actor_class(self) -> type[ModelActor]:
        return PopulationActor

    def forward_individuals(self, stacked: StateDict, inputs: tuple[Buffer, Buffer, Buffer]) -> Buffer:
        """Return what the model gives for rows [B, ...], each with parameters of its own, on the CPU."""
        with self.autocast():
            return self.from_model(self._for_each(self._output_of_one, stacked, self._encoded(self.to_model(inputs))))

    def _encoded(self, inputs: tuple[Buffer, Buffer, Buffer]) -> Buffer:
        observation, prev_action, prev_reward = inputs
        return observation, self.encode(prev_action), prev_reward

    def _output_of_one(self, parameters: StateDict, row: Buffer) -> torch.Tensor:
        """Return what the model gives for one row, by the parameters of an individual."""
        state = {**parameters, **dict(self.model.named_buffers())}
        output: torch.Tensor = functional_call(self.model, state, buffer_func(row, lambda x: x[None]))
        return output[0]

    def act(self, output: torch.Tensor, actor: ModelActor) -> torch.Tensor:
        """Return the best actions."""
        return self.best_action(output)

    def best_action(self, output: torch.Tensor) -> torch.Tensor:
        """Return the actions [B] with the highest scores, or those that the model gives."""
        distribution = self.distribution
        if isinstance(self.env_spaces.action, gymnasium.spaces.Box):
            x = output
            if self.box_units == "environment":
                x = distribution.encode(output.reshape(-1, *distribution.shape))
            action: torch.Tensor = distribution.decode(x.clamp(-1.0, 1.0))
            return action
        if not output.is_floating_point():
            return output.long()
        mode: torch.Tensor = distribution.mode(DistInfoLogits(output))
        return mode

    def agent_info(self, output: torch.Tensor) -> NamedArrayTuple:
        """Return the record of an action of nobody, by the model's own parameters."""
        nobody = torch.full(output.shape[:1], -1)
        return PopulationInfo(nobody, nobody, nobody)
