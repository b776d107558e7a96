"""What an agent keeps of the environments that it acts in: random streams and recurrent state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from rlpyt.utils.arrays import buffer_func, buffer_leaves, buffer_to


class EnvGroup:
    """The environments in charge of one agent: a slice of all the run's environments.

    Every group draws the noise of ALL environments from the same stream and keeps its own part, so that an environment
    sees the same noise however the environments are dealt to workers.

    Beside the recurrent state an agent may keep an `exploration_state`, a tensor [B, ...] or None, which is zero at the
    start of an episode too.

    `generator` is the stream: what is drawn from it beside `draw` is the same in all groups that are at one step.

    Args:
        global_B: environments of the run.
        env_ranks: global ranks of those in charge.
        generator: the run's stream for actions.
        rnn_example: recurrent state of one environment, [N, 1, H] leaves, or None.
        by_hand: whether they are stepped by hand, and no sampler has told the agent of them.
    """

    def __init__(
        self,
        global_B: int,
        env_ranks: Sequence[int],
        generator: torch.Generator,
        rnn_example: Any = None,
        by_hand: bool = False,
    ) -> None:
        self.env_ranks = list(env_ranks)
        self.global_B = global_B
        self.generator = generator
        self.by_hand = by_hand
        self._mine = None if self.env_ranks == list(range(global_B)) else torch.tensor(self.env_ranks)
        B = len(self.env_ranks)
        self.exploration_state: torch.Tensor | None = None
        self.rnn_state = buffer_func(rnn_example, lambda x: x.new_zeros(x.shape[0], B, *x.shape[2:]))

    def draw(self, draw_noise: Callable[[int, torch.Generator], torch.Tensor]) -> torch.Tensor:
        """Return noise [B, ...] for one step; `draw_noise(batch_size, generator)` is the distribution's."""
        noise = draw_noise(self.global_B, self.generator)
        return noise if self._mine is None else noise[self._mine]

    @torch.no_grad()
    def reset_one(self, idx: int) -> None:
        """Set the states of one environment to zero."""
        for state in buffer_leaves(self.rnn_state):
            state[:, idx] = 0
        if self.exploration_state is not None:
            self.exploration_state[idx] = 0

    def reset(self) -> None:
        """Set the states of all to zero."""
        self.rnn_state = buffer_func(self.rnn_state, torch.zeros_like)
        if self.exploration_state is not None:
            self.exploration_state = torch.zeros_like(self.exploration_state)

    def to_device(self, device: torch.device) -> None:
        """Move the recurrent state to where the model is."""
        self.rnn_state = buffer_to(self.rnn_state, device)

    def state_dict(self) -> dict[str, Any]:
        """Return the stream's state and those of the environments."""
        leaves = [leaf.clone() for leaf in buffer_leaves(self.rnn_state)]
        exploration = None if self.exploration_state is None else self.exploration_state.clone()
        return {"generator": self.generator.get_state(), "rnn_state": leaves, "exploration_state": exploration}

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.generator.set_state(state_dict["generator"])
        for leaf, saved in zip(buffer_leaves(self.rnn_state), state_dict["rnn_state"], strict=True):
            leaf.copy_(saved)
        if self.exploration_state is not None:
            self.exploration_state.copy_(state_dict["exploration_state"])
