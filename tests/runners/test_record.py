"""Records of parts: every value that comes back, what is named as missing, and names that a file may not choose."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.algos import A2C, DQN, PPO, SAC
from rlpyt.envs import AtariEnv
from rlpyt.functional import Constant, Linear, Piecewise
from rlpyt.runners import RecordError, part_from_record, record_of
from rlpyt.settings import Settings, all_settings
from rlpyt.spaces import FrameStack
from rlpyt.utils.compute import ComputeSettings
from tests.toy_envs import CountingEnv

OURS = ["tests", __name__]


@dataclass(kw_only=True, eq=False)
class Holder(Settings):
    """Part of one setting of any kind."""

    value: Any = None
    """Anything."""
    initial_state_dict: Any = None
    """Weights."""


@dataclass
class Point:
    """Plain dataclass of a user."""

    x: float
    halves: tuple[float, ...] = field(default=(), init=False)


class OwnInit(PPO):
    """Algorithm with a constructor of its own, as rlpyt 0.1 had them."""

    def __init__(self, beta: float, *, gamma: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._beta, self._gamma = beta, gamma


@dataclass(eq=False)
class Positional(Settings):
    """Part with settings by position."""

    first: int
    """One."""
    second: int = 2
    """Two."""


class PassesOn(Positional):
    """Part that passes on what it does not know."""

    def __init__(self, *args: Any, own: int = 3, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own = own


def own_function() -> None:
    """Stand in a module."""


def again(part: Settings, **options: Any) -> Any:
    """Return a part made again from its record, by way of a file."""
    record, missing = record_of(part)
    assert missing == []
    return part_from_record(json.loads(json.dumps(record, allow_nan=False)), **{"trusted": OURS, **options})


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray | torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool(torch.as_tensor(a == b).all())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, partial):
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
    return type(a) is type(b) and bool(a == b)


VALUES = [
    *(None, True, 3, -0.5, 2**70, "text", [1, [2.0]], {"a": {"b": None}}, {}, (), (1, (2, "x")), math.inf, -math.inf),
    *({1: "a", (2, 3): "b", None: []}, {"class": "Walker"}, {"name": 1, "tuple": 2}, {"unrecorded": "x"}),
    *(CountingEnv, own_function, gymnasium.make, torch.optim.AdamW, torch.nn.Tanh, torch.nn.functional.relu, AtariEnv),
    *(partial(gymnasium.make, "CartPole-v1", max_episode_steps=7), partial(CountingEnv, lengths=(2, 3))),
    *(np.arange(6, dtype=np.int32).reshape(2, 3), np.array([0.5, np.inf]), np.array(2, np.uint8), np.zeros((0, 3))),
    *(torch.tensor([[0.1, -math.inf]]), torch.tensor(True), torch.float16, torch.device("cuda:1"), Path("a/b")),
    *(Linear(1e-3, steps=100), Piecewise((0, 10), (1.0, 0.5)), ComputeSettings(torch_threads=2), Point(0.5)),
    *(spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4), spaces.MultiBinary([2, 3])),
    *(spaces.MultiDiscrete(np.array([[2, 3]], np.int32), dtype=np.int32, start=np.array([[1, 5]])), spaces.Box(0, 1)),
    *(spaces.Box(0, 255, (4, 84, 84), np.uint8), FrameStack(0, 255, (4, 84, 84), np.uint8, n_frames=2)),
    *(spaces.Box(-np.inf, np.inf, (0, 2)), spaces.Box(0, 3, (), np.int64)),
    spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Tuple([]))]),
    spaces.Dict(
        {"x": spaces.Box(-1, np.array([1, np.inf]), dtype=np.float64), "y": spaces.Tuple([spaces.Discrete(2)])}
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back(value):
    assert same(again(Holder(value=value)).value, value)


def test_a_space_comes_back_with_its_order_and_its_frames():
    """The order of a Dict is that of a network's inputs, and gymnasium sorts the keys of a dictionary."""
    space = again(Holder(value=spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Discrete(3))]))).value
    assert list(space.spaces) == ["z", "a"]
    assert again(Holder(value=FrameStack(0, 255, (4, 8, 8), np.uint8, n_frames=2))).value.n_frames == 2


BOUNDS: dict[str, list[Any]] = {
    "b": [(0, 1), (np.zeros(3, bool), np.array([1, 0, 1], bool)), (np.ones(3, bool), np.ones(3, bool))],
    "i": [(-7, 7), (np.array([-3, 0, 1]), np.array([0, 4, 5]))],
    "u": [(0, 7), (np.array([3, 0, 1]), np.array([3, 4, 5]))],
    "f": [(-1, 0.5), (-np.inf, np.inf), (np.array([-1, -np.inf, 0.5]), np.array([-1, 2, np.inf]))],
}
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32")


@pytest.mark.parametrize("name", [*DTYPES, "float64", "longdouble"])
def test_a_box_of_every_dtype_comes_back(name):
    dtype = np.dtype(name)
    whole = [(np.iinfo(dtype).min, np.iinfo(dtype).max)] if dtype.kind in "iu" else []
    for low, high in [*BOUNDS[dtype.kind], *whole]:
        low, high = (x.astype(dtype) if isinstance(x, np.ndarray) else x for x in (low, high))
        for shape in ((3,), ()) if not isinstance(low, np.ndarray) else ((3,),):
            space = spaces.Box(low, high, shape, dtype.type)
            found = again(Holder(value=space)).value
            assert found == space
            assert (found.dtype, found.low.dtype) == (space.dtype, space.low.dtype)
            assert np.array_equal(found.low, space.low)
            assert np.array_equal(found.high, space.high)
        stack = FrameStack(0, 1, (2, 3, 3), dtype.type, n_frames=2)
        assert again(Holder(value=stack)).value == stack


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint64", "int64"])
def test_discrete_spaces_of_every_dtype_come_back(name):
    dtype = np.dtype(name).type
    found = again(
        Holder(value=[spaces.Discrete(4, start=1, dtype=dtype), spaces.MultiDiscrete([2, 3], dtype=dtype)])
    ).value
    assert [space.dtype for space in found] == [np.dtype(name)] * 2
    assert found[0].start == 1


def test_bounds_that_were_written_as_truth_values_are_read():
    """Earlier versions wrote those of a bool Box so: the agents of such runs must load."""
    record = {"space": "Box", "settings": {"low": False, "high": True, "shape": [3], "dtype": "bool"}}
    found = part_from_record(holder(record), known=[Holder]).value
    assert (found.dtype, found.low.tolist(), found.high.tolist()) == (np.bool_, [False] * 3, [True] * 3)


def test_numbers_come_back_as_plain_ones():
    values = again(Holder(value=[np.float32(0.5), np.int64(3), np.bool_(True), np.float64("nan")])).value
    assert [type(x) for x in values] == [float, int, bool, float]
    assert values[:3] == [0.5, 3, True]
    assert math.isnan(values[3])


@pytest.mark.parametrize(
    "part",
    [
        PPO(learning_rate="lin_1e-3", ratio_clip=Constant(0.3)),
        A2C(OptimCls=torch.optim.SGD, optim_kwargs={"momentum": 0.5}),
        DQN(prioritized_replay=True, clip_grad_norm=math.inf, discount=Linear(0.4, 1.0)),
        SAC(target_entropy=-3),
        Holder(value=[Holder(value=PPO(epochs=7))]),
    ],
)
def test_a_part_comes_back_with_all_its_settings(part):
    def flat(x: Any) -> Any:
        if isinstance(x, list):
            return [flat(item) for item in x]
        return {name: flat(value) for name, value in all_settings(x).items()} if isinstance(x, Settings) else x

    made = again(part)
    assert type(made) is type(part)
    assert flat(made) == flat(part)


def test_a_part_with_a_constructor_of_its_own_comes_back():
    made = again(OwnInit(0.25, gamma=0.75, epochs=3))
    assert (made._beta, made._gamma, made.epochs) == (0.25, 0.75, 3)


def test_settings_by_position_come_back_where_a_constructor_passes_them_on():
    part = PassesOn(10, 20, own=30)
    assert all_settings(part) == {"own": 30, "first": 10, "second": 20}
    made = again(part)
    assert (made._own, made.first, made.second) == (30, 10, 20)
    assert all_settings(part.replace(second=5)) == {"own": 30, "first": 10, "second": 5}
    assert all_settings(again(PassesOn(10))) == {"first": 10, "second": 2}


# ---- what cannot be recorded ----


class Hostile:
    """Object whose every question raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __eq__ = __iter__ = __len__ = __repr__  # type: ignore[assignment]
    __hash__ = object.__hash__


class HostileMapping(dict[str, int]):
    def __iter__(self) -> Any:
        raise RuntimeError("no")


def local_class() -> type:
    class Local:
        pass

    return Local


def inside_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda: None, "<lambda>, which stands in no module by that name"),
        (local_class(), "local_class.<locals>.Local, which stands in no module"),
        (CountingEnv().step, "CountingEnv.step, which stands in no module"),
        (sys.stdout, "an object of "),
        (Hostile(), "test_record.Hostile"),
        (HostileMapping(a=1), "HostileMapping, which raised RuntimeError"),
        (inside_itself(), "a list inside itself"),
        (np.zeros(2000), r"array of shape (2000,) and type float64"),
        (np.array(["a"]), r"array of shape (1,) and type <U1"),
        (spaces.Text(3), "an object of gymnasium.spaces.text.Text"),
        (spaces.Dict({"x": spaces.Text(3)}), "an object of gymnasium.spaces.text.Text"),
        (spaces.Box(np.linspace(-2, -1, 2000), 1, dtype=np.float64), "gymnasium.spaces.box.Box"),
    ],
)
def test_what_cannot_be_recorded_is_named_and_must_be_given(value, why):
    record: Any
    record, missing = record_of(Holder(value={"deep": value}))
    assert len(missing) == 1
    assert missing[0].startswith("value.deep (")
    assert why in missing[0]
    record = json.loads(json.dumps(record, allow_nan=False))
    with pytest.raises(RecordError, match=r"value\.deep was not recorded.*Write .*value=\{'deep': \.\.\.\}"):
        part_from_record(record, trusted=OURS)
    assert part_from_record(record, trusted=OURS, value=1).value == 1
    outer = {"class": record["class"], "settings": {"value": record}}
    with pytest.raises(RecordError, match=r"value\.value\.deep was not recorded.*Write .*value=\{'value': \.\.\.\}"):
        part_from_record(outer, trusted=OURS)
    assert part_from_record(outer, trusted=OURS, value={"value": 1}).value.value == 1


def test_a_local_class_of_a_part_is_named_with_its_settings():
    class Local(PPO):
        """Algorithm that no module has."""

    record: Any
    record, missing = record_of(Holder(value=Local(epochs=5)))
    assert missing == [
        "value (class test_a_local_class_of_a_part_is_named_with_its_settings.<locals>.Local, which stands "
        "in no module by that name)"
    ]
    assert record["settings"]["value"]["settings"]["epochs"] == 5
    with pytest.raises(RecordError, match=r"value was not recorded, as it is class test_a_local"):
        part_from_record(record, trusted=OURS)


# ---- names that a file may not choose ----

TRAP = "tests.runners.trap_module"


def holder(value: Any) -> dict[str, Any]:
    return {"class": f"{__name__}:Holder", "settings": {"value": value}}


@pytest.mark.parametrize(
    "value",
    [
        *(
            {"name": name}
            for name in ("os:system", "builtins:eval", "builtins:exec", "subprocess:Popen", "pickle:loads")
        ),
        *(
            {"name": name}
            for name in ("torch:load", "torch.serialization:load", "numpy:load", "importlib:import_module")
        ),
        *({"name": name} for name in ("rlpyt.logging:write_json", "rlpyt.logging.files:replace_file")),
        *({"name": f"rlpyt.envs.{name}"} for name in ("video:VideoFile", "adapter:make_env")),
        *({"name": f"rlpyt.{name}"} for name in ("agents:save_weights", "samplers:evaluate", "replays:mapped_file")),
        *({"name": f"rlpyt.{name}"} for name in ("cli:main", "launching:run_experiments", "testing.runs:Path")),
        *({"name": f"gymnasium.wrappers{name}:RecordVideo"} for name in ("", ".vector")),
        {"name": "rlpyt.utils.processes:Worker"},
        {"name": "rlpyt.logging.params:subprocess.run"},
        {"name": "rlpyt.envs.dm_control:import_module"},
        {"name": "rlpyt.replays.mapped_file:shutil.rmtree"},
        {"name": "rlpyt.algos.base:Settings.__new__.__globals__"},
        {"name": "gymnasium.envs.registration:load_env_creator"},
        {"name": "gymnasium.envs.registration:importlib.import_module"},
        {"name": "torch.nn.modules.module:Module.register_module.__globals__"},
        {"name": "torch.optim.optimizer:torch.load"},
        *(
            {"name": name}
            for name in ("../evil:x", "rlpyt/../evil:x", "rlpyt.algos", ":PPO", "", "rlpyt.algos:", "a b:c")
        ),
        {"name": ["rlpyt.algos", "PPO"]},
        {"class": "os:system", "settings": {"command": "true"}},
        {"class": "builtins:eval", "settings": {}},
        {"class": "rlpyt.logging:Logger", "settings": {"directory": "."}},
        {"class": "rlpyt.logging:CsvSink", "settings": {"path": "x"}},
        {"class": "gymnasium:make", "settings": {"id": "CartPole-v1"}},
        {"class": "torch.nn:Linear", "settings": {"in_features": 1, "out_features": 1}},
        {"class": "rlpyt.algos:PPO", "settings": {"OptimCls": {"name": "os:system"}}},
        {"class": f"{TRAP}:PPO", "settings": {}},
        {"class": "rlpyt.algos:PPO", "settings": ["epochs"]},
        {"class": None, "settings": {}},
        {"partial": {"function": {"name": "os:system"}, "args": ["true"], "keywords": {}}},
        {"partial": {"function": {"name": "gymnasium:make"}, "args": ["antigravity:X-v0"], "keywords": {}}},
        {"id": f"{TRAP}:X-v0"},
        {"id": "os:X"},
        {"dict": [["id", "os:X"]]},
        {"env_kwargs": {"id": f"{TRAP}:X-v0"}},
        {"tuple": 5},
        {"dtype": "load"},
        {"device": "import os"},
        {"array": [{}], "dtype": "object", "shape": [1]},
        {"array": [1], "dtype": "float32", "shape": [7]},
        {"array": [1], "dtype": "int8,(1000000,)i8", "shape": [1]},
        {"space": "Text", "settings": {}},
        {"float": "os"},
        {"dict": [[1]]},
    ],
    ids=lambda value: f"{value!r:.60}",
)
def test_a_file_cannot_choose_what_is_run(value):
    with pytest.raises(RecordError, match="value"):
        part_from_record(holder(value), known=[Holder])
    assert TRAP not in sys.modules


def test_what_is_handed_in_is_found():
    value = {"name": "my_project.envs:MyEnv"}
    with pytest.raises(
        RecordError, match=r"value names my_project\.envs:MyEnv; .*known=\[MyEnv\].*trusted=\('my_project',\)"
    ):
        part_from_record(holder(value), known=[Holder])
    with pytest.raises(RecordError, match="which was not found: No module named 'my_project'"):
        part_from_record(holder(value), known=[Holder], trusted=["my_project"])
    # The script that made the record was the main one: its classes are in another module now.
    value = {"name": "__main__:CountingEnv"}
    assert part_from_record(holder(value), known=[Holder, CountingEnv]).value is CountingEnv
    with pytest.raises(RecordError, match=r"stands in the script that was started.*known=\[CountingEnv\]") as caught:
        part_from_record(holder(value), known=[Holder])
    assert caught.value.module == ""  # no program can import it, however much it is trusted
    assert part_from_record(holder({"id": "my:Env-v0"}), known=[Holder], trusted=["my"]).value == {"id": "my:Env-v0"}
    # Trusted is what a trusted module defines, not what it has imported.
    with pytest.raises(RecordError, match="expected a class or function of that module"):
        part_from_record(holder({"name": f"{__name__}:sys.exit"}), trusted=OURS)
    with pytest.raises(RecordError, match=f"names {__name__}:Path"):
        part_from_record(holder({"name": f"{__name__}:Path"}), trusted=OURS)


MODULES = ("gymnasium.utils.save_video", "gymnasium.utils.play", "rlpyt.launching.cluster", "torch.utils.collect_env")


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", ["class", "name"])
def test_a_module_is_judged_before_it_is_imported(module, kind, monkeypatch):
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(RecordError, match=f"names {module}:x"):
        part_from_record(holder({kind: f"{module}:x", "settings": {}}), known=[Holder])
    assert module not in sys.modules


# ---- ids, which gymnasium imports from ----


def sampler(EnvCls: Any, **settings: Any) -> dict[str, Any]:
    recorded = {"EnvCls": EnvCls, "batch_T": 1, "batch_B": 1, "env_kwargs": {"id": "CartPole-v1"}, **settings}
    return {"class": "rlpyt.samplers:SerialSampler", "settings": recorded}


MAKE: dict[str, Any] = {"name": "gymnasium:make"}
LACKS: dict[str, Any] = {"id": "CartPole-v1", "wrapped": {"unrecorded": "an object of my.Env"}}


@pytest.mark.parametrize("evaluation", [{}, {"eval_env_kwargs": None}, {"eval_env_kwargs": {"id": "CartPole-v1"}}])
def test_arguments_of_environments_that_were_not_recorded_can_be_given(evaluation):
    record, given = sampler(MAKE, **{"env_kwargs": LACKS, **evaluation}), {"id": "CartPole-v1", "wrapped": 3}
    assert part_from_record(record, env_kwargs=given).env_kwargs == given
    if evaluation.get("eval_env_kwargs"):
        with pytest.raises(ValueError, match=r"env_kwargs changes id .* evaluated in another environment"):
            part_from_record(record, env_kwargs={**given, "id": "CartPole-v0"})


TEXTS = (
    "localhost:5005",
    "easy:v2",
    "blue: 3 red: 2",
    "http://x/y",
    "a.b:c",
    "os:path",
    "a:b:c",
    "8m_vs_9m",
    ":",
    "os:",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_with_a_colon_is_data(text):
    """Only an id is more than that: a server's address or a mode in env_kwargs makes no run unreadable."""
    value = {"server": text, "deep": [{"mode": text}], "name of it": {"x": (text,)}}
    assert same(again(Holder(value=value)).value, value)
    made = part_from_record(sampler(MAKE, env_kwargs={"id": "CartPole-v1", "server": text}))
    assert made.env_kwargs["server"] == text


def test_an_id_may_name_gymnasium_and_what_is_trusted():
    assert part_from_record(sampler(MAKE, env_kwargs={"id": "gymnasium:CartPole-v1"})).EnvCls is gymnasium.make
    assert part_from_record(sampler(MAKE, env_kwargs={"id": "my_envs.a:Own-v0"}), trusted=["my_envs"]).batch_T == 1
    # What cannot be imported is no id, where the class is the user's.
    assert part_from_record(holder({"id": "room:3"}), known=[Holder]).value == {"id": "room:3"}


@pytest.mark.parametrize(
    "text", [f"{TRAP}:X-v0", "tests.runners.trap module:X-v0", "os:X:Y", " os:X", "../os:X", "ö ä:X", ":X"]
)
@pytest.mark.parametrize(
    "form",
    [
        lambda text: sampler(MAKE, env_kwargs={"id": text}),
        lambda text: sampler(MAKE, eval_env_kwargs={"id": text}),
        lambda text: sampler(MAKE, eval_env_overrides={"id": text}),
        lambda text: sampler({"name": "gymnasium:make_vec"}, env_kwargs={"id": text}),
        lambda text: sampler({"name": "rlpyt.envs:gym_make"}, env_kwargs={"id": text}),
        lambda text: sampler(MAKE, env_kwargs={"id": "GymV26Environment-v0", "env_id": text}),
        lambda text: sampler(MAKE, env_kwargs={"dict": [["id", text]]}),
        lambda text: sampler({"partial": {"function": MAKE, "args": [text], "keywords": {}}}),
        lambda text: sampler({"partial": {"function": MAKE, "args": [], "keywords": {"id": text}}}),
        lambda text: sampler({"partial": {"function": MAKE, "args": [], "keywords": {}}}, env_kwargs={"id": text}),
        lambda text: sampler(
            {
                "partial": {
                    "function": {"partial": {"function": MAKE, "args": [], "keywords": {}}},
                    "args": {"tuple": [text]},
                    "keywords": {},
                }
            }
        ),
    ],
)
def test_an_id_cannot_choose_what_is_imported(form, text):
    with pytest.raises(RecordError, match="gymnasium imports"):
        part_from_record(form(text))
    assert TRAP not in sys.modules


def test_a_cluster_of_elsewhere_is_joined_only_if_it_is_trusted():
    """Its machines send what this process unpickles."""
    record = sampler(MAKE, ray_address="203.0.113.5:6379")
    record["class"] = "rlpyt.samplers:RaySampler"
    with pytest.raises(RecordError, match=r"ray_address is '203\.0\.113\.5:6379', a cluster"):
        part_from_record(record)
    assert part_from_record(record, trusted=["203.0.113.5:6379"]).ray_address == "203.0.113.5:6379"
    assert part_from_record(record, ray_address="auto").ray_address == "auto"


def test_what_a_part_refuses_is_an_error_of_the_record():
    with pytest.raises(RecordError, match=r"value cannot be made of its record: TypeError: .*epoch"):
        part_from_record(holder({"class": "rlpyt.algos:PPO", "settings": {"epoch": 3}}), known=[Holder])
    box = {"low": 0, "high": 1, "shape": [10**6, 10**6], "dtype": "uint8"}
    with pytest.raises(RecordError, match=r"value is .*more than 134,217,728 entries"):
        part_from_record(holder({"space": "Box", "settings": box}), known=[Holder])
    boxes = [[str(i), {"space": "Box", "settings": {**box, "shape": [n]}}] for i, n in enumerate((2, 1 << 27))]
    with pytest.raises(RecordError, match=r"value is .*more than 134,217,728 entries"):  # both together
        part_from_record(holder({"space": "Tuple", "settings": {"spaces": boxes}}), known=[Holder])


def test_a_message_obeys_no_terminal():
    with pytest.raises(RecordError) as error:
        part_from_record(holder({"name": "a\x1b]52;c;eA==\x07\u202e\n:b"}), known=[Holder])
    assert str(error.value).isprintable()
