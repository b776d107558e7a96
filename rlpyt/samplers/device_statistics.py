"""Statistics of the episodes of a simulator, computed on its device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from rlpyt.envs.device_env import DeviceEnv, DeviceStep
from rlpyt.namedarraytuple import Buffer
from rlpyt.types import SUCCESS_KEYS, Info, TrajInfo


class DeviceStatistics:
    """Sums over the steps of the open episodes, and what info tells beside the rewards.

    Args:
        env: the environments.
        T: time steps of a batch.
        new_traj_info: makes the statistics of a trajectory.
        ranks: global ranks of the environments.
        info: an example of the environment's info, which tells whether there are scores and successes.
    """

    def __init__(
        self, env: DeviceEnv, T: int, new_traj_info: Callable[[], TrajInfo], ranks: Sequence[int], info: Info
    ) -> None:
        self.env, self.ranks, self.log = env, list(ranks), SimulatorLog()
        self._new_traj_info, self._discount = new_traj_info, new_traj_info()._discount
        zeros = partial(torch.zeros, dtype=torch.float64, device=env.device)
        self._score = zeros(T, env.n) if "game_score" in info else None
        self._success_key = next((key for key in SUCCESS_KEYS if key in info), "")
        self._success = zeros(T, env.n) if self._success_key else None
        self.open = zeros(4 if self._score is None else 5, env.n)
        """[K, B], sums over the steps of the open episodes, 0 before the first; their lengths first."""
        self.others = ["GameScore"] * (self._score is not None) + ["Success"] * (self._success is not None)
        """Statistics of a trajectory that info tells."""

    def reset(self) -> None:
        """Begin an episode in every environment."""
        self.open.zero_()

    def note(self, t: int, step: DeviceStep) -> None:
        """Take in what the info of a step has."""
        self.note_log(step.info)
        if self._score is not None:
            self._score[t].copy_(self.env.from_info(step, "game_score", self._score[t]))
        if self._success is not None:
            self._success[t].copy_(self.env.from_info(step, self._success_key, self._success[t]))

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
        parts = [torch.ones_like(reward), reward, (reward != 0).double(), reward]  # the last one to be discounted
        x = torch.stack(parts if self._score is None else [*parts, self._score], 1)
        sums, weight = self.open, self._discount ** self.open[0]
        for t in range(len(reward)):
            x[t, 3] *= weight
            x[t] += sums
            sums = x[t].masked_fill(done[t], 0.0)
            weight = (weight * self._discount).masked_fill_(done[t], 1.0)
        self.open = sums
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

    def __getitem__(self, which: int | slice) -> Buffer:
        rows = self._table[which]
        return [self._make(row) for row in rows] if isinstance(which, slice) else self._make(rows)


class SimulatorLog:
    """Means of the numbers that a simulator logs: the dictionary `log` in the info of a step, as rsl_rl has it.

    Numbers on a device are added up there, and are fetched by `take` alone.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], tuple[torch.Tensor, int]] = {}
        self._names: set[str] = set()

    def add(self, log: Mapping[str, float | torch.Tensor]) -> None:
        """Add the numbers of a step; of a tensor it is the mean. Some may be on the CPU beside others on a device."""
        given = {name: x if isinstance(x, torch.Tensor) else _number(x) for name, x in log.items()}
        for device in {x.device for x in given.values()}:
            means = {name: x.double().mean() if x.dim() else x for name, x in given.items() if x.device == device}
            names, x = tuple(means), torch.stack(list(means.values())).double()
            sums, n = self._sums.get(names, (0.0, 0))
            self._sums[names] = sums + x, n + 1

    def take(self) -> dict[str, float]:
        """Return the means since the last call by column; NaN for a name that did not come again."""
        totals = {name: (0.0, 0) for name in sorted(self._names)}
        for names, (sums, n_steps) in self._sums.items():
            for name, x in zip(names, sums.tolist(), strict=True):
                total, n = totals.get(name, (0.0, 0))
                totals[name] = total + x, n + n_steps
        self._names |= set(totals)
        self._sums.clear()
        return {f"Env/{name.strip('/')}": total / n if n else math.nan for name, (total, n) in totals.items()}


def _number(x: float) -> torch.Tensor:
    return torch.tensor(float(x), dtype=torch.float64)
