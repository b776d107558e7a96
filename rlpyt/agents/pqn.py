"""The agent of PQN: a Q network without a target, which records the value of every state that it acts in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from rlpyt.agents.dqn import DqnAgent
from rlpyt.namedarraytuple import Buffer, NamedArrayTuple


class PqnAgentInfo(NamedArrayTuple):
    """Record beside every action; of a recurrent agent also its state before the row."""

    value: Buffer
    """max_a Q(s, a)."""
    prev_rnn_state: Buffer = None


@dataclass(kw_only=True, eq=False)
class PqnAgent(DqnAgent):
    """`DqnAgent` without a target network, for `PQN`; with `recurrent=True` it remembers by an LSTM.

    The paper has layer normalisation in the network, in the place of a target: `model_kwargs=dict(layer_norm=True)`.
    """

    kind: ClassVar[str] = "q and no target"
    has_targets: ClassVar[bool] = False

    def agent_info(self, output: torch.Tensor) -> NamedArrayTuple:
        """Return the value of the state, that of its best action."""
        return PqnAgentInfo(output.amax(-1))
