"""Environments whose attributes come to be others: methods, lambdas, flags, views; restored exactly, or lost aloud."""

from __future__ import annotations

import ctypes
import multiprocessing
import random
import re
import weakref
from collections import defaultdict
from collections.abc import Callable
from enum import Flag
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlpyt.envs import make_env, restores_exactly
from rlpyt.envs.state_data import StateError
from rlpyt.logging.snapshots import load_snapshot, save_snapshot
from rlpyt.samplers.states import restore_info, saved_info
from rlpyt.types import TrajInfo

LIMIT, CHANGE = 8, 2


class Changing(gymnasium.Env[Any, Any]):
    """Environment of LIMIT steps whose observation is what `draw` gives; `change` is called in step CHANGE."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1e9, 1e9, (1,), np.float64)
        self.action_space = spaces.Discrete(3)
        self.t = 0
        self.begin()

    def begin(self) -> None:
        pass

    def change(self) -> None:
        pass

    def draw(self) -> float:
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.begin()
        return np.array([self.draw()], np.float64), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        if self.t == CHANGE:
            self.change()
        return np.array([self.draw()], np.float64), 1.0, self.t == LIMIT, False, {}


class Part:
    count = 0

    def act(self) -> int:
        self.count += 1
        return self.count


class OtherPart(Part):
    def act(self) -> int:
        self.count += 10
        return self.count


class MethodOfAnotherClass(Changing):
    def begin(self) -> None:
        self.parts = (Part(), OtherPart())
        self.policy = self.parts[0].act

    def change(self) -> None:
        self.policy = self.parts[1].act

    def draw(self) -> float:
        return self.policy()


class AnotherClass(Changing):
    def begin(self) -> None:
        self.part = Part()

    def change(self) -> None:
        self.part = OtherPart()

    def draw(self) -> float:
        return self.part.act()


class TwoPlaces(AnotherClass):
    def begin(self) -> None:
        self.part = Part()
        self.parts = (self.part, Part())

    def change(self) -> None:
        self.part = self.parts[1]


class AnotherMethod(Changing):
    def begin(self) -> None:
        self.phase: Callable[[], float] = self.first

    def change(self) -> None:
        self.phase = self.second

    def first(self) -> float:
        return self.t

    def second(self) -> float:
        return -self.t

    def draw(self) -> float:
        return self.phase()


class MethodOfTheBase(AnotherMethod):
    """Keeps a method that its own class has replaced."""

    def begin(self) -> None:
        self.phase = super().first

    def change(self) -> None:
        self.phase = super().second

    def first(self) -> float:
        return 100.0

    second = first


class Keys(Flag):
    UP = 1
    LEFT = 2


class Flags(Changing):
    def begin(self) -> None:
        self.keys = Keys.UP

    def change(self) -> None:
        self.keys |= Keys.LEFT

    def draw(self) -> float:
        return self.keys.value if self.t < 5 else (self.keys & Keys(0)).value


class NoFlag(Flags):
    def change(self) -> None:
        self.keys = Keys(0)


class OwnSpec(Changing):
    """Calls numbers of its own by the name that gymnasium has for a specification."""

    def begin(self) -> None:
        self.room = Part()
        self.room.spec = [0]  # type: ignore[attr-defined]

    def draw(self) -> float:
        self.room.spec[0] += 1  # type: ignore[attr-defined]
        return self.room.spec[0]  # type: ignore[attr-defined]


class LockedBase(Changing):
    def begin(self) -> None:
        self.whole = np.zeros((3, 4))
        self.part = self.whole[::-1, ::-2]
        self.whole.flags.writeable = False

    def draw(self) -> float:
        self.part += 1
        return float(self.whole.sum())


class Arrays(Changing):
    """Has arrays that are easily scrambled, and one that is still locked after a view of it was made again."""

    def begin(self) -> None:
        self.columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        self.rows = np.arange(6.0).reshape(2, 3)
        self.turned = self.rows.T
        self.image = np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0).copy("K")  # neither C nor Fortran
        self.pixel = self.image[1, 2]
        self.whole = np.arange(12.0)
        self.part = self.whole[::2]
        self.whole.flags.writeable = False

    def change(self) -> None:
        for array in (self.columns, self.rows, self.part, self.pixel):
            array += 1

    def draw(self) -> float:
        weights = np.arange(6).reshape(2, 3) ** 2
        return float(
            ((self.columns + self.rows + self.turned.T) * weights).sum()
            + self.whole @ np.arange(12)
            + self.image.ravel("K") @ np.arange(24) ** 2
            + self.image.ravel("C") @ np.arange(24)
            + 1000 * self.columns.flags.f_contiguous
            + 2000 * self.whole.flags.writeable
        )


class Details(Changing):
    """Depends on what is easily lost: order of memory, locks, defaults, the stream of a space, data in itself."""

    def begin(self) -> None:
        self.columns = np.asfortranarray(np.zeros((3, 4)))
        self.row = self.columns[1]
        self.lock = np.zeros(1)
        self.lock.flags.writeable = False
        self.visits: defaultdict[int, float] = defaultdict(lambda: 0.5)
        self.loop: dict[str, Any] = {"n": 0}
        self.loop["again"] = self.loop

        def count(seen: list[int] = [0]) -> int:  # noqa: B006
            seen[0] += 1
            return seen[0]

        self.count = count

    def draw(self) -> float:
        self.row += 1 + int(self.action_space.sample())
        self.visits[self.t] += 1
        self.loop["again"]["again"]["n"] += 1
        places = self.columns.ravel("K") @ np.arange(12) ** 2
        return float(
            places + sum(self.visits.values()) + 100 * self.count() + self.loop["n"] + self.lock.flags.writeable
        )


@pytest.mark.parametrize(
    "EnvCls",
    [
        MethodOfAnotherClass,
        AnotherClass,
        TwoPlaces,
        AnotherMethod,
        MethodOfTheBase,
        Flags,
        NoFlag,
        OwnSpec,
        LockedBase,
        Arrays,
        Details,
    ],
)
def test_what_changes_is_restored(EnvCls: Any, tmp_path: Any) -> None:
    def carry(state: Any) -> Any:
        save_snapshot(tmp_path / "state.pkl", state)
        return load_snapshot(tmp_path / "state.pkl")

    for n_before in (0, 3):
        assert restores_exactly(make_env(EnvCls, {}), make_env(EnvCls, {}), 1, LIMIT + 2, n_before, carry) is None


RULES: dict[str, Callable[[int], float]] = {"plus": lambda t: t + 1.0, "minus": lambda t: t - 1.0}


class LambdaOfAModule(Changing):
    def begin(self) -> None:
        self.rule = RULES["plus"]

    def change(self) -> None:
        self.rule = RULES["minus"]

    def draw(self) -> float:
        return self.rule(self.t)


RULES["plus two"], RULES["plus three"] = lambda t: t + 2.0, lambda t: t + 3.0  # of one code but for a constant


class LambdaOfAnotherConstant(LambdaOfAModule):
    def begin(self) -> None:
        self.rule = RULES["plus two"]

    def change(self) -> None:
        self.rule = RULES["plus three"]


class LambdaOfAMethod(LambdaOfAModule):
    def begin(self, is_new: bool = True) -> None:
        self.rule = (lambda t: t + 1.0) if is_new else (lambda t: (t, 1.0)[0] - 2.0)

    def change(self) -> None:
        self.begin(False)


@pytest.mark.parametrize("EnvCls", [LambdaOfAModule, LambdaOfAnotherConstant, LambdaOfAMethod])
def test_what_a_fresh_environment_lacks_loses_its_episode_and_not_the_run(EnvCls: Any) -> None:
    """A sampler cuts the episode at a StateError; it refuses the run at any other error."""
    env, fresh = make_env(EnvCls, {}), make_env(EnvCls, {})
    env.reset(1)
    fresh.reset(2)
    fresh.load_state_dict(env.state_dict())
    for _ in range(CHANGE):
        env.step(0)
    with pytest.raises(StateError, match=r"got .*<lambda>, line \d+, column \d+, expected .*a fresh environment"):
        fresh.load_state_dict(env.state_dict())


class Slots:
    __slots__ = ("__dict__", "number")

    def __init__(self) -> None:
        self.number = 0


class HasSlots(Changing):
    def begin(self) -> None:
        self.slots = Slots()

    def draw(self) -> float:
        self.slots.number += 1
        return self.slots.number


class CompiledMethod(HasSlots):
    def begin(self) -> None:
        self.slots = np.random.default_rng(1).random  # type: ignore[assignment]


class GlobalDice(Changing):
    def begin(self) -> None:
        self.dice = partial(random.randint, 1, 6)

    def draw(self) -> float:
        return self.dice()


class WithoutModule(type):
    """Makes classes as SWIG makes them, which do not know their module."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise AttributeError("__module__")


class Foreign(metaclass=WithoutModule):
    __slots__ = ("this",)


class OfForeignClass(HasSlots):
    def begin(self) -> None:
        self.slots = Foreign()  # type: ignore[assignment]


class Library(HasSlots):
    def begin(self) -> None:
        self.slots = ctypes.CDLL(None)  # type: ignore[assignment]


class Pipe(HasSlots):
    def begin(self) -> None:
        self.slots = multiprocessing.Pipe()[0]  # type: ignore[assignment]


class Weak(HasSlots):
    def begin(self) -> None:
        self.part = Part()
        self.slots = weakref.proxy(self.part)


class RefusesToBeRead(HasSlots):
    """Has state_dict, which fails before its first reset."""

    def state_dict(self) -> dict[str, Any]:
        return {"lives": self.lives}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Objects(HasSlots):
    def begin(self) -> None:
        self.slots = np.array([None])  # type: ignore[assignment]


class HalfOfItsOwn(HasSlots):
    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("EnvCls", "place"),
    [
        (HasSlots, r"env\.slots is a .*Slots, which cannot be read"),
        (CompiledMethod, r"env\.slots is a builtins\.method, which cannot be read"),
        (GlobalDice, "dice.* is Python's global generator"),
        (OfForeignClass, r"env\.slots is a Foreign, which cannot be read"),
        (Library, r"env\.slots is a ctypes\.CDLL, which stands for something outside of Python"),
        (Pipe, r"env\.slots is a multiprocessing\.connection\.Connection, which stands for something outside"),
        (Weak, r"env\.slots is a weakref\.ProxyType, which cannot be read"),
        (RefusesToBeRead, r"RefusesToBeRead .*: saving its state raised AttributeError: .*'lives'"),
        (Objects, "slots is an array of dtype object"),
        (HalfOfItsOwn, "has state_dict, but no load_state_dict"),
    ],
)
def test_what_is_not_seen_whole_is_no_state(EnvCls: Any, place: str) -> None:
    env = make_env(EnvCls, {})
    assert re.search(place, str(env.why_no_state()))


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
