"""No update reads a number back from the device: it would wait for all the work that is queued there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import rlpyt
from tests.algos.small_problems import batches, optimize
from tests.algos.test_algo_state import CASES, started

READING_OPS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "item"}
"""Operations that need a number of a tensor on the host, as the dispatcher names them."""
READING_METHODS = {"cpu", "numpy", "tolist", "item", "__bool__", "__float__", "__int__", "__array__"}

ON_THE_CPU = {
    "agents/networks.py Numbers.__getitem__": "the numbers of an agent, which stay on the CPU",
    "algos/policy_gradient.py one_update": "whether a row of the samples is valid",
    "algos/minibatching.py Minibatching.rows": "the valid rows of the samples",
    "algos/dqn.py NewErrors.__call__": "flags of the samples",
    "algos/return_scale.py ReturnScale._set_factor": "sums of the rewards of the samples",
    "models/recurrent.py RecurrentCore.forward": "where episodes start, of the samples or the replay's batch",
    "models/recurrent.py Pieces.__init__": "the same",
    "models/recurrent.py RecurrentCore._unroll_packed": "the same",
    "models/noise.py Dropout.draw": "a seed, which is drawn on the CPU",
    "models/cut_lstm.py _Unroll.forward": "the same, in an unroll that is for the CPU alone",
}
"""Reads of what is on the CPU on every device; all of rlpyt/replays is such."""
PRIORITIES = "algos/replay_feed.py ReplayDraws.set_priorities"  # by which the replay on the CPU draws
TARGET_KL = "algos/ppo.py PPO.learn"  # once an epoch where target_kl is set


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


@pytest.mark.parametrize("case", [*CASES, "PPO target_kl"])
def test_updates_read_nothing_back_but_what_is_known(case):
    algo, agent = CASES[case.removesuffix(" target_kl")]()
    algo = algo.replace(target_kl=0.1) if case == "PPO target_kl" else algo
    collected = batches(started(algo, agent, T=16), 4)
    for itr in range(3):
        optimize(algo, itr, collected[itr])
    updates = algo.update_counter
    found = reads_of(lambda: optimize(algo, 3, collected[3]))
    assert algo.update_counter > updates
    waiting = {where for where in found if where not in ON_THE_CPU and not where.startswith("replays/")}
    known = {PRIORITIES} if getattr(algo, "prioritized_replay", False) else set()
    assert waiting == ({TARGET_KL} if case == "PPO target_kl" else known), found


def test_the_probe_sees_reads():
    x = torch.tensor([1.0, 2.0])
    for read in (x.sum().item, x.tolist, x.numpy, x.cpu, x.nonzero, lambda: bool(x[0] > 0), lambda: float(x[0])):
        assert reads_of(read), read
