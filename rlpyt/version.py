"""The version, alone, so that setup.py and the run's params.json read the same string."""

__version__ = "1.0.0.dev0"
