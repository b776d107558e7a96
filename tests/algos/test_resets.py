"""Resets of parameters: which networks are drawn anew, and what stays."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from rlpyt.agents import DqnAgent, SacAgent
from rlpyt.algos import DQN, SAC
from tests.algos.small_problems import RandomEnv, learn_from, set_up
from tests.algos.test_cost_of_a_variant import BOX

SMALL: dict[str, Any] = dict(hidden_sizes=8)
REPLAY: dict[str, Any] = dict(min_steps_learn=64, replay_size=600, batch_size=8, replay_ratio=1)
NORMALIZED: dict[str, Any] = dict(model_kwargs=dict(SMALL, normalize_observation=True))


def learn(algo: Any, agent: Any, n_itr: int = 6, **env: Any) -> None:
    sampler = set_up(algo, agent, RandomEnv, **env)
    learn_from(algo, sampler, n_itr)
    sampler.shutdown()


def resets(algo: Any) -> Any:
    """The part that resets."""
    return algo.feed.parts[-1]


def weights(agent: Any, name: str) -> list[torch.Tensor]:
    return [x.detach().clone() for x in agent.networks.named(name).parameters()]


def differ(one: list[torch.Tensor], other: list[torch.Tensor]) -> list[bool]:
    return [not torch.equal(x, y) for x, y in zip(one, other, strict=True)]


def test_all_networks_are_drawn_anew_and_statistics_stay() -> None:
    algo, agent = DQN(**REPLAY), DqnAgent(**NORMALIZED)
    learn(algo, agent)
    trained, statistics = weights(agent, "model"), [x.clone() for x in agent.model.buffers()]
    assert algo.optimizer.state
    resets(algo).reset()
    new = weights(agent, "model")
    assert any(differ(trained, new))
    assert not any(differ(new, weights(agent, "target")))
    assert not algo.optimizer.state
    assert not any(differ(statistics, list(agent.model.buffers())))
    assert any(x.any() for x in statistics)
    resets(algo).reset()  # by the seed and the number of the update
    assert not any(differ(new, weights(agent, "model")))
    algo.update_counter += 1
    resets(algo).reset()
    assert any(differ(new, weights(agent, "model")))


def test_a_run_resets_every_so_many_updates_and_goes_on_learning() -> None:
    seen = list[int]()
    algo, agent = DQN(**REPLAY, reset_interval=5), DqnAgent(**NORMALIZED)
    sampler = set_up(algo, agent, RandomEnv)
    reset = resets(algo).reset

    def noted() -> None:
        seen.append(algo.update_counter)
        reset()

    resets(algo).reset = noted
    learn_from(algo, sampler, 8)
    assert seen == list(range(5, algo.update_counter + 1, 5))
    assert len(seen) > 1
    assert algo.optimizer.state


def test_statistics_of_a_layer_with_weights_are_drawn_anew_with_them() -> None:
    layers: dict[str, Any] = dict(hidden_sizes=(8, 8), layers="spectral_norm")
    algo, agent = DQN(**REPLAY), DqnAgent(model_kwargs=layers)
    learn(algo, agent)
    (layer,) = [layer for layer in agent.model.modules() if "v" in layer._buffers][:1]
    before = {name: x.clone() for name, x in layer.state_dict().items()}
    resets(algo).reset()
    after = layer.state_dict()
    assert set(before) == {"weight", "bias", "v"}
    assert all(not torch.equal(before[name], after[name]) for name in ("weight", "v"))
    of_target = agent.networks.named("target").state_dict()
    assert all(torch.equal(x, of_target[name]) for name, x in agent.model.state_dict().items())


def test_a_part_of_one_network_may_be_reset_alone() -> None:
    algo, agent = SAC(**REPLAY, reset_networks=("q_model",)), SacAgent(model_kwargs=SMALL, q_model_kwargs=SMALL)
    learn(algo, agent, env_kwargs=deepcopy(BOX))
    before = {name: weights(agent, name) for name in ("q_model", "model", "target_q")}
    alpha = algo.log_alpha.clone()
    resets(algo).reset()
    assert any(differ(before["q_model"], weights(agent, "q_model")))
    assert not any(differ(before["model"], weights(agent, "model")))
    assert not any(differ(weights(agent, "q_model"), weights(agent, "target_q")))
    assert not algo.descents["q"].optimizer.state
    assert algo.descents["pi"].optimizer.state
    assert torch.equal(alpha, algo.log_alpha)


def test_weights_that_the_agent_was_given_are_drawn_anew_too() -> None:
    settings: dict[str, Any] = dict(model_kwargs=SMALL, q_model_kwargs=SMALL)
    first = SacAgent(**settings)
    learn(SAC(**REPLAY), first, n_itr=1, env_kwargs=deepcopy(BOX))
    given = {name: deepcopy(first.networks.named(name).state_dict()) for name in ("model", "q_model")}
    algo = SAC(**REPLAY)
    agent = SacAgent(initial_model_state_dict=given["model"], initial_q_model_state_dict=given["q_model"], **settings)
    learn(algo, agent, n_itr=1, env_kwargs=deepcopy(BOX))
    assert not any(differ(weights(agent, "q_model"), list(given["q_model"].values())))
    resets(algo).reset()
    assert any(differ(weights(agent, "q_model"), list(given["q_model"].values())))


def test_a_network_that_is_not_there_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match=r"reset_networks has 'critic'; expected model"):
        learn(DQN(**REPLAY, reset_interval=5, reset_networks=("critic",)), DqnAgent(**NORMALIZED))
