"""Settings of the whole suite."""

from __future__ import annotations

import torch

# Two pytest processes share two cores: a team of threads beside a busy core is many times slower than one thread.
torch.set_num_threads(1)
