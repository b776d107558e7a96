"""Schedules: hyper-parameters that change with the step count.

A hyper-parameter of type `ScheduleLike` is a number, a schedule of this module, any callable of the step count, or a
string:

    0.1, "0.1", "const_0.1"     the same value at every step
    "lin_2.5e-4"                a straight line to zero over the run; "lin_2.5e-4_1e-5" goes to 1e-5
    "cos_3e-4"                  half a cosine to zero over the run; "cos_3e-4_1e-5" goes to 1e-5
    "exp_1e-3_1e-5"             geometric from 1e-3 to 1e-5 over the run

`as_schedule` turns each of these into a callable. Schedules are pure functions of the step, which counts the rows of
all environments and replicas. They have no state to save or to send to a worker. Before their begin and after their end
they return their end values exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Annotated, Literal, TypeGuard, cast

Schedule = Callable[[int], float]
"""A hyper-parameter as a function of the step count, as `as_schedule` returns it."""

SCHEDULED = "may be a schedule"
"""Mark of an annotation whose setting may change with the step count."""

ScheduleLike = Annotated[float | str | Schedule, SCHEDULED]
"""What `as_schedule` accepts; a field of this type takes a schedule."""

CountLike = Annotated[int | float | str | Schedule, SCHEDULED]
"""The same of something that is counted; what a schedule gives is rounded."""


@dataclass(frozen=True)
class Constant:
    """Schedule with the same value at every step."""

    value: float

    def __post_init__(self) -> None:
        _check_numbers("Constant", finite=False, value=self.value)

    def __call__(self, step: int) -> float:
        """Return the value."""
        return float(self.value)


@dataclass(frozen=True)
class Linear:
    """Straight line from start at step `begin` to end at step `begin + steps`."""

    start: float
    end: float = 0.0
    steps: float | None = None
    """Length of the line in steps; None lasts until the end of the run."""
    begin: float = 0

    def __post_init__(self) -> None:
        _check_numbers("Linear", start=self.start, end=self.end)
        _check_numbers("Linear", least=0, begin=self.begin)
        _check_steps("Linear", self.steps)

    def __call__(self, step: int) -> float:
        """Return (1 - f) * start + f * end, with f = (step - begin) / steps clipped to [0, 1]."""
        return _mix(self.start, self.end, _fraction(step - self.begin, self.steps, self))


@dataclass(frozen=True)
class Cosine:
    """Straight line from 0 to start over warmup_steps, then half a cosine to end at step `steps`."""

    start: float
    end: float = 0.0
    steps: float | None = None
    """Length in steps, with the warm-up; None is the whole run."""
    warmup_steps: float = 0

    def __post_init__(self) -> None:
        _check_numbers("Cosine", start=self.start, end=self.end)
        _check_numbers("Cosine", least=0, warmup_steps=self.warmup_steps)
        _check_steps("Cosine", self.steps)
        if self.steps is not None and self.warmup_steps >= self.steps:
            raise ValueError(
                f"Cosine: got warmup_steps={self.warmup_steps} and steps={self.steps}; expected "
                "fewer of the first, as steps counts the warm-up too. Shorten the warm-up."
            )

    def __call__(self, step: int) -> float:
        """Return end + (start - end) * (1 + cos(pi * f)) / 2 once the warm-up is over."""
        step = max(step, 0)
        if step < self.warmup_steps:
            return _mix(0.0, self.start, step / self.warmup_steps)
        decay_steps = None if self.steps is None else self.steps - self.warmup_steps
        fraction = _fraction(step - self.warmup_steps, decay_steps, self)
        return _mix(self.start, self.end, (1.0 - math.cos(math.pi * fraction)) / 2.0)


@dataclass(frozen=True)
class Exponential:
    """Geometric schedule from start to end: in equal times the value changes by equal factors."""

    start: float
    end: float
    steps: float | None = None
    """Length in steps; None is the whole run."""

    def __post_init__(self) -> None:
        _check_numbers("Exponential", start=self.start, end=self.end)
        if not (self.start > 0 and self.end > 0):
            raise ValueError(
                f"Exponential: got start={self.start} and end={self.end}; expected both above 0, "
                "which no factor leads to. Give a small end, or use Linear."
            )
        _check_steps("Exponential", self.steps)

    def __call__(self, step: int) -> float:
        """Return start^(1 - f) * end^f, with f = step / steps clipped to [0, 1]."""
        fraction = _fraction(step, self.steps, self)
        return _clamp(self.start ** (1.0 - fraction) * self.end**fraction, self.start, self.end)


@dataclass(frozen=True)
class Piecewise:
    """Given values at given steps, with straight lines between them, or each value kept until the next step."""

    boundaries: Sequence[float]
    """Increasing steps. The first value also holds before them, and the last value after them."""
    values: Sequence[float]
    """One for each boundary."""
    interpolation: Literal["linear", "step"] = "linear"

    def __post_init__(self) -> None:
        for boundary in self.boundaries:
            _check_numbers("Piecewise", least=0, boundaries=boundary)
        for value in self.values:
            _check_numbers("Piecewise", values=value)
        if len(self.boundaries) != len(self.values) or len(self.values) == 0:
            raise ValueError(
                f"Piecewise: got {len(self.boundaries)} boundaries and {len(self.values)} values; "
                "expected one value for each boundary, and one at least. The value to begin with "
                "needs a boundary as well, at 0."
            )
        if any(self.boundaries[i] >= self.boundaries[i + 1] for i in range(len(self.values) - 1)):
            raise ValueError(
                f"Piecewise: got boundaries {self.boundaries}; expected increasing steps. Sort "
                "them together with their values."
            )
        if self.interpolation not in ("linear", "step"):
            raise ValueError(
                f"Piecewise: got interpolation {self.interpolation!r}; expected 'linear' (lines "
                "between the values) or 'step' (each value held until the next). Choose one."
            )

    def __call__(self, step: int) -> float:
        """Return the value of the last boundary before the step, or a point on the line to the next boundary."""
        passed = sum(boundary <= step for boundary in self.boundaries)
        last = max(passed - 1, 0)
        if self.interpolation == "step" or passed in (0, len(self.values)):
            return float(self.values[last])
        length = self.boundaries[passed] - self.boundaries[last]
        fraction = _fraction(step - self.boundaries[last], length, self)
        return _mix(self.values[last], self.values[passed], fraction)


_KINDS: dict[str, tuple[Callable[..., Schedule], tuple[int, ...]]] = {
    "const": (Constant, (1,)),
    "lin": (Linear, (1, 2)),
    "cos": (Cosine, (1, 2)),
    "exp": (Exponential, (2,)),
}
"""First word of a string -> class, and how many numbers may follow."""

_ACCEPTED = (
    "a number, a schedule object, a callable of the step count, or a string among '0.1', "
    "'const_0.1', 'lin_START', 'lin_START_END', 'cos_START', 'cos_START_END', 'exp_START_END'"
)


def as_schedule(value: ScheduleLike, n_steps: float | None = None, name: str = "") -> Schedule:
    """Return a hyper-parameter as a callable of the step count.

    Args:
        value: a number, a schedule, a callable of the step count, or a string (see the module).
        n_steps: length of the run in steps, for schedules without a length of their own.
        name: name of the hyper-parameter, the first word of messages.

    Returns:
        A callable from the step count to a float. A given callable is returned unchanged.

    Raises:
        ValueError: if the value is NaN or a string that is no schedule; if neither schedule nor run has a length; or if
            the schedule begins only after the run.
        TypeError: if the value has another type; bool is refused.
    """
    try:
        if n_steps is not None:
            _check_numbers("as_schedule", least=1, n_steps=n_steps)
        return _bind(_convert(value), n_steps)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name or 'schedule'}: {error}") from None


def _convert(value: object) -> Schedule:
    """Return a value as a callable, not yet bound to the length of a run."""
    if isinstance(value, str):
        return _parse(value)
    if callable(value) and not isinstance(value, type):
        return cast(Schedule, value)
    if _is_number(value):
        return Constant(float(value))
    raise TypeError(
        f"got {value!r} of type {type(value).__name__}; expected {_ACCEPTED}. "
        "Convert it with float(), or construct the class."
    )


def _parse(text: str) -> Schedule:
    """Return the schedule of a string."""
    kind, *words = text.split("_") if "_" in text else ("const", text)
    make, counts = _KINDS.get(kind, (Constant, ()))
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if len(numbers) not in counts:
        raise ValueError(
            f"got the string {text!r}; expected {_ACCEPTED}. Correct the string, or construct the schedule object."
        )
    return make(*numbers)


def _bind(schedule: Schedule, n_steps: float | None) -> Schedule:
    """Return the schedule; without a length of its own it lasts until the end of the run."""
    if not isinstance(schedule, (Linear, Cosine, Exponential)) or schedule.steps is not None:
        return schedule
    begin = schedule.begin if isinstance(schedule, Linear) else 0
    if n_steps is None or begin >= n_steps:
        raise ValueError(
            f"got {schedule}, which lasts until the end of the run, in a run of {n_steps} steps; "
            "expected a run that ends after the schedule begins. Give n_steps, or the schedule its steps."
        )
    return replace(schedule, steps=n_steps - begin)


def _fraction(passed: float, steps: float | None, schedule: object) -> float:
    """Return the fraction of a length that has passed, clipped to [0, 1]."""
    if steps is None:
        raise ValueError(
            f"schedule called: got {schedule}, whose steps=None stands for the whole run; expected "
            "a length. Bind it first: as_schedule(schedule, n_steps)."
        )
    return min(max(passed / steps, 0.0), 1.0)


def _mix(start: float, end: float, fraction: float) -> float:
    """Return the point on a line, exact at both ends."""
    return _clamp((1.0 - fraction) * start + fraction * end, start, end)


def _clamp(value: float, start: float, end: float) -> float:
    """Return the value clipped to two ends, because rounding may overshoot them."""
    return float(min(max(value, min(start, end)), max(start, end)))


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a Python or numpy number, and no bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_numbers(what: str, *, least: float = -math.inf, finite: bool = True, **numbers: float) -> None:
    """Refuse values that are no numbers, bool, NaN, numbers below `least`, and infinities if `finite`."""
    for name, number in numbers.items():
        if not _is_number(number):
            raise TypeError(
                f"{what}: got {name}={number!r} of type {type(number).__name__}; expected a "
                "number. Convert it with float()."
            )
        if math.isnan(number) or number < least or (finite and math.isinf(number)):
            kind = "finite number" if finite else "number"
            bound = "" if least == -math.inf else f" of at least {least:g}"
            raise ValueError(f"{what}: got {name}={number!r}; expected a {kind}{bound}. Correct the setting.")


def _check_steps(what: str, steps: float | None) -> None:
    """Refuse a length below one step; None is no length yet."""
    if steps is not None:
        _check_numbers(what, least=1, steps=steps)
