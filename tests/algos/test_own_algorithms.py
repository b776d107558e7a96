"""Algorithms of a user's own: what losses return and log, `append` and `learn`, one from scratch, steps by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, DdpgAgent, DqnAgent, PgAgent, SacAgent
from rlpyt.algos import A2C, DDPG, DQN, PPO, SAC, OffPolicyAlgo, RlAlgorithm
from rlpyt.algos.metrics import stack_metrics
from rlpyt.core import rows_per_update
from rlpyt.functional import ScheduleLike
from tests.algos.small_problems import RandomEnv, build, check_parameters, optimize, parameters64, set_up, train
from tests.algos.test_algo_state import CASES, started

REPLAY: dict[str, Any] = dict(min_steps_learn=16, replay_size=64, replay_ratio=1, batch_size=8)


BOX = spaces.Box(-1, 1, (2,))


@dataclass(kw_only=True, eq=False)
class Named(DQN):
    """Logs a tensor under a name that it has told, and a number under one that it has not."""

    opt_info_fields: ClassVar[tuple[str, ...]] = (*DQN.opt_info_fields, "bonus")

    def td_loss(self, batch: Any, outputs: Any, hyper: Any) -> Any:
        loss, td_abs_error = super().td_loss(batch, outputs, hyper)  # type: ignore[misc]
        return loss, td_abs_error, {"bonus": loss.detach() * 0 + 2, "number": 3.0}


class Policy(DDPG):
    def q_losses(self, batch: Any, outputs: Any, hyper: Any) -> Any:
        return *super().q_losses(batch, outputs, hyper), {"number": 1.5}


def learn(algo: Any, agent: Any, action_space: Any = None) -> dict[str, torch.Tensor]:
    sampler = set_up(algo, agent, RandomEnv, {"action_space": action_space})
    metrics: Any = {}
    for itr in range(6):
        metrics = optimize(algo, itr, sampler.obtain_samples(itr)[0]) or metrics
    return metrics


def test_what_a_loss_gives_beside_is_in_the_metrics() -> None:
    metrics = learn(Named(**REPLAY), DqnAgent())
    assert list(metrics) == ["loss", "gradNorm", "tdAbsErr", "bonus", "number"]
    assert metrics["bonus"].shape[1:] == (8,)
    assert (metrics["bonus"] == 2).all()
    assert metrics["number"].eq(3).all()
    assert not any(x.requires_grad for x in metrics.values())
    assert (learn(Policy(**REPLAY), DdpgAgent(), BOX)["number"] == 1.5).all()
    algo = returning(A2C, "loss", lambda x: (x[0], {**x[1], "number": 2.0}))
    assert learn(algo(), PgAgent())["number"] == 2.0


@dataclass(kw_only=True, eq=False)
class Promises(DQN):
    opt_info_fields: ClassVar[tuple[str, ...]] = (*DQN.opt_info_fields, "bonus")


def test_a_name_that_nobody_gives_is_refused_with_what_to_do() -> None:
    said = "Promises: opt_info_fields has 'bonus', but an update gave only loss, .*, priority; .* `td_loss`"
    with pytest.raises(ValueError, match=said):
        learn(Promises(**REPLAY), DqnAgent())


# ---- what losses return ----


def test_metrics_of_different_shapes_are_put_one_after_the_other() -> None:
    metrics = stack_metrics({"some": [torch.ones(n, 2) for n in (0, 2, 1)], "each": [torch.zeros(2, 3)] * 4})
    assert metrics["some"].shape == (6,)
    assert metrics["each"].shape == (4, 2, 3)


def returning(Base: Any, method: str, change: Any) -> Any:
    """Return a subclass whose method gives what `change` makes of what the base's gives."""

    def changed(self: Any, *args: Any) -> Any:
        return change(getattr(super(Mine, self), method)(*args))

    Mine = type("Mine", (Base,), {method: changed})
    return Mine


@pytest.mark.parametrize(
    ("Base", "method", "change", "said"),
    [
        (A2C, "loss", lambda x: x[0], r"a tensor \[\]; expected the loss, a tensor, and a dictionary of metrics"),
        (PPO, "loss", lambda x: (x[0], None), r"a tuple of 2: a tensor \[\], None; expected the loss, a tensor"),
        (PPO, "loss", lambda x: None, "None; expected the loss, a tensor, and a dictionary"),
        (DQN, "loss", lambda x: x[0], r"a tensor \[\]; expected the loss and absolute TD errors, tensors"),
        (DQN, "loss", lambda x: (*x, 3.0), "a tuple of 3: .*, a float; expected the loss and absolute TD errors"),
        (DQN, "td_loss", lambda x: (x[0].mean(), x[1]), r".*a tensor \[\], a tensor \[8\]; expected .* the same shape"),
        (DDPG, "q_losses", lambda x: None, "None; expected losses, action values and targets, tensors"),
        (DDPG, "q_losses", lambda x: (*x, 1.0), "a tuple of 4: .*, a float; expected losses, action values and targ"),
        (DDPG, "q_losses", lambda x: (x[0].sum(), *x[1:]), r".*; expected losses \[1\] and targets \[8\] of"),
        (DDPG, "update_policy", list, "a list of .*; expected a dictionary of metrics by name"),
        (DDPG, "update", lambda x: None, "None; expected a dictionary of metrics by name"),
        (PPO, "update", lambda x: None, "None; expected a dictionary of metrics by name"),
    ],
)
def test_a_loss_that_returns_something_else_is_told_what(Base: Any, method: str, change: Any, said: str) -> None:
    with pytest.raises(TypeError, match=rf"^Mine.{method} returned {said}"):
        learn_changed(Base, method, change)


def learn_changed(Base: Any, method: str, change: Any) -> None:
    agent = {A2C: PgAgent, PPO: PgAgent, DQN: DqnAgent, DDPG: DdpgAgent}[Base]()
    settings = {} if Base in (A2C, PPO) else REPLAY
    learn(returning(Base, method, change)(**settings), agent, BOX if Base is DDPG else None)


@pytest.mark.parametrize(
    ("Base", "method", "change", "said"),
    [
        (PPO, "loss", lambda x: (x[0].expand(4), x[1]), r"as its loss a tensor \[4\] with a gradient; expected one"),
        (DQN, "td_loss", lambda x: (x[0].detach(), x[1]), r"a tensor \[\] without a gradient; expected one num"),
        # [M, M] of [1, M] and [M, 1]
        (DDPG, "q_target", lambda y: y[:, None], r"\[8, 1\]; expected losses \[1\] and targets \[8\] of action values"),
        (DQN, "td_loss", lambda x: (*x, {"what": "text"}), r"metric what is 'text' of type str .*; expected a number"),
    ],
)
def test_a_loss_or_metric_that_cannot_be_meant_is_told_what_it_is(
    Base: Any, method: str, change: Any, said: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        learn_changed(Base, method, change)


@dataclass
class PlainlyDecorated(A2C):
    """The decorator without its arguments is what many will write."""

    extra: ScheduleLike = 1.0


def test_a_plain_dataclass() -> None:
    algo = PlainlyDecorated(extra="lin_0.5", learning_rate=0.1)
    set_up(algo, CategoricalPgAgent(), RandomEnv)
    assert algo.hyper(160).extra == 0.25


# ---- two calls, and an algorithm from scratch ----

SMALL: dict[str, Any] = dict(hidden_sizes=8)


@pytest.mark.parametrize("case", ["A2C", "PPO", "VTrace", "DQN", "SAC"])
def test_append_and_learn_are_optimize_agent_and_leave_the_modes_to_the_runner(case: str) -> None:
    agents, metrics = [], []
    for in_two in (False, True):
        algo, agent = CASES[case]()
        sampler = started(algo, agent)
        for itr in range(4):
            samples = sampler.obtain_samples(itr)[0]
            agent.train_mode(itr)
            agent.train_mode = agent.eval_mode = lambda itr: pytest.fail("modes are the runner's")
            if in_two:
                assert algo.append(itr, samples) is None
                last = algo.learn(itr)
            else:
                last = algo.optimize_agent(itr, samples)
            del agent.train_mode, agent.eval_mode
        agents.append(agent)
        metrics.append(last)
    check_parameters(agents[1], parameters64(agents[0]), rtol=0, atol=0)
    assert metrics[0].keys() == metrics[1].keys()
    assert all(torch.equal(metrics[0][name], metrics[1][name]) for name in metrics[0])


class OwnLearn(RlAlgorithm[Any]):
    opt_info_fields = ("loss", "gradNorm")

    def initialize(self, agent: Any, run: Any) -> None:
        super().initialize(agent, run)
        self.batch_size = run.batch_spec.size

    def learn(self, itr: int) -> dict[str, torch.Tensor]:
        agent, env = self.samples
        _, value = self.agent(env.observation, agent.prev_action, env.prev_reward)
        loss = value[env.valid].square().mean()
        return {"loss": loss.detach(), "gradNorm": self.gradient_step(loss, self.hyper(itr * self.steps_per_itr))}


class OwnOptimizeAgent(RlAlgorithm[Any]):
    def optimize_agent(self, itr: int, samples: Any) -> Any:
        self.update_counter += 1
        return {}


def test_an_algorithm_from_scratch_has_one_way_to_learn() -> None:
    algo = OwnLearn(learning_rate=0.1)
    train(algo, CategoricalPgAgent(model_kwargs=SMALL), RandomEnv, n_itr=3)
    assert (algo.update_counter, rows_per_update(algo)) == (3, 32)
    other = OwnOptimizeAgent()
    train(other, CategoricalPgAgent(model_kwargs=SMALL), RandomEnv, n_itr=3)
    assert other.update_counter == 3
    with pytest.raises(AttributeError, match=r"has no 'batch_size'. It is the rows .* Set it in initialize"):
        rows_per_update(other)
    with pytest.raises(TypeError, match="RlAlgorithm: has no way to learn; expected a method learn"):
        build(RlAlgorithm).learn(0)
    with pytest.raises(TypeError, match=r"OffPolicyAlgo: has no way to learn; expected a method update\(self, batch"):
        learn(OffPolicyAlgo(**REPLAY), DqnAgent())


def test_append_with_the_arguments_of_before_is_refused() -> None:
    class Mine(DQN):
        def append(self, itr: int, samples: Any, now: Any) -> None:  # type: ignore[override]
            pass

    with pytest.raises(TypeError, match=r"Mine.append\(self, itr, samples, now\) does not fit .* append\(self, itr, s"):
        Mine()


# ---- steps by name ----


def test_steps_of_every_optimiser_by_name_and_the_one_that_is_counted() -> None:
    algo = SAC(**REPLAY, learning_rate=0.1, q_learning_rate=0.2, alpha_learning_rate=0.3)
    agent = build(SacAgent, model_kwargs=SMALL)
    set_up(algo, agent, RandomEnv, dict(action_space=BOX))
    assert list(algo.descents) == ["pi", "q", "alpha"]
    parameters = {"pi": agent.pi_parameters(), "q": agent.q_parameters(), "alpha": [algo.log_alpha]}
    for name, rate, count in (("pi", 0.1, 0), ("q", 0.2, 1), ("alpha", 0.3, 1)):
        loss = torch.stack([p.square().sum() + p.sum() for p in parameters[name]]).sum()
        step = algo.gradient_step if name == "q" else partial(algo.descents.step, name)
        assert step(loss, algo.hyper(0)) > 0
        assert algo.descents[name].optimizer.param_groups[0]["lr"] == rate
        assert algo.update_counter == count
    with pytest.raises(RuntimeError, match=r"SAC: gradient_step has no optimiser; expected 'model' .*'pi', 'q', 'alp"):
        algo.descents.step("model", loss, algo.hyper(0))
