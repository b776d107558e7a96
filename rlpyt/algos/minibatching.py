"""Random minibatches of a batch, and the updates of an epoch of them, as PPO and PQN take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from rlpyt.algos.base import AnyAlgorithm
from rlpyt.algos.metrics import Numbers, tensors_and_metrics
from rlpyt.algos.policy_gradient import UpdateRows
from rlpyt.functional import CountLike
from rlpyt.namedarraytuple import Buffer
from rlpyt.settings import Hyper, Scheduled, Settings, check_count, whole
from rlpyt.utils.arrays import buffer_func, buffer_to


@dataclass(kw_only=True, eq=False)
class MinibatchSettings(Settings, Scheduled):
    """Settings of an algorithm that learns from each batch in several epochs of random minibatches."""

    minibatches: int
    """Minibatches an epoch; must divide the rows of a batch (a recurrent agent's: the environments). Fixed for the run,
    as it is the size of an update."""
    epochs: CountLike
    """Passes over every batch, a whole number; what a schedule gives is rounded, to at least 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, "minibatches")
        check_count(self, "epochs")


class Minibatching:
    """Division of the batches of an algorithm into random minibatches, each of which is an update.

    A feed-forward agent's minibatches are valid rows of the whole batch; a recurrent one's are whole sequences of
    random environments.

    Args:
        algo: which holds it, initialised so far that it knows its agent and the size of its batches.
        n: minibatches an epoch.

    Raises:
        ValueError: if they do not divide the batch.
    """

    def __init__(self, algo: AnyAlgorithm, n: int) -> None:
        T, B = algo.batch_spec
        rows, what = T * B, f"the rows of a batch, batch_T x batch_B = {T} x {B} = {T * B}"
        if algo.agent.recurrent:
            rows, what = B, f"batch_B, {B}, and a recurrent agent trains on whole sequences"
        if rows % n != 0:
            divisor = max(d for d in range(1, min(rows, n) + 1) if rows % d == 0)
            raise ValueError(
                f"{type(algo).__name__}: minibatches is {n}, which does not divide {what}. Choose a divisor, for "
                f"example {divisor}."
            )
        self._algo, self.n = algo, n
        self.batch_size = T * B // n
        """Rows of a minibatch."""

    def rows(self, batch: Buffer, init_rnn_state: Buffer, valid: torch.Tensor) -> Iterator[tuple[Buffer, Buffer]]:
        """Yield a batch in random minibatches: valid rows of it, or sequences of it where the agent is recurrent.

        One without a valid row in any replica is left out; where only this replica has none, it has weight 0.

        Args:
            batch: [T, B] rows, such as `LossInputs`, with the fields `return_`, `valid`, `episode_start` and `weight`.
            init_rnn_state: [B, N, H] leaves, or None.
            valid: [T, B] bool, on the CPU, where it is read without a synchronisation.
        """
        agent, global_rows = self._algo.agent, self._algo.global_rows
        if agent.recurrent:
            parts = random_parts(self._algo, torch.arange(valid.shape[1]), self.n)
            counts = [int(valid[:, idxs].sum()) for idxs in parts]
        else:
            parts = random_parts(self._algo, valid.flatten().nonzero().squeeze(1), self.n)
            counts = [len(idxs) for idxs in parts]
            # Where no row is invalid the losses need no masks, which were a tenth of an update of small networks.
            batch = buffer_func(batch._replace(valid=None), torch.flatten, 0, 1)
        for idxs, weight in zip(parts, global_rows.weights(counts), strict=True):
            if weight is None:
                continue
            on_device = buffer_to(idxs, agent.device)
            if agent.recurrent:
                starts = batch.episode_start[:, idxs]
                rows = batch._replace(episode_start=None)[:, on_device]._replace(episode_start=starts)
                rnn_state = init_rnn_state[on_device]
            else:
                rows = buffer_func(batch, torch.index_select, 0, on_device) if len(idxs) else _uncounted_row(batch)
                rnn_state = None
            yield rows if global_rows.alone else rows._replace(weight=weight), rnn_state

    def take_updates(
        self, minibatches: Iterator[tuple[Buffer, Buffer]], hyper: Hyper, metrics: dict[str, list[torch.Tensor]]
    ) -> None:
        """Take one update for each of the minibatches of an epoch; add its metrics to the lists of their names."""
        algo = self._algo
        for rows, rnn_state in minibatches:
            updated: Numbers = algo.update(UpdateRows(rows, rnn_state, self._weight_of(rows)), hyper)
            for name, value in tensors_and_metrics(algo, "update", updated, 0)[0].items():
                metrics[name].append(value)

    def _weight_of(self, minibatch: Buffer) -> float:
        """Return the weight of a minibatch's loss among those of the other replicas; refuse one without."""
        if minibatch.weight is None and not self._algo.global_rows.alone:
            raise ValueError(
                f"{type(self._algo).__name__}: minibatch_rows gave a minibatch without weight to one of "
                f"{self._algo.replicas.world_size} replicas; expected that of its loss among the others'. Set the "
                "field weight to what self.global_rows.weights(counts) gives, with the valid rows of every minibatch."
            )
        return 1.0 if minibatch.weight is None else minibatch.weight


def random_parts(algo: AnyAlgorithm, idxs: torch.Tensor, n: int) -> Sequence[torch.Tensor]:
    """Return the n minibatches that indexes are dealt to at random."""
    order = torch.randperm(len(idxs), generator=algo.generator)
    return idxs[order].tensor_split(n)


def _uncounted_row(flat: Buffer) -> Buffer:
    """Return a row [1] whose loss depends on the same parameters as those of other replicas, and is not counted."""
    return buffer_func(flat, lambda x: x[:1])._replace(valid=torch.zeros_like(flat.return_[:1], dtype=torch.bool))
