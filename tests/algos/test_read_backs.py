"""No update reads a number back from the device: it would wait for all the work that is queued there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import rlpyt
from rlpyt.agents import (
    CatDqnAgent,
    CategoricalPgAgent,
    DdpgAgent,
    DqnAgent,
    IqnAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    RecurrentSacAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import A2C, DDPG, DQN, IQN, PPO, QRDQN, R2D1, SAC, TD3, CategoricalDQN, VTrace
from rlpyt.algos.qpg import QpgAlgo
from tests.algos.small_problems import RandomEnv, batches, optimize, set_up

READING_OPS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "item"}
"""Operations that need a number of a tensor on the host, as the dispatcher names them."""
READING_METHODS = {"cpu", "numpy", "tolist", "item", "__bool__", "__float__", "__int__", "__array__"}

ON_THE_CPU = {
    "agents/networks.py Numbers.__getitem__": "the numbers of an agent, which stay on the CPU",
    "algos/policy_gradient.py one_update": "whether a row of the samples is valid",
    "algos/ppo.py PPO.minibatch_rows": "the valid rows of the samples",
    "algos/dqn.py NewErrors.__call__": "flags of the samples",
    "models/recurrent.py RecurrentCore.forward": "where episodes start, of the samples or the replay's batch",
    "models/cut_lstm.py _Unroll.forward": "the same, in an unroll that is for the CPU alone",
}
"""Reads of what is on the CPU on every device; all of rlpyt/replays is such."""
PRIORITIES = "algos/replay_feed.py ReplayFeed.update_priorities"  # by which the replay on the CPU draws
TARGET_KL = "algos/ppo.py PPO.learn"  # once an epoch where target_kl is set
WAITING = {
    "PPO target_kl": {TARGET_KL},
    "DQN priorities": {PRIORITIES},
    "Rainbow": {PRIORITIES},
    "R2D1": {PRIORITIES},
    "TD3": {PRIORITIES},
}
"""The known reads that wait for the device, by case."""


def place() -> str | None:
    """Return file and function of the library that asked, or None for the optimiser, whose counters are on the CPU."""
    frame = sys._getframe(2)
    root = str(Path(rlpyt.__file__).parent) + "/"
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if "/torch/optim/" in name:
            return None
        if name.startswith(root) and name != root + "utils/arrays.py":
            return f"{name.removeprefix(root)} {frame.f_code.co_qualname.split('.<locals>')[0]}"
        frame = frame.f_back
    return "tests"


class Operations(TorchDispatchMode):
    def __init__(self, note: Callable[[str | None, str], None]) -> None:
        super().__init__()
        self.note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in READING_OPS:
            self.note(place(), name)
        return func(*args, **(kwargs or {}))


class Methods(TorchFunctionMode):
    def __init__(self, note: Callable[[str | None, str], None]) -> None:
        super().__init__()
        self.note = note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in READING_METHODS:
            self.note(place(), name)
        return func(*args, **(kwargs or {}))


def reads_of(call: Callable[[], Any]) -> dict[str, set[str]]:
    """Return by place what was read of tensors in a call."""
    found: dict[str, set[str]] = {}

    def note(where: str | None, what: str) -> None:
        if where is not None:
            found.setdefault(where, set()).add(what)

    with Methods(note), Operations(note):
        call()
    return found


SMALL: dict[str, Any] = dict(hidden_sizes=8)
DQN_KWARGS: dict[str, Any] = dict(batch_size=8, replay_size=200, replay_ratio=1, min_steps_learn=16)
SEQUENCES: dict[str, Any] = dict(
    batch_T=4, batch_B=2, warmup_T=2, store_rnn_state_interval=2, replay_size=200, replay_ratio=1, min_steps_learn=32
)
PRI: dict[str, Any] = dict(prioritized_replay=True)
NETWORKS: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)
CASES: dict[str, Any] = {
    "A2C": lambda: (A2C(normalize_reward=True), CategoricalPgAgent(model_kwargs=dict(normalize_observation=True))),
    "A2C LSTM": lambda: (A2C(), RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=8))),
    "VTrace": lambda: (VTrace(normalize_reward=True, normalize_advantage=True), CategoricalPgAgent(model_kwargs=SMALL)),
    "VTrace LSTM": lambda: (VTrace(), RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=8))),
    "PPO": lambda: (PPO(epochs=2, value_clip=0.2, normalize_advantage=True), CategoricalPgAgent(model_kwargs=SMALL)),
    "PPO target_kl": lambda: (PPO(epochs=2, target_kl=0.1), CategoricalPgAgent(model_kwargs=SMALL)),
    "PPO LSTM": lambda: (PPO(minibatches=2), RecurrentCategoricalPgAgent(model_kwargs=dict(rnn_size=8))),
    "DQN": lambda: (DQN(**DQN_KWARGS, double_dqn=True), DqnAgent(model_kwargs=SMALL)),
    "DQN priorities": lambda: (DQN(**DQN_KWARGS, **PRI, n_step_return=2), DqnAgent(model_kwargs=SMALL)),
    "Rainbow": lambda: (
        CategoricalDQN(**DQN_KWARGS, **PRI, unique_draws=True, n_step_return=3, double_dqn=True),
        CatDqnAgent(n_atoms=11, model_kwargs=dict(**SMALL, dueling=True, noisy=True)),
    ),
    "QRDQN": lambda: (QRDQN(**DQN_KWARGS), QrDqnAgent(n_quantiles=5, model_kwargs=SMALL)),
    "IQN": lambda: (IQN(**DQN_KWARGS), IqnAgent(model_kwargs=dict(**SMALL, n_tau=4))),
    "R2D1": lambda: (R2D1(**SEQUENCES), R2d1Agent(model_kwargs=dict(**SMALL, rnn_size=8))),
    "DDPG": lambda: (DDPG(**DQN_KWARGS), DdpgAgent(**NETWORKS)),
    "TD3": lambda: (TD3(**DQN_KWARGS, **PRI), Td3Agent(**NETWORKS)),
    "SAC": lambda: (SAC(**DQN_KWARGS, n_step_return=2), SacAgent(**NETWORKS)),
    "SAC LSTM": lambda: (SAC(**SEQUENCES), RecurrentSacAgent(**NETWORKS, feature_kwargs=dict(rnn_size=8))),
}


@pytest.mark.parametrize("case", CASES)
def test_updates_read_nothing_back_but_what_is_known(case):
    algo, agent = CASES[case]()
    action_space = spaces.Box(-1, 1, (2,)) if isinstance(algo, QpgAlgo) else spaces.Discrete(3)
    sampler = set_up(algo, agent, RandomEnv, dict(action_space=action_space), T=16)
    collected = batches(sampler, 4)
    for itr in range(3):
        optimize(algo, itr, collected[itr])
    updates = algo.update_counter
    found = reads_of(lambda: optimize(algo, 3, collected[3]))
    assert algo.update_counter > updates
    waiting = {where for where in found if where not in ON_THE_CPU and not where.startswith("replays/")}
    assert waiting == WAITING.get(case, set()), found


def test_the_probe_sees_reads():
    x = torch.tensor([1.0, 2.0])
    for read in (x.sum().item, x.tolist, x.numpy, x.cpu, x.nonzero, lambda: bool(x[0] > 0), lambda: float(x[0])):
        assert reads_of(read), read
