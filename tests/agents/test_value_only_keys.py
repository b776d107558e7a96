"""Keys of an observation that action values see and the policy does not, in the agents of DDPG, TD3 and SAC."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DdpgAgent, DiscreteSacAgent, SacAgent, Td3Agent, export_policy
from rlpyt.algos import DDPG, SAC, TD3
from rlpyt.utils.arrays import buffer_func
from rlpyt.utils.compute import ComputeSettings
from tests.algos.small_problems import Bandit, batches, optimize, set_up

SMALL: dict[str, Any] = dict(hidden_sizes=16)
HIDDEN: dict[str, Any] = dict(value_only=["state"])
TRANSITIONS: dict[str, Any] = dict(batch_size=32, replay_size=4_000, min_steps_learn=64, replay_ratio=2)
SEQUENCES: dict[str, Any] = dict(
    batch_T=4, batch_B=4, warmup_T=2, store_rnn_state_interval=4, replay_size=4_000, min_steps_learn=64, replay_ratio=2
)
RNN: dict[str, Any] = dict(recurrent=True, feature_kwargs=dict(HIDDEN, rnn_size=8))


def make(AgentCls: Any, **kwargs: Any) -> Any:
    return AgentCls(**{"model_kwargs": SMALL, "q_model_kwargs": SMALL, "feature_kwargs": HIDDEN, **kwargs})


KINDS: dict[str, Any] = {
    "DDPG": lambda: (DDPG(**TRANSITIONS), make(DdpgAgent)),
    "TD3": lambda: (TD3(**TRANSITIONS), make(Td3Agent)),
    "SAC": lambda: (SAC(**TRANSITIONS), make(SacAgent)),
    "discrete SAC": lambda: (SAC(**TRANSITIONS), make(DiscreteSacAgent)),
    "recurrent DDPG": lambda: (DDPG(**SEQUENCES), make(DdpgAgent, **RNN)),
    "recurrent TD3": lambda: (TD3(**SEQUENCES), make(Td3Agent, **RNN)),
    "recurrent SAC": lambda: (SAC(**SEQUENCES), make(SacAgent, **RNN)),
}


class Told(Bandit):
    """Pays 2 times a hidden number, less the squared distance of the action to 2 or of the choice to 1.

    Who does not know the number can tell no action's worth to better than its spread, which is 2.
    """

    best = 2.0

    def __init__(self, discrete: bool = False, masked: bool = False) -> None:
        action = spaces.Discrete(3) if discrete else spaces.Box(np.float32(-0.1), np.float32(3.0), (1,))
        parts: dict[str, Any] = dict(state=spaces.Box(-2, 2, (1,)), view=spaces.Box(-1, 1, (2,)))
        if masked:
            parts["action_mask"] = spaces.MultiBinary(3)
        self.masked = masked
        super().__init__(spaces.Dict(parts), action)

    def observe(self) -> Any:
        self.number = float(self.np_random.choice([-1.0, 1.0]))
        view = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        state = np.array([self.number], np.float32)
        return {"state": state, "view": view, **(dict(action_mask=np.ones(3, np.int8)) if self.masked else {})}

    def pay(self, action: Any) -> float:
        off = action - 1 if isinstance(self.action_space, spaces.Discrete) else float(action[0]) - self.best
        return 2 * self.number - float(off) ** 2


def of_kind(kind: str, masked: bool = False, settings: Any = None, n_itr: int = 6) -> tuple[Any, Any, Any]:
    """Return algorithm, agent and a sampler over the environment that has the keys."""
    algo, agent = KINDS[kind]()
    env_kwargs = dict(discrete=kind == "discrete SAC", masked=masked)
    return algo, agent, set_up(algo, agent, Told, env_kwargs, T=16, B=4, n_itr=n_itr, settings=settings)


@pytest.mark.parametrize(("kind", "masked"), [*((kind, False) for kind in KINDS), ("discrete SAC", True)])
def test_action_values_depend_on_their_keys_and_the_policy_does_not(kind: str, masked: bool) -> None:
    _, agent, sampler = of_kind(kind, masked)
    assert agent.networks.input_description().startswith("view: 2 numbers; state: 1 numbers, of the value alone")
    samples = batches(sampler, 1)[0]
    for key in ("state", "view"):
        getattr(samples.env.observation, key).requires_grad_()
    rows = samples.env.observation, samples.agent.prev_action, samples.env.prev_reward
    own = samples.env.observation.state, samples.env.observation.view

    def gradients(of: torch.Tensor) -> list[bool]:
        """Return whether a sum depends on the state and on the view."""
        found = torch.autograd.grad(of.sum(), own, retain_graph=True, allow_unused=True)
        return [x is not None and bool(x.any()) for x in found]

    acting = agent.networks.run_rows(agent.model, *rows)
    assert gradients(acting[0] if isinstance(acting, tuple) else acting) == [False, True]
    features = agent.features(*rows)
    action = torch.zeros(*samples.env.reward.shape, agent.distribution.dim) + 0.3
    assert gradients(agent.q(features, action)) == [True, True]
    assert gradients(agent.first_q(features, action)) == [True, True]
    changed = rows[0]._replace(state=rows[0].state.detach() + 1), *rows[1:]
    for given, expected in zip(agent.pi(agent.features(*changed)), agent.pi(features), strict=True):
        assert torch.equal(given, expected)
    targets = [agent.target_q(agent.target_features(*x), action) for x in (rows, changed)]
    assert (targets[0] != targets[1]).all()


@pytest.mark.nightly
def test_compiled_updates_give_the_same_numbers(traced: Any) -> None:
    states = []
    for settings in (ComputeSettings(), ComputeSettings(compile=True)):
        algo, agent, sampler = of_kind("SAC", settings=settings)
        for itr in range(4):
            optimize(algo, itr, sampler.obtain_samples(itr)[0])
        assert algo.update_counter > 0
        states.append([dict(x.state_dict()) for x in agent.networks.modules()])
        traced()
    assert algo.compiled.is_on
    for own, expected in zip(states[1], states[0], strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run what torch would generate code of as it is."""

    def use() -> None:
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
        torch._dynamo.reset()

    yield use
    torch._dynamo.reset()


def test_both_parts_are_normalised_in_targets_too_and_go_on_from_a_state() -> None:
    algo, agent = SAC(**TRANSITIONS), make(SacAgent, feature_kwargs=dict(HIDDEN, normalize_observation=True))
    sampler = set_up(algo, agent, Told, T=16, B=4)
    seen = []
    for itr in range(6):
        samples = sampler.obtain_samples(itr)[0]
        seen.append(buffer_func(samples.env.observation, lambda x, on=samples.env.valid: x[on]))
        optimize(algo, itr, samples)
    for body in (agent.model.body, agent.target_model.body):
        for encoder, key in ((body.encoder, "view"), (body.value_encoder, "state")):
            expected = torch.cat([x[key] for x in seen]).mean(0)
            torch.testing.assert_close(encoder.fields[0].rms.mean.float(), expected)
    other = make(SacAgent, feature_kwargs=dict(HIDDEN, normalize_observation=True))
    other.initialize(agent.env_spaces)
    other.load_state_dict(agent.state_dict())
    rows = samples.env.observation, samples.agent.prev_action, samples.env.prev_reward
    action = torch.zeros(*samples.env.reward.shape, 1)
    assert torch.equal(other.q(other.features(*rows), action), agent.q(agent.features(*rows), action))


def test_an_exported_policy_computes_nothing_from_the_keys(tmp_path: Path) -> None:
    _, agent, _ = of_kind("SAC")
    policy = torch.export.load(export_policy(agent, tmp_path / "policy.pt2")).module()
    view = torch.randn(3, 2)
    given = [policy({"state": state, "view": view}) for state in (torch.zeros(3, 1), torch.full((3, 1), torch.nan))]
    assert torch.equal(*given)


def test_keys_that_do_not_fit_are_refused() -> None:
    agent = make(SacAgent, feature_kwargs=dict(value_only=["mass"]))
    with pytest.raises(ValueError, match="the observation has the keys"):
        set_up(SAC(**TRANSITIONS), agent, Told)
