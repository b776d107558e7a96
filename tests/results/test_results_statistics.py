"""Statistics of scores against rliable 1.2.0 (scipy 1.17, arch 7.2) and against hand numbers.

Given to rliable itself were scores that it publishes, and a fixed matrix of their shape (10 runs x 26 games) with ties.
Its bootstrap drew from `numpy.random` after the seeds below.

tests/data/atari_100k.json has the first 5 of 100 runs of SPR and DrQ(eps) from rliable's data of Atari 100k (Agarwal et
al. 2021), as the repository of IRIS keeps them.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlpyt.results import (
    human_normalized_score,
    interquartile_mean,
    mean_interval,
    mean_score,
    median_score,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap_interval,
)


def assert_as_rliable(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


def matrices() -> tuple[np.ndarray, np.ndarray]:
    """The matrices that rliable was given: rounded, so that no other numpy draws other digits."""
    random = np.random.RandomState(20211)
    x = np.round(random.lognormal(-0.5, 0.8, (10, 26)), 3)
    y = np.round(random.lognormal(-0.7, 0.9, (7, 26)), 3)
    y[:3, 0] = x[:3, 0]  # ties
    y[:, 5] = y[0, 5]
    return x, y


def published(algorithm: str) -> np.ndarray:
    """Human-normalised scores that rliable publishes, runs x games."""
    scores = json.loads((Path(__file__).parents[1] / "data" / "atari_100k.json").read_text())[algorithm]
    return np.transpose([[human_normalized_score(game, x) for x in runs] for game, runs in scores.items()])


@pytest.mark.parametrize(
    ("algorithm", "point", "low", "high"),
    [
        (
            "SPR",
            [0.37528318177715025, 0.7451148046872429, 0.4510106682501882, 0.5553578939162049],
            [0.33614060707744275, 0.6056675740382778, 0.33340284180200364, 0.5283645799640767],
            [0.4259283057046256, 0.9299858731052232, 0.4954342789276798, 0.5817565899208365],
        ),
        (
            "DrQ(eps)",
            [0.30840137572013254, 0.5123838191421429, 0.3094272398638662, 0.611974065462295],
            [0.2725639218067866, 0.45845272398054104, 0.22974957704966228, 0.5888691920965095],
            [0.34333217316981807, 0.5645936940897389, 0.3486095624506175, 0.6380333587681205],
        ),
    ],
)
def test_published_scores_give_the_numbers_of_rliable(algorithm, point, low, high):
    found = stratified_bootstrap_interval(
        lambda s: [interquartile_mean(s), mean_score(s), median_score(s), optimality_gap(s)],
        published(algorithm), repetitions=500, seed=11,
    )  # fmt: skip
    assert_as_rliable(found, [point, low, high])


def test_improvement_of_published_scores_is_that_of_rliable():
    found = stratified_bootstrap_interval(
        probability_of_improvement, published("SPR"), published("DrQ(eps)"), repetitions=500, seed=12
    )
    assert_as_rliable(found, [0.6507692307692307, 0.5961153846153846, 0.7104423076923077])


def test_points_equal_those_of_rliable():
    x, y = matrices()
    same = x.copy()
    same[:, 1:] *= 1.25
    ours = [
        interquartile_mean(x), interquartile_mean(y), mean_score(x), median_score(x), optimality_gap(x),
        optimality_gap(y, goal=0.5), probability_of_improvement(x, y), probability_of_improvement(y, x),
        probability_of_improvement(same, x),
    ]  # fmt: skip
    theirs = [
        0.6656076923076922, 0.5540108695652173, 0.8679769230769231, 0.79865, 0.36117692307692306,
        0.10183516483516486, 0.5664835164835165, 0.4335164835164835, 0.6115384615384616,
    ]  # fmt: skip
    assert_as_rliable(ours, theirs)


def test_intervals_and_profiles_equal_those_of_rliable():
    x, y = matrices()
    found = stratified_bootstrap_interval(probability_of_improvement, x, y, repetitions=500, seed=8)
    assert_as_rliable(found[1:], [0.5058997252747253, 0.6229601648351648])
    thresholds = np.linspace(0, 3, 7)
    found = stratified_bootstrap_interval(lambda s: performance_profile(s, thresholds), x, repetitions=300, seed=9)
    point = [1.0, 0.6, 0.3, 0.16153846153846155, 0.05, 0.03461538461538462, 0.03076923076923077]
    low = [1.0, 0.5384615384615384, 0.24615384615384617, 0.12105769230769234]
    low += [0.026923076923076925, 0.015384615384615385, 0.011538461538461539]
    high = [1.0, 0.6615384615384615, 0.3576923076923077, 0.20586538461538453]
    high += [0.07692307692307693, 0.06153846153846154, 0.05]
    assert_as_rliable(found, [point, low, high])


def test_intervals_over_curves_equal_those_of_rliable():
    curves = np.round(np.random.RandomState(3).normal(0, 1, (4, 3, 5)).cumsum(2), 3)
    found = stratified_bootstrap_interval(
        lambda s: [interquartile_mean(s[..., i]) for i in range(5)], curves, confidence=0.9, repetitions=200, seed=10
    )
    theirs = [
        [-0.7275, -0.525666666667, -0.588666666667, -0.930833333333, -1.578],
        [-1.039, -1.014666666667, -1.5258, -2.192958333333, -2.7983],
        [-0.081, 0.44805, 0.68015, 0.387666666667, -0.156791666667],
    ]
    assert_as_rliable(found, theirs)


def test_hand_numbers():
    assert interquartile_mean([1, 2, 3, 100]) == 2.5
    assert interquartile_mean([[7.0]]) == 7.0
    assert interquartile_mean([0, 1, 2, 3, 4]) == 2.0
    assert probability_of_improvement([[1], [3]], [[2], [3]]) == (0 + 0 + 1 + 0.5) / 4
    assert performance_profile([[0, 1], [2, 3]], [0, 0.5, 3]).tolist() == [0.75, 0.75, 0.0]
    assert optimality_gap([[0.5, 3.0]]) == 0.25


def test_mean_interval_leaves_out_what_is_missing():
    nan = np.nan
    found = mean_interval([[1.0, 1.0, nan, nan], [3.0, 2.0, 5.0, nan], [5.0, nan, nan, nan]])
    np.testing.assert_allclose(found.point, [3.0, 1.5, 5.0, nan])
    half = [4.302653 * 2 / np.sqrt(3), 12.706205 * 0.5, nan, nan]
    np.testing.assert_allclose(found.high - found.point, half, rtol=1e-6)
    np.testing.assert_allclose(found.point - found.low, half, rtol=1e-6)
    assert mean_interval([[1.0], [np.inf]]).point == np.inf  # a run that blew up is not left out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: interquartile_mean([1.0, np.nan]), "got 1 scores that are not finite"),
        (lambda: mean_score([]), "got no score"),
        (lambda: median_score([1.0, 2.0]), r"shape \(2,\); expected runs x tasks"),
        (lambda: probability_of_improvement([[1, 2]], [[1]]), "got 2 and 1 tasks"),
        (lambda: stratified_bootstrap_interval(mean_score, [[1.0]], confidence=95), "expected a confidence between"),
        (lambda: mean_interval([[1.0], [2.0]], confidence=95), "got confidence=95; expected one between 0 and 1"),
    ],
)
def test_bad_scores_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
