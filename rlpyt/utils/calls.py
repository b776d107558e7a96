"""Calls of the methods of a server in another process, typed from the caller to the method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Concatenate, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

from rlpyt.utils.watched import Picklable

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class Call(NamedTuple, Generic[S, R]):
    """Call of a method of a server; it is sent to the server's process, where the method is found by its name."""

    method: Callable[..., R]
    args: tuple[Picklable, ...]
    kwargs: Mapping[str, Picklable]

    def on(self, server: S) -> R:
        """Call the method of a server; its class may override it."""
        reply: R = getattr(server, self.method.__name__)(*self.args, **self.kwargs)
        return reply

    def but(self, **changes: object) -> Call[S, R]:
        """Return the same call with other values of arguments that were given by name."""
        assert self.kwargs.keys() >= changes.keys(), f"{sorted(changes)} were not given by name"
        return self._replace(kwargs={**self.kwargs, **changes})

    def is_of(self, method: Callable[..., object]) -> bool:
        """Return whether it calls a method."""
        return self.method is method


def call(method: Callable[Concatenate[S, P], R], *args: P.args, **kwargs: P.kwargs) -> Call[S, R]:
    """Return the call of a method with these arguments, as `call(CollectorServer.collect, itr, None)`."""
    return Call(method, args, kwargs)


AnyCall: TypeAlias = Call[S, Picklable]
"""Call of a server, whatever it replies."""


class CallServer:
    """Server whose requests are calls of its own methods."""

    def __call__(self, request: Call[CallServer, R]) -> R:
        """Answer one request."""
        return request.on(self)
