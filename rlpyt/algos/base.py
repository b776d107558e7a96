"""What all algorithms share: hyper-parameters as fields, each a number or a schedule, and the gradient step."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from numbers import Real
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.nn.utils import clip_grad_norm_

from rlpyt.core import Algorithm
from rlpyt.functional import Schedule, ScheduleLike, as_schedule
from rlpyt.types import BatchSpec, Samples
from rlpyt.utils.seeds import Role, torch_generator

_ENDLESS = 2**62


@dataclass(kw_only=True, eq=False)
class RlAlgorithm(Algorithm):
    """Base of the algorithms; every field is a hyper-parameter, given by name.

    A field of type `ScheduleLike` may be a number, a string such as "lin_2.5e-4", or any callable of the step count;
    `self.now(step)` gives the values of all of them at a step.
    """

    discount: ScheduleLike = 0.99
    """gamma in [0, 1], per environment step."""
    learning_rate: ScheduleLike = 1e-3
    """Of the optimiser."""
    clip_grad_norm: ScheduleLike = 1.0
    """Largest L2 norm of the gradient of all parameters; a longer one is scaled to it."""
    OptimCls: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    """Called with the parameters, `lr`, and `optim_kwargs`."""
    optim_kwargs: dict[str, Any] | None = field(default_factory=dict)
    """Further arguments of the optimiser; None is none."""
    initial_optim_state_dict: dict[str, Any] | None = None
    """Optimiser state to start from."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Say which hyper-parameter was meant where a name is not known, or why one would go unheard."""
        parameters = inspect.signature(cls.__init__).parameters
        names = [name for name in parameters if name != "self"]
        unheard = [name for name in names if _set_beside_the_fields(cls, name)]
        if unheard:
            raise TypeError(
                f"{cls.__name__} sets {', '.join(unheard)} in its class body, which only a dataclass takes for a "
                "default. Put @dataclass(kw_only=True, eq=False) above the class."
            )
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            for key in kwargs.keys() - set(names):
                close = difflib.get_close_matches(key, names, n=3, cutoff=0.5)
                hint = f"Did you mean {' or '.join(close)}? " if close else ""
                raise TypeError(f"{cls.__name__} has no hyper-parameter {key!r}. {hint}It has: {', '.join(names)}.")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse values that cannot be meant; a subclass adds its own checks and calls this."""
        for f in self._schedule_fields():
            if getattr(self, f.name) is not None:
                self._first_value(f.name)
            elif f.default is not None:
                raise TypeError(f"{type(self).__name__}: {f.name} is None; expected a number or a schedule.")
        self.optim_kwargs = dict(self.optim_kwargs or {})
        self.check("discount", lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        self.check("learning_rate", lambda x: x >= 0.0, "at least 0")
        self.check("clip_grad_norm", lambda x: x > 0.0, "above 0 (float('inf') for no clipping)")

    def check(self, name: str, holds: Callable[[Any], bool], expected: str) -> None:
        """Raise ValueError where a hyper-parameter does not hold; of a schedule the value at step 0 is looked at."""
        if getattr(self, name) is not None and not holds(self._first_value(name)):
            raise ValueError(f"{type(self).__name__}: {name} is {getattr(self, name)!r}; expected {expected}.")

    def whole(self, name: str, least: int = 1) -> int:
        """Return a hyper-parameter as an integer, or raise ValueError where it is not one, or too small."""
        self.check(name, lambda x: x % 1 == 0 and x >= least, f"a whole number from {least}")
        return int(getattr(self, name))

    def _first_value(self, name: str) -> float:
        value, what = getattr(self, name), f"{type(self).__name__}.{name}"
        if name not in [f.name for f in self._schedule_fields()] and not isinstance(value, Real):
            raise TypeError(f"{what} is {value!r} of type {type(value).__name__}; expected a number. Convert it.")
        # A run of any length: schedules may begin late.
        return as_schedule(value, n_steps=_ENDLESS, name=what)(0)

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
        """Build the optimiser and bind the schedules to the length of the run; see `rlpyt.core.Algorithm`."""
        self.agent = agent
        self.batch_spec = batch_spec
        self.mid_batch_reset = mid_batch_reset
        self.steps_per_itr = batch_spec.size * world_size
        self.n_steps = n_itr * self.steps_per_itr
        self._schedules: dict[str, Schedule] = {
            f.name: as_schedule(value, self.n_steps, f"{type(self).__name__}.{f.name}")
            for f in self._schedule_fields()
            if (value := getattr(self, f.name)) is not None
        }
        self.generator = torch_generator(seed, Role.ALGO, rank)
        self.optim_initialize(rank)

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimiser."""
        kwargs = dict(self.optim_kwargs or {})
        if self.OptimCls in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
            # One kernel for all parameters: a third of the time of the default on small networks.
            kwargs.setdefault("fused", True)
        self._parameters = list(self.agent.parameters())
        self.optimizer = self.OptimCls(self._parameters, lr=self.now(0).learning_rate, **kwargs)
        if self.initial_optim_state_dict is not None:
            self.optimizer.load_state_dict(self.initial_optim_state_dict)

    def now(self, step: int) -> Any:
        """Return the numeric hyper-parameters at a step, as attributes."""
        values = {name: schedule(step) for name, schedule in self._schedules.items()}
        return SimpleNamespace(**{**{f.name: None for f in self._schedule_fields()}, **values})

    def _schedule_fields(self) -> list[Field[Any]]:
        return [f for f in fields(self) if _may_be_schedule(f.type)]

    # ---- the gradient step ----

    def gradient_step(self, loss: torch.Tensor, now: Any) -> torch.Tensor:
        """Take one step of the optimiser down a loss; return the gradient's norm before clipping, on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grad_norm = clip_grad_norm_(self._parameters, now.clip_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = now.learning_rate
        self.optimizer.step()
        self.update_counter += 1
        return grad_norm

    # ---- state ----

    def optim_state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state."""
        return self.optimizer.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Return optimiser, counter and random stream."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "update_counter": self.update_counter,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.update_counter = state_dict["update_counter"]
        self.generator.set_state(state_dict["generator"])

    def plan(self) -> dict[str, Any]:
        """Return what will be done an iteration."""
        return {"rows an iteration": self.steps_per_itr, "updates an iteration": 1, "rows an update": self.batch_size}


def _may_be_schedule(annotation: Any) -> bool:
    # Text where the module has `from __future__ import annotations`, the type itself where it has not.
    return "ScheduleLike" in str(annotation) or annotation in (ScheduleLike, ScheduleLike | None)


def _set_beside_the_fields(cls: type, name: str) -> bool:
    """Return whether the last class to set a hyper-parameter in its body is not a dataclass."""
    owner = next((c for c in cls.__mro__ if name in vars(c)), None)
    return owner is not None and "__dataclass_fields__" not in vars(owner) and "__dataclass_fields__" in dir(owner)


def stack_metrics(metrics: Mapping[str, list[torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return lists of scalar tensors, one an update, as one tensor each."""
    return {name: torch.stack(values).detach() for name, values in metrics.items() if values}
