"""Agents that are loaded from the directory of a run, and act as those that were trained."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    CatDqnAgent,
    DqnAgent,
    PgAgent,
    RecurrentCategoricalPgAgent,
    Td3Agent,
)
from rlpyt.algos import DQN, PPO, TD3, CategoricalDQN
from rlpyt.logging import SnapshotError, load_snapshot, save_snapshot
from rlpyt.models import PgModel
from rlpyt.runners import AsyncRl, MinibatchRl, MinibatchRlEval, RecordError, SyncRl, load_agent
from rlpyt.runners.rows import Rows
from rlpyt.spaces import EnvSpaces, random_value
from rlpyt.utils.arrays import buffer_from_example, buffer_leaves
from tests.algos.small_problems import RandomEnv
from tests.runners.runner_kit import make_sampler, run
from tests.toy_envs import CountingEnv, DictCountingEnv

SMALL: dict[str, Any] = dict(hidden_sizes=8)
REPLAY: dict[str, Any] = dict(batch_size=8, min_steps_learn=20, replay_size=200, replay_ratio=1)
SIZES: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)
LSTM: dict[str, Any] = dict(hidden_sizes=8, rnn_size=8)
IMAGE: dict[str, Any] = dict(channels=(2,), kernel_sizes=(2,), strides=(1,))
BOX: dict[str, Any] = dict(env_kwargs=dict(action_space=spaces.Box(np.float32(-1), np.array([2, 5], np.float32))))


def ppo() -> PPO:
    return PPO(minibatches=2, epochs=1)


class OwnModel(PgModel):
    """Model of a user."""


CASES: dict[str, Any] = {
    "ppo": lambda: (
        ppo(),
        PgAgent(model_kwargs={**SMALL, "normalize_observation": True}),
        CountingEnv,
        {},
        MinibatchRl,
    ),
    "lstm": lambda: (
        *(ppo(), RecurrentCategoricalPgAgent(model_kwargs={**LSTM, **IMAGE}), DictCountingEnv, {}, MinibatchRl),
    ),
    "dqn, asynchronous": lambda: (
        *(DQN(**REPLAY), DqnAgent(model_kwargs=SMALL, eps_eval=0.3), CountingEnv, {}, AsyncRl),
    ),
    "categorical dqn": lambda: (
        *(CategoricalDQN(**REPLAY), CatDqnAgent(model_kwargs=SMALL, n_atoms=5), CountingEnv, {}, MinibatchRl),
    ),
    "td3, replicas": lambda: (*(TD3(**REPLAY), Td3Agent(**SIZES), RandomEnv, BOX, SyncRl),),
}


def train(folder: Path, case: str, **options: Any) -> Any:
    algo, agent, EnvCls, env, Runner = CASES[case]()
    replicas = {"n_replicas": 2} if Runner is SyncRl else {}
    return run(folder, (algo, agent), make_sampler(EnvCls=EnvCls, **env), Runner, **{**replicas, **options}).agent


def episode(agent: Any, n_rows: int | None, **options: Any) -> list[Any]:
    """Return all that an agent gives for three steps, of one environment or several."""
    rng, space = np.random.default_rng(0), agent.env_spaces.observation
    torch.manual_seed(0)
    agent.eval_mode(0, **options)
    steps, prev_action, prev_reward = [], None, None
    for _ in range(3):
        observation = random_value(space, rng)
        if n_rows is not None:
            rows = buffer_from_example(observation, n_rows)
            for i in range(n_rows):
                rows[i] = random_value(space, rng)
            observation = rows
        step = agent.step(observation, prev_action, prev_reward)
        steps += buffer_leaves(step)
        prev_action, prev_reward = step.action, np.ones(() if n_rows is None else n_rows, np.float32)
    return steps


def same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_agent_acts_as_the_trained_one(case: str, tmp_path: Path) -> None:
    trained = train(tmp_path, case)
    agent = load_agent(tmp_path / "run_0")
    assert type(agent) is type(trained)
    assert agent.env_spaces == trained.env_spaces
    for n_rows in (None, 3):
        for options in ({}, {"deterministic": True}):
            assert same(episode(agent, n_rows, **options), episode(trained, n_rows, **options))
    for name, values in trained.state_dict().items():
        if isinstance(values, dict):
            assert same(list(agent.state_dict()[name].values()), list(values.values()))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("load")
    train(folder, "ppo", snapshot_mode="all", checkpoint_interval_steps=60)
    return folder / "run_0"


@pytest.fixture
def copied(run_dir: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_dir, tmp_path / "data" / "run_0"))


def weights(agent: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in agent.parameters()])


def test_the_newest_state_is_taken_and_another_can_be_named(copied: Path, capsys: Any) -> None:
    """Snapshots are after 40, 80 and 100 steps, checkpoints after 60 and 100."""
    assert sorted(file.name for file in copied.glob("*.pkl")) == ["itr_1.pkl", "itr_3.pkl", "itr_4.pkl"]
    newest = weights(load_agent(copied))
    assert torch.equal(newest, weights(load_agent(copied, snapshot="itr_4.pkl")))
    first = weights(load_agent(copied, snapshot="itr_1.pkl"))
    assert not torch.equal(newest, first)
    save_snapshot(copied / "params.pkl", load_snapshot(copied / "itr_1.pkl"))  # of an earlier start
    (copied / "checkpoints").rename(copied / "aside")
    assert torch.equal(weights(load_agent(copied)), newest)
    (copied / "aside").rename(copied / "checkpoints")
    (copied / "itr_3.pkl").unlink()
    (copied / "itr_4.pkl").unlink()
    assert torch.equal(weights(load_agent(copied)), newest)
    before, last = sorted(copied.glob("checkpoints/0*"))
    assert (int(before.name), int(last.name)) == (60, 100)
    capsys.readouterr()
    os.truncate(last / "rank_0.pt", 100)
    between = weights(load_agent(copied))
    assert "The checkpoint of step 100 is damaged; the one before is taken." in capsys.readouterr().out
    assert not torch.equal(between, first)
    assert not torch.equal(between, newest)
    (before / "manifest.json").unlink()  # half written
    assert torch.equal(weights(load_agent(copied)), first)
    for file in copied.glob("*.pkl"):
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"has no params.pkl, itr_<N>.pkl or checkpoint; expected one"):
        load_agent(copied)


def test_the_best_checkpoint_can_be_named(tmp_path: Path, run_dir: Path) -> None:
    class Scripted(MinibatchRlEval):
        scores = iter([3.0, 5.0, 1.0, 2.0, 0.0])

        def _make_rows(self) -> Rows:
            rows: Any = super()._make_rows()
            rows.score = self.score
            return rows

        def score(self, n_done: int) -> float:
            state.setdefault(n_done, weights(self.agent))
            return next(self.scores)

    state: dict[int, torch.Tensor] = {}
    sampler = make_sampler(eval_n_envs=1, eval_max_trajectories=1)
    options: dict[str, Any] = dict(checkpoint_interval_steps=60, snapshot_mode="none")
    run(tmp_path, (ppo(), PgAgent(model_kwargs=SMALL)), sampler, Scripted, **options)
    assert torch.equal(weights(load_agent(tmp_path / "run_0", snapshot="best")), state[2])
    assert torch.equal(weights(load_agent(tmp_path / "run_0")), state[5])
    with pytest.raises(FileNotFoundError, match="has no checkpoint with a score; expected one"):
        load_agent(run_dir, snapshot="best")


def test_settings_and_spaces_may_be_given(copied: Path, tmp_path: Path) -> None:
    train(tmp_path / "dqn", "categorical dqn")
    changed: Any = load_agent(tmp_path / "dqn" / "run_0", eps_eval=0.5)
    assert changed.eps_eval == 0.5
    params = json.loads((copied / "params.json").read_text())
    recorded = params.pop("spaces")
    (copied / "params.json").write_text(json.dumps(params))
    with pytest.raises(RecordError, match=r"does not have the spaces .* Write load_agent\(..., env_spaces=make_env"):
        load_agent(copied)
    env = CountingEnv()
    agent = load_agent(copied / "params.json", env_spaces=EnvSpaces(env.observation_space, env.action_space))
    assert agent.step(env.reset()[0], None, None).action.shape == ()
    recorded["observation"] = {"unrecorded": "a graph"}
    (copied / "params.json").write_text(json.dumps({**params, "spaces": recorded}))
    with pytest.raises(RecordError, match="spaces of the environments \\(a graph\\)"):
        load_agent(copied)


def test_a_run_that_began_with_weights_loads_without_them(tmp_path: Path) -> None:
    before = Td3Agent(**SIZES)
    before.initialize(EnvSpaces(RandomEnv().observation_space, BOX["env_kwargs"]["action_space"]))
    agent = Td3Agent(initial_model_state_dict=before.state_dict(), **SIZES)
    options: dict[str, Any] = dict(sampler=make_sampler(EnvCls=RandomEnv, **BOX), snapshot_mode="all")
    run(tmp_path, (TD3(**{**REPLAY, "min_steps_learn": 60}), agent), **options)
    loaded: Any = load_agent(tmp_path / "run_0", snapshot="itr_1.pkl")  # from before the first update
    assert loaded.fraction == 0.0
    by_policy = episode(before, 3, deterministic=True)
    assert same(episode(loaded, 3), by_policy), "it acts at random"
    assert not same(episode(before, 3), by_policy)


def test_mistakes_are_told(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"load_agent: there is no .*nowhere; expected the directory of a run"):
        load_agent(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"; .*data has the runs run_0\."):
        load_agent(copied.parent)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*itr_7.pkl; beside it are \['itr_1.pkl'"):
        load_agent(copied, snapshot="itr_7.pkl")
    with pytest.raises(ValueError, match=r"torch sees|device is 'cuda:7'"):
        load_agent(copied, device="cuda:7")
    with pytest.raises(TypeError, match="eps_eval"):
        load_agent(copied, eps_eval=0.5)
    other = EnvSpaces(spaces.Box(-1, 1, (9,), np.float32), CountingEnv().action_space)
    with pytest.raises(ValueError, match=r"weights of .*itr_4.pkl do not fit the PgAgent .*Error"):
        load_agent(copied, env_spaces=other)
    agent: Any = load_agent(copied)
    shape = agent.env_spaces.observation.shape
    with pytest.raises(ValueError, match=r"observation has the shape \[9\]; expected \["):
        agent.step(np.zeros(9), None, None)
    assert agent.step(np.zeros((5, *shape)), np.zeros(5), np.zeros(5)).action.shape == (5,)
    save_snapshot(copied / "itr_5.pkl", {"itr": 5})
    with pytest.raises(ValueError, match=r"itr_5.pkl has no 'agent_state_dict'; expected a snapshot"):
        load_agent(copied)
    (copied / "itr_5.pkl").write_bytes((copied / "itr_4.pkl").read_bytes()[:-200])
    with pytest.raises(SnapshotError, match=r"itr_5.pkl is no whole snapshot"):
        load_agent(copied)


def test_classes_of_the_record_must_be_known(tmp_path: Path) -> None:
    run(tmp_path, (ppo(), PgAgent(ModelCls=OwnModel, model_kwargs=SMALL)), n_steps=40)
    params = tmp_path / "run_0" / "params.json"
    with pytest.raises(RecordError, match=r"load_agent: ModelCls names .*OwnModel.*give known=\[OwnModel\]"):
        load_agent(tmp_path / "run_0")
    loaded: Any = load_agent(tmp_path / "run_0", known=[OwnModel])
    assert type(loaded.model) is OwnModel
    content = params.read_text()
    params.write_text(content.replace('"rlpyt.agents:PgAgent"', '"os:system"'))
    with pytest.raises(RecordError, match="names os:system"):
        load_agent(tmp_path / "run_0", known=[OwnModel])
    params.write_text(content.replace('"rlpyt.agents:PgAgent"', '"rlpyt.algos:PPO"'))
    with pytest.raises((RecordError, TypeError), match="PPO"):
        load_agent(tmp_path / "run_0", known=[OwnModel])
