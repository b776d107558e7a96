"""What all algorithms share: hyper-parameters as fields, each a number or a schedule, and the gradient step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from inspect import signature
from numbers import Real
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch

from rlpyt.algos.gradient_descent import GradientDescent
from rlpyt.core import Algorithm
from rlpyt.functional import Schedule, ScheduleLike, as_schedule
from rlpyt.types import BatchSpec, Samples
from rlpyt.utils.arguments import NamedArguments
from rlpyt.utils.seeds import Role, torch_generator


@dataclass(kw_only=True, eq=False)
class RlAlgorithm(Algorithm, metaclass=NamedArguments):
    """Base of the algorithms; every field is a hyper-parameter, given by name.

    A field of type `ScheduleLike` may be a number, a string such as "lin_2.5e-4", or any callable of the step count;
    `self.now(step)` gives the values of all of them at a step.
    """

    noun: ClassVar[str] = "hyper-parameter"
    """What an argument is called where its name is not known."""

    discount: ScheduleLike = 0.99
    """gamma in [0, 1], per environment step."""
    learning_rate: ScheduleLike = 1e-3
    """Of the optimiser."""
    clip_grad_norm: ScheduleLike = 1.0
    """Largest L2 norm of the gradient of all parameters; a longer one is scaled to it."""
    OptimCls: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    """Called with the parameters, `lr`, and `optim_kwargs`."""
    optim_kwargs: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the optimiser."""
    initial_optim_state_dict: dict[str, Any] | None = None
    """Optimiser state to start from."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse hyper-parameters without a name, and say why one would not be heard."""
        if args and all(p.kind is p.KEYWORD_ONLY for p in [*signature(cls.__init__).parameters.values()][1:]):
            raise TypeError(
                f"{cls.__name__}: got {len(args)} hyper-parameters without a name, {args[0]!r} first; expected each by "
                f"its name, such as {cls.__name__}(discount=0.99)."
            )
        unheard = [f.name for f in fields(cls) if not _set_by_dataclass(cls, f.name)]
        if unheard:
            raise TypeError(
                f"{cls.__name__} sets {', '.join(unheard)} in a class body, and only a dataclass takes that for a "
                "default; expected one. Put @dataclass(kw_only=True, eq=False) above the class."
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse values that cannot be meant; a subclass adds its own checks and calls this."""
        self.optim_kwargs = dict(self.optim_kwargs or {})  # rlpyt 0.1 had None for no arguments
        if "lr" in self.optim_kwargs:
            raise TypeError(
                f"{type(self).__name__}: optim_kwargs has lr; expected it as learning_rate. Write learning_rate="
                f"{self.optim_kwargs['lr']!r}."
            )
        for name, optional in self._schedule_fields().items():
            if getattr(self, name) is None and not optional:
                raise TypeError(f"{type(self).__name__}: {name} is None; expected a number or a schedule. Give one.")
            self.check(name, lambda x: x == x, "a number")
        if not callable(self.OptimCls):
            raise TypeError(
                f"{type(self).__name__}: OptimCls is {self.OptimCls!r}; expected a class such as torch.optim.Adam. "
                "Give the class itself."
            )
        for f in fields(self):
            if f.type in (bool, "bool") and getattr(self, f.name) not in (True, False):
                raise TypeError(
                    f"{type(self).__name__}: {f.name} is {getattr(self, f.name)!r}; expected True or False. Give one."
                )
        self.check("discount", lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        self.check("learning_rate", lambda x: 0.0 <= x < float("inf"), "a number from 0")
        self.check("clip_grad_norm", lambda x: x > 0.0, "above 0 (float('inf') for no clipping)")

    if not TYPE_CHECKING:  # to a type checker only what a class declares may be set

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute; a hyper-parameter that is set during a run holds from then on, for `now` too."""
            super().__setattr__(name, value)
            schedules = vars(self).get("_schedules", {})
            if name in schedules:
                schedules[name] = None if value is None else as_schedule(value, self.n_steps, name=name)

    def check(self, name: str, holds: Callable[[Any], bool], expected: str) -> None:
        """Refuse a hyper-parameter that does not hold; a schedule is judged by its value at step 0.

        Raises:
            ValueError: if it does not hold.
            TypeError: if it is neither a number nor, where the field may be one, a schedule or None.
        """
        value, what = getattr(self, name), f"{type(self).__name__}: {name}"
        may_be_schedule = name in self._schedule_fields()
        if value is None and may_be_schedule:
            return
        if not may_be_schedule and not isinstance(value, Real):
            raise TypeError(
                f"{what} is {value!r} of type {type(value).__name__}; expected {expected}, which may not change during "
                "the run. Convert it."
            )
        # Bound to a run without end, as one that begins late is no error yet.
        if not holds(as_schedule(value, n_steps=2**62, name=what)(0)):
            raise ValueError(f"{what} is {value!r}; expected {expected}. Correct it.")

    def whole(self, name: str, least: int = 1) -> int:
        """Return a hyper-parameter as an integer, and refuse one that is not whole or below `least`."""
        self.check(name, lambda x: x >= least and x % 1 == 0, f"a whole number from {least}")
        return int(getattr(self, name))

    # ---- set-up ----

    def initialize(
        self,
        agent: Any,
        n_itr: int,
        batch_spec: BatchSpec,
        mid_batch_reset: bool = True,
        examples: Samples | None = None,
        world_size: int = 1,
        rank: int = 0,
        seed: int = 0,
    ) -> None:
        """Build the optimiser and bind the schedules to the length of the run; see `rlpyt.core.Algorithm`.

        It leaves nothing of a run before, and the hyper-parameters as they were given.
        """
        self.agent = agent
        self.update_counter = 0
        self.batch_spec = batch_spec
        self.mid_batch_reset = mid_batch_reset
        self.n_itr = n_itr
        self.steps_per_itr = batch_spec.size * world_size
        self.n_steps = n_itr * self.steps_per_itr
        self._schedules: dict[str, Schedule | None] = {
            name: None if (value := self.schedule_of(name)) is None else as_schedule(value, self.n_steps, name=name)
            for name in self._schedule_fields()
        }
        self.generator = torch_generator(seed, Role.ALGO, rank)
        self.descents: dict[str, GradientDescent] = {}
        self.optim_initialize(rank)
        if self.initial_optim_state_dict is not None:
            self.load_optim_state_dict(self.initial_optim_state_dict)

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimiser, or those of `descents`; a subclass may set another one after this, or instead of it."""
        self.descents["model"] = self.make_descent(self.agent.parameters(), self.now(0).learning_rate)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimiser that `gradient_step` uses; may be set."""
        return self.descents["model"].optimizer

    @optimizer.setter
    def optimizer(self, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not None:
            self.descents["model"] = GradientDescent(optimizer, self.now(0).learning_rate)
        else:  # algorithms of rlpyt 0.1 said so in `__init__`, when there is none yet
            vars(self).get("descents", {}).pop("model", None)

    def make_descent(self, parameters: Iterable[Any], learning_rate: float) -> GradientDescent:
        """Return the gradient steps of parameters, or of parameter groups, by an optimiser of the kind asked for."""
        optimizer = self.OptimCls(list(parameters), lr=learning_rate, **self.optim_arguments())
        return GradientDescent(optimizer, learning_rate)

    def optim_arguments(self) -> dict[str, Any]:
        """Return the arguments of `OptimCls` beside parameters and learning rate."""
        kwargs = dict(self.optim_kwargs)
        if self.OptimCls in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD) and not kwargs.get("foreach"):
            # One kernel for all parameters: a third of the time of the default on small networks.
            kwargs.setdefault("fused", True)
        return kwargs

    def schedule_of(self, name: str) -> Any:
        """Return the number or schedule that a hyper-parameter follows: the one given, unless a subclass has a rule."""
        return getattr(self, name)

    def hyper_parameters(self) -> dict[str, Any]:
        """Return all fields, as they were given; optimiser state left out."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "initial_optim_state_dict"}

    def now(self, step: int) -> Any:
        """Return the numeric hyper-parameters at a step, as attributes."""
        values = {name: None if schedule is None else schedule(step) for name, schedule in self._schedules.items()}
        return SimpleNamespace(**values)

    @classmethod
    def _schedule_fields(cls) -> dict[str, bool]:
        """Return the fields that may hold a schedule, and of each whether None is allowed."""
        # An annotation is text where its module has `from __future__ import annotations`, else the type itself.
        words = {ScheduleLike: "ScheduleLike", ScheduleLike | None: "ScheduleLike | None"}
        annotations = {f.name: f.type if isinstance(f.type, str) else words.get(f.type, "") for f in fields(cls)}
        return {n: "None" in text or "Optional" in text for n, text in annotations.items() if "ScheduleLike" in text}

    # ---- the gradient step ----

    def gradient_step(self, loss: torch.Tensor, now: Any) -> torch.Tensor:
        """Take one step of the optimiser down a loss; return the gradient's norm before clipping, on the device."""
        if "model" not in self.descents:
            raise RuntimeError(
                f"{type(self).__name__}: gradient_step has no optimiser; expected optim_initialize to set one. Write "
                "self.optimizer = ... there, or call super().optim_initialize(rank)."
            )
        grad_norm = self.descents["model"](loss, now.learning_rate, now.clip_grad_norm)
        self.update_counter += 1
        return grad_norm

    # ---- state ----

    def optim_state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state as torch has it; of several optimisers, theirs by name."""
        states = {name: descent.state_dict() for name, descent in self.descents.items()}
        return states["model"] if states.keys() == {"model"} else states

    def load_optim_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `optim_state_dict` returned.

        Raises:
            ValueError: if it is that of another algorithm, or of other settings.
        """
        states = {"model": state_dict} if "param_groups" in state_dict else state_dict
        missing = [name for name in self.descents if name not in states]
        if missing:
            raise ValueError(
                f"{type(self).__name__}: the state of the optimisers has no {', '.join(map(repr, missing))}, it has "
                f"{', '.join(map(repr, states))}; expected that of the same algorithm with the same settings."
            )
        for name, descent in self.descents.items():
            descent.load_state_dict(states[name])

    def state_dict(self) -> dict[str, Any]:
        """Return optimiser, counter and random stream."""
        return {
            "optimizer": self.optim_state_dict(),
            "update_counter": self.update_counter,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.load_optim_state_dict(state_dict["optimizer"])
        self.update_counter = state_dict["update_counter"]
        self.generator.set_state(state_dict["generator"])

    def plan(self) -> dict[str, Any]:
        """Return what will be done an iteration."""
        return {"rows an iteration": self.steps_per_itr, "updates an iteration": 1, "rows an update": self.batch_size}


def _set_by_dataclass(cls: type, name: str) -> bool:
    owner = next((c for c in cls.__mro__ if name in vars(c)), None)
    return owner is None or "__dataclass_fields__" in vars(owner)
