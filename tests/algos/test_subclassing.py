"""Subclasses as users write them."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import pytest
import torch

from rlpyt.agents import CategoricalPgAgent, DqnAgent
from rlpyt.algos import A2C, DQN, PPO
from rlpyt.functional import Linear, ScheduleLike, valid_mean
from rlpyt.settings import whole
from tests.algos.small_problems import RandomEnv, build, check_parameters, optimize, parameters64, set_up, train

# No `from __future__ import annotations` here, as in most scripts: annotations are then types and no text.


@dataclass(kw_only=True, eq=False)
class PenalisedPPO(PPO):
    """PPO that pulls the values towards zero."""

    opt_info_fields: ClassVar[tuple[str, ...]] = (*PPO.opt_info_fields, "penalty")

    learning_rate: ScheduleLike = 5e-4
    value_penalty: ScheduleLike = 0.1
    bonus: ScheduleLike | None = None
    second_bonus: Optional[ScheduleLike] = None  # noqa: UP045
    n_heads: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("value_penalty", lambda x: x >= 0, "at least 0")
        self.n_heads = whole(self, "n_heads")

    def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
        loss, metrics = super().loss(batch, init_rnn_state, hyper)
        _, value = self.forward(batch, init_rnn_state)
        penalty = hyper.value_penalty * valid_mean(value.square(), batch.valid)
        metrics["penalty"] = penalty.detach()
        seen.append(hyper)
        return loss + penalty, metrics


seen: list[Any] = []


def test_a_field_more_and_another_loss():
    algo = PenalisedPPO(value_penalty=0.3)
    assert (algo.learning_rate, algo.epochs) == (5e-4, 4)
    sampler = set_up(algo, CategoricalPgAgent(), RandomEnv)
    assert algo.hyper(160).learning_rate == pytest.approx(2.5e-4)  # of 320 steps, on the line to zero
    metrics = optimize(algo, 0, sampler.obtain_samples(0)[0])
    assert set(metrics) == set(algo.opt_info_fields)
    assert metrics["penalty"].shape == (16,)
    assert metrics["penalty"][0] > 0


@pytest.mark.parametrize(
    ("given", "at_half"),
    [
        (lambda step: 1 - step / 640, 0.75),
        ("lin_0.8", 0.4),
        ("lin_0.8_0.4", 0.6),
        (Linear(0.8, 0.2, steps=80), 0.2),
        (0.3, 0.3),
    ],
)
@pytest.mark.parametrize("name", ["value_penalty", "bonus", "second_bonus", "entropy_loss_coeff", "ratio_clip"])
def test_any_field_may_be_a_schedule(name, given, at_half):
    algo = PenalisedPPO(**{name: given}, linear_lr_schedule=False)
    sampler = set_up(algo, CategoricalPgAgent(), RandomEnv, n_itr=10)
    seen.clear()
    optimize(algo, 5, sampler.obtain_samples(0)[0])  # of 10 iterations, 160 of 320 steps
    assert [getattr(now, name) for now in seen] == [pytest.approx(at_half)] * 16
    for other in {"bonus", "second_bonus"} - {name}:
        assert getattr(seen[0], other) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (dict(value_penalty=-1), "value_penalty is -1; expected at least 0"),
        (dict(n_heads=0), "n_heads is 0; expected a whole number from 1"),
        (dict(value_penalty=None), "value_penalty is None; expected a number or a schedule"),
        (dict(bonus="lin"), "bonus: got the string 'lin'"),
    ],
)
def test_the_subclass_s_own_checks(settings, said):
    with pytest.raises((ValueError, TypeError), match=f"PenalisedPPO: {said}"):
        build(PenalisedPPO, **settings)


@dataclass
class PlainlyDecorated(A2C):
    """The decorator without its arguments is what many will write."""

    extra: ScheduleLike = 1.0


def test_a_plain_dataclass():
    algo = PlainlyDecorated(extra="lin_0.5", learning_rate=0.1)
    set_up(algo, CategoricalPgAgent(), RandomEnv)
    assert algo.hyper(160).extra == 0.25


class OwnInit(PPO):
    """A class of the old style."""

    def __init__(self, temperature=2.0, **kwargs):
        super().__init__(**kwargs)
        self.temperature = temperature

    def loss(self, batch, init_rnn_state, hyper):
        loss, metrics = super().loss(batch, init_rnn_state, hyper)
        return loss * self.temperature, metrics


class OwnInitOfThese(DQN):
    def __init__(self, alpha, beta=1):
        super().__init__(min_steps_learn=64, learning_rate=alpha)
        self.beta = beta


def test_an_init_of_its_own():
    algo = OwnInit(0.5, learning_rate=0.1, linear_lr_schedule=False)
    assert (algo.temperature, algo.learning_rate) == (0.5, 0.1)
    train(algo, CategoricalPgAgent(), RandomEnv, n_itr=2)
    assert algo.update_counter == 32
    with pytest.raises(TypeError, match="learnin_rate"):
        OwnInit(learnin_rate=0.1)
    with pytest.raises(ValueError, match="OwnInit: discount is 2"):
        OwnInit(discount=2)
    dqn = OwnInitOfThese(0.01, beta=3)
    train(dqn, DqnAgent(), RandomEnv, n_itr=4)
    assert dqn.update_counter == 3 * 8
    with pytest.raises(TypeError, match=r"no hyper-parameter 'gamma'. .*It has: alpha, beta"):
        build(OwnInitOfThese, alpha=0.01, gamma=1)


def test_a_default_that_would_not_be_heard_is_refused():
    class Forgotten(PPO):
        learning_rate = 1.0

    class ForgottenAndAnnotated(Forgotten):
        epochs: int = 7

    with pytest.raises(TypeError, match=r"Forgotten sets learning_rate in a class body.*@dataclass\(kw_only=True"):
        Forgotten()
    with pytest.raises(TypeError, match="ForgottenAndAnnotated sets learning_rate, epochs in a class body"):
        ForgottenAndAnnotated()

    class Metrics(PPO):
        opt_info_fields = ("loss",)
        bootstrap_value = True
        temperature = 3.0

    assert Metrics().temperature == 3.0


def test_an_infinite_clip_is_no_clip():
    results = []
    for clip in (math.inf, 1e9):
        algo, agent = A2C(clip_grad_norm=clip, learning_rate=0.1, OptimCls=torch.optim.SGD), CategoricalPgAgent()
        train(algo, agent, RandomEnv, n_itr=3)
        results.append(parameters64(agent))
    check_parameters(agent, results[0], rtol=1e-6, atol=1e-7)
    assert all(x.isfinite().all() for x in results[0].values())
