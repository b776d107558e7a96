"""Replay whose only copy is on a device, for rows of simulators that never leave it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import torch

from rlpyt.core import Replay
from rlpyt.functional import episode_start_from_valid
from rlpyt.namedarraytuple import Buffer
from rlpyt.replays.interface import SamplesToBuffer
from rlpyt.replays.reading import RawRows, ReplayBatch, SamplesFromReplay, Sequences, SequencesFromReplay
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
    final: Buffer
    """int64, number of the final observation of a truncated row, counted from the first one ever kept."""


def _n_step_return(
    reward: torch.Tensor, terminated: torch.Tensor, truncated: torch.Tensor, discount: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return returns of windows of rows [n, ...], the rewards in each, and whether it ends by termination.

    This is `rlpyt.functional.n_step_return` for tensors.
    """
    return_, steps, ended = reward[-1], torch.ones_like(reward[-1], dtype=torch.int64), terminated[-1]
    for k in reversed(range(len(reward) - 1)):
        goes_on = ~(terminated[k] | truncated[k])
        return_ = reward[k] + torch.where(goes_on, discount * return_, 0.0)
        steps = 1 + goes_on * steps
        ended = terminated[k] | goes_on & ended
    return return_, steps, ended


class DeviceReplay(Replay):
    """Replay of n-step transitions or sequences on a device, of rows without final rows.

    Final observations of truncated episodes are in a memory of their own, which grows with their number. To draw
    transitions, uniformly or by priorities, and to set these waits for nothing. To append waits once, for that number;
    to draw sequences waits once, as where their episodes start is read on the CPU.

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
        sequences: lengths of sequences, of the same `n_step_return`, and where they begin; None gives transitions.
    """

    on_device = True
    interval: int = 1
    """Time steps from one start index to the next, a divisor of T."""
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
        sequences: Sequences | None = None,
    ) -> None:
        self.T, self.B, self.device, self.sequences = T, B, device, sequences
        self.interval = 1 if sequences is None else sequences.interval
        self.n_step_return, self.discount, self.alpha, self.beta = n_step_return, discount, alpha, beta
        self.generator = generator
        flag = np.bool_(False)
        row = _Rows(example.observation, example.action, np.float32(0), flag, flag, np.int64(0))
        self._rows: _Rows = buffer_to(torchify_buffer(buffer_from_example(row, (T, B))), device)
        self._finals: Buffer = buffer_to(torchify_buffer(buffer_from_example(example.observation, 1)), device)
        self._null_action = buffer_leaves(buffer_to(torchify_buffer(null_action), device))
        self.written = 0
        self._n_finals, self._live = 0, 0
        self._chunks = deque[tuple[int, int]]()  # by append: steps written after it, and final observations in it
        self._n_starts = starts = T // self.interval
        state = None if sequences is None else example.prev_rnn_state
        self._rnn_states: Buffer = buffer_to(torchify_buffer(buffer_from_example(state, (starts, B))), device)
        self._priorities = torch.zeros(starts * B, dtype=torch.float64, device=device) if alpha is not None else None
        self._tree = DeviceSumTree(starts * B, device) if alpha is not None else None
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
        kept = tuple(self._rows), self._finals, self._rnn_states
        return sum(x.numel() * x.element_size() for x in buffer_leaves(kept))

    @property
    def least_rows(self) -> int:
        """Rows of each environment that must be held before anything can be drawn."""
        return self.interval + 1 + self._rows_after

    n_priorities_dropped = 0

    @property
    def _rows_after(self) -> int:
        """Rows that are read after the one at which a transition or a sequence begins."""
        return self.n_step_return if self.sequences is None else self.sequences.rows_after

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
        """The number of the first start that can be drawn, of which the row before is held, and that after the last."""
        first = max(0, self.written - self.T) // self.interval + 1
        return first, max(first, -(-(self.written - self._rows_after) // self.interval))

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
        if self._is_loaded:
            self._end_newest(samples)
        rows, at = self._rows, self._numbers(self.written, self.written + t) % self.T
        for field in ("observation", "action", "reward", "terminated", "truncated"):
            for dest, leaf in zip(buffer_leaves(getattr(rows, field)), buffer_leaves(samples[field]), strict=True):
                dest[at] = leaf.to(dest.dtype)
        begins = slice(-self.written % self.interval, None, self.interval)
        starts = at[begins] // self.interval
        for dest, leaf in zip(buffer_leaves(self._rnn_states), buffer_leaves(samples.prev_rnn_state), strict=False):
            dest[starts] = leaf[begins]
        self.written += t
        t_cut, b_cut = (samples.truncated & ~samples.terminated).nonzero().unbind(1)
        self._keep_finals(at[t_cut], b_cut, buffer_func(samples.final_observation, lambda x: x[t_cut, b_cut]))
        if self._priorities is not None and self._tree is not None:
            of_time = self._priorities.view(self._n_starts, self.B)
            newest, (first, end) = (self.written - 1) // self.interval, self._reach
            numbers = newest - (newest - torch.arange(self._n_starts, device=self.device)) % self._n_starts
            reach = ((numbers >= first) & (numbers < end))[:, None]
            # Those new in reach have no priority yet: those before them have one.
            fresh = torch.where(of_time > 0, of_time, self._largest)
            fresh[starts] = self._largest
            of_time.copy_(fresh * reach)
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
        """Where the first new rows do not follow the newest, as environments were built anew, end episodes there.

        The newest row of each environment is dropped, as it is not known what it led to.
        """
        self._is_loaded, rows, last = False, self._rows, (self.written - 1) % self.T
        done = rows.terminated[last] | rows.truncated[last]
        follows = samples.prev_reward[0] == torch.where(done, 0.0, rows.reward[last])
        pairs = zip(*(buffer_leaves(x) for x in (samples.prev_action, rows.action)), self._null_action, strict=True)
        for came, held, null in pairs:
            same = came[0] == torch.where(broadcast_mask(done, came[0]), null, held[last])
            follows &= same.reshape(self.B, -1).all(1)
        if bool(follows.all()):  # either all environments were restored or none
            return
        self.written -= 1
        if self.written:
            before = (self.written - 1) % self.T
            b = (~(rows.terminated[before] | rows.truncated[before])).nonzero().squeeze(1)
            rows.truncated[before, b] = True
            self._keep_finals(torch.full_like(b, before), b, buffer_func(rows.observation, lambda x: x[last, b]))

    # ---- reading ----

    @torch.no_grad()
    def sample_batch(self, batch_size: int) -> ReplayBatch:
        """Draw transitions or sequences on the device.

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
            if self.sequences is not None:
                return self._read_sequences(t * self.interval, b, None, self.sequences)
            return self._read(t, b, None)
        leaves = self._tree.draw(batch_size, self.generator)
        p = self._tree.values[leaves]
        one = p.min() if self.divides_by_largest else self._tree.total / (self._tree.values > 0).sum()
        t, b = first + (leaves // self.B - first) % self._n_starts, leaves % self.B
        weights = ((one / p) ** self.beta).float()
        if self.sequences is not None:
            return self._read_sequences(t * self.interval, b, weights, self.sequences)
        return self._read(t, b, weights)

    def _read(self, t: torch.Tensor, b: torch.Tensor, is_weights: torch.Tensor | None) -> SamplesFromReplay:
        """Return the transitions that begin at time steps [M]."""
        rows, n, T = self._rows, self.n_step_return, self.T
        window = (t + torch.arange(n, device=self.device)[:, None]) % T, b.expand(n, -1)
        reward, terminated, truncated = rows.reward[window], rows.terminated[window], rows.truncated[window]
        return_, steps, ended = _n_step_return(reward, terminated, truncated, self.discount)
        now, before, last = t % T, (t - 1) % T, (t + steps - 1) % T
        starts = rows.terminated[before, b] | rows.truncated[before, b]
        at_last = buffer_func(rows.action, lambda x: x[last, b]), rows.reward[last, b]
        following = self._observed((last + 1) % T, last, b, rows.truncated[last, b])
        observation = buffer_func(rows.observation, lambda x: x[now, b])
        return SamplesFromReplay(
            agent_inputs=AgentInputs(observation, *self._previous(before, b, starts)),
            action=buffer_func(rows.action, lambda x: x[now, b]),
            return_=return_,
            terminated=ended,
            bootstrap_discount=torch.where(ended, 0.0, self.discount**steps),
            target_inputs=AgentInputs(following, *at_last),
            is_weights=is_weights,
            places=Places(t, b),
            reward=reward[0],
        )

    def _read_sequences(
        self, t: torch.Tensor, b: torch.Tensor, is_weights: torch.Tensor | None, lengths: Sequences
    ) -> SequencesFromReplay:
        """Return the sequences that begin at time steps [M], with a row for each final observation as others have them.

        The rows at the end of a sequence make room for these.
        """
        rows, T, n = self._rows, self.T, self.n_step_return
        k = torch.arange(lengths.length, device=self.device)[:, None]
        window = (t + k) % T, b.expand(len(k), -1)
        cut = rows.truncated[window] & ~rows.terminated[window]
        # The place in the sequence of each row of the ring; and of each place the row, or that which it follows.
        place = k + cut.cumsum(0) - cut.long()
        own = torch.searchsorted(place.t().contiguous(), k.t().expand(len(t), -1).contiguous(), right=True).t() - 1
        is_final = k > place.gather(0, own)
        now, before = (t + own) % T, (t + own - 1 + is_final.long()) % T
        terminated, truncated = (x[now, b] & ~is_final for x in (rows.terminated, rows.truncated))
        starts = rows.terminated[before, b] | rows.truncated[before, b]
        reward, valid = rows.reward[now, b].masked_fill(is_final, 0.0), ~is_final
        raw = RawRows(buffer_func(rows.action, lambda x: x[now, b]), reward, terminated, truncated, valid)
        first, end = lengths.trained.start, lengths.trained.stop
        windows = torch.arange(first, end, device=self.device) + torch.arange(n, device=self.device)[:, None]
        of_windows = reward[windows], terminated[windows], truncated[windows]
        return_, steps, ended = _n_step_return(*of_windows, self.discount)
        observation = self._observed(now, now, b, is_final)
        state_at = t // self.interval % self._n_starts
        return SequencesFromReplay(
            all_inputs=AgentInputs(observation, *self._previous(before, b, starts & ~is_final)),
            episode_start=episode_start_from_valid(valid, terminated | truncated).cpu(),
            init_rnn_state=buffer_func(self._rnn_states, lambda x: x[state_at, b]),
            action=raw.action[first:end],
            return_=return_,
            terminated=ended,
            bootstrap_discount=torch.where(ended, 0.0, self.discount**steps),
            steps=steps,
            valid=valid[first:end],
            is_weights=is_weights,
            places=Places(t, b),
            rows=raw,
        )

    def _previous(self, t: torch.Tensor, b: torch.Tensor, starts: torch.Tensor) -> tuple[Buffer, torch.Tensor]:
        """Return actions and rewards of rows before others, [...]; the null action and 0 where an episode starts."""
        rows, null = self._rows, iter(self._null_action)

        def previous(x: torch.Tensor) -> torch.Tensor:
            x = x[t, b]
            return torch.where(broadcast_mask(starts, x), next(null), x)

        return buffer_func(rows.action, previous), rows.reward[t, b].masked_fill(starts, 0.0)

    def _observed(self, t: torch.Tensor, cut_at: torch.Tensor, b: torch.Tensor, is_final: torch.Tensor) -> Buffer:
        """Return the observations of rows [...] at t; where `is_final`, the final ones of episodes cut at `cut_at`."""
        numbers = torch.where(is_final, self._rows.final[cut_at, b], 0)
        finals = iter(buffer_leaves(self._finals))

        def chosen(x: torch.Tensor) -> torch.Tensor:
            final, x = next(finals), x[t, b]
            return torch.where(broadcast_mask(is_final, x), final[numbers % len(final)], x)

        return buffer_func(self._rows.observation, chosen)

    @torch.no_grad()
    def update_priorities(self, places: Places, priorities: torch.Tensor) -> None:
        """Set the priorities [M] of rows that were drawn, on the device; those of rows overwritten are left out.

        That they are finite is not checked, as to read them would wait; runs of our algorithms check their metrics.
        """
        if self._tree is None or self._priorities is None:
            raise TypeError("Updating priorities: the replay draws uniformly. Set prioritized_replay=True.")
        leaves = places.start // self.interval % self._n_starts * self.B + places.env
        given = priorities.double().clamp(min=_LEAST_PRIORITY)
        kept = torch.where(places.start // self.interval >= self._reach[0], given, self._priorities[leaves])
        self._priorities[leaves] = kept
        # As they stand: of a row that was drawn twice, a GPU keeps either of its priorities.
        self._tree.set(leaves, self._raised(self._priorities[leaves]))
        self._largest = torch.maximum(self._largest, kept.max())

    def check_valid(self) -> tuple[bool, str]:
        """Return that rows follow their convention, in which every row is a step."""
        return True, ""

    # ---- state ----

    def _tensors(self) -> dict[str, torch.Tensor]:
        arrays = enumerate(buffer_leaves((tuple(self._rows), self._finals, self._rnn_states)))
        own = {"priorities": self._priorities, "largest": self._largest}
        return {f"{i}": x for i, x in arrays} | {name: x for name, x in own.items() if x is not None}

    def state_dict(self) -> StateDict:
        """Return rows, final observations, priorities, counters and random stream, on the CPU."""
        return {
            "size": (self.T, self.B, self.n_step_return, self.interval),
            "tensors": {name: x.cpu() for name, x in self._tensors().items()},
            "counters": (self.written, self._n_finals, self._live),
            "chunks": list(self._chunks),
            "alpha": self.alpha,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned; a state that is refused changes nothing."""
        came, saved = tuple(state_dict["size"]), state_dict["tensors"]
        own = (self.T, self.B, self.n_step_return, self.interval)
        if came != own or saved.keys() != self._tensors().keys():
            raise ValueError(
                f"Loading a replay: got one of size, n_step_return and interval {came} with {list(saved)}; expected "
                f"{own} with {list(self._tensors())}. Build the algorithm with the settings of the run that saved it."
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
