"""Rows of a replay in an update: forward passes over them, and means over those to train on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from rlpyt.core import Agent
from rlpyt.functional import mask_illegal, valid_mean
from rlpyt.namedarraytuple import Buffer
from rlpyt.utils.arrays import buffer_func

Network = Callable[..., Buffer]


class Outputs(NamedTuple):
    """Outputs of a network and its target at the rows of a batch, with leading dimensions [M] or [T, M]."""

    online: Buffer
    """Of the network, at the rows, with gradient."""
    next_online: Buffer
    """Of the network, at the rows that are bootstrapped from, without gradient; None if it was not asked for."""
    next_target: Buffer
    """Of the target network, at the rows that are bootstrapped from; None where there is no target network."""
    noise: torch.Tensor | None = None
    """Standard normal numbers [.., A] of the actions there, for policies that are random."""
    next_legal: torch.Tensor | None = None
    """Which actions are legal at the rows that are bootstrapped from, bool [.., A]; None where no mask says."""
    target: Buffer = None
    """Of the target network, at the rows themselves; None if it was not asked for."""


def run_over(
    batch: Buffer,
    agent: Agent,
    network: Network,
    target_network: Network | None,
    *,
    with_next: bool,
    warmup_T: int,
    with_target: bool = False,
) -> Outputs:
    """Return the outputs of a network and its target at the rows of a batch.

    Args:
        batch: transitions, or sequences, which are unrolled from the stored state after their warm-up.
        agent: of the networks.
        network: called with observation, previous action and reward, and for sequences with the state before the first
            row and `episode_start`; returns [.., M] or [.., T, M] leaves.
        target_network: called with the same arguments; None where there is none.
        with_next: whether the network's own outputs at the rows that are bootstrapped from are needed.
        warmup_T: rows of a sequence before those to train on.
        with_target: whether the target network's outputs at the rows themselves are needed, too.
    """
    masks = agent.networks.masks
    if not agent.recurrent:
        online = network(*batch.agent_inputs)
        with torch.no_grad():
            next_ = network(*batch.target_inputs) if with_next else None
        of_target = None if target_network is None else target_network(*batch.target_inputs)
        legal = None if masks is None else masks.legal(batch.target_inputs.observation)
        own = target_network(*batch.agent_inputs) if with_target and target_network is not None else None
        return Outputs(online, next_, of_target, next_legal=legal, target=own)
    T = len(batch.action)
    state = target_state = batch.init_rnn_state
    if warmup_T:
        before = batch.all_inputs[:warmup_T], state, batch.episode_start[:warmup_T]
        state, target_state = agent.networks.warm_up(*before)
    inputs, episode_start = batch.all_inputs[warmup_T:], batch.episode_start[warmup_T:]
    everything = network(*inputs, state, episode_start)
    bootstrap = bootstrap_rows(batch.steps)
    next_ = buffer_func(everything, torch.Tensor.detach)[bootstrap] if with_next else None
    targets = None if target_network is None else target_network(*inputs, target_state, episode_start)
    of_target = None if targets is None else targets[bootstrap]
    legal = None if masks is None else masks.legal(inputs.observation)[bootstrap]
    own = targets[:T] if with_target and targets is not None else None
    return Outputs(everything[:T], next_, of_target, next_legal=legal, target=own)


def legal_at_rows(agent: Agent, batch: Buffer, warmup_T: int) -> torch.Tensor | None:
    """Return which actions are legal at the rows that are trained on, bool [.., A]; None where no mask says."""
    if (masks := agent.networks.masks) is None:
        return None
    if not is_of_sequences(batch):
        return masks.legal(batch.agent_inputs.observation)
    return masks.legal(batch.all_inputs.observation[warmup_T : warmup_T + len(batch.action)])


def log_policy(logits: torch.Tensor, legal: torch.Tensor | None) -> torch.Tensor:
    """Return log-probabilities [.., A] float32 of all actions; illegal ones have -infinity."""
    logits = logits.float()
    return (logits if legal is None else mask_illegal(logits, legal)).log_softmax(-1)


def bootstrap_rows(steps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index of the rows that lie `steps` [T, M] after rows [T, M]."""
    T, M = steps.shape
    return torch.arange(T, device=steps.device)[:, None] + steps, torch.arange(M, device=steps.device)


def mean_loss(loss: torch.Tensor, batch: Buffer) -> torch.Tensor:
    """Return the means of losses [..., M] or [..., T, M] over the rows to train on, by their importance weights."""
    return mean_of_rows(loss if batch.is_weights is None else loss * batch.is_weights, batch)


def mean_of_rows(x: torch.Tensor, batch: Buffer) -> torch.Tensor:
    """Return the means of x [..., M] or [..., T, M] over the rows to train on, all weighing the same."""
    if not is_of_sequences(batch):
        return x.mean(-1)
    return valid_mean(x, batch.valid.expand_as(x), dim=(-2, -1))


def for_atoms(x: torch.Tensor, next_value: torch.Tensor) -> torch.Tensor:
    """Return x [M] or [T, M] of the rows for every atom, where next values have a last dimension of atoms."""
    return x.unsqueeze(-1).expand_as(next_value) if next_value.dim() > x.dim() else x


def is_of_sequences(batch: Buffer) -> bool:
    """Return whether the rows of a batch are [T, M], of sequences, and not transitions [M]."""
    return "all_inputs" in batch._fields
