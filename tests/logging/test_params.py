from __future__ import annotations

import dataclasses
import functools
import json
import threading
from collections import namedtuple
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch

from rlpyt.logging import to_json
from rlpyt.logging.params import run_params


class Mode(Enum):
    FAST = object()


@dataclasses.dataclass
class Config:
    discount: float
    lock: object
    unset: int = dataclasses.field(init=False)


Point = namedtuple("Point", "x y")


class Hostile:
    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (torch.tensor([1.5, float("inf")]), [1.5, "inf"]),
        (np.zeros((2000, 2), np.uint8), "<ndarray of shape (2000, 2), uint8>"),
        (float("nan"), "nan"),
        (dict, "builtins.dict"),
        (to_json, "rlpyt.logging.params.to_json"),
        (Mode.FAST, "FAST"),
        (Point(1, [2]), {"x": 1, "y": [2]}),
        ({"b", "a"}, ["a", "b"]),
        (
            {1: (2, None), Mode.FAST: True, torch.float32: Path("a/b")},
            {"1": [2, None], "FAST": True, "torch.float32": "a/b"},
        ),
        (torch.device("cpu"), "cpu"),
        (
            functools.partial(int, "7", base=8),
            {"function": "builtins.int", "arguments": ["7"], "keywords": {"base": 8}},
        ),
        (1 + 2j, "(1+2j)"),
        (Hostile(), "<Hostile>"),
        ([Hostile(), 1], ["<Hostile>", 1]),
        ("\udc80", "\udc80"),
        ({"a": [None, True, 3, 0.5, "é", {}]}, {"a": [None, True, 3, 0.5, "é", {}]}),
    ],
)
def test_values(value, expected):
    result = to_json(value)
    assert result == expected
    json.dumps(result, allow_nan=False)


def test_dataclass_with_a_lock_and_an_unset_field():
    assert to_json(Config(0.9, int)) == "<Config>"
    config = Config(0.9, threading.Lock())
    config.unset = 1
    assert to_json(config) == {"discount": 0.9, "lock": repr(config.lock), "unset": 1}


def test_value_inside_itself_ends():
    value: dict = {"a": 1}
    value["self"] = [value, value]
    assert to_json(value) == {"a": 1, "self": ["<dict inside itself>"] * 2}
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    json.dumps(to_json(deep))


def test_settings_with_names_of_the_run_are_kept():
    given = {"algo": {"lr": 0.1}, "plan": "B", "name": "mine", "run_ID": None, "B": 4, "log_params": [1]}
    params = run_params(given, "pong", 3, {})
    assert (params["name"], params["run_ID"], params["B"], params["algo"]) == ("pong", 3, 4, {"lr": 0.1})
    assert params["log_params"] == {"algo": {"lr": 0.1}, "plan": "B", "name": "mine", "run_ID": None, "log_params": [1]}
    assert "log_params" not in run_params({"name": "pong", "run_ID": 3, "B": 4}, "pong", 3, {})
