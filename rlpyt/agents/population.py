"""Agent of a population: every training environment acts with the parameters of one of several individuals."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import gymnasium
import torch
from torch import nn
from torch.func import functional_call, vmap

from rlpyt.agents.actor import ModelActor
from rlpyt.agents.base import BaseAgent
from rlpyt.agents.networks import Held, Network
from rlpyt.agents.own_models import outputs_of, refuse, shape_of, the_model
from rlpyt.agents.rules import ChoiceHead, Exploration, Head
from rlpyt.core import PopulationPolicyAgent, example_inputs
from rlpyt.distributions import ActionUnits, Categorical, MultiCategorical, categorical_of
from rlpyt.models import PolicyModel, encoded_action_size
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.settings import whole
from rlpyt.spaces import EnvSpaces, Space
from rlpyt.types import AgentStep, StateDict
from rlpyt.utils.arguments import named_arguments
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
    """Parameters of all individuals, [D] each and first the same, which reach the workers as other weights do."""

    individuals: torch.Tensor
    generation: torch.Tensor

    def __init__(self, parameters: torch.Tensor, size: int) -> None:
        super().__init__()
        self.register_buffer("individuals", parameters.detach().float().repeat(size, 1))
        self.register_buffer("generation", torch.zeros((), dtype=torch.int64))


class ByIndividuals(Exploration):
    """Exploration by the parameters of an individual in every environment; in evaluation the model's own act."""

    def begin(self, actor: ModelActor) -> None:
        """Take who acts in the batch, and by which parameters."""
        population = self.agent.population
        who = torch.tensor(actor.env_ranks) % self.agent.population_size
        numbers = (torch.full_like(who, -1),) * 3
        if not actor.evaluation:
            generation = torch.full_like(who, int(population.generation))
            numbers = who, generation, torch.full_like(who, actor.restarts)
        stacked = self._views(population.individuals[who.to(population.individuals.device)])
        actor.exploration = PopulationInfo(*numbers), stacked

    def model(self, actor: ModelActor) -> Buffer:
        """Return the model, or in training one that has other parameters for every row."""
        return self.agent.model if actor.evaluation else partial(self._run_each, actor.exploration[1])

    @torch.no_grad()
    def set_population(self, individuals: torch.Tensor, generation: int) -> None:
        """Set the individuals; see `rlpyt.core.PopulationPolicyAgent`."""
        self.agent.population.individuals.copy_(individuals)
        self.agent.population.generation.fill_(generation)

    @torch.no_grad()
    def set_parameters(self, parameters: torch.Tensor) -> None:
        """Set the model's own parameters; see `rlpyt.core.PopulationPolicyAgent`."""
        for own, new in zip(self.agent.model.parameters(), self._views(parameters).values(), strict=True):
            own.copy_(new)

    @torch.no_grad()
    def is_vectorisable(self, inputs: tuple[Buffer, Buffer, Buffer]) -> bool:
        """Return whether torch can vectorise the model over individuals, tried on two rows, as the model takes them."""
        stacked = self._views(self.agent.population.individuals[:2])
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="There is a performance drop")
            try:
                vmap(self._output_of_one)(stacked, inputs)
            except (RuntimeError, ValueError, UserWarning):  # a layer that asks for its memory layout, or for a value
                return False
        return True

    def _run_each(self, stacked: StateDict, *rows: Buffer) -> torch.Tensor:
        """Return the outputs of the model for rows [B, ...], each with its own parameters, [B, ...] by name."""
        if self.agent.is_vectorised:
            return vmap(self._output_of_one)(stacked, rows)
        outputs = []
        for b in range(len(next(iter(stacked.values())))):
            one = {name: x[b] for name, x in stacked.items()}
            outputs.append(self._output_of_one(one, buffer_func(rows, lambda x, b=b: x[b])))
        return torch.stack(outputs)

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the parts [..., *shape] of [..., D] by the name of the model's parameter."""
        named = dict(self.agent.model.named_parameters())
        parts = flat.split([parameter.numel() for parameter in named.values()], -1)
        return {name: part.unflatten(-1, p.shape or (1,)).reshape(*flat.shape[:-1], *p.shape)
                for (name, p), part in zip(named.items(), parts, strict=True)}  # fmt: skip

    def _output_of_one(self, parameters: StateDict, row: Buffer) -> torch.Tensor:
        """Return the output of the model for one row, with the parameters of an individual."""
        state = {**parameters, **dict(self.agent.model.named_buffers())}
        return functional_call(self.agent.model, state, buffer_func(row, lambda x: x[None]))[0]


class PopulationActor(ModelActor):
    """Actor that records who acted."""

    def step(self, observation: Buffer, prev_action: Buffer, prev_reward: Buffer) -> AgentStep:
        """Select the best actions [B] of the individuals."""
        return super().step(observation, prev_action, prev_reward)._replace(agent_info=self.exploration[0])


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

    DefaultModelCls: ClassVar[Callable[..., nn.Module] | None] = PolicyModel
    HeadCls: ClassVar[type[Head]] = ChoiceHead
    ExplorationCls: ClassVar[type[Exploration]] = ByIndividuals
    ActorCls: ClassVar[type[ModelActor]] = PopulationActor

    exploration: ByIndividuals = field(init=False, repr=False)
    population = Network[Population]("acting", "population")
    set_population = Held[Callable[[torch.Tensor, int], None]]("exploration")
    set_parameters = Held[Callable[[torch.Tensor], None]]("exploration")

    def __post_init__(self) -> None:
        """Validate the settings."""
        super().__post_init__()
        whole(self, "population_size", 2)
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

    @named_arguments
    def initialize(self, env_spaces: EnvSpaces) -> None:
        """Build the model, check what it gives, and let all individuals begin with its parameters."""
        super().initialize(env_spaces)
        output, expected = outputs_of(self), (3, encoded_action_size(self.env_spaces.action))
        if shape_of(output) != expected and not _are_choices(output, self.env_spaces.action):
            refuse(
                the_model(self),
                output,
                f"a tensor {list(expected)}: scores of actions, or numbers for the bounds of a Box; or the discrete "
                "actions themselves, as integers from 0",
            )
        # Not `parameters_to_vector`, as a parameter that is a slice has no view of one dimension.
        parameters = torch.cat([x.detach().reshape(-1) for x in self.model.parameters()])
        self.population = Population(parameters, whole(self, "population_size", 2))
        observation, prev_action, prev_reward = example_inputs(self.env_spaces, 2)
        rows = observation, self.networks.encode(prev_action), prev_reward
        self.is_vectorised = self.exploration.is_vectorisable(rows)

    def agent_info(self, output: torch.Tensor) -> NamedArrayTuple:
        """Return the record of an action of nobody, by the model's own parameters."""
        nobody = torch.full(output.shape[:1], -1)
        return PopulationInfo(nobody, nobody, nobody)


def _are_choices(output: Buffer, space: Space) -> bool:
    """Return whether an output for 3 rows is the discrete actions themselves, and no scores of them."""
    discrete = not isinstance(space, gymnasium.spaces.Box)
    return discrete and shape_of(output) == (3, *(space.shape or ())) and not output.is_floating_point()
