"""Base of all algorithms: hyper-parameters as fields, optimisers, and the gradient step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import torch

from rlpyt.algos.compiled_loss import CompiledLoss, why_not_compilable
from rlpyt.algos.global_rows import GlobalRows
from rlpyt.algos.gradient_descent import GradientDescent
from rlpyt.algos.loss_after import LossAfter
from rlpyt.core import AgentT, Algorithm, Metrics, example_inputs
from rlpyt.functional import ScheduleLike
from rlpyt.settings import Hyper, Scheduled, Settings, moving
from rlpyt.types import Kwargs, Run, Samples, StateDict
from rlpyt.utils.checks import share_of
from rlpyt.utils.seeds import Role, checked_stream, torch_generator
from rlpyt.utils.torch_optim import without_compiler

_LOSSES = logging.getLogger("rlpyt.loss")


@dataclass(kw_only=True, eq=False)
class RlAlgorithm(Settings, Scheduled, Algorithm[AgentT]):
    """Base of the algorithms; every field is a hyper-parameter, given by name.

    A field of type `ScheduleLike` may be a number, a string such as "lin_2.5e-4", or any callable of the step count;
    `self.hyper(step)` gives the values of all of them at a step.
    """

    noun: ClassVar[str] = "hyper-parameter"
    """What a setting is called in an error message."""
    counted_descent: ClassVar[str] = "model"
    """Name in `descents` of the optimiser whose steps are counted as updates."""
    compiled_losses: ClassVar[Mapping[str, str]] = {}
    """Methods that a run with `compile` compiles, each with the optimiser in `descents` that descends it; see
    `CompiledLoss`. They draw no random numbers."""
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
    initial_optim_state_dict: StateDict | None = None
    """Optimiser state to start from."""
    log_loss_after: bool = False
    """Whether the loss of each update's rows is computed again after it, for debugging: the metrics `lossBefore` and
    `lossAfter`, for another forward pass. No other number changes."""

    def __post_init__(self) -> None:
        """Refuse values out of range. A subclass calls this first and then makes its own checks."""
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
        if type(self).learn is RlAlgorithm.learn and type(self).optimize_agent is Algorithm.optimize_agent:
            raise TypeError(
                f"{type(self).__name__}: has no way to learn; expected a method learn(self, itr), with the batch in "
                "self.samples, or optimize_agent(self, itr, samples). Define one of them."
            )
        self.check("discount", lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        self.check("learning_rate", lambda x: 0.0 <= x < float("inf"), "a number from 0")
        self.check("clip_grad_norm", lambda x: x > 0.0, "above 0 (float('inf') for no clipping)")

    # ---- set-up ----

    def initialize(self, agent: AgentT, run: Run) -> None:
        """Build the optimiser and bind the schedules to the length of the run; see `rlpyt.core.Algorithm`.

        Nothing of an earlier run is left, and the fields stay as they were given.
        """
        self.agent, self.replicas, self.global_rows = agent, run.replicas, GlobalRows(run.replicas)
        agent.networks.join(run.replicas)
        self.update_counter = 0
        self.loss_weight = 1.0
        self.batch_spec, self.mid_batch_reset, self.n_itr = run.batch_spec, run.mid_batch_reset, run.n_itr
        self.steps_per_itr, self.n_steps = run.steps_per_itr, run.n_steps
        self.bind(run.n_steps)
        agent.bind(run.n_steps, run.steps_per_itr)
        self.generator = torch_generator(run.seed, Role.ALGO, run.rank)
        self.descents: dict[str, GradientDescent] = {}
        self._compile_losses(agent.compute.compile)
        self.optim_initialize(run.rank)
        if self.initial_optim_state_dict is not None:
            self.load_optim_state_dict(self.initial_optim_state_dict)

    def _compile_losses(self, wanted: bool) -> None:
        """Put compiled losses in the place of the plain ones, or plain ones in the place of those of an earlier run."""
        plain = {name: getattr(self, name) for name in self.compiled_losses}
        plain = {name: loss.plain if isinstance(loss, CompiledLoss) else loss for name, loss in plain.items()}
        for name in [name for name in plain if isinstance(vars(self).get(name), CompiledLoss)]:
            vars(self)[name] = plain[name]
        if not wanted:
            return
        reason = why_not_compilable(bool(self.agent.recurrent), example_inputs(self.agent.env_spaces)[0])
        if not plain or reason:
            raise ValueError(
                f"{type(self).__name__}: the settings have compile=True, and "
                f"{reason or 'it has no loss that can be compiled'}; expected compile=False."
            )
        rest = partial(moving, self), self.agent.device, self.descents
        vars(self).update({n: CompiledLoss(plain[n], *rest, by) for n, by in self.compiled_losses.items()})

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimisers, `descents`. A subclass may set others after this, or instead of it."""
        self.descents["model"] = self.make_descent(self.agent.parameters(), self.hyper(0).learning_rate)

    def make_descent(self, parameters: Iterable[Any], learning_rate: float) -> GradientDescent:
        """Return the gradient steps of parameters, or of parameter groups, by an optimiser of `OptimCls`."""
        with without_compiler():
            optimizer = self.OptimCls(list(parameters), lr=learning_rate, **self.optim_arguments())
        return self._descent(optimizer, learning_rate)

    def _descent(self, optimizer: torch.optim.Optimizer, learning_rate: float) -> GradientDescent:
        return GradientDescent(
            optimizer, learning_rate, self.replicas, self.weighted, list(self.agent.networks.modules())
        )

    def optimized_parameters(self) -> Iterable[torch.nn.Parameter]:
        """Return what the optimisers update."""
        groups = [group for descent in self.descents.values() for group in descent.optimizer.param_groups]
        return [parameter for group in groups for parameter in group["params"]]

    def share(self, n_replicas: int) -> Self:
        """Return an algorithm with a share of the settings in `batch_settings`; see `rlpyt.core.Algorithm.share`."""
        sizes = {name: getattr(self, name) for name in self.batch_settings()}
        for name, size in sizes.items():
            if not isinstance(size, Real):
                raise TypeError(
                    f"{type(self).__name__}: {name} is {size!r}, given for {n_replicas} replicas together; expected a "
                    "number, as a schedule is not divided among them. Give a number, or with "
                    'batch_sizes="replica" the schedule of one replica.'
                )
        shares = {name: share_of(type(self).__name__, name, size, n_replicas) for name, size in sizes.items()}
        return self.replace(**shares) if shares else self

    def batch_settings(self) -> Sequence[str]:
        """Return the names of the settings that are the size of an update's batch; none takes all rows of a batch."""
        return ()

    def optim_arguments(self) -> Kwargs:
        """Return the arguments of `OptimCls` beside parameters and learning rate."""
        kwargs = dict(self.optim_kwargs or {})  # rlpyt 0.1 had None for no arguments
        if self.OptimCls in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD) and not kwargs.get("foreach"):
            # One kernel for all parameters: a third of the time of the default on small networks.
            kwargs.setdefault("fused", True)
        return kwargs

    def hyper_parameters(self) -> dict[str, object]:
        """Return all fields as they were given, without the optimiser's state."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "initial_optim_state_dict"}

    # ---- learning ----

    def append(self, itr: int, samples: Samples) -> None:
        """Keep the batch in `self.samples` for `learn`. It is a view of a buffer that the next batch overwrites."""
        self.samples = samples

    def learn(self, itr: int) -> Metrics:
        """Update the agent; every algorithm has its own, here or in `optimize_agent`."""
        raise NotImplementedError

    def gradient_step(self, loss: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """Take one step down a loss with the optimiser `counted_descent`, and count it as an update.

        Returns:
            The norm of the gradient before clipping, on the device.
        """
        grad_norm = self.descend(self.counted_descent, loss, hyper)
        self.update_counter += 1
        return grad_norm

    def before_loss(self) -> LossAfter | None:
        """Return what computes the loss again after the update, where that is asked for; called before the loss is.

        It is asked for by `log_loss_after`, or by the level DEBUG of the logger "rlpyt.loss" of Python. Among replicas
        the level does not count: it may be another one in each, and a loss may wait for the others.
        """
        is_logged = self.global_rows.alone and _LOSSES.isEnabledFor(logging.DEBUG)
        return LossAfter(self.agent, self.generator) if self.log_loss_after or is_logged else None

    def losses_around(
        self, again: LossAfter | None, before: torch.Tensor, loss: Callable[[], torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return the metrics `lossBefore` and `lossAfter` of an update, where `log_loss_after` asks for them.

        Args:
            again: of `before_loss`.
            before: the loss before the update.
            loss: computes the loss of the same rows.
        """
        if again is None:
            return {}
        before, after = before.detach(), again(loss)
        if _LOSSES.isEnabledFor(logging.DEBUG):
            name, n = type(self).__name__, self.update_counter
            _LOSSES.debug("%s: update %d, loss %.6g before it and %.6g after", name, n, before.item(), after.item())
        return {"lossBefore": before, "lossAfter": after} if self.log_loss_after else {}

    def descend(self, name: str, loss: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """Take one step down a loss with an optimiser of `descents`; return the norm as `gradient_step` does."""
        if name not in self.descents:
            raise RuntimeError(
                f"{type(self).__name__}: gradient_step has no optimiser; expected {name!r} in self.descents, which has "
                f"{list(self.descents)}. Write self.optimizer = ... in optim_initialize, or call "
                "super().optim_initialize(rank) there."
            )
        descent = self.descents[name]
        if loss.numel() != 1 or not (loss.requires_grad or descent.is_frozen()):
            what = f"a tensor {list(loss.shape)} {'with' if loss.requires_grad else 'without'} a gradient"
            raise ValueError(
                f"{type(self).__name__}: an update was given as its loss {what}; expected one number with a gradient. "
                "Take the mean over the rows, such as valid_mean(x, batch.valid), and detach metrics only."
            )
        return descent(loss, self.learning_rate_of(name, hyper), hyper.clip_grad_norm)

    def weighted(self, mean: torch.Tensor) -> torch.Tensor:
        """Return a mean over rows of this replica, weighted so that the replicas' mean is that over all rows."""
        return mean if self.loss_weight == 1.0 else mean * self.loss_weight

    def learning_rate_of(self, name: str, hyper: Hyper) -> float:
        """Return the learning rate of an optimiser of `descents`, as it stands."""
        return hyper.learning_rate

    def row_numbers(self, n_done: int) -> dict[str, float]:
        """Return the learning rate of each optimiser in the newest iteration; see `rlpyt.core.Algorithm.row_numbers`.

        The one of an algorithm with a single optimiser is `LearningRate`; the others have its name before that.
        """
        hyper = self.hyper(max(0, n_done - 1) * self.steps_per_itr)
        prefixes = {name: "" if name == "model" else f"{name[:1].upper()}{name[1:]}" for name in self.descents}
        return {f"{prefix}LearningRate": self.learning_rate_of(name, hyper) for name, prefix in prefixes.items()}

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The one optimiser of an algorithm that has one; may be set. Others have several, in `self.descents`."""
        self._refuse_if_several("asked for its")
        return self.descents["model"].optimizer

    @optimizer.setter
    def optimizer(self, optimizer: torch.optim.Optimizer | None) -> None:
        self._refuse_if_several("given an")
        if optimizer is not None:
            self.descents["model"] = self._descent(optimizer, self.hyper(0).learning_rate)
        else:  # algorithms of rlpyt 0.1 said so in `__init__`, when there is none yet
            vars(self).get("descents", {}).pop("model", None)

    def _refuse_if_several(self, was: str) -> None:
        if self.counted_descent != "model":
            names = " or ".join(f'self.descents["{name}"].optimizer' for name in self.descents)
            raise AttributeError(
                f"{type(self).__name__}: {was} `optimizer`, and it has several; expected {names}. Each may be set."
            )

    # ---- state ----

    def optim_state_dict(self) -> StateDict:
        """Return the optimiser's state as torch has it; of several optimisers, theirs by name."""
        states = {name: descent.state_dict() for name, descent in self.descents.items()}
        return states["model"] if states.keys() == {"model"} else states

    def load_optim_state_dict(self, state_dict: StateDict) -> None:
        """Take over the result of `optim_state_dict`.

        Raises:
            ValueError: if it comes from another algorithm, from other settings, or from other networks.
            TypeError: if it is no state.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"{type(self).__name__}: the state of the optimisers is {state_dict!r:.80}; expected the result of "
                'optim_state_dict(), which a snapshot has as "optimizer_state_dict".'
            )
        is_one = "param_groups" in state_dict or "class" in state_dict
        states = {"model": state_dict} if is_one else state_dict
        missing = [name for name in self.descents if name not in states]
        if missing:
            raise ValueError(
                f"{type(self).__name__}: the state of the optimisers has no {', '.join(map(repr, missing))}, it has "
                f"{', '.join(map(repr, states))}; expected a state of the same algorithm with the same settings."
            )
        for name, descent in self.descents.items():
            descent.load_state_dict(states[name])

    def state_dict(self) -> StateDict:
        """Return optimiser, counter and random stream."""
        return {
            "optimizer": self.optim_state_dict(),
            "update_counter": self.update_counter,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over the result of `state_dict`."""
        self.load_optim_state_dict(state_dict["optimizer"])
        self.update_counter = state_dict["update_counter"]
        self.generator.set_state(checked_stream(state_dict["generator"]))

    def plan(self) -> dict[str, object]:
        """Return what an iteration will do; see `rlpyt.core.Algorithm`."""
        counts = {"rows an iteration": self.steps_per_itr, "updates an iteration": 1}
        names = dict.fromkeys(descent.name for descent in self.descents.values())
        optimiser = {"optimiser": " and ".join(names)} if names else {}
        return {**counts, "rows an update": self.rows_per_update, **optimiser, **self.remarks()}

    def remarks(self) -> dict[str, str]:
        """Return what becomes of settings that were given and that other settings change; see `plan`."""
        return {}
