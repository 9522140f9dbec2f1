"""Background work on files: in order, one task at a time, while the owner continues."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

__all__ = ["Background"]


class Background:
    """One thread for work that mostly waits for the system; started with the first task.

    Args:
        name: name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._pending: list[Future[None]] = []
        self._stopped = False

    def start(self, work: Callable[[], None]) -> None:
        """Wait for the previous task, then start this one, so that tasks do not pile up. Raises the previous error.

        The task has begun when the call returns. Otherwise the thread would wait up to 5 ms for the interpreter lock,
        or until its owner waits for it, and the two would take turns. Converting images from dicts then took a fifth to
        a half longer.
        """
        self.wait()
        begun = Event()

        def begin() -> None:
            begun.set()
            work()

        self._pending = [self._submit(begin)]
        begun.wait()

    def then(self, work: Callable[[], None]) -> None:
        """Run this task after the previous one, and only if none failed."""
        before = list(self._pending)

        def follow() -> None:
            for earlier in before:  # done, because there is one thread
                earlier.result()
            work()

        self._pending.append(self._submit(follow))

    def wait(self, but: int = 0) -> None:
        """Wait for all tasks except the last few. Raises the first error."""
        count = max(len(self._pending) - but, 0)
        pending, self._pending = self._pending[:count], self._pending[count:]
        for work in pending:
            work.result()

    def stop(self) -> None:
        """Wait for all tasks, ignore their errors, and end the thread."""
        self._stopped = True
        self._thread.shutdown()

    def _submit(self, work: Callable[[], None]) -> Future[None]:
        """Run a task in the thread; at the end of the interpreter, when threads take no more tasks, run it here."""
        try:
            return self._thread.submit(work)
        except RuntimeError:
            if self._stopped:
                raise
        done: Future[None] = Future()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised by `wait`, as any error of a task
            done.set_exception(error)
        else:
            done.set_result(None)
        return done
