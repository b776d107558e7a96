"""Statistics of the episodes of a simulator, computed on its device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import overload

import numpy as np
import torch

from rlpyt.envs.device_env import DeviceEnv, DeviceStep
from rlpyt.types import SUCCESS_KEYS, Info, TrajInfo


class DeviceStatistics:
    """Sums over the steps of the open episodes, and what info tells beside the rewards.

    Args:
        env: the environments.
        T: time steps of a batch.
        new_traj_info: makes the statistics of a trajectory.
        discount: of `DiscountedReturn`.
        ranks: global ranks of the environments.
        info: an example of the environment's info, which tells whether there are scores and successes.
    """

    def __init__(
        self,
        env: DeviceEnv,
        T: int,
        new_traj_info: Callable[[], TrajInfo],
        discount: float,
        ranks: Sequence[int],
        info: Info,
    ) -> None:
        self.env, self.ranks, self.log = env, list(ranks), SimulatorLog()
        self._new_traj_info, self._discount = new_traj_info, discount
        zeros = partial(torch.zeros, dtype=torch.float64, device=env.device)
        self._score = zeros(T, env.n) if "game_score" in info else None
        self._success_key = next((key for key in SUCCESS_KEYS if key in info), "")
        self._success = zeros(T, env.n) if self._success_key else None
        self._sums = zeros(4 if self._score is None else 5, env.n)
        """[K, B], sums over the steps of the open episodes, 0 before the first."""
        self._weight = zeros(env.n) + 1.0
        """[B], discount of the next reward."""
        self.others = ["GameScore"] * (self._score is not None) + ["Success"] * (self._success is not None)
        """Statistics of a trajectory that info tells."""

    @property
    def open(self) -> list[torch.Tensor]:
        """What is known of the open episodes, the first tensor by their lengths first."""
        return [self._sums, self._weight]

    def reset(self) -> None:
        """Begin an episode in every environment."""
        self._sums.zero_()
        self._weight.fill_(1.0)

    def note(self, t: int, step: DeviceStep) -> None:
        """Take in what the info of a step has."""
        self.note_log(step.info)
        if self._score is not None:
            self._score[t].copy_(self.env.from_info(step, "game_score"))
        if self._success is not None:
            self._success[t].copy_(self.env.from_info(step, self._success_key))

    def note_log(self, info: Info) -> None:
        """Add what the simulator logs: some do so in a step, mjlab where it is reset from outside in the reset."""
        if info.get("log"):
            self.env.called("adding up the numbers of log in info", self.log.add, info["log"])

    def ended(self, reward: torch.Tensor, done: torch.Tensor, t: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return a table [M, K], float64, of the trajectories that ended with the rows t, b [M] of a batch.

        Args:
            reward: [T, B].
            done: [T, B], where a trajectory ends.
            t: time steps of these places.
            b: their environments.
        """
        columns = [t[:, None], b[:, None], self._sums_of_rows(reward.double(), done)[t, :, b]]
        if self._success is not None:
            columns.append(self._success[t, b, None])
        return torch.cat([x.double() for x in columns], 1)

    def trajectories(self, itr: int, table: np.ndarray) -> Sequence[TrajInfo]:
        """Return the trajectories of a table."""
        return TrajTable(table, partial(self._traj_info, itr))

    def _traj_info(self, itr: int, row: np.ndarray) -> TrajInfo:
        t, b, length, return_, nonzero, discounted, *others = row.tolist()
        info = self._new_traj_info()
        info.Length, info.Return, info.NonzeroRewards = int(length), return_, int(nonzero)
        info.DiscountedReturn, info.ended_at = discounted, (itr, int(t), self.ranks[int(b)])
        for name, x in zip(self.others, others, strict=True):
            info[name] = x
        return info.terminate(None)

    def _sums_of_rows(self, reward: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
        """Return the sums [T, K, B] over the steps of its episode up to each row; keep those of the open episodes."""
        begins = done.double()
        goes_on = 1.0 - begins
        weights = torch.empty_like(reward)
        weight, discounts = self._weight, self._discount * goes_on
        for t in range(len(reward)):
            weights[t] = weight
            weight = torch.addcmul(begins[t], weight, discounts[t])
        parts = [torch.ones_like(reward), reward, (reward != 0).double(), weights * reward]
        x = torch.stack(parts if self._score is None else [*parts, self._score], 1)
        sums = self._sums
        for t in range(len(reward)):
            x[t] += sums
            sums = x[t] * goes_on[t]
        self._sums, self._weight = sums, weight
        return x


class TrajTable(Sequence[TrajInfo]):
    """Statistics of trajectories, of which each is made anew when it is looked at: the log looks at the last ones.

    Args:
        table: [M, K], a row for each.
        make: makes the statistics of one from its row.
    """

    def __init__(self, table: np.ndarray, make: Callable[[np.ndarray], TrajInfo]) -> None:
        self._table, self._make = table, make

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, which: int) -> TrajInfo: ...

    @overload
    def __getitem__(self, which: slice) -> list[TrajInfo]: ...

    def __getitem__(self, which: int | slice) -> TrajInfo | list[TrajInfo]:
        rows = self._table[which]
        return [self._make(row) for row in rows] if isinstance(which, slice) else self._make(rows)


class SimulatorLog:
    """Means of the numbers that a simulator logs: the dictionary `log` in the info of a step, as rsl_rl has it.

    Numbers on a device are added up there, and are fetched by `take` alone.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], torch.Tensor] = {}
        self._counts: dict[tuple[str, ...], int] = {}
        self._names: set[str] = set()

    def add(self, log: Mapping[str, float | torch.Tensor]) -> None:
        """Add the numbers of a step; of a tensor it is the mean. Some may be on the CPU beside others on a device."""
        tensors = {name: x for name, x in log.items() if isinstance(x, torch.Tensor) and x.device.type != "cpu"}
        others = ((name, x) for name, x in log.items() if name not in tensors)
        numbers = {name: float(x.double().mean() if isinstance(x, torch.Tensor) else x) for name, x in others}
        if numbers:
            self._add(tuple(numbers), torch.tensor(list(numbers.values()), dtype=torch.float64))
        if tensors:
            means = [x.double().mean() if x.dim() else x for x in tensors.values()]
            self._add(tuple(tensors), torch.stack(means).double())

    def _add(self, names: tuple[str, ...], x: torch.Tensor) -> None:
        self._sums[names] = self._sums[names] + x if names in self._sums else x
        self._counts[names] = self._counts.get(names, 0) + 1

    def take(self) -> dict[str, float]:
        """Return the means since the last call by column; NaN for a name that did not come again."""
        totals = {name: (0.0, 0) for name in sorted(self._names)}
        for names, sums in self._sums.items():
            for name, x in zip(names, sums.tolist(), strict=True):
                total, n = totals.get(name, (0.0, 0))
                totals[name] = total + x, n + self._counts[names]
        self._names |= set(totals)
        self._sums.clear()
        self._counts.clear()
        return {f"Env/{name.strip('/')}": total / n if n else math.nan for name, (total, n) in totals.items()}
