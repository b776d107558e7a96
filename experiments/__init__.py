"""Studies: one file for each, with its configurations; one script trains any of them (docs/experiments.md)."""
