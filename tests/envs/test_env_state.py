"""States of environments: restored through a snapshot, an environment goes on without a bit of difference."""

from __future__ import annotations

import ctypes
import multiprocessing
import random
import re
import weakref
from argparse import Namespace
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum, Flag
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces, wrappers

from rlpyt.envs import AtariEnv, EnvAdapter, dm_control_make, make_env, make_vector_env, restores_exactly
from rlpyt.envs.state import load_graph
from rlpyt.envs.state_data import StateError
from rlpyt.logging.snapshots import load_snapshot, save_snapshot
from rlpyt.samplers.states import restore_info, saved_info
from rlpyt.types import TrajInfo
from tests.pairs import others_nightly
from tests.toy_envs import CountingEnv

LIMIT = 8
SMALL = ("CartPole", "Pendulum", "MountainCar", "Acrobot", "FrozenLake", "CliffWalkingSlippery", "Taxi", "Blackjack")
MUJOCO = ("HalfCheetah", "Hopper", "Ant", "Humanoid", "Walker2d", "Swimmer", "Reacher", "Pusher", "InvertedPendulum")
SUITE = ("cartpole-balance", "manipulator-bring_ball", "swimmer-swimmer6", "lqr-lqr_2_1", "reacher-easy")


@pytest.fixture
def carry(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MuJoCo 4 leaves MUJOCO_LOG.TXT

    def through_a_file(state):
        save_snapshot(tmp_path / "state.pkl", state)
        return load_snapshot(tmp_path / "state.pkl")

    return through_a_file


def check(EnvCls: Any, env_kwargs: dict[str, Any], carry: Any, moments: tuple[int, ...] = (0, 3, LIMIT - 1)) -> None:
    """Save just after a reset, in an episode, and the step before its time limit."""
    env, other = make_env(EnvCls, env_kwargs), make_env(EnvCls, env_kwargs)
    load = other.load_state_dict
    vars(other)["load_state_dict"] = lambda state: load(carry(state))
    for n_before in moments:
        assert restores_exactly(env, other, 3, LIMIT + 2, n_before) is None
    env.close()
    other.close()


@pytest.mark.parametrize("name", others_nightly(SMALL, [x for x in SMALL if x not in ("CliffWalkingSlippery", "Taxi")]))
def test_classic_control_and_toy_text(name, carry):
    id = max(id for id in gymnasium.registry if id.rpartition("-v")[0] == name)
    check(gymnasium.make, {"id": id, "max_episode_steps": LIMIT}, carry, (3,) if name == "Taxi" else (0, 3, 7))


@pytest.mark.parametrize("name", others_nightly(MUJOCO, ("Humanoid", "Pusher", "InvertedPendulum")))
def test_mujoco(name, carry):
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install rlpyt[mujoco]")
    check(gymnasium.make, {"id": f"{name}-v5", "max_episode_steps": LIMIT}, carry)


@pytest.mark.parametrize("name", others_nightly(SUITE, ("cartpole-balance", "swimmer-swimmer6", "lqr-lqr_2_1")))
def test_the_dm_control_suite(name, carry):
    pytest.importorskip("dm_control", reason="dm-control is not installed: pip install rlpyt[dm_control]")
    domain, task = name.split("-")
    limit = {} if domain == "lqr" else {"time_limit": 0.2}
    check(dm_control_make, {"domain": domain, "task": task, "task_kwargs": limit}, carry)


@pytest.mark.parametrize(
    ("game", "frame_skip"),
    others_nightly([("qbert", 4), ("tetris", 4), ("breakout", 1), ("pong", 1)], [("qbert", 4), ("breakout", 1)]),
)
def test_atari_with_sticky_actions(game, frame_skip, carry):
    pytest.importorskip("ale_py", reason="ale-py is not installed: pip install rlpyt[atari]")
    kwargs = {"game": game, "repeat_action_probability": 0.25, "frame_skip": frame_skip, "horizon": LIMIT}
    check(AtariEnv, {**kwargs, "max_start_noops": 3}, carry, (1, 3, 4, 7))


def wrapped() -> gymnasium.Env[Any, Any]:
    env: Any = gymnasium.make("Pendulum-v1", max_episode_steps=LIMIT)
    env = wrappers.ClipAction(wrappers.RescaleAction(env, np.float32(-1), np.float32(1)))
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(wrappers.RecordEpisodeStatistics(env)))
    env = wrappers.TransformObservation(env, lambda x: x * 2, env.observation_space)
    env = wrappers.TransformReward(
        wrappers.StickyAction(wrappers.TimeAwareObservation(env), 0.3), lambda r: float(r) * 3
    )
    return wrappers.DelayObservation(wrappers.FrameStackObservation(env, 3), 2)


def test_wrappers_of_gymnasium(carry):
    check(wrapped, {}, carry)


class Plain(gymnasium.Env[Any, Any]):
    """Environment of LIMIT steps whose observation is what `draw` gives; `change` is called in its second step.

    Its attributes are set by `prepare`, and those that are given to it.
    """

    def __init__(self, **attributes: Any) -> None:
        self.observation_space = spaces.Box(-1e9, 1e9, (1,), np.float64)
        self.action_space = spaces.Discrete(3)
        self.t = 0
        self.prepare()
        vars(self).update(attributes)

    def prepare(self) -> None:
        pass

    def change(self) -> None:
        pass

    def draw(self) -> float:
        return self.t

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.array([self.draw()], np.float64), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        if self.t == 2:
            self.change()
        return np.array([self.draw()], np.float64), 1.0, self.t == LIMIT, False, {}


def loaded(env: Plain, other: Plain, carry: Any = lambda state: state) -> Any:
    """Let an environment take over the state of another one."""
    EnvAdapter(other).load_state_dict(carry(EnvAdapter(env).state_dict()))
    return other


class Part:
    count = 0

    def act(self) -> int:
        self.count += 1
        return self.count


class OtherPart(Part):
    def act(self) -> int:
        self.count += 10
        return self.count


class Everything(Plain):
    """Holds data of every kind, with two names for one thing."""

    def prepare(self) -> None:
        self.rng, self.old_rng, self.python_rng = np.random.default_rng(1), np.random.RandomState(1), random.Random(1)
        self.same_rng = self.rng
        self.whole = np.zeros((3, 4), np.float32)
        self.row, self.column = self.whole[1], self.whole[:, 2]
        self.names = np.array([b"S", b"F"])
        self.past: deque[float] = deque([0.0] * 3, maxlen=3)
        self.table: dict[Any, Any] = OrderedDict({(0, "a"): [1, [2.0]], np.int64(3): {1, 2}})
        self.alias = self.table[0, "a"]
        self.part, self.parts = Part(), (Part(), Part())
        self.small = np.float32(0.1)
        self.big = 2**100
        count = 0

        def closure() -> int:
            nonlocal count
            count += 1
            return count

        self.closure, self.method, self.add = closure, self.tick, partial(max, 0.5)
        self.later = partial(self.tick, 2)

    def tick(self, n: int = 1) -> int:
        self.part.count += n
        self.parts[1].count += 2
        self.alias[1][0] += 1
        self.big += 1
        return self.part.count

    def draw(self) -> float:
        self.small = self.small * np.float32(1.1)  # in float32
        self.row += self.rng.random(4, np.float32)
        self.column *= self.same_rng.random()
        self.past.append(self.old_rng.normal() + self.python_rng.gauss(0, 1) + self.np_random.random())
        numbers = [*self.past, self.small, self.closure(), self.method(), self.later(), self.add(self.t)]
        return float(self.whole.sum() + sum(numbers) + self.parts[1].count + self.table[0, "a"][1][0] + self.big % 1000)


def test_data_of_every_kind_and_its_aliases(carry):
    check(Everything, {}, carry)
    env, other = EnvAdapter(Everything()), EnvAdapter(Everything())
    env.reset(1), other.reset(2)
    other.load_state_dict(carry(env.state_dict()))
    assert np.shares_memory(other.env.row, other.env.whole)
    assert other.env.rng is other.env.same_rng
    assert other.env.alias is other.env.table[0, "a"]
    assert other.env.small.dtype == np.float32
    assert other.env.big == env.env.big > 2**64


class Pawn:
    """Figure of a game, with a friend that may be itself."""

    def __init__(self, place: int) -> None:
        self.place, self.friend = place, self


class Crowd(Plain):
    """Has objects in lists, which come and go; each knows another one."""

    def prepare(self) -> None:
        self.pawns: list[Pawn] = []
        self.by_name: dict[str, Pawn] = {}
        self.grid: list[Pawn | None] = [None] * 4

    def draw(self) -> float:
        pawn = Pawn(int(self.np_random.integers(100)))
        self.pawns = [one for one in self.pawns if one.place % 3] + [pawn]
        pawn.friend = self.pawns[0]
        self.by_name["newest"] = self.grid[self.t % 4] = pawn
        self.pawns[0].place += 1
        return sum(one.place + 0.5 * one.friend.place for one in (*self.pawns, *filter(None, self.grid)))


def test_objects_in_containers_are_made_where_a_fresh_environment_has_none(carry):
    check(Crowd, {}, carry)
    env, other = EnvAdapter(Crowd()), EnvAdapter(Crowd())
    env.reset(1), env.step(0), env.step(1)
    other.load_state_dict(carry(env.state_dict()))
    assert other.env.by_name["newest"] is other.env.pawns[-1]
    assert other.env.pawns[-1].friend is other.env.pawns[0]


FIGURES = (Pawn(1), Pawn(5))


def test_an_object_that_environments_share_is_not_written_over(carry):
    """Of their module, say, as every other environment of the process holds it."""
    other = loaded(Plain(figure=FIGURES[1]), Plain(figure=FIGURES[0]), carry)
    assert other.figure.place == 5
    assert [figure.place for figure in FIGURES] == [1, 5]


class Tensors(Plain):
    """Draws by torch, and keeps what it drew."""

    def prepare(self) -> None:
        self.generator = torch.Generator().manual_seed(1)
        self.weights = torch.arange(6, dtype=torch.float64).reshape(2, 3).T
        self.half = torch.tensor(1.5, dtype=torch.bfloat16)
        self.same = self.weights

    def draw(self) -> float:
        self.weights += torch.rand(3, 2, generator=self.generator, dtype=torch.float64)
        self.half = self.half * 1.01
        return float((self.same * torch.arange(6.0).reshape(3, 2)).sum() + self.half)


def test_tensors_and_generators_of_torch(carry):
    check(Tensors, {}, carry)
    env, other = EnvAdapter(Tensors()), EnvAdapter(Tensors())
    env.reset(1)
    other.load_state_dict(carry(env.state_dict()))
    assert other.env.same is other.env.weights
    assert other.env.weights.stride() == env.env.weights.stride()
    assert other.env.half.dtype == torch.bfloat16


class Keys(Flag):
    UP = 1
    LEFT = 2


class Phase(Enum):
    ODD = 1
    EVEN = 2


class Methods(Plain):
    def first(self) -> float:
        return self.t

    def second(self) -> float:
        return -self.t


class Changes(Methods):
    """Has attributes that come to be others; each of them counts by another power of ten."""

    def prepare(self) -> None:
        self.parts = (Part(), OtherPart())
        self.policy, self.part, self.alias = self.parts[0].act, Part(), self.parts[0]
        self.phase: Callable[[], float] = self.first
        self.of_base: Callable[[], float] = super().first  # which its own class has replaced
        self.keys, self.no_keys, self.member, self.counts = Keys.UP, Keys.UP, Phase.EVEN, {Phase.EVEN: 0}
        self.room = Part()
        self.room.spec = [0]  # type: ignore[attr-defined]  # gymnasium has a specification by this name

    def change(self) -> None:
        self.policy, self.part, self.alias = self.parts[1].act, OtherPart(), self.parts[1]
        self.phase, self.of_base = self.second, super().second
        self.keys, self.no_keys, self.member = self.keys | Keys.LEFT, Keys(0), Phase.ODD
        self.counts[Phase.ODD] = self.counts.get(Phase.ODD, 0) + 1

    def first(self) -> float:
        return self.t + 0.5

    def second(self) -> float:
        return 0.5 - self.t

    def draw(self) -> float:
        self.room.spec[0] += 1  # type: ignore[attr-defined]
        numbers = [self.policy(), self.part.act(), self.alias.act(), self.phase(), self.of_base(), self.keys.value]
        numbers += [self.no_keys.value, self.member.value, self.counts.get(Phase.ODD, 0)]
        return sum(x * 10.0 ** (i - 2) for i, x in enumerate(numbers)) + 1e-4 * self.room.spec[0]  # type: ignore[attr-defined]


class Arrays(Plain):
    """Depends on what is easily lost: order of memory, locks, defaults, the stream of a space, data in itself."""

    def prepare(self) -> None:
        self.columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        self.rows = np.arange(6.0).reshape(2, 3)
        self.turned, self.row = self.rows.T, self.columns[1]
        self.image = np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0).copy("K")  # neither C nor Fortran
        self.pixel = self.image[1, 2]
        self.whole = np.arange(12.0).reshape(3, 4).copy()
        self.part = self.whole[::-1, ::-2]
        self.whole.flags.writeable = False  # while a view of it is not
        self.visits: defaultdict[int, float] = defaultdict(lambda: 0.5)
        self.loop: dict[str, Any] = {"n": 0}
        self.loop["again"] = self.loop

        def count(seen: list[int] = [0]) -> int:  # noqa: B006
            seen[0] += 1
            return seen[0]

        self.count = count

    def change(self) -> None:
        for array in (self.columns, self.rows, self.part, self.pixel):
            array += 1

    def draw(self) -> float:
        self.row += 1 + int(self.action_space.sample())
        self.visits[self.t] += 1
        self.loop["again"]["again"]["n"] += 1
        weights = np.arange(6).reshape(2, 3) ** 2
        arrays = ((self.columns + self.rows + self.turned.T) * weights).sum() + self.whole.ravel() @ np.arange(12)
        arrays += self.image.ravel("K") @ np.arange(24) ** 2 + self.image.ravel("C") @ np.arange(24)
        flags = 1000 * self.columns.flags.f_contiguous + 2000 * self.whole.flags.writeable
        return float(arrays + flags + sum(self.visits.values()) + 100 * self.count() + self.loop["n"])


@pytest.mark.parametrize("EnvCls", [Changes, Arrays])
def test_what_changes_is_restored(EnvCls: Any, carry: Any) -> None:
    check(EnvCls, {}, carry, (0, 3))


RULES: list[Callable[[int], float]] = [lambda t: t + 1.0, lambda t: t + 2.0]  # of one code but for a constant


def rule_of_a_function(is_first: bool) -> Callable[[int], float]:
    return (lambda t: t + 1.0) if is_first else (lambda t: (t, 1.0)[0] - 2.0)


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (*RULES, r"got .*<lambda>, line \d+, column \d+, expected .*a fresh env"),
        (
            *map(rule_of_a_function, (True, False)),
            r"got .*<lambda>, line \d+, column \d+, expected .*a fresh environment",
        ),
        (None, Namespace(), r"got argparse\.Namespace, expected a class that a fresh environment knows"),
    ],
)
def test_what_a_fresh_environment_lacks_loses_its_episode_and_not_the_run(first, then, expected):
    """A sampler cuts the episode at a StateError; it refuses the run at any other error. Nothing is changed."""
    env, fresh = Plain(rule=first), Plain(rule=first)
    loaded(env, fresh)
    env.rule, env.t = then, 3  # type: ignore[attr-defined]
    before = repr(EnvAdapter(fresh).state_dict())
    with pytest.raises(StateError, match=expected):
        loaded(env, fresh)
    assert repr(EnvAdapter(fresh).state_dict()) == before


# ---- what is no state


class ListOfItsOwn(list[int]):
    pass


class Slots:
    __slots__ = ("__dict__", "number")


class WithoutModule(type):
    """Makes classes as SWIG makes them, which do not know their module."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise AttributeError("__module__")


class Foreign(metaclass=WithoutModule):
    __slots__ = ("this",)


def closure(source: Any) -> Callable[[], Any]:
    return lambda: next(source)


def shared(array: np.ndarray) -> dict[str, Any]:
    return {"array": array, "same": torch.from_numpy(array)}


def sliced(tensor: torch.Tensor) -> dict[str, Any]:
    return {"weights": tensor, "same": tensor[1:]}


def weak(part: Part) -> dict[str, Any]:
    return {"part": part, "x": weakref.proxy(part)}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: {"x": iter(range(9))}, r"env\.x is a builtins\.range_iterator"),
        (lambda: {"x": closure(iter(range(9)))}, r"source in env\.x is a builtins\.range_iterator"),
        (lambda: {"x": {(Part(), 0): 1}}, r"a key of env\.x is an object as a key"),
        (lambda: {"x": ListOfItsOwn([1])}, r"env\.x is a .*ListOfItsOwn"),
        (lambda: {"x": np.random.mtrand._rand}, r"env\.x is numpy's global generator"),
        (lambda: {"x": partial(random.randint, 1, 6)}, r"x.* is Python's global generator"),
        (lambda: {"x": torch.default_generator}, r"env\.x is torch's global generator"),
        (lambda: shared(np.zeros(6)), r"env\.same shares its memory with env\.array, of which one is a tensor"),
        (lambda: sliced(torch.zeros(6)), r"env\.same shares its memory with env\.weights, of which one is a tensor"),
        (lambda: {"x": torch.zeros(3).numpy()}, r"env\.x is an array whose memory belongs to a torch\.Tensor"),
        (lambda: {"x": torch.zeros(2, requires_grad=True)}, r"env\.x is a tensor that needs a gradient"),
        (lambda: {"x": np.array([None])}, "x is an array of dtype object"),
        (lambda: {"x": Slots()}, r"env\.x is a .*Slots, which cannot be read"),
        (lambda: {"x": np.random.default_rng(1).random}, r"env\.x is a builtins\.method, which cannot be read"),
        (lambda: {"x": Foreign()}, r"env\.x is a Foreign, which cannot be read"),
        (lambda: {"x": ctypes.CDLL(None)}, r"env\.x is a ctypes\.CDLL, which stands for something outside of Python"),
        (
            lambda: {"x": multiprocessing.Pipe()[0]},
            r"env\.x is a multi.*\.Connection, which stands for something",
        ),
        (lambda: weak(Part()), r"env\.x is a weakref\.ProxyType, which cannot be read"),
    ],
)
def test_what_cannot_be_saved_is_no_state(make, why):
    env = EnvAdapter(Plain(**make()))
    env.reset(1)
    assert env.state_dict() == {}
    assert re.search(why, str(env.why_no_state()))


class Shares(gymnasium.Wrapper[Any, Any, Any, Any]):
    def reset(self, **kwargs: Any) -> Any:
        self.last, info = self.env.reset(**kwargs)
        return self.last, info


class RefusesToBeRead(Plain):
    """Has state_dict, which fails before its first reset."""

    def state_dict(self) -> dict[str, Any]:
        return {"lives": self.lives}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class HalfOfItsOwn(Plain):
    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Shares(CountingEnv(reuse_array=True)), "env.last is an array of CountingEnv, which has its own state"),
        (RefusesToBeRead, r"RefusesToBeRead .*: saving its state raised AttributeError: .*'lives'"),
        (HalfOfItsOwn, "has state_dict, but no load_state_dict"),
    ],
)
def test_an_environment_with_its_own_state_has_all_of_it(make, why):
    env = EnvAdapter(make())
    env.reset(1)
    assert env.state_dict() == {}
    assert re.search(why, str(env.why_no_state()))


class InAGlobal(Plain):
    seen: list[int] = []  # noqa: RUF012

    def draw(self) -> float:
        self.seen.append(1)
        return len(self.seen)


def test_hidden_state_is_found_by_the_check():
    assert "observation differs in row 0" in str(
        restores_exactly(EnvAdapter(InAGlobal()), EnvAdapter(InAGlobal()), 1, 5)
    )


def test_a_state_that_was_loaded_is_saved_as_it_was(carry):
    """So that the checkpoints of two equal runs can be compared."""
    env, other = EnvAdapter(Everything()), EnvAdapter(Everything())
    state = carry(env.state_dict())
    other.load_state_dict(state)
    assert repr(carry(other.state_dict())) == repr(state)


def test_a_state_of_another_environment_is_refused():
    def made(id: str, **kwargs: Any) -> EnvAdapter:
        env = make_env(gymnasium.make, {"id": id, **kwargs})
        env.reset(1)
        return env

    pendulum, cart = made("Pendulum-v1"), made("CartPole-v1")
    with pytest.raises(ValueError, match=r"got that of PendulumEnv Pendulum-v1, expected one of CartPoleEnv CartPole"):
        cart.load_state_dict(pendulum.state_dict())
    unlimited = EnvAdapter(gymnasium.make("CartPole-v1").unwrapped)
    unlimited.reset(1)
    with pytest.raises(ValueError, match=r"env: got .*TimeLimit, expected .*CartPoleEnv"):
        unlimited.load_state_dict(cart.state_dict())
    small, large = made("FrozenLake-v1", map_name="4x4"), made("FrozenLake-v1", map_name="8x8")
    with pytest.raises(ValueError, match=r"observation_space: got .*Discrete\(16\), expected .*Discrete\(64\)"):
        large.load_state_dict(small.state_dict())
    assert large.step(0)[0] in range(64)


def graph_of(env: Any, carry: Any) -> tuple[Any, list[Any]]:
    """Return the state of an environment and its nodes, to be changed."""
    state = carry(EnvAdapter(env).state_dict())
    return state, state["graph"]["nodes"]


class Builds(Plain):
    """Would notice if code ran: has what Python calls when it makes, restores and deletes objects."""

    def prepare(self) -> None:
        self.part, self.rule, self.fruit = Guarded(), min, Fruit.FIG


class Guarded:
    def __init__(self) -> None:
        self.n = 0

    def _called(self, *_: Any) -> Any:
        raise AssertionError("a file has made code run")

    __setstate__ = __reduce_ex__ = __setattr__ = _called


Guarded.__setattr__ = object.__setattr__  # type: ignore[method-assign, assignment]


class Deletes:
    def __del__(self) -> None:
        pass


class Fruit(Enum):
    FIG = 1


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("object", {"class": "subprocess.Popen"}),
        ("object", {"class": f"{__name__}.Deletes"}),
        ("object", {"class": "gymnasium.spaces.box.Box"}),
        ("enum", {"class": "os.system"}),
        ("enum", {"class": f"{__name__}.Guarded"}),
        ("enum", {"class": "http.HTTPStatus", "name": "OK"}),
        ("constant", {"text": "os.system"}),
        ("constant", {"text": "posix.system"}),
        ("constant", {"kind": "partial", "items": [[0], (), {}]}),
    ],
)
def test_a_state_names_no_code_that_the_environment_does_not_hold(kind, change, carry):
    state, nodes = graph_of(Builds(), carry)
    last = next(node for node in reversed(nodes) if node["kind"] == kind)
    last.update(change)
    with pytest.raises(StateError, match=r"loading the state of an environment: .*expected"):
        EnvAdapter(Builds()).load_state_dict(state)


def test_no_method_of_an_object_is_called_to_restore_it(carry):
    env, other = Builds(), Builds()
    env.part.n = 7
    other.part = None  # type: ignore[assignment]  # so that one is made
    assert loaded(env, other, carry).part.n == 7


class Draws(Plain):
    """Holds what numpy keeps as numbers in memory: an array, a view, and generators with a place in their words."""

    def prepare(self) -> None:
        self.array = np.zeros(8)
        self.view = self.array[2:]
        self.of_nothing = np.zeros(0)[:0]
        self.twister, self.philox = np.random.MT19937(1), np.random.Philox(1)


@pytest.mark.parametrize(
    ("attribute", "places", "number"),
    [
        ("array", ["dtype"], "|O"),
        ("view", ["dtype"], "|O"),
        ("array", ["shape"], (-1,)),
        ("view", ["shape"], (-1,)),
        ("view", ["shape"], (7,)),
        ("view", ["strides"], (2**62,)),
        ("view", ["start"], -8),
        ("of_nothing", ["shape"], (1000,)),
        ("twister", ["sequence", "pool_size"], 10**6),
        ("twister", ["state", "state", "pos"], 2**30),
        ("twister", ["state", "state", "pos"], -1),
        ("philox", ["state", "buffer_pos"], -1),
    ],
)
def test_no_number_of_a_state_is_taken_for_an_address(attribute, places, number, carry):
    """numpy would follow it into the memory of the process, where a file from elsewhere must not lead."""
    graph = carry(EnvAdapter(Draws()).state_dict())["graph"]
    (of_env,) = graph["roots"]["env"]
    (of_attribute,) = graph["nodes"][of_env]["attributes"][attribute]
    *inner, last = places
    node = graph["nodes"][of_attribute]
    for place in inner:
        node = node[place]
    node[last] = number
    with pytest.raises(ValueError, match=r"expected (plain data|0 to|no length|one inside|up to)"):
        load_graph(graph, {"env": Draws(), "continues_from": None})


class Emulator:
    """Stands for an emulator: it cannot be read, and has its number behind methods."""

    __slots__ = ("frame",)

    def __init__(self) -> None:
        self.frame = 0


class HasPair(Plain):
    """Has an emulator with the pair of methods that several libraries have, and a counter that these leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.emulator, self.bonus = Emulator(), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed)
        self.emulator.frame = self.bonus = 0
        return result

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        self.emulator.frame += 1
        self.bonus += 3
        return observation, reward + self.emulator.frame + 0.125 * self.bonus, *rest

    def get_state(self) -> dict[str, Any]:
        return {"frame": np.int64(self.emulator.frame)}

    def set_state(self, state: dict[str, Any]) -> None:
        assert type(state["frame"]) is np.int64, "types are kept"
        self.emulator.frame, self.bonus = int(state["frame"]), 0


class HasPairOfAnEmulator(HasPair):
    """Gives what cannot be read."""

    def get_state(self) -> Any:
        return self.emulator


class HasPairAndAList(HasPair):
    """Has the emulator in a list, which would have nothing in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.emulators = [self.emulator]
        del self.emulator

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return Plain.reset(self, seed=seed)

    def get_state(self) -> dict[str, Any]:
        return {"frame": np.int64(self.emulators[0].frame)}


class HasHalfAPair(HasPair):
    """Sets its state by two arguments, as gymnasium's MuJoCo environments do."""

    def set_state(self, qpos: Any, qvel: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


def test_get_state_and_set_state_serve_with_the_attributes_that_can_be_read(carry):
    check(HasPair, {}, carry)
    for EnvCls, place in [
        (HasPairOfAnEmulator, "get_state() of env"),
        (HasPairAndAList, "env.emulators[0]"),
        (HasHalfAPair, "env.emulator"),
    ]:
        assert f"{place} is a " in (make_env(EnvCls, {}).why_no_state() or "")


def test_a_vector_environment_says_that_it_has_no_state():
    env = make_vector_env(gymnasium.make_vec, {"id": "CartPole-v1"}, [0, 1])
    assert "CartPole-v1 (ranks 0 to 1) cannot be restored: it is a vector environment" in env.why_no_state()
    env.close()


class Kind(TrajInfo):
    """Statistics that keep a class, which is another one later."""

    kind: type = int


def test_statistics_that_fresh_ones_cannot_take_over_are_left_out() -> None:
    info, fresh = Kind(), Kind()
    info.kind = float
    fresh.kind = int
    saved, why = saved_info(info)
    assert why is None
    before = dict(vars(fresh))
    assert not restore_info(fresh, saved)
    assert vars(fresh) == before
