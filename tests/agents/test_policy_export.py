"""Exported policies give the agent's actions in a process that cannot import this library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import (
    BaseAgent,
    CatDqnAgent,
    CategoricalPgAgent,
    DqnAgent,
    GaussianPgAgent,
    IqnAgent,
    PgAgent,
    QrDqnAgent,
    RecurrentCategoricalPgAgent,
    RecurrentSacAgent,
    SacAgent,
    Td3Agent,
    export_policy,
)
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.arrays import buffer_leaves
from tests.random_kit import random_rows

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 12, 12), np.uint8)
PARTS: list[tuple[str, Any]] = [
    *[("z", spaces.Box(-1, 1, (2,), np.float32)), ("a", spaces.Box(-1, 1, (2,), np.float64)), ("image", IMAGE)],
    ("pair", spaces.Tuple([spaces.Discrete(4, start=1), spaces.MultiBinary(2)])),
]
TREE = spaces.Dict(PARTS)  # with keys that are not sorted
DISCRETE, BOX = spaces.Discrete(4, start=2), spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32))
TABLE = spaces.Box(-3, 1, (2, 2), np.float32)
SMALL: dict[str, Any] = dict(hidden_sizes=8)
CONV: dict[str, Any] = dict(channels=(2,), kernel_sizes=(3,), strides=(2,))
SIZES: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)
FEATURES: dict[str, Any] = dict(rnn_size=8, recurrent="gru", normalize_observation=True)


class ReadsReward(nn.Module):
    """Model of a user, which reads the previous action and reward, and is no `Model`."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(observation_space.shape[0] + int(action_space.n) + 1, int(action_space.n) + 1)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        x = self.layer(torch.cat([observation, prev_action, 10 * prev_reward[..., None]], -1))
        return x[..., 1:], x[..., 0]


KINDS: dict[str, Any] = {
    "dqn": lambda: (DqnAgent(model_kwargs={**SMALL, **CONV, "dueling": True, "noisy": True}), IMAGE, DISCRETE),
    "c51": lambda: (CatDqnAgent(model_kwargs=SMALL, n_atoms=7), VECTOR, DISCRETE),
    "hl_gauss": lambda: (DqnAgent(model_kwargs=SMALL, value_head="hl_gauss:-2,3,7"), VECTOR, DISCRETE),
    "qr": lambda: (QrDqnAgent(model_kwargs=SMALL, n_quantiles=5), VECTOR, DISCRETE),
    "iqn": lambda: (IqnAgent(model_kwargs={**SMALL, "n_acting_tau": 4}), VECTOR, DISCRETE),
    "categorical": lambda: (CategoricalPgAgent(model_kwargs={**SMALL, **CONV}), TREE, spaces.MultiDiscrete([3, 2])),
    "gaussian": lambda: (GaussianPgAgent(model_kwargs={**SMALL, "normalize_observation": True}), VECTOR, BOX),
    "sac": lambda: (SacAgent(**SIZES), VECTOR, TABLE),
    "td3": lambda: (Td3Agent(**SIZES), VECTOR, BOX),
    "lstm": lambda: (
        *(RecurrentCategoricalPgAgent(model_kwargs={**SMALL, **CONV, "rnn_size": 8}), TREE, spaces.Discrete(3)),
    ),
    "gru": lambda: (RecurrentSacAgent(feature_kwargs=FEATURES, **SIZES), VECTOR, BOX),
    "own": lambda: (PgAgent(ModelCls=ReadsReward), VECTOR, DISCRETE),
}
ONNX_TOO = ("dqn", "c51", "hl_gauss", "categorical", "gaussian", "sac", "td3", "lstm", "gru")
"""Each takes a second or two to convert; a quantile network has no operation that these have not."""
SIZES_OF_BATCHES = (1, 16)
STEPS = 3

ALONE = """
import json, sys
sys.modules["rlpyt"] = None
import torch

def given(name, observation, previous):
    for key in name.split(".")[1:] if name.startswith("observation") else ():
        observation = observation[int(key) if isinstance(observation, tuple) else key]
    return observation if name.startswith("observation") else previous[name]

def episode(policy, about, observations, in_one):
    B, actions = observations[0]["B"], []
    previous = {
        x["name"]: torch.zeros([B, *x["shape"][1:]], dtype=getattr(torch, x["dtype"])) for x in about["inputs"]
    }
    previous["prev_action"] = torch.tensor(about["null_action"]).expand(B, *torch.tensor(about["null_action"]).shape)
    later = [x["name"] for x in about["inputs"] if not x["name"].startswith("observation")]
    for step in observations:
        inputs = [step["observation"], *(previous[name] for name in later)]
        if not in_one:
            inputs = [given(x["name"], step["observation"], previous) for x in about["inputs"]]
        outputs = policy(*inputs)
        outputs = dict(zip(about["outputs"], [outputs] if isinstance(outputs, torch.Tensor) else outputs, strict=True))
        actions.append(outputs["action"])
        previous.update(outputs, prev_action=outputs["action"], prev_reward=step["reward"])
    return actions

def onnx(path):
    import onnxruntime
    session = onnxruntime.InferenceSession(path)
    about = json.loads(session.get_modelmeta().custom_metadata_map["rlpyt"])
    assert [x.name for x in session.get_inputs()] == [x["name"] for x in about["inputs"]]
    def policy(*inputs):
        feed = {x["name"]: value.numpy() for x, value in zip(about["inputs"], inputs, strict=True)}
        return [torch.from_numpy(x) for x in session.run(None, feed)]
    return policy, about

def program(path):
    files = {"policy.json": ""}
    return torch.export.load(path, extra_files=files).module(), json.loads(files["policy.json"])

found = {}
for path, batches in torch.load("inputs.pt", weights_only=True).items():
    policy, about = onnx(path) if path.endswith(".onnx") else program(path)
    found[path] = [episode(policy, about, observations, path.endswith(".pt2")) for observations in batches]
assert sys.modules["rlpyt"] is None and not [name for name in sys.modules if name.startswith("rlpyt.")]
torch.save(found, "outputs.pt")
"""


def make(kind: str) -> BaseAgent:
    """Return an agent, the first of many seeds whose actions differ: an action that never changes says nothing."""
    for seed in range(50):
        torch.manual_seed(seed)
        agent, observation, action = KINDS[kind]()
        agent.initialize(EnvSpaces(observation, action))
        if kind == "c51":
            agent.give_V_min_max(-2.0, 3.0)
        batch = batch_of(agent, 20, 9)
        agent.update_obs_rms(batch)
        agent.eval_mode(0, deterministic=True)
        actions = agent.step(batch, torch.zeros(20, *action.shape), torch.zeros(20)).action
        if (actions != actions[0]).any():
            break
    return agent


def batch_of(agent: BaseAgent, B: int, seed: int) -> Any:
    rows, generator = random_rows(agent.env_spaces.observation, B, seed=seed), torch.Generator().manual_seed(seed)
    for leaf in buffer_leaves(rows):
        if leaf.ndim == 4:  # images, whose pixels would cancel out
            leaf[:] = leaf // 8 + torch.randint(220, (B, 2, 1, 1), generator=generator)
    return rows


def plain(space: Any, rows: Any) -> Any:
    """Return rows as someone without the library would have them."""
    if isinstance(space, spaces.Dict):
        return {key: plain(part, rows[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(plain(part, x) for part, x in zip(space.spaces, rows, strict=True))
    return rows


def acted(agent: BaseAgent, batch: list[dict[str, Any]], rows: list[Any]) -> list[torch.Tensor]:
    agent.eval_mode(0, deterministic=True)
    actions: list[torch.Tensor] = []
    prev_action: Any = None
    prev_reward: Any = None
    for step, observation in zip(batch, rows, strict=True):
        prev_action = agent.step(observation, prev_action, prev_reward).action
        prev_reward = step["reward"]
        actions.append(prev_action)
    return actions


SOME = ("gaussian", "lstm")
"""Bounds and statistics of observations, and a state of a tree of observations with an image."""


@pytest.mark.timeout(400)  # all of them, on a busy machine, take over 100 s
@pytest.mark.parametrize(
    "files",
    [
        [f"{kind}.pt2" for kind in SOME],
        pytest.param([f"{kind}.pt2" for kind in KINDS if kind not in SOME], marks=pytest.mark.nightly),
        pytest.param([f"{kind}.onnx" for kind in ONNX_TOO], marks=pytest.mark.nightly),
    ],
    ids=["some", "others", "onnx"],
)
def test_files_act_as_their_agents_without_the_library(files: list[str], tmp_path: Path) -> None:
    if any(file.endswith(".onnx") for file in files):
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    inputs: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for file in files:
        agent = make(file.partition(".")[0])
        inputs[file], expected[file] = [], []
        for B in SIZES_OF_BATCHES:
            rows = [batch_of(agent, B, seed) for seed in range(STEPS)]
            rewards = torch.linspace(-1, 2, STEPS)
            space = agent.env_spaces.observation
            steps = [
                {"B": B, "observation": plain(space, x), "reward": reward.expand(B).clone()}
                for x, reward in zip(rows, rewards, strict=True)
            ]
            inputs[file].append(steps)
            expected[file].append(acted(agent, steps, rows))
        export_policy(agent, tmp_path / file)
    torch.save(inputs, tmp_path / "inputs.pt")
    command = [sys.executable, "-I", "-W", "ignore", "-c", ALONE]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stderr
    found = torch.load(tmp_path / "outputs.pt", weights_only=True)
    assert list(found) == files
    for file in files:
        for ours, theirs in zip(expected[file], found[file], strict=True):
            for x, y in zip(ours, theirs, strict=True):
                assert x.dtype == y.dtype
                torch.testing.assert_close(x, y, atol=1e-5, rtol=1e-5)
        actions = torch.stack(expected[file][1]).double()
        assert (actions != actions[0, 0]).any(), f"{file}: an action that never changes says nothing"


def described(path: Path) -> Any:
    files = {"policy.json": ""}
    torch.export.load(path, extra_files=files)
    return json.loads(files["policy.json"])


def test_the_previous_action_and_reward_are_inputs_where_they_are_read(tmp_path: Path) -> None:
    about = described(export_policy(make("categorical"), tmp_path / "a.pt2"))
    names = ["observation.z", "observation.a", "observation.image", "observation.pair.0", "observation.pair.1"]
    assert [x["name"] for x in about["inputs"]] == names
    assert about["inputs"][2] == {"name": "observation.image", "dtype": "uint8", "shape": ["B", 2, 12, 12]}
    assert about["action_space"] == {"space": "MultiDiscrete", "nvec": [3, 2], "start": [0, 0]}
    about = described(export_policy(make("own"), tmp_path / "b.pt2"))
    assert [x["name"] for x in about["inputs"]] == ["observation", "prev_action", "prev_reward"]
    assert about["action_space"] == {"space": "Discrete", "n": 4, "start": 2}
    about = described(export_policy(make("gru"), tmp_path / "c.pt2"))
    assert [x["name"] for x in about["inputs"]][1:] == ["prev_action", "prev_reward", "rnn_state.h"]
    assert about["outputs"] == ["action", "rnn_state.h"]
    assert about["action_space"] == {"space": "Box", "low": [-2.0, 0.0], "high": [2.0, 5.0]}
    assert about["null_action"] == [0.0, 2.5]


def test_the_agent_and_the_random_stream_stay_as_they_were(tmp_path: Path) -> None:
    agent = make("dqn")
    agent.sample_mode(0)
    agent.model.train()
    before = torch.random.get_rng_state()
    export_policy(agent, tmp_path / "a.pt2")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert agent.mode == "sample"
    assert agent.model.training
    assert all(p.requires_grad for p in agent.model.parameters())


class Opposite(DqnAgent):
    """Agent of a user that takes the worst action, which can be exported."""

    def act(self, output: Any, actor: Any) -> Any:
        return output.argmin(-1)


class OwnStep(DqnAgent):
    """Agent of a user that always takes the first action."""

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        step = super().step(observation, prev_action, prev_reward)
        return step._replace(action=torch.zeros_like(step.action))


def of(AgentCls: Any) -> Any:
    torch.manual_seed(0)
    agent = AgentCls(model_kwargs=SMALL)
    agent.initialize(EnvSpaces(VECTOR, DISCRETE))
    return agent


def test_what_cannot_be_exported_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="is not initialised"):
        export_policy(DqnAgent(), tmp_path / "a.pt2")
    with pytest.raises(ValueError, match=r"the path is .*a.pth; expected one that ends with .pt2 or .onnx"):
        export_policy(of(DqnAgent), tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"where OwnStep gives .*; expected the same.*let act"):
        export_policy(of(OwnStep), tmp_path / "a.pt2")
    assert not (tmp_path / "a.pt2").exists()
    export_policy(of(Opposite), tmp_path / "a.pt2")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"onnx and onnxscript were not found; .*pip install rlpyt\[export\]"):
        export_policy(of(DqnAgent), tmp_path / "a.onnx")
