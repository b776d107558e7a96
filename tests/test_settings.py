"""Settings: the record of what was given, unknown names, schedules in every way of declaring them, and help()."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

import pytest

from rlpyt.algos import DQN, PPO
from rlpyt.functional import Linear, ScheduleLike
from rlpyt.settings import (
    Scheduled,
    Settings,
    all_settings,
    arguments_of,
    owner_of,
    scheduled,
    setting_docs,
    settings_by_group,
    whole,
)

Rate = ScheduleLike
"""An alias of one's own."""


@dataclass(eq=False)
class Thing(Settings, Scheduled):
    """Thing with settings."""

    noun: ClassVar[str] = "knob"

    size: int
    """How large it is."""
    rate: ScheduleLike = 0.5
    """How fast it is,
    in units."""
    aliased: Rate = 1.0
    """Declared by an alias."""
    optional: ScheduleLike | None = None
    old_style: Optional[ScheduleLike] = None  # noqa: UP045
    call: Callable[..., Any] | None = None
    names: list[str] = field(default_factory=list)
    flag: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, "size")
        self.check("rate", lambda x: x > 0, "above 0")


@dataclass(eq=False)
class FasterThing(Thing):
    """Thing with another default, declared as a plain number."""

    rate: float = 2.0
    extra: int = 1
    """One more."""


class OldThing(Thing):
    """Thing in the old style."""

    def __init__(self, color: str = "red", **kwargs: Any) -> None:
        super().__init__(7, **kwargs)
        self.color = color


def make(Cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a class, past a type checker that knows better."""
    return Cls(*args, **kwargs)


# ---- the record ----


def test_settings_are_all_fields_as_they_were_given_or_set_since() -> None:
    thing = Thing(3, rate="lin_1")
    assert all_settings(thing) == dict(
        size=3, rate="lin_1", aliased=1.0, optional=None, old_style=None, call=None, names=[], flag=False
    )
    assert arguments_of(thing) == dict(size=3, rate="lin_1")
    thing.rate = 0.25
    assert all_settings(thing)["rate"] == 0.25
    assert all_settings(type(thing)(**all_settings(thing))) == all_settings(thing)


def test_settings_of_a_class_with_an_init_of_its_own() -> None:
    thing = OldThing("blue", flag=True)
    assert (thing.color, thing.size, thing.flag) == ("blue", 7, True)
    assert arguments_of(thing) == dict(color="blue", flag=True)
    assert arguments_of(make(OldThing)) == {}
    assert {"color": "blue", "flag": True}.items() <= all_settings(thing).items()


def test_replace_makes_another_part_with_changes() -> None:
    thing = Thing(3, rate=0.25)
    other = thing.replace(size=4)
    assert (other.size, other.rate, thing.size) == (4, 0.25, 3)
    assert arguments_of(other) == dict(size=4, rate=0.25), "a default is not given by it"
    with pytest.raises(ValueError, match="Thing: rate is -1; expected above 0"):
        thing.replace(rate=-1)


# ---- what is refused ----


def test_unknown_names_are_answered_with_close_ones() -> None:
    with pytest.raises(TypeError, match=r"Thing has no knob 'flagg'. Did you mean flag\? It has: size, rate, "):
        make(Thing, flagg=1)
    with pytest.raises(TypeError, match=r"OldThing has no knob 'colour'. Did you mean color\? It has: color, "):
        make(OldThing, colour="red")


def test_values_of_the_wrong_kind() -> None:
    with pytest.raises(TypeError, match="Thing: flag is 'no'; expected True or False"):
        make(Thing, 3, flag="no")
    with pytest.raises(TypeError, match="Thing: rate is None; expected a number or a schedule"):
        make(Thing, 3, rate=None)
    with pytest.raises(TypeError, match=r"Thing: size is 'lin_3' of type str; .* which may not change during"):
        make(Thing, "lin_3")
    with pytest.raises(ValueError, match=r"Thing: size is 2\.5; expected a whole number from 1"):
        make(Thing, 2.5)
    with pytest.raises(ValueError, match="Thing: optional: got the string 'linear'"):
        make(Thing, 3, optional="linear")
    with pytest.raises(ValueError, match=r"Thing: aliased is <function .*; expected a number"):
        make(Thing, 3, aliased=lambda step: float("nan"))


def test_a_default_in_the_body_of_a_class_that_is_no_dataclass() -> None:
    class Forgotten(Thing):
        rate = 3.0

    with pytest.raises(TypeError, match=r"Forgotten sets rate in a class body, .* Put @dataclass\(kw_only=True"):
        make(Forgotten, 3)


# ---- schedules ----


def test_fields_that_may_be_schedules_and_whether_they_may_be_none() -> None:
    expected = dict(rate=False, aliased=False, optional=True, old_style=True)
    assert scheduled(Thing) == expected
    assert scheduled(FasterThing) == expected


@pytest.mark.parametrize("name", ["rate", "aliased", "optional", "old_style"])
@pytest.mark.parametrize("Cls", [Thing, FasterThing])
def test_every_one_of_them_follows_its_schedule(Cls: Any, name: str) -> None:
    thing = Cls(1, **{name: "lin_2_1"})
    thing.bind(100)
    values = [vars(thing.hyper(step))[name] for step in (0, 50, 100, 200)]
    assert values == pytest.approx([2.0, 1.5, 1.0, 1.0])
    others = {k: x for k, x in vars(thing.hyper(50)).items() if k != name}
    defaults = dict(rate=2.0 if Cls is FasterThing else 0.5, aliased=1.0, optional=None, old_style=None)
    assert others == {k: x for k, x in defaults.items() if k != name}


def test_a_value_set_during_a_run_holds_from_the_next_look_on() -> None:
    thing = Thing(1, optional=lambda step: float(step))
    thing.bind(100)
    assert (thing.hyper(10).rate, thing.hyper(10).optional) == (0.5, 10.0)
    thing.rate, thing.optional = "lin_1", None
    assert (thing.hyper(25).rate, thing.hyper(25).optional) == (0.75, None)
    thing.rate = Linear(4.0, 0.0, steps=50)
    assert thing.hyper(25).rate == 2.0


def test_hyper_parameters_are_made_anew_where_a_value_can_have_changed_and_refuse_to_be_set() -> None:
    thing = make(Thing, 1)
    constant = thing.hyper(0)
    assert thing.hyper(7) is constant
    thing.rate = Linear(1.0, 0.0)
    thing.bind(100)
    moving = thing.hyper(7)
    assert thing.hyper(7) is moving
    assert [constant.rate, moving.rate, thing.hyper(8).rate] == pytest.approx([0.5, 0.93, 0.92])
    with pytest.raises(AttributeError, match="Set the algorithm's own rate"):
        moving.rate = 3.0


def test_a_schedule_that_does_not_fit_the_run_is_refused_when_it_is_bound() -> None:
    thing = Thing(1, rate=Linear(1.0, begin=500))
    with pytest.raises(ValueError, match=r"rate: got Linear.* in a run of 100 steps"):
        thing.bind(100)
    thing.bind(1000)


def test_a_schedule_may_follow_from_other_settings() -> None:
    class Derived(Thing):
        def schedule_of(self, name: str) -> Any:
            return self.size if name == "optional" else super().schedule_of(name)

    thing = Derived(5)
    thing.bind(10)
    assert (thing.hyper(0).optional, thing.hyper(0).rate) == (5.0, 0.5)
    assert thing.optional is None


# ---- help ----


def test_help_shows_the_docstring_of_every_field() -> None:
    text = FasterThing.__doc__ or ""
    assert text.startswith("Thing with another default")
    for line in (
        "    size: How large it is.",
        "    rate: How fast it is,",
        "        in units.",
        "    extra: One more.",
    ):
        assert line in text
    assert list(inspect.signature(FasterThing).parameters)[:2] == ["size", "rate"]


@dataclass(kw_only=True, eq=False)
class Finish:
    group: ClassVar[str] = "finish"

    gloss: float = 0.5
    """How much it shines."""


@dataclass(kw_only=True, eq=False)
class FinishedThing(FasterThing, Finish):
    """Thing with a finish."""

    gloss: float = 0.75
    """How much it shines by default."""
    late: int = 0
    """Declared below the group."""


def test_settings_of_a_group_stand_under_its_heading_by_the_class_that_declared_them_first() -> None:
    *_, last = groups = settings_by_group(FinishedThing)
    assert (list(groups), groups[last]) == (["", "finish"], ["gloss"])
    assert {"size", "rate", "extra", "late"} <= set(groups[""])
    text = FinishedThing.__doc__ or ""
    assert text.index("    late: ") < text.index("Args, finish:\n    gloss: How much it shines by default.")


@pytest.mark.parametrize("Cls", [DQN, PPO])
def test_every_setting_of_the_library_has_one(Cls: Any) -> None:
    docs = setting_docs(Cls)
    assert [name for name in inspect.signature(Cls).parameters if not docs.get(name)] == []
    assert all(f"    {name}: " in Cls.__doc__ for name in inspect.signature(Cls).parameters)


def test_a_setting_that_a_schedule_is_made_of_may_change_during_a_run():
    algo = DQN(pri_beta_init=0.4, pri_beta_final=1.0, pri_beta_steps=100)
    algo.bind(1000)
    assert algo.hyper(100).pri_beta == 1.0
    algo.pri_beta_final = 0.6
    algo.eps_steps = 50
    assert algo.hyper(100).pri_beta == pytest.approx(0.6)
    assert algo.hyper(50).eps_schedule == 1.0


def test_the_class_that_declares_a_field_is_found_without_its_annotations() -> None:
    """In Python 3.14 a class without `from __future__ import annotations` does not keep them among its attributes."""

    @dataclass(kw_only=True, eq=False)
    class Own(PPO):
        bonus: ScheduleLike = 0.5
        epochs: int = 3

    @dataclass(kw_only=True, eq=False)
    class Derived(Own):
        minibatches: int = 2

    for cls in (Own, Derived):
        del cls.__annotations__
    owners = {f.name: owner_of(Derived, f) for f in Derived.__dataclass_fields__.values()}
    assert (owners["bonus"], owners["epochs"], owners["minibatches"]) == (Own, Own, Derived)
    assert owners["ratio_clip"] is PPO
    assert scheduled(Derived)["bonus"] is False
