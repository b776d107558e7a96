"""Statistics of scores over seeds and tasks.

A matrix of scores has a row for each run and a column for each task. The statistics and the bootstrap are those of
Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlpyt.utils.packages import optional_package

Array: TypeAlias = NDArray[np.float64]


class Interval(NamedTuple):
    """Estimate of a statistic with the two ends of its confidence interval."""

    point: Array
    low: Array
    high: Array


def interquartile_mean(scores: ArrayLike) -> float:
    """Return the mean of the middle half of all scores, runs and tasks pooled.

    A quarter of the scores is left out at each end, rounded down.

    Args:
        scores: a matrix of runs x tasks, or any array.
    """
    ordered = np.sort(_checked("interquartile_mean", scores), axis=None)
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean())


def mean_score(scores: ArrayLike) -> float:
    """Return the mean of all scores."""
    return float(_checked("mean_score", scores).mean())


def median_score(scores: ArrayLike) -> float:
    """Return the median over tasks of the mean over runs."""
    return float(np.median(_checked_matrix("median_score", scores).mean(axis=0)))


def optimality_gap(scores: ArrayLike, goal: float = 1.0) -> float:
    """Return how far the scores fall short of a goal on average; scores over the goal count as the goal.

    Args:
        scores: a matrix of runs x tasks.
        goal: the score that is good enough, such as 1 for human-normalised scores.
    """
    return float(goal - np.minimum(_checked("optimality_gap", scores), goal).mean())


def probability_of_improvement(scores: ArrayLike, others: ArrayLike) -> float:
    """Return the probability that a run scores higher than another method's run, as a mean over tasks.

    A tie counts as one half. This is the Mann-Whitney statistic over the number of pairs.

    Args:
        scores: a matrix of runs x tasks.
        others: the other method's matrix, with the same tasks and any number of runs.
    """
    x = _checked_matrix("probability_of_improvement", scores)
    y = _checked_matrix("probability_of_improvement", others)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"probability_of_improvement: got {x.shape[1]} and {y.shape[1]} tasks; expected the same tasks in the same "
            "order. Leave out the tasks that only one method has."
        )
    higher, tie = x[:, None] > y[None], x[:, None] == y[None]
    return float((higher + 0.5 * tie).mean(axis=(0, 1)).mean())


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> Array:
    """Return for each threshold the fraction of scores above it, runs and tasks pooled.

    Args:
        scores: a matrix of runs x tasks.
        thresholds: one dimension.
    """
    values = _checked("performance_profile", scores).reshape(-1, 1)
    return np.asarray((values > np.asarray(thresholds, dtype=np.float64)).mean(axis=0))


def stratified_bootstrap_interval(
    statistic: Callable[..., ArrayLike],
    *scores: ArrayLike,
    confidence: float = 0.95,
    repetitions: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return a statistic and its percentile interval over bootstrap samples.

    Each sample draws runs with replacement, for each task on its own, so that every task keeps its number of runs.
    The indices are those that rliable 1.2 draws after `numpy.random.seed(seed)`, so that its numbers come out.

    Args:
        statistic: function of the matrices, which returns a number or an array of one dimension.
        scores: one matrix of runs x tasks, or several, which are sampled independently; later dimensions are allowed.
        confidence: probability of the interval.
        repetitions: number of samples; papers take up to 50,000.
        seed: of the draws.
    """
    if not 0 < confidence < 1 or repetitions < 1:
        raise ValueError(
            f"stratified_bootstrap_interval: got confidence={confidence}, repetitions={repetitions}; expected a "
            "confidence between 0 and 1, such as 0.95, and one repetition or more."
        )
    matrices = [_checked_matrix("stratified_bootstrap_interval", matrix) for matrix in scores]
    places = [np.ogrid[tuple(slice(n) for n in matrix.shape)][1:] for matrix in matrices]
    random = np.random.RandomState(seed)
    samples = []
    for _ in range(repetitions):
        drawn = [random.choice(len(matrix), matrix.shape) for matrix in matrices]
        sample = [matrix[(rows, *rest)] for matrix, rows, rest in zip(matrices, drawn, places, strict=True)]
        samples.append(np.asarray(statistic(*sample), dtype=np.float64))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(np.stack(samples), [tail, 100 - tail], axis=0)
    return Interval(np.asarray(statistic(*matrices), dtype=np.float64), np.asarray(low), np.asarray(high))


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the mean over runs and its Student t interval, column by column.

    The interval is that of a mean of normal values: mean +- t * s / sqrt(n), where s has the divisor n - 1. It is
    right for few runs, where a bootstrap is too narrow.

    Args:
        values: runs x columns; nan where a run has no value, which is left out; an infinite one is not.
        confidence: probability of the interval.

    Returns:
        Arrays with an element for each column: nan without a value; low and high are nan for one run.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"mean_interval: got confidence={confidence}; expected one between 0 and 1, such as 0.95.")
    student = optional_package("scipy.special", "mean_interval", "plot")
    array = np.atleast_2d(np.asarray(values, dtype=np.float64))
    known = ~np.isnan(array)
    n = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, array, 0.0).sum(axis=0) / n
        squares = np.where(known, (array - mean) ** 2, 0.0).sum(axis=0)
        error = np.sqrt(squares / (n - 1) / n)
    width = error * student.stdtrit(n - 1, (1 + confidence) / 2)
    return Interval(mean, mean - width, mean + width)


def _checked(who: str, scores: ArrayLike) -> Array:
    array = np.asarray(scores, dtype=np.float64)
    if not array.size or not np.isfinite(array).all():
        came = "no score" if not array.size else f"{int((~np.isfinite(array)).sum())} scores that are not finite"
        raise ValueError(f"{who}: got {came}; expected finite scores. Leave out runs without a score, and say so.")
    return array


def _checked_matrix(who: str, scores: ArrayLike) -> Array:
    array = _checked(who, scores)
    if array.ndim < 2:
        raise ValueError(
            f"{who}: got scores of shape {array.shape}; expected runs x tasks. Write scores[:, None] for one task."
        )
    return array
