"""Ground floor: arrays and buffers, shared memory, processes, seeds, compute settings."""
