"""The choice of device, precision, memory format and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, DqnAgent, RecurrentCategoricalPgAgent
from rlpyt.runners import compute_choice, rehearsal
from rlpyt.runners.compute_choice import Choice, choose_settings
from rlpyt.spaces import EnvSpaces
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.compute import ComputeSettings

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 40, 40), np.uint8)
NESTED = spaces.Dict({"image": IMAGE, "ale.lives": spaces.Discrete(4)})
AGENTS: dict[str, Any] = {"pg": CategoricalPgAgent, "lstm": RecurrentCategoricalPgAgent, "dqn": DqnAgent}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setattr(rehearsal, "_SECONDS", 0.0)
    monkeypatch.setattr(compute_choice, "available_threads", lambda: 1)
    yield
    torch.set_num_threads(threads)


def make(kind: str, observation: Any) -> Any:
    agent = AGENTS[kind]()
    agent.initialize(EnvSpaces(observation, spaces.Discrete(3)))
    return agent


@pytest.mark.parametrize("kind", AGENTS)
def test_networks_on_vectors_keep_the_plain_settings(kind):
    assert choose_settings(make(kind, VECTOR), Affinity()) == Choice(ComputeSettings(torch_threads=1))


def test_images_keep_float32_unless_bfloat16_is_asked_for(monkeypatch):
    monkeypatch.setattr(compute_choice, "seconds_of", lambda steps, device: [1.0, 0.9, 0.1][: len(steps)])
    for bfloat16, expected in ((False, "float32"), (True, "bfloat16")):
        assert choose_settings(make("pg", IMAGE), Affinity(), bfloat16=bfloat16).settings.precision == expected


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("observation", [IMAGE, NESTED], ids=["image", "nested"])
def test_networks_on_images_are_measured_and_left_as_they_were(kind, observation):
    if kind == "dqn" and observation is NESTED:
        kind = "pg"
    agent = make(kind, observation)
    before = {name: x.clone() for name, x in agent.model.state_dict().items()}
    parameters = [id(p) for p in agent.parameters()]
    settings = choose_settings(agent, Affinity(), bfloat16=True).settings
    assert settings.device == "cpu"
    assert settings.torch_threads == 1
    assert settings.precision == "float32" or settings.channels_last
    assert agent.compute.precision == "float32"
    assert not agent.compute.channels_last
    assert [id(p) for p in agent.parameters()] == parameters
    assert all(torch.equal(x, before[name]) for name, x in agent.model.state_dict().items())
    assert all(p.grad is None for p in agent.parameters())
    agent.to_device(settings)
    assert all(x.isfinite().all() for x in agent.model.state_dict().values())


def test_a_faster_setting_is_taken_only_where_it_is_worth_it(monkeypatch):
    seconds: list[float] = []
    monkeypatch.setattr(compute_choice, "seconds_of", lambda steps, device: seconds)
    agent = make("pg", IMAGE)
    plain_strides = [p.stride() for p in agent.parameters()]
    for plain, last, half, expected in [
        (1.0, 0.97, 0.96, (False, "float32")),
        (1.0, 0.9, 0.87, (True, "float32")),
        (1.0, 0.9, 0.5, (True, "bfloat16")),
        (1.0, 1.2, 0.5, (True, "bfloat16")),
    ]:
        seconds[:] = plain, last, half
        choice = choose_settings(agent, Affinity(), bfloat16=True)
        settings, times = choice.settings, [f"{1e3 * x:.3g} ms" for x in seconds]
        assert choice.plan["timed"].endswith("float32 {}, channels-last {}, bfloat16 {}".format(*times))
        assert (settings.channels_last, settings.precision) == expected
        agent.to_device(settings)
        assert [p.stride() for p in agent.parameters()] == plain_strides or settings.channels_last


@pytest.mark.parametrize(("half", "expected"), [(0.97, "float32"), (0.93, "bfloat16")])
def test_bfloat16_for_vectors_is_taken_where_it_is_worth_it(half, expected, monkeypatch):
    monkeypatch.setattr(compute_choice, "seconds_of", lambda steps, device: [1.0, half])
    settings = choose_settings(make("pg", VECTOR), Affinity(), bfloat16=True).settings
    assert settings == ComputeSettings(precision=expected)


def test_images_have_a_thread_for_each_core_that_is_free(monkeypatch):
    monkeypatch.setattr(compute_choice, "available_threads", lambda: 5)
    monkeypatch.setattr(compute_choice, "seconds_of", lambda steps, device: [1.0, 1.0])
    for n_busy, threads in ((0, 5), (2, 3), (9, 1)):
        assert choose_settings(make("pg", IMAGE), Affinity(), n_busy).settings.torch_threads == threads


def test_the_affinity_is_obeyed():
    assert choose_settings(make("pg", VECTOR), Affinity(master_torch_threads=2)).settings.torch_threads == 2
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="sees no CUDA device"):
            choose_settings(make("pg", VECTOR), Affinity(cuda_idx=0))
