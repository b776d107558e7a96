"""Keys of an observation that the value of a policy-gradient model sees, and the policy does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.models import PgModel
from rlpyt.namedarraytuple import namedarraytuple

SPACE = spaces.Dict(
    [
        ("a", spaces.Box(-1, 1, (3,))),
        ("state", spaces.Box(-1, 1, (2,))),
        ("image", spaces.Box(0, 255, (2, 12, 12), np.uint8)),
        ("phase", spaces.Discrete(4)),
    ]
)
Observation = namedarraytuple("Observation", list(SPACE.spaces))
CONV: dict[str, Any] = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_sizes=8)


def inputs(T: int = 4, B: int = 3) -> list[Any]:
    image = torch.randint(0, 255, (T, B, 2, 12, 12), dtype=torch.uint8)
    parts = torch.randn(T, B, 3), torch.randn(T, B, 2), image, torch.randint(4, (T, B))
    return [Observation(*parts), torch.zeros(T, B, 2), torch.zeros(T, B)]


@pytest.mark.parametrize("recurrent", [None, "lstm"])
def test_the_value_depends_on_its_keys_and_the_policy_does_not(recurrent: str | None) -> None:
    torch.manual_seed(0)
    rnn: dict[str, Any] = dict(recurrent=recurrent, rnn_size=8) if recurrent else {}
    model = PgModel(SPACE, spaces.Discrete(2), value_only=["state", "phase"], orthogonal_init=False, **CONV, **rnn)
    given = inputs()
    logits, value, *state = model(*given)
    for key, x in (("state", torch.randn(4, 3, 2)), ("phase", (given[0].phase + 1) % 4)):
        other_logits, other_value, *other_state = model(given[0]._replace(**{key: x}), *given[1:])
        assert torch.equal(logits, other_logits)
        assert (value != other_value).all()
        if recurrent:
            assert torch.equal(state[0].h, other_state[0].h)
    other_logits, other_value, *_ = model(given[0]._replace(a=torch.randn(4, 3, 3)), *given[1:])
    assert (logits != other_logits).any()
    assert (value != other_value).any()
    value.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.policy.parameters())
    assert value.shape == (4, 3)


def test_both_parts_are_normalised() -> None:
    model = PgModel(SPACE, spaces.Discrete(2), value_only=["state"], normalize_observation=True, **CONV)
    given = inputs()
    model.update_obs_rms(given[0])
    means = [x for name, x in model.named_buffers() if name.endswith("rms.mean")]
    assert sorted(len(x) for x in means) == [2, 3]
    for x, part in zip(sorted(means, key=len), (given[0].state, given[0].a), strict=True):
        torch.testing.assert_close(x.float(), part.flatten(0, 1).mean(0))


def test_keys_that_do_not_fit_are_refused() -> None:
    for keys in (["mass"], list(SPACE.spaces)):
        with pytest.raises(ValueError, match="and another that the policy sees"):
            PgModel(SPACE, spaces.Discrete(2), value_only=keys)
    with pytest.raises(ValueError, match="expected some of them"):
        PgModel(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), value_only=["state"])
    with pytest.raises(ValueError, match="value_only and share_trunk"):
        PgModel(SPACE, spaces.Discrete(2), value_only=["state"], share_trunk=True)
