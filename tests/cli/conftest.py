"""Settings of the tests of the command line."""

from tests.launching.conftest import _looks_often

__all__ = ["_looks_often"]
