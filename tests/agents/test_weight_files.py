"""Weights as safetensors: agents that load them act as those that saved them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import CatDqnAgent, PgAgent, load_weights, save_weights
from rlpyt.spaces import EnvSpaces
from tests.agents.acting_copies import Elsewhere
from tests.agents.agent_kinds import ONE_OF_A_KIND, make_agent, random_inputs

SPACES = EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4))
safetensors_torch = pytest.importorskip("safetensors.torch")


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, torch.Tensor) else bool(a == b)


@pytest.mark.parametrize("kind", [*ONE_OF_A_KIND, "Sac vector box"])
def test_all_of_an_agent_s_state_comes_back(kind: str, tmp_path: Path) -> None:
    scheduled = dict(action_std="lin_0.5") if kind.startswith("Td3") else {}
    old, new = make_agent(kind, seed=1, **scheduled), make_agent(kind, seed=2, **scheduled)
    old.anneal_exploration(0.7)
    old.bind(100)
    old.train_mode(49)
    if "V_range" in old.state_dict():
        old.give_V_min_max(-0.1, 1 / 3)
    old = Elsewhere(old).agent if not old.learning else old  # weights in shared memory, one tensor after the other
    path = save_weights(old, tmp_path / "weights.safetensors")
    load_weights(new, path)
    assert same(new.state_dict(), old.state_dict())
    rows = random_inputs(old.env_spaces, 3)
    old.eval_mode(0, deterministic=True)
    new.eval_mode(0, deterministic=True)
    assert torch.equal(old.step(*rows).action, new.step(*rows).action)


def test_other_tools_read_the_file(tmp_path: Path) -> None:
    agent = PgAgent(model_kwargs={"hidden_sizes": 8, "normalize_observation": True})
    agent.initialize(SPACES)
    path = save_weights(agent, tmp_path / "weights.safetensors")
    tensors = safetensors_torch.load_file(path)
    assert tensors.keys() >= {"model.encoder.rms.mean", "model.policy.0.weight", "reward_rms.var"}
    assert torch.equal(tensors["model.policy.0.weight"], agent.model.state_dict()["policy.0.weight"])
    length = int.from_bytes(path.read_bytes()[:8], "little")
    about = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]
    assert (about["agent"], about["format"]) == ("PgAgent", "pt")


class Extra(nn.Module):
    """Model of a user that keeps a set."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        x = self.layer(observation)
        return x[..., 1:], x[..., 0]

    def get_extra_state(self) -> Any:
        return {1, 2}

    def set_extra_state(self, state: Any) -> None:
        pass


def initialised(agent: Any) -> Any:
    agent.initialize(SPACES)
    return agent


def test_mistakes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, path = initialised(PgAgent(model_kwargs={"hidden_sizes": 8})), tmp_path / "weights.safetensors"
    with pytest.raises(RuntimeError, match="is not initialised"):
        save_weights(PgAgent(), path)
    with pytest.raises(FileNotFoundError, match=r"weights\.safetensors"):
        load_weights(agent, path)
    save_weights(agent, path)
    with pytest.raises(RuntimeError, match="is not initialised"):
        load_weights(PgAgent(), path)
    for other in (PgAgent(model_kwargs={"hidden_sizes": 9}), CatDqnAgent(n_atoms=5)):
        said = rf"has the weights of another agent than this {type(other).__name__}"
        with pytest.raises(ValueError, match=said):
            load_weights(initialised(other), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="is no whole file of safetensors"):
        load_weights(agent, path)
    safetensors_torch.save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="has weights of something else; expected a file of save_weights"):
        load_weights(agent, path)
    with pytest.raises(TypeError, match="PgAgent keeps more than tensors and numbers in model"):
        save_weights(initialised(PgAgent(ModelCls=Extra)), path)
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (save_weights, load_weights):
        with pytest.raises(ImportError, match=r"safetensors was not found; .*pip install rlpyt\[export\]"):
            call(agent, path)
