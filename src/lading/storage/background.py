"""Work on files that goes on while its owner does something else, in order, one piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

__all__ = ["Background"]


class Background:
    """One thread for work that mostly waits for the system; started with the first piece of work.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._pending: list[Future[None]] = []

    def start(self, work: Callable[[], None]) -> None:
        """Do this out of sight, when what came before is done: so it cannot pile up. Raises what that raised.

        It has begun when this comes back: the thread would wait for its turn with the interpreter for up to 5 ms, or
        until its owner waits for it here, and then the two took turns. Pictures out of dicts took a fifth to a half
        longer.
        """
        self.wait()
        begun = Event()

        def begin() -> None:
            begun.set()
            work()

        self._pending = [self._thread.submit(begin)]
        begun.wait()

    def then(self, work: Callable[[], None]) -> None:
        """Do this out of sight as soon as what came before is done, and only if nothing failed."""
        before = list(self._pending)

        def follow() -> None:
            for earlier in before:  # done, since there is one thread
                earlier.result()
            work()

        self._pending.append(self._thread.submit(follow))

    def wait(self, but: int = 0) -> None:
        """Wait for all of it but the last few. Raises what it raised first."""
        count = max(len(self._pending) - but, 0)
        pending, self._pending = self._pending[:count], self._pending[count:]
        for work in pending:
            work.result()

    def stop(self) -> None:
        """Wait, whatever came of it, and end the thread."""
        self._thread.shutdown()
