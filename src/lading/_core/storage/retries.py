"""Repeat calls that failed in a way that may pass: with growing random waits, and under a deadline."""

from __future__ import annotations

import concurrent.futures
import errno
import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeVar

from lading._core.storage.threads import Threads
from lading.errors import NotFound, StoreError

__all__ = ["DEFAULT_RETRIES", "TRANSIENT_STATUS", "Retries", "is_transient"]

_LOG = logging.getLogger("lading.storage")
_T = TypeVar("_T")

_REFUSED_S: Final = 5.0
_SAY_EVERY_S: Final = 10.0
_REFUSED = frozenset((errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH))
"""A connection that nobody takes. Stores that tell it from other failures say so for an unknown name too."""
_REFUSED_NAMES = re.compile("ConnectError|Connector|EndpointConnection|NewConnection")
"""Class names of exceptions of libraries that mean the same."""

_TRANSIENT = frozenset(
    (
        errno.EAGAIN,
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.EIO,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ESTALE,
        errno.ETIMEDOUT,
        getattr(errno, "EREMOTEIO", errno.EIO),  # Linux alone has it
    )
)
TRANSIENT_STATUS = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Status codes of HTTP after which the same request may succeed."""
_TRANSIENT_NAMES = ("Connect", "Disconnect", "Timeout", "IncompleteRead", "Payload")
"""Parts of the class names of exceptions without errno that libraries raise when a connection breaks."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How long a failing call is repeated.

    Until a server has answered once in this process, its URL is perhaps wrong: a refused connection and an unknown
    name end the calls after 5 seconds, all else after 15. From then on `deadline_s` decides. Every 10 seconds the
    logger `_core.storage` says what is waited for; without a handler of its own it writes to standard error.

    Attributes:
        deadline_s: no call begins later than so many seconds after the first failure.
        host: the server; empty if each call may take `deadline_s`.
        backoff_s: longest wait before the second call, in seconds; doubled before each further one. The actual wait is
            random, from half to all of that, so that many workers do not retry at the same moment.
        longest_s: a wait is never longer.
        silent_s: the time for a first answer.
        sleep: how to wait.
        clock: the time, in seconds.
    """

    deadline_s: float = 180.0
    host: str = ""
    backoff_s: float = 0.5
    longest_s: float = 5.0
    silent_s: float = 15.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    @property
    def has_answered(self) -> bool:
        """Whether the server has answered in this process, or need not."""
        return not self.host or self.host in _answered

    def call(
        self,
        call: Callable[[], _T],
        path: str = "",
        worth: Callable[[StoreError], bool] | None = None,
        *,
        is_first: bool = False,
    ) -> _T:
        """Return the result of the call. The error of the last attempt says how many there were, and in what time.

        Args:
            call: may be called several times.
            path: what the call asks for.
            worth: whether a call is repeated after this error; by default `is_transient` says.
            is_first: whether the server shows by this call that it answers: a request that takes moments.
        """
        began, failed, wait = self.clock(), None, self.backoff_s
        for attempt in count(1):
            meets = is_first and not self.has_answered
            try:
                result = self._first(call, path, began) if meets else call()
            except StoreError as error:
                if error.__suppress_context__:  # it names a URL with its secret, perhaps
                    error.__context__ = None
                now, wait = self.clock(), min(wait, self.longest_s)
                failed = now if failed is None else failed
                since, longest = (began, self._patience_s(error)) if meets else (failed, self.deadline_s)
                pause = wait * random.uniform(0.5, 1)  # noqa: S311 - spreads load only
                repeats = (worth or is_transient)(error)
                if not repeats or now + pause - since > longest:
                    if repeats and attempt > 1:
                        error.message += f" (the last of {attempt} attempts in {now - began:.1f} s)"
                    if meets and not repeats and error.errno != errno.ETIMEDOUT:
                        _answered.add(self.host)
                    raise
                self._pause(pause, path or self.host, error.message, failed, longest)
                wait *= 2
            else:
                _answered.add(self.host)
                return result
        raise AssertionError("the loop has no end")

    def meet(self, first: Callable[[str], object], path: str) -> None:
        """Have a server answer once, before a call that may take long.

        Args:
            first: makes a call with `is_first`.
            path: what it asks for. An error of the server is an answer.
        """
        if not self.has_answered:
            try:
                first(path)
            except StoreError:
                if not self.has_answered:
                    raise

    def _first(self, call: Callable[[], _T], path: str, began: float) -> _T:
        """The result of a call to a server that has not answered yet. Libraries may wait for minutes, or for ever."""
        with Threads(1, "lading-first") as thread:
            result = thread.submit(call)
            concurrent.futures.wait([result], timeout=max(self.silent_s - (self.clock() - began), 0))
            if result.done():
                return result.result()
        silent = StoreError(f"no answer within {self.silent_s:g} s", file=path or None,
                            advice="Check the network, and that the URL and the endpoint are right.")  # fmt: skip
        silent.errno = errno.ETIMEDOUT
        raise silent

    def _patience_s(self, error: StoreError) -> float:
        """How long a server is called that has not answered yet."""
        refused = error.errno in _REFUSED or _REFUSED_NAMES.search(type(error.__cause__).__name__)
        return min(self.deadline_s, _REFUSED_S if refused else self.silent_s)

    def _pause(self, pause: float, waited_for: str, why: str, failed: float, longest: float) -> None:
        """Wait, and say so every ten seconds, once for all calls to a server."""
        now, place = self.clock(), self.host or waited_for
        due = max(failed, _said.get(place, failed)) + _SAY_EVERY_S
        if due <= now + pause:
            early = max(due - now, 0)
            self.sleep(early)
            _said[place], pause = max(due, now), pause - early
            _LOG.warning("waiting for %s: %s (%.0f s of %.0f s)", waited_for, why, _said[place] - failed, longest)
        self.sleep(pause)


_answered = {""}
"""Servers that have answered in this process."""
_said: dict[str, float] = {}
"""When a line last said that a server is waited for."""

DEFAULT_RETRIES = Retries()
"""Up to three minutes."""


def is_transient(error: StoreError) -> bool:
    """Return whether a failure may be transient: a broken connection, a busy server."""
    if isinstance(error, NotFound):
        return False
    cause = error.__cause__
    if "Offline" in type(cause).__name__:  # as Hugging Face's library is told to be
        return False
    status = getattr(cause, "status", None) or getattr(cause, "status_code", None) or getattr(cause, "code", None)
    if isinstance(status, int):
        return status in TRANSIENT_STATUS
    if error.errno is not None:
        return error.errno in _TRANSIENT
    if isinstance(cause, (TimeoutError, ConnectionError)):
        return True
    return any(part in type(cause).__name__ for part in _TRANSIENT_NAMES)
