"""Metrics of a subclass's own: what a loss gives beside the loss is logged, in every family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DdpgAgent, DqnAgent, PgAgent
from rlpyt.algos import A2C, DDPG, DQN, PPO, OffPolicyAlgo
from tests.algos.small_problems import RandomEnv, optimize, set_up

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


def returning(Base: Any, method: str, change: Any) -> Any:
    """Return a subclass whose method gives what `change` makes of what the base's gives."""

    def changed(self: Any, *args: Any) -> Any:
        return change(getattr(super(Mine, self), method)(*args))

    Mine = type("Mine", (Base,), {method: changed})
    return Mine


def shaped(n: int) -> Any:
    """Return metrics whose shape differs from update to update."""
    sizes.append(len(sizes) % 3)
    return torch.ones(sizes[-1], n)


sizes: list[int] = []


def test_metrics_of_different_shapes_are_put_one_after_the_other() -> None:
    sizes.clear()
    algo = returning(DQN, "td_loss", lambda x: (*x, {"some": shaped(2), "each": torch.zeros(2, 3)}))
    metrics = learn(algo(**{**REPLAY, "replay_ratio": 2}), DqnAgent())
    n = algo(**REPLAY).replay_ratio and len(metrics["loss"])
    assert metrics["some"].shape == (2 * sum(sizes[-n:]),)
    assert metrics["each"].shape == (n, 2, 3)


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
        (
            PPO,
            "loss",
            lambda x: (x[0].expand(4), x[1]),
            r"as its loss a tensor \[4\] with a gradient; expected one num",
        ),
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


def test_an_algorithm_without_an_update_is_told_what_it_needs() -> None:
    with pytest.raises(TypeError, match=r"OffPolicyAlgo: has no way to learn; expected a method update\(self, batch"):
        learn(OffPolicyAlgo(**REPLAY), DqnAgent())
