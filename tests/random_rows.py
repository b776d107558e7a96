"""Random rows of a space, as models take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.spaces import random_value
from rlpyt.utils.arrays import buffer_from_example, torchify_buffer


def random_rows(space: Any, *lead: int, seed: int = 0) -> Any:
    """Return different observations or actions [*lead, ...], the same for the same seed."""
    rng = np.random.default_rng(seed)
    rows = torchify_buffer(buffer_from_example(random_value(space, rng), lead))
    for index in np.ndindex(*lead):
        rows[index] = torchify_buffer(random_value(space, rng))
    return rows
