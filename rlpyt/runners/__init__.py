"""Runners: the loop of training, its evaluation and its log."""

from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlBase, MinibatchRlEval, TrainingDiverged

__all__ = ["MinibatchRl", "MinibatchRlBase", "MinibatchRlEval", "TrainingDiverged"]
