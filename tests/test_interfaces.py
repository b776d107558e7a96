"""Interfaces of `rlpyt.core`: they have what one room uses of another, and nothing else."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from rlpyt import core
from tests.shape import room_of, sources

FAMILIES = {
    "actor": ("Actor",),
    "agent": tuple(name for name in core.__all__ if name.endswith("Agent")),
    "algo": ("Algorithm",),
    "sampler": ("Sampler", "FreeSampler"),
    "replay": ("Replay",),
}
"""Name of a part, and its interfaces. A variable, argument or attribute of this name holds such a part."""
ROOMS = {"actor": "agents", "agent": "agents", "algo": "algos", "sampler": "samplers", "replay": "replays"}
"""Where a part is at home: there its own members may be used."""
FOR_SCRIPTS = {
    "agent": {"eval_mode", "sample_mode"},
    "algo": {"agent"},
    "replay": {"check_valid", "n_priorities_dropped"},
    "sampler": {"batches", "n_cut_episodes", "why_not_set_back"},
}
"""Members that scripts of users call or set, or that wrappers of a sampler ask it for, and no other room does."""


class Use(NamedTuple):
    part: str
    member: str
    where: str


def uses(module: str, tree: ast.Module) -> Iterator[Use]:
    """Yield every member of a part that a module uses, but of the parts that are at home in its room."""
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        arguments = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
        for node in ast.walk(function):
            if not isinstance(node, ast.Attribute):
                continue
            part = held(node.value, arguments)
            if part is not None and room_of(module) not in (ROOMS[part], "testing"):
                yield Use(part, node.attr, f"{module}:{node.lineno}")


def held(node: ast.expr, arguments: set[str]) -> str | None:
    """Return which part an expression holds: an argument of its name, or an attribute of an object."""
    if isinstance(node, ast.Name) and node.id in FAMILIES and node.id in arguments:
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        # `samples.agent` holds rows, no agent
        name = node.attr.removeprefix("_")
        return name if name in FAMILIES and node.value.id in ("self", "part") else None
    return None


def members(part: str) -> set[str]:
    """Return the public names that the interfaces of a part have."""
    found: set[str] = set()
    for name in FAMILIES[part]:
        for cls in getattr(core, name).__mro__:
            if cls.__module__.startswith("rlpyt.core"):
                found |= set(vars(cls)) | set(inspect.get_annotations(cls))
    return {name for name in found if not name.startswith("_")}


def asked_for(part: str) -> set[str]:
    """Return the names of all members that other rooms ask of any object, the interfaces themselves among them."""
    names = [name for name in sources() if room_of(name) not in (ROOMS[part], "testing", "compat")]
    return set().union(*map(attributes, names))


@cache
def attributes(module: str) -> frozenset[str]:
    """Return the names of all attributes in a module."""
    return frozenset(n.attr for n in ast.walk(sources()[module]) if isinstance(n, ast.Attribute))


@cache
def all_uses() -> list[Use]:
    return [use for name, tree in sources().items() for use in uses(name, tree)]


@pytest.mark.parametrize("part", FAMILIES)
def test_what_a_room_uses_of_another_stands_in_the_interface(part):
    called = {"__call__", "__setstate__"}
    missing = [
        f"{u.where} uses {part}.{u.member}"
        for u in all_uses()
        if u.part == part and u.member not in members(part) | called
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("part", FAMILIES)
def test_what_stands_in_the_interface_is_used(part):
    unused = members(part) - asked_for(part) - FOR_SCRIPTS.get(part, set())
    assert not unused, f"rlpyt.core has of a part {part!r} what no other room uses: {', '.join(sorted(unused))}"


@pytest.mark.parametrize("part", FAMILIES)
def test_the_page_lists_the_interface(part):
    page = (Path(core.__file__).parents[2] / "docs/reference/architecture.md").read_text()
    section = page.partition("## The interfaces")[2].partition("\n## ")[0]
    listed = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)", section)}
    assert not members(part) - {"networks"} - listed


def test_the_seams_are_annotated():
    """A type checker and an editor follow a part from room to room; `Any` would end the way."""
    blind: dict[str, list[str]] = defaultdict(list)
    for module, tree in sources().items():
        for node in ast.walk(tree):
            name, annotation = None, None
            if isinstance(node, ast.arg):
                name, annotation = node.arg, node.annotation
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name | ast.Attribute):
                name = node.target.id if isinstance(node.target, ast.Name) else node.target.attr
                annotation = node.annotation
            if name in FAMILIES and isinstance(annotation, ast.Name) and annotation.id == "Any":
                blind[module].append(f"{name} in line {annotation.lineno}")
    assert not blind, dict(blind)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(agent):\n    agent.secret()", [("agent", "secret")]),
        ("class A:\n    def f(self):\n        self.agent.secret", [("agent", "secret")]),
        ("def f(samples):\n    samples.agent.action", []),
        ("def f(samples):\n    agent = samples.agent\n    agent.action", []),
        ("def f(part):\n    part.actor.secret = 1", [("actor", "secret")]),
    ],
)
def test_a_use_is_seen(source, found):
    assert [(u.part, u.member) for u in uses("rlpyt.algos.x", ast.parse(source))] == found
    assert list(uses("rlpyt.agents.x", ast.parse(source))) == []
