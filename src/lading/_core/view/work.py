"""Work that takes long, done in a thread: how far it is, what it found, and how it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, Generic, TypeVar

from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.storage.traffic import Traffic, WorkStopped
from lading.errors import LadingError

__all__ = ["PageWork"]

T = TypeVar("T")
_CLOSE_S = 2.0


class PageWork(Generic[T]):
    """A function that runs in a thread, and reports its progress.

    Args:
        find: the function; calls what it is given after every part of the work.
        lease_s: the work ends when nobody asked for its state for so long; None for work that ends by itself.

    Attributes:
        result: what the function returned; None before its end.
        error: the text of the error that ended it; None if there was none.
    """

    def __init__(self, find: Callable[[OnProgress], T], *, lease_s: float | None = None) -> None:
        self._find, self._lease_s = find, lease_s
        self.result: T | None = None
        self.error: str | None = None
        self._progress: Progress | None = None
        self._traffic, self._ended = Traffic(), Event()
        self._was_stopped = False
        self._asked = time.monotonic()
        self._thread = Thread(target=self._run, name="lading-view-work", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._traffic.counted():
                self.result = self._find(self._report)
        except WorkStopped:
            self._was_stopped = True
        except LadingError as error:
            self.error = str(error)
        except Exception as error:  # noqa: BLE001 - the page says it, and the server goes on
            self.error = f"internal error: {type(error).__name__}: {error}. This is a bug of lading."
        finally:
            self._ended.set()

    def _report(self, progress: Progress) -> None:
        self._progress = progress
        self._traffic.taken()  # nobody asks for these counts
        if self._lease_s is not None and time.monotonic() - self._asked > self._lease_s:
            self._traffic.stop()
        self._traffic.go_on()

    @property
    def is_running(self) -> bool:
        """Whether the function has not ended."""
        return not self._ended.is_set()

    @property
    def was_stopped(self) -> bool:
        """Whether the work ended before it was done."""
        return self._was_stopped

    def stop(self) -> None:
        """End the work at its next report, request, batch or shard."""
        self._traffic.stop()

    def close(self) -> None:
        """End the work, and wait for its end a little."""
        self.stop()
        self._thread.join(_CLOSE_S)

    def wait(self, seconds: float, until: Event | None = None) -> None:
        """Wait until the work ends, or sets an event, for so many seconds at most."""
        self._asked = time.monotonic() + seconds
        (until or self._ended).wait(seconds)
        self._asked = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Return how far the work is, and how it ended, for the page.

        What it found is read behind this: work that has ended has found all.
        """
        self._asked = time.monotonic()
        done = self._progress
        return {
            "running": self.is_running, "stopped": self._was_stopped, "error": self.error,
            "progress": done and {
                "shards": done.shards_done, "all_shards": done.num_shards, "samples": done.samples,
                "bytes": done.payload_bytes, "phase": done.phase, "share": done.done_share,
            },
        }  # fmt: skip
