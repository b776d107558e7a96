"""What all agents share: building the model for the spaces, modes, devices, state, and the way to other processes."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import torch
from torch import nn

from rlpyt.agents.by_hand import NOBODY
from rlpyt.agents.env_group import EnvGroup
from rlpyt.agents.given import as_env_spaces, check_state
from rlpyt.agents.own_models import build_model, random_observations
from rlpyt.agents.shared_weights import SharedWeights
from rlpyt.core import Agent
from rlpyt.models import Model
from rlpyt.old_names import serve_old_names
from rlpyt.spaces import EnvSpaces, null_action, null_value
from rlpyt.utils.arguments import NamedArguments
from rlpyt.utils.arrays import buffer_func, buffer_to, torchify_buffer
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.seeds import Role, torch_generator

serve_old_names(__name__)


class BaseAgent(Agent, metaclass=NamedArguments):
    """A model that is called with `(observation, prev_action, prev_reward[, rnn_state])`, and how it acts.

    A subclass says which distribution goes with an action space and what `step` records. The previous action reaches
    the model encoded by the distribution (one-hot where actions are discrete).

    Args:
        ModelCls: called with `model_kwargs`, and with those of `make_env_to_model_kwargs(env_spaces)` that it takes;
            None is the agent's default, which serves any pair of spaces.
        model_kwargs: further arguments of the model.
        initial_model_state_dict: weights to start from, as `agent.state_dict()["model"]` returned them; or all that
            `agent.state_dict()` returned, of which only weights are taken.
    """

    recurrent: bool = False
    distribution: Any
    model: nn.Module
    _group: EnvGroup = NOBODY

    def __init__(
        self,
        ModelCls: Callable[..., nn.Module] | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        initial_model_state_dict: Mapping[str, Any] | None = None,
    ) -> None:
        self.ModelCls = ModelCls
        self.model_kwargs = dict(model_kwargs or {})
        self.initial_model_state_dict = initial_model_state_dict
        self.device = torch.device("cpu")
        self.settings = ComputeSettings()
        self._has_weights_of_its_own = False
        self.deterministic = False  # True in an evaluation that asks for it: `step` takes the best action
        self._mode: str | None = None
        self._groups: dict[bool, EnvGroup] = {}
        self._shared: SharedWeights | None = None

    # ---- building ----

    @abstractmethod
    def make_distribution(self, env_spaces: EnvSpaces) -> Any:
        """Return the distribution over the action space; refuse a space that the agent cannot act in."""

    @abstractmethod
    def make_default_model(self, env_spaces: EnvSpaces) -> nn.Module:
        """Return the model used where no ModelCls was given."""

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the arguments that tell a ModelCls the sizes of the spaces."""
        return {"observation_space": env_spaces.observation, "action_space": env_spaces.action}

    def make_model(self) -> nn.Module:
        """Return a new model for the spaces (a target network is another one)."""
        if self.ModelCls is None:
            return self.make_default_model(self.env_spaces)
        offered = self.make_env_to_model_kwargs(self.env_spaces)
        return build_model(f"{type(self).__name__}: ModelCls", self.ModelCls, offered, self.model_kwargs)

    def initialize(
        self,
        env_spaces: EnvSpaces,
        share_memory: bool = False,
        global_B: int = 1,
        env_ranks: Sequence[int] | None = None,
    ) -> None:
        """Build model and distribution for the spaces; see `rlpyt.core.Agent.initialize`.

        Raises:
            RuntimeError: if a run has trained the agent, or its state was loaded, which would be lost.
        """
        if self._has_weights_of_its_own:
            raise RuntimeError(
                f"{type(self).__name__}: initialize was called again, after a run has trained the agent or its state "
                "was loaded, and would replace its model; expected an agent for every run. To go on from these weights "
                "make a new agent with initial_model_state_dict=agent.model.state_dict()."
            )
        self.env_spaces = env_spaces = as_env_spaces(type(self).__name__, env_spaces)
        # A run that stopped before it learned may have placed the networks that are now replaced.
        self.device, self.settings = torch.device("cpu"), ComputeSettings()
        self.distribution = self.make_distribution(env_spaces)
        if self.distribution is None:
            raise TypeError(
                f"{type(self).__name__}.make_distribution returned None; expected a distribution. Return one."
            )
        self._mode, self._group, self._groups = None, NOBODY, {}
        self.make_networks()

    def make_networks(self) -> None:
        """Build the model, with the weights to start from; a subclass adds its own networks and checks."""
        self.model = self.make_model()
        if "model" in self._initial_state:
            self.model.load_state_dict(self._initial_state["model"])

    @property
    def _initial_state(self) -> Mapping[str, Any]:
        """What was given to start from, by the keys of the agent's own state."""
        given = self.initial_model_state_dict
        if given is None:
            return {}
        check_state(type(self).__name__, given)
        return given if isinstance(given.get("model"), Mapping) else {"model": given}

    def collector_initialize(
        self, global_B: int, env_ranks: Sequence[int], seed: int, evaluation: bool = False, restarts: int = 0
    ) -> EnvGroup:
        """Take charge of environments; see `rlpyt.core.Agent.collector_initialize`."""
        self._check_initialized()
        generator = torch_generator(seed, Role.EVAL_ACTIONS if evaluation else Role.ACTIONS, restarts)
        self._seed = seed
        rnn_example = self._next_rnn_state_example() if self.recurrent else None
        self._group = EnvGroup(global_B, env_ranks, generator, rnn_example)
        self._groups = {**self._groups, evaluation: self._group}  # a new one: a shallow copy may share the old
        return self._group

    def take_by_hand(self, evaluation: bool, n_rows: int = 1) -> EnvGroup:
        """Take charge of environments that no sampler steps, with noise that follows torch's global seed."""
        group = self.collector_initialize(n_rows, range(n_rows), int(torch.randint(2**31 - 1, ())), evaluation)
        group.by_hand = True
        return group

    def charge_rows(self, n_rows: int) -> None:
        """Be in charge of as many environments as the rows that are acted in by hand.

        Raises:
            RuntimeError: if the agent was not told how to act.
        """
        if not self._group.env_ranks:
            raise RuntimeError(
                f"{type(self).__name__}: was to act, but it is in charge of no environments; expected "
                "agent.eval_mode(itr) or agent.sample_mode(itr) first. Call one of them."
            )
        if n_rows != len(self._group.env_ranks):
            self._take(self.take_by_hand(self._groups.get(True) is self._group, n_rows))

    def _is_by_hand(self, evaluation: bool) -> bool:
        """Return whether no sampler has told of the environments."""
        return self._groups.get(evaluation, NOBODY).by_hand

    def _check_initialized(self) -> None:
        if not hasattr(self, "model"):
            raise RuntimeError(
                f"{type(self).__name__}: is not initialised, and has no model yet; expected "
                "agent.initialize(env_spaces) first, with the spaces of make_env(EnvCls, env_kwargs)."
            )

    def example_inputs(self, n_rows: int = 1) -> tuple[Any, Any, Any]:
        """Return null observations, previous actions (not encoded) and rewards, [n_rows] leading."""
        row = (null_value(self.env_spaces.observation), null_action(self.env_spaces.action), 0.0)
        observation, action, reward = buffer_func(torchify_buffer(row), lambda x: x.expand(n_rows, *x.shape))
        return observation, action, reward.float()

    @torch.no_grad()
    def _outputs(self, observation: Any = None, n_rows: int = 3) -> Any:
        """Return what the model gives for observations, null ones by default, with no state before."""
        null, prev_action, prev_reward = self.example_inputs(n_rows)
        rnn = [None] if self.recurrent else []
        self.model.eval()
        return self.model(null if observation is None else observation, self.encode(prev_action), prev_reward, *rnn)

    def _random_outputs(self, n_rows: int = 8) -> Any:
        """Return the same for different observations; None where the model fails on what may never occur."""
        try:
            with torch.random.fork_rng(devices=[]):
                return self._outputs(random_observations(self.env_spaces, n_rows), n_rows)
        except Exception:
            return None

    @property
    def _the_model(self) -> str:
        return f"{type(self).__name__}: the model, a {type(self.model).__name__},"

    @torch.no_grad()
    def _next_rnn_state_example(self) -> Any:
        observation, prev_action, prev_reward = self.to_model(self.example_inputs())
        return self.model(observation, self.encode(prev_action), prev_reward, None)[-1]

    # ---- acting ----

    def encode(self, prev_action: Any) -> Any:
        """Return previous actions as the model is given them: one-hot where they are discrete."""
        if isinstance(self.model, Model) and not self.model.uses_prev_action:
            return prev_action
        return self.distribution.encode(prev_action)

    def to_model(self, inputs: Any) -> Any:
        """Return tensors on the model's device."""
        return inputs if self.device.type == "cpu" else buffer_to(inputs, self.device)

    def from_model(self, outputs: Any) -> Any:
        """Return tensors on the CPU, where environments are."""
        return outputs if self.device.type == "cpu" else buffer_to(outputs, "cpu")

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of the run's precision; held around a whole batch it saves the casts of the weights."""
        return self.settings.autocast(self.device)

    def reset_one(self, idx: int) -> None:
        """Forget the episode of one environment in charge."""
        self._group.reset_one(idx)

    def reset(self) -> None:
        """Forget the episodes of all environments in charge."""
        self._group.reset()

    @property
    def rnn_state(self) -> Any:
        """Recurrent state of the environments in charge, [N, B, H] leaves, before the next step; it may be set."""
        return self._group.rnn_state

    @rnn_state.setter
    def rnn_state(self, state: Any) -> None:
        self._group.rnn_state = state

    def draw_noise(self) -> torch.Tensor:
        """Return what the distribution's `sample` needs of chance, [B, ...]; for a `step` of one's own, once a step."""
        return self._group.draw(self.distribution.draw_noise)

    # ---- modes ----

    @property
    def mode(self) -> str | None:
        """Which of the three methods below was called last: "train", "sample" or "eval"; None before."""
        return self._mode

    def train_mode(self, itr: int) -> None:
        """Make ready for updates."""
        self._mode = "train"
        self._has_weights_of_its_own = True
        self.model.train()

    def sample_mode(self, itr: int) -> None:
        """Make ready to act in the training environments, where they stand; without a sampler in one, by hand."""
        self._check_initialized()
        self._mode = "sample"
        self.model.eval()
        self.deterministic = False
        self._take(self._groups[False] if False in self._groups else self.take_by_hand(evaluation=False))

    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        """Make ready to act in the evaluation environments, from fresh episodes; see `rlpyt.core.Agent.eval_mode`.

        Without a sampler it is one environment, by hand.
        """
        self._check_initialized()
        self._mode = "eval"
        self.model.eval()
        self.deterministic = deterministic
        if self._is_by_hand(evaluation=True):
            self._take(self.take_by_hand(evaluation=True))
        else:
            self._take(self._groups[True])
            # A stream for every evaluation: how many steps an earlier one took, in this worker, decides nothing.
            self._group.generator = torch_generator(self._seed, Role.EVAL_ACTIONS, itr)
        self.reset()

    def select(self, group: EnvGroup) -> None:
        """Act in these environments from now on; see `rlpyt.core.Agent.select`."""
        if group is not self._group:
            self._take(group)

    def _take(self, group: EnvGroup) -> None:
        """Take the streams and states of a group for what follows; a subclass adds its own exploration."""
        group.to_device(self.device)
        self._group = group

    # ---- devices and processes ----

    def to_device(self, settings: ComputeSettings) -> None:
        """Move the model to the device, in the precision and memory format of the run."""
        if not isinstance(settings, ComputeSettings):
            raise TypeError(
                f"{type(self).__name__}: to_device was given {settings!r}; expected rlpyt.utils.ComputeSettings(), or "
                'ComputeSettings(device="cuda:0") for the first GPU.'
            )
        self.settings = settings
        self.device = torch.device(settings.device)
        for module in self.modules():
            settings.place(module, self.device)

    def modules(self) -> list[nn.Module]:
        """Return all networks of the agent, targets included."""
        return [self.model]

    def worker_copy(self) -> Self:
        """Return a copy that acts in another process: on the CPU, with weights in shared memory.

        This process calls `sync_shared_memory` whenever the weights have changed and nobody acts; the other one calls
        `attach_shared_memory` before it acts.
        """
        clone = copy.copy(self)
        clone.device = torch.device("cpu")
        clone.model = copy.deepcopy(self.model).cpu()
        clone._groups = {}
        clone.initial_model_state_dict = None
        self._shared = clone._shared = SharedWeights(clone.model)
        return clone

    def attach_shared_memory(self) -> None:
        """Let this copy's weights be those in shared memory; called again before every batch."""
        assert self._shared is not None, "only a worker's copy is attached"
        self._shared.attach(self.model)

    def sync_shared_memory(self) -> None:
        """Publish the weights to the copies in other processes."""
        if self._shared is not None:
            self._shared.publish(self.model)

    # ---- state ----

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return what an optimiser updates."""
        return self.model.parameters()

    def update_obs_rms(self, observation: Any, valid: torch.Tensor | None = None) -> None:
        """Let the model's normaliser, if it has one, take in a batch of observations."""
        if isinstance(self.model, Model):
            self.model.update_obs_rms(observation, valid)

    def state_dict(self) -> dict[str, Any]:
        """Return the model's weights and normalising statistics."""
        return {"model": self.model.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._check_initialized()
        check_state(type(self).__name__, state_dict)
        self._has_weights_of_its_own = True
        self.model.load_state_dict(state_dict["model"])

    def group_state_dict(self) -> dict[str, Any]:
        """Return random stream and recurrent state of the environments in charge."""
        return self._group.state_dict()

    def load_group_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `group_state_dict` returned."""
        self._group.load_state_dict(state_dict)
