"""Processes that decode bytes for the page, and what they made: each is ended where it takes too long."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from queue import LifoQueue
from threading import Lock

from lading._core.view.drawer import Drawer, Drawn

__all__ = ["Drawers"]

_HELD_BYTES = 64 << 20


class Drawers:
    """Processes that decode, started when there is work, and the newest of what they made.

    Args:
        count: of processes.
    """

    def __init__(self, count: int = 2) -> None:
        self._free: LifoQueue[Drawer | None] = LifoQueue()
        for _ in range(count):
            self._free.put(None)
        self._count, self._lock = count, Lock()
        self._made: OrderedDict[Hashable, Drawn] = OrderedDict()
        self._held_bytes = 0

    def draw(self, what: str, size: int, key: Hashable, read: Callable[[], bytes | memoryview]) -> Drawn:
        """Return what a process makes of bytes; the same as before for a key that was asked for.

        Args:
            what: a name of `drawing.ANSWERS`.
            size: pixels of the picture's longer side, or parts of a waveform.
            key: of the value, in all datasets that are shown.
            read: gives the bytes.
        """
        key = (what, size, key)
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        data = read()
        drawer = self._free.get()
        try:
            drawer = drawer or Drawer()
            made = drawer.ask(what, size, data)
        finally:
            self._free.put(drawer if drawer is not None and drawer.is_alive else None)
        with self._lock:
            self._made[key] = made
            self._held_bytes += len(made.picture)
            while self._held_bytes > _HELD_BYTES:
                _, oldest = self._made.popitem(last=False)
                self._held_bytes -= len(oldest.picture)
        return made

    def close(self) -> None:
        """End the processes."""
        for _ in range(self._count):
            drawer = self._free.get()
            if drawer is not None:
                drawer.end()
