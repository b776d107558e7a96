from __future__ import annotations

import errno
import os
import pickle
import resource
from collections import OrderedDict, namedtuple
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlpyt.logging import SnapshotError, load_snapshot, save_snapshot


def test_content_comes_back_as_plain_data(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    generator = np.random.default_rng(0)
    path = tmp_path / "params.pkl"
    save_snapshot(
        path,
        OrderedDict(
            itr=np.int64(3),
            agent_state_dict=model.state_dict(),
            optimizer_state_dict=optimizer.state_dict(),
            generator=generator.bit_generator.state,
            parameter=model[0].weight,
            array=np.arange(3, dtype=np.uint8),
            scalar_array=np.array(2.5),
            read_only=np.broadcast_to(np.float32(1), (2, 2)),
            backwards=np.arange(3)[::-1],
            mixed=[1, (2.5, None), "text", True],
        ),
    )
    loaded = torch.load(path, weights_only=True)
    assert type(loaded) is dict
    assert loaded["itr"] == 3
    assert type(loaded["itr"]) is int
    model.load_state_dict(loaded["agent_state_dict"])
    optimizer.load_state_dict(loaded["optimizer_state_dict"])
    assert loaded["optimizer_state_dict"]["state"][0]["step"] == 1
    assert loaded["generator"] == generator.bit_generator.state
    assert type(loaded["parameter"]) is torch.Tensor
    assert not loaded["parameter"].requires_grad
    torch.testing.assert_close(loaded["array"], torch.tensor([0, 1, 2], dtype=torch.uint8))
    assert loaded["scalar_array"].shape == ()
    assert loaded["read_only"].shape == (2, 2)
    assert loaded["backwards"].tolist() == [2, 1, 0]
    assert loaded["mixed"] == [1, (2.5, None), "text", True]
    assert load_snapshot(path)["generator"] == loaded["generator"]


def test_view_is_saved_without_the_rest_of_its_buffer(tmp_path):
    save_snapshot(
        tmp_path / "params.pkl", {"row": torch.zeros(1000, 1000)[3], "column": torch.arange(6).view(2, 3)[:, 1]}
    )
    assert (tmp_path / "params.pkl").stat().st_size < 20_000
    assert load_snapshot(tmp_path / "params.pkl")["column"].tolist() == [1, 4]


class Colour(IntEnum):
    RED = 1


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "builtins.object"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (Pair(1, 2), "test_snapshots.Pair"),
        (Colour.RED, "test_snapshots.Colour"),
        ({1, 2}, "builtins.set"),
        (b"bytes", "builtins.bytes"),
        (print, "builtins.builtin_function_or_method"),
        (np.array([None]), "an array of dtype object"),
        (np.array(["text"]), "an array of dtype <U4"),
    ],
)
def test_anything_else_is_refused_with_its_place(tmp_path, value, name):
    path = tmp_path / "params.pkl"
    save_snapshot(path, {"itr": 1})
    with pytest.raises(TypeError) as error:
        save_snapshot(path, {"agent": [0, {"model": value}]})
    assert f"saving a snapshot: params['agent'][1]['model'] is {name}, expected dict, list" in str(error.value)
    with pytest.raises(TypeError, match=r"a key of params\['a'\] is builtins.tuple"):
        save_snapshot(path, {"a": {(1, 2): 3}})
    assert load_snapshot(path) == {"itr": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["params.pkl"]


class Payload:
    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize(
    ("save", "said"),
    [
        (torch.save, r"names \['posix.system'\], expected plain data only"),
        (lambda content, path: path.write_bytes(pickle.dumps(content)), "is no whole snapshot file"),
    ],
)
def test_code_in_a_snapshot_is_refused_and_not_run(tmp_path, save, said):
    target, path = tmp_path / "ran", tmp_path / "params.pkl"
    save({"itr": 1, "agent": Payload(target)}, path)
    with pytest.raises(SnapshotError, match=said) as error:
        load_snapshot(path)
    assert "weights_only" not in str(error.value)
    assert not target.exists()


INSIDE_ITSELF: list[object] = [1]
INSIDE_ITSELF.append(INSIDE_ITSELF)
TEN_TO_THE_TWELFTH: list[object] = [0] * 10
for _ in range(11):
    TEN_TO_THE_TWELFTH = [TEN_TO_THE_TWELFTH] * 10
OUTSIDE_OF_ITSELF = torch.sparse_coo_tensor(
    torch.zeros(2, 1, dtype=torch.int64), torch.ones(1), (4, 4), check_invariants=True
)
OUTSIDE_OF_ITSELF._indices()[0, 0] = 10**9


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (torch.zeros(1, dtype=torch.uint8).expand(10**12), "a tensor of more bytes"),
        (INSIDE_ITSELF, "more parts than bytes"),
        (TEN_TO_THE_TWELFTH, "more parts than bytes"),
        (OUTSIDE_OF_ITSELF, "found index 1000000000"),
    ],
    ids=["one number for a terabyte", "inside itself", "ten to the twelfth", "outside of itself"],
)
def test_content_that_a_walk_would_not_leave_is_refused(tmp_path, content, what):
    torch.save({"agent_state_dict": {"model": content}}, tmp_path / "params.pkl")
    with pytest.raises(SnapshotError, match=what):
        load_snapshot(tmp_path / "params.pkl")


def test_missing_file_names_those_beside_it(tmp_path):
    save_snapshot(tmp_path / "itr_0.pkl", {})
    with pytest.raises(FileNotFoundError, match=r"no file .*params.pkl; beside it are \['itr_0.pkl'\]"):
        load_snapshot(tmp_path / "params.pkl")


@settings(max_examples=50)
@given(data=st.data())
def test_damaged_snapshot_is_refused_or_loads_the_same(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damage") / "params.pkl"
    weight = torch.arange(500.0)
    save_snapshot(path, {"itr": 1, "weight": weight})
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        loaded = load_snapshot(path)
    except SnapshotError:
        return
    assert loaded["itr"] == 1
    assert torch.equal(loaded["weight"], weight)


def test_flipped_bit_of_a_weight_is_found(tmp_path):
    path = tmp_path / "params.pkl"
    save_snapshot(path, {"weight": torch.full((1000,), 1.5)})
    content = bytearray(path.read_bytes())
    content[content.index(b"\x00\x00\xc0\x3f") + 400] ^= 1
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match=r"is damaged, its part .* differs from its checksum"):
        load_snapshot(path)


def test_disk_error_in_the_middle_is_the_error_that_is_raised(tmp_path):
    path = tmp_path / "params.pkl"
    save_snapshot(path, {"itr": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            save_snapshot(path, {f"weight {i}": torch.zeros(10_000) for i in range(10)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.errno == errno.EFBIG
    assert load_snapshot(path) == {"itr": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["params.pkl"]
