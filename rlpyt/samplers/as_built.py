"""States that evaluation environments are set back to: how they were when they were built."""

from __future__ import annotations

import io

import torch

from rlpyt.envs import EnvAdapter
from rlpyt.envs.making import LARGE, data_size
from rlpyt.logging.snapshots import snapshot_content

_MANY = 2**12  # objects, such as the rows of a table of lists: to read and set these takes half a second


class AsBuilt:
    """State of an environment that was just built, which it is set back to.

    It is kept as the content of a snapshot and read anew every time. So later steps do not change it, and a
    `load_state_dict` of the user's gets what it would get from a checkpoint.

    Args:
        env: just built, and never reset.
    """

    def __init__(self, env: EnvAdapter) -> None:
        self._env, self._content = env, b""
        self.why_not = self._why_too_large()
        """Why it cannot be set back; None if it can, as far as is known."""
        if self.why_not is None:
            state, self.why_not = env.saved_state()
            try:
                self._content = bytes(snapshot_content(state))
            except TypeError as error:
                self.why_not = self._cannot(error)

    def set_back(self) -> str | None:
        """Set the environment back; return why that cannot be done, now and later, if it cannot."""
        self.why_not = self.why_not or self._why_too_large()
        if self.why_not is not None:
            return self.why_not
        # A recorder counts its episodes in the names of its files: those of earlier evaluations would be overwritten.
        recorders = [(x, dict(vars(x))) for x in self._env.layers if type(x).__name__ == "RecordVideo"]
        try:
            self._env.load_state_dict(torch.load(io.BytesIO(self._content), weights_only=True))
        except Exception as error:  # it may have opened something since, which would be lost
            self.why_not = self._cannot(error)
        for recorder, attributes in recorders:
            for name, value in attributes.items():
                setattr(recorder, name, value)
        return self.why_not

    def _why_too_large(self) -> str | None:
        size, n_objects = data_size(self._env.env)
        if size < LARGE and n_objects < _MANY:
            return None
        return self._cannot(f"it holds {size / 2**20:,.0f} MiB of data, {n_objects:,} objects, which is too much")

    def _cannot(self, why: object) -> str:
        return f"{self._env.name} (rank {self._env.rank}) cannot be set back to how it was built: {why}."
