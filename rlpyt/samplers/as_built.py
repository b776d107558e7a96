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
        self.why_not = self._too_large()
        """Why it cannot be set back; None if it can, as far as is known."""
        if self.why_not is None:
            state, self.why_not = env.saved_state()
            try:
                self._content = bytes(snapshot_content(state))
            except TypeError as error:
                self.why_not = self._cannot(error)

    def set_back(self) -> str | None:
        """Set the environment back; return why that cannot be done, now and later, if it cannot."""
        if self.why_not is not None:
            return self.why_not
        # A recorder counts its episodes in the names of its files: those of earlier evaluations would be overwritten.
        recorders = [layer for layer in self._env.layers if type(layer).__name__ == "RecordVideo"]
        places = [{name: x for name, x in vars(layer).items() if name != "env"} for layer in recorders]
        for layer, place in zip(recorders, places, strict=True):
            vars(layer).update(dict.fromkeys(place))  # its pictures are no part of the state
        why_not = self.look()
        for layer, place in zip(recorders, places, strict=True):
            vars(layer).update(place)
        if why_not is not None:
            return why_not
        try:
            self._env.load_state_dict(torch.load(io.BytesIO(self._content), weights_only=True))
        except Exception as error:
            self.why_not = self._cannot(error)
        for layer, place in zip(recorders, places, strict=True):
            vars(layer).update(place)
        return self.why_not

    def look(self) -> str | None:
        """Return why it cannot be set back, as it is now: what it has opened since would be lost, and opened again."""
        self.why_not = self.why_not or self._too_large() or self._env.why_no_state()
        return self.why_not

    def _too_large(self) -> str | None:
        size, n_objects = data_size(self._env.env)
        if size < LARGE and n_objects < _MANY:
            return None
        return self._cannot(f"it holds {size / 2**20:,.0f} MiB of data, {n_objects:,} objects, which is too much")

    def _cannot(self, why: object) -> str:
        return f"{self._env.name} (rank {self._env.rank}) cannot be set back to how it was built: {why}."
