"""Interfaces of evaluations: their results, and a process that makes them beside the run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from rlpyt.old_rlpyt import PAGE
from rlpyt.types import TrajInfo


@dataclass(frozen=True)
class EvalResult:
    """Result of an evaluation, as attributes."""

    traj_infos: list[TrajInfo]
    """Whole episodes only, as many of every environment as its quota says."""
    steps: int
    """Environment steps taken."""
    unfinished: int
    """Episodes of the quota that `eval_max_steps` cut off: not in `traj_infos`."""

    @staticmethod
    def merge(results: Sequence[EvalResult]) -> EvalResult:
        """Return the evaluations of several processes as one."""
        if len(results) == 1:
            return results[0]
        return EvalResult(
            [info for result in results for info in result.traj_infos],
            sum(result.steps for result in results),
            sum(result.unfinished for result in results),
        )

    def _is_no_list(self, *_: object) -> NoReturn:
        raise TypeError(
            "An EvalResult was unpacked, or taken for a list, as what rlpyt 0.1 returned; expected its attributes "
            f"traj_infos, steps and unfinished. Write result.traj_infos. See {PAGE}."
        )

    __iter__ = __len__ = __getitem__ = _is_no_list


class EvaluatorBeside(ABC):
    """Evaluator in a process of its own, which works while the run goes on; at most one evaluation is under way."""

    @abstractmethod
    def start(self, itr: int, deterministic: bool = False) -> None:
        """Begin the evaluation of an iteration with the agent of now; its result is that of `evaluate_agent`."""

    @abstractmethod
    def result(self, wait: bool) -> tuple[EvalResult, float] | None:
        """Return the result of the evaluation under way and its seconds; None if it is not done.

        `wait` waits for it, for half a second at most.

        Raises:
            RuntimeError: if the evaluation has failed, or its process is dead or stands still.
        """

    @abstractmethod
    def shutdown(self) -> None:
        """End the process, also in the middle of an evaluation; may be called again."""
