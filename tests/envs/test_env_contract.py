"""What the adapter promises to samplers, over every kind of environment."""

from __future__ import annotations

from typing import Any

import pytest

from rlpyt import testing
from rlpyt.envs import EnvExamples
from tests.envs.env_kinds import KINDS, UNSEEDED


def keeps_contract(kind: str, **options: Any) -> EnvExamples:
    EnvCls, env_kwargs = KINDS[kind]
    return testing.check_env(EnvCls, env_kwargs, seed=5, n_steps=40, must_end=kind != "continuous", **options)


@pytest.mark.filterwarnings("ignore:.*it is random, and neither reset")
@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_is_kept(kind):
    examples = keeps_contract(kind, repeats=kind not in UNSEEDED)
    assert examples.reward.dtype == "float32"


@pytest.mark.parametrize("unseeded", UNSEEDED)
def test_what_cannot_be_seeded_does_not_repeat(unseeded):
    with (
        pytest.warns(UserWarning, match="it is random, and neither reset"),
        pytest.raises(AssertionError, match="two plays with seed 5"),
    ):
        keeps_contract(unseeded)
