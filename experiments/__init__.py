"""Studies: one file for each, with its configurations, which one script trains (docs/reference/experiments.md)."""
