"""Replay whose only copy is on a device, for rows of simulators that never leave it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import torch

from rlpyt.core import Replay
from rlpyt.namedarraytuple import Buffer
from rlpyt.replays.interface import SamplesToBuffer
from rlpyt.replays.reading import SamplesFromReplay
from rlpyt.types import AgentInputs, Places, StateDict
from rlpyt.utils.arrays import (
    broadcast_mask,
    buffer_from_example,
    buffer_func,
    buffer_leaves,
    buffer_to,
    torchify_buffer,
)

_WIDTH = 256  # numbers in a block of the sum tree
_LEAST_PRIORITY = 1e-6  # so that every row can be drawn again


class DeviceSumTree:
    """Non-negative numbers on a device with the sums of their blocks, to draw in proportion to them without a wait.

    Args:
        size: how many; 0 at first.
        device: where they are.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self._blocks = torch.zeros(-(-size // _WIDTH), _WIDTH, dtype=torch.float64, device=device)
        self._sums = self._blocks.sum(1)
        self.values = self._blocks.view(-1)[:size]
        """The numbers, [size] float64, to read."""

    def set(self, idxs: torch.Tensor, values: torch.Tensor) -> None:
        """Set numbers [M] at indexes [M]. Where an index comes twice, one of its values stays."""
        self.values[idxs] = values
        blocks = idxs // _WIDTH
        self._sums[blocks] = self._blocks[blocks].sum(1)

    def set_all(self, values: torch.Tensor) -> None:
        """Set all numbers, [size]."""
        self.values.copy_(values)
        self._sums = self._blocks.sum(1)

    @property
    def total(self) -> torch.Tensor:
        """Sum of all numbers, [] float64."""
        return self._sums.sum()

    def draw(self, size: int, generator: torch.Generator) -> torch.Tensor:
        """Return indexes [size], drawn in proportion to their numbers, with replacement."""
        running = self._sums.cumsum(0)
        u = torch.rand(size, dtype=torch.float64, generator=generator, device=generator.device)
        mass = u * running[-1]
        block = torch.searchsorted(running, mass, right=True).clamp_(max=len(running) - 1)
        numbers = self._blocks[block]
        left = mass - running[block] + self._sums[block]
        place = torch.searchsorted(numbers.cumsum(1), left[:, None], right=True).squeeze(1)
        # Rounding may lead past the last number, or to a 0 before it: then the largest of its block is as good.
        found = place.clamp(max=_WIDTH - 1)
        is_zero = numbers.gather(1, found[:, None]).squeeze(1) == 0
        return block * _WIDTH + torch.where(is_zero, numbers.argmax(1), found)


class _Rows(NamedTuple):
    """Ring buffers [T, B, ...] on the device."""

    observation: Buffer
    action: Buffer
    reward: Buffer
    terminated: Buffer
    truncated: Buffer
    valid: Buffer
    """Whether what the row led to is known."""
    final: Buffer
    """int64, number of the final observation of a truncated row, counted from the first one ever kept."""


class DeviceReplay(Replay):
    """Replay of n-step transitions on a device, of rows without final rows, drawn uniformly or by priorities.

    Final observations of truncated episodes are in a memory of their own, which grows with their number. Drawing and
    priorities wait for nothing; to append waits once, for that number.

    Args:
        example: one row, as numpy, without leading dimensions.
        T: time steps to hold.
        B: environments.
        device: of the rows.
        null_action: before the first row of an episode, in row form.
        n_step_return: rewards in a return.
        discount: gamma in [0, 1]; may be set at any time.
        generator: random stream to draw from, of the device.
        alpha: exponent of the priorities; None draws uniformly.
        beta: exponent of the importance weights.
    """

    on_device = True
    divides_by_largest = True
    """Whether importance weights are divided by their largest; see `rlpyt.replays.Index`."""

    def __init__(
        self,
        example: SamplesToBuffer,
        T: int,
        B: int,
        device: torch.device,
        null_action: Buffer,
        *,
        n_step_return: int,
        discount: float,
        generator: torch.Generator,
        alpha: float | None = None,
        beta: float = 0.4,
    ) -> None:
        self.T, self.B, self.device = T, B, device
        self.n_step_return, self.discount, self.alpha, self.beta = n_step_return, discount, alpha, beta
        self.generator = generator
        flag = np.bool_(False)
        row = _Rows(example.observation, example.action, np.float32(0), flag, flag, flag, np.int64(0))
        self._rows: _Rows = buffer_to(torchify_buffer(buffer_from_example(row, (T, B))), device)
        self._finals: Buffer = buffer_to(torchify_buffer(buffer_from_example(example.observation, 1)), device)
        self._null_action = buffer_leaves(buffer_to(torchify_buffer(null_action), device))
        self.written = 0
        self._n_finals, self._live = 0, 0
        self._chunks = deque[tuple[int, int]]()  # by append: steps written after it, and final observations in it
        self._priorities = torch.zeros(T * B, dtype=torch.float64, device=device) if alpha is not None else None
        self._tree = DeviceSumTree(T * B, device) if alpha is not None else None
        self._largest = torch.ones((), dtype=torch.float64, device=device)
        self._is_loaded = False

    # ---- what it is ----

    @property
    def takes_priorities(self) -> bool:
        """Whether `update_priorities` changes what is drawn."""
        return self._tree is not None

    @property
    def size(self) -> int:
        """Rows that it can hold, all environments counted."""
        return self.T * self.B

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, filled or not, and of final observations so far."""
        return sum(x.numel() * x.element_size() for x in buffer_leaves((tuple(self._rows), self._finals)))

    @property
    def least_rows(self) -> int:
        """Rows of each environment that must be held before anything can be drawn."""
        return 2 + self.n_step_return

    interval = 1
    n_priorities_dropped = 0

    def set_hyper(
        self,
        *,
        discount: float | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        eta: float | None = None,
    ) -> None:
        """Set hyper-parameters at any time; see `rlpyt.core.Replay.set_hyper`."""
        self.discount = self.discount if discount is None else discount
        self.beta = self.beta if beta is None else beta
        if self._tree is not None and self._priorities is not None and alpha is not None and alpha != self.alpha:
            self.alpha = alpha
            self._tree.set_all(self._raised(self._priorities))

    def _raised(self, priorities: torch.Tensor) -> torch.Tensor:
        assert self.alpha is not None
        return priorities**self.alpha * (priorities > 0)

    @property
    def _reach(self) -> tuple[int, int]:
        """The first time step that can be drawn, of which the row before is held, and the one after the last."""
        first = max(0, self.written - self.T) + 1
        return first, max(first, self.written - self.n_step_return)

    # ---- writing ----

    @torch.no_grad()
    def append_samples(self, samples: SamplesToBuffer, td_abs_error: Buffer = None) -> None:
        """Write [t, B] rows after the newest, over the oldest ones when full."""
        t = len(samples.reward)
        if t + self.least_rows > self.T:
            raise ValueError(
                f"Appending to a replay: got {t} rows of each environment, and it holds {self.T}; expected it to hold "
                f"{t + self.least_rows} at least. Raise replay_size to {(t + self.least_rows) * self.B} or more."
            )
        rows, at = self._rows, torch.arange(self.written, self.written + t, device=self.device) % self.T
        if self._is_loaded:
            self._end_newest(samples)
        for field in ("observation", "action", "reward", "terminated", "truncated"):
            for dest, leaf in zip(buffer_leaves(getattr(rows, field)), buffer_leaves(samples[field]), strict=True):
                dest[at] = leaf.to(dest.dtype)
        rows.valid[at] = True
        self.written += t
        t_cut, b_cut = (samples.truncated & ~samples.terminated).nonzero().unbind(1)
        self._keep_finals(at[t_cut], b_cut, buffer_func(samples.final_observation, lambda x: x[t_cut, b_cut]))
        if self._priorities is not None and self._tree is not None:
            of_time = self._priorities.view(self.T, self.B)
            ages = (self.written - 1 - torch.arange(self.T, device=self.device)) % self.T
            first, end = self._reach
            reach = (ages <= self.written - 1 - first) & (ages >= self.written - end)
            # Rows new in reach have no priority yet: those before them have one.
            fresh = torch.where(of_time > 0, of_time, self._largest)
            fresh[at] = self._largest
            of_time.copy_(fresh * (reach[:, None] & rows.valid))
            self._tree.set_all(self._raised(self._priorities))

    def _keep_finals(self, t: torch.Tensor, b: torch.Tensor, finals: Buffer) -> None:
        """Keep the final observations [K] of the newest rows at time indexes of the ring [K]."""
        k = len(t)
        while self._chunks and self._chunks[0][0] <= self.written - self.T:
            self._live -= self._chunks.popleft()[1]
        old = len(buffer_leaves(self._finals)[0])
        if self._live + k > old:
            new, ids = max(2 * old, self._live + k), self._numbers(self._n_finals - self._live, self._n_finals)

            def grown(x: torch.Tensor) -> torch.Tensor:
                larger = x.new_zeros(new, *x.shape[1:])
                larger[ids % new] = x[ids % old]
                return larger

            self._finals = buffer_func(self._finals, grown)
            old = new
        ids = self._numbers(self._n_finals, self._n_finals + k)
        for dest, leaf in zip(buffer_leaves(self._finals), buffer_leaves(finals), strict=True):
            dest[ids % old] = leaf.to(dest.dtype)
        self._rows.final[t, b] = ids
        self._chunks.append((self.written, k))
        self._n_finals, self._live = self._n_finals + k, self._live + k

    def _numbers(self, first: int, end: int) -> torch.Tensor:
        return torch.arange(first, end, device=self.device)

    def _end_newest(self, samples: SamplesToBuffer) -> None:
        """Where the first new rows do not follow the newest, as environments were built anew, end episodes there."""
        self._is_loaded, rows, last = False, self._rows, (self.written - 1) % self.T
        done = rows.terminated[last] | rows.truncated[last]
        follows = samples.prev_reward[0] == torch.where(done, 0.0, rows.reward[last])
        pairs = zip(*(buffer_leaves(x) for x in (samples.prev_action, rows.action)), self._null_action, strict=True)
        for came, held, null in pairs:
            same = came[0] == torch.where(broadcast_mask(done, came[0]), null, held[last])
            follows &= same.reshape(self.B, -1).all(1)
        if bool(follows.all()):  # either all environments were restored or none
            return
        lost = ~done & rows.valid[last]
        rows.valid[last] &= ~lost
        if self.written > 1:
            before = (self.written - 2) % self.T
            cut = lost & ~(rows.terminated[before] | rows.truncated[before])
            rows.truncated[before] |= cut
            b = cut.nonzero().squeeze(1)
            t = torch.full_like(b, before)
            self._keep_finals(t, b, buffer_func(rows.observation, lambda x: x[last, b]))

    # ---- reading ----

    @torch.no_grad()
    def sample_batch(self, batch_size: int) -> SamplesFromReplay:
        """Draw transitions on the device.

        Raises:
            RuntimeError: if nothing can be drawn yet.
        """
        first, end = self._reach
        if end <= first:
            raise RuntimeError(
                f"Sampling from a replay: got {self.written} rows of each of {self.B} environments; expected at least "
                f"{self.least_rows}. Append more samples first (raise min_steps_learn)."
            )
        if self._tree is None:
            numbers = (first * self.B, end * self.B, (batch_size,))
            drawn = torch.randint(*numbers, generator=self.generator, device=self.device)
            t, b = drawn // self.B, drawn % self.B
            # The few rows of which it is not known what they led to: the one before, or the one after the first.
            t = torch.where(self._rows.valid[t % self.T, b], t, torch.where(t > first, t - 1, t + 1))
            return self._read(t, b, None)
        leaves = self._tree.draw(batch_size, self.generator)
        p = self._tree.values[leaves]
        one = p.min() if self.divides_by_largest else self._tree.total / (self._tree.values > 0).sum()
        t = first + (leaves // self.B - first) % self.T
        return self._read(t, leaves % self.B, ((one / p) ** self.beta).float())

    def _read(self, t: torch.Tensor, b: torch.Tensor, is_weights: torch.Tensor | None) -> SamplesFromReplay:
        """Return the transitions that begin at time steps [M]."""
        rows, n, T = self._rows, self.n_step_return, self.T
        window = (t + torch.arange(n, device=self.device)[:, None]) % T, b.expand(n, -1)
        reward, terminated, truncated = rows.reward[window], rows.terminated[window], rows.truncated[window]
        return_, steps, ended = reward[-1], torch.ones_like(t), terminated[-1]
        for k in reversed(range(n - 1)):
            goes_on = ~(terminated[k] | truncated[k])
            return_ = reward[k] + torch.where(goes_on, self.discount * return_, 0.0)
            steps = 1 + goes_on * steps
            ended = terminated[k] | goes_on & ended
        now, before, last = t % T, (t - 1) % T, (t + steps - 1) % T
        starts = rows.terminated[before, b] | rows.truncated[before, b] | ~rows.valid[before, b]
        null = iter(self._null_action)

        def previous(x: torch.Tensor) -> torch.Tensor:
            x = x[before, b]
            return torch.where(broadcast_mask(starts, x), next(null), x)

        at_last = buffer_func(rows.action, lambda x: x[last, b]), rows.reward[last, b]
        inputs = AgentInputs(
            buffer_func(rows.observation, lambda x: x[now, b]),
            buffer_func(rows.action, previous),
            rows.reward[before, b].masked_fill(starts, 0.0),
        )
        return SamplesFromReplay(
            agent_inputs=inputs,
            action=buffer_func(rows.action, lambda x: x[now, b]),
            return_=return_,
            terminated=ended,
            bootstrap_discount=torch.where(ended, 0.0, self.discount**steps),
            target_inputs=AgentInputs(self._following(last, b), *at_last),
            is_weights=is_weights,
            places=Places(t, b),
            reward=reward[0],
        )

    def _following(self, t: torch.Tensor, b: torch.Tensor) -> Buffer:
        """Return what rows [M] led to: the observation of the next row, or the final one of a truncated episode."""
        rows, cut = self._rows, self._rows.truncated[t, b]
        numbers = torch.where(cut, rows.final[t, b], 0)
        finals = iter(buffer_leaves(self._finals))

        def chosen(x: torch.Tensor) -> torch.Tensor:
            final = next(finals)
            following = x[(t + 1) % self.T, b]
            return torch.where(broadcast_mask(cut, following), final[numbers % len(final)], following)

        return buffer_func(rows.observation, chosen)

    @torch.no_grad()
    def update_priorities(self, places: Places, priorities: torch.Tensor) -> None:
        """Set the priorities [M] of rows that were drawn, on the device; those of rows overwritten are left out."""
        if self._tree is None or self._priorities is None:
            raise TypeError("Updating priorities: the replay draws uniformly. Set prioritized_replay=True.")
        leaves = places.start % self.T * self.B + places.env
        given = priorities.double().clamp(min=_LEAST_PRIORITY)
        kept = torch.where(places.start >= self._reach[0], given, self._priorities[leaves])
        self._priorities[leaves] = kept
        # As they stand: of a row that was drawn twice, a GPU keeps either of its priorities.
        self._tree.set(leaves, self._raised(self._priorities[leaves]))
        self._largest = torch.maximum(self._largest, kept.max())

    def check_valid(self) -> tuple[bool, str]:
        """Return that rows follow their convention, in which every row is a step."""
        return True, ""

    # ---- state ----

    def _tensors(self) -> dict[str, torch.Tensor]:
        arrays = enumerate(buffer_leaves((tuple(self._rows), self._finals)))
        own = {"priorities": self._priorities, "largest": self._largest}
        return {f"{i}": x for i, x in arrays} | {name: x for name, x in own.items() if x is not None}

    def state_dict(self) -> StateDict:
        """Return rows, final observations, priorities, counters and random stream, on the CPU."""
        return {
            "size": (self.T, self.B, self.n_step_return),
            "tensors": {name: x.cpu() for name, x in self._tensors().items()},
            "counters": (self.written, self._n_finals, self._live),
            "chunks": list(self._chunks),
            "alpha": self.alpha,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned; a state that is refused changes nothing."""
        came, saved = tuple(state_dict["size"]), state_dict["tensors"]
        own = (self.T, self.B, self.n_step_return)
        if came != own or saved.keys() != self._tensors().keys():
            raise ValueError(
                f"Loading a replay: got one of size and n_step_return {came} with {list(saved)}; expected {own} with "
                f"{list(self._tensors())}. Build the algorithm with the settings of the run that saved it."
            )
        n_finals = len(saved[f"{len(buffer_leaves(tuple(self._rows)))}"])
        self._finals = buffer_func(self._finals, lambda x: x.new_zeros(n_finals, *x.shape[1:]))
        for name, x in self._tensors().items():
            x.copy_(saved[name])
        self.written, self._n_finals, self._live = state_dict["counters"]
        self._chunks = deque((int(w), int(k)) for w, k in state_dict["chunks"])
        self.alpha, self._is_loaded = state_dict["alpha"], True
        if self._tree is not None and self._priorities is not None:
            self._tree.set_all(self._raised(self._priorities))
        self.generator.set_state(state_dict["generator"])
