"""Reads of a forked child through a program of its own: obstore's runtime does not survive a fork.

The program is started by the first read, answers one request after another, and ends with the child.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from lading._core.processes.child_process import leave_signals
from lading._core.processes.pickled import to_bytes
from lading._core.processes.program import Program, how_it_ended
from lading._core.secret_urls import KnownSecrets
from lading.errors import LadingError, StoreError

__all__ = ["FORKED", "relayed"]

_S = TypeVar("_S")
_P = ParamSpec("_P")
_R = TypeVar("_R")

FORKED: Final = 'Start processes otherwise: DataLoader(..., multiprocessing_context="forkserver").'
"""Advice for what a forked child cannot do."""


def relayed(
    is_usable: Callable[[], bool],
) -> Callable[[Callable[Concatenate[_S, _P], _R]], Callable[Concatenate[_S, _P], _R]]:
    """Return a decorator for a method of a store that reads: a forked child lets its program call it.

    Args:
        is_usable: whether this process may call it.
    """

    def decorate(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
        @wraps(method)
        def call(store: _S, /, *args: _P.args, **named: _P.kwargs) -> _R:
            if is_usable():
                return method(store, *args, **named)
            found: _R = _ask(store, method.__name__, args, named)
            return found

        return call

    return decorate


class _Program:
    """The program of one forked child."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        with its:
            self._program = Program(__name__, stdin=its.fileno(), stdout=None, advice=FORKED)
        self._connection = Connection(ours.detach())
        self._told = 0

    def ask(self, *request: Any) -> Any:
        """Return its answer. Raises StoreError if it has ended."""
        known = KnownSecrets()
        try:
            self._connection.send_bytes(pickle.dumps((known if len(known) > self._told else None, *request)))
            self._told = len(known)
            return pickle.loads(self._connection.recv_bytes())  # noqa: S301 - lading's own program
        except (EOFError, OSError) as error:
            raise StoreError("the program that reads for a forked process has ended", found=how_it_ended(self.end()),
                             advice=FORKED) from error  # fmt: skip

    def end(self) -> int:
        """End it, whatever it does: it only reads. Return its status."""
        self._connection.close()
        return self._program.end()


_lock = Lock()
_program: _Program | None = None


def _ask(store: object, method: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    global _program  # noqa: PLW0603 - a fact of the process
    made = to_bytes(store, {}, FORKED)
    with _lock:
        if _program is None:
            _program = _Program()
        try:
            error, answer = _program.ask(made, method, args, named)
        except BaseException:  # an answer that nobody took is not the next one's
            ended, _program = _program, None
            ended.end()
            raise
    if error is not None:
        raise error
    return answer


def _forget() -> None:
    """Let a forked child start a program of its own."""
    global _lock, _program
    _lock, _program = Lock(), None


os.register_at_fork(after_in_child=_forget)


def _answer(connection: Connection) -> None:
    """Answer requests until the other end is closed."""
    stores: dict[bytes, Any] = {}
    while True:
        _, store, method, args, named = pickle.loads(connection.recv_bytes())  # noqa: S301 - of the process that started this
        answer: tuple[LadingError | None, Any]
        try:
            if store not in stores:
                stores[store] = pickle.loads(store)  # noqa: S301 - as above
            answer = None, _plain(getattr(stores[store], method)(*args, **named))
        except LadingError as error:
            answer = error, None
        connection.send_bytes(pickle.dumps(answer))


def _plain(found: Any) -> Any:
    """Return a result that can be pickled: the bytes of views."""
    if not isinstance(found, list):
        return found
    return [bytes(each) if isinstance(each, memoryview) else each for each in found]


if __name__ == "__main__":
    leave_signals()
    with suppress(EOFError, ConnectionError):
        _answer(Connection(0))
