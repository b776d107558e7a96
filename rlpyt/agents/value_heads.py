"""The setting of agents that says how the outputs of their networks stand for values."""

from __future__ import annotations

from dataclasses import dataclass

from rlpyt.functional import ValueHead, as_value_head
from rlpyt.settings import Settings


@dataclass(kw_only=True, eq=False)
class ValueHeadSettings(Settings):
    """Setting of an agent whose networks give values of states or actions, which `values` reads."""

    value_head: ValueHead | str = "expectation"
    """How a network's outputs stand for a value: as the number itself ("expectation"), or as the mean of a
    distribution, such as "hl_gauss:-10,10" with the range of the values, or `HLGauss(V_min=-10, V_max=10)`."""

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        self.values = as_value_head(self.value_head, f"{type(self).__name__}: value_head")
