"""Repeat calls that failed in a way that may pass: with growing random waits, and under a deadline."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lading.errors import NotFound, StoreError

__all__ = ["DEFAULT_RETRIES", "TRANSIENT_STATUS", "Retries", "is_transient"]

_T = TypeVar("_T")

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
        errno.EREMOTEIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
    )
)
TRANSIENT_STATUS = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Status codes of HTTP after which the same request may succeed."""
_TRANSIENT_NAMES = ("Connect", "Disconnect", "Timeout", "IncompleteRead", "Payload")
"""Parts of the class names of exceptions without errno that libraries raise when a connection breaks."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how long a failing call is repeated.

    Attributes:
        attempts: maximum number of calls, the first included.
        deadline_s: no call begins later than so many seconds after the first one.
        backoff_s: longest wait before the second call, in seconds; doubled before each further one. The actual wait is
            random, from half to all of that, so that many workers do not retry at the same moment.
        longest_s: a wait is never longer.
        sleep: how to wait.
        clock: the time, in seconds.
    """

    attempts: int = 10
    deadline_s: float = 180.0
    backoff_s: float = 0.5
    longest_s: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def call(self, call: Callable[[], _T], worth: Callable[[StoreError], bool] | None = None) -> _T:
        """Return the result of the call. The error of the last attempt says how many there were, and in what time.

        Args:
            call: may be called several times.
            worth: whether a call is repeated after this error; by default `is_transient` says.
        """
        began = self.clock()
        for attempt in range(1, self.attempts + 1):
            try:
                return call()
            except StoreError as error:
                wait = min(self.backoff_s * 2 ** (attempt - 1), self.longest_s) * random.uniform(0.5, 1)  # noqa: S311 - spreads load only
                taken = self.clock() - began
                repeats = (worth or is_transient)(error)
                if not repeats or attempt == self.attempts or taken + wait > self.deadline_s:
                    if repeats and attempt > 1:
                        error.message += f" (the last of {attempt} attempts in {taken:.1f} s)"
                    raise
            self.sleep(wait)
        raise AssertionError("attempts is at least 1")


DEFAULT_RETRIES = Retries()
"""Up to three minutes."""


def is_transient(error: StoreError) -> bool:
    """Return whether a failure may be transient: a broken connection, a busy server."""
    if isinstance(error, NotFound):
        return False
    cause = error.__cause__
    status = getattr(cause, "status", None) or getattr(cause, "status_code", None) or getattr(cause, "code", None)
    if isinstance(status, int):
        return status in TRANSIENT_STATUS
    if error.errno is not None:
        return error.errno in _TRANSIENT
    if isinstance(cause, (TimeoutError, ConnectionError)):
        return True
    return any(part in type(cause).__name__ for part in _TRANSIENT_NAMES)
