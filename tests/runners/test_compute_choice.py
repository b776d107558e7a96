"""The rule for device, precision, memory format and threads."""

from __future__ import annotations

import contextvars
import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import CategoricalPgAgent, DqnAgent, RecurrentCategoricalPgAgent
from rlpyt.algos import PPO
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl, base, compute_choice, runner_from_params
from rlpyt.runners.agreement import Agreement
from rlpyt.runners.compute_choice import settings_by_rule
from rlpyt.samplers import SerialSampler
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.compute import ComputeSettings
from tests.gpu.gpu_kit import CASES, CONV, DISCRETE, IMAGES
from tests.replica_kit import in_threads
from tests.runners.runner_kit import run, without_times

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 40, 40), np.uint8)
NESTED = spaces.Dict({"image": IMAGE, "ale.lives": spaces.Discrete(4)})
AGENTS: dict[str, Any] = {"pg": CategoricalPgAgent, "lstm": RecurrentCategoricalPgAgent, "dqn": DqnAgent}
HALF = ComputeSettings(precision="bfloat16", channels_last=True)


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setattr(compute_choice, "available_threads", lambda: 1)
    monkeypatch.setattr(compute_choice, "_multiplies_bfloat16", lambda device: True)
    yield
    torch.set_num_threads(threads)


def make(kind: str, observation: Any, **kwargs: Any) -> Any:
    agent = AGENTS[kind](**kwargs)
    agent.initialize(EnvSpaces(observation, spaces.Discrete(3)))
    return agent


def sampler_of(env: tuple[Any, dict[str, Any]]) -> SerialSampler:
    return SerialSampler(*env, batch_T=8, batch_B=4, max_decorrelation_steps=0)


# ---- the rule ----


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("fastest", [False, True])
def test_networks_on_vectors_have_one_thread_and_float32(kind, fastest):
    assert settings_by_rule(make(kind, VECTOR), Affinity(), fastest=fastest) == ComputeSettings(torch_threads=1)


@pytest.mark.parametrize(("kind", "observation"), [(k, IMAGE) for k in AGENTS] + [("pg", NESTED), ("lstm", NESTED)])
def test_networks_on_images_compute_in_channels_last_and_stay_as_they_were(kind, observation):
    agent = make(kind, observation)
    before = {name: x.clone() for name, x in agent.model.state_dict().items()}
    parameters, stream = [id(p) for p in agent.parameters()], torch.get_rng_state()
    settings = settings_by_rule(agent, Affinity())
    assert settings == ComputeSettings(channels_last=True, torch_threads=1)
    assert [id(p) for p in agent.parameters()] == parameters
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(torch.equal(x, before[name]) for name, x in agent.model.state_dict().items())
    assert settings_by_rule(agent, Affinity(), fastest=True) == HALF


def test_bfloat16_is_taken_where_the_processor_has_instructions_for_it(monkeypatch):
    monkeypatch.setattr(compute_choice, "_multiplies_bfloat16", lambda device: False)
    assert settings_by_rule(make("pg", IMAGE), Affinity(), fastest=True).precision == "float32"


def test_images_have_a_thread_for_each_core_that_is_free(monkeypatch):
    monkeypatch.setattr(compute_choice, "available_threads", lambda: 5)
    for n_busy, threads in ((0, 5), (2, 3), (9, 1)):
        assert settings_by_rule(make("pg", IMAGE), Affinity(), n_busy).torch_threads == threads


def test_the_affinity_is_obeyed():
    assert settings_by_rule(make("pg", VECTOR), Affinity(master_torch_threads=2)).torch_threads == 2
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="sees no CUDA device"):
            settings_by_rule(make("pg", VECTOR), Affinity(cuda_idx=0))


class Viewing(nn.Module):
    """Model of many scripts, whose `view` cannot take the output of a convolution in channels-last."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 4, 2)
        self.head = nn.Linear(100, 4)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        x = self.conv(observation.reshape(-1, 2, 12, 12).float() / 255)
        out = self.head(x.view(x.shape[0], -1)).reshape(*prev_reward.shape, 4)
        return out[..., :3], out[..., 3]


class OverTime(Viewing):
    """Model whose convolution has weights of five dimensions."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__(observation_space, action_space)
        self.conv = nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv3d(1, 4, (2, 4, 4), 2))  # type: ignore[assignment]


@pytest.mark.parametrize(("ModelCls", "error"), [(Viewing, "view size"), (OverTime, "required rank 4")])
def test_a_model_that_cannot_compute_in_channels_last_keeps_the_plain_format(ModelCls, error, tmp_path):
    parts = PPO(epochs=1, minibatches=2), CategoricalPgAgent(ModelCls=ModelCls)
    runner = run(tmp_path, parts, sampler_of(IMAGES), n_steps=64, settings=None)
    assert not runner.compute.channels_last
    assert f"in channels-last raised RuntimeError: {error}" in (tmp_path / "run_0" / "debug.log").read_text()


# ---- in a run ----


class Restless(nn.Module):
    """Model that draws from torch's global stream, has dropout, and counts its calls by a hook, in a buffer."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.n_calls = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(288, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 4))
        self.body.register_forward_hook(lambda *_: (self.n_calls.add_(100), None)[1])

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        rows = observation.reshape(-1, 2, 12, 12).float() / 255
        out = torch.add(self.body(rows).float().reshape(*prev_reward.shape, 4), torch.rand(()), alpha=0.01)
        return out[..., :3], out[..., 3]


@pytest.mark.parametrize("name", ["restless", "DQN images"])
def test_a_run_by_the_rule_equals_one_that_is_given_the_same(name, tmp_path):
    def parts() -> tuple[Any, Any, Any]:
        if name != "restless":
            return CASES[name]()
        return PPO(epochs=2, minibatches=2), CategoricalPgAgent(ModelCls=Restless), IMAGES

    rows: list[list[dict[str, str]]] = []
    streams: list[torch.Tensor] = []
    for settings in ("fastest", HALF):
        algo, agent, env = parts()
        runner = run(tmp_path / str(len(rows)), (algo, agent), sampler_of(env), n_steps=160, settings=settings)
        assert runner.compute == HALF
        rows.append(without_times(tmp_path / str(len(rows))))
        streams.append(torch.get_rng_state())
    assert rows[0] == rows[1]
    assert torch.equal(*streams)


@pytest.mark.parametrize(("n_threads", "keeps"), [(1, True), (2, False)])
def test_replicas_with_other_cores_agree_whether_they_go_on_as_before(n_threads, keeps, monkeypatch):
    """Replicas may have 2 cores and 1: then one of them would keep the settings, and the other wait for a choice."""
    n_cores = contextvars.ContextVar[int]("n_cores")
    monkeypatch.setattr(compute_choice, "available_cores", n_cores.get)
    choose: Any = compute_choice.compute_of_run
    before = ComputeSettings(torch_threads=n_threads).as_dict()
    monkeypatch.setattr(base, "compute_of_run", lambda *args: choose(*args[:-1], before))

    def work(replicas: Any) -> ComputeSettings:
        n_cores.set(2 - replicas.rank)
        algo, agent, env = CASES["PPO images"]()
        runner = MinibatchRl(algo, agent, sampler_of(env), n_steps=640, seed=1)
        runner._group.agreement = Agreement(replicas)
        runner.train()
        return runner.compute

    assert in_threads(work) == [ComputeSettings() if keeps else ComputeSettings(channels_last=True)] * 2


def test_a_run_is_made_again_and_resumed_in_what_was_recorded(tmp_path, monkeypatch):
    parts = PPO(minibatches=2), CategoricalPgAgent(model_kwargs=CONV)
    runner = MinibatchRl(*parts, sampler_of(IMAGES), 320, 0, settings="fastest", checkpoint_interval_steps=160)
    with logger_context(tmp_path, run_ID=0):
        runner.train()
    assert json.loads((tmp_path / "run_0" / "params.json").read_text())["compute"] == HALF.as_dict()
    monkeypatch.setattr(compute_choice, "_multiplies_bfloat16", lambda device: False)  # another machine
    again = MinibatchRl.resume(tmp_path / "run_0", n_steps=640, sampler=sampler_of(IMAGES), known=[IMAGES[0]])
    assert (again.settings, again.compute) == ("fastest", HALF)
    made = runner_from_params(tmp_path / "run_0", sampler=sampler_of(IMAGES), known=[IMAGES[0]])
    assert made.settings == HALF


@pytest.mark.parametrize("settings", ["slowest", "bfloat16", dict(precision="bfloat16"), HALF.as_dict, True])
def test_settings_of_another_kind_are_refused(settings):
    with pytest.raises(
        TypeError, match=r'settings is .*; expected rlpyt.utils.ComputeSettings\(\.\.\.\), None.*"fastest"'
    ):
        MinibatchRl(PPO(), CategoricalPgAgent(), sampler_of(DISCRETE), 100, settings=settings)
