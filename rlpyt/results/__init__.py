"""Results of runs: reading a grid of them, statistics over seeds and tasks, pictures, and a page of a study."""

from rlpyt.results.atari import ATARI_SCORES, atari_game, human_normalized_score
from rlpyt.results.episode_video import EpisodeVideo
from rlpyt.results.groups import RunGroup, group_runs
from rlpyt.results.page import write_page
from rlpyt.results.pictures import plot_curves, plot_improvement, plot_profiles, plot_scores, plot_study
from rlpyt.results.runs import Curves, RunResult, aligned_curves, find_runs
from rlpyt.results.statistics import (
    Interval,
    interquartile_mean,
    mean_interval,
    mean_score,
    median_score,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap_interval,
)
from rlpyt.results.study import Study, read_study

__all__ = [
    "find_runs",
    "RunResult",
    "group_runs",
    "RunGroup",
    "read_study",
    "Study",
    "aligned_curves",
    "Curves",
    "EpisodeVideo",
    "mean_interval",
    "Interval",
    "interquartile_mean",
    "mean_score",
    "median_score",
    "optimality_gap",
    "probability_of_improvement",
    "performance_profile",
    "stratified_bootstrap_interval",
    "ATARI_SCORES",
    "atari_game",
    "human_normalized_score",
    "plot_study",
    "plot_curves",
    "plot_scores",
    "plot_improvement",
    "plot_profiles",
    "write_page",
]
