"""An argument that a constructor does not have is answered with the one that was meant, wherever the name got lost."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import pytest
from torch import nn

from rlpyt.agents import CatDqnAgent, DqnAgent, SacAgent
from rlpyt.algos import DQN, PPO
from rlpyt.logging import logger_context
from rlpyt.models import PgModel
from rlpyt.runners import MinibatchRl
from rlpyt.runners.base import MinibatchRlBase
from rlpyt.samplers import CpuSampler, SerialSampler, evaluate

ENV: dict[str, Any] = dict(EnvCls=gymnasium.make, env_kwargs={"id": "CartPole-v1"})


class OldStyle(PPO):
    def __init__(self, extra: float = 1.0, **kwargs: Any) -> None:
        self.own = kwargs.pop("learning_rates", None)
        super().__init__(**kwargs)


class Taker(SerialSampler):
    """Takes a name of its own out of what it passes on, one that is close to another name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.own = kwargs.pop("batch_b", None)
        super().__init__(*args, **kwargs)


@pytest.mark.parametrize(
    ("Cls", "kwargs", "said"),
    [
        (SerialSampler, dict(ENV, batch_T=4, batch_b=2), "Serial.* has no argument 'batch_b'. Did you mean batch_B?"),
        (CpuSampler, dict(ENV, batch_T=4, n_envs=2), "CpuSampler has no argument 'n_envs'. Did you mean batch_B?"),
        (MinibatchRl, dict(n_step=4), "MinibatchRl has no argument 'n_step'. Did you mean n_steps?"),
        (DqnAgent, dict(eps_end=0.1), "DqnAgent has no argument 'eps_end'. It has: ModelCls, .*, eps_init, "),
        (CatDqnAgent, dict(n_atom=5, eps_init=1), "Cat.* has no argument 'n_atom'. Did you mean n_atoms?.*eps_init"),
        (SacAgent, dict(policy_kwargs={}), r"SacAgent has no argument 'policy_kwargs'. Did you mean model_kwargs\?"),
        (PgModel, dict(hidden_size=3), "PgModel has no argument 'hidden_size'. Did you mean hidden_sizes?"),
        (OldStyle, dict(learnin_rate=1), "OldStyle has no hyper-parameter 'learnin_rate'. Did you mean learning_rate?"),
        (OldStyle, dict(gamma=1), r"OldStyle has no hyper-parameter 'gamma'. Did you mean discount\? It has: extra, "),
        (Taker, dict(ENV, batch_T=1, batch_b=3, batc_B=1), "Taker has no argument 'batc_B'. Did you mean batch_B?"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_answered_with_the_close_ones(Cls: Any, kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=f"^{said}"):
        Cls(**kwargs)


def test_a_function_answers_an_unknown_name_too() -> None:
    with pytest.raises(TypeError, match=r"^evaluate has no argument 'n_trajectory'. Did you mean n_trajectories\?"):
        evaluate(DqnAgent(), **ENV, n_trajectory=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^logger_context has no argument 'snapshotmode'. Did you mean snapshot_mode"):
        logger_context("data", snapshotmode="all")  # type: ignore[call-arg]


def test_names_that_a_subclass_takes_are_its_own() -> None:
    assert Taker(**ENV, batch_T=1, batch_B=1, batch_b=3).own == 3
    assert OldStyle(learning_rates=3).own == 3


def test_an_error_of_another_constructor_stays_what_it_is() -> None:
    class Calls(DQN):
        def __init__(self, p: float) -> None:
            nn.Dropout(q=p)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"Dropout.*'q'"):
        Calls(p=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'batch_T'"):
        SerialSampler(**ENV, batch_B=1)


def test_a_signature_is_the_constructor_s() -> None:
    assert list(inspect.signature(MinibatchRlBase).parameters)[:4] == ["algo", "agent", "sampler", "n_steps"]
    assert inspect.signature(PPO).parameters["epochs"].default == PPO().epochs
