from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.models import RunningMeanStdModel


@settings(max_examples=50)
@given(data=st.data(), shape=st.sampled_from([(), (3,), (2, 2)]), n=st.integers(1, 40), masked=st.booleans())
def test_any_split_gives_the_moments_of_the_whole(
    data: st.DataObject, shape: tuple[int, ...], n: int, masked: bool
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    x = (1e3 + 5 * rng.standard_normal((n, *shape))).astype(np.float32)
    valid = rng.random(n) < 0.7 if masked else np.ones(n, bool)
    x[~valid] = np.nan
    rms = RunningMeanStdModel(shape)
    cuts = data.draw(st.lists(st.integers(0, n), max_size=5))
    for rows in np.split(np.arange(n), sorted(cuts)):
        rms.update(torch.from_numpy(x[rows]), torch.from_numpy(valid[rows]) if masked else None)
    assert rms.count.item() == valid.sum()
    if valid.any():
        seen = x[valid].astype(np.float64)
        np.testing.assert_allclose(rms.mean.numpy(), seen.mean(0), rtol=1e-9)
        np.testing.assert_allclose(rms.var.numpy(), seen.var(0), rtol=1e-6, atol=1e-9)
    else:
        assert (rms.mean == 0).all()
        assert (rms.var == 1).all()


def test_hand_numbers() -> None:
    rms = RunningMeanStdModel((2,), clip=1.5, var_clip=0.25)
    rms.update(torch.tensor([[[1.0, 7.0], [3.0, 7.0]]]))
    assert rms.mean.tolist() == [2, 7]
    assert rms.var.tolist() == [1, 0]
    x = torch.tensor([[2.5, 7.5], [12.0, 0.0]])
    assert rms(x).tolist() == [[0.5, 1.0], [1.5, -1.5]]
    assert rms(x).dtype == torch.float32


def test_does_nothing_at_first_and_changes_in_update_only() -> None:
    rms = RunningMeanStdModel((2,))
    x = torch.randn(5, 2)
    assert torch.equal(rms(x), x)
    before = {name: buffer.clone() for name, buffer in rms.state_dict().items()}
    rms.train()(x)
    rms.update(x, torch.zeros(5, dtype=torch.bool))
    assert all(torch.equal(buffer, before[name]) for name, buffer in rms.state_dict().items())


def test_leading_dims_of_rows_and_valid() -> None:
    rms, flat = RunningMeanStdModel((3,)), RunningMeanStdModel((3,))
    x, valid = torch.randn(4, 5, 3), torch.rand(4, 5) < 0.5
    rms.update(x, valid)
    flat.update(x[valid])
    torch.testing.assert_close(rms.state_dict(), flat.state_dict())


def test_variance_between_replicas_is_kept() -> None:
    """Defect 19 of the predecessor averaged the variances of the replicas and forgot how far apart their means were."""
    rms = RunningMeanStdModel(())
    for mean in (-3.0, 3.0):
        rms.merge(torch.tensor(mean).double(), torch.tensor(1.0).double(), torch.tensor(10.0).double())
    assert rms.mean.item() == 0
    assert rms.var.item() == pytest.approx(10)
