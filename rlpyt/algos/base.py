"""Base of all algorithms: hyper-parameters as fields, optimisers, and the gradient step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import torch

from rlpyt.algos.compiled_update import CompiledUpdate
from rlpyt.algos.global_rows import GlobalRows
from rlpyt.algos.gradient_descent import GradientDescent
from rlpyt.algos.metrics import Numbers
from rlpyt.core import AgentT, Algorithm, Appender, Metrics, rows_per_update
from rlpyt.functional import ScheduleLike
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper, Scheduled, Settings
from rlpyt.types import Kwargs, Run, Samples, StateDict
from rlpyt.utils.seeds import Role, checked_stream, torch_generator
from rlpyt.utils.torch_optim import without_compiler


class _Feed(Protocol):
    """Part between batches that are collected and batches of updates, such as a `ReplayFeed`."""

    def append(self, itr: int, samples: Samples) -> None: ...
    def learn(self, itr: int) -> Metrics: ...
    def appender(self) -> Appender: ...
    def plan(self) -> dict[str, object]: ...
    def state_dict(self) -> StateDict: ...
    def load_state_dict(self, state_dict: StateDict) -> None: ...


@dataclass(kw_only=True, eq=False)
class RlAlgorithm(Settings, Scheduled, Algorithm[AgentT]):
    """Base of the algorithms with gradients; every field is a hyper-parameter, given by name.

    A field of type `ScheduleLike` may be a number, a string such as "lin_2.5e-4", or any callable of the step count;
    `self.hyper(step)` gives the values of all of them at a step.

    A subclass has `learn`, or with a replay `update`.
    """

    noun: ClassVar[str] = "hyper-parameter"
    """What a setting is called in an error message."""
    counted_descent: ClassVar[str] = "model"
    """Name in `descents` of the optimiser whose steps are counted as updates."""
    in_place_of_none: ClassVar[Mapping[str, str]] = {"clip_grad_norm": "Give float('inf') for no clipping."}
    loss_weight = 1.0
    """Weight of the losses of the rows at hand among those of the other replicas; set with every batch that may have
    another number of rows there (`GlobalRows.weights`)."""

    discount: ScheduleLike = 0.99
    """gamma in [0, 1], per environment step."""
    learning_rate: ScheduleLike = 1e-3
    """Of the optimiser."""
    clip_grad_norm: ScheduleLike = 1.0
    """Largest L2 norm of the gradient of all parameters; a longer one is scaled to it."""
    OptimCls: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    """Called with the parameters, `lr`, and `optim_kwargs`. Fixed for the run, as the optimiser is built once."""
    optim_kwargs: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the optimiser."""
    initial_optim_state_dict: StateDict | None = field(default=None, metadata={"weights": True})
    """Optimiser state to start from."""
    log_loss_after: bool = False
    """Whether the loss of each update's rows is computed again after it, for debugging: the metrics `lossBefore` and
    `lossAfter`, for another forward pass. No other number changes."""

    def __post_init__(self) -> None:
        """Check the settings. A subclass calls this first and then makes its own checks."""
        super().__post_init__()
        if "lr" in (self.optim_kwargs or {}):
            raise TypeError(
                f"{type(self).__name__}: optim_kwargs has lr; expected it as learning_rate. Write learning_rate="
                f"{self.optim_kwargs['lr']!r}."
            )
        if not callable(self.OptimCls):
            raise TypeError(
                f"{type(self).__name__}: OptimCls is {self.OptimCls!r}; expected a class such as torch.optim.Adam. "
                "Give the class itself."
            )
        self.check("discount", lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        self.check("learning_rate", lambda x: 0.0 <= x < float("inf"), "a number from 0")
        self.check("clip_grad_norm", lambda x: x > 0.0, "above 0 (float('inf') for no clipping)")

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over the attributes of a copy, whose agent explores by it: an agent's copy has no schedule."""
        for name, value in state.items():
            setattr(self, name, value)
        if "exploration" in state:
            state["agent"].explore_by(state["exploration"])

    # ---- set-up ----

    def initialize(self, agent: AgentT, run: Run) -> None:
        """Build the optimiser and bind the schedules to the length of the run; see `rlpyt.core.Algorithm`.

        Nothing of an earlier run is left, and the fields stay as they were given.
        """
        self.agent, self.replicas, self.global_rows = agent, run.replicas, GlobalRows(run.replicas)
        agent.networks.join(run.replicas)
        self.update_counter, self.loss_weight, self.rows_beyond = 0, 1.0, 0
        self.batch_spec, self.mid_batch_reset, self.n_itr = run.batch_spec, run.mid_batch_reset, run.n_itr
        self.steps_per_itr, self.n_steps = run.steps_per_itr, run.n_steps
        self.bind(run.n_steps)
        agent.bind(run.n_steps, run.steps_per_itr)
        self.generator = torch_generator(run.seed, Role.ALGO, run.rank)
        self.feed: _Feed | None = None
        self.descents: Descents = Descents(self)
        self.compiled = CompiledUpdate(self)
        self.optim_initialize(run.rank)
        if self.initial_optim_state_dict is not None:
            self.descents.load_state_dict(self.initial_optim_state_dict)

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimisers, `descents`. A subclass may set others after this, or instead of it."""
        self.descents.add("model", self.agent.parameters())

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The one optimiser of an algorithm that has one; may be set. Others have several, in `self.descents`."""
        _refuse_if_several(self, "asked for its")
        return self.descents["model"].optimizer

    @optimizer.setter
    def optimizer(self, optimizer: torch.optim.Optimizer | None) -> None:
        _refuse_if_several(self, "given an")
        if optimizer is not None:
            self.descents.take("model", optimizer)
        else:  # algorithms of rlpyt 0.1 said so in `__init__`, when there is none yet
            vars(self).get("descents", {}).pop("model", None)

    def share(self, n_replicas: int) -> Self:
        """Return itself, which takes all rows of a batch; see `rlpyt.core.Algorithm.share`."""
        return self

    # ---- learning ----

    def append(self, itr: int, samples: Samples) -> None:
        """Take in the batch of an iteration: into the replay, or else as `self.samples` for `learn`.

        It is a view of a buffer that the next batch overwrites.
        """
        if self.feed is None:
            self.samples = samples
        else:
            self.feed.append(itr, samples)

    def learn(self, itr: int) -> Metrics:
        """Update the agent: take the updates from the replay that are due. Others have their own."""
        if self.feed is None:
            raise TypeError(
                f"{type(self).__name__}: has no way to learn; expected a method learn(self, itr), with the batch in "
                "self.samples, or optimize_agent(self, itr, samples). Define one of them."
            )
        return self.feed.learn(itr)

    def update(self, batch: Buffer, hyper: Hyper) -> Numbers:
        """Take one update; return its metrics by name, detached tensors or numbers.

        Args:
            batch: rows on the agent's device.
            hyper: the hyper-parameters as they stand.

        Raises:
            TypeError: if the algorithm has no update of its own.
        """
        raise TypeError(
            f"{type(self).__name__}: has no way to learn; expected a method update(self, batch, hyper), which returns "
            "the metrics of one update by name. Define it (docs/howto/own_algorithm.md)."
        )

    def gradient_step(self, loss: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """Take one step by `counted_descent`, and count it; return the norm of the gradient before clipping."""
        grad_norm = self.descents.step(self.counted_descent, loss, hyper)
        if torch.compiler.is_compiling():
            self.compiled.count()
        else:
            self.update_counter += 1
        return grad_norm

    # ---- what is told of a run ----

    def plan(self) -> dict[str, object]:
        """Return the entries of the plan; see `rlpyt.core.Algorithm`."""
        counts = {"rows an iteration": self.steps_per_itr, "updates an iteration": 1}
        names = dict.fromkeys(descent.name for descent in self.descents.values())
        optimiser = {"optimiser": " and ".join(names)} if names else {}
        of_feed = {} if self.feed is None else self.feed.plan()
        return {**counts, "rows an update": rows_per_update(self), **optimiser, **of_feed}

    def row_numbers(self, n_done: int) -> dict[str, float]:
        """Return the learning rates of the newest iteration by column: that of the optimiser "model" has no prefix."""
        hyper = self.hyper(max(0, n_done - 1) * self.steps_per_itr)
        prefixes = {name: "" if name == "model" else f"{name[:1].upper()}{name[1:]}" for name in self.descents}
        return {f"{prefix}LearningRate": getattr(hyper, self.descents[name].rate) for name, prefix in prefixes.items()}

    # ---- state ----

    def optim_state_dict(self) -> StateDict:
        """Return the optimiser's state as torch has it; of several optimisers, theirs by name."""
        return self.descents.state_dict()

    def state_dict(self) -> StateDict:
        """Return optimiser, counter, random stream, and what the replay has."""
        return {
            "optimizer": self.optim_state_dict(),
            "update_counter": self.update_counter,
            "generator": self.generator.get_state(),
            **({} if self.feed is None else self.feed.state_dict()),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`; a replay unlike this one is refused before anything was changed."""
        if self.feed is not None:
            self.feed.load_state_dict(state_dict)
        self.descents.load_state_dict(state_dict["optimizer"])
        self.update_counter = state_dict["update_counter"]
        self.generator.set_state(checked_stream(state_dict["generator"]))


AnyAlgorithm = RlAlgorithm[Any]


def _refuse_if_several(algo: AnyAlgorithm, was: str) -> None:
    if algo.counted_descent != "model":
        names = " or ".join(f'self.descents["{name}"].optimizer' for name in algo.descents)
        raise AttributeError(
            f"{type(algo).__name__}: {was} `optimizer`, and it has several; expected {names}. Each may be set."
        )


class Descents(dict[str, GradientDescent]):
    """Optimisers of an algorithm by name: "model" of one that has a single optimiser.

    Args:
        algo: has the settings of the optimisers, `OptimCls` and `optim_kwargs`, and the weight of its losses.
    """

    def __init__(self, algo: AnyAlgorithm) -> None:
        super().__init__()
        self._algo = algo
        self.kept: dict[str, torch.Tensor] = {}
        """Parameters of the algorithm itself that belong to the state of its optimisers, such as SAC's log alpha."""

    def add(
        self, name: str, parameters: Iterable[Any], rate: str = "learning_rate", defaults: Kwargs | None = None
    ) -> GradientDescent:
        """Build an optimiser of parameters, or of parameter groups; return its steps, which are kept under the name.

        Args:
            name: under which `step` finds it.
            parameters: as torch's optimisers take them.
            rate: setting of the algorithm that is the learning rate.
            defaults: arguments of the optimiser that `optim_kwargs` may change.
        """
        Cls, given = self._algo.OptimCls, self._algo.optim_kwargs or {}  # rlpyt 0.1 had None for no arguments
        kwargs = {**(defaults or {}), **given}
        if Cls in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD) and not kwargs.get("foreach"):
            # One kernel for all parameters: a third of the time of the default on small networks.
            kwargs.setdefault("fused", True)
        with without_compiler():
            optimizer = Cls(list(parameters), lr=getattr(self._algo.hyper(0), rate), **kwargs)
        return self.take(name, optimizer, rate)

    def take(self, name: str, optimizer: torch.optim.Optimizer, rate: str = "learning_rate") -> GradientDescent:
        """Keep an optimiser that was built elsewhere under a name; return its steps."""
        algo = self._algo
        modules, at_start = list(algo.agent.networks.modules()), getattr(algo.hyper(0), rate)
        self[name] = GradientDescent(optimizer, at_start, algo.replicas, self.weighted, modules, rate)
        return self[name]

    def weighted(self, mean: torch.Tensor) -> torch.Tensor:
        """Return a mean over rows of this replica, weighted so that the replicas' mean is that over all rows."""
        weight: float | torch.Tensor = self._algo.loss_weight  # a tensor while an update is compiled among replicas
        return mean if isinstance(weight, int | float) and weight == 1.0 else mean * weight

    def step(self, name: str, loss: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """Take one step down a loss, one number; return the norm of the gradient before clipping, on the device."""
        who = type(self._algo).__name__
        if name not in self:
            raise RuntimeError(
                f"{who}: gradient_step has no optimiser; expected {name!r} in self.descents, which has {list(self)}. "
                "Write self.optimizer = ... in optim_initialize, or call super().optim_initialize(rank) there."
            )
        descent = self[name]
        if not torch.compiler.is_compiling():
            self._algo.compiled.is_passed_by()
        is_descended = loss.requires_grad or not any(x.requires_grad for x in descent.parameters)  # or all are frozen
        if loss.numel() != 1 or not is_descended:
            what = f"a tensor {list(loss.shape)} {'with' if loss.requires_grad else 'without'} a gradient"
            raise ValueError(
                f"{who}: an update was given as its loss {what}; expected one number with a gradient. Take the mean "
                "over the rows, such as valid_mean(x, batch.valid), and detach metrics only."
            )
        return descent(loss, getattr(hyper, descent.rate), hyper.clip_grad_norm)

    def make_graph_ready(self, hyper: Hyper) -> None:
        """Let the next steps be part of a graph, at the learning rates as they stand; see `GradientDescent`."""
        for descent in self.values():
            descent.make_graph_ready(getattr(hyper, descent.rate))

    def state_dict(self) -> StateDict:
        """Return the optimiser's state as torch has it; of several optimisers, theirs by name, and what is kept."""
        states: dict[str, Any] = {name: descent.state_dict() for name, descent in self.items()}
        states |= {name: tensor.detach().clone() for name, tensor in self.kept.items()}
        return states["model"] if states.keys() == {"model"} else states

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`; refuse that of another algorithm, of other settings or networks."""
        who = type(self._algo).__name__
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"{who}: the state of the optimisers is {state_dict!r:.80}; expected the result of optim_state_dict(), "
                'which a snapshot has as "optimizer_state_dict".'
            )
        is_one = "param_groups" in state_dict or "class" in state_dict
        states: StateDict = {"model": state_dict} if is_one else state_dict
        missing = [name for name in (*self, *self.kept) if name not in states]
        if missing:
            raise ValueError(
                f"{who}: the state of the optimisers has no {', '.join(map(repr, missing))}, it has "
                f"{', '.join(map(repr, states))}; expected a state of the same algorithm with the same settings."
            )
        for name, descent in self.items():
            descent.load_state_dict(states[name])
        with torch.no_grad():
            for name, tensor in self.kept.items():
                tensor.copy_(states[name])
