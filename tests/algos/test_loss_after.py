"""`log_loss_after`: the loss of an update's rows before and after it, and no other number changed."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from tests.algos.small_problems import check_parameters, parameters64
from tests.algos.test_algo_state import CASES, DQN_KWARGS, trained


def learned(case: str, **settings: Any) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    """Return the agent and the metrics, with the random streams after the last of them."""
    algo, agent, metrics = trained(case, **settings)
    metrics[-1]["stream"] = torch.cat([torch.get_rng_state(), algo.generator.get_state()])
    return agent, metrics


@pytest.mark.parametrize("case", ["A2C", "PPO LSTM", "Rainbow", "R2D1", "DroQ"])
def test_it_changes_no_other_number(case):
    agent, metrics = learned(case)
    other, with_losses = learned(case, log_loss_after=True)
    check_parameters(other, parameters64(agent), rtol=0, atol=0)
    n_losses = 0
    for one, more in zip(metrics, with_losses, strict=True):
        assert "lossAfter" not in one
        assert all(torch.equal(one[name], more[name]) for name in one)
        if "loss" in more:
            assert torch.equal(more["lossBefore"], more["loss"])
        n_losses += more["lossAfter"].numel() if "lossAfter" in more else 0
    assert n_losses >= 3


def test_level_debug_logs_a_line_an_update(caplog):
    agent, metrics = learned("DroQ", log_loss_after=True)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, logger="rlpyt.loss"):
        other, logged = learned("DroQ", log_loss_after=True)
    check_parameters(other, parameters64(agent), rtol=0, atol=0)
    torch.testing.assert_close(metrics, logged, rtol=0, atol=0)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) > 2
    for n, line in enumerate(lines, 1):
        assert re.fullmatch(rf"\w+: update {n}, loss [\d.e-]+ before it and [\d.e-]+ after", line)
    text = [x for m in logged for x in m.get("lossAfter", torch.zeros(0)).flatten().tolist()]
    assert [float(line.split()[-2]) for line in lines] == pytest.approx(text, rel=1e-5)


class MovingModel(torch.nn.Module):
    """Model of which a forward pass in training moves buffers (means of a batch, vectors of a norm) and a stream."""

    def __init__(self, observation_space: Box, action_space: Discrete) -> None:
        super().__init__()
        first = torch.nn.Linear(observation_space.shape[0], 8)
        last = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(8, int(action_space.n)))
        self.layers = torch.nn.Sequential(first, torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), last)

    def forward(self, observation: torch.Tensor, prev_action: torch.Tensor, prev_reward: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(observation)
        return output


def test_it_leaves_the_buffers_of_a_model_and_the_global_stream_as_they_were(monkeypatch):
    monkeypatch.setitem(CASES, "moving", lambda: (DQN(**DQN_KWARGS), DqnAgent(ModelCls=MovingModel)))
    (agent, metrics), (other, with_losses) = learned("moving"), learned("moving", log_loss_after=True)
    for one, same in zip(agent.networks.modules(), other.networks.modules(), strict=True):
        torch.testing.assert_close(one.state_dict(), same.state_dict(), rtol=0, atol=0)
    assert torch.equal(metrics[-1]["loss"], with_losses[-1]["lossBefore"])
    assert torch.equal(metrics[-1]["stream"], with_losses[-1]["stream"])
    for more in learned("moving", learning_rate=0.0, log_loss_after=True)[1]:
        if "lossAfter" in more:
            assert torch.equal(more["lossAfter"], more["lossBefore"])


@pytest.mark.parametrize("case", ["A2C", "DQN", "Rainbow", "DroQ", "IQN"])
def test_a_small_step_lowers_the_loss_and_none_leaves_it(case):
    """Masks, noise and fractions are those of the first time: else the loss would be another one without a step."""
    rates = dict(q_learning_rate=0.0) if case == "DroQ" else {}
    sgd: dict[str, Any] = dict(OptimCls=torch.optim.SGD, log_loss_after=True)
    for more in learned(case, learning_rate=0.0, **rates, **sgd)[1]:
        if "lossAfter" in more:
            torch.testing.assert_close(more["lossAfter"], more["lossBefore"], rtol=0, atol=0)
    rates = dict(q_learning_rate=1e-3) if case == "DroQ" else {}
    metrics = [m for m in learned(case, learning_rate=1e-3, **rates, **sgd)[1] if "lossAfter" in m]
    assert metrics
    assert all((m["lossAfter"] < m["lossBefore"]).all() for m in metrics)
