"""Ground floor: arrays and buffers, shared memory, processes, seeds, compute settings."""

from rlpyt.utils.arrays import (
    buffer_from_example,
    buffer_func,
    buffer_leaves,
    buffer_method,
    buffer_to,
    build_array,
    get_leading_dims,
    numpify_buffer,
    torchify_buffer,
)
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.seeds import make_seed, set_seed
from rlpyt.utils.tensors import infer_leading_dims, restore_leading_dims

__all__ = [
    "ComputeSettings",
    "buffer_from_example",
    "buffer_func",
    "buffer_leaves",
    "buffer_method",
    "buffer_to",
    "build_array",
    "get_leading_dims",
    "infer_leading_dims",
    "make_seed",
    "numpify_buffer",
    "restore_leading_dims",
    "set_seed",
    "torchify_buffer",
]
