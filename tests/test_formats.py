"""Files of every format that was released: each is read, or refused with what it needs.

`tests/data/formats` has one file of each. A new format gets files of its own; those that are there stay as they are.
`python -m tests.test_formats <folder>` writes files of the formats of now, and those of rlpyt 0.1 in its layout.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent, PgAgent, load_weights, save_weights
from rlpyt.algos import DQN
from rlpyt.logging import SnapshotError, load_snapshot, logger_context, read_progress
from rlpyt.logging.checkpoint_files import FORMAT, CheckpointFiles
from rlpyt.runners import MinibatchRl, RecordError, load_agent
from rlpyt.samplers import SerialSampler
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.compute import ComputeSettings

FORMATS = Path(__file__).parent / "data" / "formats"
OBSERVATIONS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
STEPS = 80
NOW = "run_1"
"""Run with a snapshot, a checkpoint of format 1 and a file of weights."""


def write(folder: Path) -> None:
    """Write files of the formats of now, and of rlpyt 0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    algo = DQN(batch_size=4, min_steps_learn=20, replay_size=64, replay_ratio=1, prioritized_replay=True)
    agent = DqnAgent(model_kwargs=dict(hidden_sizes=(4,)))
    sampler = SerialSampler(gymnasium.make, dict(id="CartPole-v1"), batch_T=5, batch_B=2)
    options: dict[str, Any] = dict(n_steps=STEPS, log_interval_steps=40, seed=0, settings=ComputeSettings())
    with logger_context(folder, int(NOW.removeprefix("run_"))):
        MinibatchRl(algo, agent, sampler, checkpoint_interval_steps=STEPS, **options).train()
    run = folder / NOW
    (run / "q.json").write_text(json.dumps(q_values(agent).tolist()) + "\n")
    save_weights(agent, run / "weights.safetensors")
    for name in ("debug.log", "run.lock", "status.json"):
        (run / name).unlink(missing_ok=True)
    params = json.loads((run / "params.json").read_text())
    params |= {"argv": [], "git_commit": None, "logger": {**params["logger"], "log_dir": "data"}}  # of no machine
    (run / "params.json").write_text(json.dumps(params, indent=1) + "\n")
    write_rlpyt_0_1(folder / "rlpyt_0_1")


def write_rlpyt_0_1(folder: Path) -> None:
    """Write a snapshot in the layout of rlpyt 0.1, as torch saved it before and since version 1.6."""
    folder.mkdir(parents=True, exist_ok=True)
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = {"pi.weight": layer.weight.detach(), "pi.bias": layer.bias.detach()}
    params = dict(itr=9, cum_steps=100, agent_state_dict=state, optimizer_state_dict=optimizer.state_dict())
    torch.save(params, folder / "params.pkl")
    torch.save(params, folder / "params_torch_1_5.pkl", _use_new_zipfile_serialization=False)
    (folder / "params.json").write_text('{"run_ID": 0, "name": "old", "game": "pong"}\n')


def q_values(agent: Any) -> torch.Tensor:
    agent.eval_mode(0, deterministic=True)
    zeros = np.zeros(3)
    q: torch.Tensor = agent.step(OBSERVATIONS, zeros, zeros).agent_info.q
    return q


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FORMATS / NOW, tmp_path / NOW))


def expected(run: Path) -> torch.Tensor:
    return torch.tensor(json.loads((run / "q.json").read_text()))


# ---- this library ----


def test_a_snapshot_loads(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    torch.testing.assert_close(q_values(load_agent(run)), expected(run))
    snapshot = load_snapshot(run / "params.pkl")
    assert list(snapshot) == ["itr", "cum_steps", "agent_state_dict", "optimizer_state_dict"]
    assert snapshot["cum_steps"] == STEPS


def test_a_checkpoint_of_format_1_loads_and_the_run_goes_on(run: Path) -> None:
    (run / "params.pkl").unlink()
    torch.testing.assert_close(q_values(load_agent(run)), expected(run))
    files = CheckpointFiles(run / "checkpoints")
    assert files.info(STEPS)["format"] == 1 <= FORMAT
    saved = files.read(STEPS)
    assert set(saved.state) >= {"agent", "algo", "sampler", "progress", "logger", "streams"}
    runner = MinibatchRl.resume(run, n_steps=STEPS + 40)
    assert read_progress(run)["Diagnostics/CumSteps"] == [40, STEPS, STEPS + 40]
    assert read_progress(run)["Diagnostics/CumUpdates"][-1] == runner.algo.update_counter
    assert not torch.allclose(q_values(load_agent(run)), expected(run))


def test_a_file_of_weights_loads(run: Path) -> None:
    pytest.importorskip("safetensors")
    agent = DqnAgent(model_kwargs=dict(hidden_sizes=(4,)))
    agent.initialize(EnvSpaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)))
    load_weights(agent, run / "weights.safetensors")
    torch.testing.assert_close(q_values(agent), expected(run))


# ---- rlpyt 0.1 ----


@pytest.mark.parametrize("name", ["params.pkl", "params_torch_1_5.pkl"])
def test_a_snapshot_of_rlpyt_0_1_is_read_and_its_weights_say_what_they_need(name: str) -> None:
    snapshot = load_snapshot(FORMATS / "rlpyt_0_1" / name)
    assert (snapshot["itr"], snapshot["cum_steps"]) == (9, 100)
    assert list(snapshot["agent_state_dict"]) == ["pi.weight", "pi.bias"]
    assert snapshot["optimizer_state_dict"]["state"][0]["exp_avg"].shape == (4, 4)
    agent = PgAgent(model_kwargs=dict(hidden_sizes=4))
    agent.initialize(EnvSpaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)))
    said = (
        r"PgAgent: .* 'pi.weight', 'pi.bias'; expected 'model', 'reward_rms'.*rlpyt 0.1 .*docs/start/from_rlpyt_0_1.md"
    )
    with pytest.raises(ValueError, match=said):
        agent.load_state_dict(snapshot["agent_state_dict"])


def test_a_run_of_rlpyt_0_1_says_what_it_needs() -> None:
    with pytest.raises(RecordError, match=r"has no record of a runner under 'runner'; expected the params.json"):
        load_agent(FORMATS / "rlpyt_0_1")


def test_a_cut_file_of_an_older_torch_is_refused(tmp_path: Path) -> None:
    content = (FORMATS / "rlpyt_0_1" / "params_torch_1_5.pkl").read_bytes()
    for n in (20, len(content) // 2, len(content) - 1):
        (tmp_path / "params.pkl").write_bytes(content[:n])
        with pytest.raises(SnapshotError, match="does not load"):
            load_snapshot(tmp_path / "params.pkl")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
