"""Figures of the library's shape, measured on its classes and on its source."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path

import rlpyt

ROOT = Path(rlpyt.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
_KINDS = (staticmethod, classmethod, property, cached_property)


# ---- classes ----


@cache
def classes() -> tuple[type, ...]:
    """Return all classes that the library defines at the top of its modules."""
    names = [
        info.name for info in pkgutil.walk_packages(rlpyt.__path__, "rlpyt.") if not info.name.endswith("__main__")
    ]
    found = {
        thing: None
        for name in names
        for thing in vars(importlib.import_module(name)).values()
        if inspect.isclass(thing) and thing.__module__ == name
    }
    return tuple(found)


def own_bases(cls: type) -> list[type]:
    """Return a class and those of its bases that are the library's."""
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] == "rlpyt"]


def methods(cls: type) -> set[str]:
    """Return the names of the methods and properties of a class with its bases, but for those with two underscores."""
    return {
        name
        for base in own_bases(cls)
        for name, thing in vars(base).items()
        if (inspect.isfunction(thing) or isinstance(thing, _KINDS))
        and not (name.startswith("__") and name.endswith("__"))
    }


def depth(cls: type) -> int:
    """Return the length of the longest chain of bases, the class itself counted."""
    return 1 + max((depth(base) for base in cls.__bases__ if base.__module__.split(".")[0] == "rlpyt"), default=0)


# ---- files ----


def name_of(path: Path) -> str:
    """Return the name of the module that a file is."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """Return the room that a module is in, "" of what is in none."""
    return module.split(".")[1] if "." in module else ""


@cache
def sources() -> Mapping[str, ast.Module]:
    """Return the source of each module of the library."""
    return {name_of(path): ast.parse(path.read_text()) for path in MODULES}


def imports(tree: ast.AST, at_top: bool = True) -> Iterator[tuple[str, bool, int]]:
    """Yield every imported module, whether the import stands outside of functions, and its line."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_top, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import in line {node.lineno}"
            assert node.module is not None
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name if name in sources() else node.module, at_top, node.lineno) for name in below)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(node, at_top and not inside)


@cache
def imported() -> Mapping[str, frozenset[str]]:
    """Return which modules of the library each of them imports, wherever the import stands.

    A package's `__init__` only collects names for users, so that it takes part in no circle of its own files.
    """
    return {
        name: frozenset(target for target, _, _ in imports(tree) if target in sources() and target != name)
        for name, tree in sources().items()
    }


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the groups of nodes that reach each other, of two and more."""
    return [group for group in _groups(graph) if len(group) > 1]


def _groups(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    reach = {node: _reached(graph, node) for node in graph}
    found: list[set[str]] = []
    for node in graph:
        if not any(node in group for group in found):
            found.append({node} | {other for other in reach[node] if node in reach.get(other, ())})
    return found


def _reached(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for other in graph.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def floors(graph: Mapping[str, Iterable[str]]) -> int:
    """Return how many floors the nodes of a graph stand on; a circle is one node."""
    groups = _groups(graph)
    of = {node: i for i, group in enumerate(groups) for node in group}

    @cache
    def height(i: int) -> int:
        below = {of[other] for node in groups[i] for other in graph[node] if other in of} - {i}
        return 1 + max(map(height, below), default=0)

    return max(map(height, range(len(groups))), default=0)


def room(name: str) -> Mapping[str, frozenset[str]]:
    """Return the imports among the files of a room, its `__init__` left out."""
    inside = {module for module in imported() if module.startswith(f"rlpyt.{name}.")}
    return {module: imported()[module] & inside for module in inside}


def rooms() -> list[str]:
    """Return the names of the rooms."""
    return sorted(info.name for info in pkgutil.iter_modules(rlpyt.__path__) if info.ispkg)


# ---- places in the source ----


def places(matches: Callable[[ast.AST], bool]) -> list[str]:
    """Return the places of the source that match, as "module:line"."""
    return [
        f"{name}:{getattr(node, 'lineno', 0)}"
        for name, tree in sources().items()
        for node in ast.walk(tree)
        if matches(node)
    ]


def is_metaclass(node: ast.AST) -> bool:
    """Return whether a class is a metaclass, or names one of its own."""
    if not isinstance(node, ast.ClassDef):
        return False
    bases = [base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases]
    return bool({"type", "ABCMeta", "EnumMeta"} & set(bases)) or any(k.arg == "metaclass" for k in node.keywords)


def reads_code(node: ast.AST) -> bool:
    """Return whether source, bytecode or frames are read."""
    names = {"getsource", "getsourcelines", "getsourcefile", "currentframe", "_getframe", "f_back", "co_code"}
    names |= {"co_consts", "co_names", "get_instructions", "getclosurevars", "f_locals", "f_globals", "tb_frame"}
    if isinstance(node, ast.Import | ast.ImportFrom):
        modules = {alias.name for alias in node.names} | {getattr(node, "module", None)}
        return bool({"ast", "dis", "tokenize"} & modules)
    return isinstance(node, ast.Attribute) and node.attr in names


def replaces_dict(node: ast.AST) -> bool:
    """Return whether the `__dict__` of an object is replaced, or all of it is written over."""
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Attribute) and target.attr == "__dict__" for target in node.targets)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("update", "clear")
        and _is_dict_of_object(node.func.value)
    )


def _is_dict_of_object(node: ast.AST) -> bool:
    by_name = isinstance(node, ast.Attribute) and node.attr == "__dict__"
    return by_name or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "vars")


def probes_override(node: ast.AST) -> bool:
    """Return whether a comparison asks if a method is that of a class, as `type(x).f is Base.f`."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Is | ast.IsNot):
        return False
    sides = [side for side in (node.left, *node.comparators) if isinstance(side, ast.Attribute)]
    # A name in capitals is a member of an enumeration.
    return len(sides) == 2 and not any(side.attr.isupper() for side in sides) and any(map(_is_of_type, sides))


def _is_of_type(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Attribute) else None
    of_type = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "type"
    return of_type or (isinstance(value, ast.Name) and value.id[:1].isupper())


def tagged_requests(node: ast.AST) -> bool:
    """Return whether a pattern takes a message apart by a text in its first place."""
    return (
        isinstance(node, ast.MatchSequence)
        and bool(node.patterns)
        and isinstance(node.patterns[0], ast.MatchValue)
        and isinstance(node.patterns[0].value, ast.Constant)
        and isinstance(node.patterns[0].value.value, str)
    )
