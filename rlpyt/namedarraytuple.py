"""Named tuple whose fields are arrays, nested tuples of arrays, or None.

One index or slice reads or writes every field at any depth, of numpy arrays and torch tensors:

    samples[t, b] = step          # writes all fields of one row in place
    minibatch = samples[T_idxs, B_idxs]

The same line of a collector handles dictionary observations, pairs of recurrent states and plain arrays. This module
imports the standard library alone.
"""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Self, TypeAlias, dataclass_transform

Buffer: TypeAlias = Any
"""An array (numpy or torch), a tuple or named array tuple of buffers, or None.

Which of these follows from the spaces of an environment and from a model, where no type checker follows.
"""

_TUPLE_NAMES = frozenset(dir(tuple))
_GET = tuple.__getitem__


@dataclass_transform(eq_default=False, frozen_default=True)
class NamedArrayTuple(tuple):  # type: ignore[type-arg]  # its items are of any type
    """Base of all named array tuples; subclass it with annotated fields, or call `namedarraytuple`.

    Iteration, unpacking and `len` go over the fields, as in any named tuple. `x[key]` with a string returns the field
    of that name, which may be any string: `observation["ale.lives"]`. Any other key indexes every field and returns a
    tuple of the same type. `x[key] = value` writes into every field in place. The value is a tuple with the same
    fields, a mapping with the same keys, or one scalar or array that is written to all fields. A field that is None is
    skipped in reading and writing. A field may be a plain tuple, such as the (h, c) of an LSTM: its parts are indexed.

        class AgentStep(NamedArrayTuple):
            action: Any
            agent_info: Any = None
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _field_defaults: ClassVar[dict[str, Any]] = {}
    _by_name: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Turn the annotated fields of a class into places of the tuple, as `typing.NamedTuple` does.

        Raises:
            TypeError: if a field has the name of a method that every tuple has.
        """
        super().__init_subclass__(**kwargs)  # of a base beside this one, such as Generic
        own = [f for f, type_ in inspect.get_annotations(cls).items() if f[0] != "_" and "ClassVar" not in str(type_)]
        hidden = [f for f in own if not _can_be_attribute(f)]
        if hidden:
            raise TypeError(
                f"{cls.__name__}: the fields {hidden} have the names of methods that every tuple has; rename them, or "
                'make the type with `namedarraytuple`, where they are read as x["name"].'
            )
        if own:
            fields = tuple(dict.fromkeys((*cls._fields, *own)))
            defaults = {f: vars(cls)[f] for f in own if f in vars(cls) and not callable(vars(cls)[f])}
            _install_fields(cls, fields, {**cls._field_defaults, **defaults})

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Take the fields by position or by name."""
        if len(args) == len(cls._fields) and not kwargs:
            return tuple.__new__(cls, args)
        return tuple.__new__(cls, _bind(cls, args, kwargs))

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        """Build a tuple from an iterable of the values of its fields, as `collections.namedtuple` does."""
        return cls(*values)

    def _asdict(self) -> dict[str, Any]:
        """Return a dictionary of the fields; nested tuples stay tuples."""
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **kwargs: Any) -> Self:
        """Return a new tuple with the named fields replaced."""
        values = [kwargs.pop(name, value) for name, value in self.items()]
        return type(self)(*values, **kwargs)  # refuses a name that is not a field

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            return tuple.__getitem__(self, self._index(key))
        try:
            return tuple.__new__(type(self), [_read(x, key) for x in self])
        except (IndexError, TypeError, ValueError) as error:
            raise self._read_error(key, error) from error

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is str:
            raise TypeError(
                f"{type(self).__name__}: the field {key!r} cannot be rebound; write into it with "
                f"`x[{key!r}][:] = value`, or make a new tuple with `x._replace(...)`."
            )
        for i, (dest, src) in enumerate(zip(self, self._sources(key, value), strict=True)):
            if dest is None or src is None:
                continue
            try:
                _write(dest, key, src)
            except (IndexError, TypeError, ValueError, RuntimeError) as error:
                raise self._write_error(i, key, src, error) from error

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{type(self).__name__}: the attribute {name!r} cannot be set; write into a field with "
            f"`x[{name!r}][:] = value`, or make a new tuple with `x._replace(...)`."
        )

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def get(self, index: int) -> Any:
        """Return the field at a position; `x[3]` indexes into the arrays instead."""
        return tuple.__getitem__(self, index)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the pairs of name and field."""
        return iter(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.items())})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # A type that `namedarraytuple` made is in no module: it is rebuilt from its names when it is unpickled.
        if self._by_name:
            return _rebuild, (type(self).__name__, self._fields, tuple(self))
        return type(self), tuple(self)

    def _index(self, name: str) -> int:
        try:
            return self._fields.index(name)
        except ValueError:
            raise KeyError(
                f"{type(self).__name__} has no field {name!r}; its fields are {list(self._fields)}."
            ) from None

    def _sources(self, key: Any, value: Any) -> Iterable[Any]:
        """Return the part of a value that is written to each field."""
        if isinstance(value, tuple):
            names = value._fields if isinstance(value, NamedArrayTuple) else self._fields
            if len(value) != len(self._fields) or names != self._fields:
                raise ValueError(
                    f"{type(self).__name__} at {key!r}: the value has the fields {list(names)} (length "
                    f"{len(value)}), expected {list(self._fields)}."
                )
            return value
        if isinstance(value, Mapping):
            if value.keys() != set(self._fields):
                raise ValueError(
                    f"{type(self).__name__} at {key!r}: the value has the keys {list(value)}, "
                    f"expected {list(self._fields)}."
                )
            return [value[f] for f in self._fields]
        return (value,) * len(self._fields)

    def _read_error(self, key: Any, error: Exception) -> Exception:
        for name, x in self.items():
            try:
                _read(x, key)
            except (IndexError, TypeError, ValueError) as field_error:
                text = f"{type(self).__name__}.{name}{_shape(x)} cannot be read at {key!r}: {field_error}"
                return type(error)(text)
        return error

    def _write_error(self, place: int, key: Any, src: Buffer, error: Exception) -> Exception:
        dest, name = self.get(place), f"{type(self).__name__}.{self._fields[place]}"
        # The error of an inner tuple names the field and its shapes already.
        shapes = "" if isinstance(dest, tuple) else f" expects {_target(dest, key)}, got{_shape(src)}"
        return type(error)(f"{name} at {key!r}:{shapes} ({error})")


def _read(x: Any, key: Any) -> Any:
    """Return `x[key]`. Of a plain tuple all parts are indexed, as its own index would select a part."""
    if x is None or type(x).__getitem__ is not _GET:
        return None if x is None else x[key]
    parts = [_read(part, key) for part in x]
    return tuple(parts) if type(x) is tuple else type(x)(*parts)


def _write(dest: Buffer, key: Any, src: Buffer) -> None:
    """Do `dest[key] = src`, in all parts of a plain tuple."""
    if type(dest).__getitem__ is not _GET:
        dest[key] = src
        return
    for part, part_src in zip(dest, src if isinstance(src, tuple) else (src,) * len(dest), strict=True):
        if part is not None and part_src is not None:
            _write(part, key, part_src)


def _target(dest: Buffer, key: Any) -> str:
    try:
        return f"shape {tuple(dest[key].shape)}"
    except (IndexError, TypeError, ValueError, AttributeError):
        return f"an index into{_shape(dest)}"


def _shape(x: Any) -> str:
    shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
    return f" {type(x).__name__}" if shape is None else f" shape {tuple(shape)} {dtype}"


def _bind(cls: type[NamedArrayTuple], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the values of all fields in order, with defaults; raise TypeError for missing or unknown names."""
    fields = cls._fields
    values = {**cls._field_defaults, **dict(zip(fields, args, strict=False)), **kwargs}
    missing = [f for f in fields if f not in values]
    surplus = [k for k in kwargs if k not in fields or k in fields[: len(args)]]
    if missing or surplus or len(args) > len(fields):
        raise TypeError(
            f"{cls.__name__} takes the fields {list(fields)}; got {len(args)} by position and "
            f"{list(kwargs)} by name: missing {missing}, unknown or given twice {surplus}."
        )
    return [values[f] for f in fields]


def _install_fields(cls: Any, fields: tuple[str, ...], defaults: dict[str, Any]) -> None:
    """Set the fields of a class: names, defaults, and an attribute for every name that can be one."""
    cls._fields = fields
    cls._field_defaults = defaults
    # Descriptors of the standard library, which read a place past `__getitem__`, and which torch.compile knows. It asks
    # for every field by `getattr`, so those whose names are no identifiers have one too.
    make: Any = namedtuple
    source = make("source", fields, rename=True)  # held to the end: a class that is collected loses its descriptors
    for name, place in zip(fields, source._fields, strict=True):
        if _can_be_attribute(name):
            setattr(cls, name, vars(source)[place])


def _can_be_attribute(name: str) -> bool:
    return name not in _TUPLE_NAMES and name not in ("get", "items") and not name.startswith("_")


@cache
def _type_of(typename: str, fields: tuple[str, ...]) -> type[NamedArrayTuple]:
    cls: type[NamedArrayTuple] = type(typename, (NamedArrayTuple,), {"__slots__": ()})
    _install_fields(cls, fields, {})
    cls._by_name = True
    return cls


def _rebuild(typename: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> NamedArrayTuple:
    return _type_of(typename, fields)(*values)


def namedarraytuple(typename: str, field_names: str | Iterable[str]) -> type[NamedArrayTuple]:
    """Return the type of named array tuples with these fields. The same names give the same type.

    Args:
        typename: name of the type, for messages.
        field_names: an iterable of names, or one string with spaces or commas. Any string is a field name. A name
            that is no identifier, or that is a method of tuples, is read as `x["name"]`.

    Raises:
        TypeError: if a name is not a string.
        ValueError: if a name is given twice, or none is given.
    """
    if isinstance(field_names, str):
        field_names = field_names.replace(",", " ").split()
    fields = tuple(field_names)
    if not all(isinstance(f, str) for f in fields):
        raise TypeError(f"namedarraytuple {typename!r}: field names must be strings, got {fields!r}.")
    if not fields or len(set(fields)) != len(fields):
        raise ValueError(
            f"namedarraytuple {typename!r}: field names must be at least one and all different, got {fields!r}."
        )
    return _type_of(typename, fields)
