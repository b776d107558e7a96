"""Steps and states of torch's optimisers without torch's compiler: the same numbers, and everything still called."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rlpyt.utils.torch_optim import step

OPTIMISERS: dict[str, Any] = {
    "Adam": functools.partial(Adam, fused=True),
    "AdamW": functools.partial(AdamW, weight_decay=0.1),
    "SGD": functools.partial(SGD, momentum=0.9, nesterov=True),
    "RMSprop": functools.partial(RMSprop, centered=True),
    "Adagrad": torch.optim.Adagrad,
}


def with_gradients(make: Any) -> tuple[Optimizer, list[torch.nn.Parameter]]:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(5))]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return make(parameters, lr=0.1), parameters


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_are_those_of_torch(name):
    (one, mine), (other, theirs) = (with_gradients(OPTIMISERS[name]) for _ in range(2))
    for _ in range(4):
        step(one)
        other.step()
    assert all(torch.equal(x, y) for x, y in zip(mine, theirs, strict=True))
    assert not torch.equal(mine[0], with_gradients(OPTIMISERS[name])[1][0])
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("Cls", [Adam, AdamW, SGD, RMSprop])
def test_steps_do_without_the_wrappers_of_torch(Cls, monkeypatch):
    """Those of `AdamW` are its own, or those of `Adam` if one was built before."""
    with_gradients(Adam)
    optimizer, _ = with_gradients(Cls)

    def refuse(name: str) -> Any:
        raise AssertionError(name)

    monkeypatch.setattr(torch.autograd.profiler, "record_function", refuse)
    step(optimizer)
    with pytest.raises(AssertionError, match="step"):
        optimizer.step()


def of_the_optimizer(optimizer: Any, called: list[str], monkeypatch: Any) -> None:
    optimizer.register_step_pre_hook(lambda *_: called.append("hook"))


def of_all_optimizers(optimizer: Any, called: list[str], monkeypatch: Any) -> None:
    handle = register_optimizer_step_pre_hook(lambda *_: called.append("hook"))
    monkeypatch.setattr(optimizer, "handle", handle, raising=False)


def on_the_class(optimizer: Any, called: list[str], monkeypatch: Any) -> None:
    plain = Adam.step

    @functools.wraps(plain)
    def mine(*args: Any) -> Any:
        called.append("hook")
        return plain(*args)

    monkeypatch.setattr(Adam, "step", mine)


@pytest.mark.parametrize("way", [of_the_optimizer, of_all_optimizers, on_the_class])
def test_whatever_else_is_called_with_a_step_is_called(way, monkeypatch):
    optimizer, _ = with_gradients(Adam)
    step(optimizer)
    called: list[str] = []
    way(optimizer, called, monkeypatch)
    try:
        step(optimizer)
    finally:
        if hasattr(optimizer, "handle"):
            optimizer.handle.remove()
    assert called == ["hook"]


class OwnAdam(Adam):
    """Adam that counts its steps."""

    n_steps = 0

    def step(self, closure: Any = None) -> Any:
        self.n_steps += 1
        return super().step(closure)


def test_a_subclass_takes_its_own_step():
    optimizer, parameters = with_gradients(OwnAdam)
    step(optimizer)
    reference, theirs = with_gradients(Adam)
    reference.step()
    assert isinstance(optimizer, OwnAdam)
    assert optimizer.n_steps == 1
    assert all(torch.equal(x, y) for x, y in zip(parameters, theirs, strict=True))


RUN = """
    import sys
    from torch.optim import Optimizer
    import gymnasium
    from rlpyt.agents import SacAgent
    from rlpyt.algos import SAC
    from rlpyt.logging import logger_context
    from rlpyt.runners import MinibatchRl
    from rlpyt.samplers import SerialSampler
    from rlpyt.utils import ComputeSettings
    sampler = SerialSampler(gymnasium.make, dict(id="Pendulum-v1"), 1, 1, max_decorrelation_steps=0)
    algo, cpu = SAC(batch_size=8, replay_ratio=8, min_steps_learn=10, replay_size=100), ComputeSettings()
    with logger_context({path!r}, run_ID=0, snapshot_mode="last"):
        MinibatchRl(algo, SacAgent(), sampler, 20, 0, settings=cpu, checkpoint_interval_steps=10).train()
    assert "torch._dynamo" not in sys.modules
"""


def test_a_run_with_checkpoints_does_not_import_the_compiler(tmp_path, door):
    door(RUN.format(path=str(tmp_path)))
