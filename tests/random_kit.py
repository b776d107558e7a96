"""Random rows of a space, as models take them, and the stream for other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlpyt.testing.expect import random_batch
from rlpyt.utils.arrays import torchify_buffer


def seeded(seed: int = 0) -> torch.Generator:
    """Return a new stream of the CPU."""
    return torch.Generator().manual_seed(seed)


def random_rows(space: Any, *lead: int, seed: int = 0) -> Any:
    """Return different observations or actions [*lead, ...], the same for the same seed."""
    return torchify_buffer(random_batch(space, lead, np.random.default_rng(seed)))
